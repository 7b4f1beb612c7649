//! Steps of a run with the engine faked: as they are, and part by part.

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;

use allot::callbacks::{Callbacks, Decide, Go};
use allot::shipped;
use allot::stop::Stop;
use allot::world::World;
use allot_allocation::{Order, Plan, Pool, PromptId, RolloutBuffer, Run, View, Visit};
use allot_authoring::component;
use allot_loop::Scores;
use allot_record::{Record, StepEnd};
use allot_sandbox::{Caps, Fault, LogLine, Policy, Sandbox};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::fake::{self, EveryThird, Fake};
use crate::parts::{Part, Shown, Twin, Watching};

/// A run to measure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    /// A policy that ships.
    pub policy: String,
    /// Prompts in the data set.
    pub prompts: u32,
    /// Groups of an update.
    pub groups: u32,
    /// Rollouts of a group.
    pub rollouts: u32,
    /// Prompts on offer.
    pub pool: u32,
    /// Steps to measure, after a first one.
    pub steps: u32,
}

/// What steps came to. Times are CPU time.
#[derive(Serialize, Deserialize)]
pub struct Steps {
    /// Milliseconds a step.
    pub step: f64,
    /// Rollouts a step.
    pub rollouts: f64,
    /// Bytes of the record for each rollout.
    pub bytes: f64,
    /// Megabytes that the process held at its peak.
    pub memory: f64,
    /// Megabytes that a call of the policy held at its peak.
    pub guest_memory: f64,
    /// Wasm instructions of the longest call.
    pub fuel: f64,
    /// Milliseconds until the first step could begin: pool, an epoch's order, and the first prompts on offer.
    pub start: f64,
}

/// Steps as they are.
pub fn plain(case: &Case) -> Steps {
    let sandbox = Sandbox::new(Caps::default(), None).unwrap();
    let policy = loaded(&sandbox, case);
    let run = case.run(&policy);
    let decider = Asking::of(&policy);
    let calls = Rc::clone(&decider.calls);
    let began = clock::thread();
    let mut pool = Pool::new(1, Order::Shuffled, case.pool, vec![100; case.prompts as usize]);
    pool.top_up(&RolloutBuffer::new(0));
    let start = clock::thread() - began;
    drop(pool);
    let mut world = case.world(&run, decider, &policy);
    finish(&mut world, &mut Nobody);
    let (rollouts, bytes) = (world.run.state.ledger.spent().run_rollouts, world.record.bytes());
    let began = clock::thread();
    (0..case.steps).for_each(|_| finish(&mut world, &mut Nobody));
    let each = 1.0 / f64::from(case.steps);
    let step = (clock::thread() - began) * each;
    let rollouts = (world.run.state.ledger.spent().run_rollouts - rollouts) as f64;
    let (guest_memory, fuel) = *calls.borrow();
    Steps {
        step: step * 1e3,
        rollouts: rollouts * each,
        bytes: (world.record.bytes() - bytes) as f64 / rollouts.max(1.0),
        memory: clock::memory(),
        guest_memory: guest_memory as f64 / 1e6,
        fuel: fuel as f64,
        start: start * 1e3,
    }
}

/// Milliseconds a step of each part.
pub fn parts(case: &Case) -> Vec<(Part, f64)> {
    let sandbox = Sandbox::new(Caps::default(), None).unwrap();
    let policy = loaded(&sandbox, case);
    let run = case.run(&policy);
    let idle = sandbox.load(&idle(), None).unwrap();
    let world = case.world(&run, Asking::of(&policy), &policy);
    let twin = Rc::new(RefCell::new(Twin::of(&world, run.max_age)));
    let watching = Watching { policy: &policy, idle: &idle, twin: Rc::clone(&twin) };
    let mut world = case.world(&run, watching, &policy);
    let mut watch = Shown(Rc::clone(&twin));
    finish(&mut world, &mut watch);
    twin.borrow_mut().forget();
    (0..case.steps).for_each(|_| finish(&mut world, &mut watch));
    let twin = twin.borrow();
    Part::ALL.map(|part| (part, twin.seconds(part) * 1e3 / f64::from(case.steps))).to_vec()
}

