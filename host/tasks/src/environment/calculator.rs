//! Whole numbers to add, and a tool that adds two: the model calls it with two numbers and is told their sum; then it
//! answers. The number of calls is limited, so a long problem with few calls has to be added in the head.
//!
//! | | Terse | In words |
//! |---|---|---|
//! | the question | `47+85+23*2:` | "Add 47, 85 and 23. … at most 2 times …" |
//! | a call | `?47+85` | `add 47 85` |
//! | its result | `132*1:` | "It is 132. Calls left: 1." |
//! | the answer | `!155` | `answer 155` |
//!
//! Anything else that the model says is no call: the environment says so, which takes a call, too.

use allot_allocation::seed::Stream;
use serde::{Deserialize, Serialize};

use super::{Game, Most, Step, only_move};
use crate::column_sum::column_sum;
use crate::style::Style;

/// A game, as in a problem's gold answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Addends {
    /// The numbers to add.
    pub numbers: Vec<u32>,
    /// Calls of the tool that are left.
    pub calls: u32,
    /// The style of the game's words.
    pub style: Style,
}

/// What is said, in words, to what is no call.
const NO_CALL: &str = "That is no call: reply `add A B` or `answer N`.";

/// The most digits of a number that the tool takes.
const DIGITS: usize = 9;

/// A game under way.
#[derive(Clone, Debug)]
pub struct Calculator {
    sum: i64,
    calls: u32,
    style: Style,
    /// What a player who adds from left to right has yet to add, the sum so far first.
    left: Vec<i64>,
}

/// What the model can do in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Call the tool with these numbers.
    Add(i64, i64),
    /// Answer with this number.
    Answer(i64),
}

impl Addends {
    /// Returns the question.
    pub fn question(&self) -> String {
        let numbers: Vec<String> = self.numbers.iter().map(u32::to_string).collect();
        let calls = self.calls;
        match (self.style, numbers.split_last()) {
            (Style::Words, Some((last, others))) => format!(
                "Add {} and {last}. You have a calculator that adds two numbers: reply `add A B` to hear their sum, at \
                 most {calls} times. Then reply `answer N`. Reply with nothing else.",
                others.join(", ")
            ),
            _ => format!("{}*{calls}:", numbers.join("+")),
        }
    }
}

impl Move {
    /// Returns the move in the game's words.
    pub fn said(self, style: Style) -> String {
        match (style, self) {
            (Style::Terse, Self::Add(a, b)) => format!("?{a}+{b}"),
            (Style::Terse, Self::Answer(n)) => format!("!{n}"),
            (Style::Words, Self::Add(a, b)) => format!("add {a} {b}"),
            (Style::Words, Self::Answer(n)) => format!("answer {n}"),
        }
    }

    /// Reads a move: the only one that a text has, or the whole of a terse one.
    pub fn read(text: &str, style: Style) -> Option<Self> {
        let number = |digits: &str| {
            let digits = digits.trim();
            (digits.len() <= DIGITS && digits.bytes().all(|b| b.is_ascii_digit()))
                .then(|| digits.parse().ok())?
        };
        if style == Style::Terse {
            let (call, rest) = text.trim().split_at_checked(1)?;
            return match call {
                "?" => {
                    let (a, b) = rest.split_once('+')?;
                    Some(Self::Add(number(a)?, number(b)?))
                }
                "!" => number(rest).map(Self::Answer),
                _ => None,
            };
        }
        only_move(text, |words| match words {
            ["add", a, b, ..] => Some(Self::Add(number(a)?, number(b)?)),
            ["answer", n, ..] => number(n).map(Self::Answer),
            _ => None,
        })
    }
}

impl Calculator {
    /// Opens a game.
    pub fn open(gold: &str) -> Result<Self, String> {
        let Addends { numbers, calls, style } =
            serde_json::from_str(gold).map_err(|e| format!("it describes no game: {e}"))?;
        if numbers.len() < 2 {
            return Err(format!("it has {} numbers to add; expected at least 2", numbers.len()));
        }
        let left: Vec<i64> = numbers.into_iter().map(i64::from).collect();
        Ok(Self { sum: left.iter().sum(), calls, style, left })
    }

    /// Returns what the environment says after a call with this sum, or after what is no call.
    fn reply(&self, sum: Option<i64>) -> String {
        let calls = self.calls;
        match (self.style, sum) {
            (Style::Terse, Some(sum)) => format!("{sum}*{calls}:"),
            (Style::Terse, None) => format!("-*{calls}:"),
            (Style::Words, Some(sum)) => format!("It is {sum}. Calls left: {calls}."),
            (Style::Words, None) => format!("{NO_CALL} Calls left: {calls}."),
        }
    }

    /// Returns the move of a player who adds from left to right with the tool, and the rest in the head.
    fn next(&self) -> Move {
        match self.left.as_slice() {
            [a, b, ..] if self.calls > 0 => Move::Add(*a, *b),
            all => Move::Answer(all.iter().sum()),
        }
    }
}

impl Game for Calculator {
    fn turn(&mut self, said: &str) -> Step {
        let called = match Move::read(said, self.style) {
            Some(Move::Answer(n)) => {
                let correct = n == self.sum;
                return Step::Ends { reward: f32::from(correct), correct };
            }
            // There is nothing left but to answer.
            _ if self.calls == 0 => return Step::Ends { reward: 0.0, correct: false },
            called => called,
        };
        let next = self.next();
        self.calls -= 1;
        let Some(Move::Add(a, b)) = called else { return Step::Says(self.reply(None)) };
        if called == Some(next) {
            self.left.splice(..2, [a + b]);
        }
        Step::Says(self.reply(Some(a + b)))
    }

