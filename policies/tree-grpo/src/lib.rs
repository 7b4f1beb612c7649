//! Tree-GRPO (arXiv 2509.21240, AMAP-ML/Tree-GRPO): some rollouts of each prompt begin trees; in each of some rounds,
//! turns drawn from each tree's rollouts are continued by rollouts that share all up to there. A rollout's advantage is
//! measured against its tree and against all trees of the prompt; the two are added.
//!
//! What a turn is worth is the sum over the rollouts that went through it, as in the authors' code, which
//! learns from each rollout's whole text. Not faithful:
//!
//! - Here a shared turn is computed once, with that sum; a loss that divides by a rollout's own length then
//!   weighs it differently than one that divides by the whole text's.
//! - Where rollouts could not be judged, one that began anew for a tree is a tree of its own.

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

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct TreeGrpoState {
    /// The tree of each rollout that a prompt has when all that was asked for has come.
    trees: Vec<(PromptId, Vec<u32>)>,
}

impl Policy for TreeGrpo {
    const NAME: &'static str = "tree-grpo";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str =
        "continues rollouts from turns drawn at random; advantages within trees and between";
    const NEEDS: Needs = Needs::TURNS.union(Needs::STARTING);
    type Settings = TreeGrpoSettings;
    type State = TreeGrpoState;

    fn begin(settings: &TreeGrpoSettings, run: &Run) -> Result<TreeGrpoState, Error> {
        if settings.nodes == 0 || settings.nodes > 64 {
            return Err(bad_setting("nodes", "must be from 1 to 64"));
        }
        if settings.trees_in(run) == 1 && settings.expansions == 0 {
            let why = "it is 0 with one tree, and an advantage is measured against other rollouts, so nothing can be learned";
            return Err(bad_setting("expansions", format!("{why}; set it, or `trees`, higher")));
        }
        Ok(TreeGrpoState::default())
    }

    fn decide(
        settings: &TreeGrpoSettings,
        run: &Run,
        state: &mut TreeGrpoState,
        view: &View,
    ) -> Result<Plan, Error> {
        if view.round == 0 {
            state.trees.clear();
            if view.can_sample() {
                let trees = settings.trees_in(run);
                return Ok(Plan::sample(view.offer(run.groups).map(|p| Request::new(p.id, trees))));
            }
        }
        // Where a rollout was lost, those behind it are not where they were asked for: it may have been drawn again,
        // behind all others.
        let whole = |group: &Group| view.unscored.iter().all(|lost| lost.prompt != group.prompt);
        let trees: Vec<Vec<u32>> =
            view.groups.iter().map(|group| state.trees_of(group, whole(group))).collect();
        if (1..=settings.expansions).contains(&view.round) && view.budget.open() && !trees.is_empty() {
            let mut chance = Chance::new(view.seed);
            let mut grown = Vec::with_capacity(trees.len());
            state.trees.clear();
            for (group, mut trees) in view.groups.iter().zip(trees) {
                let (starts, of): (Vec<_>, Vec<_>) =
                    settings.grow(group, &trees, &mut chance).into_iter().unzip();
                trees.extend::<Vec<u32>>(of);
                state.trees.push((group.prompt, trees));
                grown.push(Request::starting(group.prompt, starts));
            }
            return Ok(Plan::sample(grown));
        }
        let continued = view.groups.iter().flat_map(|group| &group.origins).flatten().count();
        let picks = view.groups.iter().zip(&trees).map(|(group, trees)| {
            Pick::all(group.prompt).advantage(Advantage::ByTurn(by_turn(group, trees)))
        });
        Ok(Plan::train(picks).metric("continued", continued as f64))
    }
}

impl TreeGrpoSettings {
    /// Trees of each prompt.
    fn trees_in(&self, run: &Run) -> u32 {
        or_else(self.trees, run.rollouts.div_ceil(2))
    }

    /// What a group's trees grow by: where each new rollout begins, and the tree that it belongs to. They begin at
    /// nodes drawn from a tree's: the prompt, and all turns that another turn follows.
    pub fn grow(&self, group: &Group, trees: &[u32], chance: &mut Chance) -> Vec<(Option<Start>, u32)> {
        let mut grown = Vec::new();
        for root in (0..group.len() as u32).filter(|rollout| trees[*rollout as usize] == *rollout) {
            let members = (0..group.len()).filter(|rollout| trees[*rollout] == root);
            let inner = members.flat_map(|rollout| {
                let turns = group.turns[rollout].len() as u32;
                (1..turns).map(move |next| Some(Start { rollout: rollout as u32, turn: next - 1 }))
            });
            let nodes: Vec<Option<Start>> = [None].into_iter().chain(inner).collect();
            grown.extend((0..self.nodes).map(|_| (nodes[chance.below(nodes.len())], root)));
        }
        grown
    }
}

impl TreeGrpoState {
    /// The tree of each of a group's rollouts, by the position of the rollout that began it: as they were asked for, if
    /// the group is whole.
    fn trees_of(&self, group: &Group, whole: bool) -> Vec<u32> {
        let asked = self.trees.iter().find(|(prompt, _)| whole && *prompt == group.prompt);
        match asked.filter(|(_, trees)| trees.len() == group.len()) {
            Some((_, trees)) => trees.clone(),
            None => by_origin(group),
        }
    }
}

/// The tree of each rollout as far as its origin tells. What continues a rollout that is gone is a tree of its own.
fn by_origin(group: &Group) -> Vec<u32> {
    let mut trees: Vec<u32> = Vec::with_capacity(group.len());
    for rollout in 0..group.len() {
        let origin = group.origins[rollout].and_then(|origin| origin.rollout);
        trees.push(origin.map_or(rollout as u32, |origin| trees[origin as usize]));
    }
    trees
}

