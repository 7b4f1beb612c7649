//! Rollout-level advantage-prioritized replay (arXiv 2606.04560): trains on all fresh rollouts, and beside them on some
//! that were trained on before, drawn one by one, more likely the larger their advantages were. Those older than a
//! limit are gone.
//!
//! The abstract has the rules; no code of the authors was found. The numbers are from one reimplementation for verl
//! (`AdvantagePrioritizedReplayBuffer`), whose tests call them the paper's: half as many as are fresh, weights of
//! (|A| + 1e-6)^0.5 without replacement, an age of at most 10 updates, 20 steps before the first. Advantages stay as
//! they were, and groups without variance are neither counted nor stored. Not faithful:
//!
//! - Stored rollouts have the host's importance weight; that code's ratio is clipped alone.
//! - A stored group stays whole until it is too old, so that its advantages follow from its rewards. That code has a
//!   limit of 30,000 rollouts as well.
//! - Fresh groups without variance are in the batch. They have no gradient, and count in the loss's mean.

use std::collections::BTreeMap;

use allot_policy::prelude::*;

/// Trains on stored rollouts with large advantages beside the fresh ones.
pub struct AdvantageReplay;

/// What a run may set.
#[derive(Settings)]
pub struct AdvantageReplaySettings {
    /// Stored rollouts to train on for each fresh one whose group has variance.
    #[setting(default = 0.5, minimum = 0.0, maximum = 100.0)]
    ratio: f64,
    /// The exponent of an advantage's size in the weight of a draw; 0 for any stored rollout.
    #[setting(default = 0.5, minimum = 0.0, maximum = 100.0)]
    power: f64,
    /// The oldest age at which a rollout is replayed, in updates.
    #[setting(default = 10, minimum = 1)]
    age: u32,
    /// Steps before the first replay.
    #[setting(default = 20)]
    warmup: u32,
    /// Whether advantages are divided by the standard deviation.
    #[setting(default = true)]
    scale: bool,
}

impl Policy for AdvantageReplay {
    const NAME: &'static str = "advantage-replay";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str =
        "fresh rollouts, and stored ones drawn by the size of their advantages; not faithful in details";
    const NEEDS: Needs = Needs::REPLAY;
    type Settings = AdvantageReplaySettings;
    type State = ();

    fn begin(settings: &AdvantageReplaySettings, run: &Run) -> Result<(), Error> {
        if run.max_age < settings.age {
            let age = format!("rollouts are to be replayed up to an age of {}", settings.age);
            log::warn(&format!("{age}, and those older than `max-age`, {}, are gone by then", run.max_age));
        }
        needs_two(None, run)
    }

    fn decide(
        settings: &AdvantageReplaySettings,
        run: &Run,
        (): &mut (),
        view: &View,
    ) -> Result<Plan, Error> {
        if view.round == 0 && view.can_sample() {
            return Ok(Plan::sample(view.offer(run.groups).map(|p| Request::new(p.id, run.rollouts))));
        }
        let advantages: Vec<Advantages> = view.groups.iter().map(|g| settings.advantages(g)).collect();
        let replayed = settings.draw(view, &advantages);
        let count = replayed.iter().map(Vec::len).sum::<usize>();
        let picks = view.groups.iter().zip(&advantages).zip(replayed).filter_map(|((group, own), old)| {
            let fresh = (0..group.len() as u32).filter(|i| !stored(group, *i));
            let positions: Vec<u32> = fresh.chain(old).collect();
            let given = |i: &u32| own[*i as usize].unwrap_or(0.0).clamp(-1e6, 1e6) as f32;
            let given = Advantage::Given(positions.iter().map(given).collect());
            (!positions.is_empty()).then(|| Pick::some(group.prompt, positions).advantage(given))
        });
        let hold = view.groups.iter().zip(&advantages).filter_map(|(group, own)| {
            // Another update makes it one older.
            let keeps = |i: &u32| group.ages[*i as usize] < settings.age && own[*i as usize].is_some();
            let kept: Vec<u32> = (0..group.len() as u32).filter(keeps).collect();
            (!kept.is_empty()).then_some((group.prompt, kept))
        });
        Ok(Plan::train(picks).hold_some(hold).metric("replayed", count as f64))
    }
}

