//! `allot train` as a user meets it: what a run leaves behind, and that one which was stopped anywhere and
//! taken up again leaves the same behind. Numbers that were learned depend on the processor, so that none
//! of them is written down here.

#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "training/branches.rs"]
mod branches;
#[path = "training/date.rs"]
mod date;
#[path = "training/episodes.rs"]
mod episodes;
#[path = "training/input.rs"]
mod input;
mod scratch;
#[path = "training/stops.rs"]
mod stops;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use allot::progress::{Done, Progress};
use allot::screen::Screen;
use allot_allocation::Spent;
use allot_config::BudgetConfig;
use allot_loop::Measured;
use allot_record::{End, Line, Reader, StepEnd};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use scratch::Scratch;

/// A run of half a second on a model that ships.
const CONFIG: &str = include_str!("cases/training/short.toml");

// ---- a run, and what it leaves

/// A scratch folder with a config as `run.toml`.
fn with(config: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.write("run.toml", config);
    scratch
}

/// Runs to the end; what was said on standard output.
fn trained(scratch: &Scratch, args: &[&str]) -> String {
    let done = scratch.command(&[&["train"], args].concat()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{args:?}: {said}");
    String::from_utf8(done.stdout).unwrap()
}

/// What a command says with the scratch folder's path left out, and its exit code.
fn told(scratch: &Scratch, args: &[&str]) -> String {
    let path = scratch.path().display().to_string();
    let said = scratch.allot(&[&["train"], args].concat());
    said.replace(&path, "[scratch]").replace(env!("CARGO_TARGET_TMPDIR"), "[target]")
}

/// The same from the error on: what comes before has numbers that were learned.
fn error(said: &str) -> &str {
    &said[said.find("error: ").unwrap_or_default()..]
}

/// The rows of a run's table, each by column.
fn rows(run: &Path) -> Vec<BTreeMap<String, String>> {
    let mut parts: Vec<PathBuf> =
        fs::read_dir(run.join("rollouts")).unwrap().map(|e| e.unwrap().path()).collect();
    parts.sort();
    let mut all = Vec::new();
    for part in parts {
        let reader = SerializedFileReader::new(fs::File::open(part).unwrap()).unwrap();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            all.push(row.get_column_iter().map(|(name, field)| (name.clone(), field.to_string())).collect());
        }
    }
    all
}

/// What a record says of its steps and its end.
fn record(run: &Path) -> (Vec<StepEnd>, End) {
    let (reader, _) = Reader::open(run).unwrap();
    let (mut steps, mut last) = (Vec::new(), None);
    for line in reader {
        match line.unwrap() {
            Line::Step(step) => steps.push(*step),
            Line::End(end) => last = Some(end),
            _ => {}
        }
    }
    (steps, last.unwrap())
}

/// The newest of a run's checkpoints.
fn newest(run: &Path) -> PathBuf {
    checkpoints(run).pop().unwrap()
}

