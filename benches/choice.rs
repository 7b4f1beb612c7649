//! PODS' max-variance choice, natively, up to a million rewards.

#![allow(missing_docs)]

use std::hint::black_box;

use allot_allocation::seed::Stream;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn choice(c: &mut Criterion) {
    let mut group = c.benchmark_group("max-variance choice of a quarter");
    group.sample_size(20);
    for n in [1_000_usize, 100_000, 1_000_000] {
        let mut draws = Stream::new(n as u64);
        let real: Vec<f32> = (0..n).map(|_| draws.unit() as f32).collect();
        let binary: Vec<f32> = real.iter().map(|r| f32::from(*r < 0.3)).collect();
        group.throughput(Throughput::Elements(n as u64));
        for (kind, rewards) in [("real", &real), ("binary", &binary)] {
            group.bench_with_input(BenchmarkId::new(kind, n), rewards, |b, rewards| {
                b.iter(|| pods::max_variance(black_box(rewards), n / 4));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, choice);
criterion_main!(benches);
