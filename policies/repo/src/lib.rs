//! RePO (arXiv 2506.09340): stores the rollouts of each prompt, and when the prompt comes again, trains on some of
//! those stored beside the fresh ones. Fresh and stored rollouts are measured apart, each against their own
//! mean.
//!
//! Upstream: SihengLi99/RePO 119fef6, `src/replay_grpo_trainer.py:1098-1210` (which of the stored ones), `:1284-1324`
//! (what is stored), `:1417-1478` (advantages). Departures:
//!
//! - Old rollouts have the host's importance weight, from the log-probabilities of sampling, and share the run's loss;
//!   upstream has a loss of its own for them, averaged apart. `weight` scales their advantages.
//! - Rollouts older than the run's `max-age` are gone; upstream's stay until sixteen newer ones came.
//! - `max-variance` takes the best of the splits into highest and lowest rewards, which are those of largest variance;
//!   upstream tries all subsets. Of equals it takes the larger sum, as upstream, then the one stored first.

use allot_policy::prelude::*;

/// Trains on stored rollouts of a prompt beside the fresh ones.
pub struct RePo;

/// What a run may set. The defaults are those of the published script.
#[derive(Settings)]
pub struct RePoSettings {
    /// Which of the stored rollouts to train on: highest, recent, max-variance, random or all.
    #[setting(default = Replay::Highest)]
    replay: Replay,
    /// Stored rollouts to train on.
    #[setting(default = 8)]
    replays: u32,
    /// Stored rollouts that it takes to train on any.
    #[setting(default = 16)]
    at_least: u32,
    /// Rollouts to store for each prompt, the newest.
    #[setting(default = 16)]
    stored: u32,
    /// What advantages are measured against: split (fresh and stored ones apart) or mixed.
    #[setting(default = Measure::Split)]
    measure: Measure,
    /// Whether advantages measured apart are divided by their standard deviation.
    #[setting(default = true)]
    scale: bool,
    /// Scales the advantages of stored rollouts that are measured apart.
    #[setting(default = 1.0)]
    weight: f64,
}

/// Which of the stored rollouts to train on.
#[derive(Choice, Clone, Copy, Debug, PartialEq)]
pub enum Replay {
    /// Those with the highest rewards.
    Highest,
    /// The newest.
    Recent,
    /// Those whose rewards differ most.
    MaxVariance,
    /// Any.
    Random,
    /// All.
    All,
}

/// What advantages are measured against.
#[derive(Choice, Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// Fresh rollouts against fresh ones, stored against stored.
    Split,
    /// All against all.
    Mixed,
}

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct RePoState {
    /// Prompts asked for in this step, each with the stored rollouts it had then.
    asked: Vec<(u32, u32)>,
}

impl Policy for RePo {
    const NAME: &'static str = "repo";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "trains on stored rollouts of a prompt beside the fresh ones";
    const NEEDS: Needs = Needs::REPLAY;
    type Settings = RePoSettings;
    type State = RePoState;

    fn begin(settings: &RePoSettings, run: &Run) -> Result<RePoState, Error> {
        if settings.stored == 0 || settings.at_least > settings.stored {
            let name = if settings.stored == 0 { "stored" } else { "at-least" };
            return Err(bad_setting(name, "no rollout would ever be replayed"));
        }
        if !(0.0..=1000.0).contains(&settings.weight) {
            return Err(bad_setting("weight", "must be between 0 and 1000"));
        }
        if run.rollouts < 2 && !settings.replay_teaches() {
            let what =
                format!("`run.rollouts` is {}, and the rollouts replayed have no advantage", run.rollouts);
            return Err(Error::Other(format!("{what}; set `run.rollouts` to 2 or more")));
        }
        let visits = run.prompts.div_ceil(run.groups.max(1));
        if run.max_age < visits {
            let age = format!("a prompt comes again after about {visits} updates");
            log::warn(&format!(
                "{age}, and rollouts older than `max-age`, {}, are gone by then",
                run.max_age
            ));
        }
        Ok(RePoState::default())
    }

