//! How a policy's state changed in a call. A policy with a memory of every prompt has a state of hundreds of kilobytes, of
//! which a call changes a few bytes: written down whole each time, it would be nearly all of a record.

use std::collections::HashMap;

use allot_allocation::rules::Bounds;
use serde::{Deserialize, Serialize};

use super::line::{hex, unhex};

/// A state, told by what it was before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StateChange {
    /// All of it, in hexadecimal.
    Whole(String),
    /// Its pieces, in order.
    Pieces(Vec<Piece>),
}

/// A piece of a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Piece {
    /// So many bytes of the state before, from an offset on: `[offset, length]`.
    Kept(usize, usize),
    /// Other bytes, in hexadecimal.
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

/// States shorter than this are told whole, so that they can be read.
const SHORT: usize = 1 << 10;

/// The state before is looked through in blocks of so many bytes. What is kept in shorter pieces is told anew.
const BLOCK: usize = 32;

impl StateChange {
    /// The change from one state to another: none if they are the same. It follows from the two alone.
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

    /// About how many bytes it takes: those of a state, and ten for each piece that is kept, whose numbers take the place of
    /// as many.
    pub fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Whole(text) => text.len() / 2,
            Self::Pieces(pieces) => pieces.iter().map(Piece::bytes).sum(),
        };
        bytes as u64
    }

    /// The state after it. None if it is no hexadecimal, names bytes that the state before has not, or comes to more
    /// than a state may have.
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

/// A stretch of the state after a call.
#[derive(Clone, Copy)]
enum Range {
    Kept { from: usize, length: usize },
    New { at: usize, length: usize },
}

/// Both states side by side: what is kept, as long as it goes, and what is new between. None where more than half is new.
fn ranges(before: &[u8], after: &[u8]) -> Option<Vec<Range>> {
    let mut blocks: HashMap<u64, usize> = HashMap::with_capacity(before.len() / BLOCK);
    for (i, block) in before.chunks_exact(BLOCK).enumerate() {
        blocks.entry(key(block)).or_insert(i * BLOCK);
    }
    let (mut all, mut at, mut told, mut new) = (Vec::new(), 0, 0, 0);
    // Where the state before goes on if nothing moved since what was kept last.
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
    // A piece that is kept takes up to twenty letters, as ten bytes do.
    (new + 10 * all.len() <= after.len() / 2).then_some(all)
}

/// The first bytes of a block, by which it is looked up.
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

    /// A state of entries of so many bytes, sorted by the prompt that they begin with.
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
        // What is the same by chance, such as the zeros with which both numbers begin, is kept as well.
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

        /// Bytes of few kinds, so that pieces are found in many places.
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
