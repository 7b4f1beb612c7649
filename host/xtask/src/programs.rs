//! The workspace's test programs, several at a time: while one waits for a process or a server, or has one long test left,
//! another works. Each runs as many tests at a time as it does alone.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::ops::AddAssign;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;

use allot_base::{Error, Result};
use serde_json::Value;

use crate::process;

/// A test program, and what is to be run of it.
pub struct Program {
    pub path: PathBuf,
    /// Where it is started: its package's folder, as cargo does.
    pub folder: PathBuf,
    /// Names of its tests; none: all of them.
    pub tests: BTreeSet<String>,
}

impl Program {
    /// Returns whether it is any of these, by the name before cargo's hash.
    pub fn is_any_of(&self, names: &[&str]) -> bool {
        let stem = self.path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
        stem.rsplit_once('-').is_some_and(|(name, _)| names.contains(&name))
    }
}

/// How many tests ended how, and whether all programs ended well.
pub struct Totals {
    pub passed: usize,
    pub failed: usize,
    pub success: bool,
}

impl Totals {
    /// Of nothing that was run yet.
    pub const NONE: Self = Self { passed: 0, failed: 0, success: true };

    /// Adds the result in a line that a test program printed, if it has one.
    pub fn read(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let words: Vec<&str> = result.split([' ', ';']).filter(|word| !word.is_empty()).collect();
        let before = |word| {
            let at = words.iter().position(|found| *found == word);
            at.and_then(|at| words[at.checked_sub(1)?].parse::<usize>().ok()).unwrap_or(0)
        };
        self.passed += before("passed");
        self.failed += before("failed");
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.success &= other.success;
    }
}

/// Builds all tests of the workspace. Returns the programs that `cargo test` would run.
///
/// # Errors
///
/// A test does not compile.
pub fn built(root: &Path) -> Result<Vec<Program>> {
    let args = ["test", "--release", "--locked", "--workspace", "--no-run"];
    let mut cargo = process::command("cargo", args);
    // What the compiler says is shown as it comes.
    cargo.arg("--message-format=json-render-diagnostics").current_dir(root).stderr(Stdio::inherit());
    println!("+ {}", process::shown(&cargo));
    let done = cargo.output().map_err(|e| process::started(&cargo, &e))?;
    if !done.status.success() {
        return Err(Error::new("the tests could not be built"));
    }
    named(&String::from_utf8_lossy(&done.stdout))
}

/// The test programs that cargo names in its messages, one message a line.
fn named(messages: &str) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line)
            .map_err(|e| Error::new(format!("cargo printed a message that is not JSON: {e}: `{line}`")))?;
        let program = message["executable"].as_str().filter(|_| message["profile"]["test"] == true);
        let Some(path) = program else { continue };
        let package = message["manifest_path"].as_str().and_then(|path| Path::new(path).parent());
        let package = package.ok_or_else(|| Error::new(format!("cargo names no package of `{path}`")))?;
        programs.push(Program { path: path.into(), folder: package.into(), tests: BTreeSet::new() });
    }
    Ok(programs)
}

