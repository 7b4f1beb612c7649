//! The budget ledger. It counts rounds, rollouts and generated tokens. Limits in other measures (FLOPs,
//! seconds) reach it as a number of rollouts ([`Ledger::leave`]), or close it ([`Ledger::close`]).
//!
//! Sampling requires a [`Grant`], and only the ledger makes grants. For any plan: granted = sampled =
//! charged ≤ budget.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Budget, PromptId, Request, SamplerSettings, Start};

/// The limits of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Rounds of sampling in a step.
    pub rounds: u32,
    /// Rollouts in a step, if limited.
    pub step_rollouts: Option<u32>,
    /// Rollouts in the run, if limited.
    pub run_rollouts: Option<u64>,
    /// Generated tokens in the run, if limited.
    pub run_tokens: Option<u64>,
    /// The longest possible rollout, in generated tokens. A rollout is granted only while that many tokens
    /// are left, so a run never exceeds its token limit.
    pub longest: u32,
}

impl Limits {
    /// Returns the default limit of rollouts per step: in each round, 10× the rollouts that a uniform
    /// policy samples in a step. It catches mistaken requests and should never affect any other.
    pub fn rollouts_of_step(rounds: u32, groups: u32, rollouts: u32) -> u32 {
        rounds.saturating_mul(groups).saturating_mul(rollouts).saturating_mul(10)
    }
}

/// Rounds, rollouts and tokens spent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Rounds in the current step.
    pub rounds: u32,
    /// Rollouts in the current step.
    pub step_rollouts: u64,
    /// Rollouts in the run.
    pub run_rollouts: u64,
    /// Generated tokens in the run.
    pub run_tokens: u64,
}

/// Permission to sample some rollouts, once. Only a [`Ledger`] makes grants. A grant can't be copied, and
/// an engine takes it by value.
#[derive(Debug)]
#[must_use = "what was granted is to be sampled and charged"]
pub struct Grant {
    lines: Vec<GrantLine>,
}

/// Granted rollouts of one prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GrantLine {
    /// The prompt.
    pub prompt: PromptId,
    /// Position of the first rollout among the prompt's rollouts at the current weights.
    pub first: u32,
    /// Number of rollouts. At least 1.
    pub count: u32,
    /// Sampler settings. `None` means the run's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplerSettings>,
    /// Model updates since the first rollout of the prompt's buffered group was sampled. An environment starts
    /// alike for all rollouts of a group.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    pub begun: u32,
    /// What the rollouts continue, as in [`Request::starts`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<Option<Start>>,
}

/// Where a prompt's next rollouts are: their first position among the prompt's rollouts at the current weights,
/// and [`GrantLine::begun`].
pub type NextRollouts = (u32, u32);

impl GrantLine {
    /// Returns the length limit of this line's answers, in tokens, in a run with the limit `run`.
    pub fn longest(&self, run: u32) -> u32 {
        self.sampling.map_or(run, |own| own.max_tokens.min(run))
    }

    /// Returns the line's rollouts: the position of each, and what it continues.
    pub fn rollouts(&self) -> impl Iterator<Item = (u32, Option<Start>)> {
        let starts = self.starts.iter().copied().chain(std::iter::repeat(None));
        (self.first..self.first + self.count).zip(starts)
    }
}

impl Grant {
    /// Returns the granted rollouts, in the order of the requests.
    pub fn lines(&self) -> &[GrantLine] {
        &self.lines
    }

    /// Returns the number of granted rollouts.
    pub fn rollouts(&self) -> u64 {
        self.lines.iter().map(|line| u64::from(line.count)).sum()
    }

