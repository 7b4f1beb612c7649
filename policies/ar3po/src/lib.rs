//! AR3PO (arXiv 2509.25808): samples a prompt in portions until one rollout is correct, so that easy prompts take
//! few rollouts; and where none is correct, a correct answer that an earlier visit stored takes part, so
//! that the group is not of zero variance. Not faithful: the paper's body could not be read and its authors' code
//! was not found, so the sizes, and what a stored answer does, are ours, after the abstract and summaries of others.
//!
//! By default a stored answer is measured and not trained on: the group's mean and standard deviation count it, and the
//! wrong answers get a negative advantage. `reuse = "trains"` trains on it as well, with the host's
//! importance weight for answers of older models.

use allot_policy::prelude::*;

/// Stops at the first correct rollout, and measures prompts without one against a stored answer.
pub struct Ar3po;

/// What a run may set.
#[derive(Settings)]
pub struct Ar3poSettings {
    /// Rollouts of a prompt, at most; 0 for the run's own number.
    #[setting(default = 0)]
    rollouts: u32,
    /// Rollouts in a portion; 0 for half of the most.
    #[setting(default = 0)]
    portion: u32,
    /// Correct answers to store for each prompt.
    #[setting(default = 1)]
    stored: u32,
    /// What a stored answer does: measures, or trains as well.
    #[setting(default = Reuse::Measures)]
    reuse: Reuse,
}

/// What a stored answer does.
#[derive(Choice, Clone, Copy, Debug, PartialEq)]
pub enum Reuse {
    /// It counts in the baseline.
    Measures,
    /// It counts in the baseline and is trained on.
    Trains,
}

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct Ar3poState {
    /// Prompts asked for in this step, each with the stored rollouts it had then.
    asked: Vec<(u32, u32)>,
}

impl Policy for Ar3po {
    const NAME: &'static str = "ar3po";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str =
        "stops at the first correct rollout, reuses stored ones; not faithful in details";
    const NEEDS: Needs = Needs::REPLAY.union(Needs::STOPPING);
    type Settings = Ar3poSettings;
    type State = Ar3poState;

    fn begin(settings: &Ar3poSettings, run: &Run) -> Result<Ar3poState, Error> {
        let (most, portion) = settings.sizes(run);
        if portion > most || portion < most.div_ceil(256) {
            return Err(bad_setting("portion", "must be at most `rollouts`, and at least a 256th of them"));
        }
        if most == 1 && settings.stored == 0 {
            let reason = "must be at least 1 where a prompt gets 1 rollout: there is nothing else to measure it against";
            return Err(bad_setting("stored", reason));
        }
        Ok(Ar3poState::default())
    }

    fn decide(
        settings: &Ar3poSettings,
        run: &Run,
        state: &mut Ar3poState,
        view: &View,
    ) -> Result<Plan, Error> {
        if view.round == 0 {
            state.asked.clear();
            if view.can_sample() {
                let stored = |p: &Prompt| view.group(p.id).map_or(0, |g| g.len() as u32);
                state.asked = view.offer(run.groups).map(|p| (p.id, stored(p))).collect();
                let (most, portion) = settings.sizes(run);
                let request = |(p, _): &(u32, u32)| Request::new(*p, most).until(1, 0, portion);
                return Ok(Plan::sample(state.asked.iter().map(request)));
            }
        }
        let visited = state.asked.iter().filter_map(|(p, stored)| Some((view.group(*p)?, *stored)));
        let picks: Vec<(Pick, bool)> = visited.filter_map(|(g, stored)| settings.pick(g, stored)).collect();
        let reused = picks.iter().filter(|(_, reused)| *reused).count();
        let hold = view.groups.iter().filter_map(|g| Some((g.prompt, settings.keep(g)?)));
        Ok(Plan::train(picks.into_iter().map(|(pick, _)| pick))
            .hold_some(hold)
            .metric("reused", reused as f64))
    }
}

impl Ar3poSettings {
    fn sizes(&self, run: &Run) -> (u32, u32) {
        let most = or_else(self.rollouts, run.rollouts);
        (most, or_else(self.portion, (most / 2).max(1)))
    }

