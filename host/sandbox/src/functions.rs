//! Compiled functions of large components, which the next large component uses again.
//!
//! A component of an interpreted language contains its interpreter. Such components share nearly all functions, and an author
//! builds one after each edit: wasmtime's own cache, which has whole components, finds none of them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use allot_base::write_whole;
use wasmtime::CacheStore;

/// The first line of a file, followed by the hash of the rest.
const HEAD: &str = "allot: compiled functions, 1\n";
/// Characters of a hash.
const HASH: usize = 64;
/// Bytes of a function's key, which is a SHA-256 of its code and of all that its compilation depends on, the compiler's version
/// and the processor among it (`cranelift_codegen::incremental_cache::CacheKey`).
const KEY: usize = 32;
/// The most bytes of code in a file: about four interpreters. Beyond it, only what the last component used stays.
const MOST: usize = 192 << 20;

type Key = [u8; KEY];

/// The compiled functions in a file.
pub(crate) struct Functions {
    file: PathBuf,
    // `None` while nothing is compiled: most components come from wasmtime's own cache, and this is tens of megabytes.
    known: Mutex<Option<HashMap<Key, Code>>>,
}

struct Code {
    bytes: Vec<u8>,
    used: bool,
    new: bool,
}

impl Functions {
    /// Returns the functions kept in `cache`, the folder of wasmtime's own cache. They are read when the first one is needed.
    pub fn of(cache: &Path) -> Self {
        // wasmtime counts and removes a file at this depth without an extension as one of its own.
        Self {
            file: cache.join("functions").join(std::env::consts::ARCH).join("kept"),
            known: Mutex::new(None),
        }
    }

