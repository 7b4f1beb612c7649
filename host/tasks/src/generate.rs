//! Procedural tasks: problems generated from a seed, on a ladder of levels.
//!
//! A problem depends only on its task's config: not on the run's seed, the clock or the machine. A level
//! has no problem twice. If it has fewer problems than requested, all of them are taken. Nothing here
//! depends on graders; gold answers are written so that one can use them.

mod calculator;
mod chain;
mod countdown;
mod guess;
mod level;
mod sorting;
mod space;

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use allot_allocation::seed::{self, Stream};
use allot_allocation::{Cell, SOURCE};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Problem;
pub use crate::dataset::Split;
use crate::dataset::{Question, Wording};
use crate::environment::Embedded;
use crate::question::Key;
pub use crate::style::Style;
pub use chain::{Chain, Operator};
pub use level::{Level, Range};
use space::Space;

/// Number of draws in a row without a new problem after which a level too large to enumerate counts as
/// exhausted. Needed for countdowns with rare targets.
const PATIENCE: u32 = 20_000;

/// Maximum number of problems of a task, over all its levels: they are kept in memory.
const MOST: u64 = 1_000_000;

/// A task with its levels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskConfig {
    /// Kind of the task.
    pub kind: TaskKind,
    /// Name of the problems' source, before the level's number; by default the kind.
    pub name: Option<String>,
    /// Style of the questions.
    #[serde(default)]
    pub style: Style,
    /// Number of problems at each level, on both sides of the split together.
    pub count: usize,
    /// The levels. A problem's source is `sums/1` for the first one.
    pub levels: Vec<Level>,
    /// Seed of the draws. It is separate, so that runs with other seeds have the same problems.
    #[serde(default)]
    pub seed: u64,
    /// Share of problems to hold out, from 0 to less than 1. A problem's side depends on its question, up
    /// to the order of numbers that may be swapped, and not on seed, style or template. So a held-out
    /// problem is never trained on.
    #[serde(default)]
    pub held_out: f64,
    /// Prompt in Jinja: `{{ question }}` is the question in the task's style.
    pub template: Option<String>,
    /// Whether it is asked as a user's message, for the model's chat template.
    #[serde(default)]
    pub chat: bool,
    /// A system message before the prompt.
    pub system: Option<String>,
    /// Columns for policies, by the policy's name, each with a source: `level`, from 1; `task`, the name
    /// before the level's number; or `source`, both together. The default is the source of the same name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, String>,
}

/// A kind of task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskKind {
    /// Whole numbers to add. Gold: the sum.
    Sums,
    /// Whole numbers to multiply; reasoning-gym's `products`. Gold: the product.
    Products,
    /// Whole numbers with signs between them, products first; with the operators + and - alone it
    /// is reasoning-gym's `chain_sum`. Gold: the value.
    Chains,
    /// Numbers, each to be used exactly once, and a target to make of them with + - * /, as
    /// TinyZero grades it; a solution exists. Gold: `{"target":98,"numbers":[44,19,35]}`.
    Countdown,
    /// Numbers to sort, up or down; after reasoning-gym's `number_sorting`, with whole numbers and
    /// an answer without brackets and quotes. Gold: the numbers, with `, ` between them, in the
    /// terse style `,`.
    Sorting,
    /// A hidden number to find in several turns, with a tool that compares:
    /// [`guess`](crate::environment::guess). Gold: `{"low":17,"high":80,"calls":6,"style":"terse"}`.
    Guess,
    /// Numbers to add in several turns, with a tool that adds two:
    /// [`calculator`](crate::environment::calculator). Gold: `{"numbers":[47,85],"calls":1,"style":"terse"}`.
    Calculator,
}

impl fmt::Display for TaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sums => "sums",
            Self::Products => "products",
            Self::Chains => "chains",
            Self::Countdown => "countdown",
            Self::Sorting => "sorting",
            Self::Guess => "guess",
            Self::Calculator => "calculator",
        })
    }
}

