//! Prefix sampling (arXiv 2605.05112): groups of which about half the rollouts pass teach most. Where few rollouts of a
//! prompt passed, its next group begins with the first turns of one that passed; where few failed, of one that failed.
//! What is kept is read, and not learned from. How much is kept is adapted, so that half of those that continue pass.
//!
//! Of the paper only the abstract and the introduction could be read, and of its code nothing. The pass rates that
//! count as skewed, the share of replays, and the step by which the kept part is adapted are ours.

use allot_policy::prelude::*;

/// Steers pass rates to one half by replaying beginnings.
pub struct PrefixSampling;

/// What a run may set.
#[derive(Settings)]
pub struct PrefixSamplingSettings {
    /// A group is skewed if at most this share of its rollouts passed, but some did, or failed.
    #[setting(default = 0.25, minimum = 0.0, maximum = 0.5)]
    skewed: f64,
    /// Largest share of a step's groups that begin with kept turns.
    #[setting(default = 0.5, minimum = 0.0, maximum = 1.0)]
    share: f64,
    /// Part of a rollout's turns that is kept at first.
    #[setting(default = 0.5, minimum = 0.0, maximum = 1.0)]
    kept: f64,
    /// By how much of the distance from one half the kept part is changed after each step.
    #[setting(default = 0.25, minimum = 0.0, maximum = 1.0)]
    gain: f64,
}

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct PrefixSamplingState {
    /// The part that is kept of a rollout that passed.
    of_passed: f64,
    /// The part that is kept of a rollout that failed.
    of_failed: f64,
    /// The number of held rollouts that each prompt had when the step began.
    held: Vec<(PromptId, u32)>,
}

impl Policy for PrefixSampling {
    const NAME: &'static str = "prefix-sampling";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str =
        "replays first turns of rare rollouts; not faithful: after the abstract alone";
    const NEEDS: Needs = Needs::TURNS.union(Needs::STARTING).union(Needs::REPLAY);
    type Settings = PrefixSamplingSettings;
    type State = PrefixSamplingState;

    fn begin(settings: &PrefixSamplingSettings, run: &Run) -> Result<PrefixSamplingState, Error> {
        needs_two(None, run)?;
        Ok(PrefixSamplingState { of_passed: settings.kept, of_failed: settings.kept, held: Vec::new() })
    }

    fn decide(
        settings: &PrefixSamplingSettings,
        run: &Run,
        state: &mut PrefixSamplingState,
        view: &View,
    ) -> Result<Plan, Error> {
        if view.round == 0 {
            state.held = view.groups.iter().map(|group| (group.prompt, group.len() as u32)).collect();
            let requests = if view.budget.open() { settings.requests(run, state, view) } else { Vec::new() };
            if !requests.is_empty() {
                return Ok(Plan::sample(requests));
            }
        }
        let mut chance = Chance::new(view.seed);
        let (mut picks, mut hold, mut replayed) = (Vec::new(), Vec::new(), [Passed::default(); 2]);
        for group in &view.groups {
            let held = state.held.iter().find(|(prompt, _)| *prompt == group.prompt).map_or(0, |(_, n)| *n);
            let fresh: Vec<u32> = (held..group.len() as u32).collect();
            if fresh.is_empty() {
                continue;
            }
            if held > 0 && group.origins[held as usize].is_some() {
                replayed[usize::from(group.correct[0])].add(pass_rate(group, &fresh));
            } else if let Some(rare) = settings.rare(group, &fresh, &mut chance) {
                hold.push((group.prompt, vec![rare]));
            }
            picks.push(Pick::some(group.prompt, fresh));
        }
        // After more turns of a rollout that passed, more pass; after more of one that failed, fewer.
        let [after_failed, after_passed] = replayed;
        state.of_passed = (state.of_passed - settings.gain * after_passed.above_half()).clamp(0.0, 1.0);
        state.of_failed = (state.of_failed + settings.gain * after_failed.above_half()).clamp(0.0, 1.0);
        Ok(Plan::train(picks)
            .hold_some(hold)
            .metric("replayed", after_failed.groups + after_passed.groups)
            .metric("kept-of-passed", state.of_passed)
            .metric("kept-of-failed", state.of_failed))
    }
}

