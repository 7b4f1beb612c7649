//! Runs with a lag: which weights a rollout is sampled by follows from the plans alone. Sampling while learning comes to
//! what one after the other comes to, to the last bit.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::time::Duration;

use allot::callbacks::{Callbacks, CameIn, Decide};
use allot::run::{self, Rest};
use allot::simulation::Simulation;
use allot::stop::Stop;
use allot::world::World;
use allot_allocation::advantage::Scale;
use allot_allocation::rules::Bounds;
use allot_allocation::{
    Action, Advantage, Batch, Ceilings, Ledger, Limits, Order, Pick, Plan, Pool, Request, RolloutBuffer, Run,
    Settled, View,
};
use allot_config::simulate::SimulateConfig;
use allot_engine::cpu::Setup;
use allot_engine::model::{Checkpoint, Precision};
use allot_engine::{
    Answer, Engine, Native, NativeConfig, OptimizerConfig, Sample, Sampling, UpdateConfig, place,
};
use allot_judges::{Reward, Verdict};
use allot_loop::{Constants, Learned, Loop, Scores, State};
use allot_record::{Line, Record, StepEnd};
use allot_sandbox::{Fault, LogLine};
use candle_core::Device;

/// Samples some groups and trains on all of them. In every fourth step it trains on none.
struct Some4;

impl Decide for Some4 {
    fn name(&self) -> &'static str {
        "some"
    }

    fn decide(&mut self, run: &Run, _state: &[u8], view: &View) -> Result<(Plan, Vec<LogLine>), Fault> {
        let action = if view.round == 0 && view.budget.run_rollouts > 0 {
            let prompts = view.pool.iter().take(run.groups as usize);
            Action::Sample(prompts.map(|p| Request::new(p.id, run.rollouts)).collect())
        } else {
            let pick = |prompt| Pick { prompt, rollouts: None, advantage: Advantage::Picked, weight: 1.0 };
            let picks = view.groups.iter().filter(|_| view.step % 4 != 3).map(|g| pick(g.prompt));
            Action::Train(Batch { picks: picks.collect(), ..Batch::default() })
        };
        Ok((Plan::of(action), Vec::new()))
    }
}

/// The lines of a record's steps, and its text.
fn told(folder: &Path) -> (Vec<StepEnd>, String) {
    let text = std::fs::read_to_string(folder.join("record.jsonl")).unwrap();
    let steps = text.lines().filter_map(|line| match serde_json::from_str(line).unwrap() {
        Line::Step(step) => Some(*step),
        _ => None,
    });
    (steps.collect(), text)
}

const COIN: &str = r#"
[run]
seed = 1
steps = 9
groups = 3
rollouts = 4
[budget]
rollouts = 1000
[policy]
use = "some"
[world]
prompts = 25
"#;

/// Which version each rollout was sampled at, by step.
#[derive(Default)]
struct Versions(Vec<(u32, u32)>);

impl<R, P> Callbacks<allot_engine::Coin, R, P> for Versions {
    async fn evaluate(&mut self, world: &mut World<allot_engine::Coin, R, P>) -> Result<Scores, Stop> {
        Ok(Scores { accuracy: world.engine.accuracy(), ..Scores::default() })
    }

    fn sampled(&mut self, came: CameIn<'_, allot_engine::Flip>) -> Result<(), Stop> {
        self.0.extend(came.samples.iter().map(|sample| (came.round.step, sample.version)));
        Ok(())
    }
}

#[test]
fn a_step_is_sampled_at_the_weights_before_the_updates_that_it_does_not_wait_for() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for lag in [0_u32, 1, 2, 4] {
        let mut config = SimulateConfig::parse(COIN, "test").unwrap();
        config.run.lag = lag;
        let run = config.run.run(config.world.prompts, Vec::new());
        let mut simulation = Simulation::with(&config, run, Some4, Vec::new()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        simulation.world.record = Record::create(&folder.path().join("record.jsonl")).unwrap();
        let mut versions = Versions::default();
        let rest = runtime.block_on(run::run(&mut simulation.world, &mut versions)).unwrap();
        let Rest::Over(end) = rest else { panic!("it was paused") };
        let (steps, _) = told(folder.path());
        assert_eq!((steps.len(), end.steps), (9, 9), "all updates are made");
        // Updates that were decided on before a step, and those of them that were made.
        let updates = |until: u32| (0..until).filter(|step| step % 4 != 3).count() as u32;
        for (step, version) in versions.0 {
            assert_eq!(version, updates(step.saturating_sub(lag)), "step {step} with a lag of {lag}");
        }
        for end in &steps {
            let (step, updated) = (end.step, end.step % 4 != 3);
            let age = if updated { updates(step) - updates(step.saturating_sub(lag)) } else { 0 };
            assert_eq!((end.updated, end.mean_age), (updated, f64::from(age)), "step {step}, lag {lag}");
        }
    }
}

