//! The rollout buffer: buffered rollouts by prompt.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::turns::retain;
use crate::{
    Batch, Group, GroupTurns, Hold, Past, PromptId, SamplerSettings, Start, Stopped, Tally, TurnLength,
};

/// A rollout's number in its run. The first rollout sampled is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RolloutId(pub u64);

/// A scored rollout, as it is added to the buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The prompt.
    pub prompt: PromptId,
    /// The rollout's index among the prompt's rollouts sampled at the same weights.
    pub position: u32,
    /// The reward, or `None` if the rollout could not be scored. An unscored rollout is charged and
    /// counted, but no policy sees it.
    pub reward: Option<f32>,
    /// Whether the answer was correct.
    pub correct: bool,
    /// Length, in generated tokens.
    pub tokens: u32,
    /// Whether the rollout reached the length limit.
    pub truncated: bool,
    /// The signals that the policy requested, in that order.
    pub signals: Vec<f32>,
    /// Sampler settings, if they differ from the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplerSettings>,
    /// Its turns, if it is an episode.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<TurnLength>,
    /// Why it stopped, if it is an episode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// The rollout that it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
}

impl Outcome {
    /// Returns whether the rollout has no reward because its environment failed.
    pub fn is_lost(&self) -> bool {
        self.reward.is_none() && self.stopped == Some(Stopped::EnvironmentError)
    }

    /// Returns an outcome of one token without signals.
    pub fn of(prompt: PromptId, position: u32, reward: f32, correct: bool) -> Self {
        Self {
            prompt,
            position,
            reward: Some(reward),
            correct,
            tokens: 1,
            truncated: false,
            signals: Vec::new(),
            sampling: None,
            turns: Vec::new(),
            stopped: None,
            start: None,
        }
    }
}

/// One prompt's buffered rollouts.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Held {
    /// The group shown to the policy. Empty if no rollout could be scored.
    group: Group,
    /// The rollouts' numbers, parallel to the group's lists.
    ids: Vec<RolloutId>,
    /// How many rollouts of the group were buffered before this step.
    before: u32,
    /// Age of the group's first rollout, in updates, also after that rollout is gone.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    age: u32,
    /// Rollouts of this step that could not be scored.
    #[serde(default)]
    unscored: u32,
}

/// The buffered rollouts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RolloutBuffer {
    /// Number of signals per rollout.
    signals: usize,
    held: Vec<Held>,
    #[serde(skip)]
    places: HashMap<PromptId, usize>,
    /// Number of rollouts sampled from each prompt since the last model update, including those discarded
    /// since. It is the next position, so no position is sampled twice at the same weights.
    drawn: BTreeMap<PromptId, u32>,
    /// Updates decided on that the sampling weights do not include yet. It is the age of a new rollout.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    behind: u32,
    /// The epoch of each prompt whose first rollouts are still expected.
    #[serde(default)]
    epochs: BTreeMap<PromptId, u32>,
    /// Rollouts added so far in the run, including unscored ones. It is the next rollout's number.
    sampled: u64,
}

/// The changes to the buffer at the end of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// Rollouts trained on, in the batch's order.
    pub trained: Vec<RolloutId>,
    /// How many of `trained` had been trained on in an earlier update.
    pub again: u64,
    /// Rollouts of `trained` that stay buffered, in the batch's order.
    pub kept: Vec<RolloutId>,
    /// Rollouts that leave the buffer after at least one update.
    pub finished: Vec<RolloutId>,
    /// Rollouts never trained on, discarded because no plan held them.
    pub released: Vec<RolloutId>,
    /// Rollouts never trained on, discarded as stale, though a plan held them.
    pub stale: Vec<RolloutId>,
    /// Number of rollouts that stay buffered.
    pub held: u64,
    /// The step's visits, in the order the prompts were sampled.
    pub visits: Vec<Visit>,
}

/// The outcome of one prompt's rollouts in one step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Visit {
    /// The prompt.
    pub prompt: PromptId,
    /// Rollouts sampled in the step and scored.
    pub rollouts: u32,
    /// How many of `rollouts` were correct.
    pub correct: u32,
    /// Mean reward.
    pub mean: f32,
    /// Population standard deviation of the rewards (divisor n).
    pub deviation: f32,
    /// Mean length, in generated tokens.
    pub tokens: f32,
    /// Whether all rewards were equal.
    pub flat: bool,
}

