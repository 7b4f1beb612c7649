//! Knapsack RL (arXiv 2509.25849): spreads the step's budget over its prompts so that the sum of their
//! values is largest, by how often each was solved at its last visit.
//!
//! The value of N rollouts of a prompt solved with probability p is (1 - pᴺ - (1-p)ᴺ) · p (1-p)²: the
//! chance of a mixed group times what its gradient is worth. It is concave in N, so giving rollouts one
//! by one to the prompt that gains most is exact, and needs no table; upstream solves the same by
//! dynamic programming, against which the tests below check.
//!
//! Upstream: the authors' allocator, whose repository the index does not name. Departures: `max-rollouts`
//! has a default, where upstream crashes without one; ties go to the earlier prompt.

use allot_policy::Bid;
use allot_policy::prelude::*;

use std::collections::BinaryHeap;

/// Spreads a budget by how likely each prompt is to give a useful gradient.
pub struct Knapsack;

/// What a run may set.
#[derive(Settings)]
pub struct KnapsackSettings {
    /// Fewest rollouts of a prompt that was sometimes solved.
    #[setting(default = 2)]
    min_rollouts: u32,
    /// Most rollouts of a prompt that was sometimes solved.
    #[setting(default = 128)]
    max_rollouts: u32,
    /// Rollouts of a prompt that was never solved; 0 for `min-rollouts`.
    #[setting(default = 0)]
    never_solved: u32,
    /// Rollouts of a prompt that was always solved; 0 for `min-rollouts`.
    #[setting(default = 0)]
    always_solved: u32,
    /// Sometimes-solved prompts need no more than gives a mixed group with this probability; what they
    /// leave goes to those never solved.
    #[setting(default = 0.9)]
    certainty: f64,
}

impl Policy for Knapsack {
    const NAME: &'static str = "knapsack";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "spreads the budget over the batch by how likely a useful gradient is";
    type Settings = KnapsackSettings;
    type State = ();

    fn begin(settings: &KnapsackSettings, run: &Run) -> Result<(), Error> {
        if settings.min_rollouts == 0 || settings.max_rollouts < settings.min_rollouts {
            return Err(bad_setting("min-rollouts", "must be between 1 and max-rollouts"));
        }
        if !(settings.certainty > 0.0 && settings.certainty < 1.0) {
            return Err(bad_setting("certainty", "must be between 0 and 1, both excluded"));
        }
        // No prompt is given more than the run's number where that is one for each.
        needs_two(None, run)
    }

    fn decide(settings: &KnapsackSettings, run: &Run, (): &mut (), view: &View) -> Result<Plan, Error> {
        if view.round > 0 || !view.can_sample() {
            return Ok(Plan::train(view.groups.iter().map(|g| Pick::all(g.prompt))));
        }
        let prompts: Vec<&Prompt> = view.offer(run.groups).collect();
        let rates: Vec<Option<f64>> = prompts
            .iter()
            .map(|p| {
                p.past
                    .filter(|past| past.rollouts > 0)
                    .map(|past| f64::from(past.correct.min(past.rollouts)) / f64::from(past.rollouts))
            })
            .collect();
        let counts = allocate(settings, run.rollouts, &rates);
        let requests = prompts.iter().zip(&counts).filter(|(_, n)| **n > 0);
        Ok(Plan::sample(requests.map(|(p, n)| Request::new(p.id, *n)))
            .metric("most", f64::from(counts.iter().copied().max().unwrap_or(0))))
    }
}

/// The value of `n` rollouts of a prompt solved with probability `p`.
pub fn value(n: u32, p: f64) -> f64 {
    let n = n.cast_signed();
    (1.0 - p.powi(n) - (1.0 - p).powi(n)) * p * (1.0 - p).powi(2)
}

