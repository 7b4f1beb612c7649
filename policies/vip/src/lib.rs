//! VIP (arXiv 2602.01601), by counts alone: predicts how often each prompt will be solved, and gives it
//! the rollouts that make the variance of the gradient smallest under the step's budget. Not faithful: the paper
//! predicts with a Gaussian process over embeddings of the prompts, so that one prompt tells of others.
//! Here each tells of itself alone, which is that process with a kernel of 0 between prompts: the
//! last pass rate, and a constant for a prompt never seen.
//!
//! With leave-one-out baselines the variance is a / (n - 1) for n rollouts, with a = p (1 - p); with a mean
//! over all it is a (n - 1) / n². Upstream adds γ n ln p, which favours prompts seldom solved.
//!
//! Upstream: HieuNT91/VIP 0c17c79, `src/vip/allocation/bernoulli_allocation.py` (the newest version that its
//! history has; the branch has only a README). Departures:
//!
//! - The minimum is found by bisection on the price of a rollout, where upstream calls SLSQP, which ends near it:
//!   a count of 3.9999999 is then cut to 3, and that prompt gets none.
//! - Where all predictions are equal the budget is shared evenly. Upstream draws prompts at random where it is
//!   below four rollouts each.
//! - Of prompts with equal gain the earlier gets the rollout; upstream's order of equals is numpy's.

use allot_policy::prelude::*;

/// Gives each prompt the rollouts that make the gradient's variance smallest.
pub struct Vip;

/// What a run may set.
#[derive(Settings)]
pub struct VipSettings {
    /// Fewest rollouts of a prompt that gets any; at most the run's number.
    #[setting(default = 4)]
    least: u32,
    /// Most rollouts of a prompt; 0 for four times the run's number.
    #[setting(default = 0)]
    most: u32,
    /// Whose variance: rloo (a baseline without the rollout itself) or grpo (the group's mean).
    #[setting(default = Rule::Rloo)]
    rule: Rule,
    /// How much prompts seldom solved are favoured; below 0 for upstream's number, by rule.
    #[setting(default = -1.0)]
    gamma: f64,
    /// The pass rate of a prompt never seen, in logits.
    #[setting(default = -1.0)]
    unseen: f64,
}

/// Whose variance is made small.
#[derive(Choice, Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Of a baseline that leaves the rollout out.
    Rloo,
    /// Of the group's mean as a baseline.
    Grpo,
}

impl Policy for Vip {
    const NAME: &'static str = "vip";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str =
        "least gradient variance for the budget; not faithful: by counts, no embeddings";
    type Settings = VipSettings;
    type State = ();

    fn begin(settings: &VipSettings, run: &Run) -> Result<(), Error> {
        if settings.least < 3 {
            return Err(bad_setting("least", "must be at least 3: the variance is convex from there on"));
        }
        if settings.most(run) < run.rollouts {
            return Err(bad_setting("most", "must be at least the run's number of rollouts"));
        }
        if !(settings.gamma.abs() <= 1.0 && settings.unseen.abs() <= 13.0) {
            let name = if settings.unseen.abs() <= 13.0 { "gamma" } else { "unseen" };
            return Err(bad_setting(name, "is too large"));
        }
        needs_two(None, run)
    }

    fn decide(settings: &VipSettings, run: &Run, (): &mut (), view: &View) -> Result<Plan, Error> {
        if view.round > 0 || !view.can_sample() {
            return Ok(Plan::train(view.groups.iter().map(|g| Pick::all(g.prompt))));
        }
        let unseen = 1.0 / (1.0 + libm::exp(-settings.unseen));
        let prompts: Vec<&Prompt> = view.offer(run.groups).collect();
        let rate = |p: &&Prompt| match p.past {
            Some(past) if past.rollouts > 0 => f64::from(past.correct) / f64::from(past.rollouts),
            _ => unseen,
        };
        let rates: Vec<f64> = prompts.iter().map(|p| (rate(p) * 1e5).round() / 1e5).collect();
        let counts = settings.allocate(run, &rates);
        let requests = prompts.iter().zip(&counts).filter(|(_, n)| **n > 0);
        let none = prompts.iter().zip(&counts).filter(|(_, n)| **n == 0).map(|(p, _)| p.id);
        let plan = Plan::sample(requests.map(|(p, n)| Request::new(p.id, *n)));
        Ok(plan.metric("without", counts.iter().filter(|n| **n == 0).count() as f64).skip(none))
    }
}

