//! One rollout of each prompt, measured against the mean of late, and learned from where its outcome is the rarer one. Our
//! own, not a published method; the first part is SPO's (arXiv 2509.13232).
//!
//! **One rollout.** A group spends rollouts to learn what its prompt's mean reward is, and all of them where it has no
//! variance. Here each rollout is of another prompt, and the mean is that of all rollouts of late.
//!
//! **The rarer outcome.** With score vectors s and a pass rate p, E[1{right} s] = -E[1{wrong} s] = ∇p: right answers alone
//! and wrong answers alone both point where p grows, and so does r - v for any v. They differ in noise and in cost. Per
//! unit of signal the noise is p (1 - p) for r - p, p for right answers alone, 1 - p for wrong ones alone; an answer costs
//! c_s to sample and c_t more to learn from. Noise times cost is least for the rarer outcome alone where its share is below
//! c_t / (2 c_t + c_s), and for all answers above; nothing in between is better. What is never solved, or always, then
//! costs nothing to learn from and adds no noise, whether or not it is known. Rewards of two values, such as -1 and 1, are
//! two outcomes; where there are more values, all answers are learned from.
//!
//! **A memory, if wanted.** With `memory`, prompts that come back are told apart by how often they were sampled and solved,
//! and the last time: the mean is of those alike, and a prompt is passed over until the next epoch, the likelier the further
//! its v (1 - v) is below the best. On 400 prompts that came forty times it took twice the rollouts to the target, and then
//! ended three points higher (docs/archive/2026-11-23-evidence.md). It is off: few data sets are as small.

use allot_policy::prelude::*;

/// One rollout of each prompt, measured against the mean of late.
pub struct Prospect;

/// What a run may set.
#[derive(Settings)]
pub struct ProspectSettings {
    /// Prompts in a step; 0 for as many as a uniform policy has rollouts.
    #[setting(default = 0)]
    prompts: u32,
    /// Tell prompts apart by their pasts.
    #[setting(default = false)]
    memory: bool,
    /// Rollouts that make a value: those before them fade.
    #[setting(default = 200.0)]
    window: f64,
    /// With a memory, the least chance of a prompt with a past to be sampled when it is on offer.
    #[setting(default = 0.1)]
    explore: f64,
    /// Learn from the commoner outcome, too, however rare the other is.
    #[setting(default = false)]
    both: bool,
}

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct ProspectState {
    /// Rewards and rollouts of late, by the kind of past that their prompts had.
    kinds: Vec<(f64, f64)>,
    /// The rewards that were seen, in ascending order, and no more than three: with three, or an odd one alone, there are
    /// no two outcomes to tell apart.
    seen: Vec<f64>,
}

/// Kinds of pasts.
const KINDS: usize = 20;
/// The past of a prompt that was never sampled.
const NONE: usize = 0;

impl Policy for Prospect {
    const NAME: &'static str = "prospect";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str =
        "one rollout of each prompt, measured against the mean of late; learns from the rarer outcome";
    type Settings = ProspectSettings;
    type State = ProspectState;

    fn begin(settings: &ProspectSettings, run: &Run) -> Result<ProspectState, Error> {
        if !(settings.window >= 1.0 && settings.window <= 1e9) {
            return Err(bad_setting("window", "must be at least 1 and at most a billion"));
        }
        if !(settings.explore > 0.0 && settings.explore <= 1.0) {
            return Err(bad_setting("explore", "must be above 0 and at most 1"));
        }
        if run.pool < settings.prompts(run) {
            let wanted = settings.prompts(run);
            log::warn(&format!("the pool has {} prompts on offer, a step takes {wanted}", run.pool));
        }
        Ok(ProspectState { kinds: vec![(0.5, 1.0); KINDS], seen: Vec::new() })
    }

