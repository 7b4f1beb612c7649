//! `allot bank`: collects rollouts of any trainer by prompt, for `allot simulate --bank`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use allot_allocation::shown;
use allot_bank::{Asked, Bank, Field, Left, Profile, Told, read};
use allot_base::{Error, Exit, Result, count, did_you_mean, find};
use allot_outputs::banked::{self, BankedRow};
use allot_outputs::rollouts::parts;
use allot_tasks::dataset::Format;
use clap::Args;
use serde_json::{Value, json};

use crate::screen::Screen;

/// Make a bank for `allot simulate --bank` from rollouts of runs, other trainers or evaluations
#[derive(Debug, Args)]
pub struct BankFiles {
    /// Files of rollouts (parquet, Arrow, JSON lines, JSON, CSV, TSV), or folders: a run's, a comparison's, or one of such files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the bank to this file, replacing what is there
    #[arg(long, value_name = "FILE", default_value = "bank.parquet")]
    out: PathBuf,
    /// The column that has the `prompt`, `reward`, `correct`, `tokens`, `truncated`, `version`, `prompt_tokens` or `text`
    /// of a rollout, as NAME=COLUMN; rewards of several columns are added up, as in reward=right+form
    #[arg(long = "column", value_name = "NAME=COLUMN")]
    columns: Vec<String>,
    /// Keep only rows with this value in a column, as in arm=uniform; repeatable
    #[arg(long = "where", value_name = "COLUMN=VALUE")]
    only: Vec<String>,
    /// Only rollouts of these versions of the model, as in 0..50, both included
    #[arg(long, value_name = "FIRST..LAST", value_parser = versions)]
    versions: Option<RangeInclusive<u32>>,
    /// Count an answer as right from this reward on, if the file does not say
    #[arg(long, value_name = "REWARD", default_value_t = 0.5, allow_negative_numbers = true)]
    right: f64,
    /// Estimate lengths from characters, if a file has answers and no lengths
    #[arg(long, value_name = "NUMBER")]
    characters_per_token: Option<f64>,
    /// Print the bank's contents as JSON
    #[arg(long)]
    json: bool,
}

/// Makes the bank.
pub fn run(command: &BankFiles, screen: &mut Screen<'_>) -> Result<Exit> {
    let asked = asked(command)?;
    let mut files = Vec::new();
    for place in &command.files {
        files.extend(below(place)?);
    }
    if let Some(file) = files.iter().find(|file| is_same(file, &command.out)) {
        let what = format!("`{}` would be overwritten while it is read", shown::path(file));
        return Err(Error::new(what).hint("name another file with --out"));
    }
    screen.draw(format_args!("reading {}", count(files.len() as u64, "file")));
    let (rows, told) = read(&files, &asked)?;
    let bank = Bank::of(rows);
    screen.draw("");
    let rows: Vec<BankedRow<'_>> =
        (0..).zip(&bank.prompts).flat_map(|(i, prompt)| rows_of(i, prompt)).collect();
    banked::write(&command.out, &rows)?;
    let profile = Profile::of(&bank);
    if command.json {
        screen.say(json(&profile, &told));
    } else {
        show(&profile, screen);
    }
    for words in notes(&profile, &told) {
        screen.tell(words);
    }
    screen.tell(format_args!("the bank is in {}", command.out.display()));
    Ok(Exit::Good)
}

