//! Errors of a data set: each message says what was found and where; the hint says what to do.

use std::path::{Path, PathBuf};

use allot_allocation::shown;
use allot_base::count;
use thiserror::Error;

use super::Format;
use super::answer::AnswerFault;
use super::wording::QuestionFault;
use crate::place::Place;

/// Maximum number of columns in a hint.
const LISTED: usize = 20;

/// Reason why a folder cannot be read as a file.
const FOLDER: &str = "it is a folder";

/// An error in a data set or its config.
#[derive(Debug, Error)]
pub enum DataError {
    // === The config ===
    /// An empty list of files.
    #[error("the data set has no files: `files` is empty")]
    NoFiles,
    /// A held-out share that is not allowed.
    #[error("`held_out` is {0}; expected at least 0 and below 1")]
    Share(f64),
    /// A template that does not parse.
    #[error("`template` is not a template: {0}")]
    Template(String),
    /// A limit of 0.
    #[error("`limit` is 0; expected at least 1")]
    NoLimit,
    /// `skip` went past the last row.
    #[error("`skip` is {skip}, which leaves nothing of the data set (rows: {rows})")]
    AllSkipped {
        /// Rows to skip.
        skip: usize,
        /// Rows in the data set.
        rows: usize,
    },
    /// No problem is short enough.
    #[error("every prompt of the data set is longer than {longest}")]
    AllTooLong {
        /// The maximum length.
        longest: usize,
    },

    /// A column name that the host reserves.
    #[error("`columns` has `length`, which is the prompts' lengths in tokens, whatever the files say")]
    OwnColumn,

