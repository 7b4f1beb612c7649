//! Another policy for a run that goes on, and policies that look on, as a user meets them: what is said and
//! left, and that a stop at any moment changes neither.

#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "takeover/memories.rs"]
mod memories;
#[path = "takeover/readers.rs"]
mod readers;
#[path = "takeover/replaying.rs"]
mod replaying;
mod scratch;
#[path = "takeover/shadows.rs"]
mod shadows;
#[path = "takeover/stops.rs"]
mod stops;
#[path = "takeover/wrong.rs"]
mod wrong;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use allot_record::{Line, Reader, Swap, Views};
use scratch::Scratch;
use serde_json::Value;

/// A run of half a second that is saved after every step.
fn config() -> String {
    let short = include_str!("cases/training/short.toml");
    short.replace("every = 2 # checkpoint", "every = 1 # checkpoint").replace("steps = 6", "steps = 8")
}

/// A scratch folder with a config as `run.toml` and its run, under this policy, as `whole`.
fn with(policy: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.write("run.toml", config());
    ran(&scratch, &["run.toml", "--policy", policy, "--out", "whole"]);
    scratch
}

/// Runs to the end; what was said on standard error.
fn ran(scratch: &Scratch, args: &[&str]) -> String {
    let done = scratch.command(&[&["train"], args].concat()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{args:?}: {said}");
    said
}

/// What a command says, the scratch folder's path left out, and its exit code.
fn told(scratch: &Scratch, args: &[&str]) -> String {
    scratch.allot(args).replace(&scratch.path().display().to_string(), "[scratch]")
}

/// A copy of a run's folder as it was when so many steps were done and it stopped in the next one.
fn stopped(scratch: &Scratch, from: &str, to: &str, steps: u32) -> PathBuf {
    let run = scratch.path().join(to);
    let _ = fs::remove_dir_all(&run);
    let done = Command::new("cp").arg("-r").args([&scratch.path().join(from), &run]).status().unwrap();
    assert!(done.success());
    for checkpoint in fs::read_dir(run.join("checkpoints")).unwrap().flatten() {
        let name = checkpoint.file_name().into_string().unwrap();
        if name.strip_prefix("step-").unwrap().parse::<u32>().unwrap() > steps {
            fs::remove_dir_all(checkpoint.path()).unwrap();
        }
    }
    run
}

/// A run that was stopped after so many steps, and taken up by another policy to its end.
fn swapped(scratch: &Scratch, to: &str, steps: u32, policy: &str) -> PathBuf {
    let run = stopped(scratch, "whole", to, steps);
    ran(scratch, &["--resume", to, "--policy", policy]);
    run
}

/// A record's lines.
fn lines(run: &Path) -> Vec<String> {
    fs::read_to_string(run.join("record.jsonl")).unwrap().lines().map(str::to_owned).collect()
}

/// A record's swaps, with the numbers of their lines.
fn swaps(run: &Path) -> Vec<(usize, Swap)> {
    let (reader, _) = Reader::open(run).unwrap();
    let all = reader.enumerate().filter_map(|(i, line)| match line.unwrap() {
        Line::Swap(swap) => Some((i + 1, *swap)),
        _ => None,
    });
    all.collect()
}

/// All files below a folder, by path, with their bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    all
}

/// Granted is sampled is charged over a whole record, whose views add up and whose end is a normal one.
fn adds_up(run: &Path) {
    let (reader, head) = Reader::open(run).unwrap();
    let mut views = Views::new(&head).unwrap();
    let (mut granted, mut sampled, mut spent, mut normal) = (0, 0, None, false);
    for line in reader {
        let line = line.unwrap();
        views.take(&line).unwrap();
        match line {
            Line::Call(call) => granted += call.granted,
            Line::Rollouts(round) => {
                let told = |s: &allot_record::Sampled| s.rewards.len() as u64 + u64::from(s.unscorable);
                sampled += round.sampled.iter().map(told).sum::<u64>();
            }
            Line::Step(step) => assert_eq!(step.spent.run_rollouts, granted),
            Line::End(end) => (spent, normal) = (Some(end.spent.run_rollouts), end.normal),
            Line::Head(_) | Line::Column(_) | Line::Swap(_) => {}
        }
    }
    assert_eq!((granted, Some(sampled), normal), (sampled, spent, true), "{}", run.display());
}

// ---- what it leaves

