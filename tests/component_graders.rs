//! Graders that are components, as a user meets them: started, built, checked, and judging a run; pinned by their content;
//! and hostile ones.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "component_graders/hostile.rs"]
mod hostile;
mod scratch;
mod skip;

use std::path::Path;
use std::sync::OnceLock;

use scratch::Scratch;
use serde_json::Value;
use skip::skip;

/// A short run with these rewards.
fn config(reward: &str) -> String {
    format!("{reward}\n{}", include_str!("cases/judged.toml"))
}

/// The rewards of all rollouts in a record.
fn recorded(scratch: &Scratch, run: &str) -> Vec<Value> {
    let record = scratch.read(&format!("{run}/record.jsonl"));
    let lines = record.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rollouts = lines.filter(|line| line["kind"] == "rollouts");
    let groups = rollouts.flat_map(|line| line["sampled"].as_array().unwrap().clone());
    groups.flat_map(|group| group["rewards"].as_array().unwrap().clone()).collect()
}

/// A record without its first line, which says who judged.
fn rest(scratch: &Scratch, run: &str) -> String {
    let record = scratch.read(&format!("{run}/record.jsonl"));
    record.split_once('\n').unwrap().1.to_owned()
}

/// A folder with a project of a grader in Rust and its component, made once; `None` where Rust cannot build for Wasm.
fn project() -> Option<&'static Scratch> {
    static MADE: OnceLock<Result<Scratch, String>> = OnceLock::new();
    let project = MADE.get_or_init(|| {
        let scratch = Scratch::new();
        let new = scratch.allot(&["new", "plain", "--kind", "grader"]);
        assert_eq!(new, "./plain is ready; its README has the commands\nexit code 0");
        // Its own tests, as its README says.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-grader");
        let cargo = |args: &[&str]| {
            let mut command = std::process::Command::new(env!("CARGO"));
            let project = scratch.path().join("plain");
            command.args(args).current_dir(project).env("CARGO_TARGET_DIR", &target).output().unwrap()
        };
        let tests = cargo(&["test"]);
        let said =
            [tests.stdout, tests.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        assert!(tests.status.success() && said.contains("2 passed"), "{said}");
        let strict = cargo(&["rustc", "--lib", "--", "-Dwarnings"]);
        assert!(strict.status.success(), "{}", String::from_utf8_lossy(&strict.stderr));
        let built = scratch.allot(&["build", "plain"]);
        if built.contains("has no standard library for wasm32") {
            return Err(built);
        }
        assert!(built.starts_with("plain.wasm  plain 0.1.0") && built.ends_with("exit code 0"), "{built}");
        Ok(scratch)
    });
    // Each test that asks is skipped, not only the one that tried to build.
    let skipped = |built| skip("language-rust", &format!("nothing was built: {built}"));
    project.as_ref().map_err(skipped).ok()
}

/// A folder with that component alone.
fn started() -> Option<Scratch> {
    let (made, scratch) = (project()?, Scratch::new());
    std::fs::copy(made.path().join("plain.wasm"), scratch.path().join("plain.wasm")).unwrap();
    Some(scratch)
}

const REWARD: &str = "[reward]\ngrader = \"component\"\n[reward.component]\nuse = \"./plain.wasm\"\n";

#[test]
fn a_grader_is_started_built_checked_and_judges_a_run() {
    let Some(scratch) = started() else { return };
    let checked = scratch.allot(&["check", "./plain.wasm"]);
    assert!(
        checked.starts_with("plain 0.1.0  right is what is a gold answer\n    caseless = false"),
        "{checked}"
    );
    assert!(checked.contains("pass  links: contract rollout:reward@0.2.0"), "{checked}");
    assert!(checked.ends_with("exit code 0") && !checked.contains("FAIL"), "{checked}");
    assert!(!checked.contains("warn"), "{checked}");
    let card = scratch.allot(&["check", "./plain.wasm", "--json", "--set", "caseless=true"]);
    let card: Value = serde_json::from_str(card.trim_end_matches("\nexit code 0")).unwrap();
    assert_eq!((&card["kind"], &card["pass"]), (&"grader".into(), &true.into()));
    let packed = scratch.allot(&["pack", "./plain.wasm"]);
    assert!(packed.contains("[reward.component]\nuse = \"./plain.wasm\"\nsha256 = "), "{packed}");

    // It judges as `exact` does, and so the runs are the same.
    scratch.write("component.toml", config(REWARD));
    scratch.write("exact.toml", config("[reward]\ngrader = \"exact\"\n"));
    for run in ["component", "exact"] {
        let said = scratch.allot(&["train", &format!("{run}.toml"), "--out", run]);
        assert!(said.ends_with("exit code 0"), "{said}");
    }
    let rewards = recorded(&scratch, "component");
    assert!(rewards.contains(&1.0.into()) && rewards.contains(&0.0.into()), "{rewards:?}");
    assert_eq!(rewards, recorded(&scratch, "exact"));
    assert_eq!(rest(&scratch, "component").lines().count(), rest(&scratch, "exact").lines().count());
    assert!(scratch.allot(&["replay", "component"]).ends_with("exit code 0"));
    let graded = scratch.allot(&["grade", "component", "exact", "--show", "0"]);
    assert!(graded.contains("as before") && !graded.contains("other reward"), "{graded}");

    // What is recorded of it: its contract, content and settings.
    let record = scratch.read("component/record.jsonl");
    let head = record.lines().next().unwrap();
    let sha256 = allot_component::sha256(std::fs::read(scratch.path().join("plain.wasm")).unwrap());
    assert!(head.contains("rollout:reward@0.2.0") && head.contains(&sha256), "{head}");
    assert!(head.contains("caseless"), "{head}");
}

