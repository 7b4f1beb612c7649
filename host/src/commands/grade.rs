//! `allot grade`: rewards of existing answers, to try a reward before a run, or to grade again after it.

mod answers;
mod summary;

use std::collections::HashMap;
use std::path::PathBuf;

use allot_base::{Error, Exit, Result, did_you_mean};
use allot_config::grade::GradeConfig;
use allot_judges::Verdict;
use allot_judges::graders::{self, Graders};
use allot_judges::math::Certain;
use allot_outputs::graded::{self, GradedRow};
use allot_settings::AnyGrader;
use allot_tasks::dataset::{Answered, AnsweredField};
use clap::Args;

use super::logs::spared;
use crate::screen::Screen;
use crate::{opened, policy_loader};
use answers::Answers;
use summary::Summary;

/// Grade existing answers: verdicts, rewards and their parts
#[derive(Debug, Args)]
pub struct Grade {
    /// The config whose `[reward]` grades: a file, the name of one that ships, or a run's folder
    config: PathBuf,
    /// The answers: a data file (JSON lines, JSON, parquet, …) with a row for each, or a run's folder
    answers: PathBuf,
    /// Override a key of the config, as KEY=VALUE; repeatable
    #[arg(short = 'o', long = "override", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// The column that has the `answer`, `gold`, `question`, `source`, `tokens` or earlier `reward`, as NAME=COLUMN
    #[arg(long = "column", value_name = "NAME=COLUMN")]
    columns: Vec<String>,
    /// Write the verdicts to a file: parquet if its name ends so, else JSON lines
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print all verdicts as JSON lines
    #[arg(long)]
    json: bool,
    /// Verdicts to show
    #[arg(long, default_value_t = 10)]
    show: usize,
}

/// Number of answers that graders get before their verdicts are awaited.
const PORTION: usize = 1024;

/// Grades the answers.
pub fn run(command: &Grade, screen: &mut Screen<'_>) -> Result<Exit> {
    let resolved = command.config.join("resolved.toml");
    let file = if command.config.is_dir() { &resolved } else { &command.config };
    if let Some(out) = &command.out {
        spared(&[file.clone(), command.answers.clone()], out, "--out")?;
    }
    let config = GradeConfig::of(&opened::config(file, &command.overrides, screen)?)?;
    let answers = Answers::read(&command.answers, &columns(&command.columns)?, &config)?;
    policy_loader::compile_graders(&config.reward, screen);
    let (graded, certain) = graded(&config, &answers, screen)?;
    if let Some(out) = &command.out {
        graded::write(out, &graded)?;
    }
    let summary = Summary::of(&answers, &graded, certain);
    if command.json {
        for row in &graded {
            screen.say(row.json());
        }
        summary.lines().iter().for_each(|line| screen.tell(line));
    } else {
        summary::show(&answers, &graded, command.show, screen);
        summary.lines().iter().for_each(|line| screen.say(line));
    }
    Ok(if answers.bad.is_empty() && summary.ungraded == 0 { Exit::Good } else { Exit::Bad })
}

/// Parses the columns of the command line.
fn columns(typed: &[String]) -> Result<Vec<(AnsweredField, String)>> {
    let one = |typed: &String| {
        let (name, column) =
            typed.split_once('=').filter(|(_, column)| !column.is_empty()).ok_or_else(|| {
                let what = format!("`--column {typed}` is not of the form NAME=COLUMN");
                Error::new(what).hint("Write it like `--column answer=response`.")
            })?;
        let names = AnsweredField::ALL.iter().map(|(_, name, _)| *name);
        let field = AnsweredField::of(name).ok_or_else(|| {
            Error::new(format!("`--column {typed}`: answers have no `{name}`"))
                .hint(did_you_mean(name, names))
        })?;
        Ok((field, column.to_owned()))
    };
    typed.iter().map(one).collect()
}

/// Returns the verdicts, in the order of the answers, and how many of them were certain without math-verify.
fn graded(
    config: &GradeConfig,
    answers: &Answers,
    screen: &mut Screen<'_>,
) -> Result<(Vec<GradedRow>, Certain)> {
    if config.reward.each().iter().any(|one| one.grader == Some(AnyGrader::Episode)) {
        let error =
            Error::new("grader `episode` takes the rewards of an environment, and these answers have none");
        return Err(error.hint("grade them with another grader"));
    }
    let problems = answers.problems();
    let known = graders::check(&config.reward, &problems)?.into_iter();
    let known = known.map(|met| met.map(|met| met.identity)).collect();
    let mut graders = Graders::new(config.reward.clone(), &problems, config.longest(), known)?;
    drop(problems);
    let runtime = allot_remote::runtime()?;
    let (mut graded, mut certain) = (Vec::with_capacity(answers.rows.len()), Certain::default());
    // Answers that are compared come in one portion.
    let most = if graders.compare() { answers.rows.len().max(1) } else { PORTION };
    let mut groups: HashMap<(&str, &str, &[String]), u32> = HashMap::new();
    for portion in answers.rows.chunks(most) {
        for (place, row) in portion.iter().enumerate() {
            let next = groups.len() as u32;
            let Answered { source, question, gold, .. } = &row.answered;
            let group = *groups.entry((source, question, gold)).or_insert(next);
            graders.ask(place, &row.question(group));
        }
        let mut said = runtime.block_on(graders.finish())?;
        for (place, row) in portion.iter().enumerate() {
            let (source, tokens) = (&row.answered.source, row.answered.tokens.unwrap_or(0));
            let verdict = graders.verdict(&mut said, place, source, tokens);
            certain += Certain::of(&verdict);
            graded.push(row_of(row.number, source, verdict));
        }
        screen.draw(format_args!("graded {} of {}", graded.len(), answers.rows.len()));
    }
    screen.draw("");
    Ok((graded, certain))
}

fn row_of(row: u64, source: &str, verdict: std::result::Result<Verdict, String>) -> GradedRow {
    let source = source.to_owned();
    match verdict {
        Ok(Verdict { reward, correct, parts, .. }) => {
            GradedRow { row, source, reward, correct: Some(correct), rewards: parts, error: None }
        }
        Err(why) => {
            GradedRow { row, source, reward: None, correct: None, rewards: Vec::new(), error: Some(why) }
        }
    }
}
