//! Serves a plan's requests in portions: one portion of each request in order, then the next portion of
//! each unfinished request. A request without `until` is served completely in its first portion.
//!
//! With `retries`, rollouts that were lost to their environment are due again in the next portion, at most so
//! many times for each request. Each of them is granted and charged like any other.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::{PromptId, Request, Start};

/// The progress of a plan's requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Portions {
    /// Unfinished requests, in the plan's order.
    going: Vec<Going>,
    /// Rollouts received so far.
    came: u64,
    /// How often a request is served again what it lost.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    retries: u32,
}

/// An unfinished request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Going {
    /// The request. Its `count` is the number not granted yet.
    request: Request,
    /// Correct rollouts so far.
    correct: u32,
    /// Wrong rollouts so far.
    wrong: u32,
    /// How often it was served again what it lost.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    tries: u32,
}

impl Going {
    /// Returns the size of the next portion.
    fn due(&self) -> u32 {
        let Request { count, until, .. } = self.request;
        until.map_or(count, |enough| enough.portion.min(count))
    }

    /// Returns whether the request's `until` is met.
    fn is_enough(&self) -> bool {
        let enough = |until: crate::Enough| self.correct >= until.correct && self.wrong >= until.wrong;
        self.request.until.is_some_and(enough)
    }

    /// Adds lost rollouts to those that are not granted yet. `starts` is what each continued.
    fn retry(&mut self, starts: &[Option<Start>]) {
        let Request { count, starts: due, .. } = &mut self.request;
        if !due.is_empty() || starts.iter().any(Option::is_some) {
            due.resize(*count as usize, None);
            due.extend(starts);
        }
        *count += starts.len() as u32;
        self.tries += 1;
    }
}

impl Portions {
    /// Starts serving these requests. Each is served again what it lost, up to `retries` times.
    pub fn of(requests: &[Request], retries: u32) -> Self {
        let going = |request: &Request| Going { request: request.clone(), correct: 0, wrong: 0, tries: 0 };
        Self { going: requests.iter().map(going).collect(), came: 0, retries }
    }

    /// Returns the next portion of each unfinished request, in order.
    pub fn due(&self) -> Vec<Request> {
        self.going.iter().map(|going| going.request.first(going.due())).collect()
    }

    /// Records how many of the due rollouts were granted. If some were not, no more portions follow.
    pub fn granted(&mut self, rollouts: u64) {
        if rollouts < total(&self.due()) {
            self.going.clear();
        }
        for going in &mut self.going {
            let due = going.due();
            going.request.count -= due;
            let starts = &mut going.request.starts;
            starts.drain(..starts.len().min(due as usize));
        }
        let retries = self.retries;
        self.going.retain(|going| going.request.count > 0 || going.tries < retries);
    }

    /// Records the rollouts of the last grant: their number, whether each scored one is correct, and what each
    /// continued that was lost to its environment.
    pub fn came(
        &mut self,
        rollouts: u64,
        scored: impl IntoIterator<Item = (PromptId, bool)>,
        lost: impl IntoIterator<Item = (PromptId, Option<Start>)>,
    ) {
        self.came += rollouts;
        if self.going.is_empty() {
            return;
        }
        let mut places: HashMap<PromptId, &mut Going> =
            self.going.iter_mut().map(|going| (going.request.prompt, going)).collect();
        for (prompt, correct) in scored {
            if let Some(going) = places.get_mut(&prompt) {
                *(if correct { &mut going.correct } else { &mut going.wrong }) += 1;
            }
        }
        let mut again: HashMap<PromptId, Vec<Option<Start>>> = HashMap::new();
        lost.into_iter().for_each(|(prompt, start)| again.entry(prompt).or_default().push(start));
        for going in self.going.iter_mut().filter(|going| going.tries < self.retries) {
            if let Some(starts) = again.get(&going.request.prompt) {
                going.retry(starts);
            }
        }
        self.going.retain(|going| going.request.count > 0 && !going.is_enough());
    }

    /// Returns the number of rollouts received so far.
    pub fn so_far(&self) -> u64 {
        self.came
    }

    /// Returns whether no request is unfinished and no rollout has been received.
    pub fn are_none(&self) -> bool {
        self.going.is_empty() && self.came == 0
    }
}

