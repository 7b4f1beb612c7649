//! AdaRFT (arXiv 2504.05520): a curriculum by a column of the data set, `difficulty`. Each step samples the prompts
//! whose difficulty is closest to a target; the target rises while the mean reward is above one half, and falls
//! while it is below.
//!
//! Upstream: uscnlp-lime/verl bf2dd7e, `verl/trainer/ppo/custom_sampler.py:28-48` (which prompts) and
//! `ray_trainer.py:956-968` (the target). Departures:
//!
//! - Of prompts at the same distance those with the fewest visits come first. Upstream's order of equals is numpy's:
//!   with few levels it trains on the same prompts as long as the target stays.
//! - The next step has the new target. Upstream's loader fetches ahead of it.
//! - The target starts at the lowest difficulty that is allowed, upstream's at 0.

use allot_policy::prelude::*;

/// Samples the prompts whose difficulty is closest to a target that follows the reward.
pub struct AdaRft;

/// What a run may set. The defaults are those of the published script, for difficulties from 0 to 100.
#[derive(Settings)]
pub struct AdaRftSettings {
    /// The mean reward to aim at.
    #[setting(default = 0.5)]
    reward: f64,
    /// How sharply the target answers to the reward.
    #[setting(default = 2.0)]
    sensitivity: f64,
    /// How far the target moves at most in a step.
    #[setting(default = 50.0)]
    step: f64,
    /// The lowest target.
    #[setting(default = 0.0)]
    lowest: f64,
    /// The highest target.
    #[setting(default = 100.0)]
    highest: f64,
}

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct AdaRftState {
    /// The difficulty to come close to.
    pub target: f64,
}

impl Policy for AdaRft {
    const NAME: &'static str = "adarft";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str =
        "the prompts whose difficulty is closest to a target that follows the reward";
    const COLUMNS: &'static [&'static str] = &["difficulty"];
    const NEEDS: Needs = Needs::ANY_PROMPT;
    type Settings = AdaRftSettings;
    type State = AdaRftState;

    fn begin(settings: &AdaRftSettings, run: &Run) -> Result<AdaRftState, Error> {
        let numbers = [
            ("reward", settings.reward),
            ("sensitivity", settings.sensitivity),
            ("step", settings.step),
            ("lowest", settings.lowest),
            ("highest", settings.highest),
        ];
        if let Some((name, _)) = numbers.iter().find(|(_, value)| !value.is_finite()) {
            return Err(bad_setting(name, "must be finite"));
        }
        needs_two(None, run)?;
        if settings.lowest > settings.highest {
            return Err(bad_setting("lowest", "must be at most highest"));
        }
        if run.columns.iter().any(|c| c.width != 1 || !c.categories.is_empty()) {
            return Err(Error::Other(
                "the column `difficulty` must have one number for each prompt".to_owned(),
            ));
        }
        Ok(AdaRftState { target: settings.lowest })
    }

    fn decide(
        settings: &AdaRftSettings,
        run: &Run,
        state: &mut AdaRftState,
        view: &View,
    ) -> Result<Plan, Error> {
        if view.round == 0 && view.budget.open() {
            let difficulties = facts::column("difficulty", ..);
            let visits = facts::counts(Count::Visits, ..);
            let chosen = closest(&difficulties, &visits, state.target, run.groups as usize);
            return Ok(Plan::sample(chosen.into_iter().map(|p| Request::new(p, run.rollouts)))
                .metric("target", state.target));
        }
        let rewards: Vec<f64> = view.groups.iter().flat_map(|g| &g.rewards).map(|r| f64::from(*r)).collect();
        if !rewards.is_empty() {
            state.target = settings.next(state.target, rewards.iter().sum::<f64>() / rewards.len() as f64);
        }
        Ok(Plan::train(view.groups.iter().map(|g| Pick::all(g.prompt))))
    }
}

impl AdaRftSettings {
    /// The target after a step of this mean reward.
    pub fn next(&self, target: f64, reward: f64) -> f64 {
        let moved = target + self.step * libm::tanh(self.sensitivity * (reward - self.reward));
        moved.clamp(self.lowest, self.highest)
    }
}

/// The `n` prompts whose difficulty is closest to the target; of equals those with the fewest visits, then
/// in the order of the data set.
pub fn closest(difficulties: &[f32], visits: &[u32], target: f64, n: usize) -> Vec<PromptId> {
    let mut prompts: Vec<(f64, u32, PromptId)> = (0..)
        .zip(difficulties.iter().zip(visits))
        .map(|(id, (difficulty, visits))| ((f64::from(*difficulty) - target).abs(), *visits, id))
        .collect();
    let order = |a: &(f64, u32, PromptId), b: &(f64, u32, PromptId)| {
        a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2))
    };
    // A hundred thousand prompts need not be sorted for the sake of a few.
    if n > 0 && n < prompts.len() {
        prompts.select_nth_unstable_by(n - 1, order);
    }
    prompts.truncate(n);
    prompts.sort_unstable_by(order);
    prompts.into_iter().map(|(_, _, id)| id).collect()
}

allot_policy::export!(AdaRft);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::Column;
    use allot_policy::{begin, decide, made, run_with};

    fn run() -> Run {
        Run { prompts: 10, groups: 2, ..run_with::<AdaRft>(&[]) }
    }

    fn asked(plan: &Plan) -> Vec<PromptId> {
        let Action::Sample(requests) = &plan.action else { panic!("trains: {plan:?}") };
        requests.iter().map(|r| r.prompt).collect()
    }

    #[test]
    fn it_starts_with_the_easiest_and_follows_the_reward() {
        let difficulties: Vec<f32> = (0u8..10).map(|i| 90.0 - 10.0 * f32::from(i)).collect();
        made::Facts::of(10).column("difficulty", &difficulties).tell();
        let run = run();
        let mut view = made::view(0..3);
        let plan = decide::<AdaRft>(&run, &begin::<AdaRft>(&run).unwrap(), &view).unwrap();
        assert_eq!(asked(&plan), [9, 8]);

        (view.round, view.groups) = (1, vec![made::group(9, &[1, 1, 1, 1]), made::group(8, &[1, 1, 1, 1])]);
        let plan = decide::<AdaRft>(&run, &plan.state, &view).unwrap();
        // 50 tanh(2 · 0.5) is 38.08.
        view = made::view(0..3);
        assert_eq!(asked(&decide::<AdaRft>(&run, &plan.state, &view).unwrap()), [5, 6]);
    }

    #[test]
    fn of_equally_difficult_prompts_the_least_visited_come_first() {
        assert_eq!(closest(&[3.0, 1.0, 1.0, 1.0], &[0, 2, 0, 1], 1.0, 2), [2, 3]);
        assert_eq!(closest(&[3.0, 1.0], &[0, 0], 9.0, 5), [0, 1]);
        assert!(closest(&[], &[], 0.0, 3).is_empty());
    }

    #[test]
    fn the_target_stays_within_bounds() {
        let settings = AdaRftSettings::read(&run()).unwrap();
        assert_eq!((settings.next(90.0, 1.0), settings.next(10.0, 0.0)), (100.0, 0.0));
        assert_eq!(settings.next(42.0, 0.5), 42.0);
    }

    #[test]
    fn words_are_no_difficulty() {
        let column =
            Column { name: "difficulty".into(), width: 1, categories: vec!["easy".into(), "hard".into()] };
        assert!(begin::<AdaRft>(&Run { columns: vec![column], ..run() }).is_err());
    }
}