/// A run's checkpoints, the oldest first.
fn checkpoints(run: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(run.join("checkpoints")).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

/// Two runs are one to the last bit: record, weights, optimizer, every rollout.
fn assert_same(a: &Path, b: &Path, what: &str) {
    let record = |run: &Path| fs::read_to_string(run.join("record.jsonl")).unwrap();
    assert_eq!(record(a), record(b), "{what}");
    let (last, other) = (newest(a), newest(b));
    assert_eq!(last.file_name(), other.file_name(), "{what}");
    for file in ["model/model.safetensors", "optimizer.safetensors", "adapter/adapter_model.safetensors"] {
        let bytes = |folder: &Path| fs::read(folder.join(file)).ok();
        assert_eq!(bytes(&last), bytes(&other), "{what}: {file}");
    }
    let rows = |run: &Path| {
        let mut all = rows(run);
        for row in &mut all {
            row.remove("run");
        }
        all
    };
    assert_eq!(rows(a), rows(b), "{what}");
}

/// A copy of a run's folder.
fn copied(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-r").args([from, to]).status().unwrap();
    assert!(done.success());
}

#[test]
fn what_is_told_written_and_kept_is_the_same() {
    let scratch = with(CONFIG);
    for policy in ["uniform", "pilot-commit"] {
        let said = trained(&scratch, &["run.toml", "--policy", policy, "--out", policy, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&said).unwrap();
        let run = scratch.path().join(policy);
        let (steps, end) = record(&run);
        let rows = rows(&run);
        let is =
            |row: &BTreeMap<String, String>, column: &str, value: &str| row[column] == format!("{value:?}");
        let (held_out, train): (Vec<_>, Vec<_>) =
            rows.iter().partition(|row| is(row, "purpose", "evaluation"));

        // The ledger, the table of rollouts and the closing table.
        assert_eq!(train.len() as u64, end.spent.run_rollouts);
        assert_eq!(json["rollouts"], end.spent.run_rollouts);
        let tokens: u64 = train.iter().map(|row| row["tokens"].parse::<u64>().unwrap()).sum();
        assert_eq!((tokens, &json["tokens"]), (end.spent.run_tokens, &tokens.into()));
        let mut left = end.spent.run_rollouts;
        for (fate, of_step) in [
            ("trained", (|s: &StepEnd| s.trained) as fn(&StepEnd) -> u64),
            ("released", |s| s.released),
            ("stale", |s| s.stale),
        ] {
            let n = train.iter().filter(|row| is(row, "fate", fate)).count() as u64;
            assert_eq!(n, steps.iter().map(of_step).sum::<u64>(), "{policy}: {fate}");
            assert_eq!(json[fate], n, "{policy}: {fate}");
            left -= n;
        }
        let last: Vec<_> =
            train.iter().filter(|row| is(row, "fate", "held") || is(row, "fate", "unscorable")).collect();
        assert_eq!(last.len() as u64, left, "{policy}");

        // What is held out has a book of its own, and is never trained on.
        assert_eq!(held_out.len() as u64, end.evaluated.unwrap().run_rollouts);
        assert!(held_out.iter().all(|row| is(row, "fate", "evaluated") && is(row, "set", "held-out")));
        let problems = |rows: &[&BTreeMap<String, String>]| -> BTreeSet<String> {
            rows.iter().map(|row| row["problem"].clone()).collect()
        };
        assert!(problems(&held_out).is_disjoint(&problems(&train)));
        // 30 problems, 2 rollouts each: at the start, and after steps 2, 4 and 6.
        assert_eq!((held_out.len(), problems(&held_out).len()), (30 * 2 * 4, 30));
        let names: Vec<&str> = end.scores.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[..2], ["eval/held-out/avg@2", "eval/held-out/pass@2"]);
        assert!(end.scores[0].1 <= end.scores[1].1, "{:?}", end.scores);

        // The same config gives the same run.
        let again = format!("{policy}-again");
        trained(&scratch, &["run.toml", "--policy", policy, "--out", &again]);
        assert_same(&run, &scratch.path().join(again), policy);
        // And it is replayed like any other.
        let replayed = scratch.allot(&["replay", policy, policy]);
        assert!(replayed.contains("no difference"), "{replayed}");
    }
}

/// Further settings change nothing but what is told of them: not the run, not its accuracy.
#[test]
fn held_out_problems_are_scored_in_further_settings_beside_the_first() {
    let also = "\n[[evaluation.also]]\nname = \"sure\"\nrollouts = 1\nsampling = { temperature = 0.0 }\n\n\
                [[evaluation.also]]\nname = \"many\"\nsampling = { temperature = 0.7, top_p = 0.9, max_tokens = 6 }\n\
                rollouts = 4\n";
    let scratch = with(&format!("{CONFIG}{also}"));
    scratch.write("plain.toml", CONFIG);
    scratch
        .write("sure.toml", CONFIG.replace("rollouts = 2", "rollouts = 1\nsampling = { temperature = 0.0 }"));
    for (config, run) in [("run.toml", "out"), ("plain.toml", "plain"), ("sure.toml", "sure")] {
        trained(&scratch, &[config, "--out", run]);
    }
    let folder = |run: &str| scratch.path().join(run);
    let [all, plain, sure] = ["out", "plain", "sure"].map(|run| record(&folder(run)));
    let mut scored = 0;
    for ((step, plain), sure) in all.0.iter().zip(&plain.0).zip(&sure.0) {
        assert_eq!((step.accuracy, &step.metrics), (plain.accuracy, &plain.metrics));
        let Some(accuracy) = sure.accuracy else { continue };
        scored += 1;
        let first = plain.scores.len();
        assert_eq!(step.scores[..first], plain.scores, "the first setting's come first");
        let (names, numbers): (Vec<&str>, Vec<f64>) =
            step.scores[first..].iter().map(|(name, number)| (name.as_str(), *number)).unzip();
        // Its problems are of two levels.
        let expected = [
            "also/sure/held-out/avg@1",
            "also/sure/held-out/unjudged",
            "also/sure/held-out/sums/1",
            "also/sure/held-out/sums/2",
            "also/many/held-out/avg@4",
            "also/many/held-out/pass@2",
            "also/many/held-out/pass@4",
            "also/many/held-out/unjudged",
            "also/many/held-out/sums/1",
            "also/many/held-out/sums/2",
        ];
        assert_eq!(names, expected);
        assert_eq!(numbers[0], accuracy, "what a run is told that has it as its first setting");
        assert!(numbers[4] <= numbers[5] && numbers[5] <= numbers[6], "{numbers:?}");
    }
    assert_eq!(scored, 3);
    assert_eq!(all.1.accuracy, plain.1.accuracy);

    let head = |run: &str| -> serde_json::Value {
        let text = fs::read_to_string(folder(run).join("record.jsonl")).unwrap();
        serde_json::from_str(text.lines().next().unwrap()).unwrap()
    };
    assert_eq!(head("plain")["training"]["held_out"]["also"], serde_json::Value::Null);
    assert_eq!(head("out")["training"]["held_out"]["also"][1]["sampling"]["max_tokens"], 6);
    assert!(!fs::read_to_string(folder("plain").join("resolved.toml")).unwrap().contains("also"));

    let rows = rows(&folder("out"));
    let of = |set: &str| rows.iter().filter(|row| row["set"] == format!("\"{set}\"")).collect::<Vec<_>>();
    assert_eq!(["held-out", "held-out/sure", "held-out/many"].map(|set| of(set).len()), [240, 120, 480]);
    assert!(of("held-out/many").iter().all(|row| row["tokens"].parse::<u32>().unwrap() <= 6));
    let spent = all.1.evaluated.unwrap().run_rollouts;
    assert_eq!(spent, 240 + 120 + 480);

    // It goes on as any other.
    copied(&folder("out"), &folder("again"));
    fs::remove_dir_all(newest(&folder("again"))).unwrap();
    trained(&scratch, &["--resume", "again"]);
    assert_same(&folder("out"), &folder("again"), "further settings");

    let dry = told(&scratch, &["run.toml", "--dry-run"]);
    let line = "30 in `held-out`, 2 rollouts each, 1 rollout as `sure`, 4 rollouts as `many`";
    assert!(dry.contains(line), "{dry}");
    let said = scratch.allot(&["report", "out", "again", "--out", "page"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let table = |name: &str| fs::read_to_string(scratch.path().join("page/tables").join(name)).unwrap();
    let (finals, parts) = (table("finals.csv"), table("parts.csv"));
    assert!(
        finals.contains("also/many/held-out/pass@4") && finals.contains("also/sure/held-out/avg@1"),
        "{finals}"
    );
    assert!(
        parts.contains("sums/1") && !parts.contains("also"),
        "parts are those of the first setting: {parts}"
    );
}

#[test]
fn a_run_goes_on_from_each_of_its_checkpoints_to_the_same_end() {
    let short = CONFIG.replace("every = 2 # checkpoint", "every = 1");
    // The budget ends in the middle of a step, with buffered rollouts; and before a step.
    let spent = short.replace("rollouts = 4000", "rollouts = 1500");
    let exact = short.replace("rollouts = 4000", "rollouts = 192");
    // What was trained on is let go where no further update on it fits.
    let limited = short.replace("rollouts = 4000", "flops = 2e8");
    let lagging = |config: &str, lag| config.replace("seed = 1", &format!("seed = 1\nlag = {lag}"));
    for (name, config, policy) in [
        ("whole", &short, "uniform"),
        ("held", &short, "pilot-commit"),
        ("spent", &spent, "pilot-commit"),
        ("exact", &exact, "uniform"),
        ("replayed", &short, "./replays.wasm"),
        ("unaffordable", &limited, "./replays.wasm"),
        ("lag 1, whole", &lagging(&short, 1), "uniform"),
        ("lag 1, spent", &lagging(&spent, 1), "pilot-commit"),
        ("lag 1, unaffordable", &lagging(&limited, 1), "./replays.wasm"),
        ("lag 2, held", &lagging(&short, 2), "pilot-commit"),
    ] {
        let scratch = with(config);
        let needs_replay = "(i32.store8 offset=48 (local.get $d) (i32.const 2))";
        scratch.write("replays.wasm", scratch::guest_0_2("replays", needs_replay));
        let table = trained(&scratch, &["run.toml", "--policy", policy, "--out", "whole"]);
        let whole = scratch.path().join("whole");
        let all = checkpoints(&whole).len();
        for left in 0..=all {
            let to = format!("from-{left}");
            let run = scratch.path().join(&to);
            copied(&whole, &run);
            for late in checkpoints(&run).into_iter().skip(left) {
                fs::remove_dir_all(late).unwrap();
            }
            // With none left it looks like a run of which somebody needed the room.
            if left == 0 {
                cut(&run.join("record.jsonl"), 30);
            }
            assert_eq!(trained(&scratch, &["--resume", &to]), table, "{name} {to}");
            assert_same(&whole, &run, &format!("{name} {to}"));
        }
        let (steps, _) = record(&whole);
        let sum = |of: fn(&StepEnd) -> u64| steps.iter().map(of).sum::<u64>();
        assert_eq!(sum(|step| step.again) > 0, policy == "./replays.wasm", "{name}");
        assert_eq!(sum(|step| step.unaffordable) > 0, name.ends_with("unaffordable"), "{name}");
        // A row for each rollout, with as many updates as were made on it.
        let updates: u64 = rows(&whole).iter().map(|row| row["updates"].parse::<u64>().unwrap()).sum();
        assert_eq!(updates, sum(|step| step.trained), "{name}");
    }
}

/// Takes bytes off a file's end.
fn cut(path: &Path, bytes: u64) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - bytes).unwrap();
}

/// Steps and accuracies of a run's curves.
fn accuracies(run: &Path) -> Vec<(u64, f64)> {
    let all = lines(run, "metrics.jsonl");
    all.iter().filter_map(|line| Some((line["step"].as_u64()?, line["accuracy"].as_f64()?))).collect()
}

#[test]
fn the_first_and_the_last_score_are_on_the_curves() {
    // The last score is taken with a step, behind the last step, or behind the end of the budget.
    for (from, to, at) in [
        ("steps = 6", "steps = 6", vec![0, 2, 4, 6]),
        ("steps = 6", "steps = 5", vec![0, 2, 4, 5]),
        ("rollouts = 4000", "rollouts = 192", vec![0, 2, 3]),
    ] {
        let scratch = with(&CONFIG.replace(from, to));
        let said = trained(&scratch, &["run.toml", "--out", "whole", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&said).unwrap();
        let whole = scratch.path().join("whole");
        let all = accuracies(&whole);
        assert_eq!(all.iter().map(|(step, _)| *step).collect::<Vec<_>>(), at, "{to}");
        assert_eq!(all.first().unwrap().1, json["accuracy_start"].as_f64().unwrap());
        assert_eq!(all.last().unwrap().1, json["accuracy"].as_f64().unwrap());
        let events = fs::read_dir(whole.join("tensorboard")).unwrap().next().unwrap().unwrap().path();
        let events = fs::read(events).unwrap();
        assert_eq!(events.windows(8).filter(|name| *name == b"accuracy").count(), at.len(), "{to}");

        // Taken up again from each checkpoint the curves are the same.
        for left in 1..=checkpoints(&whole).len() {
            let run = scratch.path().join("out");
            copied(&whole, &run);
            checkpoints(&run).into_iter().skip(left).for_each(|late| fs::remove_dir_all(late).unwrap());
            trained(&scratch, &["--resume", "out"]);
            assert_eq!(accuracies(&run), all, "{to} from {left}");
            fs::remove_dir_all(run).unwrap();
        }
    }
}

/// The lines of a file of JSON in a run's folder.
fn lines(run: &Path, file: &str) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(run.join(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn what_a_policy_measures_and_says_lies_in_the_run_s_folder() {
    // Pilots may not wait as long as the policy would let them: it says so as it begins.
    let scratch = with(&CONFIG.replace("rollouts = 8\n", "rollouts = 8\nmax_age = 1\n"));
    let args = ["run.toml", "--policy", "pilot-commit", "--out", "whole"];
    trained(&scratch, &args);
    let whole = scratch.path().join("whole");
    let said = "the host's max-age lets pilots go before max-off does";
    let begun = serde_json::json!({ "step": null, "round": null, "level": "warn", "text": said });
    assert_eq!(lines(&whole, "log.jsonl"), std::slice::from_ref(&begun));

    // A step's number is the mean over its calls that gave one.
    let mut given: BTreeMap<(u64, String), Vec<f64>> = BTreeMap::new();
    for line in lines(&whole, "record.jsonl").iter().filter(|line| line["kind"] == "call") {
        for metric in line["plan"]["metrics"].as_array().into_iter().flatten() {
            let name = format!("policy/{}", metric[0].as_str().unwrap());
            given
                .entry((line["step"].as_u64().unwrap() + 1, name))
                .or_default()
                .push(metric[1].as_f64().unwrap());
        }
    }
    assert!(given.len() >= 6, "{given:?}");
    let mut told = BTreeMap::new();
    for line in lines(&whole, "metrics.jsonl") {
        for (name, value) in line.as_object().unwrap() {
            if name.starts_with("policy/") {
                told.insert((line["step"].as_u64().unwrap(), name.clone()), value.as_f64().unwrap());
            }
        }
    }
    let means = given.iter().map(|(at, all)| (at.clone(), all.iter().sum::<f64>() / all.len() as f64));
    assert_eq!(told, means.collect());

    // Gone on with, both are the same; what was said after the checkpoint is cut off.
    let run = scratch.path().join("out");
    copied(&whole, &run);
    checkpoints(&run).into_iter().skip(1).for_each(|late| fs::remove_dir_all(late).unwrap());
    let more = format!("{begun}\n{{\"step\":5,\"round\":0,\"level\":\"info\",\"text\":\"later\"}}\n");
    fs::write(run.join("log.jsonl"), more).unwrap();
    trained(&scratch, &["--resume", "out"]);
    assert_eq!(lines(&run, "log.jsonl"), [begun]);
    let own = |run: &Path| {
        let mut all = lines(run, "metrics.jsonl");
        for line in &mut all {
            line.as_object_mut().unwrap().retain(|name, _| name == "step" || name.starts_with("policy/"));
        }
        all
    };
    assert_eq!(own(&run), own(&whole));
}

#[test]
fn the_page_tells_each_number_of_a_step() {
    let page = fs::read_to_string(scratch::root().join("docs/reference/outputs.md")).unwrap();
    let table = allot_outputs::named::table();
    assert!(page.contains(&table), "docs/reference/outputs.md should have this table:\n{table}");

    // And each that is written is in it.
    let update = "mask_truncated = true\nloss = { kind = \"grpo\", kl = 0.05 }";
    let also = "[[evaluation.also]]\nname = \"again\"\n";
    let scratch = with(&format!("{CONFIG}\n[update]\n{update}\n{also}"));
    trained(&scratch, &["run.toml", "--policy", "dapo", "--out", "out"]);
    let mut written = BTreeSet::new();
    for line in lines(&scratch.path().join("out"), "metrics.jsonl") {
        written.extend(line.as_object().unwrap().keys().filter(|name| *name != "step").cloned());
    }
    for name in &written {
        assert!(allot_outputs::named::of(name).is_some(), "`{name}` is in no table");
    }
    // And all that is in it is written, but for what wants a server, several sources, a policy that replays, or math-verify.
    let elsewhere = [
        "sampling/sampling_logp_difference/mean",
        "rewards/PART/mean",
        "eval/SET/SOURCE",
        "budget/clipped",
        "alloc/again",
        "num_turns/mean",
        "read_tokens/mean",
        "math_verify/judged",
        "math_verify/certain",
    ];
    for pattern in allot_outputs::named::ALL.iter().flat_map(|one| one.names) {
        let is = |name: &String| allot_outputs::named::fits(pattern, name);
        assert!(elsewhere.contains(pattern) || written.iter().any(is), "nothing is called `{pattern}`");
    }
}

#[test]
fn rollouts_are_shown_with_what_was_asked() {
    let scratch = with(&(CONFIG.to_owned() + "[[data]]\nfiles = \"mine.jsonl\"\n"));
    scratch.write("mine.jsonl", r#"{"question": "1+1=", "answer": "2"}"#);
    trained(&scratch, &["run.toml", "--out", "out"]);
    let run = scratch.path().join("out");
    let reader = SerializedFileReader::new(fs::File::open(run.join("problems.parquet")).unwrap()).unwrap();
    let problems: Vec<BTreeMap<String, String>> = reader
        .get_row_iter(None)
        .unwrap()
        .map(|row| row.unwrap().get_column_iter().map(|(n, f)| (n.clone(), f.to_string())).collect())
        .collect();
    assert_eq!(problems.len(), 91 + 30);
    for row in rows(&run) {
        let problem = &problems[row["prompt"].parse::<usize>().unwrap()];
        for (theirs, ours) in
            [("problem", "problem"), ("source", "source"), ("prompt", "prompt"), ("set", "set")]
        {
            assert_eq!(row[theirs], problem[ours], "{theirs}");
        }
        // The file's only row is a problem of its own, and generated ones have none.
        let from_file = problem["source"].contains("mine");
        let file = problem["file"].trim_matches('"').rsplit('/').next().unwrap();
        let at = (file, problem["row"].as_str());
        assert_eq!(at, if from_file { ("mine.jsonl", "1") } else { ("null", "null") }, "{problem:?}");
        // Whoever answers as is right is right.
        let gold: Vec<String> =
            serde_json::from_str(problem["gold"].trim_matches('"').replace("\\\"", "\"").as_str()).unwrap();
        let text = row["text"].trim_matches('"');
        assert_eq!(gold.iter().any(|gold| gold == text), row["correct"] == "true", "{row:?} {problem:?}");
    }
    // An answer ends where a stop text does, and its text is judged and shown before it.
    let data = CONFIG.to_owned() + "[[data]]\nfiles = \"mine.jsonl\"\n";
    scratch.write("stops.toml", data.replace("rows = 64", "rows = 64\nstop = [\"12\", \"7\"]"));
    trained(&scratch, &["stops.toml", "--out", "stops"]);
    let stopped = rows(&scratch.path().join("stops"));
    let (mut by_text, mut right) = (0, 0);
    for row in &stopped {
        let problem = &problems[row["prompt"].parse::<usize>().unwrap()];
        let (text, tokens) = (row["text"].trim_matches('"'), row["tokens"].parse::<usize>().unwrap());
        assert!(!text.contains("12") && !text.contains('7'), "{row:?}");
        // Each character is a token, and so is the end.
        by_text += usize::from(tokens == text.len() + 2 && row["truncated"] == "false");
        right += usize::from(row["correct"] == "true");
        let gold = problem["gold"].replace(['\\', '"', '[', ']'], "");
        assert_eq!(text == gold, row["correct"] == "true", "{row:?} {problem:?}");
    }
    assert!(by_text > 10 && right > 10, "{by_text} {right} of {}", stopped.len());

    let first = rows(&run).into_iter().find(|row| row["fate"] == "\"trained\"").unwrap();
    let asked = &problems[first["prompt"].parse::<usize>().unwrap()];
    let said = told_of_rollouts(&scratch, &["out", "--prompt", &first["prompt"], "--show", "3"]);
    let (gold, question) = (asked["gold"].trim_matches('"'), asked["question"].trim_matches('"'));
    assert!(said.contains(&format!("gold {gold}\n    {question}\n  step ")), "{said}");
    let shown = said.matches(", rollout ").count();
    assert!(shown == 3 && said.contains("\n3 of ") && said.ends_with("exit code 0"), "{said}");
    let held = told_of_rollouts(&scratch, &["out", "--set", "held-out", "--step", "6", "--show", "1000"]);
    assert!(held.contains("\n60 rollouts\n"), "{held}");
    // Rewards and advantages are numbers as people write them.
    let all = told_of_rollouts(&scratch, &["out", "--show", "1000"]);
    let all = all.lines().filter(|line| line.starts_with("  step ")).collect::<Vec<_>>().join("\n");
    assert!(all.contains(": reward 0, ") && all.contains(": reward 1, ") && !all.contains("E-"), "{all}");
    assert!(all.contains(", advantage -0."), "{all}");
    let none = told_of_rollouts(&scratch, &["out", "--step", "99"]);
    assert!(none.contains("0 rollouts") && none.ends_with("exit code 1"), "{none}");
}

fn told_of_rollouts(scratch: &Scratch, args: &[&str]) -> String {
    scratch.allot(&[&["rollouts"], args].concat())
}

#[test]
fn a_run_that_is_over_shows_its_table_again() {
    let scratch = with(&CONFIG.replace("steps = 6", "steps = 2"));
    let args = ["run.toml", "--policy", "pilot-commit", "--out", "out"];
    let table = trained(&scratch, &args);
    let run = scratch.path().join("out");
    // Stopped just before its last part was written, of what was still buffered.
    let part = fs::read_dir(run.join("rollouts")).unwrap().map(|e| e.unwrap().path()).max().unwrap();
    let bytes = fs::read(&part).unwrap();
    assert!(rows(&run).iter().any(|row| row["fate"] == "\"held\""));
    fs::remove_file(&part).unwrap();
    assert_eq!(trained(&scratch, &["--resume", "out"]), table);
    assert_eq!(fs::read(&part).unwrap(), bytes);
    // Of a run that is over nothing else is needed, and nothing is lost.
    fs::remove_dir_all(run.join("checkpoints")).unwrap();
    assert_eq!(trained(&scratch, &["--resume", "out/."]), table);
    insta::assert_snapshot!(told(&scratch, &args), @"
    error: there is already a run in `out`

    hint: give another folder, or continue it: allot train --resume out
    exit code 2
    ");
}

#[test]
fn a_terminal_shows_one_line_that_is_drawn_over_itself() {
    let (mut out, mut drawn) = (Vec::new(), Vec::new());
    let mut screen = Screen { out: &mut out, progress: &mut drawn, live: true, failed: None };
    let budget: BudgetConfig = toml::from_str("rollouts = 100").unwrap();
    let mut progress = Progress::new(&mut screen, 10, budget, Done::default(), 0.5, 0);
    let spent = Spent { run_rollouts: 16, run_tokens: 64, ..Spent::default() };
    progress.step(&StepEnd { effective: 8, reward: 0.25, spent, ..StepEnd::default() }, Measured::default());
    progress.tell("a note");
    let said = String::from_utf8(drawn).unwrap();
    let numbers = "step    1/10  reward 0.250  accuracy 0.500  waste 50 %  ";
    assert!(said.starts_with(&format!("\r\x1b[2K\x1b[?7l{numbers}")), "{said:?}");
    assert!(said.contains(" tokens/s  ") && said.contains(" left  rollouts 16/100\x1b[?7h"), "{said:?}");
    assert!(said.ends_with("\r\x1b[2K\x1b[?7l\x1b[?7ha note\n") && !said.contains("\n\r"), "{said:?}");
}

// ---- stopped from outside

/// Starts or goes on with the run in `out`.
fn started(scratch: &Scratch) -> Child {
    let begun = scratch.path().join("out/resolved.toml").exists();
    let args: &[&str] =
        if begun { &["train", "--resume", "out"] } else { &["train", "run.toml", "--out", "out"] };
    let mut command = scratch.command(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until something is so, or the program has ended.
fn until(child: &mut Child, so: impl Fn() -> bool) {
    while !so() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Bytes of the record by now.
fn bytes(run: &Path) -> u64 {
    fs::metadata(run.join("record.jsonl")).map_or(0, |m| m.len())
}

#[test]
fn a_run_that_is_killed_again_and_again_comes_to_the_same_end() {
    killed_again_and_again(CONFIG);
}

#[test]
fn so_does_one_that_samples_while_it_learns() {
    for lag in [1, 2] {
        killed_again_and_again(&CONFIG.replace("seed = 1", &format!("seed = 1\nlag = {lag}")));
    }
}

#[test]
fn so_does_one_in_bf16() {
    killed_again_and_again(&CONFIG.replace("[model]", "[model]\ndtype = \"bf16\""));
}

fn killed_again_and_again(config: &str) {
    let config = config.replace("every = 2 # checkpoint", "every = 1").replace("keep = 9", "keep = 1");
    let scratch = with(&config.replace("\"uniform\"", "\"pilot-commit\""));
    let (whole, run) = (scratch.path().join("whole"), scratch.path().join("out"));
    let table = trained(&scratch, &["run.toml", "--out", "whole"]);
    let parts = 15;
    let mut kills = 0;
    // Wherever it is after so many milliseconds.
    for late in [1, 5, 10, 20, 30, 40, 50, 60] {
        let mut child = started(&scratch);
        std::thread::sleep(Duration::from_millis(late));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Once the record has come so far, which is in the middle of steps; and while a checkpoint is written.
    let is_writing = || {
        let entries = fs::read_dir(run.join("checkpoints")).into_iter().flatten().flatten();
        entries.into_iter().any(|e| e.file_name().to_string_lossy().starts_with(".writing"))
    };
    for n in 1.. {
        let mut child = started(&scratch);
        if n % 2 == 0 {
            until(&mut child, || bytes(&run) > bytes(&whole) * n / parts);
        } else {
            until(&mut child, || n < parts && bytes(&run) > 2000 && is_writing());
        }
        child.kill().unwrap();
        let done = child.wait_with_output().unwrap();
        kills += usize::from(done.status.code().is_none());
        if done.status.success() {
            assert_eq!(String::from_utf8_lossy(&done.stdout), table);
            break;
        }
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code().is_none(), "{said}");
    }
    assert!(kills >= 5, "{kills}");
    assert_same(&whole, &run, "killed");
    assert_eq!(checkpoints(&run).len(), 1, "nothing is left over");
}

#[test]
fn ctrl_c_stops_saves_and_says_how_to_go_on() {
    let scratch = with(&CONFIG.replace("steps = 6", "steps = 60"));
    let (whole, run) = (scratch.path().join("whole"), scratch.path().join("out"));
    let table = trained(&scratch, &["run.toml", "--out", "whole"]);
    let mut child = started(&scratch);
    until(&mut child, || bytes(&run) > bytes(&whole) / 10);
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("stopping: samples are kept; press Ctrl-C again to discard them"), "{said}");
    let last = said.lines().last().unwrap();
    let place =
        last.strip_prefix("paused ").and_then(|l| l.strip_suffix("; to continue: allot train --resume out"));
    let place = place.unwrap_or_else(|| panic!("{said}")).to_owned();
    let (when, step) = place.split_once(" step ").unwrap();
    let step = step.parse::<usize>().unwrap() - usize::from(when == "within");
    assert!(newest(&run).ends_with(format!("checkpoints/step-{step:06}")), "{said}");

    let done = scratch.command(&["train", "--resume", "out"]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.contains(&format!("goes on {place} of 60")), "{said}");
    assert_eq!(String::from_utf8_lossy(&done.stdout), table);
    assert_same_but_parts(&whole, &run, 60);
}

/// As [`assert_same`], for a run that was saved at another step, too: its rows are in other parts.
fn assert_same_but_parts(a: &Path, b: &Path, steps: u32) {
    let sorted = |run: &Path| {
        let mut all = rows(run);
        for row in &mut all {
            row.remove("run");
        }
        all.sort();
        all
    };
    assert_eq!(sorted(a), sorted(b));
    for file in ["record.jsonl".to_owned(), format!("checkpoints/step-{steps:06}/model/model.safetensors")] {
        assert!(fs::read(a.join(&file)).unwrap() == fs::read(b.join(&file)).unwrap(), "{file}");
    }
}

// ---- checkpoints that are not what they were

#[test]
fn a_damaged_checkpoint_is_told_and_an_earlier_one_is_taken() {
    let scratch = with(CONFIG);
    trained(&scratch, &["run.toml", "--out", "whole"]);
    let whole = scratch.path().join("whole");
    let flip = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    for (file, cuts) in [
        ("state.json", false),
        ("state.json", true),
        ("model/model.safetensors", false),
        ("model/model.safetensors", true),
        ("optimizer.safetensors", true),
        ("manifest.json", true),
    ] {
        let run = scratch.path().join("out");
        copied(&whole, &run);
        let damaged = newest(&run).join(file);
        if cuts {
            cut(&damaged, 9);
        } else {
            flip(&damaged);
        }
        fs::create_dir(run.join("checkpoints/.writing-step-000005")).unwrap();
        let said = told(&scratch, &["--resume", "out"]);
        let wrong = match file {
            "manifest.json" => "is not a valid manifest: ",
            _ => "does not match its checkpoint's manifest",
        };
        let note = format!("note: `out/checkpoints/step-000006/{file}` {wrong}");
        assert!(said.contains(&note) && said.contains("; an earlier one is used"), "{said}");
        assert!(said.contains("goes on after step 4 of 6"), "{said}");
        assert_same(&whole, &run, file);
        assert_eq!(checkpoints(&run).len(), 3, "nothing is left over");
        fs::remove_dir_all(run).unwrap();
    }
}

/// What lies below a folder.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for path in fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            all.extend([(path.clone(), fs::read(&path).unwrap())]);
        }
    }
    all
}

#[test]
fn what_a_checkpoint_counts_on_is_looked_at_before_a_run_goes_on() {
    let scratch = with(&CONFIG.replace("rollouts = 8\n", "rollouts = 8\nmax_age = 1\n"));
    let args = ["run.toml", "--policy", "pilot-commit", "--shadow", "uniform", "--out", "whole"];
    trained(&scratch, &args);
    let whole = scratch.path().join("whole");
    fs::remove_dir_all(newest(&whole)).unwrap();
    let events = fs::read_dir(whole.join("tensorboard")).unwrap().next().unwrap().unwrap().file_name();
    let events = format!("tensorboard/{}", events.to_str().unwrap());
    let run = scratch.path().join("out");
    let resume = ["--resume", "out", "--shadow", "uniform"];
    for file in [
        "record.jsonl",
        "times.jsonl",
        "metrics.jsonl",
        "log.jsonl",
        events.as_str(),
        "shadows/uniform.jsonl",
        "rollouts/part-00001.parquet",
        "rollouts/part-00002.parquet",
    ] {
        let changes: [fn(&mut Vec<u8>); 3] = [
            // Another digit, and as many bytes as there were.
            |bytes| {
                let digit = bytes[..bytes.len() / 4].iter().rposition(u8::is_ascii_digit);
                let digit = digit.unwrap_or(bytes.len() / 8);
                bytes[digit] ^= 1;
            },
            |bytes| bytes.truncate(bytes.len() / 4),
            Vec::clear,
        ];
        for change in changes {
            copied(&whole, &run);
            let mut bytes = fs::read(run.join(file)).unwrap();
            change(&mut bytes);
            fs::write(run.join(file), bytes).unwrap();
            let before = contents(&run);
            let said = told(&scratch, &resume);
            assert!(said.ends_with("exit code 2"), "{file}: {said}");
            // An empty record has not even a head.
            let named = format!("error: `out/{file}` ");
            assert!(said.contains(&named), "{file}: {said}");
            assert!(said.contains("hint: ") || file == "record.jsonl", "{file}: {said}");
            assert!(before == contents(&run), "{file}: nothing was cut");
            fs::remove_dir_all(&run).unwrap();
        }
    }
    // What was written after the checkpoint is cut off, whatever it is.
    copied(&whole, &run);
    for file in ["record.jsonl", "times.jsonl", "metrics.jsonl", events.as_str()] {
        let mut bytes = fs::read(run.join(file)).unwrap();
        bytes.extend([0xff; 10]);
        fs::write(run.join(file), bytes).unwrap();
    }
    assert!(told(&scratch, &resume).contains("goes on after step 4 of 6"));
    let told_of = |run: &Path| fs::read_to_string(run.join("record.jsonl")).unwrap();
    assert_eq!(told_of(&run), told_of(&whole));
}

#[test]
fn without_a_whole_checkpoint_nothing_is_thrown_away() {
    let scratch = with(CONFIG);
    trained(&scratch, &["run.toml", "--out", "out"]);
    let run = scratch.path().join("out");
    for checkpoint in checkpoints(&run) {
        fs::write(checkpoint.join("state.json"), "{}").unwrap();
    }
    let before = scratch.read("out/record.jsonl");
    insta::assert_snapshot!(told(&scratch, &["--resume", "out"]), @"
    policy uniform 0.1.0, sha256 HASH, seed 1, 90 problems to train on, 30 held out
    error: no checkpoint in `out/checkpoints` is complete: `out/checkpoints/step-000006/state.json` does not match its checkpoint's manifest

    hint: restore what was changed; without that folder the run starts over
    exit code 2
    ");
    assert_eq!(scratch.read("out/record.jsonl"), before);
    assert_eq!(checkpoints(&run).len(), 3);
}

#[test]
fn a_checkpoint_of_another_run_is_refused() {
    let scratch = with(CONFIG);
    model(&scratch);
    scratch.write("mine.jsonl", r#"{"question": "1+1=", "answer": "2"}"#);
    let data = "[[data]]\nfiles = \"mine.jsonl\"\n";
    scratch.write("run.toml", CONFIG.replace("\"tiny-sums\"", "\"./mine\"") + data);
    trained(&scratch, &["run.toml", "--out", "out"]);
    fs::remove_dir_all(newest(&scratch.path().join("out"))).unwrap();
    let resolved = scratch.read("out/resolved.toml");

    scratch.write("out/resolved.toml", resolved.replace("max_tokens = 8", "max_tokens = 7"));
    insta::assert_snapshot!(told(&scratch, &["--resume", "out"]), @"
    policy uniform 0.1.0, sha256 HASH, seed 1, 91 problems to train on, 30 held out
    error: the checkpoint `out/checkpoints/step-000004` is from a run with another config

    hint: the run's `resolved.toml` was changed; restore it
    exit code 2
    ");
    scratch.write("out/resolved.toml", resolved);
    insta::assert_snapshot!(told(&scratch, &["run.toml", "--resume", "out", "--seed", "3"]), @"
    error: the argument '--resume <RUN>' cannot be used with '--seed <SEED>'

    Usage: allot train --resume <RUN> <CONFIG>

    For more information, try '--help'.
    exit code 2
    ");
    scratch.write("other.toml", CONFIG);
    insta::assert_snapshot!(told(&scratch, &["other.toml", "--resume", "out"]), @"
    error: the run in `out` has a different config from the one given

    hint: leave the config out: a run continues with its own
    exit code 2
    ");

    scratch.write("mine.jsonl", r#"{"question": "1+1=", "answer": "3"}"#);
    insta::assert_snapshot!(told(&scratch, &["--resume", "out"]), @"
    policy uniform 0.1.0, sha256 HASH, seed 1, 91 problems to train on, 30 held out
    error: the checkpoint `out/checkpoints/step-000004` is from a run with other problems

    hint: the data that the config names have changed since
    exit code 2
    ");
    let weights = scratch.path().join("mine/model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&weights, bytes).unwrap();
    insta::assert_snapshot!(told(&scratch, &["--resume", "out"]), @"
    policy uniform 0.1.0, sha256 HASH, seed 1, 91 problems to train on, 30 held out
    error: the checkpoint `out/checkpoints/step-000004` is from a run with another model

    hint: the weights that the config names have changed since
    exit code 2
    ");
    fs::write(scratch.path().join("out/record.jsonl"), "").unwrap();
    insta::assert_snapshot!(told(&scratch, &["--resume", "run.toml"]), @"
    error: could not read `run.toml/resolved.toml`: part of its path is a file

    hint: --resume takes the folder of a run
    exit code 2
    ");
    insta::assert_snapshot!(told(&scratch, &["--resume", "nowhere"]), @"
    error: could not read `nowhere/resolved.toml`: there is no such file or folder

    hint: --resume takes the folder of a run
    exit code 2
    ");
}

/// The model that ships, as a folder `mine`.
fn model(scratch: &Scratch) {
    copied(&scratch::root().join("host/models/shipped/tiny-sums"), &scratch.path().join("mine"));
}

#[test]
fn a_disk_that_is_full_costs_no_checkpoint() {
    let scratch = with(CONFIG);
    let table = trained(&scratch, &["run.toml", "--out", "whole"]);
    let (whole, run) = (scratch.path().join("whole"), scratch.path().join("out"));
    copied(&whole, &run);
    checkpoints(&run).into_iter().skip(1).for_each(|late| fs::remove_dir_all(late).unwrap());
    let left = checkpoints(&run);

    // Room for the record and for the model, none for the optimizer.
    let limited = "trap '' XFSZ; ulimit -f 800; exec \"$0\" train --resume out";
    let mut command = Command::new("bash");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_allot")]).current_dir(scratch.path());
    let done = command.output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    insta::assert_snapshot!(error(&String::from_utf8_lossy(&done.stderr)), @"
    error: could not write `out/checkpoints/.writing-step-000004/optimizer.safetensors`: File too large (os error 27)

    note: everything that was finished is in out/record.jsonl
    note: the last good checkpoint is out/checkpoints/step-000002; to resume from it: allot train --resume out
    ");
    assert_eq!(checkpoints(&run), left);

    // A device that is always full, where the next part of the table goes.
    let passing = run.join("rollouts/.part-00002");
    std::os::unix::fs::symlink("/dev/full", &passing).unwrap();
    insta::assert_snapshot!(error(&told(&scratch, &["--resume", "out"])), @"
    error: could not write `out/rollouts/part-00002.parquet`: the disk is full

    note: everything that was finished is in out/record.jsonl
    note: the last good checkpoint is out/checkpoints/step-000002; to resume from it: allot train --resume out
    exit code 2
    ");
    assert_eq!(checkpoints(&run), left);

    assert_eq!(trained(&scratch, &["--resume", "out"]), table);
    assert_same(&whole, &run, "after full disks");
}

// ---- numbers that are none

#[test]
fn an_update_that_is_not_finite_is_refused_and_its_batch_is_told() {
    let config = CONFIG.replace("every = 2 # checkpoint", "every = 1");
    // At the first weights there is nothing to leave the reference for. After a step there is, and it
    // counts more than a number of 32 bits can hold.
    let scratch = with(&format!("{config}\n[update]\nloss = {{ kind = \"grpo\", kl = 1e300 }}\n"));
    let said = told(&scratch, &["run.toml", "--out", "out"]);
    insta::assert_snapshot!(error(&said), @"
    error: the update of step 1 was refused: the gradient is not finite; its batch was 8 of prompt 65, 8 of prompt 79, 8 of prompt 67, 8 of prompt 6, 8 of prompt 70, 8 of prompt 54, 8 of prompt 80, 8 of prompt 74

    hint: lower `optimizer.learning_rate`, and begin from the `model` folder of a checkpoint
    note: everything that was finished is in out/record.jsonl
    note: the last good checkpoint is out/checkpoints/step-000001
    exit code 2
    ");
    let run = scratch.path().join("out");
    let saved = checkpoints(&run);
    assert!(saved.len() == 1 && saved[0].ends_with("step-000001"), "{saved:?}");
    let (_, end) = record(&run);
    assert!(!end.normal && end.reason.contains("was refused"), "{}", end.reason);
    // Taken up again it comes to the same.
    assert_eq!(error(&told(&scratch, &["--resume", "out"])), error(&said));
    assert_eq!(checkpoints(&run), saved);
}

#[test]
fn a_model_whose_weights_are_not_finite_is_never_saved() {
    let scratch = with(&CONFIG.replace("learning_rate = 2e-4", "learning_rate = 1e39"));
    let said = told(&scratch, &["run.toml", "--out", "out"]);
    insta::assert_snapshot!(error(&said), @"
    error: probabilities in step 1 are not finite: an earlier update has broken the model

    hint: lower `optimizer.learning_rate`, and begin from the `model` folder of a checkpoint
    note: everything that was finished is in out/record.jsonl
    exit code 2
    ");
    assert!(!scratch.path().join("out/checkpoints").exists());
}

#[test]
fn a_model_that_is_not_finite_as_it_lies_there_is_told_so() {
    let scratch = with(&CONFIG.replace("\"tiny-sums\"", "\"./mine\""));
    model(&scratch);
    let path = scratch.path().join("mine/model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    // The last number, in bfloat16: not a number.
    bytes[end - 2..].copy_from_slice(&0x7fc0_u16.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    insta::assert_snapshot!(error(&told(&scratch, &["run.toml", "--out", "out"])), @"
    error: the weights of `[scratch]/mine` are not finite: 1 of 152128 are NaN or infinite in its files

    hint: use another copy of the model, or a checkpoint from before it broke
    exit code 2
    ");
    assert!(!scratch.path().join("out").exists());
}

#[test]
fn a_folder_that_is_moved_in_mid_run_is_missed_at_the_next_step() {
    let scratch = with(
        &CONFIG.replace("steps = 6", "steps = 100_000").replace("rollouts = 4000", "rollouts = 4_000_000"),
    );
    let run = scratch.path().join("out");
    let mut child = started(&scratch);
    until(&mut child, || bytes(&run) > 20_000);
    fs::rename(&run, scratch.path().join("elsewhere")).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    insta::assert_snapshot!(error(&String::from_utf8_lossy(&done.stderr)), @"
    error: `out/record.jsonl` is gone: it was removed or moved while the run went on

    hint: put the run's folder back where it was, if it was moved; else begin the run anew
    ");
}

// ---- ways to train

#[test]
fn every_way_to_train_runs_and_goes_on_where_it_stopped() {
    let short = CONFIG.replace("steps = 6", "steps = 2").replace("every = 2 # checkpoint", "every = 1");
    let with_update = |update: &str| format!("{short}\n[update]\n{update}\n");
    let lora = short.replace("[model]", "[model]\nlora = { rank = 4, alpha = 8.0 }");
    let mut configs: Vec<String> = ["grpo", "dr-grpo", "dapo", "gspo", "cispo", "rloo"]
        .map(|kind| with_update(&format!("loss = {{ kind = \"{kind}\" }}")))
        .to_vec();
    configs.push(with_update("loss = { kind = \"grpo\", kl = 0.05 }"));
    configs.push(with_update("loss = { kind = \"dapo\", entropy = 0.01 }"));
    configs.push(with_update("mini_batch = 24\nepochs = 2"));
    configs.push(with_update("mini_batch_tokens = 60\nepochs = 2"));
    configs.push(with_update("old_log_probs = \"recomputed\"\nmini_batch = 16"));
    configs.push(with_update("old_log_probs = \"decoupled\"\nmicro_batch_tokens = 64"));
    configs.push(with_update("old_log_probs = \"sampling\"\nmini_batch = 16"));
    let cut = "max_tokens = 8\ntemperature = 0.7\ntop_k = 6\ntop_p = 0.9";
    let masks =
        with_update("keep_sampling_mask = true\nmini_batch = 24\nloss = { kind = \"dapo\", kl = 0.05 }");
    // With a lag a checkpoint keeps rollouts, with the tokens that they were drawn from.
    configs.push(masks.replace("max_tokens = 8", cut).replace("seed = 1", "seed = 1\nlag = 1"));
    configs.push(short.replace("rows = 64", "rows = 64\nstop = [\"12\", \"7\"]"));
    configs.push(with_update("mask_truncated = true").replace("max_tokens = 8", "max_tokens = 3"));
    configs.push(lora.clone());
    configs.push(format!("{lora}\n[update]\nloss = {{ kind = \"grpo\", kl = 0.05 }}\n"));
    let bf16 = |config: &str| config.replace("[model]", "[model]\ndtype = \"bf16\"");
    configs.push(bf16(&with_update("loss = { kind = \"grpo\", kl = 0.05 }\nrecompute = true")));
    configs.push(bf16(&lora));
    configs.push(bf16(&short.replace("seed = 1", "seed = 1\nlag = 1")));
    configs
        .push(short.replace("max_tokens = 8", "max_tokens = 8\ntemperature = 0.7\ntop_k = 6\ntop_p = 0.9"));
    configs.push(
        short.replace("learning_rate = 2e-4", "learning_rate = 2e-4\nschedule = \"cosine\"\nwarmup = 1"),
    );
    for config in configs {
        let scratch = with(&config);
        let table = trained(&scratch, &["run.toml", "--out", "whole"]);
        let (whole, run) = (scratch.path().join("whole"), scratch.path().join("out"));
        let (steps, _) = record(&whole);
        assert!(steps.iter().all(|s| s.updated), "{config}");
        let before =
            fs::read(scratch::root().join("host/models/shipped/tiny-sums/model.safetensors")).unwrap();
        assert_ne!(fs::read(newest(&whole).join("model/model.safetensors")).unwrap(), before, "{config}");
        copied(&whole, &run);
        fs::remove_dir_all(newest(&run)).unwrap();
        assert_eq!(trained(&scratch, &["--resume", "out"]), table, "{config}");
        assert_same(&whole, &run, &config);
    }
}

/// In bf16 weights are laid out for products in half of the room, and what is trained takes what it takes.
#[test]
fn what_bf16_takes_is_told_before() {
    let row = |config: &str, name: &str| -> String {
        let said = trained(&with(config), &["run.toml", "--dry-run"]);
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    let bf16 = CONFIG.replace("[model]", "[model]\ndtype = \"bf16\"");
    assert_eq!(row(CONFIG, "device"), "");
    let told = ["cpu, in bf16 by AMX", "cpu, in bf16 by AVX512-BF16", "cpu, in bf16 by instructions for f32"];
    assert!(told.contains(&row(&bf16, "device").as_str()));
    assert_eq!(row(CONFIG, "  weights"), row(&bf16, "  weights"));
    let mib = |config: &str| -> f64 { row(config, "  sampling").trim_end_matches(" MiB").parse().unwrap() };
    let saved = mib(CONFIG) - mib(&bf16);
    // Two bytes of each of the model's 152,128 parameters.
    assert!((saved - 2.0 * 152_128.0 / f64::from(1 << 20)).abs() < 0.11, "{saved}");
}

#[test]
fn activations_made_again_change_nothing() {
    let weights = |recompute: bool| {
        let scratch = with(&format!("{CONFIG}\n[update]\nrecompute = {recompute}\n"));
        trained(&scratch, &["run.toml", "--out", "out"]);
        fs::read(newest(&scratch.path().join("out")).join("model/model.safetensors")).unwrap()
    };
    assert_eq!(weights(false), weights(true));
}

#[test]
fn a_model_that_was_trained_is_trained_on() {
    let scratch = with(CONFIG);
    // Random numbers depend on the updates made, the likeliest answer does not.
    let surest = "rollouts = 2\nsampling = { temperature = 0.0, max_tokens = 8 }";
    let config = CONFIG.replace("rollouts = 2", surest);
    scratch.write("run.toml", &config);
    trained(&scratch, &["run.toml", "--out", "out"]);
    let config = config.replace("\"tiny-sums\"", "\"out/checkpoints/step-000006/model\"");
    scratch.write("run.toml", config);
    trained(&scratch, &["run.toml", "--out", "more"]);
    let score = |run: &str| Reader::open(&scratch.path().join(run)).unwrap().1.accuracy.unwrap();
    let (_, end) = record(&scratch.path().join("out"));
    assert_eq!(score("more"), end.accuracy.unwrap(), "the same weights give the same score");
}

// ---- what a run computes, and how long it takes

#[test]
fn a_budget_of_operations_ends_a_run() {
    let whole = with(CONFIG);
    trained(&whole, &["run.toml", "--out", "out"]);
    let (steps, end) = record(&whole.path().join("out"));
    let spent: Vec<f64> = steps.iter().map(|s| s.compute.flops.total()).collect();
    assert!(spent.windows(2).all(|pair| pair[0] < pair[1]), "{spent:?}");
    assert_eq!(end.compute, steps[steps.len() - 1].compute);
    let compute = end.compute;
    assert!(compute.prompt_tokens > 0 && compute.trained_tokens > 0);
    assert_eq!(compute.optimizer_steps, steps.len() as u64);
    assert!(compute.flops.prefill < compute.flops.training && compute.flops.decode < compute.flops.training);

    // Two steps and a half: as far as it is not near the run is the same one, and it is never passed.
    let most = f64::midpoint(spent[1], spent[2]);
    let endless = CONFIG.replace("steps = 6", "steps = 1000");
    let limited = with(&endless.replace("rollouts = 4000", &format!("flops = {most:e}")));
    trained(&limited, &["run.toml", "--out", "out"]);
    let (fewer, end) = record(&limited.path().join("out"));
    assert_eq!((end.reason.as_str(), end.normal), ("the budget is spent", true));
    assert!(fewer.len() >= 3);
    let total = end.compute.flops.total();
    // The longest answer to the longest prompt, learned from whole, takes less than a quarter of a step of 64 rollouts
    // that are short, and that have nothing to learn from, most of them.
    assert!(total <= most && total > most - spent[0] / 4.0, "{total} of {most}");
}

#[test]
fn one_request_does_not_pass_a_budget_of_operations() {
    let config = CONFIG.replace("rollouts = 4000", "flops = 1e9\nstep_rollouts = 1_000_000");
    let config = config.replace("groups = 8", "groups = 4").replace("\nrollouts = 8", "\nrollouts = 20_000");
    let config = config.replace("steps = 6", "steps = 1000");
    let scratch = with(&config);
    trained(&scratch, &["run.toml", "--out", "out"]);
    let run = scratch.path().join("out");
    let (_, end) = record(&run);
    assert_eq!((end.reason.as_str(), end.normal), ("the budget is spent", true));
    assert!(end.compute.flops.total() <= 1e9 && end.compute.flops.training > 0.0, "{:?}", end.compute);
    let calls = Reader::open(&run).unwrap().0.filter_map(|line| match line.unwrap() {
        Line::Call(call) => Some(call),
        _ => None,
    });
    let first = calls.into_iter().next().unwrap();
    assert_eq!(first.asked, 80_000);
    assert!(first.granted > 0 && first.granted < 1000, "{}", first.granted);
    // What was granted is in the record, so that every decision is replayed from it alone.
    let said = scratch.allot(&["replay", "out"]);
    assert!(said.ends_with("exit code 0"), "{said}");
}

#[test]
fn a_budget_of_seconds_ends_a_run_and_times_lie_beside_the_record() {
    let endless = CONFIG.replace("rollouts = 4000", "seconds = 0.2").replace("steps = 6", "steps = 100000");
    let scratch = with(&endless);
    trained(&scratch, &["run.toml", "--out", "out"]);
    let run = scratch.path().join("out");
    let (steps, end) = record(&run);
    assert_eq!(end.reason, "the budget is spent");
    let times = allot_record::Times::read(&run).unwrap();
    let mut seconds = Vec::new();
    for time in &times[1..] {
        let allot_record::Time::Step { seconds: s, .. } = time else { panic!("{time:?}") };
        seconds.push(*s);
    }
    assert!(matches!(&times[0], allot_record::Time::Machine(m) if m.cores > 0 && m.device == "cpu"));
    assert_eq!(seconds.len(), steps.len() + 1);
    // The last step is the one that passed it, or trained on what was left then.
    assert!(seconds.last().unwrap().of_steps() >= 0.2);
    assert!(seconds[seconds.len() - 3].of_steps() < 0.2, "{seconds:?}");
    assert!(seconds[0].of_steps() == 0.0 && seconds[0].evaluating > 0.0);
}

#[test]
fn the_score_is_taken_where_rollouts_pass_a_multiple() {
    let config = CONFIG.replace("every = 2\nrollouts = 2", "every_rollouts = 150\nrollouts = 4");
    let scratch = with(&config);
    trained(&scratch, &["run.toml", "--out", "out"]);
    let (steps, _) = record(&scratch.path().join("out"));
    // 64 rollouts a step: 150 is passed by the third, 300 by the fifth.
    let scored: Vec<u32> = steps.iter().filter(|s| s.accuracy.is_some()).map(|s| s.step + 1).collect();
    assert_eq!(scored, [3, 5]);
    let names: Vec<&str> = steps[2].scores.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..3], ["eval/held-out/avg@4", "eval/held-out/pass@2", "eval/held-out/pass@4"]);
    let value = |i: usize| steps[2].scores[i].1;
    assert!(value(0) <= value(1) && value(1) <= value(2));
}