impl Visit {
    /// Returns the visit of a group's rollouts from this position on. What continues another rollout does not count:
    /// its reward is that of a prompt which is half answered.
    fn of(group: &Group, from: usize) -> Option<Self> {
        let places: Vec<usize> = (from..group.len()).filter(|i| group.turns.is_whole(*i)).collect();
        let rewards: Vec<f32> = places.iter().map(|i| group.rewards[*i]).collect();
        let first = *rewards.first()?;
        let n = rewards.len() as f64;
        let mean = rewards.iter().map(|r| f64::from(*r)).sum::<f64>() / n;
        let flat = rewards.iter().all(|r| *r == first);
        let squares = rewards.iter().map(|r| (f64::from(*r) - mean).powi(2)).sum::<f64>();
        Some(Self {
            prompt: group.prompt,
            rollouts: rewards.len() as u32,
            correct: places.iter().filter(|i| group.correct[**i]).count() as u32,
            mean: mean as f32,
            deviation: if flat { 0.0 } else { (squares / n).sqrt() as f32 },
            tokens: (places.iter().map(|i| f64::from(group.tokens[*i])).sum::<f64>() / n) as f32,
            flat,
        })
    }

    /// Returns `Some(true)` if all rollouts were correct, `Some(false)` if none was, and `None` otherwise.
    fn outcome(rollouts: u32, correct: u32) -> Option<bool> {
        if correct == 0 { Some(false) } else { (correct == rollouts).then_some(true) }
    }

    /// Returns this visit as the prompt's last visit. `old` is the visit before it.
    pub fn past(&self, step: u32, old: Option<Past>) -> Past {
        let outcome = Self::outcome(self.rollouts, self.correct);
        let streak = match (self.flat, outcome) {
            (true, Some(_)) => {
                let goes_on = old.filter(|o| Self::outcome(o.rollouts, o.correct) == outcome);
                1 + goes_on.map_or(0, |o| o.streak)
            }
            _ => 0,
        };
        let total = |old: Option<u32>, new| old.unwrap_or(0).saturating_add(new);
        Past {
            step,
            visits: total(old.map(|o| o.visits), 1),
            rollouts: self.rollouts,
            correct: self.correct,
            mean: self.mean,
            deviation: self.deviation,
            tokens: self.tokens,
            streak,
            total_rollouts: total(old.map(|o| o.total_rollouts), self.rollouts),
            total_correct: total(old.map(|o| o.total_correct), self.correct),
        }
    }
}

impl RolloutBuffer {
    /// An empty buffer for rollouts with this many signals.
    pub fn new(signals: usize) -> Self {
        Self {
            signals,
            held: Vec::new(),
            places: HashMap::new(),
            drawn: BTreeMap::new(),
            behind: 0,
            epochs: BTreeMap::new(),
            sampled: 0,
        }
    }

    /// Returns whether a prompt has rollouts, scored or not, without an update. Such a prompt is not offered.
    pub fn holds(&self, prompt: PromptId) -> bool {
        self.places.get(&prompt).is_some_and(|place| !self.held[*place].is_replay())
    }

    /// Returns the next free position among a prompt's rollouts at the current weights.
    pub fn next_position(&self, prompt: PromptId) -> u32 {
        self.drawn.get(&prompt).copied().unwrap_or(0)
    }

    /// Returns the updates that the sampling weights had since the first rollout of a prompt's group was sampled;
    /// 0 if the prompt has no group.
    pub fn begun(&self, prompt: PromptId) -> u32 {
        self.places.get(&prompt).map_or(0, |place| self.held[*place].age.saturating_sub(self.behind))
    }

    /// Returns the buffered groups as a policy sees them, without empty groups.
    pub fn groups(&self) -> Vec<Group> {
        self.shown().cloned().collect()
    }

    /// Returns the same groups by reference.
    pub fn shown(&self) -> impl Iterator<Item = &Group> {
        self.held.iter().map(|held| &held.group).filter(|group| !group.is_empty())
    }

    /// Returns the number of rollouts of this step that could not be scored, by prompt.
    pub fn unscored(&self) -> Vec<Tally> {
        let some = self.held.iter().filter(|held| held.unscored > 0);
        some.map(|held| Tally { prompt: held.group.prompt, rollouts: held.unscored }).collect()
    }