#[test]
fn a_run_goes_on_with_the_same_component_and_no_other() {
    let Some(scratch) = started() else { return };
    let sha256 = allot_component::sha256(std::fs::read(scratch.path().join("plain.wasm")).unwrap());
    let long = |more: &str| {
        let text = config(&format!("{REWARD}{more}\n[checkpoint]\nevery = 1\n"));
        text.replace("steps = 2\n", "steps = 300\n").replace("rollouts = 100\n", "rollouts = 10000\n")
    };
    scratch.write("run.toml", long(""));
    scratch.write("pinned.toml", long(&format!("sha256 = \"{sha256}\"")));
    for run in ["run", "pinned"] {
        // Killed once there is a checkpoint.
        let mut child = scratch.started(&["train", &format!("{run}.toml"), "--out", run]);
        let folder = scratch.path().join(run).join("checkpoints");
        let there = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("step-"))
        };
        while !std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.any(there)) {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Another one in its place, which judges alike.
    let kept = std::fs::read(scratch.path().join("plain.wasm")).unwrap();
    let mut other = kept.clone();
    let at = other.windows(14).position(|bytes| bytes == b"right is what ").unwrap();
    other[at..at + 5].copy_from_slice(b"Right");
    scratch.write("plain.wasm", other);
    let other = scratch.allot(&["train", "--resume", "run"]);
    assert!(other.contains("is from a run with another grader: "), "{other}");
    assert!(other.contains("plain.wasm` has changed") && other.ends_with("exit code 2"), "{other}");
    let other = scratch.allot(&["train", "--resume", "pinned"]);
    assert!(other.contains("the component's sha256 is HASH; the config expects HASH"), "{other}");
    scratch.write("plain.wasm", kept);
    for run in ["run", "pinned"] {
        let said = scratch.allot(&["train", "--resume", run]);
        assert!(said.ends_with("exit code 0"), "{said}");
    }
}

/// What is said of a run that does not start.
fn told(scratch: &Scratch) -> String {
    let said = scratch.allot(&["train", "run.toml", "--out", "none"]);
    assert!(!scratch.path().join("none").exists(), "{said}");
    said.replace(scratch.path().to_str().unwrap(), "FOLDER")
}

#[test]
fn a_component_that_is_no_grader_is_told() {
    let scratch = Scratch::new();
    let policy = allot_sandbox::shipped::component("uniform").unwrap();
    scratch.write("plain.wasm", policy);
    scratch.write("run.toml", config(REWARD));
    insta::assert_snapshot!(told(&scratch), @"
    error: could not load grader `FOLDER/plain.wasm`: the component exports `rollout:allocation/allocator@0.3.0`, but no `rollout:reward/grader`

    hint: name it with `use` in [policy]: it is a policy
    exit code 2
    ");
    scratch.write("run.toml", config("[reward]\ngrader = \"component\"\n"));
    insta::assert_snapshot!(told(&scratch), @"
    error: `run.toml` has grader `component` but no section [reward.component]

    hint: write, under [reward.component], use = \"./grader.wasm\"; `allot new NAME --kind grader` starts one
    exit code 2
    ");
    scratch.write("run.toml", config(&REWARD.replace("./plain.wasm", "./none.wasm")));
    insta::assert_snapshot!(told(&scratch), @"
    error: could not read `FOLDER/none.wasm`: there is no such file or folder

    hint: set `use` in [reward.component] to the path of a component, or its address in a registry
    exit code 2
    ");
}

#[test]
fn settings_and_parts_are_checked_before_the_run() {
    let Some(scratch) = started() else { return };
    let said = |more: &str| {
        scratch.write("run.toml", config(&format!("{REWARD}{more}")));
        told(&scratch)
    };
    insta::assert_snapshot!(said("settings = { caselss = true }\n"), @"
    error: grader `plain` has no setting `caselss`

    hint: did you mean `caseless`?
    exit code 2
    ");
    insta::assert_snapshot!(said("settings = { caseless = 1 }\n"), @"
    error: grader `plain`: setting `caseless` is 1; it must be true or false
    exit code 2
    ");
    insta::assert_snapshot!(said("sha256 = \"00ff\"\n"), @"
    error: could not load grader `FOLDER/plain.wasm`: the component's sha256 is HASH; the config expects 00ff

    hint: load the file that the config means, or change `sha256` in it
    exit code 2
    ");
    insta::assert_snapshot!(said("fuel = 0\n"), @"
    error: `run.toml`: `reward.component.fuel` is 0; expected 1 to 2^50
    exit code 2
    ");
    insta::assert_snapshot!(said("[reward.weights]\nformat = 1.0\n"), @"
    error: grader `plain` has no part `format`, which `reward.weights` has

    hint: its rewards have no parts
    exit code 2
    ");
}
