//! C-GRPO (huggingface/trl#7402): samples each prompt along a grid of budgets and stops at the first one at which
//! a conformal threshold says that it is solved. Solved prompts take few rollouts, the others all.
//!
//! After k rollouts, the score of a prompt is the place of its first correct one, divided by k (`first-success`),
//! or the share of wrong ones (`pass-rate`). The threshold for k is a quantile of the scores of calibration prompts that were
//! sampled to the end, so that a solved prompt is stopped with a chosen probability, by exchangeability.
//! Thresholds are made again every so many steps.
//!
//! Upstream: PyPI trl-cgrpo 0.2.0, `conformal.py` and `cgrpo_trainer.py`. Departures:
//!
//! - Calibration prompts are the next on offer; upstream's are a data set of their own. Both discard their
//!   rollouts. They are paid for here, as all are.
//! - Its default score, `aps`, needs the text of answers, which a policy is not shown.
//! - Groups have the rollouts they have; upstream pads them to equal length and masks the padding.
//! - Where the rounds of a step end, the step trains on what it has.

use allot_policy::prelude::*;

/// Samples a prompt until a calibrated threshold says that it is solved.
pub struct CGrpo;

/// What a run may set.
#[derive(Settings)]
pub struct CGrpoSettings {
    /// Budgets in rollouts, ascending, with commas between.
    #[setting(default = "2,4,8,16,32")]
    grid: String,
    /// What is calibrated: first-success or pass-rate.
    #[setting(default = Score::FirstSuccess)]
    score: Score,
    /// Share of solved prompts that may miss the threshold; 0 for the share of unsolved prompts and `margin`.
    #[setting(default = 0.0)]
    delta: f64,
    /// Added to the share of unsolved prompts.
    #[setting(default = 0.05)]
    margin: f64,
    /// Prompts to calibrate with.
    #[setting(default = 32)]
    calibration: u32,
    /// Steps after which to calibrate again; 0 for never.
    #[setting(default = 50)]
    every: u32,
}

/// What is calibrated.
#[derive(Choice, Clone, Copy, Debug, PartialEq)]
pub enum Score {
    /// The place of the first correct rollout.
    FirstSuccess,
    /// The share of wrong rollouts.
    PassRate,
}

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct CGrpoState {
    /// A threshold for each budget of the grid; none before the first calibration.
    thresholds: Vec<f64>,
    /// The step of the last calibration.
    calibrated: u32,
    /// Prompts that are sampled in this step to calibrate with.
    aside: Vec<u32>,
    /// Budgets of the grid that were sampled in this step.
    stage: u32,
    /// Prompts that went on to the last of them.
    active: Vec<u32>,
}

impl Policy for CGrpo {
    const NAME: &'static str = "c-grpo";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "samples a prompt until a calibrated threshold says that it is solved";
    type Settings = CGrpoSettings;
    type State = CGrpoState;

    fn begin(settings: &CGrpoSettings, run: &Run) -> Result<CGrpoState, Error> {
        if settings.grid()?.last() == Some(&1) {
            let reason =
                "must end with 2 or more: an advantage is measured against the prompt's other rollouts";
            return Err(bad_setting("grid", reason));
        }
        if !(0.0..1.0).contains(&settings.delta) || !(0.0..=1.0).contains(&settings.margin) {
            let name = if (0.0..1.0).contains(&settings.delta) { "margin" } else { "delta" };
            return Err(bad_setting(name, "must be between 0 and 1"));
        }
        if settings.calibration == 0 {
            return Err(bad_setting("calibration", "there must be a prompt to calibrate with"));
        }
        if run.pool < settings.calibration {
            log::warn("the pool has fewer prompts on offer than calibration takes");
        }
        Ok(CGrpoState::default())
    }

