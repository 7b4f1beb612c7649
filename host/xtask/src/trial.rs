//! A release, tried where nothing of this repository is: in a new environment of every Python that is there, and in Debians of
//! other years. Each goes as far as a user's first minutes do: installed, imported, a quickstart to its end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use allot_base::{Error, Result};

use crate::dist::{self, SUMS};
use crate::files::{copy, made};
use crate::folder::with_ending;
use crate::index;
use crate::process::{command, output, run};

/// Pythons that the wheel is for.
const PYTHONS: std::ops::RangeInclusive<u32> = 10..=14;

/// What the module is asked: most policies that ship load without anything but a run; some want columns.
const IMPORT: &str = "
import allot, sys
run = {'prompts': 4, 'steps': 1, 'groups': 1, 'rollouts': 2}
def loads(name):
    try:
        return bool(allot.Policy(name, {}, run=run).describe()['name'])
    except allot.Error:
        return False
loaded = sum(map(loads, allot.shipped()))
assert loaded > 9, loaded
print(loaded, 'policies load in Python', sys.version.split()[0])
";

/// Tries the release in this folder. `suites` are releases of Debian, each set up in a folder of its own.
///
/// # Errors
///
/// Something is missing, damaged, or does not do what it does here.
pub fn run_all(folder: &Path, suites: &[String]) -> Result<()> {
    whole(folder)?;
    let scratch = std::env::temp_dir().join(format!("allot-try-{}", std::process::id()));
    made(&scratch)?;
    let tried = pythons_and_debians(folder, suites, &scratch);
    let _ = std::fs::remove_dir_all(&scratch);
    tried
}

fn pythons_and_debians(folder: &Path, suites: &[String], scratch: &Path) -> Result<()> {
    let wheel = with_ending(folder, ".whl")?;
    let pythons = pythons();
    if pythons.is_empty() {
        let what =
            format!("there is no Python of 3.{} to 3.{} to try the wheel in", PYTHONS.start(), PYTHONS.end());
        return Err(Error::new(what));
    }
    let index = index::serve(&wheel)?;
    for (minor, python) in &pythons {
        in_python(&index, python, &scratch.join(format!("python-{minor}")))?;
    }
    for suite in suites {
        in_debian(folder, suite, &scratch.join(suite))?;
    }
    let minors: Vec<String> = pythons.keys().map(|minor| format!("3.{minor}")).collect();
    let debians: Vec<String> = suites.iter().map(|suite| format!(", Debian {suite}")).collect();
    println!("tried to a finished quickstart: Python {}{}", minors.join(", "), debians.concat());
    Ok(())
}

/// Holds each file against its checksum.
fn whole(folder: &Path) -> Result<()> {
    let sums = folder.join(SUMS);
    let text = std::fs::read_to_string(&sums)
        .map_err(|e| Error::file("read", &sums, &e).hint("`cargo xtask dist` makes a release"))?;
    for (sum, name) in text.lines().filter_map(|line| line.split_once("  ")) {
        if dist::sum(&folder.join(name))? != sum {
            return Err(Error::new(format!("`{name}` is not what {SUMS} says")));
        }
    }
    Ok(())
}

/// Pythons on the path and of pyenv that the wheel is for, one of each version.
fn pythons() -> BTreeMap<u32, PathBuf> {
    let mut found = BTreeMap::new();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let versions = std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    for folder in folders {
        for minor in PYTHONS {
            let python = folder.join(format!("python3.{minor}"));
            // A shim may stand for a version that is not chosen.
            let own = "import sys, venv, ensurepip; print(sys.version_info.minor)";
            let said = python.exists().then(|| output(&mut command(&python, ["-c", own])).ok()).flatten();
            if said.is_some_and(|said| said.trim() == minor.to_string()) {
                found.entry(minor).or_insert(python);
            }
        }
    }
    found
}

/// Installs `allot` by its name in a new environment, as a user does, from this index alone; and uses both halves of the wheel.
fn in_python(index: &str, python: &Path, folder: &Path) -> Result<()> {
    run(command(python, ["-m", "venv"]).arg(folder))?;
    let bin = folder.join("bin");
    let begun = Instant::now();
    let mut pip = command(bin.join("pip"), ["--isolated", "install", "-q", "--disable-pip-version-check"]);
    // No other index of this machine's configuration, no proxy, and no wheel of an earlier try.
    pip.args(["--no-cache-dir", "--index-url", index, "allot"]).env("PIP_CONFIG_FILE", "/dev/null");
    run(pip.env("NO_PROXY", "127.0.0.1"))?;
    let installed = begun.elapsed().as_secs_f64();
    quickstart(command(bin.join("allot"), ["train", "quickstart", "--out", "first"]).current_dir(folder))?;
    let finished = begun.elapsed().as_secs_f64();
    println!(
        "pip took {installed:.1} s; a finished quickstart was there {finished:.1} s after `pip install`"
    );
    run(command(bin.join("python"), ["-c", IMPORT]).current_dir(folder))?;
    run(command(bin.join("allot"), ["--version"]).current_dir(folder))
}

/// Sets up a Debian, with nothing but what each has, and uses the program of the archive in it; the wheel too, if its Python
/// is new enough.
fn in_debian(folder: &Path, suite: &str, debian: &Path) -> Result<()> {
    let mut set_up = command("debootstrap", ["--variant=minbase", "--include=python3,python3-venv", suite]);
    run(set_up.arg(debian))?;
    let archive = with_ending(folder, ".tar.gz")?;
    run(command("tar", ["-xzf"])
        .arg(&archive)
        .arg("-C")
        .arg(debian.join("opt"))
        .arg("--strip-components=1"))?;
    let within = |args: &[&str]| {
        let mut chroot = command("chroot", []);
        chroot.arg(debian).args(args).env("HOME", "/root").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        chroot
    };
    println!(
        "Debian {suite}: {}",
        output(&mut within(&["ldd", "--version"]))?.lines().next().unwrap_or_default()
    );
    quickstart(&mut within(&["/opt/allot", "train", "quickstart", "--out", "/root/first"]))?;

    let minor = output(&mut within(&["python3", "-c", "import sys; print(sys.version_info.minor)"]))?;
    if !minor.trim().parse().is_ok_and(|minor: u32| PYTHONS.contains(&minor)) {
        println!("Debian {suite} has Python 3.{}, which the wheel is not for", minor.trim());
        return Ok(());
    }
    let wheel = with_ending(folder, ".whl")?;
    let name = wheel.file_name().unwrap_or_default();
    copy(&wheel, &debian.join("opt").join(name))?;
    let inside = Path::new("/opt").join(name).display().to_string();
    run(&mut within(&["python3", "-m", "venv", "/opt/python"]))?;
    run(&mut within(&[
        "/opt/python/bin/pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--no-index",
        &inside,
    ]))?;
    run(&mut within(&["/opt/python/bin/python", "-c", IMPORT]))?;
    quickstart(&mut within(&["/opt/python/bin/allot", "train", "quickstart", "--out", "/root/second"]))
}

/// Runs a quickstart; at its end it has learned.
fn quickstart(command: &mut std::process::Command) -> Result<()> {
    let said = output(command.arg("--json"))?;
    let numbers: serde_json::Value = serde_json::from_str(&said)
        .map_err(|e| Error::new(format!("the quickstart ends with no JSON: {e}: {said}")))?;
    let accuracy = numbers["accuracy"].as_f64().unwrap_or_default();
    println!("quickstart: {said}");
    if accuracy > 0.3 {
        Ok(())
    } else {
        Err(Error::new(format!("the quickstart ends at an accuracy of {accuracy}")))
    }
}
