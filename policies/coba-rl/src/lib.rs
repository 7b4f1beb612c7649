//! CoBA-RL (arXiv 2602.03048): spreads the step's budget over its prompts by a value that moves with the
//! run. While the model fails often, rollouts go to prompts that it often solves; as it improves, to
//! those that it seldom does.
//!
//! The value of N rollouts of a prompt solved with probability p is (1 - exp(-N p (1-p) / τ)) · Beta(p; α, β):
//! α grows with the share of failures over the last steps, β is what is left of a fixed sum, and τ grows
//! with the spread of the pass rates. It is concave in N, so a heap that gives rollouts one by one is exact.
//!
//! Upstream: Within-yao/CoBA-RL aa6b834, `recipe/coba_rl/budget_allocators.py` (`BetaAllocator`). Departures:
//!
//! - A rollout is solved if it is correct; upstream asks for a reward of exactly 1.
//! - The density is not divided by B(α, β), a factor that all prompts of a step share.
//! - `most` follows the run's number of rollouts, where upstream's default is 32.

use allot_policy::Bid;
use allot_policy::prelude::*;
use allot_policy::types::Past;

use std::collections::BinaryHeap;

/// Spreads a budget by a value that moves from often-solved to seldom-solved prompts.
pub struct CobaRl;

/// What a run may set. The defaults are those of upstream's class.
#[derive(Settings)]
pub struct CobaRlSettings {
    /// Fewest rollouts of a prompt.
    #[setting(default = 2)]
    least: u32,
    /// Most rollouts of a prompt; 0 for four times the run's number.
    #[setting(default = 0)]
    most: u32,
    /// Visits of a prompt, and steps of the run, that pass rates are averaged over.
    #[setting(default = 3)]
    window: u32,
    /// Pass rates are kept this far from 0 and 1.
    #[setting(default = 0.01)]
    smoothing: f64,
    /// τ where all pass rates are equal.
    #[setting(default = 3.0)]
    tau_min: f64,
    /// τ where pass rates differ most.
    #[setting(default = 12.0)]
    tau_max: f64,
    /// The variance of pass rates from which on τ is largest.
    #[setting(default = 0.1667)]
    variance_max: f64,
    /// Share of the budget above the fewest rollouts that goes by value.
    #[setting(default = 0.8)]
    by_value: f64,
    /// α + β.
    #[setting(default = 7.0)]
    sum: f64,
}

/// Visits, as (correct, rollouts).
type Outcomes = Vec<(u32, u32)>;

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct CobaRlState {
    /// Mean pass rates of the last steps.
    steps: Vec<f64>,
    /// The last visits of prompts seen twice or more, by prompt and the step of the newest.
    earlier: Vec<((u32, u32), Outcomes)>,
}

impl Policy for CobaRl {
    const NAME: &'static str = "coba-rl";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str =
        "a budget that moves from often-solved to seldom-solved prompts with the run";
    type Settings = CobaRlSettings;
    type State = CobaRlState;

    fn begin(settings: &CobaRlSettings, run: &Run) -> Result<CobaRlState, Error> {
        if settings.window == 0 {
            return Err(bad_setting("window", "must be at least 1"));
        }
        if settings.least == 0 || settings.most(run) < settings.least {
            return Err(bad_setting("least", "must be between 1 and most"));
        }
        if !(settings.smoothing > 0.0 && settings.smoothing < 0.5) {
            return Err(bad_setting("smoothing", "must be between 0 and 0.5, both excluded"));
        }
        if !(settings.tau_min > 0.0 && settings.tau_min <= settings.tau_max && settings.tau_max.is_finite()) {
            return Err(bad_setting("tau-min", "must be above 0 and at most tau-max"));
        }
        if !(settings.variance_max > 0.0 && settings.variance_max.is_finite()) {
            return Err(bad_setting("variance-max", "must be above 0"));
        }
        if !(0.0..=1.0).contains(&settings.by_value) {
            return Err(bad_setting("by-value", "must be between 0 and 1"));
        }
        if !(settings.sum > 2.0 && settings.sum < 1000.0) {
            return Err(bad_setting("sum", "must be above 2 and below 1000"));
        }
        // A budget of one rollout a prompt leaves none to move.
        needs_two(None, run)?;
        Ok(CobaRlState::default())
    }

