//! What a component is for, by the name of what it exports.

use crate::contract::Contract;
use crate::inspection;

/// What a component is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It allocates rollouts: `wit/0.2/allocation.wit`.
    Policy,
    /// It judges answers: `wit/reward/0.1/reward.wit`.
    Grader,
}

/// The version of a grader's contract that is known.
pub(crate) const REWARD: &str = "0.1";

impl Kind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Policy, Self::Grader];

    /// What a component is for, if it is for something that is known.
    pub fn of(component: &[u8]) -> Option<Self> {
        let exports = inspection::exports(component).ok()?;
        Self::ALL.into_iter().find(|kind| exports.iter().any(|name| kind.version(name).is_some()))
    }

    /// In a word.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Grader => "grader",
        }
    }

    /// The contract's package, without its version.
    pub fn package(self) -> &'static str {
        match self {
            Self::Policy => crate::CONTRACT,
            Self::Grader => "rollout:reward",
        }
    }

    /// The interface that it exports.
    pub(crate) fn interface(self) -> &'static str {
        match self {
            Self::Policy => "allocator",
            Self::Grader => "grader",
        }
    }

    /// What of its package it may import.
    pub(crate) fn imports(self) -> &'static [&'static str] {
        match self {
            Self::Policy => &["facts", "log", "types"],
            Self::Grader => &["log", "types"],
        }
    }

    /// The version in the name of what it exports.
    pub(crate) fn version(self, export: &str) -> Option<String> {
        inspection::interface(self.package(), export, self.interface())
    }

    /// Where a version stands among those known here, if it does.
    pub(crate) fn rank(self, version: &str) -> Option<usize> {
        match self {
            Self::Policy => Contract::of(version).map(|contract| contract as usize),
            Self::Grader => {
                let rest = version.strip_prefix(REWARD)?;
                (rest.is_empty() || rest.starts_with('.')).then_some(0)
            }
        }
    }

    /// Whether a version that is not known here came after all that are.
    pub(crate) fn is_newer(self, version: &str) -> bool {
        match self {
            Self::Policy => Contract::is_newer(version),
            Self::Grader => Contract::number_in(version) > Contract::number_in(REWARD),
        }
    }

    /// The versions known here, in words.
    pub(crate) fn known(self) -> String {
        match self {
            Self::Policy => Contract::known(),
            Self::Grader => REWARD.to_owned(),
        }
    }
}