/// The advantage of each rollout of a group, none where all rewards of its visit are equal.
type Advantages = Vec<Option<f64>>;

impl AdvantageReplaySettings {
    /// Each rollout's reward against the mean of those of its visit, and over their standard deviation (n - 1).
    /// Rollouts of one age are of one visit, or of visits under the same weights.
    pub fn advantages(&self, group: &Group) -> Advantages {
        let mut visits: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for (age, reward) in group.ages.iter().zip(&group.rewards) {
            visits.entry(*age).or_default().push(f64::from(*reward));
        }
        let moments: BTreeMap<u32, (f64, f64)> = visits
            .into_iter()
            .filter(|(_, rewards)| rewards.iter().any(|r| *r != rewards[0]))
            .map(|(age, rewards)| {
                let n = rewards.len() as f64;
                let mean = rewards.iter().sum::<f64>() / n;
                let squares: f64 = rewards.iter().map(|r| (r - mean).powi(2)).sum();
                (age, (mean, if self.scale { (squares / (n - 1.0)).sqrt() + 1e-6 } else { 1.0 }))
            })
            .collect();
        let advantage =
            |(age, reward): (&u32, &f32)| moments.get(age).map(|(mean, by)| (f64::from(*reward) - mean) / by);
        group.ages.iter().zip(&group.rewards).map(advantage).collect()
    }

    /// Positions of the stored rollouts to train on, by group. Drawn one after the other without replacement, by
    /// exponential keys (Efraimidis and Spirakis 2006).
    fn draw(&self, view: &View, advantages: &[Advantages]) -> Vec<Vec<u32>> {
        let mut drawn = vec![Vec::new(); view.groups.len()];
        if view.step < self.warmup {
            return drawn;
        }
        let (mut keys, mut fresh) = (Vec::new(), 0_u32);
        let mut chance = Chance::new(view.seed);
        for (at, (group, own)) in view.groups.iter().zip(advantages).enumerate() {
            for (i, advantage) in (0..).zip(own) {
                let Some(advantage) = advantage else { continue };
                if !stored(group, i) {
                    fresh += 1;
                } else if group.ages[i as usize] <= self.age {
                    let weight = libm::pow(advantage.abs() + 1e-6, self.power);
                    keys.push((-libm::log(1.0 - chance.unit()) / weight, at, i));
                }
            }
        }
        keys.sort_by(|a, b| a.0.total_cmp(&b.0));
        keys.truncate((self.ratio * f64::from(fresh)).round() as usize);
        for (_, at, i) in keys {
            drawn[at].push(i);
        }
        drawn
    }
}

/// Whether a rollout was trained on before.
fn stored(group: &Group, i: u32) -> bool {
    group.trained.get(i as usize).is_some_and(|n| *n > 0)
}

