//! Serves a plan's requests in portions: one portion of each request in order, then the next portion of
//! each unfinished request. A request without `until` is served completely in its first portion.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::{PromptId, Request};

/// The progress of a plan's requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Portions {
    /// Unfinished requests, in the plan's order.
    going: Vec<Going>,
    /// Rollouts received so far.
    came: u64,
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
}

impl Portions {
    /// Starts serving these requests.
    pub fn of(requests: &[Request]) -> Self {
        let going =
            requests.iter().map(|request| Going { request: request.clone(), correct: 0, wrong: 0 }).collect();
        Self { going, came: 0 }
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
        self.going.retain(|going| going.request.count > 0);
    }

    /// Records the rollouts of the last grant: their number, and whether each scored one is correct.
    pub fn came(&mut self, rollouts: u64, scored: impl IntoIterator<Item = (PromptId, bool)>) {
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
        self.going.retain(|going| !going.is_enough());
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
            Portions::of(&[until(1, 5, 1, 0, 2), Request::new(PromptId(2), 9), until(3, 4, 1, 1, 3)]);
        assert_eq!(due(&portions), [(1, 2), (2, 9), (3, 3)]);
        portions.granted(14);
        portions.came(14, [(PromptId(1), false), (PromptId(2), true), (PromptId(3), true)]);
        assert_eq!(due(&portions), [(1, 2), (3, 1)], "what is without an end of its own is served in whole");
        portions.granted(3);
        portions.came(3, [(PromptId(1), true), (PromptId(1), true), (PromptId(3), false)]);
        assert_eq!((due(&portions), portions.so_far()), (vec![], 17));
    }

    #[test]
    fn what_rollouts_continue_comes_with_their_portion() {
        let start = |rollout| Some(crate::Start { rollout, turn: 0 });
        let starts = vec![start(0), None, start(2)];
        let mut portions = Portions::of(&[Request { starts, ..until(1, 3, 9, 9, 2) }]);
        assert_eq!(portions.due()[0].starts, [start(0), None]);
        portions.granted(2);
        portions.came(2, []);
        assert_eq!(portions.due()[0].starts, [start(2)]);
    }

    #[test]
    fn a_rule_that_never_holds_ends_at_the_count() {
        let mut portions = Portions::of(&[until(1, 5, 6, 0, 2)]);
        let mut counts = Vec::new();
        while let [(_, n)] = due(&portions)[..] {
            counts.push(n);
            portions.granted(u64::from(n));
            portions.came(u64::from(n), (0..n).map(|_| (PromptId(1), true)));
        }
        assert_eq!(counts, [2, 2, 1]);
    }

    #[test]
    fn where_the_budget_ends_nothing_more_is_served() {
        let mut portions = Portions::of(&[until(1, 5, 6, 0, 2), until(2, 5, 6, 0, 2)]);
        portions.granted(3);
        portions.came(3, []);
        assert_eq!(due(&portions), []);
        let mut portions = Portions::of(&[Request::new(PromptId(2), 9)]);
        portions.granted(9);
        assert!(portions.are_none());
    }
}
