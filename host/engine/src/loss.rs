//! Policy losses over one answer: the value, and its gradient by each token's log-probability and entropy.
//!
//! Computed in f64 without tensors, so that every engine trains with the same losses.
//! Advantages come from the host.

pub use allot_settings::loss::{Bounds, LossConfig, LossKind};

use crate::core::TokenGradients;

/// An answer to learn from. Each list has one entry per token.
#[derive(Clone, Copy, Debug)]
pub struct LossInputs<'a> {
    /// The scaled difference between its reward and its baseline.
    pub advantage: f64,
    /// The advantage of each token; empty if all have the answer's.
    pub by_token: &'a [f32],
    /// Number of tokens of its rollout, which has more than these if they are one of several training rows.
    pub whole: usize,
    /// Log-probabilities under the current weights.
    pub new: &'a [f32],
    /// Log-probabilities under the weights that ratios are measured from.
    pub old: &'a [f32],
    /// Log-probabilities when it was sampled.
    pub sampled: &'a [f32],
    /// Log-probabilities under the reference; empty without one.
    pub reference: &'a [f32],
    /// Entropies of the tokens' distributions under the current weights; empty without an entropy bonus.
    pub entropies: &'a [f32],
}

impl LossInputs<'_> {
    /// Returns the advantage of a token.
    fn advantage(&self, t: usize) -> f64 {
        self.by_token.get(t).map_or(self.advantage, |a| f64::from(*a))
    }
}

/// Normalization of a batch's losses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossNormalization {
    /// Answers in the batch, including masked ones.
    pub answers: usize,
    /// Tokens of the answers that are not masked.
    pub tokens: usize,
    /// The length limit of an answer.
    pub longest: usize,
    /// Limit of an importance weight, for answers sampled with other weights than `old`.
    pub correction: f64,
    /// Optimizer steps that share these answers and tokens: 1 if they are this step's own.
    pub steps: usize,
}

impl LossNormalization {
    /// Returns the factor of a token's term, in an answer of `tokens` tokens.
    pub fn each(&self, kind: LossKind, tokens: usize) -> f64 {
        let over = match kind {
            LossKind::Grpo | LossKind::Gspo | LossKind::Rloo => self.answers * tokens.max(1),
            LossKind::DrGrpo => self.answers * self.longest,
            LossKind::Dapo | LossKind::Cispo => self.tokens.max(1),
        };
        self.steps as f64 / over as f64
    }
}

/// An answer's part of a batch's loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Its contribution to the loss.
    pub value: f64,
    /// Its gradient by each new log-probability and by each entropy.
    pub gradient: TokenGradients,
    /// Tokens clipped because their ratio was below the lower bound.
    pub clipped_low: u64,
    /// Tokens clipped because their ratio was above the upper bound.
    pub clipped_high: u64,
    /// Sum of the tokens' KL divergences from the reference.
    pub kl: f64,
    /// Sum of the importance weights of tokens sampled with other weights, before truncation.
    pub weights: f64,
}

