//! `cargo xtask`: chores of this repository that a person or the CI starts. What the program does is not here.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to who started it")]

mod alone;
mod budget;
mod built;
mod crates;
mod dist;
mod files;
mod folder;
mod house;
mod index;
mod licences;
mod process;
mod programs;
mod sbom;
mod suite;
mod trial;
mod wheel;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use allot_base::{Error, Result};

use crate::dist::Of;

const USAGE: &str = "\
cargo xtask test [ARGUMENT]...  run all tests, and say at the end which were skipped and how to get what they lack;
                                arguments go to `cargo test`
cargo xtask test --again        run the tests that the last run skipped, and no others
cargo xtask alone               compile and lint each crate by itself, with its tests
cargo xtask house               check that no crate, function or circle of imports has grown beyond .ci/house.tsv
cargo xtask house --lower       lower the numbers of what has become smaller
cargo xtask house --set REASON  write today's numbers, and the reason beside those that rise
cargo xtask dist [FOLDER]       make a release: wheel, archive, licences, bill of materials, checksums [default: dist]
cargo xtask dist FOLDER --target ARCH
                                the same for Linux on another architecture: x86_64 or aarch64
cargo xtask dist FOLDER --as-built
                                the same of what `cargo build --release --workspace` built, for this machine alone
cargo xtask try [FOLDER] [--debian SUITE]...
                                try it in clean environments, up to a finished quickstart
cargo xtask budget COSTS [--adopt]
                                hold what a build cost against the budget, or make it the budget; COSTS is what builds
                                append to ALLOT_BUILD_COSTS with RUSTC_WRAPPER=.ci/rustc
cargo xtask campaign FOLDER [--cases N] [--seed N] [--seconds N] [--program ALLOT] [CLASS]...
                                kill runs, mangle files, and hold what comes of it against what is promised";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["test", "--again"] => suite::again(&root()),
        ["test", args @ ..] => suite::run(&root(), args),
        ["alone"] => alone::check(&root()),
        ["house"] => house::check(&root()),
        ["house", "--lower"] => house::lower(&root()),
        ["house", "--set", reason] => house::set(&root(), reason),
        ["dist"] => dist::make(&root(), Path::new("dist"), &Of::Here),
        ["dist", folder] => dist::make(&root(), Path::new(folder), &Of::Here),
        ["dist", folder, "--as-built"] => dist::make(&root(), Path::new(folder), &Of::AsBuilt),
        ["dist", folder, "--target", arch @ ("x86_64" | "aarch64")] => {
            dist::make(&root(), Path::new(folder), &Of::Linux(arch))
        }
        ["try", rest @ ..] => tried(rest),
        ["budget", costs] => budget::check(&root(), Path::new(costs)),
        ["campaign", folder, rest @ ..] if !folder.starts_with('-') => campaign(folder, rest),
        ["budget", costs, "--adopt"] => budget::adopt(&root(), Path::new(costs)),
        _ => Err(Error::new(format!("`cargo xtask {}` is no chore", words.join(" "))).hint(USAGE)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error.report());
            ExitCode::FAILURE
        }
    }
}

fn tried(words: &[&str]) -> Result<()> {
    let (mut folder, mut suites, mut words) = ("dist", Vec::new(), words.iter());
    while let Some(word) = words.next() {
        match *word {
            "--debian" => {
                let suite = words.next().ok_or_else(|| Error::new("`--debian` names a release of Debian"))?;
                suites.push((*suite).to_owned());
            }
            word => folder = word,
        }
    }
    trial::run_all(Path::new(folder), &suites)
}

/// Starts the campaign of `tests/campaign.rs`: within the whole workspace, whose features the program was built with.
fn campaign(folder: &str, words: &[&str]) -> Result<()> {
    let folder = std::path::absolute(folder).map_err(|e| Error::file("find", Path::new(folder), &e))?;
    let (mut cases, mut seed, mut seconds) = (100, 1, None);
    let (mut program, mut classes) = (None, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut number = || {
            let number = words.next().and_then(|word| word.parse::<u64>().ok());
            number.ok_or_else(|| Error::new(format!("`{word}` takes a number")))
        };
        match *word {
            "--cases" => cases = number()?,
            "--seed" => seed = number()?,
            "--seconds" => seconds = Some(number()?),
            "--program" => program = words.next().map(PathBuf::from),
            option if option.starts_with('-') => {
                return Err(Error::new(format!("a campaign has no option `{option}`")));
            }
            class => classes.push(class.to_owned()),
        }
    }
    let asked = serde_json::json!({
        "classes": classes, "cases": cases, "seed": seed, "folder": folder, "seconds": seconds, "program": program,
    });
    let mut cargo = process::command("cargo", ["test", "--release", "--locked", "--quiet", "--workspace"]);
    cargo.args(["--test", "campaign", "--", "--ignored", "--exact", "the_campaign", "--nocapture"]);
    process::run(cargo.current_dir(root()).env("ALLOT_CAMPAIGN", asked.to_string()))
}

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").components().collect()
}
