//! A run of 10,000 steps, the model and the reward faked and all else real: a policy in its sandbox, pool,
//! buffer, ledger, and a run's folder with its record, times, metrics, events and table of rollouts, a part of
//! which is closed every 50 steps as a checkpoint does. It fails where the process holds over 5 % more memory
//! at the end than after a tenth of the run, and tells what writing the record took.
//!
//! `cargo bench --workspace --bench long -- [STEPS [GROUPS ROLLOUTS [TEXT EVERY]]]`. TEXT is the bytes of an answer
//! in the table, 0 for none, and EVERY the steps between two checkpoints: memory must not grow with what lies
//! between them. It needs Linux, which tells memory.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod fake;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use allot::callbacks::{Callbacks, CameIn, Go};
use allot::shadow::Decider;
use allot::shipped;
use allot::stop::Stop;
use allot::tally::StepTally;
use allot::world::World;
use allot_allocation::{RolloutId, Run, Settled};
use allot_loop::{Learned, Scores};
use allot_outputs::metrics::Metrics;
use allot_outputs::rollouts::{Fate, Purpose, RolloutRow, Table};
use allot_outputs::tensorboard::Events;
use allot_record::{Line, Record, StepEnd, Time, Times};
use allot_sandbox::{Caps, Sandbox};

/// Steps between two checkpoints, if none are given.
const EVERY: u32 = 50;

/// What may be on top of the memory after a tenth of the run, by when there were two checkpoints.
const GROWTH: f64 = 0.05;