#[test]
fn another_policy_takes_over_and_all_else_goes_on() {
    let scratch = with("pilot-commit");
    let whole = scratch.path().join("whole");
    let run = stopped(&scratch, "whole", "out", 4);
    let before = scratch.read("out/resolved.toml");
    let said = ran(&scratch, &["--resume", "out", "--policy", "pods", "--set", "keep=5"]);
    assert!(said.contains("goes on after step 4 of 8\npolicy `pods` takes over from step 4 on\n"), "{said}");

    // One line between two steps says so; before it nothing is another.
    let (old, new) = (lines(&whole), lines(&run));
    let all = swaps(&run);
    let [(at, swap)] = &all[..] else { panic!("{all:?}") };
    assert_eq!(old[..*at], new[..*at]);
    assert!(new[at - 1].starts_with(r#"{"kind":"step","step":3,"#), "{}", new[at - 1]);
    assert!(new[at + 1].starts_with(r#"{"kind":"call","step":4,"round":0,"#), "{}", new[at + 1]);
    assert_eq!((swap.step, swap.policy.name.as_str(), swap.policy.sha256.len()), (4, "pods", 64));
    assert!(swap.settings.contains(&("keep".to_owned(), allot_allocation::Value::Integer(5))));
    let line: Value = serde_json::from_str(&new[*at]).unwrap();
    assert_eq!(line["caps"], serde_json::from_str::<Value>(&new[0]).unwrap()["caps"]);
    // What is offered next, and what was spent, does not depend on who decides.
    let call = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let (then, now) = (call(&old[*at]), call(&new[at + 1]));
    for same in ["seed", "budget", "counts", "offered"] {
        assert_eq!(then[same], now[same], "{same}");
    }
    adds_up(&run);

    // The config is the new one, and the old one is kept.
    assert_eq!(scratch.read("out/until-step-000004.toml"), before);
    let config: toml::Table = toml::from_str(&scratch.read("out/resolved.toml")).unwrap();
    assert_eq!(config["policy"]["use"].as_str(), Some("pods"));
    assert_eq!(config["policy"]["settings"]["keep"].as_integer(), Some(5));
    assert!(!run.join("next.toml").exists());
    let manifest = call(&scratch.read("out/checkpoints/step-000004/manifest.json"));
    assert_eq!(manifest["policy"], swap.policy.sha256);

    // Taken up again it goes on under the new one without being told.
    let record = scratch.read("out/record.jsonl");
    for steps in [4, 6, 7] {
        let again = stopped(&scratch, "out", "again", steps);
        let said = ran(&scratch, &["--resume", "again"]);
        assert!(said.contains(&format!("goes on after step {steps} of 8")), "{said}");
        assert_eq!(fs::read_to_string(again.join("record.jsonl")).unwrap(), record, "{steps}");
    }
    // A run that is over is told as what it ended under, at once and again.
    let json = |args: &[&str]| {
        let done = scratch.command(args).output().unwrap();
        serde_json::from_slice::<Value>(&done.stdout).unwrap()
    };
    let over = json(&["train", "--resume", "out", "--json"]);
    assert_eq!((&over["policy"], &over["sha256"]), (&"pods".into(), &swap.policy.sha256.as_str().into()));
    stopped(&scratch, "out", "again", 7);
    assert_eq!(json(&["train", "--resume", "again", "--json"]), over);
}

#[test]
fn a_run_is_swapped_again_and_again() {
    let scratch = with("uniform");
    let run = swapped(&scratch, "out", 3, "pods");
    let second = stopped(&scratch, "out", "second", 6);
    ran(&scratch, &["--resume", "second", "--policy", "uniform"]);
    let told = |run: &Path| {
        let all = swaps(run).into_iter().map(|(_, swap)| (swap.step, swap.policy.name));
        all.collect::<Vec<_>>()
    };
    assert_eq!(told(&run), [(3, "pods".to_owned())]);
    assert_eq!(told(&second), [(3, "pods".to_owned()), (6, "uniform".to_owned())]);
    adds_up(&second);
    let until = |run: &Path| {
        let all = fs::read_dir(run).unwrap().flatten().map(|e| e.file_name().into_string().unwrap());
        let mut all: Vec<String> = all.filter(|name| name.starts_with("until-")).collect();
        all.sort();
        all
    };
    assert_eq!(until(&second), ["until-step-000003.toml", "until-step-000006.toml"]);

    // Twice at one checkpoint: the first of them decided nothing.
    let third = stopped(&scratch, "out", "third", 3);
    ran(&scratch, &["--resume", "third", "--policy", "dapo"]);
    assert_eq!(told(&third), [(3, "pods".to_owned()), (3, "dapo".to_owned())]);
    assert_eq!(until(&third), ["until-step-000003-1.toml", "until-step-000003.toml"]);
    adds_up(&third);
    let report = scratch.allot(&["report", "third", "whole", "--out", "report"]);
    assert!(report.contains("uniform, dapo from step 3") && !report.contains("pods"), "{report}");
    let replayed = scratch.allot(&["replay", "third", "--show", "0"]);
    assert_eq!(replayed.matches("the record has another policy from step 3 on").count(), 1, "{replayed}");
}

#[test]
fn settings_alone_are_changed_too() {
    let scratch = with("uniform");
    let run = stopped(&scratch, "whole", "out", 4);
    let said = ran(&scratch, &["--resume", "out", "--set", "rollouts=4"]);
    assert!(said.contains("policy `uniform` takes over from step 4 on"), "{said}");
    let all = swaps(&run);
    assert_eq!(all.len(), 1);
    assert!(all[0].1.settings.contains(&("rollouts".to_owned(), allot_allocation::Value::Integer(4))));
    adds_up(&run);
    // Asked with the settings of each of its times, the policy answers as it did.
    insta::assert_snapshot!(told(&scratch, &["replay", "out"]), @"
    16 calls, no difference
    the record has another policy from step 4 on; uniform started afresh there
    exit code 0
    ");
    // With another policy in between, the settings are that one's.
    let run = stopped(&scratch, "out", "again", 6);
    ran(&scratch, &["--resume", "again", "--policy", "pods"]);
    assert_eq!(swaps(&run).len(), 2);
    let config: toml::Table = toml::from_str(&scratch.read("again/resolved.toml")).unwrap();
    assert!(config["policy"].get("settings").is_none_or(|s| s.as_table().unwrap().is_empty()), "{config}");
}

#[test]
fn what_is_in_force_already_takes_nothing_over() {
    let scratch = with("uniform");
    let record = scratch.read("whole/record.jsonl");
    for args in [&["--policy", "uniform"][..], &["--policy", "uniform", "--set", "rollouts=5"]] {
        let set = args.len() > 2;
        let run = if set {
            let run = stopped(&scratch, "whole", "out", 4);
            ran(&scratch, &[&["--resume", "out"], args].concat());
            assert_eq!(swaps(&run).len(), 1);
            stopped(&scratch, "out", "again", 6)
        } else {
            stopped(&scratch, "whole", "again", 6)
        };
        let before = files(&run.join("checkpoints"));
        let said = ran(&scratch, &[&["--resume", "again"], args].concat());
        assert!(said.contains("the run already uses policy `uniform` with these settings\n"), "{said}");
        assert!(said.contains("goes on after step 6 of 8\n") && !said.contains("takes over"), "{said}");
        assert_eq!(swaps(&run).len(), usize::from(set));
        let after = files(&run.join("checkpoints"));
        assert!(before.iter().all(|(path, bytes)| after.get(path) == Some(bytes)));
        assert!(!run.join("until-step-000006.toml").exists());
        if !set {
            assert_eq!(fs::read_to_string(run.join("record.jsonl")).unwrap(), record);
        }
        // Of a run that is over the table is shown, as ever.
        let said = ran(&scratch, &[&["--resume", "again"], args].concat());
        assert!(said.contains("the run in again is over"), "{said}");
    }
    // Of a run without a checkpoint there is nothing to take over either.
    let run = stopped(&scratch, "whole", "out", 0);
    fs::write(run.join("record.jsonl"), &record[..record.len() / 2]).unwrap();
    let said = ran(&scratch, &["--resume", "out", "--policy", "uniform"]);
    assert!(said.contains("it has no checkpoint yet, so it starts over"), "{said}");
    assert_eq!(scratch.read("out/record.jsonl"), record);
}

#[test]
fn a_component_of_ones_own_takes_over_and_so_does_its_next_build() {
    let scratch = with("uniform");
    let build = |name: &str| {
        let path = scratch::root().join(format!("policies/prebuilt/{name}.wasm"));
        scratch.write("mine.wasm", fs::read(path).unwrap());
    };
    build("uniform");
    let run = stopped(&scratch, "whole", "out", 2);
    // The same component by another name is another source, and is written down as such.
    ran(&scratch, &["--resume", "out", "--policy", "./mine.wasm", "--set", "rollouts=6"]);
    let config: toml::Table = toml::from_str(&scratch.read("out/resolved.toml")).unwrap();
    let path = scratch.path().join("mine.wasm");
    assert_eq!(config["policy"]["use"].as_str(), path.canonicalize().unwrap().to_str());
    assert_eq!(swaps(&run).len(), 1);

    // However the path is written it is the same one, with the settings that it has.
    stopped(&scratch, "out", "again", 4);
    let said = ran(&scratch, &["--resume", "again", "--policy", "././mine.wasm"]);
    assert!(said.contains("the run already uses policy"), "{said}");

    // Another build takes over where it is named; config and settings stay as they are.
    build("pods");
    let wrong = told(&scratch, &["train", "--resume", "again", "--policy", "./mine.wasm"]);
    assert!(wrong.contains("the run in again is over"), "{wrong}");
    stopped(&scratch, "out", "again", 4);
    let bad = told(&scratch, &["train", "--resume", "again", "--policy", "./mine.wasm"]);
    assert!(bad.contains("error: policy `pods` has no setting `rollouts`"), "{bad}");
    build("uniform");
    let run = swapped(&scratch, "plain", 2, "./mine.wasm");
    let kept = fs::read(run.join("resolved.toml")).unwrap();
    build("pods");
    let again = stopped(&scratch, "plain", "again", 5);
    let said = ran(&scratch, &["--resume", "again", "--policy", "./mine.wasm"]);
    assert!(said.contains("policy `pods` takes over from step 5 on"), "{said}");
    assert_eq!(fs::read(again.join("resolved.toml")).unwrap(), kept);
    assert!(!again.join("until-step-000005.toml").exists());
    let names: Vec<String> = swaps(&again).into_iter().map(|(_, swap)| swap.policy.name).collect();
    assert_eq!(names, ["uniform", "pods"]);
    adds_up(&again);
}
