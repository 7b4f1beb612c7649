//! `cargo xtask test`: all tests, then a summary of those that were skipped, with the command that gets what each lacks.
//!
//! A skipped test is one that called `skip` of `tests/skip.rs`; to libtest it passed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use allot_base::{Error, Result};

use crate::files::{made, write};
use crate::process;

/// How many tests ended how.
#[derive(Default)]
struct Totals {
    passed: usize,
    failed: usize,
}

/// Runs `cargo test` over the workspace with further arguments.
///
/// # Errors
///
/// A test fails, or does not compile.
pub fn run(root: &Path, args: &[&str]) -> Result<()> {
    let list = list(root);
    made(&process::target(root))?;
    write(&list, "")?;
    let mut cargo = process::command("cargo", ["test", "--release", "--locked", "--workspace"]);
    cargo.args(args).current_dir(root);
    let mut totals = Totals::default();
    let success = watched(&mut cargo, &list, &mut totals)?;
    closed(&totals, &skipped(&list)?, success)
}

/// Runs the tests again that the last `cargo xtask test` skipped, and no others.
///
/// # Errors
///
/// No list of skipped tests is there, or a test fails.
pub fn again(root: &Path) -> Result<()> {
    let list = list(root);
    let before = skipped(&list).map_err(|e| e.hint("Run `cargo xtask test` first: it writes this list."))?;
    let mut by_program: BTreeMap<(PathBuf, PathBuf), BTreeSet<String>> = BTreeMap::new();
    for one in &before {
        by_program.entry((one.program.clone(), one.folder.clone())).or_default().insert(one.test.clone());
    }
    let now = list.with_extension("again.tsv");
    write(&now, "")?;
    let (mut totals, mut success) = (Totals::default(), true);
    for ((program, folder), tests) in by_program {
        let mut command = process::command(&program, ["--exact"]);
        command.args(&tests).current_dir(folder);
        let ran = totals.passed + totals.failed;
        success &= watched(&mut command, &now, &mut totals)?;
        if totals.passed + totals.failed < ran + tests.len() {
            let what = format!("`{}` did not run all of the tests {tests:?}", program.display());
            return Err(
                Error::new(what).hint("Run `cargo xtask test` again: the list may be of an older build.")
            );
        }
    }
    closed(&totals, &skipped(&now)?, success)
}

/// Where the skipped tests of the last run are listed.
fn list(root: &Path) -> PathBuf {
    process::target(root).join("skipped.tsv")
}

/// Runs tests to their end, passes on what they print, and adds their results to the totals. Returns whether all passed.
fn watched(command: &mut Command, list: &Path, totals: &mut Totals) -> Result<bool> {
    println!("+ {}", process::shown(command));
    command.env("ALLOT_SKIPPED", list).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|e| process::started(command, &e))?;
    let lines = child.stdout.take().map(BufReader::new).into_iter().flat_map(|out| out.split(b'\n'));
    for line in lines.map_while(std::result::Result::ok) {
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        if let Some(result) = line.strip_prefix("test result: ") {
            let before = |word| {
                let words: Vec<&str> = result.split([' ', ';']).filter(|word| !word.is_empty()).collect();
                let at = words.iter().position(|found| *found == word);
                at.and_then(|at| words[at.checked_sub(1)?].parse::<usize>().ok()).unwrap_or(0)
            };
            totals.passed += before("passed");
            totals.failed += before("failed");
        }
    }
    let status = child.wait().map_err(|e| process::started(command, &e))?;
    Ok(status.success())
}

/// A test that was skipped.
struct Skipped {
    what: String,
    get: String,
    program: PathBuf,
    folder: PathBuf,
    test: String,
}

/// The skipped tests in a list, as `tests/skip.rs` wrote them.
fn skipped(list: &Path) -> Result<Vec<Skipped>> {
    let text = std::fs::read_to_string(list).map_err(|e| Error::file("read", list, &e))?;
    let read = |line: &str| match line.split('\t').collect::<Vec<_>>()[..] {
        [what, get, program, folder, test] => Ok(Skipped {
            what: what.to_owned(),
            get: get.to_owned(),
            program: program.into(),
            folder: folder.into(),
            test: test.to_owned(),
        }),
        _ => Err(Error::new(format!("`{}` has a line without five fields: `{line}`", list.display()))),
    };
    text.lines().map(read).collect()
}

/// Prints the summary. The last line is one that CI systems read.
fn closed(totals: &Totals, skipped: &[Skipped], success: bool) -> Result<()> {
    let mut needs: BTreeMap<(&str, &str), BTreeSet<(&Path, &str)>> = BTreeMap::new();
    let mut tests = BTreeSet::new();
    for one in skipped {
        let test = (one.program.as_path(), one.test.as_str());
        needs.entry((&one.what, &one.get)).or_default().insert(test);
        tests.insert(test);
    }
    if !needs.is_empty() {
        println!("\nSkipped, because something is missing on this machine:");
        for ((what, get), tests) in needs {
            println!("{:>5}  {what:16} {get}", tests.len());
        }
    }
    // A test that was skipped counts as passed to libtest, except where `ALLOT_SKIPS` made it fail.
    let passed = totals.passed.saturating_sub(tests.len());
    println!("\n{passed} passed, {} failed, {} skipped", totals.failed, tests.len());
    if success { Ok(()) } else { Err(Error::new("not all tests passed")) }
}
