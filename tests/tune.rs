//! Arms that are tuned before they are compared, as a user meets it: trials on seeds of their own, the same for every
//! arm, tunings that are killed and go on, and what the report says of them.

#![allow(clippy::unwrap_used, missing_docs)]

mod scratch;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use allot_report::tuning::Tuning;
use scratch::Scratch;

/// Simulated runs of a blink.
const SIMULATED: &str = include_str!("cases/report/compare.toml");

const TUNE: &str = "
[compare.tune]
trials = 9
[compare.tune.ranges]
run.groups = [2, 4, 8, 16]
run.rollouts = { from = 4, to = 16 }
";

/// A comparison of simulated runs whose arms are tuned; `tune` is its section.
fn simulated(tune: &str) -> String {
    SIMULATED.replace("steps = 60", "steps = 600").replace("every_rollouts = 100", "every_rollouts = 40")
        + "ranges = { policy.settings.pilot = { from = 2, to = 4 }, policy.settings.commit = [4, 6, 12] }\n"
        + tune
}

fn with(config: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.write("compare.toml", config);
    scratch
}

fn tuning(scratch: &Scratch, out: &str) -> Tuning {
    serde_json::from_str(&scratch.read(&format!("{out}/tuning/tuning.json"))).unwrap()
}

/// The head of a record, as JSON.
fn head(record: &Path) -> serde_json::Value {
    let text = fs::read_to_string(record).unwrap();
    serde_json::from_str(text.lines().next().unwrap()).unwrap()
}

/// Records below a folder, with what was generated in them.
fn records(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let one = |run: std::path::PathBuf| {
        let name = run.strip_prefix(folder).unwrap().display().to_string();
        (name, fs::read(run.join("record.jsonl")).unwrap())
    };
    allot_base::find::runs(folder).into_iter().map(one).collect()
}

