//! What facts of 100,000 prompts cost a call, and that who does not ask for them pays nothing: a component of contract
//! 0.1 and guests of 0.2 over one view. In CPU time of the thread that calls, whoever else is at work on the machine.

#![allow(clippy::unwrap_used, missing_docs)]

#[allow(dead_code, reason = "each bench uses a part of it")]
#[path = "growth/clock.rs"]
mod clock;

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use allot::shipped;
use allot_allocation::{Past, PromptId, Run, Terms, View};
use allot_authoring::{component, fixtures};
use allot_sandbox::{Caps, Policy, Sandbox};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

const PROMPTS: u32 = 100_000;

/// In a guest's `describe`: the column `level`.
const LEVEL: &str =
    "(i32.store offset=128 (local.get $d) (i32.const 48)) (i32.store offset=132 (local.get $d) (i32.const 5))
     (i32.store offset=40 (local.get $d) (i32.add (local.get $d) (i32.const 128)))
     (i32.store offset=44 (local.get $d) (i32.const 1))";

fn guest(sandbox: &Sandbox, name: &str, describe: &str) -> Policy {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("tests/guests/0.2");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let text = read("frame.wat").replace(";; DECIDE", &read(&format!("{name}.wat")));
    let text = text.replace(";; DESCRIBE", describe);
    sandbox.load(&component::of_module(text.as_bytes(), name).unwrap(), None).unwrap()
}

fn run(policy: &Policy) -> Run {
    let description = policy.description();
    let settings = description.settings.iter().map(|s| (s.name.clone(), s.default.clone())).collect();
    let columns = fixtures::columns(&description.columns, PROMPTS);
    let terms = Some(Terms { columns, ..Terms::default() });
    policy.shown_too(Run {
        settings,
        prompts: PROMPTS,
        steps: 500,
        groups: 128,
        rollouts: 64,
        pool: 384,
        max_age: 5,
        lag: 0,
        terms,
    })
}

/// Each prompt of the data set as visited before.
fn visited(id: u32) -> (PromptId, Past) {
    let past = Past {
        step: 3,
        visits: 1 + id % 4,
        rollouts: 16,
        correct: id % 17,
        mean: (id % 17) as f32 / 16.0,
        deviation: 0.5,
        tokens: 120.5,
        streak: 0,
        total_rollouts: 64,
        total_correct: id % 65,
    };
    (PromptId(id), past)
}

fn facts(c: &mut Criterion) {
    let sandbox = Sandbox::new(Caps::default(), None).unwrap();
    let scale = fixtures::scale(1, 0);
    let empty = View { groups: Vec::new(), pool: Vec::new(), unscored: Vec::new(), ..scale.clone() };
    for (title, view) in [("an empty view", empty), ("18432 buffered rollouts", scale)] {
        let fresh = view.clone();
        let known = View { history: (0..PROMPTS).map(visited).collect(), ..view };
        let mut group = c.benchmark_group(format!("{title}, {PROMPTS} prompts"));
        let uniform = sandbox.load(shipped::component("uniform").unwrap(), None).unwrap();
        let policies = [
            ("0.1, uniform", uniform),
            ("0.2, asks for nothing", guest(&sandbox, "asks_nothing", "")),
            ("0.2, described a column and asks for nothing", guest(&sandbox, "asks_nothing", LEVEL)),
            ("0.2, two counts and a column of all", guest(&sandbox, "asks_for_all", LEVEL)),
        ];
        for (name, policy) in &policies {
            let run = run(policy);
            let state = policy.begin(&run).unwrap().0;
            for (when, view) in [("none visited", &fresh), ("all visited", &known)] {
                group.bench_function(BenchmarkId::new(*name, when), |b| {
                    b.iter_custom(|n| {
                        let began = clock::thread();
                        for _ in 0..n {
                            black_box(policy.decide(&run, &state, black_box(view)).unwrap());
                        }
                        Duration::from_secs_f64(clock::thread() - began)
                    });
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, facts);
criterion_main!(benches);
