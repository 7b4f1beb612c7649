//! Copies of components, kept by hash in the folder of a run or a comparison. If a component is rebuilt at
//! its path, a run that resumes still finds its own build, and does not use the new one by accident.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use allot_base::{Error, Result, is_registry_address, lasting, write_lasting};
use allot_config::PolicyConfig;
use allot_record::Reader;
use allot_sandbox::sha256;

use crate::checkpoint::Checkpoints;
use crate::policy_loader;
use crate::screen::Screen;

/// A copy of a component in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The folder of a run or a comparison.
    pub folder: PathBuf,
    /// The component's sha256.
    pub sha256: String,
}

impl Copy {
    /// Returns its bytes; none if the folder has no such copy. Fails if the copy is damaged.
    pub fn bytes(&self) -> Result<Option<Vec<u8>>> {
        kept(&self.folder, &self.sha256)
    }

    /// Copies the component into a run's folder before the run begins.
    pub fn hand(&self, run: &Path) -> Result<()> {
        let bytes = if place(run, &self.sha256).exists() { None } else { self.bytes()? };
        bytes.map_or(Ok(()), |bytes| keep(run, &bytes))
    }
}

/// Stores a component in the folder of a run or a comparison.
pub fn keep(run: &Path, bytes: &[u8]) -> Result<()> {
    let hash = sha256(bytes);
    let place = place(run, &hash);
    if place.exists() {
        return Ok(());
    }
    let folder = run.join("components");
    std::fs::create_dir_all(&folder).map_err(|e| Error::file("write", &place, &e))?;
    write_lasting(&place, bytes)?;
    lasting(&folder)
}

/// Returns a component's bytes: the copy in `folder` with the hash in the config, or else the component
/// that the config names.
pub fn demanded(folder: Option<&Path>, policy: &PolicyConfig, screen: &mut Screen<'_>) -> Result<Vec<u8>> {
    let copy = folder.zip(policy.sha256.as_ref());
    let copy = copy.map(|(folder, hash)| kept(folder, &hash.to_lowercase())).transpose()?.flatten();
    copy.map_or_else(|| policy_loader::bytes(&policy.source, screen), Ok)
}

/// Returns the bytes of a run's policy: the run's copy of its current component, or else the named one.
/// Without a run, returns the named one.
pub fn of(run: Option<&Path>, named: &str, screen: &mut Screen<'_>) -> Result<Vec<u8>> {
    let Some((run, hash)) = run.and_then(|run| Some((run, in_charge(run)?))) else {
        return policy_loader::bytes(named, screen);
    };
    // Runs of older versions kept no copies.
    let Some(bytes) = kept(run, &hash)? else { return policy_loader::bytes(named, screen) };
    let by_now = (!is_registry_address(named)).then(|| policy_loader::bytes(named, screen).ok()).flatten();
    if by_now.is_some_and(|by_now| sha256(&by_now) != hash) {
        let own = &hash[..12];
        screen.tell(format_args!(
            "note: `{named}` has changed since the run began; the run's own copy is used, sha256 {own}"
        ));
    }
    Ok(bytes)
}

/// Returns the bytes of a component that decided in a run, by its hash. If the run has no copy, returns the
/// run's current component.
pub fn decided(run: &Path, hash: &str, named: &str, screen: &mut Screen<'_>) -> Result<Vec<u8>> {
    let before = in_charge(run).is_some_and(|now| now != hash);
    let kept = if before { kept(run, hash)? } else { None };
    kept.map_or_else(|| of(Some(run), named, screen), Ok)
}

/// Returns the hash of a run's current component, from its newest checkpoint or the first line of its
/// record.
pub fn in_charge(run: &Path) -> Option<String> {
    let latest = Checkpoints::of(run, 1).latest().ok().flatten().map(|manifest| manifest.policy);
    latest.or_else(|| Some(Reader::open(run).ok()?.1.policy.sha256))
}

/// Returns a run's copy of a component. Fails if the copy does not match its hash.
fn kept(run: &Path, hash: &str) -> Result<Option<Vec<u8>>> {
    // The hash becomes part of a path.
    if hash.len() != 64 || !hash.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(None);
    }
    let place = place(run, hash);
    let bytes = match std::fs::read(&place) {
        Ok(bytes) => bytes,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(e) => return Err(Error::file("read", &place, &e)),
    };
    if sha256(&bytes) != hash {
        let what = format!("`{}` does not contain the component that it is named after", place.display());
        return Err(Error::new(what)
            .hint("restore the file, or remove it: then the component that the config names is used"));
    }
    Ok(Some(bytes))
}

fn place(run: &Path, hash: &str) -> PathBuf {
    run.join("components").join(format!("{hash}.wasm"))
}
