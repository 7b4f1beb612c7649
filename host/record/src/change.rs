//! Changes of a policy's state in a call. A policy that remembers every prompt has a state of hundreds of
//! kilobytes, and a call changes only a few bytes. Complete states would take up nearly all of a record.

use std::collections::HashMap;

use allot_allocation::rules::Bounds;
use serde::{Deserialize, Serialize};

use super::line::{hex, unhex};

/// A state, described relative to the state before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StateChange {
    /// The whole state, in hexadecimal.
    Whole(String),
    /// The pieces of the state, in order.
    Pieces(Vec<Piece>),
}

/// A piece of a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Piece {
    /// Bytes of the state before: `[offset, length]`.
    Kept(usize, usize),
    /// New bytes, in hexadecimal.
    New(String),
}

impl Piece {
    fn bytes(&self) -> usize {
        match self {
            Self::Kept(..) => 10,
            Self::New(text) => text.len() / 2,
        }
    }
}

/// States shorter than this, in bytes, are written whole, so that people can read them.
const SHORT: usize = 1 << 10;

/// Block size for searching the state before, in bytes. Shorter matches are written as new bytes.
const BLOCK: usize = 32;

impl StateChange {
    /// Returns the change from `before` to `after`, or `None` if they are equal.
    pub fn of(before: &[u8], after: &[u8]) -> Option<Self> {
        if before == after {
            return None;
        }
        let whole = || Self::Whole(hex(after));
        if after.len() < SHORT || before.len() < BLOCK {
            return Some(whole());
        }
        let Some(ranges) = ranges(before, after) else { return Some(whole()) };
        let piece = |range: &Range| match *range {
            Range::Kept { from, length } => Piece::Kept(from, length),
            Range::New { at, length } => Piece::New(hex(&after[at..at + length])),
        };
        Some(Self::Pieces(ranges.iter().map(piece).collect()))
    }

    /// Returns the approximate size of the change in bytes: the new bytes, plus 10 for each kept piece,
    /// whose two numbers take about as much space.
    pub fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Whole(text) => text.len() / 2,
            Self::Pieces(pieces) => pieces.iter().map(Piece::bytes).sum(),
        };
        bytes as u64
    }

    /// Returns the state after the change. `None` if the change has invalid hexadecimal, refers to bytes
    /// beyond the state before, or exceeds the maximum size of a state.
    pub fn apply(&self, before: &[u8]) -> Option<Vec<u8>> {
        let pieces = match self {
            Self::Whole(text) => return unhex(text),
            Self::Pieces(pieces) => pieces,
        };
        let mut after = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Kept(from, length) => {
                    after.extend_from_slice(before.get(*from..from.checked_add(*length)?)?);
                }
                Piece::New(text) => after.extend(unhex(text)?),
            }
            if after.len() > Bounds::default().state {
                return None;
            }
        }
        Some(after)
    }
}

/// A range of the state after a call.
#[derive(Clone, Copy)]
enum Range {
    Kept { from: usize, length: usize },
    New { at: usize, length: usize },
}

/// Returns the kept and new ranges of `after`, with the longest matches. `None` if over half is new.
fn ranges(before: &[u8], after: &[u8]) -> Option<Vec<Range>> {
    let mut blocks: HashMap<u64, usize> = HashMap::with_capacity(before.len() / BLOCK);
    for (i, block) in before.chunks_exact(BLOCK).enumerate() {
        blocks.entry(key(block)).or_insert(i * BLOCK);
    }
    let (mut all, mut at, mut told, mut new) = (Vec::new(), 0, 0, 0);
    // Position in `before` that continues the last match, if nothing was inserted or removed.
    let mut expected = 0;
    while at + BLOCK <= after.len() {
        let block = &after[at..at + BLOCK];
        let same = |from: &usize| before.get(*from..*from + BLOCK) == Some(block);
        let found = Some(expected).filter(same).or_else(|| blocks.get(&key(block)).copied().filter(same));
        let Some(from) = found else {
            (at, expected) = (at + 1, expected + 1);
            if new + at - told > after.len() / 2 {
                return None;
            }
            continue;
        };
        let earlier = before[..from].iter().rev().zip(after[told..at].iter().rev());
        let back = earlier.take_while(|(b, a)| b == a).count();
        let on = before[from..].iter().zip(&after[at..]).take_while(|(b, a)| b == a).count();
        if told < at - back {
            all.push(Range::New { at: told, length: at - back - told });
            new += at - back - told;
        }
        all.push(Range::Kept { from: from - back, length: back + on });
        (at, expected, told) = (at + on, from + on, at + on);
    }
    if told < after.len() {
        all.push(Range::New { at: told, length: after.len() - told });
        new += after.len() - told;
    }
    // A kept piece takes up to 20 characters, as many as 10 new bytes.
    (new + 10 * all.len() <= after.len() / 2).then_some(all)
}