    /// Returns whether nothing was granted.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns a grant of the rollouts that are still missing. `is_there` says for an index in the grant
    /// whether that rollout exists already.
    pub fn without(self, is_there: impl Fn(usize) -> bool) -> Self {
        let (mut rest, mut place): (Vec<GrantLine>, usize) = (Vec::new(), 0);
        for line in &self.lines {
            let mut open: Option<GrantLine> = None;
            for (position, start) in line.rollouts() {
                if is_there(place) {
                    rest.extend(open.take());
                } else {
                    let none = || GrantLine { first: position, count: 0, starts: Vec::new(), ..*line };
                    let open = open.get_or_insert_with(none);
                    open.count += 1;
                    open.starts.extend((!line.starts.is_empty()).then_some(start));
                }
                place += 1;
            }
            rest.extend(open);
        }
        Self { lines: rest }
    }
}

/// An engine's deviation from its grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A rollout came back that was not granted, or it came twice. Holds the prompt and the position.
    NotGranted(PromptId, u32),
    /// Fewer rollouts came back than were granted. Holds the number missing.
    Missing(u64),
    /// A rollout is longer than the limit. Holds the prompt and the length, in tokens.
    TooLong(PromptId, u32),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGranted(prompt, position) => {
                write!(
                    f,
                    "the engine gave rollout {position} of prompt `{prompt}`, which was not granted or came twice"
                )
            }
            Self::Missing(n) => write!(f, "the engine gave {n} rollouts fewer than were granted"),
            Self::TooLong(prompt, tokens) => {
                write!(
                    f,
                    "the engine gave a rollout of prompt `{prompt}` with {tokens} tokens, past the length limit"
                )
            }
        }
    }
}

impl std::error::Error for Fault {}

/// The budget ledger of a run.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    limits: Limits,
    spent: Spent,
    /// The last grant, until it is charged.
    open: Vec<GrantLine>,
    /// Whether the run's budget is exhausted in a measure that the ledger does not count.
    #[serde(default)]
    closed: bool,
    /// Rollouts left under limits in other measures, if there are any.
    #[serde(skip)]
    spare: Option<u64>,
}

impl Ledger {
    /// Returns a ledger with nothing spent.
    pub fn new(limits: Limits) -> Self {
        Self { limits, spent: Spent::default(), open: Vec::new(), closed: false, spare: None }
    }

    /// Returns a ledger that starts with `spent` already spent.
    pub fn after(limits: Limits, spent: Spent) -> Self {
        Self { spent, ..Self::new(limits) }
    }

    /// Returns the amounts spent so far.
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// Returns the limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Opens a step: sets its rounds and rollouts back to 0.
    pub fn open_step(&mut self) {
        self.spare = None;
        self.spent.rounds = 0;
        self.spent.step_rollouts = 0;
    }

    /// Closes the ledger for good: the budget is exhausted in a measure that the ledger does not count.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Limits further grants to this many rollouts, for a limit in another measure. Valid until the next
    /// call or until a step opens.
    pub fn leave(&mut self, rollouts: Option<u64>) {
        self.spare = rollouts;
    }

    /// Returns the budget that is left, as a policy sees it.
    pub fn budget(&self) -> Budget {
        // The largest value means "no limit". A larger limit is shown as the largest value minus 1.
        let narrow = |n: Option<u64>| n.map_or(u32::MAX, |n| n.min(u64::from(u32::MAX) - 1) as u32);
        Budget {
            rounds: self.limits.rounds.saturating_sub(self.spent.rounds),
            step_rollouts: narrow(self.step_left()),
            run_rollouts: narrow(self.run_left()),
            run_tokens: left_of(self.limits.run_tokens, self.spent.run_tokens).unwrap_or(u64::MAX),
            run_flops: None,
        }
    }

    /// Returns the rollouts left in the step, if limited.
    fn step_left(&self) -> Option<u64> {
        left_of(self.limits.step_rollouts.map(u64::from), self.spent.step_rollouts)
    }

    /// Returns the rollouts left in the run, if limited: the minimum over the rollout limit, the token
    /// limit divided by the longest answer, and limits in other measures.
    fn run_left(&self) -> Option<u64> {
        if self.closed {
            return Some(0);
        }
        let by_number = left_of(self.limits.run_rollouts, self.spent.run_rollouts);
        let tokens = left_of(self.limits.run_tokens, self.spent.run_tokens);
        let by_tokens = tokens.map(|tokens| tokens / u64::from(self.limits.longest.max(1)));
        by_number.into_iter().chain(by_tokens).chain(self.spare).min()
    }

