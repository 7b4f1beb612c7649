//! From a policy's project to a component, with the tools of its language. The tools are the author's; where
//! one is missing, the message says which package has it.

mod c;
mod go;
mod javascript;
mod python;
mod rust;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use allot_error::{Result, Trouble};
use tempfile::TempDir;

pub use rust::sources_hash;

use crate::component::CONTRACT;
use crate::language::Language;

/// A project that was built.
pub struct Built {
    /// Its component.
    pub component: Vec<u8>,
    /// What built it.
    pub toolchain: String,
}

/// The component of a project's folder.
pub fn project(folder: &Path, tell: &mut dyn FnMut(&str)) -> Result<Built> {
    match Language::of(folder)? {
        Language::Rust => rust::component(folder, tell),
        Language::Python => python::component(&Bench::new(folder, Language::Python)?, tell),
        Language::Js => javascript::component(&Bench::new(folder, Language::Js)?, tell),
        Language::C => c::component(&Bench::new(folder, Language::C)?, tell),
        Language::Go => go::component(&Bench::new(folder, Language::Go)?, tell),
    }
}

/// Where a project is built: its own folder, what it is written over, the contract, and a place for what comes
/// out.
struct Bench {
    folder: PathBuf,
    /// The project's own copy, or else this program's.
    sdk: PathBuf,
    scratch: TempDir,
}

impl Bench {
    fn new(folder: &Path, language: Language) -> Result<Self> {
        let folder = std::path::absolute(folder).map_err(|e| Trouble::file("find", folder, &e))?;
        let scratch =
            TempDir::new().map_err(|e| Trouble::file("make", &std::env::temp_dir().join("a folder"), &e))?;
        let own = folder.join("sdk");
        let sdk = if own.is_dir() {
            own
        } else {
            let ours = scratch.path().join("sdk");
            language.sdk(&ours)?;
            ours
        };
        let wit = scratch.path().join("wit");
        std::fs::create_dir_all(&wit)
            .and_then(|()| std::fs::write(wit.join("allocation.wit"), CONTRACT))
            .map_err(|e| Trouble::file("write", &wit, &e))?;
        Ok(Self { folder, sdk, scratch })
    }

    /// The folder with the contract.
    fn wit(&self) -> PathBuf {
        self.scratch.path().join("wit")
    }

    /// Where what comes out is to be written.
    fn out(&self) -> PathBuf {
        self.scratch.path().join("out.wasm")
    }

    /// What came out.
    fn built(&self) -> Result<Vec<u8>> {
        std::fs::read(self.out()).map_err(|e| Trouble::file("read", &self.out(), &e))
    }
}

/// Whether a program is there, by what it says of its version; its first line.
fn version(command: &mut Command) -> Option<String> {
    let said = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default().trim().to_owned();
    said.status.success().then_some(text)
}

/// Runs a program; gives what it says where it fails.
fn complaint(command: &mut Command) -> Result<Option<String>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output();
    let done = done.map_err(|e| Trouble::new(format!("could not run `{program}`: {e}")))?;
    let said = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Ok((!done.status.success()).then_some(said))
}

/// Runs a program and gives what it prints; what it complains of goes to the screen.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let args: Vec<String> = command.get_args().take(2).map(|a| a.to_string_lossy().into_owned()).collect();
    let done = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).output();
    let done = done.map_err(|e| Trouble::new(format!("could not run `{program}`: {e}")))?;
    if !done.status.success() {
        return Err(Trouble::new(format!("`{program} {}` failed ({})", args.join(" "), done.status)));
    }
    String::from_utf8(done.stdout).map_err(|_| Trouble::new(format!("`{program}` printed no UTF-8")))
}
