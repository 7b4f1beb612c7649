//! The pool: the prompts on offer, drawn from the data set in order, epoch after epoch.
//!
//! The pool also stores the outcomes of past visits and the evicted prompts. The cost of making a view is
//! proportional to the size of the pool and independent of the size of the data set.

use std::collections::{BTreeSet, HashSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::{History, Prompt, PromptId, RolloutBuffer, Visit, seed};

/// The order of prompts in an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// A new permutation each epoch, from the run's seed.
    Shuffled,
    /// The order of the data set.
    Sequential,
}

/// The prompts on offer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pool {
    seed: u64,
    order: Order,
    /// Number of prompts to have on offer.
    size: u32,
    /// Length of each prompt of the data set, in tokens.
    lengths: Vec<u32>,
    /// Where the data set is read next: the epoch and the index in it.
    epoch: u32,
    cursor: u32,
    /// The epoch's permutation, for a shuffled order. Computed again from the seed if it is missing.
    #[serde(skip)]
    permutation: Vec<u32>,
    #[serde(skip)]
    permuted_epoch: Option<u32>,
    offered: Vec<Prompt>,
    /// Prompts that had buffered rollouts when it was their turn, with their epoch. They come on offer once
    /// those rollouts have left the buffer.
    deferred: VecDeque<(PromptId, u32)>,
    /// Prompts that a plan put back, with their epoch, sorted by epoch. They come on offer again after the
    /// last prompt of their epoch.
    #[serde(default)]
    put_back: VecDeque<(PromptId, u32)>,
    evicted: BTreeSet<PromptId>,
    /// The newest epoch of any prompt offered so far.
    #[serde(default)]
    newest: u32,
    past: History,
    /// Number of prompts added by the last [`Pool::top_up`]: see [`Pool::newly_offered`].
    #[serde(skip)]
    fresh: usize,
}

impl Pool {
    /// Returns a pool of `size` prompts over a data set whose prompts have these lengths, in tokens.
    pub fn new(seed: u64, order: Order, size: u32, lengths: Vec<u32>) -> Self {
        Self {
            seed,
            order,
            size,
            lengths,
            epoch: 0,
            cursor: 0,
            permutation: Vec::new(),
            permuted_epoch: None,
            offered: Vec::new(),
            deferred: VecDeque::new(),
            put_back: VecDeque::new(),
            evicted: BTreeSet::new(),
            newest: 0,
            past: History::default(),
            fresh: 0,
        }
    }

    /// Returns the number of prompts in the data set.
    pub fn prompts(&self) -> u32 {
        self.lengths.len() as u32
    }

    /// Returns the prompts on offer, in order.
    pub fn offered(&self) -> &[Prompt] {
        &self.offered
    }

    /// Returns the prompts that the last [`top_up`](Self::top_up) added, in order. They are the end of
    /// [`offered`](Self::offered).
    pub fn newly_offered(&self) -> &[Prompt] {
        &self.offered[self.offered.len() - self.fresh..]
    }

    /// Adds prompts until the pool is full, or until the next prompt is already on offer or deferred. A
    /// prompt is listed at most once, so a small data set does not repeat in the pool.
    pub fn top_up(&mut self, buffer: &RolloutBuffer) {
        self.fresh = 0;
        if self.offered.len() >= self.size as usize {
            return;
        }
        let before = self.offered.len();
        let mut on_offer: HashSet<PromptId> = self.offered.iter().map(|p| p.id).collect();
        let mut waiting: HashSet<PromptId> = self.deferred.iter().map(|(id, _)| *id).collect();

        for _ in 0..self.deferred.len() {
            let Some((id, epoch)) = self.deferred.pop_front() else { break };
            if self.offered.len() < self.size as usize && !buffer.holds(id) {
                on_offer.insert(id);
                self.offer(id, epoch);
            } else {
                self.deferred.push_back((id, epoch));
            }
        }
        while self.offered.len() < self.size as usize {
            let Some((id, epoch)) = self.peek() else { break };
            if on_offer.contains(&id) || waiting.contains(&id) {
                break;
            }
            self.advance();
            if buffer.holds(id) {
                waiting.insert(id);
                self.deferred.push_back((id, epoch));
            } else {
                on_offer.insert(id);
                self.offer(id, epoch);
            }
        }
        self.fresh = self.offered.len() - before;
    }

    /// Removes prompts from the pool: those sampled, and those skipped until the next epoch.
    pub fn take(&mut self, prompts: impl IntoIterator<Item = PromptId>) {
        let taken: HashSet<PromptId> = prompts.into_iter().collect();
        if !taken.is_empty() {
            self.offered.retain(|p| !taken.contains(&p.id));
        }
    }

    /// Returns the newest epoch of any prompt offered so far.
    pub fn newest(&self) -> u32 {
        self.newest
    }

