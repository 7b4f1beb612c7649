//! Tree-GRPO (arXiv 2509.21240, AMAP-ML/Tree-GRPO): some rollouts of each prompt begin trees; in each of some rounds,
//! turns drawn from each tree's rollouts are continued by rollouts that share all up to there. A rollout's advantage is
//! measured against its tree and against all trees of the prompt; the two are added.
//!
//! What a turn is worth is the sum over the rollouts that went through it, as in the authors' code, which
//! learns from each rollout's whole text. Read in the paper; of the code only descriptions were at hand.
//! Not faithful:
//!
//! - Here a shared turn is computed once, with that sum; a loss that divides by a rollout's own length then
//!   weighs it differently than one that divides by the whole text's.
//! - A tree without an inner turn, all of whose rollouts ended in their first, is not continued.
//! - Groups of one reward are not sampled again or filtered; they teach nothing.

use allot_policy::prelude::*;

/// Grows trees of rollouts over turns.
pub struct TreeGrpo;

/// What a run may set.
#[derive(Settings)]
pub struct TreeGrpoSettings {
    /// M: rollouts that begin with the prompt; 0 for half of the run's own number, rounded up.
    #[setting(default = 0)]
    trees: u32,
    /// N: turns of each tree to continue, in each round.
    #[setting(default = 1)]
    nodes: u32,
    /// L: rounds of continuing.
    #[setting(default = 1)]
    expansions: u32,
}

impl Policy for TreeGrpo {
    const NAME: &'static str = "tree-grpo";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str =
        "continues rollouts from turns drawn at random; advantages within trees and between";
    const NEEDS: Needs = Needs::TURNS.union(Needs::STARTING);
    type Settings = TreeGrpoSettings;
    type State = ();

    fn begin(settings: &TreeGrpoSettings, run: &Run) -> Result<(), Error> {
        if settings.nodes == 0 || settings.nodes > 64 {
            return Err(bad_setting("nodes", "must be from 1 to 64"));
        }
        if settings.trees_in(run) == 1 && settings.expansions == 0 {
            let why = "it is 0 with one tree, and an advantage is measured against other rollouts, so nothing can be learned";
            return Err(bad_setting("expansions", format!("{why}; set it, or `trees`, higher")));
        }
        Ok(())
    }

    fn decide(settings: &TreeGrpoSettings, run: &Run, (): &mut (), view: &View) -> Result<Plan, Error> {
        if view.round == 0 && view.can_sample() {
            let trees = settings.trees_in(run);
            return Ok(Plan::sample(view.offer(run.groups).map(|p| Request::new(p.id, trees))));
        }
        if (1..=settings.expansions).contains(&view.round) && view.budget.open() {
            let mut chance = Chance::new(view.seed);
            let grown: Vec<Request> = view
                .groups
                .iter()
                .map(|group| Request::starting(group.prompt, settings.grow(group, &mut chance)))
                .filter(|request| request.count > 0)
                .collect();
            if !grown.is_empty() {
                return Ok(Plan::sample(grown));
            }
        }
        let continued = view.groups.iter().flat_map(|group| &group.origins).flatten().count();
        let picks = view
            .groups
            .iter()
            .map(|group| Pick::all(group.prompt).advantage(Advantage::ByTurn(by_turn(group))));
        Ok(Plan::train(picks).metric("continued", continued as f64))
    }
}

impl TreeGrpoSettings {
    /// Trees of each prompt.
    fn trees_in(&self, run: &Run) -> u32 {
        or_else(self.trees, run.rollouts.div_ceil(2))
    }

    /// What to continue of a group: for each of its trees, turns drawn from all that another turn follows.
    pub fn grow(&self, group: &Group, chance: &mut Chance) -> Vec<Option<Start>> {
        let roots = roots(group);
        let mut starts = Vec::new();
        for root in 0..group.len() {
            if roots[root] != root {
                continue;
            }
            let members = (0..group.len()).filter(|rollout| roots[*rollout] == root);
            let inner: Vec<Start> = members
                .flat_map(|rollout| {
                    let turns = group.turns[rollout].len() as u32;
                    (1..turns).map(move |next| Start { rollout: rollout as u32, turn: next - 1 })
                })
                .collect();
            let drawn = (0..self.nodes).filter(|_| !inner.is_empty());
            starts.extend(drawn.map(|_| Some(inner[chance.below(inner.len())])));
        }
        starts
    }
}

/// The first rollout of each rollout's tree, by position. What continues a rollout that is gone is a tree of its own.
fn roots(group: &Group) -> Vec<usize> {
    let mut roots: Vec<usize> = Vec::with_capacity(group.len());
    for rollout in 0..group.len() {
        let origin = group.origins[rollout].and_then(|origin| origin.rollout);
        roots.push(origin.map_or(rollout, |origin| roots[origin as usize]));
    }
    roots
}

