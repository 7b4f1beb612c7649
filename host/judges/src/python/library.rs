//! Packages of pure Python that an interpreter has imported before any answer comes. There are no files: modules come
//! from memory, where the wheels' sources are put once, and a copy that has imported them is made like one that has started.

use std::io::{Cursor, Read as _};
use std::path::Path;

use allot_base::{Error, Result};
use allot_component::sha256;
use zip::ZipArchive;

/// Finds modules in memory.
const IMPORTER: &str = include_str!("library.py");

/// A wheel of the Python Package Index, pinned.
#[derive(Debug)]
pub struct Wheel {
    /// The package.
    pub package: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The file's name.
    pub file: &'static str,
    /// Its hash.
    pub sha256: &'static str,
}

/// Packages, and what is run with them once.
pub struct Library {
    name: &'static str,
    /// Paths as an import has them, with their sources.
    files: Vec<(String, Vec<u8>)>,
    setup: String,
    sha256: String,
}

impl Library {
    /// Of these wheels, which are in a folder; `setup` imports what is to be at hand.
    ///
    /// # Errors
    ///
    /// A wheel that is not there, or is not the one that is pinned.
    pub fn new(name: &'static str, wheels: &[Wheel], folder: &Path, setup: &str) -> Result<Self> {
        let mut files = Vec::new();
        for wheel in wheels {
            let path = folder.join(wheel.file);
            let bytes = std::fs::read(&path).map_err(|e| Error::file("read", &path, &e))?;
            if sha256(&bytes) != wheel.sha256 {
                let what =
                    format!("`{}` is not the pinned wheel; expected sha256 {}", path.display(), wheel.sha256);
                return Err(Error::new(what));
            }
            let broken =
                |e: &dyn std::fmt::Display| Error::new(format!("`{}` is broken: {e}", path.display()));
            let mut zip = ZipArchive::new(Cursor::new(bytes)).map_err(|e| broken(&e))?;
            for i in 0..zip.len() {
                let mut file = zip.by_index(i).map_err(|e| broken(&e))?;
                let name = file.name().map_err(|e| broken(&e))?.into_owned();
                if wanted(&name) {
                    let mut bytes = Vec::new();
                    file.read_to_end(&mut bytes).map_err(|e| broken(&e))?;
                    files.push((name, bytes));
                }
            }
        }
        let setup = format!("{IMPORTER}\n{setup}");
        let hashes: Vec<&str> = wheels.iter().map(|wheel| wheel.sha256).chain([setup.as_str()]).collect();
        let sha256 = sha256(hashes.join(" "));
        Ok(Self { name, files, setup, sha256 })
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The hash of all that it is made of.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The program that imports it.
    pub fn setup(&self) -> &str {
        &self.setup
    }

    /// What that program reads: a line with each path and its length, followed by the file.
    pub fn input(&self) -> Vec<u8> {
        let mut input = Vec::new();
        for (path, bytes) in &self.files {
            input.extend_from_slice(format!("{} {path}\n", bytes.len()).as_bytes());
            input.extend_from_slice(bytes);
        }
        input
    }
}

/// Sources, and the files in which packages tell their versions. Not the packages' own tests.
fn wanted(path: &str) -> bool {
    let is = |ending: &str| path.ends_with(ending);
    let not = ["/tests/", "/benchmarks/"];
    (is(".py") || is(".dist-info/METADATA")) && !not.iter().any(|part| path.contains(part))
}