#[test]
fn arms_are_tuned_alike_on_seeds_of_their_own_and_winners_run_on_fresh_ones() {
    let scratch = with(&simulated(TUNE));
    let text = scratch.allot(&["compare", "compare.toml", "--out", "out"]);
    assert!(text.ends_with("exit code 0"), "{text}");
    let tuning = tuning(&scratch, "out");
    assert_eq!((tuning.arms.len(), tuning.seeds.as_slice()), (3, &[1_000_003][..]));
    assert_eq!(tuning.shares.len(), 2);
    let budget = 2000.0;
    for arm in &tuning.arms {
        assert_eq!(arm.trials.len(), 9, "{}", arm.name);
        // What every arm may spend is the same, and no trial of any spends more.
        let rungs: Vec<usize> =
            (0..2).map(|r| arm.trials.iter().filter(|t| t.rungs.len() > r).count()).collect();
        assert_eq!(rungs[0], 9);
        assert!((3..=4).contains(&rungs[1]), "three go on, and the declared setting: {rungs:?}");
        assert_eq!(arm.trials[0].rungs.len(), 2, "the declared setting is never dropped");
        for trial in &arm.trials {
            let name = arm.name.replace(' ', "-");
            let run = format!("out/tuning/runs/{name}/trial-{:02}/seed-1000003/record.jsonl", trial.number);
            let seed = head(&scratch.path().join(&run))["seed"].as_u64();
            assert_eq!(seed, Some(1_000_003), "{run}");
            // A step may pass the end of a rung, but none begins beyond it.
            let text = fs::read_to_string(scratch.path().join(&run)).unwrap();
            let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            let steps = lines.filter(|line| line["kind"] == "step");
            let spent: Vec<u64> = steps.map(|line| line["spent"]["run_rollouts"].as_u64().unwrap()).collect();
            let share = tuning.shares[trial.rungs.len() - 1];
            let last_but_one = spent.iter().rev().nth(1).copied().unwrap_or(0) as f64;
            assert!(last_but_one < share * budget, "{run}: {spent:?}");
            assert_eq!(spent.last(), Some(&trial.costs.spent.run_rollouts), "{run}");
        }
    }
    // Shared ranges are tried alike, whatever else an arm has.
    let groups = |i: usize| -> Vec<_> {
        tuning.arms[i].trials.iter().skip(1).map(|t| t.values[..2].to_vec()).collect()
    };
    assert_eq!(groups(0), groups(1));
    // The comparison's own seeds are others, and its settings those that won.
    let seeds: BTreeSet<u64> = records(&scratch.path().join("out/runs"))
        .iter()
        .map(|(run, _)| {
            head(&scratch.path().join("out/runs").join(run).join("record.jsonl"))["seed"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(seeds, BTreeSet::from([3, 4, 5, 6]));
    let won = head(&scratch.path().join("out/runs/uniform/seed-0003/record.jsonl"));
    assert_eq!(won["run"]["groups"], tuning.arms[0].winner().values[0]);
    // No report mixes them.
    let report: serde_json::Value = serde_json::from_str(&scratch.read("out/report/report.json")).unwrap();
    let runs: Vec<&str> = report["arms"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|a| a["runs"].as_array().unwrap())
        .map(|r| r["run"].as_str().unwrap())
        .collect();
    assert_eq!(runs.len(), 12);
    assert!(runs.iter().all(|run| !run.contains("trial")), "{runs:?}");
    assert_eq!(report["tuning"]["arms"].as_array().map(Vec::len), Some(3));
    // What was tuned is no reason to doubt the comparison; all else would be.
    assert!(!text.contains("the arms differ in more than their policies"), "{text}");
    assert!(scratch.read("out/report/tables/trials.csv").lines().count() == 28);
    assert_eq!(scratch.read("out/report/index.html").matches("id=\"tuning\"").count(), 1);
}

#[test]
fn a_tuning_that_is_over_is_not_done_again() {
    let scratch = with(&simulated(TUNE));
    scratch.allot(&["compare", "compare.toml", "--out", "out"]);
    let (first, report) = (scratch.read("out/tuning/tuning.json"), scratch.read("out/report/report.json"));
    let again = scratch.allot(&["compare", "--resume", "out"]);
    assert!(!again.contains("tuning, rung") && again.contains("12 have finished"), "{again}");
    // Lost, it is made anew from the trials' records.
    fs::remove_file(scratch.path().join("out/tuning/tuning.json")).unwrap();
    let anew = scratch.allot(&["compare", "--resume", "out"]);
    assert!(anew.contains("tuning, rung 2 of 2") && anew.contains("12 have finished"), "{anew}");
    assert_eq!(
        (scratch.read("out/tuning/tuning.json"), scratch.read("out/report/report.json")),
        (first, report)
    );
    // More seeds need no more tuning.
    let more = scratch.allot(&["compare", "--resume", "out", "--seeds", "5"]);
    assert!(!more.contains("tuning, rung") && more.contains("3 are new"), "{more}");
    // Another range is another comparison.
    scratch.write("compare.toml", simulated(&TUNE.replace("[2, 4, 8, 16]", "[2, 4, 8]")));
    let other = scratch.allot(&["compare", "compare.toml", "--out", "out", "--seeds", "5"]);
    assert!(other.contains("tuning differ") && other.ends_with("exit code 2"), "{other}");
}

#[test]
fn another_arm_is_tuned_when_it_comes() {
    let scratch = with(&simulated(TUNE));
    scratch.allot(&["compare", "compare.toml", "--out", "out", "--seeds", "2"]);
    let before = records(&scratch.path().join("out/runs"));
    let arm = "[[compare.policies]]\nuse = \"pods\"\nsettings = { keep = 2 }\n\n[compare.tune]";
    scratch.write("compare.toml", simulated(&TUNE.replacen("[compare.tune]", arm, 1)));
    let text = scratch.allot(&["compare", "compare.toml", "--out", "out", "--seeds", "2"]);
    assert!(text.ends_with("exit code 0"), "{text}");
    let after = records(&scratch.path().join("out/runs"));
    assert_eq!(after.len(), 8);
    assert!(before.iter().all(|run| after.contains(run)), "the others won as before");
    assert_eq!(tuning(&scratch, "out").arms.len(), 4);
}

/// A comparison of runs that train, of half a second each, tuned.
fn trained() -> String {
    let short = include_str!("cases/training/short.toml").replace("every = 4", "every = 2");
    format!(
        "{short}\n[compare]\nseeds = 1\n[compare.tune]\ntrials = 4\nreduction = 2\n[compare.tune.ranges]\n\
         optimizer.learning_rate = {{ from = 1e-4, to = 1e-2, log = true }}\n[[compare.policies]]\nuse = \"pods\"\n"
    )
}

#[test]
fn a_tuning_that_is_killed_again_and_again_comes_to_the_same_end() {
    let whole = with(&trained());
    let args = ["compare", "compare.toml", "--out", "out", "--jobs", "2"];
    let text = whole.allot(&args);
    assert!(text.ends_with("exit code 0"), "{text}");
    assert!(text.contains("tuning, rung 2 of 2"), "{text}");

    let scratch = with(&trained());
    let kills = scratch.killed_until_it_ends(&args, 400);
    assert!(kills > 0);
    assert_eq!(whole.read("out/tuning/tuning.json"), scratch.read("out/tuning/tuning.json"));
    for below in ["out/runs", "out/tuning/runs"] {
        assert!(
            records(&whole.path().join(below)) == records(&scratch.path().join(below)),
            "after {kills} kills"
        );
    }
    for table in ["tuning", "trials", "finals"] {
        let name = format!("out/report/tables/{table}.csv");
        assert_eq!(whole.read(&name), scratch.read(&name));
    }
}

#[test]
fn trials_that_lost_make_room_before_the_next_one_begins() {
    let scratch = with(&trained().replace("trials = 4", "trials = 6"));
    let mut child = scratch.started(&["compare", "compare.toml", "--out", "out", "--jobs", "1"]);
    let run = |arm: &str, trial: u32| {
        scratch.path().join(format!("out/tuning/runs/{arm}/trial-{trial:02}/seed-1000001"))
    };
    // Three of six go on, and the declared setting, the first, in any case. This holds among the five before the last one, too.
    for (arm, trial, before) in [("uniform", 5, 5), ("pods", 0, 6)] {
        while !run(arm, trial).join("resolved.toml").exists() {
            assert!(child.try_wait().unwrap().is_none(), "trial {trial} of {arm} never began");
            std::thread::sleep(Duration::from_millis(2));
        }
        let has = |file: &str| -> Vec<bool> {
            (0..before).map(|trial| run("uniform", trial).join(file).exists()).collect()
        };
        let saved = has("checkpoints");
        assert!(has("record.jsonl").iter().all(|written| *written));
        let left = saved.iter().filter(|saved| **saved).count();
        assert!(saved[0] && (3..=4).contains(&left), "before trial {trial} of {arm}: {saved:?}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn runs_that_have_reached_the_target_make_room_and_need_no_more() {
    // The first evaluation of each trial is above this.
    let scratch = with(&trained().replace("seeds = 1\n", "seeds = 1\ntargets = [0.01]\n"));
    let mut child = scratch.started(&["compare", "compare.toml", "--out", "out", "--jobs", "1"]);
    let runs = scratch.path().join("out/tuning/runs");
    while !runs.join("pods/trial-00/seed-1000001/resolved.toml").exists() {
        assert!(child.try_wait().unwrap().is_none(), "the second arm never began");
        std::thread::sleep(Duration::from_millis(2));
    }
    for trial in 0..4 {
        let run = runs.join(format!("uniform/trial-{trial:02}/seed-1000001"));
        assert!(run.join("record.jsonl").exists() && !run.join("checkpoints").exists(), "trial {trial}");
    }
    assert!(child.wait().unwrap().success());
    assert!(tuning(&scratch, "out").arms.iter().all(|arm| arm.trials[0].rungs.len() == 2));
}

#[test]
fn a_trial_goes_on_as_if_it_had_not_paused() {
    let scratch = with(include_str!("cases/training/short.toml"));
    scratch.allot(&["train", "compare.toml", "--out", "whole"]);
    let paused = scratch.allot(&["train", "compare.toml", "--out", "run", "--pause-at-share=0.3"]);
    assert!(paused.contains("paused") && paused.ends_with("exit code 1"), "{paused}");
    // Asked again, it is there already.
    let record = scratch.read("run/record.jsonl");
    scratch.allot(&["train", "--resume", "run", "--pause-at-share=0.3"]);
    assert!(record == scratch.read("run/record.jsonl"));
    let paused = scratch.allot(&["train", "--resume", "run", "--pause-at-share=0.6"]);
    assert!(paused.contains("paused") && paused.ends_with("exit code 1"), "{paused}");
    scratch.allot(&["train", "--resume", "run"]);
    assert!(scratch.read("run/record.jsonl") == scratch.read("whole/record.jsonl"));
}

#[test]
fn seeds_that_are_in_both_are_refused() {
    let scratch = with(&simulated(&TUNE.replace("trials = 9", "trials = 9\nseeds = [9, 5]")));
    let text = scratch.allot(&["compare", "compare.toml", "--dry-run"]);
    insta::assert_snapshot!(text, @"
    error: `compare.toml`: seed 5 is used by both the comparison and its tuning; a winner would be evaluated on the seed that selected it

    hint: leave `compare.tune.seeds` out, or set it to seeds outside `compare.seeds`
    exit code 2
    ");
}

#[test]
fn a_rung_that_ends_before_the_first_evaluation_is_refused() {
    let scratch = with(&simulated(TUNE).replace("every_rollouts = 40", "every_rollouts = 700"));
    let text = scratch.allot(&["compare", "compare.toml", "--out", "out"]);
    insta::assert_snapshot!(text, @"
    error: `compare.toml`: the first rung of the tuning of `uniform` ends after 666 rollouts, before its first evaluation at 700

    hint: evaluate more often, with `evaluation.every_rollouts`, or set fewer `compare.tune.rungs`
    exit code 2
    ");

    let config = simulated(&TUNE.replace("trials = 9", "trials = 9\nrungs = 1"));
    let scratch = with(&config.replace("every_rollouts = 40", "every_rollouts = 700"));
    let text = scratch.allot(&["compare", "compare.toml", "--dry-run"]);
    assert!(text.ends_with("exit code 0"), "{text}");
}

#[test]
fn a_best_value_at_the_end_of_its_range_is_told() {
    // In this world small groups of few rollouts are the best, whatever the range.
    let tune = "[compare.tune]\ntrials = 4\nrungs = 1\n[compare.tune.ranges]\nrun.groups = [2, 8, 32]\n";
    let scratch = with(&simulated(tune).replace("ranges = {", "ranges = { run.groups = [2, 4],"));
    let text = scratch.allot(&["compare", "compare.toml", "--out", "out", "--seeds", "1"]);
    assert!(
        text.contains("warning: tuning found the best `run.groups` at an end of its range, 2 to 32 (2 for `uniform`, 2 for `dapo`)"),
        "{text}"
    );
}

#[test]
fn a_setting_that_fails_has_lost() {
    // More pilots than the rollouts of a group are a plan that no rule allows, or a setting that is refused.
    let tune = "[compare.tune]\ntrials = 3\nrungs = 1\n[compare.tune.ranges]\nrun.groups = [4, 8, 16]\n";
    let scratch = with(&simulated(tune).replace("ranges = {", "ranges = { policy.settings.pilots = [2, 3],"));
    let text = scratch.allot(&["compare", "compare.toml", "--out", "out", "--seeds", "1"]);
    assert!(text.contains("trial 1 of `pilot-commit 2+6` failed"), "{text}");
    assert_eq!(tuning(&scratch, "out").arms[2].best, 0, "the declared setting is what is left");
    assert!(text.ends_with("exit code 0"), "{text}");
}

#[test]
fn what_would_be_tuned_is_told() {
    let text = with(&simulated(TUNE)).allot(&["compare", "compare.toml", "--dry-run"]);
    assert!(
        text.contains("`dapo`: 9 trials on 1 seed, at most 5.7 budgets; rungs: 9 to 33.3\u{a0}%, 3 to 100\u{a0}% of the budget"),
        "{text}"
    );
}

#[test]
fn a_grid_is_a_map_without_a_verdict() {
    let tune =
        "[compare.tune]\nseeds = 2\n[compare.tune.ranges]\nrun.groups = [2, 8]\nrun.rollouts = [4, 8, 16]\n";
    let scratch = with(&simulated(tune).replace(
        "ranges = { policy.settings.pilot = { from = 2, to = 4 }, policy.settings.commit = [4, 6, 12] }\n",
        "",
    ));
    let text = scratch.allot(&["compare", "compare.toml", "--grid", "--out", "out"]);
    assert!(
        text.ends_with("exit code 0") && text.contains("a map of all of it is in out/report/index.html"),
        "{text}"
    );
    let tuning = tuning(&scratch, "out");
    assert!(
        tuning.grid && tuning.arms.iter().all(|arm| arm.trials.len() == 7),
        "all six, and the declared one"
    );
    assert!(!scratch.path().join("out/runs").exists(), "nothing is compared");
    let page = scratch.read("out/report/index.html");
    assert!(page.contains("figure-map") && page.contains("figure-sensitivity"), "{}", page.len());
    for word in ["p (Holm)", "inconclusive", "× fewer"] {
        assert!(!page.split("</style>").nth(1).unwrap().contains(word), "{word}");
    }
    // It goes on as it was begun.
    let again = scratch.allot(&["compare", "--resume", "out"]);
    assert!(again.contains("a map of all of it") && again.ends_with("exit code 0"), "{again}");
}

#[test]
fn scores_grow_apart_by_a_rule_that_is_the_same_for_every_arm() {
    let config = include_str!("cases/report/compare.toml")
        .replace("every_rollouts = 100", "every_rollouts = 20\ngrowth = 0.1");
    let scratch = with(&config.replace("steps = 60", "steps = 600"));
    scratch.allot(&["compare", "compare.toml", "--out", "out", "--seeds", "1"]);
    let report: serde_json::Value = serde_json::from_str(&scratch.read("out/report/report.json")).unwrap();
    assert!(report["resolution"].as_f64().unwrap() < 0.3, "{}", report["resolution"]);
    let wrong = with(&config.replace("every_rollouts = 20", "every = 5"));
    let text = wrong.allot(&["compare", "compare.toml", "--dry-run"]);
    assert!(text.contains("`evaluation.growth` needs `evaluation.every_rollouts`"), "{text}");
}

#[test]
fn a_report_tells_who_wins_on_which_axis() {
    let scratch = with(SIMULATED);
    scratch.allot(&["compare", "compare.toml", "--out", "out"]);
    let table = scratch.read("out/report/tables/frontier.csv");
    assert!(
        table.starts_with("arm,reached,reached_of,rollouts,rollouts_low,rollouts_high,rollouts_ratio"),
        "{table}"
    );
    assert!(table.contains(",tokens,") && !table.contains("flops"), "a simulation knows no FLOPs: {table}");
    assert_eq!(table.lines().count(), 4);
    assert!(scratch.path().join("out/report/figures/frontier.svg").exists());
}

#[test]
fn a_report_tells_what_was_taught() {
    let scratch = with(&trained());
    scratch.allot(&["compare", "compare.toml", "--out", "out"]);
    let sources = scratch.read("out/report/tables/sources.csv");
    let of = |arm: &str, column: usize| -> f64 {
        let rows = sources.lines().filter(|line| line.starts_with(arm));
        rows.map(|line| line.split(',').nth(column).unwrap().parse::<f64>().unwrap()).sum()
    };
    assert_eq!(sources.lines().count(), 5, "two sources of two arms: {sources}");
    for (arm, shares) in [("uniform,", [5, 6]), ("pods,", [5, 6])] {
        assert!(shares.iter().all(|column| (of(arm, *column) - 1.0).abs() < 1e-9), "{sources}");
        assert!(of(arm, 4) <= of(arm, 3) && of(arm, 3) <= of(arm, 2), "taught, visited, all: {sources}");
    }
    let visits = scratch.read("out/report/tables/first-visits.csv");
    assert!(visits.contains("all right") && visits.contains("some right"), "{visits}");
}
