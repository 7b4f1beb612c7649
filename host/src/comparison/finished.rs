//! A comparison of finished runs, of this program or of a trainer: a folder that lists them, with the looks at it and its report.
//! It grows by runs, and loses none.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use allot_base::{Error, Result, count, lasting, write_lasting};
use allot_component::sha256;
use allot_report::Axis;
use allot_report::compare::{Question, complaints, settled};
use allot_report::history::History;
use serde::{Deserialize, Serialize};

use crate::comparison::before::CONFIG;
use crate::comparison::looks;
use crate::run_dir;

const LIST: &str = "compared.json";

/// What a comparison of finished runs is of.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finished {
    /// The runs' folders or records, whole paths.
    pub runs: Vec<PathBuf>,
    /// Keys by which the arms may differ, beside those of the policy.
    ignored: Vec<String>,
    /// The baseline.
    baseline: String,
    /// Accuracies whose cost is reported.
    targets: Vec<f64>,
    /// The axis of costs.
    axis: Axis,
}

impl Finished {
    /// Checks that these runs are the arms of one comparison, and that this is what the folder compares already, or more of it. What is
    /// not asked anew is as it was.
    ///
    /// # Errors
    ///
    /// A run is not finished, not evaluated, of another task, or a copy; arms differ in more than their policies; no arm is the
    /// baseline. The folder is of something else, has runs that are not among these, or another baseline, target or axis.
    pub fn of(
        runs: &[PathBuf],
        histories: Vec<History>,
        ignored: &[String],
        question: &Question,
        folder: Option<&Path>,
    ) -> Result<Self> {
        let all = complaints(&histories, ignored);
        if !all.is_empty() {
            let what = format!("these runs can't be compared, for {}", count(all.len() as u64, "reason"));
            let of_keys = all.iter().any(|one| one.contains("` differs: "));
            let ways = "`--ignore KEY` allows a key to differ";
            let error = Error::new(what).hints(all);
            return Err(if of_keys { error.hint(ways) } else { error });
        }
        let runs = runs.iter().map(|run| place(run)).collect::<Result<Vec<_>>>()?;
        let old = folder.map(listed).transpose()?.flatten();
        if let (Some(folder), None) = (folder, &old) {
            unused(folder)?;
        }
        let asked = Question {
            baseline: question.baseline.clone().or(old.as_ref().map(|old| old.baseline.clone())),
            axis: question.axis.or(old.as_ref().map(|old| old.axis)),
            targets: question.targets.clone(),
            ignored: ignored.to_vec(),
            ..Question::default()
        };
        let (baseline, axis) = settled(histories, &asked).map_err(Error::new)?;
        let list = Self { runs, ignored: ignored.to_vec(), baseline, targets: asked.targets, axis };
        match (folder, old) {
            (Some(folder), Some(old)) => list.extending(old, folder),
            _ => Ok(list),
        }
    }

    /// Returns this with what an older list of the folder says.
    fn extending(self, old: Self, folder: &Path) -> Result<Self> {
        let shown = folder.display();
        if let Some(run) = old.runs.iter().find(|run| !self.runs.contains(run)) {
            let what = format!("`{shown}` compares `{}`, which is not among these runs", run.display());
            let hint = "name it too, as leaving runs out changes what p-values say; or name another folder";
            return Err(Error::new(what).hint(hint));
        }
        let targets = if self.targets.is_empty() { old.targets.clone() } else { self.targets };
        let had = [
            ("target", format!("{:?}", old.targets), format!("{targets:?}")),
            ("baseline", old.baseline.clone(), self.baseline.clone()),
            ("axis", old.axis.key().to_owned(), self.axis.key().to_owned()),
        ];
        if let Some((what, was, is)) = had.iter().find(|(_, was, is)| was != is) {
            let error = Error::new(format!("`{shown}` has the {what} {was}, not {is}"));
            return Err(error.hint("it is set once, before anybody looks; name another folder for another"));
        }
        Ok(Self { targets, ..self })
    }

    /// Keeps the list in a folder: this one, or else the next free one below `runs/`.
    pub fn keep(&self, out: Option<&Path>) -> Result<PathBuf> {
        let folder = run_dir::new(out, Path::new("compared"))?;
        let text = serde_json::to_string_pretty(self).map_err(|e| Error::new(format!("no JSON: {e}")))?;
        write_lasting(&folder.join(LIST), format!("{text}\n").as_bytes())?;
        lasting(&folder)?;
        Ok(folder)
    }

    /// Returns the question of the comparison in a folder.
    pub fn question(&self, folder: &Path) -> Result<Question> {
        Ok(Question {
            baseline: Some(self.baseline.clone()),
            targets: self.targets.clone(),
            axis: Some(self.axis),
            ignored: self.ignored.clone(),
            planned: self.runs.iter().map(|run| id(run)).collect(),
            of_runs: true,
            looks: looks::read(folder)?,
            ..Question::default()
        })
    }
}

/// Returns a run's folder, whole: the record in it stands for it.
fn place(run: &Path) -> Result<PathBuf> {
    let whole = std::fs::canonicalize(run).map_err(|e| Error::file("read", run, &e))?;
    let of_record = whole.file_name().is_some_and(|name| name == "record.jsonl");
    Ok(whole.parent().filter(|_| of_record).map_or(whole.clone(), Path::to_owned))
}

/// Returns the number by which looks know a run of a list.
pub fn id(run: &Path) -> u64 {
    let digest = sha256(run.to_string_lossy().as_bytes());
    u64::from_str_radix(digest.get(..16).unwrap_or_default(), 16).unwrap_or_default()
}

/// Checks that a folder is empty or not there.
fn unused(folder: &Path) -> Result<()> {
    if !std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Ok(());
    }
    let what = format!("`{}` has files, and is no comparison of finished runs", folder.display());
    Err(Error::new(what).hint(if folder.join(CONFIG).exists() {
        "a comparison grows by `--resume` and `--seeds`"
    } else {
        "name another folder, or a new one"
    }))
}

/// Returns the list in a folder, if it is a comparison of finished runs.
pub fn listed(folder: &Path) -> Result<Option<Finished>> {
    let path = folder.join(LIST);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(e) => return Err(Error::file("read", &path, &e)),
    };
    let list = serde_json::from_str(&text);
    list.map(Some).map_err(|e| Error::new(format!("`{}` is no list of compared runs: {e}", path.display())))
}
