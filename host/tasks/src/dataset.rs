//! Data sets: JSON lines, JSON arrays, CSV, TSV, parquet and Arrow, and how their columns become problems.
//!
//! Every row that is read becomes a problem or appears in the report. A row that does not fit the config is
//! an error with its place. Nothing here knows tokens: the caller gives the lengths of prompts.

mod answer;
mod answered;
mod arrow_file;
mod columns;
mod csv_file;
mod environment;
mod fault;
mod json_rows;
mod opened;
mod parquet_file;
mod python_json;
mod report;
mod row;
mod rows;
mod split;
mod wording;

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use allot_allocation::LENGTH;
use serde::{Deserialize, Serialize};

use crate::Problem;
pub use crate::place::Place;
use crate::question::{Key, folded};
use answer::Answers;
pub use answered::{Answered, AnsweredField, answered};
use columns::{Fields, Mapping};
pub use environment::{EnvironmentConfig, EnvironmentTask, Package};
pub use fault::DataError;
pub use parquet_file::undamaged;
pub use report::{OverLong, Repeat, Report};
pub use row::{Fault, Row, Visit};
pub use rows::{Format, Rows};
pub use split::Split;
pub(crate) use wording::{Question, Wording};

/// The files of a data set, and how their rows become problems.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetConfig {
    /// A file or several, read in this order.
    #[serde(default, skip_serializing_if = "Files::is_none")]
    pub files: Files,
    /// The environment that makes the rows, instead of files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<EnvironmentConfig>,
    /// Name of the problems' source; by default each file's name without its ending.
    pub name: Option<String>,
    /// Format of the files; by default that of their first bytes or their endings.
    pub format: Option<Format>,
    /// Column of the question: text, or a list of messages. Dots reach into structs, as in
    /// `extra_info.raw_problem`. By default, that of the first known layout that fits: `prompt` with
    /// `reward_model.ground_truth` (verl's), `problem` with `answer`, `question` with `answer`, `question`
    /// with `final_answer`, `prompt` with the only one of `solution`, `ground_truth`, `answer`,
    /// `final_answer` and `target` that the file has (TRL's).
    pub question: Option<String>,
    /// Column of the answer: text, a number, a list of these of which any counts as right, or an object,
    /// which becomes its JSON text. The default is as for `question`.
    pub answer: Option<String>,
    /// Marker before the answer, such as GSM8K's `####`. The text after the last one is the answer.
    pub answer_after: Option<String>,
    /// Whether the answer is the content of the last `\boxed{…}`.
    #[serde(default)]
    pub answer_boxed: bool,
    /// Prompt in Jinja: `{{ question }}`, and every column under its name.
    pub template: Option<String>,
    /// Whether text is asked as a user's message, for the model's chat template.
    #[serde(default)]
    pub chat: bool,
    /// A system message before the prompt, which then consists of messages, too.
    pub system: Option<String>,
    /// Number of rows to leave out at the start.
    #[serde(default)]
    pub skip: usize,
    /// Maximum number of rows to read after those.
    pub limit: Option<usize>,
    /// Treatment of a row that equals an earlier one.
    #[serde(default)]
    pub duplicates: Duplicates,
    /// Share of the problems to hold out, from 0 to less than 1; see [`Split`].
    #[serde(default)]
    pub held_out: f64,
    /// Columns for policies, by the policy's name for them, each with a column of the files. By default a
    /// column has the same name. `source` defaults to the name of the problems' source.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, String>,
}

/// One or more files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a file, or a list of files")]
pub enum Files {
    /// One file.
    One(PathBuf),
    /// Several files.
    Many(Vec<PathBuf>),
}

impl Default for Files {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl Files {
    /// Whether there are no files.
    pub fn is_none(&self) -> bool {
        self.all().is_empty()
    }

    /// All the files.
    pub fn all(&self) -> &[PathBuf] {
        match self {
            Self::One(file) => std::slice::from_ref(file),
            Self::Many(files) => files,
        }
    }
}

/// Treatment of a row that equals an earlier one. It is always reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Duplicates {
    /// It is left out.
    #[default]
    Drop,
    /// It is kept as a separate prompt: One-Shot RLVR's file is one problem, 128 times.
    Keep,
}

