//! Checkpoints: a run's whole state between two steps or within one, as a folder that is written aside, hashed, and
//! then renamed. Whatever stops the program, the checkpoints that have their name are whole.

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

/// What a checkpoint is called while it is written, before its name.
const WRITING: &str = ".writing-";
/// What one is called whose place a new one of the same step takes, before its name.
const REPLACED: &str = ".replaced-";

/// The state of a run without its model and optimizer. What may be large is borrowed from the run when it is written, so
/// that a checkpoint never copies the buffered rollouts.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunState<'a, R = allot_loop::State> {
    /// The loop's state: the policy's memory, the pool, the buffer, the ledger, and the place within a step.
    pub run: R,
    /// Optimizer steps made.
    pub optimizer_steps: u32,
    /// The buffered rollouts as the engine knows them, in the order of their numbers.
    pub samples: Vec<(RolloutId, Cow<'a, Sample<Answer>>)>,
    /// Rollouts of a round that was interrupted.
    pub paid: Cow<'a, [Paid<Answer>]>,
    /// What evaluation spent.
    pub evaluation: Spent,
    /// Sums of the current step.
    pub tally: StepTally,
    /// Sums of steps that are decided and wait for their updates.
    #[serde(default = "VecDeque::new", skip_serializing_if = "VecDeque::is_empty")]
    pub waiting: VecDeque<Waiting>,
    /// What the closing table is made of.
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
    /// Takes out the rows whose rollouts are still buffered.
    pub fn take_pending(&mut self) -> Vec<RolloutRow> {
        std::mem::take(&mut self.pending).into_iter().map(Cow::into_owned).collect()
    }
}

/// What a checkpoint is of, and the hashes of its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// Steps finished.
    pub steps: u32,
    /// The sha256 of the config in force.
    pub config: String,
    /// The policy's component's sha256.
    pub policy: String,
    /// The hash of the weights that the run began with.
    pub model: String,
    /// Each file's sha256, by its path in the folder.
    pub files: BTreeMap<String, String>,
}

/// A checkpoint whose files are all as they were written: its folder, and its manifest.
pub type Whole = (PathBuf, Manifest);

/// Where a run's checkpoints are.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: u32,
}

impl Checkpoints {
    /// The checkpoints of a run's folder, the last `keep` of which are kept.
    pub fn of(run: &Path, keep: u32) -> Self {
        Self { folder: run.join("checkpoints"), keep }
    }

    /// Writes a checkpoint. `fill` writes the model into a folder; `manifest` lacks its files. Gives the
    /// checkpoint's folder.
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
            // On the disk before the folder has its name, adapters in theirs, too.
            lasting_whole(&aside)?;
            // The same step again, as at the end of a run. Until the new one has its name there is the
            // old one, under either of its names.
            if place.exists() {
                let old = self.folder.join(format!("{REPLACED}{name}"));
                std::fs::rename(&place, &old).map_err(|e| told(&old, &e))?;
            }
            std::fs::rename(&aside, &place).map_err(|e| told(&place, &e))?;
            lasting(&self.folder)?;
            // And all that the run has beside it, which was made since it began.
            self.folder.parent().map_or(Ok(()), lasting)
        };
        write().inspect_err(|_| {
            let _ = std::fs::remove_dir_all(&aside);
        })?;
        // One of a later step is of a future that did not come: it was damaged, and an earlier one taken.
        let (past, future): (Vec<_>, Vec<_>) = self.all()?.into_iter().partition(|p| *p <= place);
        for old in past.iter().rev().skip(self.keep as usize).chain(&future) {
            std::fs::remove_dir_all(old).map_err(|e| Error::file("remove", old, &e))?;
        }
        self.clear()?;
        Ok(place)
    }

    /// Puts in order what a stop in the middle of writing left: one that was to be replaced has its name
    /// again where the new one has not got it, and all else that has no name goes away.
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

    /// Whether one was being written when the program stopped.
    pub fn interrupted(&self) -> Result<bool> {
        let writing = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(WRITING));
        Ok(self.entries()?.iter().any(writing))
    }

    /// The newest checkpoint whose files are all as they were written, if there is one, and what is wrong
    /// with those that are newer.
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

    /// What the newest one says it is of, its files unseen.
    pub fn latest(&self) -> Result<Option<Manifest>> {
        self.clear()?;
        Ok(self.all()?.last().and_then(|folder| manifest(folder).ok()))
    }

    /// All that have their name, the oldest first.
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

/// Writes a value as JSON, part by part: the text of many long rollouts is larger than they are.
fn streamed(value: &impl Serialize, path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 16, File::create(path)?);
    serde_json::to_writer(&mut file, value)?;
    file.flush()
}

/// Reads a checkpoint's state, without its text in memory as a whole.
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

/// A checkpoint's manifest.
fn manifest(folder: &Path) -> Result<Manifest> {
    let path = folder.join("manifest.json");
    let bytes = std::fs::read(&path).map_err(|e| Error::file("read", &path, &e))?;
    serde_json::from_slice(&bytes)
        .map_err(|e| Error::new(format!("`{}` is not a valid manifest: {e}", path.display())))
}

/// A checkpoint's manifest, after every file was found to be as it says.
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

/// All files below a folder, in order.
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

/// The sha256 of a file, in hexadecimal.
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
