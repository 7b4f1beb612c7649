//! The short run at the end of a check: the real loop, in the coin-flip world.

use std::collections::BTreeMap;

use allot_allocation::LENGTH;
use allot_config::simulate::SimulateConfig;
use allot_engine::Coin;
use allot_loop::{Every, Scores};
use allot_record::StepEnd;
use allot_sandbox::Policy;

use crate::callbacks::{Callbacks, Go};
use crate::commands::check::time::Time;
use crate::run;
use crate::run::Rest;
use crate::simulation::Simulation;
use crate::stop::Stop;
use crate::world::World;

/// Its config.
const CONFIG: &str = "
[run]
seed = 1
steps = 40
groups = 8
rollouts = 8
[budget]
rollouts = 20000
[policy]
use = \"the one at hand\"
[requests]
temperature = [0.5, 1.5]
least_tokens = 16
[world]
prompts = 200
";

/// Runs it. Returns how it ended, or none if the time was over first.
pub fn simulate(
    policy: &Policy,
    typed: &BTreeMap<String, toml::Value>,
    time: Time,
) -> Result<Option<String>, String> {
    let mut config = SimulateConfig::parse(CONFIG, "the check's run").map_err(|error| error.what)?;
    config.policy.settings.clone_from(typed);
    // Invents the columns and signals that the policy needs.
    let description = policy.description();
    let named = description.columns.iter().filter(|name| *name != LENGTH);
    config.world.columns = named.map(|name| (name.clone(), "level".to_owned())).collect();
    config.world.signals.clone_from(&description.signals);
    if description.plays() {
        config.world.turns = 4;
    }
    let (mut simulation, _) = Simulation::new(&config, policy, |_| {}).map_err(|error| error.what)?;
    let runtime = allot_remote::runtime().map_err(|e| e.to_string())?;
    let mut clock = Clock { time };
    simulation.world.run.of.every = Some(Every::Steps(u32::MAX));
    let run = run::run(&mut simulation.world, &mut clock);
    let end = match runtime.block_on(run) {
        Ok(Rest::Over(end)) => end,
        Ok(_) => return Ok(None),
        Err(Stop::Policy { fault, .. }) if time.ended(&fault) => return Ok(None),
        Err(stop) => return Err(stop.to_string()),
    };
    Ok(Some(format!("{} steps, {} rollouts, {}", end.steps, end.spent.run_rollouts, end.reason)))
}

/// Pauses the run when the time is over.
struct Clock {
    time: Time,
}

impl<R, P> Callbacks<Coin, R, P> for Clock {
    async fn evaluate(&mut self, world: &mut World<Coin, R, P>) -> Result<Scores, Stop> {
        ().evaluate(world).await
    }

    fn after(&mut self, _: &mut World<Coin, R, P>, _: &StepEnd) -> Result<Go, Stop> {
        Ok(if self.time.is_over() { Go::Pause } else { Go::On })
    }
}
