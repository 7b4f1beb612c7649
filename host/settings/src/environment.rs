//! `[environment]` of a config: rollouts of several turns.

use std::collections::BTreeMap;
use std::path::PathBuf;

use allot_base::{Error, absolute, settle_command};
use allot_tasks::environment::Embedded;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The environment of a run's rollouts, and the limits of an episode. `sampling.max_tokens` limits the tokens that are
/// generated in all turns together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentSettings {
    /// The environment.
    #[serde(rename = "use")]
    pub environment: AnyEnvironment,
    /// Most turns of the model in an episode.
    #[serde(default = "turns")]
    pub max_turns: u32,
    /// Most tokens that an episode reads from its environment.
    #[serde(default = "read")]
    pub max_read_tokens: u32,
    /// Most calls of tools in an episode; by default any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u32>,
    /// Seconds after an episode's first turn after which no further turn begins; by default any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_seconds: Option<f64>,
    /// Most episodes that are open at a time; by default all that a step asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_open: Option<u32>,
    /// Most training rows of an episode: more than one lets its environment rewrite what was said.
    #[serde(default = "rows", skip_serializing_if = "is_one")]
    pub max_rows: u32,
    /// How often a request's episodes that were lost to their environment are drawn again.
    #[serde(default, skip_serializing_if = "allot_allocation::is_zero")]
    pub retries: u32,
    /// Whether an environment of class `class` replies alike whenever it begins alike and hears the same, so that
    /// rollouts can be continued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deterministic: Option<bool>,
    /// The class of environment `class`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassConfig>,
    /// The task sets of environment `verifiers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verifiers: Option<VerifiersConfig>,
    /// The processes in which environments outside of this program run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<SidecarConfig>,
}

/// An environment, by its name in a config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnyEnvironment {
    /// The embedded game of a hidden number.
    Guess,
    /// The embedded game of numbers to add.
    Calculator,
    /// A Python class of TRL's form.
    Class,
    /// Task sets of verifiers, by its environment server.
    Verifiers,
}

/// A Python class of TRL's form: `reset`, public methods as tools, `get_reward`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassConfig {
    /// The file that defines it.
    pub file: PathBuf,
    /// Its name in the file: a class, or anything else that makes an object when it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Several, each under the value that the data's column `environment` has for its prompts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, String>,
    /// How the model writes calls of tools; by default found out from its chat template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallFormat>,
}

/// How task sets of verifiers are played. Which task sets is in the config of the data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VerifiersConfig {
    /// Settings of their environments beside the task set: those of agents, under their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Value>,
    /// The harness of agents that have none, as verifiers takes it; by default a loop without a process of its own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub harness: BTreeMap<String, Value>,
    /// The renderer, as package `renderers` takes it; by default one for any chat template.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub renderer: BTreeMap<String, Value>,
    /// How the model writes calls of tools, for the default renderer; by default found out from its chat template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallFormat>,
    /// The field of a task's data that gets the seed of the environment's start, with dots between names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<String>,
}

/// How a model writes calls of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallFormat {
    /// `<tool_call>{"name": "look", "arguments": {"at": 3}}</tool_call>`, as Qwen 2.5 and 3 and Hermes do.
    Json,
    /// `<tool_call><function=look><parameter=at>3</parameter></function></tool_call>`, as Qwen 3.5 and later do.
    Xml,
    /// A whole turn of `{"name": "look", "parameters": {"at": 3}}`, as Llama 3.1 and 3.2 do.
    Bare,
}

/// Processes in which environments run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SidecarConfig {
    /// The Python with the packages that the environments import.
    pub command: Vec<String>,
    /// Number of processes.
    pub processes: usize,
    /// Number of threads of a process that call tools. More than 1 is for objects that share nothing.
    pub threads: usize,
    /// Time limit of a turn, in seconds.
    pub seconds: f64,
    /// Time limit of a process's start, in seconds.
    pub start_seconds: f64,
}

impl Default for SidecarConfig {
    fn default() -> Self {
        let command = vec!["python3".to_owned()];
        Self { command, processes: 2, threads: 1, seconds: 30.0, start_seconds: 120.0 }
    }
}

impl AnyEnvironment {
    /// Returns its name in configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Guess => Embedded::Guess.name(),
            Self::Calculator => Embedded::Calculator.name(),
            Self::Class => "class",
            Self::Verifiers => "verifiers",
        }
    }

    /// Returns the embedded environment, or `None` for any other.
    pub fn embedded(self) -> Option<Embedded> {
        match self {
            Self::Guess => Some(Embedded::Guess),
            Self::Calculator => Some(Embedded::Calculator),
            Self::Class | Self::Verifiers => None,
        }
    }
}

impl ClassConfig {
    /// Returns each class's name in the file, under the value of the column `environment` that chooses it.
    pub fn all(&self) -> impl Iterator<Item = (Option<&str>, &str)> {
        let one = self.name.as_deref().map(|name| (None, name));
        one.into_iter().chain(self.names.iter().map(|(key, name)| (Some(key.as_str()), name.as_str())))
    }
}

impl EnvironmentSettings {
    /// Makes the paths of files absolute, so that the run can be resumed from another folder.
    ///
    /// # Errors
    ///
    /// A path that cannot be made absolute.
    pub fn settle(&mut self) -> Result<(), Error> {
        if let Some(class) = &mut self.class {
            class.file = absolute(&class.file)?;
        }
        self.process.as_mut().map_or(Ok(()), |process| settle_command(&mut process.command))
    }