    fn decide(
        settings: &ProspectSettings,
        run: &Run,
        state: &mut ProspectState,
        view: &View,
    ) -> Result<Plan, Error> {
        if view.round == 0 && view.can_sample() {
            let (chosen, passed) = settings.choose(state, view, settings.prompts(run) as usize);
            return Ok(Plan::sample(chosen.into_iter().map(|p| Request::new(p, 1))).skip(passed));
        }
        view.groups.iter().flat_map(|g| &g.rewards).for_each(|reward| state.see(f64::from(*reward)));
        let outcomes = state.outcomes().filter(|_| !settings.both);
        let rare = threshold(&facts::costs());
        let kinds = settings.kinds(&view.groups);
        let pick = |(group, kind): (&Group, &usize)| {
            let value = state.value(*kind);
            pick(group, outcomes.map_or(value, |ends| measured(value, ends, rare)))
        };
        let picks: Vec<Pick> = view.groups.iter().zip(&kinds).filter_map(pick).collect();
        let learned = picks.len() as f64;
        let plan = Plan::train(picks).metric("learned", learned).metric("value", state.value(NONE));
        for (group, kind) in view.groups.iter().zip(kinds) {
            group.rewards.iter().for_each(|reward| settings.remember(state, kind, f64::from(*reward)));
        }
        Ok(plan)
    }
}

impl ProspectSettings {
    fn prompts(&self, run: &Run) -> u32 {
        or_else(self.prompts, run.groups.saturating_mul(run.rollouts))
    }

    /// Prompts to sample, and those passed over on the way.
    fn choose(&self, state: &ProspectState, view: &View, count: usize) -> (Vec<PromptId>, Vec<PromptId>) {
        let mut chance = Chance::new(view.seed);
        let best = (0..KINDS).map(|kind| state.spread(kind)).fold(f64::MIN_POSITIVE, f64::max);
        let (mut chosen, mut passed) = (Vec::new(), Vec::new());
        for prompt in &view.pool {
            if chosen.len() == count {
                break;
            }
            let sampled = prompt.past.as_ref().filter(|_| self.memory).is_none_or(|past| {
                let kind = kind(past.total_rollouts, past.total_correct, past.correct);
                chance.unit() < (state.spread(kind) / best).max(self.explore)
            });
            if sampled { &mut chosen } else { &mut passed }.push(prompt.id);
        }
        if chosen.is_empty() {
            // None would end the run.
            chosen.extend(passed.pop());
        }
        (chosen, passed)
    }

    /// The kinds of past that the prompts of these groups had before them.
    fn kinds(&self, groups: &[Group]) -> Vec<usize> {
        if !self.memory {
            return vec![NONE; groups.len()];
        }
        let prompts: Vec<PromptId> = groups.iter().map(|g| g.prompt).collect();
        let [rollouts, correct, last] = [Count::TotalRollouts, Count::TotalCorrect, Count::Correct]
            .map(|what| facts::counts(what, prompts.as_slice()));
        (0..prompts.len()).map(|i| kind(rollouts[i], correct[i], last[i])).collect()
    }

    /// Takes a reward into the mean of its kind.
    fn remember(&self, state: &mut ProspectState, kind: usize, reward: f64) {
        let (rewards, rollouts) = &mut state.kinds[kind];
        let keep = 1.0 - 1.0 / self.window;
        (*rewards, *rollouts) = (*rewards * keep + reward, *rollouts * keep + 1.0);
    }
}

impl ProspectState {
    /// The reward expected of a prompt with such a past.
    fn value(&self, kind: usize) -> f64 {
        let (rewards, rollouts) = self.kinds[kind];
        rewards / rollouts
    }

    /// The variance of an outcome of prompts with such a past, in parts of the way between two outcomes.
    fn spread(&self, kind: usize) -> f64 {
        let (low, high) = self.outcomes().unwrap_or((0.0, 1.0));
        let share = (self.value(kind) - low) / (high - low);
        (share * (1.0 - share)).max(0.0)
    }

