//! The engine that runs a language model on this machine.

use std::path::Path;

use allot_allocation::{Compute, Geometry, Grant, GrantLine, PromptId, SamplerSettings, seed};
use serde::{Deserialize, Serialize};

use crate::core::{Answered, Core, Request};
use crate::learner::{Learner, Lesson, Work};
use crate::model::ModelError;
use crate::update::{UpdateConfig, learning_flops};
use crate::{
    Capabilities, Cost, Engine, EngineError, Example, Interrupt, OptimizerConfig, Purpose, Report, Sample,
    Sampled, Sampling, SamplingMask, Stops, Whole,
};

/// An answer in tokens: the engine knows nothing of text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Its tokens, with the one that stopped it, or in which a text did.
    pub tokens: Vec<u32>,
    /// The log-probability of each when it was sampled.
    pub log_probs: Vec<f32>,
    /// What its tokens were drawn from, where that is kept.
    #[serde(default, skip_serializing_if = "SamplingMask::is_empty")]
    pub mask: SamplingMask,
}

/// What can be measured of each rollout while it is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Mean log-probability of the answer's tokens.
    MeanLogProb,
    /// Mean entropy of the distributions that they were drawn from, in nats.
    MeanEntropy,
}

impl Signal {
    /// Each of them.
    pub const ALL: [Self; 2] = [Self::MeanLogProb, Self::MeanEntropy];
    /// Their names, as policies and records have them.
    pub const NAMES: [&str; 2] = ["mean-log-prob", "mean-entropy"];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The one of a name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.name() == name)
    }
}

/// How the engine works.
#[derive(Clone, Debug)]
pub struct NativeConfig {
    /// The run's seed.
    pub seed: u64,
    /// How rollouts are sampled.
    pub sampling: Sampling,
    /// How held-out prompts are answered, in each setting that they are scored in.
    pub evaluation: Vec<Sampling>,
    /// What ends an answer.
    pub stops: Stops,
    /// Answers at a time.
    pub rows: usize,
    /// How updates are made.
    pub update: UpdateConfig,
    /// The optimizer.
    pub optimizer: OptimizerConfig,
    /// Updates planned, for the schedule of the learning rate.
    pub updates: u32,
    /// Signals to measure, in this order.
    pub signals: Vec<Signal>,
}

impl NativeConfig {
    /// How answers for a purpose are drawn.
    pub fn sampling(&self, purpose: Purpose) -> Sampling {
        match purpose {
            Purpose::Training => self.sampling,
            Purpose::Evaluation(setting) => self.evaluation.get(setting).copied().unwrap_or(self.sampling),
        }
    }
}

/// The engine.
pub struct Native {
    core: Box<dyn Core>,
    config: NativeConfig,
    /// The prompts, in tokens.
    prompts: Vec<Vec<u32>>,
    version: u32,
    /// Where rollouts are sampled by another engine: how far its log-probabilities may lie from this one's.
    foreign: Option<f64>,
    /// By updates, since it was told of last.
    computed: Compute,
    /// What learns while this samples, in a run with a lag.
    learner: Option<Learner>,
}

impl Native {
    /// An engine over a model and the prompts that it may be asked, in tokens.
    pub fn new(core: Box<dyn Core>, config: NativeConfig, prompts: Vec<Vec<u32>>) -> Self {
        let computed = Compute::default();
        Self { core, config, prompts, version: 0, foreign: None, computed, learner: None }
    }

    /// The same, that learns while it samples, by a second copy of the model. Where the model is on a device on which there
    /// is only one, it does one after the other, which comes to the same.
    pub fn with_learner(self) -> Result<Self, ModelError> {
        let learner = Learner::of(self.core.as_ref())?;
        Ok(Self { learner, ..self })
    }

    /// The same, for rollouts that another engine samples at these weights. Its log-probabilities may lie so far
    /// from this one's, on average, in nats: the difference counts as an importance weight, which is cut.
    pub fn with_foreign_rollouts(self, tolerance: f64) -> Self {
        Self { foreign: Some(tolerance), ..self }
    }

    /// How it works.
    pub fn config(&self) -> &NativeConfig {
        &self.config
    }

    /// The model.
    pub fn core(&self) -> &dyn Core {
        self.core.as_ref()
    }

    /// A prompt's tokens.
    pub fn prompt(&self, prompt: PromptId) -> &[u32] {
        &self.prompts[prompt.0 as usize]
    }

    /// Takes up training where a checkpoint left it, after this many updates and steps of the optimizer.
    pub fn restore(
        &mut self,
        folder: &Path,
        model: &Path,
        version: u32,
        optimizer_steps: u32,
    ) -> Result<(), ModelError> {
        self.core.load_training(folder, model, optimizer_steps)?;
        self.version = version;
        if self.learner.is_some() {
            self.learner = Learner::of(self.core.as_ref())?;
        }
        Ok(())
    }

