//! Answers that a model has given: rows of a file, each with an answer and its gold answers.

use std::ops::ControlFlow;
use std::path::Path;

use serde_json::Value;

use super::answer::{AnswerFault, Answers};
use super::columns::{at, has};
use super::json_rows::kind;
use super::row::WHOLE;
use super::{DataError, Fault, Place, Row, Rows};

/// An answer of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answered {
    /// Its text.
    pub answer: String,
    /// The answers that count as right; none if the file has none.
    pub gold: Vec<String>,
    /// The question; empty if there is none.
    pub question: String,
    /// Source of the problem; empty if there is none.
    pub source: String,
    /// Its length in tokens, if known.
    pub tokens: Option<u32>,
    /// The reward that it had, if known.
    pub reward: Option<f64>,
}

/// Meaning of a column in a file of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnsweredField {
    /// The answer of the model.
    Answer,
    /// The gold answer, or a list of them.
    Gold,
    /// The question.
    Question,
    /// Source of the problem.
    Source,
    /// The answer's length in tokens.
    Tokens,
    /// The reward that it had.
    Reward,
}

impl AnsweredField {
    /// Each field, its name for users, and the columns that may have it; the first one present counts.
    pub const ALL: [(Self, &str, &[&str]); 6] = [
        (
            Self::Answer,
            "answer",
            &["response", "completion", "output", "generation", "text", "prediction", "answer"],
        ),
        (
            Self::Gold,
            "gold",
            &[
                "gold",
                "ground_truth",
                "reward_model.ground_truth",
                "gts",
                "final_answer",
                "solution",
                "target",
                "answer",
            ],
        ),
        (Self::Question, "question", &["question", "problem", "prompt", "input"]),
        (Self::Source, "source", &["source", "data_source"]),
        (Self::Tokens, "tokens", &["tokens", "response_length", "completion_length"]),
        (Self::Reward, "reward", &["reward", "score"]),
    ];

    /// Returns the field that users call by this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, typed, _)| *typed == name).map(|(field, ..)| field)
    }
}

/// The column of each field, in the order of [`AnsweredField::ALL`].
struct Mapping([Option<String>; 6]);

impl Mapping {
    /// User-named columns come first. `answer` is the gold answer if another column is the model's.
    fn find(
        given: &[(AnsweredField, String)],
        columns: &[String],
        path: &Path,
        wants_gold: bool,
    ) -> Result<Self, DataError> {
        if columns.is_empty() {
            return Err(DataError::Empty(path.to_owned()));
        }
        let mut found = Self(std::array::from_fn(|i| {
            let (field, _, names) = AnsweredField::ALL[i];
            let named = given.iter().find(|(given, _)| *given == field).map(|(_, column)| column.clone());
            named.or_else(|| names.iter().find(|name| has(columns, name)).map(|name| (*name).to_owned()))
        }));
        let [answer, gold, ..] = &mut found.0;
        if answer == gold && !given.iter().any(|(field, _)| *field == AnsweredField::Gold) {
            *gold = None;
        }
        let missing = match (answer.is_some(), gold.is_some() || !wants_gold) {
            (true, true) => return Ok(found),
            (false, true) => "the model's answer",
            (true, false) => "the gold answer",
            (false, false) => "the model's answer and the gold answer",
        };
        let (path, columns) = (path.to_owned(), columns.to_vec());
        Err(DataError::NoAnswers { path, missing, columns })
    }

    fn column(&self, field: AnsweredField) -> Option<&str> {
        let at = AnsweredField::ALL.iter().position(|(one, ..)| *one == field)?;
        self.0[at].as_deref()
    }

    /// Returns the answer in a row, or an error.
    fn read(&self, row: &Row, place: &Place, wants_gold: bool) -> Result<Answered, DataError> {
        let value = |field| Some((self.column(field)?, at(row, self.column(field)?)?));
        let text = |field| match value(field) {
            None | Some((_, Value::Null)) => Ok(String::new()),
            Some((_, Value::String(text))) => Ok(text.clone()),
            Some((column, other)) => Err(DataError::NotText {
                place: place.clone(),
                column: column.to_owned(),
                found: kind(other),
            }),
        };
        let answer = text(AnsweredField::Answer)?;
        let lacks = |field, key| DataError::Lacks {
            place: place.clone(),
            column: self.column(field).unwrap_or_default().to_owned(),
            key,
        };
        if !matches!(value(AnsweredField::Answer), Some((_, Value::String(_)))) {
            return Err(lacks(AnsweredField::Answer, "the model's answer"));
        }
        let whole = (self.column(AnsweredField::Gold) == Some(WHOLE)).then(|| Value::Object(row.clone()));
        let whole = whole.as_ref().map(|row| (WHOLE, row));
        let gold = match whole.or_else(|| value(AnsweredField::Gold)) {
            None => Vec::new(),
            Some((column, value)) => {
                let after = |after| Answers { after, boxed: false, may_be_worked: false }.golds(value);
                // GSM8K's worked solutions mark their answer with `####`.
                let golds = match after(None) {
                    Err(AnswerFault::Worked) => after(Some("####")),
                    golds => golds,
                };
                golds.map_err(|fault| DataError::answer(fault, place.clone(), column.to_owned()))?
            }
        };
        if wants_gold && gold.is_empty() {
            return Err(lacks(AnsweredField::Gold, "the gold answer"));
        }
        // In CSV, numbers are text.
        let number = |field| match value(field) {
            Some((_, Value::String(text))) => text.trim().parse().ok().filter(|x: &f64| x.is_finite()),
            found => found.and_then(|(_, value)| value.as_f64()),
        };
        // Messages become their JSON text, for graders that use the question.
        let question = match value(AnsweredField::Question) {
            Some((_, Value::String(text))) => text.clone(),
            Some((_, Value::Null)) | None => String::new(),
            Some((_, other)) => other.to_string(),
        };
        Ok(Answered {
            answer,
            gold,
            question,
            source: text(AnsweredField::Source)?,
            tokens: number(AnsweredField::Tokens).map(|n| n as u32),
            reward: number(AnsweredField::Reward),
        })
    }
}

/// Reads the answers of a file. `given` has columns named by the user; `*` is a whole row. A row without an
/// answer, or without a gold answer if `wants_gold` is set, is passed to `take` as an error.
///
/// # Errors
///
/// The file cannot be read, or has no column of answers.
pub fn answered(
    path: &Path,
    given: &[(AnsweredField, String)],
    wants_gold: bool,
    take: &mut dyn FnMut(Place, Result<Answered, DataError>),
) -> Result<(), DataError> {
    let rows = Rows::open(path, None)?;
    let columns = rows.columns();
    let mapping = Mapping::find(given, &columns, path, wants_gold)?;
    let mut needed: Vec<String> = mapping.0.iter().flatten().cloned().collect();
    if mapping.column(AnsweredField::Gold) == Some(WHOLE) {
        needed.extend(columns);
    }
    let read = rows.each(&needed, &mut |place, row, faults| {
        let usable = Fault::check(faults, &place, &needed);
        let read = usable.and_then(|()| mapping.read(&row, &place, wants_gold));
        take(place, read);
        Ok(ControlFlow::Continue(()))
    });
    read.map(drop)
}