/// The advantage of each turn: the sum over the rollouts that went through it.
pub fn by_turn(group: &Group) -> Vec<Vec<f32>> {
    let roots = roots(group);
    let all = measured(group, |_| true);
    let each: Vec<f64> = (0..group.len())
        .map(|rollout| all[rollout] + measured(group, |other| roots[other] == roots[rollout])[rollout])
        .collect();
    let mut sums: Vec<Vec<f64>> = group.turns.iter().map(|turns| vec![0.0; turns.len()]).collect();
    for rollout in 0..group.len() {
        sums[rollout].iter_mut().for_each(|sum| *sum += each[rollout]);
        let mut origin = group.origins[rollout];
        while let Some(Origin { rollout: Some(before), turn }) = origin {
            sums[before as usize].iter_mut().take(turn as usize + 1).for_each(|sum| *sum += each[rollout]);
            origin = group.origins[before as usize];
        }
    }
    sums.into_iter().map(|turns| turns.into_iter().map(|sum| sum as f32).collect()).collect()
}

/// Each rollout's reward, less the mean of some and divided by their standard deviation; 0 where these are all equal.
fn measured(group: &Group, among: impl Fn(usize) -> bool) -> Vec<f64> {
    let some: Vec<f64> =
        (0..group.len()).filter(|i| among(*i)).map(|i| f64::from(group.rewards[i])).collect();
    let flat = some.iter().all(|reward| *reward == some[0]);
    if some.len() < 2 || flat {
        return vec![0.0; group.len()];
    }
    let n = some.len() as f64;
    let mean = some.iter().sum::<f64>() / n;
    let variance = some.iter().map(|reward| (reward - mean) * (reward - mean)).sum::<f64>() / (n - 1.0);
    group.rewards.iter().map(|reward| (f64::from(*reward) - mean) / (variance.sqrt() + 1e-6)).collect()
}

allot_policy::export!(TreeGrpo);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::{decide, made, run_with};

    fn origin(rollout: u32, turn: u32) -> Origin {
        Origin { rollout: Some(rollout), turn }
    }

    fn close(a: &[f32], b: &[f64]) {
        assert_eq!(a.len(), b.len());
        assert!(a.iter().zip(b).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-4), "{a:?} {b:?}");
    }

    #[test]
    fn it_begins_trees_continues_turns_of_each_and_trains() {
        let run = run_with::<TreeGrpo>(&[]);
        let mut view = made::view(0..9);
        let first = decide::<TreeGrpo>(&run, &[], &view).unwrap();
        assert_eq!(first, Plan::sample((0..4).map(|p| Request::new(p, 4))));
        // Of two trees of three turns and one of a single turn, only the first two can be continued.
        (view.round, view.groups) = (1, vec![made::episodes(3, &[1, 0, 0], &[3, 3, 1])]);
        let Action::Sample(grown) = decide::<TreeGrpo>(&run, &[], &view).unwrap().action else { panic!() };
        let starts: Vec<Start> = grown[0].starts.iter().copied().flatten().collect();
        assert_eq!((grown.len(), grown[0].count), (1, 2));
        assert_eq!((starts[0].rollout, starts[1].rollout), (0, 1));
        assert!(starts.iter().all(|start| start.turn < 2));
        view.round = 2;
        assert!(matches!(decide::<TreeGrpo>(&run, &[], &view).unwrap().action, Action::Train(_)));
    }

    #[test]
    fn where_nothing_can_be_continued_it_trains() {
        let mut view = made::view(0..9);
        (view.round, view.groups) = (1, vec![made::episodes(3, &[1, 0], &[1, 1])]);
        let plan = decide::<TreeGrpo>(&run_with::<TreeGrpo>(&[]), &[], &view).unwrap();
        assert!(matches!(plan.action, Action::Train(_)));
    }

    #[test]
    fn a_turn_is_worth_what_the_rollouts_through_it_are() {
        // Rollout 2 keeps the first turn of 0, and 3 keeps of 2 its first own turn.
        let origins = vec![None, None, Some(origin(0, 0)), Some(origin(2, 0))];
        let group = Group { origins, ..made::episodes(3, &[1, 0, 0, 1], &[2, 1, 2, 1]) };
        // All: mean ½, std √⅓. The tree of 0: rewards 1, 0, 1, mean ⅔, std √⅓. The tree of 1: itself alone.
        let std = (1.0_f64 / 3.0).sqrt();
        let (right, wrong) = ((0.5 + 1.0 / 3.0) / std, (-0.5 - 2.0 / 3.0) / std);
        let own = by_turn(&group);
        close(&own[0], &[2.0 * right + wrong, right]);
        close(&own[1], &[-0.5 / std]);
        close(&own[2], &[wrong + right, wrong]);
        close(&own[3], &[right]);
    }

    #[test]
    fn what_continues_a_rollout_that_is_gone_is_a_tree_of_its_own() {
        let origins = vec![Some(Origin { rollout: None, turn: 1 }), None];
        let group = Group { origins, ..made::episodes(3, &[1, 0], &[2, 2]) };
        assert_eq!(roots(&group), [0, 1]);
        let own = by_turn(&group);
        close(&own[0], &[0.5_f64.sqrt(); 2]);
    }
}
