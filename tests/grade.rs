//! `allot grade`: answers that are there already, of files and of runs, by every kind of grader that needs no server. What
//! servers and components say is in `http.rs` and `component_graders.rs`.

#![allow(clippy::unwrap_used, missing_docs)]

mod scratch;
mod skip;

use std::process::Command;

use allot_tasks::dataset::{Format, Rows};
use scratch::Scratch;
use serde_json::{Value, json};
use skip::skip;

const ANSWERS: &str = r#"{"question":"2+3","answer":"so it is 5\n#### 5","response":"I think \\boxed{5}"}
{"question":"2+4","answer":"6","response":"7"}
{"question":"2+5","answer":"7"}
{"question":"2+6","answer":null,"response":"8"}
{"question":"2+7","answer":"many","response":"9"}
{"question":"2+8","answer":10,"response":["10"]}
"#;

/// Grades a file of answers, with more arguments; what was printed as JSON lines, and all that was said.
fn graded(scratch: &Scratch, config: &str, answers: &str, more: &[&str]) -> (Vec<Value>, String) {
    scratch.write("reward.toml", config);
    scratch.write("answers.jsonl", answers);
    let args = [&["grade", "reward.toml", "answers.jsonl", "--json"], more].concat();
    let said = scratch.allot(&args);
    let lines = said.lines().filter(|line| line.starts_with('{'));
    (lines.map(|line| serde_json::from_str(line).unwrap()).collect(), said)
}

fn rewards(rows: &[Value]) -> Vec<Value> {
    rows.iter().map(|row| row["reward"].clone()).collect()
}

#[test]
fn a_table_and_a_summary_are_shown_and_bad_rows_are_named() {
    let scratch = Scratch::new();
    scratch.write("reward.toml", "[reward]\ngrader = \"integer\"\n");
    scratch.write("answers.jsonl", ANSWERS);
    insta::assert_snapshot!(scratch.allot(&["grade", "reward.toml", "answers.jsonl"]));
}

#[test]
fn verdicts_are_written_as_json_lines_and_as_parquet() {
    let scratch = Scratch::new();
    let (rows, _) = graded(&scratch, "[reward]\ngrader = \"integer\"\n", ANSWERS, &["--out", "v.parquet"]);
    assert_eq!(rewards(&rows), [json!(1.0), json!(0.0), Value::Null]);
    assert_eq!(rows[2]["row"], 5);
    let (same, _) = graded(&scratch, "[reward]\ngrader = \"integer\"\n", ANSWERS, &["--out", "v.jsonl"]);
    let written = scratch.read("v.jsonl");
    assert_eq!(written.lines().map(|l| serde_json::from_str(l).unwrap()).collect::<Vec<Value>>(), same);
    let mut table = Vec::new();
    let names = ["row", "source", "reward", "correct", "error"].map(str::to_owned);
    let parquet = Rows::open(&scratch.path().join("v.parquet"), Some(Format::Parquet)).unwrap();
    let read = parquet.each(&names, &mut |_, row, _| {
        table.push(Value::Object(row));
        Ok(std::ops::ControlFlow::Continue(()))
    });
    assert!(read.unwrap().is_continue());
    for (ours, theirs) in rows.iter().zip(&table) {
        for name in ["row", "source", "reward", "correct", "error"] {
            assert_eq!(ours.get(name).unwrap_or(&Value::Null), &theirs[name], "{name}");
        }
    }
    assert_eq!(table.len(), 3);
}

#[test]
fn a_file_that_is_read_is_not_written_and_one_that_can_not_be_written_is_told_first() {
    let scratch = Scratch::new();
    for (out, why) in [
        ("answers.jsonl", "`answers.jsonl` would be overwritten while it is read"),
        ("reward.toml", "`reward.toml` would be overwritten while it is read"),
        (".", "`.` is a folder; expected a file"),
        ("no/such/folder.jsonl", "could not write `no/such/folder.jsonl`"),
    ] {
        let (rows, said) = graded(&scratch, "[reward]\ngrader = \"integer\"\n", ANSWERS, &["--out", out]);
        assert!(rows.is_empty() && said.contains(why) && said.ends_with("exit code 2"), "{out}: {said}");
        assert_eq!(scratch.read("answers.jsonl"), ANSWERS);
    }
}

