//! A problem: its prompt and its gold answers.

use allot_allocation::Cell;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::place::Place;
use crate::question::{Key, folded};

/// The prompt of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Ask {
    /// Plain text, passed to the model unchanged.
    Text(String),
    /// Messages, for a model's chat template.
    Chat(Vec<Message>),
}

/// A message of a chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The role: system, user or assistant.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Ask {
    /// Returns the text, without system messages.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Chat(messages) => crate::question::spoken(messages),
        }
    }
}

/// A problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The prompt.
    pub ask: Ask,
    /// The answers that count as right, usually one.
    pub gold: Vec<String>,
    /// Its source: the name of a data set, or of a generator with the level.
    pub source: String,
    /// The question, before any template, system message or chat.
    pub question: String,
    /// Key that all problems with the same question share.
    pub key: Key,
    /// Its place, if it was read from a file.
    pub place: Option<Place>,
    /// Its values of the requested columns, in their order; empty if it is held out.
    pub columns: Vec<Cell>,
}

impl Problem {
    /// Returns the keys of this question, in any wording: its key, and those of the question and the prompt
    /// after [`folded`]. Two problems that share a key have the same question.
    pub fn keys(&self) -> [Key; 3] {
        [self.key, Key::of(&[&folded(&self.question)]), Key::of(&[&folded(&self.ask.words())])]
    }

    /// Returns an identifier that does not depend on file or row: the first 16 hexadecimal digits of the
    /// SHA-256 of the prompt and the gold answers.
    pub fn id(&self) -> String {
        Self::name(&self.ask, &self.gold)
    }

    /// Returns an identifier of the exact prompt alone.
    pub fn asked(&self) -> String {
        Self::name(&self.ask, &[])
    }

    fn name(ask: &Ask, gold: &[String]) -> String {
        let mut hash = Sha256::new();
        let mut part = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        match ask {
            Ask::Text(text) => part(text),
            Ask::Chat(messages) => messages.iter().for_each(|m| {
                part(&m.role);
                part(&m.content);
            }),
        }
        for gold in gold {
            part(gold);
        }
        let bits = hash.finalize().iter().take(8).fold(0, |bits: u64, byte| (bits << 8) | u64::from(*byte));
        format!("{bits:016x}")
    }
}
