//! The host's own time in a step, the engine faked: pool, view, rules, books, shelf, advantages,
//! record. A step here is two rounds: one that samples all groups, one that trains on them. The
//! record is written to nowhere: what is measured is making its lines.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;

use allot::meter::Meter;
use allot::reward::{Reward, Verdict};
use allot::step::{Decide, World, step};
use allot_allocation::advantage::Scale;
use allot_allocation::rules::Bounds;
use allot_allocation::{
    Action, Advantage, Batch, Books, Ceilings, Compute, Grant, Limits, Order, Pick, Plan, Pool, Request, Run,
    Shelf, View,
};
use allot_engine::{Capabilities, Engine, EngineError, Example, Report, Sample};
use allot_record::Record;
use allot_sandbox::{Fault, Line};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Samples and learns in no time.
struct Fake {
    version: u32,
}

impl Engine for Fake {
    type Answer = ();

    fn capabilities(&self) -> Capabilities {
        Capabilities { name: "fake".to_owned(), signals: Vec::new() }
    }

    fn version(&self) -> u32 {
        self.version
    }

    async fn sample(&mut self, grant: Grant) -> Result<Vec<Sample<()>>, EngineError> {
        let one = |prompt, position| Sample {
            prompt,
            position,
            version: 0,
            answer: (),
            tokens: 200 + position % 7,
            truncated: false,
            log_prob: 0.0,
            signals: Vec::new(),
        };
        Ok(grant
            .lines()
            .iter()
            .flat_map(|l| (l.first..l.first + l.count).map(|i| one(l.prompt, i)))
            .collect())
    }

    async fn score(&mut self, samples: &[&Sample<()>]) -> Result<Vec<f64>, EngineError> {
        Ok(vec![0.0; samples.len()])
    }

    async fn update(&mut self, _batch: &[Example<'_, ()>]) -> Result<Report, EngineError> {
        self.version += 1;
        Ok(Report::default())
    }

    fn computed(&mut self) -> Compute {
        Compute::default()
    }
}

struct EveryThird;

impl Reward<()> for EveryThird {
    async fn score(&mut self, samples: &[Sample<()>]) -> Result<Vec<Verdict>, allot::trouble::Trouble> {
        let verdicts = samples
            .iter()
            .map(|s| {
                let correct = (s.prompt.0 + s.position).is_multiple_of(3);
                Verdict { reward: Some(f32::from(correct)), correct }
            })
            .collect();
        Ok(verdicts)
    }
}

/// Samples all groups, trains on all.
struct All;

impl Decide for All {
    fn name(&self) -> &'static str {
        "all"
    }

    fn decide(&mut self, run: &Run, _state: &[u8], view: &View) -> Result<(Plan, Vec<Line>), Fault> {
        let action = if view.round == 0 {
            let prompts = view.pool.iter().take(run.groups as usize);
            Action::Sample(prompts.map(|p| Request { prompt: p.id, count: run.rollouts }).collect())
        } else {
            let pick = |prompt| Pick { prompt, rollouts: None, advantage: Advantage::Picked, weight: 1.0 };
            Action::Train(Batch {
                picks: view.groups.iter().map(|g| pick(g.prompt)).collect(),
                hold: Vec::new(),
            })
        };
        Ok((Plan::of(action), Vec::new()))
    }
}

fn world(prompts: u32, pool: u32) -> World<Fake, EveryThird, All> {
    let limits =
        Limits { rounds: 9, step_rollouts: None, run_rollouts: None, run_tokens: None, longest: 1000 };
    World {
        engine: Fake { version: 0 },
        reward: EveryThird,
        policy: All,
        state: Vec::new(),
        pool: Pool::new(1, Order::Shuffled, pool, vec![100; prompts as usize]),
        shelf: Shelf::new(0),
        samples: std::collections::HashMap::new(),
        books: Books::new(limits),
        meter: Meter::new(Ceilings::default()),
        record: Record::to(Box::new(std::io::sink()), Path::new("nowhere")),
        log: |_| {},
        scale: Scale::default(),
        bounds: Bounds::default(),
        seed: 1,
        steps: 0,
    }
}

fn host(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut group = c.benchmark_group("the host's own time in a step");
    group.sample_size(20);
    for prompts in [10_000_u32, 1_000_000] {
        for (groups, rollouts) in [(128, 144), (512, 144), (128, 800)] {
            let run = Run {
                settings: Vec::new(),
                prompts,
                steps: u32::MAX,
                groups,
                rollouts,
                pool: 3 * groups,
                max_age: 5,
            };
            let mut world = world(prompts, 3 * groups);
            let total = u64::from(groups * rollouts);
            group.throughput(Throughput::Elements(total));
            let id = BenchmarkId::new(
                format!("{prompts} prompts"),
                format!("{groups} groups of {rollouts} = {total} rollouts"),
            );
            group.bench_function(id, |b| {
                b.iter(|| runtime.block_on(step(&run, &mut world, &mut ())).unwrap());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, host);
criterion_main!(benches);