    /// Returns prompts with buffered rollouts not trained on yet. Ignores the run's last `last` rollouts.
    pub fn prompts_before(&self, last: u64) -> impl Iterator<Item = PromptId> {
        let end = RolloutId(self.sampled - last);
        let before = move |held: &&Held| {
            held.ids.iter().enumerate().any(|(i, id)| *id < end && held.group.trained(i) == 0)
        };
        self.held.iter().filter(before).map(|held| held.group.prompt)
    }

    /// Returns the buffered rollouts of zero-variance groups.
    pub fn flat(&self) -> impl Iterator<Item = RolloutId> {
        self.held.iter().filter(|h| h.group.flat()).flat_map(|h| h.ids.iter().copied())
    }

    /// Returns the group of a buffered prompt.
    pub fn group(&self, prompt: PromptId) -> Option<&Group> {
        self.places.get(&prompt).map(|place| &self.held[*place].group)
    }

    /// Returns the number of a buffered rollout, by its position in its group's lists.
    pub fn rollout(&self, prompt: PromptId, position: usize) -> Option<RolloutId> {
        self.places.get(&prompt).and_then(|place| self.held[*place].ids.get(position).copied())
    }

    /// Returns how many buffered rollouts a policy can see.
    pub fn rollouts(&self) -> u64 {
        self.held.iter().map(|h| h.ids.len() as u64).sum()
    }

    /// Opens a step: the rollouts buffered now count as held from earlier steps.
    pub fn open_step(&mut self) {
        for held in &mut self.held {
            held.before = held.group.len() as u32;
            held.unscored = 0;
        }
    }

    /// Announces rollouts of a prompt. If they are the prompt's first, they belong to this epoch.
    pub fn expect(&mut self, prompt: PromptId, epoch: u32) {
        self.epochs.insert(prompt, epoch);
    }

    /// Adds rollouts in the order of their grant. Returns the number of the first one. A rollout whose
    /// reward or signals are not finite counts as unscored.
    pub fn add(&mut self, outcomes: impl IntoIterator<Item = Outcome>) -> RolloutId {
        let first = RolloutId(self.sampled);
        for outcome in outcomes {
            let id = RolloutId(self.sampled);
            self.sampled += 1;
            let place = self.place(outcome.prompt, 1);
            let held = &mut self.held[place];
            let finite =
                outcome.signals.len() == self.signals && outcome.signals.iter().all(|s| s.is_finite());
            let Some(reward) = outcome.reward.filter(|r| r.is_finite() && finite) else {
                held.unscored += 1;
                continue;
            };
            held.ids.push(id);
            held.group.rewards.push(reward);
            held.group.correct.push(outcome.correct);
            held.group.tokens.push(outcome.tokens);
            held.group.ages.push(self.behind);
            held.group.truncated.push(outcome.truncated);
            held.group.sampled(outcome.sampling);
            let before = held.group.len() - 1;
            held.group.turns.push(before, (outcome.turns, outcome.stopped), outcome.start);
            if !held.group.trained.is_empty() {
                held.group.trained.push(0);
            }
            for (list, signal) in held.group.signals.iter_mut().zip(outcome.signals) {
                list.push(signal);
            }
        }
        first
    }

    /// Adds `count` rollouts that could not be scored.
    pub fn add_unscorable(&mut self, prompt: PromptId, count: u32) {
        self.sampled = self.sampled.saturating_add(u64::from(count));
        let place = self.place(prompt, count);
        self.held[place].unscored += count;
    }

    /// Counts `drawn` more rollouts of a prompt and returns its index in `held`. Adds a new prompt.
    fn place(&mut self, prompt: PromptId, drawn: u32) -> usize {
        let next = self.drawn.entry(prompt).or_default();
        *next = next.saturating_add(drawn);
        let epoch = self.epochs.remove(&prompt);
        // New rollouts move a group whose rollouts were all trained on to the prompt's current epoch.
        if let (Some(epoch), Some(place)) = (epoch, self.places.get(&prompt))
            && self.held[*place].is_replay()
        {
            self.held[*place].group.epoch = epoch;
        }
        let epoch = epoch.unwrap_or_default();
        *self.places.entry(prompt).or_insert_with(|| {
            self.held.push(Held {
                group: Group {
                    prompt,
                    epoch,
                    rewards: Vec::new(),
                    correct: Vec::new(),
                    tokens: Vec::new(),
                    ages: Vec::new(),
                    truncated: Vec::new(),
                    signals: vec![Vec::new(); self.signals],
                    sampling: Vec::new(),
                    trained: Vec::new(),
                    turns: GroupTurns::default(),
                },
                ids: Vec::new(),
                before: 0,
                age: self.behind,
                unscored: 0,
            });
            self.held.len() - 1
        })
    }