    fn decide(settings: &RePoSettings, run: &Run, state: &mut RePoState, view: &View) -> Result<Plan, Error> {
        if view.round == 0 {
            state.asked.clear();
            if view.can_sample() {
                let stored = |p: &Prompt| view.group(p.id).map_or(0, |g| g.len() as u32);
                state.asked = view.offer(run.groups).map(|p| (p.id, stored(p))).collect();
                return Ok(Plan::sample(state.asked.iter().map(|(p, _)| Request::new(*p, run.rollouts))));
            }
        }
        let mut chance = Chance::new(view.seed);
        let (mut picks, mut replayed) = (Vec::new(), 0);
        for (prompt, stored) in &state.asked {
            let Some(group) = view.group(*prompt).filter(|g| g.len() > *stored as usize) else { continue };
            let old = &group.rewards[..*stored as usize];
            let old = if old.len() < settings.at_least as usize {
                Vec::new()
            } else {
                choose(settings.replay, old, settings.replays as usize, &mut chance)
            };
            replayed += old.len();
            picks.push(settings.pick(group, old, *stored));
        }
        let newest = |g: &Group| {
            let n = g.len() as u32;
            (g.prompt, (n.saturating_sub(settings.stored)..n).collect())
        };
        Ok(Plan::train(picks).hold_some(view.groups.iter().map(newest)).metric("replayed", replayed as f64))
    }
}

impl RePoSettings {
    /// Whether stored rollouts can have an advantage where each prompt gets one fresh rollout.
    fn replay_teaches(&self) -> bool {
        let most = if self.replay == Replay::All { self.stored } else { self.replays.min(self.stored) };
        match self.measure {
            Measure::Split => most > 1 && self.weight > 0.0,
            Measure::Mixed => most > 0,
        }
    }

    fn pick(&self, group: &Group, old: Vec<u32>, stored: u32) -> Pick {
        let fresh: Vec<u32> = (stored..group.len() as u32).collect();
        let pick = |positions| Pick::some(group.prompt, positions);
        if self.measure == Measure::Mixed {
            return pick(fresh.into_iter().chain(old).collect());
        }
        let rewards = |positions: &[u32]| -> Vec<f64> {
            positions.iter().map(|i| f64::from(group.rewards[*i as usize])).collect()
        };
        let mut given = self.advantages(&rewards(&fresh), 1.0);
        given.extend(self.advantages(&rewards(&old), self.weight));
        pick(fresh.into_iter().chain(old).collect()).advantage(Advantage::Given(given))
    }

    /// The rewards against their own mean, and over their own standard deviation.
    pub fn advantages(&self, rewards: &[f64], weight: f64) -> Vec<f32> {
        let n = rewards.len() as f64;
        // Equal rewards have none, whatever rounding says of their mean.
        if rewards.iter().all(|r| *r == rewards[0]) {
            return vec![0.0; rewards.len()];
        }
        let mean = rewards.iter().sum::<f64>() / n;
        let squares: f64 = rewards.iter().map(|r| (r - mean).powi(2)).sum();
        let by = if self.scale { (squares / (n - 1.0)).sqrt() + 1e-4 } else { 1.0 };
        rewards.iter().map(|r| ((r - mean) / by * weight).clamp(-1e6, 1e6) as f32).collect()
    }
}

