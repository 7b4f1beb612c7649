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

/// An answer as token ids. The engine does not handle text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Its tokens, including the stop token or the token in which a stop text ends.
    pub tokens: Vec<u32>,
    /// The log-probability of each token when it was sampled.
    pub log_probs: Vec<f32>,
    /// The tokens that each token was drawn from; empty unless sampling keeps them.
    #[serde(default, skip_serializing_if = "SamplingMask::is_empty")]
    pub mask: SamplingMask,
}

/// A signal that can be measured for each rollout while it is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Mean log-probability of the answer's tokens.
    MeanLogProb,
    /// Mean entropy of the distributions that the tokens were drawn from, in nats.
    MeanEntropy,
}

impl Signal {
    /// All signals.
    pub const ALL: [Self; 2] = [Self::MeanLogProb, Self::MeanEntropy];
    /// Names of the signals, as in policies and records.
    pub const NAMES: [&str; 2] = ["mean-log-prob", "mean-entropy"];

    /// Returns the signal's name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns the signal with this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.name() == name)
    }
}

/// Settings of the engine.
#[derive(Clone, Debug)]
pub struct NativeConfig {
    /// The run's seed.
    pub seed: u64,
    /// How rollouts are sampled.
    pub sampling: Sampling,
    /// How held-out prompts are answered, in each evaluation setting.
    pub evaluation: Vec<Sampling>,
    /// Stop tokens and stop texts.
    pub stops: Stops,
    /// Answers sampled at a time.
    pub rows: usize,
    /// How updates are made.
    pub update: UpdateConfig,
    /// The optimizer.
    pub optimizer: OptimizerConfig,
    /// Planned updates, for the learning rate schedule.
    pub updates: u32,
    /// Signals to measure, in this order.
    pub signals: Vec<Signal>,
}

impl NativeConfig {
    /// Returns how answers for a purpose are sampled.
    pub fn sampling(&self, purpose: Purpose) -> Sampling {
        match purpose {
            Purpose::Training => self.sampling,
            Purpose::Evaluation(setting) => self.evaluation.get(setting).copied().unwrap_or(self.sampling),
        }
    }
}

/// The engine that runs a language model on this machine.
pub struct Native {
    core: Box<dyn Core>,
    config: NativeConfig,
    /// Tokens of each prompt.
    prompts: Vec<Vec<u32>>,
    version: u32,
    /// Largest mean difference of another sampler's log-probabilities, in nats; `None` without one.
    foreign: Option<f64>,
    /// Compute of updates since `computed` was last called.
    computed: Compute,
    /// The copy that learns while this engine samples, in a run with a lag.
    learner: Option<Learner>,
}

impl Native {
    /// Returns an engine over a model and the tokens of all prompts that it may be asked.
    pub fn new(core: Box<dyn Core>, config: NativeConfig, prompts: Vec<Vec<u32>>) -> Self {
        let computed = Compute::default();
        Self { core, config, prompts, version: 0, foreign: None, computed, learner: None }
    }

    /// Makes the engine learn while it samples, with a second copy of the model. If the core cannot
    /// be copied, it samples and learns in turn, with the same results.
    pub fn with_learner(self) -> Result<Self, ModelError> {
        let learner = Learner::of(self.core.as_ref())?;
        Ok(Self { learner, ..self })
    }

    /// Expects rollouts from another engine with the same weights. `tolerance` limits the mean difference
    /// of its log-probabilities, in nats. The difference becomes an importance weight, which is truncated.
    pub fn with_foreign_rollouts(self, tolerance: f64) -> Self {
        Self { foreign: Some(tolerance), ..self }
    }

    /// The engine's settings.
    pub fn config(&self) -> &NativeConfig {
        &self.config
    }

    /// The model.
    pub fn core(&self) -> &dyn Core {
        self.core.as_ref()
    }

    /// Returns a prompt's tokens.
    pub fn prompt(&self, prompt: PromptId) -> &[u32] {
        &self.prompts[prompt.0 as usize]
    }

    /// Resumes training from a checkpoint made after this many updates and optimizer steps.
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

    /// Returns the rollout for an answer to a prompt at a position.
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

    /// Returns an update on these examples, from the current weights.
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
