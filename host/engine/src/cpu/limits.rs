//! Limits of a machine: how fast its cores read memory and multiply, measured by loops that do
//! nothing else.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::arithmetic::Arithmetic;
use super::bf16::pair;
use super::element::Element;
use super::kernels::wide_op;
use super::unit::{Multiply, Pair, ROWS, Side, Tile, Unit, WIDEST};
use crate::model::{ModelError, Precision};

/// Bytes to read at most: far more than caches hold.
const MOST: usize = 1 << 28;
/// Bytes that all threads read, at least, before they wait for each other.
const TOGETHER: usize = 1 << 24;
/// Streams that a core reads at once: more loads are in flight than with one.
const STREAMS: usize = 4;
/// Steps of products between two clock readings, per thread.
const AT_ONCE: usize = 1 << 14;

/// Threads, and memory to read.
pub struct MachineLimits {
    pool: ThreadPool,
    numbers: Vec<f32>,
}

impl MachineLimits {
    /// Returns measurements with this many threads, which read `bytes` again and again: as many as a model's weights have, since
    /// caches hold those of a small one.
    pub fn new(threads: usize, bytes: usize) -> Result<Self, ModelError> {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|e| ModelError::Threads(e.to_string()))?;
        let mut numbers = vec![0.0; bytes.clamp(1 << 12, MOST) / size_of::<f32>()];
        // Written once: untouched pages may all map to one.
        pool.install(|| numbers.par_iter_mut().enumerate().for_each(|(i, x)| *x = i as f32));
        Ok(Self { pool, numbers })
    }

    /// Returns bytes read per second, measured for at least `least`.
    pub fn read(&self, least: Duration) -> f64 {
        let each = self.numbers.len().div_ceil(self.pool.current_num_threads());
        let bytes = size_of_val(&self.numbers[..]);
        let times = TOGETHER.div_ceil(bytes);
        let passes = self.again(least, || {
            self.numbers.par_chunks(each).with_max_len(1).for_each(|part| {
                for _ in 0..times {
                    black_box(wide_op(Sum(black_box(part))));
                }
            });
        });
        passes * (times * bytes) as f64
    }

    /// Returns operations per second of products in this precision, measured for at least `least`.
    pub fn products(&self, precision: Precision, least: Duration) -> f64 {
        let arithmetic = Arithmetic::of(precision);
        let threads = self.pool.current_num_threads();
        let operations: usize =
            self.pool.install(|| (0..threads).into_par_iter().map(|_| lanes(arithmetic)).sum());
        let passes = self.again(least, || {
            (0..threads).into_par_iter().with_max_len(1).for_each(|_| {
                multiply(arithmetic, AT_ONCE);
            });
        });
        passes * (2 * operations * AT_ONCE) as f64
    }

    /// Returns the calls of `once` per second.
    fn again(&self, least: Duration, once: impl Fn() + Sync) -> f64 {
        self.pool.install(|| {
            let (start, mut passes) = (Instant::now(), 0.0);
            loop {
                once();
                passes += 1.0;
                let took = start.elapsed();
                if took >= least {
                    return passes / took.as_secs_f64();
                }
            }
        })
    }
}

/// The sum of numbers in whole vectors, in [`STREAMS`] streams.
struct Sum<'a>(&'a [f32]);

impl WithSimd for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let (vectors, _) = S::as_simd_f32s(self.0);
        let each = vectors.len() / STREAMS;
        let mut streams = [&vectors[..0]; STREAMS];
        for (stream, part) in streams.iter_mut().zip(vectors.chunks_exact(each.max(1))) {
            *stream = part;
        }
        let mut sums = [simd.splat_f32s(0.0); STREAMS];
        for i in 0..each {
            for (sum, stream) in sums.iter_mut().zip(&streams) {
                *sum = simd.add_f32s(*sum, stream[i]);
            }
        }
        sums.into_iter().map(|sum| simd.reduce_sum_f32s(sum)).sum()
    }
}

/// Returns the products of one step of [`Peak`].
fn lanes(arithmetic: Arithmetic) -> usize {
    multiply(arithmetic, 0)
}

/// Runs steps of products. Returns the number of products in a step.
fn multiply(arithmetic: Arithmetic, steps: usize) -> usize {
    let mut lanes = 0;
    match arithmetic {
        Arithmetic::Single => f32::run(Peak { elements: [1.0, 0.5], steps, lanes: &mut lanes }, None),
        Arithmetic::Bf16(instruction) => {
            let elements = [pair(1.0, 0.5), pair(0.5, 0.25)];
            Pair::run(Peak { elements, steps, lanes: &mut lanes }, instruction);
        }
    }
    lanes
}

/// Products of numbers in registers, with as many sums as a tile.
struct Peak<'a, E> {
    elements: [E; 2],
    steps: usize,
    lanes: &'a mut usize,
}

impl<E: Element> Multiply for Peak<'_, E> {
    type Element = E;

    #[inline(always)]
    fn with<S: Simd, U: Unit<S, Element = E>>(self, simd: S, unit: U) {
        if U::MATRICES {
            return self.matrices::<S, U>(unit);
        }
        *self.lanes = ROWS * 2 * S::F32_LANES * E::NUMBERS;
        let [a, b] = black_box(self.elements).map(|element| unit.splat(simd, element));
        let mut sums = [[simd.splat_f32s(0.0); 2]; ROWS];
        for _ in 0..self.steps {
            for sum in sums.as_flattened_mut() {
                *sum = unit.multiply_add(simd, a, b, *sum);
            }
        }
        let mut all = simd.splat_f32s(0.0);
        for sum in sums.as_flattened() {
            all = simd.add_f32s(all, *sum);
        }
        black_box(simd.reduce_sum_f32s(all));
    }
}

impl<E: Element> Peak<'_, E> {
    /// A step is a share of a tile from near caches.
    #[inline(always)]
    fn matrices<S: Simd, U: Unit<S, Element = E>>(self, unit: U) {
        const INNER: usize = 256;
        let side = black_box(vec![self.elements[0]; U::ROWS * INNER]);
        let panel = black_box(vec![self.elements[1]; WIDEST * INNER]);
        let mut sums = vec![0.0; U::ROWS * WIDEST];
        let side = Side::Rows(&side[..], INNER);
        let panel = (&panel[..], WIDEST);
        let tile =
            Tile { side, taken: U::ROWS, inner: INNER, panel, used: WIDEST, stride: WIDEST, add: false };
        *self.lanes = U::ROWS * WIDEST * E::NUMBERS;
        for _ in 0..self.steps / INNER {
            unit.matrix(&tile, &mut sums);
        }
        black_box(sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_reads_and_multiplies() {
        assert_eq!(wide_op(Sum(&[0.5; 1024])), 512.0);
        let least = Duration::from_millis(5);
        for bytes in [1 << 20, usize::MAX] {
            assert!(MachineLimits::new(2, bytes).expect("threads").read(least) > 1e8);
        }
        let limits = MachineLimits::new(2, 0).expect("threads");
        for precision in [Precision::F32, Precision::Bf16] {
            assert!(limits.products(precision, least) > 1e8);
        }
    }
}
