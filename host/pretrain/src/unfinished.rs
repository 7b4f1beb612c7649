//! An unfinished training: its recipe and its last state, in a folder beside the model's. A resumed
//! training gives the same model, byte for byte.

use std::path::{Path, PathBuf};

use allot_base::{Error, Result, lasting, lasting_up_to, lasting_whole, write_lasting};
use allot_engine::core::Core;
use allot_engine::model::Precision;

use super::{Alphabet, Recipe, folder, told};

/// The name of a state while it is written.
const WRITING: &str = ".writing";

/// The folder that stores a training until it is finished.
#[derive(Clone, Debug)]
pub struct Unfinished(PathBuf);

/// A stored state of a training.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Optimizer steps made.
    pub steps: u32,
    folder: PathBuf,
}

impl Unfinished {
    /// Returns the unfinished training of the model in this folder.
    pub fn of(model: &Path) -> Self {
        Self(folder::beside(model, "", ".unfinished"))
    }

    /// Returns its folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Returns whether it exists, possibly as the remainder of a finished training.
    pub fn exists(&self) -> bool {
        let is_empty = || std::fs::read_dir(&self.0).is_ok_and(|mut entries| entries.next().is_none());
        self.recipe().exists() || is_empty()
    }

    fn recipe(&self) -> PathBuf {
        self.0.join("recipe.json")
    }

    /// Creates it, or returns its last state. Fails if it is from another recipe.
    pub fn begin(&self, recipe: &Recipe) -> Result<Option<Reached>> {
        let text = serde_json::to_string_pretty(recipe).map_err(|e| Error::new(format!("no recipe: {e}")))?;
        let path = self.recipe();
        match std::fs::read_to_string(&path) {
            Ok(there) if there == text => return self.reached(),
            Ok(_) => {
                let what = format!("`{}` has an unfinished training by another recipe", self.0.display());
                return Err(Error::new(what)
                    .hint("go on with the recipe and the overrides that it was begun with, remove the folder, or give another --out"));
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::file("read", &path, &e)),
        }
        std::fs::create_dir_all(&self.0).map_err(|e| Error::file("make", &self.0, &e))?;
        write_lasting(&path, text.as_bytes())?;
        lasting_up_to([], &self.0)?;
        Ok(None)
    }

    /// Returns its last complete state. A state gets its name only when it is complete.
    fn reached(&self) -> Result<Option<Reached>> {
        let entries = std::fs::read_dir(&self.0).map_err(|e| Error::file("read", &self.0, &e))?;
        let all = entries.flatten().filter_map(|entry| {
            let steps = entry.file_name().to_str()?.strip_prefix("step-")?.parse().ok()?;
            Some(Reached { steps, folder: entry.path() })
        });
        Ok(all.max_by_key(|reached| reached.steps))
    }

    /// Stores a state in place of the previous one.
    pub fn keep(&self, core: &dyn Core, alphabet: &Alphabet, steps: u32) -> Result<()> {
        let (aside, place) = (self.0.join(WRITING), self.0.join(format!("step-{steps:08}")));
        let before = self.reached()?;
        folder::cleared(&aside)?;
        if before.as_ref().is_some_and(|before| before.steps == steps) {
            return Ok(());
        }
        let weights = core.checkpoint().map_err(|e| told(&e))?;
        let model = aside.join("model");
        weights.export(&model, Precision::F32, &alphabet.special()).map_err(|e| told(&e))?;
        core.save_training(&aside).map_err(|e| told(&e))?;
        lasting_whole(&aside)?;
        std::fs::rename(&aside, &place).map_err(|e| Error::file("write", &place, &e))?;
        lasting(&self.0)?;
        before.map_or(Ok(()), |before| folder::cleared(&before.folder))
    }

    /// Removes the stored states and, last, the recipe, so that an interrupted removal can be repeated.
    /// Files that this program did not write are kept.
    pub fn done(&self) -> Result<()> {
        while let Some(reached) = self.reached()? {
            folder::cleared(&reached.folder)?;
        }
        folder::cleared(&self.0.join(WRITING))?;
        let path = self.recipe();
        std::fs::remove_file(&path).map_err(|e| Error::file("remove", &path, &e))?;
        match std::fs::remove_dir(&self.0) {
            Err(e) if e.kind() != std::io::ErrorKind::DirectoryNotEmpty => {
                Err(Error::file("remove", &self.0, &e))
            }
            _ => Ok(()),
        }
    }
}

impl Reached {
    /// Resumes training from this state.
    pub(crate) fn restore(&self, core: &mut dyn Core) -> Result<()> {
        let model = self.folder.join("model");
        core.load_training(&self.folder, &model, self.steps)
            .map_err(|e| told(&e).hint(format!("remove `{}` to begin anew", self.folder.display())))
    }
}
