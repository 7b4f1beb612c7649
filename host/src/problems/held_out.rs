//! Keeps held-out problems out of the training problems, in whatever form they appear there.

use std::collections::HashSet;

use allot_tasks::{Key, Problem, near};

use super::{counted, examples, named};

/// Removes held-out problems from the training problems. Returns notes about how many were removed, and how
/// many of the rest are nearly equal to held-out ones. With `by_row`, only equal rows are equal.
pub fn parted(train: &mut Vec<Problem>, sets: &[(String, Vec<Problem>)], by_row: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let keys = |problem: &Problem| {
        if by_row { vec![Key::of(&[&problem.id()])] } else { problem.keys().to_vec() }
    };
    let secret: HashSet<Key> = sets.iter().flat_map(|(_, p)| p).flat_map(keys).collect();
    let before = train.len();
    if !secret.is_empty() {
        train.retain(|p| keys(p).iter().all(|key| !secret.contains(key)));
    }
    if train.len() < before {
        let n = before - train.len();
        notes.push(format!("{n} problems to train on are also held out, and are left out of training"));
    }
    if !by_row {
        notes.extend(nearly(train, sets));
    }
    notes
}

/// Counts only problems from files: generated problems are similar to each other by nature.
fn nearly(train: &[Problem], sets: &[(String, Vec<Problem>)]) -> Option<String> {
    fn read<'a>(problems: impl Iterator<Item = &'a Problem>) -> Vec<&'a Problem> {
        problems.filter(|p| p.place.is_some()).collect()
    }
    fn asked<'a>(problems: &[&'a Problem]) -> Vec<&'a str> {
        problems.iter().map(|p| p.question.as_str()).collect()
    }
    let (train, held_out) = (read(train.iter()), read(sets.iter().flat_map(|(_, p)| p)));
    let found = near(&asked(&train), &asked(&held_out));
    let pairs =
        found.iter().map(|n| format!("{} (as {})", named(train[n.train]), named(held_out[n.held_out])));
    (!found.is_empty()).then(|| {
        format!(
            "{} to train on {} at least half of the words of a held-out one in common, in runs of eight, and \
             {} in training: {}",
            counted(found.len(), "problem"),
            if found.len() == 1 { "has" } else { "have" },
            if found.len() == 1 { "stays" } else { "stay" },
            examples(pairs)
        )
    })
}
