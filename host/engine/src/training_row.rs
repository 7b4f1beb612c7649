//! The training rows of a rollout: the sequences of tokens that its model read and wrote.
//!
//! A rollout has one row, unless its environment rewrites what was said, as agents that compact their history do, or asks
//! in between about something else, as agents with helpers do. A later row begins with all tokens of the request that
//! began it. They are read, also where the model generated them in another row: each generated token belongs to one
//! row, and is learned from once.

use std::iter::once;
use std::ops::Range;

use crate::episode::Turn;

/// A training row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrainingRow {
    /// The tokens that it begins with; none for the first, which begins with the prompt.
    pub beginning: Option<Vec<u32>>,
    /// All tokens after these.
    pub own: Vec<u32>,
    /// Ranges of `own` that were read, in order.
    pub read: Vec<Range<usize>>,
    /// Ranges of the rollout's generated tokens that belong to it, in order.
    pub generated: Vec<Range<usize>>,
}

impl TrainingRow {
    /// Returns the only row of a rollout that is no episode.
    pub fn of_answer(tokens: &[u32]) -> Self {
        Self { own: tokens.to_vec(), generated: once(0..tokens.len()).collect(), ..Self::default() }
    }

    /// Returns the rows of these turns, in which these tokens were generated. The first is there without a turn, too.
    pub fn of_turns(turns: &[Turn], tokens: &[u32]) -> Vec<Self> {
        let (mut rows, mut from) = (vec![Self::default()], 0);
        for turn in turns {
            let (at, to) = (turn.row as usize, from + turn.tokens as usize);
            if at == rows.len() {
                rows.push(Self { beginning: Some(turn.read.clone()), ..Self::default() });
            } else {
                rows[at].reads(&turn.read);
            }
            let row = &mut rows[at];
            row.own.extend(&tokens[from..to]);
            row.generated.push(from..to);
            from = to;
        }
        rows
    }

    fn reads(&mut self, tokens: &[u32]) {
        if !tokens.is_empty() {
            self.read.push(self.own.len()..self.own.len() + tokens.len());
            self.own.extend(tokens);
        }
    }

    /// Returns the number of tokens that the model generated in it.
    pub fn answer(&self) -> usize {
        self.generated.iter().map(ExactSizeIterator::len).sum()
    }

    /// Returns what belongs to its generated tokens, of a list of what belongs to all of the rollout's. An empty list has
    /// nothing for any token.
    pub fn gather<T: Copy>(&self, all: &[T]) -> Vec<T> {
        if all.is_empty() {
            return Vec::new();
        }
        self.generated.iter().flat_map(|range| all[range.clone()].iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_goes_on_after_another_has_its_own_tokens_in_order() {
        let turn = |row, read: &[u32], tokens| Turn { row, read: read.to_vec(), tokens };
        let turns = [turn(0, &[], 2), turn(1, &[1, 20, 7], 1), turn(0, &[3], 2), turn(1, &[4, 4], 1)];
        let rows = TrainingRow::of_turns(&turns, &[20, 21, 22, 23, 24, 25]);
        let first = TrainingRow {
            beginning: None,
            own: vec![20, 21, 3, 23, 24],
            read: once(2..3).collect(),
            generated: vec![0..2, 3..5],
        };
        let second = TrainingRow {
            beginning: Some(vec![1, 20, 7]),
            own: vec![22, 4, 4, 25],
            read: once(1..3).collect(),
            generated: vec![2..3, 5..6],
        };
        assert_eq!(second.gather(&[0, 1, 2, 3, 4, 5]), [2, 5]);
        assert_eq!((first.answer(), second.answer()), (4, 2));
        assert_eq!(rows, [first, second]);
    }

    #[test]
    fn a_rollout_without_turns_has_one_row() {
        assert_eq!(TrainingRow::of_turns(&[], &[]), [TrainingRow::default()]);
        let row = TrainingRow::of_answer(&[5, 6]);
        assert_eq!((row.own.as_slice(), row.gather(&[0.5, 0.25])), (&[5, 6][..], vec![0.5, 0.25]));
        assert!(row.gather::<f32>(&[]).is_empty());
    }
}
