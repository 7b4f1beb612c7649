//! A component and the same policy as a plain native function give the same plans, over thousands
//! of made views and over whole runs. And the components that ship are what the sources say.
//!
//! `ALLOT_COMPONENTS` names another folder of components, such as freshly built ones.

#![allow(clippy::unwrap_used, missing_docs)]

mod native;
mod scratch;

use std::path::PathBuf;

use allot::callbacks::{Callbacks, Decide, Go};
use allot::run;
use allot::run::Rest;
use allot::shipped::Manifest;
use allot::simulation::Simulation;
use allot::stop::Stop;
use allot::world::World;
use allot_allocation::{Plan, Run, View, seed};
use allot_authoring::{build, fixtures};
use allot_base::Error;
use allot_config::simulate::SimulateConfig;
use allot_engine::{Coin, Flip, Sample};
use allot_judges::{Reward, UNSCORABLE, Verdict};
use allot_loop::{Every, Scores};
use allot_record::StepEnd;
use allot_sandbox::{Caps, Fault, LogLine, Policy, Sandbox};

fn folder() -> PathBuf {
    std::env::var_os("ALLOT_COMPONENTS")
        .map_or_else(|| scratch::root().join("policies/prebuilt"), PathBuf::from)
}

fn components() -> Vec<(native::Native, Policy)> {
    let sandbox = Sandbox::new(Caps::default(), None).unwrap();
    let load = |native: native::Native| {
        let bytes = std::fs::read(folder().join(format!("{}.wasm", native.name))).unwrap();
        (native, sandbox.load(&bytes, None).unwrap())
    };
    native::all().into_iter().map(load).collect()
}

#[test]
fn every_policy_that_ships_is_tested_here() {
    let mut ours: Vec<&str> = native::all().iter().map(|n| n.name).collect();
    ours.sort_unstable();
    assert_eq!(allot::shipped::names(), ours);
}

#[test]
fn a_component_plans_as_its_native_twin_on_made_views() {
    for (native, policy) in components() {
        let run = native::run(native.name);
        let run = policy.shown(run.clone(), native.everything(run.prompts));
        let first = (native.begin)(&run).unwrap();
        assert_eq!(policy.begin(&run).unwrap().0, first, "{}", native.name);
        let mut calls = 0;
        for mut made in fixtures::views(native.signals, 1000) {
            fixtures::add_turns(&mut made.view);
            let mut state = first.clone();
            for _ in 0..2 {
                let wasm = policy.decide(&run, &state, &made.view).unwrap().0;
                let plain = (native.decide)(&run, &state, &made.view).unwrap();
                assert_eq!(wasm, plain, "{} on {}", native.name, made.title);
                state = plain.state;
                calls += 1;
            }
        }
        assert!(calls > 2000);
    }
}

/// Asks both, and insists that they agree.
struct Both<'a> {
    native: &'a native::Native,
    policy: &'a Policy,
    calls: usize,
}

impl Decide for Both<'_> {
    fn name(&self) -> &str {
        self.native.name
    }

    fn decide(&mut self, run: &Run, state: &[u8], view: &View) -> Result<(Plan, Vec<LogLine>), Fault> {
        let (wasm, cost) = self.policy.decide(run, state, view)?;
        assert_eq!(
            wasm,
            (self.native.decide)(run, state, view).unwrap(),
            "{} at {}.{}",
            self.native.name,
            view.step,
            view.round
        );
        self.calls += 1;
        Ok((wasm, cost.log))
    }
}

