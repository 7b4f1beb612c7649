//! The problems of a run, to train on and held out, from files and generators, with their prompts as
//! tokens.

mod golds;
mod held_out;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_allocation::{Column, Columns, LENGTH, Misfit, shown};
use allot_base::{Error, Result};
use allot_config::train::{TrainConfig, is_of_the_hub};
use allot_judges::environment;
use allot_models::hub;
use allot_models::tokens::{BYTES_A_TOKEN, Tokens};
use allot_record::hex;
use allot_settings::EnvironmentSettings;
use allot_settings::hub::is_address;
use allot_tasks::dataset::{Dataset, DatasetConfig, Files, Split};
use allot_tasks::generate::{TaskError, generate, with_columns};
use allot_tasks::{Ask, Problem};
use rayon::prelude::*;
use sha2::{Digest as _, Sha256};

use crate::evaluation::Set;
use crate::outside::Outside;

/// The name of the set that is held out of the training problems.
const HELD_OUT: &str = "held-out";

/// Problems from files, the hub and generators, before they are tokenized.
pub struct Found {
    /// The names of the requested columns.
    wanted: Vec<String>,
    train: Vec<Problem>,
    /// The held-out sets, by name.
    sets: Vec<(String, Vec<Problem>)>,
    notes: Vec<String>,
}

/// The problems of a run.
pub struct Problems {
    /// The problems to train on, then the held-out ones.
    pub all: Arc<Vec<Problem>>,
    /// Number of problems to train on.
    pub train: usize,
    /// Each problem's prompt, in tokens.
    pub prompts: Vec<Vec<u32>>,
    /// The requested columns, with the values of each problem to train on.
    pub columns: Columns,
    /// The held-out sets.
    pub sets: Vec<Set>,
    /// Notes about the problems, for the user.
    pub notes: Vec<String>,
}

/// How a problem becomes a prompt.
#[derive(Clone, Copy)]
pub struct Asking<'a> {
    /// The model's tokenizer and chat template.
    pub tokens: &'a Tokens,
    /// The environment, if it is outside of this program and decides how prompts begin.
    pub outside: Option<&'a Outside>,
}

impl Asking<'_> {
    fn prompt(self, problem: &Problem) -> Result<Vec<u32>> {
        match self.outside {
            Some(outside) => outside.prompt(self.tokens, problem),
            None => self.tokens.encode_ask(&problem.ask),
        }
    }
}

impl Found {
    /// Loads and generates the problems of a config, with the columns of these names.
    pub fn load(config: &TrainConfig, columns: &[String]) -> Result<Self> {
        let mut wanted = columns.to_vec();
        // The column of lengths is computed from tokens.
        wanted.retain(|name| name != LENGTH);
        let (mut train, mut held_out, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        // An environment may make other tasks of equal prompts, by the other columns of their rows.
        let by_row =
            config.environment.as_ref().is_some_and(|played| played.environment.embedded().is_none());
        for task in &config.tasks {
            let told = |e: TaskError| Error::told(e.to_string(), e.hint());
            let drawn = with_columns(task, Split::Train, &wanted).map_err(told)?;
            notes.extend(drawn.short.iter().map(ToString::to_string));
            train.extend(drawn.problems);
            if task.held_out > 0.0 {
                held_out.extend(generate(task, Split::HeldOut).map_err(told)?.problems);
            }
        }
        for data in &config.data {
            let sides = dataset(data, config, &wanted, &mut notes)?.split(data.held_out, by_row);
            train.extend(sides.train);
            held_out.extend(sides.held_out);
        }
        let mut sets = Vec::new();
        if !held_out.is_empty() {
            sets.push((HELD_OUT.to_owned(), held_out));
        }
        for set in &config.evaluation.sets {
            let problems = dataset(set, config, &[], &mut notes)?.problems;
            let name = set.name.clone().unwrap_or_else(|| problems[0].source.clone());
            if sets.iter().any(|(other, _)| *other == name) {
                let error = Error::new(format!("two evaluation sets are called `{name}`"));
                return Err(error.hint("give one of them another `name`"));
            }
            sets.push((name, problems));
        }

        for problems in sets.iter_mut().map(|(_, problems)| problems).chain([&mut train]) {
            golds::readable(problems, &config.reward, &mut notes)?;
        }
        // A named set without problems is reported when prompts are made.
        if sets.is_empty() {
            let what = "nothing is held out, so the accuracy stays 0; set `held_out` of a task or of data \
                        to a share";
            notes.push(what.to_owned());
        }
        let before = train.len();
        notes.extend(held_out::parted(&mut train, &sets, by_row));
        if train.is_empty() && before > 0 {
            let error = Error::new("there are no problems to train on");
            return Err(error.hint("change the config: it holds out every problem that it names"));
        }
        Ok(Self { wanted, train, sets, notes })
    }

    /// Returns all problems: those to train on, then the held-out ones.
    pub fn each(&self) -> impl Iterator<Item = &Problem> {
        self.train.iter().chain(self.sets.iter().flat_map(|(_, problems)| problems))
    }
}

impl Problems {
    /// Returns all problems with their prompts, in order.
    pub fn asked(&self) -> impl ExactSizeIterator<Item = (&Problem, &[u32])> {
        self.all.iter().zip(self.prompts.iter().map(Vec::as_slice))
    }

