//! Checkpoints: the whole state of a run, between two steps or within one, as a folder that is written
//! aside, hashed and then renamed. A checkpoint with its final name is complete, however the program ends.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use allot_allocation::{RolloutId, Spent};
use allot_base::{Error, Result, lasting, lasting_whole};
use allot_engine::{Answer, Sample};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::summary::Totals;
use crate::tally::{StepTally, Waiting};
use crate::world::Paid;
use allot_outputs::rollouts::RolloutRow;
use allot_record::{Mark, hex};

/// The version of this layout.
pub const FORMAT: u32 = 4;

/// The prefix of a checkpoint that is being written.
const WRITING: &str = ".writing-";
/// The prefix of a checkpoint that a new one of the same step replaces.
const REPLACED: &str = ".replaced-";

/// The state of a run without its model and optimizer. Large parts are borrowed from the run when it is
/// written, so that a checkpoint never copies the buffered rollouts.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunState<'a, R = allot_loop::State> {
    /// The loop's state: the policy's state, the pool, the buffer, the ledger, and the place within a step.
    pub run: R,
    /// Optimizer steps made.
    pub optimizer_steps: u32,
    /// The buffered rollouts in the engine's form, ordered by id.
    pub samples: Vec<(RolloutId, Cow<'a, Sample<Answer>>)>,
    /// Rollouts of a round that was interrupted.
    pub paid: Cow<'a, [Paid<Answer>]>,
    /// Rollouts and tokens spent on evaluation.
    pub evaluation: Spent,
    /// Sums of the current step.
    pub tally: StepTally,
    /// Sums of steps that are decided and wait for their updates.
    #[serde(default = "VecDeque::new", skip_serializing_if = "VecDeque::is_empty")]
    pub waiting: VecDeque<Waiting>,
    /// The totals for the closing table.
    pub totals: Totals,
    /// The length of the record.
    pub record: Mark,
    /// The length of `times.jsonl`.
    pub times: Mark,
    /// The length of `metrics.jsonl`.
    pub metrics: Mark,
    /// The length of the TensorBoard events.
    pub events: Mark,
    /// The length of `log.jsonl`.
    pub log: Mark,
    /// The lengths of the shadows' files, by name.
    pub shadows: BTreeMap<String, Mark>,
    /// Finished parts of the table of rollouts.
    pub parts: Vec<Mark>,
    /// Rows of that table whose rollouts are still buffered.
    pub pending: Vec<Cow<'a, RolloutRow>>,
}

impl RunState<'_> {
    /// Removes and returns the rows whose rollouts are still buffered.
    pub fn take_pending(&mut self) -> Vec<RolloutRow> {
        std::mem::take(&mut self.pending).into_iter().map(Cow::into_owned).collect()
    }
}

/// The identity of a checkpoint, and the hashes of its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// Number of finished steps.
    pub steps: u32,
    /// The sha256 of the resolved config.
    pub config: String,
    /// The policy's component's sha256.
    pub policy: String,
    /// The hash of the run's initial weights.
    pub model: String,
    /// Each file's sha256, by its path in the folder.
    pub files: BTreeMap<String, String>,
}

/// A checkpoint whose files match their hashes: its folder and manifest.
pub type Whole = (PathBuf, Manifest);

/// The checkpoints of a run.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: u32,
}

impl Checkpoints {
    /// Returns the checkpoints of a run's folder, which keeps the last `keep`.
    pub fn of(run: &Path, keep: u32) -> Self {
        Self { folder: run.join("checkpoints"), keep }
    }

    /// Writes a checkpoint and returns its folder. `fill` writes the model into a folder. `manifest` lacks
    /// the files' hashes.
    pub fn write(
        &self,
        state: &RunState<'_, &allot_loop::State>,
        mut manifest: Manifest,
        fill: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let name = format!("step-{:06}", state.run.finished());
        let (aside, place) = (self.folder.join(format!("{WRITING}{name}")), self.folder.join(&name));
        let told = |path: &Path, e: &std::io::Error| Error::file("write", path, e);
        self.clear()?;
        let write = || -> Result<()> {
            std::fs::create_dir_all(&aside).map_err(|e| told(&aside, &e))?;
            fill(&aside)?;
            let path = aside.join("state.json");
            streamed(state, &path).map_err(|e| told(&path, &e))?;
            for file in files(&aside)? {
                let inside = file.strip_prefix(&aside).unwrap_or(&file).display().to_string();
                manifest.files.insert(inside, sha256(&file)?);
            }
            let path = aside.join("manifest.json");
            let text = serde_json::to_vec_pretty(&manifest);
            let text = text.map_err(|e| Error::new(format!("no manifest: {e}")))?;
            std::fs::write(&path, text).map_err(|e| told(&path, &e))?;
            // Synced to disk before the rename, including adapters.
            lasting_whole(&aside)?;
            // The same step again, as at the end of a run. Until the rename, the old checkpoint exists
            // under one of its names.
            if place.exists() {
                let old = self.folder.join(format!("{REPLACED}{name}"));
                std::fs::rename(&place, &old).map_err(|e| told(&old, &e))?;
            }
            std::fs::rename(&aside, &place).map_err(|e| told(&place, &e))?;
            lasting(&self.folder)?;
            // Syncs the run's folder, too, for files that were created since it began.
            self.folder.parent().map_or(Ok(()), lasting)
        };
        write().inspect_err(|_| {
            let _ = std::fs::remove_dir_all(&aside);
        })?;
        // Checkpoints of later steps are obsolete: they were damaged, and the run resumed before them.
        let (past, future): (Vec<_>, Vec<_>) = self.all()?.into_iter().partition(|p| *p <= place);
        for old in past.iter().rev().skip(self.keep as usize).chain(&future) {
            std::fs::remove_dir_all(old).map_err(|e| Error::file("remove", old, &e))?;
        }
        self.clear()?;
        Ok(place)
    }