    /// Takes note of a reward. Before the first one, half of the way between two outcomes is expected, in one rollout: soon
    /// outweighed. Which two they are may be known only when the second comes: what is left of that rollout then moves.
    fn see(&mut self, reward: f64) {
        if self.seen.len() >= 3 || self.seen.contains(&reward) {
            return;
        }
        let before = self.middle();
        let only = if let [only] = *self.seen.as_slice() { Some(only) } else { None };
        self.seen.push(reward);
        self.seen.sort_by(f64::total_cmp);
        let moved = self.middle() - before;
        if moved == 0.0 || self.seen.len() > 2 {
            return;
        }
        for (rewards, rollouts) in &mut self.kinds {
            // All others had one reward.
            let left = only.map_or(1.0, |only| (*rewards - only * *rollouts) / (before - only));
            *rewards += if left.is_finite() { left * moved } else { 0.0 };
        }
    }

    fn middle(&self) -> f64 {
        self.outcomes().map_or(0.5, |(low, high)| low.midpoint(high))
    }

    /// The two outcomes that rewards tell apart. One that was seen alone has the usual other one.
    fn outcomes(&self) -> Option<(f64, f64)> {
        match *self.seen.as_slice() {
            [] | [0.0 | 1.0] => Some((0.0, 1.0)),
            [-1.0] => Some((-1.0, 1.0)),
            [low, high] => Some((low, high)),
            _ => None,
        }
    }
}

/// The kind of past of a prompt with so many rollouts, of which so many were correct, in its last visit so many: the
/// counts themselves up to three rollouts, and after that whether none, few, some, most or all were correct, and whether the
/// last visit had a correct one.
fn kind(rollouts: u32, correct: u32, last: u32) -> usize {
    let share = match (rollouts, correct) {
        (0, _) => return NONE,
        (n @ 1..=3, k) => return (n * (n + 1) / 2 + k) as usize,
        (_, 0) => 0,
        (n, k) if k == n => 4,
        (n, k) if 3 * k < n => 1,
        (n, k) if 3 * k > 2 * n => 3,
        _ => 2,
    };
    10 + 5 * usize::from(last > 0) + share
}

/// The share below which an outcome is learned from alone. Nothing is computed in a simulation: there, learning
/// takes three times what sampling does, a backward pass being two forward ones.
pub fn threshold(costs: &facts::TokenCosts) -> f64 {
    match (costs.generating, costs.learning) {
        (0.0, 0.0) => 3.0 / 7.0,
        (sampling, learning) => learning / (2.0 * learning + sampling),
    }
}

/// What rewards are measured against: the value, or the commoner of two outcomes if the other's share is below `rare`.
fn measured(value: f64, (low, high): (f64, f64), rare: f64) -> f64 {
    match (value - low) / (high - low) {
        share if share < rare => low,
        share if share > 1.0 - rare => high,
        _ => value,
    }
}

/// What is learned from a prompt's rollouts, if anything.
fn pick(group: &Group, measured: f64) -> Option<Pick> {
    // An advantage has bounds; rewards have none.
    let advantage = |r: &f32| (f64::from(*r) - measured).clamp(-1e6, 1e6) as f32;
    let given: Vec<f32> = group.rewards.iter().map(advantage).collect();
    given.iter().any(|a| *a != 0.0).then(|| Pick::all(group.prompt).advantage(Advantage::Given(given)))
}