#[test]
fn columns_have_the_names_that_trainers_give_them_or_that_are_typed() {
    let scratch = Scratch::new();
    let config = "[reward]\ngrader = \"exact\"\n";
    for (row, more) in [
        // verl's dump of rollouts, TRL's completions, a data set in verl's layout with an answer beside it.
        (r#"{"input":"2+3=","output":"5","gts":"5","score":1.0}"#, &[][..]),
        (r#"{"prompt":"2+3=","completion":"5","solution":"5"}"#, &[]),
        (
            r#"{"prompt":[{"role":"user","content":"2+3="}],"reward_model":{"ground_truth":"5"},"response":"5"}"#,
            &[],
        ),
        // `answer` is the model's where the gold one is called otherwise.
        (r#"{"question":"2+3=","answer":"5","ground_truth":["five","5"]}"#, &[]),
        (
            r#"{"mine":"5","theirs":{"right":5}}"#,
            &["--column", "answer=mine", "--column", "gold=theirs.right"],
        ),
    ] {
        let (rows, said) = graded(&scratch, config, row, more);
        assert_eq!(rewards(&rows), [json!(1.0)], "{row}: {said}");
        assert!(said.ends_with("exit code 0"), "{said}");
    }
    scratch.write("answers.csv", "response,gold,reward\n007,007,1\n7,007,1\n");
    let said = scratch.allot(&["grade", "reward.toml", "answers.csv"]);
    assert!(said.contains("as before            1   50.0 %"), "{said}");
    assert!(said.contains("the first other reward is that of row 2: 1 before, 0 now"), "{said}");
}

#[test]
fn rewards_have_parts_and_a_penalty_needs_lengths() {
    let scratch = Scratch::new();
    let config = r#"
[sampling]
max_tokens = 10
[reward]
overlong = { buffer = 4, penalty = 1.0 }
[[reward.graders]]
name = "answer"
grader = "exact"
[[reward.graders]]
name = "form"
grader = "pattern"
weight = 0.5
[reward.graders.pattern]
regex = '^\d+$'
"#;
    let row = r#"{"response":"12","gold":"12","source":"sums","tokens":8}"#;
    let (rows, said) = graded(&scratch, config, row, &[]);
    assert_eq!(rows[0]["rewards"], json!({ "answer": 1.0, "form": 1.0 }), "{said}");
    assert_eq!(rows[0]["reward"], 1.0);
    let (rows, said) = graded(&scratch, config, r#"{"response":"12","gold":"12"}"#, &[]);
    assert!(rows.is_empty() && said.contains("does not say how long the answer is"), "{said}");
    let (_, said) = graded(&scratch, &config.replace("max_tokens = 10", ""), row, &[]);
    assert!(said.contains("has `reward.overlong` but no `sampling.max_tokens`"), "{said}");
}

#[test]
fn a_command_grades_without_gold_answers() {
    let scratch = Scratch::new();
    let judge = "#!/bin/sh\nwhile read -r line; do id=${line#*:}; id=${id%%,*}; echo \"{\\\"id\\\":$id,\\\"reward\\\":0.25}\"; done\n";
    scratch.write("judge", judge);
    let config = "[reward]\ngrader = \"command\"\ncorrect_from = 0.5\n[reward.process]\ncommand = [\"sh\", \"judge\"]\n";
    let (rows, said) = graded(&scratch, config, "{\"response\":\"a\"}\n{\"response\":\"b\"}\n", &[]);
    assert_eq!(rewards(&rows), [0.25, 0.25].map(Value::from), "{said}");
    // One that must compare with something says so.
    let (_, said) = graded(&scratch, "[reward]\ngrader = \"exact\"\n", "{\"response\":\"a\"}\n", &[]);
    assert!(
        said.contains("has no column recognized as the gold answer") && said.contains("`response`"),
        "{said}"
    );
}

#[test]
fn functions_and_programs_are_graded_too() {
    if Command::new("python3").arg("--version").output().is_err() {
        return skip("python3", "this machine has no `python3`");
    }
    let scratch = Scratch::new();
    let score = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    \
                 return float(len(solution_str)) if data_source == 'words' else -1.0\n";
    scratch.write("reward.py", score);
    let config =
        "[reward]\ngrader = \"functions\"\ncorrect_from = 2.0\n[reward.functions]\nfile = \"reward.py\"\n";
    let rows = "{\"response\":\"abc\",\"ground_truth\":\"x\",\"data_source\":\"words\"}\n{\"response\":\"abc\",\"ground_truth\":\"x\"}\n";
    let (rows, said) = graded(&scratch, config, rows, &[]);
    assert_eq!(rewards(&rows), [3.0, -1.0].map(Value::from), "{said}");
    let row = r#"{"data_source":"words","reward_model":{"ground_truth":"x"},"response":"ab"}"#;
    let (rows, said) = graded(&scratch, config, row, &["--column", "gold=*"]);
    assert_eq!((rewards(&rows), &rows[0]["correct"]), (vec![2.0.into()], &true.into()), "{said}");
}

#[test]
fn generated_programs_are_graded_in_the_sandbox() {
    let Some(python) = std::env::var_os("ALLOT_PYTHON") else {
        return skip("python", "ALLOT_PYTHON does not name CPython for WASI");
    };
    let scratch = Scratch::new();
    let config = "[reward]\ngrader = \"python\"\n";
    let gold = json!({ "fn_name": "double", "inputs": [[2], [5]], "outputs": [4, 10] });
    let row = |answer: &str| json!({ "response": answer, "gold": gold }).to_string();
    let rows = [row("def double(x): return 2 * x"), row("def double(x): return x * x")].join("\n");
    let interpreter = format!("reward.python.interpreter={}", python.display());
    let (rows, said) = graded(&scratch, config, &rows, &["-o", &interpreter]);
    assert_eq!(rewards(&rows), [1.0, 0.0].map(Value::from), "{said}");
}

#[test]
fn a_run_s_rollouts_get_the_rewards_again_that_they_had() {
    let scratch = Scratch::new();
    let config = include_str!("cases/judged.toml");
    scratch.write("run.toml", format!("[reward]\ngrader = \"exact\"\n{config}"));
    assert!(scratch.allot(&["train", "run.toml", "--out", "run"]).ends_with("exit code 0"));
    let same = scratch.allot(&["grade", "run", "run", "--show", "0"]);
    assert!(
        same.contains("as before") && same.contains("  100.0 %\n") && !same.contains("other reward"),
        "{same}"
    );
    assert!(same.ends_with("exit code 0"), "{same}");
    let other = scratch.allot(&["grade", "run", "run", "--show", "0", "-o", "reward.wrong=-1"]);
    assert!(other.contains("0 before, -1 now") && other.ends_with("exit code 0"), "{other}");
    // Texts that a run did not keep cannot be graded.
    let thin = scratch.allot(&["train", "run.toml", "--out", "thin", "-o", "checkpoint.text=false"]);
    assert!(thin.ends_with("exit code 0"), "{thin}");
    let none = scratch.allot(&["grade", "thin", "thin"]);
    assert!(none.contains("has no text") && none.contains("hint: Keep texts with `text = true`"), "{none}");
}

#[test]
fn what_cannot_be_graded_is_told() {
    let scratch = Scratch::new();
    let (_, said) = graded(&scratch, "[run]\nseed = 1\n", ANSWERS, &[]);
    assert!(said.contains("missing field `reward`"), "{said}");
    let config = "[reward]\ngrader = \"exact\"\n";
    let (_, said) = graded(&scratch, config, "{\"a\":1}\n", &[]);
    assert!(said.contains("has no column recognized as the model's answer and the gold answer"), "{said}");
    let (_, said) = graded(&scratch, config, "{\"response\":\"a\",\"gold\":\"a\"}\n{\"response\n", &[]);
    assert!(said.contains("`answers.jsonl` line 2 column 10 is not JSON"), "{said}");
    let (_, said) = graded(&scratch, config, "", &[]);
    assert!(said.contains("`answers.jsonl` has no rows") && said.ends_with("exit code 2"), "{said}");
    for (typed, what) in [("gold", "is not of the form NAME=COLUMN"), ("golf=x", "answers have no `golf`")] {
        let (_, said) = graded(&scratch, config, ANSWERS, &["--column", typed]);
        assert!(said.contains(what), "{said}");
    }
}
