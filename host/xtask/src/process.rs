//! Other programs, started and waited for.

use std::path::{Path, PathBuf};
use std::process::Command;

use allot_base::{Error, Result};

use crate::files::write;

/// A program with its arguments.
///
/// It does not get the variables by which `cargo run` describes xtask itself: ring's build script reads such, and a cargo
/// that is started with them compiles ring, and all that depends on it, once more.
pub fn command<const N: usize>(program: impl AsRef<Path>, args: [&str; N]) -> Command {
    let mut command = Command::new(program.as_ref());
    command.args(args);
    let own = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(own)) {
        command.env_remove(name);
    }
    command
}

/// Runs a command to its end; what it says is shown.
///
/// # Errors
///
/// It cannot be started, or fails.
pub fn run(command: &mut Command) -> Result<()> {
    println!("+ {}", shown(command));
    let status = command.status().map_err(|e| started(command, &e))?;
    if status.success() { Ok(()) } else { Err(Error::new(format!("`{}` failed: {status}", shown(command)))) }
}

/// Runs a command to its end; what it printed.
///
/// # Errors
///
/// It cannot be started, or fails: then with what it said.
pub fn output(command: &mut Command) -> Result<String> {
    let done = command.output().map_err(|e| started(command, &e))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() {
        return Ok(said(&done.stdout));
    }
    let what =
        format!("`{}` failed: {}\n{}{}", shown(command), done.status, said(&done.stdout), said(&done.stderr));
    Err(Error::new(what.trim_end()))
}

/// The error of a command that cannot be started.
pub fn started(command: &Command, error: &std::io::Error) -> Error {
    Error::new(format!("`{}` cannot be started: {error}", shown(command)))
}

/// A command as a line.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The folder that cargo builds into.
pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// A Python of its own, with these packages, in the folder given. What is there already stays.
///
/// # Errors
///
/// There is no Python, or its index does not have them.
pub fn python_with(folder: &Path, packages: &[&str]) -> Result<PathBuf> {
    let (bin, done) = (folder.join("bin"), folder.join(packages.join(" ")));
    if !done.exists() {
        run(command("python3", ["-m", "venv"]).arg(folder))?;
        let mut pip = command(bin.join("pip"), ["install", "-q", "--disable-pip-version-check"]);
        run(pip.args(packages))?;
        write(&done, "")?;
    }
    Ok(bin)
}
