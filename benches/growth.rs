//! How the host's own work grows, one axis at a time: prompts in the data set, prompts on offer, rollouts of a
//! group, samples of a plan, and samples that a server is asked for at a time. The model, the reward and the
//! server are faked; all else is real.
//!
//! Each case is a process of its own, so that its peak of memory is its own; times are CPU time, so that others
//! at work on the machine do not count.
//!
//! `cargo bench --workspace --bench growth -- [AXIS…] [--json]`, an axis being `prompts`, `offers`, `rollouts`,
//! `samples` or `served`. Memory needs Linux.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, missing_docs)]

#[path = "growth/checkpoint.rs"]
mod checkpoint;
#[path = "growth/clock.rs"]
mod clock;
mod fake;
#[path = "growth/parts.rs"]
mod parts;
#[path = "growth/served.rs"]
mod served;
#[path = "growth/steps.rs"]
mod steps;

use std::process::{Command, Stdio};

use allot::shipped;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use parts::Part;
use served::{Asked, Served};
use steps::{Case, Steps};

/// A process of a case: what it is to do, and on what.
#[derive(Serialize, Deserialize)]
enum Job {
    /// Steps as they are.
    Plain(Case),
    /// The same steps, every part with a clock of its own.
    Parts(Case),
    /// A checkpoint of that pool.
    Checkpoint(Case),
    /// A server's client.
    Asked(Asked),
    /// The server.
    Serve { think: u64 },
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(job) = args.iter().find_map(|arg| arg.strip_prefix("job=")) {
        return work(serde_json::from_str(job).unwrap());
    }
    let json = args.iter().any(|arg| arg == "--json");
    let axes: Vec<&str> = args.iter().map(String::as_str).filter(|arg| !arg.starts_with('-')).collect();
    for (axis, size, cases) in axes_of_steps() {
        if axes.is_empty() || axes.contains(&axis) {
            sweep(axis, size, &cases, json);
        }
    }
    if axes.is_empty() || axes.contains(&"served") {
        serve(json);
    }
}

/// What a process of a case does. It says what it found in one line.
fn work(job: Job) {
    let said = match job {
        Job::Plain(case) => serde_json::to_string(&steps::plain(&case)),
        Job::Parts(case) => serde_json::to_string(&steps::parts(&case)),
        Job::Checkpoint(case) => serde_json::to_string(&checkpoint::cost(&case)),
        Job::Asked(asked) => serde_json::to_string(&served::ask(asked)),
        Job::Serve { think } => return served::serve(think),
    };
    println!("{}", said.unwrap());
}

/// A process for a job, its standard output piped.
fn process(job: &Job) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(format!("job={}", serde_json::to_string(job).unwrap())).stdout(Stdio::piped());
    command
}

