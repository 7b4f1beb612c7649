//! Made views, groups, pasts and facts, for the tests of policies.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::bindings::rollout::allocation::facts::{Count, Measure, Prompts, TokenCosts};
use crate::types::{Budget, Group, Past, Prompt, PromptId, Stopped, Turn, View};

/// A view that opens the first step: these prompts on offer, nothing buffered, no limit.
pub fn view(pool: impl IntoIterator<Item = PromptId>) -> View {
    View {
        step: 0,
        round: 0,
        seed: 1,
        budget: Budget {
            rounds: u32::MAX,
            step_rollouts: u32::MAX,
            run_rollouts: u32::MAX,
            run_tokens: u64::MAX,
            run_flops: f64::MAX,
        },
        pool: pool.into_iter().map(prompt).collect(),
        groups: Vec::new(),
        unscored: Vec::new(),
        under_way: Vec::new(),
    }
}

/// A prompt never visited before, of the first epoch.
pub fn prompt(id: PromptId) -> Prompt {
    Prompt { id, epoch: 0, length: 10, past: None }
}

/// A fresh group whose rewards are its marks: 1 for a correct rollout, 0 for another.
pub fn group(prompt: PromptId, marks: &[u8]) -> Group {
    let rewards: Vec<f32> = marks.iter().map(|m| f32::from(*m)).collect();
    Group { correct: marks.iter().map(|m| *m == 1).collect(), ..rewarded(prompt, &rewards) }
}

/// A fresh group of these rewards; a rollout is correct from 1 on.
///
/// What only policies that need it are shown is empty: add `signals`, `parts`, `trained`, `sampling`, `turns`, `stopped`
/// and `origins` by `Group { trained: vec![1, 0], ..made::group(3, &[1, 0]) }`.
pub fn rewarded(prompt: PromptId, rewards: &[f32]) -> Group {
    let n = rewards.len();
    Group {
        prompt,
        epoch: 0,
        rewards: rewards.to_vec(),
        correct: rewards.iter().map(|r| *r >= 1.0).collect(),
        lengths: vec![10; n],
        ages: vec![0; n],
        truncated: vec![false; n],
        signals: Vec::new(),
        parts: Vec::new(),
        trained: Vec::new(),
        sampling: Vec::new(),
        turns: Vec::new(),
        stopped: Vec::new(),
        origins: Vec::new(),
    }
}

/// A fresh group of episodes, as [`group`], each with so many turns: of 5 tokens, the environment's 3 between them.
///
/// # Panics
/// If there are not as many numbers of turns as marks.
pub fn episodes(prompt: PromptId, marks: &[u8], turns: &[u32]) -> Group {
    assert_eq!(marks.len(), turns.len(), "one number of turns for each rollout");
    let turn = |i| Turn { read: if i == 0 { 0 } else { 3 }, tokens: 5 };
    Group {
        lengths: turns.iter().map(|n| 5 * n).collect(),
        turns: turns.iter().map(|n| (0..*n).map(turn).collect()).collect(),
        stopped: vec![Stopped::Done; marks.len()],
        origins: vec![None; marks.len()],
        ..group(prompt, marks)
    }
}

/// The only visit of a prompt: so many of `rollouts` correct, rewards as [`group`] makes them.
pub fn past(correct: u32, rollouts: u32) -> Past {
    let (n, p) = (f64::from(rollouts), f64::from(correct) / f64::from(rollouts));
    Past {
        step: 0,
        visits: 1,
        rollouts,
        correct,
        mean: p as f32,
        std: if rollouts < 2 { 0.0 } else { (p * (1.0 - p) * n / (n - 1.0)).sqrt() as f32 },
        mean_length: 10.0,
        streak: u32::from(correct == 0 || correct == rollouts),
        total_rollouts: rollouts,
        total_correct: correct,
    }
}

/// What [`facts`](crate::facts) answers from where a policy runs natively.
///
/// ```
/// use allot_policy::facts::{self, Count};
/// use allot_policy::made;
///
/// made::Facts::of(3).visited(1, made::past(4, 8)).column("level", &[1.0, 5.0, 2.0]).tell();
/// assert_eq!(facts::counts(Count::Correct, ..), [0, 4, 0]);
/// assert_eq!(facts::column("level", 1..3), [5.0, 2.0]);
/// ```
#[derive(Clone, Debug)]
pub struct Facts {
    /// Prompts in the data set.
    pub prompts: u32,
    /// The last visits of those that have one.
    pub past: BTreeMap<PromptId, Past>,
    /// Columns by name, the same number of numbers for each prompt.
    pub columns: BTreeMap<String, Vec<f32>>,
    /// What a token takes.
    pub costs: TokenCosts,
}

