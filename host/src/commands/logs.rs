//! Logs of rollouts as a command is given them: files, and what their columns mean.

mod record;

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use allot_allocation::shown;
use allot_bank::{Asked, Bank, Field, Row, Told, is_dump, read};
use allot_base::{Error, Result, count, did_you_mean, find};
use allot_outputs::rollouts::parts;
use allot_tasks::dataset::Format;
use clap::Args;

use crate::screen::Screen;

/// The reward from which an answer counts as right, unless another is given.
const RIGHT: f64 = 0.5;

/// Logs of rollouts.
#[derive(Debug, Args)]
pub struct Logs {
    /// Files of rollouts (parquet, Arrow, JSON lines, JSON, CSV, TSV, slime's .pt), records of runs, or folders: a run's, a comparison's, or one of such files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The column that has the `prompt`, `reward`, `correct`, `tokens`, `truncated`, `version`, `prompt_tokens` or `text`
    /// of a rollout, or the `pass_rate` and number of `rollouts` of a prompt, as NAME=COLUMN; rewards of several columns are added up, as in reward=right+form
    #[arg(long = "column", value_name = "NAME=COLUMN")]
    columns: Vec<String>,
    /// Keep only rows with this value in a column, as in arm=uniform; repeatable
    #[arg(long = "where", value_name = "COLUMN=VALUE")]
    only: Vec<String>,
    /// Only rollouts of these versions of the model, as in 0..50, both included
    #[arg(long, value_name = "FIRST..LAST", value_parser = versions)]
    versions: Option<RangeInclusive<u32>>,
    /// Count an answer as right from this reward on, if the file does not say
    #[arg(long, value_name = "REWARD", default_value_t = RIGHT, allow_negative_numbers = true)]
    right: f64,
    /// Estimate lengths from characters, if a file has texts of prompts and answers and no lengths
    #[arg(long, value_name = "NUMBER")]
    characters_per_token: Option<f64>,
    /// Take prompts of unknown length for this many tokens long
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    prompt_tokens: Option<u32>,
}

