//! A component that was loaded, whatever it is for.

use allot_base::{Error, Result};
use allot_component::Kind;
use allot_judges::component;
use allot_sandbox::{Grader, LoadError, Policy, Sandbox, Setting};

use crate::policy_loader;
use crate::screen::Screen;

/// A component that was loaded, whatever it is for.
pub enum Loaded {
    /// It allocates rollouts.
    Policy(Policy),
    /// It judges answers.
    Grader(Grader),
}

/// What both kinds say of themselves.
pub struct About<'l> {
    /// Short and lower-case.
    pub name: &'l str,
    /// Its own version.
    pub version: &'l str,
    /// One line for people.
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
    /// The policy or the grader of a component's bytes. What is neither is taken for a policy, and refused as that.
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

    /// The same, with the error for people: `source` is what they called it.
    pub fn open(sandbox: &Sandbox, bytes: &[u8], source: &str, screen: &mut Screen<'_>) -> Result<Self> {
        let kind = allot_sandbox::kind_of(bytes).unwrap_or_default();
        Self::of(sandbox, bytes, source, screen).map_err(|e| {
            Error::told(format!("could not load {} `{source}`: {e}", kind.noun()), hint(kind, &e))
        })
    }

    /// What it says of itself.
    pub fn about(&self) -> About<'_> {
        match self {
            Self::Policy(policy) => About::of_policy(policy),
            Self::Grader(grader) => About::of_grader(grader),
        }
    }
}

/// What to do about a component of this kind that is not loaded.
pub fn hint(kind: Kind, error: &LoadError) -> Option<&str> {
    match kind {
        Kind::Policy => error.hint(),
        Kind::Grader => component::hint(error),
    }
}

impl<'l> About<'l> {
    /// What a policy says of itself.
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

    /// What a grader says of itself.
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
