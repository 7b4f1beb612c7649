//! Rewards of several parts: graders with weights, by source, who decides, and what a run makes of the parts.

#![allow(clippy::unwrap_used, missing_docs)]

mod scratch;

use std::collections::BTreeSet;

use scratch::Scratch;
use serde_json::Value;

/// Two sources, `sums/1` of the first task and `ones/1` of the second, under these rewards.
fn config(reward: &str) -> String {
    let second = "[[tasks]]\nkind = \"sums\"\nname = \"ones\"\nstyle = \"terse\"\ncount = 50\nlevels = [{ digits = 1 }]\n";
    format!("{reward}\n{}\n{second}", include_str!("cases/judged.toml"))
}

/// The rewards of all rollouts in a record, and the means of their parts by step.
fn recorded(scratch: &Scratch, run: &str) -> (Vec<Value>, Vec<Value>) {
    let record = scratch.read(&format!("{run}/record.jsonl"));
    let lines: Vec<Value> = record.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).cloned().collect::<Vec<_>>();
    let groups = of("rollouts").into_iter().flat_map(|line| line["sampled"].as_array().unwrap().clone());
    let rewards = groups.flat_map(|group| group["rewards"].as_array().unwrap().clone()).collect();
    (rewards, of("step").iter().map(|step| step["rewards"].clone()).collect())
}

const TWO: &str = r#"
[[reward.graders]]
name = "answer"
grader = "exact"
weight = 0.75
[[reward.graders]]
name = "format"
grader = "pattern"
weight = 0.25
[reward.graders.pattern]
regex = '^\d\d\d$'
"#;

#[test]
fn a_reward_is_the_sum_of_its_parts_and_the_first_decides() {
    let scratch = Scratch::new();
    scratch.write("two.toml", config(TWO));
    scratch.write("one.toml", config("[reward]\ngrader = \"exact\""));
    for run in ["two", "one"] {
        let said = scratch.allot(&["train", &format!("{run}.toml"), "--out", run]);
        assert!(said.ends_with("exit code 0"), "{said}");
    }
    let ((two, parts), (one, none)) = (recorded(&scratch, "two"), recorded(&scratch, "one"));
    // The first step is sampled from the same weights: what the one grader says is in the sum of the two.
    for (two, one) in two.iter().zip(&one).take(16) {
        let (two, one) = (two.as_f64().unwrap(), one.as_f64().unwrap());
        assert!([0.0, 0.25].contains(&(two - 0.75 * one)), "{two} {one}");
    }
    let known: BTreeSet<String> = two.iter().map(ToString::to_string).collect();
    assert!(known.len() >= 3, "some have one part, some both: {known:?}");
    for means in &parts {
        assert_eq!((&means[0][0], &means[1][0]), (&"answer".into(), &"format".into()), "{means}");
    }
    assert!(none.iter().all(|means| means.as_array().is_none_or(Vec::is_empty)), "{none:?}");
    // Accuracies are those of the grader that decides.
    let accuracy = |run: &str| {
        let head = scratch.read(&format!("{run}/record.jsonl")).lines().next().unwrap().to_owned();
        serde_json::from_str::<Value>(&head).unwrap()["accuracy"].clone()
    };
    assert_eq!(accuracy("two"), accuracy("one"));
    assert!(scratch.allot(&["replay", "two"]).ends_with("exit code 0"));
}

#[test]
fn who_is_marked_decides_and_a_source_has_graders_of_its_own() {
    let scratch = Scratch::new();
    let accuracy = |reward: &str| {
        scratch.write("run.toml", config(reward));
        let said = scratch.allot(&["train", "run.toml", "--out", "run"]);
        assert!(said.ends_with("exit code 0"), "{reward}: {said}");
        let head = scratch.read("run/record.jsonl").lines().next().unwrap().to_owned();
        std::fs::remove_dir_all(scratch.path().join("run")).unwrap();
        serde_json::from_str::<Value>(&head).unwrap()["accuracy"].as_f64().unwrap()
    };
    let alone = accuracy("[reward]\ngrader = \"exact\"");
    let format = |regex: &str, more: &str| {
        format!(
            "[[reward.graders]]\nname = \"f\"\ngrader = \"pattern\"\n{more}\n[reward.graders.pattern]\nregex = '{regex}'\n"
        )
    };
    let exact = |more: &str| format!("[[reward.graders]]\ngrader = \"exact\"\n{more}\n");
    // A format that all have, one that nobody has, and who of two decides.
    assert_eq!(accuracy(&(format("", "") + &exact(""))), 1.0);
    assert_eq!(accuracy(&(format("", "decides = false") + &exact(""))), alone);
    assert_eq!(accuracy(&(format("", "") + &exact("decides = true"))), alone);
    assert_eq!(accuracy(&(format("zz", "decides = true") + &exact("decides = true"))), 0.0);
    // What is held out is of `sums`; the other source has another grader.
    assert_eq!(accuracy(&(format("", "sources = [\"sums\"]") + &exact("sources = [\"ones/1\"]"))), 1.0);
    assert_eq!(accuracy(&(format("zz", "sources = [\"ones\"]") + &exact("sources = [\"sums/1\"]"))), alone);
}

