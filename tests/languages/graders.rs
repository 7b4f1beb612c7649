//! One grader in five languages: it says the same of every answer, is told of faults in the words of its language, and
//! refuses what it can't work with. And one that compares answers.

use std::collections::BTreeMap;

use allot_authoring::language::Language;
use allot_judges::component::Components;
use allot_judges::protocol::{Judgement, Opinion, Question};
use allot_settings::ComponentConfig;

use crate::scratch::Scratch;
use crate::tools;

/// A folder with the component of a language's grader below this folder; nothing where its tools are missing.
fn built(folder: &str, language: Language) -> Option<Scratch> {
    if tools::missing(language) {
        return None;
    }
    let scratch = Scratch::new();
    let lang = crate::name(language);
    scratch.write("grader.wasm", tools::built(&format!("tests/languages/{folder}/{lang}"), language));
    Some(scratch)
}

/// What is said of these answers to one question, judged side by side.
fn opinions(scratch: &Scratch, answers: &[&str]) -> Vec<Opinion> {
    let all: Vec<(u32, &str)> = answers.iter().map(|answer| (0, *answer)).collect();
    opinions_on_groups(scratch, &all)
}

/// The same of answers with the numbers of their groups.
fn opinions_on_groups(scratch: &Scratch, answers: &[(u32, &str)]) -> Vec<Opinion> {
    let path = scratch.path().join("grader.wasm");
    // The cache that `allot build` filled.
    let config = ComponentConfig::of(path.to_str().unwrap());
    let mut components = Components::cached(&config, None, Some(&tools::cache())).unwrap();
    for (place, (group, answer)) in answers.iter().enumerate() {
        let gold = ["4", "four", "=", "+"].map(str::to_owned).to_vec();
        let (prompt, source) = ("2+2".to_owned(), "sums".to_owned());
        components.begin(
            place,
            Question { gold, answer: (*answer).to_owned(), prompt, source, group: *group, episode: None },
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let told: BTreeMap<usize, Opinion> = runtime.block_on(components.finish()).unwrap().into_iter().collect();
    told.into_values().collect()
}

fn verdicts_are_the_same(language: Language) {
    let Some(scratch) = built("grader", language) else { return };
    let parts = |answer: f32, length: f32| {
        let parts = vec![("answer".to_owned(), answer), ("length".to_owned(), length)];
        Ok(Judgement { correct: Some(answer == 1.0), parts, ..Judgement::default() })
    };
    let reward = |reward, correct| Ok(Judgement { correct, reward: Some(reward), ..Judgement::default() });
    let expected: [(&str, Opinion); 8] = [
        ("4", parts(1.0, 0.125)),
        ("four", parts(1.0, 0.5)),
        ("seventeen", parts(0.0, 1.125)),
        ("", parts(0.0, 0.0)),
        ("=", Ok(true.into())),
        ("+", reward(0.75, Some(true))),
        ("?", reward(0.25, None)),
        ("pass", Err("grader `yardstick` said: sums to 2+2".to_owned())),
    ];
    for batches in [1, 5] {
        let all: Vec<&(&str, Opinion)> = expected.iter().cycle().take(8 * batches).collect();
        let answers: Vec<&str> = all.iter().map(|(answer, _)| *answer).collect();
        for ((answer, expected), said) in all.into_iter().zip(opinions(&scratch, &answers)) {
            assert_eq!(said, *expected, "{answer}");
        }
    }

    // A fault costs its own answer alone, and its words come along.
    let said = opinions(&scratch, &["4", "!", "four"]);
    assert_eq!((&said[0], &said[2]), (&parts(1.0, 0.125), &parts(1.0, 0.5)));
    let fault = said[1].clone().unwrap_err();
    assert!(
        fault.starts_with("grader `yardstick` trapped: ") && fault.contains("no answer begins so"),
        "{fault}"
    );

    let checked = scratch.allot(&["check", "./grader.wasm", "--within", "3600"]);
    assert!(checked.contains("    gives the parts answer, length\n"), "{checked}");
    assert!(!checked.contains("FAIL") && checked.ends_with("exit code 0"), "{checked}");
    for (set, words) in [
        ("per-letter=-1", "refused its setting `per-letter`: a letter costs nothing"),
        ("open=false", "gave up: it is closed"),
    ] {
        let checked = scratch.allot(&["check", "./grader.wasm", "--set", set]);
        assert!(checked.contains(words) && checked.ends_with("exit code 1"), "{checked}");
    }
}

fn groups_are_compared_alike(language: Language) {
    let Some(scratch) = built("group_grader", language) else { return };
    let reward =
        |reward, right| Ok(Judgement { correct: Some(right), reward: Some(reward), ..Judgement::default() });
    // Two groups whose answers come in turn, and one of a single answer.
    let answers = [(1, "four"), (2, "four"), (1, "4"), (2, "five"), (1, "5"), (3, "4"), (1, "4")];
    let alone = Err("grader `podium` said: it is alone".to_owned());
    let expected = [(0.0, true), (1.0, true), (1.0, true), (0.0, false), (0.0, false)];
    let [a, b, c, d, e] = expected.map(|(worth, right)| reward(worth, right));
    assert_eq!(opinions_on_groups(&scratch, &answers), [a, b, c.clone(), d, e, alone, c]);

    // A fault costs its group, and no other.
    let said = opinions_on_groups(&scratch, &[(1, "4"), (2, "4"), (1, "!"), (2, "four")]);
    assert_eq!((&said[1], &said[3]), (&reward(1.0, true), &reward(0.0, true)));
    for lost in [&said[0], &said[2]] {
        let fault = lost.clone().unwrap_err();
        assert!(
            fault.starts_with("grader `podium` trapped: ") && fault.contains("no answer begins so"),
            "{fault}"
        );
    }

    let checked = scratch.allot(&["check", "./grader.wasm", "--within", "3600"]);
    assert!(checked.contains("    compares the answers of a group\n"), "{checked}");
    assert!(checked.contains("pass  gives the answers of a group the same verdicts twice"), "{checked}");
    assert!(!checked.contains("FAIL") && checked.ends_with("exit code 0"), "{checked}");
    a_run_compares_the_answers_of_each_request(&scratch);
}

/// In a run, right answers are compared with the others of their request, and regraded they get the same.
fn a_run_compares_the_answers_of_each_request(scratch: &Scratch) {
    let reward = "[reward]\ngrader = \"component\"\n[reward.component]\nuse = \"./grader.wasm\"\n";
    let config = format!("{reward}{}", include_str!("../cases/judged.toml"));
    scratch.write("run.toml", &config);
    let alone = scratch.allot(&["train", "run.toml", "--out", "run"]);
    assert!(alone.contains("on which there is no verdict: grader `podium` said: it is alone"), "{alone}");
    assert!(alone.contains("hint: set `evaluation.rollouts` to 2 or more"), "{alone}");
    scratch.write("run.toml", config.replace("problems = 8", "problems = 8\nrollouts = 2"));
    let said = scratch.allot(&["train", "run.toml", "--out", "run"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let record = scratch.read("run/record.jsonl");
    assert!(record.lines().next().unwrap().contains("rollout:reward@0.2.0"));
    let (mut rewarded, mut beaten) = (0, 0);
    for line in record.lines().filter(|line| line.contains("\"kind\":\"rollouts\"")) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        for group in line["sampled"].as_array().unwrap() {
            let rewards: Vec<f64> =
                group["rewards"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
            let correct = group["correct"].as_str().unwrap().bytes().map(|byte| byte == b'1');
            let right: Vec<f64> =
                rewards.iter().zip(correct).filter(|(_, is)| *is).map(|(x, _)| *x).collect();
            // Right answers to one problem may differ in length, as in a space. One at least is the shortest.
            assert!(right.is_empty() || right.contains(&1.0), "{group}");
            assert_eq!(rewards.iter().sum::<f64>(), right.iter().sum::<f64>(), "{group}");
            rewarded += right.iter().filter(|x| **x == 1.0).count();
            beaten += rewards.len() - right.len();
        }
    }
    assert!(rewarded > 0 && beaten > 0, "{rewarded} {beaten}");
    let graded = scratch.allot(&["grade", "run", "run", "--show", "0"]);
    assert!(graded.contains("as before") && !graded.contains("other reward"), "{graded}");
}

in_each_language!(verdicts_are_the_same, groups_are_compared_alike);

#[test]
fn a_python_grader_that_exits_is_told_and_rewards_nobody() {
    let Some(scratch) = built("grader", Language::Python) else { return };
    let said = opinions(&scratch, &["4", "exit", "four"]);
    assert!(said[0].is_ok() && said[2].is_ok(), "{said:?}");
    let fault = said[1].clone().unwrap_err();
    assert!(
        fault.contains("the grader called `sys.exit`; what it can't judge is `unscorable(…)`"),
        "{fault}"
    );
}

mod rust {
    #[test]
    fn verdicts_are_the_same() {
        super::verdicts_are_the_same(allot_authoring::language::Language::Rust);
    }

    #[test]
    fn groups_are_compared_alike() {
        super::groups_are_compared_alike(allot_authoring::language::Language::Rust);
    }
}
