//! `decide` at the scale of Pilot-Commit's published 4B run (a pool of 384, 128 groups, 18,432
//! buffered rollouts), as a component and as the same function run natively; and what a component
//! costs before it does anything: instantiating it, loading it from a warm cache.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../tests/native/mod.rs"]
mod native;

use std::hint::black_box;

use allot::shipped;
use allot_allocation::{Run, View};
use allot_authoring::fixtures;
use allot_sandbox::{Caps, Sandbox};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

fn run(name: &str) -> Run {
    let settings = native::defaults(name);
    Run {
        settings,
        prompts: 53_000,
        steps: 500,
        groups: 128,
        rollouts: 64,
        pool: 384,
        max_age: 5,
        lag: 0,
        terms: None,
    }
}

fn decide(c: &mut Criterion) {
    let sandbox = Sandbox::new(Caps::default(), None).unwrap();
    for times in [1, 16] {
        let mut group = c.benchmark_group(format!("decide, {} buffered rollouts", 18_432 * times));
        group.sample_size(if times == 1 { 100 } else { 20 });
        let view = fixtures::scale(times, 0);
        for native in native::all().into_iter().filter(|native| native.plain) {
            let policy = sandbox.load(shipped::component(native.name).unwrap(), None).unwrap();
            let run = run(native.name);
            let state = policy.begin(&run).unwrap().0;
            group.bench_function(BenchmarkId::new("component", native.name), |b| {
                b.iter(|| policy.decide(&run, &state, black_box(&view)).unwrap());
            });
            let (their_run, their_view) = (native::run_of(&run), native::view_of(&view, &run));
            group.bench_function(BenchmarkId::new("native", native.name), |b| {
                b.iter(|| (native.bare)(&their_run, &state, black_box(&their_view)).unwrap());
            });
        }
        // The same view without any rollout: what is left is the call itself.
        let policy = sandbox.load(shipped::component("uniform").unwrap(), None).unwrap();
        let (run, empty) = (run("uniform"), View { groups: Vec::new(), pool: Vec::new(), ..view });
        group.bench_function("an empty view", |b| {
            b.iter(|| policy.decide(&run, &[], black_box(&empty)).unwrap());
        });
        group.finish();
    }
}

/// A component's share of the call, by what it does with the view: its fuel, in instructions, says
/// nothing of time; this guest reads nothing and trains on nothing, so that copying is all there is.
fn copying(c: &mut Criterion) {
    let sandbox = Sandbox::new(Caps::default(), None).unwrap();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("tests/guests");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let text = read("frame.wat").replace(";; DECIDE", &read("trains_on_nothing.wat"));
    let guest = sandbox
        .load(&allot_authoring::component::of_module(text.as_bytes(), "guest").unwrap(), None)
        .unwrap();
    let mut group = c.benchmark_group("copying a view into a guest");
    for times in [1, 4, 16] {
        let view = fixtures::scale(times, 0);
        let run = Run { settings: Vec::new(), ..run("uniform") };
        group.bench_with_input(BenchmarkId::from_parameter(18_432 * times), &view, |b, view| {
            b.iter(|| guest.decide(&run, &[], black_box(view)).unwrap());
        });
    }
    group.finish();
}

fn start(c: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(Caps::default(), Some(folder.path())).unwrap();
    let mut group = c.benchmark_group("start");
    for name in shipped::names() {
        let bytes = shipped::component(name).unwrap();
        let policy = sandbox.load(bytes, None).unwrap();
        group.bench_function(BenchmarkId::new("instantiate", name), |b| {
            b.iter(|| policy.instantiate().unwrap());
        });
        group.bench_function(BenchmarkId::new("load, warm", name), |b| {
            b.iter(|| sandbox.load(bytes, None).unwrap());
        });
    }
    let cold = Sandbox::new(Caps::default(), None).unwrap();
    group.sample_size(10);
    let bytes = shipped::component("pilot-commit").unwrap();
    group.bench_function(BenchmarkId::new("load, cold", "pilot-commit"), |b| {
        b.iter(|| cold.load(bytes, None).unwrap());
    });
    group.finish();
}

criterion_group!(benches, decide, copying, start);
criterion_main!(benches);
