//! Comparisons whose runs a cluster makes: on Slurm's own daemons, started by the test, and against a server
//! that speaks as Ray's job API does. What is left is what runs of this machine leave, whatever happens.
//!
//! Where Slurm is not installed its tests say so on standard error and stop; see `tests/skip.rs`.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

#[path = "executors/ray.rs"]
mod ray;
mod scratch;
mod skip;
#[path = "executors/slurm.rs"]
mod slurm;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ray::Ray;
use scratch::Scratch;
use slurm::Slurm;

/// Twelve simulated runs of a blink.
const SIMULATED: &str = include_str!("cases/report/compare.toml");

/// Four runs that train, of some seconds each.
fn trained() -> String {
    let one = include_str!("cases/training/short.toml")
        .replace("steps = 6", "steps = 200")
        .replace("rollouts = 4000", "rollouts = 100_000");
    format!("{one}\n[compare]\nseeds = 2\n[[compare.policies]]\nuse = \"pods\"\n")
}

/// A scratch folder with a config as `compare.toml`, and the cluster that its commands speak to.
struct Place {
    scratch: Scratch,
    settings: Vec<(&'static str, OsString)>,
}

impl Place {
    fn new(config: &str) -> Self {
        let scratch = Scratch::new();
        scratch.write("compare.toml", config);
        Self { scratch, settings: Vec::new() }
    }

    fn slurm(config: &str, slurm: &Slurm) -> Self {
        let (name, value) = slurm.settings();
        Self { settings: vec![(name, value.into())], ..Self::new(config) }
    }

    fn ray(config: &str, ray: &Ray) -> Self {
        Self { settings: vec![("RAY_ADDRESS", (&ray.address).into())], ..Self::new(config) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.scratch.command(args);
        command.env_remove("RAY_AUTH_TOKEN").envs(self.settings.iter().map(|(k, v)| (k, v)));
        command
    }

    /// What a command says: standard output, standard error, its exit code.
    fn said(&self, args: &[&str]) -> (String, String, i32) {
        let done = self.command(args).output().unwrap();
        let text = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            // The machine's name is not the test's.
            text.lines().filter(|line| !line.starts_with("compiling `")).collect::<Vec<_>>().join("\n")
        };
        (text(&done.stdout), text(&done.stderr), done.status.code().unwrap())
    }

    fn started(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Waits until there is something.
    fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !so(self) {
            assert!(began.elapsed() < Duration::from_mins(5), "{what} did not come");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn lines(&self, name: &str) -> usize {
        fs::read_to_string(self.path(name)).unwrap_or_default().lines().count()
    }

    /// The records, by their places.
    fn records(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let folder = self.path("out");
        let one = |run: &PathBuf| {
            (run.strip_prefix(&folder).unwrap().to_owned(), fs::read(run.join("record.jsonl")).unwrap())
        };
        allot_base::find::runs(&folder).iter().map(one).collect()
    }

    /// All tables of the report, and the array of scores.
    fn tables(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let report = self.path("out/report");
        let mut files: Vec<PathBuf> =
            fs::read_dir(report.join("tables")).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.extend(
            [report.join("tables.md"), report.join("report.json")].into_iter().filter(|p| p.exists()),
        );
        files.sort();
        let one = |path: &PathBuf| (path.file_name().unwrap().into(), fs::read(path).unwrap());
        files.iter().map(one).collect()
    }

    fn submissions(&self) -> usize {
        fs::read_dir(self.path("out/cluster")).map_or(0, Iterator::count)
    }
}

/// What `--executor local` makes of a config.
fn local(config: &str) -> Place {
    let place = Place::new(config);
    let (_, errors, code) = place.said(&["compare", "compare.toml", "--out", "out"]);
    assert_eq!(code, 0, "{errors}");
    place
}

fn compare<'a>(executor: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["compare", "compare.toml", "--out", "out", "--executor", executor], more].concat()
}

fn interrupted(child: Child) -> i32 {
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    child.wait_with_output().unwrap().status.code().unwrap()
}

/// The process of this program in a folder that was called with a word.
fn process(folder: &Path, word: &str) -> String {
    let here = fs::canonicalize(folder).unwrap();
    let all = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let ours = |path: &PathBuf| {
        let there = fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd == here);
        let called = fs::read(path.join("cmdline")).unwrap_or_default();
        there && called.split(|b| *b == 0).any(|argument| argument == word.as_bytes())
    };
    all.filter(|path| path.join("cmdline").exists())
        .find(ours)
        .unwrap()
        .file_name()
        .unwrap()
        .display()
        .to_string()
}

/// Whether a text is anywhere below a folder.
fn anywhere(folder: &Path, words: &str) -> bool {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() {
            return anywhere(&path, words);
        }
        fs::read(&path).unwrap().windows(words.len()).any(|w| w == words.as_bytes())
    })
}

