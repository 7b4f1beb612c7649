//! AERO (arXiv 2602.14338): samples a few rollouts of each prompt, and more where none is correct. Where most are
//! wrong, keeps as many wrong ones as correct ones. Groups of one outcome have advantages by a posterior of the pass
//! rate, where GRPO's are 0.
//!
//! The abstract could be read, its authors' code was not found. What the stages are is from the comments of one
//! reimplementation (`rollout.py`'s `curate_rollouts`), which gives them as the paper's section 3: half of 16 rollouts
//! first, 2 more at a time until one is correct; below a pass rate of one half as many wrong ones as correct ones (its
//! lemma 4.2); Beta(1, 1), and 4 rollouts kept of a group of one outcome. Not faithful:
//!
//! - What the posterior does to an advantage is our reading: its mean and standard deviation stand for the group's. The
//!   reimplementation's comments have 2p - 1, and its code gives all rollouts one reward, so that the advantage is 0.
//! - The posterior is of the visit alone.
//! - A step has as many prompts as a uniform policy's, so it has fewer rollouts.

use allot_policy::prelude::*;

/// Samples in two stages, drops surplus wrong rollouts, and learns from groups of one outcome.
pub struct Aero;

/// What a run may set.
#[derive(Settings)]
pub struct AeroSettings {
    /// Rollouts of a prompt, at most; 0 for the run's own number.
    #[setting(default = 0)]
    rollouts: u32,
    /// Rollouts of a prompt in the first stage; 0 for half of the most.
    #[setting(default = 0)]
    explore: u32,
    /// Rollouts to add at a time where none is correct.
    #[setting(default = 2, minimum = 1)]
    extra: u32,
    /// The pass rate below which surplus wrong rollouts are dropped.
    #[setting(default = 0.5, minimum = 0.0, maximum = 1.0)]
    below: f64,
    /// Wrong rollouts to keep for each correct one.
    #[setting(default = 1, minimum = 1)]
    ratio: u32,
    /// Rollouts to keep of a group of one outcome.
    #[setting(default = 4, minimum = 1)]
    keep: u32,
    /// Correct and wrong rollouts that the posterior starts with, each.
    #[setting(default = 1.0, minimum = 0.01, maximum = 1000.0)]
    prior: f64,
}

impl Policy for Aero {
    const NAME: &'static str = "aero";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str =
        "more rollouts where none is correct, as many wrong ones as correct, a posterior; not faithful";
    const NEEDS: Needs = Needs::STOPPING;
    type Settings = AeroSettings;
    type State = ();

    fn begin(settings: &AeroSettings, run: &Run) -> Result<(), Error> {
        let (most, explore) = settings.sizes(run);
        if explore > most {
            let reason = format!("it is {explore}, and a prompt gets {most} rollouts; set {most} or less");
            return Err(bad_setting("explore", reason));
        }
        if settings.extra < (most - explore).div_ceil(256) {
            return Err(bad_setting(
                "extra",
                "must be at least a 256th of the rollouts after the first stage",
            ));
        }
        Ok(())
    }

    fn decide(settings: &AeroSettings, run: &Run, (): &mut (), view: &View) -> Result<Plan, Error> {
        let (most, explore) = settings.sizes(run);
        if view.round == 0 && view.can_sample() {
            return Ok(Plan::sample(view.offer(run.groups).map(|p| Request::new(p.id, explore))));
        }
        let unsolved: Vec<&Group> = view.groups.iter().filter(|g| g.solved() == 0).collect();
        if view.round == 1 && view.budget.open() && explore < most && !unsolved.is_empty() {
            let extra = settings.extra.min(most - explore);
            let request = |g: &&Group| Request::new(g.prompt, most - explore).until(1, 0, extra);
            return Ok(Plan::sample(unsolved.iter().map(request)).metric("unsolved", unsolved.len() as f64));
        }
        let mut chance = Chance::new(view.seed);
        Ok(Plan::train(view.groups.iter().map(|group| settings.pick(group, &mut chance))))
    }
}

impl AeroSettings {
    /// Rollouts of a prompt at most, and in the first stage.
    fn sizes(&self, run: &Run) -> (u32, u32) {
        let most = or_else(self.rollouts, run.rollouts);
        (most, or_else(self.explore, (most / 2).max(1)))
    }

    /// What is trained on of a group.
    fn pick(&self, group: &Group, chance: &mut Chance) -> Pick {
        let solved = group.solved();
        if group.flat() {
            let kept: Vec<u32> = (0..group.len() as u32).take(self.keep as usize).collect();
            let given = kept.iter().map(|i| self.advantage(group, group.correct[*i as usize])).collect();
            return Pick::some(group.prompt, kept).advantage(Advantage::Given(given));
        }
        if solved == 0 || group.pass_rate() >= self.below {
            return Pick::all(group.prompt);
        }
        let (mut kept, wrong): (Vec<u32>, Vec<u32>) =
            (0..group.len() as u32).partition(|i| group.correct[*i as usize]);
        let drawn = chance.draw(wrong.len(), solved.saturating_mul(self.ratio as usize));
        kept.extend(drawn.into_iter().map(|i| wrong[i]));
        kept.sort_unstable();
        Pick::some(group.prompt, kept)
    }