#[test]
fn a_part_without_a_verdict_leaves_none_to_the_sum() {
    let scratch = Scratch::new();
    scratch.write("judge", "#!/bin/sh\nwhile read -r line; do id=${line#*:}; id=${id%%,*}; echo \"{\\\"id\\\":$id,\\\"error\\\":\\\"no idea\\\"}\"; done\n");
    let judged = "[[reward.graders]]\ngrader = \"command\"\n[reward.graders.process]\ncommand = [\"sh\", \"judge\"]\nprocesses = 1\n";
    scratch.write("run.toml", config(&format!("{TWO}{judged}")));
    let said = scratch.allot(&["train", "run.toml", "--out", "run"]);
    assert!(said.contains("`command`: the grader says: no idea"), "{said}");
    let (rewards, _) = recorded(&scratch, "run");
    assert!(rewards.iter().all(Value::is_null), "{rewards:?}");
}

/// A config whose command fails for each answer, with more of [reward] on top.
fn failing(reward: &str) -> String {
    let judge = "[reward.process]\ncommand = [\"sh\", \"judge\"]\nprocesses = 2\n";
    config(&format!("[reward]\ngrader = \"command\"\n{reward}{judge}"))
}

#[test]
fn a_run_that_can_grade_none_of_its_first_answers_ends_with_the_grader_s_words() {
    let scratch = Scratch::new();
    // It counts what it is asked, and can only grade the greeting: gold answers themselves.
    scratch.write(
        "judge",
        "#!/bin/sh\nwhile read -r line; do echo x >>asked; id=${line#*:}; id=${id%%,*}\n\
         echo \"{\\\"id\\\":$id,\\\"error\\\":\\\"the key is not valid\\\"}\"; done\n",
    );
    let asked = || std::fs::read_to_string(scratch.path().join("asked")).unwrap().lines().count();
    for (reward, first) in [("", 64), ("patience = 20\n", 20)] {
        let _ = std::fs::remove_file(scratch.path().join("asked"));
        scratch.write("run.toml", failing(reward));
        let run = format!("run-{first}");
        let said = scratch.allot(&["train", "run.toml", "--out", &run, "-o", "run.steps=20"]);
        let what = format!(
            "error: none of the first {first} answers could be graded; the last one: the grader says: the key is not valid"
        );
        assert!(said.contains(&what) && said.ends_with("exit code 2"), "{said}");
        assert!(said.contains("hint: Fix the grader") && said.contains("hint: Set `patience`"), "{said}");
        // Each of two processes is greeted, and so is one before the run.
        assert!((first..=first + 3).contains(&asked()), "{}", asked());
    }
    // Without a limit the budget is spent, as it is where one answer could be graded.
    scratch.write("run.toml", failing("patience = 0\n"));
    let said = scratch.allot(&["train", "run.toml", "--out", "whole"]);
    let unscorable = said.lines().any(|line| line.contains("unscorable") && line.ends_with(" 32  100.0 %"));
    assert!(unscorable && said.ends_with("exit code 0"), "{said}");
}

#[test]
fn what_is_wrong_with_several_graders_is_told_before_the_run() {
    let scratch = Scratch::new();
    let said = |reward: &str| {
        scratch.write("run.toml", config(reward));
        let said = scratch.allot(&["train", "run.toml", "--out", "none"]);
        assert!(!scratch.path().join("none").exists(), "{said}");
        said
    };
    let exact = "[[reward.graders]]\ngrader = \"exact\"\n";
    let two = format!("{exact}{exact}");
    let pattern = "[[reward.graders]]\nname = \"f\"\ngrader = \"pattern\"\n";
    for (reward, what, hint) in [
        ("[reward]\nright = 2.0", "`run.toml`: [reward] names no grader", "set `grader`"),
        (
            &format!("[reward]\nright = 2.0\n{exact}"),
            "and settings of one under [reward]",
            "`overlong`, `unreadable` and `patience`",
        ),
        (
            "[reward]\ngrader = \"exact\"\nweight = 2.0",
            "has `reward.weight`, which is only for one of several",
            "leave it out",
        ),
        (&two, "`run.toml` has two graders named `exact`", "a different `name`"),
        (&format!("{exact}name = \"a.b\""), "`reward.graders.name` is \"a.b\"", "letters, digits"),
        (
            &format!("{exact}sources = [\"sums\"]"),
            "grades the problems of source `ones/1`",
            "to the `sources` of a grader",
        ),
        (
            &format!("{exact}sources = [\"sums\", \"ones\", \"twos\"]"),
            "grader `exact` has source `twos`, but no problem comes from it",
            "use one of the sources `ones/1`, `sums/1`",
        ),
        (
            &format!("{exact}decides = false"),
            "no grader says whether answers to problems of source `",
            "remove `decides",
        ),
        (
            &format!("{exact}weight = nan"),
            "`run.toml` (grader `exact`): `reward.graders.weight` is NaN; expected a finite number",
            "",
        ),
        (
            pattern,
            "`run.toml` (grader `f`) has grader `pattern` but no section [reward.graders.pattern]",
            "regex =",
        ),
        (
            &format!("{pattern}[reward.graders.pattern]\nregex = '('"),
            "`reward.graders.pattern.regex` is not a regular expression: unclosed group",
            "`regex` crate",
        ),
        (
            &format!("{exact}[reward.graders.python]\nfuel = 1"),
            "has a section [reward.graders.python], but its grader is `exact`",
            "use grader `python`",
        ),
    ] {
        let said = said(reward);
        let told = said.contains(what) && said.contains("error: ") && said.ends_with("exit code 2");
        assert!(told && said.split("hint: ").nth(1).unwrap_or_default().contains(hint), "{reward}: {said}");
    }
}