// ---- Slurm

#[test]
fn slurm_leaves_what_this_machine_leaves() {
    let Some(slurm) = Slurm::start() else { return };
    let (place, here) = (Place::slurm(SIMULATED, &slurm), local(SIMULATED));
    let options = ["--jobs", "3", "--slurm-options", "--partition=main --comment=\"of a test\""];
    let (out, errors, code) = place.said(&compare("slurm", &options));
    assert_eq!(code, 0, "{errors}");
    assert!(errors.contains("3 policies × 4 seeds: 12 runs, 3 at a time with Slurm, in out"), "{errors}");
    assert!(errors.contains(" 12/12  "), "{errors}");
    assert_eq!(place.records(), here.records());
    assert_eq!(place.tables(), here.tables());
    let again = here.said(&["compare", "--resume", "out"]);
    assert_eq!(out, again.0);
    // This cluster takes arrays of up to nine.
    assert_eq!(place.submissions(), 2);
    let script = fs::read_to_string(place.path("out/cluster/001/array.sbatch")).unwrap();
    assert!(script.contains("#SBATCH --array=0-8%3\n"), "{script}");
    assert!(script.contains("#SBATCH --partition=main --comment=\"of a test\"\n"), "{script}");
    assert_eq!(slurm.left(), 0);
    // What is over is not made again, here or there.
    let (_, errors, code) = place.said(&["compare", "--resume", "out", "--executor", "slurm"]);
    assert!(code == 0 && errors.contains("12 have finished"), "{errors}");
    assert_eq!(place.submissions(), 2);
}

#[test]
fn a_comparison_on_slurm_that_is_killed_or_interrupted_comes_to_the_same_end() {
    let Some(slurm) = Slurm::start() else { return };
    let (place, here) = (Place::slurm(&trained(), &slurm), local(&trained()));
    let mut child = place.started(&compare("slurm", &["--jobs", "1"]));
    place.until("a run", |place| place.lines("out/runs/uniform/seed-0001/metrics.jsonl") > 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(slurm.left() > 0, "the runs ended with the command");
    // They are Slurm's, and no process of this machine makes them, too.
    let (_, errors, code) = place.said(&["compare", "--resume", "out"]);
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("of this comparison are still with Slurm"), "{errors}");
    assert!(
        errors.contains("hint: run this to continue them: allot compare --resume out --executor slurm"),
        "{errors}"
    );
    // The runs that are in the queue are waited for, and not handed over again.
    let resume = ["compare", "--resume", "out", "--executor", "slurm", "--jobs", "1"];
    let child = place.started(&resume);
    place.until("another run", |place| place.lines("out/runs/pods/seed-0001/metrics.jsonl") > 1);
    assert_eq!(place.submissions(), 1);
    assert_eq!(interrupted(child), 1);
    assert_eq!(slurm.left(), 0, "what was paused is in the queue still");
    let log = place.scratch.read("out/runs/pods/seed-0001.log");
    assert!(log.contains("paused "), "{log}");
    assert!(!place.path("out/runs/pods/seed-0002/record.jsonl").exists(), "a queued run was made");
    let (_, errors, code) = place.said(&resume);
    assert_eq!(code, 0, "{errors}");
    assert_eq!(place.submissions(), 2);
    assert!(place.records() == here.records(), "the records differ");
}