    fn most(&self) -> Most {
        let nines = 10_i64.pow(DIGITS as u32) - 1;
        let longest = (self.style == Style::Terse).then_some(2 * nines);
        let turn = Move::Add(self.sum, self.sum).said(self.style).len();
        Most { replies: self.calls, reply: self.reply(longest), turn }
    }

    fn best(&self) -> String {
        self.next().said(self.style)
    }

    /// Adds all that is left in the head, and there forgets each carry with probability one half.
    fn careless(&self, slip: f64, stream: &mut Stream) -> Option<String> {
        let Move::Add(..) = self.next() else { return None };
        if stream.unit() >= slip {
            return None;
        }
        let added = (self.left[1..].iter())
            .try_fold(self.left[0], |a, b| column_sum(&[a, *b], || stream.unit() < 0.5))?;
        Some(Move::Answer(added).said(self.style))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(numbers: &[u32], calls: u32) -> Calculator {
        let addends = Addends { numbers: numbers.to_vec(), calls, style: Style::Terse };
        Calculator::open(&serde_json::to_string(&addends).expect("a game")).expect("a game")
    }

    /// What a player says who never slips, and the end.
    fn played(mut game: Calculator) -> (Vec<String>, Step) {
        let mut said = Vec::new();
        loop {
            said.push(game.best());
            match game.turn(&said[said.len() - 1]) {
                Step::Says(_) => {}
                end @ Step::Ends { .. } => return (said, end),
            }
        }
    }

    #[test]
    fn a_player_adds_from_left_to_right_and_the_rest_in_the_head() {
        let right = Step::Ends { reward: 1.0, correct: true };
        let all = ["?47+85", "?132+23", "!155"].map(str::to_owned).to_vec();
        assert_eq!(played(open(&[47, 85, 23], 3)), (all, right.clone()));
        assert_eq!(
            played(open(&[47, 85, 23], 1)),
            (vec!["?47+85".to_owned(), "!155".to_owned()], right.clone())
        );
        assert_eq!(played(open(&[47, 85, 23], 0)), (vec!["!155".to_owned()], right));
    }

    #[test]
    fn the_tool_adds_and_counts_its_calls() {
        let mut game = open(&[47, 85, 23], 5);
        assert_eq!(game.turn("?47+58"), Step::Says("105*4:".to_owned()), "it adds what it is told");
        assert_eq!(game.best(), "?47+85");
        for text in
            ["47+85", "?", "?47", "?47+", "?4x+85", "?-4+85", "?1+2+3", "?9999999999+1", "!", "!x", ""]
        {
            let mut other = game.clone();
            assert_eq!(other.turn(text), Step::Says("-*3:".to_owned()), "{text:?} is no call");
        }
        let mut none = Calculator { calls: 0, ..game.clone() };
        assert_eq!(none.turn("?47+85"), Step::Ends { reward: 0.0, correct: false }, "no call is left");
        assert_eq!(game.clone().turn("!154"), Step::Ends { reward: 0.0, correct: false });
        assert_eq!(game.turn(" !155\n"), Step::Ends { reward: 1.0, correct: true });
    }

    #[test]
    fn a_careless_player_adds_in_the_head_and_forgets_carries() {
        let mut stream = Stream::new(1);
        let game = open(&[47, 85, 23], 3);
        let said: std::collections::BTreeSet<String> =
            (0..400).filter_map(|_| game.careless(1.0, &mut stream)).collect();
        // 47+85 is 132 or, without its carry, 122; that and 23 has no carry to forget.
        assert_eq!(said.into_iter().collect::<Vec<_>>(), ["!145", "!155"]);
        assert_eq!(game.careless(0.0, &mut stream), None);
        assert_eq!(open(&[47, 85], 0).careless(1.0, &mut stream), None, "nothing but the head is left");
    }

    #[test]
    fn no_reply_is_longer_than_the_longest() {
        for style in [Style::Terse, Style::Words] {
            let mut game = Calculator { style, ..open(&[99, 99], 9) };
            let most = game.most().reply.len();
            for text in ["?999999999+999999999", "add 999999999 999999999", "what?"] {
                let Step::Says(reply) = game.turn(text) else { panic!("the game goes on") };
                assert!(reply.len() <= most, "{reply}");
            }
        }
    }

    #[test]
    fn a_move_in_words_is_read_if_there_is_one() {
        let read = |text: &str| Move::read(text, Style::Words);
        assert_eq!(read("Let me add 47 and 85: add 47 85."), Some(Move::Add(47, 85)));
        assert_eq!(read("**Answer: 7**"), Some(Move::Answer(7)));
        for text in ["add 3 4, then add 7 1", "add 3", "adding 3 4", "it is 7", ""] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_describes_no_game_is_refused() {
        let refused = |gold: &str| Calculator::open(gold).expect_err("no game");
        assert!(refused("155").starts_with("it describes no game: "), "{}", refused("155"));
        let alone = r#"{"numbers":[9],"calls":1,"style":"words"}"#;
        assert_eq!(refused(alone), "it has 1 numbers to add; expected at least 2");
    }
}
