//! `cargo xtask test`: all tests, then a summary of those that were skipped, with the command that gets what each lacks.
//!
//! A skipped test is one that called `skip` of `tests/skip.rs`; to libtest it passed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use allot_base::{Error, Result};

use crate::files::{made, write};
use crate::process;
use crate::programs::{self, Program, Totals};

/// Test programs that run by themselves: what they start has to reply within a time limit.
const ALONE: [&str; 2] = ["remote", "verifiers"];

/// Runs all tests of the workspace; or, with further arguments, `cargo test` with these.
///
/// # Errors
///
/// A test fails, or does not compile.
pub fn run(root: &Path, args: &[&str]) -> Result<()> {
    let list = list(root);
    made(&process::target(root))?;
    write(&list, "")?;
    let mut totals = Totals::NONE;
    if args.is_empty() {
        totals = run_all(programs::built(root)?, &list)?;
        cargo_test(root, &["--doc"], &list, &mut totals)?;
    } else {
        cargo_test(root, args, &list, &mut totals)?;
    }
    closed(&totals, &skipped(&list)?)
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
    for one in before {
        by_program.entry((one.program, one.folder)).or_default().insert(one.test);
    }
    let now = list.with_extension("again.tsv");
    write(&now, "")?;
    let program = |((path, folder), tests)| Program { path, folder, tests };
    let totals = run_all(by_program.into_iter().map(program).collect(), &now)?;
    closed(&totals, &skipped(&now)?)
}

/// Runs programs three at a time, since many wait for files or for time limits; and some by themselves.
fn run_all(programs: Vec<Program>, list: &Path) -> Result<Totals> {
    let (alone, others) = programs.into_iter().partition(|program| program.is_any_of(&ALONE));
    let mut totals = programs::run(others, list, 3)?;
    totals += programs::run(alone, list, 1)?;
    Ok(totals)
}

/// Where the skipped tests of the last run are listed.
fn list(root: &Path) -> PathBuf {
    process::target(root).join("skipped.tsv")
}

/// Runs `cargo test` over the workspace with further arguments, passes on what it prints, and adds its results to the totals.
fn cargo_test(root: &Path, args: &[&str], list: &Path, totals: &mut Totals) -> Result<()> {
    let mut command = process::command("cargo", ["test", "--release", "--locked", "--workspace"]);
    command.args(args).current_dir(root);
    println!("+ {}", process::shown(&command));
    command.env("ALLOT_SKIPPED", list).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|e| process::started(&command, &e))?;
    let lines = child.stdout.take().map(BufReader::new).into_iter().flat_map(|out| out.split(b'\n'));
    for line in lines.map_while(std::result::Result::ok) {
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        totals.read(&line);
    }
    let status = child.wait().map_err(|e| process::started(&command, &e))?;
    totals.success &= status.success();
    Ok(())
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
fn closed(totals: &Totals, skipped: &[Skipped]) -> Result<()> {
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
    if totals.success { Ok(()) } else { Err(Error::new("not all tests passed")) }
}
