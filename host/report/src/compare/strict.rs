//! Finished runs as the arms of a comparison: what a report would leave out is refused here, and arms that differ in more than their
//! policies.

use std::collections::{BTreeMap, BTreeSet};

use super::arms::{self, sets};
use super::{Runs, state};
use crate::history::History;
use crate::report::State;

/// Start of the keys by which arms are meant to differ.
const OWN: &str = "policy";

/// Returns what keeps runs from being the arms of one comparison, in words; nothing if they are. Arms may differ in their policies,
/// and in the keys to ignore, or in those below one of them.
pub fn complaints(histories: &[History], ignored: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for run in histories {
        let name = &run.run;
        all.extend(run.troubles.iter().map(|trouble| format!("`{name}`: {trouble}")));
        if let Some(end) = run.end.as_ref().filter(|end| !end.normal) {
            all.push(format!("`{name}` failed: {}", end.reason));
        }
        if run.scores.len() == 1 {
            all.push(format!("`{name}` was evaluated only once"));
        }
    }
    let finished = histories.iter().filter(|run| state(run) == State::Finished).cloned().collect();
    let mut left_out = Vec::new();
    match arms::grouped(finished, &[], ignored, &mut left_out) {
        Ok(groups) => {
            all.extend(of_arms(&groups, ignored));
            // Where runs have dropped out, their arm may be one of them.
            if let ([only], true) = (groups.as_slice(), all.is_empty() && left_out.is_empty()) {
                all.push(format!(
                    "all runs are of one arm, `{}`: there is nothing to compare it with",
                    only.name
                ));
            }
        }
        Err(what) if all.is_empty() => all.push(what),
        Err(_) => {}
    }
    // What a report leaves out is a reason here.
    all.extend(left_out.iter().map(|note| note.replacen(" is left out: ", ": ", 1)));
    all
}

fn of_arms(groups: &[Runs], ignored: &[String]) -> Vec<String> {
    let keys: BTreeSet<&String> = groups.iter().flat_map(|group| group.told.keys()).collect();
    let meant = |key: &&&String| {
        let below =
            |of: &str| key.as_str() == of || key.strip_prefix(of).is_some_and(|rest| rest.starts_with('.'));
        below(OWN) || ignored.iter().any(|of| sets(of, key))
    };
    let value = |group: &Runs, key: &String| group.told.get(key).map_or("not set", String::as_str).to_owned();
    let differs = |key: &&&String| groups.iter().any(|group| value(group, key) != value(&groups[0], key));
    let words = |key: &String| {
        let mut of: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for group in groups {
            of.entry(value(group, key)).or_default().push(format!("`{}`", group.name));
        }
        let each = of.into_iter().map(|(value, names)| format!("{value} in {}", names.join(", ")));
        format!("`{key}` differs: {}", each.collect::<Vec<_>>().join("; "))
    };
    let mut all: Vec<String> =
        keys.iter().filter(|key| !meant(key) && differs(key)).map(|key| words(key)).collect();
    for (i, one) in groups.iter().enumerate() {
        for other in groups[i + 1..].iter().filter(|other| other.told == one.told) {
            all.push(format!("`{}` and `{}` differ in nothing but their names", one.name, other.name));
        }
    }
    all
}