/// Positions of `k` stored rollouts, oldest first, but for those drawn.
pub fn choose(replay: Replay, rewards: &[f32], k: usize, chance: &mut Chance) -> Vec<u32> {
    let n = rewards.len();
    let k = k.min(n);
    let mut best: Vec<usize> = (0..n).collect();
    best.sort_by(|i, j| rewards[*j].total_cmp(&rewards[*i]));
    let mut chosen = match replay {
        Replay::Random => return chance.draw(n, k).into_iter().map(|i| i as u32).collect(),
        Replay::All => (0..n).collect(),
        Replay::Recent => (n - k..n).collect(),
        Replay::Highest => best[..k].to_vec(),
        Replay::MaxVariance => {
            let split = |top: usize| best[..top].iter().chain(&best[n - (k - top)..]).copied();
            let spread = |top: usize| {
                let sum: f64 = split(top).map(|i| f64::from(rewards[i])).sum();
                let squares: f64 = split(top).map(|i| f64::from(rewards[i]).powi(2)).sum();
                k as f64 * squares - sum * sum
            };
            // From the top down: of equal variances the larger sum.
            let first = (k, spread(k));
            let better = |best: (usize, f64), top: usize| {
                let value = spread(top);
                if value > best.1 + best.1.abs() * 1e-12 { (top, value) } else { best }
            };
            split((0..k).rev().fold(first, better).0).collect()
        }
    };
    chosen.sort_unstable();
    chosen.into_iter().map(|i| i as u32).collect()
}

allot_policy::export!(RePo);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::{Hold, Value};
    use allot_policy::{begin, decide, made, run_with};

    fn run(changes: &[(&str, Value)]) -> Run {
        let mut all = vec![
            ("replays", Value::Integer(2)),
            ("at-least", Value::Integer(3)),
            ("stored", Value::Integer(4)),
        ];
        all.extend_from_slice(changes);
        run_with::<RePo>(&all)
    }

    fn trained(run: &Run, asked: Vec<(u32, u32)>, groups: Vec<Group>) -> Batch {
        let view = View { round: 1, groups, ..made::view(5..9) };
        let plan = decide::<RePo>(run, &RePoState { asked }.save(), &view).unwrap();
        let Action::Train(batch) = plan.action else { panic!("samples") };
        batch
    }

    #[test]
    fn stored_rollouts_are_measured_apart() {
        let unscaled = run(&[("scale", Value::Flag(false)), ("weight", Value::Number(0.5))]);
        let group = made::group(0, &[0, 1, 0, 0, 1]);
        let batch = trained(&unscaled, vec![(0, 3)], vec![group.clone()]);
        // Fresh ones are 3 and 4; of the stored ones 1 is right, and 0 the first of the others.
        let given = Advantage::Given(vec![-0.5, 0.5, -0.25, 0.25]);
        assert_eq!(batch.picks, [Pick::some(0, vec![3, 4, 0, 1]).advantage(given)]);
        assert_eq!(batch.hold, [Hold { prompt: 0, rollouts: Some(vec![1, 2, 3, 4]) }], "the newest four");

        let mixed = run(&[("measure", Value::Text("mixed".into()))]);
        assert_eq!(trained(&mixed, vec![(0, 3)], vec![group]).picks, [Pick::some(0, vec![3, 4, 0, 1])]);
    }

    #[test]
    fn too_few_stored_rollouts_wait() {
        let batch =
            trained(&run(&[]), vec![(0, 2)], vec![made::group(0, &[1, 1, 0, 1]), made::group(9, &[1])]);
        assert_eq!(batch.picks.len(), 1);
        assert_eq!(batch.picks[0].rollouts, Some(vec![2, 3]));
        assert_eq!(batch.hold.len(), 2, "what was not asked for stays as well");
    }

    #[test]
    fn which_are_replayed() {
        let rewards = [0.0, 1.0, 0.5, 1.0, 0.0];
        let mut chance = Chance::new(1);
        let mut of = |replay| choose(replay, &rewards, 2, &mut chance);
        assert_eq!(of(Replay::Highest), [1, 3]);
        assert_eq!(of(Replay::Recent), [3, 4]);
        assert_eq!(of(Replay::MaxVariance), [1, 4]);
        assert_eq!(of(Replay::All), [0, 1, 2, 3, 4]);
        assert_eq!(of(Replay::Random).len(), 2);
    }

    #[test]
    fn it_asks_as_a_uniform_policy() {
        let run = run(&[]);
        let plan = decide::<RePo>(&run, &begin::<RePo>(&run).unwrap(), &made::view(0..9)).unwrap();
        assert_eq!(plan.action, Plan::sample((0..4).map(|p| Request::new(p, 8))).action);
    }
}
