//! A run that learns nothing says so, and settings by which a shipped policy can never learn are refused.

#![allow(clippy::unwrap_used, missing_docs)]

mod scratch;

use allot::callbacks::{Callbacks, Decide, Go};
use allot::shipped;
use allot::simulation::Simulation;
use allot::stop::Stop;
use allot::world::World;
use allot_allocation::Value;
use allot_base::Error;
use allot_config::simulate::SimulateConfig;
use allot_engine::{Coin, Flip};
use allot_judges::Reward;
use allot_loop::Scores;
use allot_record::StepEnd;
use allot_sandbox::{Caps, Policy, Sandbox};
use scratch::Scratch;

// ---- every shipped policy, at the smallest settings that it accepts

/// A world in which most prompts are solved sometimes, and come again soon enough for what is stored of them.
const EASY: &str = r#"
[run]
seed = 7
steps = 600
groups = 4
rollouts = 8
max_age = 1000

[budget]
rollouts = 20_000

[policy]
use = "uniform"

[requests]
least_tokens = 16

[world]
prompts = 24
held_out = 1
difficulty = 0.0
spread = 0.5
"#;

/// Follows a run until an update has something to learn from.
#[derive(Default)]
struct Learned(bool);

impl<R: Reward<Flip>, P: Decide> Callbacks<Coin, R, P> for Learned {
    async fn evaluate(&mut self, _: &mut World<Coin, R, P>) -> Result<Scores, Stop> {
        Ok(Scores::default())
    }

    fn after(&mut self, _: &mut World<Coin, R, P>, end: &StepEnd) -> Result<Go, Stop> {
        self.0 |= end.updated && end.effective > 0;
        Ok(if self.0 { Go::Pause } else { Go::On })
    }
}

/// Runs a policy until it has learned. An error is that of a run that was refused.
fn learns(policy: &Policy, rollouts: u32, settings: &[(String, Value)]) -> Result<bool, Error> {
    let mut config = SimulateConfig::parse(EASY, "run.toml").unwrap();
    config.run.rollouts = rollouts;
    let typed: Vec<String> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    config.policy.settings.extend(allot_config::typed(&typed, "").unwrap());
    if policy.description().plays() {
        config.world.turns = 3;
    }
    let (mut simulation, _) = Simulation::new(&config, policy, |_| {})?;
    let mut learned = Learned::default();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let done = runtime.block_on(allot::run::run(&mut simulation.world, &mut learned));
    done.unwrap_or_else(|stop| panic!("{}: {settings:?}: {stop}", policy.description().name));
    Ok(learned.0)
}

/// Small and extreme values for a setting.
fn values(default: &Value) -> Vec<Value> {
    match default {
        Value::Integer(_) => (0..5).map(Value::Integer).collect(),
        Value::Number(_) => [0.0, 0.5, 1.0].map(Value::Number).to_vec(),
        Value::Flag(_) => [false, true].map(Value::Flag).to_vec(),
        Value::Text(_) => Vec::new(),
    }
}

/// Insists that a run learns, or is refused by the name of a setting, its own or `run.rollouts`. Gives whether it learns.
fn learns_or_is_refused(policy: &Policy, rollouts: u32, settings: &[(String, Value)]) -> bool {
    let description = policy.description();
    match learns(policy, rollouts, settings) {
        Ok(learned) => {
            let name = &description.name;
            assert!(
                learned,
                "{name} with {rollouts} rollouts and {settings:?} is accepted and learns nothing"
            );
            true
        }
        Err(error) => {
            let mut named = description.settings.iter().map(|s| format!("`{}`", s.name));
            assert!(
                error.what.contains("`run.rollouts`") || named.any(|n| error.what.contains(&n)),
                "{}",
                error.what
            );
            false
        }
    }
}

/// All shipped policies, loaded. The coin-flip world has no signals.
fn policies() -> Vec<Policy> {
    let sandbox = Sandbox::new(Caps::default(), None).unwrap();
    let all = shipped::names()
        .into_iter()
        .map(|name| sandbox.load(shipped::component(name).unwrap(), None).unwrap());
    let (signals, plain): (Vec<Policy>, _) = all.partition(|policy| !policy.description().signals.is_empty());
    let names: Vec<&str> = signals.iter().map(|policy| policy.description().name.as_str()).collect();
    assert_eq!(names, ["rl-zvp"]);
    plain
}

#[test]
fn each_setting_of_a_shipped_policy_that_is_accepted_can_learn() {
    for policy in policies() {
        for rollouts in [1, 2, 8] {
            learns_or_is_refused(&policy, rollouts, &[]);
            for setting in &policy.description().settings {
                for value in values(&setting.default) {
                    learns_or_is_refused(&policy, rollouts, &[(setting.name.clone(), value)]);
                }
            }
        }
    }
}

