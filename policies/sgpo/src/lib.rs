//! sGPO (arXiv 2606.08854): a few rollouts of each prompt before the first update are a profile of what the model can
//! do. Prompts that it solves are dropped, and most that it never solves. The others get as many rollouts as it takes
//! to see one that is correct, one over the pass rate, and come in order from easy to hard.
//!
//! The abstract could be read, and no code of the authors was found. What is said of the paper's sections and
//! equations is from one reimplementation (`scripts/sgpo_profile.py` and `efficient_rl/sgpo.py` for prime-rl), which
//! names them: 8 rollouts of each prompt, dropped above a pass rate of 0.75, a tenth of the unsolved ones, groups of 2,
//! 4 or 8 by powers of two (equations 7 and 10), unsolved prompts in each phase with groups of the phase's size
//! (equations 9 and 13). Not faithful:
//!
//! - The profile is of the run and paid for by its budget: at most `share` of it, so that of a larger data set a part
//!   is drawn, profiled and trained on. The paper profiles all, before the run.
//! - Each phase gets its part of what is left then, by what one pass over its prompts takes. In the paper each is
//!   trained until it converges.
//! - One draw of unsolved prompts is in all phases.
//! - A step has as many rollouts as a uniform policy's, so it has more prompts where groups are small.

use allot_policy::prelude::*;

/// Profiles prompts once, then trains on groups of one over the pass rate, from easy to hard.
pub struct Sgpo;

/// What a run may set.
#[derive(Settings)]
pub struct SgpoSettings {
    /// Rollouts of each prompt in the profile.
    #[setting(default = 8)]
    profile: u32,
    /// The largest share of the run's rollouts that the profile may take.
    #[setting(default = 0.25)]
    share: f64,
    /// Prompts with a higher pass rate are dropped.
    #[setting(default = 0.75)]
    trivial: f64,
    /// The share of unsolved prompts that is kept.
    #[setting(default = 0.1)]
    unsolved: f64,
    /// The largest group.
    #[setting(default = 8, minimum = 2)]
    most: u32,
    /// Prompts in a step; 0 for as many as make a uniform policy's number of rollouts.
    #[setting(default = 0)]
    prompts: u32,
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
    /// Step at which training began, and rollouts that the run had left.
    pub began: (u32, u32),
    /// Whether the profile is complete.
    pub trains: bool,
}

impl Policy for Sgpo {
    const NAME: &'static str = "sgpo";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str =
        "profiles prompts once, groups of one over the pass rate, easy to hard; not faithful in details";
    const NEEDS: Needs = Needs::ANY_PROMPT;
    type Settings = SgpoSettings;
    type State = SgpoState;

    fn begin(settings: &SgpoSettings, _run: &Run) -> Result<SgpoState, Error> {
        let shares = [("trivial", settings.trivial), ("unsolved", settings.unsolved)];
        if let Some((name, _)) = shares.iter().find(|(_, share)| !(0.0..=1.0).contains(share)) {
            return Err(bad_setting(name, "must be between 0 and 1"));
        }
        if !(settings.share > 0.0 && settings.share < 1.0) {
            return Err(bad_setting("share", "must be above 0 and below 1"));
        }
        if settings.profile < 2 || 1.0 / f64::from(settings.profile) > settings.trivial {
            let reason = "no pass rate would be above 0 and at most `trivial`, so every prompt would be dropped or unsolved";
            return Err(bad_setting("profile", reason));
        }
        Ok(SgpoState::default())
    }

    fn decide(settings: &SgpoSettings, run: &Run, state: &mut SgpoState, view: &View) -> Result<Plan, Error> {
        if view.round > 0 || !view.budget.open() {
            // The profile's rollouts are not trained on.
            let groups = view.groups.iter().filter(|_| state.trains);
            return Ok(Plan::train(groups.map(|g| Pick::all(g.prompt))));
        }
        if state.profile.0 == 0 {
            settings.plan_profile(state, run, view);
        }
        let (all, asked) = state.profile;
        if asked < all {
            let now = (view.budget.step_rollouts / settings.profile).clamp(1, all - asked);
            state.profile.1 += now;
            let prompts = state.profiled(run).into_iter().skip(asked as usize).take(now as usize);
            return Ok(Plan::sample(prompts.map(|p| Request::new(p, settings.profile))));
        }
        if !state.trains {
            settings.take_profile(state, run, view);
        }
        let Some(size) = settings.phase(state, run, view) else { return Ok(Plan::train([])) };
        let chosen = settings.choose(state, run, size, &mut Chance::new(view.seed));
        Ok(Plan::sample(chosen.into_iter().map(|p| Request::new(p, size))).metric("size", f64::from(size)))
    }
}