    /// A rollout, of an answer to a prompt at a position.
    fn told(
        &self,
        (prompt, position, sampling): (PromptId, u32, Option<SamplerSettings>),
        answered: Answered,
    ) -> Sample<Answer> {
        let log_prob: f64 = answered.log_probs.iter().map(|l| f64::from(*l)).sum();
        let signal = |signal: &Signal| match signal {
            Signal::MeanLogProb => (log_prob / answered.tokens.len() as f64) as f32,
            Signal::MeanEntropy => answered.entropy,
        };
        Sample {
            prompt,
            position,
            version: self.version,
            tokens: answered.tokens.len() as u32,
            truncated: answered.truncated,
            log_prob,
            signals: self.config.signals.iter().map(signal).collect(),
            answer: Answer { tokens: answered.tokens, log_probs: answered.log_probs, mask: answered.mask },
            sampling,
        }
    }

    /// An update on these examples, from the weights of now.
    fn work(&self, batch: &[Example<'_, Answer>], geometry: Option<Geometry>) -> Work {
        let one = |example: &Example<'_, Answer>| {
            let Example { sample, advantage } = *example;
            let prompt = self.prompt(sample.prompt);
            Lesson {
                tokens: [prompt, &sample.answer.tokens].concat(),
                prompt: prompt.len(),
                sampled: sample.answer.log_probs.clone(),
                mask: sample.answer.mask.clone(),
                temperature: self.config.sampling.with(sample.sampling).divisor(),
                stale: sample.version != self.version,
                truncated: sample.truncated,
                advantage,
            }
        };
        Work {
            lessons: batch.iter().map(one).collect(),
            update: self.config.update.cut(geometry),
            optimizer: self.config.optimizer,
            longest: self.config.sampling.max_tokens as usize,
            progress: f64::from(self.version) / f64::from(self.config.updates.max(1)),
            foreign: self.foreign,
        }
    }
}

impl Engine for Native {
    type Answer = Answer;

    fn capabilities(&self) -> Capabilities {
        Capabilities { name: "native".to_owned(), signals: Signal::NAMES.map(str::to_owned).to_vec() }
    }

    fn version(&self) -> u32 {
        self.version
    }

    async fn sample(
        &mut self,
        grant: Grant,
        purpose: Purpose,
        whole: Whole<'_, Answer>,
        interrupt: &Interrupt,
    ) -> Result<Sampled<Answer>, EngineError> {
        let sampling = self.config.sampling(purpose);
        let mut places = Vec::new();
        let mut requests = Vec::new();
        for line in grant.lines() {
            for position in line.first..line.first + line.count {
                places.push((line.prompt, position, line.sampling));
                requests.push(Request {
                    prompt: self.prompt(line.prompt),
                    seed: seed::rollout(self.config.seed, line.prompt, self.version, position),
                    sampling: sampling.with(line.sampling),
                });
            }
        }
        let mut samples: Vec<Option<Sample<Answer>>> = vec![None; requests.len()];
        let take = &mut |number: usize, answered| {
            whole(number, samples[number].insert(self.told(places[number], answered)));
        };
        self.core.sample(&requests, &self.config.stops, self.config.rows, take, interrupt)?;
        Ok(samples)
    }

    fn sampled(&self, lines: &[GrantLine], samples: &[Sample<Answer>]) -> Compute {
        self.core.shape().sampled(lines, samples, |prompt| self.prompt(prompt).len())
    }

    async fn update(
        &mut self,
        batch: &[Example<'_, Answer>],
        geometry: Option<Geometry>,
        interrupt: &Interrupt,
    ) -> Result<Report, EngineError> {
        let work = self.work(batch, geometry);
        let (report, computed) = match &mut self.learner {
            Some(learner) => learner.finish(self.core.as_mut(), &work, interrupt)?,
            None => work.make(self.core.as_mut(), interrupt)?,
        };
        self.computed += computed;
        self.version += 1;
        Ok(report)
    }

    async fn begin(
        &mut self,
        batch: &[Example<'_, Answer>],
        geometry: Option<Geometry>,
        interrupt: &Interrupt,
    ) -> Result<(), EngineError> {
        let work = self.learner.is_some().then(|| self.work(batch, geometry));
        if let (Some(learner), Some(work)) = (&mut self.learner, work) {
            learner.begin(work, interrupt)?;
        }
        Ok(())
    }

    fn computed(&mut self) -> Compute {
        std::mem::take(&mut self.computed)
    }

    fn cost(&self, prompt: PromptId, tokens: u32) -> Cost {
        let (shape, adapted) = (self.core.shape(), self.core.adapted());
        let (prompt, answer) = (self.prompt(prompt).len(), tokens as usize);
        let anew = self.config.update.old_log_probs.may_be_computed(self.foreign.is_some());
        Cost {
            reading: shape.prefill_flops(prompt),
            answering: shape.decode_flops(prompt, answer),
            learning: learning_flops(shape, adapted, &self.config.update, (prompt, answer), anew),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_known_by_its_name_and_no_other_is_one() {
        for signal in Signal::ALL {
            assert_eq!(Signal::of(signal.name()), Some(signal));
        }
        assert_eq!(["entropy", "", "mean-log-probs"].map(Signal::of), [None; 3]);
    }
}
