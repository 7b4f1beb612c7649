//! The rollouts of a bank, by prompt.

use std::collections::HashMap;
use std::path::Path;

use allot_base::{Error, Result};
use allot_component::sha256;

use crate::reading::{Asked, Row, read};

/// Rollouts by prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Bank {
    /// The prompts, in the order in which a run counts them.
    pub prompts: Vec<Prompt>,
    /// The sha256 of the file that it was opened from.
    pub sha256: Option<String>,
}

/// A prompt, with all its rollouts. There is one at the least.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// What it is called where it comes from, or a hash of its text.
    pub name: String,
    /// Its own length in tokens, where that is known.
    pub tokens: Option<u32>,
    /// Its rollouts, in the order in which they were read.
    pub rollouts: Vec<Rollout>,
}

/// A rollout, as it was sampled and judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rollout {
    /// The model's version.
    pub version: u32,
    /// The reward. It is finite.
    pub reward: f32,
    /// Whether it was right.
    pub correct: bool,
    /// Its length in tokens, where that is known.
    pub tokens: Option<u32>,
    /// Whether it met the length limit.
    pub truncated: bool,
}

impl Bank {
    /// Rows by prompt: in the order that they tell, or else in which prompts first come.
    pub fn of(rows: Vec<Row>) -> Self {
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut prompts: Vec<(Option<u64>, Prompt)> = Vec::new();
        for row in rows {
            let place = *places.entry(row.key).or_insert_with_key(|key| {
                let prompt = Prompt { name: key.clone(), tokens: None, rollouts: Vec::new() };
                prompts.push((row.order, prompt));
                prompts.len() - 1
            });
            let (order, prompt) = &mut prompts[place];
            *order = [*order, row.order].into_iter().flatten().min();
            prompt.tokens = prompt.tokens.or(row.prompt_tokens);
            prompt.rollouts.push(Rollout {
                version: row.version.unwrap_or(0),
                reward: row.reward,
                correct: row.correct,
                tokens: row.tokens,
                truncated: row.truncated,
            });
        }
        // Those without an order stay as they came, behind the others.
        prompts.sort_by_key(|(order, _)| order.unwrap_or(u64::MAX));
        Self { prompts: prompts.into_iter().map(|(_, prompt)| prompt).collect(), sha256: None }
    }

    /// The bank in a file.
    pub fn open(path: &Path) -> Result<Self> {
        let (rows, _) = read(&[path.to_owned()], &Asked::default())?;
        let bytes = std::fs::read(path).map_err(|e| Error::file("read", path, &e))?;
        Ok(Self { sha256: Some(sha256(bytes)), ..Self::of(rows) })
    }

    /// How many rollouts it has.
    pub fn rollouts(&self) -> usize {
        self.prompts.iter().map(|prompt| prompt.rollouts.len()).sum()
    }

    /// The longest rollout, in tokens; one where no length is known.
    pub fn longest(&self) -> u32 {
        let tokens = self.all().filter_map(|rollout| rollout.tokens);
        tokens.max().unwrap_or(1).max(1)
    }

    /// Whether every rollout tells its length.
    pub fn knows_lengths(&self) -> bool {
        self.all().all(|rollout| rollout.tokens.is_some())
    }

    /// All rollouts, prompt by prompt.
    pub fn all(&self) -> impl Iterator<Item = &Rollout> {
        self.prompts.iter().flat_map(|prompt| &prompt.rollouts)
    }
}

impl Prompt {
    /// How many of its rollouts were right.
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