impl TaskKind {
    /// Returns the environment in which its problems are episodes, or `None` if each has one answer.
    pub fn environment(self) -> Option<Embedded> {
        match self {
            Self::Guess => Some(Embedded::Guess),
            Self::Calculator => Some(Embedded::Calculator),
            Self::Sums | Self::Products | Self::Chains | Self::Countdown | Self::Sorting => None,
        }
    }

    /// Returns whether its problems are episodes in an environment, and not one answer each.
    pub fn is_played(self) -> bool {
        self.environment().is_some()
    }
}

/// The problems drawn for one side.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// The problems of one side, from the first level to the last.
    pub problems: Vec<Problem>,
    /// Levels with fewer problems than requested, on both sides together.
    pub short: Vec<Short>,
}

/// A level with fewer problems than requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// The level, as in its problems' source.
    pub source: String,
    /// Number of problems requested.
    pub asked: usize,
    /// Number of problems found.
    pub found: usize,
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, asked, found } = self;
        write!(f, "`{source}` has only {found} different problems of the {asked} requested; all are used")
    }
}

/// An error in a task's config.
#[derive(Debug, Error, PartialEq)]
pub enum TaskError {
    /// No levels, or a level without problems.
    #[error("task `{0}` asks for no problems: it needs levels, and a count of at least 1")]
    Nothing(String),
    /// Too many problems.
    #[error("task `{0}`: `count` asks for {1} problems at all its levels; expected at most {MOST}")]
    Many(String, u64),
    /// An invalid level.
    #[error("task `{source_name}`: {reason}")]
    Level {
        /// The level, as in its problems' source.
        source_name: String,
        /// The reason.
        reason: String,
    },
    /// A held-out share that is not allowed.
    #[error("task `{0}`: `held_out` is {1}; expected at least 0 and below 1")]
    Share(String, f64),
    /// An invalid template.
    #[error("task `{0}`: `template` is not a template: {1}")]
    Template(String, String),
    /// A column that problems do not have.
    #[error("task `{0}` has no `{2}`, but the policy wants the column `{1}`")]
    Column(String, String, String),
    /// No problem was found.
    #[error("task `{0}`: no problem fits the level's numbers and target")]
    Barren(String),
}

impl TaskError {
    /// Returns a hint, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Column(..) => {
                Some("set the task's `columns` to take the column from `level`, `task` or `source`")
            }
            _ => None,
        }
    }
}

/// A problem in both styles.
struct Exercise {
    terse: String,
    words: String,
    gold: String,
    /// Text that is equal for problems that differ only in the order of numbers, such as `3+4` and `4+3`.
    essence: String,
}

impl TaskConfig {
    /// Returns the value of a policy's column, for the problems of a level.
    fn cell(&self, task: &str, source: &str, column: &str, level: usize) -> Result<Cell, TaskError> {
        match self.columns.get(column).map_or(column, String::as_str) {
            "level" => Ok(Cell::Number(level as f32)),
            "task" => Ok(Cell::Word(task.to_owned())),
            SOURCE => Ok(Cell::Word(source.to_owned())),
            other => Err(TaskError::Column(task.to_owned(), column.to_owned(), other.to_owned())),
        }
    }
}

/// Generates the problems of a task on one side of its split. A smaller count gives, at each level, the
/// first problems of a larger count.
pub fn generate(task: &TaskConfig, split: Split) -> Result<Drawn, TaskError> {
    with_columns(task, split, &[])
}

