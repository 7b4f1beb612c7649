//! The buffer: the buffered rollouts, by prompt.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::{Batch, Group, Hold, Past, PromptId, SamplerSettings, Tally};

/// A rollout's number in its run: the first one sampled is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RolloutId(pub u64);

/// A scored rollout, as it comes to the buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The prompt.
    pub prompt: PromptId,
    /// Its place among the prompt's rollouts at the weights that it was sampled at.
    pub position: u32,
    /// The reward, or none where it could not be scored: such a rollout is paid for and counted,
    /// and no policy sees it.
    pub reward: Option<f32>,
    /// Whether the answer was right.
    pub correct: bool,
    /// Length, in generated tokens.
    pub tokens: u32,
    /// Whether it met the length limit.
    pub truncated: bool,
    /// The signals that the policy asked for, in its order.
    pub signals: Vec<f32>,
    /// How it was sampled, where that is not as the run samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplerSettings>,
}

impl Outcome {
    /// A short outcome without signals.
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
        }
    }
}

/// One prompt's buffered rollouts.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Held {
    /// What the policy sees. Empty if no rollout could be scored.
    group: Group,
    /// The rollouts' numbers, parallel to the group's lists.
    ids: Vec<RolloutId>,
    /// How many of the group were there before this step.
    before: u32,
    /// Rollouts of this step that could not be scored.
    #[serde(default)]
    unscored: u32,
}

/// The buffered rollouts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RolloutBuffer {
    /// How many signals each rollout has.
    signals: usize,
    held: Vec<Held>,
    #[serde(skip)]
    places: HashMap<PromptId, usize>,
    /// How often each prompt was sampled since the last model update, whatever became of the
    /// rollouts: the next position, so that none is drawn twice at the same weights.
    drawn: BTreeMap<PromptId, u32>,
    /// The epochs in which prompts were on offer whose first rollouts are yet to come.
    #[serde(default)]
    epochs: BTreeMap<PromptId, u32>,
    /// Rollouts put in the buffer so far in the run, unscorable ones counted: the next number.
    sampled: u64,
}

/// What became of the buffered rollouts when a step ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// Rollouts trained on, in the batch's order.
    pub trained: Vec<RolloutId>,
    /// Rollouts discarded because no plan held them.
    pub released: Vec<RolloutId>,
    /// Rollouts discarded as stale, though a plan held them.
    pub stale: Vec<RolloutId>,
    /// Rollouts that stay buffered.
    pub held: u64,
    /// The step's visits, in the order the prompts were sampled.
    pub visits: Vec<Visit>,
}

/// What a prompt's rollouts of one step came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Visit {
    /// The prompt.
    pub prompt: PromptId,
    /// Rollouts sampled in the step and scored.
    pub rollouts: u32,
    /// How many were correct.
    pub correct: u32,
    /// Mean reward.
    pub mean: f32,
    /// Standard deviation of the rewards, divided by n.
    pub deviation: f32,
    /// Mean length, in generated tokens.
    pub tokens: f32,
    /// Whether all rewards were equal.
    pub flat: bool,
}

impl Visit {
    fn of(group: &Group, from: usize) -> Option<Self> {
        let rewards = &group.rewards[from..];
        let first = *rewards.first()?;
        let n = rewards.len() as f64;
        let mean = rewards.iter().map(|r| f64::from(*r)).sum::<f64>() / n;
        let flat = rewards.iter().all(|r| *r == first);
        let squares = rewards.iter().map(|r| (f64::from(*r) - mean).powi(2)).sum::<f64>();
        Some(Self {
            prompt: group.prompt,
            rollouts: rewards.len() as u32,
            correct: group.correct[from..].iter().filter(|c| **c).count() as u32,
            mean: mean as f32,
            deviation: if flat { 0.0 } else { (squares / n).sqrt() as f32 },
            tokens: (group.tokens[from..].iter().map(|t| f64::from(*t)).sum::<f64>() / n) as f32,
            flat,
        })
    }