    /// Writes what was added, and lets go of the memory. A file that can't be written costs time, but changes no result.
    pub fn keep(&self) {
        if let Some(known) = self.known().take()
            && known.values().any(|code| code.new)
        {
            let _ = write(&self.file, &known, MOST);
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<HashMap<Key, Code>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheStore for Functions {
    fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let mut known = self.known();
        let code = known.get_or_insert_with(|| read(&self.file)).get_mut(key)?;
        code.used = true;
        Some(Cow::Owned(code.bytes.clone()))
    }

    fn insert(&self, key: &[u8], bytes: Vec<u8>) -> bool {
        let Ok(key) = key.try_into() else { return false };
        let mut known = self.known();
        let code = Code { bytes, used: true, new: true };
        known.get_or_insert_with(|| read(&self.file)).insert(key, code);
        true
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Functions").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Reads a file. One that is missing, cut off or changed has no functions.
fn read(file: &Path) -> HashMap<Key, Code> {
    let Ok(bytes) = fs::read(file) else { return HashMap::new() };
    entries(&bytes).unwrap_or_default()
}

fn entries(bytes: &[u8]) -> Option<HashMap<Key, Code>> {
    let (hash, mut rest) = bytes.strip_prefix(HEAD.as_bytes())?.split_at_checked(HASH)?;
    if allot_component::sha256(rest).as_bytes() != hash {
        return None;
    }
    let mut known = HashMap::new();
    while let Some((key, after)) = rest.split_first_chunk::<KEY>() {
        let (length, after) = after.split_first_chunk::<4>()?;
        let (code, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        known.insert(*key, Code { bytes: code.to_vec(), used: false, new: false });
        rest = after;
    }
    rest.is_empty().then_some(known)
}

/// Writes a file, without what was not used if all of it is more than `most` bytes.
fn write(file: &Path, known: &HashMap<Key, Code>, most: usize) -> io::Result<()> {
    let all: usize = known.values().map(|code| code.bytes.len()).sum();
    let mut bytes = Vec::with_capacity(HEAD.len() + HASH + known.len() * (KEY + 4) + all);
    bytes.extend_from_slice(HEAD.as_bytes());
    bytes.extend_from_slice(&[0; HASH]);
    for (key, code) in known.iter().filter(|(_, code)| all <= most || code.used) {
        let length = u32::try_from(code.bytes.len()).map_err(io::Error::other)?;
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&code.bytes);
    }
    let (hash, rest) = bytes[HEAD.len()..].split_at_mut(HASH);
    hash.copy_from_slice(allot_component::sha256(rest).as_bytes());
    write_whole(file, &bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tempfile::TempDir;
    use wasmtime::Engine;
    use wasmtime::component::Component;

    use super::*;
    use crate::{Caps, Guests, Sandbox, shipped};

    fn folder() -> TempDir {
        tempfile::tempdir().expect("a folder")
    }

    fn component() -> &'static [u8] {
        shipped::component(shipped::names()[0]).expect("it ships")
    }

    /// The same component, with a section that nothing reads: it becomes large, and another file.
    fn large(mark: u8) -> Vec<u8> {
        // A custom section: 0, its size in LEB128, a name of one byte, and `mark` again and again.
        let size = 2 << 20;
        let mut bytes = component().to_vec();
        bytes.extend([0, 0x80, 0x80, 0x80, 0x01, 1, b'x']);
        bytes.resize(bytes.len() + size - 2, mark);
        bytes
    }

    /// The machine code that a component is compiled to.
    fn compiled(functions: Option<&Arc<Functions>>) -> Vec<u8> {
        let mut config = Guests::Components.config(None);
        if let Some(functions) = functions {
            config.enable_incremental_compilation(Arc::clone(functions) as _).expect("a store");
        }
        let code = Component::from_binary(&Engine::new(&config).expect("an engine"), component())
            .expect("it compiles");
        code.serialize().expect("it is whole")
    }

    fn counts(functions: &Functions) -> (usize, usize) {
        let known = functions.known();
        let all = || known.as_ref().into_iter().flat_map(HashMap::values);
        (all().filter(|code| code.used).count(), all().filter(|code| code.new).count())
    }

    #[test]
    fn kept_functions_make_the_same_code_to_the_byte() {
        let folder = folder();
        let plain = compiled(None);

        let first = Arc::new(Functions::of(folder.path()));
        assert!(compiled(Some(&first)) == plain);
        let (used, new) = counts(&first);
        assert!(used > 50 && new == used, "{used} {new}");
        first.keep();
        assert_eq!(counts(&first), (0, 0));

        let second = Arc::new(Functions::of(folder.path()));
        assert!(compiled(Some(&second)) == plain);
        // A function's key has numbers that depend on what the same thread compiled before it, so some are new.
        let (used, new) = counts(&second);
        assert!(new < used / 2, "{used} {new}");
    }

    #[test]
    fn a_file_that_is_damaged_is_made_again() {
        let folder = folder();
        let functions = Arc::new(Functions::of(folder.path()));
        let plain = compiled(Some(&functions));
        functions.keep();
        let whole = fs::read(&functions.file).expect("a file");

        let mut changed = whole.clone();
        changed[whole.len() / 2] ^= 1;
        let other = [b"allot: compiled functions, 0\n", &whole[HEAD.len()..]].concat();
        for damaged in [&whole[..whole.len() / 2], &changed, &other, b"", &whole[..10]] {
            fs::write(&functions.file, damaged).expect("a file");
            assert!(read(&functions.file).is_empty());
            assert!(compiled(Some(&functions)) == plain);
            functions.keep();
            assert!(read(&functions.file).len() > 50);
        }
    }

    #[test]
    fn a_file_that_grew_too_large_keeps_what_was_used_last() {
        let folder = folder();
        let functions = Functions::of(folder.path());
        let code = |bytes: usize, used| Code { bytes: vec![7; bytes], used, new: used };
        let known = |old: usize| HashMap::from([([1; KEY], code(old, false)), ([2; KEY], code(9, true))]);
        write(&functions.file, &known(9), 18).expect("a file");
        assert_eq!(read(&functions.file).len(), 2);
        write(&functions.file, &known(10), 18).expect("a file");
        assert_eq!(read(&functions.file).into_keys().collect::<Vec<_>>(), [[2; KEY]]);
    }

    #[test]
    fn large_components_share_their_functions() {
        let folder = folder();
        let sandbox = Sandbox::new(Caps::default(), Some(folder.path())).expect("a sandbox");
        let kept = Functions::of(folder.path()).file;
        sandbox.load(component(), None).expect("it loads");
        assert!(!kept.exists());

        let one = sandbox.load(&large(1), None).expect("it loads");
        let functions = read(&kept);
        assert!(functions.len() > 50, "{}", functions.len());
        let two = sandbox.load(&large(2), None).expect("it loads");
        assert_eq!(one.description(), two.description());
        let more = read(&kept).len();
        assert!(more < functions.len() * 2, "{more} {}", functions.len());
    }
}