/// Returns an answer's part of its batch's loss.
pub fn part(config: &LossConfig, told: LossInputs<'_>, over: LossNormalization) -> Part {
    let n = told.new.len();
    let bounds = config.bounds();
    let mut part = Part { gradient: vec![0.0; n].into(), ..Part::default() };
    let each = over.each(config.kind, told.whole);
    match config.kind {
        LossKind::Gspo | LossKind::Rloo => by_answer(config, told, over, &mut part),
        LossKind::Grpo | LossKind::DrGrpo | LossKind::Dapo | LossKind::Cispo => {
            for t in 0..n {
                let (a, weight) = (told.advantage(t), difference(told.old, told.sampled, t).exp());
                let ratio = difference(told.new, told.old, t).exp();
                let term = if config.kind == LossKind::Cispo {
                    // The weight is a constant: no gradient flows through it.
                    let cut = ratio.clamp(1.0 - bounds.low, 1.0 + bounds.high);
                    let side = i8::from(ratio > cut) - i8::from(ratio < cut);
                    Term { value: -cut * a * f64::from(told.new[t]), slope: -cut * a, side }
                } else {
                    term(bounds, a, ratio)
                };
                let scale = each * weight.min(over.correction);
                part.value += scale * term.value;
                part.gradient.log_probs[t] = (scale * term.slope) as f32;
                part.clipped_low += u64::from(term.side < 0);
                part.clipped_high += u64::from(term.side > 0);
                part.weights += weight;
            }
        }
    }
    if config.kl > 0.0 && !told.reference.is_empty() {
        for t in 0..n {
            let d = difference(told.reference, told.new, t);
            let kl = d.exp() - d - 1.0;
            part.kl += kl;
            part.value += each * config.kl * kl;
            part.gradient.log_probs[t] += (each * config.kl * (1.0 - d.exp())) as f32;
        }
    }
    if config.entropy != 0.0 && !told.entropies.is_empty() {
        // Like verl's: normalized as the loss is, without importance weights.
        let bonus = each * config.entropy;
        part.value -= bonus * told.entropies.iter().map(|h| f64::from(*h)).sum::<f64>();
        part.gradient.entropies = vec![-bonus as f32; n];
    }
    part
}

/// Adds the terms of a loss whose ratio is the whole answer's: a root of the product of all tokens' ratios, the n-th for
/// GSPO, the first for RLOO. With an advantage for each token it is GSPO-token (Zheng et al. 2025, section 4.3).
fn by_answer(config: &LossConfig, told: LossInputs<'_>, over: LossNormalization, part: &mut Part) {
    let (n, bounds) = (told.new.len(), config.bounds());
    let total = |x: &[f32], y: &[f32]| (0..n).map(|t| difference(x, y, t)).sum::<f64>();
    let root = if config.kind == LossKind::Gspo { n.max(1) as f64 } else { 1.0 };
    let weight = (total(told.old, told.sampled) / root).exp();
    let ratio = (total(told.new, told.old) / root).exp();
    let scale = weight.min(over.correction) * over.steps as f64 / over.answers as f64;
    part.weights = weight * n as f64;
    if told.by_token.is_empty() {
        let term = term(bounds, told.advantage, ratio);
        part.value = scale * term.value;
        part.gradient.log_probs.fill((scale * term.slope / root) as f32);
        part.clipped_low = if term.side < 0 { n as u64 } else { 0 };
        part.clipped_high = if term.side > 0 { n as u64 } else { 0 };
        return;
    }
    for t in 0..n {
        let term = term(bounds, told.advantage(t), ratio);
        part.value += scale * term.value / n as f64;
        part.gradient.log_probs[t] = (scale * term.slope / root) as f32;
        part.clipped_low += u64::from(term.side < 0);
        part.clipped_high += u64::from(term.side > 0);
    }
}

fn difference(x: &[f32], y: &[f32], t: usize) -> f64 {
    f64::from(x[t]) - f64::from(y[t])
}

/// One ratio's term of a loss: its value, its derivative by the log of the ratio, and the side
/// on which it was clipped (-1 below, 1 above, 0 not clipped).
struct Term {
    value: f64,
    slope: f64,
    side: i8,
}