    // === A file ===
    /// A file that cannot be read.
    #[error("could not read `{path}`: {reason}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file name whose ending is not that of a known format.
    #[error("`{0}` has no extension of a known format")]
    UnknownFormat(PathBuf),
    /// A file of another kind, such as an archive.
    #[error("`{path}` is a {with} file; expected a data file, plain or compressed with gzip or zstd")]
    Packed {
        /// The file.
        path: PathBuf,
        /// Its kind.
        with: &'static str,
    },
    /// A table that is compressed as a whole.
    #[error("`{path}` is a {format} file compressed with {with} as a whole", format = format.name())]
    PackedTable {
        /// The file.
        path: PathBuf,
        /// The table's format.
        format: Format,
        /// The compression.
        with: &'static str,
    },
    /// A pointer of Git LFS.
    #[error("`{0}` is a Git LFS pointer, not the data file itself")]
    Pointer(PathBuf),
    /// A `format` that is not the file's format.
    #[error("`{path}` is {found}, but `format` is {given}", found = found.name(), given = given.name())]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// The format in the config.
        given: Format,
        /// The file's format.
        found: Format,
    },
    /// Not an Arrow file, or a damaged one.
    #[error("`{path}` is not an Arrow file, or it is damaged: {reason}")]
    NotArrow {
        /// The file.
        path: PathBuf,
        /// The reader's message.
        reason: String,
    },
    /// Two columns with the same name.
    #[error("`{file}` has two columns `{column}`: columns {} and {}", at[0], at[1])]
    Twins {
        /// The file.
        file: String,
        /// Their name.
        column: String,
        /// Their positions, from 1.
        at: [usize; 2],
    },
    /// Not a parquet file, or a damaged one.
    #[error("`{path}` is not a parquet file, or it is cut off: {reason}")]
    NotParquet {
        /// The file.
        path: PathBuf,
        /// The reader's message.
        reason: String,
    },
    /// A compression that is not built in.
    #[error("`{path}`: column `{column}` is compressed with {codec}, which is not supported")]
    Codec {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// The compression.
        codec: String,
    },
    /// A type of column that cannot be read.
    #[error("`{path}`: column `{column}` holds {found}, which is not supported")]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// Its type.
        found: String,
    },
    /// JSON that is not an array.
    #[error("`{path}` is JSON, but {found} instead of an array of rows")]
    NotArray {
        /// The file.
        path: PathBuf,
        /// The kind of value found.
        found: &'static str,
    },
    /// A file without rows.
    #[error("`{0}` has no rows")]
    Empty(PathBuf),
    /// A file without a known layout, and no columns named in the config.
    #[error("`{path}` has no columns recognized as {missing}")]
    NoLayout {
        /// The file.
        path: PathBuf,
        /// The missing fields.
        missing: &'static str,
        /// The columns it has.
        columns: Vec<String>,
    },
    /// A file of answers without an answer column, or without a gold column.
    #[error("`{path}` has no column recognized as {missing}")]
    NoAnswers {
        /// The file.
        path: PathBuf,
        /// The missing fields.
        missing: &'static str,
        /// The columns it has.
        columns: Vec<String>,
    },
    /// Several columns that could be the answer.
    #[error("`{path}` may have its answers in any of {}", listed(answers))]
    SeveralAnswers {
        /// The file.
        path: PathBuf,
        /// The columns.
        answers: Vec<String>,
    },
    /// A file in which all questions are null or blank.
    #[error("`{path}` has no row with a question, of {rows} read")]
    NothingAsked {
        /// The first file.
        path: PathBuf,
        /// Rows read.
        rows: usize,
    },
    /// A file in which all answers are null or blank.
    #[error("`{path}` has no row with an answer, of {rows} read")]
    NothingAnswered {
        /// The first file.
        path: PathBuf,
        /// Rows read.
        rows: usize,
    },
    /// A file in which each row lacks a question or an answer.
    #[error(
        "`{path}` has no row with both a question and an answer: of {rows} read, {unasked} without a question and \
         {unanswered} without an answer"
    )]
    NothingWhole {
        /// The first file.
        path: PathBuf,
        /// Rows read.
        rows: usize,
        /// Rows without a question.
        unasked: usize,
        /// Rows without an answer.
        unanswered: usize,
    },

    // === A row ===
    /// A row at which the file ends early or is damaged.
    #[error("{place} could not be read: {reason}")]
    Broken {
        /// Place of the row.
        place: Place,
        /// The reader's message.
        reason: String,
    },
    /// A row that is too long.
    #[error("{place} is longer than {most} MiB", most = super::opened::LONGEST_ROW >> 20)]
    LongRow {
        /// Place of the row.
        place: Place,
    },
    /// A row of CSV with more or fewer fields than columns.
    #[error("{place} has {}; expected {expected}, as in the first row", count(*found as u64, "field"))]
    Fields {
        /// Place of the row.
        place: Place,
        /// Number of fields found.
        found: usize,
        /// Number of columns.
        expected: usize,
        /// The file's format.
        format: Format,
    },
    /// A quote that is not closed.
    #[error("{0} opens a quote that is not closed before the end of the file")]
    OpenQuote(Place),
    /// A value that Python writes but JSON does not have.
    #[error("{place}: `{column}` is {found}")]
    NotInJson {
        /// Place of the row.
        place: Place,
        /// The column.
        column: String,
        /// The kind of value found.
        found: &'static str,
    },
    /// Bytes that are not text.
    #[error("{0} is not UTF-8 text")]
    NotUtf8(Place),
    /// Text that is not JSON.
    #[error("{place} column {column} is not JSON: {reason}")]
    NotJson {
        /// Place of the row.
        place: Place,
        /// The character's column, from 1.
        column: usize,
        /// The parser's message.
        reason: String,
    },
    /// JSON that is not a row.
    #[error("{place} is {found}; expected an object with the columns by name")]
    NotObject {
        /// Place of the row.
        place: Place,
        /// The kind of value found.
        found: &'static str,
    },
    /// A row that the parquet reader cannot read.
    #[error("{place} could not be read: {reason}")]
    Unread {
        /// Place of the row.
        place: Place,
        /// The reader's message.
        reason: String,
    },
    /// A row without a needed column.
    #[error("{place} has no column `{column}`")]
    NoColumn {
        /// Place of the row, or the file.
        place: String,
        /// The config key of the column.
        key: &'static str,
        /// The column.
        column: String,
        /// The columns it has.
        columns: Vec<String>,
    },
    /// A row of a model's answers without an answer or a gold answer.
    #[error("{place} lacks {key}: `{column}` is missing or empty")]
    Lacks {
        /// Place of the row.
        place: Place,
        /// The column.
        column: String,
        /// The missing value.
        key: &'static str,
    },
    /// A value that must be text.
    #[error("{place}: `{column}` is {found}; expected text")]
    NotText {
        /// Place of the row.
        place: Place,
        /// The column.
        column: String,
        /// The kind of value found.
        found: &'static str,
    },
    /// A row without a column that a policy uses.
    #[error("{place} has no column `{column}`, but the policy wants the column `{name}`")]
    NoFact {
        /// Place of the row.
        place: Place,
        /// The policy's name for the column.
        name: String,
        /// The column.
        column: String,
        /// The columns it has.
        columns: Vec<String>,
    },
    /// A value that a policy's column cannot hold.
    #[error("{place}: `{column}`, which is the policy's column `{name}`, is {found}")]
    Fact {
        /// Place of the row.
        place: Place,
        /// The policy's name for the column.
        name: String,
        /// The column.
        column: String,
        /// The value found.
        found: String,
    },
    /// A question that is neither text nor messages.
    #[error("{place}: `{column}` is neither text nor a list of messages with `role` and `content`")]
    Question {
        /// Place of the row.
        place: Place,
        /// The column.
        column: String,
    },
    /// A question with an image or another part that is not text.
    #[error("{place}: message {message} of `{column}` has a part of type `{of}`; expected text", of = shown::name(of))]
    Part {
        /// Place of the row.
        place: Place,
        /// The column.
        column: String,
        /// The message's number, from 1.
        message: usize,
        /// The part's type.
        of: String,
    },
    /// Messages written as text.
    #[error("{place}: `{column}` is a list of messages that was written as text")]
    Written {
        /// Place of the row.
        place: Place,
        /// The column.
        column: String,
    },
    /// Several errors: of rows, and last of a file that could not be read on.
    #[error("{} errors in the data set:\n{}", .0.len(), .0.iter().map(|error| format!("  {error}")).collect::<Vec<_>>().join("\n"))]
    Rows(Vec<DataError>),
    /// A question that does not fit the template or the messages.
    #[error("{place}: {reason}")]
    Wording {
        /// Place of the row.
        place: Place,
        /// The reason.
        reason: String,
    },
    /// An answer that a grader cannot use.
    #[error("{place}: `{column}` {reason}")]
    Answer {
        /// Place of the row.
        place: Place,
        /// The column.
        column: String,
        /// The reason.
        reason: String,
        /// The hint.
        hint: &'static str,
    },
}