    fn decide(
        settings: &CobaRlSettings,
        run: &Run,
        state: &mut CobaRlState,
        view: &View,
    ) -> Result<Plan, Error> {
        if view.round > 0 || !view.can_sample() {
            if !view.groups.is_empty() {
                let mean = view.groups.iter().map(Group::pass_rate).sum::<f64>() / view.groups.len() as f64;
                state.steps.push(mean);
                let old = state.steps.len().saturating_sub(settings.window as usize);
                state.steps.drain(..old);
            }
            return Ok(Plan::train(view.groups.iter().map(|g| Pick::all(g.prompt))));
        }
        let prompts: Vec<&Prompt> = view.offer(run.groups).collect();
        let rates: Vec<Option<f64>> = prompts
            .iter()
            .map(|p| p.past.as_ref().map(|past| state.rate(p.id, past, settings.window)))
            .collect();
        let (alpha, beta) = settings.shape(&state.steps);
        let counts = settings.allocate(run, alpha, beta, &rates);
        let requests = prompts.iter().zip(&counts).filter(|(_, n)| **n > 0);
        Ok(Plan::sample(requests.map(|(p, n)| Request::new(p.id, *n)))
            .metric("alpha", alpha)
            .metric("most", f64::from(counts.iter().copied().max().unwrap_or(0))))
    }
}

impl CobaRlState {
    /// The pass rate over the last visits. Visits before the last are remembered here.
    fn rate(&mut self, prompt: PromptId, past: &Past, window: u32) -> f64 {
        let at = self.earlier.binary_search_by_key(&prompt, |((p, _), _)| *p);
        let mut visits = at.map_or_else(|_| Vec::new(), |i| self.earlier[i].1.clone());
        // A prompt comes again before its request was served, where the budget ended.
        if !at.is_ok_and(|i| self.earlier[i].0.1 == past.step) {
            visits.push((past.correct, past.rollouts));
            visits.drain(..visits.len().saturating_sub(window as usize));
            if window > 1 {
                let entry = ((prompt, past.step), visits.clone());
                match at {
                    Ok(i) => self.earlier[i] = entry,
                    Err(i) => self.earlier.insert(i, entry),
                }
            }
        }
        let (correct, rollouts) =
            visits.iter().fold((0, 0), |(c, n), v| (c + u64::from(v.0), n + u64::from(v.1)));
        if rollouts == 0 { 0.5 } else { correct as f64 / rollouts as f64 }
    }
}

impl CobaRlSettings {
    fn most(&self, run: &Run) -> u32 {
        or_else(self.most, run.rollouts.saturating_mul(4))
    }

    /// α and β after steps of these mean pass rates. From half of all solved on, failures count less.
    pub fn shape(&self, steps: &[f64]) -> (f64, f64) {
        if steps.is_empty() {
            return (self.sum - 2.0, 2.0);
        }
        let failed = steps.iter().map(|rate| 1.0 - rate).sum::<f64>() / steps.len() as f64;
        let felt = if failed <= 0.5 { 1.0 / (1.0 + libm::exp(-10.0 * (failed - 0.5))) } else { failed };
        let alpha = (1.0 + (self.sum - 2.0) * felt).clamp(1.0, self.sum - 1.0);
        (alpha, self.sum - alpha)
    }

    /// Rollouts for each prompt by its pass rate (none: never visited), the run's number on average.
    pub fn allocate(&self, run: &Run, alpha: f64, beta: f64, rates: &[Option<f64>]) -> Vec<u32> {
        let (all, most) = (rates.len(), self.most(run));
        let budget = u64::from(run.rollouts) * all as u64;
        let base = u64::from(self.least) * all as u64;
        if all == 0 || rates.iter().all(Option::is_none) || budget < base {
            return vec![run.rollouts; all];
        }
        let rates: Vec<f64> = rates.iter().map(|rate| rate.unwrap_or(0.5)).collect();
        let of = |kind: fn(f64) -> bool| (0..all).filter(|i| kind(rates[*i])).collect::<Vec<usize>>();
        let hard = of(|p| p < 0.05);
        let open = of(|p| (0.05..=0.99).contains(&p));
        let easy = of(|p| p > 0.99);

        let mut counts = vec![self.least; all];
        let mut left = budget - base;
        let share = if open.len() * 2 > all {
            self.by_value
        } else {
            0.6 + (self.by_value - 0.6) * (open.len() as f64 / all as f64 * 2.0)
        };
        let by_value = if open.is_empty() { 0 } else { (left as f64 * share.max(0.0)) as u64 };
        left -= self.greedy(&mut counts, &rates, &open, by_value.min(left), most, alpha, beta);
        for kind in [&hard, &open, &easy] {
            left = spread(&mut counts, &rates, kind, left, most);
        }
        counts
    }