    /// Ends a step: discards stale rollouts and those that no plan held. Picked rollouts stay only if held
    /// by position. The batch must be legal. `updated` says whether the model changes, which ages all
    /// rollouts by 1. Until [`made`](Self::made) is called, rollouts are sampled at the old weights.
    pub fn settle(&mut self, batch: &Batch, updated: bool, max_age: u32) -> Settled {
        let mut settled = Settled::default();
        let mut picked: HashMap<PromptId, Vec<bool>> = HashMap::new();
        for pick in &batch.picks {
            let Some(place) = self.places.get(&pick.prompt) else { continue };
            let held = &self.held[*place];
            let positions = pick.positions(held.ids.len());
            settled.trained.extend(positions.iter().map(|i| held.ids[*i]));
            settled.again += positions.iter().filter(|i| held.group.trained(**i) > 0).count() as u64;
            let mut used = vec![false; held.ids.len()];
            for i in positions {
                used[i] = true;
            }
            picked.insert(pick.prompt, used);
        }
        let hold: HashMap<PromptId, &Hold> = batch.hold.iter().map(|hold| (hold.prompt, hold)).collect();

        self.behind += u32::from(updated);
        let (mut buffered, mut again) = (Vec::new(), HashSet::new());
        for mut held in std::mem::take(&mut self.held) {
            let (prompt, n) = (held.group.prompt, held.ids.len());
            settled.visits.extend(Visit::of(&held.group, held.before as usize));
            let used = picked.remove(&prompt).unwrap_or_else(|| vec![false; n]);
            if updated {
                held.group.ages.iter_mut().for_each(|age| *age += 1);
                held.age += 1;
            }
            held.count(&used);
            let stays = hold.get(&prompt).map_or_else(|| vec![false; n], |hold| hold.of(&used));
            let keep: Vec<bool> = (0..n)
                .map(|i| {
                    let keep = stays[i] && held.group.ages[i] <= max_age;
                    match (keep, used[i] || held.group.trained(i) > 0) {
                        (true, true) if used[i] => _ = again.insert(held.ids[i]),
                        (true, _) => {}
                        (false, true) => settled.finished.push(held.ids[i]),
                        (false, false) if stays[i] => settled.stale.push(held.ids[i]),
                        (false, false) => settled.released.push(held.ids[i]),
                    }
                    keep
                })
                .collect();
            held.retain(&keep);
            if !held.ids.is_empty() {
                settled.held += held.ids.len() as u64;
                buffered.push(held);
            }
        }
        settled.kept = settled.trained.iter().copied().filter(|id| again.contains(id)).collect();
        self.held = buffered;
        self.index();
        settled
    }

    /// Records that a settled step's update was made, if it has one. Sampling now uses the new weights.
    pub fn made(&mut self, updated: bool) {
        if updated {
            self.behind = self.behind.saturating_sub(1);
            self.drawn.clear();
        }
    }

    /// Discards the last `n` rollouts that were trained on in this step and stayed.
    pub fn give_up(&mut self, settled: &mut Settled, n: u64) {
        let from = settled.kept.len().saturating_sub(n as usize);
        let gone: HashSet<RolloutId> = settled.kept.split_off(from).into_iter().collect();
        if !gone.is_empty() {
            settled.held -= gone.len() as u64;
            settled.finished.extend(self.let_go(|held, i| gone.contains(&held.ids[i])));
        }
    }

    /// Discards all rollouts trained on, for a policy that cannot distinguish them. Returns their numbers.
    pub fn let_go_trained(&mut self) -> Vec<RolloutId> {
        self.let_go(|held, i| held.group.trained(i) > 0)
    }

