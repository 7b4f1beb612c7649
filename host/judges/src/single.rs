//! One grader, queried for one answer after another while rollouts are still sampled.

use std::collections::HashMap;
use std::path::Path;

use allot_base::{Error, Result};
use allot_settings::AnyGrader;
use allot_settings::reward::{PatternConfig, RewardConfig, no_component, no_functions, no_server};
use allot_tasks::Problem;
use allot_tasks::grader::Grader;
use regex::Regex;

use super::component::Components;
use super::environment;
use super::http::Http;
use super::identity::{GraderPreflight, Identity};
use super::processes::{GraderCommand, Processes};
use super::protocol::{Opinion, Question};
use super::sandboxed::Sandboxed;

/// A grader, with the opinions that it has given so far.
pub struct Single {
    /// The grader's config.
    pub config: RewardConfig,
    by: By,
    /// Opinions that were available at once, with their places.
    said: Vec<(usize, Opinion)>,
}

/// The grader's implementation.
enum By {
    Grader(Grader),
    Pattern(Regex),
    Processes(Box<Processes>),
    Sandboxed(Sandboxed),
    Http(Box<Http>),
    Components(Components),
    /// The environments, which have judged their episodes.
    Episodes,
}

impl Single {
    /// Returns the grader of a config, for these problems. `known` is a process's identity from its check.
    ///
    /// # Errors
    ///
    /// A config that [`RewardConfig::check`] rejects, or a missing interpreter.
    pub fn new(config: &RewardConfig, problems: &[Problem], known: Option<Identity>) -> Result<Self> {
        let by = By::of(config, problems, known)?;
        Ok(Self { config: config.clone(), by, said: Vec::new() })
    }

    /// Checks the grader before anything else is created: starts and ends a process, queries a server, or
    /// loads a component. Returns the preflight, or `None` if the grader is part of this program.
    ///
    /// # Errors
    ///
    /// A grader process that does not start, or rewards that the config can't use.
    pub fn check(config: &RewardConfig, problems: &[Problem]) -> Result<Option<GraderPreflight>> {
        if let (true, Some(grader)) = (config.sandboxed(), config.grader) {
            return Sandboxed::check(&config.python.clone().unwrap_or_default(), grader).map(Some);
        }
        if config.grader == Some(AnyGrader::Component) {
            let component = config.component.as_ref().ok_or_else(|| no_component("the config", "reward"))?;
            return Components::check(component, &config.weights, &greeting(config, problems)).map(Some);
        }
        match By::of(config, problems, None)? {
            By::Processes(processes) => processes.check().map(Some),
            By::Http(http) => http.check().map(Some),
            By::Grader(_) | By::Pattern(_) | By::Sandboxed(_) | By::Components(_) | By::Episodes => Ok(None),
        }
    }

    /// Returns whether the grader compares answers to the same prompt.
    pub fn compares(&self) -> bool {
        match &self.by {
            By::Processes(processes) => processes.compare(),
            By::Components(components) => components.compare(),
            By::Grader(_) | By::Pattern(_) | By::Sandboxed(_) | By::Http(_) | By::Episodes => false,
        }
    }

    /// See [`Http::keep`].
    pub fn keep(&mut self, file: &Path, notice: fn(&str)) {
        if let By::Http(http) = &mut self.by {
            http.keep(file, notice);
        }
    }

    /// Starts grading an answer.
    pub fn begin(&mut self, place: usize, question: Question) {
        match &mut self.by {
            By::Grader(grader) => {
                let correct = grader.grade_any(&question.gold, &question.answer);
                self.said.push((place, correct.map(Into::into).map_err(|e| e.to_string())));
            }
            By::Pattern(regex) => self.said.push((place, Ok(regex.is_match(&question.answer).into()))),
            By::Processes(processes) => processes.begin(place, question),
            By::Sandboxed(sandboxed) => sandboxed.begin(place, question),
            By::Http(http) => http.begin(place, &question),
            By::Components(components) => components.begin(place, question),
            By::Episodes => {
                let no_episode = || Err("the rollout is not an episode".to_owned());
                self.said.push((place, question.episode.unwrap_or_else(no_episode)));
            }
        }
    }

    /// Returns the opinions on all answers since the last call, by place. An error ends all grading.
    pub async fn finish(&mut self) -> Result<HashMap<usize, Opinion>> {
        let said = match &mut self.by {
            By::Grader(_) | By::Pattern(_) | By::Episodes => std::mem::take(&mut self.said),
            By::Processes(processes) => processes.finish().await?,
            By::Sandboxed(sandboxed) => sandboxed.finish().await?,
            By::Http(http) => http.finish().await?,
            By::Components(components) => components.finish().await?,
        };
        Ok(said.into_iter().collect())
    }
}

impl By {
    fn of(config: &RewardConfig, problems: &[Problem], known: Option<Identity>) -> Result<Self> {
        let settings = config.process.clone().unwrap_or_default();
        let greeting = greeting(config, problems);
        let Some(grader) = config.grader else { return Err(Error::new("the config names no grader")) };
        let sandboxed = || {
            let python = config.python.clone().unwrap_or_default();
            Sandboxed::new(&python, grader).map(Self::Sandboxed)
        };
        let command = match grader {
            AnyGrader::Python => return sandboxed(),
            AnyGrader::MathVerify if config.sandboxed() => return sandboxed(),
            AnyGrader::Native(grader) => return Ok(Self::Grader(grader)),
            AnyGrader::Episode => return Ok(Self::Episodes),
            AnyGrader::Pattern => {
                let pattern = config.pattern.as_ref();
                let Some(Ok(regex)) = pattern.map(PatternConfig::compiled) else {
                    return Err(Error::new("the config has grader `pattern` but no regular expression"));
                };
                return Ok(Self::Pattern(regex));
            }
            AnyGrader::Component => {
                let component = config.component.as_ref();
                let component = component.ok_or_else(|| no_component("the config", "reward"))?;
                return Components::new(component, known.as_ref()).map(Self::Components);
            }
            AnyGrader::Http => {
                let http = config.http.as_ref().ok_or_else(|| no_server("the config", "reward"))?;
                return Ok(Self::Http(Box::new(Http::new(http, greeting, known))));
            }
            AnyGrader::Environment => {
                let own = problems.iter().filter(|problem| config.judges(&problem.source));
                GraderCommand::environment(environment::packages(own), &settings, greeting)
            }
            AnyGrader::MathVerify => GraderCommand::math_verify(&settings, greeting),
            AnyGrader::Command => GraderCommand::command(&settings, greeting),
            AnyGrader::Functions => {
                let functions = config.functions.as_ref();
                let functions = functions.ok_or_else(|| no_functions("the config", "reward"))?;
                GraderCommand::functions(functions, &settings, greeting)
            }
        };
        Ok(Self::Processes(Box::new(Processes::new(GraderCommand { known, ..command }))))
    }
}

/// Returns a question about one of the run's problems, since a grader may support only some gold answers.
fn greeting(config: &RewardConfig, problems: &[Problem]) -> Question {
    let first = problems.iter().find(|problem| config.judges(&problem.source));
    first.map_or_else(Question::default, |problem| {
        let gold: Vec<String> = problem.gold.first().cloned().into_iter().collect();
        Question::of(problem, gold.first().cloned().unwrap_or_default(), gold)
    })
}