    /// The fresh rollouts of a group of which the first `stored` were stored, and whether one of those takes part.
    fn pick(&self, group: &Group, stored: u32) -> Option<(Pick, bool)> {
        let n = group.len() as u32;
        let fresh: Vec<u32> = (stored..n).collect();
        if fresh.is_empty() {
            return None;
        }
        let correct = |i: &u32| group.correct[*i as usize];
        let reused = (0..stored).rev().find(correct).filter(|_| !fresh.iter().any(correct));
        let Some(reused) = reused else { return Some((Pick::some(group.prompt, fresh), false)) };
        let all: Vec<u32> = [reused].into_iter().chain(fresh.iter().copied()).collect();
        let pick = match self.reuse {
            Reuse::Measures => Pick::some(group.prompt, fresh).advantage(Advantage::Among(all)),
            Reuse::Trains => Pick::some(group.prompt, all),
        };
        Some((pick, true))
    }

    /// The newest correct rollouts of a group.
    fn keep(&self, group: &Group) -> Option<Vec<u32>> {
        let correct = (0..group.len() as u32).rev().filter(|i| group.correct[*i as usize]);
        let mut kept: Vec<u32> = correct.take(self.stored as usize).collect();
        kept.reverse();
        (!kept.is_empty()).then_some(kept)
    }
}

allot_policy::export!(Ar3po);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::{Hold, Value};
    use allot_policy::{begin, decide, made, run_with};

    fn trained(reuse: &str, stored: Vec<(u32, u32)>, groups: Vec<Group>) -> Batch {
        let run = run_with::<Ar3po>(&[("reuse", Value::Text(reuse.into()))]);
        let state = Ar3poState { asked: stored }.save();
        let view = View { round: 1, groups, ..made::view(5..9) };
        let Action::Train(batch) = decide::<Ar3po>(&run, &state, &view).unwrap().action else { panic!() };
        batch
    }

    fn hold(prompt: PromptId, rollouts: &[u32]) -> Hold {
        Hold { prompt, rollouts: Some(rollouts.to_vec()) }
    }

    #[test]
    fn a_request_ends_with_the_first_correct_rollout() {
        let run = Run { groups: 2, ..run_with::<Ar3po>(&[]) };
        let view = made::view(0..9);
        let plan = decide::<Ar3po>(&run, &begin::<Ar3po>(&run).unwrap(), &view).unwrap();
        let until = |p| Request::new(p, 8).until(1, 0, 4);
        assert_eq!(plan.action, Plan::sample([until(0), until(1)]).action);
    }

    #[test]
    fn a_stored_answer_measures_where_none_is_correct() {
        let batch = trained(
            "measures",
            vec![(0, 1), (1, 1), (2, 0)],
            vec![
                made::group(0, &[1, 0, 0, 0]),
                made::group(1, &[1, 0, 1, 0]),
                made::group(2, &[0, 0]),
                made::group(3, &[1]),
            ],
        );
        assert_eq!(
            batch.picks,
            [
                Pick::some(0, vec![1, 2, 3]).advantage(Advantage::Among(vec![0, 1, 2, 3])),
                Pick::some(1, vec![1, 2, 3]),
                Pick::some(2, vec![0, 1]),
            ]
        );
        assert_eq!(batch.hold, [hold(0, &[0]), hold(1, &[2]), hold(3, &[0])], "the newest correct ones");
    }

    #[test]
    fn or_trains_as_well() {
        let batch = trained("trains", vec![(0, 2)], vec![made::group(0, &[1, 1, 0, 0])]);
        assert_eq!(batch.picks, [Pick::some(0, vec![1, 2, 3])]);
    }

    #[test]
    fn a_prompt_of_which_nothing_came_keeps_its_answer() {
        let batch = trained("measures", vec![(0, 1), (7, 0)], vec![made::group(0, &[1])]);
        assert!(batch.picks.is_empty());
        assert_eq!(batch.hold, [hold(0, &[0])]);
    }

    #[test]
    fn portions_are_neither_too_large_nor_too_small() {
        for (rollouts, portion) in [(8, 9), (1024, 3)] {
            let changes = [("rollouts", Value::Integer(rollouts)), ("portion", Value::Integer(portion))];
            assert!(begin::<Ar3po>(&run_with::<Ar3po>(&changes)).is_err());
        }
    }
}
