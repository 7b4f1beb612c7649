//! What a language costs: the same policies in several, each as a component and, where there is an
//! interpreter, as the same function in plain CPython and Node. Prints a table in Markdown.
//!
//! Not by criterion: a cold compile takes the better part of a minute, and is measured once. All else is the
//! best of a few, for these machines are shared.
//!
//! `eval "$(.ci/toolchains FOLDER)"; cargo bench --workspace --bench languages`

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "../tests/native/mod.rs"]
mod native;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use allot_allocation::{Run, View};
use allot_authoring::{build, fixtures};
use allot_sandbox::{Caps, Policy, Sandbox};

/// Each policy in each language it is written in, as a folder below `policies`.
const ALL: [(&str, &str, &str); 9] = [
    ("uniform", "Rust", "uniform"),
    ("uniform", "C", "uniform/c"),
    ("uniform", "Go", "uniform/go"),
    ("pilot-commit", "Rust", "pilot-commit"),
    ("pilot-commit", "Python", "pilot-commit/python"),
    ("pilot-commit", "JavaScript", "pilot-commit/js"),
    ("pods", "Rust", "pods"),
    ("pods", "Python", "pods/python"),
    ("pods", "JavaScript", "pods/js"),
];
/// Multiples of the published 4B scale.
const SCALES: [usize; 3] = [1, 4, 16];

fn main() {
    // What `cargo test --benches` would run takes minutes and proves nothing.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    println!(
        "| policy | language | component | cold compile | warm load | instance | decide 1× | 4× | 16× | memory 1× | 16× | without Wasm 1× | 4× | 16× |"
    );
    println!("| --- | --- {}|", "| ---: ".repeat(12));
    for (policy, language, place) in ALL {
        let folder = root().join("policies").join(place);
        let built = match build::project(&folder, &mut |_| {}) {
            Ok(built) => built.component,
            Err(error) => {
                println!("| `{policy}` | {language} | {} |", error.what);
                continue;
            }
        };
        let cache = scratch.path().join(place.replace('/', "-"));
        let load = || {
            let sandbox = Sandbox::new(Caps::default(), Some(&cache)).unwrap();
            let start = Instant::now();
            (sandbox.load(&built, None).unwrap(), start.elapsed())
        };
        let (_, cold) = load();
        // What the cache leaves to a thread of its own is done by then.
        std::thread::sleep(Duration::from_secs(2));
        let warm = (0..5).map(|_| load().1).min().unwrap();
        let (guest, _) = load();
        let instance = best(20, || guest.instantiate().unwrap());
        let (times, memory): (Vec<_>, Vec<_>) = SCALES.iter().map(|times| decide(&guest, *times)).unzip();
        let plain = plain(policy, language, &folder, scratch.path());
        let mib = |bytes: usize| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        let cells = [
            format!("`{policy}` | {language}"),
            format!("{:.2} MB", built.len() as f64 / 1e6),
            told(cold),
            told(warm),
            told(instance),
        ];
        let cells = cells.into_iter().chain(times.into_iter().map(told));
        let cells = cells.chain([mib(memory[0]), mib(memory[2])]).chain(plain);
        println!("| {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}

/// The best time of one decision at a scale, and the memory that it took.
fn decide(guest: &Policy, times: usize) -> (Duration, usize) {
    let (run, view) = (run(&guest.description().name), fixtures::scale(times, 0));
    let state = guest.begin(&run).unwrap().0;
    let mut memory = 0;
    let time = best(5, || memory = guest.decide(&run, &state, &view).unwrap().1.memory);
    (time, memory)
}

/// The same function without Wasm, at each scale.
fn plain(policy: &str, language: &str, folder: &Path, scratch: &Path) -> Vec<String> {
    let script = match language {
        "Rust" => {
            let native = native::all().into_iter().find(|n| n.name == policy).unwrap();
            let one = |times: &usize| {
                let run = run(policy);
                let state = (native.begin)(&run).unwrap();
                let view = native::view_of(&fixtures::scale(*times, 0), &run);
                let run = native::run_of(&run);
                told(best(20, || (native.bare)(&run, &state, &view).unwrap()))
            };
            return SCALES.iter().map(one).collect();
        }
        "Python" => ("python3", "decide.py"),
        "JavaScript" => ("node", "decide.mjs"),
        _ => return vec!["–".to_owned(); 3],
    };
    let one = |times: &usize| {
        let asked = scratch.join("asked.json");
        std::fs::write(&asked, question(&run(policy), &fixtures::scale(*times, 0))).unwrap();
        let mut command = Command::new(script.0);
        let done = command.arg(root().join("benches/native").join(script.1)).arg(folder).arg(&asked).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let seconds: f64 = String::from_utf8(done.stdout).unwrap().trim().parse().unwrap();
        told(Duration::from_secs_f64(seconds))
    };
    SCALES.iter().map(one).collect()
}

fn question(run: &Run, view: &View) -> String {
    serde_json::json!({ "run": run, "view": view }).to_string()
}

fn run(name: &str) -> Run {
    let settings = native::defaults(name);
    Run {
        settings,
        prompts: 53_000,
        steps: 500,
        groups: 128,
        rollouts: 64,
        pool: 384,
        max_age: 5,
        lag: 0,
        terms: None,
    }
}

/// The best of a few, as many as fit into some seconds.
fn best<T>(times: u32, mut what: impl FnMut() -> T) -> Duration {
    let (began, mut best) = (Instant::now(), Duration::MAX);
    for _ in 0..times {
        let start = Instant::now();
        std::hint::black_box(what());
        best = best.min(start.elapsed());
        if began.elapsed() > Duration::from_secs(20) {
            break;
        }
    }
    best
}

fn told(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 0.01 => format!("{:.0} ms", s * 1e3),
        s if s >= 0.001 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.0} µs", s * 1e6),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
