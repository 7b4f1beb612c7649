//! One model update: mini-batches of rollouts, several epochs over them, micro-batches that fit
//! into memory, and optimizer steps.

use std::ops::Range;
use std::sync::OnceLock;

use allot_allocation::{Compute, Flops};
pub use allot_settings::update::{Old, UpdateConfig};

use crate::core::{Core, PassOptions, Sequence, TokenGradients};
use crate::flops::Lengths;
use crate::loss::{LossInputs, LossNormalization, Part, part};
use crate::model::Shape;
use crate::{EngineError, Interrupt, OptimizerConfig, Report};

/// A rollout to learn from, or one of its training rows.
#[derive(Clone, Copy, Debug)]
pub struct TrainingSample<'a> {
    /// Prompt and answer.
    pub sequence: Sequence<'a>,
    /// Log-probabilities when it was sampled.
    pub sampled: &'a [f32],
    /// The temperature that it was sampled at.
    pub temperature: f32,
    /// Whether the weights have changed since.
    pub stale: bool,
    /// Whether it reached the length limit.
    pub truncated: bool,
    /// Its advantage.
    pub advantage: f32,
    /// The advantage of each of its tokens; empty if all have its own.
    pub by_token: &'a [f32],
    /// Whether it is a further training row of the rollout before. Rollouts are counted without them.
    pub further: bool,
    /// Generated tokens of its rollout, in all training rows together.
    pub whole: usize,
}

impl TrainingSample<'_> {
    fn has_advantage(&self) -> bool {
        if self.by_token.is_empty() { self.advantage != 0.0 } else { self.by_token.iter().any(|a| *a != 0.0) }
    }
}

/// Inputs of an update besides the batch.
#[derive(Clone, Copy, Debug)]
pub struct UpdateContext<'a> {
    /// How the update is made.
    pub update: &'a UpdateConfig,
    /// The optimizer.
    pub optimizer: &'a OptimizerConfig,
    /// The length limit of an answer.
    pub longest: usize,
    /// Fraction of the run completed.
    pub progress: f64,
    /// If another engine samples the rollouts: the largest mean difference of its log-probabilities
    /// from this engine's, in nats.
    pub foreign: Option<f64>,
    /// Polled between micro-batches until the first optimizer step.
    pub interrupt: &'a Interrupt,
}

/// Name of the metric that counts a batch's masked answers, if answers are masked.
pub const MASKED: &str = "masked";

/// The samples of one optimizer step.
struct MiniBatch<'a> {
    /// Normalization over all samples, including those without a gradient.
    over: LossNormalization,
    /// The samples with a gradient.
    lessons: Vec<TrainingSample<'a>>,
    /// Number of samples with a gradient in earlier mini-batches of the update.
    first: usize,
}

/// Log-probabilities that losses are measured from, by sample.
struct Anchors {
    /// Before the update.
    old: Vec<Vec<f32>>,
    /// Under the reference; empty without a KL penalty.
    reference: Vec<Vec<f32>>,
}

