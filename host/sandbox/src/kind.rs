//! What a component is for, as its exports tell, and the versions of each contract that are known.

use allot_component::Kind;

use crate::contract::Contract;

/// The version of a grader's contract that is known.
pub(crate) const REWARD: &str = "0.1";

/// What a component with these exports is for.
pub(crate) fn among(exports: &[String]) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| exports.iter().any(|name| version(*kind, name).is_some()))
}

/// The version in the name of an export.
pub(crate) fn version(kind: Kind, export: &str) -> Option<String> {
    interface(kind.package(), export, kind.interface())
}

/// Where a version stands among those known here, if it does.
pub(crate) fn rank(kind: Kind, version: &str) -> Option<usize> {
    match kind {
        Kind::Policy => Contract::of(version).map(|contract| contract as usize),
        Kind::Grader => {
            let rest = version.strip_prefix(REWARD)?;
            (rest.is_empty() || rest.starts_with('.')).then_some(0)
        }
    }
}

/// Whether a version that is not known here came after all that are.
pub(crate) fn is_newer(kind: Kind, version: &str) -> bool {
    match kind {
        Kind::Policy => Contract::is_newer(version),
        Kind::Grader => Contract::number_in(version) > Contract::number_in(REWARD),
    }
}

/// The versions known here, in words.
pub(crate) fn known(kind: Kind) -> String {
    match kind {
        Kind::Policy => Contract::known(),
        Kind::Grader => REWARD.to_owned(),
    }
}

/// The version in `PACKAGE/NAME@VERSION`, empty where there is none.
pub(crate) fn interface(package: &str, full: &str, name: &str) -> Option<String> {
    let rest = full.strip_prefix(package)?.strip_prefix('/')?.strip_prefix(name)?;
    match rest.strip_prefix('@') {
        Some(version) => Some(version.to_owned()),
        None => rest.is_empty().then(String::new),
    }
}
