//! Where a project is built, and what comes out.

use std::path::{Path, PathBuf};

use allot_base::{Error, Result};
use allot_component::Kind;
use tempfile::TempDir;

use crate::component::{CONTRACT, CONTRACT_0_1, REWARD};
use crate::language::Language;

/// A project that was built.
pub struct Built {
    /// Its component.
    pub component: Vec<u8>,
    /// What built it.
    pub toolchain: String,
}

/// Where a project is built: its own folder, what it is written over, the contract, and a place for what comes
/// out.
pub(super) struct Bench {
    pub(super) folder: PathBuf,
    /// What it is a project of.
    pub(super) kind: Kind,
    /// The project's own copy, or else this program's.
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

    /// The folder with the contract.
    pub(super) fn wit(&self) -> PathBuf {
        self.scratch.path().join("wit")
    }

    /// The contract's file.
    pub(super) fn contract(&self) -> PathBuf {
        self.wit().join(format!("{}.wit", self.kind.world()))
    }

    /// Where what comes out is to be written.
    pub(super) fn out(&self) -> PathBuf {
        self.scratch.path().join("out.wasm")
    }

    /// What came out.
    pub(super) fn built(&self) -> Result<Vec<u8>> {
        std::fs::read(self.out()).map_err(|e| Error::file("read", &self.out(), &e))
    }
}

/// The contract that an SDK speaks: of those for policies what the file of that name has, and 0.1 where there is none.
fn contract(kind: Kind, sdk: &Path) -> &'static str {
    match kind {
        Kind::Grader => REWARD,
        Kind::Policy if sdk.join("CONTRACT").is_file() => CONTRACT,
        Kind::Policy => CONTRACT_0_1,
    }
}
