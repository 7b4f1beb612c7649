//! Levels: the difficulty of a problem, and the problem for a list of choices.

use serde::{Deserialize, Serialize};

use super::chain::{Chain, Operator};
use super::{Exercise, Style, TaskKind, calculator, countdown, guess, sorting};

/// A level of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Number of terms of a problem.
    #[serde(default = "two")]
    pub terms: Range,
    /// Number of digits of each number. In sums, products and chains all numbers have exactly this many,
    /// and one-digit numbers include 0, as in reasoning-gym. In countdowns and sortings this is the
    /// maximum; the numbers of a countdown are at least 1.
    #[serde(default = "one")]
    pub digits: Range,
    /// Operators between the numbers of a chain, by default + - *, or those for the solution of a
    /// countdown, by default + - * /. Other kinds have no choice.
    pub operators: Option<Vec<Operator>>,
    /// Range of a countdown's target; by default 1 to 100, as in TinyZero's data.
    pub target: Option<Range>,
    /// How many numbers the hidden one of a guess may be, by default 16, or as many as there are. All have at most
    /// `digits` digits.
    pub span: Option<Range>,
    /// Calls of the tool of a guess or a calculator, by default 4.
    pub calls: Option<Range>,
    /// Number of problems at this level, if it is not the task's count.
    pub count: Option<usize>,
}

/// One number, or a range with both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a whole number, or a range as in [2, 4]")]
pub enum Range {
    /// One number.
    One(u32),
    /// From the first to the second number.
    Span([u32; 2]),
}

impl Range {
    /// Both ends.
    pub fn ends(self) -> (u32, u32) {
        match self {
            Self::One(n) => (n, n),
            Self::Span([from, to]) => (from, to),
        }
    }
}

fn one() -> Range {
    Range::One(1)
}

fn two() -> Range {
    Range::One(2)
}

/// A number of terms and a number of digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub terms: u32,
    pub digits: u32,
}

impl Level {
    /// Checks that problems of a kind can be drawn at this level. The error is the reason.
    pub(super) fn check(&self, kind: TaskKind) -> Result<(), String> {
        let (terms, digits) = (self.terms.ends(), self.digits.ends());
        let (most_terms, most_digits) = match kind {
            TaskKind::Sums | TaskKind::Products | TaskKind::Chains => (100, 18),
            TaskKind::Countdown => (8, 4),
            TaskKind::Sorting => (1000, 18),
            TaskKind::Guess => (2, 6),
            TaskKind::Calculator => (16, 6),
        };
        let ranges = [
            ("terms", terms, 2, most_terms),
            ("digits", digits, 1, most_digits),
            ("target", self.target.map_or((1, 1), Range::ends), 0, u32::MAX),
            // Of the fewest digits that a problem may have.
            ("span", self.span(), 1, power(digits.0.min(6)) as u32),
            ("calls", self.calls(), 0, 64),
        ];
        for (key, (from, to), least, most) in ranges {
            if from > to {
                return Err(format!("`{key}` goes from {from} to {to}; expected the smaller number first"));
            }
            if from < least || to > most {
                return Err(format!("`{key}` of {kind} must be from {least} to {most}, not {from} to {to}"));
            }
        }
        let known = match (kind, &self.operators) {
            (_, None) => true,
            (TaskKind::Chains, Some(all)) => !all.is_empty() && !all.contains(&Operator::Over),
            (TaskKind::Countdown, Some(all)) => !all.is_empty(),
            (_, Some(_)) => return Err(format!("`operators` is for chains and countdowns, not for {kind}")),
        };
        if !known {
            return Err(format!("`operators` of {kind} must have at least one of {}", choice(kind)));
        }
        if self.target.is_some() && kind != TaskKind::Countdown {
            return Err(format!("`target` is for countdowns, not for {kind}"));
        }
        if self.span.is_some() && kind != TaskKind::Guess {
            return Err(format!("`span` is for guesses, not for {kind}"));
        }
        if self.calls.is_some() && !kind.is_played() {
            return Err(format!("`calls` is for guesses and calculators, not for {kind}"));
        }
        // Limited by 128-bit numbers, with space for a sum of products.
        let multiplies = self.operators(kind).contains(&Operator::Times) && kind != TaskKind::Countdown;
        if multiplies && terms.1 * digits.1 > 36 {
            return Err(format!("a product of {} numbers of {} digits is too long", terms.1, digits.1));
        }
        Ok(())
    }

