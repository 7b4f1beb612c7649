//! The engine that trains on this machine and samples on a server.

use std::collections::HashMap;
use std::path::Path;

use allot_allocation::{Compute, Geometry, Grant, GrantLine, PromptId, Stopped, TurnLength};
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
use super::request::SampleRequest;
use super::sampler::{Missed, Sampler};
use crate::engine::SIGNALS;
use crate::patience::patient;
use crate::sample::{RolloutKey, RolloutLimits, wire_seed};

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

    /// Plays the episodes of a grant, with the current weights.
    async fn play(
        &self,
        environments: &mut dyn Environments,
        ((grant, purpose), wanted): ((&Grant, Purpose), &[RolloutKey]),
        label: &str,
        came: &mut Sampled<Answer>,
        (whole, interrupt): (Whole<'_, Answer>, &Interrupt),
    ) -> Result<(), EngineError> {
        let Self { native, fleet, handover, .. } = self;
        let (tell, told) = Talk::channel();
        let episodes = native.open(environments, (grant, purpose), &tell);
        let table = Table::new(native, (episodes, environments), told, wanted.len());
        let folder = handover.seen(label);
        let weights = LabelledWeights { label, folder: &folder, version: native.version() };
        let loaded = || handover.leave(Some(label));
        let signals = native.config().signals.len();
        let playing = |sampler, i: usize| table.play((sampler, label), i, wanted[i], signals);
        let played = fleet.sample(weights, came, whole, interrupt, playing, loaded);
        tokio::select! {
            biased;
            played = played => played,
            () = table.attend(interrupt) => Ok(()),
        }
    }

    /// Samples all wanted rollouts with the current weights. Servers that lack the weights get them first.
    async fn all(
        &mut self,
        (wanted, purpose): (&[RolloutKey], Purpose),
        came: &mut Sampled<Answer>,
        whole: Whole<'_, Answer>,
        interrupt: &Interrupt,
    ) -> Result<(), EngineError> {
        if wanted.is_empty() || interrupt.is_asked() {
            return Ok(());
        }
        let version = self.native.version();
        let label = self.handover.put(self.native.core(), version)?;
        let folder = self.handover.seen(&label);
        let Self { native, fleet, handover, .. } = &*self;
        let weights = LabelledWeights { label: &label, folder: &folder, version };
        let loaded = || handover.leave(Some(&label));
        let asking = |sampler, i: usize| ask(native, sampler, (wanted[i], purpose), &label);
        fleet.sample(weights, came, whole, interrupt, asking, loaded).await
    }
}

/// Requests one rollout, sampled with the weights of a label.
async fn ask(
    native: &Native,
    sampler: &Sampler,
    (place, purpose): (RolloutKey, Purpose),
    label: &str,
) -> Result<Sample<Answer>, Missed> {
    let config = native.config();
    let sampling = config.sampling(purpose).with(place.sampling);
    let request = SampleRequest {
        prompt: native.prompt(place.prompt),
        seed: wire_seed(config.seed, place.prompt, place.version, place.position),
        sampling,
        stops: &config.stops,
    };
    let limits = RolloutLimits {
        vocabulary: native.core().shape().vocabulary,
        longest: sampling.max_tokens as usize,
        signals: config.signals.len(),
    };
    sampler.rollout(request, place, limits, label).await
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
        if let Some(mut environments) = self.native.take_environments() {
            let played = async {
                if wanted.is_empty() || interrupt.is_asked() {
                    return Ok(());
                }
                let label = self.handover.put(self.native.core(), version)?;
                let asked = ((&grant, purpose), wanted.as_slice());
                self.play(environments.as_mut(), asked, &label, &mut came, (whole, interrupt)).await
            };
            let played = patient(played, interrupt).await;
            self.native.put_environments(environments)?;
            played.unwrap_or(Ok(()))?;
            return Ok(came);
        }
        let all = patient(self.all((&wanted, purpose), &mut came, whole, interrupt), interrupt).await;
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
