//! A comparison of finished runs, of this program or of a trainer: a folder that lists them, with the looks at it and its report.
//! It grows by runs, and loses none.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use allot_base::{Error, Result, count, lasting, write_lasting};
use allot_report::Axis;
use allot_report::compare::{Question, complaints, planned};
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
    /// Their seeds, each as often as the arm with most runs of it has it.
    seeds: Vec<u64>,
    /// Keys by which the arms may differ, beside those of the policy.
    ignored: Vec<String>,
    /// The baseline, if it was named.
    baseline: Option<String>,
    /// Accuracies whose cost is reported.
    targets: Vec<f64>,
    /// The axis of costs, if it was named.
    axis: Option<Axis>,
}

impl Finished {
    /// Checks that these runs are the arms of one comparison, with the baseline, targets and axis of a question.
    ///
    /// # Errors
    ///
    /// A run is not finished, not evaluated, of another task, or a copy; or arms differ in more than their policies.
    pub fn of(
        runs: &[PathBuf],
        histories: &[History],
        ignored: &[String],
        question: &Question,
    ) -> Result<Self> {
        let all = complaints(histories, ignored);
        if !all.is_empty() {
            let what = format!("these runs can't be compared, for {}", count(all.len() as u64, "reason"));
            let ways = "`--ignore KEY` allows a key to differ, and `allot report` compares what it can, with warnings";
            return Err(Error::new(what).hints(all).hint(ways));
        }
        let whole = |run: &PathBuf| std::fs::canonicalize(run).map_err(|e| Error::file("read", run, &e));
        Ok(Self {
            runs: runs.iter().map(whole).collect::<Result<_>>()?,
            seeds: planned(histories),
            ignored: ignored.to_vec(),
            baseline: question.baseline.clone(),
            targets: question.targets.clone(),
            axis: question.axis,
        })
    }

    /// Keeps the list in a folder: this one, a new one or one that it extends, or else the next free one below `runs/`.
    ///
    /// # Errors
    ///
    /// The folder is of something else, has runs that are not among these, or other targets.
    pub fn keep(&mut self, out: Option<&Path>) -> Result<PathBuf> {
        if let Some(out) = out {
            self.extends(out)?;
        }
        let folder = run_dir::new(out, Path::new("compared"))?;
        let text = serde_json::to_string_pretty(self).map_err(|e| Error::new(format!("no JSON: {e}")))?;
        write_lasting(&folder.join(LIST), format!("{text}\n").as_bytes())?;
        lasting(&folder)?;
        Ok(folder)
    }

    /// Checks that this is what the folder compares, or more of it. Takes over what was not named anew.
    fn extends(&mut self, folder: &Path) -> Result<()> {
        let shown = folder.display();
        let Some(old) = listed(folder)? else {
            let taken = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
            let hint = if folder.join(CONFIG).exists() {
                "a comparison grows by `--resume` and `--seeds`"
            } else {
                "name another folder, or a new one"
            };
            let what = format!("`{shown}` has files, and is no comparison of finished runs");
            return if taken { Err(Error::new(what).hint(hint)) } else { Ok(()) };
        };
        if let Some(run) = old.runs.iter().find(|run| !self.runs.contains(run)) {
            let what = format!("`{shown}` compares `{}`, which is not among these runs", run.display());
            let hint = "name it too, as leaving runs out changes what p-values say; or name another folder";
            return Err(Error::new(what).hint(hint));
        }
        if self.targets.is_empty() {
            self.targets.clone_from(&old.targets);
        } else if !old.targets.is_empty() && old.targets != self.targets {
            let what = format!("`{shown}` has the targets {:?}, not {:?}", old.targets, self.targets);
            return Err(Error::new(what).hint("targets are set once; name another folder for others"));
        }
        self.baseline = self.baseline.take().or(old.baseline);
        self.axis = self.axis.or(old.axis);
        Ok(())
    }

    /// Returns the question of the comparison in a folder.
    pub fn question(&self, folder: &Path) -> Result<Question> {
        Ok(Question {
            baseline: self.baseline.clone(),
            targets: self.targets.clone(),
            axis: self.axis,
            planned: self.seeds.clone(),
            looks: looks::read(folder)?,
            ..Question::default()
        })
    }
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
