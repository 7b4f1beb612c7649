//! The host's own time in a step, the engine faked: pool, view, rules, ledger, buffer, advantages,
//! record. A step here is two rounds: one that samples all groups, one that trains on them. The
//! record is written to nowhere: what is measured is making its lines.

#![allow(clippy::unwrap_used, missing_docs)]

mod fake;

use std::path::Path;

use allot::callbacks::{Callbacks, Decide, Go};
use allot::stop::Stop;
use allot::world::World;
use allot_allocation::{Action, Advantage, Batch, Pick, Plan, Request, Run, View};
use allot_loop::Scores;
use allot_record::{Record, StepEnd};
use allot_sandbox::{Fault, LogLine};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Samples all groups, trains on all.
struct All;

impl Decide for All {
    fn name(&self) -> &'static str {
        "all"
    }

    fn decide(&mut self, run: &Run, _state: &[u8], view: &View) -> Result<(Plan, Vec<LogLine>), Fault> {
        let action = if view.round == 0 {
            let prompts = view.pool.iter().take(run.groups as usize);
            Action::Sample(prompts.map(|p| Request::new(p.id, run.rollouts)).collect())
        } else {
            let pick = |prompt| Pick { prompt, rollouts: None, advantage: Advantage::Picked, weight: 1.0 };
            Action::Train(Batch {
                picks: view.groups.iter().map(|g| pick(g.prompt)).collect(),
                ..Batch::default()
            })
        };
        Ok((Plan::of(action), Vec::new()))
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
                lag: 0,
                terms: None,
            };
            let record = Record::to(Box::new(std::io::sink()), Path::new("nowhere"));
            let mut world = fake::world(All, Vec::new(), &run, record);
            let total = u64::from(groups * rollouts);
            group.throughput(Throughput::Elements(total));
            let id = BenchmarkId::new(
                format!("{prompts} prompts"),
                format!("{groups} groups of {rollouts} = {total} rollouts"),
            );
            group.bench_function(id, |b| {
                b.iter(|| runtime.block_on(fake::step(&mut world, &mut Nobody)).unwrap());
            });
        }
    }
    group.finish();
}

/// Nobody, who lets each step be the last for now.
struct Nobody;

impl<R, P> Callbacks<fake::Fake, R, P> for Nobody {
    async fn evaluate(&mut self, _: &mut World<fake::Fake, R, P>) -> Result<Scores, Stop> {
        Ok(Scores::default())
    }

    fn after(&mut self, _: &mut World<fake::Fake, R, P>, _: &StepEnd) -> Result<Go, Stop> {
        Ok(Go::Pause)
    }
}

criterion_group!(benches, host);
criterion_main!(benches);
