//! What can be wrong with a data set: one sentence that says what and where, and what to do.

use std::path::{Path, PathBuf};

use allot_allocation::shown;
use thiserror::Error;

use super::answer::AnswerFault;
use crate::place::Place;

/// How many columns a hint lists.
const LISTED: usize = 20;

/// What is wrong with a data set or its config.
#[derive(Debug, Error)]
pub enum DataError {
    // === The config ===
    /// An empty list of files.
    #[error("the data set has no files: `files` is empty")]
    NoFiles,
    /// A share that can't be held out.
    #[error("`held_out` is {0}; it is a share, from 0 to less than 1")]
    Share(f64),
    /// A template that does not parse.
    #[error("`template` is no template: {0}")]
    Template(String),
    /// Nothing to read.
    #[error("`limit` is 0; it is at least 1")]
    NoLimit,
    /// `skip` went past the last row.
    #[error("`skip` is {skip}, which leaves nothing of the data set (rows: {rows})")]
    AllSkipped {
        /// Rows to skip.
        skip: usize,
        /// Rows there are.
        rows: usize,
    },
    /// No problem is short enough.
    #[error("every prompt of the data set is longer than {longest}")]
    AllTooLong {
        /// The longest that would do.
        longest: usize,
    },

    /// A column that is the host's own.
    #[error("`columns` has `length`, which is the prompts' lengths in tokens, whatever the files say")]
    OwnColumn,

    // === A file ===
    /// It can't be read.
    #[error("could not read `{path}`: {reason}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// An ending that says nothing.
    #[error("`{0}` has no ending that tells its format")]
    UnknownFormat(PathBuf),
    /// Not a parquet file, or a damaged one.
    #[error("`{path}` is no parquet file, or cut off: {reason}")]
    NotParquet {
        /// The file.
        path: PathBuf,
        /// The reader's words.
        reason: String,
    },
    /// A compression that is not built in.
    #[error("`{path}`: column `{column}` is compressed with {codec}, which is not read here")]
    Codec {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// The compression.
        codec: String,
    },
    /// A type of parquet that is not read.
    #[error("`{path}`: column `{column}` holds {found}, which is not read here")]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// What it holds.
        found: String,
    },
    /// JSON, but no array.
    #[error("`{path}` is JSON, but {found} and not an array of rows")]
    NotArray {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// Nothing in it.
    #[error("`{0}` has no rows")]
    Empty(PathBuf),
    /// No layout that is known, and none given.
    #[error("`{path}` has no columns known as {missing}")]
    NoLayout {
        /// The file.
        path: PathBuf,
        /// What is missing.
        missing: &'static str,
        /// The columns it has.
        columns: Vec<String>,
    },
    /// All questions are null or blank.
    #[error("`{path}` has no row with a question, of {rows} read")]
    NothingAsked {
        /// The first file.
        path: PathBuf,
        /// Rows read.
        rows: usize,
    },
    /// All answers are null or blank.
    #[error("`{path}` has no row with an answer, of {rows} read")]
    NothingAnswered {
        /// The first file.
        path: PathBuf,
        /// Rows read.
        rows: usize,
    },

    // === A row ===
    /// Bytes that are no text.
    #[error("{0} is not UTF-8 text")]
    NotUtf8(Place),
    /// Text that is no JSON.
    #[error("{place} column {column} is not JSON: {reason}")]
    NotJson {
        /// Where.
        place: Place,
        /// The character's column, from 1.
        column: usize,
        /// The parser's words.
        reason: String,
    },
    /// JSON that is no row.
    #[error("{place} is {found}; a row is an object, with columns by name")]
    NotObject {
        /// Where.
        place: Place,
        /// What it is.
        found: &'static str,
    },
    /// A row that the parquet reader gave up at.
    #[error("{place} could not be read: {reason}")]
    Unread {
        /// Where.
        place: Place,
        /// The reader's words.
        reason: String,
    },
    /// A row without a column that is needed.
    #[error("{place} has no column `{column}`")]
    NoColumn {
        /// Where.
        place: String,
        /// What the column was to be.
        key: &'static str,
        /// Its name.
        column: String,
        /// The columns it has.
        columns: Vec<String>,
    },
    /// A row without a column that a policy asks for.
    #[error("{place} has no column `{column}`, and the policy wants the column `{name}`")]
    NoFact {
        /// Where.
        place: Place,
        /// What the policy calls it.
        name: String,
        /// Its name.
        column: String,
        /// The columns it has.
        columns: Vec<String>,
    },
    /// What no column of a policy can have.
    #[error("{place}: `{column}`, which is the policy's column `{name}`, is {found}")]
    Fact {
        /// Where.
        place: Place,
        /// What the policy calls it.
        name: String,
        /// The column.
        column: String,
        /// What it has.
        found: String,
    },
    /// A question of no kind that can be asked.
    #[error("{place}: `{column}` is neither text nor a list of messages with `role` and `content`")]
    Question {
        /// Where.
        place: Place,
        /// The column.
        column: String,
    },
    /// A question that does not fit the wording.
    #[error("{place}: {reason}")]
    Wording {
        /// Where.
        place: Place,
        /// What does not fit.
        reason: String,
    },
    /// An answer that no grader could use.
    #[error("{place}: `{column}` {reason}")]
    Answer {
        /// Where.
        place: Place,
        /// The column.
        column: String,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        hint: &'static str,
    },
}