impl PrefixSamplingSettings {
    /// What to sample in a step: groups that continue held rollouts, and then prompts on offer.
    fn requests(&self, run: &Run, state: &PrefixSamplingState, view: &View) -> Vec<Request> {
        let most = (self.share * f64::from(run.groups)).ceil() as usize;
        let mut requests: Vec<Request> = view
            .groups
            .iter()
            .filter_map(|group| Some((group.prompt, state.start(group)?)))
            .take(most)
            .map(|(prompt, start)| Request::starting(prompt, vec![Some(start); run.rollouts as usize]))
            .collect();
        let left = run.groups as usize - requests.len();
        let others = view.pool.iter().filter(|p| requests.iter().all(|request| request.prompt != p.id));
        let others: Vec<Request> = others.take(left).map(|p| Request::new(p.id, run.rollouts)).collect();
        requests.extend(others);
        requests
    }

    /// A rollout of those that are rare in a skewed group, by its position. It has a turn to keep and one that follows.
    fn rare(&self, group: &Group, fresh: &[u32], chance: &mut Chance) -> Option<u32> {
        let passing = pass_rate(group, fresh);
        let passed = passing < 0.5;
        if passing.min(1.0 - passing) > self.skewed {
            return None;
        }
        let long = |i: &u32| group.turns[*i as usize].len() > 1;
        let rare: Vec<u32> =
            fresh.iter().copied().filter(|i| group.correct[*i as usize] == passed).filter(long).collect();
        (!rare.is_empty()).then(|| rare[chance.below(rare.len())])
    }
}

impl PrefixSamplingState {
    /// Where to continue the held rollout of a group. At least its first turn is kept, and its last is not.
    fn start(&self, group: &Group) -> Option<Start> {
        let turns = group.turns[0].len();
        let part = if group.correct[0] { self.of_passed } else { self.of_failed };
        let kept = ((part * turns as f64).round() as usize).clamp(1, turns.max(2) - 1);
        (turns > 1).then_some(Start { rollout: 0, turn: kept as u32 - 1 })
    }
}

/// Pass rates of groups that continued a rollout.
#[derive(Clone, Copy, Default)]
struct Passed {
    groups: f64,
    sum: f64,
}

impl Passed {
    fn add(&mut self, pass_rate: f64) {
        self.groups += 1.0;
        self.sum += pass_rate;
    }

    /// How far their mean is above one half; 0 without groups.
    fn above_half(self) -> f64 {
        if self.groups == 0.0 { 0.0 } else { self.sum / self.groups - 0.5 }
    }
}

/// The share of some rollouts that passed.
fn pass_rate(group: &Group, rollouts: &[u32]) -> f64 {
    let passed = rollouts.iter().filter(|i| group.correct[**i as usize]).count();
    passed as f64 / rollouts.len() as f64
}