    /// Removes prompts from the pool until the rest of their epoch has been on offer.
    pub fn defer(&mut self, prompts: &[PromptId]) {
        for id in prompts {
            let Some(prompt) = self.offered.iter().find(|prompt| prompt.id == *id) else { continue };
            let place = self.put_back.partition_point(|(_, epoch)| *epoch <= prompt.epoch);
            self.put_back.insert(place, (*id, prompt.epoch));
        }
        self.take(prompts.iter().copied());
    }

    /// Removes prompts from the pool for the rest of the run.
    pub fn evict(&mut self, prompts: &[PromptId]) {
        if prompts.is_empty() {
            return;
        }
        self.evicted.extend(prompts);
        self.take(prompts.iter().copied());
        let evicted = &self.evicted;
        self.deferred.retain(|(id, _)| !evicted.contains(id));
        self.put_back.retain(|(id, _)| !evicted.contains(id));
    }

    /// Records the visits of a step.
    pub fn remember(&mut self, step: u32, visits: &[Visit]) {
        self.past.remember(step, visits);
    }

    /// Returns the outcomes of past visits.
    pub fn history(&self) -> &History {
        &self.past
    }

    /// Returns whether every prompt was evicted, so that the pool stays empty.
    pub fn is_spent(&self) -> bool {
        self.evicted.len() >= self.lengths.len()
    }

    fn offer(&mut self, id: PromptId, epoch: u32) {
        let past = self.past.of(id);
        self.newest = self.newest.max(epoch);
        self.offered.push(Prompt { id, epoch, tokens: self.lengths[id.0 as usize], past });
    }

    /// Returns the next prompt that was put back, if the rest of its epoch has been on offer.
    fn returned(&self) -> Option<(PromptId, u32)> {
        let over = |epoch| epoch < self.epoch || self.cursor as usize >= self.lengths.len();
        self.put_back.front().copied().filter(|(_, epoch)| over(*epoch))
    }

    /// Moves past the prompt returned by [`peek`](Self::peek).
    fn advance(&mut self) {
        if self.returned().is_some() {
            self.put_back.pop_front();
        } else {
            self.cursor += 1;
        }
    }

