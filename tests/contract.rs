//! Versions of the contract side by side. Components of 0.1 run for good: those in `tests/cases/contract-0.1` are what
//! shipped while 0.1 was the newest version, and one that a C compiler made. What they planned and what their runs
//! recorded at that time stays the same to the byte.
//!
//! `ALLOT_BLESS=1` writes the digests of plans anew; nothing writes the components and the records.

#![allow(clippy::unwrap_used, missing_docs)]

mod scratch;

use std::collections::BTreeMap;
use std::path::PathBuf;

use allot_allocation::Run;
use allot_authoring::fixtures;
use allot_record::{hex, sha256};
use allot_sandbox::{Caps, Contract, Policy, Sandbox};
use scratch::Scratch;

/// The components of 0.1, by name.
const KEPT: [&str; 8] =
    ["dapo", "greso", "knapsack", "pilot-commit", "pods", "reinforce-ada", "uniform", "uniform-c"];

fn case(file: &str) -> PathBuf {
    scratch::root().join("tests/cases/contract-0.1").join(file)
}

fn component(name: &str) -> Vec<u8> {
    std::fs::read(case(&format!("{name}.wasm"))).unwrap()
}

/// One digest over all that a policy answers on made views, each asked twice with the state of the first answer.
fn plans(policy: &Policy) -> String {
    let settings =
        policy.description().settings.iter().map(|s| (s.name.clone(), s.default.clone())).collect();
    let run = Run { settings, prompts: 1000, steps: 50, groups: 16, rollouts: 8, pool: 64, max_age: 5 };
    let mut answers = String::new();
    for fixture in fixtures::views(0, 300) {
        let mut state = policy.begin(&run).unwrap().0;
        for _ in 0..2 {
            let plan = policy.decide(&run, &state, &fixture.view).unwrap().0;
            answers += &serde_json::to_string(&plan).unwrap();
            state = plan.state;
            answers += &hex(&state);
        }
    }
    sha256(answers)
}

#[test]
fn components_of_0_1_plan_as_ever() {
    let sandbox = Sandbox::new(Caps::default(), None).unwrap();
    let load = |name: &str| sandbox.load(&component(name), None).unwrap();
    let now: BTreeMap<&str, String> = KEPT.into_iter().map(|name| (name, plans(&load(name)))).collect();
    assert_eq!(now["uniform"], now["uniform-c"], "one policy in two languages");
    let file = case("plans.json");
    if std::env::var_os("ALLOT_BLESS").is_some() {
        std::fs::write(&file, serde_json::to_string_pretty(&now).unwrap() + "\n").unwrap();
    }
    let text = std::fs::read_to_string(&file).unwrap();
    let kept: BTreeMap<&str, String> = serde_json::from_str(&text).unwrap();
    assert_eq!(now, kept);
}

#[test]
fn runs_under_components_of_0_1_leave_the_records_that_they_left() {
    for name in KEPT {
        let scratch = Scratch::new();
        scratch.write("policy.wasm", component(name));
        scratch.write("run.toml", std::fs::read(case("run.toml")).unwrap());
        let said = scratch.allot(&["simulate", "run.toml", "--out", "out"]);
        let kept = std::fs::read_to_string(case(&format!("{name}.jsonl"))).unwrap();
        // The program's own version is in the first line, and nothing else of it.
        let kept =
            kept.replacen("\"allot\":\"0.1.0\"", &format!("\"allot\":\"{}\"", env!("CARGO_PKG_VERSION")), 1);
        assert!(scratch.read("out/record.jsonl") == kept, "{name} leaves another record\n{said}");
        let said = scratch.allot(&["replay", "out"]);
        assert!(said.contains("0 plans differ") || said.ends_with("exit code 0"), "{name}: {said}");
    }
}

#[test]
fn a_policy_tells_which_contract_it_speaks() {
    let sandbox = Sandbox::new(Caps::default(), None).unwrap();
    assert_eq!(sandbox.load(&component("uniform"), None).unwrap().contract(), "0.1.0");
    let scratch = Scratch::new();
    scratch.write("old.wasm", component("uniform-c"));
    let said = scratch.allot(&["check", "./old.wasm"]);
    assert!(said.contains("pass  links: contract rollout:allocation@0.1.0"), "{said}");
    assert!(said.ends_with("exit code 0"), "{said}");
}

#[test]
fn each_version_of_the_contract_has_its_file() {
    for contract in Contract::ALL {
        let file = scratch::root().join(format!("wit/{contract}/allocation.wit"));
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(&format!("\npackage rollout:allocation@{contract}.0;\n")), "{contract}");
    }
}

/// What is frozen stays: compiled components were made from these very types.
#[test]
fn the_file_of_0_1_is_frozen() {
    let text = std::fs::read(scratch::root().join("wit/0.1/allocation.wit")).unwrap();
    assert_eq!(sha256(text), "abd1c31050bf166df79c4da334f154a96669f1a2bf41349127e2cfe2c0e2fd28");
}
