//! The components that have decided in a run, or that a comparison's runs shall have, kept in a folder by their hashes. One
//! that was built anew in its place neither strands a run that goes on nor slips into it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use allot_base::{Error, Result, is_registry_address, lasting, write_lasting};
use allot_config::PolicyConfig;
use allot_record::Reader;
use allot_sandbox::sha256;

use crate::checkpoint::Checkpoints;
use crate::policy_loader;
use crate::screen::Screen;

/// A component in the folder that keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The folder, a run's or a comparison's.
    pub folder: PathBuf,
    /// The component's hash.
    pub sha256: String,
}

impl Copy {
    /// Its bytes; none if the folder has no such copy. Fails where the copy is damaged.
    pub fn bytes(&self) -> Result<Option<Vec<u8>>> {
        kept(&self.folder, &self.sha256)
    }

    /// Gives a run the same component before it begins.
    pub fn hand(&self, run: &Path) -> Result<()> {
        let bytes = if place(run, &self.sha256).exists() { None } else { self.bytes()? };
        bytes.map_or(Ok(()), |bytes| keep(run, &bytes))
    }
}

/// Keeps a component in a run's folder, or in a comparison's.
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

/// The bytes of the component that a config demands by its hash, where a folder keeps a copy, or else of the one that the
/// config names.
pub fn demanded(folder: Option<&Path>, policy: &PolicyConfig, screen: &mut Screen<'_>) -> Result<Vec<u8>> {
    let copy = folder.zip(policy.sha256.as_ref());
    let copy = copy.map(|(folder, hash)| kept(folder, &hash.to_lowercase())).transpose()?.flatten();
    copy.map_or_else(|| policy_loader::bytes(&policy.source, screen), Ok)
}

/// The bytes of a run's policy: of the component that is in charge, as the run has kept it, or else of the one
/// that is named. Of no run it is that one in any case.
pub fn of(run: Option<&Path>, named: &str, screen: &mut Screen<'_>) -> Result<Vec<u8>> {
    let Some((run, hash)) = run.and_then(|run| Some((run, in_charge(run)?))) else {
        return policy_loader::bytes(named, screen);
    };
    // A run of an older version kept none.
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

/// The bytes of the component of this hash, which decided in a run at some time; of a run that has not kept it, of the
/// one that is in charge.
pub fn decided(run: &Path, hash: &str, named: &str, screen: &mut Screen<'_>) -> Result<Vec<u8>> {
    let before = in_charge(run).is_some_and(|now| now != hash);
    let kept = if before { kept(run, hash)? } else { None };
    kept.map_or_else(|| of(Some(run), named, screen), Ok)
}

/// The hash of the component that is in charge of a run: as its newest checkpoint says, or the first line of its
/// record.
pub fn in_charge(run: &Path) -> Option<String> {
    let latest = Checkpoints::of(run, 1).latest().ok().flatten().map(|manifest| manifest.policy);
    latest.or_else(|| Some(Reader::open(run).ok()?.1.policy.sha256))
}

/// A component that a run has kept. Fails where it is not what it is called by.
fn kept(run: &Path, hash: &str) -> Result<Option<Vec<u8>>> {
    // It becomes a path.
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
