//! A component's kind, derived from its exports, and the supported versions of each contract.

use allot_component::Kind;

/// Returns a contract's supported versions, oldest first; for policies, in the order of `Contract::ALL`. Graders of the first
/// are linked by `reward_v0_1`, all others by `reward_v0_2`.
fn versions(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Policy => &["0.1", "0.2", "0.3"],
        Kind::Grader => &["0.1", "0.2"],
    }
}

/// Returns the kind of a component with these exports.
pub(crate) fn among(exports: &[String]) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| exports.iter().any(|name| version(*kind, name).is_some()))
}

/// Returns the version in an export's name.
pub(crate) fn version(kind: Kind, export: &str) -> Option<String> {
    interface(kind.package(), export, kind.interface())
}

/// Returns the index of a version, such as `0.1` or `0.1.0`, among the supported ones, if it is supported.
pub(crate) fn rank(kind: Kind, version: &str) -> Option<usize> {
    let is = |known: &&str| {
        let rest = version.strip_prefix(*known);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    versions(kind).iter().position(is)
}

/// Returns whether an unsupported version is newer than all supported ones.
pub(crate) fn is_newer(kind: Kind, version: &str) -> bool {
    numbers(version) > versions(kind).last().and_then(|newest| numbers(newest))
}

/// Returns the first two numbers of a version.
fn numbers(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.split('.').map(|part| part.parse::<u64>().ok());
    Some((parts.next()??, parts.next()??))
}

/// Returns the supported versions, in words.
pub(crate) fn known(kind: Kind) -> String {
    match versions(kind) {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        all => all.concat(),
    }
}

/// Returns the version in `PACKAGE/NAME@VERSION`, empty if there is none.
pub(crate) fn interface(package: &str, full: &str, name: &str) -> Option<String> {
    let rest = full.strip_prefix(package)?.strip_prefix('/')?.strip_prefix(name)?;
    match rest.strip_prefix('@') {
        Some(version) => Some(version.to_owned()),
        None => rest.is_empty().then(String::new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_known_by_its_first_two_numbers() {
        for known in ["0.1", "0.1.0", "0.1.7", "0.1.0-rc1"] {
            assert_eq!(rank(Kind::Policy, known), Some(0), "{known}");
            assert_eq!(rank(Kind::Grader, known), Some(0), "{known}");
        }
        assert_eq!(rank(Kind::Policy, "0.2.0"), Some(1));
        for other in ["", "0", "0.20.0", "0.10.0", "0.11", "1.0.1", "0.1x", "v0.1"] {
            assert_eq!(rank(Kind::Policy, other), None, "{other}");
        }
    }

    #[test]
    fn what_is_newer_is_told_from_what_is_no_version_at_all() {
        assert!(["0.4.0", "0.10", "1.0.0"].iter().all(|version| is_newer(Kind::Policy, version)));
        assert!(["", "0.0.9", "draft", "0.x"].iter().all(|version| !is_newer(Kind::Policy, version)));
    }
}
