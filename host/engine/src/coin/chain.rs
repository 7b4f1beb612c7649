//! Episodes of the coin-flip world: chains of flips, one for each turn, which is right if all of them are.

use allot_allocation::{Stopped, TurnLength};
use serde::{Deserialize, Serialize};

/// Tokens that an environment says between two turns.
const REPLY: u32 = 8;

/// An answer of the coin-flip world.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flip {
    /// Whether it is right.
    pub right: bool,
    /// Its turns, if it is an episode.
    pub chain: Option<Box<Chain>>,
}

/// The turns of an episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// Those that it keeps of another episode.
    pub(super) kept: Vec<Link>,
    /// Its own.
    pub(super) own: Vec<Link>,
    /// Why it stopped.
    pub(super) stopped: Stopped,
}

/// A turn: one flip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) right: bool,
    pub(super) tokens: u32,
}

/// How many turns an episode has and may have, and how many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Course {
    /// Turns to the end.
    pub(super) turns: u32,
    /// The limit of turns.
    pub(super) most: u32,
    /// Tokens of a turn.
    pub(super) each: u32,
    /// The limit of tokens, those of kept turns included.
    pub(super) longest: u32,
}

impl From<bool> for Flip {
    fn from(right: bool) -> Self {
        Self { right, chain: None }
    }
}

impl Flip {
    /// Returns what an episode keeps of this one up to one of its own turns.
    pub(super) fn keep(&self, turn: u32) -> Vec<Link> {
        let Some(chain) = &self.chain else { return Vec::new() };
        chain.kept.iter().chain(chain.own.iter().take(turn as usize + 1)).copied().collect()
    }
}

impl Chain {
    /// Flips the turns that follow those kept.
    pub(super) fn flip(kept: Vec<Link>, course: Course, mut right: impl FnMut() -> bool) -> Self {
        let Course { turns, most, each, longest } = course;
        let mut left = longest.saturating_sub(kept.iter().map(|link| link.tokens).sum());
        let mut own = Vec::new();
        let stopped = loop {
            match (kept.len() + own.len()) as u32 {
                n if n == turns => break Stopped::Done,
                n if n >= most => break Stopped::MaxTurns,
                _ if left == 0 => break Stopped::MaxTokens,
                _ => {}
            }
            let link = Link { right: right(), tokens: each.min(left) };
            left -= link.tokens;
            own.push(link);
            if link.tokens < each {
                break Stopped::MaxTokens;
            }
        };
        Self { kept, own, stopped }
    }

    /// Returns whether it came to its end and all flips are right.
    pub(super) fn is_right(&self) -> bool {
        self.stopped == Stopped::Done && self.kept.iter().chain(&self.own).all(|link| link.right)
    }

    /// Returns its own turns' tokens. The first reads what is kept, with the replies to it.
    pub(super) fn lengths(&self) -> Vec<TurnLength> {
        let before: u32 = self.kept.iter().map(|link| link.tokens + REPLY).sum();
        let read = std::iter::once(before).chain(std::iter::repeat(REPLY));
        self.own.iter().zip(read).map(|(link, read)| TurnLength(read, link.tokens)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COURSE: Course = Course { turns: 3, most: 8, each: 10, longest: 100 };

    #[test]
    fn a_chain_is_right_if_all_its_links_are_and_it_came_to_its_end() {
        let chain = |course, wrong: usize| {
            let mut n = 0;
            Chain::flip(Vec::new(), course, || {
                n += 1;
                n != wrong
            })
        };
        assert!(chain(COURSE, 9).is_right() && !chain(COURSE, 2).is_right());
        let short = chain(Course { most: 2, ..COURSE }, 9);
        assert_eq!((short.stopped, short.own.len(), short.is_right()), (Stopped::MaxTurns, 2, false));
        let cut = chain(Course { longest: 15, ..COURSE }, 9);
        assert_eq!((cut.stopped, cut.is_right()), (Stopped::MaxTokens, false));
        assert_eq!(cut.lengths(), [TurnLength(0, 10), TurnLength(REPLY, 5)]);
    }

    #[test]
    fn what_is_kept_is_read_and_decides_with() {
        let kept = vec![Link { right: true, tokens: 10 }, Link { right: false, tokens: 10 }];
        let whole = Chain::flip(kept.clone(), COURSE, || true);
        assert_eq!((whole.own.len(), whole.is_right()), (1, false));
        assert_eq!(whole.lengths(), [TurnLength(20 + 2 * REPLY, 10)]);
        let again = Flip { right: false, chain: Some(Box::new(whole)) };
        assert_eq!(again.keep(0)[..2], kept[..]);
        let cut = Chain::flip(kept, Course { longest: 20, ..COURSE }, || true);
        assert_eq!((cut.own.len(), cut.stopped), (0, Stopped::MaxTokens));
    }
}
