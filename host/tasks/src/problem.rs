//! A problem: what is asked, and what the answer should be.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

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

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What is asked.
    pub ask: Ask,
    /// The answers that count as right: one, as a rule.
    pub gold: Vec<String>,
    /// Where it comes from: a data set's name, or a generator's with its level.
    pub source: String,
}

impl Problem {
    /// A name for it that stays the same wherever it stands in whichever file: the first 16
    /// hexadecimal digits of the sha256 of what is asked and what is right.
    pub fn id(&self) -> String {
        let mut hash = Sha256::new();
        let mut part = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        match &self.ask {
            Ask::Text(text) => part(text),
            Ask::Chat(messages) => messages.iter().for_each(|m| {
                part(&m.role);
                part(&m.content);
            }),
        }
        self.gold.iter().for_each(|gold| part(gold));
        let bits = hash.finalize().iter().take(8).fold(0, |bits: u64, byte| (bits << 8) | u64::from(*byte));
        format!("{bits:016x}")
    }
}
