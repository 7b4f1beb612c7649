//! Fairness of a comparison: what the arms share, how they differ, and which differences bias the result.
//! Each one is explained in `docs/explanation/fair-comparison.md`.

use std::collections::{BTreeMap, BTreeSet};

use super::arms::{sets, told};
use super::finals::UNJUDGED;
use super::pairing::{pairs, repeated, why};
use super::warned::warned;
use super::{Runs, cost, state};
use crate::axis::Axis;
use crate::history::History;
use crate::number;
use crate::report::{Differing, State, Use};
use crate::tuning::Tuning;

/// Prefix of keys that differ between arms by design, and are reported elsewhere.
const OWN: &str = "policy";

/// Returns warnings about a comparison, and the keys in which the arms differ.
pub fn look(groups: &[Runs], axis: Axis, tuning: Option<&Tuning>) -> (Vec<String>, Vec<Differing>) {
    let differing = differing(groups);
    let mut warnings = tuning.map(Tuning::edges).unwrap_or_default();
    warnings.extend(tuning.into_iter().flat_map(Tuning::undecided));
    let is_tuned = |key: &str| tuning.is_some_and(|tuning| tuning.keys().any(|tuned| sets(tuned, key)));
    let others = differing.iter().filter(|d| !d.own && !is_tuned(&d.key));
    let others: Vec<&str> = others.map(|d| d.key.as_str()).collect();
    if !others.is_empty() {
        warnings.push(format!(
            "the arms differ in more than their policies: {}; the results below include both effects",
            listed(&others)
        ));
    }
    warnings.extend(budgets(groups));
    warnings.extend(spending(groups, axis));
    warnings.extend(updates(groups));
    warnings.extend(scoring(groups));
    warnings.extend(versions(groups));
    warnings.extend(schedules(groups));
    if axis == Axis::Seconds {
        warnings.extend(machines(groups));
    }
    warnings.extend(learned_nothing(groups));
    warnings.extend(idle(groups));
    warnings.extend(unjudged(groups));
    warnings.extend(failures(groups));
    warnings.extend(warned(groups));
    (warnings, differing)
}

/// Returns what all arms share, for the head of a report.
pub fn shared(groups: &[Runs]) -> Vec<(String, String)> {
    let head = &groups[0].runs[0].head;
    let training = head.training.as_ref();
    let mut shared = vec![("engine".to_owned(), head.engine.clone())];
    let mut add = |name: &str, value: String| shared.push((name.to_owned(), value));
    if let Some(training) = training {
        add("parameters", training["parameters"].to_string());
        add("weights", training["weights"].as_str().unwrap_or("unknown").chars().take(12).collect());
        let held_out = &training["held_out"];
        add("prompts to train on", training["problems"]["train"].to_string());
        let rollouts = held_out["rollouts"].to_string();
        add("held out", format!("{} problems, {rollouts} rollouts each", held_out["problems"]));
    }
    let (limits, ceilings) = (head.limits, head.ceilings);
    let budget = [
        limits.run_rollouts.map(|n| format!("{n} rollouts")),
        limits.run_tokens.map(|n| format!("{n} generated tokens")),
        ceilings.flops.map(|n| format!("{n:e} FLOPs")),
        ceilings.seconds.map(|n| format!("{n} seconds")),
    ];
    add("budget", budget.into_iter().flatten().collect::<Vec<_>>().join(", "));
    add("groups in an update", head.run.groups.to_string());
    add("rollouts in a group, as a uniform policy would", head.run.rollouts.to_string());
    add("program", format!("allot {}", head.allot));
    let machines: BTreeSet<String> = groups
        .iter()
        .flat_map(|g| &g.runs)
        .flat_map(|r| &r.machines)
        .map(|m| format!("{}, {} cores, {}, on {}", m.processor, m.cores, m.system, m.device))
        .collect();
    if !machines.is_empty() {
        add(
            if machines.len() == 1 { "machine" } else { "machines" },
            machines.into_iter().collect::<Vec<_>>().join("; "),
        );
    }
    shared
}

/// Returns a note on questions that these runs cannot answer.
pub fn unseen(groups: &[Runs]) -> Option<String> {
    let all = || groups.iter().flat_map(|g| &g.runs);
    let offers = all().map(|run| run.offers.all).max().filter(|offers| *offers > 0)?;
    all().all(|run| run.offers.again == 0).then(|| {
        format!(
            "no prompt was offered twice (at most {} were offered): the use of past visits and the eviction \
             of prompts are not tested here",
            number::count(offers)
        )
    })
}