#[test]
fn a_lag_that_makes_each_rollout_too_old_is_refused() {
    for (lag, max_age, words) in [
        (
            2,
            1,
            "`run.lag` is 2 and `run.max_age` 1: each rollout would be older than that when it is first trained on",
        ),
        (9, 20, "`run.lag` is 9; expected 0 to 8"),
    ] {
        let config = COIN.replace("seed = 1", &format!("seed = 1\nlag = {lag}\nmax_age = {max_age}"));
        let error = SimulateConfig::parse(&config, "test").unwrap_err();
        assert_eq!((error.what.as_str(), error.hints.len()), (format!("`test`: {words}").as_str(), 1));
    }
}

/// Right where the first token is an even one.
struct Even;

impl Reward<Answer> for Even {
    async fn score(&mut self, samples: &[(usize, &Sample<Answer>)]) -> allot_base::Result<Vec<Verdict>> {
        let verdict = |(_, sample): &(usize, &Sample<Answer>)| {
            let right = sample.answer.tokens[0].is_multiple_of(2);
            Verdict::plain(f32::from(right), right)
        };
        Ok(samples.iter().map(verdict).collect())
    }
}

/// Somebody who makes every sampling or every update take long.
struct Slow {
    sampling: bool,
}

impl<P> Callbacks<Native, Even, P> for Slow {
    async fn evaluate(&mut self, world: &mut World<Native, Even, P>) -> Result<Scores, Stop> {
        Ok(Scores { accuracy: f64::from(world.engine.version()), ..Scores::default() })
    }

    fn settled(&mut self, _: &Settled, _: &[Learned]) -> Result<(), Stop> {
        // In between an update that was begun has all the time that it wants.
        if self.sampling {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// A run of a model that ships: its record's text, and the weights at its end.
fn trained(lag: u32, beside: bool, slow: bool) -> (String, Vec<f32>) {
    let checkpoint = Checkpoint::load(&allot_models::find("tiny-sums").unwrap(), &Device::Cpu).unwrap();
    let setup =
        Setup { precision: Precision::F32, threads: 2, longest: 16, lora: None, reference: false, seed: 1 };
    let core = place::core(&Device::Cpu, &checkpoint, setup).unwrap();
    let sampling = Sampling { max_tokens: 6, ..Sampling::default() };
    let config = NativeConfig {
        seed: 1,
        sampling,
        evaluation: vec![sampling],
        stops: [0].into(),
        rows: 16,
        update: UpdateConfig::default(),
        optimizer: OptimizerConfig { learning_rate: 1e-3, ..OptimizerConfig::default() },
        updates: 9,
        signals: Vec::new(),
    };
    let prompts: Vec<Vec<u32>> = (0..20).map(|i| vec![1 + i % 5, 2 + i % 7, 3]).collect();
    let lengths = prompts.iter().map(|p| p.len() as u32).collect();
    let native = Native::new(core, config, prompts);
    let engine = if beside { native.with_learner().unwrap() } else { native };
    let run = Run {
        settings: Vec::new(),
        prompts: 20,
        steps: 9,
        groups: 4,
        rollouts: 6,
        pool: 8,
        max_age: 5,
        lag,
        terms: None,
    };
    let limits =
        Limits { rounds: 4, step_rollouts: None, run_rollouts: Some(180), run_tokens: None, longest: 6 };
    let pool = Pool::new(1, Order::Shuffled, run.pool, lengths);
    let state = State::new(Vec::new(), pool, RolloutBuffer::new(0), Ledger::new(limits));
    let every = Some(allot_loop::Every::Steps(2));
    let of =
        Constants { run, seed: 1, scale: Scale::default(), bounds: Bounds::default(), every, retries: 0 };
    let folder = tempfile::tempdir().unwrap();
    let run = Loop::new(of, Ceilings { flops: None, seconds: None }, state);
    let mut world = World::new(run, engine, Even, Some4);
    world.record = Record::create(&folder.path().join("record.jsonl")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let rest = runtime.block_on(run::run(&mut world, &mut Slow { sampling: slow })).unwrap();
    assert!(matches!(rest, Rest::Over(_)));
    assert!(world.samples.is_empty(), "nothing is kept of what was trained on");
    (told(folder.path()).1, world.engine.core().weights().unwrap().into_owned())
}

#[test]
fn sampling_while_learning_comes_to_what_one_after_the_other_comes_to() {
    let mut all = Vec::new();
    for lag in [0, 1, 2] {
        let plain = trained(lag, false, false);
        for slow in [false, true] {
            let beside = trained(lag, true, slow);
            assert!(plain.0 == beside.0, "lag {lag}: the record");
            assert!(
                plain.1.iter().map(|w| w.to_bits()).eq(beside.1.iter().map(|w| w.to_bits())),
                "lag {lag}"
            );
        }
        all.push(plain);
    }
    assert!(all[0].0 != all[1].0 && all[1].0 != all[2].0, "a lag is not without effect");
}
