//! What is known of task sets of verifiers before a run begins: that they can be played, and how their prompts begin.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use allot_base::{Error, Result};
use allot_models::tokens::Tokens;
use allot_settings::{CallFormat, EnvironmentSettings, VerifiersConfig};
use allot_tasks::{Ask, Message, Problem};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::identity::Identity;
use crate::sidecar::{Checked, SidecarCommand};

/// The script that runs verifiers' environment server and a client of it.
const SCRIPT: &str = include_str!("../verifiers.py");
const HINT: &str = "it needs verifiers 0.4.0, as in `pip install verifiers==0.4.0`, and transformers; another Python is set \
                    by `command` under [environment.process]";
/// The most time of an episode: its turns have their own.
const LONGEST: Duration = Duration::from_secs(1_000_000);
/// Number of tasks of a set that are begun to see what their prompts have in common.
const PROBED: usize = 8;

/// The task sets of a run.
#[derive(Debug)]
pub struct TaskSets {
    pub(super) command: Arc<SidecarCommand>,
    /// The identity of the packages, the script and the settings, for the record.
    pub identity: Identity,
    /// Number of tokens of the model's tokenizer.
    pub(super) vocabulary: usize,
    sets: Vec<Set>,
}

/// A task set with its settings.
#[derive(Debug)]
struct Set {
    name: String,
    settings: Value,
    /// The tokens with which the prompts of all its tasks begin; none if they are those of the model's chat template.
    beginning: Option<Vec<u32>>,
}

/// A task, as gold answers have it.
#[derive(Deserialize)]
struct Task {
    #[serde(rename = "task")]
    name: String,
    settings: Value,
    data: Value,
}

/// What the script says of a task set.
#[derive(Deserialize)]
struct Probed {
    #[serde(default)]
    error: Option<String>,
    /// The tokens of the first request of each task.
    #[serde(default)]
    first: Vec<Vec<u32>>,
    /// The tokens with which its renderer ends a turn.
    #[serde(default)]
    stops: Vec<u32>,
}

impl TaskSets {
    /// Starts a process and begins some tasks of each set, up to the first request to the model.
    ///
    /// # Errors
    ///
    /// A Python without verifiers, a task set that can't be played, or a model that can't play it.
    pub fn check<'p>(
        settings: &EnvironmentSettings,
        (model, tokens): (&Path, &Tokens),
        stop: &[String],
        problems: impl Iterator<Item = &'p Problem>,
    ) -> Result<Self> {
        let process = settings.process.clone().unwrap_or_default();
        let own = settings.verifiers.clone().unwrap_or_default();
        let mut found: Vec<(Task, Vec<&Problem>)> = Vec::new();
        for problem in problems {
            let task = task(problem)?;
            match found.iter_mut().find(|(one, _)| one.name == task.name && one.settings == task.settings) {
                Some((_, all)) => all.push(problem),
                None => found.push((task, vec![problem])),
            }
        }
        let probes: Vec<(Task, Vec<&Problem>)> =
            found.into_iter().map(|(task, all)| (task, spread(&all))).collect();
        for problem in probes.iter().flat_map(|(_, some)| some) {
            // A template that has the day takes it from the run from now on.
            let _ = tokens.before_first(&messages(problem), &Value::Null);
        }
        let mut about = about(settings, &own, (model, tokens), stop);
        let command = |about: &Value| -> Vec<String> {
            let script = ["-c".to_owned(), SCRIPT.to_owned(), about.to_string()];
            process.command.iter().cloned().chain(script).collect()
        };
        // Not the model's folder: a run may be resumed from another place.
        let mut known = about.clone();
        known["model"] = Value::Null;
        let mut sidecar = SidecarCommand {
            command: command(&about),
            name: "verifiers".to_owned(),
            threads: usize::MAX,
            limit: Duration::from_secs_f64(process.seconds),
            begin_limit: LONGEST,
            patience: Duration::from_secs_f64(process.start_seconds),
            words: vec!["verifiers.py".to_owned(), SCRIPT.to_owned(), known.to_string()],
            known: None,
            failure: Mutex::default(),
        };
        let ask = |(one, some): &(Task, Vec<&Problem>)| {
            let data = some.iter().map(|problem| Ok(task(problem)?.data)).collect::<Result<Vec<Value>>>()?;
            Ok(json!({ "do": "probe", "task": one.name, "settings": one.settings, "data": data }))
        };
        let asks = probes.iter().map(ask).collect::<Result<Vec<Value>>>()?;
        let Checked { greeting, answers } = sidecar.check(HINT, &asks)?;
        let mut sets = Vec::new();
        for ((task, some), answer) in probes.into_iter().zip(answers) {
            let probed = Probed::deserialize(Value::Object(answer))
                .map_err(|e| Error::new(format!("verifiers told badly of `{}`: {e}", task.name)))?;
            let beginning = probed.beginning(&task.name, tokens, &some)?;
            sets.push(Set { name: task.name, settings: task.settings, beginning });
        }
        // In a run, a process has loaded its sets before it counts as started.
        about["sets"] =
            sets.iter().map(|set| json!({ "task": set.name, "settings": set.settings })).collect();
        sidecar.command = command(&about);
        // Also of how prompts begin: tools are told of there.
        sidecar.words.push(json!(sets.iter().map(|set| &set.beginning).collect::<Vec<_>>()).to_string());
        let identity = sidecar.identity(&greeting)?;
        sidecar.known = Some(identity.clone());
        Ok(Self { command: Arc::new(sidecar), identity, vocabulary: tokens.vocabulary(), sets })
    }

    /// Returns how this differs from a run's environment as its record has it, as a clause of a sentence.
    pub fn apart(&self, before: &Identity) -> Option<String> {
        self.identity.apart(before, &self.command.words)
    }

    /// Returns a prompt's tokens: those with which each episode of it begins.
    ///
    /// # Errors
    ///
    /// A problem of no task set, or one that the chat template refuses.
    pub fn prompt(&self, tokens: &Tokens, problem: &Problem) -> Result<Vec<u32>> {
        let task = task(problem)?;
        let set = self.sets.iter().find(|set| set.name == task.name && set.settings == task.settings);
        match set.and_then(|set| set.beginning.clone()) {
            Some(beginning) => Ok(beginning),
            None => tokens.before_first(&messages(problem), &Value::Null),
        }
    }
}

