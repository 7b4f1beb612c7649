//! The engine that runs a language model on this machine.

mod episodes;

use std::collections::HashMap;
use std::path::Path;

use allot_allocation::{
    Compute, Geometry, Grant, GrantLine, PromptId, SamplerSettings, Stopped, TurnLength, seed,
};
use serde::{Deserialize, Serialize};

use crate::core::{Answered, Core, Request};
use crate::flops::Lengths;
use crate::learner::{Learner, Lesson, Work};
use crate::model::ModelError;
use crate::training_row::TrainingRow;
use crate::update::{UpdateConfig, learning_flops};
use crate::{
    Capabilities, Cost, Engine, EngineError, Environments, Episode, Example, Interrupt, OptimizerConfig,
    Purpose, Report, Sample, Sampled, Sampling, SamplingMask, Stops, Whole,
};

pub use episodes::{Episodes, Following};

/// An answer as token ids, or an episode's turns. The engine does not handle text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Its generated tokens, including the stop token or the token in which a stop text ends.
    pub tokens: Vec<u32>,
    /// The log-probability of each token when it was sampled.
    pub log_probs: Vec<f32>,
    /// The tokens that each token was drawn from; empty unless sampling keeps them.
    #[serde(default, skip_serializing_if = "SamplingMask::is_empty")]
    pub mask: SamplingMask,
    /// Its turns, if it is an episode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub episode: Option<Box<Episode>>,
}

impl Answer {
    /// Returns its training rows, at least one.
    pub fn rows(&self) -> Vec<TrainingRow> {
        let episode = self.episode.as_ref();
        episode.map_or_else(
            || vec![TrainingRow::of_answer(&self.tokens)],
            |episode| TrainingRow::of_turns(&episode.turns, &self.tokens),
        )
    }

    /// Returns the advantage of each generated token, from that of each turn. Empty if there is none.
    fn by_token(&self, by_turn: &[f32]) -> Vec<f32> {
        let turns = self.episode.iter().flat_map(|episode| &episode.turns);
        by_turn.iter().zip(turns).flat_map(|(a, turn)| vec![*a; turn.tokens as usize]).collect()
    }

    /// Returns the tokens that were generated in the last turn; all, if it is no episode.
    pub fn last_turn(&self) -> &[u32] {
        let last = self.episode.as_ref().and_then(|episode| episode.turns.last());
        let tokens = last.map_or(self.tokens.len(), |turn| turn.tokens as usize);
        &self.tokens[self.tokens.len().saturating_sub(tokens)..]
    }

    /// Returns the number of tokens that it read: what its environment said, and what it keeps of another episode.
    pub fn read(&self) -> usize {
        self.episode.as_ref().map_or(0, |episode| episode.read())
    }
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

/// A granted rollout: its prompt, its position, and its own sampling settings.
type Place = (PromptId, u32, Option<SamplerSettings>);

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
    /// The environments, if rollouts are episodes.
    environments: Option<Box<dyn Environments>>,
    /// Whether episodes may continue others.
    continues: bool,
    /// The episodes that the next grant continues, by prompt and position.
    held: HashMap<(PromptId, u32), Answer>,
}

