//! The graders that a config can name.

use allot_tasks::grader::Grader;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A grader, by its name in a config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyGrader {
    /// A built-in grader.
    Native(Grader),
    /// Python's math-verify package.
    MathVerify,
    /// A command of the user.
    Command,
    /// Reward functions in a Python file.
    Functions,
    /// Generated Python, run in the sandbox against tests or pairs of input and output.
    Python,
    /// A server: a language model as a judge, a reward model, or a program.
    Http,
    /// A component of the user, run in the sandbox.
    Component,
    /// The environment that generated the problem.
    Environment,
    /// A regular expression that the answer must match.
    Pattern,
    /// The environment of `[environment]`, in which the rollout was played.
    Episode,
}

impl AnyGrader {
    /// Returns the grader's name in configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native(grader) => grader.name(),
            Self::MathVerify => "math-verify",
            Self::Command => "command",
            Self::Functions => "functions",
            Self::Python => "python",
            Self::Http => "http",
            Self::Component => "component",
            Self::Environment => "environment",
            Self::Pattern => "pattern",
            Self::Episode => "episode",
        }
    }

    /// Returns whether the grader gives rewards, and not only whether an answer is correct.
    pub fn gives_rewards(self) -> bool {
        matches!(
            self,
            Self::Command
                | Self::Functions
                | Self::Http
                | Self::Component
                | Self::Environment
                | Self::Episode
        )
    }

    /// Returns whether the grader runs in processes of its own.
    pub fn has_processes(self) -> bool {
        matches!(self, Self::Command | Self::Functions | Self::MathVerify | Self::Environment)
    }

    /// Returns the built-in grader, or `None` for any other.
    pub fn native(self) -> Option<Grader> {
        match self {
            Self::Native(grader) => Some(grader),
            _ => None,
        }
    }

    /// Returns what the user must install or write before using the grader.
    pub fn needs(self) -> Option<&'static str> {
        match self {
            Self::Native(_) | Self::Pattern => None,
            Self::MathVerify => Some("needs math-verify: a Python that has it, or allot fetch math-verify"),
            Self::Python => Some("needs CPython for Wasm: allot fetch python"),
            Self::Command => Some("needs a program of yours"),
            Self::Functions => Some("needs python3 and a file of functions"),
            Self::Http => Some("needs a server"),
            Self::Component => Some("needs a component of yours: allot new --kind grader"),
            Self::Environment => Some("needs a Python with verifiers or reasoning-gym"),
            Self::Episode => Some("needs a section [environment]"),
        }
    }

    /// Returns all graders.
    pub fn all() -> impl Iterator<Item = Self> {
        Grader::ALL.into_iter().map(Self::Native).chain([
            Self::MathVerify,
            Self::Command,
            Self::Functions,
            Self::Python,
            Self::Http,
            Self::Component,
            Self::Environment,
            Self::Pattern,
            Self::Episode,
        ])
    }
}

impl Serialize for AnyGrader {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for AnyGrader {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Self::all().find(|grader| grader.name() == name).ok_or_else(|| {
            let known = Self::all().map(|grader| match grader.needs() {
                Some(needs) => format!("`{}` ({needs})", grader.name()),
                None => format!("`{}`", grader.name()),
            });
            let known = known.collect::<Vec<_>>().join(", ");
            serde::de::Error::custom(format!("unknown variant `{name}`, expected one of {known}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_grader_is_written_as_it_is_read() {
        for grader in AnyGrader::all() {
            let written = serde_json::to_value(grader).ok();
            assert_eq!(written, Some(grader.name().into()));
            assert_eq!(written.and_then(|w| serde_json::from_value(w).ok()), Some(grader));
        }
    }
}