impl SgpoSettings {
    /// Says which prompts to profile: all, or as many as `share` of the run's rollouts pays for.
    fn plan_profile(&self, state: &mut SgpoState, run: &Run, view: &View) {
        let most = (f64::from(planned(run, view)) * self.share / f64::from(self.profile)) as u32;
        state.profile = (most.clamp(1, run.prompts.max(1)), 0);
        state.seed = view.seed;
        if most < run.prompts {
            let share = format!("`share` of the run's rollouts, {}", self.share);
            log::warn(&format!(
                "{share}, profiles {} of {} prompts; the others are left out",
                most.max(1),
                run.prompts
            ));
        }
    }

    /// Reads the profile: which prompts are kept, and with groups of which size.
    fn take_profile(&self, state: &mut SgpoState, run: &Run, view: &View) {
        let prompts = state.profiled(run);
        let rollouts = facts::counts(Count::Rollouts, prompts.as_slice());
        let correct = facts::counts(Count::Correct, prompts.as_slice());
        let (mut unsolved, mut judged) = (Vec::new(), 0);
        for (prompt, (n, k)) in prompts.into_iter().zip(rollouts.into_iter().zip(correct)) {
            judged += usize::from(n > 0);
            match self.size(n, k) {
                Some(0) => unsolved.push(prompt),
                Some(size) => state.kept.push((prompt, size)),
                None => {}
            }
        }
        let learnable = state.kept.len();
        let drawn = (unsolved.len() as f64 * self.unsolved).round() as usize;
        let drawn = Chance::new(view.seed).draw(unsolved.len(), drawn);
        state.kept.extend(drawn.iter().map(|i| (unsolved[*i], 0)));
        state.kept.sort_unstable();
        (state.trains, state.began) = (true, (view.step, planned(run, view)));
        let trivial = judged - learnable - unsolved.len();
        let counts = format!("{learnable} learnable, {trivial} trivial, {} unsolved", unsolved.len());
        log::info(&format!("the profile: {counts} prompts, {} unsolved ones kept", drawn.len()));
        if state.kept.is_empty() {
            log::warn("no prompt is left to train on, so nothing is learned");
        }
    }

    /// The size of a prompt's groups, of which `k` of `n` rollouts were correct: one over the pass rate, rounded down to a
    /// power of two. 0 for an unsolved prompt, none for one that is dropped.
    pub fn size(&self, n: u32, k: u32) -> Option<u32> {
        if n == 0 || f64::from(k) > self.trivial * f64::from(n) {
            return None;
        }
        Some(n.checked_div(k).map_or(0, |over| (1 << over.ilog2()).clamp(2, self.most)))
    }

