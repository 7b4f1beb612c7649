//! A simulated run: the real step loop over the coin-flip world.

use std::path::Path;

use allot_allocation::{Columns, Ledger, Pool, RolloutBuffer, Run, Terms};
use allot_engine::{Coin, Engine as _, Interrupt};
use allot_loop::{Constants, Loop, Scores};
use allot_sandbox::{Description, LogLine, Policy};

use crate::callbacks::{Callbacks, Decide};
use crate::shadow::Decider;
use crate::shipped;
use crate::stop::Stop;
use crate::world::{Clock, World};
use allot_config::settings;
use allot_config::simulate::SimulateConfig;
use allot_error::{Error, Result, listed};
use allot_judges::RightOrWrong;
use allot_record::{FORMAT, Head, Record, hex};

/// A run that is ready to start.
pub struct Simulation<P> {
    /// All that there is of it.
    pub world: World<Coin, RightOrWrong, P>,
    /// What the policy said as it began.
    pub begun: Vec<LogLine>,
}

/// A run that nobody looks at. The coin-flip world knows its accuracy, at no cost.
impl<R, P> Callbacks<Coin, R, P> for () {
    async fn evaluate(&mut self, world: &mut World<Coin, R, P>) -> std::result::Result<Scores, Stop> {
        Ok(Scores { accuracy: world.engine.accuracy(), ..Scores::default() })
    }
}

impl<'a> Simulation<Decider<'a>> {
    /// Checks everything that can be checked, and builds the world. `log` is where the policy's own
    /// words go. It keeps no record until [`keep`](Self::keep) is called with the head given here.
    pub fn new(config: &SimulateConfig, policy: &'a Policy, log: fn(&LogLine)) -> Result<(Self, Head)> {
        let description = policy.description();
        let run = config.run.run(config.world.prompts, settings(description, &config.policy.settings)?);
        let run = policy.shown(run, Terms { columns: columns(config, description)?, ..config.terms() });
        let (state, cost) = policy
            .begin(&run)
            .map_err(|fault| Error::told(format!("policy `{}` {fault}", description.name), fault.hint()))?;
        let first = hex(&state);
        let mut simulation = Self::with(config, run, Decider::alone(policy), state)?;
        simulation.world.log = log;
        simulation.world.run.state.buffer = RolloutBuffer::new(description.signals.len());
        let can = simulation.world.engine.capabilities();
        if let Some(missing) = description.signals.iter().find(|s| !can.signals.contains(s)) {
            let name = &description.name;
            let error = Error::new(format!(
                "policy `{name}` wants the signal `{missing}`, which engine `{}` can't measure",
                can.name
            ));
            return Err(error.hint(format!("it measures {}", listed(can.signals.iter().map(String::as_str)))));
        }
        simulation.begun = cost.words().collect();
        simulation.begun.iter().for_each(log);

        let head = Head {
            format: FORMAT,
            name: config.run.name.clone(),
            allot: env!("CARGO_PKG_VERSION").to_owned(),
            policy: shipped::policy_stamp(policy),
            engine: can.name,
            signals: description.signals.clone(),
            seed: config.run.seed,
            order: config.run.order,
            run: simulation.world.run.of.run.clone(),
            limits: config.budget.limits(config.world.longest),
            ceilings: config.budget.ceilings(),
            caps: shipped::stamp(config.policy.caps.caps()),
            state: first,
            accuracy: Some(simulation.world.engine.accuracy()),
            scores: Vec::new(),
            advantage: Some(config.advantage),
            training: None,
            world: serde_json::to_value(&config.world).ok(),
        };
        Ok((simulation, head))
    }
}

/// The columns that a policy wants of the world.
fn columns(config: &SimulateConfig, policy: &Description) -> Result<Columns> {
    let mut columns = Columns::default();
    if policy.columns.is_empty() {
        return Ok(columns);
    }
    let coin = Coin::new(config.world.clone(), config.run.seed).map_err(|e| Error::new(e.to_string()))?;
    for name in &policy.columns {
        columns.add(coin.column(name).ok_or_else(|| {
            let what = format!("policy `{}` wants the column `{name}`, which the coin-flip world does not have", policy.name);
            Error::new(what).hint(format!(
                "it has `difficulty`, `level` and `length`; to take one of them: `world.columns = {{ {name} = \"level\" }}`"
            ))
        })?);
    }
    Ok(columns)
}

impl<P: Decide> Simulation<P> {
    /// Starts a record in this folder.
    pub fn keep(&mut self, folder: &Path, head: Head) -> Result<()> {
        self.world.record = Record::create(&folder.join("record.jsonl"))?;
        Ok(self.world.record.begin(Box::new(head))?)
    }

    /// Builds the world around whoever decides. It keeps no record.
    pub fn with(config: &SimulateConfig, run: Run, policy: P, state: Vec<u8>) -> Result<Self> {
        let engine =
            Coin::new(config.world.clone(), config.run.seed).map_err(|e| Error::new(e.to_string()))?;
        let pool = Pool::new(config.run.seed, config.run.order, run.pool, engine.prompt_lengths());
        let state = allot_loop::State::new(
            state,
            pool,
            RolloutBuffer::new(0),
            Ledger::new(config.budget.limits(config.world.longest)),
        );
        let every = Some(config.evaluation.when("the config")?);
        let (seed, scale, bounds) = (config.run.seed, config.advantage, config.policy.caps.bounds());
        let world = World {
            run: Loop::new(Constants { run, seed, scale, bounds, every }, config.budget.ceilings(), state),
            engine,
            reward: RightOrWrong,
            policy,
            samples: std::collections::HashMap::new(),
            paid: Vec::new(),
            record: Record::none(),
            log: |_| {},
            interrupt: Interrupt::new(),
            clock: Clock::new(),
        };
        Ok(Self { world, begun: Vec::new() })
    }
}
