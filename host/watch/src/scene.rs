//! The data to show: runs as rows and curves. Nothing here reads a file or draws.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use allot_allocation::shown;
use allot_report::compare::{names, told};
use allot_report::{Axis, Costs, History};

use super::pace::Pace;

/// Maximum number of windows of steps in a curve.
const WINDOWS: usize = 32;

/// All data to show.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// The runs, in the order of their places.
    pub runs: Vec<RunRow>,
    /// Names of the arms; a row refers to its arm by index.
    pub arms: Vec<String>,
    /// Places without a run.
    pub empty: Vec<Empty>,
}

/// A run, as a row of the table.
#[derive(Clone, Debug)]
pub struct RunRow {
    /// Its folder.
    pub path: PathBuf,
    /// Its name among the other runs.
    pub name: String,
    /// Index of its arm in [`Scene::arms`].
    pub arm: Option<usize>,
    /// Its state.
    pub state: State,
    /// Data of its record; `None` if the record has no readable head.
    pub facts: Option<Facts>,
}

/// Data of a run's record and times.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Name of the policy, or of the arm in a comparison.
    pub arm: String,
    /// Effective settings, by name.
    pub settings: Vec<(String, String)>,
    /// Its configuration without the seed, by key: model, data, effective settings.
    pub told: BTreeMap<String, String>,
    /// The seed.
    pub seed: u64,
    /// Steps finished, and steps planned.
    pub steps: (u32, u32),
    /// Rollouts sampled, and their limit, if there is one.
    pub rollouts: (u64, Option<u64>),
    /// First and last held-out accuracy.
    pub accuracy: Option<(f64, f64)>,
    /// Share of sampled rollouts that had no advantage or were not trained on.
    pub waste: Option<f64>,
    /// Reason why it has learned nothing; `None` if it has learned.
    pub nothing_learned: Option<String>,
    /// Its pace.
    pub pace: Pace,
    /// Held-out accuracy against rollouts sampled.
    pub scores: Vec<(f64, f64)>,
    /// Waste against steps, over windows of steps; counts the rollouts whose fate became known there.
    pub wastes: Vec<(f64, f64)>,
}

/// State of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Its record has no complete line yet.
    Starting,
    /// It is going on.
    Running,
    /// Its record has no end and has not grown for a while.
    Stalled {
        /// Time since the record last grew.
        since: Duration,
        /// Whether its last line is cut off.
        cut: bool,
    },
    /// It ended normally, for this reason.
    Finished(String),
    /// It was stopped, for this reason.
    Stopped(String),
    /// Its record is damaged, for this reason.
    Damaged(String),
    /// Its record cannot be read, for this reason.
    Unreadable(String),
}

/// A place without a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Empty {
    /// The place, as typed.
    pub place: String,
    /// Whether the folder exists.
    pub there: bool,
}

impl Facts {
    /// Returns the facts of a history.
    pub fn of(history: &History, pace: Pace) -> Self {
        let head = &history.head;
        let spent = match (&history.end, history.steps.last()) {
            (Some(end), _) => end.spent.run_rollouts,
            (None, Some(step)) => step.end.spent.run_rollouts,
            (None, None) => 0,
        };
        let effective: f64 = history.steps.iter().map(|step| step.end.effective as f64).sum();
        let scores = history.scores.iter().map(|score| (rollouts(&score.costs), score.accuracy));
        let ends = history.scores.first().zip(history.scores.last());
        Self {
            arm: plain(head.name.as_ref().unwrap_or(&history.policy())),
            settings: head.run.settings.iter().map(|(n, v)| (plain(n), plain(&v.to_string()))).collect(),
            told: told(history).into_iter().map(|(key, value)| (plain(&key), plain(&value))).collect(),
            seed: head.seed,
            steps: (history.steps.len() as u32, head.run.steps),
            rollouts: (spent, head.limits.run_rollouts),
            accuracy: ends.map(|(first, last)| (first.accuracy, last.accuracy)),
            waste: (spent > 0).then(|| (1.0 - effective / spent as f64).clamp(0.0, 1.0)),
            nothing_learned: history.nothing_learned(),
            pace,
            // An accuracy outside 0 to 1 is not drawn.
            scores: scores.filter(|(_, accuracy)| (0.0..=1.0).contains(accuracy)).collect(),
            wastes: wastes(history),
        }
    }
}

