//! Reward functions as Python trainers have them: verl's `compute_score` and TRL's `reward_funcs`, from a file, as they
//! are.

#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

mod opinions;
mod scratch;
mod skip;

use std::path::Path;
use std::process::Command;

use allot_judges::processes::{GraderCommand, Processes};
use allot_judges::protocol::{Judgement, Opinion, Question};
use allot_settings::reward::{Compares, FunctionsConfig, JudgeConfig};
use opinions::opinions_on;
use scratch::Scratch;
use skip::skip;

/// In verl's way: by name, with a data source, a plain number or a dictionary.
const VERL: &str = r#"
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    print("a line that is no verdict")
    assert solution_str != "raise"
    if data_source == "dict":
        return {"score": 0.25, "acc": solution_str == ground_truth, "length": 3}
    bonus = 0.5 if (extra_info or {}).get("index") == 7 else 0.0
    return float(solution_str == ground_truth) + bonus

async def slowly(solution_str, ground_truth, **_):
    return 2.0 if solution_str == ground_truth else -2.0
"#;

/// In TRL's way: lists, columns of the data set as keywords, messages or texts.
const TRL: &str = r#"
def accuracy(completions, solution, **kwargs):
    assert kwargs["prompts"] == ["2+3="], kwargs
    return [1.0 if c == s else 0.0 for c, s in zip(completions, solution)]

def format(prompts, completions):
    return [None if c == "none" else 1.0 if len(c) < 4 else 0.5 for c in completions]

def of_messages(completions, **kwargs):
    return [float(c[0]["content"] == "5") for c in completions]

def too_many(completions, **kwargs):
    return [1.0, 2.0]
"#;

fn no_python() -> bool {
    let there = Command::new("python3").arg("--version").output().is_ok();
    if !there {
        skip("python3", "this machine has no `python3`");
    }
    !there
}

/// What functions of a file say of answers, each with its gold answers and source.
fn said(file: &Path, names: &[&str], messages: bool, asked: &[(&str, &[&str], &str)]) -> Vec<Opinion> {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let functions = FunctionsConfig { file: file.to_owned(), names, messages, compares: None };
    let question = |(answer, gold, source): &(&str, &[&str], &str)| Question {
        gold: gold.iter().map(|g| (*g).to_owned()).collect(),
        answer: (*answer).to_owned(),
        prompt: "2+3=".to_owned(),
        source: (*source).to_owned(),
        ..Question::default()
    };
    let settings = JudgeConfig { seconds: 20.0, ..JudgeConfig::default() };
    let mut pool = Processes::new(GraderCommand::functions(&functions, &settings, question(&asked[0])));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(opinions_on(&mut pool, asked.iter().map(question).collect())).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "it stands beside errors")]
fn reward(reward: f32, correct: Option<bool>) -> Opinion {
    Ok(Judgement { reward: Some(reward), correct, ..Judgement::default() })
}

fn raised(why: &str) -> Opinion {
    Err(format!("the grader says: {why}"))
}

#[test]
fn functions_of_verl_are_called_as_verl_calls_them() {
    if no_python() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("reward.py", VERL);
    let file = scratch.path().join("reward.py");
    // A whole row of the data set, in verl's layout, says source, truth and extra information.
    let row = r#"{"data_source":"rows","reward_model":{"ground_truth":"5"},"extra_info":{"index":7}}"#;
    let told = said(
        &file,
        &["compute_score"],
        false,
        &[
            ("5", &["5"], "sums"),
            ("4", &["5", "4"], "sums"),
            ("6", &["5", "4"], "sums"),
            ("5", &["5"], "dict"),
            ("5", &[row], "sums"),
            ("4", &[row], "sums"),
            ("raise", &["5"], "sums"),
            ("5", &["5"], "sums"),
        ],
    );
    let expected = [
        reward(1.0, None),
        reward(1.0, None),
        reward(0.0, None),
        reward(0.25, Some(true)),
        reward(1.5, None),
        reward(0.5, None),
        raised("AssertionError: "),
        reward(1.0, None),
    ];
    assert_eq!(told[..6], expected[..6]);
    assert!(matches!(&told[6], Err(why) if why.contains("AssertionError")), "{:?}", told[6]);
    assert_eq!(told[7], expected[7], "the function goes on after an exception");
    let told = said(&file, &["slowly"], false, &[("5", &["5"], "sums"), ("4", &["5"], "sums")]);
    assert_eq!(told, [reward(2.0, None), reward(-2.0, None)]);
}

