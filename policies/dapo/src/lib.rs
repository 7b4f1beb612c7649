//! Dynamic sampling, from DAPO (arXiv 2503.14476): groups that are all right or all wrong are thrown
//! away, and more prompts sampled, until there are enough of the others.
//!
//! Upstream: verl-recipe 48ea0a7, `dapo/dapo_ray_trainer.py:139-422`. Departures: a group is flat when
//! max == min, where upstream asks `np.std(x) > 0`, whose rounding error keeps some groups of one
//! repeated reward (:261); a group of which one rollout alone could be judged is flat; a run of one rollout a prompt is refused,
//! since its advantage is 0 here; and where the budget ends, the step trains on the groups it has, where
//! upstream raises (:286).

use allot_policy::prelude::*;

/// Samples more prompts until enough groups are mixed.
pub struct Dapo;

/// What a run may set.
#[derive(Settings)]
pub struct DapoSettings {
    /// Prompts to sample in each round; 0 for as many as there are groups in an update.
    #[setting(default = 0)]
    generate: u32,
    /// Rollouts of each prompt; 0 for the run's own number.
    #[setting(default = 0)]
    rollouts: u32,
    /// What must differ within a group: correct or reward.
    #[setting(default = Metric::Correct)]
    metric: Metric,
    /// Off: the first round is trained on as it is.
    #[setting(default = true)]
    filter: bool,
}

/// What a group is judged by. Upstream: `filter_groups.metric`, `acc` or `seq_reward`.
#[derive(Choice, Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// Whether the answers are right.
    Correct,
    /// The rewards, penalties included.
    Reward,
}

impl Policy for Dapo {
    const NAME: &'static str = "dapo";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "more prompts until enough groups are neither all right nor all wrong";
    type Settings = DapoSettings;
    type State = ();

    fn begin(settings: &DapoSettings, run: &Run) -> Result<(), Error> {
        needs_two(Some(("rollouts", settings.rollouts)), run)
    }

    fn decide(settings: &DapoSettings, run: &Run, (): &mut (), view: &View) -> Result<Plan, Error> {
        let rollouts = or_else(settings.rollouts, run.rollouts);
        // Where one rollout is asked for, upstream keeps every group (:263). `begin` refuses such a run.
        let keeps_all = !settings.filter || rollouts == 1;
        let kept: Vec<&Group> =
            view.groups.iter().filter(|g| keeps_all || mixed(g, settings.metric)).collect();
        let enough = kept.len() >= run.groups as usize || (!settings.filter && view.round > 0);
        if !enough && view.can_sample() {
            let generate = or_else(settings.generate, run.groups);
            return Ok(Plan::sample(view.offer(generate).map(|p| Request::new(p.id, rollouts))));
        }
        // First come, first kept: the surplus is let go (:293). Without the filter upstream never cuts.
        let most = if settings.filter { run.groups as usize } else { kept.len() };
        Ok(Plan::train(kept.iter().take(most).map(|g| Pick::all(g.prompt)))
            .metric("kept", kept.len() as f64)
            .metric("sampled", view.groups.len() as f64))
    }
}

/// Whether a group can teach anything.
pub fn mixed(group: &Group, metric: Metric) -> bool {
    match metric {
        Metric::Correct => (1..group.len()).contains(&group.solved()),
        Metric::Reward => !group.flat(),
    }
}

allot_policy::export!(Dapo);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::Value;
    use allot_policy::{decide, made, run_with};

    #[test]
    fn samples_until_enough_groups_are_mixed() {
        let run = Run { groups: 2, ..run_with::<Dapo>(&[("generate", Value::Integer(3))]) };
        let mut view = made::view(10..20);
        let round = Plan::sample((10..13).map(|p| Request::new(p, 8)));
        assert_eq!(decide::<Dapo>(&run, &[], &view).unwrap(), round);

        view.round = 1;
        view.groups = vec![made::group(0, &[1, 1]), made::group(1, &[1, 0]), made::group(2, &[0, 0])];
        assert_eq!(decide::<Dapo>(&run, &[], &view).unwrap(), round);

        view.groups.extend([made::group(3, &[0, 1]), made::group(4, &[0, 1])]);
        let Action::Train(batch) = decide::<Dapo>(&run, &[], &view).unwrap().action else { panic!("trains") };
        assert_eq!(batch.picks, [Pick::all(1), Pick::all(3)]);
    }

    #[test]
    fn trains_short_where_the_budget_ends() {
        let run = run_with::<Dapo>(&[]);
        let mut view = made::view(10..20);
        view.groups = vec![made::group(1, &[1, 0]), made::group(2, &[0, 0])];
        view.budget.step_rollouts = 0;
        let Action::Train(batch) = decide::<Dapo>(&run, &[], &view).unwrap().action else { panic!("trains") };
        assert_eq!(batch.picks, [Pick::all(1)]);
    }

    #[test]
    fn judges_by_correct_or_by_reward() {
        let penalised = Group { rewards: vec![1.0, 0.5], ..made::group(0, &[1, 1]) };
        assert!(!mixed(&penalised, Metric::Correct));
        assert!(mixed(&penalised, Metric::Reward));
        // 0.1 thrice has a standard deviation of 1e-17 in floating point.
        assert!(!mixed(&made::rewarded(0, &[0.1; 3]), Metric::Reward));
    }

    #[test]
    fn a_group_of_one_is_kept_where_one_was_asked_for() {
        let kept = |rollouts| {
            let run = Run { groups: 1, rollouts, ..run_with::<Dapo>(&[]) };
            let mut view = made::view(10..20);
            (view.round, view.budget.rounds) = (1, 0);
            view.groups = vec![made::group(1, &[1])];
            let Action::Train(batch) = decide::<Dapo>(&run, &[], &view).unwrap().action else {
                panic!("trains")
            };
            batch.picks
        };
        assert_eq!(kept(1), [Pick::all(1)]);
        assert_eq!(kept(8), [], "of eight one could be judged: nothing to measure it against");
    }

    #[test]
    fn without_the_filter_it_is_uniform() {
        let run = Run { groups: 1, ..run_with::<Dapo>(&[("filter", Value::Flag(false))]) };
        let mut view = made::view(10..20);
        view.round = 1;
        view.groups = vec![made::group(1, &[0, 0]), made::group(2, &[0, 0])];
        let Action::Train(batch) = decide::<Dapo>(&run, &[], &view).unwrap().action else { panic!("trains") };
        assert_eq!(batch.picks, [Pick::all(1), Pick::all(2)]);
    }
}