    /// Returns the rollouts left in the step and in the run. Ignores the token limit.
    fn by_number(&self) -> Option<u64> {
        let run = left_of(self.limits.run_rollouts, self.spent.run_rollouts);
        self.step_left().into_iter().chain(run).chain(self.spare).min()
    }

    /// Returns how many rollouts could be granted now.
    pub fn grantable(&self) -> u64 {
        self.step_left().into_iter().chain(self.run_left()).min().unwrap_or(u64::MAX)
    }

    /// Returns whether the run can sample nothing more, in this step or any later one.
    pub fn exhausted(&self) -> bool {
        self.run_left() == Some(0) || self.limits.step_rollouts == Some(0)
    }

    /// Grants the requests in order, as far as the budget allows, and counts one round. `next` says where
    /// a prompt's next rollouts are.
    pub fn grant(&mut self, asked: &[Request], next: impl Fn(PromptId) -> NextRollouts) -> Grant {
        self.spent.rounds += 1;
        self.grant_more(asked, next)
    }

    /// Grants requests without counting another round.
    pub fn grant_more(&mut self, asked: &[Request], next: impl Fn(PromptId) -> NextRollouts) -> Grant {
        debug_assert!(self.open.is_empty(), "the last grant was not charged");
        let mut left = if self.grantable() == 0 { 0 } else { self.by_number().unwrap_or(u64::MAX) };
        let mut tokens = left_of(self.limits.run_tokens, self.spent.run_tokens).unwrap_or(u64::MAX);
        let mut lines = Vec::with_capacity(asked.len());
        for request in asked {
            // The tokens left must cover answers of the maximum length.
            let longest = u64::from(request.longest(self.limits.longest).max(1));
            let count = left.min(tokens / longest).min(u64::from(request.count)) as u32;
            if count == 0 {
                break;
            }
            left -= u64::from(count);
            tokens -= u64::from(count) * longest;
            let Request { prompt, sampling, starts, .. } = request.first(count);
            let (first, begun) = next(prompt);
            lines.push(GrantLine { prompt, first, count, sampling, begun, starts });
            if count < request.count {
                break;
            }
        }
        self.open.clone_from(&lines);
        Grant { lines }
    }

    /// Returns the last grant, if it is not charged yet.
    pub fn open(&self) -> &[GrantLine] {
        &self.open
    }

    /// Returns the open grant again, for a run that is resumed after its process ended.
    pub fn reissue(&self) -> Grant {
        Grant { lines: self.open.clone() }
    }

    /// Checks the rollouts of the open grant before they are charged. `sampled` has each rollout's prompt,
    /// position in its group, and length in tokens, in the grant's order. Returns the rollouts and tokens.
    pub fn check(
        &self,
        sampled: impl IntoIterator<Item = (PromptId, u32, u32)>,
    ) -> Result<(u64, u64), Fault> {
        let mut expected = self
            .open
            .iter()
            .flat_map(|line| (0..line.count).map(move |i| (line, (line.prompt, line.first + i))));
        let (mut rollouts, mut tokens) = (0, 0);
        for (prompt, position, length) in sampled {
            let Some((line, _)) = expected.next().filter(|(_, place)| *place == (prompt, position)) else {
                return Err(Fault::NotGranted(prompt, position));
            };
            if length > line.longest(self.limits.longest) {
                return Err(Fault::TooLong(prompt, length));
            }
            rollouts += 1;
            tokens += u64::from(length);
        }
        let missing = expected.count();
        if missing > 0 {
            return Err(Fault::Missing(missing as u64));
        }
        Ok((rollouts, tokens))
    }