impl VipSettings {
    fn most(&self, run: &Run) -> u32 {
        or_else(self.most, run.rollouts.saturating_mul(4))
    }

    /// Rollouts for each prompt by its predicted pass rate, the run's number on average.
    pub fn allocate(&self, run: &Run, rates: &[f64]) -> Vec<u32> {
        let rates: Vec<f64> = rates.iter().map(|p| p.clamp(1e-6, 1.0 - 1e-6)).collect();
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let variance = rates.iter().map(|p| (p - mean).powi(2)).sum::<f64>() / rates.len().max(1) as f64;
        if variance.sqrt() < 1e-6 || run.rollouts <= self.least {
            return vec![run.rollouts; rates.len()];
        }
        let budget = u64::from(run.rollouts) * rates.len() as u64;
        let exact = self.minimum(&rates, budget as f64, f64::from(self.most(run)));
        round(&exact, &rates, budget, self.least, self.most(run))
    }

    /// The real numbers of rollouts, between `least` and `most`, that make the variance smallest.
    pub fn minimum(&self, rates: &[f64], budget: f64, most: f64) -> Vec<f64> {
        let least = f64::from(self.least);
        let gamma = match self.rule {
            _ if self.gamma >= 0.0 => self.gamma,
            Rule::Rloo => 0.0007,
            Rule::Grpo => 0.0004,
        };
        let terms: Vec<(f64, f64)> = rates.iter().map(|p| (p * (1.0 - p), gamma * libm::log(*p))).collect();
        // What one more rollout takes off the variance falls with n: up to where it is worth its price.
        let at = |price: f64| -> Vec<f64> {
            let count = |(a, bias): &(f64, f64)| {
                let net = price + bias;
                match self.rule {
                    _ if net <= 0.0 => most,
                    Rule::Rloo => (1.0 + (a / net).sqrt()).clamp(least, most),
                    Rule::Grpo => bisect(least, most, |n| a * (n - 2.0) / n.powi(3) > net),
                }
            };
            terms.iter().map(count).collect()
        };
        let dearest = terms.iter().map(|(a, bias)| a - bias).fold(0.0, f64::max);
        at(bisect(0.0, dearest, |price| at(price).iter().sum::<f64>() > budget))
    }
}

/// Where `above` turns from true to false between two numbers; the lower of them if it is never true.
fn bisect(mut low: f64, mut high: f64, above: impl Fn(f64) -> bool) -> f64 {
    if above(high) {
        return high;
    }
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        *(if above(middle) { &mut low } else { &mut high }) = middle;
    }
    high
}

/// Whole numbers of rollouts: what rounding down leaves goes one by one to whoever gains most, and a
/// prompt that would get fewer than `least` gets none.
pub fn round(exact: &[f64], rates: &[f64], budget: u64, least: u32, most: u32) -> Vec<u32> {
    // Bisection ends a hair beside a bound.
    let down = |n: &f64| (n + 1e-9).floor() as u32;
    let mut counts: Vec<u32> = exact.iter().map(down).map(|n| if n < least { 0 } else { n }).collect();
    let value = |n: u32| f64::from(n + 3) / f64::from(n + 4).powi(2);
    let gain = |i: usize, n: u32| rates[i] * (1.0 - rates[i]) * (value(n) - value(n + 1));
    let mut left = budget.saturating_sub(counts.iter().map(|n| u64::from(*n)).sum());
    while left > 0 {
        let open = (0..counts.len()).filter(|i| counts[*i] < most);
        // The first of equals.
        let Some(best) = open.rev().max_by(|i, j| gain(*i, counts[*i]).total_cmp(&gain(*j, counts[*j])))
        else {
            break;
        };
        counts[best] += 1;
        left -= 1;
    }
    let mut freed: u32 = counts.iter().filter(|n| **n < least).sum();
    counts.iter_mut().filter(|n| **n < least).for_each(|n| *n = 0);
    while freed > 0 {
        let Some(largest) = (0..counts.len()).filter(|i| counts[*i] < most).max_by_key(|i| counts[*i]) else {
            break;
        };
        counts[largest] += 1;
        freed -= 1;
    }
    counts
}

