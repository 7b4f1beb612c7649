//! What `allot new` starts, in each language: it passes its own tests, it builds, it passes its check, and
//! all of them are one policy.

use std::path::Path;
use std::process::Command;

use allot_authoring::language::Language;

use crate::scratch::Scratch;
use crate::tools::{self, runs};

pub const CONFIG: &str = r#"
[run]
seed = 7
steps = 20
groups = 4
rollouts = 8
[budget]
rollouts = 3000
[policy]
use = "./fresh.wasm"
[world]
prompts = 100
held_out = 50
"#;

/// A scratch folder with a fresh project and its component, if the language's tools are here.
pub fn fresh(language: Language) -> Option<Scratch> {
    if tools::missing(language) {
        return None;
    }
    let scratch = Scratch::new();
    let lang = crate::name(language);
    let said = scratch.allot(&["new", "fresh", "--lang", lang]);
    assert_eq!(said, "./fresh is ready; its README has the commands\nexit code 0");
    let component = tools::component(&format!("template-{lang}"), &scratch.path().join("fresh"), language);
    scratch.write("fresh.wasm", component);
    scratch.write("run.toml", CONFIG);
    Some(scratch)
}

/// The record of a run under a fresh project, but for its head.
pub fn record(scratch: &Scratch) -> String {
    let said = scratch.allot(&["simulate", "run.toml", "--out", "out"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let record = scratch.read("out/record.jsonl");
    let (head, rest) = record.split_once('\n').unwrap();
    assert!(head.starts_with(r#"{"kind":"head""#), "{head}");
    rest.to_owned()
}

/// A project's own tests, by the command of its README.
fn unit_tests(language: Language, project: &Path) -> String {
    let command = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(project);
        command
    };
    match language {
        Language::Rust => unreachable!("tests/screens.rs has this one"),
        Language::Python => runs(&mut command(&["python3", "-B", "-W", "error", "-m", "unittest"])),
        Language::Js => runs(&mut command(&["npm", "test"])),
        Language::C => runs(command(&["make", "test"]).env("CFLAGS", "-Werror")),
        Language::Go => runs(&mut command(&["go", "test", "."])),
    }
}

fn works_as_it_comes(language: Language) {
    let Some(scratch) = fresh(language) else { return };
    unit_tests(language, &scratch.path().join("fresh"));
    let checked = scratch.allot(&["check", "./fresh.wasm", "--within", "3600"]);
    assert!(checked.ends_with("exit code 0") && !checked.contains("FAIL"), "{checked}");
    let refused = scratch.allot(&["simulate", "run.toml", "--set", "pilot=1"]);
    assert!(refused.starts_with("error: policy `fresh` refused its setting `pilot`: "), "{refused}");
}

/// A grader: its own tests, its check, and a run that it judges as `exact` does.
fn a_grader_works_as_it_comes(language: Language) {
    if tools::missing(language) {
        return;
    }
    let scratch = Scratch::new();
    let lang = crate::name(language);
    let said = scratch.allot(&["new", "fresh", "--kind", "grader", "--lang", lang]);
    assert_eq!(said, "./fresh is ready; its README has the commands\nexit code 0");
    unit_tests(language, &scratch.path().join("fresh"));
    let component =
        tools::component(&format!("template-grader-{lang}"), &scratch.path().join("fresh"), language);
    scratch.write("fresh.wasm", component);
    let checked = scratch.allot(&["check", "./fresh.wasm", "--within", "3600"]);
    assert!(checked.contains("pass  links: contract rollout:reward@0.2.0"), "{checked}");
    assert!(checked.ends_with("exit code 0") && !checked.contains("FAIL"), "{checked}");
    assert!(!checked.contains("warn"), "{checked}");

    let run = include_str!("../cases/judged.toml");
    let component = "[reward]\ngrader = \"component\"\n[reward.component]\nuse = \"./fresh.wasm\"\n";
    for (name, reward) in [("exact", "[reward]\ngrader = \"exact\"\n"), ("component", component)] {
        scratch.write(&format!("{name}.toml"), format!("{reward}{run}"));
        let said = scratch.allot(&["train", &format!("{name}.toml"), "--out", name]);
        assert!(said.ends_with("exit code 0"), "{said}");
    }
    let sampled = |run: &str| {
        let record = scratch.read(&format!("{run}/record.jsonl"));
        record
            .lines()
            .filter(|line| line.starts_with(r#"{"kind":"rollouts""#))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert!(!sampled("exact").is_empty());
    assert_eq!(sampled("component"), sampled("exact"));
    let refused = format!("{component}settings = {{ caseless = 1 }}\n{run}");
    scratch.write("refused.toml", refused);
    let said = scratch.allot(&["train", "refused.toml", "--out", "refused"]);
    assert!(said.contains("grader `fresh`: setting `caseless` is 1; it must be true or false"), "{said}");
}

fn its_component_has_no_path_of_this_machine(language: Language) {
    let Some(scratch) = fresh(language) else { return };
    let bytes = std::fs::read(scratch.path().join("fresh.wasm")).unwrap();
    let here = crate::scratch::root().to_str().unwrap().as_bytes();
    assert!(!bytes.windows(here.len()).any(|window| window == here));
}

in_each_language!(works_as_it_comes, a_grader_works_as_it_comes, its_component_has_no_path_of_this_machine);

#[test]
fn all_languages_start_from_one_policy() {
    let records: Vec<_> = Language::ALL
        .into_iter()
        .filter_map(|language| Some((language, record(&fresh(language)?))))
        .collect();
    for pair in records.windows(2) {
        let [(one, ours), (other, theirs)] = pair else { unreachable!() };
        let first = ours.lines().zip(theirs.lines()).position(|(a, b)| a != b);
        assert!(ours == theirs, "{one:?} and {other:?} differ in line {first:?}");
        assert!(ours.lines().count() > 60, "{ours}");
    }
}
