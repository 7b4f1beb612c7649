//! Tunes a comparison's arms rung by rung. The best trials of an arm continue, until one is left.

use std::collections::BTreeMap;
use std::path::Path;

use allot_base::{Error, Result, count};
use allot_executor::Executor;
use allot_report::tuning::{Measure, Tuning};

use crate::board;
use crate::comparison::tuning::Tuner;
use crate::jobs::{Field, Job, JobState, Jobs};
use crate::screen::Screen;

/// Opens the executor for the runs in a folder.
pub type Open<'o> = &'o dyn Fn(&Path) -> Result<Box<dyn Executor>>;

/// How a tuning stopped.
pub enum Rest {
    /// It is finished, and its result is written.
    Over(Box<Tuning>),
    /// The user stopped it, or a run was lost. It can be resumed.
    Paused,
}

/// Completes a tuning.
pub fn tune(tuner: &Tuner, open: Open<'_>, screen: &mut Screen<'_>) -> Result<Rest> {
    let mut alive = tuner.all();
    let mut rungs: Vec<Vec<BTreeMap<u32, Measure>>> = Vec::new();
    let mut failed: BTreeMap<(usize, u32), String> = BTreeMap::new();
    for (rung, (_, share)) in tuner.rungs.iter().enumerate() {
        let field = tuner.field(rung, &alive);
        tuner.keep(&field)?;
        let each: Vec<usize> = alive.iter().map(Vec::len).collect();
        let (least, most) = (each.iter().min().unwrap_or(&0), each.iter().max().unwrap_or(&0));
        let each = if least == most { least.to_string() } else { format!("{least} to {most}") };
        screen.tell(format_args!(
            "tuning, rung {} of {}: {each} trials of each policy, up to {} of the budget",
            rung + 1,
            tuner.rungs.len(),
            allot_report::number::percent_tick(*share)
        ));
        if !all_over(tuner, rung, &field, (open, &mut failed), screen)? {
            return Ok(Rest::Paused);
        }
        let measured: Vec<_> = (0..alive.len()).map(|arm| tuner.measured(rung, field.of_arm(arm))).collect();
        alive = measured.iter().map(|measured| tuner.going_on(rung, measured)).collect();
        for (arm, alive) in alive.iter().enumerate() {
            tuner.drop(field.of_arm(arm), alive);
        }
        rungs.push(measured);
    }
    let tuning = tuner.result(&rungs, &failed);
    tuner.write(&tuning)?;
    Ok(Rest::Over(Box::new(tuning)))
}

/// Executes the runs of a rung. A trial that fails twice in the same way has lost because of its settings,
/// and is reported. Returns false if a run was stopped, or failed for another reason.
fn all_over(
    tuner: &Tuner,
    rung: usize,
    field: &Field,
    (open, failed): (Open<'_>, &mut BTreeMap<(usize, u32), String>),
    screen: &mut Screen<'_>,
) -> Result<bool> {
    let folder = tuner.rung(rung);
    std::fs::create_dir_all(&folder).map_err(|e| Error::file("make", &folder, &e))?;
    let mut before: Option<Failures> = None;
    // Frees disk space for the next trials, as checkpoints of a real model are large: a trial that has finished behind as many
    // others as continue can't be among those any more.
    let mut finished = vec![0; field.rows.len()];
    let mut after = |jobs: &Jobs<'_>| {
        for (arm, before) in finished.iter_mut().enumerate() {
            let runs = jobs.finished_trials(arm);
            if runs.len() > *before {
                let alive = tuner.going_on(rung, &tuner.measured(rung, runs.iter().copied()));
                tuner.drop(runs.iter().copied(), &alive);
                *before = runs.len();
            }
        }
    };
    loop {
        let mut jobs = Jobs::of(field, open(&folder)?)?;
        if !board::all_over(&mut jobs, screen, &mut after)? {
            return Ok(false);
        }
        let now = failures(&jobs);
        match before {
            None if !now.is_empty() => {
                let runs = count(now.len() as u64, "run");
                screen.tell(format_args!(
                    "{runs} of trials failed: tried once more, in case the failure was accidental"
                ));
                before = Some(now);
            }
            before => {
                for ((arm, trial, _), reason) in &now {
                    screen.tell(format_args!("trial {trial} of `{}` failed: {reason}", field.rows[*arm]));
                    failed.insert((*arm, *trial), reason.clone());
                }
                let same = |(run, reason): (&(usize, u32, u64), &String)| {
                    before.as_ref().is_some_and(|before| before.get(run) == Some(reason))
                };
                return Ok(now.iter().all(same));
            }
        }
    }
}

/// Reasons of failures, by arm, trial and seed.
type Failures = BTreeMap<(usize, u32, u64), String>;

fn failures(jobs: &Jobs<'_>) -> Failures {
    let failed = |job: &Job| match &job.state {
        JobState::Failed(reason) => {
            let of = &job.planned;
            Some(((of.arm, of.trial.unwrap_or(0), of.seed), reason.clone()))
        }
        _ => None,
    };
    jobs.all.iter().filter_map(failed).collect()
}