    fn let_go(&mut self, goes: impl Fn(&Held, usize) -> bool) -> Vec<RolloutId> {
        let mut gone = Vec::new();
        for held in &mut self.held {
            let keep: Vec<bool> = (0..held.ids.len()).map(|i| !goes(held, i)).collect();
            gone.extend(held.ids.iter().zip(&keep).filter(|(_, keep)| !**keep).map(|(id, _)| *id));
            held.retain(&keep);
        }
        self.held.retain(|held| !held.ids.is_empty());
        self.index();
        gone
    }

    /// Returns the prompt and the length in tokens of each of these rollouts that is buffered.
    pub fn find(&self, rollouts: &[RolloutId]) -> HashMap<RolloutId, (PromptId, u32)> {
        let wanted: HashSet<&RolloutId> = rollouts.iter().collect();
        let all = self.held.iter().flat_map(|held| {
            held.ids.iter().zip(&held.group.tokens).map(|(id, tokens)| (*id, (held.group.prompt, *tokens)))
        });
        all.filter(|(id, _)| wanted.contains(id)).collect()
    }

    /// Returns the numbers of the buffered rollouts.
    pub fn ids(&self) -> impl Iterator<Item = RolloutId> {
        self.held.iter().flat_map(|held| held.ids.iter().copied())
    }

    /// Rebuilds the index of prompts. Call it after deserializing a buffer.
    pub fn index(&mut self) {
        self.places = self.held.iter().enumerate().map(|(place, held)| (held.group.prompt, place)).collect();
    }
}

impl Held {
    fn retain(&mut self, keep: &[bool]) {
        retain(&mut self.ids, keep);
        retain(&mut self.group.rewards, keep);
        retain(&mut self.group.correct, keep);
        retain(&mut self.group.tokens, keep);
        retain(&mut self.group.ages, keep);
        retain(&mut self.group.truncated, keep);
        self.group.signals.iter_mut().for_each(|list| retain(list, keep));
        self.group.turns.retain(keep);
        retain(&mut self.group.sampling, keep);
        retain(&mut self.group.trained, keep);
        // Keep one representation: a group without trained rollouts has an empty list.
        if self.group.trained.iter().all(|n| *n == 0) {
            self.group.trained.clear();
        }
    }

    /// Counts an update on the rollouts marked in `used`.
    fn count(&mut self, used: &[bool]) {
        if used.contains(&true) {
            self.group.trained.resize(used.len(), 0);
            self.group.trained.iter_mut().zip(used).for_each(|(n, used)| *n += u32::from(*used));
        }
    }