    /// Returns the name of the held-out set that a prompt is in, if any.
    pub fn set_of(&self, prompt: u32) -> Option<&str> {
        self.sets.iter().find(|set| set.prompts.contains(&prompt)).map(|set| set.name.as_str())
    }

    /// Tokenizes the problems, in an environment with its tools. Drops prompts longer than `longest` tokens.
    pub fn of(found: Found, config: &TrainConfig, asking: Asking<'_>, longest: usize) -> Result<Self> {
        let Found { wanted, train, sets, notes } = found;
        let mut loaded = Self {
            all: Arc::default(),
            train: 0,
            prompts: Vec::new(),
            columns: Columns::default(),
            sets: Vec::new(),
            notes,
        };
        loaded.add(train, usize::MAX, asking, longest, "to train on")?;
        loaded.train = loaded.all.len();
        loaded.columns = loaded.read(&wanted)?;
        for (name, problems) in sets {
            let first = loaded.all.len() as u32;
            loaded.add(problems, config.evaluation.problems, asking, longest, &format!("of `{name}`"))?;
            loaded.sets.push(Set { name, prompts: first..loaded.all.len() as u32 });
        }
        Ok(loaded)
    }

    /// Returns the columns of these names, and the prompts' lengths.
    fn read(&self, wanted: &[String]) -> Result<Columns> {
        let mut columns = Columns::default();
        for (i, name) in wanted.iter().enumerate() {
            let column = Column::new(name, self.all.iter().map(|problem| &problem.columns[i]));
            columns.add(column.map_err(|misfit| {
                let problem = named(&self.all[misfit.prompt]);
                let what = format!("in the policy's column `{name}` {problem} has {}", misfit.reason);
                Error::new(what).hint(Misfit::HINT)
            })?);
        }
        columns.add(Column::lengths(self.prompts.iter().map(|prompt| prompt.len() as u32)));
        Ok(columns)
    }

    /// Returns a hash of these problems, which depends on their order.
    pub fn hash(&self, prompts: std::ops::Range<usize>) -> String {
        let mut hash = Sha256::new();
        self.all[prompts].iter().for_each(|p| hash.update(p.id()));
        hex(&hash.finalize())
    }

