//! Grouping of runs into arms: the runs of an arm differ only in their seed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::task::of_one_task;
use super::{cost, state};
use crate::axis::{Axis, Costs};
use crate::history::{self, History, Step};
use crate::report::{Arm, Measured, RunRow, State};

/// The runs of an arm, by seed.
#[derive(Clone, Debug)]
pub struct Runs {
    /// Name of the arm.
    pub name: String,
    /// Configuration of its runs without the seed, by key.
    pub told: BTreeMap<String, String>,
    /// Its runs, by seed: one of each but for a trainer's, whose runs of one seed may differ.
    pub runs: Vec<History>,
}

impl Runs {
    /// Name of its policy.
    fn policy(&self) -> String {
        self.runs[0].policy()
    }

    /// The finished runs.
    pub fn finished(&self) -> impl Iterator<Item = &History> {
        self.runs.iter().filter(|run| state(run) == State::Finished)
    }

    /// Returns the arm for a report.
    pub fn arm(&self) -> Arm {
        let head = &self.runs[0].head;
        Arm {
            name: self.name.clone(),
            policy: self.policy(),
            version: head.policy.version.clone(),
            sha256: head.policy.sha256.clone(),
            settings: head.run.settings.iter().map(|(name, v)| (name.clone(), v.to_string())).collect(),
            runs: self.runs.iter().map(row).collect(),
        }
    }
}

fn row(run: &History) -> RunRow {
    let accuracies = || run.scores.iter().map(|s| s.accuracy);
    let costs = run.steps.last().map_or_else(Costs::default, |step| step.costs);
    let costs = match &run.end {
        Some(end) => Costs { spent: end.spent, compute: end.compute, ..costs },
        None => costs,
    };
    RunRow {
        run: run.run.clone(),
        seed: run.head.seed,
        id: run.id,
        state: state(run),
        reason: run.end.as_ref().map_or_else(|| "no end yet".to_owned(), |end| end.reason.clone()),
        steps: run.steps.len() as u32,
        updates: run.steps.iter().filter(|s| s.end.updated).count() as u64,
        costs,
        start: accuracies().next().unwrap_or(f64::NAN),
        last: accuracies().next_back().unwrap_or(f64::NAN),
        best: accuracies().fold(f64::NAN, f64::max),
        measured: run.measured.iter().map(|(name, of)| measured(name, *of)).collect(),
    }
}

fn measured(name: &str, of: history::Measured) -> Measured {
    Measured { name: name.to_owned(), calls: of.calls, mean: of.sum / of.calls.max(1) as f64, last: of.last }
}

/// Groups runs into arms, whose runs may differ in their seed and in the ignored keys of a config. Runs of another task than most,
/// runs without a score and repeated seeds are left out, with a note for each.
pub fn grouped(
    histories: Vec<History>,
    order: &[String],
    ignored: &[String],
    notes: &mut Vec<String>,
) -> Result<Vec<Runs>, String> {
    let mut usable = Vec::new();
    for history in histories {
        if history.scores.is_empty() {
            notes.push(format!("`{}` is left out: it was never evaluated", history.run));
        } else {
            usable.push(history);
        }
    }
    let mut arms: Vec<(String, Vec<History>)> = Vec::new();
    for history in of_one_task(usable, notes) {
        let key = key(&history, ignored);
        match arms.iter_mut().find(|(other, _)| *other == key) {
            Some((_, runs)) => runs.push(history),
            None => arms.push((key, vec![history])),
        }
    }
    if arms.is_empty() {
        return Err("no run was evaluated".to_owned());
    }
    let mut groups: Vec<Runs> = arms
        .into_iter()
        .map(|(_, runs)| {
            let told = told(&runs[0]);
            let name = runs[0].head.name.clone().unwrap_or_else(|| runs[0].policy());
            Runs { name, told, runs: each_seed_once(runs, notes) }
        })
        .collect();
    let arms: Vec<_> = groups.iter().map(|g| (g.name.as_str(), &g.told)).collect();
    let names = names(&arms);
    groups.iter_mut().zip(names).for_each(|(group, name)| group.name = name);
    let places: Vec<Option<usize>> = order.iter().map(|name| called(&groups, name)).collect();
    let rank = |i: usize| places.iter().position(|place| *place == Some(i)).unwrap_or(order.len());
    let mut ranked: Vec<(usize, Runs)> = groups.drain(..).enumerate().map(|(i, g)| (rank(i), g)).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    groups.extend(ranked.into_iter().map(|(_, group)| group));
    Ok(groups)
}

/// Returns the arm of this name. If there is none, returns the arm whose policy has the name, if it is the
/// only one.
pub fn called(groups: &[Runs], name: &str) -> Option<usize> {
    let exact = groups.iter().position(|g| g.name == name);
    let mut others = (0..groups.len()).filter(|i| groups[*i].policy() == name);
    exact.or_else(|| others.next().filter(|_| others.next().is_none()))
}