impl DataError {
    /// Combines one or more errors.
    pub(super) fn all(mut errors: Vec<Self>) -> Self {
        if errors.len() == 1 { errors.remove(0) } else { Self::Rows(errors) }
    }

    pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        let reason = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
            std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            std::io::ErrorKind::IsADirectory => FOLDER.to_owned(),
            _ => error.to_string(),
        };
        Self::Unreadable { path: path.to_owned(), reason }
    }

    /// Returns the error for a row at which reading the file failed.
    pub(super) fn damaged(place: Place, error: &std::io::Error) -> Self {
        let reason = match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "the file ends too early".to_owned(),
            _ => error.to_string(),
        };
        Self::Broken { place, reason }
    }

    pub(super) fn question(fault: QuestionFault, place: Place, column: String) -> Self {
        match fault {
            QuestionFault::Kind => Self::Question { place, column },
            QuestionFault::Part { message, of } => Self::Part { place, column, message, of },
            QuestionFault::Written => Self::Written { place, column },
        }
    }

    pub(super) fn answer(fault: AnswerFault, place: Place, column: String) -> Self {
        let (reason, hint) = match fault {
            AnswerFault::Inexact(number) => (
                format!("is {number}, which is too large to be exact in this file"),
                "write such answers as text",
            ),
            AnswerFault::NoMarker(marker) => (
                format!("has no `{marker}` before the answer"),
                "set `answer_after` to text that precedes the answer in every row",
            ),
            AnswerFault::NoBox => (
                "has no complete `\\boxed{…}`".to_owned(),
                "set `answer_boxed` only if the solution in every row ends in a box",
            ),
            AnswerFault::Worked => (
                "is a worked solution, with its answer after `####`".to_owned(),
                "set `answer_after = \"####\"` to keep only the answer, or `answer_after = \"\"` to keep all",
            ),
            AnswerFault::WorkedBox => (
                "is a worked solution, with its answer in `\\boxed{…}`".to_owned(),
                "set `answer_boxed = true` to keep the content of the box, or `answer = \"solution\"` to keep the whole text",
            ),
            AnswerFault::Nested => (
                "is a list of lists".to_owned(),
                "write each answer as text, a number, or a list of accepted answers",
            ),
        };
        Self::Answer { place, column, reason, hint }
    }

    /// Returns a hint, if there is one.
    pub fn hint(&self) -> Option<String> {
        let fixed = match self {
            Self::Rows(errors) => return errors.iter().find_map(Self::hint),
            Self::NoColumn { key, columns, .. } => {
                return Some(format!("its columns are {}; set `{key}` to one of them", listed(columns)));
            }
            Self::NoLayout { columns, .. } => {
                return Some(format!(
                    "its columns are {}; choose with `question = \"…\"` and `answer = \"…\"`",
                    listed(columns)
                ));
            }
            Self::NoAnswers { columns, .. } => {
                return Some(format!(
                    "Name the columns with `--column answer=…` and `--column gold=…`; there are {}.",
                    listed(columns)
                ));
            }
            Self::NoFact { name, columns, .. } => {
                return Some(format!(
                    "its columns are {}; choose one with `columns = {{ {name} = \"…\" }}`",
                    listed(columns)
                ));
            }
            Self::Fact { .. } => {
                "give each problem a finite number, a word, or a list of as many numbers, or leave these rows \
                 out"
            }
            Self::OwnColumn => {
                "give that column another name: policies get `length` without a column of the files"
            }
            Self::Answer { hint, .. } => hint,
            Self::SeveralAnswers { .. } => "name the one to take with `answer = \"…\"`",
            Self::UnknownFormat(_) => {
                "set `format` to \"jsonl\", \"json\", \"csv\", \"tsv\", \"parquet\" or \"arrow\""
            }
            Self::Packed { .. } => "unpack it, or write the data set again as JSON lines or parquet",
            Self::PackedTable { .. } => "unpack it: this format has its own compression",
            Self::Pointer(_) => "run `git lfs pull` in its folder",
            Self::OtherFormat { .. } => "leave `format` out: this format is detected from the first bytes",
            Self::Twins { .. } => "rename one of them in the file",
            Self::NotParquet { .. } | Self::NotArrow { .. } | Self::Broken { .. } => {
                "fetch the file again, or write it again; it may have been cut off on the way"
            }
            Self::LongRow { .. } => "shorten the row, or remove what it does not need",
            Self::Fields { format: Format::Tsv, .. } => {
                "put a field between quotes if it has a tab, a quote or a line break in it"
            }
            Self::Fields { .. } => {
                "put a field between quotes if it has a comma, a quote or a line break in it"
            }
            Self::OpenQuote(_) => "double a quote inside a quoted field",
            Self::NotInJson { .. } => "use a valid JSON number or text there, or leave the row out",
            Self::NotObject { .. } => "write each row as an object: {\"question\": \"…\", \"answer\": \"…\"}",
            Self::Question { .. } => "name the column to take with `question = \"…\"`",
            Self::Part { .. } => "leave out rows with parts that are not text",
            Self::Written { .. } => "write the data set as JSON lines or parquet, which have lists",
            Self::Codec { .. } => "write the file again with snappy or zstd",
            Self::Unsupported { .. } => "use text, numbers, booleans, and lists and structs of these",
            Self::Empty(_) => "write each row as an object with a question and an answer",
            Self::NotUtf8(_) => "write the file again as UTF-8",
            Self::NotArray { .. } | Self::NotJson { .. } => {
                "write one row per line, or all rows in one array"
            }
            Self::NothingWhole { .. } => "set `question` and `answer` to the columns to use",
            Self::Unreadable { reason, .. } if reason == FOLDER => "name the files in it",
            Self::NothingAsked { .. } => "set `question` to the column to use",
            Self::NothingAnswered { .. } => "set `answer` to the column to use",
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
