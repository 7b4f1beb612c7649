//! Runs gathered for a report: found below folders, read from their records, compared, and written down.

use std::path::{Path, PathBuf};

use allot_report::compare::{self, Group, Question};
use allot_report::history::{History, Rollout};
use allot_report::{Report, follow, page, scores};

use crate::comparison;
use crate::outputs::compared::Compared;
use crate::trouble::{Result, Trouble};

/// How deep below a folder runs are looked for: a comparison has them two folders down.
const DEPTH: usize = 4;

/// Runs that were found, and what is asked of them.
pub struct Gathered {
    /// The runs' folders or records.
    pub runs: Vec<PathBuf>,
    /// What their comparison asks, if they are of one.
    pub question: Question,
}

/// The runs in these places: a run's folder, its record, or a folder with runs somewhere below it.
pub fn gather(places: &[PathBuf]) -> Result<Gathered> {
    let mut gathered = Gathered { runs: Vec::new(), question: Question::default() };
    for place in places {
        if !place.exists() {
            let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(Trouble::file("read", place, &gone));
        }
        let found = below(place);
        if found.is_empty() {
            let trouble = Trouble::new(format!("there is no run in `{}`", place.display()));
            return Err(trouble.hint("a run is a folder with a `record.jsonl`"));
        }
        gathered.runs.extend(found);
        if let Some(question) = comparison::question(place) {
            gathered.question = question;
        }
    }
    gathered.runs.dedup();
    Ok(gathered)
}

/// The runs at or below a place, by name.
pub fn below(place: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    look(place, DEPTH, &mut found);
    found
}

fn look(place: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if place.is_file() || place.join("record.jsonl").is_file() {
        found.push(place.to_owned());
        return;
    }
    let Ok(entries) = std::fs::read_dir(place) else { return };
    let mut folders: Vec<PathBuf> =
        entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| p.is_dir()).collect();
    folders.sort();
    if depth > 0 {
        folders.iter().for_each(|folder| look(folder, depth - 1, found));
    }
}

/// Reads runs and writes all rollouts down as they come by. What can't be read is told in the notes.
pub fn read(runs: &[PathBuf], rollouts: &Path) -> Result<(Vec<History>, Vec<String>)> {
    let mut table = Compared::create(rollouts)?;
    let (mut histories, mut notes) = (Vec::new(), Vec::new());
    for run in runs {
        let name = shown(run);
        let head = allot_record::Reader::open(run).map(|(_, head)| head);
        let read = head.and_then(|head| {
            table.run(&name, &head.policy.name, head.seed);
            follow::read(run, &mut |rollout: Rollout| table.add(rollout))
        });
        match read {
            Ok(mut history) => {
                history.run = name;
                histories.push(history);
            }
            Err(error) => notes.push(format!("`{name}` is left out: {error}")),
        }
    }
    table.finish()?;
    Ok((histories, notes))
}

/// What a run is called: its last folders, without those that all have.
fn shown(run: &Path) -> String {
    let parent = run.parent().filter(|parent| !parent.as_os_str().is_empty());
    let run = if run.is_file() { parent.unwrap_or(run) } else { run };
    let names: Vec<String> = run.components().map(|c| c.as_os_str().to_string_lossy().into_owned()).collect();
    match names.iter().rposition(|name| name == "runs") {
        Some(at) if at + 1 < names.len() => names[at + 1..].join("/"),
        _ => run.display().to_string(),
    }
}

/// Makes a report of runs in a folder, over an earlier one.
pub fn report(gathered: &Gathered, out: &Path) -> Result<Report> {
    std::fs::create_dir_all(out).map_err(|e| Trouble::file("make", out, &e))?;
    let (histories, notes) = read(&gathered.runs, &out.join("rollouts.parquet"))?;
    let all = notes.clone();
    let (report, groups) = compare::compare(histories, &gathered.question, notes).map_err(|what| {
        let trouble = Trouble::new(what);
        if all.is_empty() { trouble } else { trouble.hint(all.join("\nhint: ")) }
    })?;
    write(&report, &groups, out)?;
    Ok(report)
}

fn write(report: &Report, groups: &[Group], out: &Path) -> Result<()> {
    page::write(report, out).map_err(|e| Trouble::file("write", out, &e))?;
    let (_, array) = compare::scores(report, groups);
    let path = out.join("scores.npz");
    let bytes = scores::npz(&array).map_err(|e| Trouble::file("write", &path, &e))?;
    std::fs::write(&path, bytes).map_err(|e| Trouble::file("write", &path, &e))
}
