//! The supported versions of the policy contract. Each version has a file in `wit/` and an adapter in this
//! crate. Code outside the adapters does not depend on a component's version.

use std::fmt;

use wasmtime::component::{Component, Linker};

use crate::calls::Linked;
use crate::guest::GuestState;
use crate::{Kind, kind, v0_1, v0_2, v0_3};

/// A version of the policy contract, ordered from oldest to newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contract {
    /// `wit/0.1/allocation.wit`.
    V0_1,
    /// `wit/0.2/allocation.wit`.
    V0_2,
    /// `wit/0.3/allocation.wit`.
    V0_3,
}

impl Contract {
    /// All supported versions.
    pub const ALL: [Self; 3] = [Self::V0_1, Self::V0_2, Self::V0_3];

    /// Returns the version that a component with an export of version `version` uses.
    pub(crate) fn of(version: &str) -> Option<Self> {
        kind::rank(Kind::Policy, version).map(|rank| Self::ALL[rank])
    }

    /// Returns the package name with the version, as errors print it.
    pub(crate) fn full(self) -> String {
        format!("{}@{self}", crate::CONTRACT)
    }

    /// Links a component to this version's adapter.
    pub(crate) fn link(
        self,
        linker: &mut Linker<GuestState>,
        component: &Component,
    ) -> wasmtime::Result<Linked> {
        match self {
            Self::V0_1 => v0_1::link(linker, component),
            Self::V0_2 => v0_2::link(linker, component),
            Self::V0_3 => v0_3::link(linker, component),
        }
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V0_1 => "0.1",
            Self::V0_2 => "0.2",
            Self::V0_3 => "0.3",
        })
    }
}
