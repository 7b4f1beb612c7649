//! A simulated run: the real step loop without a model, in the coin-flip world or on a bank.

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

/// An engine without a model, with all that a simulated run needs.
pub trait Simulated: Engine + Sized {
    /// The reward of its rollouts.
    type Judge: Reward<Self::Answer>;

    /// Returns the world that a config describes.
    fn open(config: &SimulateConfig) -> Result<Self>;

    /// Returns the reward of its rollouts.
    fn judge() -> Self::Judge;

    /// Returns the lengths of the prompts, in tokens.
    fn prompt_lengths(&self) -> Vec<u32>;

    /// Returns the length of the longest answer, in tokens.
    fn longest(&self) -> u32;

    /// Returns the accuracy, which this world knows at no cost.
    fn accuracy(&self) -> f64;

    /// Returns the column of this name. The error says what is available instead.
    fn column(&self, name: &str) -> Result<Column>;

    /// Returns its description for the record.
    fn stamp(&self) -> Option<serde_json::Value>;

    /// Returns its rows of the closing table.
    fn rows(&self, totals: &Totals, end: &End) -> Vec<summary::Row>;

    /// Returns its part of the closing table as JSON.
    fn json(&self, totals: &Totals, end: &End) -> serde_json::Value;

    /// Returns the text about an accuracy in a progress message.
    fn progress(&self, accuracy: f64) -> String {
        format!("  accuracy {accuracy:.4}")
    }

    /// Returns a note before the run.
    fn before(&self) -> Option<String> {
        None
    }

    /// Returns notes at the run's end: what the run shows, and what it can't show.
    fn after(&self, _totals: &Totals) -> Vec<String> {
        Vec::new()
    }
}

/// A simulated run that is ready to start.
pub struct SimulatedRun<E: Simulated, P> {
    /// The run and its parts.
    pub world: World<E, E::Judge, P>,
    /// Log lines written by the policy's `begin`.
    pub begun: Vec<LogLine>,
}

/// A run in the coin-flip world.
pub type Simulation<P> = SimulatedRun<Coin, P>;

/// Callbacks that only evaluate.
impl<E: Simulated, R, P> Callbacks<E, R, P> for () {
    async fn evaluate(&mut self, world: &mut World<E, R, P>) -> std::result::Result<Scores, Stop> {
        Ok(Scores { accuracy: world.engine.accuracy(), ..Scores::default() })
    }
}

impl<'a, E: Simulated> SimulatedRun<E, Decider<'a>> {
    /// Makes all checks, and builds the world. `log` receives the policy's log lines. There is no record
    /// until [`keep`](Self::keep) is called with the returned head.
    pub fn new(config: &SimulateConfig, policy: &'a Policy, log: fn(&LogLine)) -> Result<(Self, Head)> {
        Self::on(E::open(config)?, config, policy, log)
    }

    /// Does the same in a world that is open already.
    pub fn on(
        engine: E,
        config: &SimulateConfig,
        policy: &'a Policy,
        log: fn(&LogLine),
    ) -> Result<(Self, Head)> {
        let description = policy.description();
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

/// Returns the columns that a policy needs from the world.
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

    /// Builds the world around a policy, without a record.
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
        let run = Loop::new(
            Constants { run, seed, scale, bounds, every, retries: 0 },
            config.budget.ceilings(),
            state,
        );
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
