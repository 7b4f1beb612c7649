//! RL-ZVP (arXiv 2509.21880): groups whose rewards are all equal teach as well. Answers of a group that is
//! all right are rewarded by their entropy, those of one that is all wrong are punished by what they lack of the
//! largest entropy: uncertain tokens are where a choice was made. Mixed groups learn as in GRPO.
//!
//! The paper's rule is by token: α H_t where all are right, -α (max H - H_t) where all are wrong, with the largest
//! entropy over the answer's tokens. Its formula was read in two third-party implementations (the paper's own
//! text ends, where it could be had, before it; its authors' code was not found). Not faithful:
//!
//! - A policy gives one advantage to an answer, so H is the answer's mean entropy, and the largest is that of
//!   the group's answers.
//! - The default of α is ours.

use allot_policy::prelude::*;

/// Learns from groups of equal rewards by their entropy.
pub struct RlZvp;

/// What a run may set.
#[derive(Settings)]
pub struct RlZvpSettings {
    /// Rollouts of each prompt; 0 for the run's own number.
    #[setting(default = 0)]
    rollouts: u32,
    /// α: the advantage of a nat of entropy in a zero-variance group.
    #[setting(default = 0.1)]
    alpha: f64,
}

impl Policy for RlZvp {
    const NAME: &'static str = "rl-zvp";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str =
        "learns from zero-variance groups by entropy; not faithful: by answer, not token";
    const SIGNALS: &'static [&'static str] = &["mean-entropy"];
    type Settings = RlZvpSettings;
    type State = ();

    fn begin(settings: &RlZvpSettings, _run: &Run) -> Result<(), Error> {
        if !(settings.alpha > 0.0 && settings.alpha <= 1000.0) {
            return Err(bad_setting("alpha", "must be above 0 and at most 1000"));
        }
        Ok(())
    }

    fn decide(settings: &RlZvpSettings, run: &Run, (): &mut (), view: &View) -> Result<Plan, Error> {
        if view.round == 0 && view.can_sample() {
            let rollouts = or_else(settings.rollouts, run.rollouts);
            return Ok(Plan::sample(view.offer(run.groups).map(|p| Request::new(p.id, rollouts))));
        }
        let flat = view.groups.iter().filter(|g| g.flat()).count();
        let picks = view.groups.iter().map(|group| {
            let advantage = settings.shape(group).map_or(Advantage::Picked, Advantage::Given);
            Pick::all(group.prompt).advantage(advantage)
        });
        Ok(Plan::train(picks).metric("zero-variance", flat as f64))
    }
}

impl RlZvpSettings {
    /// The advantages of a group that is all right or all wrong; none for all others.
    pub fn shape(&self, group: &Group) -> Option<Vec<f32>> {
        let entropies = group.signals.first().filter(|_| group.flat())?;
        let shaped = |by: &dyn Fn(f64) -> f64| {
            Some(entropies.iter().map(|h| (self.alpha * by(f64::from(*h))).clamp(-1e6, 1e6) as f32).collect())
        };
        match group.solved() {
            0 => {
                let largest = f64::from(entropies.iter().copied().fold(0.0, f32::max));
                shaped(&|h| h - largest)
            }
            all if all == group.len() => shaped(&|h| h),
            _ => None,
        }
    }
}

allot_policy::export!(RlZvp);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::{decide, made, run_with};

    fn advantage(marks: &[u8], entropies: &[f32]) -> Advantage {
        let mut view = made::view(0..9);
        let group = Group { signals: vec![entropies.to_vec()], ..made::group(3, marks) };
        (view.round, view.groups) = (1, vec![group]);
        let run = run_with::<RlZvp>(&[]);
        let Action::Train(mut batch) = decide::<RlZvp>(&run, &[], &view).unwrap().action else { panic!() };
        batch.picks.remove(0).advantage
    }

    #[test]
    fn right_answers_gain_by_their_entropy() {
        assert_eq!(advantage(&[1, 1], &[0.5, 2.0]), Advantage::Given(vec![0.05, 0.2]));
    }

    #[test]
    fn wrong_answers_lose_by_what_they_lack_of_it() {
        assert_eq!(advantage(&[0, 0], &[0.5, 2.0]), Advantage::Given(vec![-0.15, 0.0]));
    }

    #[test]
    fn mixed_groups_learn_as_in_grpo() {
        assert_eq!(advantage(&[0, 1], &[0.5, 2.0]), Advantage::Picked);
    }

    #[test]
    fn it_samples_as_a_uniform_policy() {
        let plan = decide::<RlZvp>(&run_with::<RlZvp>(&[]), &[], &made::view(0..9)).unwrap();
        assert_eq!(plan, Plan::sample((0..4).map(|p| Request::new(p, 8))));
    }
}
