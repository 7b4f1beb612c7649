//! One update in the protocol's words: rollouts as data, advantages scaled so that the server's loss is ours,
//! and what came back held against our own loss.
//!
//! A policy loss is homogeneous in its advantages: whatever mean a server takes over tokens and sequences, an
//! advantage times the right number undoes it. Importance weights of rollouts of earlier versions are such
//! numbers too, one for each token.

use allot_engine::loss::{LossInputs, LossNormalization, Part, part};
use allot_engine::{LossKind, Old, OptimizerConfig, UpdateConfig};
use allot_settings::server::{Can, Cuts, Mean};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::client::{Client, Failure};
use crate::protobuf::{Datum, LossNumber, Outcome, Passed, PassedSequence, Tensor};

/// A rollout to learn from.
#[derive(Clone)]
pub(crate) struct TrainingSample {
    /// Prompt and answer.
    pub(crate) tokens: Vec<u32>,
    /// How many of them are the prompt.
    pub(crate) prompt: usize,
    /// Log-probabilities when it was sampled.
    pub(crate) sampled: Vec<f32>,
    /// Those that ratios are measured from.
    pub(crate) old: Vec<f32>,
    /// Whether those are computed anew.
    pub(crate) anew: bool,
    /// Whether the weights changed since it was sampled.
    pub(crate) stale: bool,
    /// Whether it has no part in the loss. Its advantage is 0 then.
    pub(crate) masked: bool,
    pub(crate) advantage: f32,
}

/// What a server answers to `optim_step`. Not all say anything.
#[derive(Deserialize)]
pub(crate) struct Stepped {
    pub(crate) metrics: Option<Map<String, Value>>,
}

impl Outcome for Stepped {}

impl Stepped {
    /// The norm of the gradients, where it is told.
    pub(crate) fn norm(&self) -> Option<f64> {
        let metrics = self.metrics.as_ref()?;
        let (_, value) = metrics.iter().find(|(name, _)| name.ends_with("grad_norm"))?;
        Some(value.as_f64().unwrap_or(f64::NAN))
    }
}

/// An optimizer step's lessons, and what their losses are measured over.
pub(crate) struct Batch {
    pub(crate) over: LossNormalization,
    pub(crate) lessons: Vec<TrainingSample>,
}

/// The batches of one pass. Those without an advantage count in the means, and are not sent; where a batch has
/// nothing else, one is, for the step to be made.
pub(crate) fn batches(lessons: Vec<TrainingSample>, update: &UpdateConfig, longest: usize) -> Vec<Batch> {
    let size = if update.mini_batch == 0 { lessons.len() } else { update.mini_batch };
    let correction = if update.old_log_probs == Old::Decoupled { update.correction } else { 1.0 };
    lessons
        .chunks(size.max(1))
        .map(|batch| {
            let tokens = batch.iter().filter(|l| !l.masked).map(|l| l.sampled.len()).sum();
            let mut counting: Vec<TrainingSample> =
                batch.iter().filter(|l| l.advantage != 0.0).cloned().collect();
            if counting.is_empty() {
                counting.extend(batch.first().cloned());
            }
            Batch {
                over: LossNormalization { answers: batch.len(), tokens, longest, correction },
                lessons: counting,
            }
        })
        .collect()
}

impl Batch {
    /// What each token's advantage is multiplied with, so that the server's mean comes to ours.
    fn scale(&self, kind: LossKind, can: Can, lesson: &TrainingSample) -> f64 {
        let tokens = lesson.sampled.len().max(1);
        let each = self.over.each(kind, tokens);
        match can.loss {
            Mean::Sum => each,
            Mean::SequenceMean => each * (tokens * self.lessons.len()) as f64,
        }
    }

