//! Versions of the contract side by side. Components of 0.1 and 0.2 run for good: those in `tests/cases/contract-0.1` are
//! what shipped while 0.1 was the newest version, and one that a C compiler made; those in `tests/cases/contract-0.2` are
//! some that shipped under 0.2. What they planned and what their runs recorded at that time stays the same to the byte.
//!
//! `ALLOT_BLESS=1` writes the digests of plans anew; nothing writes the components and the records.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "contract/columns.rs"]
mod columns;
mod scratch;
mod skip;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use allot_allocation::{Action, Group, GroupTurns, Need, PromptId, Run, Start, Stopped, TurnLength, rules};
use allot_authoring::fixtures;
use allot_record::{Asked, Line, Reader, Views, hex, sha256};
use allot_sandbox::{Caps, Contract, Policy, Sandbox};
use scratch::Scratch;
use skip::skip;

/// The components of 0.1, by name.
const KEPT: [&str; 8] =
    ["dapo", "greso", "knapsack", "pilot-commit", "pods", "reinforce-ada", "uniform", "uniform-c"];

/// Components of 0.2, by name: they stop early, ask for any prompt and for facts, and train again.
const KEPT_0_2: [&str; 5] = ["ar3po", "mopps", "prospect", "repo", "uniform"];

fn case(file: &str) -> PathBuf {
    kept("0.1", file)
}

fn kept(version: &str, file: &str) -> PathBuf {
    scratch::root().join(format!("tests/cases/contract-{version}")).join(file)
}

fn component(name: &str) -> Vec<u8> {
    std::fs::read(case(&format!("{name}.wasm"))).unwrap()
}