/// Returns a note for runs that learn nothing: how they spent their rollouts.
pub fn unlearned(groups: &[Runs], uses: &[Use]) -> Option<String> {
    let banked = groups.iter().flat_map(|g| &g.runs).all(|run| run.head.engine == "bank");
    let each = |(g, used): (&Runs, &Use)| {
        let (sampled, groups) =
            (used.sampled.max(1) as f64, g.runs.iter().map(|run| run.groups).sum::<u64>());
        (1000.0 * groups as f64 / sampled, used.fates.learned as f64 / sampled, g.name.clone())
    };
    let mut all: Vec<(f64, f64, String)> = groups.iter().zip(uses).map(each).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let words = |(groups, share, name): &(f64, f64, String)| {
        format!("`{name}` {groups:.1}, with {} of the rollouts", number::percent_tick(*share))
    };
    let all: Vec<String> = all.iter().map(words).collect();
    banked.then(|| {
        format!(
            "rollouts were drawn from a bank, which does not learn: accuracy is the mean pass rate of its \
             prompts, the same for every policy. The policies differ in where rollouts went. Groups with an \
             advantage, for 1,000 rollouts sampled: {}",
            all.join("; ")
        )
    })
}

/// Returns the arms with runs that learned nothing, with the reason for the first one.
fn learned_nothing(groups: &[Runs]) -> Vec<String> {
    let words = |group: &Runs| {
        let said = group.runs.iter().filter_map(|run| Some((run.head.seed, run.nothing_learned()?)));
        let said: Vec<(u64, String)> = said.collect();
        let ((seed, first), all) = (said.first()?, group.runs.len());
        let n = said.len();
        let name = &group.name;
        Some(if all == 1 {
            format!("`{name}` learned nothing: {first}")
        } else {
            format!("`{name}` learned nothing in {n} of {all} runs; with seed {seed}: {first}")
        })
    };
    groups.iter().filter_map(words).collect()
}

/// Returns settings that changed neither the rollouts sampled nor those trained on.
fn idle(groups: &[Runs]) -> Vec<String> {
    let mut told = Vec::new();
    for (i, one) in groups.iter().enumerate() {
        for other in &groups[i + 1..] {
            let both = pairs(one, other);
            let (keys, alike) = (own_keys(one, other), both.iter().all(|(a, b)| a.plans == b.plans));
            if alike && !both.is_empty() && !keys.is_empty() {
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                told.push(format!(
                    "`{}` and `{}` asked for the same rollouts and trained on the same, with every seed: {} changed \
                     no plan",
                    one.name,
                    other.name,
                    listed(&keys)
                ));
            }
        }
    }
    told
}

/// Returns the settings in which two arms differ or, without any, other keys of their policies.
fn own_keys(one: &Runs, other: &Runs) -> Vec<String> {
    let keys: BTreeSet<&String> = one.told.keys().chain(other.told.keys()).collect();
    let own = |key: &&&String| key.starts_with(OWN) && one.told.get(**key) != other.told.get(**key);
    let all: Vec<String> = keys.iter().filter(own).map(|key| (*key).clone()).collect();
    let settings: Vec<String> =
        all.iter().filter(|key| key.starts_with("policy.settings.")).cloned().collect();
    if settings.is_empty() { all } else { settings }
}

/// Returns notes on the seeds, and on arms that are not paired with the baseline.
pub fn seeds(groups: &[Runs], baseline: usize) -> Vec<String> {
    let others = groups.iter().enumerate().filter(|(arm, _)| *arm != baseline);
    let apart: Vec<String> = others.filter_map(|(_, arm)| why(arm, &groups[baseline])).collect();
    let paired = groups.len() > apart.len() + 1;
    let mut notes = apart;
    if groups.iter().any(repeated) {
        notes.push(
            "runs of one seed differ only by what the trainer leaves to chance: other seeds, which also change the order of \
             the data, may differ by more than these do"
                .to_owned(),
        );
    }
    let seeds = |g: &Runs| g.runs.iter().map(|r| r.head.seed).collect();
    let sets: BTreeSet<BTreeSet<u64>> = groups.iter().map(seeds).collect();
    let most = groups.iter().map(|g| g.runs.len()).max().unwrap_or(0);
    if sets.len() > 1 && paired {
        notes
            .push("the arms do not have the same seeds; differences are over the seeds in common".to_owned());
    }
    if most == 1 {
        let what = if sets.len() > 1 { "run of each arm" } else { "seed" };
        notes.push(format!("there is only one {what}: uncertainty can't be estimated"));
    } else if most < 10 {
        let (what, sign) = if paired || groups.len() == 1 {
            ("seeds", ", and with five no sign test can go below p = 0.06")
        } else {
            ("runs of an arm", "")
        };
        notes.push(format!(
            "there are at most {most} {what}; ten or more are advised (arXiv 2504.07086){sign}"
        ));
        notes.push(format!(
            "bootstrap intervals, of means and of parts, are too narrow with few seeds: with {most}, about \
             {} % of the 95 % intervals hold the true value; those of differences and of ratios are \
             Student's, and are not affected",
            COVERED[most]
        ));
    }
    notes
}

