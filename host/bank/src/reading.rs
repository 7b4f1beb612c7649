//! Reads files into rows: the reward of each rollout, and the rows that are left out, with reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_allocation::shown;
use allot_base::{Error, Result};
use allot_tasks::dataset::{DataError, Fault, Place, Rows};
use serde_json::{Map, Value};

use crate::cell::{cell, characters, name, number, verdict, whole};
use crate::dump::{self, is_dump};
use crate::layout::{Columns, EPISODES, Field, PROFILE};
use crate::row::{Left, Row};
use crate::traces;

/// Rollouts of a pass rate that does not say of how many it is.
const UNCOUNTED: u32 = 8;
/// The most rollouts that are made of a pass rate: a larger number would only cost memory.
const MOST_COUNTED: u32 = 256;

/// Options for reading files.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Columns by field, which override the layout. Several reward columns are added up.
    pub columns: BTreeMap<Field, Vec<String>>,
    /// Keeps only rows with this text in this column.
    pub only: Vec<(String, String)>,
    /// Smallest reward, or number in the `correct` column, that counts as right.
    pub right: f64,
    /// Keeps only rollouts of these versions.
    pub versions: Option<RangeInclusive<u32>>,
    /// Characters per token, to estimate lengths that the file does not give: of answers, and of prompts of which it has the text.
    pub characters_per_token: Option<f64>,
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            columns: BTreeMap::new(),
            only: Vec::new(),
            right: 0.5,
            versions: None,
            characters_per_token: None,
        }
    }
}

/// Statistics of the files that were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// Layout of each file.
    pub layouts: Vec<&'static str>,
    /// Number of rows read.
    pub rows: u64,
    /// Number of rows left out, by reason.
    pub left: BTreeMap<Left, u64>,
    /// Rows graded right or wrong by their reward.
    pub by_reward: u64,
    /// Rows whose answer's length was estimated from its characters.
    pub by_characters: u64,
    /// Rows whose prompt's length was.
    pub prompts_by_characters: u64,
    /// Prompts whose length the user gave, as the files do not have it.
    pub assumed_prompt_lengths: u64,
    /// Why the record of a run, which has lengths of prompts, was not read.
    pub unread_record: Option<String>,
    /// Arms and seeds of the rows that were kept, of a comparison's table.
    pub runs: BTreeSet<[String; 2]>,
    /// Rows without a version.
    pub no_version: u64,
    /// Rows that are prompts with a pass rate.
    pub pass_rates: u64,
    /// Of those, rows that do not say of how many rollouts.
    pub no_count: u64,
}

/// Reads the rollouts in files, in file order. Fails if there is none.
pub fn read(files: &[PathBuf], asked: &Asked) -> Result<(Vec<Row>, Told)> {
    let mut reading = Reading { asked, rows: Vec::new(), told: Told::default() };
    for file in files {
        reading.file(file)?;
    }
    let Reading { rows, told, .. } = reading;
    if rows.is_empty() {
        let of = files.first().map(|file| shown::path(file)).unwrap_or_default();
        let error = Error::new(match files.len() {
            1 => format!("`{of}` has no usable rollouts"),
            n => format!("none of {n} files, `{of}` first, has usable rollouts"),
        });
        return Err(match told.left.iter().max_by_key(|(_, rows)| **rows) {
            Some((left, rows)) => {
                error.hint(format!("{rows} of its {} rows are {}", told.rows, left.words()))
            }
            None => error,
        });
    }
    Ok((rows, told))
}

/// State while reading files.
struct Reading<'a> {
    asked: &'a Asked,
    rows: Vec<Row>,
    told: Told,
}

