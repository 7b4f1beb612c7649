//! Hints for config errors: the intended key, the command that a config is for, or a complete minimal
//! config.

use allot_base::nearest;

use crate::aliases::ALIASES;
use crate::typed::Fault;

/// A kind of config: its command, the sections that no other kind has, and the smallest complete config
/// without its policy.
struct ConfigKind {
    command: &'static str,
    own: &'static [&'static str],
    smallest: &'static str,
}

/// Maximum number of another trainer's keys in a hint.
const LISTED: usize = 8;

const TRAIN: ConfigKind = ConfigKind {
    command: "allot train",
    own: &[
        "engine",
        "rollout_server",
        "model",
        "sampling",
        "update",
        "optimizer",
        "reward",
        "checkpoint",
        "data",
        "tasks",
    ],
    smallest: r#"[run]
seed = 1
steps = 100
groups = 16
rollouts = 16

[budget]
rollouts = 30_000

[policy]
use = "POLICY"

[model]
use = "tiny-sums"

[sampling]
max_tokens = 8

[optimizer]
learning_rate = 1e-4

[reward]
grader = "exact"

[[tasks]]
kind = "sums"
style = "terse"
count = 500
held_out = 0.2
levels = [{ digits = 2 }]
"#,
};

const SIMULATE: ConfigKind = ConfigKind {
    command: "allot simulate",
    own: &["world", "bank"],
    smallest: r#"[run]
seed = 1
steps = 100
groups = 16
rollouts = 16

[budget]
rollouts = 30_000

[policy]
use = "POLICY"
"#,
};

const PRETRAIN: ConfigKind = ConfigKind {
    command: "allot pretrain",
    own: &["tokenizer", "lessons", "training", "spread"],
    smallest: "",
};

const KINDS: [ConfigKind; 3] = [TRAIN, SIMULATE, PRETRAIN];

/// Returns the hint for a fault of the config `name` with these sections. `keys` are the keys that the
/// fault is about, with dots: as typed, or all keys below an unknown section.
pub(super) fn of(fault: &Fault, name: &str, sections: &[&str], keys: &[String]) -> Option<String> {
    if let Some(other) = other_kind(fault, name, sections) {
        return Some(other);
    }
    if fault.path.is_empty() && fault.missing == Some("run") {
        return Some(whole(sections));
    }
    // The unknown name is a section that resembles no known one.
    let nested = |(unknown, known): &(String, Vec<String>)| {
        keys.iter().all(|key| !key.ends_with(unknown))
            && nearest(unknown, known.iter().map(String::as_str)).is_none()
    };
    // verl's `data` is one section, ours a list of them.
    if fault.unknown.as_ref().map_or_else(|| fault.path == ["data"], nested)
        && let Some(hint) = foreign(keys)
    {
        return Some(hint);
    }
    let (unknown, known) = fault.unknown.as_ref()?;
    // As in a key: outermost section first, without indices of list items.
    let section: Vec<&str> =
        fault.path.iter().rev().map(String::as_str).filter(|key| key.parse::<usize>().is_err()).collect();
    let section = section.join(".");
    meant(unknown, &section, known)
        .or_else(|| {
            nearest(unknown, known.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"))
        })
        .or_else(|| foreign(std::slice::from_ref(unknown)))
}

/// Returns a hint if the unknown key is another program's name for a key of the same section.
fn meant(unknown: &str, section: &str, known: &[String]) -> Option<String> {
    let keys = aliases(unknown)?;
    let own = keys.iter().filter_map(|key| match key.rsplit_once('.') {
        Some((before, last)) => (before == section).then_some(last),
        None => section.is_empty().then_some(*key),
    });
    own.into_iter().find(|key| known.iter().any(|k| k == key)).map(|key| format!("did you mean `{key}`?"))
}

/// Returns a hint with our keys for those of another program, which has them in other sections.
fn foreign(keys: &[String]) -> Option<String> {
    let ours = keys.iter().filter_map(|key| {
        let dots = key.match_indices('.').map(|(at, _)| &key[at + 1..]);
        let found = std::iter::once(key.as_str()).chain(dots).find_map(aliases)?;
        Some((key, *found.first()?))
    });
    let ours: Vec<_> = ours.take(LISTED).collect();
    match ours.as_slice() {
        [] => None,
        [(_, key)] => Some(format!("did you mean `{key}`?")),
        several => {
            let several: Vec<String> =
                several.iter().map(|(theirs, ours)| format!("`{ours}` for `{theirs}`")).collect();
            Some(format!("write {}", several.join(", ")))
        }
    }
}

fn aliases(unknown: &str) -> Option<&'static [&'static str]> {
    let plain = unknown.to_lowercase().replace('-', "_");
    ALIASES.iter().find(|(alias, _)| *alias == plain).map(|(_, keys)| *keys)
}