/// Returns the checked options.
fn asked(command: &BankFiles) -> Result<Asked> {
    let mut columns: BTreeMap<Field, Vec<String>> = BTreeMap::new();
    for typed in &command.columns {
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
    let only = command.only.iter().map(|typed| {
        pair(typed, "--where", "arm=uniform").map(|(column, value)| (column.to_owned(), value.to_owned()))
    });
    if let Some(number) = command.characters_per_token.filter(|n| !(n.is_finite() && *n > 0.0)) {
        return Err(Error::new(format!(
            "`--characters-per-token` is {number}; expected a finite number above 0"
        )));
    }
    if !command.right.is_finite() {
        return Err(Error::new(format!("`--right` is {}; expected a finite number", command.right)));
    }
    Ok(Asked {
        columns,
        only: only.collect::<Result<_>>()?,
        right: command.right,
        versions: command.versions.clone(),
        characters_per_token: command.characters_per_token,
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
    if files.is_empty() {
        let unread = |e: std::io::Error| Error::file("read", place, &e);
        for entry in std::fs::read_dir(place).map_err(unread)? {
            let path = entry.map_err(unread)?.path();
            if path.is_file() && Format::of_ending(&path).is_some() {
                files.push(path);
            }
        }
        files.sort_by(|a, b| find::natural(&a.to_string_lossy(), &b.to_string_lossy()));
    }
    if files.is_empty() {
        let what = format!("there is no file of rollouts in `{}`", shown::path(place));
        return Err(Error::new(what)
            .hint("name a folder with files that end in .parquet, .jsonl, .json, .csv, .tsv or .arrow"));
    }
    Ok(files)
}

fn is_same(a: &Path, b: &Path) -> bool {
    matches!((std::fs::canonicalize(a), std::fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

fn rows_of(i: u32, prompt: &allot_bank::Prompt) -> impl Iterator<Item = BankedRow<'_>> {
    prompt.rollouts.iter().map(move |rollout| BankedRow {
        prompt: i,
        problem: &prompt.name,
        prompt_tokens: prompt.tokens,
        version: rollout.version,
        tokens: rollout.tokens,
        truncated: rollout.truncated,
        reward: rollout.reward,
        correct: rollout.correct,
    })
}

fn show(profile: &Profile, screen: &mut Screen<'_>) {
    let [fewest, median, most] = profile.each;
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let length = |length: Option<u32>| length.map_or("unknown".to_owned(), |tokens| tokens.to_string());
    let [right, wrong] = profile.lengths;
    let (first, last) = (profile.versions.start(), profile.versions.end());
    for (name, text) in [
        ("prompts", profile.prompts.to_string()),
        ("rollouts", profile.rollouts.to_string()),
        ("  of a prompt", format!("{median} in the middle, from {fewest} to {most}")),
        ("mean pass rate", format!("{:.3}", profile.pass_rate)),
        ("  prompts never right", percent(profile.never)),
        ("  prompts always right", percent(profile.always)),
        ("  fitted", format!("Beta({:.2}, {:.2})", profile.fit.right, profile.fit.wrong)),
        ("median length, right", length(right)),
        ("  wrong", length(wrong)),
        ("versions", if first == last { first.to_string() } else { format!("{first} to {last}") }),
    ] {
        screen.say(format_args!("  {name:<24}{text}"));
    }
}

/// Returns notes for the user: what was left out, what was inferred, and what the bank can't know.
fn notes(profile: &Profile, told: &Told) -> Vec<String> {
    let mut layouts = told.layouts.clone();
    layouts.dedup();
    let mut notes = vec![format!("read as: {}", layouts.join(", "))];
    let left = |(left, rows): (&Left, &u64)| format!("{} left out: {}", count(*rows, "row"), left.words());
    notes.extend(told.left.iter().map(left));
    for (rows, what) in [
        (told.by_reward, "an answer counts as right if its reward is at least --right"),
        (told.by_characters, "lengths are estimated from characters"),
    ] {
        if rows > 0 {
            notes.push(format!("{what}: {}", count(rows, "rollout")));
        }
    }
    if profile.no_length > 0 {
        let n = count(profile.no_length as u64, "rollout");
        notes.push(format!("unknown: the length of {n}; each counts as one token"));
    }
    if profile.no_prompt_length > 0 {
        let n = count(profile.no_prompt_length as u64, "prompt");
        notes.push(format!("unknown: the length of {n}; each counts as one token"));
    }
    if told.no_version > 0 {
        let n = count(told.no_version, "rollout");
        notes.push(format!("unknown: the model's version at {n}; assumed to be 0"));
    } else if profile.versions.start() < profile.versions.end() {
        notes.push(
            "the rollouts are from several versions of the model; set --versions FIRST..LAST to keep some"
                .to_owned(),
        );
    }
    if profile.graded {
        notes.push(
            "rewards are not only right and wrong; the fitted model draws from the prompt's own rewards"
                .to_owned(),
        );
    }
    notes
}

fn json(profile: &Profile, told: &Told) -> Value {
    let left: serde_json::Map<String, Value> =
        told.left.iter().map(|(left, rows)| (left.words().to_owned(), (*rows).into())).collect();
    json!({
        "prompts": profile.prompts, "rollouts": profile.rollouts, "rollouts_of_a_prompt": profile.each,
        "pass_rate": profile.pass_rate, "never_right": profile.never, "always_right": profile.always,
        "fit": [profile.fit.right, profile.fit.wrong], "median_tokens_right": profile.lengths[0],
        "median_tokens_wrong": profile.lengths[1], "versions": [profile.versions.start(), profile.versions.end()],
        "unknown_lengths": profile.no_length, "unknown_prompt_lengths": profile.no_prompt_length,
        "unknown_versions": told.no_version, "right_by_reward": told.by_reward,
        "lengths_by_characters": told.by_characters, "layouts": told.layouts, "left_out": left,
    })
}