impl Reading<'_> {
    fn file(&mut self, path: &Path) -> Result<()> {
        if is_dump(path) {
            return self.dump(path);
        }
        let rows = Rows::open(path, None).map_err(told)?;
        let columns = self.columns(path, &rows.columns())?;
        let mut needed: Vec<String> = columns.names().cloned().collect();
        needed.extend(self.asked.only.iter().map(|(column, _)| column.clone()));
        if self.asked.characters_per_token.is_none() {
            // Texts make up most of a file, so they are read only if lengths are estimated from them, or names are made of them.
            let texts = [Field::Text, Field::PromptText].map(|field| columns.of(field));
            let named = columns.of(Field::Prompt);
            needed.retain(|name| named.contains(name) || !texts.iter().any(|text| text.contains(name)));
        }
        let (mut filter, mut wrong) = (None, None);
        let ended = rows.each(&needed, &mut |place, row, faults| {
            Fault::check(faults, &place, &needed)?;
            wrong = self.row(&columns, &mut filter, &place, &row).err();
            Ok(if wrong.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        match (ended.map_err(told)?, wrong) {
            (ControlFlow::Break(()), Some(wrong)) => Err(wrong),
            _ => Ok(()),
        }
    }

    fn dump(&mut self, path: &Path) -> Result<()> {
        let rows = dump::rows(path)?;
        let there: BTreeSet<&String> = rows.iter().flat_map(Map::keys).collect();
        let columns = self.columns(path, &there.into_iter().cloned().collect::<Vec<_>>())?;
        let file: Arc<str> = path.to_string_lossy().into();
        for (number, row) in (1..).zip(&rows) {
            let place = Place { file: Arc::clone(&file), unit: "sample", number };
            self.row(&columns, &mut None, &place, row)?;
        }
        Ok(())
    }

    fn columns(&mut self, path: &Path, there: &[String]) -> Result<Columns> {
        if there.is_empty() {
            return Err(Error::new(format!("`{}` has no rows", shown::path(path))));
        }
        let only = self.asked.only.iter().map(|(column, _)| column);
        let columns = Columns::find(path, there, &self.asked.columns, only)?;
        self.told.layouts.push(columns.layout);
        Ok(columns)
    }

    fn row(
        &mut self,
        columns: &Columns,
        filter: &mut Option<String>,
        place: &Place,
        row: &Map<String, Value>,
    ) -> Result<()> {
        self.told.rows += 1;
        let is = |column: &str, wanted: &str| cell(row, column).and_then(text).as_deref() == Some(wanted);
        if self.asked.only.iter().any(|(column, wanted)| !is(column, wanted)) {
            self.taken(Err(Left::Only));
            return Ok(());
        }
        if columns.layout == EPISODES && self.asked.columns.is_empty() {
            for rollout in traces::rollouts(row, self.asked.right) {
                self.rolled(rollout);
            }
            return Ok(());
        }
        let rated = columns.has(Field::PassRate);
        match self.rollout(columns, filter, place, row)? {
            Ok(row) if rated && row.count == Some(0) => self.taken(Err(Left::Unscored)),
            Ok(row) if rated => self.rated(row),
            told => self.taken(told),
        }
        Ok(())
    }

    /// Takes a rollout of an episode, if it is of a version that was asked for.
    fn rolled(&mut self, rollout: std::result::Result<Row, Left>) {
        let wanted = |row: &Row| {
            let versions = self.asked.versions.as_ref();
            versions.is_none_or(|wanted| row.version.is_some_and(|version| wanted.contains(&version)))
        };
        let rollout = rollout.and_then(|row| if wanted(&row) { Ok(row) } else { Err(Left::Version) });
        if let Ok(row) = &rollout {
            self.told.by_reward += 1;
            self.told.no_version += u64::from(row.version.is_none());
        }
        self.taken(rollout);
    }

    fn taken(&mut self, rollout: std::result::Result<Row, Left>) {
        match rollout {
            Ok(row) => self.rows.push(row),
            Err(left) => *self.told.left.entry(left).or_default() += 1,
        }
    }

    /// Returns a row's rollout, or why the row is left out.
    fn rollout(
        &mut self,
        columns: &Columns,
        filter: &mut Option<String>,
        place: &Place,
        row: &Map<String, Value>,
    ) -> Result<std::result::Result<Row, Left>> {
        let asked = self.asked;
        let first = |field: Field| columns.of(field).first().and_then(|column| cell(row, column));
        if first(Field::Purpose).and_then(Value::as_str) == Some("evaluation") {
            return Ok(Err(Left::Evaluation));
        }
        let wrong = |field: Field, value: &Value, rule: &str| {
            let found: String = value.to_string().chars().take(60).collect();
            let what = format!("{place}: `{}` is {}; expected {rule}", field.name(), shown::word(&found, 80));
            Error::new(what).hint(format!("check column `{}`", shown::name(&columns.of(field).join("+"))))
        };
        let counted = |field: Field| match first(field) {
            None => Ok(None),
            Some(value) => match whole(value) {
                None => Err(wrong(field, value, "a whole number from 0 to 4,294,967,295")),
                whole => Ok(whole),
            },
        };
        // Where a row is several rollouts, lengths are means.
        let is_mean = columns.layout == PROFILE || columns.has(Field::PassRate);
        let length = |field: Field| match first(field).filter(|_| is_mean).map(number) {
            Some(Some(mean)) if (0.0..=f64::from(u32::MAX)).contains(&mean) => Ok(Some(mean.round() as u32)),
            _ => counted(field),
        };
        let version = counted(Field::Version)?;
        if asked.versions.as_ref().is_some_and(|wanted| !version.is_some_and(|v| wanted.contains(&v))) {
            return Ok(Err(Left::Version));
        }
        if let Some(value) = first(Field::Filter).and_then(text)
            && *filter.get_or_insert_with(|| value.clone()) != value
        {
            return Ok(Err(Left::Filter));
        }
        let Some(key) = first(Field::Prompt).and_then(name) else {
            let what = format!("{place}: `prompt` is empty; expected the prompt's name or its text");
            return Err(Error::new(what)
                .hint(format!("check column `{}`", shown::name(&columns.of(Field::Prompt).join("+")))));
        };
        let mut sum = None;
        for column in columns.of(Field::Reward) {
            if let Some(value) = cell(row, column) {
                let one = number(value).ok_or_else(|| wrong(Field::Reward, value, "a finite number"))?;
                sum = Some(sum.unwrap_or(0.0) + one);
            }
        }
        let said = first(Field::Correct)
            .map(|value| {
                let rule = "true, false, a number, or a word such as correct, C or I";
                verdict(value, asked.right).ok_or_else(|| wrong(Field::Correct, value, rule))
            })
            .transpose()?;
        let rate = first(Field::PassRate).map(|value| {
            let rate = number(value).filter(|rate| (0.0..=1.0).contains(rate));
            rate.ok_or_else(|| wrong(Field::PassRate, value, "a number from 0 to 1"))
        });
        let count = counted(Field::Rollouts)?;
        // A run's own table has a null reward for an unscorable rollout, whatever `correct` says.
        let scored =
            if columns.has(Field::Reward) { sum } else { said.map(|right| f64::from(u8::from(right))) };
        let scored = rate.transpose()?.or(scored);
        let Some(reward) = scored.filter(|reward| (*reward as f32).is_finite()) else {
            return Ok(Err(Left::Unscored));
        };
        self.told.by_reward += u64::from(said.is_none() && columns.has(Field::Reward));
        let mut tokens = length(Field::Tokens)?;
        if let (None, Some(each), Some(answer)) = (tokens, asked.characters_per_token, first(Field::Text)) {
            self.told.by_characters += 1;
            tokens = Some(((characters(answer) as f64 / each).ceil() as u32).max(1));
        }
        let mut prompt_tokens = length(Field::PromptTokens)?;
        if let (None, Some(each), Some(prompt)) =
            (prompt_tokens, asked.characters_per_token, first(Field::PromptText))
            // A number is a prompt's name.
            && number(prompt).is_none()
        {
            let characters = characters(prompt);
            self.told.prompts_by_characters += u64::from(characters > 0);
            prompt_tokens = (characters > 0).then(|| (characters as f64 / each).ceil() as u32);
        }
        self.told.no_version += u64::from(version.is_none());
        if columns.has(Field::Arm) || columns.has(Field::Seed) {
            let run = [Field::Arm, Field::Seed].map(|field| first(field).and_then(text).unwrap_or_default());
            self.told.runs.insert(run);
        }
        Ok(Ok(Row {
            key,
            order: first(Field::Order).and_then(Value::as_u64),
            prompt_tokens,
            version,
            reward: reward as f32,
            correct: said.unwrap_or(reward >= asked.right),
            tokens,
            truncated: first(Field::Truncated).and_then(|value| verdict(value, 1.0)).unwrap_or(false),
            count,
        }))
    }

    /// Takes a prompt with a pass rate as its reward: as many right and wrong rollouts as come closest to it.
    fn rated(&mut self, row: Row) {
        self.told.pass_rates += 1;
        self.told.no_count += u64::from(row.count.is_none());
        let count = row.count.unwrap_or(UNCOUNTED).min(MOST_COUNTED);
        let right = (f64::from(row.reward) * f64::from(count)).round() as u32;
        let one = |correct: bool| Row { reward: f32::from(correct), correct, count: None, ..row.clone() };
        self.rows.extend((0..count).map(|i| one(i < right)));
    }
}

/// Returns a cell's text for comparison with `--where`.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn told(error: DataError) -> Error {
    let hint = match error {
        // The data set's own hint names a config key, which does not apply here.
        DataError::UnknownFormat(_) => Some("use files whose names end in .parquet, .jsonl, .json, .csv, .tsv or .arrow, or in .gz or .zst after it".to_owned()),
        _ => error.hint(),
    };
    Error::new(error.to_string()).hints(hint)
}
