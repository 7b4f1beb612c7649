//! An upper bound, and no policy: it knows pass rates, because it measures them with rollouts that nobody counts.
//!
//! Each step measures `among` prompts with `tries` rollouts each. It samples fresh rollouts of the prompts whose outcome
//! varies most, and trains on the fresh ones alone, each measured against its prompt's pass rate. Its price is what it
//! trained on: whoever knew all pass rates would have sampled nothing else. So no allocation of one step's rollouts by pass
//! rates, and no baseline made of them, does better by much, as long as rollouts are what costs.

use allot_policy::prelude::*;

/// Knows pass rates.
pub struct KnownRates;

/// What a run may set.
#[derive(Settings)]
pub struct KnownRatesSettings {
    /// Prompts to measure in a step.
    #[setting(default = 64)]
    among: u32,
    /// Rollouts to measure each with.
    #[setting(default = 16)]
    tries: u32,
    /// Prompts to train on in a step.
    #[setting(default = 16)]
    prompts: u32,
    /// Fresh rollouts of each.
    #[setting(default = 1)]
    fresh: u32,
    /// Whether prompts are chosen by their pass rates. Otherwise the first on offer are taken, and pass rates are
    /// baselines alone.
    #[setting(default = true)]
    choose: bool,
}

impl Policy for KnownRates {
    const NAME: &'static str = "known-rates";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "an upper bound: knows pass rates by rollouts that are not counted";
    type Settings = KnownRatesSettings;
    type State = ();

    fn begin(settings: &KnownRatesSettings, _run: &Run) -> Result<(), Error> {
        if settings.tries < 2 || settings.fresh == 0 || settings.prompts == 0 {
            return Err(bad_setting("tries", "at least 2, and at least one fresh rollout of one prompt"));
        }
        Ok(())
    }

    fn decide(settings: &KnownRatesSettings, _run: &Run, (): &mut (), view: &View) -> Result<Plan, Error> {
        let among = if settings.choose { settings.among } else { settings.prompts };
        if view.round == 0 && view.can_sample() {
            return Ok(Plan::sample(view.offer(among).map(|p| Request::new(p.id, settings.tries))));
        }
        if view.round == 1 && view.budget.open() {
            let mut best: Vec<&Group> = view.groups.iter().collect();
            best.sort_by(|a, b| variance(b).total_cmp(&variance(a)));
            best.truncate(settings.prompts as usize);
            return Ok(Plan::sample(best.iter().map(|g| Request::new(g.prompt, settings.fresh))));
        }
        let picks: Vec<Pick> = view.groups.iter().filter_map(|g| pick(g, settings.tries)).collect();
        let paid = view.groups.iter().map(|g| g.len().saturating_sub(settings.tries as usize)).sum::<usize>();
        Ok(Plan::train(picks).metric("paid", paid as f64))
    }
}

/// p (1 - p).
fn variance(group: &Group) -> f64 {
    let (k, n) = (group.solved() as f64, group.len() as f64);
    k * (n - k) / (n * n)
}

/// The fresh rollouts, measured against what the others say.
fn pick(group: &Group, tries: u32) -> Option<Pick> {
    let (measured, fresh) = group.rewards.split_at_checked(tries as usize)?;
    let rate = measured.iter().sum::<f32>() / tries as f32;
    let given: Vec<f32> = fresh.iter().map(|reward| reward - rate).collect();
    let positions = (tries..group.len() as u32).collect();
    given
        .iter()
        .any(|a| *a != 0.0)
        .then(|| Pick::some(group.prompt, positions).advantage(Advantage::Given(given)))
}

allot_policy::export!(KnownRates);

#[cfg(test)]
mod tests {
    use super::*;
    use allot_policy::{decide, made, run_with, types::Value};

    #[test]
    fn trains_on_fresh_rollouts_alone_against_what_was_measured() {
        let groups = vec![made::group(1, &[1, 0, 1, 1, 0]), made::group(2, &[0; 5]), made::group(3, &[0; 4])];
        let run = run_with::<KnownRates>(&[("tries", Value::Integer(4)), ("prompts", Value::Integer(2))]);
        let first = View { round: 1, groups: groups[1..].to_vec(), ..made::view(0..0) };
        let plan = decide::<KnownRates>(&run, &[], &first).expect("a plan");
        assert_eq!(plan.action, Action::Sample(vec![Request::new(2, 1), Request::new(3, 1)]));

        let then = View { round: 2, groups, ..made::view(0..0) };
        let Action::Train(batch) = decide::<KnownRates>(&run, &[], &then).expect("a plan").action else {
            panic!("trains")
        };
        assert_eq!(batch.picks, [Pick::some(1, vec![4]).advantage(Advantage::Given(vec![-0.75]))]);
    }
}