/// Returns the key that is equal for runs of one arm, which may differ in ignored keys.
fn key(history: &History, ignored: &[String]) -> String {
    let mut told = told(history);
    told.retain(|key, _| !ignored.iter().any(|of| sets(of, key)));
    json!([history.head.name, told]).to_string()
}

/// Returns a run's configuration without the seed, by config key.
pub fn told(history: &History) -> BTreeMap<String, String> {
    let head = &history.head;
    let mut told = BTreeMap::new();
    let mut add = |key: &str, value: String| _ = told.insert(key.to_owned(), value);
    add("policy", head.policy.name.clone());
    add("policy.version", head.policy.version.clone());
    add("policy.contract", head.policy.contract.clone());
    add("policy.sha256", head.policy.sha256.clone());
    for (name, value) in &head.run.settings {
        add(&format!("policy.settings.{name}"), value.to_string());
    }
    for swap in &history.swaps {
        let key = format!("policy.from_step_{}", swap.step);
        add(&key, swap.policy.name.clone());
        add(&format!("{key}.sha256"), swap.policy.sha256.clone());
        for (name, value) in &swap.settings {
            add(&format!("{key}.settings.{name}"), value.to_string());
        }
    }
    add("engine", head.engine.clone());
    let mut training = head.training.clone();
    // Older records have it here, newer ones in their head.
    training.as_mut().and_then(Value::as_object_mut).map(|t| t.remove("advantage"));
    if head.run.lag > 0 {
        add("run.lag", head.run.lag.to_string());
    }
    let whole = json!({
        "run": {
            "steps": head.run.steps, "groups": head.run.groups, "rollouts": head.run.rollouts,
            "pool": head.run.pool, "max_age": head.run.max_age, "order": head.order,
        },
        "limits": head.limits,
        "ceilings": head.ceilings,
        "advantage": head.scale(),
        "training": training,
        "world": head.world,
    });
    flatten("", &whole, &mut told);
    told
}

/// Whether a key of a config sets this key of a record, or determines it.
pub fn sets(set: &str, key: &str) -> bool {
    // A record has the training sections of a config below one key.
    let short = key.strip_prefix("training.").unwrap_or(key);
    let below =
        |key: &str| key.strip_prefix(set).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let of_groups = match set {
        "run.groups" => ["run.pool", "limits.step_rollouts"].contains(&key),
        "run.rollouts" => key == "limits.step_rollouts",
        _ => false,
    };
    let sampling = set.strip_prefix("rollout.").is_some_and(|rest| short == format!("sampling.{rest}"));
    below(key) || below(short) || of_groups || sampling
}

/// Collects the leaves of a value, by their paths.
fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, value, into);
            }
        }
        Value::Null => {}
        Value::String(text) => _ = into.insert(path.to_owned(), text.clone()),
        other => _ = into.insert(path.to_owned(), other.to_string()),
    }
}

/// Keeps the run of each seed that went furthest, and notes the runs left out. Of a trainer in Python, all finished runs of a seed
/// stay that differ: it may sample on several machines at once, and then a seed does not determine a run.
fn each_seed_once(mut runs: Vec<History>, notes: &mut Vec<String>) -> Vec<History> {
    let reach = |h: &History| (state(h) == State::Finished, cost(h, Axis::Rollouts).unwrap_or(0.0));
    // The furthest comes first; of equal runs, the one given first.
    runs.sort_by(|a, b| {
        let (a_done, a_cost) = reach(a);
        let (b_done, b_cost) = reach(b);
        a.head.seed.cmp(&b.head.seed).then(b_done.cmp(&a_done)).then(b_cost.total_cmp(&a_cost))
    });
    let mut kept: Vec<History> = Vec::new();
    for run in runs {
        let mut of_seed = kept.iter().filter(|other| other.head.seed == run.head.seed);
        let copy = of_seed.clone().find(|other| is_copy(other, &run));
        let Some(first) = copy.or_else(|| of_seed.next()) else {
            kept.push(run);
            continue;
        };
        if copy.is_none() && run.head.lengths.is_some() && state(&run) == State::Finished {
            kept.push(run);
            continue;
        }
        let how = match copy {
            _ if first.scores == run.scores => "had the same result",
            Some(_) => "is the same training, evaluated anew",
            None => "had a different result",
        };
        notes.push(format!(
            "`{}` is left out: it has the policy and the seed of `{}`, and {how}",
            run.run, first.run
        ));
    }
    kept
}

/// Whether two records are of the same training: they asked for the same, and each step came to the same rewards. Accuracies may be
/// measured anew.
fn is_copy(one: &History, other: &History) -> bool {
    let of = |step: &Step| (step.end.reward, step.end.effective, step.costs.spent.run_tokens);
    one.plans == other.plans && one.steps.iter().map(of).eq(other.steps.iter().map(of))
}