/// Simulated coverage of the percentile interval of a mean at 95 %, in percent, by the number of seeds; for
/// normal numbers.
const COVERED: [u32; 10] = [0, 0, 49, 75, 80, 84, 85, 87, 89, 90];

/// Returns the keys in which arms differ, with each arm's value.
fn differing(groups: &[Runs]) -> Vec<Differing> {
    let keys: BTreeSet<&String> = groups.iter().flat_map(|g| g.told.keys()).collect();
    let value = |g: &Runs, key: &String| g.told.get(key).cloned().unwrap_or_else(|| "–".to_owned());
    let mut all: Vec<Differing> = keys
        .into_iter()
        .filter(|key| groups.iter().any(|g| value(g, key) != value(&groups[0], key)))
        .map(|key| Differing {
            key: key.clone(),
            values: groups.iter().map(|g| value(g, key)).collect(),
            own: key.starts_with(OWN),
        })
        .collect();
    // Keys that should be equal come first.
    all.sort_by_key(|d| d.own);
    all
}

/// Warns of ignored keys in which runs differ, of an arm or of several.
pub fn ignored(groups: &[Runs], ignored: &[String]) -> Vec<String> {
    let all: Vec<_> = groups.iter().flat_map(|g| &g.runs).map(told).collect();
    let differs = |key: &String| all.iter().any(|told| told.get(key) != all[0].get(key));
    let set = |of: &&String| all.iter().flat_map(BTreeMap::keys).any(|key| sets(of, key) && differs(key));
    let words =
        |key: &String| format!("runs differ in `{key}`, which was to be ignored; results include its effect");
    ignored.iter().filter(set).map(words).collect()
}

/// Warns of budgets that differ.
fn budgets(groups: &[Runs]) -> Option<String> {
    let budget = |r: &History| (r.head.limits.run_rollouts, r.head.limits.run_tokens, r.head.ceilings);
    let first = budget(&groups[0].runs[0]);
    let same = groups.iter().flat_map(|g| &g.runs).all(|r| budget(r) == first);
    (!same).then(|| {
        "the runs do not have the same budget: their final accuracies are at different compute".to_owned()
    })
}

/// Warns of arms whose finished runs spent different amounts, because some ended before their budget did,
/// by the last step, for example.
fn spending(groups: &[Runs], axis: Axis) -> Option<String> {
    let mean = |group: &Runs| {
        let ends: Vec<f64> = group.finished().filter_map(|run| cost(run, axis)).collect();
        ends.iter().sum::<f64>() / ends.len() as f64
    };
    let groups: Vec<&Runs> = groups.iter().filter(|g| g.finished().next().is_some()).collect();
    let ends: Vec<f64> = groups.iter().map(|g| mean(g)).collect();
    let (least, most) =
        ends.iter().fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), r| (a.min(*r), b.max(*r)));
    (most > 1.05 * least).then(|| {
        let each = groups.iter().zip(&ends).map(|(g, end)| format!("`{}` {}", g.name, number::cost(*end)));
        format!(
            "the arms did not spend the same {} in total: {}; their final accuracies are at different \
             compute",
            axis.words(),
            each.collect::<Vec<_>>().join(", ")
        )
    })
}

/// Warns of different numbers of optimizer steps per update, which change the size of an update.
fn updates(groups: &[Runs]) -> Option<String> {
    let rate = |group: &Runs| {
        let sum = |of: fn(&History) -> f64| group.runs.iter().map(of).sum::<f64>();
        let steps = sum(|r| r.steps.last().map_or(0.0, |s| s.costs.compute.optimizer_steps as f64));
        let updates = sum(|r| r.steps.iter().filter(|s| s.end.updated).count() as f64);
        if updates > 0.0 { steps / updates } else { 0.0 }
    };
    let rates: Vec<f64> = groups.iter().map(rate).collect();
    let known = rates.iter().filter(|r| **r > 0.0);
    let (least, most) = known.fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), r| (a.min(*r), b.max(*r)));
    (most > 1.05 * least).then(|| {
        let each = groups.iter().zip(&rates).map(|(g, r)| format!("`{}` {r:.2}", g.name));
        format!(
            "optimizer steps in an update differ: {}; see optimizer steps as an axis",
            each.collect::<Vec<_>>().join(", ")
        )
    })
}

