//! Where weights are handed over: a folder for each version, whole or not there.
//!
//! A folder's name is its label, which the server keeps beside the weights: the run's tag, the version, and a hash of
//! the numbers. So a server can't have other numbers under a name that was asked for.

use std::path::{Path, PathBuf};

use allot_engine::EngineError;
use allot_engine::core::Core;

use crate::client::told;

/// What every label begins with.
pub(crate) const OURS: &str = "allot-";
/// What a folder is called while it is written.
const WRITING: &str = ".writing-";

/// Writes a model's folder in Hugging Face layout into a folder that is not there yet, and gives a hash of its
/// weights in hexadecimal.
pub type Write = dyn Fn(&dyn Core, &Path) -> Result<String, EngineError>;

/// The folder, and what is in it.
pub struct Handover {
    folder: PathBuf,
    /// The same as the server sees it.
    there: String,
    /// What tells this run's folders from others'.
    tag: String,
    write: Box<Write>,
    /// What was written last: the version, and its label.
    last: Option<(u32, String)>,
}

impl Handover {
    /// A folder for one run's weights. `there` is the folder as the server sees it.
    pub fn new(folder: PathBuf, there: String, tag: &str, write: Box<Write>) -> Self {
        Self { folder, there, tag: format!("{OURS}{tag}-"), write, last: None }
    }

    /// Writes the weights of this version, if they are not there yet. Gives their label.
    pub(crate) fn put(&mut self, core: &dyn Core, version: u32) -> Result<String, EngineError> {
        if let Some((at, label)) = &self.last
            && *at == version
            && self.folder.join(label).is_dir()
        {
            return Ok(label.clone());
        }
        let aside = self.folder.join(format!("{WRITING}{}{version:06}", self.tag));
        // What a stop in the middle of writing left.
        if aside.exists() {
            std::fs::remove_dir_all(&aside).map_err(|e| failed("remove", &aside, &e))?;
        }
        let hash = (self.write)(core, &aside).inspect_err(|_| {
            let _ = std::fs::remove_dir_all(&aside);
        })?;
        let label = format!("{}{version:06}-{}", self.tag, &hash[..hash.len().min(16)]);
        let place = self.folder.join(&label);
        if place.exists() {
            // The same numbers, from before the run was stopped.
            std::fs::remove_dir_all(&place).map_err(|e| failed("remove", &place, &e))?;
        }
        std::fs::rename(&aside, &place).map_err(|e| failed("write", &place, &e))?;
        self.last = Some((version, label.clone()));
        Ok(label)
    }

    /// A label's folder as the server sees it.
    pub(crate) fn seen(&self, label: &str) -> String {
        format!("{}/{label}", self.there.trim_end_matches('/'))
    }

    /// Removes all of this run's folders but that of a label. Where that fails they only take up room.
    pub(crate) fn leave(&self, label: Option<&str>) {
        let writing = format!("{WRITING}{}", self.tag);
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let own = name.starts_with(&self.tag) || name.starts_with(&writing);
            if own && Some(name.as_str()) != label {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Whether weights can be written into a folder: makes one in it, and removes that.
    pub(crate) fn try_folder(folder: &Path) -> Result<(), EngineError> {
        let probe = folder.join(format!("{WRITING}{}", std::process::id()));
        // Only the user creates the folder itself: else a wrong path would become one.
        std::fs::create_dir(&probe).map_err(|e| failed("write into", folder, &e))?;
        std::fs::remove_dir(&probe).map_err(|e| failed("remove", &probe, &e))
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        self.leave(None);
    }
}

fn failed(verb: &str, path: &Path, error: &std::io::Error) -> EngineError {
    let why = match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such folder".to_owned(),
        _ => error.to_string(),
    };
    let what = format!("could not {verb} `{}`: {why}", path.display());
    told(what, "set `rollout_server.weights` to a folder that both this program and the server can access")
}