/// Returns the first bytes of a block, the key for finding it.
fn key(block: &[u8]) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&block[..8]);
    u64::from_le_bytes(first)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(change: &StateChange) -> String {
        serde_json::to_string(change).unwrap()
    }

    /// A state with entries of fixed size, sorted by the prompt at their beginning.
    fn entries(of: impl IntoIterator<Item = (u32, f64)>) -> Vec<u8> {
        of.into_iter()
            .flat_map(|(id, value)| [&id.to_le_bytes()[..], &value.to_le_bytes()].concat())
            .collect()
    }

    #[test]
    fn a_short_state_is_told_whole_and_one_that_stays_is_not_told() {
        assert_eq!(StateChange::of(b"same", b"same"), None);
        assert_eq!(text(&StateChange::of(b"", &[0, 255]).unwrap()), r#""00ff""#);
        assert_eq!(text(&StateChange::of(&[7; 2000], &[]).unwrap()), r#""""#);
    }

    #[test]
    fn of_a_memory_of_prompts_a_call_tells_the_entries_that_it_changed_and_those_that_came() {
        let before = entries((0..12_000).map(|id| (2 * id, f64::from(id))));
        let mut after = before.clone();
        after[12 * 100 + 4..12 * 101].copy_from_slice(&0.5_f64.to_le_bytes());
        after.splice(12 * 7000..12 * 7000, entries([(13_999, 0.25)]));
        let change = StateChange::of(&before, &after).unwrap();
        // Coincidental matches are kept, too, such as the zeros at the beginning of both numbers.
        let told = r#"[[0,1210],"e03f",[1212,82788],"af360000000000000000d03f",[84000,60000]]"#;
        assert_eq!(text(&change), told);
        assert_eq!(change.apply(&before), Some(after));
        assert_eq!(change.bytes(), 44);
    }

    #[test]
    fn a_state_of_which_most_changes_is_told_whole() {
        let (before, after) = (entries((0..500).map(|id| (id, 0.3))), entries((0..500).map(|id| (id, 0.7))));
        assert_eq!(StateChange::of(&before, &after), Some(StateChange::Whole(hex(&after))));
    }

    #[test]
    fn pieces_that_do_not_fit_the_state_before_and_states_beyond_the_bound_are_refused() {
        let read = |text: &str| serde_json::from_str::<StateChange>(text).unwrap();
        let before = [1; 40];
        assert_eq!(read(r#"[[38,2],"02"]"#).apply(&before), Some(vec![1, 1, 2]));
        for text in
            [r"[[38,3]]", r"[[18446744073709551615,1]]", r"[[1,18446744073709551615]]", r#"["0"]"#, r#""zz""#]
        {
            assert_eq!(read(text).apply(&before), None, "{text}");
        }
        let often = StateChange::Pieces(vec![Piece::Kept(0, 1 << 20); 17]);
        assert_eq!(often.apply(&vec![0; 1 << 20]), None);
        for text in ["[[1]]", "[[1,2,3]]", "[[-1,2]]", "7", "[true]"] {
            assert!(serde_json::from_str::<StateChange>(text).is_err(), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        /// Bytes with few distinct values, so that pieces match in many places.
        #[test]
        fn whatever_was_cut_out_put_in_and_turned_around_comes_back(
            before in proptest::collection::vec(0_u8..3, 0..3000),
            edits in proptest::collection::vec((any::<u16>(), 0_usize..300, proptest::collection::vec(0_u8..3, 0..300)), 0..8),
        ) {
            let mut after = before.clone();
            for (at, cut, new) in edits {
                let at = usize::from(at) % (after.len() + 1);
                let end = (at + cut).min(after.len());
                after.splice(at..end, new);
                let by = at.min(after.len());
                after.rotate_left(by);
            }
            match StateChange::of(&before, &after) {
                None => prop_assert_eq!(before, after),
                Some(change) => {
                    let read: StateChange = serde_json::from_str(&text(&change)).unwrap();
                    prop_assert_eq!(&read, &change);
                    prop_assert_eq!(read.apply(&before), Some(after.clone()));
                    prop_assert!(change.bytes() <= after.len() as u64);
                }
            }
        }
    }
}