/// One digest over all that a policy answers on made views, each asked twice with the state of the first answer.
fn plans(policy: &Policy) -> String {
    let settings =
        policy.description().settings.iter().map(|s| (s.name.clone(), s.default.clone())).collect();
    let run = Run {
        settings,
        prompts: 1000,
        steps: 50,
        groups: 16,
        rollouts: 8,
        pool: 64,
        max_age: 5,
        lag: 0,
        terms: None,
    };
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
fn runs_under_components_of_older_contracts_leave_the_records_that_they_left() {
    let of = |version, names: &[&'static str]| names.iter().map(|name| (version, *name)).collect::<Vec<_>>();
    for (version, name) in of("0.1", &KEPT).into_iter().chain(of("0.2", &KEPT_0_2)) {
        let scratch = Scratch::new();
        scratch.write("policy.wasm", std::fs::read(kept(version, &format!("{name}.wasm"))).unwrap());
        scratch.write("run.toml", std::fs::read(kept(version, "run.toml")).unwrap());
        let said = scratch.allot(&["simulate", "run.toml", "--out", "out"]);
        let kept = std::fs::read_to_string(kept(version, &format!("{name}.jsonl"))).unwrap();
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

/// A policy that plays is refused by a simulation of single answers, and plays in one of episodes.
#[test]
fn a_policy_over_turns_is_simulated_in_a_world_of_episodes() {
    let scratch = Scratch::new();
    let config = |world: &str| SMALL.replace("./guest.wasm", "tree-grpo").replace("prompts = 5", world);
    scratch.write("run.toml", config("prompts = 5"));
    let said = scratch.allot(&["simulate", "run.toml", "--out", "out"]);
    assert!(said.contains("policy `tree-grpo` needs `turns`, which this run does not provide"), "{said}");
    scratch.write("run.toml", config("prompts = 5\nturns = 4"));
    let said = scratch.allot(&["simulate", "run.toml", "--out", "out"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let (reader, head) = Reader::open(&scratch.path().join("out")).unwrap();
    assert_eq!(head.run.terms.clone().unwrap().max_turns, 4);
    let mut views = Views::new(&head).unwrap();
    let mut continued = 0;
    for line in reader {
        let Some(asked) = views.take(&line.unwrap()).unwrap() else { continue };
        for group in &asked.view.groups {
            assert_eq!((group.turns.lengths.len(), group.turns.stopped.len()), (group.len(), group.len()));
            continued += group.turns.origins.iter().flatten().count();
        }
    }
    assert!(continued > 3, "{continued}");
    assert!(scratch.allot(&["replay", "out"]).ends_with("exit code 0"));
}

/// What a plan of 0.3 says of turns is held against the turns that there are.
#[test]
fn plans_over_turns_keep_the_rules() {
    let episode = |turns: &[u32]| turns.iter().map(|n| TurnLength(3, *n)).collect::<Vec<_>>();
    let lengths = vec![episode(&[5, 2]), episode(&[4])];
    let turns = GroupTurns { stopped: vec![Stopped::Done; 2], lengths, origins: Vec::new() };
    let made = fixtures::views(0, 1).remove(0).view;
    let group = Group { turns, ..outcomes(7, &[1.0, 0.0]) };
    let budget = allot_allocation::Budget { rounds: 2, step_rollouts: 99, ..made.budget };
    let view = allot_allocation::View { groups: vec![group], budget, ..made };
    let broken = |action: Action| {
        let plan = allot_allocation::Plan::of(action);
        rules::check("p", &view, &plan, rules::Bounds::default()).err().map(|broken| broken.rule.name())
    };
    let ask = |count, starts: &[Option<(u32, u32)>]| {
        let start = |start: &Option<(u32, u32)>| start.map(|(rollout, turn)| Start { rollout, turn });
        let starts = starts.iter().map(start).collect();
        let request = allot_allocation::Request::new(PromptId(7), count);
        broken(Action::Sample(vec![allot_allocation::Request { starts, ..request }]))
    };
    assert_eq!(ask(2, &[Some((0, 0)), None]), None);
    assert_eq!(ask(2, &[Some((0, 0))]), Some("starts-count"));
    assert_eq!(ask(1, &[Some((2, 0))]), Some("no-such-start"));
    assert_eq!(ask(1, &[Some((0, 1))]), Some("no-turn-after"));
    assert_eq!(ask(1, &[Some((1, 0))]), Some("no-turn-after"));
    let train = |own: &[&[f32]]| {
        let own = own.iter().map(|own| own.to_vec()).collect();
        let advantage = allot_allocation::Advantage::ByTurn(own);
        let pick = allot_allocation::Pick {
            prompt: PromptId(7),
            rollouts: Some(vec![1, 0]),
            advantage,
            weight: 1.0,
        };
        broken(Action::Train(allot_allocation::Batch { picks: vec![pick], ..Default::default() }))
    };
    assert_eq!(train(&[&[1.0], &[0.5, -1.0]]), None);
    assert_eq!(train(&[&[1.0]]), Some("given-count"));
    assert_eq!(train(&[&[0.5, -1.0], &[1.0]]), Some("by-turn-count"));
    assert_eq!(train(&[&[1.0], &[f32::NAN, 0.0]]), Some("bad-by-turn"));
    let own = |max_turns| allot_allocation::SamplerSettings { temperature: 1.0, max_tokens: 9, max_turns };
    let sampling = Some(allot_allocation::SamplerRange { least: own(2), most: own(4) });
    let bounds = rules::Bounds { sampling, ..rules::Bounds::default() };
    let asked = |turns| {
        let request = allot_allocation::Request::new(PromptId(7), 1);
        let request = allot_allocation::Request { sampling: Some(own(turns)), ..request };
        let plan = allot_allocation::Plan::of(Action::Sample(vec![request]));
        rules::check("p", &view, &plan, bounds).err().map(|broken| broken.rule.name())
    };
    assert_eq!((asked(1), asked(2), asked(4), asked(5)), (Some("max-turns"), None, None, Some("max-turns")));
}

/// A group of these rewards.
fn outcomes(prompt: u32, rewards: &[f32]) -> Group {
    let mut buffer = allot_allocation::RolloutBuffer::new(0);
    let one = |(i, reward): (usize, &f32)| {
        allot_allocation::Outcome::of(PromptId(prompt), i as u32, *reward, *reward > 0.5)
    };
    buffer.add(rewards.iter().enumerate().map(one));
    buffer.groups().remove(0)
}

/// A small run in the coin-flip world, under the guest that lies there as `guest.wasm`.
const SMALL: &str = r#"
[run]
seed = 1
steps = 6
groups = 2
rollouts = 4
pool = 4
[budget]
rollouts = 200
[policy]
use = "./guest.wasm"
[policy.limits]
fuel = 100_000_000
[world]
prompts = 5
longest = 300
"#;

fn small(guest: &[u8]) -> (Scratch, String) {
    small_with(guest, "")
}

/// The same with some more of a config.
fn small_with(guest: &[u8], more: &str) -> (Scratch, String) {
    let scratch = Scratch::new();
    scratch.write("guest.wasm", guest);
    scratch.write("run.toml", SMALL.to_owned() + more);
    let said = scratch.allot(&["simulate", "run.toml", "--out", "out"]);
    (scratch, said)
}

/// What a guest of 0.2 is shown and answered is what the record has, in the contract's words.
#[test]
fn a_policy_of_0_2_is_shown_and_told_what_the_record_has() {
    let (scratch, said) = small(&scratch::guest_0_2("tells", ""));
    assert!(said.ends_with("exit code 0"), "{said}");
    let (reader, head) = Reader::open(&scratch.path().join("out")).unwrap();
    assert_eq!(head.policy.contract, "0.2.0");
    let terms = head.run.terms.clone().unwrap();
    assert_eq!((terms.temperature, terms.max_tokens), (1.0, 300));
    let mut views = Views::new(&head).unwrap();
    let (mut told, mut epochs, mut visited, mut put_back) = (0, Vec::new(), 0.0, None);
    for line in reader {
        let Some(asked) = views.take(&line.unwrap()).unwrap() else { continue };
        let Asked { view, plan } = asked;
        if view.round == 0 {
            assert_eq!(plan.defer, view.pool.get(1).map_or_else(Vec::new, |prompt| vec![prompt.id]));
            epochs.push(view.pool[0].epoch);
            put_back = view.pool.get(1).map(|prompt| (prompt.id, prompt.epoch));
            continue;
        }
        let metric = |name: &str| plan.metrics.iter().find(|(known, _)| known == name).unwrap().1;
        assert_eq!(metric("epoch"), f64::from(view.groups[0].epoch));
        assert_eq!(metric("epoch"), f64::from(*epochs.last().unwrap()));
        assert_eq!(metric("length"), f64::from(view.pool[0].tokens));
        assert_eq!((metric("temperature"), metric("max-tokens")), (1.0, 300.0));
        assert_eq!(metric("run-flops"), f64::MAX);
        assert_eq!(metric("unscored"), 0.0);
        // One prompt a step is visited.
        assert_eq!(metric("visits"), visited);
        visited += 1.0;
        let std = view.history.of(PromptId(0)).map_or(0.0, |past| past.std());
        assert_eq!(metric("std"), f64::from(std));
        // Later on the next epoch comes to a prompt that is on offer still, and the pool ends there.
        if let Some((id, epoch)) = put_back.filter(|_| view.step < 4) {
            let again = view.pool.iter().find(|prompt| prompt.id == id);
            assert!(
                again.is_some_and(|prompt| prompt.epoch == epoch),
                "in the same epoch, behind the others"
            );
        }
        told += 1;
    }
    assert_eq!(told, 6);
    insta::assert_snapshot!(scratch.allot(&["replay", "out"]).lines().last().unwrap(), @"exit code 0");
    let said = scratch.allot(&["replay", "out", "--at", "3.1"]);
    assert!(said.contains("metric visits = 3") && said.ends_with("exit code 0"), "{said}");
    let said = scratch.allot(&["check", "./guest.wasm"]);
    assert!(said.contains("links: contract rollout:allocation@0.2.0"), "{said}");
}

/// Gives a reward in parts: 1 for a right answer, and a quarter for being there.
const PARTS: &str = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    right = asked["answer"].strip() in asked["gold"]
    print(json.dumps({"id": asked["id"], "rewards": {"right": float(right), "short": 0.25}}))
"#;

/// A run with a budget of operations, whose rewards have parts.
const WEIGHED: &str = r#"
[run]
seed = 1
steps = 3
groups = 2
rollouts = 4
[budget]
flops = 4e9
step_rollouts = 100
[policy]
use = "./guest.wasm"
[model]
use = "tiny-sums"
threads = 1
[sampling]
max_tokens = 8
[evaluation]
problems = 2
[reward]
grader = "command"
correct_from = 1.0
weights = { right = 2.0, short = 0.5 }
[reward.process]
command = ["python3", "judge.py"]
[[tasks]]
kind = "sums"
style = "terse"
count = 20
held_out = 0.2
levels = [{ digits = 2 }]
"#;

/// In its `describe`: the parts of rewards are needed.
const NEEDS_PARTS: &str = "(i32.store8 offset=48 (local.get $d) (i32.const 32))";

#[test]
fn costs_operations_and_parts_of_rewards_are_told_and_in_the_record() {
    if Command::new("python3").arg("--version").output().is_err() {
        return skip("python3", "it is not there");
    }
    let scratch = Scratch::new();
    scratch.write("guest.wasm", scratch::guest_0_2("weighs", NEEDS_PARTS));
    scratch.write("judge.py", PARTS);
    scratch.write("run.toml", WEIGHED);
    let said = scratch.allot(&["train", "run.toml", "--out", "out"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let (reader, head) = Reader::open(&scratch.path().join("out")).unwrap();
    assert_eq!(head.run.parts(), ["right", "short"]);
    let costs = head.run.terms.clone().unwrap().costs;
    assert!(costs.reading > 0.0 && costs.generating > 0.0 && costs.learning > costs.generating, "{costs:?}");
    let mut views = Views::new(&head).unwrap();
    let mut told = 0;
    for line in reader {
        let line = line.unwrap();
        if let Line::End(end) = &line {
            assert!(end.normal && end.compute.flops.total() <= 4e9, "{end:?}");
        }
        let Some(Asked { view, plan }) = views.take(&line).unwrap() else { continue };
        assert!(view.budget.run_flops.is_some());
        let metric =
            |name: &str| plan.metrics.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        if view.round > 0 {
            assert_eq!(metric("reading"), Some(costs.reading));
            assert_eq!(metric("run-flops"), view.budget.run_flops);
            assert_eq!(metric("short"), Some(0.25));
            told += 1;
        }
    }
    assert_eq!(told, 3);
    assert!(scratch.allot(&["replay", "out"]).ends_with("exit code 0"));
    // Without weights nobody knows which parts there are.
    scratch.write("run.toml", WEIGHED.replace("weights = { right = 2.0, short = 0.5 }", ""));
    let said = scratch.allot(&["train", "run.toml", "--out", "none"]);
    assert!(said.contains("policy `guest` needs `parts`, which this run does not provide"), "{said}");
    assert!(said.contains("hint: name the parts of rewards in `[reward.weights]`"), "{said}");
}

/// In its `describe`: any prompt may be requested.
const NEEDS_ANY_PROMPT: &str = "(i32.store8 offset=48 (local.get $d) (i32.const 1))";

#[test]
fn a_policy_that_says_so_requests_any_prompt_of_the_data_set() {
    let (scratch, said) = small(&scratch::guest_0_2("roams", NEEDS_ANY_PROMPT));
    // In the sixth step it asks for the prompt before the first.
    let beyond =
        "asked for rollouts of prompt `4294967295`; the data set has 5 prompts (0 to 4) (step 5, round 0)";
    assert!(said.contains(beyond), "{said}");
    let (reader, head) = Reader::open(&scratch.path().join("out")).unwrap();
    assert_eq!(head.run.any_prompt(), Some(5));
    let mut views = Views::new(&head).unwrap();
    let (mut asked, mut trained, mut from_outside) = (Vec::new(), 0, 0);
    for line in reader {
        let line = line.unwrap();
        if let Line::Step(step) = &line {
            // Two are sampled, one of them is learned from, and the other one is held for a step.
            assert_eq!((step.trained, step.held), (1, 1), "{step:?}");
            trained += 1;
        }
        let Some(Asked { view, plan }) = views.take(&line).unwrap() else { continue };
        if let Action::Sample(requests) = &plan.action {
            asked.push(requests[0].prompt.0);
            from_outside += u32::from(view.pool.iter().all(|prompt| prompt.id != requests[0].prompt));
        }
    }
    assert_eq!((asked, trained), (vec![4, 3, 2, 1, 0], 5));
    assert!(from_outside > 0, "some were not on offer");
    assert!(scratch.allot(&["replay", "out"]).contains("exit code 0"));

    let (_, said) = small(&scratch::guest_0_2("roams", ""));
    assert!(
        said.contains("asked for rollouts of prompt `4`, which is neither in the pool nor buffered"),
        "{said}"
    );
}

/// In its `describe`: a batch says how it is cut into optimizer steps.
const NEEDS_UPDATING: &str = "(i32.store8 offset=48 (local.get $d) (i32.const 16))";

/// A run of a small model on sums, two passes over each batch.
const CUT: &str = r#"
[run]
seed = 1
steps = 5
groups = 2
rollouts = 4
[budget]
rollouts = 100
[policy]
use = "./guest.wasm"
[model]
use = "tiny-sums"
threads = 1
[sampling]
max_tokens = 8
[update]
epochs = 2
[reward]
grader = "exact"
[evaluation]
problems = 2
[[tasks]]
kind = "sums"
style = "terse"
count = 20
held_out = 0.2
levels = [{ digits = 2 }]
"#;

#[test]
fn a_policy_that_says_so_cuts_its_batches_into_optimizer_steps() {
    let optimizer_steps = |scratch: &Scratch| {
        let (reader, head) = Reader::open(&scratch.path().join("out")).unwrap();
        let mut views = Views::new(&head).unwrap();
        let mut made = vec![0];
        for line in reader {
            let line = line.unwrap();
            views.take(&line).unwrap();
            if let Line::Step(step) = &line {
                made.push(step.compute.optimizer_steps);
            }
        }
        assert!(scratch.allot(&["replay", "out"]).ends_with("exit code 0"));
        made.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<u64>>()
    };
    let guest = scratch::guest_0_2("cuts", NEEDS_UPDATING);
    let (scratch, said) = small(&guest);
    assert!(said.ends_with("exit code 0"), "{said}");
    assert_eq!(optimizer_steps(&scratch), [4, 2, 2, 1, 1, 1]);

    // A model is updated so, too, and in fewer passes than the config's.
    let scratch = Scratch::new();
    scratch.write("guest.wasm", &guest);
    scratch.write("run.toml", CUT);
    let said = scratch.allot(&["train", "run.toml", "--out", "out"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    assert_eq!(optimizer_steps(&scratch), [4, 2, 2, 1, 1]);

    // A config may keep that to itself, and bounds the passes.
    scratch.write("run.toml", CUT.replace("epochs = 2", "by_policy = false"));
    let said = scratch.allot(&["train", "run.toml", "--out", "none"]);
    assert!(said.contains("policy `guest` needs `updating`, which this run does not provide"), "{said}");
    assert!(said.contains("hint: set `update.by_policy = true`"), "{said}");
    let (_, said) = small(&scratch::guest_0_2("steps_a_billion", NEEDS_UPDATING));
    let most = "asked for 1000000000 passes over its batch; there are 1 to 1 in this run (step 0, round 0)";
    assert!(said.contains(most), "{said}");
}

/// In its `describe`: requests end early.
const NEEDS_STOPPING: &str = "(i32.store8 offset=48 (local.get $d) (i32.const 8))";

/// Of each step and prompt of the run in `out` what is correct, by portion.
fn portions(scratch: &Scratch) -> BTreeMap<(u32, u32), Vec<String>> {
    let (reader, _) = Reader::open(&scratch.path().join("out")).unwrap();
    let mut all: BTreeMap<(u32, u32), Vec<String>> = BTreeMap::new();
    for line in reader {
        let Line::Rollouts(rollouts) = line.unwrap() else { continue };
        assert_eq!(rollouts.round, 0, "all portions of a plan come in one round");
        for sampled in rollouts.sampled {
            all.entry((rollouts.step, sampled.prompt.0)).or_default().push(sampled.correct);
        }
    }
    all
}

#[test]
fn a_request_ends_once_enough_was_seen() {
    let (scratch, said) = small(&scratch::guest_0_2("first_correct", NEEDS_STOPPING));
    assert!(said.ends_with("exit code 0"), "{said}");
    let all = portions(&scratch);
    for portions in all.values() {
        let (last, before) = portions.split_last().unwrap();
        assert!(portions.iter().all(|portion| portion.len() == 2) && portions.len() <= 6, "{portions:?}");
        assert!(before.iter().all(|portion| portion == "00"), "{portions:?}");
        assert!(last.contains('1') || portions.len() == 6, "{portions:?}");
    }
    let lengths: Vec<usize> = all.values().map(Vec::len).collect();
    assert!(lengths.contains(&1) && lengths.iter().any(|n| *n > 1), "{lengths:?}");
    let (reader, _) = Reader::open(&scratch.path().join("out")).unwrap();
    let last = reader.map(|line| line.unwrap()).last();
    let Some(Line::End(end)) = last else { panic!("{last:?}") };
    // What was not sampled is not charged.
    assert_eq!(end.spent.run_rollouts, 2 * lengths.iter().sum::<usize>() as u64);
    assert!(scratch.allot(&["replay", "out"]).ends_with("exit code 0"));
    let said = scratch.allot(&["replay", "out", "--at", "2.1"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let said = scratch.allot(&["replay", "out", "--at", "2.0"]);
    assert!(said.contains("until 1 are correct and 0 wrong, in portions of 2"), "{said}");

    // In whole, each prompt has the same rollouts and goes on: up to the first update the runs are paired.
    let never = scratch::guest_0_2_but("first_correct", NEEDS_STOPPING, &[("CORRECT", 13)]);
    let whole = scratch::guest_0_2_but("first_correct", "", &[("UNTIL", 0)]);
    let [never, whole] = [never, whole].map(|guest| portions(&small(&guest).0));
    for ((step, prompt), portions) in all.iter().filter(|((step, _), _)| *step == 0) {
        let [never, whole] = [&never, &whole].map(|all| &all[&(*step, *prompt)]);
        assert_eq!((never.len(), whole.len(), never.concat()), (6, 1, whole.concat()));
        assert!(whole[0].starts_with(&portions.concat()), "{whole:?} {portions:?}");
    }
}

/// In its `describe`: requests say how to sample.
const NEEDS_SAMPLING: &str = "(i32.store8 offset=48 (local.get $d) (i32.const 4))";

/// What requests may choose.
const REQUESTS: &str = "[requests]\ntemperature = [0.5, 1.5]\nleast_tokens = 20\n";

#[test]
fn a_request_says_how_it_is_sampled() {
    let (scratch, said) = small_with(&scratch::guest_0_2("varies", NEEDS_SAMPLING), REQUESTS);
    assert!(said.ends_with("exit code 0"), "{said}");
    let (reader, head) = Reader::open(&scratch.path().join("out")).unwrap();
    let range = head.run.requests().unwrap();
    assert_eq!((range.least.temperature, range.most.temperature), (0.5, 1.5));
    assert_eq!((range.least.max_tokens, range.most.max_tokens), (20, 300));
    let mut views = Views::new(&head).unwrap();
    let (mut own, mut told, mut cut) = (None, 0, 0);
    for line in reader {
        let line = line.unwrap();
        if let Line::Rollouts(rollouts) = &line {
            for sampled in rollouts.sampled.iter().filter(|sampled| Some(sampled.prompt) == own) {
                assert!(sampled.tokens.iter().all(|n| *n <= 40), "{sampled:?}");
                cut += sampled.truncated.matches('1').count();
            }
        }
        let Some(Asked { view, plan }) = views.take(&line).unwrap() else { continue };
        if let Action::Sample(requests) = &plan.action {
            let settings = requests[0].sampling.unwrap();
            assert_eq!((settings.temperature, settings.max_tokens), (0.5, 40));
            assert!(requests[1..].iter().all(|request| request.sampling.is_none()));
            own = Some(requests[0].prompt);
            continue;
        }
        let metric =
            |name: &str| plan.metrics.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        assert_eq!((metric("temperature"), metric("max-tokens")), (Some(0.5), Some(40.0)));
        if view.groups.len() > 1 {
            assert_eq!((metric("std"), metric("visits")), (Some(1.0), Some(300.0)));
            told += 1;
        }
    }
    assert!(told > 3 && cut > 3, "{told} {cut}");
    assert!(scratch.allot(&["replay", "out"]).ends_with("exit code 0"));
    let said = scratch.allot(&["replay", "out", "--at", "1.0"]);
    assert!(said.contains("at temperature 0.5, at most 40 tokens"), "{said}");

    let said = |describe: &str, numbers: &[(&str, u32)], more: &str| {
        let guest = scratch::guest_0_2_but("varies", describe, numbers);
        let said = small_with(&guest, more).1;
        said.lines().find(|line| line.starts_with("error: ")).unwrap().to_owned()
    };
    insta::assert_snapshot!(said(NEEDS_SAMPLING, &[], ""), @"error: policy `guest` needs `sampling`, which this run does not provide");
    insta::assert_snapshot!(said("", &[], REQUESTS), @"error: in step 0, round 0 policy `guest` used `sampling` in a request, but its description does not have `sampling` among its needs");
    insta::assert_snapshot!(said(NEEDS_SAMPLING, &[("TEMPERATURE", 9)], REQUESTS), @"error: policy `guest` asked for rollouts of prompt `0` at temperature 9; the run takes 0.5 to 1.5 (step 0, round 0)");
    insta::assert_snapshot!(said(NEEDS_SAMPLING, &[("TOKENS", 19)], REQUESTS), @"error: policy `guest` asked for rollouts of prompt `0` of at most 19 tokens; the run takes 20 to 300 (step 0, round 0)");
    insta::assert_snapshot!(said(NEEDS_SAMPLING, &[("TOKENS", 4_000_000_000)], REQUESTS), @"error: policy `guest` asked for rollouts of prompt `0` of at most 4000000000 tokens; the run takes 20 to 300 (step 0, round 0)");
    insta::assert_snapshot!(said("", &[], "[requests]\ntemperature = [0.0, 1.0]\n"), @"error: `run.toml`: `requests.temperature` is [0, 1]");
    insta::assert_snapshot!(said("", &[], "[requests]\nleast_tokens = 301\n"), @"error: `run.toml`: `requests.least_tokens` is 301; expected 1 to 300");
}

/// In its `describe`: rollouts stay after an update was made on them.
const NEEDS_REPLAY: &str = "(i32.store8 offset=48 (local.get $d) (i32.const 2))";

#[test]
fn a_policy_that_says_so_learns_from_its_best_rollouts_again() {
    let (scratch, said) = small(&scratch::guest_0_2("replays", NEEDS_REPLAY));
    assert!(said.ends_with("exit code 0"), "{said}");
    let (reader, head) = Reader::open(&scratch.path().join("out")).unwrap();
    assert_eq!((head.run.gives(Need::Replay), head.run.max_age), (true, 5));
    let mut views = Views::new(&head).unwrap();
    let (mut again, mut told, mut kept, mut rejoined) = (0, 0, 0, 0);
    for line in reader {
        let line = line.unwrap();
        if let Line::Step(step) = &line {
            // What was right stays until it is too old, and nothing else does.
            assert_eq!((step.released, step.stale, step.unaffordable), (0, 0, 0), "{step:?}");
            assert_eq!(step.again, kept, "{step:?}");
            (again, kept) = (again + step.again, step.held);
        }
        let Some(Asked { view, plan }) = views.take(&line).unwrap() else { continue };
        let trained = |g: &Group| (0..g.len()).map(|i| g.trained(i)).sum::<u32>();
        for group in &view.groups {
            // Updates are made in each step, so that a rollout is as old as it was often learned from.
            assert!((0..group.len()).all(|i| group.trained(i) == group.ages[i]), "{group:?}");
            let replayed = (0..group.len()).all(|i| group.trained(i) > 0);
            assert!(replayed || view.pool.iter().all(|prompt| prompt.id != group.prompt));
            rejoined += u32::from(!replayed && group.trained(0) > 0);
        }
        if let Action::Train(batch) = &plan.action {
            assert!(batch.hold.iter().all(|hold| hold.rollouts.is_some()));
            let sum: u32 = view.groups.iter().map(trained).sum();
            assert_eq!(plan.metrics, [("trained".to_owned(), f64::from(sum))]);
            told += sum;
        }
    }
    assert!(again > 20 && told > 20 && rejoined > 2, "{again} {told} {rejoined}");
    assert!(said.contains(&format!("and again, in later steps {again:>15}")), "{said}");
    assert!(scratch.allot(&["replay", "out"]).contains("exit code 0"));
    let at = scratch.allot(&["replay", "out", "--at", "5.2"]);
    assert!(at.contains("held") || at.contains("hold"), "{at}");
    let card = scratch.allot(&["check", "./guest.wasm"]);
    assert!(
        card.contains("pass  holds no rollout by position that it picks, unless it needs `replay`"),
        "{card}"
    );
    // Another policy may look on, whatever it needs.
    let shadow = small_under("uniform", &scratch::guest_0_2("replays", NEEDS_REPLAY));
    assert!(shadow.contains("shadow `guest`: ") && shadow.ends_with("exit code 0"), "{shadow}");
}

#[test]
fn what_is_held_was_sampled_and_not_picked_unless_replay_is_needed() {
    let said = |name: &str, describe: &str| {
        let said = small(&scratch::guest_0_2(name, describe)).1;
        said[said.find("error: ").unwrap()..].to_owned()
    };
    let picked = said("replays", "");
    assert!(picked.contains("which it also picked, and has no `replay` among its needs"), "{picked}");
    assert!(
        picked.contains("hint: hold only rollouts that are not picked, or name the need: in Python"),
        "{picked}"
    );
    assert!(picked.contains("in C `allot_needs(self, ALLOT_REPLAY)`"), "{picked}");
    let unsampled = said("holds_the_unsampled", NEEDS_REPLAY);
    assert!(unsampled.contains("policy `guest` held rollout 2 of prompt `"), "{unsampled}");
    assert!(unsampled.contains("which has 2 buffered (0 to 1) (step 0, round 1)"), "{unsampled}");
}

/// Policies of both contracts look at one run.
#[test]
fn a_policy_of_0_2_is_a_shadow_of_one_of_0_1() {
    let said = small_under("uniform", &scratch::guest_0_2("tells", ""));
    assert!(said.contains("shadow `guest`: 12 calls") && said.ends_with("exit code 0"), "{said}");
}

/// What is said of a run under a policy of 0.1, in whose record nothing is of 0.2, with a guest that looks on.
fn small_under(policy: &str, shadow: &[u8]) -> String {
    let scratch = Scratch::new();
    scratch.write("guest.wasm", component(policy));
    scratch.write("shadow.wasm", shadow);
    scratch.write("run.toml", SMALL);
    let said = scratch.allot(&["simulate", "run.toml", "--out", "out", "--shadow", "./shadow.wasm"]);
    assert!(!scratch.read("out/record.jsonl").contains("terms"), "{said}");
    said
}

#[test]
fn what_a_guest_of_0_2_may_not_ends_the_run_with_a_sentence() {
    let said = |name: &str| small(&scratch::guest_0_2(name, "")).1.lines().nth(1).unwrap().to_owned();
    insta::assert_snapshot!(said("asks_beyond"), @"error: in step 0, round 0 policy `guest` asked about prompt `4000000000`, but the data set has 5 prompts");
    insta::assert_snapshot!(said("asks_a_column"), @"error: in step 0, round 0 policy `guest` asked for the column `level`, which is not in its description");
    insta::assert_snapshot!(said("stops_early"), @"error: in step 0, round 0 policy `guest` used `until` in a request, but its description does not have `stopping` among its needs");
    let portion = |count, portion| {
        let numbers = [("COUNT", count), ("PORTION", portion)];
        let guest = scratch::guest_0_2_but("first_correct", NEEDS_STOPPING, &numbers);
        small(&guest).1.lines().find(|line| line.starts_with("error: ")).unwrap().to_owned()
    };
    insta::assert_snapshot!(portion(12, 0), @"error: policy `guest` asked for rollouts of prompt `0` in portions of 0; the smallest is 1 (step 0, round 0)");
    insta::assert_snapshot!(portion(4_000_000_000, 15_624_999), @"error: policy `guest` asked for rollouts of prompt `0` in portions of 15624999; the smallest is 15625000 (step 0, round 0)");
    insta::assert_snapshot!(said("steps_a_billion"), @"error: in step 0, round 0 policy `guest` used `update` in its batch, but its description does not have `updating` among its needs");
}

/// Fuel counts what a guest does; what is done for it has a bound of its own.
#[test]
fn a_guest_that_asks_about_a_million_prompts_again_and_again_ends() {
    let sandbox = Sandbox::new(Caps::default(), None).unwrap();
    let policy = sandbox.load(&scratch::guest_0_2("asks_a_million", ""), None).unwrap();
    let view = fixtures::views(0, 0).swap_remove(0).view;
    let run = Run {
        settings: vec![],
        prompts: 9,
        steps: 1,
        groups: 1,
        rollouts: 1,
        pool: 9,
        max_age: 5,
        lag: 0,
        terms: None,
    };
    let fault = policy.decide(&run, &[], &view).unwrap_err();
    assert_eq!(fault.to_string(), "asked for more than 268435456 numbers in one call");
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
