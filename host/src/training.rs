//! A training run: the real step loop with a language model, on this machine, on a server, or on both.

use std::path::Path;
use std::sync::Arc;

use allot_allocation::{Ledger, Need, Pool, RolloutBuffer, TokenCosts, shown};
use allot_base::{Error, Result};
use allot_engine::core::Core;
use allot_engine::model::Checkpoint;
use allot_engine::{Engine as _, Environments, Native, NativeConfig, Sampling, Signal, place};
use allot_judges::episodes::Episodes;
use allot_judges::graded::Graded;
use allot_judges::graders::Graders;
use allot_loop::{Constants, Loop};
use allot_remote::Remote;
use allot_remote::rollouts::Split;
use allot_sandbox::LogLine;
use candle_core::Device;

use crate::checkpoint::RunState;
use crate::engines::{self, AnyEngine};
use crate::evaluation::Evaluation;
use crate::prepared::Prepared;
use crate::run_dir;
use crate::shadow::Decider;
use crate::world::World;

/// The world of a training run.
pub type Trained<'a> = World<AnyEngine, Graded, Decider<'a>>;

impl<'a> Prepared<'a> {
    /// Loads the weights and builds the world, without a record. Also returns the evaluation and the hash
    /// of the weights.
    pub fn build(&self, log: fn(&LogLine)) -> Result<(Trained<'a>, Evaluation, String)> {
        let (config, prompts) = (&self.config, &self.problems.prompts[..self.problems.train]);
        let lengths: Vec<u32> = prompts.iter().map(|prompt| prompt.len() as u32).collect();
        let (engine, fingerprint) = self.engine()?;

        let all = Arc::clone(&self.problems.all);
        let longest = config.sampling.max_tokens;
        let mut run = self.run.clone();
        if let Some(terms) = &mut run.terms {
            terms.costs = TokenCosts::over(&lengths, longest, |prompt, tokens| engine.cost(prompt, tokens));
        }
        let known = self.judges.iter().map(|met| met.as_ref().map(|met| met.identity.clone())).collect();
        let tokens = Arc::clone(&self.tokens);
        let graders = Graders::new(config.reward.clone(), &all, longest, known)?;
        let reward = Graded::new(tokens, Arc::clone(&all), graders).ending_at(self.stops.clone());
        let sets = self.problems.sets.clone();
        let (settings, unjudged) = (config.evaluation.settings(), config.evaluation.unjudged);
        let evaluation = Evaluation::new(sets, all, settings, unjudged, longest);
        let state = allot_loop::State::new(
            self.state.clone(),
            Pool::new(config.run.seed, config.run.order, self.run.pool, lengths),
            RolloutBuffer::new(self.policy.description().signals.len() + self.run.parts().len()),
            Ledger::new(config.budget.limits(longest)),
        );
        let constants = Constants {
            run,
            seed: config.run.seed,
            scale: config.advantage,
            bounds: config.policy.limits.bounds(),
            every: Some(config.evaluation.when("the config")?),
            retries: config.environment.as_ref().map_or(0, |environment| environment.retries),
        };
        let run = Loop::new(constants, config.budget.ceilings(), state);
        let world = World { log, ..World::new(run, engine, reward, Decider::alone(self.policy)) };
        Ok((world, evaluation, fingerprint))
    }

    /// Returns the engine with its weights, and their hash.
    fn engine(&self) -> Result<(AnyEngine, String)> {
        let (native, prompts) = (self.native()?, self.problems.prompts.clone());
        if let Some(server) = self.config.engine.server() {
            let remote = Remote::new(server, native, self.shape.clone(), prompts, run_dir::note)?;
            let fingerprint = allot_models::fingerprint_of_name(&server.base_model);
            return Ok((AnyEngine::Remote(Box::new(remote)), fingerprint));
        }
        let core = self.core()?;
        let fingerprint = {
            let weights = core.weights()?;
            self.finite(&weights)?;
            allot_models::fingerprint(core.arena(), &weights)
        };
        let native = Native::new(core, native, prompts);
        let native = match self.environments() {
            None => native,
            Some(environments) => native.with_environments(environments),
        };
        let continues = self.policy.description().needs.contains(&Need::Starting);
        let native = if continues { native.with_starts() } else { native };
        let native = if self.config.run.lag > 0 { native.with_learner()? } else { native };
        Ok((self.here(native)?, fingerprint))
    }

    /// Returns the environments of episodes, if rollouts are episodes.
    fn environments(&self) -> Option<Box<dyn Environments>> {
        let settings = self.config.environment.as_ref()?;
        let speech = (Arc::clone(&self.tokens), self.stops.clone());
        if let Some(embedded) = settings.environment.embedded() {
            let problems = Arc::clone(&self.problems.all);
            return Some(Box::new(Episodes::new(settings, embedded, speech, problems)));
        }
        let asked = (Arc::clone(&self.problems.all), self.problems.prompts.clone());
        Some(self.outside.as_ref()?.open(settings, speech, asked))
    }

    /// Returns the config of the native engine.
    fn native(&self) -> Result<NativeConfig> {
        let config = &self.config;
        let signal = |name: &String| {
            let what = format!("`{}` is not a signal that can be measured", shown::name(name));
            Signal::of(name).ok_or_else(|| Error::new(what))
        };
        Ok(NativeConfig {
            seed: config.run.seed,
            sampling: Sampling { keep_mask: config.update.keep_sampling_mask, ..config.sampling },
            evaluation: config.evaluation_samplings(),
            stops: self.stops.clone(),
            rows: config.model.rows,
            update: config.update,
            optimizer: config.optimizer,
            updates: config.run.steps,
            signals: self.policy.description().signals.iter().map(signal).collect::<Result<_>>()?,
        })
    }

    /// Returns an engine that trains on this machine, and samples here or on a server.
    fn here(&self, native: Native) -> Result<AnyEngine> {
        let Some(rollouts) = &self.config.rollout_server else {
            return Ok(AnyEngine::Native(Box::new(native)));
        };
        let text = run_dir::text(&self.config)?;
        let handover = engines::handover(rollouts, Arc::clone(&self.tokens), &text);
        Ok(AnyEngine::Split(Box::new(Split::new(native, rollouts, handover, run_dir::note)?)))
    }

    /// Fails if weights are not finite: sampling needs probabilities.
    fn finite(&self, weights: &[f32]) -> Result<()> {
        let broken = weights.iter().filter(|w| !w.is_finite()).count();
        if broken == 0 {
            return Ok(());
        }
        let (model, all) = (&self.config.model.source, weights.len());
        let what = format!(
            "the weights of `{model}` are not finite: {broken} of {all} are NaN or infinite in its files"
        );
        Err(Error::new(what).hint("use another copy of the model, or a checkpoint from before it broke"))
    }

    /// Loads the model onto its device.
    fn core(&self) -> Result<Box<dyn Core>> {
        let checkpoint = Checkpoint::load(&self.path, &Device::Cpu)?;
        Ok(place::core(&self.device, &checkpoint, self.setup)?)
    }

    /// Restores the state in a checkpoint's folder.
    pub fn restore(&self, world: &mut Trained<'_>, folder: &Path, state: RunState<'_>) -> Result<()> {
        world.engine.restore(folder, &state)?;
        world.samples = state.samples.into_iter().map(|(id, sample)| (id, sample.into_owned())).collect();
        world.paid = state.paid.into_owned();
        world.run = Loop::new(world.run.of.clone(), self.config.budget.ceilings(), state.run);
        Ok(())
    }
}