    /// Charges the rollouts of the open grant, after the same [`check`](Self::check). If the check fails,
    /// nothing is charged and the grant stays open.
    pub fn charge(&mut self, sampled: impl IntoIterator<Item = (PromptId, u32, u32)>) -> Result<(), Fault> {
        let (rollouts, tokens) = self.check(sampled)?;
        self.open.clear();
        self.spent.step_rollouts += rollouts;
        self.spent.run_rollouts += rollouts;
        self.spent.run_tokens += tokens;
        Ok(())
    }
}

fn left_of(limit: Option<u64>, spent: u64) -> Option<u64> {
    limit.map(|limit| limit.saturating_sub(spent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(run: u64) -> Ledger {
        Ledger::new(Limits {
            rounds: 3,
            step_rollouts: Some(10),
            run_rollouts: Some(run),
            run_tokens: Some(100),
            longest: 5,
        })
    }

    fn ask(prompt: u32, count: u32) -> Request {
        Request::new(PromptId(prompt), count)
    }

    fn sample(grant: &Grant, tokens: u32) -> Vec<(PromptId, u32, u32)> {
        grant
            .lines()
            .iter()
            .flat_map(|l| (0..l.count).map(move |i| (l.prompt, l.first + i, tokens)))
            .collect()
    }

    #[test]
    fn serves_first_to_last_and_clips_the_rest() {
        let mut ledger = ledger(5);
        let grant = ledger.grant(&[ask(1, 3), ask(2, 3), ask(3, 3)], |_| (4, 2));
        let line = |prompt, count| GrantLine {
            prompt: PromptId(prompt),
            first: 4,
            count,
            sampling: None,
            begun: 2,
            starts: Vec::new(),
        };
        assert_eq!(grant.lines(), [line(1, 3), line(2, 2)]);
        ledger.charge(sample(&grant, 2)).expect("all of it was granted");
        assert_eq!(ledger.spent(), Spent { rounds: 1, step_rollouts: 5, run_rollouts: 5, run_tokens: 10 });
        assert!(ledger.exhausted());
    }

    #[test]
    fn the_longest_answer_must_fit_the_token_budget() {
        let mut ledger = ledger(1000);
        // 100 tokens at 5 each would be 20 rollouts; the step's 10 are fewer.
        let grant = ledger.grant(&[ask(1, 50)], |_| (0, 0));
        assert_eq!(grant.rollouts(), 10);
        ledger.charge(sample(&grant, 5)).expect("all of it was granted");
        ledger.open_step();
        let grant = ledger.grant(&[ask(1, 50)], |_| (10, 0));
        ledger.charge(sample(&grant, 5)).expect("all of it was granted");
        assert_eq!(ledger.budget().run_tokens, 0);
        assert!(ledger.exhausted());
    }

    #[test]
    fn answers_with_a_limit_of_their_own_are_reserved_by_it_and_keep_to_it() {
        let mut ledger = ledger(1000);
        let short = Some(SamplerSettings { temperature: 1.0, max_tokens: 2, max_turns: 1 });
        // 100 tokens: 4 short ones take 8 at most, and the step has 6 more.
        let grant = ledger.grant(&[Request { sampling: short, ..ask(1, 4) }, ask(2, 50)], |_| (0, 0));
        assert_eq!(grant.lines().iter().map(|line| line.count).collect::<Vec<_>>(), [4, 6]);
        let told = |first| {
            grant.lines().iter().flat_map(move |line| {
                (0..line.count).map(move |i| (line.prompt, i, if line.prompt.0 == 1 { first } else { 5 }))
            })
        };
        assert_eq!(ledger.check(told(3)), Err(Fault::TooLong(PromptId(1), 3)));
        assert_eq!(ledger.check(told(2)), Ok((10, 38)));
        let mut ledger = Ledger::new(Limits { step_rollouts: None, ..ledger.limits() });
        let grant = ledger.grant(&[Request { sampling: short, ..ask(1, 80) }], |_| (0, 0));
        assert_eq!(grant.rollouts(), 50, "2 tokens each, where others are reserved 5");
    }

    #[test]
    fn a_new_step_opens_the_step_budget_again() {
        let mut ledger = ledger(1000);
        let grant = ledger.grant(&[ask(1, 10)], |_| (0, 0));
        ledger.charge(sample(&grant, 1)).expect("all of it was granted");
        assert_eq!((ledger.grantable(), ledger.exhausted()), (0, false));
        ledger.open_step();
        assert_eq!((ledger.grantable(), ledger.budget().rounds), (10, 3));
    }

    #[test]
    fn closed_books_grant_nothing_and_show_that_nothing_is_left() {
        let mut ledger = ledger(1000);
        ledger.close();
        assert!(ledger.exhausted());
        assert_eq!((ledger.grantable(), ledger.budget().run_rollouts), (0, 0));
        assert!(ledger.grant(&[ask(1, 10)], |_| (0, 0)).is_empty());
    }

    #[test]
    fn what_other_measures_leave_is_all_that_is_granted_until_the_step_ends() {
        let mut ledger = ledger(1000);
        ledger.leave(Some(3));
        assert_eq!((ledger.grantable(), ledger.budget().run_rollouts), (3, 3));
        let grant = ledger.grant(&[ask(1, 2), ask(2, 2)], |_| (0, 0));
        assert_eq!(grant.rollouts(), 3);
        ledger.charge(sample(&grant, 1)).expect("all of it was granted");
        ledger.leave(Some(0));
        assert!(ledger.exhausted());
        ledger.open_step();
        assert_eq!((ledger.grantable(), ledger.exhausted()), (10, false));
    }

    #[test]
    fn what_is_there_of_a_grant_is_not_granted_again() {
        let mut ledger = ledger(1000);
        let grant = ledger.grant(&[ask(1, 4), ask(2, 2), ask(3, 3)], |_| (5, 0));
        let line = |prompt, first, count| GrantLine {
            prompt: PromptId(prompt),
            first,
            count,
            sampling: None,
            begun: 0,
            starts: Vec::new(),
        };
        let rest = grant.without(|place| [1, 4, 5, 6].contains(&place));
        assert_eq!(rest.lines(), [line(1, 5, 1), line(1, 7, 2), line(3, 6, 2)]);
        assert_eq!(ledger.reissue().lines(), [line(1, 5, 4), line(2, 5, 2), line(3, 5, 3)]);
        assert!(ledger.reissue().without(|_| true).is_empty());
    }

    #[test]
    fn each_rollout_of_a_grant_keeps_what_it_continues() {
        let start = |rollout| Some(Start { rollout, turn: 0 });
        let starts = vec![start(1), None, start(2), start(3)];
        let grant = ledger(3).grant(&[Request { starts, ..ask(1, 4) }], |_| (5, 0));
        let of = |grant: &Grant| grant.lines().iter().flat_map(GrantLine::rollouts).collect::<Vec<_>>();
        assert_eq!(of(&grant), [(5, start(1)), (6, None), (7, start(2))], "clipped to what is left");
        assert_eq!(of(&grant.without(|place| place == 1)), [(5, start(1)), (7, start(2))]);
    }

    #[test]
    fn an_engine_that_gives_something_else_is_told_so() {
        let wrong = |change: fn(&mut Vec<(PromptId, u32, u32)>)| {
            let mut ledger = ledger(1000);
            let grant = ledger.grant(&[ask(1, 2)], |_| (0, 0));
            let mut sampled = sample(&grant, 1);
            change(&mut sampled);
            ledger.charge(sampled).expect_err("the engine did something else")
        };
        assert_eq!(wrong(|s| s.truncate(1)), Fault::Missing(1));
        assert_eq!(wrong(|s| s[1].1 = 0), Fault::NotGranted(PromptId(1), 0));
        assert_eq!(wrong(|s| s.push((PromptId(1), 2, 1))), Fault::NotGranted(PromptId(1), 2));
        assert_eq!(wrong(|s| s[0].2 = 6), Fault::TooLong(PromptId(1), 6));
    }
}
