//! Columns of the data set: told to the policy that asks for them, in the record, and nowhere else.

use std::fmt::Write as _;
use std::process::Command;

use allot_allocation::{Action, Column, Columns, Run, Terms};
use allot_authoring::fixtures;
use allot_record::{Asked, Line, Reader, Views};
use allot_sandbox::{Caps, Sandbox};

use super::scratch::{self, Scratch};
use super::{SMALL, small};

/// In its `describe`: the columns `level` and `length`.
pub const COLUMNS: &str =
    "(i32.store offset=128 (local.get $d) (i32.const 48)) (i32.store offset=132 (local.get $d) (i32.const 5))
     (i32.store offset=136 (local.get $d) (i32.const 70)) (i32.store offset=140 (local.get $d) (i32.const 6))
     (i32.store offset=40 (local.get $d) (i32.add (local.get $d) (i32.const 128)))
     (i32.store offset=44 (local.get $d) (i32.const 2))";

/// Checks a run of the guest that orders by level, and gives its columns and how many steps they were used in.
fn ordered(run: &std::path::Path) -> (Columns, u32) {
    let (reader, head) = Reader::open(run).unwrap();
    let mut columns = head.run.columns();
    let mut views = Views::new(&head).unwrap();
    let mut told = 0;
    for line in reader {
        let asked = views.take(&line.unwrap()).unwrap();
        columns = views.columns().clone();
        let Some(Asked { view, plan }) = asked else { continue };
        let Some(level) = columns.named("level") else { continue };
        let of = |prompt: allot_allocation::PromptId| level.numbers[prompt.0 as usize];
        let metric = |name: &str| plan.metrics.iter().find(|(known, _)| known == name).map(|(_, x)| *x);
        match &plan.action {
            Action::Sample(requests) => {
                let lowest = view.pool.iter().map(|prompt| of(prompt.id)).fold(f32::INFINITY, f32::min);
                assert_eq!(of(requests[0].prompt), lowest);
            }
            Action::Train(batch) => {
                let prompt = batch.picks[0].prompt;
                assert_eq!(metric("level"), Some(f64::from(of(prompt))));
                let length = columns.named("length").unwrap().numbers[prompt.0 as usize];
                assert_eq!(metric("length"), Some(f64::from(length)));
                assert_eq!(metric("width"), Some(1.0));
                assert_eq!(metric("categories"), Some(level.categories.len() as f64));
                told += 1;
            }
        }
    }
    (columns, told)
}

