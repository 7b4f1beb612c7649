//! How a grader that is processes is started: the user's own command, or a script of this program in the user's Python.

use std::time::Duration;

use allot_base::{Error, Result};
use allot_settings::reward::{Compares, FunctionsConfig, JudgeConfig};

use super::environment::SCRIPT;
use super::identity::{GraderPreflight, Identity};
use super::process::Process;
use super::program::Failure;
use super::protocol::{Opinion, Question};

/// The script of grader `math-verify`.
const MATH_VERIFY: &str = crate::python::math::JUDGE;
/// The script of grader `functions`.
const FUNCTIONS: &str = include_str!("functions.py");

/// How a grader process is started and queried.
#[derive(Clone, Debug)]
pub struct GraderCommand {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its name in messages.
    pub name: String,
    /// Number of concurrent processes.
    pub processes: usize,
    /// The time limit of one answer.
    pub limit: Duration,
    /// The time limit of a start, up to the answer to the greeting.
    pub patience: Duration,
    /// The question that a new process must answer; any answer will do.
    pub greeting: Question,
    /// The hint of the error if no process starts.
    pub hint: String,
    /// The words that identify it: a command without the paths of files that it names.
    pub words: Vec<String>,
    /// Its identity when the run began. A process with another identity is an error.
    pub known: Option<Identity>,
    /// Which answers are compared with each other, and asked about in one line; none for each by itself.
    pub compares: Option<Compares>,
}

impl GraderCommand {
    /// Returns the command from the config.
    pub fn command(config: &JudgeConfig, greeting: Question) -> Self {
        let command = config.command.clone().unwrap_or_default();
        let name = command.join(" ");
        let hint = format!("try it by hand: echo '{}' | {name}", greeting.line(1).replace('\'', r"'\''"));
        Self { name, hint, ..Self::of(config, greeting, command.clone(), command) }
    }

    /// Returns the built-in `math-verify` grader. `command` names a Python with the package installed.
    pub fn math_verify(config: &JudgeConfig, greeting: Question) -> Self {
        let name = format!("{} math_verify.py", config.python().join(" "));
        let hint = "install math-verify with `pip install math-verify==0.8.0`, or set `command` in \
                    [reward.process] to a Python that has it";
        let script = Self::script(config, greeting, ("math_verify.py", MATH_VERIFY), Vec::new());
        Self { name, hint: hint.to_owned(), ..script }
    }

    /// Returns the built-in grader for reward functions in a Python file. `command` names a Python that has
    /// the packages which the file imports.
    pub fn functions(functions: &FunctionsConfig, config: &JudgeConfig, greeting: Question) -> Self {
        let (file, names) = (functions.file.display().to_string(), functions.names.join(", "));
        let name = format!("{names} of {file}");
        let hint = format!(
            "try it by hand: {} {file}; or set `command` in [reward.process] to another Python",
            config.python().join(" ")
        );
        let messages = u8::from(functions.messages).to_string();
        let arguments = [file, messages].into_iter().chain(functions.names.iter().cloned()).collect();
        let script = Self::script(config, greeting, ("functions.py", FUNCTIONS), arguments);
        Self { name, hint, compares: functions.compares, ..script }
    }

    /// Returns the built-in grader for environments. `command` names a Python with these packages.
    pub fn environment(packages: Vec<String>, config: &JudgeConfig, greeting: Question) -> Self {
        let name = format!("{} environment.py {}", config.python().join(" "), packages.join(" "));
        let hint = "set `command` in [reward.process] to a Python with the packages that made the problems";
        let arguments = ["judge".to_owned()].into_iter().chain(packages).collect();
        let script = Self::script(config, greeting, ("environment.py", SCRIPT), arguments);
        Self { name, hint: hint.to_owned(), ..script }
    }

    /// Returns a built-in script with its arguments, run by the config's Python.
    fn script(
        config: &JudgeConfig,
        greeting: Question,
        (file, source): (&str, &str),
        arguments: Vec<String>,
    ) -> Self {
        let script = ["-c".to_owned(), source.to_owned()];
        let command = config.python().into_iter().chain(script).chain(arguments.iter().cloned()).collect();
        let words = [file.to_owned(), source.to_owned()].into_iter().chain(arguments).collect();
        Self::of(config, greeting, command, words)
    }

    fn of(config: &JudgeConfig, greeting: Question, command: Vec<String>, words: Vec<String>) -> Self {
        Self {
            command,
            name: String::new(),
            processes: config.processes,
            limit: Duration::from_secs_f64(config.seconds),
            patience: Duration::from_secs_f64(config.start_seconds()),
            greeting,
            hint: String::new(),
            words,
            known: None,
            compares: None,
        }
    }

    /// Returns a process that has answered the greeting. A failure here is not caused by an answer; `tries`
    /// failures are an error.
    pub(crate) async fn start(&self, mut tries: u32) -> Result<(Process, GraderPreflight)> {
        let (process, opinion) = loop {
            match self.preflight().await {
                Ok(preflight) => break preflight,
                Err(failure) if tries <= 1 => return Err(self.unusable(&failure)),
                Err(_) => tries -= 1,
            }
        };
        let identity = Identity::of(&self.words, process.greeting().hello())?;
        if let Some(how) = self.known.as_ref().and_then(|known| identity.apart(known, &self.words)) {
            let error = Error::new(format!("the grader `{}` changed during the run: {how}", self.name));
            return Err(error.hint("restore it as it was when the run began, and continue with --resume"));
        }
        let (words, compares) = (self.words.clone(), self.compares == Some(Compares::Group));
        Ok((process, GraderPreflight { identity, words, opinion, compares }))
    }

    async fn preflight(&self) -> std::result::Result<(Process, Opinion), Failure> {
        let mut process = Process::start(&self.command)?;
        let asked = if self.compares.is_some() {
            let group = std::iter::once(&self.greeting);
            process.ask_group(group, 1, self.patience).await.map(|mut opinions| opinions.remove(0))
        } else {
            process.ask(&self.greeting, self.patience).await
        };
        match asked {
            Ok(opinion) => Ok((process, opinion)),
            Err(failure) => {
                process.end().await;
                Err(failure)
            }
        }
    }

    fn unusable(&self, failure: &Failure) -> Error {
        let (name, question) = (&self.name, self.greeting.line(1));
        let hint = match failure {
            Failure::Unstarted(_) | Failure::Ended(_) => self.hint.clone(),
            Failure::Late(_) | Failure::Garbage(_) => format!(
                "answer each line like {question} with a line like {}, or {}, and print nothing else",
                r#"{"id":1,"correct":true}"#, r#"{"id":1,"error":"why not"}"#
            ),
        };
        let slow = matches!(failure, Failure::Late(_))
            .then_some("raise `reward.process.start_seconds` if it starts slowly");
        Error::new(format!("the grader `{name}` {failure}")).hint(hint).hints(slow)
    }
}
