//! A hidden whole number between two bounds, and a tool that compares: the model calls it with a number and is told
//! what remains; then it answers. The number of calls is limited, so the order of calls matters: halving finds any of
//! 2^k numbers with k calls.
//!
//! | | Terse | In words |
//! |---|---|---|
//! | the question | `17-80*6:` | "… a whole number from 17 to 80 … at most 6 times …" |
//! | a call | `?48` | `compare 48` |
//! | its result | `17-48*5:` | "It is from 17 to 48. Calls left: 5." |
//! | the answer | `!37` | `answer 37` |
//!
//! A call of N says whether the number is at most N or above it. Anything else that the model says is no call: the
//! environment says so, which takes a call, too.

use allot_allocation::seed::Stream;
use serde::{Deserialize, Serialize};

use super::{Game, Most, Step, only_move};
use crate::style::Style;

/// A game, as in a problem's gold answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// The least number that it may be.
    pub low: u32,
    /// The greatest number that it may be.
    pub high: u32,
    /// Calls of the tool that are left.
    pub calls: u32,
    /// The style of the game's words.
    pub style: Style,
}

/// What is said, in words, to what is no call.
const NO_CALL: &str = "That is no call: reply `compare N` or `answer N`.";

/// A game under way.
#[derive(Clone, Copy, Debug)]
pub struct Guess {
    hidden: u32,
    left: Bounds,
}

/// What the model can do in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Call the tool with this number.
    Compare(u32),
    /// Answer with this number.
    Answer(u32),
}

impl Bounds {
    /// Returns the question.
    pub fn question(&self) -> String {
        let Self { low, high, calls, style } = self;
        match style {
            Style::Terse => self.terse(),
            Style::Words => format!(
                "I think of a whole number from {low} to {high}. You have a tool that compares: reply `compare N` to \
                 hear whether my number is at most N or above it, at most {calls} times. Then reply `answer N`. Reply \
                 with nothing else."
            ),
        }
    }

    fn terse(&self) -> String {
        format!("{}-{}*{}:", self.low, self.high, self.calls)
    }

    /// Returns the longest text that the environment may say of this game: with the longest numbers, and to what is
    /// no call.
    pub fn longest_reply(&self) -> String {
        let longest = Self { low: self.high, ..*self };
        longest.says(Some(NO_CALL))
    }

    /// Returns what the environment says of what is left, after a call or after `what`.
    fn says(&self, what: Option<&str>) -> String {
        let Self { low, high, calls, style } = self;
        let known = format!("It is from {low} to {high}. Calls left: {calls}.");
        match (style, what) {
            (Style::Terse, None) => self.terse(),
            (Style::Terse, Some(_)) => format!("-{}", self.terse()),
            (Style::Words, None) => known,
            (Style::Words, Some(what)) => format!("{what} {known}"),
        }
    }

    /// Returns the move of a player who halves what is left.
    pub fn best(&self) -> Move {
        let middle = self.low + (self.high - self.low) / 2;
        if self.calls == 0 || self.low == self.high { Move::Answer(middle) } else { Move::Compare(middle) }
    }
}

impl Move {
    /// Returns the move in the game's words.
    pub fn said(self, style: Style) -> String {
        match (style, self) {
            (Style::Terse, Self::Compare(n)) => format!("?{n}"),
            (Style::Terse, Self::Answer(n)) => format!("!{n}"),
            (Style::Words, Self::Compare(n)) => format!("compare {n}"),
            (Style::Words, Self::Answer(n)) => format!("answer {n}"),
        }
    }

    /// Reads a move: the only one that a text has, or the whole of a terse one.
    pub fn read(text: &str, style: Style) -> Option<Self> {
        let number = |digits: &str| (digits.len() <= 9).then(|| digits.parse::<u32>().ok()).flatten();
        if style == Style::Terse {
            let (call, digits) = text.trim().split_at_checked(1)?;
            return match call {
                "?" => number(digits).map(Self::Compare),
                "!" => number(digits).map(Self::Answer),
                _ => None,
            };
        }
        only_move(text, |words| match words {
            ["compare", n, ..] => number(n).map(Self::Compare),
            ["answer", n, ..] => number(n).map(Self::Answer),
            _ => None,
        })
    }
}

impl Guess {
    /// Opens a game.
    pub fn open(gold: &str, start: u64) -> Result<Self, String> {
        let left: Bounds = serde_json::from_str(gold).map_err(|e| format!("it describes no game: {e}"))?;
        if left.low > left.high {
            return Err(format!(
                "it goes from {} to {}; expected the smaller number first",
                left.low, left.high
            ));
        }
        let numbers = (left.high - left.low) as usize + 1;
        Ok(Self { hidden: left.low + Stream::new(start).below(numbers) as u32, left })
    }