#[test]
fn the_smallest_settings_that_a_shipped_policy_accepts_can_learn() {
    for policy in policies() {
        let counts: Vec<String> = policy
            .description()
            .settings
            .iter()
            .filter(|setting| matches!(setting.default, Value::Integer(_)))
            .map(|setting| setting.name.clone())
            .collect();
        for backwards in [false, true] {
            let order: Vec<&String> =
                if backwards { counts.iter().rev().collect() } else { counts.iter().collect() };
            let mut settings = Vec::new();
            for name in order {
                let smallest = (1..10).map(Value::Integer).find(|value| {
                    let with = [settings.as_slice(), &[(name.clone(), value.clone())]].concat();
                    learns_or_is_refused(&policy, 2, &with)
                });
                settings.extend(smallest.map(|value| (name.clone(), value)));
            }
        }
    }
}

#[test]
fn settings_that_can_never_learn_are_refused_with_the_reason() {
    let scratch = Scratch::new();
    scratch.write("run.toml", EASY);
    let alone = "an advantage is measured against the prompt's other rollouts, so nothing can be learned";
    let own = format!("it is 1, and {alone}; set 2 or more");
    let of_run = format!("gave up: `run.rollouts` is 1, and {alone}; set `run.rollouts` to 2 or more");
    for (policy, set, reason) in [
        ("uniform", ["--set", "rollouts=1"], format!("refused its setting `rollouts`: {own}")),
        ("dapo", ["--set", "rollouts=1"], format!("refused its setting `rollouts`: {own}")),
        ("greso", ["--set", "rollouts=1"], format!("refused its setting `rollouts`: {own}")),
        ("pods", ["--set", "generate=1"], format!("refused its setting `generate`: {own}")),
        (
            "uniform",
            ["-o", "run.rollouts=1"],
            format!(
                "refused its setting `rollouts`: it leaves the number to `run.rollouts`, which is 1, and {alone}; set \
                 either to 2 or more"
            ),
        ),
        ("mopps", ["-o", "run.rollouts=1"], of_run.clone()),
        ("knapsack", ["-o", "run.rollouts=1"], of_run.clone()),
        (
            "pilot-commit",
            ["--set", "pilot=1"],
            "refused its setting `pilot`: 1 pilot can't be solved at least 0.125 and failed at least 0.25 of the time, so \
             no prompt would ever be committed to; set 2 or more"
                .to_owned(),
        ),
    ] {
        let said = scratch.allot(&[&["simulate", "run.toml", "--policy", policy, "--out", "run"], &set[..]].concat());
        assert!(said.starts_with(&format!("error: policy `{policy}` {reason}\n")), "{said}");
        assert!(said.ends_with("exit code 2") && !scratch.path().join("run").exists(), "{said}");
    }
}

#[test]
fn an_override_that_another_policy_would_drop_is_refused() {
    let scratch = Scratch::new();
    scratch.write("run.toml", HOPELESS);
    for (command, config, key) in [
        ("simulate", "run.toml", "policy.settings.rollouts=4"),
        ("train", "quickstart", "policy.settings={ pilot = 4 }"),
        ("simulate", "run.toml", "policy.use=\"dapo\""),
    ] {
        let said = scratch.allot(&[command, config, "--policy", "pods", "-o", key, "--out", "run"]);
        let what = format!("error: `-o {key}` is for the config's policy, which `pods` replaces\n");
        assert!(said.starts_with(&what), "{said}");
        assert!(said.contains("\nhint: set what `pods` is to have with --set NAME=VALUE\n"), "{said}");
        assert!(said.ends_with("exit code 2") && !scratch.path().join("run").exists(), "{said}");
    }
    // Limits belong to the run, and a policy that stays keeps what is set.
    for more in [
        ["policy.limits.fuel=2_000_000_000", "--policy=pods"],
        ["policy.settings.rollouts=4", "--policy=uniform"],
    ] {
        let said = scratch.allot(&["simulate", "run.toml", "-o", more[0], more[1], "--out", "run"]);
        assert!(said.ends_with("exit code 0"), "{said}");
        std::fs::remove_dir_all(scratch.path().join("run")).unwrap();
    }
}

// ---- the warning and the sentence

/// A world in which nothing is ever solved.
const HOPELESS: &str = r#"
[run]
seed = 7
steps = 12
groups = 4
rollouts = 8

[budget]
rollouts = 4000
rounds = 2

[policy]
use = "uniform"

[world]
prompts = 100
held_out = 10
difficulty = 60.0
"#;