allot_policy::export!(Vip);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::Value;
    use allot_policy::{decide, made, run_with};

    fn settings(rule: &str) -> VipSettings {
        VipSettings::read(&run_with::<Vip>(&[("rule", Value::Text(rule.into()))])).unwrap()
    }

    #[test]
    fn no_move_of_a_rollout_lowers_the_variance() {
        let mut chance = Chance::new(8);
        for round in 0..200 {
            let rule = ["rloo", "grpo"][round % 2];
            let settings = settings(rule);
            let rates: Vec<f64> = (0..2 + chance.below(20)).map(|_| 0.01 + 0.98 * chance.unit()).collect();
            let counts = settings.minimum(&rates, 8.0 * rates.len() as f64, 32.0);
            assert!((counts.iter().sum::<f64>() - 8.0 * rates.len() as f64).abs() < 1e-6);
            let cost = |i: usize, n: f64| {
                let (a, gamma) = (rates[i] * (1.0 - rates[i]), if rule == "rloo" { 0.0007 } else { 0.0004 });
                let variance = if rule == "rloo" { a / (n - 1.0) } else { a * (n - 1.0) / (n * n) };
                variance + gamma * rates[i].ln() * n
            };
            let (i, j) = (chance.below(rates.len()), chance.below(rates.len()));
            let moved = 1e-3;
            if i != j && counts[i] - moved >= 4.0 && counts[j] + moved <= 32.0 {
                let now = cost(i, counts[i]) + cost(j, counts[j]);
                assert!(cost(i, counts[i] - moved) + cost(j, counts[j] + moved) >= now - 1e-9);
            }
        }
    }

    #[test]
    fn uncertain_prompts_get_more_and_a_few_get_none() {
        let run = Run { rollouts: 8, ..run_with::<Vip>(&[]) };
        let counts = settings("rloo").allocate(&run, &[0.5, 0.25, 0.75, 1.0]);
        assert_eq!(counts.iter().sum::<u32>(), 32);
        assert!(counts[0] > counts[3] && counts[1] > counts[2], "{counts:?}");
        // Rounding may take a prompt's last rollouts away.
        assert_eq!(round(&[4.0, 3.5, 8.5], &[0.5, 0.9, 0.5], 16, 4, 32), [6, 0, 10]);
    }

    #[test]
    fn prompts_without_a_rollout_are_skipped() {
        let run = Run { groups: 3, ..run_with::<Vip>(&[("least", Value::Integer(7))]) };
        let mut view = made::view(0..3);
        view.pool[0].past = Some(made::past(4, 8));
        view.pool[1].past = Some(made::past(8, 8));
        let plan = decide::<Vip>(&run, &[], &view).unwrap();
        let Action::Sample(requests) = &plan.action else { panic!("samples") };
        assert_eq!(requests.iter().map(|r| r.count).sum::<u32>(), 24);
        assert_eq!(requests.len() + plan.skip.len(), 3);
    }

    #[test]
    fn the_first_epoch_is_uniform() {
        let plan = decide::<Vip>(&run_with::<Vip>(&[]), &[], &made::view(0..9)).unwrap();
        assert_eq!(plan.action, Plan::sample((0..4).map(|p| Request::new(p, 8))).action);
    }
}