    /// A lesson as a datum.
    pub(crate) fn datum(&self, update: &UpdateConfig, can: Can, lesson: &TrainingSample) -> Datum {
        let scale = self.scale(update.loss.kind, can, lesson) * f64::from(lesson.advantage);
        let sampled = if update.old_log_probs == Old::Decoupled { &lesson.sampled } else { &lesson.old };
        let advantages: Vec<f32> = (0..lesson.old.len())
            .map(|t| {
                let weight = (f64::from(lesson.old[t]) - f64::from(sampled[t])).exp();
                (scale * weight.min(self.over.correction)) as f32
            })
            .collect();
        bare(lesson, can.weights)
            .with("logprobs", Tensor::floats(&padded(lesson, &lesson.old)))
            .with("advantages", Tensor::floats(&padded(lesson, &advantages)))
    }

    /// What the server's log-probabilities make of our own loss.
    pub(crate) fn part(&self, update: &UpdateConfig, lesson: &TrainingSample, new: &[f32]) -> Part {
        let sampled = if update.old_log_probs == Old::Decoupled { &lesson.sampled } else { &lesson.old };
        let advantage = f64::from(lesson.advantage);
        part(
            &update.loss,
            LossInputs { advantage, new, old: &lesson.old, sampled, reference: &[], entropies: &[] },
            self.over,
        )
    }
}

/// A lesson without what it teaches, to be looked at.
pub(crate) fn bare(lesson: &TrainingSample, weights: bool) -> Datum {
    let read = lesson.tokens.len() - 1;
    let datum = Datum::new(&lesson.tokens[..read]).with("target_tokens", Tensor::tokens(&lesson.tokens[1..]));
    if !weights {
        return datum;
    }
    datum.with("weights", Tensor::floats(&padded(lesson, &vec![1.0; lesson.sampled.len()])))
}

/// A loss of the protocol.
pub(crate) struct PolicyLoss {
    pub(crate) name: &'static str,
    pub(crate) numbers: [LossNumber; 2],
}

/// The loss's name and numbers, as the protocol has them: ratios are given by their bounds, not by distances.
pub(crate) fn loss(update: &UpdateConfig) -> PolicyLoss {
    let bounds = update.loss.bounds();
    PolicyLoss {
        name: if update.loss.kind == LossKind::Cispo { "cispo" } else { "ppo" },
        numbers: [
            LossNumber::new("clip_low_threshold", 1.0 - bounds.low),
            LossNumber::new("clip_high_threshold", 1.0 + bounds.high),
        ],
    }
}

/// An optimizer step's numbers.
pub(crate) fn adam(config: &OptimizerConfig, rate: f64, cuts: Cuts) -> Value {
    let mut numbers = json!({
        "learning_rate": rate,
        "beta1": config.beta1,
        "beta2": config.beta2,
        "eps": config.epsilon,
        "weight_decay": config.weight_decay,
    });
    if cuts == Cuts::AsTold {
        numbers["grad_clip_norm"] = json!(config.max_norm);
    }
    numbers
}

/// The log-probabilities of each answer's tokens; none where one of them is not finite.
pub(crate) fn log_probs(
    client: &Client,
    verb: &str,
    passed: &Passed,
    lessons: &[&TrainingSample],
) -> Result<Vec<Vec<f32>>, Failure> {
    let (came, asked) = (passed.loss_fn_outputs.len(), lessons.len());
    if came != asked {
        return Err(client.wrong(verb, &format!("{came} sequences; expected {asked}")));
    }
    let one = |(output, lesson): (&PassedSequence, &&TrainingSample)| {
        let read = lesson.tokens.len() - 1;
        let data = output.logprobs.as_ref().map_or(&[][..], |log_probs| &log_probs.data);
        if data.len() != read {
            let what = format!("{} log-probabilities of a sequence of {read}", data.len());
            return Err(client.wrong(verb, &what));
        }
        let number = |l: &Option<f32>| l.filter(|l| l.is_finite());
        let finite: Option<Vec<f32>> = data[lesson.prompt - 1..].iter().map(number).collect();
        finite.ok_or_else(|| client.mad(verb, "a log-probability"))
    };
    passed.loss_fn_outputs.iter().zip(lessons).map(one).collect()
}

/// Numbers of an answer's tokens, with zeros for the prompt's.
fn padded(lesson: &TrainingSample, numbers: &[f32]) -> Vec<f32> {
    let mut all = vec![0.0; lesson.prompt - 1];
    all.extend_from_slice(numbers);
    all
}