/// Returns `-min(r A, clip(r) A)`, limited to `-dual A` if A is negative.
fn term(bounds: Bounds, a: f64, ratio: f64) -> Term {
    let clipped = ratio.clamp(1.0 - bounds.low, 1.0 + bounds.high);
    if a < 0.0
        && let Some(dual) = bounds.dual
        && ratio > dual
    {
        return Term { value: -dual * a, slope: 0.0, side: 1 };
    }
    if ratio * a <= clipped * a {
        Term { value: -ratio * a, slope: -ratio * a, side: 0 }
    } else {
        let side = if ratio > clipped { 1 } else { -1 };
        Term { value: -clipped * a, slope: 0.0, side }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVER: LossNormalization =
        LossNormalization { answers: 3, tokens: 11, longest: 7, correction: 2.0, steps: 1 };
    const NEW: [f32; 4] = [-1.0, -0.3, -2.0, -0.7];
    const OLD: [f32; 4] = [-1.1, -0.9, -1.5, -0.72];
    const SAMPLED: [f32; 4] = [-1.2, -0.8, -3.5, -0.7];
    const REFERENCE: [f32; 4] = [-1.3, -0.5, -1.0, -0.9];
    const KINDS: [LossKind; 6] =
        [LossKind::Grpo, LossKind::DrGrpo, LossKind::Dapo, LossKind::Gspo, LossKind::Cispo, LossKind::Rloo];

    fn told(new: &[f32], advantage: f64) -> LossInputs<'_> {
        let (old, sampled, reference) = (&OLD, &SAMPLED, &REFERENCE);
        LossInputs {
            advantage,
            by_token: &[],
            whole: new.len(),
            new,
            old,
            sampled,
            reference,
            entropies: &[],
        }
    }

    #[test]
    fn gradients_are_the_slopes_of_the_values() {
        for kind in KINDS {
            for advantage in [1.3, -0.8] {
                let config =
                    LossConfig { kl: 0.1, clip_low: Some(0.5), clip_high: Some(0.9), ..LossConfig::of(kind) };
                let gradient = part(&config, told(&NEW, advantage), OVER).gradient.log_probs;
                for t in 0..4 {
                    let value = |by: f32| {
                        let mut new = NEW;
                        new[t] += by;
                        let value = part(&config, told(&new, advantage), OVER).value;
                        if kind != LossKind::Cispo {
                            return value;
                        }
                        // The weight is held constant.
                        let ratio = (f64::from(NEW[t]) - f64::from(OLD[t])).exp().clamp(0.5, 1.9);
                        let kl = part(&config, told(&new, 0.0), OVER).value;
                        let weight = (f64::from(OLD[t]) - f64::from(SAMPLED[t])).exp().min(2.0) / 11.0;
                        kl - weight * ratio * advantage * f64::from(new[t])
                    };
                    let slope = (value(1e-3) - value(-1e-3)) / f64::from((NEW[t] + 1e-3) - (NEW[t] - 1e-3));
                    assert!(
                        (slope - f64::from(gradient[t])).abs() < 2e-4,
                        "{kind:?} {advantage} {t}: {slope} {gradient:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_entropy_bonus_is_normalised_as_the_loss_is() {
        const ENTROPIES: [f32; 4] = [0.5, 1.5, 0.25, 2.0];
        fn inputs(entropies: &[f32]) -> LossInputs<'_> {
            LossInputs { entropies, ..told(&NEW, 1.3) }
        }
        for kind in KINDS {
            let config = LossConfig { entropy: 0.1, ..LossConfig::of(kind) };
            let (with, without) = (
                part(&config, inputs(&ENTROPIES), OVER),
                part(&LossConfig::of(kind), inputs(&ENTROPIES), OVER),
            );
            let each = match kind {
                LossKind::Grpo | LossKind::Gspo | LossKind::Rloo => 1.0 / 12.0,
                LossKind::DrGrpo => 1.0 / 21.0,
                LossKind::Dapo | LossKind::Cispo => 1.0 / 11.0,
            };
            assert!((with.value - (without.value - 0.1 * each * 4.25)).abs() < 1e-12, "{kind:?}");
            assert_eq!(with.gradient.log_probs, without.gradient.log_probs, "{kind:?}");
            assert!(without.gradient.entropies.is_empty());
            for t in 0..4 {
                let value = |by: f32| {
                    let mut entropies = ENTROPIES;
                    entropies[t] += by;
                    part(&config, inputs(&entropies), OVER).value
                };
                let slope = (value(0.125) - value(-0.125)) / 0.25;
                assert!((slope - f64::from(with.gradient.entropies[t])).abs() < 1e-8, "{kind:?}: {slope}");
            }
        }
    }

    #[test]
    fn on_policy_every_loss_is_the_policy_gradient() {
        for kind in KINDS {
            let same = LossInputs { old: &NEW, sampled: &NEW, reference: &[], ..told(&NEW, 2.0) };
            let part = part(&LossConfig::of(kind), same, OVER);
            let each = match kind {
                LossKind::Grpo | LossKind::Gspo => 1.0 / 12.0,
                LossKind::DrGrpo => 1.0 / 21.0,
                LossKind::Dapo | LossKind::Cispo => 1.0 / 11.0,
                LossKind::Rloo => 1.0 / 3.0,
            };
            assert!(
                part.gradient.log_probs.iter().all(|g| (f64::from(*g) + 2.0 * each).abs() < 1e-6),
                "{kind:?}"
            );
            assert_eq!((part.clipped_low, part.clipped_high), (0, 0));
        }
    }

    #[test]
    fn tokens_with_one_advantage_teach_as_their_answer_would() {
        for kind in KINDS {
            let config = LossConfig::of(kind);
            let whole = part(&config, told(&NEW, 1.3), OVER);
            let each = part(&config, LossInputs { by_token: &[1.3; 4], ..told(&NEW, 9.0) }, OVER);
            assert!((whole.value - each.value).abs() < 1e-6, "{kind:?}: {} {}", whole.value, each.value);
            let pairs = whole.gradient.log_probs.iter().zip(&each.gradient.log_probs);
            assert!(pairs.clone().all(|(a, b)| (a - b).abs() < 1e-6), "{kind:?}");
            // A token without an advantage teaches nothing, and changes nothing of the others.
            let some = LossInputs { by_token: &[1.3, 0.0, 1.3, 0.0], ..told(&NEW, 9.0) };
            let some = part(&config, some, OVER).gradient.log_probs;
            assert_eq!((some[1], some[3]), (0.0, 0.0), "{kind:?}");
            assert!((some[0] - whole.gradient.log_probs[0]).abs() < 1e-6, "{kind:?}");
        }
    }

    #[test]
    fn bounds_hold_on_the_side_that_they_are_for() {
        let grpo = LossConfig::of(LossKind::Dapo);
        let at = |ratio: f64, a: f64| {
            let new = [ratio.ln() as f32];
            let told = LossInputs { old: &[0.0], sampled: &[0.0], reference: &[], ..told(&new, a) };
            let part = part(
                &grpo,
                told,
                LossNormalization { answers: 1, tokens: 1, longest: 1, correction: 2.0, steps: 1 },
            );
            (part.gradient.log_probs[0] != 0.0, part.clipped_low, part.clipped_high)
        };
        assert_eq!(at(1.27, 1.0), (true, 0, 0));
        assert_eq!(at(1.29, 1.0), (false, 0, 1));
        assert_eq!(at(0.5, 1.0), (true, 0, 0), "a good token that grew rare is brought back");
        assert_eq!(at(0.79, -1.0), (false, 1, 0));
        assert_eq!(at(2.9, -1.0), (true, 0, 0));
        assert_eq!(at(3.1, -1.0), (false, 0, 1), "the dual clip");
    }

    #[test]
    fn importance_weights_are_cut_and_counted() {
        let told = told(&OLD, 1.0);
        let part = part(&LossConfig::of(LossKind::Dapo), told, OVER);
        let weights: Vec<f64> = (0..4).map(|t| (f64::from(OLD[t]) - f64::from(SAMPLED[t])).exp()).collect();
        assert!(weights[2] > 2.0, "one of them is cut");
        for (g, w) in part.gradient.log_probs.iter().zip(&weights) {
            assert!((f64::from(*g) + w.min(2.0) / 11.0).abs() < 1e-6);
        }
        assert!((part.weights - weights.iter().sum::<f64>()).abs() < 1e-6);
    }
}