impl Case {
    /// The run as a policy sees it.
    pub fn run(&self, policy: &Policy) -> Run {
        let settings = allot_config::typed(&self.settings(), "").unwrap();
        let settings = allot_config::settings(policy.description(), &settings).unwrap();
        let Self { prompts, groups, rollouts, pool, .. } = *self;
        Run { settings, prompts, steps: u32::MAX, groups, rollouts, pool, max_age: 5, lag: 0, terms: None }
    }

    /// Settings that make a policy sample about as many rollouts of a group as the case has.
    fn settings(&self) -> Vec<String> {
        let n = self.rollouts;
        let quarter = (n / 4).max(1);
        match self.policy.as_str() {
            "knapsack" => vec![format!("max-rollouts={}", 4 * n)],
            "pilot-commit" => vec![format!("pilot={quarter}"), format!("commit={}", n - quarter)],
            "pods" => vec![format!("keep={}", (n / 2).max(1))],
            "reinforce-ada" => vec![format!("repeat={quarter}")],
            _ => Vec::new(),
        }
    }

    /// A world in which every prompt was visited once. Its record is made, and written to nowhere.
    pub fn world<P: Decide>(&self, run: &Run, decider: P, policy: &Policy) -> World<Fake, EveryThird, P> {
        let record = Record::to(Box::new(Nowhere), Path::new("nowhere"));
        let mut world = fake::world(decider, policy.begin(run).unwrap().0, run, record);
        let visits: Vec<Visit> = (0..self.prompts).map(visit).collect();
        world.run.state.pool.remember(0, &visits);
        world.run.state.steps = 1;
        world
    }
}

/// A visit of eight rollouts, of which the more were right the higher the prompt's number is in its eight.
fn visit(prompt: u32) -> Visit {
    let correct = prompt % 9;
    let mean = correct as f32 / 8.0;
    let deviation = (mean * (1.0 - mean)).sqrt();
    let flat = correct == 0 || correct == 8;
    Visit { prompt: PromptId(prompt), rollouts: 8, correct, mean, deviation, tokens: 203.0, flat }
}

/// The policy of a case.
pub fn loaded(sandbox: &Sandbox, case: &Case) -> Policy {
    sandbox.load(shipped::component(&case.policy).unwrap(), None).unwrap()
}

/// A guest that looks at nothing: what is left of its call is copying the view.
fn idle() -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("tests/guests");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let text = read("frame.wat").replace(";; DECIDE", &read("trains_on_nothing.wat"));
    component::of_module(text.as_bytes(), "guest").unwrap()
}

/// One step.
fn finish<P: Decide>(
    world: &mut World<Fake, EveryThird, P>,
    callbacks: &mut impl Callbacks<Fake, EveryThird, P>,
) {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().build().unwrap();
    }
    RUNTIME.with(|runtime| {
        if let Err(stop) = runtime.block_on(fake::step(world, callbacks)) {
            eprintln!("{stop}");
            std::process::exit(1);
        }
    });
}

/// A policy that is asked, and the most memory and the most instructions of a call.
pub struct Asking<'a> {
    policy: &'a Policy,
    calls: Rc<RefCell<(usize, u64)>>,
}

impl<'a> Asking<'a> {
    /// Of a policy that was not asked yet.
    pub fn of(policy: &'a Policy) -> Self {
        Self { policy, calls: Rc::default() }
    }
}

impl Decide for Asking<'_> {
    fn name(&self) -> &str {
        &self.policy.description().name
    }

    fn decide(&mut self, run: &Run, state: &[u8], view: &View) -> Result<(Plan, Vec<LogLine>), Fault> {
        let (plan, cost) = self.policy.decide(run, state, view)?;
        let mut calls = self.calls.borrow_mut();
        *calls = (calls.0.max(cost.memory), calls.1.max(cost.fuel));
        Ok((plan, Vec::new()))
    }
}

/// Takes what is written and keeps nothing.
struct Nowhere;

impl Write for Nowhere {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Nobody, who lets each step be the last for now.
struct Nobody;

impl<R, P> Callbacks<Fake, R, P> for Nobody {
    async fn evaluate(&mut self, _: &mut World<Fake, R, P>) -> Result<Scores, Stop> {
        Ok(Scores::default())
    }

    fn after(&mut self, _: &mut World<Fake, R, P>, _: &StepEnd) -> Result<Go, Stop> {
        Ok(Go::Pause)
    }
}
