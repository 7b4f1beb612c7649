//! A campaign: many hostile cases of a few classes, each made of a seed and its number, so that any of them can be repeated.
//!
//! It goes on where it was stopped: the folder knows how many cases of each class are done. At a failure it stops, and keeps
//! the case's folder, with what was done in it and what was said. `cargo xtask campaign` says what is to be done, by
//! `ALLOT_CAMPAIGN`; the tests run a few cases of each class.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, missing_docs)]

#[path = "campaign/bases.rs"]
mod bases;
#[path = "campaign/by_hand.rs"]
mod by_hand;
#[path = "campaign/chance.rs"]
mod chance;
#[path = "campaign/environment.rs"]
mod environment;
#[path = "../host/xtask/src/files.rs"]
mod files;
#[path = "campaign/guests.rs"]
mod guests;
#[path = "campaign/jinja.rs"]
mod jinja;
#[allow(dead_code, reason = "a campaign uses a part of it")]
#[path = "http/server.rs"]
mod judge;
#[path = "campaign/kills.rs"]
mod kills;
#[path = "campaign/logs.rs"]
mod logs;
mod loopback;
#[path = "campaign/mangled.rs"]
mod mangled;
#[path = "campaign/memory.rs"]
mod memory;
#[path = "campaign/outputs.rs"]
mod outputs;
#[path = "campaign/places.rs"]
mod places;
#[path = "campaign/plans.rs"]
mod plans;
#[path = "campaign/power.rs"]
mod power;
#[path = "campaign/proxy.rs"]
mod proxy;
#[path = "campaign/readers.rs"]
mod readers;
#[path = "campaign/runs.rs"]
mod runs;
#[allow(dead_code, reason = "a campaign uses a part of it")]
#[path = "rollouts/server.rs"]
mod sampler;
mod scratch;
#[path = "campaign/servers.rs"]
mod servers;
#[path = "campaign/tally.rs"]
mod tally;
#[path = "campaign/trace.rs"]
mod trace;
#[allow(dead_code, reason = "a campaign uses a part of it")]
#[path = "remote/server.rs"]
mod trainer;
#[path = "campaign/watch.rs"]
mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use allot_base::{Error, Result};

use chance::Chance;
use files::{made, write};
use tally::Tally;

/// What is asked for.
#[derive(serde::Deserialize)]
struct Asked {
    /// Classes, by name; all of them if none is named.
    classes: Vec<String>,
    /// Cases of each class, in all.
    cases: u64,
    /// What all cases are made of.
    seed: u64,
    /// Where they are made.
    folder: PathBuf,
    /// Begins no case after so many seconds, of which each class has an equal part.
    seconds: Option<u64>,
    /// The program, if it is another than the one that was built.
    program: Option<PathBuf>,
}