    fn decide(
        settings: &CGrpoSettings,
        run: &Run,
        state: &mut CGrpoState,
        view: &View,
    ) -> Result<Plan, Error> {
        let grid = settings.grid()?;
        if view.round == 0 {
            (state.aside, state.active, state.stage) = (Vec::new(), Vec::new(), 0);
            let due = settings.every > 0 && view.step.saturating_sub(state.calibrated) >= settings.every;
            if (state.thresholds.is_empty() || due) && view.can_sample() {
                state.aside = view.offer(settings.calibration).map(|p| p.id).collect();
                let most = grid[grid.len() - 1];
                return Ok(Plan::sample(state.aside.iter().map(|p| Request::new(*p, most))));
            }
        }
        let (aside, groups): (Vec<&Group>, Vec<&Group>) =
            view.groups.iter().partition(|g| state.aside.contains(&g.prompt));
        let stage = state.stage as usize;
        if stage == 0 {
            if !state.aside.is_empty() {
                let outcomes: Vec<&[bool]> = aside.iter().map(|g| &g.correct[..]).collect();
                state.thresholds = settings.thresholds(&grid, &outcomes);
                state.calibrated = view.step;
            }
            state.active = view.offer(run.groups).map(|p| p.id).collect();
        } else {
            let (k, threshold) = (grid[stage - 1], state.thresholds.get(stage - 1).copied().unwrap_or(1.0));
            let open = |p: &u32| view.group(*p).is_some_and(|g| !settings.solved(&g.correct, k, threshold));
            state.active.retain(open);
        }
        if stage < grid.len() && view.budget.open() && !state.active.is_empty() {
            let add = grid[stage] - if stage == 0 { 0 } else { grid[stage - 1] };
            state.stage += 1;
            return Ok(Plan::sample(state.active.iter().map(|p| Request::new(*p, add))));
        }
        let rollouts: usize = groups.iter().map(|g| g.len()).sum();
        Ok(Plan::train(groups.iter().map(|g| Pick::all(g.prompt)))
            .metric("rollouts", rollouts as f64 / groups.len().max(1) as f64)
            .metric("unsolved", state.active.len() as f64))
    }
}

impl CGrpoSettings {
    fn grid(&self) -> Result<Vec<u32>, Error> {
        let numbers = self.grid.split(',').map(|k| k.trim().parse().ok());
        let grid: Option<Vec<u32>> = numbers.collect();
        grid.filter(|grid| grid[0] > 0 && grid.is_sorted_by(|a, b| a < b))
            .ok_or_else(|| bad_setting("grid", "must be numbers from 1 on, each larger than the one before"))
    }

    /// The score of the first `k` outcomes of a prompt: the lower, the surer it is solved. 1 if none is correct.
    pub fn score(&self, correct: &[bool], k: u32) -> f64 {
        let mut first = correct.iter().take(k as usize);
        match self.score {
            Score::FirstSuccess => first.position(|c| *c).map_or(1.0, |j| (j + 1) as f64 / f64::from(k)),
            Score::PassRate => 1.0 - first.filter(|c| **c).count() as f64 / f64::from(k),
        }
    }

    /// Whether a prompt is solved after `k` rollouts.
    pub fn solved(&self, correct: &[bool], k: u32, threshold: f64) -> bool {
        correct.iter().take(k as usize).any(|c| *c) && self.score(correct, k) <= threshold
    }

    /// A threshold for each budget, from the outcomes of prompts that were sampled to the last.
    pub fn thresholds(&self, grid: &[u32], outcomes: &[&[bool]]) -> Vec<f64> {
        let scores = |k: u32| outcomes.iter().map(|o| self.score(o, k)).collect::<Vec<f64>>();
        let delta =
            if self.delta > 0.0 { self.delta } else { delta(&scores(grid[grid.len() - 1]), self.margin) };
        grid.iter().map(|k| quantile(scores(*k), delta)).collect()
    }
}

/// The share of prompts that may miss a threshold, by the share that is solved within the largest budget.
pub fn delta(scores: &[f64], margin: f64) -> f64 {
    let solved = scores.iter().filter(|s| **s < 1.0 - 1e-9).count() as f64;
    let rate = if scores.is_empty() { 0.0 } else { solved / scores.len() as f64 };
    (1.0 - rate + margin).clamp(0.05, 0.95)
}