#[test]
fn what_slurm_ends_or_refuses_is_told() {
    let Some(slurm) = Slurm::start() else { return };
    let place = Place::slurm(&trained(), &slurm);
    let (_, errors, code) = place.said(&compare("slurm", &["--slurm-options", "--partition=none"]));
    insta::assert_snapshot!(errors.replace(&place.path("").display().to_string(), "[scratch]/"), @"
    2 policies × 2 seeds: 4 runs, as many at a time as Slurm has room for, in out
    error: sbatch: invalid partition specified: none

    hint: see [scratch]/out/cluster/001/array.sbatch for what was submitted, and set options with --slurm-options
    ");
    assert_eq!(code, 2);
    assert_eq!(slurm.left(), 0);

    let long = trained()
        .replace("steps = 200", "steps = 1000")
        .replace("rollouts = 100_000", "rollouts = 4_000_000");
    let place = Place::slurm(&long, &slurm);
    let child = place
        .command(&compare("slurm", &["--jobs", "2"]))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let metrics = |arm: &str| format!("out/runs/{arm}/seed-0001/metrics.jsonl");
    place.until("two runs", |p| p.lines(&metrics("uniform")) > 1 && p.lines(&metrics("pods")) > 1);
    fs::remove_file(place.path("out/cluster/001/task.sh")).unwrap();
    let job = slurm.said("squeue", &["--noheader", "--format=%F"]).lines().next().unwrap().to_owned();
    slurm.said("scancel", &[&format!("{job}_0")]);
    let folder = place.path("out/runs/pods/seed-0001").strip_prefix(place.path("")).unwrap().to_owned();
    let process = process(place.scratch.path(), &folder.display().to_string());
    Command::new("kill").args(["-KILL", &process]).status().unwrap();
    let done = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(1), "{errors}");
    let failed = |run: &str| {
        let all = errors.lines().filter(|line| line.starts_with(run)).collect::<Vec<_>>();
        assert_eq!(all.len(), 1, "{errors}");
        all[0].to_owned()
    };
    let cancelled = failed("`uniform` with seed 1 failed: its Slurm job was cancelled");
    assert!(cancelled.contains("; its progress is saved; its log is "), "{cancelled}");
    failed("`pods` with seed 1 failed: its process ended by signal 9");
    let unseen = failed("`uniform` with seed 2 failed: it left Slurm without an exit code in ");
    assert!(unseen.contains("make sure that all nodes see that folder"), "{unseen}");
    assert!(unseen.ends_with("out/cluster/001/2.out"), "{unseen}");
    assert!(
        errors.contains("to try failed runs again: allot compare --resume out --executor slurm"),
        "{errors}"
    );
}