/// Returns a hint if a config is for another command: if it has more sections of that command's kind than
/// of the requested kind.
fn other_kind(fault: &Fault, name: &str, sections: &[&str]) -> Option<String> {
    if !fault.path.is_empty() {
        return None;
    }
    let count = |kind: &ConfigKind| kind.own.iter().filter(|section| sections.contains(section)).count();
    let asked_for = match (&fault.unknown, fault.missing) {
        // An unknown section of another kind, or one that only some kinds have.
        (Some((_, known)), _) => {
            KINDS.iter().find(|kind| kind.own.iter().all(|own| known.iter().any(|k| k == own)))?
        }
        (_, Some(missing)) => KINDS.iter().find(|kind| kind.own.contains(&missing))?,
        _ => return None,
    };
    let other =
        KINDS.iter().filter(|kind| kind.command != asked_for.command && count(kind) > count(asked_for));
    let of_keys = other.max_by_key(|kind| count(kind));
    // A simulation's config has no required sections of its own.
    let bare = fault.missing.is_some()
        && count(asked_for) == 0
        && asked_for.command == TRAIN.command
        && sections.contains(&"run");
    let command = of_keys.map(|kind| kind.command).or_else(|| bare.then_some(SIMULATE.command))?;
    Some(format!("run the command that this config is for: {command} {name}"))
}

/// Returns a hint with the smallest complete config.
fn whole(sections: &[&str]) -> String {
    let kind = if SIMULATE.own.iter().any(|own| sections.contains(own)) { &SIMULATE } else { &TRAIN };
    format!("start from this complete config for {}:\n\n{}", kind.command, kind.whole().trim_end())
}

impl ConfigKind {
    /// Returns the kind's smallest complete config, with a built-in policy.
    fn whole(&self) -> String {
        self.smallest.replace("POLICY", allot_component::shipped::simplest().unwrap_or("POLICY"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tree;
    use crate::simulate::SimulateConfig;
    use crate::train::TrainConfig;

    #[test]
    fn the_smallest_configs_are_whole() {
        TrainConfig::parse(&TRAIN.whole(), "train").expect("it is a run's");
        SimulateConfig::parse(&SIMULATE.whole(), "simulate").expect("it is a simulation's");
    }

    #[test]
    fn keys_of_verl_s_sections_are_hinted_at() {
        let hint = |text: &str, typed: &[&str]| {
            let typed: Vec<String> = typed.iter().map(|typed| (*typed).to_owned()).collect();
            let told = Tree::parse(text, "run.toml", &typed)
                .and_then(|tree| tree.config::<TrainConfig>().map(|_| ()));
            told.expect_err("it is verl's").hints.join("; ")
        };
        for (typed, ours) in [
            ("actor_rollout_ref.rollout.n=8", "run.rollouts"),
            ("actor_rollout_ref.actor.optim.lr=1e-6", "optimizer.learning_rate"),
            ("actor_rollout_ref.actor.use_kl_loss=true", "update.loss.kl"),
            ("data.train_batch_size=64", "run.groups"),
            ("trainer.total_epochs=3", "run.steps"),
            ("algorithm.filter_groups.enable=true", "policy.use"),
            ("trainer.nnodes=2", "run"),
            ("n=8", "run.rollouts"),
            ("run.n=8", "rollouts"),
        ] {
            assert_eq!(hint(TRAIN.smallest, &[typed]), format!("did you mean `{ours}`?"), "{typed}");
        }
        let file = "[actor_rollout_ref.rollout]\nn = 8\ntemperature = 0.6\n[trainer]\nlogger = \"console\"\n";
        let several = "write `run.rollouts` for `actor_rollout_ref.rollout.n`, `sampling.temperature` for \
                       `actor_rollout_ref.rollout.temperature`";
        assert_eq!(hint(file, &[]), several);
        // A typing error in a section's name takes precedence.
        assert_eq!(hint("[samplin]\ntemperature = 0.6\n", &[]), "did you mean `sampling`?");
        for (old, new) in [
            ("rollout.max_tokens=8", "sampling"),
            ("rollout.temperature=0.6", "sampling"),
            ("rollouts.url=\"x\"", "rollout_server"),
            ("policy.caps.fuel=1", "limits"),
            ("reward.judge.seconds=1", "process"),
        ] {
            assert_eq!(hint(TRAIN.smallest, &[old]), format!("did you mean `{new}`?"), "{old}");
        }
    }

    #[test]
    fn the_page_for_people_has_every_alias() {
        let page = include_str!("../../../docs/how-to/trl-verl-keys.md");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
        for (alias, keys) in ALIASES {
            let row = rows.iter().find(|row| {
                let (theirs, ours) = row[2..].split_once(" | ").unwrap_or_default();
                theirs.contains(&format!("`{alias}`"))
                    && keys.iter().all(|key| ours.contains(&format!("`{key}`")))
            });
            assert!(
                row.is_some(),
                "docs/how-to/trl-verl-keys.md has no row for `{alias}`, which is {keys:?}"
            );
        }
        let sorted = ALIASES.windows(2).all(|pair| pair[0].0 < pair[1].0);
        assert!(sorted, "the table is in the order of its names");
    }

    #[test]
    fn every_alias_is_of_a_key_that_there_is() {
        for (alias, keys) in ALIASES {
            for key in *keys {
                // A known key fails by its value or not at all.
                let typed = format!("{}={{}}", key.replace("data.", "data.0.").replace("sets", "sets.0.x"));
                // Keys of `allot pretrain`'s recipes and of simulations are not included.
                if key.starts_with("training.") || key.starts_with("bank.") || *key == "model.layers" {
                    continue;
                }
                let text = format!("{}[[data]]\nfiles = \"x.jsonl\"\n", TRAIN.smallest);
                let told = Tree::parse(&text, "run.toml", &[typed])
                    .and_then(|tree| tree.config::<TrainConfig>().map(|_| ()))
                    .map_or_else(|error| error.what, |()| String::new());
                assert!(!told.contains("unknown field"), "{alias}: {told}");
            }
        }
    }
}
