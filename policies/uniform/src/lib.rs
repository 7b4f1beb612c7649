//! Uniform allocation, as in GRPO (arXiv 2402.03300): the same number of rollouts for every prompt,
//! and training on all of them.
//!
//! Upstream: verl-recipe 48ea0a7, `dapo/dapo_ray_trainer.py:235` with `filter_groups.enable=False`.

use allot_policy::prelude::*;

/// The same number of rollouts for every prompt, and training on all of them.
pub struct Uniform;

/// What a run may set.
#[derive(Settings)]
pub struct UniformSettings {
    /// Rollouts of each prompt; 0 for the run's own number.
    #[setting(default = 0)]
    rollouts: u32,
}

impl Policy for Uniform {
    const NAME: &'static str = "uniform";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "the same number of rollouts for every prompt, and training on all of them";
    type Settings = UniformSettings;
    type State = ();

    fn begin(settings: &UniformSettings, run: &Run) -> Result<(), Error> {
        needs_two(Some(("rollouts", settings.rollouts)), run)
    }

    fn decide(settings: &UniformSettings, run: &Run, (): &mut (), view: &View) -> Result<Plan, Error> {
        if view.round > 0 || !view.can_sample() {
            return Ok(Plan::train(view.groups.iter().map(|g| Pick::all(g.prompt))));
        }
        let rollouts = or_else(settings.rollouts, run.rollouts);
        Ok(Plan::sample(view.offer(run.groups).map(|p| Request::new(p.id, rollouts))))
    }
}

allot_policy::export!(Uniform);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::Value;
    use allot_policy::{decide, made, run_with};

    #[test]
    fn samples_once_then_trains_on_all() {
        let run = run_with::<Uniform>(&[]);
        let mut view = made::view(0..10);
        let plan = decide::<Uniform>(&run, &[], &view).unwrap();
        assert_eq!(plan, Plan::sample((0..4).map(|p| Request::new(p, 8))));

        view.round = 1;
        view.groups = vec![made::group(3, &[1, 0]), made::group(5, &[0, 0])];
        let plan = decide::<Uniform>(&run, &[], &view).unwrap();
        assert_eq!(plan, Plan::train([Pick::all(3), Pick::all(5)]));
    }

    #[test]
    fn a_setting_overrides_the_run() {
        let run = run_with::<Uniform>(&[("rollouts", Value::Integer(3))]);
        let plan = decide::<Uniform>(&run, &[], &made::view(0..1)).unwrap();
        assert_eq!(plan, Plan::sample([Request::new(0, 3)]));
    }

    #[test]
    fn trains_where_nothing_can_be_sampled() {
        let run = run_with::<Uniform>(&[]);
        let mut view = made::view(0..4);
        view.budget.rounds = 0;
        assert_eq!(decide::<Uniform>(&run, &[], &view).unwrap(), Plan::train([]));
        assert_eq!(decide::<Uniform>(&run, &[], &made::view(0..0)).unwrap(), Plan::train([]));
    }
}