/// The problems of a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// The problems, in the files' order.
    pub problems: Vec<Problem>,
    /// Statistics of the rows that were read, and those that did not become problems.
    pub report: Report,
}

/// The two sides of a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct Sides {
    /// Problems to train on.
    pub train: Vec<Problem>,
    /// Held-out problems, which are never trained on.
    pub held_out: Vec<Problem>,
}

impl Dataset {
    /// Reads a data set. Relative paths start from `folder`. Reading ends at the last row wanted.
    pub fn load(config: &DatasetConfig, folder: &Path) -> Result<Self, DataError> {
        Self::with_columns(config, folder, &[])
    }

    /// As [`load`](Self::load), with values of a policy's columns `wanted` in each training problem.
    pub fn with_columns(config: &DatasetConfig, folder: &Path, wanted: &[String]) -> Result<Self, DataError> {
        if config.columns.contains_key(LENGTH) {
            return Err(DataError::OwnColumn);
        }
        if !Split::possible(config.held_out) {
            return Err(DataError::Share(config.held_out));
        }
        let wording = Wording::new(config.template.as_deref(), config.chat, config.system.as_deref())
            .map_err(DataError::Template)?;
        if config.limit == Some(0) {
            return Err(DataError::NoLimit);
        }
        if config.files.all().is_empty() {
            return Err(DataError::NoFiles);
        }
        let mut loading = Loading {
            config,
            wanted,
            variables: wording.variables(),
            wording,
            answers: Answers {
                after: config.answer_after.as_deref(),
                boxed: config.answer_boxed,
                may_be_worked: false,
            },
            skipped: 0,
            seen: HashMap::new(),
            asked: HashMap::new(),
            dataset: Self { problems: Vec::new(), report: Report::default() },
            refused: Vec::new(),
        };
        for file in config.files.all() {
            match loading.file(&folder.join(file)) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                Err(error) => {
                    loading.refused.push(error);
                    break;
                }
            }
        }
        loading.done()
    }

    /// Removes and reports every problem longer than `longest`. `length` measures a problem, in any unit.
    /// Fails if no problem is left.
    pub fn shorten(
        &mut self,
        longest: usize,
        mut length: impl FnMut(&Problem) -> usize,
    ) -> Result<(), DataError> {
        for problem in std::mem::take(&mut self.problems) {
            let length = length(&problem);
            match problem.place.clone().filter(|_| length > longest) {
                Some(place) => self.report.over_long.push(OverLong { place, length }),
                None => self.problems.push(problem),
            }
        }
        if self.problems.is_empty() {
            return Err(DataError::AllTooLong { longest });
        }
        Ok(())
    }

    /// Splits the problems; `held_out` is a share, from 0 to less than 1. Equal questions are on one side; with
    /// `by_row`, equal rows are.
    pub fn split(self, held_out: f64, by_row: bool) -> Sides {
        let on_train = |p: &Problem| {
            let name = if by_row { &p.id() } else { &p.question };
            Split::of_question(name, held_out) == Split::Train
        };
        let (train, held_out) = self.problems.into_iter().partition(on_train);
        Sides { train, held_out }
    }
}

/// A data set while it is loaded.
struct Loading<'a> {
    config: &'a DatasetConfig,
    wanted: &'a [String],
    wording: Wording<'a>,
    /// Columns that the template uses.
    variables: Vec<String>,
    answers: Answers<'a>,
    skipped: usize,
    /// First place of each problem, by its id.
    seen: HashMap<String, Place>,
    /// First place of each question, by its id without an answer.
    asked: HashMap<String, Place>,
    dataset: Dataset,
    /// Errors of rows, at most [`REFUSED`], which are reported together.
    refused: Vec<DataError>,
}

/// Number of rows with errors after which reading ends.
const REFUSED: usize = 10;