/// The conformal quantile: of n scores that with rank (n + 1) (1 - delta), rounded up. 1 of none.
pub fn quantile(mut scores: Vec<f64>, delta: f64) -> f64 {
    scores.sort_by(f64::total_cmp);
    let rank = ((scores.len() + 1) as f64 * (1.0 - delta)).ceil() as usize;
    scores.get(rank.clamp(1, scores.len().max(1)) - 1).copied().unwrap_or(1.0)
}

allot_policy::export!(CGrpo);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::Value;
    use allot_policy::{begin, decide, made, run_with};

    fn run() -> Run {
        let changes = [("grid", Value::Text("2, 4".into())), ("calibration", Value::Integer(3))];
        Run { groups: 2, ..run_with::<CGrpo>(&changes) }
    }

    fn requests(plan: &Plan) -> Vec<(PromptId, u32)> {
        let Action::Sample(requests) = &plan.action else { panic!("trains: {plan:?}") };
        requests.iter().map(|r| (r.prompt, r.count)).collect()
    }

    #[test]
    fn it_calibrates_then_samples_along_the_grid() {
        let run = run();
        let mut view = made::view(0..9);
        let plan = decide::<CGrpo>(&run, &begin::<CGrpo>(&run).unwrap(), &view).unwrap();
        assert_eq!(requests(&plan), [(0, 4), (1, 4), (2, 4)]);

        view = View { round: 1, groups: vec![], ..made::view(3..9) };
        view.groups.push(made::group(0, &[1, 0, 0, 0]));
        view.groups.push(made::group(1, &[0, 1, 0, 0]));
        view.groups.push(made::group(2, &[0, 0, 0, 0]));
        let plan = decide::<CGrpo>(&run, &plan.state, &view).unwrap();
        assert_eq!(requests(&plan), [(3, 2), (4, 2)]);
        // Two of three are solved: delta is 1/3 + 0.05, the rank ceil(4 (2/3 - 0.05)) = 3.
        assert_eq!(CGrpoState::load(&plan.state).unwrap().thresholds, [1.0, 1.0]);

        view = View { round: 2, pool: made::view(5..9).pool, ..view };
        view.groups.push(made::group(3, &[0, 1]));
        view.groups.push(made::group(4, &[0, 0]));
        let plan = decide::<CGrpo>(&run, &plan.state, &view).unwrap();
        assert_eq!(requests(&plan), [(4, 2)]);

        view.round = 3;
        view.groups[4] = made::group(4, &[0, 0, 0, 0]);
        let plan = decide::<CGrpo>(&run, &plan.state, &view).unwrap();
        assert_eq!(plan.action, Plan::train([Pick::all(3), Pick::all(4)]).action, "calibration is discarded");

        // And the next step starts at once.
        view = View { step: 1, ..made::view(5..9) };
        let plan = decide::<CGrpo>(&run, &plan.state, &view).unwrap();
        assert_eq!(requests(&plan), [(5, 2), (6, 2)]);
        view.step = 50;
        assert_eq!(requests(&decide::<CGrpo>(&run, &plan.state, &view).unwrap())[0].1, 4);
    }

    #[test]
    fn a_low_threshold_asks_for_more_than_one_success_by_chance() {
        let settings = CGrpoSettings::read(&run_with::<CGrpo>(&[])).unwrap();
        let late = [false, false, false, true];
        assert!(settings.solved(&late, 4, 1.0) && !settings.solved(&late, 4, 0.5));
        assert!(!settings.solved(&late, 2, 1.0), "only the first two count");
        let rate = CGrpoSettings { score: Score::PassRate, ..settings };
        assert!(rate.solved(&late, 4, 0.75) && !rate.solved(&late, 4, 0.5));
    }

    #[test]
    fn a_grid_ascends() {
        for grid in ["", "0,2", "4,2", "2,2", "two"] {
            let run = run_with::<CGrpo>(&[("grid", Value::Text(grid.into()))]);
            assert!(begin::<CGrpo>(&run).is_err(), "{grid}");
        }
    }
}
