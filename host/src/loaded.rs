//! A loaded component of any kind.

use allot_base::{Error, Result};
use allot_component::Kind;
use allot_judges::component;
use allot_sandbox::{Grader, LoadError, Policy, Sandbox, Setting};

use crate::policy_loader;
use crate::screen::Screen;

/// A loaded component of any kind.
pub enum Loaded {
    /// It allocates rollouts.
    Policy(Policy),
    /// It grades answers.
    Grader(Grader),
}

/// The description of a component of any kind.
pub struct About<'l> {
    /// The component's name: short and lower-case.
    pub name: &'l str,
    /// Its own version.
    pub version: &'l str,
    /// A one-line summary for users.
    pub summary: &'l str,
    /// Every setting a run may give.
    pub settings: &'l [Setting],
    /// Its contract, with the version.
    pub contract: String,
    /// Its component's sha256.
    pub sha256: &'l str,
    /// Its component's size, in bytes.
    pub size: u64,
}

impl Loaded {
    /// Loads a policy or grader from a component's bytes. Loading anything else as a policy fails.
    pub fn of(
        sandbox: &Sandbox,
        bytes: &[u8],
        name: &str,
        screen: &mut Screen<'_>,
    ) -> std::result::Result<Self, LoadError> {
        match allot_sandbox::kind_of(bytes).unwrap_or_default() {
            Kind::Policy => policy_loader::compiled(sandbox, bytes, None, name, screen).map(Self::Policy),
            Kind::Grader => policy_loader::grader(sandbox, bytes, name, screen).map(Self::Grader),
        }
    }

    /// Does the same, with an error for users. `source` is the name that the user gave.
    pub fn open(sandbox: &Sandbox, bytes: &[u8], source: &str, screen: &mut Screen<'_>) -> Result<Self> {
        let kind = allot_sandbox::kind_of(bytes).unwrap_or_default();
        Self::of(sandbox, bytes, source, screen).map_err(|e| {
            Error::told(format!("could not load {} `{source}`: {e}", kind.noun()), hint(kind, &e))
        })
    }

    /// Returns the component's description.
    pub fn about(&self) -> About<'_> {
        match self {
            Self::Policy(policy) => About::of_policy(policy),
            Self::Grader(grader) => About::of_grader(grader),
        }
    }
}

/// Returns a hint for a component of this kind that can't be loaded.
pub fn hint(kind: Kind, error: &LoadError) -> Option<&str> {
    match kind {
        Kind::Policy => error.hint(),
        Kind::Grader => component::hint(error),
    }
}

impl<'l> About<'l> {
    /// Returns the description of a policy.
    pub fn of_policy(policy: &'l Policy) -> Self {
        let d = policy.description();
        Self {
            name: &d.name,
            version: &d.version,
            summary: &d.summary,
            settings: &d.settings,
            contract: format!("{}@{}", Kind::Policy.package(), policy.contract()),
            sha256: policy.sha256(),
            size: policy.size(),
        }
    }

    /// Returns the description of a grader.
    pub fn of_grader(grader: &'l Grader) -> Self {
        let d = grader.description();
        Self {
            name: &d.name,
            version: &d.version,
            summary: &d.summary,
            settings: &d.settings,
            contract: format!("{}@{}", Kind::Grader.package(), grader.contract()),
            sha256: grader.sha256(),
            size: grader.size(),
        }
    }
}
