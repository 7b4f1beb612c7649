//! The versions of the contract that are spoken here. A version has a file in `wit/` and an adapter beside this one;
//! nothing outside of the adapters depends on which of them a component speaks.

use std::fmt;

use wasmtime::component::{Component, Linker};

use crate::calls::Linked;
use crate::guest::GuestState;
use crate::{Kind, kind, v0_1, v0_2};

/// A version of the contract, the older ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contract {
    /// `wit/0.1/allocation.wit`.
    V0_1,
    /// `wit/0.2/allocation.wit`.
    V0_2,
}

impl Contract {
    /// All that are known.
    pub const ALL: [Self; 2] = [Self::V0_1, Self::V0_2];

    /// The one that a component with an export of this version speaks.
    pub(crate) fn of(version: &str) -> Option<Self> {
        kind::rank(Kind::Policy, version).map(|rank| Self::ALL[rank])
    }

    /// It with its package, as an error calls it.
    pub(crate) fn full(self) -> String {
        format!("{}@{self}", crate::CONTRACT)
    }

    /// Fits a component to its adapter.
    pub(crate) fn link(
        self,
        linker: &mut Linker<GuestState>,
        component: &Component,
    ) -> wasmtime::Result<Linked> {
        match self {
            Self::V0_1 => v0_1::link(linker, component),
            Self::V0_2 => v0_2::link(linker, component),
        }
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V0_1 => "0.1",
            Self::V0_2 => "0.2",
        })
    }
}