fn main() -> ExitCode {
    // Cargo says `--bench`.
    let given: Vec<u32> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    let of = |i: usize, default| given.get(i).copied().unwrap_or(default);
    let (steps, groups, rollouts) = (of(0, 10_000), of(1, 16), of(2, 32));
    let (text, every) = (of(3, 0), of(4, EVERY));

    let sandbox = Sandbox::new(Caps::default(), None).unwrap();
    let policy = sandbox.load(shipped::component("pilot-commit").unwrap(), None).unwrap();
    let typed = [format!("pilot={}", rollouts / 4), format!("commit={}", rollouts - rollouts / 4)];
    let settings = allot_config::typed(&typed, "").unwrap();
    let settings = allot_config::settings(policy.description(), &settings).unwrap();
    let run = Run {
        settings,
        prompts: 4000,
        steps: u32::MAX,
        groups,
        rollouts,
        pool: 12 * groups,
        max_age: 5,
        lag: 0,
        terms: None,
    };

    let folder = tempfile::tempdir().unwrap();
    let spent = Arc::new(Spent::default());
    let path = folder.path().join("record.jsonl");
    let timed = Timed { file: File::create(&path).unwrap(), spent: Arc::clone(&spent) };
    let record = Record::to(Box::new(timed), &path);
    let mut world = fake::world(Decider::alone(&policy), policy.begin(&run).unwrap().0, &run, record);
    let mut recorder = RunRecorder::new(folder.path(), text, every);

    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    println!("policy {}, {groups} groups of {rollouts}", policy.description().name);
    println!("  steps   rollouts     record    memory");
    let began = Instant::now();
    let (mut early, mut late) = (0, 0);
    for done in 1..=steps {
        runtime.block_on(fake::step(&mut world, &mut recorder)).unwrap();
        if done.is_multiple_of((steps / 10).max(1)) {
            let Some(resident) = memory("VmRSS:") else {
                println!("no memory in /proc/self/status");
                return ExitCode::FAILURE;
            };
            let (sampled, bytes) = (world.run.state.ledger.spent().run_rollouts, world.record.bytes());
            println!("{done:>7} {sampled:>10} {:>7} MB {resident:>6} kB", bytes / 1_000_000);
            early = if early == 0 && done >= 2 * every { resident } else { early };
            late = resident;
        }
    }
    let all = began.elapsed().as_secs_f64();
    let each = |seconds: f64| seconds * 1e6 / f64::from(steps);
    println!("a step took {:.0} µs", each(all));
    println!("  handing the record to the system {:.1} µs", each(spent.seconds()));
    println!("  making its lines {:.1} µs", each(made(&path)));

    if let Some(peak) = memory("VmHWM:") {
        println!("at most {} MB of memory, {text} bytes of text in a rollout", peak / 1000);
    }
    if early == 0 {
        println!("too few steps to tell whether memory grows");
        return ExitCode::FAILURE;
    }
    let growth = f64::from(late) / f64::from(early) - 1.0;
    println!("memory: {:+.1} % since a tenth of the run, {:+.0} % at most", 100.0 * growth, 100.0 * GROWTH);
    if growth > GROWTH { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// What a run's recorder keeps, of a run without a model.
struct RunRecorder {
    table: Table,
    times: Times,
    metrics: Metrics,
    events: Events,
    step: StepTally,
    /// An answer.
    text: Option<String>,
    /// Steps between two checkpoints.
    every: u32,
}

impl RunRecorder {
    fn new(folder: &Path, text: u32, every: u32) -> Self {
        Self {
            table: Table::create(&folder.join("rollouts"), "long").unwrap(),
            times: Times::create(&folder.join("times.jsonl")).unwrap(),
            metrics: Metrics::create(&folder.join("metrics.jsonl")).unwrap(),
            events: Events::create(&folder.join("tensorboard")).unwrap(),
            step: StepTally::default(),
            text: (text > 0).then(|| "0123456789".repeat(text.div_ceil(10) as usize)),
            every,
        }
    }
}

impl<R, P> Callbacks<fake::Fake, R, P> for RunRecorder {
    async fn evaluate(&mut self, _: &mut World<fake::Fake, R, P>) -> Result<Scores, Stop> {
        Ok(Scores::default())
    }

    fn after(&mut self, world: &mut World<fake::Fake, R, P>, end: &StepEnd) -> Result<Go, Stop> {
        let (steps, seconds) = (end.step + 1, world.run.state.measured.seconds);
        let numbers = std::mem::take(&mut self.step).numbers(end, 1.0, end.spent.run_tokens);
        self.times.write(&Time::Step { steps, seconds }).unwrap();
        self.metrics.write(steps, &numbers).unwrap();
        for (name, value) in &numbers {
            self.events.scalar(name, steps, *value).unwrap();
        }
        if steps.is_multiple_of(self.every) {
            self.table.close_part().unwrap();
            world.record.sync().unwrap();
            self.times.sync().unwrap();
            self.metrics.sync().unwrap();
            self.events.sync().unwrap();
        }
        Ok(Go::Pause)
    }

    fn sampled(&mut self, came: CameIn<'_, ()>) -> Result<(), Stop> {
        let CameIn { round, first, samples, outcomes, .. } = came;
        for (i, (sample, outcome)) in samples.iter().zip(outcomes).enumerate() {
            self.step.add(outcome);
            let row = RolloutRow {
                step: round.step,
                round: Some(round.round),
                rollout: RolloutId(first.0 + i as u64),
                prompt: sample.prompt,
                problem: format!("{:016x}", sample.prompt.0),
                source: "made".to_owned(),
                purpose: Purpose::Pilot,
                position: sample.position,
                version: sample.version,
                tokens: sample.tokens,
                truncated: sample.truncated,
                log_prob: Some(sample.log_prob),
                reward: outcome.reward,
                rewards: Vec::new(),
                correct: outcome.correct,
                played: None,
                text: self.text.clone(),
                learned: None,
            };
            self.table.add(row).map_err(Stop::Outputs)?;
        }
        Ok(())
    }

    fn settled(&mut self, settled: &Settled, learned: &[Learned]) -> Result<(), Stop> {
        for l in learned {
            self.table.train(l.id, l.age, l.advantage).map_err(Stop::Outputs)?;
        }
        let trained = settled.finished.iter().map(|id| (*id, Fate::Trained));
        let released = settled.released.iter().map(|id| (*id, Fate::Released));
        let stale = settled.stale.iter().map(|id| (*id, Fate::Stale));
        let mut fates = trained.chain(released).chain(stale);
        fates.try_for_each(|(id, fate)| self.table.settle(id, fate)).map_err(Stop::Outputs)
    }
}

/// A file that counts how long its writes take.
struct Timed {
    file: File,
    spent: Arc<Spent>,
}

/// Nanoseconds.
#[derive(Default)]
struct Spent(AtomicU64);

impl Spent {
    fn seconds(&self) -> f64 {
        self.0.load(Ordering::Relaxed) as f64 / 1e9
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let began = Instant::now();
        let written = self.file.write(bytes);
        self.spent.0.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Seconds that making the lines of a record takes: all of it, once more, one line in memory at a time.
fn made(path: &Path) -> f64 {
    let text = io::BufRead::lines(io::BufReader::new(File::open(path).unwrap()));
    text.map(|line| {
        let line: Line = serde_json::from_str(&line.unwrap()).unwrap();
        let began = Instant::now();
        std::hint::black_box(serde_json::to_vec(&line).unwrap());
        began.elapsed().as_secs_f64()
    })
    .sum()
}

/// Memory that this process holds, in kB.
fn memory(kind: &str) -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(kind))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}