/// The advantage of each turn: the sum over the rollouts that went through it.
pub fn by_turn(group: &Group, trees: &[u32]) -> Vec<Vec<f32>> {
    let all = measured(group, |_| true);
    let each: Vec<f64> = (0..group.len())
        .map(|rollout| all[rollout] + measured(group, |other| trees[other] == trees[rollout])[rollout])
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
    use allot_policy::{begin, decide, made, run_with};

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
        let first = decide::<TreeGrpo>(&run, &begin::<TreeGrpo>(&run).unwrap(), &view).unwrap();
        assert_eq!(first.action, Plan::sample((0..4).map(|p| Request::new(p, 4))).action);
        // Of two trees of three turns and one of a single turn, the last can only begin anew.
        (view.round, view.groups) = (1, vec![made::episodes(3, &[1, 0, 0], &[3, 3, 1])]);
        let plan = decide::<TreeGrpo>(&run, &first.state, &view).unwrap();
        let Action::Sample(grown) = plan.action else { panic!("it samples") };
        assert_eq!((grown.len(), grown[0].count, grown[0].starts[2]), (1, 3, None));
        let marks = [1, 0, 0, 1, 0, 1];
        let rollout = |start: &Option<Start>| start.map(|start| origin(start.rollout, start.turn));
        let origins = [None; 3].into_iter().chain(grown[0].starts.iter().map(rollout)).collect();
        (view.round, view.groups) = (2, vec![Group { origins, ..made::episodes(3, &marks, &[3; 6]) }]);
        let plan = decide::<TreeGrpo>(&run, &plan.state, &view).unwrap();
        let Action::Train(batch) = plan.action else { panic!("it trains") };
        let expected = by_turn(&view.groups[0], &[0, 1, 2, 0, 1, 2]);
        assert_eq!(batch.picks, [Pick::all(3).advantage(Advantage::ByTurn(expected))]);
    }

    #[test]
    fn nodes_are_the_prompt_and_all_turns_but_the_last_of_each_rollout() {
        let mut chance = Chance::new(7);
        let settings = TreeGrpoSettings { trees: 1, nodes: 64, expansions: 1 };
        let origins = vec![None, Some(origin(0, 1))];
        let group = Group { origins, ..made::episodes(3, &[1, 0], &[3, 2]) };
        let grown = settings.grow(&group, &[0, 0], &mut chance);
        let start = |rollout, turn| Some(Start { rollout, turn });
        for node in [None, start(0, 0), start(0, 1), start(1, 0)] {
            assert!(grown.contains(&(node, 0)), "{node:?}");
        }
        assert_eq!(grown.len(), 64);
        assert!(grown.iter().all(|(node, _)| node.is_none_or(|node| node.turn < 2 - node.rollout)));
    }

    #[test]
    fn where_a_rollout_is_lost_only_origins_tell_trees() {
        let state = TreeGrpoState { trees: vec![(3, vec![0, 1, 0, 1])] };
        let of = |marks: &[u8], origins| {
            state.trees_of(&Group { origins, ..made::episodes(3, marks, &vec![2; marks.len()]) }, true)
        };
        assert_eq!(of(&[1, 0, 1, 0], vec![None, None, None, Some(origin(1, 0))]), [0, 1, 0, 1]);
        assert_eq!(of(&[1, 0, 1], vec![None, None, Some(origin(1, 0))]), [0, 1, 1]);
        assert_eq!(of(&[1, 0, 1], vec![None; 3]), [0, 1, 2]);
        // The one that continued rollout 0 was lost and drawn again, behind the one that continued 1.
        let origins = vec![None, None, Some(origin(1, 0)), Some(origin(0, 0))];
        let group = Group { origins, ..made::episodes(3, &[1, 0, 1, 0], &[2; 4]) };
        assert_eq!(state.trees_of(&group, false), [0, 1, 1, 0]);
        assert_eq!(state.trees_of(&group, true), [0, 1, 0, 1], "as they were asked for");
    }

    #[test]
    fn a_turn_is_worth_what_the_rollouts_through_it_are() {
        // Rollout 2 keeps the first turn of 0, and 3 keeps of 2 its first own turn.
        let origins = vec![None, None, Some(origin(0, 0)), Some(origin(2, 0))];
        let group = Group { origins, ..made::episodes(3, &[1, 0, 0, 1], &[2, 1, 2, 1]) };
        // All: mean ½, std √⅓. The tree of 0: rewards 1, 0, 1, mean ⅔, std √⅓. The tree of 1: itself alone.
        let std = (1.0_f64 / 3.0).sqrt();
        let (right, wrong) = ((0.5 + 1.0 / 3.0) / std, (-0.5 - 2.0 / 3.0) / std);
        let own = by_turn(&group, &by_origin(&group));
        close(&own[0], &[2.0 * right + wrong, right]);
        close(&own[1], &[-0.5 / std]);
        close(&own[2], &[wrong + right, wrong]);
        close(&own[3], &[right]);
    }

    #[test]
    fn what_continues_a_rollout_that_is_gone_is_a_tree_of_its_own() {
        let origins = vec![Some(Origin { rollout: None, turn: 1 }), None];
        let group = Group { origins, ..made::episodes(3, &[1, 0], &[2, 2]) };
        assert_eq!(by_origin(&group), [0, 1]);
        let own = by_turn(&group, &[0, 1]);
        close(&own[0], &[0.5_f64.sqrt(); 2]);
    }
}