    /// The advantage of a rollout of a group of one outcome: 1 or 0 against the posterior's mean, over the standard
    /// deviation of a rollout with that pass rate. For `k` of `n` correct the mean is (k + prior) / (n + 2 prior).
    pub fn advantage(&self, group: &Group, correct: bool) -> f32 {
        let mean = (group.solved() as f64 + self.prior) / (group.len() as f64 + 2.0 * self.prior);
        let distance = f64::from(u8::from(correct)) - mean;
        (distance / (mean * (1.0 - mean)).sqrt()) as f32
    }
}

allot_policy::export!(Aero);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::Value;
    use allot_policy::{begin, decide, made, run_with};

    fn trained(changes: &[(&str, Value)], groups: Vec<Group>) -> Vec<Pick> {
        let view = View { round: 2, groups, ..made::view([]) };
        let plan = decide::<Aero>(&run_with::<Aero>(changes), &[], &view).unwrap();
        let Action::Train(batch) = plan.action else { panic!("samples") };
        batch.picks
    }

    #[test]
    fn only_prompts_without_a_correct_rollout_get_more() {
        let run = Run { groups: 3, rollouts: 16, ..run_with::<Aero>(&[]) };
        let mut view = made::view(5..9);
        let first = decide::<Aero>(&run, &[], &view).unwrap();
        assert_eq!(first.action, Plan::sample((5..8).map(|p| Request::new(p, 8))).action);

        view.round = 1;
        view.groups =
            vec![made::group(5, &[0; 8]), made::group(6, &[0, 0, 0, 0, 0, 0, 0, 1]), made::group(7, &[1; 8])];
        let second = decide::<Aero>(&run, &[], &view).unwrap();
        assert_eq!(second.action, Plan::sample([Request::new(5, 8).until(1, 0, 2)]).action);

        view.budget.rounds = 0;
        let last = decide::<Aero>(&run, &[], &view).unwrap();
        assert!(matches!(last.action, Action::Train(_)), "without another round it trains");
    }

    #[test]
    fn as_many_wrong_rollouts_are_kept_as_are_correct() {
        let group = made::group(0, &[0, 1, 0, 0, 0, 1, 0, 0]);
        let kept = |ratio| {
            let picks = trained(&[("ratio", Value::Integer(ratio))], vec![group.clone()]);
            assert_eq!(picks[0].advantage, Advantage::Picked);
            picks[0].rollouts.clone().unwrap()
        };
        for (ratio, wrong) in [(1, 2), (2, 4), (9, 6)] {
            let kept = kept(ratio);
            assert!(kept.contains(&1) && kept.contains(&5) && kept.is_sorted(), "{kept:?}");
            assert_eq!(kept.iter().filter(|i| !group.correct[**i as usize]).count(), wrong);
        }
    }

    #[test]
    fn half_of_them_correct_or_more_are_all_kept() {
        let groups = vec![made::group(0, &[0, 1, 1, 0]), made::group(1, &[0, 1, 1, 1])];
        assert_eq!(trained(&[], groups), [Pick::all(0), Pick::all(1)]);
        // Wrong answers whose rewards differ have advantages already.
        let penalized = made::rewarded(2, &[0.0, -0.5]);
        assert_eq!(trained(&[], vec![penalized]), [Pick::all(2)]);
    }

    #[test]
    fn groups_of_one_outcome_are_measured_against_the_posterior() {
        let picks = trained(&[], vec![made::group(0, &[1; 8]), made::group(1, &[0; 16])]);
        // Means of 9/10 and 1/18: 0.1 / 0.3, and -(1/18) / (sqrt 17 / 18).
        for (pick, expected) in picks.iter().zip([1.0 / 3.0, -1.0 / 17f32.sqrt()]) {
            assert_eq!(pick.rollouts, Some(vec![0, 1, 2, 3]));
            let Advantage::Given(given) = &pick.advantage else { panic!("{pick:?}") };
            assert!(given.iter().all(|a| (a - expected).abs() < 1e-6), "{given:?}, not {expected}");
        }
        let Advantage::Given(alone) = &trained(&[], vec![made::group(0, &[1])])[0].advantage else {
            panic!()
        };
        assert!(
            (alone[0] - 0.5f32.sqrt()).abs() < 1e-6,
            "one rollout teaches as well: (1 - 2/3) / (sqrt 2 / 3)"
        );
    }

    #[test]
    fn a_first_stage_larger_than_both_is_refused() {
        assert!(begin::<Aero>(&run_with::<Aero>(&[("explore", Value::Integer(9))])).is_err());
        assert!(begin::<Aero>(&run_with::<Aero>(&[("explore", Value::Integer(8))])).is_ok());
        let large = run_with::<Aero>(&[("rollouts", Value::Integer(1200)), ("extra", Value::Integer(2))]);
        assert!(begin::<Aero>(&large).is_err(), "600 rollouts come in 256 portions of 3");
    }
}
