//! The rollouts of a bank, by prompt.

use std::collections::HashMap;
use std::path::Path;

use allot_base::{Error, Result};
use allot_component::sha256;

use crate::reading::{Asked, read};
use crate::row::Row;

/// A bank: rollouts grouped by prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Bank {
    /// The prompts, in the order of their ids in a run.
    pub prompts: Vec<Prompt>,
    /// SHA-256 of the file that the bank was read from, if it was read from one.
    pub sha256: Option<String>,
}

/// A prompt with all its rollouts; there is at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// Name of the prompt in its source, or a hash of its text.
    pub name: String,
    /// Position of the prompt in its data set, if known.
    pub order: Option<u64>,
    /// Length of the prompt in tokens, if known.
    pub tokens: Option<u32>,
    /// Its rollouts, in the order in which they were read.
    pub rollouts: Vec<Rollout>,
}

/// A rollout, as sampled and graded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rollout {
    /// The model's version.
    pub version: u32,
    /// The reward. It is finite.
    pub reward: f32,
    /// Whether the answer was right.
    pub correct: bool,
    /// Its length in tokens, if known.
    pub tokens: Option<u32>,
    /// Whether it met the length limit.
    pub truncated: bool,
}

impl Bank {
    /// Groups rows by prompt, sorted by `order`. Prompts without an order follow as they first appear.
    pub fn of(rows: Vec<Row>) -> Self {
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut prompts: Vec<Prompt> = Vec::new();
        for row in rows {
            let place = *places.entry(row.key).or_insert_with_key(|key| {
                prompts.push(Prompt {
                    name: key.clone(),
                    order: row.order,
                    tokens: None,
                    rollouts: Vec::new(),
                });
                prompts.len() - 1
            });
            let prompt = &mut prompts[place];
            prompt.order = [prompt.order, row.order].into_iter().flatten().min();
            prompt.tokens = prompt.tokens.or(row.prompt_tokens);
            prompt.rollouts.push(Rollout {
                version: row.version.unwrap_or(0),
                reward: row.reward,
                correct: row.correct,
                tokens: row.tokens,
                truncated: row.truncated,
            });
        }
        // Prompts without an order keep their order of appearance, after the others.
        prompts.sort_by_key(|prompt| prompt.order.unwrap_or(u64::MAX));
        Self { prompts, sha256: None }
    }

    /// Reads the bank in a file.
    pub fn open(path: &Path) -> Result<Self> {
        let (rows, _) = read(&[path.to_owned()], &Asked::default())?;
        let bytes = std::fs::read(path).map_err(|e| Error::file("read", path, &e))?;
        Ok(Self { sha256: Some(sha256(bytes)), ..Self::of(rows) })
    }

    /// Number of rollouts.
    pub fn rollouts(&self) -> usize {
        self.prompts.iter().map(|prompt| prompt.rollouts.len()).sum()
    }

    /// Length of the longest rollout in tokens; 1 if no length is known.
    pub fn longest(&self) -> u32 {
        let tokens = self.all().filter_map(|rollout| rollout.tokens);
        tokens.max().unwrap_or(1).max(1)
    }

    /// Whether the length of every rollout is known.
    pub fn knows_lengths(&self) -> bool {
        self.all().all(|rollout| rollout.tokens.is_some())
    }

    /// All rollouts, prompt by prompt.
    pub fn all(&self) -> impl Iterator<Item = &Rollout> {
        self.prompts.iter().flat_map(|prompt| &prompt.rollouts)
    }
}

impl Prompt {
    /// Number of its rollouts that were right.
    pub fn right(&self) -> usize {
        self.rollouts.iter().filter(|rollout| rollout.correct).count()
    }

    /// The share of its rollouts that were right.
    pub fn pass_rate(&self) -> f64 {
        self.right() as f64 / self.rollouts.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_in_the_order_that_rows_tell_and_else_as_they_come() {
        let row = |key: &str, order| Row { key: key.to_owned(), order, ..Row::default() };
        let names = |rows: Vec<Row>| -> Vec<String> {
            Bank::of(rows).prompts.into_iter().map(|prompt| prompt.name).collect()
        };
        assert_eq!(names(vec![row("b", Some(7)), row("a", Some(2)), row("b", Some(1))]), ["b", "a"]);
        assert_eq!(names(vec![row("z", None), row("a", None), row("z", None)]), ["z", "a"]);
    }
}