allot_policy::export!(AdvantageReplay);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::{Hold, Value};
    use allot_policy::{decide, made, run_with};

    fn trained(run: &Run, view: &View) -> Batch {
        let Action::Train(batch) = decide::<AdvantageReplay>(run, &[], view).unwrap().action else {
            panic!()
        };
        batch
    }

    /// A view that trains after the warm-up.
    fn view(groups: Vec<Group>) -> View {
        View { step: 20, round: 1, groups, ..made::view([]) }
    }

    /// A group of which the first rollouts were trained on so many updates ago.
    fn group(prompt: PromptId, marks: &[u8], stored: usize, age: u32) -> Group {
        let of = |i, n| if i < stored { n } else { 0 };
        let each = |n| (0..marks.len()).map(|i| of(i, n)).collect();
        Group { ages: each(age), trained: each(1), ..made::group(prompt, marks) }
    }

    fn hold(prompt: PromptId, rollouts: &[u32]) -> Hold {
        Hold { prompt, rollouts: Some(rollouts.to_vec()) }
    }

    #[test]
    fn fresh_and_stored_rollouts_keep_the_advantages_of_their_own_visits() {
        let run =
            run_with::<AdvantageReplay>(&[("scale", Value::Flag(false)), ("ratio", Value::Number(1.0))]);
        // Stored: 1, 0, 0, 0, with a mean of 1/4; fresh: 1, 1, 0, 1, with a mean of 3/4.
        let batch = trained(&run, &view(vec![group(5, &[1, 0, 0, 0, 1, 1, 0, 1], 4, 3)]));
        let pick = &batch.picks[0];
        let positions = pick.rollouts.clone().unwrap();
        assert_eq!(positions[..4], [4, 5, 6, 7], "the fresh ones first");
        let mut old = positions[4..].to_vec();
        old.sort_unstable();
        assert_eq!(old, [0, 1, 2, 3], "each once");
        let all = [0.75, -0.25, -0.25, -0.25, 0.25, 0.25, -0.75, 0.25];
        let expected = positions.iter().map(|i| all[*i as usize]).collect();
        assert_eq!(pick.advantage, Advantage::Given(expected));
        assert_eq!(batch.hold, [hold(5, &[0, 1, 2, 3, 4, 5, 6, 7])]);
    }

    #[test]
    fn advantages_are_grpo_s() {
        let settings = AdvantageReplaySettings::read(&run_with::<AdvantageReplay>(&[])).unwrap();
        // Of 1, 0, 0, 0 the mean is 1/4 and the standard deviation 1/2.
        let own = settings.advantages(&made::group(0, &[1, 0, 0, 0]));
        assert!((own[0].unwrap() - 1.5).abs() < 1e-5 && (own[1].unwrap() + 0.5).abs() < 1e-5, "{own:?}");
    }

    #[test]
    fn half_as_many_are_replayed_as_are_fresh_in_groups_with_variance() {
        let run = run_with::<AdvantageReplay>(&[]);
        let groups = vec![
            group(0, &[1, 0, 0, 0, 0, 0, 0, 1], 8, 1),
            group(1, &[1, 0, 1, 0], 0, 0),
            group(2, &[1, 1, 1, 1], 0, 0),
        ];
        let batch = trained(&run, &view(groups.clone()));
        let sizes: Vec<usize> = batch.picks.iter().map(|p| p.rollouts.as_ref().unwrap().len()).collect();
        assert_eq!(sizes, [2, 4, 4], "2 of those stored, for the 4 fresh ones that differ");
        assert_eq!(batch.picks[2].advantage, Advantage::Given(vec![0.0; 4]));
        assert_eq!(batch.hold.len(), 2, "the group of one outcome is not stored");

        let early = View { step: 19, ..view(groups) };
        assert_eq!(trained(&run, &early).picks.len(), 2, "none in the first twenty steps");
    }

    #[test]
    fn what_is_too_old_is_neither_replayed_nor_held() {
        let run = run_with::<AdvantageReplay>(&[("age", Value::Integer(3)), ("ratio", Value::Number(10.0))]);
        for (age, replayed, held) in [(2, 4, true), (3, 4, false), (4, 0, false)] {
            let batch = trained(&run, &view(vec![group(0, &[1, 0, 0, 0], 4, age), group(1, &[1, 0], 0, 0)]));
            let old = batch.picks.iter().filter(|p| p.prompt == 0);
            assert_eq!(old.map(|p| p.rollouts.as_ref().unwrap().len()).sum::<usize>(), replayed, "age {age}");
            assert_eq!(batch.hold.contains(&hold(0, &[0, 1, 2, 3])), held, "age {age}");
        }
    }

    #[test]
    fn larger_advantages_are_drawn_more_often() {
        // Advantages of 3 and -1, unscaled, so with a power of 1 the rare one is drawn in 3 of 6 cases.
        let run =
            run_with::<AdvantageReplay>(&[("power", Value::Number(1.0)), ("scale", Value::Flag(false))]);
        let mut rare = 0;
        for seed in 0..4000 {
            let old = Group { rewards: vec![4.0, 0.0, 0.0, 0.0], ..group(0, &[1, 0, 0, 0], 4, 1) };
            let view = View { seed, ..view(vec![old, group(1, &[1, 0], 0, 0)]) };
            rare += usize::from(trained(&run, &view).picks[0].rollouts == Some(vec![0]));
        }
        // 2000 in expectation, with a standard deviation of 32.
        assert!(rare.abs_diff(2000) < 160, "{rare}");
    }
}
