//! LILO (NeurIPS 2025, OpenReview 8HYeWMf0W3; first arXiv 2502.12272), after its abstract: samples more prompts
//! than it needs and trains on those with the highest learnability p (1 - p), to which the expected
//! improvement of the model is proportional. Not faithful: the paper's body could not be read and no code was
//! found, so how many prompts are tried, and when to stop, are ours.
//!
//! Prompts are tried in rounds until enough of them are solved sometimes, as rejection sampling does; then
//! those closest to one half are trained on. Unlike dynamic sampling, which takes the first mixed groups
//! that come, it takes the best of all that were sampled. The rollouts that tried a prompt are trained on;
//! `fresh` adds others and trains on those alone, so that the choice has no say in the gradient.

use allot_policy::prelude::*;

/// Trains on the prompts whose outcome varies most, of more than it needs.
pub struct Lilo;

/// What a run may set.
#[derive(Settings)]
pub struct LiloSettings {
    /// Prompts to try in each round; 0 for four times the groups in an update.
    #[setting(default = 0)]
    candidates: u32,
    /// Rollouts to try a prompt with; 0 for the run's own number.
    #[setting(default = 0)]
    tries: u32,
    /// Rounds of trying, at most.
    #[setting(default = 4)]
    rounds: u32,
    /// Rollouts to add to a chosen prompt, and to train on alone; 0 to train on those that tried it.
    #[setting(default = 0)]
    fresh: u32,
}

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct LiloState {
    /// Chosen prompts that fresh rollouts were asked for, each with the rollouts that tried it.
    chosen: Vec<(u32, u32)>,
}

impl Policy for Lilo {
    const NAME: &'static str = "lilo";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str =
        "the prompts whose outcome varies most; not faithful: after the abstract alone";
    type Settings = LiloSettings;
    type State = LiloState;

    fn begin(settings: &LiloSettings, run: &Run) -> Result<LiloState, Error> {
        if settings.rounds == 0 {
            return Err(bad_setting("rounds", "there must be a round"));
        }
        if or_else(settings.tries, run.rollouts) < 2 {
            return Err(bad_setting("tries", "it takes at least 2 rollouts to see whether answers vary"));
        }
        if settings.fresh == 1 {
            let reason = "must be 0 or at least 2: fresh rollouts are measured against each other";
            return Err(bad_setting("fresh", reason));
        }
        Ok(LiloState::default())
    }

    fn decide(settings: &LiloSettings, run: &Run, state: &mut LiloState, view: &View) -> Result<Plan, Error> {
        if view.round == 0 {
            state.chosen.clear();
        }
        let groups = run.groups as usize;
        if !state.chosen.is_empty() {
            let picks = state.chosen.iter().filter_map(|(prompt, tries)| {
                let n = view.group(*prompt)?.len() as u32;
                // Where the budget ended before the fresh ones came, those that tried it serve.
                Some(if n > *tries { Pick::some(*prompt, (*tries..n).collect()) } else { Pick::all(*prompt) })
            });
            return Ok(Plan::train(picks));
        }
        let mut best: Vec<&Group> = view.groups.iter().filter(|g| learnability(g) > 0.0).collect();
        if best.len() < groups && view.round < settings.rounds && view.can_sample() {
            let candidates = or_else(settings.candidates, run.groups.saturating_mul(4));
            let tries = or_else(settings.tries, run.rollouts);
            return Ok(Plan::sample(view.offer(candidates).map(|p| Request::new(p.id, tries))));
        }
        best.sort_by(|a, b| learnability(b).total_cmp(&learnability(a)));
        let learnable = best.len();
        best.truncate(groups);
        if settings.fresh > 0 && view.budget.open() && !best.is_empty() {
            state.chosen = best.iter().map(|g| (g.prompt, g.len() as u32)).collect();
            return Ok(Plan::sample(best.iter().map(|g| Request::new(g.prompt, settings.fresh))));
        }
        Ok(Plan::train(best.iter().map(|g| Pick::all(g.prompt)))
            .metric("tried", view.groups.len() as f64)
            .metric("learnable", learnable as f64))
    }
}

/// p (1 - p), as k (n - k) / n², rounded once, so that equal ones tie.
pub fn learnability(group: &Group) -> f64 {
    let (k, n) = (group.solved() as f64, group.len() as f64);
    k * (n - k) / (n * n)
}

allot_policy::export!(Lilo);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::Value;
    use allot_policy::{begin, decide, made, run_with};

    fn run(fresh: i32) -> Run {
        Run { groups: 2, rollouts: 4, ..run_with::<Lilo>(&[("fresh", Value::Integer(fresh))]) }
    }

    fn tried() -> View {
        let groups = vec![
            made::group(0, &[0, 0, 0, 1]),
            made::group(1, &[1, 1, 1, 1]),
            made::group(2, &[1, 0, 1, 0]),
            made::group(3, &[1, 0, 1, 1]),
        ];
        View { round: 1, groups, ..made::view(4..9) }
    }

    #[test]
    fn it_trains_on_the_best_of_all_it_tried() {
        let run = run(0);
        let state = begin::<Lilo>(&run).unwrap();
        let plan = decide::<Lilo>(&run, &state, &made::view(0..9)).unwrap();
        assert_eq!(plan.action, Plan::sample((0..8).map(|p| Request::new(p, 4))).action);
        let plan = decide::<Lilo>(&run, &state, &tried()).unwrap();
        // Of the two with one exception the first.
        assert_eq!(plan.action, Plan::train([Pick::all(2), Pick::all(0)]).action);
    }

    #[test]
    fn too_few_learnable_prompts_are_followed_by_another_round() {
        let run = run(0);
        let mut view = tried();
        view.groups.truncate(2);
        let plan = decide::<Lilo>(&run, &begin::<Lilo>(&run).unwrap(), &view).unwrap();
        assert_eq!(plan.action, Plan::sample((4..9).map(|p| Request::new(p, 4))).action);
        view.round = 4;
        let plan = decide::<Lilo>(&run, &begin::<Lilo>(&run).unwrap(), &view).unwrap();
        assert_eq!(plan.action, Plan::train([Pick::all(0)]).action);
    }

    #[test]
    fn fresh_rollouts_are_trained_on_alone() {
        let run = run(3);
        let mut view = tried();
        let plan = decide::<Lilo>(&run, &begin::<Lilo>(&run).unwrap(), &view).unwrap();
        assert_eq!(plan.action, Plan::sample([Request::new(2, 3), Request::new(0, 3)]).action);
        view.round = 2;
        view.groups[2] = made::group(2, &[1, 0, 1, 0, 1, 1, 0]);
        let plan = decide::<Lilo>(&run, &plan.state, &view).unwrap();
        assert_eq!(plan.action, Plan::train([Pick::some(2, vec![4, 5, 6]), Pick::all(0)]).action);
    }
}