#[test]
fn a_simulated_run_that_learns_nothing_says_so_everywhere() {
    let scratch = Scratch::new();
    scratch.write("run.toml", HOPELESS);
    let because =
        |groups: u32| format!("because every group had zero variance: {groups} with every rollout wrong");
    for (policy, early, end) in [
        ("uniform", 40, format!("nothing was learned in 12 updates, {}", because(48))),
        ("dapo", 80, format!("no update was made, {}", because(96))),
    ] {
        let out = format!("runs/{policy}");
        let simulate = ["simulate", "run.toml", "--policy", policy];
        let said = scratch.allot(&[&simulate[..], &["--out", &out]].concat());
        let what = end.split(", because").next().unwrap().replace("12 updates", "10 updates");
        let warning = format!("warning: after 10 steps, {what}, {}", because(early));
        assert_eq!(said.lines().filter(|line| *line == warning).count(), 1, "{said}");
        assert_eq!(said.matches("warning: ").count(), 1, "{said}");
        assert!(said.contains(&format!("\n{end}\n")), "{said}");
        let json = scratch.command(&[&simulate[..], &["--json", "--no-record"]].concat()).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(json["nothing_learned"], end.as_str());
        let watched = scratch.allot(&["watch", "--once", &out]);
        assert!(watched.contains(&end), "{watched}");
        let report = scratch.allot(&["report", &out, "--out", "report"]);
        assert!(report.contains(&format!("warning: `{policy}` learned nothing: {end}\n")), "{report}");
        assert!(scratch.read("report/index.html").contains("learned nothing"));
    }
}

#[test]
fn a_run_that_goes_on_is_warned_about_while_it_is_watched() {
    let scratch = Scratch::new();
    scratch.write("run.toml", HOPELESS);
    scratch.allot(&["simulate", "run.toml", "--out", "run"]);
    let record = scratch.read("run/record.jsonl");
    for (steps, is_told) in [(9, false), (10, true)] {
        let end = format!("{{\"kind\":\"step\",\"step\":{steps},");
        let so_far = &record[..record.find(&end).unwrap()];
        scratch.write("run/record.jsonl", &so_far[..=so_far.rfind('\n').unwrap()]);
        let watched = scratch.allot(&["watch", "--once", "run"]);
        let words = format!("nothing was learned in {steps} updates, because every group had zero variance");
        assert_eq!(watched.contains(&words), is_told, "{watched}");
    }
}

#[test]
fn a_run_that_learns_says_nothing_of_it() {
    let scratch = Scratch::new();
    scratch.write("run.toml", EASY);
    let said = scratch.allot(&["simulate", "run.toml", "--out", "run"]);
    let said = said + &scratch.allot(&["watch", "--once", "run"]) + &scratch.allot(&["report", "run"]);
    assert!(!said.contains("learned nothing") && !said.contains("warning: after"), "{said}");
    let json = scratch.command(&["simulate", "run.toml", "--json", "--no-record"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["nothing_learned"], serde_json::Value::Null);
}

/// A training run whose answers are always the same: no group has variance.
fn greedy() -> String {
    include_str!("cases/training/short.toml")
        .replace("steps = 6", "steps = 12")
        .replace("max_tokens = 8", "max_tokens = 8\ntemperature = 0.0")
}

#[test]
fn a_training_run_says_the_same_at_its_end_after_it_was_resumed() {
    let scratch = Scratch::new();
    scratch.write("run.toml", greedy());
    let ends = |said: &str| -> String {
        said.lines()
            .find(|line| line.starts_with("nothing was learned in 12 updates"))
            .unwrap_or_default()
            .to_owned()
    };
    let whole = scratch.allot(&["train", "run.toml", "--out", "whole"]);
    assert_eq!(
        whole.matches("warning: after 10 steps, nothing was learned in 10 updates").count(),
        1,
        "{whole}"
    );
    let end = ends(&whole);
    assert!(end.contains("because every group had zero variance: "), "{whole}");

    let (mut said, share) = (String::new(), |part: f64| format!("--pause-at-share={part}"));
    said += &scratch.allot(&["train", "run.toml", "--out", "parts", &share(0.4)]);
    assert!(ends(&said).is_empty() && !said.contains("warning: "), "{said}");
    said += &scratch.allot(&["train", "--resume", "parts", &share(0.9)]);
    said += &scratch.allot(&["train", "--resume", "parts"]);
    assert_eq!(
        said.matches("warning: after 10 steps, nothing was learned in 10 updates").count(),
        1,
        "{said}"
    );
    assert_eq!(ends(&said), end);
    assert_eq!(scratch.read("parts/record.jsonl"), scratch.read("whole/record.jsonl"));
    for command in [vec!["watch", "--once", "parts"], vec!["report", "parts"]] {
        let said = scratch.allot(&command);
        assert!(said.contains(&end), "{said}");
    }
}
