//! The distribution of the pass rates of a bank's prompts: a beta distribution, fitted to the number of
//! right rollouts of each prompt, and its posterior given one prompt's rollouts.
//!
//! The number of right rollouts among a prompt's n is beta-binomial (Skellam 1948). The two parameters are
//! maximum-likelihood estimates, without a prior.

use std::collections::BTreeMap;

use allot_allocation::seed::Stream;
use allot_engine::normal;

use crate::Bank;

/// A beta distribution of pass rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// First parameter, a pseudo-count of right rollouts.
    pub right: f64,
    /// Second parameter, a pseudo-count of wrong rollouts.
    pub wrong: f64,
}

/// Bounds of the search: a mean pass rate of about 1e-6, and prompts that are almost alike.
const FARTHEST: [f64; 2] = [14.0, 10.0];

impl Fit {
    /// Fits the pass rates of a bank's prompts.
    pub fn of(bank: &Bank) -> Self {
        // Prompts with equal counts have equal likelihoods.
        let mut counts: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for prompt in &bank.prompts {
            *counts.entry((prompt.rollouts.len(), prompt.right())).or_default() += 1.0;
        }
        let likelihood = |point: [f64; 2]| {
            let Self { right, wrong } = Self::at(point);
            let none = log_beta(right, wrong);
            let one = |((n, s), prompts): (&(usize, usize), &f64)| {
                prompts * (log_beta(right + *s as f64, wrong + (n - s) as f64) - none)
            };
            counts.iter().map(one).sum::<f64>()
        };
        // Coordinate search with halving steps: there is one maximum if some prompts have several rollouts, and no derivative
        // is needed.
        let (mut point, mut step) = ([0.0, 0.0], 2.0);
        let mut best = likelihood(point);
        while step > 1e-4 {
            let mut moved = false;
            for axis in 0..2 {
                for sign in [1.0, -1.0] {
                    let mut next = point;
                    next[axis] = (next[axis] + sign * step).clamp(-FARTHEST[axis], FARTHEST[axis]);
                    let there = likelihood(next);
                    if there > best {
                        (point, best, moved) = (next, there, true);
                    }
                }
            }
            if !moved {
                step /= 2.0;
            }
        }
        Self::at(point)
    }

    /// From the logit of the mean and the logarithm of the weight in rollouts.
    fn at([logit, weight]: [f64; 2]) -> Self {
        let (mean, weight) = (1.0 / (1.0 + libm::exp(-logit)), libm::exp(weight));
        Self { right: mean * weight, wrong: (1.0 - mean) * weight }
    }

    /// Returns the posterior after `rollouts` rollouts of a prompt, of which `right` were right.
    pub fn seen(self, rollouts: usize, right: usize) -> Self {
        Self { right: self.right + right as f64, wrong: self.wrong + (rollouts - right) as f64 }
    }

    /// Mean of the distribution.
    pub fn mean(self) -> f64 {
        self.right / (self.right + self.wrong)
    }

    /// Returns the chance that so many rollouts of a prompt are all right, or all wrong.
    pub fn flat(self, rollouts: u32) -> f64 {
        // Moments of a beta distribution.
        let all = |right: f64, wrong: f64| {
            let one = |i| (right + f64::from(i)) / (right + wrong + f64::from(i));
            (0..rollouts).map(one).product::<f64>()
        };
        all(self.right, self.wrong) + all(self.wrong, self.right)
    }

    /// Draws a pass rate: the first of two gamma variables, divided by their sum (Marsaglia and Tsang
    /// 2000). Computed in logarithms, because small parameters can make both variables underflow.
    pub fn draw(self, stream: &mut Stream) -> f64 {
        let (right, wrong) = (log_gamma_draw(self.right, stream), log_gamma_draw(self.wrong, stream));
        1.0 / (1.0 + libm::exp(wrong - right))
    }
}

fn log_beta(a: f64, b: f64) -> f64 {
    libm::lgamma(a) + libm::lgamma(b) - libm::lgamma(a + b)
}

/// Draws a gamma variable of this shape and returns its logarithm.
fn log_gamma_draw(shape: f64, stream: &mut Stream) -> f64 {
    // A gamma variable of this shape is one of shape + 1, times U^(1/shape) for a uniform U.
    let d = shape + 1.0 - 1.0 / 3.0;
    let c = 1.0 / libm::sqrt(9.0 * d);
    let rest = libm::log(1.0 - stream.unit()) / shape;
    loop {
        let x = normal(stream);
        let v = 1.0 + c * x;
        if v <= 0.0 {
            continue;
        }
        let v = v * v * v;
        if libm::log(1.0 - stream.unit()) < 0.5 * x * x + d - d * v + d * libm::log(v) {
            return libm::log(d * v) + rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Row;

    /// A bank of prompts with pass rates drawn from a distribution, each with this many rollouts.
    fn bank(spread: Fit, prompts: u64, rollouts: usize) -> Bank {
        let rows = (0..prompts).flat_map(|prompt| {
            let mut stream = Stream::new(prompt.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let rate = spread.draw(&mut stream);
            let key = prompt.to_string();
            (0..rollouts)
                .map(|_| Row { key: key.clone(), correct: stream.unit() < rate, ..Row::default() })
                .collect::<Vec<_>>()
        });
        Bank::of(rows.collect())
    }

    #[test]
    fn a_fit_finds_what_pass_rates_were_drawn_from() {
        for (right, wrong) in [(0.3, 0.9), (2.0, 2.0), (5.0, 1.0)] {
            let fit = Fit::of(&bank(Fit { right, wrong }, 4000, 8));
            assert!(
                (fit.right / right - 1.0).abs() < 0.12 && (fit.wrong / wrong - 1.0).abs() < 0.12,
                "{fit:?}"
            );
        }
    }

    #[test]
    fn draws_have_the_mean_and_the_spread_of_their_distribution() {
        let mut stream = Stream::new(5);
        for fit in [Fit { right: 0.02, wrong: 0.1 }, Fit { right: 3.0, wrong: 1.0 }] {
            let draws: Vec<f64> = (0..20_000).map(|_| fit.draw(&mut stream)).collect();
            let mean = draws.iter().sum::<f64>() / 20_000.0;
            let square = draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 20_000.0;
            let expected = fit.mean() * (1.0 - fit.mean()) / (fit.right + fit.wrong + 1.0);
            assert!((mean - fit.mean()).abs() < 0.01, "{mean}");
            assert!((square / expected - 1.0).abs() < 0.05, "{square} {expected}");
        }
    }

    #[test]
    fn banks_with_nothing_to_tell_apart_have_a_fit_all_the_same() {
        for correct in [true, false] {
            let fit = Fit::of(&Bank::of(vec![Row { correct, ..Row::default() }]));
            assert!(fit.right > 0.0 && fit.wrong > 0.0 && (0.0..=1.0).contains(&fit.mean()), "{fit:?}");
            assert!(((fit.mean() > 0.5) == correct), "{fit:?}");
        }
    }
}