fn rollouts(costs: &Costs) -> f64 {
    costs.on(Axis::Rollouts).unwrap_or(0.0)
}

fn wastes(history: &History) -> Vec<(f64, f64)> {
    let (steps, windows) = (&history.steps, history.steps.len().min(WINDOWS));
    let share = |i: usize| {
        let (from, to) = (i * steps.len() / windows, (i + 1) * steps.len() / windows);
        let known: f64 = steps[from..to].iter().map(|step| step.fates.total() as f64).sum();
        let learned: f64 = steps[from..to].iter().map(|step| step.fates.learned as f64).sum();
        (known > 0.0).then(|| (to as f64, 1.0 - learned / known))
    };
    (0..windows).filter_map(share).collect()
}

impl RunRow {
    /// Returns remarks on the run beyond its state, if there are any.
    pub fn remark(&self) -> Option<String> {
        let nothing = self.facts.as_ref().and_then(|facts| facts.nothing_learned.clone());
        let remarks: Vec<String> = self.state.reason().into_iter().chain(nothing).collect();
        (!remarks.is_empty()).then(|| remarks.join("; "))
    }

    /// Returns whether the run has no problem.
    pub fn is_well(&self) -> bool {
        self.state.is_well() && self.facts.as_ref().is_none_or(|facts| facts.nothing_learned.is_none())
    }
}

impl State {
    /// Returns the state in one or two words.
    pub fn word(&self) -> String {
        match self {
            Self::Starting => "starting".to_owned(),
            Self::Running => "running".to_owned(),
            Self::Stalled { since, .. } => format!("stalled {}", about(*since)),
            Self::Finished(_) => "finished".to_owned(),
            Self::Stopped(_) => "stopped".to_owned(),
            Self::Damaged(_) => "damaged".to_owned(),
            Self::Unreadable(_) => "unreadable".to_owned(),
        }
    }

    /// Returns the reason for the state, if there is one.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Starting | Self::Running => None,
            Self::Stalled { cut: true, .. } => Some("its last line is cut off in the middle".to_owned()),
            Self::Stalled { cut: false, .. } => Some("its record has no end and does not grow".to_owned()),
            Self::Finished(reason)
            | Self::Stopped(reason)
            | Self::Damaged(reason)
            | Self::Unreadable(reason) => Some(reason.clone()),
        }
    }

    /// Whether the state is not a problem.
    pub fn is_well(&self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Finished(_))
    }

    /// Whether the run is starting or running.
    pub fn goes_on(&self) -> bool {
        matches!(self, Self::Starting | Self::Running)
    }
}

/// Formats a duration in its largest unit.
fn about(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    match minutes {
        0..60 => format!("{minutes} min"),
        60..2880 => format!("{} h", minutes / 60),
        _ => format!("{} d", minutes / 1440),
    }
}

impl Empty {
    /// Returns a message about the place.
    pub fn words(&self) -> String {
        let (place, there) = (&self.place, self.there);
        if there { format!("no run in `{place}`") } else { format!("there is no folder `{place}`") }
    }
}

impl Scene {
    /// Groups runs into arms, as a report does: runs of one name that differ only in their seed.
    pub fn of(mut runs: Vec<RunRow>, empty: Vec<Empty>) -> Self {
        let mut kinds: Vec<(&str, &BTreeMap<String, String>)> = Vec::new();
        let mut places = Vec::new();
        for row in &runs {
            places.push(row.facts.as_ref().map(|facts| {
                let kind = (facts.arm.as_str(), &facts.told);
                kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
                    kinds.push(kind);
                    kinds.len() - 1
                })
            }));
        }
        let arms = names(&kinds);
        runs.iter_mut().zip(places).for_each(|(row, place)| row.arm = place);
        Self { runs, arms, empty }
    }

    /// Whether all runs have ended and no place is empty.
    pub fn is_over(&self) -> bool {
        let over = |row: &RunRow| !row.state.goes_on() && !matches!(row.state, State::Stalled { .. });
        self.empty.is_empty() && !self.runs.is_empty() && self.runs.iter().all(over)
    }
}

/// Joins the lines of a text, such as a traceback, with semicolons.
pub fn joined(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}

/// Replaces characters that could control a terminal.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if shown::steers(c) { '?' } else { c }).collect()
}
