//! SPO (arXiv 2509.13232): one rollout of each prompt, measured against a value that is kept for the prompt
//! from visit to visit, and normalized over the whole batch. There are no groups, so none has zero
//! variance, and no rollout is spent on a baseline.
//!
//! Upstream: verl-recipe 48ea0a7, `spo/spo_ray_trainer.py` (the value :356-373, :663-670; which prompts :380-431;
//! advantages :529-560). Departures:
//!
//! - Values fade by a constant, upstream's `rho.type = constant`. Its default fades by the KL divergence since the
//!   last visit, from log-probabilities that a policy is not shown.
//! - A value starts at one half, as upstream's with `offline_N = 0`; the scripts sample eight rollouts of
//!   each prompt first.
//! - Prompts are drawn from those on offer; upstream draws from the whole data set. Those not drawn stay on offer.
//! - Rewards count for the value from 0 to 1.

use allot_policy::prelude::*;

/// One rollout of each prompt, measured against a value that is kept for it.
pub struct Spo;

/// What a run may set.
#[derive(Settings)]
pub struct SpoSettings {
    /// Prompts in a step; 0 for as many as a uniform policy has rollouts.
    #[setting(default = 0)]
    prompts: u32,
    /// How much of the past each visit leaves: 1 / (1 - fade) rollouts make a value.
    #[setting(default = 0.875)]
    fade: f64,
    /// Correct and incorrect rollouts that a value starts with, each.
    #[setting(default = 0.5)]
    prior: f64,
    /// Added to a prompt's standard deviation for its chance to be drawn.
    #[setting(default = 0.05)]
    explore: f64,
}

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct SpoState {
    /// What counts for and against each prompt: its value is the first's share.
    values: Vec<(u32, (f64, f64))>,
}

impl Policy for Spo {
    const NAME: &'static str = "spo";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "one rollout of each prompt, measured against a value that is kept for it";
    type Settings = SpoSettings;
    type State = SpoState;

    fn begin(settings: &SpoSettings, run: &Run) -> Result<SpoState, Error> {
        if !(0.0..1.0).contains(&settings.fade) {
            return Err(bad_setting("fade", "must be at least 0 and below 1"));
        }
        if !(settings.prior > 0.0 && settings.prior <= 1e6) {
            return Err(bad_setting("prior", "must be above 0 and at most a million"));
        }
        if !(settings.explore > 0.0 && settings.explore <= 1e6) {
            return Err(bad_setting("explore", "must be above 0 and at most a million"));
        }
        if settings.prompts(run) < 2 {
            let reason = "must be at least 2 in a step: advantages are normalized over the step's rollouts, and that of \
                          one alone is 0";
            return Err(bad_setting("prompts", reason));
        }
        if run.pool < settings.prompts(run) {
            let wanted = settings.prompts(run);
            log::warn(&format!("the pool has {} prompts on offer, a step takes {wanted}", run.pool));
        }
        Ok(SpoState::default())
    }

    fn decide(settings: &SpoSettings, run: &Run, state: &mut SpoState, view: &View) -> Result<Plan, Error> {
        if view.round == 0 && view.can_sample() {
            let weights: Vec<f64> =
                view.pool.iter().map(|p| settings.weight(settings.value(state, p.id))).collect();
            let drawn = draw(&weights, settings.prompts(run) as usize, &mut Chance::new(view.seed));
            return Ok(Plan::sample(drawn.into_iter().map(|i| Request::new(view.pool[i].id, 1))));
        }
        let surprises: Vec<Vec<f64>> = view
            .groups
            .iter()
            .map(|g| {
                let value = settings.value(state, g.prompt);
                g.rewards.iter().map(|r| f64::from(*r) - value).collect()
            })
            .collect();
        let (mean, std) = moments(surprises.concat());
        let picks = view.groups.iter().zip(&surprises).map(|(group, own)| {
            let given = own.iter().map(|a| ((a - mean) / (std + 1e-8)) as f32).collect();
            Pick::all(group.prompt).advantage(Advantage::Given(given))
        });
        let plan = Plan::train(picks).metric("surprise", mean);
        for group in &view.groups {
            for reward in &group.rewards {
                settings.learn(state, group.prompt, f64::from(*reward));
            }
        }
        Ok(plan)
    }
}

impl SpoSettings {
    fn prompts(&self, run: &Run) -> u32 {
        or_else(self.prompts, run.groups.saturating_mul(run.rollouts))
    }

    /// The reward expected of a prompt.
    pub fn value(&self, state: &SpoState, prompt: PromptId) -> f64 {
        let at = state.values.binary_search_by_key(&prompt, |(p, _)| *p);
        let (right, wrong) = at.map_or((self.prior, self.prior), |i| state.values[i].1);
        right / (right + wrong)
    }

