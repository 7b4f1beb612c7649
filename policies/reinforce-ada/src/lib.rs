//! Reinforce-Ada (arXiv 2510.04996): samples every prompt in rounds, drops it from the rounds once it
//! has enough right and wrong answers, and trains on a balanced few, measured against all.
//!
//! Upstream: RLHFlow/Reinforce-Ada 05be605, `verl/trainer/ppo/ray_trainer.py:929-1221`. Departures:
//! groups are trained on in the order of their prompts, where upstream's order follows a Python set;
//! and the baseline is over all rollouts' rewards, where upstream makes 1/0 of them first
//! (`core_algos.py:306-328`), which is the same for 0/1 rewards. Whether to divide by the deviation is
//! the host's to say.

use allot_policy::prelude::*;

/// Samples each prompt in rounds until it has enough right and wrong answers.
pub struct ReinforceAda;

/// What a run may set. The defaults are those of the published script.
#[derive(Settings)]
pub struct ReinforceAdaSettings {
    /// Rounds of sampling in a step, at most.
    #[setting(default = 4)]
    rounds: u32,
    /// Rollouts of each active prompt in a round.
    #[setting(default = 8)]
    repeat: u32,
    /// Rollouts of each prompt to train on; 0 for the run's own number.
    #[setting(default = 0)]
    keep: u32,
    /// A reward above this is positive.
    #[setting(default = 0.7)]
    positive_above: f64,
    /// When a prompt is done: balanced (half of `keep` of each kind) or positive-focused (one positive).
    #[setting(default = Goal::Balanced)]
    goal: Goal,
}

/// When a prompt is done.
#[derive(Choice, Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Half of those to keep are positive, the rest negative.
    Balanced,
    /// One is positive.
    PositiveFocused,
}

impl Policy for ReinforceAda {
    const NAME: &'static str = "reinforce-ada";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "samples each prompt in rounds until it has enough right and wrong answers";
    type Settings = ReinforceAdaSettings;
    type State = ();

    fn begin(settings: &ReinforceAdaSettings, _run: &Run) -> Result<(), Error> {
        if settings.rounds == 0 {
            return Err(bad_setting("rounds", "there must be a round"));
        }
        if settings.repeat == 0 {
            return Err(bad_setting("repeat", "there must be a rollout in a round"));
        }
        if settings.rounds == 1 && settings.repeat == 1 {
            let reason = "is 1 in 1 round, and an advantage is measured against the prompt's other rollouts; set \
                          `repeat` or `rounds` to 2 or more";
            return Err(bad_setting("repeat", reason));
        }
        Ok(())
    }

    fn decide(settings: &ReinforceAdaSettings, run: &Run, (): &mut (), view: &View) -> Result<Plan, Error> {
        let keep = or_else(settings.keep, run.rollouts) as usize;
        let kinds: Vec<(&Group, Kinds)> =
            view.groups.iter().map(|g| (g, Kinds::of(g, settings.positive_above))).collect();
        if view.round == 0 && view.can_sample() {
            return Ok(Plan::sample(view.offer(run.groups).map(|p| Request::new(p.id, settings.repeat))));
        }
        let active: Vec<&Group> =
            kinds.iter().filter(|(_, k)| !k.done(keep, settings.goal)).map(|(g, _)| *g).collect();
        if view.round < settings.rounds && view.budget.open() && !active.is_empty() {
            return Ok(Plan::sample(active.iter().map(|g| Request::new(g.prompt, settings.repeat)))
                .metric("active", active.len() as f64));
        }
        let picks = kinds.iter().map(|(group, kinds)| {
            // The baseline is over all that was sampled: `global_stat_est`.
            Pick::some(group.prompt, kinds.pick(keep)).advantage(Advantage::Group)
        });
        Ok(Plan::train(picks).metric("unfinished", active.len() as f64))
    }
}

/// Positions of a group's positive and negative rollouts, in order of sampling.
pub struct Kinds {
    positive: Vec<u32>,
    negative: Vec<u32>,
}

impl Kinds {
    /// Tells a group's rollouts apart.
    pub fn of(group: &Group, positive_above: f64) -> Self {
        let (positive, negative) =
            (0..group.len() as u32).partition(|i| f64::from(group.rewards[*i as usize]) > positive_above);
        Self { positive, negative }
    }

    /// Whether there are enough of both kinds.
    pub fn done(&self, keep: usize, goal: Goal) -> bool {
        match goal {
            Goal::Balanced => self.positive.len() >= keep / 2 && self.negative.len() >= keep - keep / 2,
            Goal::PositiveFocused => !self.positive.is_empty(),
        }
    }

    /// The first of each kind, positives first; where one kind is short the other fills up. Upstream's
    /// fallback for unfinished prompts (:1134-1175) comes to the same: what it asks for in
    /// positive-focused runs it asks of prompts without a positive.
    pub fn pick(&self, keep: usize) -> Vec<u32> {
        let take = keep.max(1).min(self.positive.len() + self.negative.len());
        let positive = (keep / 2).min(self.positive.len()).max(take.saturating_sub(self.negative.len()));
        self.positive[..positive].iter().chain(&self.negative[..take - positive]).copied().collect()
    }
}

allot_policy::export!(ReinforceAda);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::{decide, made, run_with};

    fn pick(marks: &[u8], keep: usize) -> Vec<u32> {
        Kinds::of(&made::group(0, marks), 0.7).pick(keep)
    }

    #[test]
    fn keeps_the_first_of_each_kind() {
        assert_eq!(pick(&[0, 1, 1, 0, 0, 1, 0, 0], 4), [1, 2, 0, 3]);
        assert_eq!(pick(&[0, 0, 0, 0, 0, 1], 4), [5, 0, 1, 2]);
        assert_eq!(pick(&[1, 1, 1, 1, 0], 4), [0, 1, 2, 4]);
        assert_eq!(pick(&[0, 0, 0], 4), [0, 1, 2]);
        assert_eq!(pick(&[1], 4), [0]);
    }

    #[test]
    fn only_unfinished_prompts_go_on() {
        let run = Run { groups: 2, rollouts: 4, ..run_with::<ReinforceAda>(&[]) };
        let mut view = made::view(5..9);
        let first = Plan::sample([Request::new(5, 8), Request::new(6, 8)]);
        assert_eq!(decide::<ReinforceAda>(&run, &[], &view).unwrap(), first);

        view.round = 1;
        view.groups = vec![made::group(5, &[1, 1, 0, 0]), made::group(6, &[0, 0, 0, 1])];
        let plan = decide::<ReinforceAda>(&run, &[], &view).unwrap();
        assert_eq!(plan.action, Plan::sample([Request::new(6, 8)]).action);

        view.round = 4;
        let Action::Train(batch) = decide::<ReinforceAda>(&run, &[], &view).unwrap().action else {
            panic!("trains")
        };
        assert_eq!(batch.picks[1], Pick::some(6, vec![3, 0, 1, 2]).advantage(Advantage::Group));
    }
}
