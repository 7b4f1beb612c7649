//! Optimizer steps of equal information: learns as soon as there is enough for one, and cuts what it has into as
//! many as it is enough for. Our own, not a published method.
//!
//! k correct rollouts of n are worth 4 k (n - k) / n rollouts at a pass rate of one half. A step on few of them is
//! mostly noise, a step on many wastes them: with B_noise the noise scale, a step makes 1 / (1 + B_noise / B) of the noiseless
//! progress (McCandlish et al., arXiv 1812.06162). So rollouts are best used in steps of about B_noise, and not
//! in steps of a fixed number of prompts, of which half may teach nothing.
//!
//! Groups of zero variance are left out, as in DAPO. The others are dealt so that each optimizer step
//! gets about the same information.

use allot_policy::prelude::*;

/// Learns as soon as there is a step's worth of information, in optimizer steps of that size.
pub struct InfoSteps;

/// What a run may set.
#[derive(Settings)]
pub struct InfoStepsSettings {
    /// Information in an optimizer step, in rollouts at a pass rate of one half.
    #[setting(default = 16.0)]
    info: f64,
    /// Optimizer steps in an update, at most.
    #[setting(default = 8)]
    most: u32,
    /// Prompts to sample in each round; 0 for as many as there are groups in an update.
    #[setting(default = 0)]
    prompts: u32,
}

impl Policy for InfoSteps {
    const NAME: &'static str = "info-steps";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "optimizer steps of equal information, taken as soon as there is enough";
    const NEEDS: Needs = Needs::UPDATING;
    type Settings = InfoStepsSettings;
    type State = ();

    fn begin(settings: &InfoStepsSettings, run: &Run) -> Result<(), Error> {
        if !(settings.info > 0.0 && settings.info <= 1e9) {
            return Err(bad_setting("info", "must be above 0 and at most a billion"));
        }
        if settings.most == 0 {
            return Err(bad_setting("most", "there must be an optimizer step"));
        }
        needs_two(None, run)
    }

    fn decide(settings: &InfoStepsSettings, run: &Run, (): &mut (), view: &View) -> Result<Plan, Error> {
        let useful: Vec<&Group> = view.groups.iter().filter(|g| information(g) > 0.0).collect();
        let have: f64 = useful.iter().map(|g| information(g)).sum();
        if have < settings.info && view.can_sample() {
            let prompts = view.offer(or_else(settings.prompts, run.groups));
            return Ok(Plan::sample(prompts.map(|p| Request::new(p.id, run.rollouts))));
        }
        let steps = ((have / settings.info) as u32).clamp(1, settings.most);
        let rollouts: usize = useful.iter().map(|g| g.len()).sum();
        let plan = Plan::train(deal(&useful, steps as usize).into_iter().map(Pick::all));
        let mini_batch = rollouts.div_ceil(steps as usize).max(1) as u32;
        Ok(plan
            .update(Update { mini_batch, passes: run.update.passes })
            .metric("information", have)
            .metric("steps", f64::from(if useful.is_empty() { 0 } else { steps })))
    }
}

/// How many rollouts at a pass rate of one half a group is worth.
pub fn information(group: &Group) -> f64 {
    let (k, n) = (group.solved() as f64, group.len() as f64);
    4.0 * k * (n - k) / n
}

/// The groups' prompts in an order in which as many equal parts have about the same information: most first, each
/// to the part that has least.
fn deal(groups: &[&Group], parts: usize) -> Vec<PromptId> {
    let mut order = groups.to_vec();
    order.sort_by(|a, b| information(b).total_cmp(&information(a)));
    let mut dealt: Vec<(f64, Vec<PromptId>)> = vec![(0.0, Vec::new()); parts];
    let size = groups.len().div_ceil(parts);
    for group in order {
        let open = dealt.iter_mut().filter(|(_, prompts)| prompts.len() < size);
        let least = open.min_by(|a, b| a.0.total_cmp(&b.0));
        let (info, prompts) = least.expect("parts times their size is at least the number of groups");
        *info += information(group);
        prompts.push(group.prompt);
    }
    dealt.into_iter().flat_map(|(_, prompts)| prompts).collect()
}

allot_policy::export!(InfoSteps);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::Value;
    use allot_policy::{begin, decide, made, run_with};

    fn run(info: f64) -> Run {
        run_with::<InfoSteps>(&[("info", Value::Number(info))])
    }

    fn after(groups: Vec<Group>) -> View {
        View { round: 1, groups, ..made::view(20..30) }
    }

    #[test]
    fn half_right_is_worth_all_of_its_rollouts() {
        assert_eq!(information(&made::group(0, &[1, 1, 0, 0])), 4.0);
        assert_eq!(information(&made::group(0, &[1, 0, 0, 0])), 3.0);
        assert_eq!(information(&made::group(0, &[1, 1])), 0.0);
    }

    #[test]
    fn it_goes_on_until_there_is_enough_for_a_step() {
        let run = run(8.0);
        let view = after(vec![made::group(0, &[1, 0, 0, 0]), made::group(1, &[1, 1, 0, 0])]);
        let plan = decide::<InfoSteps>(&run, &begin::<InfoSteps>(&run).unwrap(), &view).unwrap();
        assert_eq!(plan.action, Plan::sample((20..24).map(|p| Request::new(p, 8))).action);
    }

    #[test]
    fn what_is_enough_for_three_is_cut_into_three() {
        let half = |p| made::group(p, &[1, 1, 0, 0]);
        let view = after(vec![half(0), made::group(1, &[1; 4]), half(2), half(3)]);
        let Action::Train(batch) = decide::<InfoSteps>(&run(4.0), &[], &view).unwrap().action else {
            panic!()
        };
        assert_eq!(batch.picks, [Pick::all(0), Pick::all(2), Pick::all(3)]);
        assert_eq!(batch.update, Some(Update { mini_batch: 4, passes: 4 }));
    }

    #[test]
    fn steps_get_about_the_same() {
        let worth = |p: u32, right: usize| made::group(p, &[vec![1; right], vec![0; 8 - right]].concat());
        // 8, 7.5, 3.5 and 3.5: the first with the last.
        let groups = [worth(0, 4), worth(1, 3), worth(2, 1), worth(3, 7)];
        assert_eq!(deal(&groups.iter().collect::<Vec<_>>(), 2), [0, 3, 1, 2]);
    }

    #[test]
    fn where_the_budget_ends_it_learns_from_what_there_is() {
        let mut view = after(vec![made::group(0, &[1, 0, 0, 0])]);
        view.budget.rounds = 0;
        let Action::Train(batch) = decide::<InfoSteps>(&run(8.0), &[], &view).unwrap().action else {
            panic!()
        };
        assert_eq!(batch.update, Some(Update { mini_batch: 4, passes: 4 }));
        view.groups.clear();
        let Action::Train(batch) = decide::<InfoSteps>(&run(8.0), &[], &view).unwrap().action else {
            panic!()
        };
        assert!(batch.picks.is_empty());
    }
}