#[test]
fn functions_of_trl_are_called_as_trl_calls_them() {
    if no_python() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("reward.py", TRL);
    let file = scratch.path().join("reward.py");
    let parts = |accuracy, format| {
        let parts = vec![("accuracy".to_owned(), accuracy), ("format".to_owned(), format)];
        Ok(Judgement { parts, ..Judgement::default() })
    };
    let row = r#"{"question":"2+3=","solution":"5"}"#;
    let told = said(
        &file,
        &["accuracy", "format"],
        false,
        &[("5", &["5"], ""), ("five", &["5"], ""), ("5", &[row], ""), ("none", &["5"], "")],
    );
    let none = raised("format gave no reward");
    assert_eq!(told, [parts(1.0, 1.0), parts(0.0, 0.5), parts(1.0, 1.0), none]);
    let told = said(&file, &["of_messages"], true, &[("5", &["5"], ""), ("4", &["5"], "")]);
    assert_eq!(told, [reward(1.0, None), reward(0.0, None)]);
    let told = said(&file, &["too_many"], false, &[("5", &["5"], "")]);
    assert_eq!(told, [raised("ValueError: too_many gave 2 rewards for 1 answer")]);
}

/// Functions that do with an answer what it says, and note how many answers a process was asked about before.
const HOSTILE: &str = r#"
import os, time

def compute_score(solution_str, ground_truth):
    if solution_str == "raise":
        raise ValueError("no idea")
    if solution_str == "die":
        os._exit(3)
    if solution_str == "hang":
        time.sleep(600)
    if solution_str == "slow":
        time.sleep(0.01)
    if solution_str == "text":
        return "none"
    if solution_str == "nan":
        return float("nan")
    return float(solution_str == ground_truth)

def batched(data_sources, solution_strs, ground_truths, extra_infos):
    assert extra_infos == [{}] and data_sources == [""]
    return [compute_score(s, g) for s, g in zip(solution_strs, ground_truths)]
"#;

/// Answers are judged in portions, whose size depends on the clock: verdicts do not, and an answer that fails costs itself.
#[test]
fn a_verdict_does_not_depend_on_the_portion_that_an_answer_is_in() {
    if no_python() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("reward.py", HOSTILE);
    let late = "the grader gave no answer within 2 s".to_owned();
    let bad = "ValueError: could not convert string to float: 'none'";
    let all: Vec<(&str, Opinion)> = (0..700)
        .map(|i| match i {
            300 => ("raise", raised("ValueError: no idea")),
            301 => ("nan", raised("compute_score gave a reward of nan")),
            420 => ("die", Err("the grader ended with exit status 3".to_owned())),
            450 => ("text", raised(bad)),
            500 => ("hang", Err(late.clone())),
            600..630 => ("slow", reward(0.0, None)),
            i if i % 3 == 0 => ("5", reward(1.0, None)),
            _ => ("four", reward(0.0, None)),
        })
        .collect();
    for (name, processes) in [("compute_score", 1), ("compute_score", 3), ("batched", 2)] {
        let functions = FunctionsConfig {
            file: scratch.path().join("reward.py"),
            names: vec![name.to_owned()],
            messages: false,
            compares: None,
        };
        let question = |(answer, _): &(&str, Opinion)| Question {
            gold: vec!["5".to_owned()],
            answer: (*answer).to_owned(),
            ..Question::default()
        };
        let settings =
            JudgeConfig { seconds: 2.0, start_seconds: Some(60.0), processes, ..JudgeConfig::default() };
        let mut pool = Processes::new(GraderCommand::functions(&functions, &settings, question(&all[0])));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let got = runtime.block_on(opinions_on(&mut pool, all.iter().map(question).collect())).unwrap();
        assert_eq!(got.len(), all.len());
        for (i, ((answer, expected), got)) in all.iter().zip(&got).enumerate() {
            let nan = *answer == "nan" && name == "batched";
            let expected = if nan { raised("batched gave a reward of nan") } else { expected.clone() };
            assert_eq!(*got, expected, "answer {i}, {answer}, {name}, {processes} processes");
        }
    }
}

/// Functions that compare answers.
const GROUPS: &str = r#"
def longest(completions, solution, **kwargs):
    assert len(set(kwargs["prompts"])) == 1 and len(solution) == len(completions)
    most = max(len(c) for c in completions)
    return [None if c == "none" else float(len(c) == most) for c in completions]

def ranks(data_sources, solution_strs, ground_truths, extra_infos):
    order = sorted(solution_strs)
    return [{"score": order.index(s), "acc": s == g} for s, g in zip(solution_strs, ground_truths)]

def few(completions, **kwargs):
    return [1.0]

def odd(completions, **kwargs):
    return [float("nan") if c == "a" else 1.0 for c in completions]