allot_policy::export!(Prospect);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::{Past, Value};
    use allot_policy::{begin, decide, made, run_with};

    /// Trains on one rollout of each of these prompts, of which the host knows this past.
    fn learn(
        run: &Run,
        state: &[u8],
        past: Option<Past>,
        outcomes: &[(PromptId, u8)],
    ) -> (Vec<(PromptId, Vec<f32>)>, Vec<u8>) {
        let mut facts = made::Facts::of(100).costs(1.0, 1.0, 3.0);
        for (prompt, _) in outcomes {
            facts = past.into_iter().fold(facts, |facts, past| facts.visited(*prompt, past));
        }
        facts.tell();
        let mut view = made::view(0..0);
        (view.round, view.groups) = (1, outcomes.iter().map(|(p, mark)| made::group(*p, &[*mark])).collect());
        let plan = decide::<Prospect>(run, state, &view).unwrap();
        let Action::Train(batch) = plan.action else { panic!("trains") };
        let picks = batch.picks.into_iter().map(|pick| match pick.advantage {
            Advantage::Given(given) => (pick.prompt, given),
            other => panic!("{other:?}"),
        });
        (picks.collect(), plan.state)
    }

    fn many(mark: u8, of: std::ops::Range<PromptId>) -> Vec<(PromptId, u8)> {
        of.map(|p| (p, mark)).collect()
    }

    #[test]
    fn one_rollout_of_as_many_prompts_as_a_step_has_rollouts() {
        let run = run_with::<Prospect>(&[]);
        let plan = decide::<Prospect>(&run, &begin::<Prospect>(&run).unwrap(), &made::view(0..64)).unwrap();
        let Action::Sample(requests) = plan.action else { panic!("samples") };
        assert_eq!((requests.len(), requests.iter().map(|r| r.count).max()), (32, Some(1)));
        assert_eq!(plan.skip, [], "all of them are new");
    }

    #[test]
    fn only_the_rarer_outcome_is_learned_from() {
        let run = run_with::<Prospect>(&[]);
        let fresh = begin::<Prospect>(&run).unwrap();
        let (picks, hard) = learn(&run, &fresh, None, &many(0, 0..60));
        assert_eq!(picks[0], (0, vec![-0.5]), "nothing is known yet: one half is expected");
        let (picks, _) = learn(&run, &hard, None, &[(70, 0), (71, 1)]);
        assert_eq!(picks, [(71, vec![1.0])]);

        let (_, easy) = learn(&run, &fresh, None, &many(1, 0..60));
        let (picks, _) = learn(&run, &easy, None, &[(70, 0), (71, 1)]);
        assert_eq!(picks, [(70, vec![-1.0])]);

        let both = run_with::<Prospect>(&[("both", Value::Flag(true))]);
        let (picks, _) = learn(&both, &hard, None, &[(70, 0), (71, 1)]);
        assert!(picks.len() == 2 && picks[0].1[0] > -0.02 && picks[1].1[0] > 0.98, "{picks:?}");
    }

    #[test]
    fn where_rewards_have_degrees_all_are_learned_from() {
        let run = run_with::<Prospect>(&[]);
        let (_, hard) = learn(&run, &begin::<Prospect>(&run).unwrap(), None, &many(0, 0..60));
        let mut view = made::view(0..0);
        (view.round, view.groups) =
            (1, vec![made::rewarded(70, &[0.0]), made::rewarded(71, &[0.3]), made::rewarded(72, &[0.5])]);
        let plan = decide::<Prospect>(&run, &hard, &view).unwrap();
        let Action::Train(batch) = plan.action else { panic!("trains") };
        assert_eq!(batch.picks.len(), 3);
        assert_eq!(ProspectState::load(&plan.state).unwrap().outcomes(), None);
    }

    #[test]
    fn two_rewards_of_any_size_are_two_outcomes() {
        let run = run_with::<Prospect>(&[]);
        let mut shares: Vec<f64> = Vec::new();
        for (wrong, right) in [(0.0, 1.0), (-1.0, 1.0), (0.0, 10.0), (10.0, 0.0), (-0.5, 0.25)] {
            let rounds = [vec![wrong; 60], vec![wrong, right], vec![right; 900], vec![wrong, right]];
            let mut state = begin::<Prospect>(&run).unwrap();
            let mut batches = Vec::new();
            for rewards in rounds {
                made::Facts::of(1000).costs(1.0, 1.0, 3.0).tell();
                let mut view = made::view(0..0);
                view.round = 1;
                view.groups = (0..).zip(&rewards).map(|(p, reward)| made::rewarded(p, &[*reward])).collect();
                let plan = decide::<Prospect>(&run, &state, &view).unwrap();
                let Action::Train(batch) = plan.action else { panic!("trains") };
                batches.push(batch.picks);
                state = plan.state;
            }
            let apart = right - wrong;
            let all = |batch: &[Pick]| -> Vec<(PromptId, Advantage)> {
                batch.iter().map(|pick| (pick.prompt, pick.advantage.clone())).collect()
            };
            assert_eq!(all(&batches[1]), [(1, Advantage::Given(vec![apart]))], "the right one is rare");
            assert_eq!(all(&batches[3]), [(0, Advantage::Given(vec![-apart]))], "the wrong one is rare");
            let state = ProspectState::load(&state).unwrap();
            let share = (state.value(NONE) - f64::from(wrong)) / f64::from(apart);
            shares.push(share);
            assert!((state.spread(NONE) - share * (1.0 - share)).abs() < 1e-9);
        }
        let same = |share: &f64| (share - shares[0]).abs() < 1e-9;
        assert!(shares.iter().all(same), "the same as with 0 and 1: {shares:?}");
    }

    #[test]
    fn what_followed_a_past_is_expected_of_prompts_that_share_it() {
        let run = run_with::<Prospect>(&[("memory", Value::Flag(true))]);
        let mut state = begin::<Prospect>(&run).unwrap();
        state = learn(&run, &state, Some(made::past(1, 1)), &many(1, 0..40)).1;
        state = learn(&run, &state, Some(made::past(0, 1)), &many(0, 0..40)).1;
        let both = run_with::<Prospect>(&[("both", Value::Flag(true)), ("memory", Value::Flag(true))]);
        for (past, expected) in [(Some(made::past(1, 1)), 0.98), (Some(made::past(0, 1)), 0.02), (None, 0.5)]
        {
            let (picks, _) = learn(&both, &state, past, &[(9, 1)]);
            assert!((1.0 - f64::from(picks[0].1[0]) - expected).abs() < 0.02, "{past:?}: {picks:?}");
        }
        let without = run_with::<Prospect>(&[]);
        let (picks, _) = learn(&without, &state, Some(made::past(1, 1)), &[(9, 1)]);
        assert_eq!(picks[0].1, [0.5]);
    }

    #[test]
    fn every_past_has_a_kind_of_its_own() {
        let mut kinds: Vec<usize> =
            (0..=3).flat_map(|n| (0..=n).map(move |k| kind(n, k, k.min(1)))).collect();
        assert_eq!(kinds, (0..10).collect::<Vec<_>>());
        kinds.extend([0, 1].into_iter().flat_map(|last| [0, 3, 5, 8, 10].map(|k| kind(10, k, last))));
        assert_eq!(kinds, (0..KINDS).collect::<Vec<_>>());
    }

    #[test]
    fn the_threshold_is_where_noise_times_cost_is_the_same() {
        for (sampling, learning) in [(1.0, 3.0), (2.0, 3.0), (1.0, 0.5), (0.0, 1.0)] {
            let costs = facts::TokenCosts { reading: 1.0, generating: sampling, learning };
            let p = threshold(&costs);
            let (all, alone) = (p * (1.0 - p) * (sampling + learning), p * (sampling + p * learning));
            assert!((all - alone).abs() < 1e-12, "{sampling} {learning}: {all} {alone}");
        }
    }

    #[test]
    fn what_is_known_to_be_flat_is_passed_over_for_the_most_part() {
        let run = run_with::<Prospect>(&[("prompts", Value::Integer(1000)), ("memory", Value::Flag(true))]);
        let mut state = begin::<Prospect>(&run).unwrap();
        let (mixed, flat) = (Past { correct: 1, ..made::past(5, 10) }, made::past(0, 10));
        for mark in [0, 1, 0, 1] {
            state = learn(&run, &state, Some(mixed), &many(mark, 0..50)).1;
            state = learn(&run, &state, Some(flat), &many(0, 0..50)).1;
        }
        let mut view = made::view(0..500);
        for prompt in &mut view.pool {
            prompt.past = [Some(mixed), Some(flat), None][usize::min(prompt.id as usize / 100, 2)];
        }
        let plan = decide::<Prospect>(&run, &state, &view).unwrap();
        let Action::Sample(requests) = plan.action else { panic!("samples") };
        let of = |range: std::ops::Range<u32>| requests.iter().filter(|r| range.contains(&r.prompt)).count();
        assert!(of(0..100) > 90, "{}", of(0..100));
        assert!((1..30).contains(&of(100..200)), "{}", of(100..200));
        assert_eq!(of(200..500), 300, "new prompts");
        assert_eq!(requests.len() + plan.skip.len(), 500);
    }
}
