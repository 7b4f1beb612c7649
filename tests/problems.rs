//! The problems of a run, as a dry run tells of them: which are held out and trained on all the same, what is nearly so,
//! and gold answers that nobody can read.

#![allow(clippy::unwrap_used, missing_docs)]

mod scratch;

use allot_tasks::dataset::Split;
use allot_tasks::generate::{TaskConfig, generate};
use serde_json::{Value, json};

use scratch::Scratch;

/// Rows of a question and an answer, as a file of the scratch folder.
fn rows(scratch: &Scratch, name: &str, rows: &[(&str, Value)]) {
    let row =
        |(question, answer): &(&str, Value)| json!({"question": question, "answer": answer}).to_string();
    scratch.write(name, rows.iter().map(row).collect::<Vec<_>>().join("\n"));
}

/// What a dry run says of these problems.
fn dry_run(scratch: &Scratch, grader: &str, problems: &str) -> String {
    let config = format!(
        "[run]\nseed = 1\nsteps = 1\ngroups = 2\nrollouts = 2\n[budget]\nrollouts = 10\n[policy]\nuse = \"uniform\"\n\
         [model]\nuse = \"tiny-sums\"\nthreads = 1\n[sampling]\nmax_tokens = 8\n[reward]\n{grader}\n{problems}"
    );
    scratch.write("run.toml", config);
    scratch.allot(&["train", "run.toml", "--dry-run"]).replace(&format!("{}/", scratch.path().display()), "")
}

#[test]
fn what_is_held_out_is_not_trained_on_however_it_is_put() {
    let scratch = Scratch::new();
    let questions: Vec<String> = (10..60).map(|i| format!("{i}+{}", i + 1)).collect();
    let all: Vec<(&str, Value)> = questions.iter().map(|q| (q.as_str(), json!(1))).collect();
    rows(&scratch, "all.jsonl", &all);
    rows(&scratch, "half.jsonl", &all[..25]);
    let spaced: Vec<String> = questions.iter().map(|q| format!(" {q} ")).collect();
    rows(&scratch, "spaced.jsonl", &spaced[..25].iter().map(|q| (q.as_str(), json!(1))).collect::<Vec<_>>());
    let told = |problems: &str| dry_run(&scratch, "grader = \"integer\"", problems);
    let out = "25 problems to train on are also held out, and are left out of training";
    // A space in the file or by a template, a template, the same question in a column that has its template in it.
    for held_out in [
        "files = \"half.jsonl\"",
        "files = \"half.jsonl\"\ntemplate = \"{{ question }} \"",
        "files = \"half.jsonl\"\ntemplate = \"{{ question }}=\"",
        "files = \"spaced.jsonl\"",
    ] {
        let said = told(&format!("[[data]]\nfiles = \"all.jsonl\"\n[[evaluation.sets]]\n{held_out}"));
        assert!(said.contains(out), "{held_out}: {said}");
    }
    let said = told(
        "[[data]]\nfiles = \"all.jsonl\"\n[[evaluation.sets]]\nfiles = \"all.jsonl\"\ntemplate = \"{{ question }} \"",
    );
    assert!(said.contains("there are no problems to train on") && said.ends_with("exit code 2"), "{said}");

    // A generator's, with another template and another share; and its problems in a file.
    let task = |more: &str| {
        format!(
            "[[tasks]]\nkind = \"sums\"\nstyle = \"terse\"\ncount = 100\nlevels = [{{ digits = 1 }}]\n{more}\n"
        )
    };
    let plain = told(&task("held_out = 0.5"));
    assert!(!plain.contains("are also held out"), "{plain}");
    let both = told(&(task("held_out = 0.5") + &task("template = \"{{ question }} \"")));
    assert!(both.contains("problems to train on are also held out"), "{both}");
    let count = |said: &str| -> usize {
        let line = said.lines().find(|l| l.contains("are also held out")).unwrap();
        line.trim_start_matches("note: ").split(' ').next().unwrap().parse().unwrap()
    };
    let config: TaskConfig = toml::from_str::<Value>(&task("held_out = 0.5"))
        .map(|v| serde_json::from_value(v["tasks"][0].clone()).unwrap())
        .unwrap();
    let held_out = generate(&config, Split::HeldOut).unwrap().problems;
    assert_eq!(count(&both), held_out.len(), "each is in the other task, too");
    let as_rows: Vec<(&str, Value)> = held_out.iter().map(|p| (p.question.as_str(), json!(1))).collect();
    rows(&scratch, "sums.jsonl", &as_rows);
    let filed = told(
        &(task("held_out = 0.5") + "[[data]]\nfiles = \"sums.jsonl\"\ntemplate = \"{{ question }} \"\n"),
    );
    assert_eq!(count(&filed), held_out.len(), "{filed}");
}

#[test]
fn questions_that_are_nearly_held_out_ones_are_told_of() {
    let scratch = Scratch::new();
    let words =
        "A farmer has seven cows and sells three of them on Monday; how many are left by Tuesday noon?";
    let other =
        "Two trains leave the same station at nine and meet again after four hours; how far did each go?";
    rows(&scratch, "train.jsonl", &[(&words.replace("Monday", "Sunday"), json!(1)), (other, json!(2))]);
    rows(&scratch, "test.jsonl", &[(words, json!(1))]);
    let data = "[[data]]\nfiles = \"train.jsonl\"\n[[evaluation.sets]]\nfiles = \"test.jsonl\"\n";
    let ascii = "template = \"1+1=\"\n";
    let said = dry_run(
        &scratch,
        "grader = \"integer\"",
        &data
            .replace("\n[[eval", &format!("\n{ascii}[[eval"))
            .replace("test.jsonl\"\n", &format!("test.jsonl\"\n{}", ascii.replace("1+1", "1+2"))),
    );
    assert!(
        said.contains("1 problem to train on has at least half of the words of a held-out one in common")
            && said.contains("train.jsonl` line 1 (as `")
            && said.contains("test.jsonl` line 1)"),
        "{said}"
    );
}

#[test]
fn gold_answers_that_can_not_be_read_are_found_before_the_run() {
    let scratch = Scratch::new();
    let all = [
        ("1+1=", json!(["2", "as many as you like"])),
        ("1+2=", json!("three")),
        ("1+3=", json!(4)),
        ("1+4=", json!(["five", "fünf"])),
    ];
    rows(&scratch, "all.jsonl", &all);
    let told = |more: &str| {
        dry_run(&scratch, &format!("grader = \"integer\"\n{more}"), "[[data]]\nfiles = \"all.jsonl\"\n")
    };
    let which = "`all.jsonl` line 2 (\"three\"), `all.jsonl` line 4 (\"five\")";
    let refused = told("");
    let what = format!("error: 2 problems have no gold answer that grader `integer` can read: {which}");
    assert!(refused.contains(&what) && refused.ends_with("exit code 2"), "{refused}");
    assert!(refused.contains("\nhint: ") && refused.contains("reward.unreadable"), "{refused}");
    let left = told("unreadable = \"leave-out\"");
    assert!(
        left.contains(&format!("2 problems have no gold answer that grader `integer` can read, left out: {which}"))
            && left.contains("1 gold answer can't be read by grader `integer`; other gold answers of the same problems still count: `all.jsonl` line 1 (\"as many as you like\")")
            && left.ends_with("exit code 0"),
        "{left}"
    );
    // Each grader by itself: all of these are fine to the letter.
    let exact = dry_run(&scratch, "grader = \"exact\"", "[[data]]\nfiles = \"all.jsonl\"\n");
    assert!(exact.ends_with("exit code 0") && !exact.contains("gold answer"), "{exact}");
}
