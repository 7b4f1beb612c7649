//! Collects runs for a report: finds them below folders, reads and compares them, and writes the report.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use allot_base::{Error, Result, find};
use allot_outputs::compared::Compared;
use allot_report::compare::{self, Question, Runs};
use allot_report::history::{History, Rollout};
use allot_report::tuning::Tuning;
use allot_report::{Report, follow, page, scores};

use crate::comparison::finished;
use crate::{comparison, planned, run_dir, sources};

/// The runs of a report, and its question.
pub struct Gathered {
    /// The runs' folders or records.
    pub runs: Vec<PathBuf>,
    /// The name of each run.
    names: Vec<String>,
    /// Their comparison's question, if they are from one.
    pub question: Question,
    /// Comparisons' folders among the places, and the planned seeds of each.
    comparisons: Vec<(PathBuf, Vec<u64>)>,
}

/// Finds the runs in these places: a run's folder, its record, a folder with runs somewhere below it, or one that lists finished
/// runs. Each run appears once.
pub fn gather(places: &[PathBuf]) -> Result<Gathered> {
    let mut gathered = Gathered {
        runs: Vec::new(),
        names: Vec::new(),
        question: Question::default(),
        comparisons: Vec::new(),
    };
    let (mut found, mut seen): (Vec<(&Path, PathBuf)>, BTreeSet<PathBuf>) = (Vec::new(), BTreeSet::new());
    for place in places {
        let there = std::fs::canonicalize(place).map_err(|e| Error::file("read", place, &e))?;
        // A file is taken as a record, whatever its name.
        let list = finished::listed(place)?;
        let mut runs = match &list {
            Some(list) => list.runs.clone(),
            None if there.is_file() => vec![place.clone()],
            None => find::runs(place),
        };
        // Trials on tuning seeds are not runs of the comparison.
        let trials = planned::tuning(place);
        runs.retain(|run| !run.starts_with(&trials));
        if runs.is_empty() {
            let error = Error::new(format!("there is no run in `{}`", place.display()));
            return Err(error.hint("a run is a folder with a `record.jsonl`"));
        }
        for run in runs {
            let whole = std::fs::canonicalize(&run).unwrap_or_else(|_| run.clone());
            if seen.insert(whole) {
                found.push((place, run));
            }
        }
        if let Some(question) = comparison::question(place) {
            gathered.comparisons.push((place.clone(), question.planned.clone()));
            gathered.question = Question { looks: comparison::looks::read(place)?, ..question };
        }
        if let Some(list) = list {
            gathered.question = list.question(place)?;
            gathered.comparisons.push((place.clone(), gathered.question.planned.clone()));
        }
    }
    // A comparison's runs share the parts of its folder's path and `runs`.
    let pairs: Vec<(&Path, &Path)> = found.iter().map(|(place, run)| (*place, run.as_path())).collect();
    gathered.names = find::names(&pairs);
    gathered.runs = found.into_iter().map(|(_, run)| run).collect();
    gathered.question.sources = gathered.runs.iter().find_map(|run| sources::read(run)).unwrap_or_default();
    Ok(gathered)
}

/// Reads runs, and writes all rollouts into a table on the way. Unreadable runs are mentioned in the notes.
fn read(gathered: &Gathered, rollouts: &Path) -> Result<(Vec<History>, Vec<String>)> {
    let mut table = Compared::create(rollouts)?;
    let (mut histories, mut notes) = (Vec::new(), Vec::new());
    for (run, name) in gathered.runs.iter().zip(&gathered.names) {
        let head = allot_record::Reader::open(run).map(|(_, head)| head);
        let read = head.and_then(|head| {
            table.run(name, &head);
            follow::read(run, &mut |rollout: Rollout| table.add(rollout))
        });
        match read {
            Ok(mut history) => {
                history.run.clone_from(name);
                if gathered.question.of_runs {
                    history.id = finished::id(run);
                }
                histories.push(history);
            }
            Err(error) => notes.push(format!("`{name}` is left out: {error}")),
        }
    }
    table.finish()?;
    Ok((histories, notes))
}

/// Reads the runs for a comparison of finished ones.
///
/// # Errors
///
/// One can't be read, or there is a comparison among the places, which has a report of its own.
pub fn histories(gathered: &Gathered) -> Result<Vec<History>> {
    if let Some((folder, _)) = gathered.comparisons.first() {
        let what = format!("`{}` is a comparison, and not a finished run", folder.display());
        return Err(Error::new(what).hint("name its runs, or make its own report: allot report FOLDER"));
    }
    let one = |(run, name): (&PathBuf, &String)| {
        let mut history = follow::read(run, &mut |_| {})?;
        history.run.clone_from(name);
        Ok(history)
    };
    gathered.runs.iter().zip(&gathered.names).map(one).collect()
}

/// Writes a report of runs into a folder, replacing an earlier one.
pub fn report(gathered: &Gathered, out: &Path) -> Result<Report> {
    std::fs::create_dir_all(out).map_err(|e| Error::file("make", out, &e))?;
    let (histories, notes) = read(gathered, &out.join("rollouts.parquet"))?;
    let all = notes.clone();
    let (report, groups) =
        compare::compare(histories, &gathered.question, notes).map_err(|what| Error::new(what).hints(all))?;
    // Recorded before the report is read. Another user's comparison may not be writable.
    for (folder, planned) in &gathered.comparisons {
        if let Err(error) = comparison::looks::keep(folder, planned, &report) {
            run_dir::note(&format!("could not record that this report was made: {}", error.what));
        }
    }
    write(&report, &groups, out)?;
    Ok(report)
}

/// Writes the report of a grid search into a folder.
pub fn grid(tuning: &Tuning, out: &Path) -> Result<()> {
    page::write_grid(tuning, out).map_err(|e| Error::file("write", out, &e))
}

fn write(report: &Report, groups: &[Runs], out: &Path) -> Result<()> {
    page::write(report, out).map_err(|e| Error::file("write", out, &e))?;
    let array = compare::scores(report, groups);
    let path = out.join("scores.npz");
    let bytes = scores::npz(&array).map_err(|e| Error::file("write", &path, &e))?;
    std::fs::write(&path, bytes).map_err(|e| Error::file("write", &path, &e))
}