    /// Whether all were correct (`Some(true)`), none was (`Some(false)`), or some were.
    fn outcome(rollouts: u32, correct: u32) -> Option<bool> {
        if correct == 0 { Some(false) } else { (correct == rollouts).then_some(true) }
    }

    /// This visit as the prompt's last, after what came before it.
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
            epochs: BTreeMap::new(),
            sampled: 0,
        }
    }

    /// Whether a prompt has buffered rollouts, scorable or not.
    pub fn holds(&self, prompt: PromptId) -> bool {
        self.places.contains_key(&prompt)
    }

    /// The next free position among a prompt's rollouts at the weights of now.
    pub fn next_position(&self, prompt: PromptId) -> u32 {
        self.drawn.get(&prompt).copied().unwrap_or(0)
    }

    /// Buffered groups, as a policy sees them: none of them empty.
    pub fn groups(&self) -> Vec<Group> {
        self.shown().cloned().collect()
    }

    /// The same, without a copy.
    pub fn shown(&self) -> impl Iterator<Item = &Group> {
        self.held.iter().map(|held| &held.group).filter(|group| !group.is_empty())
    }

    /// Rollouts of this step that could not be scored, by prompt.
    pub fn unscored(&self) -> Vec<Tally> {
        let some = self.held.iter().filter(|held| held.unscored > 0);
        some.map(|held| Tally { prompt: held.group.prompt, rollouts: held.unscored }).collect()
    }

    /// Prompts that have buffered rollouts, the last so many of the run left out.
    pub fn prompts_before(&self, last: u64) -> impl Iterator<Item = PromptId> {
        let end = RolloutId(self.sampled - last);
        let before = move |held: &&Held| held.ids.first().is_some_and(|first| *first < end);
        self.held.iter().filter(before).map(|held| held.group.prompt)
    }

    /// Buffered rollouts of groups whose rewards are all equal.
    pub fn flat(&self) -> impl Iterator<Item = RolloutId> {
        self.held.iter().filter(|h| h.group.flat()).flat_map(|h| h.ids.iter().copied())
    }

    /// The group of a buffered prompt.
    pub fn group(&self, prompt: PromptId) -> Option<&Group> {
        self.places.get(&prompt).map(|place| &self.held[*place].group)
    }

    /// The number of a buffered rollout, by its position in its group's lists.
    pub fn rollout(&self, prompt: PromptId, position: usize) -> Option<RolloutId> {
        self.places.get(&prompt).and_then(|place| self.held[*place].ids.get(position).copied())
    }

    /// Buffered rollouts that a policy can see.
    pub fn rollouts(&self) -> u64 {
        self.held.iter().map(|h| h.ids.len() as u64).sum()
    }

    /// Opens a step: what is buffered now was held from earlier ones.
    pub fn open_step(&mut self) {
        for held in &mut self.held {
            held.before = held.group.len() as u32;
            held.unscored = 0;
        }
    }

    /// Rollouts of a prompt are to come, which are of this epoch if they are its first.
    pub fn expect(&mut self, prompt: PromptId, epoch: u32) {
        self.epochs.insert(prompt, epoch);
    }

    /// Puts rollouts in the buffer, in the order they were granted, and gives the first one's
    /// number. A reward or signal that is not finite makes a rollout unscorable.
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
            held.group.ages.push(0);
            held.group.truncated.push(outcome.truncated);
            held.group.sampled(outcome.sampling);
            for (list, signal) in held.group.signals.iter_mut().zip(outcome.signals) {
                list.push(signal);
            }
        }
        first
    }

    /// Counts rollouts that could not be scored, without a look at each.
    pub fn add_unscorable(&mut self, prompt: PromptId, count: u32) {
        self.sampled = self.sampled.saturating_add(u64::from(count));
        let place = self.place(prompt, count);
        self.held[place].unscored += count;
    }

    /// Where a prompt's rollouts lie, after `drawn` more of them.
    fn place(&mut self, prompt: PromptId, drawn: u32) -> usize {
        let next = self.drawn.entry(prompt).or_default();
        *next = next.saturating_add(drawn);
        let epoch = self.epochs.remove(&prompt).unwrap_or_default();
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
                },
                ids: Vec::new(),
                before: 0,
                unscored: 0,
            });
            self.held.len() - 1
        })
    }

    /// Ends a step: lets go what was trained on, what no plan held and what grew too old. The batch
    /// is legal. `updated` tells whether the model changed, by which rollouts age.
    pub fn settle(&mut self, batch: &Batch, updated: bool, max_age: u32) -> Settled {
        let mut settled = Settled::default();
        let mut picked: HashMap<PromptId, Vec<bool>> = HashMap::new();
        for pick in &batch.picks {
            let Some(place) = self.places.get(&pick.prompt) else { continue };
            let held = &self.held[*place];
            let positions = pick.positions(held.ids.len());
            settled.trained.extend(positions.iter().map(|i| held.ids[*i]));
            let mut used = vec![false; held.ids.len()];
            for i in positions {
                used[i] = true;
            }
            picked.insert(pick.prompt, used);
        }
        let hold: HashMap<PromptId, &Hold> = batch.hold.iter().map(|hold| (hold.prompt, hold)).collect();

        if updated {
            self.drawn.clear();
        }
        let mut kept = Vec::new();
        for mut held in std::mem::take(&mut self.held) {
            let prompt = held.group.prompt;
            settled.visits.extend(Visit::of(&held.group, held.before as usize));
            let used = picked.remove(&prompt).unwrap_or_default();
            if updated {
                held.group.ages.iter_mut().for_each(|age| *age += 1);
            }
            let stays = hold.get(&prompt).map_or(vec![false; held.ids.len()], |hold| hold.of(held.ids.len()));
            let keep: Vec<bool> = (0..held.ids.len())
                .map(|i| {
                    if used.get(i) == Some(&true) {
                        return false;
                    }
                    if !stays[i] {
                        settled.released.push(held.ids[i]);
                        return false;
                    }
                    if held.group.ages[i] > max_age {
                        settled.stale.push(held.ids[i]);
                        return false;
                    }
                    true
                })
                .collect();
            held.retain(&keep);
            if !held.ids.is_empty() {
                settled.held += held.ids.len() as u64;
                kept.push(held);
            }
        }
        self.held = kept;
        self.index();
        settled
    }

    /// Finds places again; to be called after a buffer was read back.
    pub fn index(&mut self) {
        self.places = self.held.iter().enumerate().map(|(place, held)| (held.group.prompt, place)).collect();
    }
}

