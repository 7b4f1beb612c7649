//! `allot compare` and `allot report` as a user meets them: what is printed and left, comparisons that are
//! killed and go on, and records that are no good.

#![allow(clippy::unwrap_used, missing_docs)]

mod scratch;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use scratch::Scratch;

/// Simulated runs of a blink.
const SIMULATED: &str = include_str!("cases/report/compare.toml");

/// A scratch folder with a config as `compare.toml`.
fn with(config: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.write("compare.toml", config);
    scratch
}

/// What a command says, lines of runs that end in any order left out.
fn said(scratch: &Scratch, args: &[&str]) -> String {
    let path = scratch.path().display().to_string();
    let text = scratch.allot(args).replace(&path, "[scratch]");
    let of_a_run = |line: &&str| line.trim_start().split(['/', ' ']).nth(1) == Some("12");
    text.lines().filter(|line| !of_a_run(line)).collect::<Vec<_>>().join("\n")
}

/// The records below a folder, by their paths in it.
fn records(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let runs = allot::find::runs(folder);
    let one = |run: &PathBuf| {
        (run.strip_prefix(folder).unwrap().to_owned(), fs::read(run.join("record.jsonl")).unwrap())
    };
    runs.iter().map(one).collect()
}

// ---- what is said and left

#[test]
fn a_comparison_ends_with_a_table_and_a_verdict_on_each_policy() {
    insta::assert_snapshot!(said(&with(SIMULATED), &["compare", "compare.toml", "--out", "out"]));
}