impl Logs {
    /// Returns the files.
    ///
    /// # Errors
    ///
    /// A folder without files of rollouts.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        Ok(self.files.iter().map(|place| below(place)).collect::<Result<Vec<_>>>()?.concat())
    }

    /// Returns the runs that files are of: their folders, or records.
    pub fn runs(files: &[PathBuf]) -> Vec<&Path> {
        let mut runs: Vec<&Path> = files.iter().filter_map(|file| run_of(file)).collect();
        runs.dedup();
        runs
    }

    /// Returns the names of the files and folders, without the folders above them.
    pub fn names(&self) -> Vec<String> {
        let name = |place: &PathBuf| {
            place.file_name().map_or_else(|| shown::path(place), |name| name.to_string_lossy().into_owned())
        };
        self.files.iter().map(name).collect()
    }

    /// Returns the options that were given, by name.
    pub fn options(&self) -> Vec<(String, String)> {
        let many = |name: &str, values: &[String]| -> Vec<(String, String)> {
            values.iter().map(|value| (name.to_owned(), value.clone())).collect()
        };
        let mut all = many("--column", &self.columns);
        all.extend(many("--where", &self.only));
        let versions = self.versions.as_ref().map(|range| format!("{}..{}", range.start(), range.end()));
        for (name, value) in [
            ("--versions", versions),
            ("--right", Some(self.right).filter(|right| *right != RIGHT).map(|right| right.to_string())),
            ("--characters-per-token", self.characters_per_token.map(|number| number.to_string())),
            ("--prompt-tokens", self.prompt_tokens.map(|number| number.to_string())),
        ] {
            all.extend(value.map(|value| (name.to_owned(), value)));
        }
        all
    }

    /// Reads the files, by prompt. Returns how they were read, too.
    ///
    /// # Errors
    ///
    /// Options that can't be used, and files without usable rollouts.
    pub fn read(&self, files: &[PathBuf], screen: &mut Screen<'_>) -> Result<(Bank, Told)> {
        let asked = asked(self)?;
        screen.draw(format_args!("reading {}", count(files.len() as u64, "file")));
        let (rows, mut told) = if files.iter().any(|file| record::is_record(file)) {
            self.recorded(files)?
        } else {
            read(files, &asked)?
        };
        let mut bank = Bank::of(rows);
        self.lengths(files, &mut bank, &mut told);
        screen.draw("");
        Ok((bank, told))
    }

    /// Reads the rollouts of records, of runs that have no tables of them.
    fn recorded(&self, files: &[PathBuf]) -> Result<(Vec<Row>, Told)> {
        if let Some(other) = files.iter().find(|file| !record::is_record(file)) {
            let what = format!("`{}` is not a run's record, as another file is", shown::path(other));
            return Err(Error::new(what).hint("give records alone, or leave them out"));
        }
        for (typed, option) in [(&self.columns, "--column"), (&self.only, "--where")] {
            if !typed.is_empty() {
                let what = format!("{option} is for files with columns; a run's record has none");
                return Err(Error::new(what).hint(format!("leave {option} out")));
            }
        }
        let (mut rows, mut told) = (Vec::new(), Told::default());
        let mut first = None;
        for file in files {
            let head = record::read(file, self.versions.as_ref(), &mut rows, &mut told)?;
            let data = record::data(&head);
            if first.get_or_insert_with(|| data.clone()) != &data {
                return Err(record::other_data(&files[0], file));
            }
        }
        if rows.is_empty() {
            let error = Error::new(format!("`{}` has no usable rollouts", shown::path(&files[0])));
            return Err(match told.rows {
                0 => error.hint("the run sampled nothing yet"),
                n => error.hint(format!(
                    "none of its {n} rollouts is of a version that was asked for and has a reward"
                )),
            });
        }
        Ok((rows, told))
    }

    /// Adds lengths of prompts that the files do not have: those of a run's record, and the one that was given.
    fn lengths(&self, files: &[PathBuf], bank: &mut Bank, told: &mut Told) {
        let unknown = bank.prompts.iter().any(|prompt| prompt.tokens.is_none());
        let runs = Self::runs(files);
        if unknown && !runs.is_empty() && files.iter().all(|file| run_of(file).is_some()) {
            let known = record::lengths(&runs).unwrap_or_else(|error| {
                told.unread_record = Some(error.what);
                HashMap::new()
            });
            for prompt in &mut bank.prompts {
                let number = prompt.order.and_then(|order| u32::try_from(order).ok());
                prompt.tokens = prompt.tokens.or_else(|| known.get(&number?).copied());
            }
        }
        for prompt in bank.prompts.iter_mut().filter(|prompt| prompt.tokens.is_none()) {
            prompt.tokens = self.prompt_tokens;
            told.assumed_prompt_lengths += u64::from(prompt.tokens.is_some());
        }
    }
}

/// Returns the run that a file is of: its folder, if that has a record, or the record itself.
fn run_of(file: &Path) -> Option<&Path> {
    if record::is_record(file) {
        return Some(file);
    }
    let rollouts = file.parent().filter(|folder| folder.ends_with("rollouts"))?;
    rollouts.parent().filter(|run| run.join(record::NAME).exists())
}

/// Checks, before anything is computed, that a file can be written where an option says: it is none of those that are read, and
/// no folder, and its folder is there.
pub fn spared(files: &[PathBuf], out: &Path, option: &str) -> Result<()> {
    let is_same = |file: &&PathBuf| matches!((std::fs::canonicalize(file), std::fs::canonicalize(out)), (Ok(a), Ok(b)) if a == b);
    if let Some(file) = files.iter().find(is_same) {
        let what = format!("`{}` would be overwritten while it is read", shown::path(file));
        return Err(Error::new(what).hint(format!("name another file with {option}")));
    }
    if out.is_dir() {
        let what = format!("`{}` is a folder; expected a file", shown::path(out));
        return Err(Error::new(what).hint(format!("name a file with {option}")));
    }
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::read_dir(folder).map(|_| ()).map_err(|e| Error::file("write", out, &e))
}

