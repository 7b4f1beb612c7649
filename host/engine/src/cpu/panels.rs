//! Weights laid out for products with a few rows: what a token of every answer is multiplied with.
//!
//! A general product lays out one of its sides anew in each call, which is most of the work where there are
//! few rows. Here the weights lie in panels that were made once: some outputs side by side, an input after
//! the other, so that a panel is read from its start to its end by the widest vectors there are.
//!
//! Each number that comes out is a sum over the inputs in their order, one fused multiply and add after the
//! other: the same to the last bit for any number of rows, whichever else they are, and any number of threads.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::kernels::wide_op;

/// A matrix `[outputs, inputs]` in panels.
#[derive(Clone, Debug, Default)]
pub struct Panels {
    numbers: Vec<f32>,
    /// Where the first panel begins: at a line of the cache.
    start: usize,
    outputs: usize,
    inputs: usize,
    /// Outputs of a panel.
    width: usize,
}

/// Numbers of a line of the cache.
const LINE: usize = 16;
/// Rows that are multiplied with a vector of weights while it is in a register.
const ROWS: usize = 6;
/// The most outputs that a panel has.
const WIDEST: usize = 64;

impl Panels {
    /// Of a matrix whose rows lie one after the other.
    pub fn of(weights: &[f32], outputs: usize, inputs: usize) -> Self {
        let width = wide_op(Width);
        let panels = outputs.div_ceil(width);
        let mut numbers = vec![0.0; panels * width * inputs + LINE];
        let start = numbers.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
        let places = numbers[start..].par_chunks_exact_mut((width * inputs).max(1));
        places.zip(weights.par_chunks((width * inputs).max(1))).for_each(|(panel, rows)| {
            // A few inputs at a time, so that both sides stay in the cache.
            for from in (0..inputs).step_by(LINE) {
                let to = inputs.min(from + LINE);
                for (column, row) in rows.chunks_exact(inputs).enumerate() {
                    for input in from..to {
                        panel[input * width + column] = row[input];
                    }
                }
            }
        });
        Self { numbers, start, outputs, inputs, width }
    }

    /// `y = x Wᵀ`, or `y += x Wᵀ` with `add`. `x` is `[N, inputs]`, `y` `[N, outputs]`.
    pub fn product(&self, x: &[f32], y: &mut [f32], add: bool) {
        let all = 0..self.outputs.div_ceil(self.width);
        wide_op(Product { panels: self, which: all, x, y, stride: self.outputs, add });
    }

    /// The same, its panels spread over `threads`, each with room of its own.
    pub fn shared(&self, x: &[f32], y: &mut [f32], add: bool, threads: usize, rooms: &mut Vec<Vec<f32>>) {
        let panels = self.outputs.div_ceil(self.width);
        let each = panels.div_ceil(threads.max(1)).max(1);
        let parts = panels.div_ceil(each);
        if parts <= 1 {
            return self.product(x, y, add);
        }
        let rows = x.len() / self.inputs.max(1);
        rooms.resize_with(parts.max(rooms.len()), Vec::new);
        let span = |part: usize| part * each..panels.min((part + 1) * each);
        let columns =
            |part: usize| part * each * self.width..self.outputs.min((part + 1) * each * self.width);
        rooms[..parts].par_iter_mut().enumerate().for_each(|(part, room)| {
            let stride = columns(part).len();
            room.resize(rows * stride, 0.0);
            wide_op(Product { panels: self, which: span(part), x, y: room, stride, add: false });
        });
        for (part, room) in rooms[..parts].iter().enumerate() {
            let columns = columns(part);
            for (y, room) in y.chunks_exact_mut(self.outputs).zip(room.chunks_exact(columns.len())) {
                let y = &mut y[columns.clone()];
                if add {
                    y.iter_mut().zip(room).for_each(|(y, r)| *y += r);
                } else {
                    y.copy_from_slice(room);
                }
            }
        }
    }

    fn panel(&self, number: usize) -> &[f32] {
        let size = self.width * self.inputs;
        &self.numbers[self.start + number * size..][..size]
    }
}

/// Outputs of a panel on this machine: as many as there are registers for the sums of [`ROWS`] rows.
struct Width;

impl WithSimd for Width {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        (vectors::<S>() * S::F32_LANES).min(WIDEST)
    }
}

/// Vectors of a panel's width: 24 sums of 32 registers, or 12 of 16.
#[inline(always)]
fn vectors<S: Simd>() -> usize {
    if S::REGISTER_COUNT >= 32 { 4 } else { 2 }
}