    /// Returns the least and the greatest count of numbers that a hidden one may be.
    fn span(&self) -> (u32, u32) {
        let usual = 16.min(power(self.digits.ends().0.min(6)) as u32);
        self.span.map_or((usual, usual), Range::ends)
    }

    /// Returns the least and the greatest number of calls.
    fn calls(&self) -> (u32, u32) {
        self.calls.map_or((4, 4), Range::ends)
    }

    /// Returns the operators of a kind at this level.
    fn operators(&self, kind: TaskKind) -> &[Operator] {
        use Operator::{Minus, Over, Plus, Times};
        match (kind, &self.operators) {
            (TaskKind::Sums | TaskKind::Sorting | TaskKind::Guess | TaskKind::Calculator, _) => &[Plus],
            (TaskKind::Products, _) => &[Times],
            (_, Some(given)) => given,
            (TaskKind::Chains, None) => &[Plus, Minus, Times],
            (TaskKind::Countdown, None) => &[Plus, Minus, Times, Over],
        }
    }

    /// Returns the shapes of the level's problems.
    pub(super) fn shapes(&self) -> impl Iterator<Item = Shape> {
        let (terms, digits) = (self.terms.ends(), self.digits.ends());
        (terms.0..=terms.1)
            .flat_map(move |terms| (digits.0..=digits.1).map(move |digits| Shape { terms, digits }))
    }

    /// Returns the number of options of each choice that makes a problem of this shape.
    pub(super) fn radices(&self, kind: TaskKind, shape: Shape) -> Vec<usize> {
        let terms = shape.terms as usize;
        let operators = self.operators(kind).len();
        // Each of exactly so many digits.
        let numbers = std::iter::repeat_n((power(shape.digits) - least(shape.digits)) as usize, terms);
        match kind {
            TaskKind::Sums | TaskKind::Products | TaskKind::Chains => {
                numbers.chain(std::iter::repeat_n(operators, terms - 1)).collect()
            }
            TaskKind::Countdown => countdown::radices(terms, power(shape.digits) as usize - 1, operators),
            TaskKind::Calculator => {
                let (fewest, most) = self.calls();
                std::iter::once((most - fewest + 1) as usize).chain(numbers).collect()
            }
            TaskKind::Guess => guess::radices(self.span(), self.calls(), power(shape.digits) as u32),
            TaskKind::Sorting => {
                // The direction, then the numbers.
                std::iter::once(2).chain(std::iter::repeat_n(power(shape.digits) as usize, terms)).collect()
            }
        }
    }

    /// Returns the problem for these choices, if they give one.
    pub(super) fn exercise(
        &self,
        kind: TaskKind,
        shape: Shape,
        choices: &[usize],
        style: Style,
    ) -> Option<Exercise> {
        match kind {
            TaskKind::Sums | TaskKind::Products | TaskKind::Chains => {
                let (numbers, signs) = choices.split_at(shape.terms as usize);
                let least = i128::from(least(shape.digits));
                let chain = Chain {
                    numbers: numbers.iter().map(|n| *n as i128 + least).collect(),
                    operators: signs.iter().map(|sign| self.operators(kind)[*sign]).collect(),
                };
                Some(Exercise {
                    terse: chain.terse(),
                    words: chain.words(),
                    gold: chain.value()?.to_string(),
                    essence: chain.essence(),
                })
            }
            TaskKind::Countdown => {
                let target = self.target.map_or((1, 100), Range::ends);
                let range = i64::from(target.0)..=i64::from(target.1);
                countdown::exercise(choices, shape.terms as usize, self.operators(kind), &range)
            }
            TaskKind::Calculator => {
                let (calls, numbers) = choices.split_first()?;
                let numbers = numbers.iter().map(|n| *n as u32 + least(shape.digits) as u32).collect();
                calculator::exercise(numbers, self.calls().0 + *calls as u32, style)
            }
            TaskKind::Sorting => Some(sorting::exercise(choices, style)),
            TaskKind::Guess => {
                guess::exercise(choices, (self.span().0, self.calls().0), power(shape.digits) as u32, style)
            }
        }
    }
}

fn choice(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::Countdown => "\"+\", \"-\", \"*\" and \"/\"",
        _ => "\"+\", \"-\" and \"*\"",
    }
}

/// Returns how many numbers have at most this many digits, 0 included.
fn power(digits: u32) -> u64 {
    10_u64.pow(digits)
}

/// Returns the least number with this many digits: reasoning-gym's special case for 1 digit (chain_sum.py).
fn least(digits: u32) -> u64 {
    if digits == 1 { 0 } else { power(digits - 1) }
}