/// What a job's process found, or none where it failed: then it has said why.
fn found<T: DeserializeOwned>(job: &Job) -> Option<T> {
    let output = process(job).spawn().unwrap().wait_with_output().unwrap();
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

type Axis = (&'static str, fn(&Case) -> u32, Vec<Case>);

/// The sweeps: an axis, what of a case lies on it, and the cases.
fn axes_of_steps() -> Vec<Axis> {
    // At half the groups of the published 4B run, eight rollouts a group.
    let base = |policy: &str| Case {
        policy: policy.to_owned(),
        prompts: 100_000,
        groups: 64,
        rollouts: 8,
        pool: 256,
        steps: 20,
    };
    // What a run of this bench does not give: other contract features, columns, signals.
    let plain = |name: &&str| {
        !["adarft", "length-limit", "mopps", "prefix-sampling", "rl-zvp", "sgpo", "strata", "tree-grpo"]
            .contains(name)
    };
    let all = |of: &dyn Fn(Case) -> Vec<Case>| -> Vec<Case> {
        shipped::names().into_iter().filter(plain).flat_map(|name| of(base(name))).collect()
    };
    let prompts = all(&|base| {
        let one = |prompts| Case { prompts, ..base.clone() };
        [1_000, 10_000, 100_000, 1_000_000].map(one).to_vec()
    });
    let offers = all(&|base| {
        let one =
            |n: u32| Case { prompts: n, pool: n, steps: if n > 100_000 { 2 } else { 8 }, ..base.clone() };
        [1_000, 10_000, 100_000, 1_000_000].map(one).to_vec()
    });
    let rollouts = all(&|base| {
        let one = |rollouts| Case { rollouts, steps: 8, ..base.clone() };
        [8, 32, 128, 512, 1_000].map(one).to_vec()
    });
    let samples = all(&|base| {
        let one = |samples: u32| {
            let groups = samples / base.rollouts;
            Case { groups, pool: 4 * groups, steps: if samples > 10_000 { 2 } else { 8 }, ..base.clone() }
        };
        [96, 1_000, 10_000, 100_000].map(one).to_vec()
    });
    vec![
        ("prompts", |case| case.prompts, prompts),
        ("offers", |case| case.pool, offers),
        ("rollouts", |case| case.rollouts, rollouts),
        ("samples", |case| case.groups * case.rollouts, samples),
    ]
}

fn sweep(axis: &str, size: fn(&Case) -> u32, cases: &[Case], json: bool) {
    if !json {
        println!("\n{axis}: milliseconds of CPU time a step, and its parts");
        let parts: Vec<String> = Part::ALL.iter().map(|part| format!("{:>9}", part.name())).collect();
        println!(
            "{:<14}{axis:>9} {:>9} {:>9} {} | {:>8} {:>8} {:>8} {:>8} {:>8}",
            "policy",
            "rollouts",
            "step",
            parts.join(""),
            "B/roll.",
            "MB",
            "guest MB",
            "Ginstr.",
            "start ms"
        );
    }
    for case in cases {
        let (Some(plain), Some(parts)) =
            (found::<Steps>(&Job::Plain(case.clone())), found::<Vec<(Part, f64)>>(&Job::Parts(case.clone())))
        else {
            continue;
        };
        if json {
            let line = serde_json::json!({ "axis": axis, "case": case, "steps": plain, "parts": parts });
            println!("{line}");
            continue;
        }
        let of = |part: &Part| parts.iter().find(|(p, _)| p == part).map_or(0.0, |(_, ms)| *ms);
        let shown: Vec<String> = Part::ALL.iter().map(|part| format!("{:>9.3}", of(part))).collect();
        println!(
            "{:<14}{:>9} {:>9.0} {:>9.3} {} | {:>8.1} {:>8.1} {:>8.1} {:>8.3} {:>8.2}",
            case.policy,
            size(case),
            plain.rollouts,
            plain.step,
            shown.join(""),
            plain.bytes,
            plain.memory,
            plain.guest_memory,
            plain.fuel / 1e9,
            plain.start,
        );
    }
    if axis == "prompts" {
        kept(cases, json);
    }
}

/// What a checkpoint takes, of the pools of one policy's cases: all prompts of each were visited.
fn kept(cases: &[Case], json: bool) {
    if !json {
        println!("\n{:>9} {:>10} {:>9} {:>9} {:>9}", "prompts", "state MB", "save ms", "load ms", "MB");
    }
    for case in cases.iter().filter(|case| case.policy == cases[0].policy) {
        let Some(kept) = found::<checkpoint::Kept>(&Job::Checkpoint(case.clone())) else { continue };
        if json {
            println!("{}", serde_json::json!({ "axis": "checkpoint", "case": case, "kept": kept }));
            continue;
        }
        let (state, save, load) = (kept.bytes / 1e6, kept.save, kept.load);
        println!("{:>9} {state:>10.1} {save:>9.1} {load:>9.1} {:>9.1}", case.prompts, kept.memory);
    }
}

fn serve(json: bool) {
    if !json {
        println!("\nserved: a plan's samples asked of a server, so many at a time");
        println!(
            "{:>9} {:>9} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "samples", "think ms", "connections", "wall s", "CPU s", "opened", "asked", "MB"
        );
    }
    for (samples, think, connections) in served::cases() {
        let mut server = process(&Job::Serve { think }).stdin(Stdio::piped()).spawn().unwrap();
        let port = served::port(server.stdout.take().unwrap());
        let job = Job::Asked(Asked { samples, connections, port });
        let found = found::<Served>(&job);
        // It ends with its standard input.
        drop(server.stdin.take());
        server.wait().unwrap();
        let Some(found) = found else { continue };
        if json {
            let case = serde_json::json!({ "samples": samples, "think": think, "connections": connections });
            println!("{}", serde_json::json!({ "axis": "served", "case": case, "served": found }));
            continue;
        }
        let Served { wall, cpu, opened, asked, memory } = found;
        println!(
            "{samples:>9} {think:>9} {connections:>12} {wall:>9.2} {cpu:>9.2} {opened:>9} {asked:>9} {memory:>9.1}"
        );
    }
}
