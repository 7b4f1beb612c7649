//! sGPO (arXiv 2606.08854): a few rollouts of each prompt before the first update are a profile of what the model can
//! do. Prompts that it solves are dropped, and most that it never solves. The others get as many rollouts as it takes
//! to see one that is correct, one over the pass rate, and come in order from easy to hard.
//!
//! The abstract could be read; no code of the authors was found. The numbers are from one reimplementation for prime-rl
//! (`efficient_rl/sgpo.py`), which names the paper's equations: 8 rollouts of each prompt, a limit of 0.75, a tenth of
//! the unsolved, groups of 2, 4 or 8 (7 and 10), unsolved prompts in groups of the phase's size (9, 13). Not faithful:
//!
//! - The run's budget pays for the profile, at most `share` of it. Prompts beyond that are left out. The paper profiles
//!   all before the run.
//! - Each phase gets a part of the rest of the run, by what a pass over its prompts takes. In the paper each is trained
//!   until it converges. All have the same unsolved prompts.
//! - A step has as many rollouts as a uniform policy's, so small groups are of more prompts.

use allot_policy::prelude::*;

/// Profiles prompts once, then trains on groups of one over the pass rate, from easy to hard.
pub struct Sgpo;

/// What a run may set.
#[derive(Settings)]
pub struct SgpoSettings {
    /// Rollouts of each prompt in the profile; also the largest group.
    #[setting(default = 8, minimum = 2)]
    profile: u32,
    /// The largest share of the run's rollouts that the profile may take.
    #[setting(default = 0.25, minimum = 0.01, maximum = 0.99)]
    share: f64,
    /// Prompts with a higher pass rate are dropped.
    #[setting(default = 0.75, minimum = 0.0, maximum = 1.0)]
    trivial: f64,
    /// The share of unsolved prompts that is kept.
    #[setting(default = 0.1, minimum = 0.0, maximum = 1.0)]
    unsolved: f64,
}

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct SgpoState {
    /// Prompts in the profile, and how many of them were asked for.
    pub profile: (u32, u32),
    /// The seed by which they are drawn.
    pub seed: u32,
    /// Once the profile is complete, the prompts that are kept, each with its group's size; 0 if unsolved.
    pub kept: Vec<(u32, u32)>,
    /// Whether it is complete, and rollouts that the run had left then.
    pub trains: (bool, u32),
}

impl Policy for Sgpo {
    const NAME: &'static str = "sgpo";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "groups of one over a profiled pass rate, easy prompts first; not faithful";
    const NEEDS: Needs = Needs::ANY_PROMPT;
    type Settings = SgpoSettings;
    type State = SgpoState;

    fn begin(settings: &SgpoSettings, _run: &Run) -> Result<SgpoState, Error> {
        if 1.0 / f64::from(settings.profile) > settings.trivial {
            let reason = "no pass rate would be above 0 and at most `trivial`, so nothing could be learned";
            return Err(bad_setting("profile", reason));
        }
        Ok(SgpoState::default())
    }

    fn decide(settings: &SgpoSettings, run: &Run, state: &mut SgpoState, view: &View) -> Result<Plan, Error> {
        if view.round > 0 || !view.budget.open() {
            // The profile's rollouts are not trained on. Before it, those that another policy asked for are.
            let groups = view.groups.iter().filter(|_| state.trains.0 || state.profile.0 == 0);
            return Ok(Plan::train(groups.map(|g| Pick::all(g.prompt))));
        }
        if state.profile.0 == 0 {
            let rollouts = f64::from(left(run, view)) * settings.share;
            let most = (rollouts / f64::from(settings.profile)).max(1.0) as u32;
            if most < run.prompts {
                let all = run.prompts;
                log::warn(&format!("`share` pays for {most} of {all} prompts; the others are left out"));
            }
            (state.profile, state.seed) = ((most.min(run.prompts), 0), view.seed);
        }
        let (all, asked) = state.profile;
        if asked < all {
            let now = (view.budget.step_rollouts / settings.profile).clamp(1, all - asked);
            state.profile.1 += now;
            let prompts = state.profiled(run).into_iter().skip(asked as usize).take(now as usize);
            return Ok(Plan::sample(prompts.map(|p| Request::new(p, settings.profile))));
        }
        if !state.trains.0 {
            settings.take_profile(state, run, view);
        }
        let Some(size) = settings.phase(state, run, view) else { return Ok(Plan::train([])) };
        let count = (run.groups.saturating_mul(run.rollouts) / size).max(1) as usize;
        let prompts = state.in_turn(size, &mut Chance::new(view.seed)).into_iter().take(count);
        Ok(Plan::sample(prompts.map(|p| Request::new(p, size))).metric("size", f64::from(size)))
    }
}