impl Native {
    /// Returns an engine over a model and the tokens of all prompts that it may be asked.
    pub fn new(core: Box<dyn Core>, config: NativeConfig, prompts: Vec<Vec<u32>>) -> Self {
        Self {
            core,
            config,
            prompts,
            version: 0,
            foreign: None,
            computed: Compute::default(),
            learner: None,
            environments: None,
            continues: false,
            held: HashMap::new(),
        }
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

    /// Makes rollouts episodes in these environments.
    pub fn with_environments(self, environments: Box<dyn Environments>) -> Self {
        Self { environments: Some(environments), ..self }
    }

    /// Lets episodes continue others, which the bound on costs then includes.
    pub fn with_starts(self) -> Self {
        Self { continues: true, ..self }
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
        (prompt, position, sampling): Place,
        answered: Answered,
        episode: Option<Box<Episode>>,
    ) -> Sample<Answer> {
        let Answered { tokens, log_probs, entropy, truncated, mask } = answered;
        let log_prob: f64 = log_probs.iter().map(|l| f64::from(*l)).sum();
        let signal = |signal: &Signal| match signal {
            // An episode may end before its first token.
            Signal::MeanLogProb => (log_prob / tokens.len().max(1) as f64) as f32,
            Signal::MeanEntropy => entropy,
        };
        Sample {
            prompt,
            position,
            version: self.version,
            tokens: tokens.len() as u32,
            truncated,
            log_prob,
            signals: self.config.signals.iter().map(signal).collect(),
            answer: Answer { tokens, log_probs, mask, episode },
            sampling,
        }
    }

    /// Returns what is learned from a rollout: each of its training rows.
    fn lessons(&self, example: &Example<'_, Answer>) -> Vec<Lesson> {
        let Example { sample, advantage, by_turn } = *example;
        let (answer, by_token) = (&sample.answer, sample.answer.by_token(by_turn));
        let one = |(i, row): (usize, TrainingRow)| {
            let beginning = row.beginning.as_deref().unwrap_or_else(|| self.prompt(sample.prompt));
            let at = beginning.len();
            Lesson {
                tokens: [beginning, &row.own].concat(),
                prompt: at,
                observed: row.read.iter().map(|range| range.start + at..range.end + at).collect(),
                sampled: row.gather(&answer.log_probs),
                mask: answer.mask.gather(&row.generated),
                temperature: self.config.sampling.with(sample.sampling).divisor(),
                stale: sample.version != self.version,
                truncated: sample.truncated,
                advantage,
                by_token: row.gather(&by_token),
                further: i > 0,
                whole: answer.tokens.len(),
            }
        };
        answer.rows().into_iter().enumerate().map(one).collect()
    }

    /// Returns an update on these examples, from the current weights.
    fn work(&self, batch: &[Example<'_, Answer>], geometry: Option<Geometry>) -> Work {
        Work {
            lessons: batch.iter().flat_map(|example| self.lessons(example)).collect(),
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
        if let Some(mut environments) = self.take_environments() {
            let samples = self.play(environments.as_mut(), (&grant, purpose), whole, interrupt);
            let ended = self.put_environments(environments);
            return samples.and_then(|samples| ended.map(|()| samples));
        }
        let sampling = self.config.sampling(purpose);
        let mut places = Vec::new();
        let mut requests = Vec::new();
        for line in grant.lines() {
            for position in line.first..line.first + line.count {
                places.push((line.prompt, position, line.sampling));
                requests.push(Request {
                    prompt: self.prompt(line.prompt),
                    history: &[],
                    seed: seed::rollout(self.config.seed, line.prompt, self.version, position),
                    sampling: sampling.with(line.sampling),
                });
            }
        }
        let mut samples: Vec<Option<Sample<Answer>>> = vec![None; requests.len()];
        let take = &mut |number: usize, answered| {
            whole(number, samples[number].insert(self.told(places[number], answered, None)));
        };
        self.core.sample(&requests, &self.config.stops, self.config.rows, take, interrupt)?;
        Ok(samples)
    }

    fn hold(&mut self, rollouts: HashMap<(PromptId, u32), Answer>) {
        self.held = rollouts;
    }

    fn turns(answer: &Answer) -> Option<(Vec<TurnLength>, Stopped)> {
        let episode = answer.episode.as_ref()?;
        let turns = episode.turns.iter().map(|turn| TurnLength(turn.read.len() as u32, turn.tokens));
        Some((turns.collect(), episode.stopped))
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
        // What an environment may say at most is part of the bound.
        let read = self.environments.as_ref().map_or(0, |environments| environments.limits().read as usize);
        // And what was generated in another episode.
        let read = if self.continues { read + self.config.sampling.max_tokens as usize } else { read };
        let (prompt, answer) = (self.prompt(prompt).len(), tokens as usize);
        let lengths = Lengths { prompt, answer, read };
        let anew = self.config.update.old_log_probs.may_be_computed(self.foreign.is_some());
        Cost {
            reading: shape.prefill_flops(prompt),
            answering: shape.decode_flops(lengths),
            learning: learning_flops(shape, adapted, &self.config.update, lengths, anew),
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