impl Probed {
    /// Returns the tokens with which all prompts of a task set begin; none if each begins as the chat template renders it.
    fn beginning(self, task: &str, tokens: &Tokens, problems: &[&Problem]) -> Result<Option<Vec<u32>>> {
        if let Some(why) = self.error {
            return Err(Error::new(format!("verifiers can't play `{task}`: {why}"))
                .hint("settings of its agents go under [environment.verifiers.env], by the agent's name"));
        }
        if let Some(stop) = self.stops.iter().find(|stop| !tokens.stops().contains(stop)) {
            let what = format!(
                "the renderer ends turns with token {stop}, which does not end an answer of the model"
            );
            return Err(Error::new(what).hint("name the token of the model's end of turn in `eos_token_id`"));
        }
        let Some(first) = self.first.first() else {
            return Err(Error::new(format!("verifiers said nothing of `{task}`")));
        };
        let size = tokens.vocabulary();
        if let Some(token) = self.first.iter().flatten().find(|token| **token as usize >= size) {
            let what = format!(
                "prompts of `{task}` have token {token}; expected one below {size}, as the tokenizer has"
            );
            return Err(Error::new(what).hint("use a renderer of the model's own tokenizer"));
        }
        let as_rendered = |(first, problem): (&Vec<u32>, &&Problem)| {
            let rendered = tokens.before_first(&messages(problem), &Value::Null);
            rendered.is_ok_and(|own| !own.is_empty() && first.starts_with(&own))
        };
        if self.first.iter().zip(problems).all(as_rendered) {
            return Ok(None);
        }
        let common = self.first.iter().skip(1).fold(first.len(), |most, other| {
            first.iter().zip(other).take_while(|(a, b)| a == b).count().min(most)
        });
        // Up to the end of a message: within one, other tasks may differ earlier.
        let ends = first[..common].iter().rposition(|token| tokens.stops().contains(token));
        let common = ends.map_or(common.min(1), |end| end + 1);
        if common == 0 {
            return Err(Error::new(format!("prompts of `{task}` have no first token in common"))
                .hint("use one task set at a time for each kind of prompt"));
        }
        Ok(Some(first[..common].to_vec()))
    }
}

/// Returns what the script is told when it starts.
fn about(
    settings: &EnvironmentSettings,
    own: &VerifiersConfig,
    (model, tokens): (&Path, &Tokens),
    stop: &[String],
) -> Value {
    // A model without tools is found by the first task that has some.
    let calls: Option<CallFormat> = own.calls.or_else(|| tokens.call_format().ok());
    json!({
        "model": model,
        "env": own.env,
        "harness": own.harness,
        "renderer": own.renderer,
        "calls": calls,
        "max_turns": settings.max_turns,
        "seed": own.seed,
        "stops": tokens.stops(),
        "texts": stop,
        "date": tokens.date(),
        "sets": [],
    })
}

/// Returns a problem's task, as the script takes it.
pub(super) fn asked(problem: &Problem) -> Result<Map<String, Value>> {
    let Task { name, settings, data } = task(problem)?;
    let fields =
        [("task".to_owned(), name.into()), ("settings".to_owned(), settings), ("data".to_owned(), data)];
    Ok(Map::from_iter(fields))
}

/// Returns at most [`PROBED`] of these, evenly spaced, the first and the last among them. One alone is there twice: with
/// another seed it may begin otherwise.
fn spread<'p>(all: &[&'p Problem]) -> Vec<&'p Problem> {
    let most = all.len().clamp(2, PROBED);
    (0..most).map(|i| all[i * (all.len() - 1) / (most - 1)]).collect()
}

fn task(problem: &Problem) -> Result<Task> {
    let gold = problem.gold.first().map_or("", String::as_str);
    serde_json::from_str(gold).map_err(|e| Error::new(format!("a problem is no task of verifiers: {e}")))
}

fn messages(problem: &Problem) -> Vec<Message> {
    match &problem.ask {
        Ask::Chat(messages) => messages.clone(),
        Ask::Text(text) => vec![Message { role: "user".to_owned(), content: text.clone() }],
    }
}