    /// Gives up to `budget` rollouts one by one to whichever of `open` gains most, and says how many.
    #[expect(clippy::too_many_arguments, reason = "the terms of one formula")]
    fn greedy(
        &self,
        counts: &mut [u32],
        rates: &[f64],
        open: &[usize],
        budget: u64,
        most: u32,
        alpha: f64,
        beta: f64,
    ) -> u64 {
        let smooth = |p: f64| p.clamp(self.smoothing, 1.0 - self.smoothing);
        let n = open.len().max(1) as f64;
        let mean = open.iter().map(|i| smooth(rates[*i])).sum::<f64>() / n;
        let variance = open.iter().map(|i| (smooth(rates[*i]) - mean).powi(2)).sum::<f64>() / n;
        let tau = self.tau_min + (self.tau_max - self.tau_min) * (variance / self.variance_max).min(1.0);
        let gain = |i: usize, n: u32| {
            let p = smooth(rates[i]);
            let density = libm::exp((alpha - 1.0) * libm::log(p) + (beta - 1.0) * libm::log(1.0 - p));
            let left = |n: u32| libm::exp(-f64::from(n) / tau * p * (1.0 - p));
            (left(n) - left(n + 1)) * density
        };
        let bid = |i: usize, n: u32| (n < most).then(|| Bid { gain: gain(i, n), prompt: i });
        let mut heap: BinaryHeap<Bid> = open.iter().filter_map(|i| bid(*i, counts[*i])).collect();
        let mut given = 0;
        while given < budget {
            let Some(Bid { prompt, .. }) = heap.pop() else { break };
            counts[prompt] += 1;
            given += 1;
            heap.extend(bid(prompt, counts[prompt]));
        }
        given
    }
}

/// Spreads what is left over some prompts, more to those seldom solved, and says what is left then.
fn spread(counts: &mut [u32], rates: &[f64], over: &[usize], mut left: u64, most: u32) -> u64 {
    let weight = |i: usize| 1.0 - rates[i].clamp(1e-6, 1.0 - 1e-6);
    let below = |counts: &[u32]| over.iter().copied().filter(|i| counts[*i] < most).collect::<Vec<_>>();
    let takers = below(counts);
    let total: f64 = takers.iter().map(|i| weight(*i)).sum();
    for i in takers {
        // Of what is left by now, as upstream: the first of equal prompts gets more.
        left -= give(&mut counts[i], (left as f64 * weight(i) / total) as u64, most);
    }
    let takers = below(counts);
    let Some(even) = left.checked_div(takers.len() as u64) else { return left };
    let more = left % takers.len() as u64;
    for (k, i) in takers.into_iter().enumerate() {
        left -= give(&mut counts[i], even + u64::from((k as u64) < more), most);
    }
    left
}

/// Adds up to `n` rollouts, and says how many.
fn give(count: &mut u32, n: u64, most: u32) -> u64 {
    let n = n.min(u64::from(most - *count));
    *count += n as u32;
    n
}

allot_policy::export!(CobaRl);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::{begin, decide, made, run_with};

    fn counts(steps: &[f64], rates: &[f64]) -> Vec<u32> {
        let run = run_with::<CobaRl>(&[]);
        let settings = CobaRlSettings::read(&run).unwrap();
        let (alpha, beta) = settings.shape(steps);
        settings.allocate(&run, alpha, beta, &rates.iter().copied().map(Some).collect::<Vec<_>>())
    }

    #[test]
    fn the_value_moves_from_easy_to_hard() {
        let early = counts(&[0.1], &[0.2, 0.5, 0.8]);
        let late = counts(&[0.9], &[0.2, 0.5, 0.8]);
        assert!(early[2] > early[0], "{early:?}");
        assert!(late[0] > late[2], "{late:?}");
        assert_eq!((early.iter().sum::<u32>(), late.iter().sum::<u32>()), (24, 24));
    }

    #[test]
    fn the_budget_is_spent_as_far_as_prompts_can_take_it() {
        let mut chance = Chance::new(4);
        for _ in 0..500 {
            let rates: Vec<f64> = (0..=chance.below(9)).map(|_| chance.below(9) as f64 / 8.0).collect();
            let counts = counts(&[chance.unit()], &rates);
            assert_eq!(counts.iter().sum::<u32>(), 8 * rates.len() as u32, "{rates:?}");
            assert!(counts.iter().all(|n| (2..=32).contains(n)));
        }
    }

    #[test]
    fn unseen_prompts_share_evenly() {
        let run = run_with::<CobaRl>(&[]);
        let plan = decide::<CobaRl>(&run, &begin::<CobaRl>(&run).unwrap(), &made::view(0..9)).unwrap();
        assert_eq!(plan.action, Plan::sample((0..4).map(|p| Request::new(p, 8))).action);
    }

    #[test]
    fn a_pass_rate_is_over_the_last_visits() {
        let mut state = CobaRlState::default();
        let mut past = made::past(8, 8);
        for (step, correct, rate) in [(1, 8, 1.0), (2, 0, 0.5), (2, 0, 0.5), (3, 4, 0.5), (4, 0, 1.0 / 6.0)] {
            (past.step, past.correct) = (step, correct);
            assert_eq!(state.rate(7, &past, 3), rate, "step {step}");
        }
        assert_eq!(CobaRlState::load(&state.save()), Ok(state));
    }
}
