//! SAGC, straggler-aware group control (arXiv 2606.02218): all prompts have groups of one size, which falls while groups
//! often wait for a rollout that is much longer than the others, and rises again.
//!
//! The abstract and two summaries could be read, the paper and its code not. They say: the group size is chosen online,
//! under a limit on the long-term rate of stragglers; what is observed are the longest and the median length of groups;
//! the risk of a straggler is learned as it depends on the size. Not faithful, as the formulas are ours:
//!
//! - A rollout is long from `ratio` times its group's median length on (the lower one of two). A group with a long
//!   rollout has a straggler.
//! - The limit is kept by a virtual queue, the debt: it grows by each step's share of groups with stragglers, and falls
//!   by `budget`.
//! - If a rollout is long with probability q, a group of n has a straggler with 1 - (1 - q)^n. The next size is the n
//!   with the largest `weight` (1 - 1/n) - debt (1 - (1 - q)^n). 1 - 1/n is what a group's mean leaves of an advantage.
//! - A step has as many prompts as a uniform policy's, so it has fewer rollouts while groups are smaller.

use allot_policy::prelude::*;

/// Samples as `uniform` does, in groups whose size depends on how often one rollout is much longer than the others.
pub struct Sagc;

/// What a run may set.
#[derive(Settings)]
pub struct SagcSettings {
    /// Rollouts of each prompt, at most; 0 for the run's own number.
    #[setting(default = 0)]
    rollouts: u32,
    /// Rollouts of each prompt, at least.
    #[setting(default = 2, minimum = 2)]
    least: u32,
    /// A rollout is long from this many median lengths of its group on.
    #[setting(default = 2.0, minimum = 1.0, maximum = 1000.0)]
    ratio: f64,
    /// The share of groups that may have a long rollout, over many steps.
    #[setting(default = 0.1, minimum = 0.0, maximum = 1.0)]
    budget: f64,
    /// What larger groups are worth beside the debt: the larger, the later the size reacts.
    #[setting(default = 10.0, minimum = 0.01, maximum = 10000.0)]
    weight: f64,
    /// What of the counted rollouts is remembered from step to step.
    #[setting(default = 0.98, minimum = 0.0, maximum = 1.0)]
    decay: f64,
}

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct SagcState {
    /// How far the groups with stragglers are beyond the budget, in steps of nothing but these.
    pub debt: f64,
    /// Long rollouts, less what is forgotten.
    pub long: f64,
    /// All rollouts, less what is forgotten.
    pub seen: f64,
}

impl Policy for Sagc {
    const NAME: &'static str = "sagc";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str =
        "uniform, in smaller groups while they wait for much longer rollouts; not faithful";
    type Settings = SagcSettings;
    type State = SagcState;

    fn begin(settings: &SagcSettings, run: &Run) -> Result<SagcState, Error> {
        needs_two(Some(("rollouts", settings.rollouts)), run)?;
        let most = or_else(settings.rollouts, run.rollouts);
        if settings.least > most {
            let reason = format!(
                "it is {}, and a prompt gets at most {most} rollouts; set {most} or less",
                settings.least
            );
            return Err(bad_setting("least", reason));
        }
        Ok(SagcState::default())
    }

    fn decide(settings: &SagcSettings, run: &Run, state: &mut SagcState, view: &View) -> Result<Plan, Error> {
        if view.round > 0 || !view.can_sample() {
            let stragglers = state.learn(settings, &view.groups);
            let plan = Plan::train(view.groups.iter().map(|group| Pick::all(group.prompt)));
            return Ok(plan.metric("stragglers", stragglers).metric("debt", state.debt));
        }
        let size = settings.size(run, state);
        let plan = Plan::sample(view.offer(run.groups).map(|prompt| Request::new(prompt.id, size)));
        Ok(plan.metric("size", f64::from(size)))
    }
}

impl SagcSettings {
    /// The size of the next groups, the largest of equally good ones.
    fn size(&self, run: &Run, state: &SagcState) -> u32 {
        let most = or_else(self.rollouts, run.rollouts);
        // One half and one are added, so that the risk is neither 0 nor 1.
        let short = 1.0 - (state.long + 0.5) / (state.seen + 1.0);
        let worth = |size: u32| {
            let risk = 1.0 - short.powf(f64::from(size));
            self.weight * (1.0 - 1.0 / f64::from(size)) - state.debt * risk
        };
        let better = |best: u32, size: u32| if worth(size) > worth(best) { size } else { best };
        (self.least..most).rev().fold(most, better)
    }
}