allot_policy::export!(PrefixSampling);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::{begin, decide, made, run_with};

    fn state(held: &[(PromptId, u32)]) -> PrefixSamplingState {
        PrefixSamplingState { of_passed: 0.5, of_failed: 0.5, held: held.to_vec() }
    }

    /// The state, the picks and the holds of a plan that trains.
    fn trained(state: &PrefixSamplingState, groups: Vec<Group>) -> (PrefixSamplingState, Batch) {
        let run = run_with::<PrefixSampling>(&[]);
        let view = View { round: 1, groups, ..made::view(0..9) };
        let plan = decide::<PrefixSampling>(&run, &state.save(), &view).unwrap();
        let Action::Train(batch) = plan.action else { panic!("it trains") };
        (PrefixSamplingState::load(&plan.state).unwrap(), batch)
    }

    /// A held rollout, and those that continued it.
    fn replayed(prompt: PromptId, held: u8, marks: &[u8]) -> Group {
        let marks: Vec<u8> = [held].into_iter().chain(marks.iter().copied()).collect();
        let start = |i| (i > 0).then_some(Origin { rollout: Some(0), turn: 0 });
        let origins = (0..marks.len()).map(start).collect();
        Group { origins, ..made::episodes(prompt, &marks, &vec![3; marks.len()]) }
    }

    #[test]
    fn the_rare_rollout_of_a_skewed_group_is_held() {
        let groups = vec![
            made::episodes(1, &[0, 0, 1, 0], &[3; 4]),
            made::episodes(2, &[1, 0, 1, 1], &[3; 4]),
            made::episodes(3, &[1, 0, 1, 0], &[3; 4]),
            made::episodes(4, &[0; 4], &[3; 4]),
            made::episodes(5, &[0, 0, 1, 0], &[1; 4]),
        ];
        let (_, batch) = trained(&state(&[]), groups);
        let held: Vec<(PromptId, Vec<u32>)> =
            batch.hold.into_iter().map(|hold| (hold.prompt, hold.rollouts.unwrap())).collect();
        assert_eq!(held, [(1, vec![2]), (2, vec![1])]);
        assert_eq!(batch.picks.len(), 5);
    }

    #[test]
    fn its_next_group_continues_it_and_prompts_on_offer_fill_the_step() {
        let run = run_with::<PrefixSampling>(&[]);
        let held = vec![made::episodes(3, &[1], &[4]), made::episodes(20, &[0], &[3])];
        let view = View { groups: held, ..made::view(0..9) };
        let state = PrefixSamplingState { of_failed: 1.0, ..state(&[]) };
        let plan = decide::<PrefixSampling>(&run, &state.save(), &view).unwrap();
        let Action::Sample(requests) = plan.action else { panic!("it samples") };
        let prompts: Vec<PromptId> = requests.iter().map(|request| request.prompt).collect();
        assert_eq!(prompts, [3, 20, 0, 1], "3 is on offer, too");
        let start = |turn| vec![Some(Start { rollout: 0, turn }); run.rollouts as usize];
        assert_eq!(
            (&requests[0].starts, &requests[1].starts),
            (&start(1), &start(1)),
            "half, and all but the last"
        );
        assert!(requests[2].starts.is_empty() && requests[2].count == run.rollouts);
        assert_eq!(PrefixSamplingState::load(&plan.state).unwrap().held, [(3, 1), (20, 1)]);
    }

    #[test]
    fn only_what_continued_is_trained_on_and_tells_how_much_to_keep() {
        let held = state(&[(3, 1), (4, 1)]);
        // Of those after a rollout that passed, one of four did: more is kept. After one that failed, all did: more, too.
        let groups = vec![replayed(3, 1, &[1, 0, 0, 0]), replayed(4, 0, &[1, 1, 1, 1])];
        let (after, batch) = trained(&held, groups);
        assert_eq!((after.of_passed, after.of_failed), (0.5625, 0.625));
        assert_eq!(batch.picks, [Pick::some(3, vec![1, 2, 3, 4]), Pick::some(4, vec![1, 2, 3, 4])]);
        assert!(batch.hold.is_empty(), "each is replayed once");
        let lost = vec![made::episodes(3, &[1], &[3])];
        let (after, batch) = trained(&state(&[(3, 1)]), lost);
        assert_eq!((after.of_passed, batch.picks.len()), (0.5, 0), "none could be judged");
    }

    #[test]
    fn without_a_budget_it_trains_on_nothing() {
        let run = run_with::<PrefixSampling>(&[]);
        let first = begin::<PrefixSampling>(&run).unwrap();
        let mut view = made::view(0..9);
        view.budget.run_rollouts = 0;
        let plan = decide::<PrefixSampling>(&run, &first, &view).unwrap();
        assert_eq!(plan.action, Plan::train([]).action);
    }
}
