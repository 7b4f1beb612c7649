//! What a lag saves: the same run with none and with one, its rollouts on a server of ours that answers after a set time.
//! How long sampling and learning take by themselves is read from the run without a lag.
//!
//! ```sh
//! cargo bench --locked --bench lag -- --latency 300 --epochs 1500
//! ```

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "../tests/loopback/mod.rs"]
mod loopback;
#[path = "../tests/scratch/mod.rs"]
mod scratch;
#[allow(dead_code, reason = "nothing goes wrong here")]
#[path = "../tests/rollouts/server.rs"]
mod server;

use std::time::Duration;

use allot_record::{Time, Times};
use scratch::Scratch;
use server::{Kind, Server, Trick, What};

const CONFIG: &str = include_str!("../tests/cases/remote/short.toml");

/// Steps that are measured, after the first one. The server knows the seeds of no more versions.
const STEPS: u32 = 4;

/// A number of the command line.
fn option(name: &str, default: u64) -> u64 {
    let mut words = std::env::args().skip_while(|word| word != name).skip(1);
    words.next().map_or(default, |word| word.parse().unwrap())
}

/// Seconds of a run's steps after the first one, each on average: in all, of sampling, of updates.
fn measured(scratch: &Scratch, server: &Server, lag: u32) -> [f64; 3] {
    let (latency, epochs) = (option("--latency", 300), option("--epochs", 1500));
    let what = What::Slow(Duration::from_millis(latency));
    server.play(vec![Trick { verb: server.kind.verbs().0, at: 1, times: usize::MAX / 2, what }]);
    let there = format!(
        "[rollout_server]\nuse = \"{}\"\nurl = \"{}\"\nweights = \"{}\"\n\n[model]",
        server.kind.name(),
        server.url,
        server.weights.path().display(),
    );
    let config = CONFIG
        .replace("seed = 1", &format!("seed = 1\nlag = {lag}"))
        .replace("steps = 4", &format!("steps = {}", STEPS + 1))
        .replace("epochs = 1", &format!("epochs = {epochs}"))
        .replace("every = 2", "every = 1000")
        .replace("[model]", &there);
    scratch.write("run.toml", config);
    let run = format!("lag-{lag}");
    let said = scratch.allot(&["train", "run.toml", "--out", &run]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let times = Times::read(&scratch.path().join(run)).unwrap();
    let at = |step| {
        let found = times.iter().find_map(|time| match time {
            Time::Step { steps, seconds } if *steps == step => Some(*seconds),
            _ => None,
        });
        found.unwrap()
    };
    // With a lag, nothing is sampled any more while the last step waits for its update.
    let (first, last) = (at(1), at(STEPS));
    let mean = |from: f64, to: f64| (to - from) / f64::from(STEPS - 1);
    [
        mean(first.of_steps(), last.of_steps()),
        mean(first.sampling, last.sampling),
        mean(first.updating, last.updating),
    ]
}

fn main() {
    let (scratch, server) = (Scratch::new(), Server::start(Kind::Vllm));
    let [whole, sampling, updating] = measured(&scratch, &server, 0);
    let [beside, ..] = measured(&scratch, &server, 1);
    let larger = sampling.max(updating);
    println!("sampling {sampling:.3} s, updates {updating:.3} s, a step without a lag {whole:.3} s");
    println!("a step with a lag of 1 {beside:.3} s: {:.3} of the larger of the two", beside / larger);
}
