//! Teaching: the share of each part of the data in what an arm learned from, parts that it hardly taught,
//! and their accuracies.

use std::collections::BTreeMap;

use super::{Runs, mean};
use crate::history::{History, Lessons, Visit};
use crate::number;
use crate::report::{Estimate, PartBy, Taught};

/// A part is starved if its share is below this fraction of the baseline's share.
const STARVED: f64 = 0.25;

/// Returns how each arm taught the parts of the data: the sources of prompts, given by prompt number, and
/// classes of prompts by their first visit.
pub fn taught(groups: &[Runs], sources: &[String]) -> Vec<Taught> {
    let arm = |(arm, group): (usize, &Runs)| {
        let by_source = named(sources).into_iter().map(move |(source, prompts)| {
            let within = |prompt: u32, _: &Lessons| sources.get(prompt as usize).is_some_and(|s| s == source);
            let score = |last: bool| over(group, |run| of_source(run, source, last));
            let of = Taught {
                prompts: Some(prompts),
                start: score(false),
                end: score(true),
                ..part(group, &within)
            };
            Taught { arm, by: PartBy::Source, part: source.to_owned(), ..of }
        });
        let by_visit = VISITS.into_iter().map(move |(name, is)| {
            let within = |_: u32, lessons: &Lessons| is(lessons);
            let rate = |of: fn(&Lessons) -> Option<f64>| {
                over(group, |run| {
                    let rates: Vec<f64> = run.prompts.values().filter(|l| is(l)).filter_map(of).collect();
                    (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
                })
            };
            let (start, end) = (rate(|l| Some(l.first.rate())), rate(|l| l.again.map(Visit::rate)));
            Taught { arm, by: PartBy::FirstVisit, part: name.to_owned(), start, end, ..part(group, &within) }
        });
        by_source.chain(by_visit).collect::<Vec<_>>()
    };
    groups
        .iter()
        .enumerate()
        .flat_map(arm)
        .filter(|taught| taught.prompts.is_some() || taught.seen > 0.0)
        .collect()
}

/// Name of a class of prompts, and its membership test.
type Class = (&'static str, fn(&Lessons) -> bool);

const VISITS: [Class; 3] = [
    ("none right on the first visit", |lessons| lessons.first.right == 0),
    ("some right", |lessons| lessons.first.right > 0 && lessons.first.right < lessons.first.rollouts),
    ("all right", |lessons| lessons.first.right == lessons.first.rollouts),
];

/// Returns the sources with their numbers of prompts, sorted by name.
fn named(sources: &[String]) -> BTreeMap<&str, u64> {
    let mut named = BTreeMap::new();
    for source in sources {
        *named.entry(source.as_str()).or_default() += 1;
    }
    named
}

/// Returns statistics of a part: means over the runs of an arm.
fn part(group: &Runs, within: &dyn Fn(u32, &Lessons) -> bool) -> Taught {
    let (mut seen, mut learned_from, mut sampled, mut learned) = (0.0, 0.0, 0.0, 0.0);
    for run in &group.runs {
        let (mut rollouts, mut lessons_of) = ((0_u64, 0_u64), (0_u64, 0_u64));
        for (prompt, lessons) in &run.prompts {
            let is = u64::from(within(*prompt, lessons));
            seen += is as f64;
            learned_from += (is * u64::from(lessons.learned > 0)) as f64;
            rollouts.0 += is * u64::from(lessons.rollouts);
            rollouts.1 += u64::from(lessons.rollouts);
            lessons_of.0 += is * u64::from(lessons.learned);
            lessons_of.1 += u64::from(lessons.learned);
        }
        sampled += number::share(rollouts.0, rollouts.1);
        learned += number::share(lessons_of.0, lessons_of.1);
    }
    let runs = group.runs.len().max(1) as f64;
    Taught {
        arm: 0,
        by: PartBy::Source,
        part: String::new(),
        prompts: None,
        seen: seen / runs,
        taught: learned_from / runs,
        sampled: sampled / runs,
        learned: learned / runs,
        start: None,
        end: None,
    }
}

/// Returns a mean over the runs of an arm that have a value.
fn over(group: &Runs, of: impl Fn(&History) -> Option<f64>) -> Option<Estimate> {
    let values: Vec<f64> = group.runs.iter().filter_map(of).collect();
    (!values.is_empty()).then(|| mean(&values))
}

/// Returns the held-out accuracy on a source, in the first held-out set that has it.
fn of_source(run: &History, source: &str, last: bool) -> Option<f64> {
    let score = if last { run.scores.last() } else { run.scores.first() }?;
    let is = |name: &str| name.starts_with("eval/") && name.ends_with(&format!("/{source}"));
    score.parts.iter().find(|(name, _)| is(name)).map(|(_, accuracy)| *accuracy)
}

/// Returns notes on sources that an arm starved: their share of what it learned from is far below the
/// baseline's share.
pub fn starved(groups: &[Runs], baseline: usize, all: &[Taught]) -> Vec<String> {
    let of = |arm: usize| all.iter().filter(move |t| t.arm == arm && t.by == PartBy::Source);
    let words = |arm: usize| {
        let starved = of(arm).filter_map(|taught| {
            let base = of(baseline).find(|other| other.part == taught.part)?;
            let little = taught.learned < STARVED * base.learned && base.learned > 0.01;
            let (start, end) = (taught.start?.value, taught.end?.value);
            let beside = base.end.map(|e| number::percent(e.value)).filter(|_| arm != baseline)?;
            little.then(|| {
                format!(
                    "`{}` ({} of what it learned from, {} of `{}`'s; its held-out accuracy went from {} to {}, there to \
                     {beside})",
                    taught.part,
                    number::percent(taught.learned),
                    number::percent(base.learned),
                    groups[baseline].name,
                    number::percent(start),
                    number::percent(end),
                )
            })
        });
        let starved: Vec<String> = starved.collect();
        (!starved.is_empty()).then(|| format!("`{}` hardly taught {}", groups[arm].name, starved.join(", ")))
    };
    (0..groups.len()).filter_map(words).collect()
}