/// Rollouts for each prompt by its pass rate at the last visit (none: never visited), `rollouts` a
/// prompt on average.
pub fn allocate(settings: &KnapsackSettings, rollouts: u32, rates: &[Option<f64>]) -> Vec<u32> {
    let rollouts = rollouts.max(1);
    let budget = u64::from(rollouts) * rates.len() as u64;
    let least = settings.min_rollouts.clamp(1, rollouts);
    let never = or_else(settings.never_solved, least).min(rollouts);
    let always = or_else(settings.always_solved, least).min(rollouts);
    let most = settings.max_rollouts.max(least);
    let mixed = |rate: &Option<f64>| rate.filter(|p| *p > 0.0 && *p < 1.0);

    let mut counts: Vec<u32> = rates
        .iter()
        .map(|rate| match rate {
            None => rollouts,
            Some(p) if *p <= 0.0 => never,
            Some(p) if *p >= 1.0 => always,
            Some(_) => least,
        })
        .collect();
    let mut left = budget - counts.iter().map(|n| u64::from(*n)).sum::<u64>();

    // What the mixed prompts need to be mixed again is theirs first; the surplus goes to the unsolved.
    // Upstream's ceil(ln(1 - certainty) / ln(max(p, 1 - p))), counted out: logarithms differ by machine.
    let flat = 1.0 - settings.certainty;
    let need = |p: f64| (least..most).find(|n| p.max(1.0 - p).powi(n.cast_signed()) <= flat).unwrap_or(most);
    let wanted: u64 = rates.iter().filter_map(mixed).map(|p| u64::from(need(p) - least)).sum();
    let surplus = left.saturating_sub(wanted);
    left -= surplus;
    let unsolved: Vec<usize> = (0..rates.len()).filter(|i| rates[*i] == Some(0.0)).collect();
    if unsolved.is_empty() {
        left += surplus;
    } else {
        spread(&mut counts, &unsolved, surplus);
    }

    // Rollout by rollout to whoever gains most.
    let gain = |i: usize, n: u32| rates[i].map_or(0.0, |p| value(n + 1, p) - value(n, p));
    let mut heap: BinaryHeap<Bid> = (0..rates.len())
        .filter(|i| mixed(&rates[*i]).is_some() && counts[*i] < most)
        .map(|i| Bid { gain: gain(i, counts[i]), prompt: i })
        .collect();
    while left > 0 {
        let Some(Bid { prompt, .. }) = heap.pop() else { break };
        counts[prompt] += 1;
        left -= 1;
        if counts[prompt] < most {
            heap.push(Bid { gain: gain(prompt, counts[prompt]), prompt });
        }
    }
    // What the mixed ones can't take: to the unsolved, or else evenly to all.
    let rest = if unsolved.is_empty() { (0..rates.len()).collect() } else { unsolved };
    spread(&mut counts, &rest, left);
    counts
}

/// Adds `extra` evenly, the remainder to the first.
fn spread(counts: &mut [u32], over: &[usize], extra: u64) {
    let Some(share) = extra.checked_div(over.len() as u64) else { return };
    let rest = extra % over.len() as u64;
    for (k, i) in over.iter().enumerate() {
        counts[*i] += (share + u64::from((k as u64) < rest)) as u32;
    }
}

allot_policy::export!(Knapsack);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::{decide, made, run_with};

    const SETTINGS: KnapsackSettings = KnapsackSettings {
        min_rollouts: 2,
        max_rollouts: 12,
        never_solved: 0,
        always_solved: 0,
        certainty: 0.9,
    };

    /// The best sum of values of any division of the budget, by dynamic programming.
    fn best(rates: &[f64], least: usize, most: usize, budget: usize) -> f64 {
        let mut table = vec![0.0; budget + 1];
        for p in rates {
            let with = |b: usize| {
                (least..=most.min(b)).map(|n| table[b - n] + value(n as u32, *p)).fold(f64::MIN, f64::max)
            };
            table = (0..=budget).map(with).collect();
        }
        table[budget]
    }

    #[test]
    fn one_by_one_is_as_good_as_dynamic_programming() {
        let mut chance = Chance::new(5);
        for _ in 0..200 {
            let n = 1 + chance.below(6);
            let rates: Vec<f64> = (0..n).map(|_| (1 + chance.below(7)) as f64 / 8.0).collect();
            let counts = allocate(&SETTINGS, 4, &rates.iter().copied().map(Some).collect::<Vec<_>>());
            assert_eq!(counts.iter().sum::<u32>(), 4 * n as u32);
            let got: f64 = counts.iter().zip(&rates).map(|(n, p)| value(*n, *p)).sum();
            assert!((got - best(&rates, 2, 12, 4 * n)).abs() < 1e-12, "{rates:?} {counts:?}");
        }
    }

    #[test]
    fn the_budget_is_always_spent() {
        let mut chance = Chance::new(6);
        let kinds = [None, Some(0.0), Some(1.0), Some(0.1), Some(0.5), Some(0.999)];
        for _ in 0..500 {
            let rates: Vec<Option<f64>> = (0..chance.below(9)).map(|_| kinds[chance.below(6)]).collect();
            let rollouts = 1 + chance.below(16) as u32;
            let counts = allocate(&SETTINGS, rollouts, &rates);
            assert_eq!(counts.iter().sum::<u32>(), rollouts * rates.len() as u32, "{rates:?}");
            assert!(counts.iter().all(|n| *n > 0));
        }
    }

    #[test]
    fn unsolved_prompts_get_what_the_others_do_not_need() {
        // One at a half needs 4 rollouts to be mixed with probability 0.9; the other 12 of 16 are left.
        assert_eq!(allocate(&SETTINGS, 8, &[Some(0.5), Some(0.0)]), [4, 12]);
        assert_eq!(allocate(&SETTINGS, 8, &[None, None]), [8, 8]);
        assert_eq!(allocate(&SETTINGS, 8, &[Some(1.0), Some(1.0)]), [8, 8]);
    }

    #[test]
    fn harder_prompts_get_more() {
        let run = Run { groups: 2, ..run_with::<Knapsack>(&[]) };
        let mut view = made::view(0..2);
        view.pool[0].past = Some(made::past(1, 8));
        view.pool[1].past = Some(made::past(7, 8));
        let Action::Sample(requests) = decide::<Knapsack>(&run, &[], &view).unwrap().action else {
            panic!("samples")
        };
        assert!(requests[0].count > requests[1].count);
        assert_eq!(requests[0].count + requests[1].count, 16);
    }
}
