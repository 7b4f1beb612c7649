//! The place where a project is built, and its result.

use std::path::{Path, PathBuf};

use allot_base::{Error, Result};
use allot_component::Kind;
use tempfile::TempDir;

use crate::component::{CONTRACT, CONTRACT_0_1, CONTRACT_0_2, REWARD, REWARD_0_1};
use crate::language::Language;

/// A built project.
pub struct Built {
    /// Its component.
    pub component: Vec<u8>,
    /// The toolchain that built it.
    pub toolchain: String,
}

/// The place where a project is built: its folder, the SDK, the contract, and a temporary folder for the
/// result.
pub(super) struct Bench {
    pub(super) folder: PathBuf,
    /// The project's kind.
    pub(super) kind: Kind,
    /// The SDK: the project's own copy, or this program's.
    pub(super) sdk: PathBuf,
    pub(super) scratch: TempDir,
}

impl Bench {
    pub(super) fn new(folder: &Path, language: Language, kind: Kind) -> Result<Self> {
        let folder = std::path::absolute(folder).map_err(|e| Error::file("find", folder, &e))?;
        let scratch =
            TempDir::new().map_err(|e| Error::file("make", &std::env::temp_dir().join("a folder"), &e))?;
        let own = folder.join("sdk");
        let sdk = if own.is_dir() {
            own
        } else {
            let ours = scratch.path().join("sdk");
            language.sdk(&ours)?;
            ours
        };
        let contract = contract(kind, &sdk);
        let bench = Self { folder, kind, sdk, scratch };
        let wit = bench.wit();
        std::fs::create_dir_all(&wit)
            .and_then(|()| std::fs::write(bench.contract(), contract))
            .map_err(|e| Error::file("write", &wit, &e))?;
        Ok(bench)
    }

    /// Returns the folder with the contract.
    pub(super) fn wit(&self) -> PathBuf {
        self.scratch.path().join("wit")
    }

    /// Returns the contract's file.
    pub(super) fn contract(&self) -> PathBuf {
        self.wit().join(format!("{}.wit", self.kind.world()))
    }

    /// Returns the file to which the component is written.
    pub(super) fn out(&self) -> PathBuf {
        self.scratch.path().join("out.wasm")
    }

    /// Reads the component.
    pub(super) fn built(&self) -> Result<Vec<u8>> {
        std::fs::read(self.out()).map_err(|e| Error::file("read", &self.out(), &e))
    }
}

/// Returns the contract of an SDK: the version that its file `CONTRACT` names, or the first.
fn contract(kind: Kind, sdk: &Path) -> &'static str {
    let named = std::fs::read_to_string(sdk.join("CONTRACT")).unwrap_or_default();
    let version = named.lines().find_map(|line| line.strip_prefix(kind.package())?.strip_prefix('@'));
    match (kind, version) {
        (Kind::Grader, Some(_)) => REWARD,
        (Kind::Grader, None) => REWARD_0_1,
        (Kind::Policy, Some(version)) if version.starts_with("0.2") => CONTRACT_0_2,
        (Kind::Policy, Some(_)) => CONTRACT,
        (Kind::Policy, None) => CONTRACT_0_1,
    }
}