impl Held {
    fn retain(&mut self, keep: &[bool]) {
        fn only<T>(list: &mut Vec<T>, keep: &[bool]) {
            let mut keep = keep.iter();
            list.retain(|_| *keep.next().expect("lists run in parallel"));
        }
        only(&mut self.ids, keep);
        only(&mut self.group.rewards, keep);
        only(&mut self.group.correct, keep);
        only(&mut self.group.tokens, keep);
        only(&mut self.group.ages, keep);
        only(&mut self.group.truncated, keep);
        self.group.signals.iter_mut().for_each(|list| only(list, keep));
        if !self.group.sampling.is_empty() {
            only(&mut self.group.sampling, keep);
        }
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
        assert_eq!((numbers(&settled.trained), numbers(&settled.released)), (vec![0], vec![1, 3]));
        assert_eq!(buffer.rollout(PromptId(5), 0), Some(RolloutId(2)));
    }

    #[test]
    fn a_prompt_let_go_without_an_update_is_not_drawn_the_same_way_again() {
        let mut buffer = buffer(&[(5, 1.0), (5, 0.0)]);
        buffer.settle(&Batch::default(), false, 9);
        assert!(!buffer.holds(PromptId(5)));
        assert_eq!(buffer.next_position(PromptId(5)), 2);
        buffer.settle(&Batch::default(), true, 9);
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
