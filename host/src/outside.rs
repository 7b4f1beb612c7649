//! Environments outside of this program, checked before a run begins.

use std::path::Path;
use std::sync::Arc;

use allot_base::Result;
use allot_engine::{Environments, Stops};
use allot_judges::classes::{Classes, Toolbox};
use allot_judges::identity::Identity;
use allot_judges::verifiers::{TaskSets, Verifiers};
use allot_models::tokens::Tokens;
use allot_settings::{AnyEnvironment, EnvironmentSettings};
use allot_tasks::Problem;

use crate::run_dir;

/// The environment of a run, if it is outside of this program.
pub enum Outside {
    /// Python classes of TRL's form.
    Classes(Arc<Toolbox>),
    /// Task sets of verifiers.
    Verifiers(Arc<TaskSets>),
}

impl Outside {
    /// Starts the environment's process once, and asks it what the run must know. None if it is within this program.
    ///
    /// # Errors
    ///
    /// A process that does not start, or that can't play these problems with this model.
    pub fn check<'p>(
        settings: Option<&EnvironmentSettings>,
        model: (&Path, &Tokens),
        stop: &[String],
        problems: impl Iterator<Item = &'p Problem>,
    ) -> Result<Option<Self>> {
        let Some(settings) = settings else { return Ok(None) };
        if let Some(class) = &settings.class {
            let toolbox = Toolbox::check(settings, class, model.1)?;
            return Ok(Some(Self::Classes(Arc::new(toolbox))));
        }
        if settings.environment != AnyEnvironment::Verifiers {
            return Ok(None);
        }
        let sets = TaskSets::check(settings, model, stop, problems)?;
        Ok(Some(Self::Verifiers(Arc::new(sets))))
    }

    /// Returns its identity, for the record.
    pub fn identity(&self) -> &Identity {
        match self {
            Self::Classes(toolbox) => &toolbox.identity,
            Self::Verifiers(sets) => &sets.identity,
        }
    }

    /// Returns how it differs from the environment in a run's record, as a clause of a sentence.
    pub fn apart(&self, before: &Identity) -> Option<String> {
        match self {
            Self::Classes(toolbox) => toolbox.apart(before),
            Self::Verifiers(sets) => sets.apart(before),
        }
    }

    /// Returns the tokens with which each episode of a problem begins.
    ///
    /// # Errors
    ///
    /// A problem that the environment does not have.
    pub fn prompt(&self, tokens: &Tokens, problem: &Problem) -> Result<Vec<u32>> {
        match self {
            Self::Classes(toolbox) => toolbox.prompt(tokens, problem),
            Self::Verifiers(sets) => sets.prompt(tokens, problem),
        }
    }

    /// Returns the environments of a run with these problems and the tokens of their prompts.
    pub fn open(
        &self,
        settings: &EnvironmentSettings,
        speech: (Arc<Tokens>, Stops),
        asked: (Arc<Vec<Problem>>, Vec<Vec<u32>>),
    ) -> Box<dyn Environments> {
        let settings = settings.clone();
        match self {
            Self::Classes(toolbox) => Box::new(Classes::new(settings, Arc::clone(toolbox), speech, asked)),
            Self::Verifiers(sets) => {
                Box::new(Verifiers::new(settings, Arc::clone(sets), asked, run_dir::note))
            }
        }
    }
}