    /// Adds problems whose prompts are not too long, at most `most` of them. They are evenly spaced, so
    /// that each part of a set keeps its share.
    fn add(
        &mut self,
        problems: Vec<Problem>,
        most: usize,
        asking: Asking<'_>,
        longest: usize,
        which: &str,
    ) -> Result<()> {
        let problems = evenly(problems, most);
        // On all cores: 0.1 ms each, which is most of the work before weights are loaded.
        let most = longest.saturating_mul(BYTES_A_TOKEN);
        let encode =
            |problem: &Problem| (bytes(&problem.ask) <= most).then(|| asking.prompt(problem)).transpose();
        let encoded: Vec<Result<Option<Vec<u32>>>> = problems.par_iter().map(encode).collect();
        knows_all(asking.tokens, &problems)?;
        let (before, mut too_long, mut unread) = (self.all.len(), Vec::new(), 0);
        for (problem, prompt) in problems.into_iter().zip(encoded) {
            let Some(prompt) = prompt? else {
                unread += 1;
                continue;
            };
            if prompt.is_empty() {
                return Err(Error::new(format!("a problem {which} has a prompt without tokens")));
            }
            if prompt.len() > longest {
                too_long.push(prompt.len());
                continue;
            }
            self.prompts.push(prompt);
            // Not shared yet, so nothing is copied.
            Arc::make_mut(&mut self.all).push(problem);
        }
        let longest_seen = too_long.iter().max();
        if let Some(most) = longest_seen {
            let left_out = too_long.len();
            self.notes.push(format!(
                "{left_out} problems {which} are longer than {longest} tokens (up to {most}) and are left out"
            ));
        }
        if unread > 0 {
            self.notes.push(format!(
                "{unread} problems {which} have more than {most} bytes, {BYTES_A_TOKEN} for each of {longest} tokens, \
                 and are left out"
            ));
        }
        if self.all.len() == before {
            let shorten = longest_seen.map(|most| {
                format!(
                    "lower `sampling.max_tokens`, raise `model.max_prompt_tokens`, or use a model with more \
                     context: all prompts are longer than {longest} tokens (up to {most})"
                )
            });
            return Err(Error::new(format!("there are no problems {which}")).hints(shorten));
        }
        Ok(())
    }
}

/// Returns at most `most` problems, evenly spaced.
fn evenly(problems: Vec<Problem>, most: usize) -> Vec<Problem> {
    let n = problems.len();
    let wanted = n.min(most);
    let chosen: HashSet<usize> = (0..wanted).map(|i| i * n / wanted.max(1)).collect();
    problems.into_iter().enumerate().filter(|(i, _)| chosen.contains(i)).map(|(_, problem)| problem).collect()
}

fn dataset(
    data: &DatasetConfig,
    config: &TrainConfig,
    columns: &[String],
    notes: &mut Vec<String>,
) -> Result<Dataset> {
    let told = |e: allot_tasks::dataset::DataError| Error::told(e.to_string(), e.hint().as_deref());
    let mut local = data.clone();
    // Kept until the files are read.
    let made = tempfile::tempdir()
        .map_err(|e| Error::new(format!("could not make a folder for the problems: {e}")))?;
    // Environments of episodes grade them, too.
    let players = config.environment.as_ref().and_then(EnvironmentSettings::players);
    let python = players.clone().or_else(|| config.reward.environments());
    local.files = Files::Many(match (&data.environment, python) {
        (Some(environment), Some(python)) => {
            environment::make(environment, players.is_some(), &python, made.path())?
        }
        (Some(environment), None) => {
            let what = format!("only {} can grade its own problems", environment.package.name());
            return Err(Error::new(what).hint("set `grader = \"environment\"` under [reward]"));
        }
        (None, _) => files(&data.files)?,
    });
    let mut dataset = Dataset::with_columns(&local, Path::new(""), columns).map_err(told)?;
    notes.extend(dataset.report.sentences());
    if data.environment.is_some() {
        dataset.problems.iter_mut().for_each(|problem| problem.place = None);
    }
    Ok(dataset)
}

/// Returns the local files of a data set. Files on the hub are downloaded.
fn files(files: &Files) -> Result<Vec<PathBuf>> {
    let named = match files {
        Files::One(file) => std::slice::from_ref(file),
        Files::Many(files) => files,
    };
    let mut all = Vec::with_capacity(named.len());
    for file in named {
        if is_of_the_hub(file) {
            let name = file.display();
            let error = Error::new(format!("there is no file `{name}`"));
            return Err(error.hint(format!(
                "write files of the Hugging Face hub as `hub:{name}/PATTERN`, for example \
                 `hub:openai/gsm8k/main/train-*.parquet`"
            )));
        }
        if is_address(file) {
            all.extend(hub::at(file)?);
        } else {
            all.push(file.clone());
        }
    }
    Ok(all)
}

/// Rejects questions with a character that the tokenizer lacks: tokenizers of a few characters fail, and
/// others drop the character silently.
fn knows_all(tokens: &Tokens, problems: &[Problem]) -> Result<()> {
    let mut known = HashSet::new();
    for problem in problems {
        let texts: Vec<&str> = match &problem.ask {
            Ask::Text(text) => vec![text],
            Ask::Chat(messages) => messages.iter().map(|m| m.content.as_str()).collect(),
        };
        // White space and marks may have no token of their own.
        let characters = texts.iter().flat_map(|text| text.chars()).filter(|c| c.is_alphanumeric());
        let unknown = characters.filter(|c| known.insert(*c)).find(|c| !tokens.knows(*c));
        if let Some(unknown) = unknown {
            let question = shown::name(&texts.join(" "));
            let what =
                format!("the model's tokenizer does not know `{unknown}`, in the question `{question}`");
            let hint = match tokens.characters() {
                Some(all) => format!(
                    "use questions made only of {all}, as tasks with `style = \"terse\"` do, or a model \
                     that reads words, as in `model.use = \"hub:HuggingFaceTB/SmolLM2-135M-Instruct\"`"
                ),
                None => "use a model that knows it, or leave these questions out".to_owned(),
            };
            return Err(Error::new(what).hint(hint));
        }
    }
    Ok(())
}

/// Returns the bytes of a question.
fn bytes(ask: &Ask) -> usize {
    match ask {
        Ask::Text(text) => text.len(),
        Ask::Chat(messages) => messages.iter().map(|m| m.content.len()).sum(),
    }
}

/// The most problems that a message names.
const EXAMPLES: usize = 3;

/// Names a problem by its place, or by its question.
fn named(problem: &Problem) -> String {
    let asked = || format!("{:?} of `{}`", problem.question, problem.source);
    problem.place.as_ref().map_or_else(asked, ToString::to_string)
}

/// Returns the first items, and the number of further ones.
fn examples(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = all.len().saturating_sub(EXAMPLES);
    let more = (more > 0).then(|| format!("and {more} more"));
    all.take(EXAMPLES).chain(more).collect::<Vec<_>>().join(", ")
}

/// Returns a number with a noun.
fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