/// Makes one update. Returns its metrics and its compute.
pub fn update(
    core: &mut dyn Core,
    lessons: &[TrainingSample<'_>],
    context: UpdateContext<'_>,
) -> Result<(Report, Compute), EngineError> {
    let config = context.update;
    let batches = mini_batches(lessons, context);
    let masked = lessons.iter().filter(|l| config.masks(l.truncated) && !l.further).count();
    let lessons: Vec<TrainingSample<'_>> = batches.iter().flat_map(|batch| &batch.lessons).copied().collect();
    let old = old(core, &lessons, context)?;
    let apart = context.foreign.and_then(|_| apart(&lessons, &old));
    if let (Some(apart), Some(most)) = (apart, context.foreign)
        && apart > most
    {
        return Err(EngineError::Apart { apart, most });
    }
    let reference = if config.loss.kl > 0.0 {
        let all: Vec<&TrainingSample<'_>> = lessons.iter().collect();
        log_probs(core, &all, context, true)?
    } else {
        vec![Vec::new(); lessons.len()]
    };
    let anchors = Anchors { old, reference };

    let (mut sums, untouched) = (UpdateSums::default(), core.steps());
    for _ in 0..config.epochs {
        for batch in &batches {
            // The optimizer makes its step even without samples.
            core.learn(&[], options(config, 1.0), &|_, _| TokenGradients::default())?;
            let mut value = 0.0;
            for micro in micro_batches(&batch.lessons, config.micro_batch_tokens) {
                if core.steps() == untouched && context.interrupt.is_asked() {
                    core.forget();
                    return Err(EngineError::Interrupted);
                }
                for (part, entropy) in micro_step(core, config, batch, micro, &anchors)? {
                    value += part.value;
                    sums.add(&part, entropy);
                }
            }
            if !value.is_finite() {
                return Err(EngineError::NotFinite("the loss"));
            }
            let rate = context.optimizer.rate(core.steps(), context.progress);
            let norm = core.step(context.optimizer, rate)?;
            if !norm.is_finite() {
                return Err(EngineError::NotFinite("the gradient"));
            }
            sums.step(value, norm, rate, batch.lessons.iter().map(|l| l.sequence.answer()).sum());
        }
    }
    let mut report = sums.report(config.loss.kl > 0.0);
    report.metrics.extend(apart.map(|apart| ("sampling/sampling_logp_difference/mean", apart)));
    report.metrics.extend(config.mask_truncated.then_some((MASKED, masked as f64)));
    Ok((report, computed(core, &lessons, context, sums.steps as u64)))
}

/// Returns the mini-batches of an epoch. Without a KL penalty or entropy bonus, a sample with
/// advantage 0 has a gradient of exactly zero: it counts in the normalization and is not computed.
fn mini_batches<'a>(lessons: &[TrainingSample<'a>], context: UpdateContext<'_>) -> Vec<MiniBatch<'a>> {
    let config = context.update;
    let masked = |l: &TrainingSample<'_>| config.masks(l.truncated);
    let counts = |l: &&TrainingSample<'_>| {
        !masked(l) && (l.has_advantage() || config.loss.teaches_without_advantage())
    };
    let rollouts: Vec<&[TrainingSample<'a>]> = lessons.chunk_by(|_, next| next.further).collect();
    let cuts = config.mini_batches(&rollouts.iter().map(|rows| rows[0].whole).collect::<Vec<_>>());
    let over = |rollouts: &[&[TrainingSample<'a>]], steps: usize| LossNormalization {
        answers: rollouts.len(),
        tokens: rollouts.iter().copied().flatten().filter(|l| !masked(l)).map(|l| l.sequence.answer()).sum(),
        longest: context.longest,
        correction: if config.old_log_probs == Old::Decoupled { config.correction } else { 1.0 },
        steps,
    };
    // Mini-batches by tokens have unequal numbers of rollouts: by means of their own, a rollout would count by its neighbours.
    let whole = (config.mini_batch_tokens > 0).then(|| over(&rollouts, cuts.len()));
    let mut next = 0;
    let mut batch = |rollouts: &[&[TrainingSample<'a>]]| {
        // First rows first: those of one prompt share its pass if they are neighbours.
        let (mut batch, further): (Vec<_>, Vec<_>) =
            rollouts.iter().copied().flatten().copied().partition(|l| !l.further);
        batch.extend(further);
        let over = whole.unwrap_or_else(|| over(rollouts, 1));
        let (lessons, first): (Vec<_>, _) = (batch.iter().filter(counts).copied().collect(), next);
        next += lessons.len();
        MiniBatch { over, lessons, first }
    };
    cuts.into_iter().map(|cut| batch(&rollouts[cut])).collect()
}

/// Adds the gradients of a micro-batch. Returns each sample's part of the loss and the sum of its tokens'
/// entropies, in the order of the samples. The order in which the core computes them does not matter.
fn micro_step(
    core: &mut dyn Core,
    config: &UpdateConfig,
    batch: &MiniBatch<'_>,
    micro: Range<usize>,
    anchors: &Anchors,
) -> Result<Vec<(Part, f64)>, EngineError> {
    let (lessons, first) = (&batch.lessons[micro.clone()], batch.first + micro.start);
    let sequences: Vec<Sequence<'_>> = lessons.iter().map(|l| l.sequence).collect();
    let parts: Vec<OnceLock<(Part, f64)>> = lessons.iter().map(|_| OnceLock::new()).collect();
    core.learn(&sequences, options(config, lessons[0].temperature), &|i, statistics| {
        let (lesson, n) = (&lessons[i], first + i);
        let new: Vec<f32> = statistics.iter().map(|t| t.log_prob).collect();
        let entropies: Vec<f32> = statistics.iter().map(|t| t.entropy).collect();
        let (old, sampled) = match config.old_log_probs {
            Old::Decoupled => (anchors.old[n].as_slice(), lesson.sampled),
            Old::Sampling => (lesson.sampled, lesson.sampled),
            Old::Recomputed => (anchors.old[n].as_slice(), anchors.old[n].as_slice()),
        };
        let inputs = LossInputs {
            advantage: f64::from(lesson.advantage),
            by_token: lesson.by_token,
            whole: lesson.whole,
            new: &new,
            old,
            sampled,
            reference: &anchors.reference[n],
            entropies: &entropies,
        };
        let mut part = part(&config.loss, inputs, batch.over);
        let gradient = std::mem::take(&mut part.gradient);
        let entropy = entropies.iter().map(|h| f64::from(*h)).sum();
        parts[i].set((part, entropy)).expect("a core asks for the loss of each answer once");
        gradient
    })?;
    let one = |(part, lesson): (OnceLock<_>, &TrainingSample<'_>)| match part.into_inner() {
        // A core may skip a sequence without an answer, which has no loss.
        None if lesson.sequence.answer() == 0 => (Part::default(), 0.0),
        part => part.expect("a core asks for the loss of each answer"),
    };
    Ok(parts.into_iter().zip(lessons).map(one).collect())
}

/// Returns the compute of an update over these samples.
fn computed(
    core: &dyn Core,
    lessons: &[TrainingSample<'_>],
    context: UpdateContext<'_>,
    optimizer_steps: u64,
) -> Compute {
    let one = |lesson: &TrainingSample<'_>| {
        let (prompt, answer) = (lesson.sequence.prompt, lesson.sequence.answer());
        let lengths = Lengths { prompt, answer, read: lesson.sequence.own() - answer };
        learning_flops(core.shape(), core.adapted(), context.update, lengths, anew(lesson, context))
    };
    let tokens: u64 = lessons.iter().map(|l| l.sequence.answer() as u64).sum();
    Compute {
        trained_tokens: tokens * u64::from(context.update.epochs),
        optimizer_steps,
        flops: Flops { training: lessons.iter().map(one).sum(), ..Flops::default() },
        ..Compute::default()
    }
}

/// Returns the operations of learning from one rollout of these lengths, with
/// adapters or all weights. `anew` says whether its log-probabilities are computed first.
pub fn learning_flops(
    shape: &Shape,
    adapted: bool,
    config: &UpdateConfig,
    lengths: Lengths,
    anew: bool,
) -> f64 {
    let (pass, read) = (shape.pass_flops(lengths), lengths.passed());
    // The backward pass has one product for the inputs, and one for the weights if they are trained.
    let mut learned = if adapted { 2.0 * pass + shape.attention_flops(0..read) } else { 3.0 * pass };
    if config.recompute {
        learned += shape.blocks_flops(0..read);
    }
    let scored = f64::from(u8::from(anew)) + f64::from(u8::from(config.loss.kl > 0.0));
    f64::from(config.epochs) * learned + scored * pass
}

fn anew(lesson: &TrainingSample<'_>, context: UpdateContext<'_>) -> bool {
    context.update.old_log_probs.is_computed(lesson.stale, context.foreign.is_some())
}

/// Returns the mean absolute difference between the sampler's and the trainer's
/// log-probabilities, over rollouts of the current weights. `None` without such rollouts.
fn apart(lessons: &[TrainingSample<'_>], old: &[Vec<f32>]) -> Option<f64> {
    let (mut sum, mut tokens) = (0.0, 0);
    for (lesson, old) in lessons.iter().zip(old).filter(|(lesson, _)| !lesson.stale) {
        sum += old.iter().zip(lesson.sampled).map(|(a, b)| f64::from(a - b).abs()).sum::<f64>();
        tokens += old.len();
    }
    (tokens > 0).then(|| sum / tokens as f64)
}

/// Returns each sample's log-probabilities before the update: recomputed if needed, else from sampling.
fn old(
    core: &mut dyn Core,
    lessons: &[TrainingSample<'_>],
    context: UpdateContext<'_>,
) -> Result<Vec<Vec<f32>>, EngineError> {
    let anew = |l: &TrainingSample<'_>| anew(l, context);
    let wanted: Vec<&TrainingSample<'_>> = lessons.iter().filter(|l| anew(l)).collect();
    let mut computed = log_probs(core, &wanted, context, false)?.into_iter();
    let one = |l: &TrainingSample<'_>| {
        if anew(l) { computed.next().unwrap_or_default() } else { l.sampled.to_vec() }
    };
    Ok(lessons.iter().map(one).collect())
}

fn log_probs(
    core: &mut dyn Core,
    lessons: &[&TrainingSample<'_>],
    context: UpdateContext<'_>,
    reference: bool,
) -> Result<Vec<Vec<f32>>, EngineError> {
    let all: Vec<TrainingSample<'_>> = lessons.iter().map(|l| **l).collect();
    let mut scored = Vec::with_capacity(all.len());
    for micro in micro_batches(&all, context.update.micro_batch_tokens) {
        if context.interrupt.is_asked() {
            return Err(EngineError::Interrupted);
        }
        let options = options(context.update, all[micro.start].temperature);
        let sequences: Vec<Sequence<'_>> = all[micro].iter().map(|l| l.sequence).collect();
        let statistics = core.score(&sequences, options, reference)?;
        scored.extend(statistics.into_iter().map(|t| t.iter().map(|t| t.log_prob).collect::<Vec<_>>()));
    }
    Ok(scored)
}

/// Returns the options of a pass over rollouts sampled at this temperature.
fn options(config: &UpdateConfig, temperature: f32) -> PassOptions {
    PassOptions { temperature, recompute: config.recompute }
}

/// Returns ranges of samples with the same temperature, all with a sampling mask or all
/// without. A range has at most `most` tokens, or one longer sample.
fn micro_batches(lessons: &[TrainingSample<'_>], most: usize) -> Vec<Range<usize>> {
    let (mut all, mut from, mut tokens) = (Vec::new(), 0, 0);
    for (i, lesson) in lessons.iter().enumerate() {
        let more = lesson.sequence.read();
        let first = &lessons[from];
        let alike = lesson.temperature == first.temperature
            && lesson.sequence.mask.is_some() == first.sequence.mask.is_some();
        if i > from && (tokens + more > most || !alike) {
            all.push(from..i);
            (from, tokens) = (i, 0);
        }
        tokens += more;
    }
    if from < lessons.len() {
        all.push(from..lessons.len());
    }
    all
}

/// Sums over an update's optimizer steps.
#[derive(Default)]
struct UpdateSums {
    steps: f64,
    loss: f64,
    norm: f64,
    rate: f64,
    tokens: f64,
    entropy: f64,
    low: f64,
    high: f64,
    kl: f64,
    weights: f64,
}

impl UpdateSums {
    fn add(&mut self, part: &Part, entropy: f64) {
        self.entropy += entropy;
        self.low += part.clipped_low as f64;
        self.high += part.clipped_high as f64;
        self.kl += part.kl;
        self.weights += part.weights;
    }

    fn step(&mut self, loss: f64, norm: f64, rate: f64, tokens: usize) {
        self.steps += 1.0;
        self.loss += loss;
        self.norm += norm;
        self.rate = rate;
        self.tokens += tokens as f64;
    }

    /// Returns metrics under TRL's names where they mean the same. Token means are over computed tokens.
    fn report(&self, kl: bool) -> Report {
        let tokens = self.tokens.max(1.0);
        let mut metrics = vec![
            ("loss", self.loss / self.steps),
            ("grad_norm", self.norm / self.steps),
            ("learning_rate", self.rate),
            ("entropy", self.entropy / tokens),
            ("clip_ratio/low_mean", self.low / tokens),
            ("clip_ratio/high_mean", self.high / tokens),
            ("clip_ratio/region_mean", (self.low + self.high) / tokens),
            ("sampling/importance_sampling_ratio/mean", self.weights / tokens),
            ("optimizer_steps", self.steps),
        ];
        if kl {
            metrics.push(("kl", self.kl / tokens));
        }
        Report { metrics }
    }
}
