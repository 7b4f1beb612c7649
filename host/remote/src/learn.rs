//! One update in the Tinker protocol: rollouts as data, advantages scaled so that the server's loss equals
//! ours, and metrics of our own loss from the returned log-probabilities.
//!
//! A policy loss is homogeneous in its advantages: whichever mean a server takes over tokens and sequences,
//! a factor on the advantages compensates for it. Importance weights of rollouts of earlier versions are
//! factors too, one for each token.

use allot_engine::loss::{LossInputs, LossNormalization, Part, part};
use allot_engine::{LossKind, Old, OptimizerConfig, UpdateConfig};
use allot_settings::server::{Can, Cuts, Mean};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::client::{Client, Failure};
use crate::protobuf::{Datum, LossNumber, Outcome, Passed, PassedSequence, Tensor};

/// A rollout to train on.
#[derive(Clone)]
pub(crate) struct TrainingSample {
    /// The tokens of prompt and answer.
    pub(crate) tokens: Vec<u32>,
    /// Number of prompt tokens.
    pub(crate) prompt: usize,
    /// Log-probabilities at sampling time.
    pub(crate) sampled: Vec<f32>,
    /// Log-probabilities that ratios are measured from.
    pub(crate) old: Vec<f32>,
    /// Whether `old` is recomputed with the current weights.
    pub(crate) anew: bool,
    /// Whether the weights have changed since sampling.
    pub(crate) stale: bool,
    /// Whether it is excluded from the loss. Its advantage is then 0.
    pub(crate) masked: bool,
    pub(crate) advantage: f32,
}

/// The outcome of `optim_step`. Not all servers return metrics.
#[derive(Deserialize)]
pub(crate) struct Stepped {
    pub(crate) metrics: Option<Map<String, Value>>,
}

impl Outcome for Stepped {}

impl Stepped {
    /// Returns the norm of the gradients, if the server reports it.
    pub(crate) fn norm(&self) -> Option<f64> {
        let metrics = self.metrics.as_ref()?;
        let (_, value) = metrics.iter().find(|(name, _)| name.ends_with("grad_norm"))?;
        Some(value.as_f64().unwrap_or(f64::NAN))
    }
}

/// The training samples of an optimizer step, and the normalization of their loss.
pub(crate) struct Batch {
    pub(crate) over: LossNormalization,
    pub(crate) lessons: Vec<TrainingSample>,
}

/// Returns the batches of one epoch. Samples without an advantage count in the means but are not sent. If a
/// batch has only those, one of them is sent, so that the optimizer step happens.
pub(crate) fn batches(lessons: Vec<TrainingSample>, update: &UpdateConfig, longest: usize) -> Vec<Batch> {
    let cuts = update.mini_batches(&lessons.iter().map(|l| l.sampled.len()).collect::<Vec<_>>());
    let correction = if update.old_log_probs == Old::Decoupled { update.correction } else { 1.0 };
    let over = |batch: &[TrainingSample], steps: usize| {
        let tokens = batch.iter().filter(|l| !l.masked).map(|l| l.sampled.len()).sum();
        LossNormalization { answers: batch.len(), tokens, longest, correction, steps }
    };
    let whole = (update.mini_batch_tokens > 0).then(|| over(&lessons, cuts.len()));
    cuts.into_iter()
        .map(|cut| {
            let batch = &lessons[cut];
            let mut counting: Vec<TrainingSample> =
                batch.iter().filter(|l| l.advantage != 0.0).cloned().collect();
            if counting.is_empty() {
                counting.extend(batch.first().cloned());
            }
            Batch { over: whole.unwrap_or_else(|| over(batch, 1)), lessons: counting }
        })
        .collect()
}

impl Batch {
    /// Returns the factor of each token's advantage that makes the server's mean equal to ours.
    fn scale(&self, kind: LossKind, can: Can, lesson: &TrainingSample) -> f64 {
        let tokens = lesson.sampled.len().max(1);
        let each = self.over.each(kind, tokens);
        match can.loss {
            Mean::Sum => each,
            Mean::SequenceMean => each * (tokens * self.lessons.len()) as f64,
        }
    }

    /// Returns a training sample as a datum.
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

    /// Returns the sample's part of our own loss, from the server's log-probabilities `new`.
    pub(crate) fn part(&self, update: &UpdateConfig, lesson: &TrainingSample, new: &[f32]) -> Part {
        let sampled = if update.old_log_probs == Old::Decoupled { &lesson.sampled } else { &lesson.old };
        let advantage = f64::from(lesson.advantage);
        part(
            &update.loss,
            LossInputs {
                advantage,
                by_token: &[],
                whole: new.len(),
                new,
                old: &lesson.old,
                sampled,
                reference: &[],
                entropies: &[],
            },
            self.over,
        )
    }
}

/// Returns a training sample without loss inputs, for a forward pass.
pub(crate) fn bare(lesson: &TrainingSample, weights: bool) -> Datum {
    let read = lesson.tokens.len() - 1;
    let datum = Datum::new(&lesson.tokens[..read]).with("target_tokens", Tensor::tokens(&lesson.tokens[1..]));
    if !weights {
        return datum;
    }
    datum.with("weights", Tensor::floats(&padded(lesson, &vec![1.0; lesson.sampled.len()])))
}

/// A loss as the protocol describes it.
pub(crate) struct PolicyLoss {
    pub(crate) name: &'static str,
    pub(crate) numbers: [LossNumber; 2],
}

/// Returns the protocol's name and numbers of the loss. Ratios are given by bounds, not by distances.
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

/// Returns the parameters of an optimizer step.
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

/// Returns the log-probabilities of each answer's tokens. Fails if one of them is not finite.
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

/// Returns per-token numbers of an answer, preceded by zeros for the prompt.
fn padded(lesson: &TrainingSample, numbers: &[f32]) -> Vec<f32> {
    let mut all = vec![0.0; lesson.prompt - 1];
    all.extend_from_slice(numbers);
    all
}