/// As [`generate()`], with the values of a policy's columns `wanted` in each problem.
pub fn with_columns(task: &TaskConfig, split: Split, wanted: &[String]) -> Result<Drawn, TaskError> {
    let name = task.name.clone().unwrap_or_else(|| task.kind.to_string());
    if !Split::possible(task.held_out) {
        return Err(TaskError::Share(name, task.held_out));
    }
    if task.levels.is_empty() || task.levels.iter().any(|level| level.count.unwrap_or(task.count) == 0) {
        return Err(TaskError::Nothing(name));
    }
    let asked = task.levels.iter().map(|level| level.count.unwrap_or(task.count) as u64);
    let asked = asked.fold(0, u64::saturating_add);
    if asked > MOST {
        return Err(TaskError::Many(name, asked));
    }
    let template = |reason| TaskError::Template(name.clone(), reason);
    let wording =
        Wording::new(task.template.as_deref(), task.chat, task.system.as_deref()).map_err(template)?;
    let mut drawn = Drawn { problems: Vec::new(), short: Vec::new() };
    let mut seen = HashSet::new();
    for (index, level) in task.levels.iter().enumerate() {
        let source = format!("{name}/{}", index + 1);
        level.check(task.kind).map_err(|reason| TaskError::Level { source_name: source.clone(), reason })?;
        let asked = level.count.unwrap_or(task.count);
        // Each kind and level has its own part of the seed.
        let part = ((task.kind as u64) << 32) | index as u64;
        let columns = wanted.iter().map(|column| task.cell(&name, &source, column, index + 1));
        let columns: Vec<Cell> = columns.collect::<Result<_, _>>()?;
        let exercises = exercises(task, level, part, asked, &mut seen);
        match exercises.len() {
            0 => return Err(TaskError::Barren(source)),
            found if found < asked => drawn.short.push(Short { source: source.clone(), asked, found }),
            _ => {}
        }
        for exercise in exercises {
            let essence = ["task", &task.kind.to_string(), &exercise.essence];
            if Split::of(&essence, task.held_out) != split {
                continue;
            }
            let question = match task.style {
                Style::Words => exercise.words,
                Style::Terse => exercise.terse,
            };
            let asked = Question::Text(question.clone());
            drawn.problems.push(Problem {
                ask: wording.ask(asked, serde_json::Map::new()).map_err(template)?,
                gold: vec![exercise.gold],
                source: source.clone(),
                key: Key::of(&essence),
                question,
                place: None,
                columns: columns.clone(),
            });
        }
    }
    Ok(drawn)
}

/// Returns `asked` problems of a level that no earlier level had, or all there are.
fn exercises(
    task: &TaskConfig,
    level: &Level,
    part: u64,
    asked: usize,
    seen: &mut HashSet<String>,
) -> Vec<Exercise> {
    let mut shapes: Vec<_> = level
        .shapes()
        .enumerate()
        .map(|(at, shape)| {
            let mut stream = Stream::new(seed::world(seed::world(task.seed, part, 0), at as u64, 0));
            (shape, Space::new(level.radices(task.kind, shape), &mut stream))
        })
        .collect();
    let mut exercises = Vec::new();
    let (mut draw, mut misses) = (0, 0);
    while exercises.len() < asked && !shapes.is_empty() && misses < PATIENCE {
        draw += 1;
        let mut stream = Stream::new(seed::world(task.seed, part, draw));
        // Shapes are drawn with equal frequency while they last. Otherwise nearly all problems of 1 to 3
        // digits would have 3.
        let at = stream.below(shapes.len());
        let (shape, space) = &mut shapes[at];
        let Some(choices) = space.next(&mut stream) else {
            shapes.remove(at);
            continue;
        };
        let made = level.exercise(task.kind, *shape, &choices, task.style);
        // A countdown with the same numbers in another order is the same problem. A sum with the same
        // numbers in another order is another question.
        let is_new = made.as_ref().is_some_and(|made| {
            let name = if task.kind == TaskKind::Countdown { &made.essence } else { &made.terse };
            seen.insert(name.clone())
        });
        match made {
            Some(made) if is_new => {
                misses = 0;
                exercises.push(made);
            }
            _ => misses += u32::from(space.is_endless()),
        }
    }
    exercises
}