impl Loading<'_> {
    fn file(&mut self, path: &Path) -> Result<ControlFlow<()>, DataError> {
        let rows = Rows::open(path, self.config.format)?;
        let columns = rows.columns();
        let mapping = Mapping::find(self.config, &columns, path)?;
        if rows.have_a_schema() {
            mapping.check(&columns, path)?;
        }
        let name = self.config.name.clone().unwrap_or_else(|| opened::stem(path));
        let fields = Fields::find(self.wanted, &self.config.columns, &columns, &name, rows.are_text());
        let mut needed = vec![mapping.question.clone(), mapping.answer.clone()];
        needed.extend(self.variables.iter().cloned());
        needed.extend(fields.names().cloned());
        if mapping.answer == row::WHOLE {
            needed.extend(columns.iter().cloned());
        }
        rows.each(&needed, &mut |place, row, faults| {
            if self.skipped < self.config.skip {
                self.skipped += 1;
                return Ok(ControlFlow::Continue(()));
            }
            if let Err(error) = self.row((&mapping, &fields), &name, place, row, faults) {
                self.refused.push(error);
            }
            // An error in the first row probably affects most rows.
            let hopeless = self.dataset.report.rows == self.refused.len();
            let is_last = self.config.limit == Some(self.dataset.report.rows)
                || self.refused.len() == REFUSED
                || (hopeless && !self.refused.is_empty());
            Ok(if is_last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
    }

    fn row(
        &mut self,
        (mapping, fields): (&Mapping, &Fields),
        name: &str,
        place: Place,
        row: Row,
        faults: &[Fault],
    ) -> Result<(), DataError> {
        let Dataset { problems, report } = &mut self.dataset;
        report.rows += 1;
        Fault::check(faults, &place, [&mapping.question])?;
        let Some(question) = Question::read(mapping.question_in(&row, &place)?)
            .map_err(|fault| DataError::question(fault, place.clone(), mapping.question.clone()))?
        else {
            report.unasked.push(place);
            return Ok(());
        };
        Fault::check(faults, &place, [&mapping.answer])?;
        let answer = mapping.answer_in(&row, &place)?;
        let gold = Answers { may_be_worked: mapping.found_solution, ..self.answers }
            .golds(&answer)
            .map_err(|fault| DataError::answer(fault, place.clone(), mapping.answer.clone()))?;
        if gold.is_empty() {
            report.unanswered.push(place);
            return Ok(());
        }
        let words = question.words();
        let on_train = Split::of_question(&words, self.config.held_out) == Split::Train;
        let columns = if on_train { fields.cells_in(&row, &place, faults)? } else { Vec::new() };
        // The template's own `question` has the words of the question.
        Fault::check(faults, &place, self.variables.iter().filter(|name| *name != "question"))?;
        let ask = self
            .wording
            .ask(question, row)
            .map_err(|reason| DataError::Wording { place: place.clone(), reason })?;
        let problem = Problem {
            ask,
            gold,
            source: name.to_owned(),
            key: Key::of(&[&folded(&words)]),
            question: words,
            place: Some(place.clone()),
            columns,
        };
        let id = problem.id();
        if let Some(first) = self.seen.get(&id) {
            report.duplicates.push(Repeat { place: place.clone(), first: first.clone() });
            if self.config.duplicates == Duplicates::Drop {
                return Ok(());
            }
        } else {
            self.seen.insert(id, place.clone());
            let question = problem.asked();
            if let Some(first) = self.asked.get(&question) {
                report.contradictions.push(Repeat { place: place.clone(), first: first.clone() });
            } else {
                self.asked.insert(question, place.clone());
            }
        }
        problems.push(problem);
        Ok(())
    }

    fn done(self) -> Result<Dataset, DataError> {
        if !self.refused.is_empty() {
            return Err(DataError::all(self.refused));
        }
        let (dataset, config) = (self.dataset, self.config);
        let report = &dataset.report;
        if dataset.problems.is_empty() {
            let first = config.files.all()[0].clone();
            return Err(match report.rows {
                0 if self.skipped > 0 => DataError::AllSkipped { skip: config.skip, rows: self.skipped },
                0 => DataError::Empty(first),
                rows if report.unasked.len() == rows => DataError::NothingAsked { path: first, rows },
                rows if !report.unasked.is_empty() => DataError::NothingWhole {
                    path: first,
                    rows,
                    unasked: report.unasked.len(),
                    unanswered: report.unanswered.len(),
                },
                rows => DataError::NothingAnswered { path: first, rows },
            });
        }
        Ok(dataset)
    }
}