/// Warns of different evaluation intervals: frequent evaluation has more chances to reach a target.
fn scoring(groups: &[Runs]) -> Option<String> {
    let often = |group: &Runs| {
        let of = |r: &History| {
            let spent = r.scores.last().map_or(0, |s| s.costs.spent.run_rollouts);
            spent as f64 / (r.scores.len() - 1) as f64
        };
        let scored: Vec<f64> = group.runs.iter().filter(|r| r.scores.len() > 1).map(of).collect();
        scored.iter().sum::<f64>() / scored.len() as f64
    };
    // An arm whose runs all failed at once has no interval.
    let groups: Vec<&Runs> = groups.iter().filter(|g| g.runs.iter().any(|r| r.scores.len() > 1)).collect();
    let each: Vec<f64> = groups.iter().map(|g| often(g)).collect();
    let (least, most) =
        each.iter().fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), r| (a.min(*r), b.max(*r)));
    (most > 1.5 * least).then(|| {
        let each = groups.iter().zip(&each).map(|(g, r)| format!("`{}` every {r:.0}", g.name));
        format!(
            "the arms were not evaluated equally often, in rollouts: {}; set `evaluation.every_rollouts`",
            each.collect::<Vec<_>>().join(", ")
        )
    })
}

fn versions(groups: &[Runs]) -> Option<String> {
    let versions: BTreeSet<&str> =
        groups.iter().flat_map(|g| &g.runs).map(|r| r.head.allot.as_str()).collect();
    let all: Vec<&str> = versions.into_iter().collect();
    (all.len() > 1).then(|| format!("the runs are from different versions of the program: {}", listed(&all)))
}

/// Warns of a decaying learning rate whose last step is beyond the budget.
fn schedules(groups: &[Runs]) -> Option<String> {
    let cut = |r: &&History| {
        let optimizer = r.head.training.as_ref().map(|t| &t["optimizer"]["schedule"]);
        let falls = optimizer.and_then(|s| s.as_str()).is_some_and(|s| s != "constant");
        falls && state(r) == State::Finished && (r.steps.len() as u32) < r.head.run.steps
    };
    let any = groups.iter().flat_map(|g| &g.runs).find(cut)?;
    Some(format!(
        "the learning rate falls until step {}, and budgets ended runs before that, at different steps for \
         different arms: arms with fewer steps had larger rates at the end",
        any.head.run.steps
    ))
}

fn machines(groups: &[Runs]) -> Vec<String> {
    let mut warnings =
        vec!["seconds were measured on machines that other runs may have shared at the same time".to_owned()];
    let machines: BTreeSet<String> =
        groups.iter().flat_map(|g| &g.runs).flat_map(|r| &r.machines).map(|m| format!("{m:?}")).collect();
    if machines.len() > 1 {
        warnings.push(format!("seconds were measured on {} different machines", machines.len()));
    }
    warnings
}

/// Maximum share of a set's answers without a verdict that needs no warning.
const FEW: f64 = 0.01;

/// Warns of unscorable held-out answers: accuracies then depend on the grader, too.
fn unjudged(groups: &[Runs]) -> Vec<String> {
    let words = |group: &Runs| {
        let shares = group.runs.iter().flat_map(|r| &r.scores).flat_map(|s| &s.parts);
        let shares = shares.filter(|(name, _)| name.ends_with(UNJUDGED)).map(|(_, share)| *share);
        let most = shares.fold(0.0, f64::max);
        let training = group.runs[0].head.training.as_ref();
        let left_out = training.is_some_and(|t| t["held_out"]["unjudged"] == "leave-out");
        let how = if left_out { "are left out of its accuracies" } else { "count as not solved" };
        (most > FEW).then(|| {
            format!(
                "in an evaluation of `{}`, up to {} of a set's answers have no verdict; they {how}",
                group.name,
                number::percent(most)
            )
        })
    };
    groups.iter().filter_map(words).collect()
}

fn failures(groups: &[Runs]) -> Vec<String> {
    let mut found: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for group in groups {
        for run in &group.runs {
            match state(run) {
                State::Finished => {}
                State::Failed => found.entry(&group.name).or_default()[0] += 1,
                State::Unfinished => found.entry(&group.name).or_default()[1] += 1,
            }
        }
    }
    let words = |(name, [failed, open]): (&str, [usize; 2])| {
        let told = [(failed, "failed"), (open, "unfinished")];
        let told = told.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
        let told = told.collect::<Vec<_>>().join(" and ");
        format!(
            "`{name}` has runs that did not finish ({told}): they are left out of final accuracies, and \
             count as not having reached a target by then"
        )
    };
    found.into_iter().map(words).collect()
}

fn listed(all: &[&str]) -> String {
    all.iter().map(|one| format!("`{one}`")).collect::<Vec<_>>().join(", ")
}