#[test]
fn slurm_that_is_not_there_is_told() {
    let place = Place { settings: vec![("PATH", "/nowhere".into())], ..Place::new(SIMULATED) };
    insta::assert_snapshot!(place.said(&compare("slurm", &[])).1, @"
    error: there is no `scontrol` on this machine

    hint: run this where Slurm's commands are installed, such as a login node
    ");
    insta::assert_snapshot!(place.said(&compare("slurm", &["--slurm-options", "partition=main"])).1, @r#"
    error: "partition=main" are not valid options for sbatch

    hint: write them as in --slurm-options "--partition=short --time=2:00:00"
    "#);
    insta::assert_snapshot!(place.said(&compare("local", &["--slurm-options", "--qos=x"])).1, @"
    error: --slurm-options needs --executor slurm

    hint: leave it out, or set --executor slurm
    ");
    // The cores of a login node say nothing about a node's.
    let unsaid = trained().replace("threads = 2\n", "");
    insta::assert_snapshot!(Place::new(&unsaid).said(&compare("slurm", &[])).1, @"
    error: `compare.toml` does not set how many threads a run takes on a node

    hint: set `model.threads`: the cores of this machine are not a cluster's
    ");
}

// ---- Ray

#[test]
fn ray_leaves_what_this_machine_leaves() {
    let ray = Ray::start();
    let (place, here) = (Place::ray(SIMULATED, &ray), local(SIMULATED));
    // The second and the third answer are lost, and what they answered was done.
    ray.with(|inside| inside.lose = 2);
    let (out, errors, code) = place.said(&compare("ray", &[]));
    assert_eq!(code, 0, "{errors}");
    assert!(errors.contains("12 runs, as many at a time as Ray has room for, in out"), "{errors}");
    assert_eq!(place.records(), here.records());
    assert_eq!(place.tables(), here.tables());
    assert_eq!(out, here.said(&["compare", "--resume", "out"]).0);
    assert_eq!(ray.jobs().len(), 12);
    // As many as the CPUs of the nodes that are alive.
    assert!(ray.with(|inside| inside.most) <= 3);
    let first: serde_json::Value =
        serde_json::from_str(&place.scratch.read("out/cluster/001/over.json")).unwrap();
    assert_eq!(first["runs"].as_array().unwrap().len(), 3);
}

#[test]
fn a_comparison_on_ray_that_is_killed_or_interrupted_comes_to_the_same_end() {
    let ray = Ray::start();
    let (place, here) = (Place::ray(&trained(), &ray), local(&trained()));
    let mut child = place.started(&compare("ray", &["--jobs", "2"]));
    place.until("a run", |place| place.lines("out/runs/uniform/seed-0001/metrics.jsonl") > 1);
    // A run may be quicker than the next one's submission.
    place.until("another job", |_| ray.jobs().len() == 2);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = ray.jobs();
    let resume = ["compare", "--resume", "out", "--executor", "ray", "--jobs", "2"];
    let child = place.started(&resume);
    place.until("another run", |place| place.lines("out/runs/uniform/seed-0002/metrics.jsonl") > 1);
    assert_eq!(interrupted(child), 1);
    assert_eq!(ray.left(), 0, "what was paused is under way still");
    let log = place.scratch.read("out/runs/uniform/seed-0002.log");
    assert!(log.contains("paused "), "{log}");
    assert_eq!(before.len(), 2);
    // Away for a while: it is asked again.
    let child = place.command(&resume).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    place.until("a job", |_| ray.jobs().len() > 4);
    ray.with(|inside| inside.away = true);
    let asked = ray.with(|inside| inside.asked);
    place.until("three questions", |_| ray.with(|inside| inside.asked) > asked + 2);
    ray.with(|inside| inside.away = false);
    let done = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(0), "{errors}");
    assert!(place.records() == here.records(), "the records differ");
}

#[test]
fn a_job_that_ray_loses_is_told_and_the_others_count() {
    let ray = Ray::start();
    let place = Place::ray(SIMULATED, &ray);
    ray.with(|inside| inside.kill_next = Some("Job supervisor actor died: OOM"));
    let (_, errors, code) = place.said(&compare("ray", &["--jobs", "2"]));
    assert_eq!(code, 1, "{errors}");
    assert!(
        errors.contains("`uniform` with seed 3 failed: Ray ended it: Job supervisor actor died: OOM"),
        "{errors}"
    );
    let (_, errors, code) = place.said(&["compare", "--resume", "out", "--executor", "ray", "--jobs", "2"]);
    assert_eq!(code, 0, "{errors}");
    assert!(errors.contains("11 have finished"), "{errors}");
    assert_eq!(place.tables(), local(SIMULATED).tables());
}

#[test]
fn a_ray_that_is_no_good_is_told() {
    let ray = Ray::start();
    let told = |settings: &[(&'static str, &str)]| {
        let settings = settings.iter().map(|(name, value)| (*name, value.into())).collect();
        let place = Place { settings, ..Place::new(SIMULATED) };
        let (_, errors, code) = place.said(&compare("ray", &[]));
        assert_eq!(code, 2, "{errors}");
        assert!(!anywhere(place.scratch.path(), "verysecret"));
        errors.replace(&ray.address, "[ray]")
    };
    insta::assert_snapshot!(told(&[("RAY_ADDRESS", "ray://head:10001")]), @"
    error: `RAY_ADDRESS` is `ray://head:10001`; expected the HTTP address of Ray's dashboard

    hint: as in RAY_ADDRESS=http://127.0.0.1:8265
    ");
    insta::assert_snapshot!(told(&[("RAY_ADDRESS", "http://127.0.0.1:1")]), @"
    error: could not reach Ray at http://127.0.0.1:1: io: Connection refused (os error 111)

    hint: check the address in `RAY_ADDRESS`, and that the cluster is up
    ");
    ray.with(|inside| inside.token = Some("another".to_owned()));
    let secret = ("RAY_AUTH_TOKEN", "verysecret");
    insta::assert_snapshot!(told(&[("RAY_ADDRESS", &ray.address), secret]), @"
    error: Ray at [ray] refuses this user (401)

    hint: put the cluster's token into `RAY_AUTH_TOKEN`
    ");
    ray.with(|inside| inside.token = Some("verysecret".to_owned()));
    let place = Place::ray(SIMULATED, &ray);
    let done = place.command(&compare("ray", &["--jobs", "4"])).env(secret.0, secret.1).output().unwrap();
    assert!(done.status.success());
    assert!(!anywhere(place.scratch.path(), "verysecret"));
}