    /// Returns what is known of the number.
    pub fn left(&self) -> Bounds {
        self.left
    }

    fn says(&self, what: Option<&str>) -> Step {
        Step::Says(self.left.says(what))
    }
}

impl Game for Guess {
    fn turn(&mut self, said: &str) -> Step {
        let Bounds { low, high, calls, style } = self.left;
        let called = match Move::read(said, style) {
            Some(Move::Answer(n)) => {
                let correct = n == self.hidden;
                return Step::Ends { reward: f32::from(correct), correct };
            }
            // There is nothing left but to answer.
            _ if calls == 0 => return Step::Ends { reward: 0.0, correct: false },
            called => called,
        };
        self.left.calls -= 1;
        let Some(Move::Compare(n)) = called else {
            return self.says(Some(NO_CALL));
        };
        // A number outside of the bounds says nothing new.
        if (low..high).contains(&n) {
            if self.hidden <= n { self.left.high = n } else { self.left.low = n + 1 }
        }
        self.says(None)
    }

    fn most(&self) -> Most {
        let Bounds { high, calls, style, .. } = self.left;
        Most { replies: calls, reply: self.left.longest_reply(), turn: Move::Compare(high).said(style).len() }
    }

    fn best(&self) -> String {
        self.left.best().said(self.left.style)
    }

    /// Calls any number that is left.
    fn careless(&self, slip: f64, stream: &mut Stream) -> Option<String> {
        let Bounds { low, high, style, .. } = self.left;
        let Move::Compare(_) = self.left.best() else { return None };
        let slips = stream.unit() < slip;
        slips.then(|| Move::Compare(low + stream.below((high - low) as usize) as u32).said(style))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(low: u32, high: u32, calls: u32, start: u64) -> Guess {
        let bounds = Bounds { low, high, calls, style: Style::Terse };
        let start = allot_allocation::seed::world(start, 0, 0);
        Guess::open(&serde_json::to_string(&bounds).expect("a game"), start).expect("a game")
    }

    #[test]
    fn halving_finds_each_of_2_to_the_k_numbers_with_k_calls() {
        for (numbers, calls) in [(1, 0), (2, 1), (8, 3), (64, 6), (50, 6)] {
            let mut found = std::collections::HashSet::new();
            for start in 0..400 {
                let mut game = open(17, 16 + numbers, calls, start);
                found.insert(game.hidden);
                let end = loop {
                    match game.turn(&game.left().best().said(Style::Terse)) {
                        Step::Says(_) => {}
                        end @ Step::Ends { .. } => break end,
                    }
                };
                assert_eq!(end, Step::Ends { reward: 1.0, correct: true });
            }
            assert!(found.len() as u32 >= numbers.min(45), "{} of {numbers} numbers", found.len());
        }
    }

    #[test]
    fn the_tool_says_what_remains_and_counts_its_calls() {
        let mut game = Guess { hidden: 37, ..open(17, 80, 6, 0) };
        assert_eq!(game.turn("?48"), Step::Says("17-48*5:".to_owned()));
        assert_eq!(game.turn("?30"), Step::Says("31-48*4:".to_owned()));
        assert_eq!(game.turn("?90"), Step::Says("31-48*3:".to_owned()), "nothing new");
        for text in ["30", "?", "?x", "?99999999999", "!", "??3", ""] {
            let mut other = game;
            assert_eq!(other.turn(text), Step::Says("-31-48*2:".to_owned()), "{text:?} is no call");
        }
        let mut none = Guess { left: Bounds { calls: 0, ..game.left }, ..game };
        assert_eq!(none.turn("?37"), Step::Ends { reward: 0.0, correct: false }, "no call is left");
        assert_eq!(game.turn("!38"), Step::Ends { reward: 0.0, correct: false });
        assert_eq!(game.turn(" !37\n"), Step::Ends { reward: 1.0, correct: true });
    }

    #[test]
    fn a_move_in_words_is_read_if_there_is_one() {
        let read = |text: &str| Move::read(text, Style::Words);
        assert_eq!(read("Let me compare 48."), Some(Move::Compare(48)));
        assert_eq!(read("**Answer: 7**"), Some(Move::Answer(7)));
        assert_eq!(read("compare 3, I say compare 3"), Some(Move::Compare(3)));
        for text in ["compare 3, then compare 4", "compare it", "is it 5?", "comparing 3", ""] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_describes_no_game_is_refused() {
        let refused = |gold: &str| Guess::open(gold, 1).expect_err("no game");
        assert!(refused("5").starts_with("it describes no game: "), "{}", refused("5"));
        let turned = r#"{"low":9,"high":3,"calls":1,"style":"words"}"#;
        assert_eq!(refused(turned), "it goes from 9 to 3; expected the smaller number first");
    }
}