/// Returns the checked options.
fn asked(logs: &Logs) -> Result<Asked> {
    let mut columns: BTreeMap<Field, Vec<String>> = BTreeMap::new();
    for typed in &logs.columns {
        let (name, column) = pair(typed, "--column", "prompt=question")?;
        let field = Field::of(name).ok_or_else(|| {
            Error::new(format!("--column {}: a bank has no `{}`", shown::line(typed, 80), shown::name(name)))
                .hint(did_you_mean(name, Field::names()))
        })?;
        let several = field == Field::Reward;
        let names = column.split('+').filter(|name| several && !name.is_empty()).map(str::to_owned);
        let names: Vec<String> = names.collect();
        columns.insert(field, if several { names } else { vec![column.to_owned()] });
    }
    let only = logs.only.iter().map(|typed| {
        pair(typed, "--where", "arm=uniform").map(|(column, value)| (column.to_owned(), value.to_owned()))
    });
    if let Some(number) = logs.characters_per_token.filter(|n| !(n.is_finite() && *n > 0.0)) {
        return Err(Error::new(format!(
            "`--characters-per-token` is {number}; expected a finite number above 0"
        )));
    }
    if !logs.right.is_finite() {
        return Err(Error::new(format!("`--right` is {}; expected a finite number", logs.right)));
    }
    Ok(Asked {
        columns,
        only: only.collect::<Result<_>>()?,
        right: logs.right,
        versions: logs.versions.clone(),
        characters_per_token: logs.characters_per_token,
    })
}

fn pair<'t>(typed: &'t str, option: &str, example: &str) -> Result<(&'t str, &'t str)> {
    let both = typed.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    both.ok_or_else(|| {
        let what = format!("{option} {}: expected NAME=VALUE", shown::line(typed, 80));
        Error::new(what).hint(format!("write it like {option} {example}"))
    })
}

/// Parses a range of versions.
fn versions(typed: &str) -> std::result::Result<RangeInclusive<u32>, String> {
    let ends = typed.split_once("..").and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    match ends {
        Some((first, last)) if first <= last => Ok(first..=last),
        _ => Err("expected two versions, the first no later than the last, as in 0..50".to_owned()),
    }
}

/// Returns the files at a place.
fn below(place: &Path) -> Result<Vec<PathBuf>> {
    if !place.is_dir() {
        return Ok(vec![place.to_owned()]);
    }
    let report = place.join("report").join("rollouts.parquet");
    if report.exists() {
        return Ok(vec![report]);
    }
    let of_run = place.join("rollouts");
    let mut files = if of_run.is_dir() { parts(&of_run)? } else { Vec::new() };
    let record = place.join(record::NAME);
    if files.is_empty() && record::is_record(&record) {
        return Ok(vec![record]);
    }
    if files.is_empty() {
        let mut dumps = Vec::new();
        let unread = |e: std::io::Error| Error::file("read", place, &e);
        for entry in std::fs::read_dir(place).map_err(unread)? {
            let path = entry.map_err(unread)?.path();
            if path.is_file() && Format::of_ending(&path).is_some() {
                files.push(path);
            } else if path.is_file() && is_dump(&path) {
                dumps.push(path);
            }
        }
        // Beside other logs, they are a model's weights rather than rollouts.
        if files.is_empty() {
            files = dumps;
        }
        files.sort_by(|a, b| find::natural(&a.to_string_lossy(), &b.to_string_lossy()));
    }
    if files.is_empty() {
        let what = format!("there is no file of rollouts in `{}`", shown::path(place));
        return Err(Error::new(what).hint(
            "name a folder with files that end in .parquet, .jsonl, .json, .csv, .tsv, .arrow or .pt",
        ));
    }
    Ok(files)
}