    /// Cleans up after an interrupted write: a checkpoint that was to be replaced gets its name back if the
    /// new one is missing, and all other temporary folders are removed.
    fn clear(&self) -> Result<()> {
        for path in self.entries()? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let place = name.strip_prefix(REPLACED).map(|name| self.folder.join(name));
            if let Some(place) = place.filter(|place| !place.exists()) {
                std::fs::rename(&path, &place).map_err(|e| Error::file("write", &place, &e))?;
            } else if name.starts_with(REPLACED) || name.starts_with(WRITING) {
                std::fs::remove_dir_all(&path).map_err(|e| Error::file("remove", &path, &e))?;
            }
        }
        Ok(())
    }

    /// Returns whether a checkpoint was being written when the program stopped.
    pub fn interrupted(&self) -> Result<bool> {
        let writing = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(WRITING));
        Ok(self.entries()?.iter().any(writing))
    }

    /// Returns the newest checkpoint whose files match their hashes, if there is one, and the errors of
    /// newer checkpoints.
    pub fn newest(&self) -> Result<(Option<Whole>, Vec<Error>)> {
        self.clear()?;
        let mut broken = Vec::new();
        for folder in self.all()?.into_iter().rev() {
            match verified(&folder) {
                Ok(manifest) => return Ok((Some((folder, manifest)), broken)),
                Err(error) => broken.push(error),
            }
        }
        Ok((None, broken))
    }

    /// Returns the newest manifest without checking its files.
    pub fn latest(&self) -> Result<Option<Manifest>> {
        self.clear()?;
        Ok(self.all()?.last().and_then(|folder| manifest(folder).ok()))
    }

    /// Returns all complete checkpoints, oldest first.
    fn all(&self) -> Result<Vec<PathBuf>> {
        let named = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("step-"));
        let mut all: Vec<PathBuf> = self.entries()?.into_iter().filter(named).collect();
        all.sort();
        Ok(all)
    }

    fn entries(&self) -> Result<Vec<PathBuf>> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::file("read", &self.folder, &e)),
        };
        Ok(entries.filter_map(|e| Some(e.ok()?.path())).collect())
    }
}

/// Writes a value as JSON in parts, because the text of many long rollouts is larger than the rollouts.
fn streamed(value: &impl Serialize, path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 16, File::create(path)?);
    serde_json::to_writer(&mut file, value)?;
    file.flush()
}

/// Reads a checkpoint's state without loading its whole text into memory.
pub fn state(folder: &Path) -> Result<RunState<'static>> {
    let path = folder.join("state.json");
    let file = File::open(&path).map_err(|e| Error::file("read", &path, &e))?;
    let read = serde_json::from_reader(BufReader::with_capacity(1 << 16, file));
    let mut state: RunState<'static> = read.map_err(|e| {
        Error::new(format!("`{}` is not a valid run state: {e}", path.display()))
            .hint("remove this checkpoint: the run then resumes from an earlier one")
    })?;
    state.run.buffer.index();
    Ok(state)
}

/// Returns a checkpoint's manifest.
fn manifest(folder: &Path) -> Result<Manifest> {
    let path = folder.join("manifest.json");
    let bytes = std::fs::read(&path).map_err(|e| Error::file("read", &path, &e))?;
    serde_json::from_slice(&bytes)
        .map_err(|e| Error::new(format!("`{}` is not a valid manifest: {e}", path.display())))
}

/// Returns a checkpoint's manifest if all files match their hashes.
fn verified(folder: &Path) -> Result<Manifest> {
    let manifest = manifest(folder)?;
    if manifest.format != FORMAT {
        let what = format!("`{}` is a checkpoint of format {}", folder.display(), manifest.format);
        let error = Error::new(format!("{what}; this program reads format {FORMAT}"));
        let model = folder.join("model");
        return Err(
            error.hint(format!("begin a new run from its model: `model.use = \"{}\"`", model.display()))
        );
    }
    for (file, hash) in &manifest.files {
        let path = folder.join(file);
        if sha256(&path)? != *hash {
            let what = format!("`{}` does not match its checkpoint's manifest", path.display());
            return Err(Error::new(what));
        }
    }
    Ok(manifest)
}

/// Returns all files below a folder, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|e| Error::file("read", folder, &e))?;
    let mut all = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| Error::file("read", folder, &e))?.path();
        if path.is_dir() { all.extend(files(&path)?) } else { all.push(path) }
    }
    all.sort();
    Ok(all)
}

/// Returns the sha256 of a file, in hexadecimal.
pub fn sha256(path: &Path) -> Result<String> {
    let mut file = File::open(path).map_err(|e| Error::file("read", path, &e))?;
    let mut hash = Sha256::new();
    let mut part = vec![0; 1 << 16];
    loop {
        let n = std::io::Read::read(&mut file, &mut part).map_err(|e| Error::file("read", path, &e))?;
        if n == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&part[..n]);
    }
}
