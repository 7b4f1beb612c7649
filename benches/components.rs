//! What a call costs by what a policy is shown and asks for: components that are named on the command line, each asked
//! with nothing to see, with 18,432 buffered rollouts, and with a data set of 100,000 prompts that were all visited.
//! Prints a table in Markdown, in milliseconds, the best of twenty calls.
//!
//! `cargo bench --workspace --bench components -- asks.wasm asks-nothing.wasm`

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::path::Path;
use std::time::{Duration, Instant};

use allot_allocation::{History, PromptId, Run, View, Visit};
use allot_authoring::fixtures;
use allot_sandbox::{Caps, Policy, Sandbox};

const PROMPTS: u32 = 100_000;

fn main() {
    let named: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let scratch = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(Caps::default(), Some(scratch.path())).unwrap();
    let full = fixtures::scale(1, 0);
    let empty = View { groups: Vec::new(), pool: Vec::new(), unscored: Vec::new(), ..full.clone() };
    let mut history = History::default();
    let visit = |id| Visit {
        prompt: PromptId(id),
        rollouts: 8,
        correct: id % 9,
        mean: (id % 9) as f32 / 8.0,
        deviation: 0.25,
        tokens: 100.0,
        flat: id.is_multiple_of(8),
    };
    history.remember(0, &(0..PROMPTS).map(visit).collect::<Vec<_>>());
    let visited = View { history, ..empty.clone() };
    println!(
        "| component | an empty view | {} rollouts | {PROMPTS} prompts visited |",
        full.groups.iter().map(allot_allocation::Group::len).sum::<usize>()
    );
    println!("| --- | ---: | ---: | ---: |");
    for name in named {
        let guest = sandbox.load(&std::fs::read(&name).unwrap(), None).unwrap();
        let [a, b, c] = [(1, &empty), (1, &full), (PROMPTS, &visited)].map(|(n, view)| best(&guest, n, view));
        let ms = |time: Duration| format!("{:.2}", time.as_secs_f64() * 1e3);
        let name = Path::new(&name).file_name().unwrap_or_default().to_string_lossy().into_owned();
        println!("| {name} | {} | {} | {} |", ms(a), ms(b), ms(c));
    }
}

fn best(guest: &Policy, prompts: u32, view: &View) -> Duration {
    let settings = guest.description().settings.iter().map(|s| (s.name.clone(), s.default.clone())).collect();
    let run = Run {
        settings,
        prompts,
        steps: 500,
        groups: 128,
        rollouts: 64,
        pool: 384,
        max_age: 5,
        lag: 0,
        terms: None,
    };
    let state = guest.begin(&run).unwrap().0;
    let one = |_| {
        let start = Instant::now();
        guest.decide(&run, &state, view).unwrap();
        start.elapsed()
    };
    (0..20).map(one).min().unwrap()
}