#[test]
fn a_comparison_that_is_over_runs_nothing_and_reports_the_same() {
    let scratch = with(SIMULATED);
    let first = said(&scratch, &["compare", "compare.toml", "--out", "out"]);
    let (report, runs) = (scratch.read("out/report/report.json"), records(&scratch.path().join("out")));
    let again = said(&scratch, &["compare", "--resume", "out", "--jobs", "1"]);
    assert!(again.contains("12 runs, 1 at a time, in out; 12 are over already"), "{again}");
    assert_eq!(again.lines().next(), first.lines().next());
    assert_eq!(scratch.read("out/report/report.json"), report);
    assert_eq!(records(&scratch.path().join("out")), runs);
    // The same config and folder are the same comparison, another config is not.
    assert!(said(&scratch, &["compare", "compare.toml", "--out", "out"]).contains("12 are over already"));
    scratch.write("compare.toml", SIMULATED.replace("seeds = 4", "seeds = 5"));
    insta::assert_snapshot!(said(&scratch, &["compare", "compare.toml", "--out", "out"]), @"
    error: there is another comparison in `out` already

    hint: give another folder with --out, or go on with it: --resume
    exit code 2
    ");
}

#[test]
fn what_would_run_is_told() {
    insta::assert_snapshot!(said(&with(SIMULATED), &["compare", "compare.toml", "--dry-run", "--jobs", "3"]), @"
    policies              uniform
                          dapo
                          pilot-commit 2+6
    seeds                 3, 4, 5, 6
    runs                  12, 3 at a time, 1 thread each
    budget of each        2000 rollouts, at most 60 steps
    targets               0.6
    exit code 0
    ");
}

#[test]
fn runs_of_a_comparison_are_those_of_single_commands() {
    let scratch = with(SIMULATED);
    said(&scratch, &["compare", "compare.toml", "--out", "out"]);
    let args = ["simulate", "compare.toml", "--seed", "5", "--policy", "dapo", "--out", "one"];
    scratch.allot(&args);
    assert_eq!(scratch.read("one/record.jsonl"), scratch.read("out/runs/dapo/seed-0005/record.jsonl"));
}

#[test]
fn a_run_that_fails_is_told_and_is_in_no_mean() {
    let scratch = with(&format!("{SIMULATED}\n[[compare.policies]]\nuse = \"./greedy.wasm\"\n"));
    scratch.write("greedy.wasm", scratch::guest("asks_twice"));
    let text = said(&scratch, &["compare", "compare.toml", "--out", "out"]);
    let text: Vec<&str> = text.lines().filter(|line| !line.contains("/16 ")).collect();
    insta::assert_snapshot!(text.join("\n"));
}

// ---- a comparison that is killed

const TRAINED: &str = include_str!("cases/training/short.toml");

/// A comparison of runs that train, of half a second each.
fn trained() -> String {
    format!("{TRAINED}\n[compare]\nseeds = 2\n[[compare.policies]]\nuse = \"pods\"\n")
        .replace("every = 4", "every = 2")
}

fn started(scratch: &Scratch, args: &[&str]) -> Child {
    scratch.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_comparison_that_is_killed_again_and_again_comes_to_the_same_end() {
    let whole = with(&trained());
    let text = whole.allot(&["compare", "compare.toml", "--out", "out", "--jobs", "2"]);
    assert!(text.ends_with("exit code 0"), "{text}");

    let scratch = with(&trained());
    let args = ["compare", "compare.toml", "--out", "out", "--jobs", "2"];
    let mut kills = 0;
    for tenths in 3.. {
        let mut child = started(&scratch, &args);
        let until = Instant::now() + Duration::from_millis(100 * tenths);
        while Instant::now() < until && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            break;
        }
        // Its runs find out by the end of their input, and save.
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    assert!(kills > 0);
    let (a, b) = (records(&whole.path().join("out")), records(&scratch.path().join("out")));
    assert_eq!(a.len(), 4);
    assert!(a == b, "the records differ after {kills} kills");
    // Seconds are nobody's to repeat; all else of a report is.
    let plain = |scratch: &Scratch| {
        let mut report: serde_json::Value =
            serde_json::from_str(&scratch.read("out/report/report.json")).unwrap();
        timeless(&mut report);
        report
    };
    assert_eq!(plain(&whole), plain(&scratch));
}

/// Leaves out what is about seconds.
fn timeless(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            fields.remove("seconds");
            fields.values_mut().for_each(timeless);
        }
        serde_json::Value::Array(all) => {
            all.retain(|one| one["axis"] != "seconds" && one[0] != "seconds");
            all.iter_mut().for_each(timeless);
        }
        _ => {}
    }
}

#[test]
fn ctrl_c_pauses_all_runs_and_the_comparison_goes_on() {
    let scratch = with(&trained());
    let child = started(&scratch, &["compare", "compare.toml", "--out", "out", "--jobs", "2"]);
    let record = scratch.path().join("out/runs/pods/seed-0001/metrics.jsonl");
    let began = Instant::now();
    while fs::read_to_string(&record).unwrap_or_default().lines().count() < 2 {
        assert!(began.elapsed() < Duration::from_mins(1), "no run began");
        std::thread::sleep(Duration::from_millis(5));
    }
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    let text = scratch.allot(&["compare", "--resume", "out"]);
    assert!(text.ends_with("exit code 0"), "{text}");
    let whole = with(&trained());
    whole.allot(&["compare", "compare.toml", "--out", "out"]);
    assert!(records(&whole.path().join("out")) == records(&scratch.path().join("out")));
}

#[test]
fn two_processes_are_never_at_work_on_one_run() {
    let scratch = with(TRAINED);
    scratch.allot(&["train", "compare.toml", "--out", "run"]);
    let held = allot::folder::lock(&scratch.path().join("run")).unwrap().unwrap();
    // A run that is over is only looked at.
    let last = fs::read_dir(scratch.path().join("run/checkpoints")).unwrap().next().unwrap().unwrap();
    fs::remove_dir_all(last.path()).unwrap();
    let text = fs::read_to_string(scratch.path().join("run/record.jsonl")).unwrap();
    let cut: Vec<&str> = text.lines().take(8).collect();
    fs::write(scratch.path().join("run/record.jsonl"), cut.join("\n") + "\n").unwrap();
    let said = said(&scratch, &["train", "--resume", "run"]);
    assert!(said.contains("error: another process is at work in `run`"), "{said}");
    drop(held);
}

// ---- configs that are no good

#[test]
fn a_config_without_a_comparison_is_told() {
    let plain = SIMULATED.split("[compare]").next().unwrap();
    insta::assert_snapshot!(said(&with(plain), &["compare", "compare.toml"]), @"
    error: `compare.toml` has no section [compare]

    hint: say what is compared, as in configs/compare-tiny.toml
    exit code 2
    ");
}

#[test]
fn policies_of_one_name_are_refused() {
    let twice = format!("{SIMULATED}\n[[compare.policies]]\nuse = \"dapo\"\n");
    insta::assert_snapshot!(said(&with(&twice), &["compare", "compare.toml"]), @"
    error: `compare.toml`: two policies of the comparison are called `dapo`

    hint: give one of them a `name`
    exit code 2
    ");
}

#[test]
fn what_is_wrong_with_a_policy_is_told_before_anything_runs() {
    let unknown = SIMULATED.replace("\"dapo\"", "\"dappo\"");
    let scratch = with(&unknown);
    insta::assert_snapshot!(said(&scratch, &["compare", "compare.toml"]), @"
    error: no policy is called `dappo`

    hint: did you mean `dapo`?
    hint: a component of your own is given by its path, as in `./mine.wasm`
    exit code 2
    ");
    insta::assert_snapshot!(
        said(&with(&SIMULATED.replace("pilot = 2", "pilots = 2")), &["compare", "compare.toml"]), @"
    error: the config of `pilot-commit 2+6`: policy `pilot-commit` has no setting `pilots`

    hint: did you mean `pilot`?
    exit code 2
    ");
    insta::assert_snapshot!(
        said(&with(&SIMULATED.replace("seeds = 4", "seeds = [1, 2, 1]")), &["compare", "compare.toml"]), @"
    error: `compare.toml`: `compare.seeds` has 1 twice
    exit code 2
    ");
    insta::assert_snapshot!(
        said(&with(&SIMULATED.replace("targets = [0.6]", "targets = [60]")), &["compare", "compare.toml"]), @"
    error: `compare.toml`: `compare.targets` has 60; an accuracy is more than 0 and at most 1
    exit code 2
    ");
    insta::assert_snapshot!(
        said(&with(&SIMULATED.replace("seeds = 4", "seedz = 4")), &["compare", "compare.toml"]), @"
    error: `compare.toml` line 24, `seedz = 4`: unknown field `seedz`, expected one of `seeds`, `targets`, `axis`, `margin`, `policies`

    hint: did you mean `seeds`?
    exit code 2
    ");
    assert!(!scratch.path().join("runs").exists());
}

#[test]
fn what_a_policy_of_a_comparison_can_not_say_is_told() {
    let with_end =
        |end: &str| said(&with(&format!("{SIMULATED}{end}\n")), &["compare", "compare.toml", "--dry-run"]);
    insta::assert_snapshot!("with_seed", with_end("with = { run = { seed = 5 } }"));
    insta::assert_snapshot!("with_policy", with_end("with = { policy = { use = \"dapo\" } }"));
    insta::assert_snapshot!("with_world_flops", with_end("with = { budget = { flops = 1e9 } }"));
    insta::assert_snapshot!("no_name", with_end("[[compare.policies]]\nuse = \"pods\"\nname = \" \""));
    insta::assert_snapshot!("one_folder", with_end("[[compare.policies]]\nuse = \"pods\"\nname = \"Dapo\""));
    let seeds = |to: &str| {
        said(&with(&SIMULATED.replace("seeds = 4", to)), &["compare", "compare.toml", "--dry-run"])
    };
    insta::assert_snapshot!("seeds_of_no_kind", seeds("seeds = -2"));
    insta::assert_snapshot!("too_many_seeds", seeds("seeds = 4_000_000"));
    insta::assert_snapshot!("axis_of_a_model", seeds("axis = \"flops\"\nseeds = 4"));
}

#[test]
fn a_comparison_that_was_changed_is_told() {
    let scratch = with(SIMULATED);
    scratch.allot(&["compare", "compare.toml", "--out", "out"]);
    scratch.write("out/compare.toml", SIMULATED.replace("seeds = 4", "seeds = 5"));
    insta::assert_snapshot!("changed", said(&scratch, &["compare", "--resume", "out"]));
}

#[test]
fn the_configs_own_policy_is_the_baseline_whatever_else_has_that_policy() {
    let twice = SIMULATED.replace(
        "use = \"dapo\"",
        "use = \"uniform\"\nname = \"a bigger one\"\nsettings = { rollouts = 16 }",
    );
    let scratch = with(&twice);
    let text = said(&scratch, &["compare", "compare.toml", "--out", "out"]);
    let rows: Vec<&str> = text.lines().skip(3).take(2).map(|l| l.split("  ").next().unwrap()).collect();
    assert_eq!(rows, ["uniform", "a bigger one"], "{text}");
    let other = said(&scratch, &["report", "out", "--baseline", "uniform", "--target", "0.5"]);
    assert!(other.contains("`a bigger one` ") && other.contains("than `uniform`"), "{other}");
}

#[test]
fn arms_that_did_not_spend_the_same_are_told() {
    let scratch = with(&SIMULATED.replace("steps = 60", "steps = 30"));
    let text = said(&scratch, &["compare", "compare.toml", "--out", "out"]);
    assert!(
        text.contains("warning: the arms did not spend the same rollouts by their ends: `uniform` 960"),
        "{text}"
    );
}

#[test]
fn a_folder_without_a_comparison_is_told() {
    insta::assert_snapshot!(said(&with(SIMULATED), &["compare", "--resume", "nowhere"]), @"
    error: there is no comparison in `nowhere`

    hint: --resume takes the folder of a comparison
    exit code 2
    ");
}

// ---- reports of records that are no good

/// Two runs of each of two policies.
fn four() -> Scratch {
    let scratch = with(SIMULATED);
    for (policy, seed) in [("uniform", 1), ("uniform", 2), ("dapo", 1), ("dapo", 2)] {
        let (out, seed) = (format!("{policy}-{seed}"), seed.to_string());
        scratch.allot(&["simulate", "compare.toml", "--policy", policy, "--seed", &seed, "--out", &out]);
    }
    scratch
}

const FOUR: [&str; 6] = ["report", "uniform-1", "uniform-2", "dapo-1", "dapo-2", "--target=0.6"];

#[test]
fn single_runs_are_reported_too() {
    let scratch = four();
    insta::assert_snapshot!(said(&scratch, &FOUR));
    let of_seed_1 = said(&scratch, &["report", "uniform-1", "dapo-1", "--target", "0.6"]);
    insta::assert_snapshot!("a_single_seed", of_seed_1);
    // Without a target one is chosen, and told.
    insta::assert_snapshot!("no_target", said(&scratch, &["report", "uniform-1", "uniform-2", "dapo-1"]));
}

#[test]
fn a_target_that_nobody_reaches_is_told() {
    insta::assert_snapshot!(said(
        &four(),
        &["report", "uniform-1", "uniform-2", "dapo-1", "dapo-2", "--target", "1"]
    ));
}

#[test]
fn records_that_were_cut_off_or_damaged_are_told_and_the_rest_stands() {
    let scratch = four();
    let record = scratch.read("uniform-2/record.jsonl");
    scratch.write("uniform-2/record.jsonl", &record[..record.len() * 2 / 3]);
    let record = scratch.read("dapo-2/record.jsonl");
    let mut lines: Vec<&str> = record.lines().collect();
    lines[40] = "{\"kind\":\"step\",\"step\":";
    scratch.write("dapo-2/record.jsonl", lines.join("\n"));
    scratch.write("empty/record.jsonl".split('/').next().unwrap(), "");
    let text = said(&scratch, &[&FOUR[..], &["empty"]].concat());
    insta::assert_snapshot!(text);
}

#[test]
fn lines_that_do_not_add_up_are_told() {
    let scratch = four();
    let record = scratch.read("dapo-2/record.jsonl");
    let edited = record.replacen("\"trained\":32", "\"trained\":31", 1);
    assert_ne!(record, edited);
    scratch.write("dapo-2/record.jsonl", edited);
    let text = said(&scratch, &FOUR);
    assert!(text.contains("note: `dapo-2`: its lines of step "), "{text}");
}

#[test]
fn runs_of_another_task_and_second_runs_of_a_seed_are_left_out() {
    let scratch = four();
    scratch.write("other.toml", SIMULATED.replace("difficulty = 2.0", "difficulty = 1.0"));
    scratch.allot(&["simulate", "other.toml", "--out", "other"]);
    scratch.allot(&["simulate", "compare.toml", "--seed", "1", "--out", "again"]);
    insta::assert_snapshot!(said(&scratch, &[&FOUR[..], &["other", "again"]].concat()));
}

#[test]
fn what_makes_a_comparison_unfair_is_told() {
    let scratch = with(SIMULATED);
    scratch.allot(&["simulate", "compare.toml", "--out", "a"]);
    let more =
        SIMULATED.replace("rollouts = 2000", "rollouts = 3000").replace("every_rollouts = 100", "every = 30");
    scratch.write("more.toml", more);
    scratch.allot(&["simulate", "more.toml", "--policy", "dapo", "--out", "b"]);
    insta::assert_snapshot!(said(&scratch, &["report", "a", "b", "--target", "0.6", "--baseline", "dapo"]));
}

#[test]
fn what_a_report_is_asked_and_can_not_do_is_told() {
    let scratch = four();
    for (name, args) in [
        ("no_run", &["report", "."][..]),
        ("no_such_folder", &["report", "nowhere"]),
        ("percent", &["report", "uniform-1", "--target", "60"]),
        ("axis", &["report", "uniform-1", "--axis", "token"]),
        ("baseline", &["report", "uniform-1", "dapo-1", "--baseline", "pods"]),
        ("unknown_flops", &["report", "uniform-1", "dapo-1", "--axis", "flops", "--target", "0.6"]),
    ] {
        if name == "no_run" {
            let empty = Scratch::new();
            insta::assert_snapshot!(name, said(&empty, args));
        } else {
            insta::assert_snapshot!(name, said(&scratch, args));
        }
    }
}