/// A product with some panels. `y` has their outputs alone, `stride` a row.
struct Product<'a> {
    panels: &'a Panels,
    which: std::ops::Range<usize>,
    x: &'a [f32],
    y: &'a mut [f32],
    stride: usize,
    add: bool,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if vectors::<S>() == 4 { self.run::<S, 4>(simd) } else { self.run::<S, 2>(simd) }
    }
}

impl Product<'_> {
    #[inline(always)]
    fn run<S: Simd, const V: usize>(self, simd: S) {
        let Self { panels, which, x, y, stride, add } = self;
        let (inputs, width) = (panels.inputs, panels.width);
        let rows = x.len() / inputs.max(1);
        let first = which.start * width;
        for number in which {
            let (weights, _) = S::as_simd_f32s(panels.panel(number));
            let at = number * width - first;
            let used = width.min(panels.outputs - number * width);
            let mut row = 0;
            while row < rows {
                let x = &x[row * inputs..];
                let y = &mut y[row * stride + at..];
                let taken = ROWS.min(rows - row);
                match taken {
                    6 => block::<S, 6, V>(simd, x, weights, y, (inputs, stride, used, add)),
                    5 => block::<S, 5, V>(simd, x, weights, y, (inputs, stride, used, add)),
                    4 => block::<S, 4, V>(simd, x, weights, y, (inputs, stride, used, add)),
                    3 => block::<S, 3, V>(simd, x, weights, y, (inputs, stride, used, add)),
                    2 => block::<S, 2, V>(simd, x, weights, y, (inputs, stride, used, add)),
                    _ => block::<S, 1, V>(simd, x, weights, y, (inputs, stride, used, add)),
                }
                row += taken;
            }
        }
    }
}

/// `R` rows by one panel.
#[inline(always)]
fn block<S: Simd, const R: usize, const V: usize>(
    simd: S,
    x: &[f32],
    weights: &[S::f32s],
    y: &mut [f32],
    (inputs, stride, used, add): (usize, usize, usize, bool),
) {
    let rows: [&[f32]; R] = std::array::from_fn(|r| &x[r * inputs..][..inputs]);
    let mut sums = [[simd.splat_f32s(0.0); V]; R];
    for (i, weights) in weights[..inputs * V].chunks_exact(V).enumerate() {
        let weights: [S::f32s; V] = std::array::from_fn(|v| weights[v]);
        for (sums, row) in sums.iter_mut().zip(&rows) {
            let x = simd.splat_f32s(row[i]);
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum = simd.mul_add_e_f32s(x, weight, *sum);
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        let y = &mut y[r * stride..][..used];
        let mut whole = [0.0; WIDEST];
        let (places, _) = S::as_mut_simd_f32s(&mut whole);
        places.iter_mut().zip(sums).for_each(|(place, sum)| *place = *sum);
        if add {
            y.iter_mut().zip(&whole).for_each(|(y, sum)| *y += sum);
        } else {
            y.copy_from_slice(&whole[..used]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize, step: f32) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * step).sin()).collect()
    }

    #[test]
    fn a_product_is_the_plain_one() {
        for (rows, outputs, inputs) in [(1, 1, 1), (5, 7, 3), (7, 64, 16), (13, 130, 33), (32, 65, 64)] {
            let (w, x) = (numbers(outputs * inputs, 0.7), numbers(rows * inputs, 0.3));
            let panels = Panels::of(&w, outputs, inputs);
            for add in [false, true] {
                let mut y = vec![1.0; rows * outputs];
                panels.product(&x, &mut y, add);
                for (i, y) in y.iter().enumerate() {
                    let (row, output) = (i / outputs, i % outputs);
                    let (x, w) = (&x[row * inputs..][..inputs], &w[output * inputs..][..inputs]);
                    let plain: f64 = x.iter().zip(w).map(|(x, w)| f64::from(x * w)).sum();
                    let plain = plain + f64::from(u8::from(add));
                    assert!((f64::from(*y) - plain).abs() < 1e-4, "{rows} {outputs} {inputs}: {y} {plain}");
                }
            }
        }
    }

    #[test]
    fn neither_rows_nor_threads_change_a_bit() {
        let (outputs, inputs) = (150, 50);
        let (w, x) = (numbers(outputs * inputs, 0.7), numbers(40 * inputs, 0.3));
        let panels = Panels::of(&w, outputs, inputs);
        let mut whole = vec![0.5; 40 * outputs];
        panels.product(&x, &mut whole, true);
        for rows in [1, 2, 5, 6, 7, 40] {
            for threads in [1, 2, 3, 16] {
                let mut y = vec![0.5; rows * outputs];
                panels.shared(&x[..rows * inputs], &mut y, true, threads, &mut Vec::new());
                assert_eq!(y, whole[..rows * outputs], "{rows} rows, {threads} threads");
            }
        }
    }
}
