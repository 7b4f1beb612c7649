//! One rollout of each prompt, measured against what followed outcomes like its last ones, and learned from where the
//! outcome is the rarer one. Our own, not a published method; the first part is SPO's (arXiv 2509.13232).
//!
//! **One rollout.** A group spends rollouts to learn what its prompt's mean reward is, and all of them where it has no
//! variance. Here each rollout is of another prompt, and the mean comes from memory: of all rollouts whose prompts had the
//! same last outcomes, the mean reward of late. So prompts that come once share one value, and prompts that come back
//! have one that fits them, without a prior, a rate of forgetting for each prompt, or a model of difficulty.
//!
//! **The rarer outcome.** With score vectors s and a pass rate p, E[1{right} s] = -E[1{wrong} s] = ∇p: right answers alone
//! and wrong answers alone both point where p grows, and so does r - v for any v. They differ in noise and in cost. Per
//! unit of signal the noise is p (1 - p) for r - p, p for right answers alone, 1 - p for wrong ones alone; an answer costs
//! c_s to sample and c_t more to learn from. Noise times cost is least for the rarer outcome alone where its share is below
//! c_t / (2 c_t + c_s), and for all answers above; nothing in between is better. What is never solved, or always, then
//! costs nothing to learn from and adds no noise, whether or not it is known.
//!
//! **Which prompts.** A prompt without a past is always sampled. One with a past is passed over, until the next epoch, by a
//! chance that rises as its v (1 - v) falls below the best of any past, and that is never 1.

use allot_policy::prelude::*;

/// One rollout of each prompt, measured against what followed outcomes like its last.
pub struct Prospect;

/// What a run may set.
#[derive(Settings)]
pub struct ProspectSettings {
    /// Prompts in a step; 0 for as many as a uniform policy has rollouts.
    #[setting(default = 0)]
    prompts: u32,
    /// How many of a prompt's last outcomes are remembered.
    #[setting(default = 3)]
    memory: u32,
    /// Rollouts that make a value: those before them fade.
    #[setting(default = 200.0)]
    window: f64,
    /// The least chance of a prompt with a past to be sampled when it is on offer.
    #[setting(default = 0.1)]
    explore: f64,
    /// Learn from the commoner outcome, too, however rare the other is.
    #[setting(default = false)]
    both: bool,
}

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct ProspectState {
    /// Rewards and rollouts of late, by the past of their prompts.
    pasts: Vec<(f64, f64)>,
    /// The past of each prompt that has one: its last outcomes in binary, the latest last, after a leading 1.
    recent: Vec<(PromptId, u32)>,
    /// A reward was neither 0 nor 1: there are no two outcomes to tell apart.
    graded: bool,
}

/// The past of a prompt that was never sampled.
const NONE: u32 = 1;

impl Policy for Prospect {
    const NAME: &'static str = "prospect";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str =
        "one rollout of each prompt, measured against a shared memory; learns from the rarer outcome";
    type Settings = ProspectSettings;
    type State = ProspectState;

    fn begin(settings: &ProspectSettings, run: &Run) -> Result<ProspectState, Error> {
        if settings.memory > 10 {
            return Err(bad_setting("memory", "must be at most 10"));
        }
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
        // Half a reward in one rollout: soon outweighed.
        Ok(ProspectState { pasts: vec![(0.5, 1.0); 2 << settings.memory], ..ProspectState::default() })
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
        state.graded |= view.groups.iter().flat_map(|g| &g.rewards).any(|r| *r != 0.0 && *r != 1.0);
        let rare = if settings.both || state.graded { 0.0 } else { threshold(&facts::costs()) };
        let picks: Vec<Pick> =
            view.groups.iter().filter_map(|g| pick(g, state.value(g.prompt), rare)).collect();
        let learned = picks.len() as f64;
        let plan = Plan::train(picks).metric("learned", learned).metric("value", state.value_of(NONE));
        view.groups.iter().for_each(|g| settings.remember(state, g));
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
        let best = state.pasts.iter().map(|(r, n)| spread(r / n)).fold(f64::MIN_POSITIVE, f64::max);
        let (mut chosen, mut passed) = (Vec::new(), Vec::new());
        for prompt in &view.pool {
            if chosen.len() == count {
                break;
            }
            let likely = (spread(state.value(prompt.id)) / best).max(self.explore);
            let sampled = state.past(prompt.id) == NONE || chance.unit() < likely;
            if sampled { &mut chosen } else { &mut passed }.push(prompt.id);
        }
        if chosen.is_empty() {
            // None would end the run.
            chosen.extend(passed.pop());
        }
        (chosen, passed)
    }

    /// Takes a prompt's rollouts into its past and into the value of the one it had.
    fn remember(&self, state: &mut ProspectState, group: &Group) {
        for reward in &group.rewards {
            let past = state.past(group.prompt);
            let (rewards, rollouts) = &mut state.pasts[past as usize];
            let keep = 1.0 - 1.0 / self.window;
            (*rewards, *rollouts) = (*rewards * keep + f64::from(*reward), *rollouts * keep + 1.0);

            let longer = past << 1 | u32::from(*reward > 0.5);
            let full = 1 << self.memory;
            let next = if longer < 2 * full { longer } else { full | longer & (full - 1) };
            match state.recent.binary_search_by_key(&group.prompt, |(p, _)| *p) {
                Ok(at) => state.recent[at].1 = next,
                Err(at) => state.recent.insert(at, (group.prompt, next)),
            }
        }
    }
}

