//! A simulated run: the real step loop over a world without a model, that of the coins or a bank.

use std::path::Path;

use allot_allocation::{Column, Columns, Ledger, Pool, RolloutBuffer, Run, Terms};
use allot_engine::{Coin, Engine};
use allot_loop::{Constants, Loop, Scores};
use allot_sandbox::{Description, LogLine, Policy};

use crate::callbacks::{Callbacks, Decide};
use crate::head::head;
use crate::policy_loader;
use crate::shadow::Decider;
use crate::stop::Stop;
use crate::summary::{self, Totals};
use crate::world::World;
use allot_base::{Error, Result};
use allot_config::settings;
use allot_config::simulate::SimulateConfig;
use allot_judges::{Reward, RightOrWrong};
use allot_record::{End, Head, Record};

/// An engine without a model: what a simulated run asks of it beside the two verbs.
pub trait Simulated: Engine + Sized {
    /// What judges its rollouts.
    type Judge: Reward<Self::Answer>;

    /// The world that a config describes.
    fn open(config: &SimulateConfig) -> Result<Self>;

    /// Judges its rollouts.
    fn judge() -> Self::Judge;

    /// Lengths of the prompts, in tokens.
    fn prompt_lengths(&self) -> Vec<u32>;

    /// The longest answer, in tokens.
    fn longest(&self) -> u32;

    /// The accuracy, which such a world knows at no cost.
    fn accuracy(&self) -> f64;

    /// The column that a policy asks for by this name; or what there is instead.
    fn column(&self, name: &str) -> Result<Column>;

    /// What the record says of it.
    fn stamp(&self) -> Option<serde_json::Value>;

    /// What the table at a run's end has of it.
    fn rows(&self, totals: &Totals, end: &End) -> Vec<summary::Row>;

    /// The same as JSON.
    fn json(&self, totals: &Totals, end: &End) -> serde_json::Value;

    /// What a line of progress says of an accuracy.
    fn progress(&self, accuracy: f64) -> String {
        format!("  accuracy {accuracy:.4}")
    }

    /// What is to be said of it before a run.
    fn before(&self) -> Option<String> {
        None
    }

    /// What is to be said of it at a run's end: what the run shows, and what it can't.
    fn after(&self, _totals: &Totals) -> Vec<String> {
        Vec::new()
    }
}

/// A run that is ready to start, in a world of this kind.
pub struct SimulatedRun<E: Simulated, P> {
    /// All that there is of it.
    pub world: World<E, E::Judge, P>,
    /// What the policy said as it began.
    pub begun: Vec<LogLine>,
}

/// One in the coin-flip world.
pub type Simulation<P> = SimulatedRun<Coin, P>;

/// A run without callbacks.
impl<E: Simulated, R, P> Callbacks<E, R, P> for () {
    async fn evaluate(&mut self, world: &mut World<E, R, P>) -> std::result::Result<Scores, Stop> {
        Ok(Scores { accuracy: world.engine.accuracy(), ..Scores::default() })
    }
}

impl<'a, E: Simulated> SimulatedRun<E, Decider<'a>> {
    /// Checks everything that can be checked, and builds the world. `log` is where the policy's own
    /// words go. It keeps no record until [`keep`](Self::keep) is called with the head given here.
    pub fn new(config: &SimulateConfig, policy: &'a Policy, log: fn(&LogLine)) -> Result<(Self, Head)> {
        let description = policy.description();
        let engine = E::open(config)?;
        let (prompts, longest) = (engine.prompt_lengths().len() as u32, engine.longest());
        let run = config.run.run(prompts, settings(description, &config.policy.settings)?);
        let terms = Terms { columns: columns(&engine, description)?, ..config.terms(longest) };
        let run = policy.shown(run, terms);
        let (state, cost) = policy_loader::begun(policy, &run, "policy")?;
        let mut simulation = Self::around(config, engine, run, Decider::alone(policy), state)?;
        simulation.world.log = log;
        simulation.world.run.state.buffer = RolloutBuffer::new(description.signals.len());
        let engine = simulation.world.engine.capabilities();
        policy_loader::measurable(description, &engine.name, &engine.signals)?;
        simulation.begun = cost.words().collect();
        simulation.begun.iter().for_each(log);

        let world = &simulation.world;
        let head = Head {
            accuracy: Some(world.engine.accuracy()),
            world: world.engine.stamp(),
            ..head(world, &config.run, &config.budget, config.policy.limits.caps())
        };
        Ok((simulation, head))
    }
}

/// The columns that a policy wants of the world.
fn columns(engine: &impl Simulated, policy: &Description) -> Result<Columns> {
    let mut columns = Columns::default();
    for name in &policy.columns {
        let named =
            |error: Error| Error { what: format!("policy `{}` wants {}", policy.name, error.what), ..error };
        columns.add(engine.column(name).map_err(named)?);
    }
    Ok(columns)
}

impl<E: Simulated, P: Decide> SimulatedRun<E, P> {
    /// Starts a record in this folder.
    pub fn keep(&mut self, folder: &Path, head: Head) -> Result<()> {
        self.world.record = Record::create(&folder.join("record.jsonl"))?;
        Ok(self.world.record.begin(Box::new(head))?)
    }

    /// Builds the world around a policy. It keeps no record.
    pub fn with(config: &SimulateConfig, run: Run, policy: P, state: Vec<u8>) -> Result<Self> {
        Self::around(config, E::open(config)?, run, policy, state)
    }

    fn around(config: &SimulateConfig, engine: E, run: Run, policy: P, state: Vec<u8>) -> Result<Self> {
        let pool = Pool::new(config.run.seed, config.run.order, run.pool, engine.prompt_lengths());
        let state = allot_loop::State::new(
            state,
            pool,
            RolloutBuffer::new(0),
            Ledger::new(config.budget.limits(engine.longest())),
        );
        let every = Some(config.evaluation.when("the config")?);
        let (seed, scale, bounds) = (config.run.seed, config.advantage, config.policy.limits.bounds());
        let run = Loop::new(Constants { run, seed, scale, bounds, every }, config.budget.ceilings(), state);
        Ok(Self { world: World::new(run, engine, E::judge(), policy), begun: Vec::new() })
    }
}

impl Simulated for Coin {
    type Judge = RightOrWrong;

    fn open(config: &SimulateConfig) -> Result<Self> {
        Self::new(config.world.clone(), config.run.seed).map_err(|e| Error::new(e.to_string()))
    }

    fn judge() -> RightOrWrong {
        RightOrWrong
    }

    fn prompt_lengths(&self) -> Vec<u32> {
        self.prompt_lengths()
    }

    fn longest(&self) -> u32 {
        self.config().longest
    }

    fn accuracy(&self) -> f64 {
        self.accuracy()
    }

    fn column(&self, name: &str) -> Result<Column> {
        self.column(name).ok_or_else(|| {
            Error::new(format!("the column `{name}`, which the coin-flip world does not have")).hint(format!(
                "use `difficulty`, `level`, `source` or `length`, for example `world.columns = {{ {name} = \
                 \"level\" }}`"
            ))
        })
    }

    fn stamp(&self) -> Option<serde_json::Value> {
        serde_json::to_value(self.config()).ok()
    }

    fn rows(&self, totals: &Totals, end: &End) -> Vec<summary::Row> {
        totals.accuracies(end)
    }

    fn json(&self, totals: &Totals, end: &End) -> serde_json::Value {
        totals.accuracies_json(end)
    }
}
