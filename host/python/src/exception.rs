//! Errors as Python exceptions: the message, and hints on separate lines. The classes are in
//! `allot/errors.py`.

use std::path::Path;

use allot_allocation::rules::Broken;
use allot_allocation::shown;
use allot_base::Error;
use allot_record::RecordError;
use allot_sandbox::{Fault, LoadError};
use pyo3::prelude::*;

/// The result of all fallible functions of this crate.
pub type Result<T> = std::result::Result<T, Exception>;

/// A Python exception.
#[derive(Clone, Debug)]
pub struct Exception {
    class: Class,
    error: Error,
    /// The name of the broken rule, if any.
    rule: Option<&'static str>,
}

/// The exception's class.
#[derive(Clone, Copy, Debug)]
enum Class {
    Error,
    LoadError,
    PolicyFault,
    BrokenRule,
}

impl Exception {
    fn of(class: Class, error: Error) -> Self {
        Self { class, error, rule: None }
    }

    /// Returns an exception about an argument or the order of calls.
    pub fn new(what: impl Into<String>) -> Self {
        Error::new(what).into()
    }

    /// Adds a hint.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { error: self.error.hint(hint), ..self }
    }

    /// Returns an exception about a file that could not be read or made.
    pub fn file(verb: &str, path: &Path, error: &std::io::Error) -> Self {
        Error::file(verb, path, error).into()
    }

    /// Returns an exception about a component that can't be loaded as a policy.
    pub fn load(source: &str, error: &LoadError) -> Self {
        let what = format!("could not load policy `{source}`: {error}");
        Self::of(Class::LoadError, Error::told(what, error.hint()))
    }

    /// Returns an exception about a policy without an answer. `place` precedes the policy's name.
    pub fn fault(place: &str, policy: &str, fault: &Fault) -> Self {
        let error = Error::new(format!("{place}policy `{policy}` {fault}"));
        Self::of(Class::PolicyFault, error.hints(fault.hints()))
    }

    /// Returns the message.
    pub fn what(&self) -> &str {
        &self.error.what
    }
}

impl From<Error> for Exception {
    fn from(error: Error) -> Self {
        Self::of(Class::Error, error)
    }
}

impl From<Broken> for Exception {
    fn from(broken: Broken) -> Self {
        let error = Error::new(broken.to_string()).hint(broken.rule.hint());
        Self { rule: Some(broken.rule.name()), ..Self::of(Class::BrokenRule, error) }
    }
}

impl From<RecordError> for Exception {
    fn from(error: RecordError) -> Self {
        let hint = match &error {
            RecordError::There(_) => Some("give another folder, or go on with it: load_state_dict(…)"),
            _ => error.hint(),
        };
        Error::told(error.to_string(), hint).into()
    }
}

impl From<Exception> for PyErr {
    fn from(Exception { class, error, rule }: Exception) -> Self {
        let class = match class {
            Class::Error => "Error",
            Class::LoadError => "LoadError",
            Class::PolicyFault => "PolicyFault",
            Class::BrokenRule => "BrokenRule",
        };
        // Exceptions are usually printed to a terminal.
        let fit = |words: &str| shown::lines(words, 64 << 10);
        let hint = (!error.hints.is_empty()).then(|| fit(&error.hints.join("\nhint: ")));
        let what = fit(&error.what);
        Python::attach(|py| {
            let raised = py
                .import("allot.errors")
                .and_then(|module| module.getattr(class))
                .and_then(|class| class.call1((what, hint, rule)));
            raised.map_or_else(|error| error, Self::from_value)
        })
    }
}