impl ProspectState {
    fn past(&self, prompt: PromptId) -> u32 {
        self.recent.binary_search_by_key(&prompt, |(p, _)| *p).map_or(NONE, |at| self.recent[at].1)
    }

    fn value_of(&self, past: u32) -> f64 {
        let (rewards, rollouts) = self.pasts[past as usize];
        rewards / rollouts
    }

    /// The reward expected of a prompt.
    pub fn value(&self, prompt: PromptId) -> f64 {
        self.value_of(self.past(prompt))
    }
}

/// The variance of an outcome.
fn spread(value: f64) -> f64 {
    (value * (1.0 - value)).max(0.0)
}

/// The share below which an outcome is learned from alone. Nothing is computed in a simulation: there, learning
/// takes three times what sampling does, a backward pass being two forward ones.
pub fn threshold(costs: &facts::TokenCosts) -> f64 {
    match (costs.generating, costs.learning) {
        (0.0, 0.0) => 3.0 / 7.0,
        (sampling, learning) => learning / (2.0 * learning + sampling),
    }
}

/// What is learned from a prompt's rollouts, if anything.
fn pick(group: &Group, value: f64, rare: f64) -> Option<Pick> {
    let measured = match value {
        v if v < rare => 0.0,
        v if v > 1.0 - rare => 1.0,
        v => v,
    };
    let given: Vec<f32> = group.rewards.iter().map(|r| (f64::from(*r) - measured) as f32).collect();
    given.iter().any(|a| *a != 0.0).then(|| Pick::all(group.prompt).advantage(Advantage::Given(given)))
}

allot_policy::export!(Prospect);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::Value;
    use allot_policy::{begin, decide, made, run_with};

    /// Trains on one rollout of each of these prompts.
    fn learn(run: &Run, state: &[u8], outcomes: &[(PromptId, u8)]) -> (Vec<(PromptId, Vec<f32>)>, Vec<u8>) {
        made::Facts::of(100).costs(1.0, 1.0, 3.0).tell();
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
        let (picks, hard) = learn(&run, &fresh, &many(0, 0..60));
        assert_eq!(picks[0], (0, vec![-0.5]), "nothing is known yet: one half is expected");
        let (picks, _) = learn(&run, &hard, &[(70, 0), (71, 1)]);
        assert_eq!(picks, [(71, vec![1.0])]);

        let (_, easy) = learn(&run, &fresh, &many(1, 0..60));
        let (picks, _) = learn(&run, &easy, &[(70, 0), (71, 1)]);
        assert_eq!(picks, [(70, vec![-1.0])]);

        let both = run_with::<Prospect>(&[("both", Value::Flag(true))]);
        let (picks, _) = learn(&both, &hard, &[(70, 0), (71, 1)]);
        assert!(picks.len() == 2 && picks[0].1[0] > -0.02 && picks[1].1[0] > 0.98, "{picks:?}");
    }

    #[test]
    fn where_rewards_have_degrees_all_are_learned_from() {
        let run = run_with::<Prospect>(&[]);
        let (_, hard) = learn(&run, &begin::<Prospect>(&run).unwrap(), &many(0, 0..60));
        let mut view = made::view(0..0);
        (view.round, view.groups) = (1, vec![made::rewarded(70, &[0.0]), made::rewarded(71, &[0.3])]);
        let plan = decide::<Prospect>(&run, &hard, &view).unwrap();
        let Action::Train(batch) = plan.action else { panic!("trains") };
        assert_eq!(batch.picks.len(), 2);
        assert!(ProspectState::load(&plan.state).unwrap().graded);
    }

    #[test]
    fn what_followed_a_past_is_expected_of_prompts_that_share_it() {
        let run = run_with::<Prospect>(&[("memory", Value::Integer(1))]);
        let mut state = begin::<Prospect>(&run).unwrap();
        // Prompts below 20 are always solved, the others never.
        for _ in 0..3 {
            state = learn(&run, &state, &[many(1, 0..20), many(0, 20..40)].concat()).1;
        }
        let state = ProspectState::load(&state).unwrap();
        assert!(state.value(0) > 0.95 && state.value(20) < 0.05);
        assert!((state.value(99) - 0.5).abs() < 0.05);
        assert_eq!(
            (state.past(0), state.past(20), state.past(99)),
            (0b11, 0b10, NONE),
            "one outcome after the 1"
        );
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
        let run = run_with::<Prospect>(&[("prompts", Value::Integer(1000))]);
        let mut state = begin::<Prospect>(&run).unwrap();
        let mut coin = Chance::new(5);
        for _ in 0..12 {
            let mixed = (0..100).map(|p| (p, coin.below(2) as u8)).collect::<Vec<_>>();
            state = learn(&run, &state, &[mixed, many(0, 100..400)].concat()).1;
        }
        made::Facts::of(500).tell();
        let plan = decide::<Prospect>(&run, &state, &made::view(0..500)).unwrap();
        let Action::Sample(requests) = plan.action else { panic!("samples") };
        let of = |range: std::ops::Range<u32>| requests.iter().filter(|r| range.contains(&r.prompt)).count();
        assert!(of(0..100) > 60, "{}", of(0..100));
        assert!((10..60).contains(&of(100..400)), "{}", of(100..400));
        assert_eq!(of(400..500), 100, "new prompts");
        assert_eq!(requests.len() + plan.skip.len(), 500);
    }
}
