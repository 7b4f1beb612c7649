//! Embedded environments: what the other side says in an episode of several turns. They know text only.
//!
//! ```
//! use allot_tasks::environment::{Embedded, Step};
//!
//! let mut game = Embedded::Guess.open(r#"{"low":1,"high":8,"calls":3,"style":"terse"}"#, 7)?;
//! // The hidden number is 4 or less, or 5 or more.
//! let Step::Says(said) = game.turn("?4") else { panic!("the game goes on") };
//! assert!(["1-4*2:", "5-8*2:"].contains(&said.as_str()));
//! # Ok::<(), String>(())
//! ```

pub mod calculator;
pub mod guess;

use allot_allocation::seed::Stream;
use serde::{Deserialize, Serialize};

/// An environment that is part of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Embedded {
    /// A hidden number to find with a tool that compares: [`guess`].
    Guess,
    /// Numbers to add with a tool that adds two: [`calculator`].
    Calculator,
}

/// One episode.
pub trait Game: Send {
    /// Takes what the model said in its turn.
    fn turn(&mut self, said: &str) -> Step;

    /// Returns the most that is said from here.
    fn most(&self) -> Most;

    /// Returns the turn of a good player.
    fn best(&self) -> String;

    /// Returns the turn of a careless player, where there is one and it slips, with this probability.
    fn careless(&self, slip: f64, stream: &mut Stream) -> Option<String>;
}

/// What follows a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The environment says this, and it is the model's turn.
    Says(String),
    /// The episode has ended, with this reward.
    Ends {
        /// The reward.
        reward: f32,
        /// Whether the task is solved.
        correct: bool,
    },
}

/// The most that is said in an episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Most {
    /// Number of replies after which the next turn ends the game.
    pub replies: u32,
    /// The longest reply.
    pub reply: String,
    /// Length of the longest turn of a good player, in bytes.
    pub turn: usize,
}

impl Embedded {
    /// Returns the most that is said in the game that a problem's gold answer describes. The error says what is wrong
    /// with the description.
    pub fn most(self, gold: &str) -> Result<Most, String> {
        Ok(self.open(gold, 0)?.most())
    }

    /// Returns the environment's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Guess => "guess",
            Self::Calculator => "calculator",
        }
    }

    /// Opens the game that a problem's gold answer describes. `start` seeds its hidden part. The error says what is
    /// wrong with the description.
    pub fn open(self, gold: &str, start: u64) -> Result<Box<dyn Game>, String> {
        match self {
            Self::Guess => Ok(Box::new(guess::Guess::open(gold, start)?)),
            Self::Calculator => Ok(Box::new(calculator::Calculator::open(gold)?)),
        }
    }
}

/// Returns the move that a text says, if it says one, or the same one several times. `read` takes a move from the
/// beginning of some words, in lower case.
fn only_move<M: PartialEq>(text: &str, read: impl Fn(&[&str]) -> Option<M>) -> Option<M> {
    let lower = text.to_ascii_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let mut moves = (0..words.len()).filter_map(|at| read(&words[at..]));
    let first = moves.next()?;
    moves.all(|other| other == first).then_some(first)
}