    /// Returns the Python that plays task sets, if the environment is `verifiers`.
    pub fn players(&self) -> Option<Vec<String>> {
        let verifiers = self.environment == AnyEnvironment::Verifiers;
        verifiers.then(|| self.process.clone().unwrap_or_default().command)
    }

    /// Returns whether a rollout can be continued: the environment is known or said to be deterministic.
    pub fn is_deterministic(&self) -> bool {
        self.environment.embedded().is_some() || self.deterministic == Some(true)
    }

    /// Returns the key that only environment `class` has, if it is given.
    fn countless(&self) -> Option<&'static str> {
        let threads = self.process.as_ref().is_some_and(|p| p.threads != SidecarConfig::default().threads);
        let given = [
            ("max_tool_calls", self.max_tool_calls.is_some()),
            ("deterministic", self.deterministic.is_some()),
            ("process.threads", threads),
        ];
        given.into_iter().find_map(|(key, given)| given.then_some(key))
    }

    /// Refuses task sets without their environment, and what only classes have with them.
    fn check_verifiers(&self, name: &str) -> Result<(), Error> {
        let (own, is_own) = (self.environment.name(), self.environment == AnyEnvironment::Verifiers);
        if self.verifiers.is_some() && !is_own {
            let what =
                format!("`{name}` has a section [environment.verifiers], but its environment is `{own}`");
            return Err(Error::new(what).hint(r#"set `use = "verifiers"`, or leave it out"#));
        }
        let Some(key) = self.countless().filter(|_| is_own) else { return Ok(()) };
        let what = format!("`{name}` has `environment.{key}`, which `{own}` does not have");
        let hint = match key {
            "deterministic" => "leave it out; the turns of a task set can't be played again",
            _ => {
                "leave it out; `max_turns` bounds rounds of calls, and one process runs many episodes at a time"
            }
        };
        Err(Error::new(what).hint(hint))
    }

    /// Checks what the types do not. `name` is the config's.
    ///
    /// # Errors
    ///
    /// A section that the environment needs and does not have, or has and does not need; a number out of its range.
    pub fn check(&self, name: &str) -> Result<(), Error> {
        let refused = |what: String, hint: &str| Err(Error::new(format!("`{name}` {what}")).hint(hint));
        let own = self.environment.name();
        match (&self.class, self.environment) {
            (None, AnyEnvironment::Class) => {
                let hint = r#"write, under [environment.class], file = "game.py" and name = "Game""#;
                return refused(
                    "has environment `class` but no section [environment.class]".to_owned(),
                    hint,
                );
            }
            (Some(_), other) if other != AnyEnvironment::Class => {
                let what = format!("has a section [environment.class], but its environment is `{own}`");
                return refused(what, r#"set `use = "class"`, or leave it out"#);
            }
            (Some(class), _) if class.file.as_os_str().is_empty() => {
                return Err(Error::new(format!(
                    "`{name}`: `environment.class.file` is empty; expected a path"
                )));
            }
            (Some(class), _) if class.name.is_some() != class.names.is_empty() => {
                let what = "needs either `name` or `names` under [environment.class]".to_owned();
                let hint =
                    r#"write name = "Game"; or, for several, names = { game = "Game", other = "Other" }"#;
                return refused(what, hint);
            }
            _ => {}
        }
        if self.environment.embedded().is_some() && self.process.is_some() {
            let what = format!("has a section [environment.process], but `{own}` has no processes");
            return refused(what, "leave it out");
        }
        self.check_verifiers(name)?;
        if self.max_rows > 1 && self.environment != AnyEnvironment::Verifiers {
            let what = format!("has `environment.max_rows`, which `{own}` does not have");
            return refused(what, "leave it out; only the harnesses of `verifiers` rewrite what was said");
        }
        let of_class = [
            ("max_tool_calls", self.max_tool_calls.is_some()),
            ("max_open", self.max_open.is_some()),
            ("deterministic", self.deterministic.is_some()),
            ("retries", self.retries > 0),
        ];
        let given = of_class.iter().find(|(_, given)| *given);
        if let (Some((key, _)), true) = (given, self.environment.embedded().is_some()) {
            return refused(format!("has `environment.{key}`, which `{own}` does not have"), "leave it out");
        }
        if self.retries > MOST_RETRIES {
            let what = format!(
                "`{name}`: `environment.retries` is {}; expected at most {MOST_RETRIES}",
                self.retries
            );
            let hint = "an environment that fails so often needs mending; `allot rollouts` shows why each episode was lost";
            return Err(Error::new(what).hint(hint));
        }
        let process = self.process.clone().unwrap_or_default();
        let seconds = [
            ("max_seconds", self.max_seconds.unwrap_or(1.0)),
            ("process.seconds", process.seconds),
            ("process.start_seconds", process.start_seconds),
        ];
        if let Some((key, value)) = seconds.into_iter().find(|(_, value)| !(*value > 0.0 && *value <= 1e6)) {
            let what =
                format!("`{name}`: `environment.{key}` is {value}; expected more than 0, at most 1,000,000");
            return Err(Error::new(what));
        }
        if process.command.is_empty() {
            return Err(Error::new(format!("`{name}`: `environment.process.command` is empty"))
                .hint(r#"write a Python, as in command = ["python3"]"#));
        }
        Ok(())
    }
}

/// More draws of a lost episode than any failure by chance needs.
const MOST_RETRIES: u32 = 16;

fn turns() -> u32 {
    16
}

fn rows() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(rows: &u32) -> bool {
    *rows == 1
}

fn read() -> u32 {
    256
}
