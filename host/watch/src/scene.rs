//! What there is to see: runs as rows and curves, in plain data. Nothing here reads a file or draws.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use allot_allocation::shown;
use allot_report::compare::{names, told};
use allot_report::{Axis, Costs, History};

use super::pace::Pace;

/// Windows that a curve by step is drawn from, at most.
const WINDOWS: usize = 32;

/// All there is to see.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// The runs, in the order of their places.
    pub runs: Vec<RunRow>,
    /// The arms' names; a row names its arm by its place here.
    pub arms: Vec<String>,
    /// Places without a run.
    pub empty: Vec<Empty>,
}

/// A run.
#[derive(Clone, Debug)]
pub struct RunRow {
    /// Its folder.
    pub path: PathBuf,
    /// What it is called among the others.
    pub name: String,
    /// Its arm, by its place in [`Scene::arms`].
    pub arm: Option<usize>,
    /// How it is going.
    pub state: State,
    /// What its record says; none where it has no head that can be read.
    pub facts: Option<Facts>,
}

/// What a run's record and times say.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The policy's name, or that of the arm in a comparison.
    pub arm: String,
    /// Settings in force, by name.
    pub settings: Vec<(String, String)>,
    /// What it was told, its seed left out, by key: model, data, settings in force.
    pub told: BTreeMap<String, String>,
    /// The seed.
    pub seed: u64,
    /// Steps finished, and steps planned.
    pub steps: (u32, u32),
    /// Rollouts sampled, and the most that may be.
    pub rollouts: (u64, Option<u64>),
    /// Accuracy at the start and the last one.
    pub accuracy: Option<(f64, f64)>,
    /// The share of rollouts sampled that had no advantage, or were not trained on.
    pub waste: Option<f64>,
    /// Why it has learned nothing, where it has not.
    pub nothing_learned: Option<String>,
    /// Its pace.
    pub pace: Pace,
    /// Accuracy against rollouts sampled.
    pub scores: Vec<(f64, f64)>,
    /// Waste against steps: of the rollouts whose fate was known in a few steps.
    pub wastes: Vec<(f64, f64)>,
}

/// How a run is going.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Its record has no whole line yet.
    Starting,
    /// It goes on.
    Running,
    /// It has no end, and nothing was added for so long.
    Stalled {
        /// Since when.
        since: Duration,
        /// Whether its last line is cut off.
        cut: bool,
    },
    /// It ended as it should, for this reason.
    Finished(String),
    /// It was stopped, for this reason.
    Stopped(String),
    /// Its record can't be believed any more, for this reason.
    Damaged(String),
    /// Its record can't be read, for this reason.
    Unreadable(String),
}

/// A place without a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Empty {
    /// As it was typed.
    pub place: String,
    /// Whether there is a folder.
    pub there: bool,
}

impl Facts {
    /// Those of a history.
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
            // What is no share is no curve.
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
    /// Returns what a reader should know of the run beside its state's word.
    pub fn remark(&self) -> Option<String> {
        let nothing = self.facts.as_ref().and_then(|facts| facts.nothing_learned.clone());
        let remarks: Vec<String> = self.state.reason().into_iter().chain(nothing).collect();
        (!remarks.is_empty()).then(|| remarks.join("; "))
    }

    /// Returns whether all is as it should be.
    pub fn is_well(&self) -> bool {
        self.state.is_well() && self.facts.as_ref().is_none_or(|facts| facts.nothing_learned.is_none())
    }
}

impl State {
    /// In a word or two.
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

    /// What a reader should know beside that.
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

    /// Whether that is how it should be.
    pub fn is_well(&self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Finished(_))
    }

    /// Whether more may come.
    pub fn goes_on(&self) -> bool {
        matches!(self, Self::Starting | Self::Running)
    }
}

/// A time in its largest unit.
fn about(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    match minutes {
        0..60 => format!("{minutes} min"),
        60..2880 => format!("{} h", minutes / 60),
        _ => format!("{} d", minutes / 1440),
    }
}

impl Empty {
    /// In words.
    pub fn words(&self) -> String {
        let (place, there) = (&self.place, self.there);
        if there { format!("no run in `{place}`") } else { format!("there is no folder `{place}`") }
    }
}

impl Scene {
    /// Sorts the runs into arms, as a report does: those of one name that differ in nothing but their seed.
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

    /// Whether nothing more is to come.
    pub fn is_over(&self) -> bool {
        let over = |row: &RunRow| !row.state.goes_on() && !matches!(row.state, State::Stalled { .. });
        self.empty.is_empty() && !self.runs.is_empty() && self.runs.iter().all(over)
    }
}

/// Text of several lines, such as a traceback, in one.
pub fn joined(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}

/// Text that does nothing to a terminal.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if shown::steers(c) { '?' } else { c }).collect()
}
