//! The engine that trains on this machine and samples on a server.

use std::collections::HashMap;
use std::path::Path;

use allot_allocation::{Compute, Geometry, Grant, GrantLine, PromptId, Stopped, TurnLength, seed};
use allot_engine::model::ModelError;
use allot_engine::talk::Talk;
use allot_engine::{
    Answer, Capabilities, Cost, Engine, EngineError, Environments, Example, Interrupt, Native, Purpose,
    Report, Sample, Sampled, Whole,
};
use allot_settings::rollouts::{RolloutsConfig, ServerKind};

use super::episodes::Table;
use super::fleet::{Fleet, LabelledWeights};
use super::handover::Handover;
use super::sampler::{Missed, Sampler};
use crate::engine::SIGNALS;
use crate::patience::patient;
use crate::sample::RolloutKey;

/// The engine that trains on this machine and samples on a server.
pub struct Split {
    native: Native,
    fleet: Fleet,
    handover: Handover,
    kind: ServerKind,
}

impl Split {
    /// Returns an engine with a native model and servers. `notice` is called when a server is unavailable.
    pub fn new(
        native: Native,
        config: &RolloutsConfig,
        handover: Handover,
        notice: fn(&str),
    ) -> Result<Self, EngineError> {
        let fleet = Fleet::open(config, native.config().rows, notice)?;
        let native = native.with_foreign_rollouts(config.tolerance);
        Ok(Self { native, fleet, handover, kind: config.kind })
    }

    /// Returns the native engine, which trains.
    pub fn native(&self) -> &Native {
        &self.native
    }

    /// Resumes from a checkpoint, made after this many updates and optimizer steps.
    pub fn restore(
        &mut self,
        folder: &Path,
        model: &Path,
        version: u32,
        steps: u32,
    ) -> Result<(), ModelError> {
        self.fleet.forget();
        self.native.restore(folder, model, version, steps)
    }

    /// Samples all wanted rollouts of a grant with the current weights, as episodes in these environments if there are
    /// any. Servers that lack the weights get them first.
    async fn all(
        &mut self,
        (grant, purpose, wanted): (&Grant, Purpose, &[RolloutKey]),
        environments: Option<&mut dyn Environments>,
        came: &mut Sampled<Answer>,
        (whole, interrupt): (Whole<'_, Answer>, &Interrupt),
    ) -> Result<(), EngineError> {
        if wanted.is_empty() || interrupt.is_asked() {
            return Ok(());
        }
        let version = self.native.version();
        let label = self.handover.put(self.native.core(), version)?;
        let folder = self.handover.seen(&label);
        let Self { native, fleet, handover, .. } = &*self;
        let label = label.as_str();
        let weights = LabelledWeights { label, folder: &folder, version };
        let loaded = || handover.leave(Some(label));
        let Some(environments) = environments else {
            let asking = |sampler, i: usize| ask(native, sampler, (wanted[i], purpose), label);
            return fleet.sample(weights, came, whole, interrupt, asking, loaded).await;
        };
        let (tell, told) = Talk::channel();
        let episodes = native.open(environments, (grant, purpose), &tell);
        let table = Table::new(native, (episodes, environments), told, wanted.len());
        let playing = |sampler, i: usize| table.play((sampler, label), i, wanted[i]);
        tokio::select! {
            biased;
            played = fleet.sample(weights, came, whole, interrupt, playing, loaded) => played,
            () = table.attend(interrupt) => Ok(()),
        }
    }
}

/// Requests one rollout, sampled with the weights of a label.
async fn ask(
    native: &Native,
    sampler: &Sampler,
    (place, purpose): (RolloutKey, Purpose),
    label: &str,
) -> Result<Sample<Answer>, Missed> {
    let seed = seed::rollout(native.config().seed, place.prompt, place.version, place.position);
    let sampling = native.config().sampling(purpose).with(place.sampling);
    sampler.ask(native, (native.prompt(place.prompt), seed, sampling), place, label).await
}

impl Engine for Split {
    type Answer = Answer;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: format!("native+{}", self.kind.name()),
            signals: SIGNALS.iter().map(|s| (*s).to_owned()).collect(),
        }
    }

    fn version(&self) -> u32 {
        self.native.version()
    }

    async fn sample(
        &mut self,
        grant: Grant,
        purpose: Purpose,
        whole: Whole<'_, Answer>,
        interrupt: &Interrupt,
    ) -> Result<Sampled<Answer>, EngineError> {
        let version = self.native.version();
        let of = |line: &GrantLine| {
            let (prompt, sampling) = (line.prompt, line.sampling);
            (line.first..line.first + line.count).map(move |position| RolloutKey {
                prompt,
                position,
                version,
                sampling,
            })
        };
        let wanted: Vec<RolloutKey> = grant.lines().iter().flat_map(of).collect();
        let mut came: Sampled<Answer> = vec![None; wanted.len()];
        let asked = (&grant, purpose, wanted.as_slice());
        let mut environments = self.native.take_environments();
        let playing = environments.as_deref_mut().map(|all| all as &mut dyn Environments);
        let all = patient(self.all(asked, playing, &mut came, (whole, interrupt)), interrupt).await;
        if let Some(environments) = environments {
            self.native.put_environments(environments)?;
        }
        all.unwrap_or(Ok(()))?;
        Ok(came)
    }

    fn hold(&mut self, rollouts: HashMap<(PromptId, u32), Answer>) {
        self.native.hold(rollouts);
    }

    fn turns(answer: &Answer) -> Option<(Vec<TurnLength>, Stopped)> {
        Native::turns(answer)
    }

    fn sampled(&self, lines: &[GrantLine], samples: &[Sample<Answer>]) -> Compute {
        self.native.sampled(lines, samples)
    }

    async fn update(
        &mut self,
        batch: &[Example<'_, Answer>],
        geometry: Option<Geometry>,
        interrupt: &Interrupt,
    ) -> Result<Report, EngineError> {
        self.native.update(batch, geometry, interrupt).await
    }

    /// The server continues to sample with the weights that it has.
    async fn begin(
        &mut self,
        batch: &[Example<'_, Answer>],
        geometry: Option<Geometry>,
        interrupt: &Interrupt,
    ) -> Result<(), EngineError> {
        self.native.begin(batch, geometry, interrupt).await
    }

    fn computed(&mut self) -> Compute {
        self.native.computed()
    }

    fn cost(&self, prompt: PromptId, tokens: u32) -> Cost {
        self.native.cost(prompt, tokens)
    }
}
