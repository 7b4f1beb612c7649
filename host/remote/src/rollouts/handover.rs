//! The handover of weights: one folder for each version, complete or absent.
//!
//! A folder's name is its label, which the server stores with the weights: the run's tag, the version, and
//! a hash of the weights. So the server can't have other weights under a label.

use std::path::{Path, PathBuf};

use allot_engine::EngineError;
use allot_engine::core::Core;

use crate::client::told;

/// The prefix of every label.
pub(crate) const OURS: &str = "allot-";
/// The prefix of a folder that is being written.
const WRITING: &str = ".writing-";

/// Writes a model in Hugging Face layout into a new folder, and returns a hash of its weights in
/// hexadecimal.
pub type Write = dyn Fn(&dyn Core, &Path) -> Result<String, EngineError>;

/// The handover folder and its contents.
pub struct Handover {
    folder: PathBuf,
    /// The folder's path on the server.
    there: String,
    /// A tag that distinguishes this run's folders from others.
    tag: String,
    write: Box<Write>,
    /// The version and label of the last weights written.
    last: Option<(u32, String)>,
}

impl Handover {
    /// Returns the folder for one run's weights. `there` is its path on the server.
    pub fn new(folder: PathBuf, there: String, tag: &str, write: Box<Write>) -> Self {
        Self { folder, there, tag: format!("{OURS}{tag}-"), write, last: None }
    }

    /// Writes the weights of this version unless they are already there. Returns their label.
    pub(crate) fn put(&mut self, core: &dyn Core, version: u32) -> Result<String, EngineError> {
        if let Some((at, label)) = &self.last
            && *at == version
            && self.folder.join(label).is_dir()
        {
            return Ok(label.clone());
        }
        let aside = self.folder.join(format!("{WRITING}{}{version:06}", self.tag));
        // Left over from an interrupted write.
        if aside.exists() {
            std::fs::remove_dir_all(&aside).map_err(|e| failed("remove", &aside, &e))?;
        }
        let hash = (self.write)(core, &aside).inspect_err(|_| {
            let _ = std::fs::remove_dir_all(&aside);
        })?;
        let label = format!("{}{version:06}-{}", self.tag, &hash[..hash.len().min(16)]);
        let place = self.folder.join(&label);
        if place.exists() {
            // The same weights, from before the run was stopped.
            std::fs::remove_dir_all(&place).map_err(|e| failed("remove", &place, &e))?;
        }
        std::fs::rename(&aside, &place).map_err(|e| failed("write", &place, &e))?;
        self.last = Some((version, label.clone()));
        Ok(label)
    }

    /// Returns the server's path to a label's folder.
    pub(crate) fn seen(&self, label: &str) -> String {
        format!("{}/{label}", self.there.trim_end_matches('/'))
    }

    /// Removes all of this run's folders except a label's. Ignores failures, which only cost disk space.
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

    /// Checks that weights can be written into a folder, by creating and removing a folder in it.
    pub(crate) fn try_folder(folder: &Path) -> Result<(), EngineError> {
        let probe = folder.join(format!("{WRITING}{}", std::process::id()));
        // Does not create `folder` itself, because a wrong path would then be created.
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
