//! Kinds of components.

/// The kind of a component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A policy, which allocates rollouts: `wit/0.3/allocation.wit`.
    #[default]
    Policy,
    /// A grader, which grades answers: `wit/reward/0.2/reward.wit`.
    Grader,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Policy, Self::Grader];

    /// Returns the kind's noun.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Grader => "grader",
        }
    }

    /// Returns the contract's package, without its version.
    pub fn package(self) -> &'static str {
        match self {
            Self::Policy => "rollout:allocation",
            Self::Grader => "rollout:reward",
        }
    }

    /// Returns the interface of the package that a component exports.
    pub fn interface(self) -> &'static str {
        match self {
            Self::Policy => "allocator",
            Self::Grader => "grader",
        }
    }

    /// Returns the interfaces of the package that a component may import.
    pub fn imports(self) -> &'static [&'static str] {
        match self {
            Self::Policy => &["facts", "log", "types"],
            Self::Grader => &["log", "types"],
        }
    }

    /// Returns the contract's world.
    pub fn world(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Grader => "reward",
        }
    }
}