    /// The size of groups now: that of the first phase which has something left. None if no prompt was kept.
    fn phase(&self, state: &SgpoState, run: &Run, view: &View) -> Option<u32> {
        let of = |size: u32| state.kept.iter().filter(|(_, own)| *own == size).count() as u64;
        let unsolved = of(0);
        let mut sizes: Vec<u32> = state.kept.iter().map(|(_, size)| *size).filter(|size| *size > 0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let costs: Vec<u64> = sizes.iter().map(|size| (of(*size) + unsolved) * u64::from(*size)).collect();
        let (step, rollouts) = state.began;
        let share = |done: u32, of: u32| f64::from(done) / f64::from(of.max(1));
        let steps = share(view.step.saturating_sub(step), run.steps.saturating_sub(step));
        let spent = share(rollouts.saturating_sub(planned(run, view)), rollouts);
        let at = steps.max(spent) * costs.iter().sum::<u64>() as f64;
        let mut end = 0;
        let ends = costs.iter().map(|cost| {
            end += cost;
            end as f64
        });
        let now = sizes.iter().zip(ends).find(|(_, end)| at < *end).map(|(size, _)| *size);
        now.or(sizes.last().copied()).or((unsolved > 0).then_some(self.most))
    }

    /// The prompts of a step in the phase of this size: those whose last visit is longest ago, of equals any.
    fn choose(&self, state: &SgpoState, run: &Run, size: u32, chance: &mut Chance) -> Vec<PromptId> {
        let own = state.kept.iter().filter(|(_, own)| *own == size || *own == 0);
        let prompts: Vec<PromptId> = own.map(|(prompt, _)| *prompt).collect();
        let last = facts::counts(Count::Step, prompts.as_slice());
        let mut order = chance.draw(prompts.len(), prompts.len());
        order.sort_by_key(|i| last[*i]);
        let count = or_else(self.prompts, (run.groups.saturating_mul(run.rollouts) / size).max(1));
        order.into_iter().take(count as usize).map(|i| prompts[i]).collect()
    }
}

impl SgpoState {
    /// The prompts of the profile, in the order to ask for them.
    fn profiled(&self, run: &Run) -> Vec<PromptId> {
        let drawn = Chance::new(self.seed).draw(run.prompts as usize, self.profile.0 as usize);
        drawn.into_iter().map(|i| i as PromptId).collect()
    }
}

/// Rollouts that the run still has, by its budget or by the steps planned.
fn planned(run: &Run, view: &View) -> u32 {
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

    fn run(prompts: u32, changes: &[(&str, Value)]) -> Run {
        Run { prompts, ..run_with::<Sgpo>(changes) }
    }

    fn asked(plan: &Plan) -> Vec<(PromptId, u32)> {
        let Action::Sample(requests) = &plan.action else { panic!("trains: {plan:?}") };
        let mut all: Vec<(PromptId, u32)> = requests.iter().map(|r| (r.prompt, r.count)).collect();
        all.sort_unstable();
        all
    }

    /// The plan after the profile: of prompt `i`, so many of 8 rollouts were correct.
    fn profiled(correct: &[u32], changes: &[(&str, Value)]) -> (Run, Plan) {
        let run = run(correct.len() as u32, changes);
        let facts = (0..).zip(correct).fold(made::Facts::of(run.prompts), |facts, (prompt, k)| {
            facts.visited(prompt, made::past(*k, 8))
        });
        facts.tell();
        let first = decide::<Sgpo>(&run, &begin::<Sgpo>(&run).unwrap(), &made::view([])).unwrap();
        let plan = decide::<Sgpo>(&run, &first.state, &View { step: 1, ..made::view([]) }).unwrap();
        (run, plan)
    }

    fn kept(plan: &Plan) -> Vec<(u32, u32)> {
        SgpoState::load(&plan.state).unwrap().kept
    }

    #[test]
    fn groups_have_one_over_the_pass_rate_in_powers_of_two() {
        let settings = SgpoSettings::read(&run(9, &[])).unwrap();
        let sizes: Vec<Option<u32>> = (0..=8).map(|k| settings.size(8, k)).collect();
        let two = Some(2);
        assert_eq!(sizes, [Some(0), Some(8), Some(4), two, two, two, two, None, None]);
        assert_eq!((settings.size(16, 1), settings.size(0, 0)), (Some(8), None), "8 at most");
    }

    #[test]
    fn the_profile_comes_first_and_is_not_trained_on() {
        let run = run(6, &[]);
        made::Facts::of(6).tell();
        let mut view = made::view([]);
        view.budget.step_rollouts = 32;
        let plan = decide::<Sgpo>(&run, &begin::<Sgpo>(&run).unwrap(), &view).unwrap();
        let mut all = asked(&plan);
        assert_eq!(all.len(), 4, "what a step may take");

        let trains = View { round: 1, groups: vec![made::group(0, &[1, 0])], ..made::view([]) };
        let plan = decide::<Sgpo>(&run, &plan.state, &trains).unwrap();
        assert_eq!(plan.action, Plan::train([]).action);
        all.extend(asked(&decide::<Sgpo>(&run, &plan.state, &View { step: 1, ..view }).unwrap()));
        all.sort_unstable();
        assert_eq!(all, (0..6).map(|p| (p, 8)).collect::<Vec<_>>(), "each prompt once");
    }

    #[test]
    fn a_share_of_the_budget_limits_the_profile() {
        let run = run(1000, &[("share", Value::Number(0.5))]);
        let mut view = made::view([]);
        view.budget.run_rollouts = 800;
        let plan = decide::<Sgpo>(&run, &begin::<Sgpo>(&run).unwrap(), &view).unwrap();
        assert_eq!(asked(&plan).len(), 50, "half of 800 rollouts, 8 for each");
    }

    #[test]
    fn trivial_prompts_are_dropped_and_a_tenth_of_the_unsolved_is_kept() {
        let mut correct = vec![0; 20];
        correct.extend([8, 7, 6, 2, 1]);
        let (_, plan) = profiled(&correct, &[]);
        let kept = kept(&plan);
        assert_eq!(kept.iter().filter(|(prompt, size)| *prompt < 20 && *size == 0).count(), 2);
        assert_eq!(kept[2..], [(22, 2), (23, 4), (24, 8)]);
    }

    #[test]
    fn easy_prompts_come_before_hard_ones() {
        // One prompt of each size: passes of 2, 4 and 8 rollouts, so phases of 2, 4 and 8 fourteenths.
        let (run, plan) = profiled(&[8, 4, 2, 1], &[]);
        assert_eq!(asked(&plan), [(1, 2)]);
        let at = |rollouts: u32, step: u32| {
            let mut view = View { step, ..made::view([]) };
            view.budget.run_rollouts = rollouts;
            asked(&decide::<Sgpo>(&run, &plan.state, &view).unwrap())
        };
        let all = 99 * 32;
        assert_eq!(at(all - all / 7 + 1, 1), [(1, 2)]);
        assert_eq!(at(all - all / 7 - 1, 1), [(2, 4)], "by what is spent");
        assert_eq!(at(all, 15), [(1, 2)]);
        assert_eq!(at(all, 16), [(2, 4)], "or by steps: 14.1 of 99");
        assert_eq!((at(all, 44), at(1, 90)), (vec![(3, 8)], vec![(3, 8)]));
    }

    #[test]
    fn unsolved_prompts_take_part_in_each_phase_at_its_size() {
        let (_, plan) = profiled(&[0, 0, 2], &[("unsolved", Value::Number(1.0))]);
        assert_eq!(asked(&plan), [(0, 4), (1, 4), (2, 4)]);
        let (_, plan) = profiled(&[0, 8], &[("unsolved", Value::Number(1.0))]);
        assert_eq!(asked(&plan), [(0, 8)], "alone they get the largest groups");
        let (_, plan) = profiled(&[8, 8], &[]);
        assert_eq!(plan.action, Plan::train([]).action, "nothing is left");
    }

    #[test]
    fn a_step_takes_those_visited_longest_ago_up_to_a_uniform_policy_s_rollouts() {
        let correct = vec![4; 40];
        let (run, plan) = profiled(&correct, &[]);
        assert_eq!(asked(&plan).len(), 16, "32 rollouts in groups of 2");
        let facts = (0..40).fold(made::Facts::of(40), |facts, prompt| {
            facts.visited(prompt, Past { step: u32::from(prompt < 24), ..made::past(4, 8) })
        });
        facts.tell();
        let plan = decide::<Sgpo>(&run, &plan.state, &View { step: 2, ..made::view([]) }).unwrap();
        assert_eq!(asked(&plan), (24..40).map(|p| (p, 2)).collect::<Vec<_>>());
    }

    #[test]
    fn a_profile_that_tells_nothing_is_refused() {
        for change in
            [("profile", Value::Integer(1)), ("trivial", Value::Number(0.1)), ("share", Value::Number(1.0))]
        {
            assert!(begin::<Sgpo>(&run(9, &[change])).is_err());
        }
    }
}
