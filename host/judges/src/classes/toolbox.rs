//! What is known of environment classes before a run begins: their tools, and how prompts and columns reach them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use allot_base::{Error, Result};
use allot_models::tokens::{BYTES_A_TOKEN, Tokens};
use allot_settings::{CallFormat, ClassConfig, EnvironmentSettings};
use allot_tasks::{Ask, Message, Problem};
use serde_json::{Map, Value, json};

use crate::identity::Identity;
use crate::sidecar::SidecarCommand;

/// The script that runs classes.
const SCRIPT: &str = include_str!("../classes.py");
const HINT: &str = "try it by hand: {python} FILE; classes need transformers, as in `pip install transformers==5.24.0`; \
                    another Python is set by `command` under [environment.process]";

/// The classes of a run and their tools.
#[derive(Debug)]
pub struct Toolbox {
    pub(super) command: Arc<SidecarCommand>,
    /// The identity of file and script, for the record.
    pub identity: Identity,
    /// How the model writes calls.
    pub(super) format: CallFormat,
    /// Each class's tools as the model is told of them, under the value of column `environment` that chooses it.
    tools: Vec<(Option<String>, Value)>,
}

/// A prompt's environment.
pub(super) struct Chosen<'t> {
    /// The value of column `environment`, if that chooses.
    pub key: Option<&'t str>,
    pub tools: &'t Value,
    /// What `reset` gets.
    pub row: Map<String, Value>,
}

impl Toolbox {
    /// Starts a process of the classes, asks it for their tools, and ends it.
    ///
    /// # Errors
    ///
    /// A process that does not start, for reasons of its own or of the file; a model that can't call tools.
    pub fn check(settings: &EnvironmentSettings, class: &ClassConfig, tokens: &Tokens) -> Result<Self> {
        let process = settings.process.clone().unwrap_or_default();
        let file = class.file.display().to_string();
        let names: Vec<(Option<&str>, &str)> = class.all().collect();
        let shown: Vec<&str> = names.iter().map(|(_, name)| *name).collect();
        let most = (settings.max_read_tokens as usize + 1) * BYTES_A_TOKEN;
        let arguments =
            [file.clone(), process.threads.to_string(), most.to_string(), json!(names).to_string()];
        let script = ["-c".to_owned(), SCRIPT.to_owned()];
        let words = vec!["classes.py".to_owned(), SCRIPT.to_owned(), file.clone(), arguments[3].clone()];
        let mut command = SidecarCommand {
            command: process.command.into_iter().chain(script).chain(arguments).collect(),
            name: format!("{} of {file}", shown.join(", ")),
            threads: process.threads,
            limit: Duration::from_secs_f64(process.seconds),
            begin_limit: Duration::from_secs_f64(process.seconds),
            patience: Duration::from_secs_f64(process.start_seconds),
            words,
            known: None,
            failure: Mutex::default(),
        };
        let format = class.calls.map_or_else(|| tokens.call_format(), Ok)?;
        // A template that refuses results would fail in each episode.
        tokens.results(&[("probe".to_owned(), "1".to_owned())], None)?;
        let checked = command.check(&HINT.replace("FILE", &file), &[])?;
        let tools: Vec<(Option<String>, Value)> = serde_json::from_value(checked.greeting.tools.clone())
            .map_err(|e| {
                Error::new(format!("the environment `{}` told its tools badly: {e}", command.name))
            })?;
        // A config that names the form of calls may describe the tools in its prompts itself.
        for (_, tools) in tools.iter().filter(|_| class.calls.is_none()) {
            let Some(name) = tools[0]["function"]["name"].as_str() else { continue };
            let message = Message { role: "user".to_owned(), content: "?".to_owned() };
            if !tokens.asked(&[message], "", tools)?.contains(name) {
                return Err(Error::new("the model's chat template does not tell it of tools")
                    .hint("use a model whose template has `tools`"));
            }
        }
        let identity = command.identity(&checked.greeting)?;
        command.known = Some(identity.clone());
        Ok(Self { command: Arc::new(command), identity, format, tools })
    }

    /// Returns how this differs from a run's environment as its record has it, as a clause of a sentence.
    pub fn apart(&self, before: &Identity) -> Option<String> {
        self.identity.apart(before, &self.command.words)
    }

    /// Returns a prompt's tokens, up to where the environment's first words begin.
    ///
    /// # Errors
    ///
    /// A prompt that is no list of messages, or that chooses no class.
    pub fn prompt(&self, tokens: &Tokens, problem: &Problem) -> Result<Vec<u32>> {
        tokens.before_first(messages(problem)?, self.of(problem)?.tools)
    }

    /// Returns the environment of a problem.
    pub(super) fn of(&self, problem: &Problem) -> Result<Chosen<'_>> {
        let gold = problem.gold.first().map_or("", String::as_str);
        let mut row = match serde_json::from_str(gold) {
            Ok(Value::Object(row)) => row,
            _ => Map::from_iter([("answer".to_owned(), gold.into())]),
        };
        row.insert("prompt".to_owned(), json!(messages(problem)?));
        if let [(None, tools)] = self.tools.as_slice() {
            return Ok(Chosen { key: None, tools, row });
        }
        let chosen = row.remove("environment");
        let of_key = |(key, _): &&(Option<String>, Value)| chosen == key.as_deref().map(Value::from);
        let Some((key, tools)) = self.tools.iter().find(of_key) else {
            let known: Vec<&str> = self.tools.iter().filter_map(|(key, _)| key.as_deref()).collect();
            let what = format!(
                "a prompt has {} in its column `environment`; expected one of: {}",
                chosen.map_or_else(|| "nothing".to_owned(), |value| value.to_string()),
                known.join(", ")
            );
            return Err(Error::new(what)
                .hint("set `answer = \"*\"` under [[data]], so that environments get all columns"));
        };
        Ok(Chosen { key: key.as_deref(), tools, row })
    }
}

pub(super) fn messages(problem: &Problem) -> Result<&[Message]> {
    match &problem.ask {
        Ask::Chat(messages) if !messages.is_empty() => Ok(messages),
        _ => Err(Error::new("environment `class` needs prompts that are messages, and these are texts")
            .hint("set `chat = true` under [[data]]")),
    }
}