impl SgpoSettings {
    /// Reads the profile: which prompts are kept, and with groups of which size.
    fn take_profile(&self, state: &mut SgpoState, run: &Run, view: &View) {
        let prompts = state.profiled(run);
        let rollouts = facts::counts(Count::Rollouts, prompts.as_slice());
        let correct = facts::counts(Count::Correct, prompts.as_slice());
        let counts = prompts.into_iter().zip(rollouts.into_iter().zip(correct));
        let sized = counts.filter_map(|(prompt, (n, k))| Some((prompt, self.size(n, k)?)));
        let (unsolved, learnable): (Vec<_>, Vec<_>) = sized.partition(|(_, size)| *size == 0);
        let some = (unsolved.len() as f64 * self.unsolved).round() as usize;
        let some = Chance::new(view.seed).draw(unsolved.len(), some).into_iter().map(|i| unsolved[i]);
        state.kept = some.chain(learnable).collect();
        state.trains = (true, left(run, view));
        if state.kept.is_empty() {
            log::warn("the profile leaves no prompt to train on, so nothing is learned");
        }
    }

    /// The size of a prompt's groups where `k` of `n` rollouts were correct: one over the pass rate, rounded down to a
    /// power of two. 0 for an unsolved prompt, none for one that is dropped.
    pub fn size(&self, n: u32, k: u32) -> Option<u32> {
        if n == 0 || f64::from(k) > self.trivial * f64::from(n) {
            return None;
        }
        Some(n.checked_div(k).map_or(0, |over| (1 << over.ilog2()).max(2)))
    }

    /// The size of groups now: each phase has a part of the run, by what a pass over its learnable prompts takes. None
    /// if no prompt was kept.
    fn phase(&self, state: &SgpoState, run: &Run, view: &View) -> Option<u32> {
        let mut sizes: Vec<u32> = state.kept.iter().map(|(_, size)| *size).filter(|size| *size > 0).collect();
        sizes.sort_unstable();
        let done = 1.0 - f64::from(left(run, view)) / f64::from(state.trains.1.max(1));
        let (at, mut end) = (done * sizes.iter().map(|s| f64::from(*s)).sum::<f64>(), 0.0);
        let now = sizes.iter().find(|size| {
            end += f64::from(**size);
            at < end
        });
        now.or(sizes.last()).copied().or((!state.kept.is_empty()).then_some(self.profile))
    }
}

impl SgpoState {
    /// The prompts of the profile, in the order to ask for them.
    fn profiled(&self, run: &Run) -> Vec<PromptId> {
        let drawn = Chance::new(self.seed).draw(run.prompts as usize, self.profile.0 as usize);
        drawn.into_iter().map(|i| i as PromptId).collect()
    }

    /// The prompts of a phase, those first whose last visit is longest ago, of equals any.
    fn in_turn(&self, size: u32, chance: &mut Chance) -> Vec<PromptId> {
        let own = self.kept.iter().filter(|(_, own)| *own == size || *own == 0);
        let prompts: Vec<PromptId> = own.map(|(prompt, _)| *prompt).collect();
        let last = facts::counts(Count::Step, prompts.as_slice());
        let mut order = chance.draw(prompts.len(), prompts.len());
        order.sort_by_key(|i| last[*i]);
        order.into_iter().map(|i| prompts[i]).collect()
    }
}

/// Rollouts that the run has left: by its budget, or by a uniform policy's in the steps that are left.
fn left(run: &Run, view: &View) -> u32 {
    let steps = run.steps.saturating_sub(view.step);
    steps.saturating_mul(run.groups).saturating_mul(run.rollouts).min(view.budget.run_rollouts)
}

