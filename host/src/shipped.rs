//! The policies that ship with the program, and the way from a policy's name or path to a loaded
//! policy. What ships is whatever lies in `policies/prebuilt`: no name of any policy is written
//! here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use allot_record::CapsStamp;
use allot_sandbox::{Caps, LoadError, Policy, Sandbox};
use include_dir::{Dir, include_dir};
use serde::{Deserialize, Serialize};

use crate::trouble::{Result, Trouble, did_you_mean};

static PREBUILT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../policies/prebuilt");

/// What is written beside the components that ship: what they were built from, and with what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The components, by name.
    pub components: Vec<Entry>,
}

/// One component of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The policy's name: the component is `NAME.wasm`.
    pub name: String,
    /// The component's sha256.
    pub sha256: String,
    /// One sha256 over the sources and the contract that it was built from.
    pub sources: String,
    /// The compiler that built it.
    pub toolchain: String,
}

/// Names of the policies that ship.
pub fn names() -> Vec<&'static str> {
    let files = PREBUILT.files().map(include_dir::File::path);
    let mut names: Vec<&str> = files
        .filter(|p| p.extension().is_some_and(|e| e == "wasm"))
        .filter_map(|p| p.file_stem()?.to_str())
        .collect();
    names.sort_unstable();
    names
}

/// The component of a policy that ships.
pub fn component(name: &str) -> Option<&'static [u8]> {
    PREBUILT.get_file(format!("{name}.wasm")).map(include_dir::File::contents)
}

/// The manifest of what ships.
pub fn manifest() -> Option<Manifest> {
    serde_json::from_slice(PREBUILT.get_file("manifest.json")?.contents()).ok()
}

/// Limits as a record has them.
pub fn stamp(caps: Caps) -> CapsStamp {
    CapsStamp { fuel: caps.fuel, seconds: caps.time.as_secs_f64(), memory: caps.memory }
}

/// Limits from a record. Seconds that no config takes come from one that was edited: then the default's.
pub fn caps(stamp: CapsStamp) -> Caps {
    let time = Duration::try_from_secs_f64(stamp.seconds).unwrap_or(Caps::default().time);
    Caps { fuel: stamp.fuel, time, memory: stamp.memory }
}

/// A sandbox with these limits, its compiled code kept in the user's cache folder.
pub fn sandbox(caps: Caps) -> Result<Sandbox> {
    Sandbox::new(caps, cache("wasm").as_deref()).map_err(|e| Trouble::new(e.to_string()))
}

/// Loads a policy by the name of one that ships, or by the path of a component. Anything with a
/// slash or a file ending is a path.
pub fn load(sandbox: &Sandbox, source: &str, sha256: Option<&str>) -> Result<Policy> {
    let path = Path::new(source);
    let is_path = source.contains(['/', '\\']) || path.extension().is_some();
    let told = |e: LoadError| Trouble::told(format!("could not load policy `{source}`: {e}"), e.hint());
    if is_path {
        let about = std::fs::metadata(path).map_err(|e| Trouble::file("read", path, &e))?;
        if !about.is_file() {
            return Err(Trouble::new(format!("could not load policy `{source}`: it is no file")));
        }
        if about.len() > Sandbox::largest() {
            return Err(told(LoadError::TooLarge(about.len(), Sandbox::largest())));
        }
        let bytes = std::fs::read(path).map_err(|e| Trouble::file("read", path, &e))?;
        return sandbox.load(&bytes, sha256).map_err(told);
    }
    if let Some(bytes) = component(source) {
        return sandbox.load(bytes, sha256).map_err(told);
    }
    let near = did_you_mean(source, names());
    let own = "a component of your own is given by its path, as in `./mine.wasm`";
    Err(Trouble::new(format!("no policy is called `{source}`")).hint(format!("{near}\nhint: {own}")))
}

/// The folder in which this user's copies of a kind are kept, if there is one.
pub fn cache(kind: &str) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(own) = set("ALLOT_CACHE") {
        return std::path::absolute(own.join(kind)).ok();
    }
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    base.is_absolute().then(|| base.join("allot").join(kind))
}