    /// Returns whether every rollout was trained on and the group has no unscored rollout of this step.
    fn is_replay(&self) -> bool {
        let group = &self.group;
        self.unscored == 0 && !group.trained.is_empty() && group.trained.iter().all(|n| *n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Advantage, Pick};

    fn buffer(rewards: &[(u32, f32)]) -> RolloutBuffer {
        let mut buffer = RolloutBuffer::new(0);
        buffer.open_step();
        buffer.add(rewards.iter().map(|(p, r)| Outcome::of(PromptId(*p), 0, *r, *r > 0.5)));
        buffer
    }

    fn pick(prompt: u32, rollouts: Option<Vec<u32>>) -> Pick {
        Pick { prompt: PromptId(prompt), rollouts, advantage: Advantage::Picked, weight: 1.0 }
    }

    fn batch(picks: Vec<Pick>, hold: &[u32]) -> Batch {
        Batch { picks, hold: hold.iter().map(|p| PromptId(*p).into()).collect(), update: None }
    }

    fn numbers(ids: &[RolloutId]) -> Vec<u64> {
        ids.iter().map(|id| id.0).collect()
    }

    #[test]
    fn what_is_not_held_is_let_go_and_what_is_trained_on_is_gone() {
        let mut buffer = buffer(&[(5, 1.0), (5, 0.0), (5, 1.0), (6, 0.0), (7, 1.0)]);
        let settled = buffer.settle(&batch(vec![pick(5, Some(vec![2, 0]))], &[5, 7]), true, 9);
        buffer.made(true);
        assert_eq!(numbers(&settled.trained), [2, 0]);
        assert_eq!(numbers(&settled.released), [3]);
        assert_eq!(settled.held, 2);
        let groups = buffer.groups();
        assert_eq!((groups[0].prompt, groups[0].len(), groups[0].ages[0]), (PromptId(5), 1, 1));
        assert_eq!(groups[1].prompt, PromptId(7));
        assert!(!buffer.holds(PromptId(6)));
        assert_eq!(buffer.next_position(PromptId(5)), 0, "other weights, other draws");
    }

    #[test]
    fn of_a_group_only_the_positions_that_are_held_stay() {
        let mut buffer = buffer(&[(5, 1.0), (5, 0.0), (5, 1.0), (6, 0.0)]);
        let hold = vec![Hold { prompt: PromptId(5), rollouts: Some(vec![2]) }];
        let settled =
            buffer.settle(&Batch { picks: vec![pick(5, Some(vec![0]))], hold, update: None }, true, 9);
        buffer.made(true);
        assert_eq!((numbers(&settled.trained), numbers(&settled.released)), (vec![0], vec![1, 3]));
        assert_eq!(buffer.rollout(PromptId(5), 0), Some(RolloutId(2)));
    }

    #[test]
    fn what_is_trained_on_and_held_by_position_stays_and_is_counted() {
        let mut buffer = buffer(&[(5, 1.0), (5, 0.0), (5, 1.0), (6, 0.0), (7, 1.0)]);
        let hold =
            |prompt, positions: &[u32]| Hold { prompt: PromptId(prompt), rollouts: Some(positions.to_vec()) };
        let step = |buffer: &mut RolloutBuffer, picks, hold| {
            let settled = buffer.settle(&Batch { picks, hold, update: None }, true, 2);
            buffer.made(true);
            buffer.open_step();
            settled
        };
        let first =
            step(&mut buffer, vec![pick(7, None), pick(5, None)], vec![hold(5, &[0, 2]), hold(7, &[0])]);
        assert_eq!((numbers(&first.trained), first.again), (vec![4, 0, 1, 2], 0));
        assert_eq!(numbers(&first.kept), [4, 0, 2], "in the batch's order");
        assert_eq!((numbers(&first.finished), numbers(&first.released), first.held), (vec![1], vec![3], 3));
        assert_eq!(buffer.groups()[0].trained, [1, 1]);
        assert!(
            !buffer.holds(PromptId(5)) && buffer.prompts_before(0).next().is_none(),
            "it may come on offer again"
        );

        // New rollouts join those that were trained on, under the epoch of now.
        buffer.expect(PromptId(5), 3);
        buffer.add([Outcome::of(PromptId(5), 0, 0.5, false), Outcome::of(PromptId(5), 1, 0.5, false)]);
        assert!(buffer.holds(PromptId(5)));
        assert_eq!((&buffer.groups()[0].trained, buffer.groups()[0].epoch), (&vec![1, 1, 0, 0], 3));
        buffer.expect(PromptId(5), 4);
        buffer.add([Outcome::of(PromptId(5), 2, 0.5, false)]);
        assert_eq!(buffer.groups()[0].epoch, 3, "a commit changes nothing of that");

        // A hold without positions keeps all that is not picked, trained on before or not.
        let second = step(&mut buffer, vec![pick(5, Some(vec![0, 3]))], vec![PromptId(5).into()]);
        assert_eq!((numbers(&second.trained), second.again), (vec![0, 6], 1));
        assert_eq!((numbers(&second.finished), numbers(&second.kept)), (vec![0, 6, 4], vec![]));
        assert_eq!(buffer.groups()[0].trained, [1, 0, 0]);
        // Too old, or of no use any more, it was trained on all the same.
        let third = step(&mut buffer, vec![pick(5, Some(vec![0]))], vec![hold(5, &[0, 1])]);
        assert_eq!(
            (numbers(&third.finished), third.stale.len(), numbers(&third.released)),
            (vec![2], 0, vec![7])
        );
        assert!(buffer.groups()[0].trained.is_empty(), "the one that is left was never trained on");
    }

    #[test]
    fn the_last_of_what_stays_is_given_up_first() {
        let mut buffer = buffer(&[(5, 1.0), (5, 0.0), (6, 0.0)]);
        let hold = vec![
            Hold { prompt: PromptId(5), rollouts: Some(vec![0, 1]) },
            Hold { prompt: PromptId(6), rollouts: Some(vec![0]) },
        ];
        let mut settled =
            buffer.settle(&Batch { picks: vec![pick(6, None), pick(5, None)], hold, update: None }, true, 9);
        assert_eq!(buffer.find(&settled.kept)[&RolloutId(2)], (PromptId(6), 1));
        buffer.give_up(&mut settled, 2);
        assert_eq!(
            (numbers(&settled.kept), numbers(&settled.finished), settled.held),
            (vec![2], vec![0, 1], 1)
        );
        assert_eq!(buffer.groups().len(), 1);
        assert_eq!(numbers(&buffer.let_go_trained()), [2]);
        assert_eq!((buffer.rollouts(), buffer.groups().len()), (0, 0));
    }

    #[test]
    fn a_prompt_let_go_without_an_update_is_not_drawn_the_same_way_again() {
        let mut buffer = buffer(&[(5, 1.0), (5, 0.0)]);
        buffer.settle(&Batch::default(), false, 9);
        assert!(!buffer.holds(PromptId(5)));
        assert_eq!(buffer.next_position(PromptId(5)), 2);
        buffer.settle(&Batch::default(), true, 9);
        buffer.made(true);
        assert_eq!(buffer.next_position(PromptId(5)), 0);
    }

    #[test]
    fn rollouts_grow_old_by_updates_and_leave_past_the_limit() {
        let mut buffer = buffer(&[(1, 1.0), (1, 0.0)]);
        assert_eq!(buffer.settle(&batch(vec![], &[1]), false, 1).stale, []);
        assert_eq!(buffer.groups()[0].ages, [0, 0], "no update, no age");
        assert_eq!(buffer.settle(&batch(vec![], &[1]), true, 1).stale, []);
        assert_eq!(numbers(&buffer.settle(&batch(vec![], &[1]), true, 1).stale), [0, 1]);
        assert!(buffer.groups().is_empty());
    }

    #[test]
    fn an_unscorable_rollout_is_counted_and_never_shown() {
        let mut buffer = RolloutBuffer::new(0);
        let mut bad = Outcome::of(PromptId(3), 0, f32::NAN, false);
        buffer.add([bad.clone()]);
        bad.reward = None;
        buffer.add([bad]);
        assert!(buffer.groups().is_empty());
        assert!(buffer.holds(PromptId(3)), "it is not to be offered again in this step");
        assert_eq!(buffer.next_position(PromptId(3)), 2);
        assert_eq!(buffer.settle(&Batch::default(), true, 1).visits, []);
    }

    #[test]
    fn visits_tell_of_this_step_only() {
        let mut buffer = buffer(&[(1, 1.0), (1, 0.0)]);
        let visits = buffer.settle(&batch(vec![], &[1]), true, 9).visits;
        assert_eq!(
            (visits[0].rollouts, visits[0].correct, visits[0].mean, visits[0].flat),
            (2, 1, 0.5, false)
        );
        buffer.open_step();
        assert_eq!(buffer.settle(&batch(vec![], &[1]), true, 9).visits, [], "nothing sampled, no visit");
        buffer.open_step();
        buffer.add([Outcome::of(PromptId(1), 2, 1.0, true)]);
        let visits = buffer.settle(&Batch::default(), true, 9).visits;
        assert_eq!((visits[0].rollouts, visits[0].correct, visits[0].flat), (1, 1, true));
    }

    #[test]
    fn a_streak_goes_on_while_visits_are_flat_in_the_same_way() {
        let visit = |rollouts, correct, mean, flat| Visit {
            prompt: PromptId(0),
            rollouts,
            correct,
            mean,
            deviation: 0.0,
            tokens: 1.0,
            flat,
        };
        let mut past = None;
        let mut see = |v: Visit| {
            past = Some(v.past(0, past));
            past.map(|p| (p.streak, p.total_rollouts, p.total_correct))
        };
        assert_eq!(see(visit(8, 0, 0.1, true)), Some((1, 8, 0)));
        assert_eq!(see(visit(4, 0, 0.0, true)), Some((2, 12, 0)), "another reward, as wrong as before");
        assert_eq!(
            see(visit(8, 0, 0.05, false)),
            Some((0, 20, 0)),
            "rewards differ: there was something to learn"
        );
        assert_eq!(see(visit(8, 8, 1.0, true)), Some((1, 28, 8)));
        assert_eq!(see(visit(8, 8, 1.0, true)), Some((2, 36, 16)));
        assert_eq!(see(visit(8, 0, 0.0, true)), Some((1, 44, 16)));
        assert_eq!(
            see(visit(8, 3, 0.5, true)),
            Some((0, 52, 19)),
            "flat but neither all right nor all wrong"
        );
    }
}
