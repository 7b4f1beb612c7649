//! `allot rollouts`: shows rollouts of a run with their questions.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use allot_allocation::shown;
use allot_base::{Error, Exit, Result, count};
use allot_outputs::rollouts::parts;
use allot_tasks::dataset::undamaged;
use clap::Args;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;

use crate::screen::Screen;

/// Show rollouts of a training run: question, answer, reward, and what became of each
#[derive(Debug, Args)]
pub struct Rollouts {
    /// The run's folder
    run: PathBuf,
    /// Show only this step, counted from 0 as in the table; for a held-out set, the number of steps done
    /// before it
    #[arg(long)]
    step: Option<i64>,
    /// Show only this prompt
    #[arg(long)]
    prompt: Option<i64>,
    /// Show rollouts of this held-out set instead of training rollouts
    #[arg(long)]
    set: Option<String>,
    /// Rollouts to show
    #[arg(long, default_value_t = 10)]
    show: usize,
}

/// The most bytes shown of a question or an answer.
const TEXT: usize = 64 << 10;

/// A row, by column name.
type Row = BTreeMap<String, Field>;

/// Shows rollouts.
pub fn run(command: &Rollouts, screen: &mut Screen<'_>) -> Result<Exit> {
    let place = command.run.join("problems.parquet");
    let mut problems = BTreeMap::new();
    each(&place, &mut |row| {
        problems.insert(number(&row, "prompt"), row);
    })?;
    let mut found = Vec::new();
    let mut all = 0_u64;
    for part in parts(&command.run.join("rollouts"))? {
        each(&part, &mut |row| {
            if wanted(command, &row) {
                all += 1;
                if found.len() < command.show {
                    found.push(row);
                }
            }
        })?;
    }
    // Rollouts of a prompt stay together, in the order of sampling.
    found.sort_by_key(|row| (number(row, "step"), number(row, "prompt"), number(row, "rollout")));
    let mut before = None;
    for row in &found {
        let prompt = number(row, "prompt");
        if before != Some(prompt) {
            let problem = problems.get(&prompt);
            let of = |name| problem.map(|p| text(p, name)).unwrap_or_default();
            screen.say(format_args!(
                "prompt {prompt}, {}, gold {}",
                shown::name(&of("source")),
                shown::word(&of("gold"), shown::LINE)
            ));
            block(&of("question"), screen);
            before = Some(prompt);
        }
        screen.say(format_args!("  {}", headline(row)));
        block(&text(row, "text"), screen);
    }
    if all > found.len() as u64 {
        screen.tell(format_args!("{} of {}; more with --show", found.len(), count(all, "rollout")));
    } else {
        screen.tell(count(all, "rollout"));
    }
    Ok(if all == 0 { Exit::Bad } else { Exit::Good })
}

fn wanted(command: &Rollouts, row: &Row) -> bool {
    let is = |wanted: Option<i64>, name| wanted.is_none_or(|wanted| number(row, name) == wanted);
    let set = match row.get("set") {
        Some(Field::Str(set)) => Some(set.as_str()),
        _ => None,
    };
    is(command.step, "step") && is(command.prompt, "prompt") && set == command.set.as_deref()
}

/// Returns a line about a rollout.
fn headline(row: &Row) -> String {
    // parquet would format a number as `0E0`.
    let of = |name: &str| match row.get(name)? {
        Field::Null => None,
        Field::Float(x) => Some(x.to_string()),
        Field::Double(x) => Some(x.to_string()),
        other => Some(other.to_string()),
    };
    let round = of("round").map(|round| format!(", round {round}")).unwrap_or_default();
    let reward = of("reward").map_or("no reward".to_owned(), |reward| format!("reward {reward}"));
    let advantage = of("advantage").map(|a| format!(", advantage {a}")).unwrap_or_default();
    let limit = if row.get("truncated") == Some(&Field::Bool(true)) { ", cut off at the limit" } else { "" };
    let (step, rollout, tokens) = (number(row, "step"), number(row, "rollout"), number(row, "tokens"));
    let fate = shown::name(&text(row, "fate"));
    let played = of("turns").map(|turns| {
        let (read, stopped) = (number(row, "read_tokens"), shown::name(&text(row, "stopped")));
        let turns = if turns == "1" { "1 turn".to_owned() } else { format!("{turns} turns") };
        let rows = of("training_rows").filter(|rows| rows != "1");
        let rows = rows.map(|rows| format!(" and {rows} training rows")).unwrap_or_default();
        format!(" in {turns}{rows}, {read} read, {stopped}")
    });
    let played = played.unwrap_or_default();
    format!(
        "step {step}{round}, rollout {rollout}: {reward}, {fate}{advantage}, {tokens} tokens{limit}{played}"
    )
}

/// Prints an indented block of text.
fn block(text: &str, screen: &mut Screen<'_>) {
    let text = shown::lines(text, TEXT);
    text.lines().for_each(|line| screen.say(format_args!("    {line}")));
}

fn number(row: &Row, name: &str) -> i64 {
    match row.get(name) {
        Some(Field::Long(n)) => *n,
        _ => -1,
    }
}

fn text(row: &Row, name: &str) -> String {
    match row.get(name) {
        Some(Field::Str(text)) => text.clone(),
        _ => String::new(),
    }
}

/// Calls `take` with each row of a parquet file.
fn each(path: &Path, take: &mut dyn FnMut(Row)) -> Result<()> {
    let file = File::open(path).map_err(|e| Error::file("read", path, &e))?;
    let odd = |e: String| Error::new(format!("could not read the table `{}`: {e}", path.display()));
    let reader = undamaged(|| SerializedFileReader::new(file)).map_err(odd)?;
    let mut rows = undamaged(|| reader.get_row_iter(None)).map_err(odd)?;
    while let Some(row) = undamaged(|| rows.next().transpose()).map_err(odd)? {
        take(row.into_columns().into_iter().collect());
    }
    Ok(())
}
