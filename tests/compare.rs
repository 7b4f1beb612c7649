//! `allot compare` and `allot report` as a user meets them: what is printed and left, comparisons that are
//! killed and go on, and records that are no good.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "compare/builds.rs"]
mod builds;
#[path = "compare/finished.rs"]
mod finished;
#[path = "compare/looks.rs"]
mod looks;
mod scratch;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use allot_report::compare::{self, Question};
use allot_report::fold::Fold;
use allot_report::history::{History, Score};
use allot_report::report::Outcome;
use allot_report::{Costs, Report};
use scratch::Scratch;
use serde_json::json;

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
    let runs = allot_base::find::runs(folder);
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
    assert!(again.contains("12 runs, 1 at a time, in out; 12 have finished"), "{again}");
    assert_eq!(again.lines().next(), first.lines().next());
    assert_eq!(scratch.read("out/report/report.json"), report);
    assert_eq!(records(&scratch.path().join("out")), runs);
    // The same config and folder are the same comparison.
    assert!(said(&scratch, &["compare", "compare.toml", "--out", "out"]).contains("12 have finished"));
}

/// When each record was written last.
fn written(folder: &Path) -> Vec<(PathBuf, std::time::SystemTime)> {
    let one = |run: PathBuf| {
        let at = fs::metadata(run.join("record.jsonl")).unwrap().modified().unwrap();
        (run, at)
    };
    allot_base::find::runs(folder).into_iter().map(one).collect()
}

#[test]
fn a_comparison_grows_by_seeds_and_policies_and_makes_no_run_twice() {
    let scratch = with(SIMULATED);
    let out = scratch.path().join("out");
    said(&scratch, &["compare", "compare.toml", "--out", "out", "--seeds", "2"]);
    let first = written(&out);
    assert_eq!(first.len(), 6);

    let more = said(&scratch, &["compare", "--resume", "out", "--seeds", "3"]);
    assert!(more.contains("9 runs") && more.contains("6 have finished; 3 are new"), "{more}");
    let arm = "[[compare.policies]]\nuse = \"pods\"\nsettings = { keep = 2 }\n\n[[compare.policies]]";
    scratch.write("compare.toml", SIMULATED.replacen("[[compare.policies]]", arm, 1));
    let more = said(&scratch, &["compare", "compare.toml", "--out", "out"]);
    assert!(more.contains("16 runs") && more.contains("9 have finished; 7 are new"), "{more}");
    assert!(first.iter().all(|run| written(&out).contains(run)), "a run was made twice");

    // All at once is the same to the byte, but for what is said of having looked.
    said(&scratch, &["compare", "compare.toml", "--out", "whole"]);
    assert_eq!(records(&out), records(&scratch.path().join("whole")));
    assert!(
        scratch.read("out/report/tables.md").contains("looked at with 2 and 3 seeds before it grew to 4")
    );
    fs::remove_file(out.join("looks.jsonl")).unwrap();
    said(&scratch, &["report", "out"]);
    for file in ["report/report.json", "report/tables.md"] {
        assert_eq!(scratch.read(&format!("out/{file}")), scratch.read(&format!("whole/{file}")));
    }
}

