//! What went wrong, as an exception of Python: the host's sentence, and its hint on a line of its own. The
//! classes are in `allot/errors.py`.

use std::path::Path;

use allot_allocation::rules::Broken;
use allot_allocation::shown;
use allot_record::RecordError;
use allot_sandbox::{Fault, LoadError};
use pyo3::prelude::*;

/// The result of whatever can go wrong here.
pub type Result<T> = std::result::Result<T, Trouble>;

/// Something that is raised.
#[derive(Clone, Debug)]
pub struct Trouble {
    kind: Kind,
    what: String,
    hint: Option<String>,
    /// The name of the rule that was broken, where one was.
    rule: Option<&'static str>,
}

/// Which class of exception it is.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Error,
    Load,
    Fault,
    Broken,
}

impl Trouble {
    /// Something wrong with what was given, or with the order of calls.
    pub fn new(what: impl Into<String>) -> Self {
        Self { kind: Kind::Error, what: what.into(), hint: None, rule: None }
    }

    /// The same, with a hint.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// A file that could not be read or made.
    pub fn file(verb: &str, path: &Path, error: &std::io::Error) -> Self {
        let reason = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file or folder".to_owned(),
            std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => error.to_string(),
        };
        Self::new(format!("could not {verb} `{}`: {reason}", shown::path(path)))
    }

    /// A component that is no policy of this contract.
    pub fn load(source: &str, error: &LoadError) -> Self {
        let what = format!("could not load policy `{source}`: {error}");
        Self { kind: Kind::Load, hint: error.hint().map(str::to_owned), ..Self::new(what) }
    }

    /// A policy that gave no answer; `place` is what comes before its name.
    pub fn fault(place: &str, policy: &str, fault: &Fault) -> Self {
        let hints: Vec<String> = fault.hints().collect();
        let hint = (!hints.is_empty()).then(|| hints.join("\nhint: "));
        Self { kind: Kind::Fault, hint, ..Self::new(format!("{place}policy `{policy}` {fault}")) }
    }

    /// The sentence.
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl From<Broken> for Trouble {
    fn from(broken: Broken) -> Self {
        Self {
            kind: Kind::Broken,
            hint: Some(broken.rule.hint().to_owned()),
            rule: Some(broken.rule.name()),
            what: broken.to_string(),
        }
    }
}

impl From<RecordError> for Trouble {
    fn from(error: RecordError) -> Self {
        let hint = match &error {
            RecordError::There(_) => Some("give another folder, or go on with it: load_state_dict(…)"),
            _ => error.hint(),
        };
        Self { hint: hint.map(str::to_owned), ..Self::new(error.to_string()) }
    }
}

impl From<Trouble> for PyErr {
    fn from(trouble: Trouble) -> Self {
        let class = match trouble.kind {
            Kind::Error => "Error",
            Kind::Load => "LoadError",
            Kind::Fault => "PolicyFault",
            Kind::Broken => "BrokenRule",
        };
        // Whoever prints an exception prints it to a terminal, most often.
        let fit = |words: &str| shown::lines(words, 64 << 10);
        let (what, hint) = (fit(&trouble.what), trouble.hint.as_deref().map(fit));
        Python::attach(|py| {
            let raised = py
                .import("allot.errors")
                .and_then(|module| module.getattr(class))
                .and_then(|class| class.call1((what, hint, trouble.rule)));
            raised.map_or_else(|error| error, Self::from_value)
        })
    }
}