/// Returns the number of rollouts in some requests.
pub fn total(requests: &[Request]) -> u64 {
    requests.iter().map(|request| u64::from(request.count)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Enough;

    fn until(prompt: u32, count: u32, correct: u32, wrong: u32, portion: u32) -> Request {
        let until = Some(Enough { correct, wrong, portion });
        Request { until, ..Request::new(PromptId(prompt), count) }
    }

    fn due(portions: &Portions) -> Vec<(u32, u32)> {
        portions.due().iter().map(|request| (request.prompt.0, request.count)).collect()
    }

    #[test]
    fn a_portion_of_each_then_another_of_each_that_still_goes_on() {
        let mut portions =
            Portions::of(&[until(1, 5, 1, 0, 2), Request::new(PromptId(2), 9), until(3, 4, 1, 1, 3)], 0);
        assert_eq!(due(&portions), [(1, 2), (2, 9), (3, 3)]);
        portions.granted(14);
        portions.came(14, [(PromptId(1), false), (PromptId(2), true), (PromptId(3), true)], []);
        assert_eq!(due(&portions), [(1, 2), (3, 1)], "what is without an end of its own is served in whole");
        portions.granted(3);
        portions.came(3, [(PromptId(1), true), (PromptId(1), true), (PromptId(3), false)], []);
        assert_eq!((due(&portions), portions.so_far()), (vec![], 17));
    }

    #[test]
    fn what_rollouts_continue_comes_with_their_portion() {
        let start = |rollout| Some(Start { rollout, turn: 0 });
        let starts = vec![start(0), None, start(2)];
        let mut portions = Portions::of(&[Request { starts, ..until(1, 3, 9, 9, 2) }], 0);
        assert_eq!(portions.due()[0].starts, [start(0), None]);
        portions.granted(2);
        portions.came(2, [], []);
        assert_eq!(portions.due()[0].starts, [start(2)]);
    }

    #[test]
    fn a_rule_that_never_holds_ends_at_the_count() {
        let mut portions = Portions::of(&[until(1, 5, 6, 0, 2)], 0);
        let mut counts = Vec::new();
        while let [(_, n)] = due(&portions)[..] {
            counts.push(n);
            portions.granted(u64::from(n));
            portions.came(u64::from(n), (0..n).map(|_| (PromptId(1), true)), []);
        }
        assert_eq!(counts, [2, 2, 1]);
    }

    #[test]
    fn where_the_budget_ends_nothing_more_is_served() {
        let mut portions = Portions::of(&[until(1, 5, 6, 0, 2), until(2, 5, 6, 0, 2)], 0);
        portions.granted(3);
        portions.came(3, [], []);
        assert_eq!(due(&portions), []);
        let mut portions = Portions::of(&[Request::new(PromptId(2), 9)], 0);
        portions.granted(9);
        assert!(portions.are_none());
    }

    #[test]
    fn what_was_lost_is_due_again_as_often_as_is_said() {
        let lost = |prompt, n: u32| (0..n).map(move |_| (PromptId(prompt), None));
        let mut portions = Portions::of(&[Request::new(PromptId(1), 4), Request::new(PromptId(2), 3)], 2);
        portions.granted(7);
        portions.came(7, [(PromptId(1), true)], lost(1, 3));
        assert_eq!(due(&portions), [(1, 3)], "nothing of prompt 2 was lost");
        portions.granted(3);
        portions.came(3, [], lost(1, 2));
        assert_eq!(due(&portions), [(1, 2)]);
        portions.granted(2);
        portions.came(2, [], lost(1, 2));
        assert_eq!((due(&portions), portions.so_far()), (vec![], 12), "twice, and no more");

        let mut portions = Portions::of(&[Request::new(PromptId(1), 4)], 0);
        portions.granted(4);
        portions.came(4, [], lost(1, 4));
        assert_eq!(due(&portions), []);
        let mut portions = Portions::of(&[Request::new(PromptId(1), 4)], 5);
        portions.granted(3);
        portions.came(3, [], lost(1, 3));
        assert_eq!(due(&portions), [], "the budget ended");
    }

    #[test]
    fn what_was_lost_continues_again_what_it_continued() {
        let start = |rollout| Some(Start { rollout, turn: 0 });
        let starts = vec![start(0), None, None, start(2)];
        let mut portions = Portions::of(&[Request { starts, ..until(1, 4, 9, 9, 2) }], 1);
        portions.granted(2);
        portions.came(2, [(PromptId(1), true)], [(PromptId(1), start(0))]);
        let due = |portions: &Portions| portions.due().remove(0);
        assert_eq!((due(&portions).count, due(&portions).starts), (2, vec![None, start(2)]));
        portions.granted(2);
        portions.came(2, [], []);
        assert_eq!((due(&portions).count, due(&portions).starts), (1, vec![start(0)]), "behind all others");
    }

    #[test]
    fn a_request_that_has_enough_asks_for_nothing_again() {
        let mut portions = Portions::of(&[until(1, 6, 1, 0, 2)], 3);
        portions.granted(2);
        portions.came(2, [(PromptId(1), true)], [(PromptId(1), None)]);
        assert_eq!(due(&portions), []);
    }
}