def prompts(prompts, completions, solution, **kwargs):
    assert solution == ["bb"] * len(completions)
    return [len(completions) + int(prompt.removeprefix("prompt ")) / 10 for prompt in prompts]

def one(solution_str, ground_truth):
    return 1.0
"#;

#[test]
fn a_function_may_compare_all_answers_to_a_prompt() {
    if no_python() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("reward.py", GROUPS);
    let said = |compares, names: &[&str], answers: &[(u32, &str)]| {
        let functions = FunctionsConfig {
            file: scratch.path().join("reward.py"),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            messages: false,
            compares: Some(compares),
        };
        let question = |(group, answer): &(u32, &str)| Question {
            gold: vec!["bb".to_owned()],
            answer: (*answer).to_owned(),
            prompt: format!("prompt {group}"),
            group: *group,
            ..Question::default()
        };
        let settings = JudgeConfig { seconds: 20.0, ..JudgeConfig::default() };
        let command = GraderCommand::functions(&functions, &settings, question(&answers[0]));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut pool = Processes::new(command);
        runtime.block_on(opinions_on(&mut pool, answers.iter().map(question).collect())).unwrap()
    };
    // Two groups whose answers come in turn.
    let answers = [(1, "bb"), (2, "a"), (1, "b"), (2, "ccc"), (1, "aa"), (2, "none")];
    let group = Compares::Group;
    let told = said(group, &["longest"], &answers);
    let none = raised("longest gave no reward");
    let expected = [1.0, 0.0, 0.0, 0.0, 1.0].map(|x| reward(x, None));
    assert_eq!((&told[..5], &told[5]), (&expected[..], &none));
    let told = said(group, &["ranks"], &answers[..5]);
    let expected = [(2.0, true), (0.0, false), (1.0, false), (1.0, false), (0.0, false)];
    assert_eq!(told, expected.map(|(x, correct)| reward(x, Some(correct))));
    let both = said(group, &["longest", "ranks"], &answers[..1]);
    let parts = vec![("longest".to_owned(), 1.0), ("ranks".to_owned(), 0.0)];
    assert_eq!(both, [Ok(Judgement { correct: Some(true), parts, ..Judgement::default() })]);
    // What fails costs its group.
    let told = said(group, &["few"], &[(1, "a"), (2, "a"), (2, "b")]);
    let failed = raised("ValueError: few gave 1 reward for 2 answers");
    assert_eq!(told, [reward(1.0, None), failed.clone(), failed]);
    let told = said(group, &["odd"], &[(1, "a"), (1, "b")]);
    assert_eq!(told, [raised("odd gave a reward of nan"), reward(1.0, None)], "it costs its own answer");
    let told = said(group, &["one"], &answers[..1]);
    let lone = "TypeError: one takes one answer; with `compares` it takes `completions` or `solution_strs`";
    assert_eq!(told, [raised(lone)]);
    // All answers of a round are one list, each with its own prompt and gold answer.
    let told = said(Compares::Round, &["prompts"], &answers[..3]);
    assert_eq!(told, [3.1, 3.2, 3.1].map(|x| reward(x, None)));
    let told = said(Compares::Round, &["ranks"], &answers[..3]);
    let expected = [(2.0, true), (0.0, false), (1.0, false)];
    assert_eq!(told, expected.map(|(x, correct)| reward(x, Some(correct))));
}