    /// Returns the next prompt that is not evicted, put back or from the data set. Moves the cursor to it.
    fn peek(&mut self) -> Option<(PromptId, u32)> {
        if self.is_spent() {
            return None;
        }
        loop {
            if let Some(returned) = self.returned() {
                return Some(returned);
            }
            if self.cursor as usize >= self.lengths.len() {
                self.cursor = 0;
                self.epoch += 1;
            }
            let id = PromptId(match self.order {
                Order::Sequential => self.cursor,
                Order::Shuffled => {
                    if self.permuted_epoch != Some(self.epoch) {
                        self.permutation = seed::order(self.seed, self.epoch, self.prompts());
                        self.permuted_epoch = Some(self.epoch);
                    }
                    self.permutation[self.cursor as usize]
                }
            });
            if !self.evicted.contains(&id) {
                return Some((id, self.epoch));
            }
            self.cursor += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;

    fn pool(prompts: u32, size: u32) -> Pool {
        Pool::new(1, Order::Sequential, size, vec![3; prompts as usize])
    }

    fn ids(pool: &Pool) -> Vec<(u32, u32)> {
        pool.offered().iter().map(|p| (p.id.0, p.epoch)).collect()
    }

    fn buffer_with(prompts: &[u32]) -> RolloutBuffer {
        let mut buffer = RolloutBuffer::new(0);
        buffer.open_step();
        for p in prompts {
            buffer.add(vec![Outcome::of(PromptId(*p), 0, 1.0, true)]);
        }
        buffer
    }

    #[test]
    fn tops_up_in_order_and_wraps_into_the_next_epoch() {
        let (mut pool, buffer) = (pool(5, 3), RolloutBuffer::new(0));
        pool.top_up(&buffer);
        assert_eq!(ids(&pool), [(0, 0), (1, 0), (2, 0)]);
        assert_eq!(pool.newly_offered().len(), 3);
        pool.take([PromptId(0), PromptId(1)]);
        pool.top_up(&buffer);
        assert_eq!(ids(&pool), [(2, 0), (3, 0), (4, 0)]);
        assert_eq!(pool.newly_offered().len(), 2);
        pool.take([PromptId(2)]);
        pool.top_up(&buffer);
        assert_eq!(ids(&pool), [(3, 0), (4, 0), (0, 1)]);
    }

    #[test]
    fn a_prompt_is_on_offer_once() {
        let (mut pool, buffer) = (pool(3, 10), RolloutBuffer::new(0));
        pool.top_up(&buffer);
        assert_eq!(ids(&pool), [(0, 0), (1, 0), (2, 0)]);
        pool.take([PromptId(0)]);
        pool.top_up(&buffer);
        assert_eq!(ids(&pool), [(1, 0), (2, 0), (0, 1)]);
    }

    #[test]
    fn a_prompt_on_hand_waits_for_its_turn() {
        let mut pool = pool(4, 2);
        pool.top_up(&buffer_with(&[0, 1]));
        assert_eq!(ids(&pool), [(2, 0), (3, 0)]);
        pool.take([PromptId(2), PromptId(3)]);
        pool.top_up(&buffer_with(&[1]));
        assert_eq!(ids(&pool), [(0, 0)], "1 waits still, and the next epoch's 0 is on offer already");
        pool.take([PromptId(0)]);
        pool.top_up(&RolloutBuffer::new(0));
        assert_eq!(ids(&pool), [(1, 0), (0, 1)]);
    }

    #[test]
    fn all_prompts_on_hand_leave_an_empty_pool() {
        let mut pool = pool(3, 2);
        let buffer = buffer_with(&[0, 1, 2]);
        pool.top_up(&buffer);
        pool.top_up(&buffer);
        assert_eq!(ids(&pool), []);
        pool.top_up(&RolloutBuffer::new(0));
        assert_eq!(ids(&pool), [(0, 0), (1, 0)]);
    }

    #[test]
    fn a_prompt_waits_once_even_if_its_next_epoch_comes_in_the_same_call() {
        // Two of three prompts are evicted: each further read is another epoch.
        let mut pool = pool(3, 5);
        pool.evict(&[PromptId(1), PromptId(2)]);
        pool.top_up(&buffer_with(&[0]));
        assert_eq!(ids(&pool), []);
        pool.top_up(&RolloutBuffer::new(0));
        assert_eq!(ids(&pool), [(0, 0)]);
    }

    #[test]
    fn an_evicted_prompt_never_comes_back() {
        let (mut pool, buffer) = (pool(3, 2), RolloutBuffer::new(0));
        pool.top_up(&buffer);
        pool.evict(&[PromptId(1)]);
        for _ in 0..5 {
            pool.top_up(&buffer);
            assert!(ids(&pool).iter().all(|(id, _)| *id != 1));
            pool.take([pool.offered()[0].id]);
        }
        pool.evict(&[PromptId(0), PromptId(2)]);
        pool.top_up(&buffer);
        assert!(pool.offered().is_empty());
    }

    #[test]
    fn a_skipped_prompt_comes_back_in_the_next_epoch() {
        let (mut pool, buffer) = (pool(2, 1), RolloutBuffer::new(0));
        pool.top_up(&buffer);
        pool.take([PromptId(0)]);
        pool.top_up(&buffer);
        assert_eq!(ids(&pool), [(1, 0)]);
        pool.take([PromptId(1)]);
        pool.top_up(&buffer);
        assert_eq!(ids(&pool), [(0, 1)]);
    }

    #[test]
    fn a_prompt_that_was_put_back_comes_again_at_the_end_of_its_epoch() {
        let (mut pool, buffer) = (pool(5, 2), RolloutBuffer::new(0));
        let mut seen = Vec::new();
        for put_back in [&[0, 1][..], &[], &[], &[0], &[], &[]] {
            pool.top_up(&buffer);
            seen.push(ids(&pool));
            pool.defer(&put_back.iter().map(|id| PromptId(*id)).collect::<Vec<_>>());
            pool.take(pool.offered().iter().map(|p| p.id).collect::<Vec<_>>());
        }
        assert_eq!(seen[0], [(0, 0), (1, 0)]);
        assert_eq!(seen[1], [(2, 0), (3, 0)]);
        assert_eq!(seen[2], [(4, 0), (0, 0)], "first put back, first on offer");
        assert_eq!(seen[3], [(1, 0), (0, 1)], "and then the next epoch");
        assert_eq!(seen[4], [(1, 1), (2, 1)]);
        assert_eq!(seen[5], [(3, 1), (4, 1)]);
    }

    #[test]
    fn prompts_that_are_put_back_again_and_again_keep_the_pool_full_and_are_on_offer_once() {
        let (mut pool, buffer) = (pool(5, 3), RolloutBuffer::new(0));
        for _ in 0..40 {
            pool.top_up(&buffer);
            assert_eq!(pool.offered().len(), 3);
            assert!(pool.offered().iter().all(|prompt| prompt.epoch == 0));
            pool.defer(&pool.offered().iter().map(|p| p.id).collect::<Vec<_>>());
        }
        pool.evict(&[PromptId(0), PromptId(1), PromptId(2), PromptId(3)]);
        pool.top_up(&buffer);
        assert_eq!(ids(&pool), [(4, 0)], "evicted wherever they stand");
    }

    #[test]
    fn a_shuffled_epoch_offers_each_prompt_once() {
        let mut pool = Pool::new(9, Order::Shuffled, 1, vec![1; 50]);
        let mut seen = BTreeSet::new();
        for _ in 0..50 {
            pool.top_up(&RolloutBuffer::new(0));
            let prompt = pool.offered()[0];
            assert_eq!(prompt.epoch, 0);
            seen.insert(prompt.id);
            pool.take([prompt.id]);
        }
        assert_eq!(seen.len(), 50);
    }
}
