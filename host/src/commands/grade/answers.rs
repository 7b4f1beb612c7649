//! The answers of a file or a run.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

use allot_base::{Error, Result};
use allot_config::grade::GradeConfig;
use allot_judges::protocol::Question;
use allot_outputs::rollouts::parts;
use allot_settings::AnyGrader;
use allot_settings::reward::RewardConfig;
use allot_tasks::dataset::{Answered, AnsweredField, DataError, Rows, answered};
use allot_tasks::{Ask, Key, Problem};
use serde_json::Value;

/// Answers, in the order of their rows.
pub struct Answers {
    /// The answers that can be graded.
    pub rows: Vec<Row>,
    /// The errors of the other rows.
    pub bad: Vec<Error>,
}

/// An answer.
pub struct Row {
    /// The row's number, from 1; for a run, over all parts of its table.
    pub number: u64,
    pub answered: Answered,
}

impl Row {
    /// Returns the question for a grader. Answers to the same question have the same `group`.
    pub fn question(&self, group: u32) -> Question {
        let Answered { answer, gold, question, source, .. } = self.answered.clone();
        Question { gold, answer, prompt: question, source, group, episode: None }
    }
}

impl Answers {
    /// Reads the answers of a file or of a run's folder. `columns` are those in the command.
    ///
    /// # Errors
    ///
    /// A file that can't be read, or no complete row.
    pub fn read(place: &Path, columns: &[(AnsweredField, String)], config: &GradeConfig) -> Result<Self> {
        let mut all = Self { rows: Vec::new(), bad: Vec::new() };
        if place.is_dir() {
            all.run(place)?;
        } else {
            let wants_gold = config.reward.each().iter().any(wants_gold);
            let mut number = 0;
            let read = answered(place, columns, wants_gold, &mut |_, row| {
                number += 1;
                match row {
                    Ok(answered) => all.rows.push(Row { number, answered }),
                    Err(fault) => all.bad.push(of_data(&fault)),
                }
            });
            read.map_err(|fault| of_data(&fault))?;
        }
        all.checked(place, config)
    }

    /// Returns the problems of the answers, as far as graders use them.
    pub fn problems(&self) -> Vec<Problem> {
        let problem = |row: &Row| {
            let Answered { gold, question, source, .. } = row.answered.clone();
            let (ask, key) = (Ask::Text(question.clone()), Key::of(&[&question]));
            Problem { ask, gold, source, question, key, place: None, columns: Vec::new() }
        };
        self.rows.iter().map(problem).collect()
    }

    /// Adds the rollouts of a run, with the gold answers of its problems.
    fn run(&mut self, folder: &Path) -> Result<()> {
        let mut problems = HashMap::new();
        each(&folder.join("problems.parquet"), &["prompt", "gold", "question", "source"], &mut |row| {
            problems.insert(row["prompt"].as_u64(), row);
        })?;
        let mut number = 0;
        for part in parts(&folder.join("rollouts"))? {
            each(&part, &["prompt", "text", "tokens", "reward"], &mut |row| {
                number += 1;
                let problem = problems.get(&row["prompt"].as_u64());
                match problem.map(|problem| of_run(&row, problem)) {
                    Some(Some(answered)) => self.rows.push(Row { number, answered }),
                    Some(None) => self.bad.push(
                        Error::new(format!("rollout {number} of `{}` has no text", part.display()))
                            .hint("Keep texts with `text = true` under [checkpoint] of the run's config."),
                    ),
                    None => {
                        let what = format!("rollout {number} is of a prompt that is not in problems.parquet");
                        self.bad.push(Error::new(what));
                    }
                }
            })?;
        }
        Ok(())
    }

    fn checked(self, place: &Path, config: &GradeConfig) -> Result<Self> {
        if self.rows.is_empty() {
            let rows = self.bad.len();
            return Err(match self.bad.into_iter().next() {
                Some(first) => {
                    Error { what: format!("{} (and none of {rows} rows is better)", first.what), ..first }
                }
                None => Error::new(format!("`{}` has no rows", place.display())),
            });
        }
        let penalized =
            config.reward.overlong.is_some() || config.reward.each().iter().any(|one| one.overlong.is_some());
        if let Some(row) = self.rows.iter().find(|row| penalized && row.answered.tokens.is_none()) {
            let what =
                format!("row {} of `{}` does not say how long the answer is", row.number, place.display());
            return Err(Error::new(what).hint(
                "Name the column of lengths with `--column tokens=…`, or leave the penalty out: the config has `overlong`.",
            ));
        }
        Ok(self)
    }
}

/// Returns whether a grader needs a gold answer, whatever the config.
fn wants_gold(one: &RewardConfig) -> bool {
    let own = matches!(one.grader, Some(AnyGrader::Native(_) | AnyGrader::MathVerify));
    own || matches!(one.grader, Some(AnyGrader::Python | AnyGrader::Environment))
}

/// Returns a rollout of a run's table; `None` if the table has no texts.
fn of_run(row: &Value, problem: &Value) -> Option<Answered> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(Answered {
        answer: row["text"].as_str()?.to_owned(),
        gold: serde_json::from_str(problem["gold"].as_str().unwrap_or("[]")).unwrap_or_default(),
        question: text(&problem["question"]),
        source: text(&problem["source"]),
        tokens: row["tokens"].as_u64().map(|n| n as u32),
        reward: row["reward"].as_f64(),
    })
}

fn each(path: &Path, columns: &[&str], take: &mut dyn FnMut(Value)) -> Result<()> {
    let rows = Rows::open(path, None).map_err(|fault| of_data(&fault))?;
    let columns: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
    let read = rows.each(&columns, &mut |_, row, _| {
        take(Value::Object(row));
        Ok(ControlFlow::Continue(()))
    });
    read.map(drop).map_err(|fault| of_data(&fault))
}

fn of_data(fault: &DataError) -> Error {
    Error::told(fault.to_string(), fault.hint().as_deref())
}