/// In a run, the answers of a request are compared with each other, and a run that is stopped goes on to the same rewards.
#[test]
fn a_run_compares_the_answers_of_each_request() {
    if no_python() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write(
        "reward.py",
        "def longest(completions, **kwargs):\n    most = max(len(c) for c in completions)\n    \
         return [float(len(c) == most) for c in completions]\n",
    );
    let functions = "grader = \"functions\"\ncorrect_from = 1.0\n[reward.functions]\nfile = \"reward.py\"\n\
                     names = [\"longest\"]\ncompares = \"group\"";
    scratch.write("run.toml", config(functions));
    let said = scratch.allot(&["train", "run.toml", "--out", "run"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let record = scratch.read("run/record.jsonl");
    let mut groups = 0;
    for line in record.lines().filter(|line| line.contains("\"kind\":\"rollouts\"")) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        for of_prompt in line["sampled"].as_array().unwrap() {
            let number = |name: &str| -> Vec<f64> {
                of_prompt[name].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
            };
            let (tokens, rewards) = (number("tokens"), number("rewards"));
            let most = tokens.iter().copied().fold(0.0, f64::max);
            // Each character is a token. One that met the limit lacks its end, and may be as long as one with it.
            for (tokens, reward) in tokens.iter().zip(rewards) {
                assert!(if reward == 1.0 { *tokens >= most - 1.0 } else { *tokens <= most }, "{of_prompt}");
            }
            groups += 1;
        }
    }
    assert_eq!(groups, 8, "two steps of four");
}

/// A run of the shipped model, whose rewards are these.
fn config(reward: &str) -> String {
    format!("[reward]\n{reward}\n{}", include_str!("cases/judged.toml"))
}

const EXACT: &str = r#"
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert data_source.startswith("sums"), data_source
    return float(solution_str.strip() == ground_truth)
"#;

/// Before the answer: is lost after 40 answers, until there is a file `found`.
const LOST: &str = "    import os
    with open('count', 'a') as f: f.write('x')
    if os.path.getsize('count') > 40 and not os.path.exists('found'): os._exit(6)
    return";

#[test]
fn a_run_is_rewarded_by_a_function_and_goes_on_with_the_same_one_alone() {
    if no_python() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("reward.py", EXACT);
    let functions = "grader = \"functions\"\ncorrect_from = 1.0\n[reward.functions]\nfile = \"reward.py\"";
    scratch.write("functions.toml", config(functions));
    scratch.write("exact.toml", config("grader = \"exact\""));
    for run in ["functions", "exact"] {
        let said = scratch.allot(&["train", &format!("{run}.toml"), "--out", run]);
        assert!(said.ends_with("exit code 0"), "{said}");
    }
    // The same rewards, and so the same run.
    let rollouts = |run: &str| {
        let record = scratch.read(&format!("{run}/record.jsonl"));
        record
            .lines()
            .filter(|line| line.contains("\"kind\":\"rollouts\""))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert!(!rollouts("exact").is_empty());
    assert_eq!(rollouts("functions"), rollouts("exact"));

    // A run whose functions were lost on the way goes on with the same ones, and with no others.
    let lost = EXACT.replace("    return", LOST);
    scratch.write("reward.py", &lost);
    scratch.write("lost.toml", config(functions) + "\n[checkpoint]\nevery = 1\n");
    let said = scratch.allot(&["train", "lost.toml", "--out", "lost"]);
    assert!(said.contains("exit status 6") && said.ends_with("exit code 2"), "{said}");
    scratch.write("found", "");
    scratch.write("reward.py", lost.replace("return float(", "return 0.5 * float("));
    let said = scratch.allot(&["train", "--resume", "lost"]);
    assert!(said.contains("is from a run with another grader: ") && said.ends_with("exit code 2"), "{said}");
    scratch.write("reward.py", &lost);
    let said = scratch.allot(&["train", "--resume", "lost"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    assert_eq!(rollouts("lost"), rollouts("exact"));
}

#[test]
fn what_is_wrong_with_functions_is_told_before_the_run() {
    if no_python() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("reward.py", EXACT);
    let said = |reward: &str| {
        scratch.write("run.toml", config(reward));
        let said = scratch.allot(&["train", "run.toml", "--out", "run"]);
        assert!(said.ends_with("exit code 2") && said.contains("\nhint: "), "{said}");
        said.lines().find(|line| line.starts_with("error: ")).unwrap().to_owned()
    };
    let section = |more: &str| format!("grader = \"functions\"\n[reward.functions]\n{more}");
    insta::assert_snapshot!(said("grader = \"functions\""), @"error: `run.toml` has grader `functions` but no section [reward.functions]");
    insta::assert_snapshot!(said("grader = \"exact\"\n[reward.functions]\nfile = \"reward.py\""), @"error: `run.toml` has a section [reward.functions], but its grader is `exact`");
    insta::assert_snapshot!(said(&section("file = \"reward.py\"\nnames = []")), @"error: `run.toml`: `reward.functions.names` is empty");
    insta::assert_snapshot!(said(&section("file = \"reward.py\"\nnames = [\"a\", \"a\"]")), @r#"error: `run.toml`: `reward.functions.names` has "a""#);
    // Without `correct_from` nobody knows which answers are correct.
    assert!(
        said(&section("file = \"reward.py\"")).contains("correct_from")
            || said(&section("file = \"reward.py\"")).contains("whether")
    );
    let missing = said(&format!("correct_from = 1.0\n{}", section("file = \"none.py\"")));
    assert!(missing.contains("compute_score of ") && missing.contains("none.py"), "{missing}");
    let nameless =
        said(&format!("correct_from = 1.0\n{}", section("file = \"reward.py\"\nnames = [\"other\"]")));
    assert!(nameless.contains("has no function other"), "{nameless}");
}
