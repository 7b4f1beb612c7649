//! The engine that learns here and samples on a server.

use std::path::Path;

use allot_allocation::{Compute, Geometry, Grant, GrantLine, PromptId};
use allot_engine::model::ModelError;
use allot_engine::{
    Answer, Capabilities, Cost, Engine, EngineError, Example, Interrupt, Native, Report, Sample, Sampled,
    Whole,
};
use futures_util::StreamExt as _;

use super::config::{RolloutsConfig, ServerKind};
use super::handover::Handover;
use super::request::SampleRequest;
use super::sampler::{Missed, Sampler};
use crate::client::{Client, Failure, told};
use crate::engine::SIGNALS;
use crate::patience::patient;
use crate::sample::{Limits, RolloutKey, wire_seed};

/// How often in a row a server may lose its weights before it is no longer believed in.
const LOSSES: u32 = 5;

/// The engine.
pub struct Split {
    native: Native,
    sampler: Sampler,
    handover: Handover,
    kind: ServerKind,
    /// The version that the server was given last, and its label.
    given: Option<(u32, String)>,
}

impl Split {
    /// An engine over a model here and a server. `notice` is told when the server is away.
    pub fn new(
        native: Native,
        config: &RolloutsConfig,
        handover: Handover,
        notice: fn(&str),
    ) -> Result<Self, EngineError> {
        let sampler = Sampler::new(Client::open(config.address(), notice)?, config);
        let native = native.with_foreign_rollouts(config.tolerance);
        Ok(Self { native, sampler, handover, kind: config.kind, given: None })
    }

    /// The engine that learns.
    pub fn native(&self) -> &Native {
        &self.native
    }

    /// Takes up training where a checkpoint left it, after this many updates and steps of the optimizer.
    pub fn restore(
        &mut self,
        folder: &Path,
        model: &Path,
        version: u32,
        steps: u32,
    ) -> Result<(), ModelError> {
        self.given = None;
        self.native.restore(folder, model, version, steps)
    }

    /// Gives the server the weights of now, unless it has them. Gives their label.
    async fn give(&mut self) -> Result<String, EngineError> {
        let version = self.native.version();
        if let Some((at, label)) = &self.given
            && *at == version
        {
            return Ok(label.clone());
        }
        let label = self.handover.put(self.native.core(), version)?;
        let loaded = self.sampler.load(&self.handover.seen(&label), &label).await;
        loaded.map_err(|failure| self.plain(failure))?;
        self.handover.leave(Some(&label));
        self.given = Some((version, label.clone()));
        Ok(label)
    }

    /// What is left of a failure when nothing can be done about it.
    fn plain(&self, failure: Failure) -> EngineError {
        let client = &self.sampler.client;
        match failure {
            Failure::Stop(error) => error,
            Failure::Refused { verb, status, detail } => client.refused(&verb, status, &detail),
            Failure::Lost(detail) => client.refused("a request", 404, &detail),
        }
    }

    /// Asks for what has not come yet, some at a time, and takes it as it comes.
    async fn ask(
        &self,
        wanted: &[RolloutKey],
        label: &str,
        came: &mut [Option<Sample<Answer>>],
        whole: Whole<'_, Answer>,
        interrupt: &Interrupt,
    ) -> Result<(), Missed> {
        let config = self.native.config();
        let one = |i: usize| async move {
            let place = wanted[i];
            let sampling = self.native.sampling(place.prompt).with(place.sampling);
            let request = SampleRequest {
                prompt: self.native.prompt(place.prompt),
                seed: wire_seed(config.seed, place.prompt, place.version, place.position),
                sampling,
                stops: &config.stops,
            };
            let limits = Limits {
                vocabulary: self.native.core().shape().vocabulary,
                longest: sampling.max_tokens as usize,
                signals: config.signals.len(),
            };
            self.sampler.rollout(request, place, limits, label).await.map(|rollout| (i, rollout))
        };
        let missing: Vec<usize> = (0..wanted.len()).filter(|i| came[*i].is_none()).collect();
        // What is under way may come, and nothing more is asked for.
        let missing = missing.into_iter().take_while(|_| !interrupt.is_asked());
        let mut stream = futures_util::stream::iter(missing).map(one).buffer_unordered(config.rows);
        while let Some(done) = stream.next().await {
            let (i, rollout) = done?;
            whole(i, came[i].insert(rollout));
        }
        Ok(())
    }

    /// The same, from a server that is given its weights again where it loses them, until all have come or somebody asks
    /// to stop.
    async fn all(
        &mut self,
        wanted: &[RolloutKey],
        came: &mut [Option<Sample<Answer>>],
        whole: Whole<'_, Answer>,
        interrupt: &Interrupt,
    ) -> Result<(), EngineError> {
        let mut losses = 0;
        while came.iter().any(Option::is_none) && !interrupt.is_asked() {
            let label = self.give().await?;
            let before = came.iter().flatten().count();
            let missed = self.ask(wanted, &label, came, whole, interrupt).await.err();
            if came.iter().flatten().count() > before {
                losses = 0;
            }
            match missed {
                None => {}
                Some(Missed::Weights(other)) => self.forget(&other, &mut losses)?,
                Some(Missed::Failure(failure)) => return Err(self.plain(failure)),
            }
        }
        Ok(())
    }

    /// After rollouts of other weights: whether the same may be asked for again, once the server has these.
    fn forget(&mut self, other: &str, losses: &mut u32) -> Result<(), EngineError> {
        let url = &self.sampler.client.to().url;
        *losses += 1;
        if *losses > LOSSES {
            let what =
                format!("the server at {url} lost the weights {losses} times in a row: it has `{other}`");
            return Err(told(what, "it may be out of memory, or several may be behind one address"));
        }
        let version = self.native.version();
        let what = format!("the server at {url} has the weights `{other}`, as if it was started anew");
        self.sampler.client.notice(&format!("{what}; it gets those after {version} updates again"));
        self.given = None;
        Ok(())
    }
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
        let all = patient(self.all(&wanted, &mut came, whole, interrupt), interrupt).await;
        all.unwrap_or(Ok(()))?;
        Ok(came)
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

    /// The server goes on sampling by the weights that it was given.
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
