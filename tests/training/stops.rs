//! Runs that somebody asks to stop: at once, within a round, with nothing lost that was paid for.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::scratch::{self, Scratch};
use super::{CONFIG, assert_same_but_parts, bytes, error, newest, started, told, trained, until, with};

/// Long rounds: most of the time is spent within one.
fn config() -> String {
    let long = CONFIG.replace("rollouts = 4000", "rollouts = 40000").replace("steps = 6", "steps = 4");
    let config = long.replace("\"uniform\"", "\"pilot-commit\"\nsettings = { pilot = 400, commit = 800 }");
    assert!(config.contains("pilot = 400"));
    config
}

/// Rollouts that the newest checkpoint keeps of a round, and where in its step the run is.
fn kept(run: &Path) -> (usize, String) {
    let text = fs::read_to_string(newest(run).join("state.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&text).unwrap();
    let at = &state["run"]["at"];
    let at =
        at.as_str().map_or_else(|| at.as_object().unwrap().keys().next().unwrap().clone(), str::to_owned);
    (state["paid"].as_array().unwrap().len(), at)
}

fn asked(child: &std::process::Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn a_run_that_is_stopped_within_its_rounds_again_and_again_comes_to_the_same_end() {
    stopped_again_and_again(&with(&config()));
}

/// While it learns from the step before.
#[test]
fn so_does_one_that_samples_while_it_learns() {
    for lag in [1, 2] {
        stopped_again_and_again(&with(&config().replace("seed = 1", &format!("seed = 1\nlag = {lag}"))));
    }
}

/// Many portions a round: a stop rule that never holds.
#[test]
fn so_does_one_whose_rounds_are_in_portions() {
    let needs = "(i32.store8 offset=48 (local.get $d) (i32.const 8))";
    let numbers = [("COUNT", 1200), ("CORRECT", 2000), ("PORTION", 37)];
    let guest = scratch::guest_0_2_but("first_correct", needs, &numbers);
    let policy = "\"pilot-commit\"\nsettings = { pilot = 400, commit = 800 }";
    let config = config();
    assert!(config.contains(policy));
    let scratch = with(&config.replace(policy, "\"./guest.wasm\""));
    scratch.write("guest.wasm", guest);
    stopped_again_and_again(&scratch);
}

/// Stops a run until it is over, and again from its start if no stop came amid finished rollouts: when one comes is up to
/// the machine.
fn stopped_again_and_again(scratch: &Scratch) {
    let (whole, run) = (scratch.path().join("whole"), scratch.path().join("out"));
    let table = trained(scratch, &["run.toml", "--out", "whole"]);
    let (mut within, mut paid) = (0, 0);
    for _ in 0..6 {
        let _ = fs::remove_dir_all(&run);
        let (stops, rollouts) = stopped_to_the_end(scratch, &table);
        assert_same_but_parts(&whole, &run, 4);
        (within, paid) = (within + stops, paid.max(rollouts));
        if within >= 2 && paid > 10 {
            return;
        }
    }
    panic!("{within} stops within a round, {paid} rollouts kept at most");
}

/// Returns how many stops came within a round, and how many rollouts one of them kept at most.
fn stopped_to_the_end(scratch: &Scratch, table: &str) -> (usize, usize) {
    let run = scratch.path().join("out");
    let (mut within, mut paid, mut before) = (0, 0, 0);
    for n in 0..200 {
        let mut child = started(scratch);
        // Later and later after the call that was made last, so that the run gets on.
        until(&mut child, || bytes(&run) > before);
        std::thread::sleep(Duration::from_micros(600 * (n % 16)));
        asked(&child, "-TERM");
        let done = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        before = bytes(&run);
        if done.status.success() {
            assert_eq!(String::from_utf8_lossy(&done.stdout), table);
            return (within, paid);
        }
        assert_eq!(done.status.code(), Some(1), "{said}");
        assert!(said.lines().last().unwrap().starts_with("paused "), "{said}");
        if !run.join("checkpoints").exists() {
            continue;
        }
        let (rollouts, at) = kept(&run);
        within += usize::from(at == "Sampling");
        paid = paid.max(rollouts);
        assert!(rollouts == 0 || at == "Sampling", "{rollouts} rollouts are kept, and the run is {at}");
    }
    panic!("the run does not come to its end");
}

#[test]
fn a_policy_takes_over_once_the_step_is_ended_that_a_run_stopped_in() {
    let scratch = with(&config());
    let run = scratch.path().join("out");
    let mut stopped = false;
    for _ in 0..20 {
        let mut child = started(&scratch);
        let before = bytes(&run);
        until(&mut child, || bytes(&run) > before + 200);
        asked(&child, "-INT");
        assert_eq!(child.wait_with_output().unwrap().status.code(), Some(1));
        stopped = run.join("checkpoints").exists() && kept(&run).1 == "Sampling";
        if stopped {
            break;
        }
    }
    assert!(stopped, "no stop came within a round");
    let said = told(&scratch, &["--resume", "out", "--policy", "uniform"]);
    let step = error(&said).split_once("within step ").unwrap().1.split(',').next().unwrap().to_owned();
    insta::assert_snapshot!(error(&said).replace(&format!("within step {step}"), "within step N"), @"
    error: the run stopped within step N, but a policy takes over between two steps

    hint: finish that step first: --resume RUN --finish-step
    exit code 2
    ");
    let said = told(&scratch, &["--resume", "out", "--finish-step"]);
    assert!(said.contains("goes on within step ") && said.contains("paused after step "), "{said}");
    assert_eq!(kept(&run), (0, "Between".to_owned()));
    let said = told(&scratch, &["--resume", "out", "--policy", "uniform"]);
    assert!(
        said.contains("policy `uniform` takes over from step ") && said.contains("exit code 0"),
        "{said}"
    );
}