thread_local! {
    static TOLD: RefCell<Option<Facts>> = const { RefCell::new(None) };
}

impl Facts {
    /// Of a data set of so many prompts: never visited, without columns, and nothing costs anything.
    pub fn of(prompts: u32) -> Self {
        let costs = TokenCosts { reading: 0.0, generating: 0.0, learning: 0.0 };
        Self { prompts, past: BTreeMap::new(), columns: BTreeMap::new(), costs }
    }

    /// With the last visit of a prompt.
    pub fn visited(mut self, prompt: PromptId, past: Past) -> Self {
        self.past.insert(prompt, past);
        self
    }

    /// With a column: one number for each prompt, or as many for each as the column is wide.
    ///
    /// # Panics
    /// If the numbers are not the same number for each prompt.
    pub fn column(mut self, name: &str, numbers: &[f32]) -> Self {
        let even = numbers.len().is_multiple_of(self.prompts.max(1) as usize);
        assert!(even, "the column `{name}` has {} numbers for {} prompts", numbers.len(), self.prompts);
        self.columns.insert(name.to_owned(), numbers.to_vec());
        self
    }

    /// With what a token takes, in floating-point operations.
    pub fn costs(mut self, reading: f64, generating: f64, learning: f64) -> Self {
        self.costs = TokenCosts { reading, generating, learning };
        self
    }

    /// From now on the answers of this thread, which is a test.
    pub fn tell(self) {
        TOLD.set(Some(self));
    }

    fn each<T: Default>(&self, of: &Prompts, number: impl Fn(&Past) -> T) -> Vec<T> {
        self.ids(of).map(|id| self.past.get(&id).map(&number).unwrap_or_default()).collect()
    }

    fn ids(&self, of: &Prompts) -> impl Iterator<Item = PromptId> {
        let prompts = self.prompts;
        let (range, listed) = match of {
            Prompts::All => (0..prompts, &[][..]),
            Prompts::Between((first, end)) => {
                assert!(first <= end, "asked about the prompts from `{first}` up to `{end}`");
                (*first..*end, &[][..])
            }
            Prompts::Listed(listed) => (0..0, listed.as_slice()),
        };
        range.chain(listed.iter().copied()).inspect(move |id| {
            assert!(*id < prompts, "asked about prompt `{id}`, where the made facts have {prompts} prompts");
        })
    }
}

/// What the contract's interface has in a component, answered by what was told last.
pub(crate) mod host {
    use super::{Count, Facts, Measure, Prompts, TOLD, TokenCosts};

    pub(crate) fn counts(what: Count, of: &Prompts) -> Vec<u32> {
        told(|facts| {
            facts.each(of, |past| match what {
                Count::Visits => past.visits,
                Count::Step => past.step,
                Count::Rollouts => past.rollouts,
                Count::Correct => past.correct,
                Count::Streak => past.streak,
                Count::TotalRollouts => past.total_rollouts,
                Count::TotalCorrect => past.total_correct,
            })
        })
    }

    pub(crate) fn measures(what: Measure, of: &Prompts) -> Vec<f32> {
        told(|facts| {
            facts.each(of, |past| match what {
                Measure::Mean => past.mean,
                Measure::Std => past.std,
                Measure::MeanLength => past.mean_length,
            })
        })
    }

    pub(crate) fn column(name: &str, of: &Prompts) -> Vec<f32> {
        told(|facts| {
            let column = facts.columns.get(name);
            let column = column
                .unwrap_or_else(|| panic!("asked for the column `{name}`, which the made facts don't have"));
            let width = column.len() / facts.prompts.max(1) as usize;
            facts.ids(of).flat_map(|id| &column[id as usize * width..][..width]).copied().collect()
        })
    }

    pub(crate) fn costs() -> TokenCosts {
        told(|facts| facts.costs)
    }

    fn told<T>(ask: impl FnOnce(&Facts) -> T) -> T {
        let nothing = "a policy asked for facts: a test tells them by made::Facts::of(…).tell()";
        TOLD.with_borrow(|told| ask(told.as_ref().expect(nothing)))
    }
}