impl SagcState {
    /// Takes in the lengths of a step. Returns the share of groups with a straggler.
    fn learn(&mut self, settings: &SagcSettings, groups: &[Group]) -> f64 {
        if groups.is_empty() {
            return 0.0;
        }
        (self.long, self.seen) = (self.long * settings.decay, self.seen * settings.decay);
        let mut stragglers = 0;
        for group in groups {
            let mut lengths = group.lengths.clone();
            lengths.sort_unstable();
            let bound = f64::from(lengths[(lengths.len() - 1) / 2]) * settings.ratio;
            let long = lengths.iter().filter(|length| f64::from(**length) > bound).count();
            stragglers += usize::from(long > 0);
            self.long += long as f64;
            self.seen += lengths.len() as f64;
        }
        let share = stragglers as f64 / groups.len() as f64;
        self.debt = (self.debt + share - settings.budget).max(0.0);
        share
    }
}

allot_policy::export!(Sagc);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::Value;
    use allot_policy::{begin, decide, made, run_with};

    /// A step whose groups have these lengths.
    fn step(groups: &[&[u32]]) -> View {
        let group = |(prompt, lengths): (u32, &&[u32])| Group {
            lengths: lengths.to_vec(),
            ..made::group(prompt, &vec![1; lengths.len()])
        };
        View { round: 1, groups: (0..).zip(groups).map(group).collect(), ..made::view([]) }
    }

    /// The state after these steps, and the size of the groups after them.
    fn after(changes: &[(&str, Value)], steps: &[View]) -> (SagcState, u32) {
        let run = run_with::<Sagc>(changes);
        let learned = |state: Vec<u8>, view| {
            let plan = decide::<Sagc>(&run, &state, view).unwrap();
            assert_eq!(plan.action, Plan::train(view.groups.iter().map(|g| Pick::all(g.prompt))).action);
            plan.state
        };
        let state = steps.iter().fold(begin::<Sagc>(&run).unwrap(), learned);
        let plan = decide::<Sagc>(&run, &state, &made::view(0..10)).unwrap();
        let Action::Sample(requests) = &plan.action else { panic!("it trains") };
        let size = requests[0].count;
        assert_eq!(plan.action, Plan::sample((0..4).map(|p| Request::new(p, size))).action);
        (SagcState::load(&state).unwrap(), size)
    }

    #[test]
    fn a_straggler_is_longer_than_so_many_medians() {
        // Medians of 10, the lower one of two: 20 is not beyond twice that, 21 is. A group of one waits for nothing.
        let view = step(&[&[10, 8, 20, 11], &[10, 21], &[10, 8, 12], &[99]]);
        let (state, _) = after(&[], std::slice::from_ref(&view));
        assert_eq!(state, SagcState { debt: 0.25 - 0.1, long: 1.0, seen: 10.0 });
        let (state, _) = after(&[("ratio", Value::Number(1.5)), ("budget", Value::Number(0.5))], &[view]);
        assert_eq!(state, SagcState { debt: 0.0, long: 2.0, seen: 10.0 });
    }

    #[test]
    fn groups_shrink_while_they_wait_and_grow_again() {
        let four = |last| step(&[&[9, 9, 9, last][..]; 4]);
        let (waits, even) = (four(50), four(9));
        let sizes = |steps: &[View]| after(&[], steps).1;
        assert_eq!(sizes(&[]), 8, "the run's own");
        assert_eq!(sizes(&vec![even.clone(); 50]), 8);
        // A rollout in four is long. Debts of 0.9 and 9: 10 (1/7 - 1/8) is more than 0.9 (0.75^7 - 0.75^8), and less than 9 times that.
        assert_eq!(sizes(std::slice::from_ref(&waits)), 8);
        let long = vec![waits.clone(); 10];
        assert!((3..8).contains(&sizes(&long)), "{}", sizes(&long));
        assert_eq!(after(&[("least", Value::Integer(6))], &long).1, 6);
        let longer = [long.clone(), vec![waits; 200]].concat();
        assert!(sizes(&longer) < sizes(&long), "{} after {}", sizes(&longer), sizes(&long));
        assert_eq!(sizes(&[long, vec![even; 200]].concat()), 8, "the debt is paid");
    }

    #[test]
    fn a_step_without_groups_changes_nothing() {
        assert_eq!(after(&[], &[step(&[])]).0, SagcState::default());
    }

    #[test]
    fn a_least_size_above_the_largest_is_refused() {
        assert!(begin::<Sagc>(&run_with::<Sagc>(&[("least", Value::Integer(9))])).is_err());
        assert!(begin::<Sagc>(&run_with::<Sagc>(&[("least", Value::Integer(8))])).is_ok());
        assert!(begin::<Sagc>(&run_with::<Sagc>(&[("rollouts", Value::Integer(1))])).is_err());
    }
}