#[test]
fn a_policy_orders_by_a_column_and_the_record_has_it() {
    let (scratch, said) = small(&scratch::guest_0_2("by_level", COLUMNS));
    assert!(said.ends_with("exit code 0"), "{said}");
    let (columns, told) = ordered(&scratch.path().join("out"));
    assert_eq!((columns.len(), told), (2, 6));
    let record = scratch.read("out/record.jsonl");
    let line = record.lines().nth(1).unwrap();
    assert!(line.starts_with(r#"{"kind":"column","name":"level","numbers":["#), "{line}");
    assert!(!record.lines().next().unwrap().contains("numbers"), "the head has none of it");
    assert!(scratch.allot(&["replay", "out"]).contains("no difference"));
    let said = scratch.allot(&["replay", "out", "--at", "2.1"]);
    assert!(said.contains("metric level = ") && said.contains("as recorded"), "{said}");
    let said = scratch.allot(&["check", "./guest.wasm"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    // Whoever only reads it goes on from its lines.
    let said = scratch.allot(&["report", "out", "--json"]);
    assert!(said.ends_with("exit code 0"), "{said}");

    // A record in which a column is not of its data set is believed by nobody.
    scratch.write("out/record.jsonl", record.replacen("\"numbers\":[", "\"numbers\":[1.0,", 1));
    let said = scratch.allot(&["replay", "out"]);
    insta::assert_snapshot!(said.replace(&scratch.path().display().to_string(), ""), @r"
    error: the record's lines of step 0, round 0 do not fit those before them

    hint: the record was edited or damaged
    exit code 2
    ");
}

#[test]
fn a_column_that_the_world_does_not_have_is_told() {
    let scratch = Scratch::new();
    let other =
        COLUMNS.replace("(i32.const 70)", "(i32.const 77)").replace("(i32.const 6)", "(i32.const 11)");
    scratch.write("guest.wasm", scratch::guest_0_2("by_level", &other));
    scratch.write("run.toml", SMALL);
    insta::assert_snapshot!(scratch.allot(&["simulate", "run.toml"]), @r#"
    error: policy `guest` wants the column `temperature`, which the coin-flip world does not have

    hint: use `difficulty`, `level`, `source` or `length`, for example `world.columns = { temperature = "level" }`
    exit code 2
    "#);
    scratch.write("run.toml", SMALL.to_owned() + "columns = { temperature = \"difficulty\" }\n");
    let said = scratch.allot(&["simulate", "run.toml", "--out", "out"]);
    // It is shown that one, and asks for another.
    assert!(said.contains("asked for the column `length`, which is not in its description"), "{said}");
    assert!(scratch.read("out/record.jsonl").contains(r#""name":"temperature","numbers":["#));
}

#[test]
fn what_a_guest_may_not_ask_of_columns_ends_the_run_with_a_sentence() {
    let said = |name: &str| small(&scratch::guest_0_2(name, COLUMNS)).1.lines().nth(1).unwrap().to_owned();
    insta::assert_snapshot!(said("asks_a_column_beyond"), @"error: in step 0, round 0 policy `guest` asked about prompt `99999999`, but the data set has 5 prompts");
    let sandbox = Sandbox::new(Caps::default(), None).unwrap();
    let policy = sandbox.load(&scratch::guest_0_2("asks_a_column_a_million", COLUMNS), None).unwrap();
    let view = fixtures::views(0, 0).swap_remove(0).view;
    let run = |columns| Run {
        settings: vec![],
        prompts: 9,
        steps: 1,
        groups: 1,
        rollouts: 1,
        pool: 9,
        max_age: 5,
        lag: 0,
        terms: Some(Terms { columns, ..Terms::default() }),
    };
    let columns = fixtures::columns(&policy.description().columns, 9);
    let fault = policy.decide(&run(columns), &[], &view).unwrap_err();
    assert_eq!(fault.to_string(), "asked for more than 268435456 numbers in one call");
    // A million prompts with thousands of numbers each are not even begun with.
    let mut columns = Columns::default();
    columns.add(Column { width: 4000, ..Column::of("level", vec![0.5; 36_000]) });
    columns.add(Column::of("length", vec![1.0; 9]));
    let fault = policy.decide(&run(columns), &[], &view).unwrap_err();
    assert_eq!(fault.to_string(), "asked for more than 268435456 numbers in one call");
    let fault = policy.begin(&run(Columns::default())).unwrap_err();
    assert_eq!(fault.to_string(), "wants the column `level`, which this run does not have");
}

/// A shadow is shown what the policy in charge is shown.
#[test]
fn a_shadow_has_the_columns_of_the_policy_in_charge_and_no_others() {
    let scratch = Scratch::new();
    scratch.write("guest.wasm", scratch::guest_0_2("by_level", COLUMNS));
    scratch.write("shadow.wasm", scratch::guest_0_2("by_level", COLUMNS));
    scratch.write("run.toml", SMALL);
    let shadowed = |policy: &str| {
        let args = ["simulate", "run.toml", "--no-record", "--policy", policy, "--shadow", "./shadow.wasm"];
        scratch.allot(&args)
    };
    let said = shadowed("./guest.wasm");
    assert!(said.contains("shadow `guest`: 12 calls, no plan differs"), "{said}");
    insta::assert_snapshot!(shadowed("uniform"), @r"
    error: shadow `guest` wants the column `level`, which this run does not have

    hint: name a policy that needs only the columns of the run's own policy: the record has no others
    exit code 2
    ");
}

/// A copy of a run as it was when so many steps were done and it stopped in the next one.
fn stopped(scratch: &Scratch, from: &str, to: &str, steps: u32) {
    let (from, to) = (scratch.path().join(from), scratch.path().join(to));
    assert!(Command::new("cp").arg("-r").args([&from, &to]).status().unwrap().success());
    for checkpoint in std::fs::read_dir(to.join("checkpoints")).unwrap().flatten() {
        let name = checkpoint.file_name().into_string().unwrap();
        if name.strip_prefix("step-").unwrap().parse::<u32>().unwrap() > steps {
            std::fs::remove_dir_all(checkpoint.path()).unwrap();
        }
    }
}

/// A run over a file, under the guest that orders by level.
const FILE: &str = r#"
[run]
seed = 1
steps = 8
groups = 2
rollouts = 4
pool = 6
[budget]
rollouts = 1000
[policy]
use = "./guest.wasm"
[model]
use = "tiny-sums"
threads = 1
[sampling]
max_tokens = 4
[evaluation]
every = 1000
problems = 2
[checkpoint]
every = 1
keep = 99
[reward]
grader = "exact"
[[data]]
files = "sums.jsonl"
held_out = 0.2
columns = { level = "info.level" }
"#;

/// Sums with a level beside each, in words.
fn sums(level: impl Fn(u32) -> String) -> String {
    (0..40).fold(String::new(), |mut text, i| {
        let (a, b) = (10 + i, 90 - i);
        let level = level(i);
        let _ =
            writeln!(text, r#"{{"question":"{a}+{b}=","answer":"{}","info":{{"level":{level}}}}}"#, a + b);
        text
    })
}

fn words(i: u32) -> String {
    format!("\"Level {}\"", 5 - i * 7 % 5)
}

#[test]
fn columns_of_a_file_are_told_recorded_and_resumed() {
    let scratch = Scratch::new();
    scratch.write("guest.wasm", scratch::guest_0_2("by_level", COLUMNS));
    scratch.write("sums.jsonl", sums(words));
    scratch.write("run.toml", FILE);
    let said = scratch.allot(&["train", "run.toml", "--out", "whole"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let (columns, told) = ordered(&scratch.path().join("whole"));
    assert_eq!(told, 8);
    assert_eq!(
        columns.named("level").unwrap().categories,
        (1..6).map(|i| format!("Level {i}")).collect::<Vec<_>>()
    );
    assert!(scratch.allot(&["replay", "whole"]).contains("no difference"));

    // Stopped somewhere, it goes on to the same end, and not with other numbers.
    stopped(&scratch, "whole", "out", 3);
    scratch.write("sums.jsonl", sums(|i| words(i + 1)));
    let said = scratch.allot(&["train", "--resume", "out"]);
    assert!(said.contains("is from a run with other numbers in the column `level`"), "{said}");
    scratch.write("sums.jsonl", sums(words));
    let said = scratch.allot(&["train", "--resume", "out"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    assert_eq!(scratch.read("out/record.jsonl"), scratch.read("whole/record.jsonl"));
}

#[test]
fn a_policy_that_takes_over_brings_its_columns() {
    let scratch = Scratch::new();
    scratch.write("guest.wasm", scratch::guest_0_2("by_level", COLUMNS));
    scratch.write("sums.jsonl", sums(words));
    scratch.write("run.toml", FILE.replace("./guest.wasm", "uniform"));
    assert!(scratch.allot(&["train", "run.toml", "--out", "whole"]).ends_with("exit code 0"));
    stopped(&scratch, "whole", "out", 3);
    let said = scratch.allot(&["train", "--resume", "out", "--policy", "./guest.wasm"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let record = scratch.read("out/record.jsonl");
    let kinds: Vec<&str> = record.lines().map(|line| line.split('"').nth(3).unwrap()).collect();
    let swap = kinds.iter().position(|kind| *kind == "swap").unwrap();
    assert_eq!(kinds[swap - 2..=swap], ["column", "column", "swap"]);
    assert!(kinds[..swap - 2].iter().all(|kind| *kind != "column"));
    let (_, told) = ordered(&scratch.path().join("out"));
    assert!(told > 0);
    let (reader, _) = Reader::open(&scratch.path().join("out")).unwrap();
    assert!(reader.map(Result::unwrap).any(|line| matches!(line, Line::Swap(_))));
    // Each is asked on its part of the record.
    let said = scratch.allot(&["replay", "out", "--json"]);
    assert!(said.contains(r#""differ":0,"#) && said.contains(r#""swaps":[3]"#), "{said}");
    // Named, it is begun at the start; from there on until it took over it would have asked for other prompts.
    let said = scratch.allot(&["replay", "out", "./guest.wasm", "--json"]);
    assert!(said.contains(r#""first":[0,0]"#) && said.contains(r#""swaps":[3]"#), "{said}");
    // Of the calls since it took over there is no doubt.
    let last = record.lines().filter(|line| line.starts_with(r#"{"kind":"step""#)).count() - 1;
    let said = scratch.allot(&["replay", "out", "--at", &format!("{last}.1")]);
    assert!(said.contains("as recorded"), "{said}");
}

#[test]
fn what_is_wrong_with_a_column_is_told_before_the_model_is_loaded() {
    let told = |config: &str, data: &str| {
        let scratch = Scratch::new();
        scratch.write("guest.wasm", scratch::guest_0_2("by_level", COLUMNS));
        scratch.write("sums.jsonl", data);
        scratch.write("run.toml", config);
        let said = scratch.allot(&["train", "run.toml", "--dry-run"]);
        said.replace(&format!("{}/", scratch.path().display()), "")
    };
    let numbers = |i: u32| i.to_string();
    insta::assert_snapshot!(told(&FILE.replace("columns = { level = \"info.level\" }", ""), &sums(numbers)), @r#"
    error: `sums.jsonl` line 1 has no column `level`, but the policy wants the column `level`

    hint: its columns are `question`, `answer`, `info`; choose one with `columns = { level = "…" }`
    exit code 2
    "#);
    insta::assert_snapshot!(told(&FILE.replace("info.level", "info.grade"), &sums(numbers)), @r#"
    error: `sums.jsonl` line 1 has no column `info.grade`, but the policy wants the column `level`

    hint: its columns are `question`, `answer`, `info`; choose one with `columns = { level = "…" }`
    exit code 2
    "#);
    let odd = |odd: &'static str| move |i: u32| if i == 8 { odd.to_owned() } else { i.to_string() };
    insta::assert_snapshot!(told(FILE, &sums(odd("null"))), @r"
    error: `sums.jsonl` line 9: `info.level`, which is the policy's column `level`, is null

    hint: give each problem a finite number, a word, or a list of as many numbers, or leave these rows out
    exit code 2
    ");
    insta::assert_snapshot!(told(FILE, &sums(odd("1e300"))), @r"
    error: `sums.jsonl` line 9: `info.level`, which is the policy's column `level`, is a number that is not finite

    hint: give each problem a finite number, a word, or a list of as many numbers, or leave these rows out
    exit code 2
    ");
    insta::assert_snapshot!(told(FILE, &sums(odd("{\"x\":1}"))), @r"
    error: `sums.jsonl` line 9: `info.level`, which is the policy's column `level`, is neither a number, nor a word, nor a list of numbers

    hint: give each problem a finite number, a word, or a list of as many numbers, or leave these rows out
    exit code 2
    ");
    insta::assert_snapshot!(told(FILE, &sums(odd("\"hard\""))), @r"
    error: in the policy's column `level` `sums.jsonl` line 9 has the word `hard`, where the first prompt has a number

    hint: a column has numbers alone, words alone, or lists of as many numbers
    exit code 2
    ");
    insta::assert_snapshot!(told(FILE, &sums(odd("[1,2]"))), @r"
    error: in the policy's column `level` `sums.jsonl` line 9 has a list of 2, where the first prompt has a number

    hint: a column has numbers alone, words alone, or lists of as many numbers
    exit code 2
    ");
    let lengths = FILE.replace("columns = {", "columns = { length = \"x\",");
    insta::assert_snapshot!(told(&lengths, &sums(numbers)), @r"
    error: `columns` has `length`, which is the prompts' lengths in tokens, whatever the files say

    hint: give that column another name: policies get `length` without a column of the files
    exit code 2
    ");
    let tasks = FILE.split("[[data]]").next().unwrap().to_owned()
        + "[[tasks]]\nkind = \"sums\"\nstyle = \"terse\"\ncount = 20\nheld_out = 0.2\nlevels = [{ digits = 1 }, { digits = 2 }]\n";
    let said = told(&tasks, "");
    assert!(said.ends_with("exit code 0"), "{said}");
    insta::assert_snapshot!(told(&(tasks + "columns = { level = \"hardness\" }\n"), ""), @r"
    error: task `sums` has no `hardness`, but the policy wants the column `level`

    hint: set the task's `columns` to take the column from `level`, `task` or `source`
    exit code 2
    ");
}
