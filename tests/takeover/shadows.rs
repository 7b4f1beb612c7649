//! Policies that look on: they change nothing, what they would have done is written down, and a stop at any
//! moment does not change that either.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::{Scratch, adds_up, config, files, lines, ran, stopped, told, with};
use crate::scratch;

const TWO: [&str; 4] = ["--shadow", "pods,keep=5", "--shadow", "pilot-commit"];

/// A shadow's lines.
fn seen(run: &Path, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(run.join("shadows").join(format!("{name}.jsonl"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What is said of a shadow at the end.
fn summary<'s>(said: &'s str, name: &str) -> &'s str {
    let begins = format!("shadow `{name}`: ");
    said.lines().find_map(|line| line.strip_prefix(&begins)).unwrap_or_else(|| panic!("{said}"))
}

/// A run's files but for what is of times, and of shadows.
fn timeless(run: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for (path, bytes) in files(run) {
        let name = path.strip_prefix(run).unwrap().display().to_string();
        let apart = ["tensorboard", "shadows", "components", "times.jsonl"];
        if apart.iter().any(|apart| name.starts_with(apart)) {
            continue;
        }
        // Of a checkpoint the model and the optimizer; its state counts seconds, and its manifest the state.
        if name.ends_with("state.json") || name.ends_with("manifest.json") {
            continue;
        }
        if name == "metrics.jsonl" {
            let lines = String::from_utf8(bytes).unwrap();
            let lines = lines.lines().map(|line| {
                let mut line: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap();
                line.remove("step_time");
                line.remove("tokens_per_second");
                Value::from(line).to_string()
            });
            all.push((name, lines.collect::<Vec<_>>().join("\n").into_bytes()));
        } else {
            all.push((name, bytes));
        }
    }
    all
}

#[test]
fn whoever_looks_on_changes_nothing() {
    let scratch = with("uniform");
    // In a folder of the same name, which is in the tables.
    fs::rename(scratch.path().join("whole"), scratch.path().join("alone")).unwrap();
    let said = ran(&scratch, &[&["run.toml", "--out", "whole"], &TWO[..]].concat());
    let (alone, run) = (scratch.path().join("alone"), scratch.path().join("whole"));
    let (without, with) = (timeless(&alone), timeless(&run));
    assert!(without.len() > 30 && without.iter().any(|(name, _)| name.ends_with("part-00001.parquet")));
    for (one, other) in without.iter().zip(&with) {
        assert!(one == other, "{} differs", one.0);
    }
    assert_eq!(without.len(), with.len());

    // What was written down adds up.
    let record = lines(&run);
    let calls: Vec<Value> = record
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["kind"] == "call")
        .collect();
    for name in ["pods", "pilot-commit"] {
        let seen = seen(&run, name);
        let head = &seen[0];
        assert_eq!((&head["kind"], &head["policy"]["name"]), (&"head".into(), &name.into()));
        assert_eq!(seen.len(), calls.len() + 1, "a line a call");
        let (mut differ, mut asked, mut live) = (0, 0, 0);
        for (call, theirs) in calls.iter().zip(&seen[1..]) {
            assert_eq!((&call["step"], &call["round"]), (&theirs["step"], &theirs["round"]));
            assert_eq!(call["asked"], theirs["live"]);
            assert_eq!(theirs["same"] == true, theirs.get("plan").is_none());
            differ += u64::from(theirs["same"] == false);
            asked += theirs["asked"].as_u64().unwrap();
            live += theirs["live"].as_u64().unwrap();
        }
        let first = seen[1..].iter().find(|call| call["same"] == false).unwrap();
        assert_eq!(
            summary(&said, name),
            format!(
                "{} calls, {differ} plans differ, from step {}, round {} on; it asks for {asked} rollouts \
                 where {live} were asked for; all in whole/shadows/{name}.jsonl",
                calls.len(),
                first["step"],
                first["round"]
            )
        );
    }
    let settings = &seen(&run, "pods")[0]["settings"];
    assert!(settings.as_array().unwrap().contains(&serde_json::json!(["keep", 5])), "{settings}");
}

#[test]
fn a_shadow_of_the_same_policy_never_differs() {
    let scratch = Scratch::new();
    scratch.write("run.toml", config());
    for policy in ["uniform", "pilot-commit", "knapsack"] {
        let args = ["run.toml", "--policy", policy, "--out", policy, "--shadow", policy];
        let said = ran(&scratch, &args);
        assert!(summary(&said, policy).contains(" calls, no plan differs; all in "), "{said}");
        // It remembers what the live one does.
        let run = scratch.path().join(policy);
        let states = |lines: Vec<Value>| {
            let states = lines.into_iter().filter(|line| line["kind"] == "call");
            states.map(|line| line["state"].clone()).collect::<Vec<_>>()
        };
        let record = lines(&run).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(states(seen(&run, policy)), states(record), "{policy}");
    }
}

#[test]
fn a_shadow_that_fails_is_asked_no_more() {
    let scratch = Scratch::new();
    let caps = "[policy]\nlimits = { fuel = 500_000_000 }\n";
    scratch.write("run.toml", config().replace("[policy]\n", caps));
    let guests = ["traps", "asks_twice", "loops", "gives_up", "trains_on_nothing"];
    let mut args = vec!["run.toml".to_owned(), "--out".to_owned(), "out".to_owned()];
    for guest in guests {
        scratch.write(&format!("{guest}.wasm"), scratch::guest(guest));
        args.extend(["--shadow".to_owned(), format!("./{guest}.wasm")]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let said = ran(&scratch, &args);
    let run = scratch.path().join("out");
    adds_up(&run);
    let told: Vec<&str> = said.lines().filter(|line| line.starts_with("shadow `guest`")).collect();
    insta::assert_snapshot!(told[..4].join("\n"), @"
    shadow `guest`: 1 call, no plan differs; it was stopped: trapped: wasm trap: wasm `unreachable` instruction executed; it said: the words of the guest (step 0, round 0); all in out/shadows/guest.jsonl
    shadow `guest`: 1 call, no plan differs; it was stopped: policy `guest` asked for prompt `5` twice in one plan (step 0, round 0); all in out/shadows/guest-2.jsonl
    shadow `guest`: 1 call, no plan differs; it was stopped: ran out of fuel: more than 500000000 Wasm instructions in one call (step 0, round 0); all in out/shadows/guest-3.jsonl
    shadow `guest`: 1 call, no plan differs; it was stopped: gave up: the words of the guest (step 0, round 0); all in out/shadows/guest-4.jsonl
    ");
    assert!(told[4].contains("plans differ, from step 0, round 0 on; it asks for 0 rollouts"), "{}", told[4]);
    // Each has a file of its own, though all have one name.
    for name in ["guest", "guest-2", "guest-3", "guest-4"] {
        let seen = seen(&run, name);
        assert_eq!(seen.len(), 2, "{name}");
        assert!(seen[1]["failed"].is_string(), "{name}");
    }
    assert!(seen(&run, "guest")[1]["failed"].as_str().unwrap().contains("the words of the guest"));
    assert!(seen(&run, "guest-5").len() > 8);
    // Taken up again they are not asked again.
    stopped(&scratch, "out", "again", 4);
    let again = ran(&scratch, &[&["--resume", "again"], &args[3..]].concat());
    let told_again: Vec<&str> = again.lines().filter(|line| line.starts_with("shadow `guest`")).collect();
    assert_eq!(told_again.join("\n"), told.join("\n").replace("all in out/", "all in again/"));
}

#[test]
fn shadows_of_a_run_that_is_killed_write_what_they_would_have() {
    let scratch = Scratch::new();
    scratch.write("run.toml", config());
    ran(&scratch, &[&["run.toml", "--out", "whole"], &TWO[..]].concat());
    let (whole, run) = (scratch.path().join("whole"), scratch.path().join("out"));
    let bytes = |run: &Path, file: &str| fs::metadata(run.join(file)).map_or(0, |m| m.len());
    let mut kills = 0;
    for n in 1.. {
        let begun = run.join("resolved.toml").exists();
        let first: &[&str] = if begun { &["--resume", "out"] } else { &["run.toml", "--out", "out"] };
        let mut child = scratch.started(&[&["train"], first, &TWO[..]].concat());
        // In the middle of a shadow's file, and of the record.
        let file = if n % 2 == 0 { "record.jsonl" } else { "shadows/pods.jsonl" };
        while bytes(&run, file) * 12 <= bytes(&whole, file) * n && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(200));
        }
        child.kill().unwrap();
        let status = child.wait().unwrap();
        kills += usize::from(status.code().is_none());
        if status.success() {
            break;
        }
        assert!(status.code().is_none(), "{status}");
    }
    assert!(kills >= 4, "{kills}");
    for file in ["record.jsonl", "shadows/pods.jsonl", "shadows/pilot-commit.jsonl"] {
        assert_eq!(fs::read(run.join(file)).unwrap(), fs::read(whole.join(file)).unwrap(), "{file}");
    }
    assert_eq!(fs::read_dir(run.join("shadows")).unwrap().count(), 2);

    // Cut off anywhere in what a stop leaves, its very head and the middle of a letter included.
    let pods = scratch.read("whole/shadows/pods.jsonl");
    for left in [0, 1, 100, pods.len() - 1] {
        let run = stopped(&scratch, "whole", "out", 0);
        fs::write(run.join("record.jsonl"), "").unwrap();
        fs::write(run.join("shadows/pods.jsonl"), [&pods.as_bytes()[..left], &[0xe2]].concat()).unwrap();
        ran(&scratch, &[&["--resume", "out"], &TWO[..]].concat());
        assert_eq!(scratch.read("out/shadows/pods.jsonl"), pods, "{left}");
    }
    let run = stopped(&scratch, "whole", "out", 5);
    let text = pods.replacen("\"kind\":\"call\"", "\"kind\":\"cull\"", 1);
    fs::write(run.join("shadows/pods.jsonl"), text).unwrap();
    let said = told(&scratch, &[&["train", "--resume", "out"], &TWO[..]].concat());
    assert!(
        said.contains("error: `out/shadows/pods.jsonl` is not what it was at the checkpoint: "),
        "{said}"
    );
    assert!(said.ends_with("hint: restore what was changed, or remove the file\nexit code 2"), "{said}");
}

#[test]
fn shadows_come_and_go_with_each_start() {
    let scratch = with("uniform");
    // One that came later has seen what came later.
    let run = stopped(&scratch, "whole", "out", 3);
    ran(&scratch, &["--resume", "out", "--shadow", "pods"]);
    let all = seen(&run, "pods");
    assert_eq!((&all[1]["step"], &all[all.len() - 1]["step"]), (&3.into(), &7.into()));
    // Other settings are another file; the first goes on as far as the run does.
    stopped(&scratch, "out", "again", 6);
    ran(&scratch, &["--resume", "again", "--shadow", "pods,keep=3"]);
    let again = scratch.path().join("again");
    let steps = |name: &str| {
        let all = seen(&again, name);
        (all[1]["step"].as_u64().unwrap(), all[all.len() - 1]["step"].as_u64().unwrap())
    };
    assert_eq!((steps("pods"), steps("pods-2")), ((3, 5), (6, 7)));
    // Under another policy they look on as before.
    let run = stopped(&scratch, "out", "swapped", 5);
    let said = ran(&scratch, &["--resume", "swapped", "--policy", "dapo", "--shadow", "pods"]);
    let (old, new) = (seen(&scratch.path().join("out"), "pods"), seen(&run, "pods"));
    let before = old.iter().position(|call| call["step"] == 5).unwrap();
    assert_eq!(old[..before], new[..before]);
    assert_eq!(new[new.len() - 1]["step"], 7);
    assert!(summary(&said, "pods").starts_with(&format!("{} calls, ", new.len() - 1)), "{said}");
    // A run that starts anew has no shadows of before.
    let run = stopped(&scratch, "out", "anew", 0);
    fs::write(run.join("record.jsonl"), "").unwrap();
    ran(&scratch, &["--resume", "anew"]);
    assert!(!run.join("shadows").exists());
}

#[test]
fn simulated_runs_have_shadows_too() {
    let scratch = Scratch::new();
    let config = "[run]\nseed = 3\nsteps = 12\ngroups = 4\nrollouts = 8\n[budget]\nrollouts = 1200\n\
                  [policy]\nuse = \"uniform\"\n[world]\nprompts = 100\n";
    scratch.write("run.toml", config);
    let alone = told(&scratch, &["simulate", "run.toml", "--out", "alone"]);
    let args = ["simulate", "run.toml", "--out", "out", "--shadow", "pods", "--shadow", "uniform,rollouts=4"];
    insta::assert_snapshot!(told(&scratch, &args), @"
    all steps are done
      rollouts sampled                          384  100.0 %
        trained on                              384  100.0 %
          with an advantage                     184   47.9 %
        discarded                                 0    0.0 %
          of zero-variance groups                 0    0.0 %
        stale                                     0    0.0 %
        left in the buffer, or unscorable         0    0.0 %
      generated tokens                        86212
      model updates                              12
      held-out accuracy                      0.4109
        at the start                         0.3856
    policy uniform 0.1.0, sha256 HASH, seed 3
    step    10/12  rollouts      320/1200  accuracy 0.4052  effective  50.0 %
    shadow `pods`: 24 calls, 12 plans differ, from step 0, round 1 on; it asks for 384 rollouts where 384 were asked for; all in out/shadows/pods.jsonl
    shadow `uniform`: 24 calls, 12 plans differ, from step 0, round 0 on; it asks for 192 rollouts where 384 were asked for; all in out/shadows/uniform.jsonl
    record in out/record.jsonl
    exit code 0
    ");
    assert!(alone.ends_with("exit code 0"), "{alone}");
    assert_eq!(scratch.read("out/record.jsonl"), scratch.read("alone/record.jsonl"));
    // Without a record they are told of all the same.
    let args = ["simulate", "run.toml", "--no-record", "--shadow", "pods"];
    let said = told(&scratch, &args);
    assert!(summary(&said, "pods").contains("plans differ") && !said.contains("; all in "), "{said}");
}

#[test]
fn a_shadow_that_can_not_look_on_is_told_before_the_run_starts() {
    let scratch = Scratch::new();
    scratch.write("run.toml", config());
    let shadow = |args: &[&str]| {
        let said = told(&scratch, &[&["train", "run.toml"], args].concat());
        assert!(!scratch.path().join("runs").exists(), "{said}");
        said
    };
    insta::assert_snapshot!(shadow(&["--shadow", "pod"]), @"
    error: no policy is called `pod`

    hint: did you mean `pods`?
    hint: give your own component by its path, as in `./mine.wasm`
    exit code 2
    ");
    insta::assert_snapshot!(shadow(&["--shadow", "pods,kepp=3"]), @"
    error: policy `pods` has no setting `kepp`

    hint: did you mean `keep`?
    exit code 2
    ");
    insta::assert_snapshot!(shadow(&["--shadow", "pods,keep=3,keep"]), @"
    error: `--shadow pods,keep` is not of the form NAME=VALUE
    exit code 2
    ");
    insta::assert_snapshot!(shadow(&["--shadow", "pods,keep=3,keep=4"]), @"
    error: `--shadow pods,keep=…` is given twice
    exit code 2
    ");
    insta::assert_snapshot!(shadow(&["--shadow", "pods,keep=0"]), @"
    error: shadow `pods` refused its setting `keep`: must be at least 2: one rollout alone has no deviation to be measured by
    exit code 2
    ");
    insta::assert_snapshot!(shadow(&["--shadow", "pods", "--shadow", "dapo", "--shadow", "pods"]), @"
    error: `--shadow pods` has the same policy and settings as another shadow

    hint: name each shadow once
    exit code 2
    ");
    scratch.write("other.wasm", scratch::component("other_world"));
    insta::assert_snapshot!(shadow(&["--shadow", "./other.wasm"]), @"
    error: could not load policy `./other.wasm`: the component exports `answer`, but no `rollout:allocation/allocator`

    hint: export the contract's interface: `allot new NAME` makes a policy that does
    exit code 2
    ");
}