#[test]
fn a_component_plans_as_its_native_twin_over_whole_runs() {
    let config = std::fs::read_to_string(scratch::root().join("configs/simulate.toml")).unwrap();
    let mut config = SimulateConfig::parse(&config, "configs/simulate.toml").unwrap();
    config.budget.rollouts = Some(30_000);
    config.world.prompts = 300;
    config.policy.settings.clear();
    // Episodes, for those that look at turns; the others see their lengths.
    config.world.turns = 3;
    for (native, policy) in components() {
        for seed in 0..3 {
            config.run.seed = seed;
            let run = config.run.run(config.world.prompts, native::defaults(native.name));
            let run = policy.shown(run, native.everything(config.world.prompts));
            let state = (native.begin)(&run).unwrap();
            let both = Both { native: &native, policy: &policy, calls: 0 };
            let mut simulation = Simulation::with(&config, run, both, state).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let mut nobody = ();
            simulation.world.run.of.every = Some(Every::Steps(1000));
            let end = run::run(&mut simulation.world, &mut nobody);
            let Rest::Over(end) = runtime.block_on(end).unwrap() else { panic!("it was paused") };
            assert!(end.normal && simulation.world.policy.calls > 30, "{}: {end:?}", native.name);
        }
    }
}

impl Decide for &native::Native {
    fn name(&self) -> &str {
        self.name
    }

    fn decide(&mut self, run: &Run, state: &[u8], view: &View) -> Result<(Plan, Vec<LogLine>), Fault> {
        Ok(((self.decide)(run, state, view).unwrap(), Vec::new()))
    }
}

/// A judge that fails on one answer in twenty, or on none.
struct Failing(bool);

impl Reward<Flip> for Failing {
    async fn score(&mut self, samples: &[(usize, &Sample<Flip>)]) -> Result<Vec<Verdict>, Error> {
        let fails =
            |s: &Sample<Flip>| self.0 && seed::rollout(7, s.prompt, s.version, s.position).is_multiple_of(20);
        let verdict = |(_, s): &(usize, &Sample<Flip>)| {
            if fails(s) { UNSCORABLE } else { Verdict::plain(f32::from(s.answer.right), s.answer.right) }
        };
        Ok(samples.iter().map(verdict).collect())
    }
}

/// Adds up what was trained on.
struct Trained(u64);

impl<R, P> Callbacks<Coin, R, P> for Trained {
    async fn evaluate(&mut self, world: &mut World<Coin, R, P>) -> Result<Scores, Stop> {
        ().evaluate(world).await
    }

    fn after(&mut self, _: &mut World<Coin, R, P>, step: &StepEnd) -> Result<Go, Stop> {
        self.0 += step.trained;
        Ok(Go::On)
    }
}

#[test]
fn answers_that_nobody_could_judge_cost_themselves_and_no_prompt() {
    let config = std::fs::read_to_string(scratch::root().join("configs/simulate.toml")).unwrap();
    let mut config = SimulateConfig::parse(&config, "configs/simulate.toml").unwrap();
    config.budget.rollouts = Some(20_000);
    for native in native::all() {
        let trained = |fails: bool| {
            let run = config.run.run(config.world.prompts, native::defaults(native.name));
            let run = Run { terms: Some(native.everything(config.world.prompts)), ..run };
            let state = (native.begin)(&run).unwrap();
            let world = Simulation::with(&config, run, &native, state).unwrap().world;
            let mut world = World::new(world.run, world.engine, Failing(fails), world.policy);
            world.run.of.every = Some(Every::Steps(1000));
            let mut trained = Trained(0);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(run::run(&mut world, &mut trained)).unwrap();
            trained.0
        };
        let (all, some) = (trained(false), trained(true));
        assert!(some * 10 > all * 8, "{}: trained on {some} rollouts in place of {all}", native.name);
    }
}

#[test]
fn what_ships_was_built_from_these_sources() {
    let text = std::fs::read_to_string(scratch::root().join("policies/prebuilt/manifest.json")).unwrap();
    let manifest: Manifest = serde_json::from_str(&text).unwrap();
    assert_eq!(
        manifest.components.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(),
        allot::shipped::names()
    );
    for entry in manifest.components {
        let bytes = allot::shipped::component(&entry.name).unwrap();
        let policy = Sandbox::new(Caps::default(), None).unwrap().load(bytes, Some(&entry.sha256));
        assert_eq!(policy.unwrap().description().name, entry.name);
        let sources = build::sources_hash(&scratch::root().join("policies").join(&entry.name)).unwrap();
        assert_eq!(
            sources, entry.sources,
            "policies/{} changed after its component was built; run: policies/build",
            entry.name
        );
    }
}