    /// How much more likely a prompt of this value is drawn than another.
    pub fn weight(&self, value: f64) -> f64 {
        (value * (1.0 - value)).sqrt() + self.explore
    }

    /// Takes a reward into a prompt's value.
    pub fn learn(&self, state: &mut SpoState, prompt: PromptId, reward: f64) {
        let at = state.values.binary_search_by_key(&prompt, |(p, _)| *p).unwrap_or_else(|at| {
            state.values.insert(at, (prompt, (self.prior, self.prior)));
            at
        });
        let (right, wrong) = &mut state.values[at].1;
        let reward = reward.clamp(0.0, 1.0);
        (*right, *wrong) = (self.fade * *right + reward, self.fade * *wrong + (1.0 - reward));
    }
}

/// Mean and standard deviation, with n - 1 as torch has it; 0 for one number alone.
pub fn moments(numbers: Vec<f64>) -> (f64, f64) {
    let n = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / n.max(1.0);
    let squares: f64 = numbers.iter().map(|x| (x - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0).max(1.0)).sqrt())
}

/// `k` positions, drawn one after the other by weight, none twice; all, as they stand, if there are no more.
fn draw(weights: &[f64], k: usize, chance: &mut Chance) -> Vec<usize> {
    let mut left: Vec<usize> = (0..weights.len()).collect();
    if left.len() <= k {
        return left;
    }
    let mut drawn = Vec::new();
    while drawn.len() < k {
        let mut at = chance.unit() * left.iter().map(|i| weights[*i]).sum::<f64>();
        let place = left.iter().position(|i| {
            at -= weights[*i];
            at < 0.0
        });
        drawn.push(left.remove(place.unwrap_or(left.len() - 1)));
    }
    drawn
}

allot_policy::export!(Spo);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::Value;
    use allot_policy::{begin, decide, made, run_with};

    #[test]
    fn one_rollout_of_as_many_prompts_as_a_step_has_rollouts() {
        let run = run_with::<Spo>(&[]);
        let plan = decide::<Spo>(&run, &begin::<Spo>(&run).unwrap(), &made::view(0..64)).unwrap();
        let Action::Sample(requests) = plan.action else { panic!("samples") };
        assert_eq!((requests.len(), requests.iter().map(|r| r.count).max()), (32, Some(1)));
    }

    #[test]
    fn a_reward_is_measured_against_what_was_expected() {
        let run = run_with::<Spo>(&[]);
        let mut view = made::view(0..9);
        (view.round, view.groups) = (1, vec![made::group(1, &[1]), made::group(2, &[0])]);
        let plan = decide::<Spo>(&run, &begin::<Spo>(&run).unwrap(), &view).unwrap();
        let state = SpoState::load(&plan.state).unwrap();
        let settings = SpoSettings::read(&run).unwrap();
        // One half each, times 0.875, and one reward.
        assert_eq!(settings.value(&state, 1), 1.4375 / 1.875);
        assert_eq!(settings.value(&state, 9), 0.5);

        // The same outcomes once more surprise less in the first and more in the second.
        view.groups = vec![made::group(1, &[1]), made::group(2, &[1])];
        let Action::Train(batch) = decide::<Spo>(&run, &plan.state, &view).unwrap().action else { panic!() };
        let Advantage::Given(first) = &batch.picks[0].advantage else { panic!() };
        let Advantage::Given(second) = &batch.picks[1].advantage else { panic!() };
        assert!(first[0] < 0.0 && second[0] > 0.0 && (first[0] + second[0]).abs() < 1e-6);
    }

    #[test]
    fn uncertain_prompts_are_drawn_more_often() {
        let (mut chance, mut counts) = (Chance::new(2), [0; 3]);
        for _ in 0..6000 {
            counts[draw(&[1.0, 2.0, 3.0], 1, &mut chance)[0]] += 1;
        }
        for (count, expected) in counts.iter().zip([1000, 2000, 3000]) {
            assert!(i32::abs(count - expected) < 150, "{counts:?}");
        }
        assert_eq!(draw(&[1.0; 5], 9, &mut chance), [0, 1, 2, 3, 4]);
        let mut four = draw(&[1.0; 5], 4, &mut chance);
        four.sort_unstable();
        four.dedup();
        assert_eq!(four.len(), 4);
    }

    #[test]
    fn one_rollout_alone_has_no_advantage() {
        let run = run_with::<Spo>(&[("prompts", Value::Integer(1))]);
        let mut view = made::view(0..2);
        (view.round, view.groups) = (1, vec![made::group(1, &[1])]);
        let first = SpoState::default().save();
        assert!(begin::<Spo>(&run).is_err());
        let Action::Train(batch) = decide::<Spo>(&run, &first, &view).unwrap().action else {
            panic!("trains")
        };
        assert_eq!(batch.picks[0].advantage, Advantage::Given(vec![0.0]));
    }
}