/// Returns the names of arms. Arms with the same name get the keys in which they differ added: as few as
/// possible, a policy's settings before the run's, budgets and hashes last.
pub fn names(arms: &[(&str, &BTreeMap<String, String>)]) -> Vec<String> {
    let called = |(name, told): &(&str, &BTreeMap<String, String>)| {
        let alike: Vec<_> = arms.iter().filter(|(other, _)| other == name).map(|(_, told)| *told).collect();
        let mark = |key: &String| {
            let short =
                ["policy.settings.", "training.", "run."].iter().find_map(|start| key.strip_prefix(start));
            let short = short.map_or_else(|| key.replace("limits.run_", "budget."), str::to_owned);
            // Long values with the same start are shown from where they differ.
            let values: Vec<String> = alike.iter().map(|other| value(other, key)).collect();
            let long = values.iter().all(|v| v.chars().count() > 12);
            let skipped = if long { shared_start(&values) } else { 0 };
            let text: String = value(told, key).chars().skip(skipped).take(12).collect();
            format!("{short} {text}")
        };
        let marks: Vec<String> = telling(&alike).into_iter().map(mark).collect();
        if marks.is_empty() { (*name).to_owned() } else { format!("{name} ({})", marks.join(", ")) }
    };
    arms.iter().map(called).collect()
}

fn value(told: &BTreeMap<String, String>, key: &str) -> String {
    told.get(key).cloned().unwrap_or_else(|| "none".to_owned())
}

/// Returns a small set of keys in which any two different configurations differ. Each key added is the one
/// that distinguishes most of the rest; of equal ones, the key that is most familiar to readers.
fn telling<'a>(all: &[&'a BTreeMap<String, String>]) -> Vec<&'a String> {
    let mut keys: Vec<&String> = all.iter().flat_map(|told| told.keys()).collect();
    keys.sort_by_key(|key| (rank(key), *key));
    keys.dedup();
    let mut chosen: Vec<&String> = Vec::new();
    let kinds = |chosen: &[&String]| {
        all.iter()
            .map(|told| chosen.iter().map(|key| value(told, key)).collect::<Vec<_>>())
            .collect::<BTreeSet<_>>()
    };
    let whole = all.iter().collect::<BTreeSet<_>>().len();
    while kinds(&chosen).len() < whole {
        let told = |key: &&String| kinds(&[chosen.as_slice(), &[*key]].concat()).len();
        // `max_by_key` takes the last of equal ones.
        let Some(best) = keys.iter().rev().copied().max_by_key(told) else { break };
        chosen.push(best);
    }
    chosen
}

/// Returns the rank of a key; a key of lower rank is named first.
fn rank(key: &str) -> usize {
    let ends_last = key.ends_with("sha256") || key.starts_with("policy.contract");
    match key {
        _ if ends_last => 4,
        _ if key.starts_with("policy.settings.") => 0,
        // Its default follows from other keys.
        "limits.step_rollouts" | "run.pool" => 3,
        _ if key.starts_with("limits.") || key.starts_with("ceilings.") => 2,
        _ => 1,
    }
}

/// Returns the number of characters at the start that all texts share.
fn shared_start(all: &[String]) -> usize {
    let alike = |(i, c): &(usize, char)| all.iter().all(|other| other.chars().nth(*i) == Some(*c));
    all.first().map_or(0, |first| first.chars().enumerate().take_while(alike).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_a_config_sets_a_section_and_what_follows_from_it() {
        for (key, set) in [
            ("training", "training.out"),
            ("optimizer", "training.optimizer.learning_rate"),
            ("run.groups", "run.pool"),
            ("run.rollouts", "limits.step_rollouts"),
            ("rollout.temperature", "training.sampling.temperature"),
        ] {
            assert!(sets(key, set), "{key} {set}");
            assert!(!sets(set, "run.group") && !sets("run.group", "run.groups"), "{set}");
        }
    }

    #[test]
    fn arms_of_one_name_are_told_apart_by_as_few_keys_as_do() {
        let told = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let arm = |keep, rollouts, step, sha| -> BTreeMap<String, String> {
            told(&[
                ("policy.settings.keep", keep),
                ("limits.run_rollouts", rollouts),
                ("limits.step_rollouts", step),
                ("policy.sha256", sha),
            ])
        };
        let all = [
            arm("16", "8000", "102400", "a"),
            arm("8", "4001", "51200", "a"),
            arm("8", "4002", "51200", "b"),
        ];
        let named = |arms: &[&BTreeMap<String, String>]| {
            names(&arms.iter().map(|a| ("rule", *a)).collect::<Vec<_>>())
        };
        assert_eq!(named(&[&all[0], &all[1]]), ["rule (keep 16)", "rule (keep 8)"]);
        assert_eq!(
            named(&[&all[1], &all[2]]),
            ["rule (budget.rollouts 4001)", "rule (budget.rollouts 4002)"]
        );
        let three =
            ["rule (budget.rollouts 8000)", "rule (budget.rollouts 4001)", "rule (budget.rollouts 4002)"];
        assert_eq!(named(&[&all[0], &all[1], &all[2]]), three);
        assert_eq!(named(&[&all[0]]), ["rule"]);
    }
}