/// Runs programs, so many at a time, all of them even if one fails. Prints what each printed when it has ended. Tests that
/// are skipped are added to the list.
///
/// # Errors
///
/// A program can't be started, or ran fewer tests than it was to run.
pub fn run(mut programs: Vec<Program>, list: &Path, at_a_time: usize) -> Result<Totals> {
    // Large programs first: they have most of the host in them, and take longest.
    let size = |program: &Program| program.path.metadata().map_or(0, |file| file.len());
    programs.sort_by_key(|program| Reverse(size(program)));
    let (libraries, threads) = (libraries()?, std::thread::available_parallelism().map_or(1, usize::from));
    let (waiting, totals) = (Mutex::new(programs.into_iter()), Mutex::new(Totals::NONE));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = |said: &Path| {
        while let Some(program) = next() {
            let mut command = process::command(&program.path, []);
            command
                .current_dir(&program.folder)
                .env("ALLOT_SKIPPED", list)
                .env("LD_LIBRARY_PATH", &libraries)
                // candle's threads spin while they wait for work, which takes time from the other tests; and unless it is told
                // how many threads rayon has, it reads `/proc/cpuinfo` for each product.
                .env("CANDLE_NUM_THREADS", "1")
                .env("RAYON_NUM_THREADS", threads.to_string());
            if !program.tests.is_empty() {
                command.arg("--exact").args(&program.tests);
            }
            let success = ended(&mut command, said)?;
            let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
            totals.success &= success;
            told(&program, &command, said, &mut totals)?;
        }
        let _ = std::fs::remove_file(said);
        Ok(())
    };
    let files: Vec<PathBuf> =
        (0..at_a_time).map(|place| list.with_extension(format!("said-{place}"))).collect();
    std::thread::scope(|scope| {
        let workers: Vec<_> = files.iter().map(|said| scope.spawn(|| work(said))).collect();
        let joined = |worker: ScopedJoinHandle<_>| worker.join().unwrap_or_else(|why| resume_unwind(why));
        workers.into_iter().try_for_each(joined)
    })?;
    Ok(totals.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The search path for libraries by which cargo starts test programs: those of procedural macros need Rust's own.
fn libraries() -> Result<OsString> {
    let rust = process::output(&mut process::command("rustc", ["--print", "target-libdir"]))?;
    let own = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let own = std::env::split_paths(&own).filter(|folder| !folder.as_os_str().is_empty());
    std::env::join_paths(std::iter::once(PathBuf::from(rust.trim())).chain(own))
        .map_err(|e| Error::new(format!("LD_LIBRARY_PATH can't be set: {e}")))
}

/// Runs a program to its end; what it prints is in this file. It is no pipe: what the program leaves running would keep that
/// open. Returns whether it succeeded.
fn ended(command: &mut Command, said: &Path) -> Result<bool> {
    let file = File::create(said).map_err(|e| Error::file("write", said, &e))?;
    let other = file.try_clone().map_err(|e| Error::file("write", said, &e))?;
    let status = command.stdout(file).stderr(other).status().map_err(|e| process::started(command, &e))?;
    Ok(status.success())
}

/// Prints what a program said, and adds its results to the totals.
fn told(program: &Program, command: &Command, said: &Path, totals: &mut Totals) -> Result<()> {
    let text = std::fs::read(said).map_err(|e| Error::file("read", said, &e))?;
    let text = String::from_utf8_lossy(&text);
    println!("+ {}\n{}", process::shown(command), text.trim_end());
    let before = totals.passed + totals.failed;
    text.lines().for_each(|line| totals.read(line));
    if totals.passed + totals.failed < before + program.tests.len() {
        let what = format!("`{}` did not run all of the tests {:?}", program.path.display(), program.tests);
        return Err(Error::new(what).hint("Run `cargo xtask test` again: the list may be of an older build."));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_program_goes_by_its_name_before_cargos_hash() {
        let of = |path: &str| Program { path: path.into(), folder: ".".into(), tests: BTreeSet::new() };
        assert!(of("/t/deps/remote-0a1b").is_any_of(&["remote", "verifiers"]));
        assert!(
            !of("/t/deps/allot_remote-0a1b").is_any_of(&["remote"]) && !of("remote").is_any_of(&["remote"])
        );
    }

    #[test]
    fn programs_are_what_cargo_would_run() {
        let messages = r#"{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","profile":{"test":true},"executable":"/t/a-1"}
{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","profile":{"test":false},"executable":"/t/a"}
{"reason":"compiler-artifact","manifest_path":"/w/b/Cargo.toml","profile":{"test":true},"executable":null}
{"reason":"build-finished","success":true}"#;
        let programs = named(messages).unwrap();
        let found: Vec<_> = programs.iter().map(|one| (one.path.as_path(), one.folder.as_path())).collect();
        assert_eq!(found, [(Path::new("/t/a-1"), Path::new("/w/a"))]);
        assert!(named("warning: no JSON").is_err_and(|e| e.to_string().contains("not JSON")));
    }

    /// A program of these lines.
    fn script(folder: &Path, name: &str, lines: &str, tests: &[&str]) -> Program {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
        set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let tests = tests.iter().map(|test| (*test).to_owned()).collect();
        Program { path, folder: folder.into(), tests }
    }

    #[test]
    fn two_run_at_a_time_and_all_of_them() {
        // All in one test: a program that is written while another thread forks can't be started.
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("skipped.tsv");
        // Each of two ends well only if the other has begun.
        let meets = |name: &str, other: &str| {
            let wait = format!(
                "n=0; until [ -e {other}.here ]; do n=$((n+1)); [ $n -lt 300 ] || exit 1; sleep 0.1; done"
            );
            let result = "echo 'test result: ok. 2 passed; 0 failed; 1 ignored' >&2";
            script(folder.path(), name, &format!("touch {name}.here; {wait}; {result}"), &[])
        };
        let totals = run(vec![meets("one", "other"), meets("other", "one")], &list, 2).unwrap();
        assert!(totals.success);
        assert_eq!((totals.passed, totals.failed), (4, 0));

        // A failure ends no other program.
        let failing = |name| {
            script(folder.path(), name, "echo 'test result: FAILED. 1 passed; 1 failed'; exit 101", &[])
        };
        let totals = run(["a", "b", "c"].map(failing).into(), &list, 2).unwrap();
        assert!(!totals.success);
        assert_eq!((totals.passed, totals.failed), (3, 3));

        // One that ends well, but ran one of the two that it was asked for.
        let lines = "[ \"$*\" = '--exact first second' ] && echo 'test result: ok. 1 passed; 0 failed'";
        let Err(error) = run(vec![script(folder.path(), "old", lines, &["first", "second"])], &list, 1)
        else {
            panic!("it ran one of two")
        };
        assert!(error.to_string().contains("did not run all of the tests"), "{error}");
    }
}
