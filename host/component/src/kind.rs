//! What a component is for.

/// What a component is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// It allocates rollouts: `wit/0.2/allocation.wit`.
    #[default]
    Policy,
    /// It judges answers: `wit/reward/0.1/reward.wit`.
    Grader,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Policy, Self::Grader];

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
            Self::Policy => "rollout:allocation",
            Self::Grader => "rollout:reward",
        }
    }

    /// The interface of that package that a component exports.
    pub fn interface(self) -> &'static str {
        match self {
            Self::Policy => "allocator",
            Self::Grader => "grader",
        }
    }

    /// The interfaces of that package that it may import.
    pub fn imports(self) -> &'static [&'static str] {
        match self {
            Self::Policy => &["facts", "log", "types"],
            Self::Grader => &["log", "types"],
        }
    }

    /// The contract's world.
    pub fn world(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Grader => "reward",
        }
    }
}