allot_policy::export!(Sgpo);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::Value;
    use allot_policy::{begin, decide, made, run_with};

    /// The state after a call, the prompts that it asks for, in order, and the size of their groups: 0 where it trains.
    fn asked(run: &Run, state: &[u8], view: &View) -> (Vec<u8>, Vec<PromptId>, u32) {
        let plan = decide::<Sgpo>(run, state, view).unwrap();
        let Action::Sample(requests) = plan.action else {
            assert_eq!(plan.action, Plan::train([]).action);
            return (plan.state, Vec::new(), 0);
        };
        let mut all: Vec<PromptId> = requests.iter().map(|r| r.prompt).collect();
        all.sort_unstable();
        (plan.state, all, requests[0].count)
    }

    /// The first call after the profile: of prompt `i`, so many of 8 rollouts were correct.
    fn profiled(correct: &[u32], unsolved: f64) -> (Run, Vec<u8>, Vec<PromptId>, u32) {
        let run = run_with::<Sgpo>(&[("unsolved", Value::Number(unsolved))]);
        let run = Run { prompts: correct.len() as u32, ..run };
        let facts = (0..).zip(correct);
        facts.fold(made::Facts::of(run.prompts), |all, (p, k)| all.visited(p, made::past(*k, 8))).tell();
        let first = asked(&run, &begin::<Sgpo>(&run).unwrap(), &made::view([])).0;
        let (state, prompts, size) = asked(&run, &first, &View { step: 1, ..made::view([]) });
        (run, state, prompts, size)
    }

    #[test]
    fn groups_have_one_over_the_pass_rate_in_powers_of_two() {
        let settings = SgpoSettings::read(&run_with::<Sgpo>(&[])).unwrap();
        let sizes: Vec<Option<u32>> = (0..=8).map(|k| settings.size(8, k)).collect();
        assert_eq!(sizes, [Some(0), Some(8), Some(4), Some(2), Some(2), Some(2), Some(2), None, None]);
        assert_eq!((settings.size(7, 1), settings.size(0, 0)), (Some(4), None), "of those that were judged");
    }

    #[test]
    fn the_profile_comes_first_and_is_not_trained_on() {
        let run = Run { prompts: 6, ..run_with::<Sgpo>(&[]) };
        let (begun, mut view) = (begin::<Sgpo>(&run).unwrap(), made::view([]));
        view.budget.step_rollouts = 32;
        let (state, mut all, size) = asked(&run, &begun, &view);
        assert_eq!((all.len(), size), (4, 8), "what a step may take");
        let trains = View { round: 1, groups: vec![made::group(0, &[1, 0])], ..made::view([]) };
        let (state, none, _) = asked(&run, &state, &trains);
        all.extend([none, asked(&run, &state, &view).1].concat());
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5], "each prompt once");
        (view.budget.step_rollouts, view.budget.run_rollouts) = (u32::MAX, 160);
        assert_eq!(asked(&run, &begun, &view).1.len(), 5, "a quarter of 160 rollouts, 8 for each");
    }

    #[test]
    fn trivial_prompts_are_dropped_and_a_tenth_of_the_unsolved_is_kept() {
        let (_, state, ..) = profiled(&[&[0; 20][..], &[8, 7, 6, 2, 1]].concat(), 0.1);
        let kept = SgpoState::load(&state).unwrap().kept;
        assert!(kept[..2].iter().all(|(prompt, size)| *prompt < 20 && *size == 0), "{kept:?}");
        assert!(
            [(22, 2), (23, 4), (24, 8)].iter().all(|one| kept.contains(one)) && kept.len() == 5,
            "{kept:?}"
        );
        assert_eq!(profiled(&[8, 8], 0.1).3, 0, "nothing is left");
        let (.., prompts, size) = profiled(&[0, 0, 2], 1.0);
        assert_eq!((prompts, size), (vec![0, 1, 2], 4), "unsolved ones at the phase's size");
        assert_eq!(profiled(&[0, 8], 1.0).3, 8, "alone they get the largest groups");
    }

    #[test]
    fn easy_prompts_come_before_hard_ones() {
        // One prompt of each size: passes of 2, 4 and 8 rollouts, so phases of 2, 4 and 8 fourteenths.
        let (run, state, ..) = profiled(&[8, 4, 2, 1], 0.1);
        let at = |rollouts: u32, step: u32| {
            let mut view = View { step, ..made::view([]) };
            view.budget.run_rollouts = rollouts;
            asked(&run, &state, &view).1[0]
        };
        let all = 99 * 32;
        assert_eq!((at(all - 452, 1), at(all - 453, 1)), (1, 2), "by what is spent");
        assert_eq!((at(all, 15), at(all, 16), at(all, 44)), (1, 2, 3), "or by steps: 14.1 and 42.4 of 99");
    }

    #[test]
    fn a_step_takes_those_visited_longest_ago_up_to_a_uniform_policy_s_rollouts() {
        let (run, state, prompts, _) = profiled(&[4; 40], 0.1);
        assert_eq!(prompts.len(), 16, "32 rollouts in groups of 2");
        let past = |prompt| Past { step: u32::from(prompt < 24), ..made::past(4, 8) };
        (0..40).fold(made::Facts::of(40), |facts, prompt| facts.visited(prompt, past(prompt))).tell();
        assert_eq!(asked(&run, &state, &made::view([])).1, (24..40).collect::<Vec<_>>());
    }
}