#[test]
fn a_comparison_changes_in_nothing_but_its_size() {
    let scratch = with(SIMULATED);
    said(&scratch, &["compare", "compare.toml", "--out", "out", "--seeds", "2"]);
    let refused = |config: String, arguments: &[&str]| {
        scratch.write("compare.toml", config);
        said(&scratch, &[&["compare", "compare.toml", "--out", "out"], arguments].concat())
    };
    let fewer = refused(SIMULATED.to_owned(), &["--seeds", "1"]);
    insta::assert_snapshot!(fewer, @"
    error: the comparison in `out` has seed 4, which this command leaves out

    hint: give its seeds, and those to add: --seeds 3,4
    exit code 2
    ");
    let dearer = refused(SIMULATED.replace("rollouts = 2000", "rollouts = 3000"), &[]);
    assert!(dearer.contains("2000") && dearer.contains("3000") && dearer.contains("exit code 2"), "{dearer}");
    let easier = refused(SIMULATED.replace("[0.6]", "[0.5]"), &["--seeds", "3"]);
    assert!(easier.contains("these can't change") && easier.contains("exit code 2"), "{easier}");
    assert_eq!(records(&scratch.path().join("out")).len(), 6);
    let nothing = said(&scratch, &["compare", "--resume", "out"]);
    assert!(nothing.contains("6 have finished"), "what was refused changed nothing: {nothing}");
    let half = said(&scratch, &["compare", "compare.toml", "--seeds", "2.5"]);
    assert!(half.contains("expected a number of seeds, as in 20, or a list, as in 3,5,8"), "{half}");
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
    prompts on offer      200; the budget is 250 groups of 8, 1.25 of a pass over them
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

// ---- what a comparison can't show

/// A world of so many prompts that none is offered twice.
fn large() -> String {
    let once = "use = \"pilot-commit\"\nname = \"none evicted\"\nsettings = { pilot = 2, commit = 6, evict-at = 2.0 }";
    format!("{SIMULATED}\n[[compare.policies]]\n{once}\n").replace("prompts = 200", "prompts = 4000")
}

#[test]
fn a_memory_that_has_nothing_to_remember_is_told() {
    let scratch = with(&large());
    let text = said(&scratch, &["compare", "compare.toml", "--dry-run"]);
    let told = "note: no prompt is offered twice unless a policy asks for fewer than 0.5 rollouts per prompt: the \
                use of past visits and the eviction of prompts would not be tested";
    assert!(text.contains(told), "{text}");
    assert!(
        text.contains("prompts on offer      4000; the budget is 250 groups of 8, 0.06 of a pass"),
        "{text}"
    );
    let text = scratch.allot(&["compare", "compare.toml", "--out", "out"]);
    assert!(text.contains("note: no prompt was offered twice (at most "), "{text}");
    let idle = "warning: `pilot-commit 2+6` and `none evicted` asked for the same rollouts and trained on the same, with \
                every seed: `policy.settings.evict-at` changed no plan";
    assert!(text.contains(idle), "{text}");
    assert_eq!(text.matches("changed no plan").count(), 1, "{text}");
    // In a world of 200 prompts, some are offered again, and it does.
    let text = with(&large().replace("prompts = 4000", "prompts = 100")).allot(&[
        "compare",
        "compare.toml",
        "--out",
        "out",
    ]);
    assert!(!text.contains("offered twice") && !text.contains("changed no plan"), "{text}");
}

#[test]
fn policies_that_are_the_same_are_told_before_anything_runs() {
    let same = "[[compare.policies]]\nuse = \"pilot-commit\"\nname = \"again\"\nsettings = { pilot = 2, commit = 6 }";
    let text = said(&with(&format!("{SIMULATED}\n{same}\n")), &["compare", "compare.toml", "--dry-run"]);
    assert!(text.contains("note: `pilot-commit 2+6` and `again` are the same"), "{text}");
    assert_eq!(text.matches("are the same").count(), 1, "{text}");
}

// ---- what costs come to, of made runs

/// A finished run of 60,000 rollouts that comes to 60 % at a cost, if at any, and ends at an accuracy.
fn run_of(policy: &str, seed: u64, cost: Option<u64>, end: f64) -> History {
    let head = json!({
        "format": 1, "allot": "0", "engine": "e", "seed": seed, "order": "shuffled", "accuracy": 0.25,
        "policy": { "name": policy, "version": "0", "contract": "0", "sha256": "" },
        "run": { "settings": [], "prompts": 10, "steps": 100, "groups": 1, "rollouts": 1, "pool": 1, "max_age": 1 },
        "limits": { "rounds": 1, "step_rollouts": null, "run_rollouts": 60_000, "run_tokens": null, "longest": 8 },
        "caps": { "fuel": 1, "seconds": 1.0, "memory": 1 },
    });
    let head = serde_json::from_value(head).unwrap();
    let mut history = Fold::new(format!("{policy}-{seed}"), head, &[]).finish();
    let mut score = |rollouts: u64, accuracy: f64| {
        let mut costs = Costs::default();
        costs.spent.run_rollouts = rollouts;
        history.scores.push(Score { steps: rollouts as u32, costs, accuracy, parts: Vec::new() });
    };
    if let Some(cost) = cost {
        score(cost, 0.61);
    }
    score(60_000, end);
    let end =
        json!({ "reason": "spent", "normal": true, "steps": 1, "spent": history.scores[1].costs.spent });
    history.end = Some(serde_json::from_value(end).unwrap());
    history
}

/// A report on `uniform` and `dapo`, of the costs of each seed, and of the accuracies at their ends.
fn report_of(costs: &[(Option<u64>, Option<u64>)], ends: impl Fn(u64) -> (f64, f64)) -> Report {
    let runs = costs.iter().zip(1..).flat_map(|((uniform, dapo), seed)| {
        let (a, b) = ends(seed);
        [run_of("uniform", seed, *uniform, a), run_of("dapo", seed, *dapo, b)]
    });
    let question = Question { targets: vec![0.6], ..Question::default() };
    compare::compare(runs.collect(), &question, Vec::new()).unwrap().0
}

/// The finding on the cost: its word and its sentence.
fn on_cost(report: &Report) -> (Outcome, String) {
    let finding = report.verdicts[0].cost.as_ref().unwrap();
    (finding.kind, finding.words.replace('\u{a0}', " "))
}

#[test]
fn a_ratio_is_that_of_the_costs_beside_it() {
    let same = |_| (0.65, 0.65);
    let report = report_of(&[(Some(49_900), Some(35_800))], same);
    let rows = &report.targets[0].rows;
    assert_eq!((rows[0].median, rows[1].median), (Some(49_900.0), Some(35_800.0)));
    assert_eq!(
        on_cost(&report),
        (
            Outcome::Inconclusive,
            "`dapo` took 1.39× fewer rollouts than `uniform` to 60 %, with one seed".to_owned()
        )
    );
    let back = report_of(&[(Some(35_800), Some(49_900))], same);
    assert!(on_cost(&back).1.starts_with("`dapo` took 1.39× more rollouts than `uniform`"));
    // Ten seeds, each of them about half as cheap: number, interval, word and direction are those of one thing.
    let twice: Vec<_> = (1..=10).map(|i| (Some(20_000 + 500 * i), Some(40_000 + 1_100 * i))).collect();
    let (kind, words) = on_cost(&report_of(&twice, same));
    assert_eq!(kind, Outcome::Worse);
    assert_eq!(
        words,
        "`dapo` needs 2.02× more rollouts than `uniform` to 60 % (95 %: 2.02 to 2.03; p < 0.005 by Holm's correction)"
    );
}

#[test]
fn a_run_that_never_gets_there_makes_no_ratio() {
    let same = |_| (0.5, 0.5);
    let one = report_of(&[(None, Some(35_800))], same);
    assert_eq!(one.targets[0].rows[1].ratio, None);
    assert_eq!(
        on_cost(&one).1,
        "`dapo` reached 60 % in 1 of 1 runs, `uniform` in 0 of 1: it took at least 1.67× fewer rollouts with one seed"
    );
    let three = report_of(&[(Some(30_000), None), (Some(50_000), None), (None, None)], same);
    assert_eq!(
        on_cost(&three),
        (
            Outcome::Inconclusive,
            "`dapo` reached 60 % in 0 of 3 runs, `uniform` in 2 of 3: the difference in cost is not significant; of 3 \
             pairs 2 show which was cheaper, and a bound on the ratio needs at least six"
                .to_owned()
        )
    );
    assert!((three.targets[0].rows[0].share.value - 2.0 / 3.0).abs() < 1e-12);
    let nobody = report_of(&[(None, None); 3], same);
    assert!(on_cost(&nobody).1.ends_with("there is no cost to compare"));
    // Seven of ten, against none: six of them took 50,000 at most.
    let costs = [20, 24, 30, 40, 48, 50, 55].map(|k| (None, Some(k * 1000)));
    let some: Vec<_> = costs.into_iter().chain([(None, None); 3]).collect();
    assert_eq!(
        on_cost(&report_of(&some, same)),
        (
            Outcome::Better,
            "`dapo` reached 60 % in 7 of 10 runs, `uniform` in 0 of 10: it needs at least 1.20× fewer rollouts than \
             `uniform` (95 %; p = 0.02 by Holm's correction)"
                .to_owned()
        )
    );
    let back: Vec<_> = some.iter().map(|(a, b)| (*b, *a)).collect();
    let (kind, words) = on_cost(&report_of(&back, same));
    assert!(
        kind == Outcome::Worse && words.contains("at least 1.20× more rollouts than `uniform`"),
        "{words}"
    );
}

#[test]
fn cost_and_accuracy_are_two_questions() {
    let alike: Vec<_> = (1..=8).map(|i| (Some(30_000 + 7 * i), Some(30_000 + 9 * (8 - i)))).collect();
    let report = report_of(&alike, |seed| (0.65 + 0.001 * seed as f64, 0.67 + 0.0011 * seed as f64));
    let verdict = &report.verdicts[0];
    assert_eq!(on_cost(&report).0, Outcome::Inconclusive);
    assert_eq!(verdict.end.kind, Outcome::Better);
    assert!(
        verdict
            .end
            .words
            .starts_with("`dapo` ends 2.0 points above `uniform` (95 %: +2.0 to +2.1; p < 0.005")
    );
    let questions: Vec<String> = report.answers().into_iter().map(|a| a.question).collect();
    assert_eq!(questions, ["Cost to 60\u{a0}%, in rollouts", "Accuracy at the end"]);
}

// ---- a comparison that is killed

const TRAINED: &str = include_str!("cases/training/short.toml");

/// A comparison of runs that train, of half a second each.
fn trained() -> String {
    format!("{TRAINED}\n[compare]\nseeds = 2\n[[compare.policies]]\nuse = \"pods\"\n")
        .replace("every = 4", "every = 2")
}

#[test]
fn a_comparison_that_is_killed_again_and_again_comes_to_the_same_end() {
    let whole = with(&trained());
    let text = whole.allot(&["compare", "compare.toml", "--out", "out", "--jobs", "2"]);
    assert!(text.ends_with("exit code 0"), "{text}");

    let scratch = with(&trained());
    let args = ["compare", "compare.toml", "--out", "out", "--jobs", "2"];
    let kills = scratch.killed_until_it_ends(&args, 300);
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
    let child = scratch.started(&["compare", "compare.toml", "--out", "out", "--jobs", "2"]);
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
    let held = allot::run_dir::lock(&scratch.path().join("run")).unwrap().unwrap();
    // A run that is over is only looked at.
    let last = fs::read_dir(scratch.path().join("run/checkpoints")).unwrap().next().unwrap().unwrap();
    fs::remove_dir_all(last.path()).unwrap();
    let text = fs::read_to_string(scratch.path().join("run/record.jsonl")).unwrap();
    let cut: Vec<&str> = text.lines().take(8).collect();
    fs::write(scratch.path().join("run/record.jsonl"), cut.join("\n") + "\n").unwrap();
    let said = said(&scratch, &["train", "--resume", "run"]);
    assert!(said.contains("error: another process is working in `run`"), "{said}");
    drop(held);
}

// ---- configs that are no good

#[test]
fn a_config_without_a_comparison_is_told() {
    let plain = SIMULATED.split("[compare]").next().unwrap();
    insta::assert_snapshot!(said(&with(plain), &["compare", "compare.toml"]), @"
    error: `compare.toml` has no section [compare]

    hint: add it, as `allot configs compare-tiny` has it
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
    hint: give your own component by its path, as in `./mine.wasm`
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
    error: `compare.toml`: `compare.targets` has 60; expected accuracies above 0 and at most 1
    exit code 2
    ");
    insta::assert_snapshot!(
        said(&with(&SIMULATED.replace("seeds = 4", "seedz = 4")), &["compare", "compare.toml"]), @"
    error: `compare.toml` line 26, `seedz = 4`: unknown field `seedz`, expected one of `seeds`, `targets`, `axis`, `margin`, `policies`, `tune`

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
    assert!(other.contains("`a bigger one` ") && other.contains(" `uniform`"), "{other}");
}

#[test]
fn arms_that_did_not_spend_the_same_are_told() {
    let scratch = with(&SIMULATED.replace("steps = 60", "steps = 30"));
    let text = said(&scratch, &["compare", "compare.toml", "--out", "out"]);
    assert!(
        text.contains("warning: the arms did not spend the same rollouts in total: `uniform` 960"),
        "{text}"
    );
}

#[test]
fn a_folder_without_a_comparison_is_told() {
    insta::assert_snapshot!(said(&with(SIMULATED), &["compare", "--resume", "nowhere"]), @"
    error: there is no comparison in `nowhere`

    hint: give the folder of a comparison, which has a `compare.toml`
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
