//! The versions of the contract that are spoken here. A version has a file in `wit/` and an adapter beside this one;
//! nothing outside of the adapters depends on which of them a component speaks.

use std::fmt;

use wasmtime::component::{Component, Linker};

use crate::calls::Linked;
use crate::guest::GuestState;
use crate::{v0_1, v0_2};

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

    /// The one that a component with an export of this version speaks: `0.1`, `0.1.0`.
    pub(crate) fn of(version: &str) -> Option<Self> {
        let is = |known: &Self| {
            let rest = version.strip_prefix(known.number());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        Self::ALL.into_iter().find(is)
    }

    /// Its number.
    fn number(self) -> &'static str {
        match self {
            Self::V0_1 => "0.1",
            Self::V0_2 => "0.2",
        }
    }

    /// Whether a version that is not known here came after all that are.
    pub(crate) fn is_newer(version: &str) -> bool {
        Self::number_in(version) > Self::ALL.last().and_then(|newest| Self::number_in(newest.number()))
    }

    /// The first two numbers of a version.
    pub(crate) fn number_in(version: &str) -> Option<(u64, u64)> {
        let mut parts = version.split('.').map(|part| part.parse::<u64>().ok());
        Some((parts.next()??, parts.next()??))
    }

    /// All that are known, in words.
    pub(crate) fn known() -> String {
        Self::ALL.map(Self::number).join(" and ")
    }

    /// It with its package, as an error calls it.
    pub(crate) fn full(self) -> String {
        format!("{}@{}", crate::CONTRACT, self.number())
    }

    /// Fits a component to its adapter.
    pub(crate) fn link(
        self,
        linker: &mut Linker<GuestState>,
        component: &Component,
    ) -> wasmtime::Result<Box<dyn Linked>> {
        Ok(match self {
            Self::V0_1 => Box::new(v0_1::link(linker, component)?),
            Self::V0_2 => Box::new(v0_2::link(linker, component)?),
        })
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_known_by_its_first_two_numbers() {
        for known in ["0.1", "0.1.0", "0.1.7", "0.1.0-rc1"] {
            assert_eq!(Contract::of(known), Some(Contract::V0_1), "{known}");
        }
        assert_eq!(Contract::of("0.2.0"), Some(Contract::V0_2));
        for other in ["", "0", "0.20.0", "0.10.0", "0.11", "1.0.1", "0.1x", "v0.1"] {
            assert_eq!(Contract::of(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_newer_is_told_from_what_is_no_version_at_all() {
        assert!(["0.3.0", "0.10", "1.0.0"].iter().all(|version| Contract::is_newer(version)));
        assert!(["", "0.0.9", "draft", "0.x"].iter().all(|version| !Contract::is_newer(version)));
    }
}
