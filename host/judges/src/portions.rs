//! A round's questions that wait for a process.
//!
//! Answers that are judged one by one are handed out in portions, whose size depends on what there is and on how long
//! answers take: no verdict may depend on it. Answers that are compared are handed out as the group that the run made.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::Notify;

use super::protocol::Question;
use super::workers::Batch;

/// A round's questions, and how many workers take them. The lock is never held across an await.
pub(crate) struct Portions {
    queue: Mutex<Queue>,
    /// Wakes workers that have found nothing, when more waits or when they are to go.
    changed: Notify,
    /// The most workers.
    most: usize,
}

#[derive(Default)]
struct Queue {
    /// Questions about answers that are judged one by one.
    waiting: VecDeque<(usize, Question)>,
    /// Answers that are asked about in a line of their own: a group, or one whose portion failed.
    whole: VecDeque<Batch>,
    workers: usize,
    /// Those of them that have found nothing.
    idle: usize,
}

/// What a worker asks about next.
pub(crate) enum Next {
    /// Answers that are judged one by one.
    Portion(Batch),
    /// One answer, or a group.
    Whole(Batch),
}

impl Portions {
    /// Returns an empty round for at most so many workers.
    pub fn new(most: usize) -> Self {
        Self { queue: Mutex::default(), changed: Notify::new(), most }
    }

    /// Returns whether no worker takes questions.
    pub fn is_unattended(&self) -> bool {
        self.queue().workers == 0
    }

    /// Returns whether there should be one more worker for what waits.
    pub fn lacks_worker(&self) -> bool {
        let mut queue = self.queue();
        let waits = queue.waiting.len() + queue.whole.len();
        queue.workers < waits && queue.joined(self.most)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a question. Returns whether there should be one more worker.
    pub fn add(&self, place: usize, question: Question) -> bool {
        let mut queue = self.queue();
        queue.waiting.push_back((place, question));
        self.changed.notify_waiters();
        queue.joined(self.most)
    }

    /// Adds a group. Returns whether there should be one more worker.
    pub fn add_whole(&self, group: Batch) -> bool {
        let mut queue = self.queue();
        queue.whole.push_back(group);
        self.changed.notify_waiters();
        queue.joined(self.most)
    }

    /// Returns what a worker asks about next, at most `size` answers unless it is a group. If nothing waits, it waits for what
    /// others may bring back; if all have found nothing, the worker counts as gone.
    pub async fn next(&self, size: usize) -> Option<Next> {
        self.queue().idle += 1;
        loop {
            // Made before it looks, so that it misses no change.
            let changed = self.changed.notified();
            if let Poll::Ready(next) = self.looked(size) {
                return next;
            }
            changed.await;
        }
    }

    /// Returns what an idle worker asks about next, none if it goes; pending if it is to wait.
    fn looked(&self, size: usize) -> Poll<Option<Next>> {
        let mut queue = self.queue();
        let next = queue.whole.pop_front().map(Next::Whole).or_else(|| {
            let portion = queue.portion(size);
            (!portion.is_empty()).then_some(Next::Portion(portion))
        });
        if next.is_none() && queue.idle < queue.workers {
            return Poll::Pending;
        }
        queue.idle -= 1;
        if next.is_none() {
            queue.workers -= 1;
            self.changed.notify_waiters();
        }
        Poll::Ready(next)
    }

    /// Returns a further portion of at most `size` answers for a worker that has one.
    pub fn further(&self, size: usize) -> Option<Batch> {
        Some(self.queue().portion(size)).filter(|portion| !portion.is_empty())
    }

    /// Takes back a portion that failed. Each of its answers is asked about by itself.
    pub fn apart(&self, portion: Batch) {
        self.queue().whole.extend(portion.into_iter().map(|one| vec![one]));
        self.changed.notify_waiters();
    }

    /// Takes back a portion that no process has judged.
    pub fn back(&self, portion: Batch) {
        let mut queue = self.queue();
        portion.into_iter().rev().for_each(|one| queue.waiting.push_front(one));
        self.changed.notify_waiters();
    }
}

impl Queue {
    fn joined(&mut self, most: usize) -> bool {
        let is_one = self.workers < most;
        self.workers += usize::from(is_one);
        is_one
    }

    /// Takes at most `size` answers, and of the last ones no more than what leaves as much for each other worker.
    fn portion(&mut self, size: usize) -> Batch {
        let size = size.min(self.waiting.len().div_ceil(self.workers.max(1)));
        self.waiting.drain(..size).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(batch: Option<Batch>) -> Vec<usize> {
        batch.into_iter().flatten().map(|(place, _)| place).collect()
    }

    /// What a worker gets that does not wait.
    fn next(round: &Portions, size: usize) -> Option<Next> {
        round.queue().idle += 1;
        let Poll::Ready(next) = round.looked(size) else { panic!("nothing waits, and others work") };
        next
    }

    #[test]
    fn workers_share_what_waits_and_what_comes_back_is_first() {
        let round = Portions::new(2);
        let joined: Vec<bool> = (0..10).map(|place| round.add(place, Question::default())).collect();
        assert_eq!(joined.iter().filter(|one| **one).count(), 2, "as many workers as there may be");
        let Some(Next::Portion(first)) = next(&round, 8) else { panic!("ten wait") };
        assert_eq!(places(Some(first)), [0, 1, 2, 3, 4], "half of it, for there are two workers");
        let further = round.further(2);
        assert_eq!(places(further.clone()), [5, 6]);
        round.back(further.unwrap_or_default());
        assert_eq!(places(round.further(1)), [5]);
        round.apart(vec![(1, Question::default()), (2, Question::default())]);
        for place in [1, 2] {
            let Some(Next::Whole(alone)) = next(&round, 8) else { panic!("it is to be asked about alone") };
            assert_eq!(places(Some(alone)), [place]);
        }
        assert_eq!(places(round.further(8)), [6, 7], "half of four");
        assert_eq!(places(round.further(8)), [8]);
        assert_eq!(places(round.further(8)), [9]);
    }

    #[tokio::test]
    async fn a_worker_that_finds_nothing_goes_with_the_last_and_takes_what_comes_back_until_then() {
        let round = Portions::new(2);
        assert!(round.add(0, Question::default()) && round.add(1, Question::default()));
        let Some(Next::Portion(first)) = round.next(1).await else { panic!("two wait") };
        assert!(round.next(1).await.is_some());
        let others = async {
            tokio::task::yield_now().await;
            round.apart(first);
            tokio::task::yield_now().await;
            assert!(round.next(1).await.is_none());
        };
        let waits = async {
            assert!(matches!(round.next(1).await, Some(Next::Whole(_))), "what another worker brought back");
            assert!(round.next(1).await.is_none());
        };
        tokio::join!(waits, others);
        assert!(round.add(2, Question::default()), "they have gone");
    }
}