impl DataError {
    pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        let reason = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
            std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            std::io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
            _ => error.to_string(),
        };
        Self::Unreadable { path: path.to_owned(), reason }
    }

    pub(super) fn answer(fault: AnswerFault, place: Place, column: String) -> Self {
        let (reason, hint) = match fault {
            AnswerFault::Inexact(number) => (
                format!("is {number}, too large a number to be exact in this file"),
                "write such answers as text",
            ),
            AnswerFault::NoMarker(marker) => (
                format!("has no `{marker}`, which the answer is to follow"),
                "`answer_after` is what stands before the answer in every row",
            ),
            AnswerFault::NoBox => (
                "has no `\\boxed{…}` that closes".to_owned(),
                "`answer_boxed` is for solutions that end in a box in every row",
            ),
            AnswerFault::Worked => (
                "is a worked solution, with its answer after `####`".to_owned(),
                "`answer_after = \"####\"` keeps the answer alone, `answer_after = \"\"` the whole text",
            ),
            AnswerFault::Nested => (
                "is a list of lists".to_owned(),
                "an answer is text, a number, or a list of those of which any is right",
            ),
        };
        Self::Answer { place, column, reason, hint }
    }

    /// What to do about it, if there is something to say.
    pub fn hint(&self) -> Option<String> {
        let fixed = match self {
            Self::NoColumn { key, columns, .. } => {
                return Some(format!("its columns are {}; `{key}` names the one to take", listed(columns)));
            }
            Self::NoLayout { columns, .. } => {
                return Some(format!(
                    "its columns are {}; say which to take with `question = \"…\"` and `answer = \"…\"`",
                    listed(columns)
                ));
            }
            Self::NoFact { name, columns, .. } => {
                return Some(format!(
                    "its columns are {}; say which to take with `columns = {{ {name} = \"…\" }}`",
                    listed(columns)
                ));
            }
            Self::Fact { .. } => {
                "each problem has a finite number there, a word, or a list of as many numbers: mend these rows, or leave them \
                 out"
            }
            Self::OwnColumn => {
                "policies get it without a column of the files; call the other one by another name"
            }
            Self::Answer { hint, .. } => hint,
            Self::UnknownFormat(_) => "set `format` to \"jsonl\", \"json\" or \"parquet\"",
            Self::Codec { .. } => "write the file again with snappy or zstd",
            Self::Unsupported { .. } => {
                "text, numbers, true and false, and lists and structs of those are read"
            }
            Self::Empty(_) => "a row is an object with a question and an answer in it",
            Self::NotUtf8(_) => "write the file again as UTF-8",
            Self::NotArray { .. } | Self::NotJson { .. } => "rows stand one to a line, or all in one array",
            Self::NothingAsked { .. } => "`question` names the column to take",
            Self::NothingAnswered { .. } => "`answer` names the column to take",
            _ => return None,
        };
        Some(fixed.to_owned())
    }
}

fn listed(columns: &[String]) -> String {
    let mut names: Vec<String> =
        columns.iter().take(LISTED).map(|name| format!("`{}`", shown::name(name))).collect();
    if columns.len() > LISTED {
        names.push(format!("{} more", columns.len() - LISTED));
    }
    names.join(", ")
}
