//! A problem: what is asked, and what the answer should be.

use allot_allocation::Cell;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::place::Place;
use crate::question::{Key, folded};

/// What a model is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Ask {
    /// Plain text, as the model gets it.
    Text(String),
    /// Messages, for a model's chat template.
    Chat(Vec<Message>),
}

/// A message of a chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: system, user or assistant.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Ask {
    /// The words, without those of a system.
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
    /// What is asked.
    pub ask: Ask,
    /// The answers that count as right: one, as a rule.
    pub gold: Vec<String>,
    /// Where it comes from: a data set's name, or a generator's with its level.
    pub source: String,
    /// The question, before any template, system message or chat.
    pub question: String,
    /// What it has in common with other problems that are the same question.
    pub key: Key,
    /// Where it was read, if it is from a file.
    pub place: Option<Place>,
    /// What it has in the columns that were asked for, in their order; nothing if it is held out.
    pub columns: Vec<Cell>,
}

impl Problem {
    /// The names under which this question is known, however it is put: its key, the question and what is asked,
    /// the last two after [`folded`]. Two problems that share one of them are the same question.
    pub fn keys(&self) -> [Key; 3] {
        [self.key, Key::of(&[&folded(&self.question)]), Key::of(&[&folded(&self.ask.words())])]
    }

    /// A name for it that stays the same wherever it stands in whichever file: the first 16
    /// hexadecimal digits of the sha256 of what is asked and what is right.
    pub fn id(&self) -> String {
        Self::name(&self.ask, &self.gold)
    }

    /// Its name by what is asked alone, to the letter.
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