/// A class of cases.
trait Class {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// Makes what all cases are held against, in a folder of the class. It may be there already.
    fn prepare(&mut self, at: &Place<'_>) -> Result<()>;

    /// Does a case in an empty folder. The text says what a failure is.
    fn case(&self, at: &Place<'_>, chance: &mut Chance) -> Result<Outcome>;
}

/// How a case ended.
enum Outcome {
    /// As promised. The word says which kind of case it was, for the table.
    Kept(String),
    /// It was several in one, all as promised: how many of each kind.
    Many(BTreeMap<String, u64>),
    /// Not so: what was seen.
    Broken(String),
}

/// Where a case is made.
struct Place<'a> {
    /// The program.
    program: &'a Path,
    /// The repository.
    root: &'a Path,
    /// What the class prepared.
    reference: PathBuf,
    /// The case's own folder.
    folder: PathBuf,
}

/// All classes.
fn classes() -> Vec<Box<dyn Class>> {
    let mut classes: Vec<Box<dyn Class>> = vec![Box::new(kills::Kills::default())];
    classes.push(Box::new(servers::Servers::default()));
    classes.push(Box::new(power::Power::default()));
    classes.push(Box::new(places::Places));
    classes.push(Box::new(memory::Memory));
    classes.push(Box::new(plans::Plans));
    classes.push(Box::new(guests::Guests::default()));
    classes.push(Box::new(servers::Liars::default()));
    classes.push(Box::new(bases::Bases));
    classes.extend(readers::all().into_iter().map(|class| Box::new(class) as Box<dyn Class>));
    classes.extend(outputs::all().into_iter().map(|class| Box::new(class) as Box<dyn Class>));
    classes.extend(mangled::all().into_iter().map(|class| Box::new(class) as Box<dyn Class>));
    classes
}

/// Runs a campaign, and prints its table.
///
/// # Errors
///
/// A case broke a promise, or could not be made.
fn run(root: &Path, program: &Path, asked: &Asked) -> Result<()> {
    let mut classes = classes();
    if let Some(unknown) =
        asked.classes.iter().find(|name| classes.iter().all(|class| class.name() != **name))
    {
        let known: Vec<_> = classes.iter().map(|class| class.name()).collect();
        return Err(Error::new(format!("there is no class `{unknown}`: {}", known.join(", "))));
    }
    classes.retain(|class| asked.classes.is_empty() || asked.classes.iter().any(|name| name == class.name()));
    let mut tally = Tally::of(&asked.folder)?;
    let all = classes.len() as f64;
    for class in &mut classes {
        let name = class.name();
        let folder = asked.folder.join(name);
        let mut place =
            Place { program, root, reference: folder.join("reference"), folder: folder.join("case") };
        made(&place.reference)?;
        class.prepare(&place)?;
        let (started, seconds) = (Instant::now(), asked.seconds.map(|seconds| seconds as f64 / all));
        loop {
            let number = tally.done(name, asked.seed);
            if number >= asked.cases || seconds.is_some_and(|most| started.elapsed().as_secs_f64() > most) {
                break;
            }
            place.folder = folder.join("case");
            let _ = std::fs::remove_dir_all(&place.folder);
            made(&place.folder)?;
            let began = Instant::now();
            let outcome = class.case(&place, &mut Chance::of(asked.seed, name, number))?;
            tally.took(name, asked.seed, (began.elapsed().as_secs_f64(), number));
            match outcome {
                Outcome::Kept(kind) => tally.add(name, asked.seed, &[(kind, 1)].into())?,
                Outcome::Many(kinds) => tally.add(name, asked.seed, &kinds)?,
                Outcome::Broken(what) => {
                    let kept = folder.join(format!("broken-{}-{number}", asked.seed));
                    let _ = std::fs::remove_dir_all(&kept);
                    std::fs::rename(&place.folder, &kept)
                        .map_err(|e| Error::file("rename", &place.folder, &e))?;
                    write(&kept.join("what.txt"), &what)?;
                    let what = format!("class {name}, seed {}, case {number}: {what}", asked.seed);
                    return Err(Error::new(what).hint(format!("its folder is {}", kept.display())));
                }
            }
        }
        let _ = std::fs::remove_dir_all(folder.join("case"));
    }
    println!("{}", tally.table());
    Ok(())
}

/// What `cargo xtask campaign` starts.
#[test]
#[ignore = "cargo xtask campaign starts it"]
fn the_campaign() {
    let text = std::env::var("ALLOT_CAMPAIGN").expect("ALLOT_CAMPAIGN says what is to be done");
    let asked: Asked = serde_json::from_str(&text).unwrap();
    let program = asked.program.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_allot")));
    if let Err(error) = run(scratch::root(), &program, &asked) {
        eprintln!("{}", error.report());
        std::process::exit(1);
    }
}

#[test]
fn a_few_cases_of_each_class_are_as_promised() {
    let folder = scratch::Scratch::new();
    let asked = Asked {
        // The others take programs that not every machine has, or crates that only a campaign needs.
        classes: classes()
            .iter()
            .map(|class| class.name().to_owned())
            .filter(|name| !["power", "guests", "places"].contains(&name.as_str()))
            .collect(),
        cases: 1,
        seed: 1,
        folder: folder.path().join("campaign"),
        seconds: None,
        program: None,
    };
    run(scratch::root(), env!("CARGO_BIN_EXE_allot").as_ref(), &asked).unwrap();
    // And it goes on where it was.
    let told = std::fs::read_to_string(folder.path().join("campaign/tally.tsv")).unwrap();
    run(scratch::root(), env!("CARGO_BIN_EXE_allot").as_ref(), &asked).unwrap();
    assert_eq!(std::fs::read_to_string(folder.path().join("campaign/tally.tsv")).unwrap(), told);
}
