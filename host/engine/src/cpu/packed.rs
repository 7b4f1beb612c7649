//! Weights laid out for products: what is multiplied with the tokens of every answer.
//!
//! A general product lays out one of its sides anew in each call, which is most of the work where there are
//! few rows. Here the weights lie in panels that were made once: some outputs side by side, an input after
//! the other, so that a panel is read from its start to its end by the widest vectors there are.
//!
//! The tiles are those of every [`gemm`](super::gemm), to the same last bit.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::arena::Arena;
use super::gemm::INNER;
use super::kernels::wide_op;
use super::lora::{Adapters, Projection};
use super::tile::{LINE, ROWS, Side, Tile, columns, start, turn};

/// PackedMatrix that one row is multiplied with at a time.
const STREAMS: usize = 4;

/// A model's weights in panels, adapters merged.
#[derive(Default)]
pub struct PackedWeights {
    /// Of each block: query, key and value; output; gate and up; down.
    blocks: Vec<[PackedMatrix; 4]>,
    /// The head.
    pub head: PackedMatrix,
}

impl PackedWeights {
    /// Lays them out, in the room of some that are not needed any more: fresh pages are dear where there are
    /// gigabytes of them in each step.
    pub fn of(arena: &Arena, base: &[f32], adapters: Option<(&Adapters, &[f32])>, old: Option<Self>) -> Self {
        let merged = adapters.map(|(adapters, numbers)| {
            let mut merged = base.to_vec();
            adapters.merge(numbers, arena, &mut merged);
            merged
        });
        let numbers = merged.as_deref().unwrap_or(base);
        let mut laid = old.unwrap_or_default();
        laid.blocks.resize_with(arena.blocks.len(), Default::default);
        for (block, panels) in arena.blocks.iter().zip(&mut laid.blocks) {
            for (l, panels) in [&block.qkv, &block.out, &block.gate_up, &block.down].into_iter().zip(panels) {
                panels.pack(&numbers[l.weight.clone()], l.rows, l.cols);
            }
        }
        laid.head.pack(&numbers[arena.head.clone()], arena.shape.vocabulary, arena.shape.hidden);
        laid
    }

    /// A matrix of a block.
    pub fn of_block(&self, layer: usize, place: Projection) -> &PackedMatrix {
        &self.blocks[layer][place as usize]
    }
}

/// A matrix `[outputs, inputs]` in panels.
#[derive(Clone, Debug, Default)]
pub struct PackedMatrix {
    numbers: Vec<f32>,
    /// Where the first panel begins: at a line of the cache.
    start: usize,
    outputs: usize,
    inputs: usize,
    /// Outputs of a panel.
    width: usize,
}

impl PackedMatrix {
    /// Takes in a matrix whose rows lie one after the other.
    pub fn pack(&mut self, weights: &[f32], outputs: usize, inputs: usize) {
        let width = wide_op(Width);
        let panels = outputs.div_ceil(width);
        self.numbers.resize(panels * width * inputs + LINE, 0.0);
        let start = start(&self.numbers);
        let places = self.numbers[start..].par_chunks_exact_mut((width * inputs).max(1));
        places.zip(weights.par_chunks((width * inputs).max(1))).for_each(|(panel, rows)| {
            turn(rows, rows.len() / inputs, inputs, 0..inputs, width, panel);
        });
        (self.start, self.outputs, self.inputs, self.width) = (start, outputs, inputs, width);
    }

    /// `y = x Wᵀ`, or `y += x Wᵀ` with `add`. `x` is `[N, inputs]`, `y` `[N, outputs]`.
    pub fn product(&self, x: &[f32], y: &mut [f32], add: bool) {
        let all = 0..self.outputs.div_ceil(self.width);
        wide_op(Product { panels: self, which: all, x, y, stride: self.outputs, add });
    }

    /// The same, its rows spread over `threads`.
    pub fn spread(&self, x: &[f32], y: &mut [f32], add: bool, threads: usize) {
        let rows = (x.len() / self.inputs.max(1)).div_ceil(threads.max(1)).next_multiple_of(ROWS);
        if rows * self.inputs >= x.len() {
            return self.product(x, y, add);
        }
        let parts = y.par_chunks_mut(rows * self.outputs).zip(x.par_chunks(rows * self.inputs));
        parts.for_each(|(y, x)| self.product(x, y, add));
    }

    /// The same, its panels spread over `threads`, each with room of its own.
    pub fn shared(&self, x: &[f32], y: &mut [f32], add: bool, threads: usize, rooms: &mut Vec<Vec<f32>>) {
        let panels = self.outputs.div_ceil(self.width);
        let each = panels.div_ceil(threads.max(1)).max(1);
        let parts = panels.div_ceil(each);
        if parts <= 1 {
            return self.product(x, y, add);
        }
        let span = |part: usize| part * each..panels.min((part + 1) * each);
        let rows = x.len() / self.inputs.max(1);
        if rows == 1 {
            // Each has its part of the row in place.
            let parts = y.par_chunks_mut(each * self.width).enumerate();
            return parts.for_each(|(part, y)| {
                let stride = y.len();
                wide_op(Product { panels: self, which: span(part), x, y, stride, add });
            });
        }
        rooms.resize_with(parts.max(rooms.len()), Vec::new);
        let columns =
            |part: usize| part * each * self.width..self.outputs.min((part + 1) * each * self.width);
        let before = &*y;
        rooms[..parts].par_iter_mut().enumerate().for_each(|(part, scratch)| {
            let stride = columns(part).len();
            scratch.clear();
            if add {
                let own = columns(part);
                before
                    .chunks_exact(self.outputs)
                    .for_each(|row| scratch.extend_from_slice(&row[own.clone()]));
            } else {
                scratch.resize(rows * stride, 0.0);
            }
            wide_op(Product { panels: self, which: span(part), x, y: scratch, stride, add });
        });
        for (part, scratch) in rooms[..parts].iter().enumerate() {
            let columns = columns(part);
            for (y, scratch) in y.chunks_exact_mut(self.outputs).zip(scratch.chunks_exact(columns.len())) {
                y[columns.clone()].copy_from_slice(scratch);
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
        columns::<S>()
    }
}

/// A product with some panels. `y` has their outputs alone, `stride` a row.
struct Product<'a> {
    panels: &'a PackedMatrix,
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
        let (inputs, width) = (self.panels.inputs, self.panels.width);
        if self.x.len() == inputs && width == 4 * S::F32_LANES {
            return self.one_row::<S, 4>(simd);
        }
        if self.x.len() == inputs {
            return self.one_row::<S, 2>(simd);
        }
        let Self { panels, which, x, y, stride, add } = self;
        let rows = x.len() / inputs.max(1);
        let first = which.start * width;
        for number in which {
            let panel = panels.panel(number);
            let at = number * width - first;
            let used = width.min(panels.outputs - number * width);
            for (run, panel) in panel.chunks(INNER * width).enumerate() {
                let add = add || run > 0;
                for row in (0..rows).step_by(ROWS) {
                    let side = Side::Rows(&x[row * inputs + run * INNER..], inputs);
                    let (taken, inner) = (ROWS.min(rows - row), panel.len() / width);
                    let tile = Tile { side, taken, inner, panel: (panel, width), used, stride, add };
                    tile.run(simd, &mut y[row * stride + at..]);
                }
            }
        }
    }
}

impl Product<'_> {
    /// One row is made as fast as the weights come from memory. They come in [`STREAMS`], more of them under way than
    /// one alone would have. The sums are those of a [`Tile`].
    #[inline(always)]
    fn one_row<S: Simd, const V: usize>(mut self, simd: S) {
        let mut number = self.which.start;
        while number + STREAMS <= self.which.end {
            self.streams::<S, V, STREAMS>(simd, number);
            number += STREAMS;
        }
        for number in number..self.which.end {
            self.streams::<S, V, 1>(simd, number);
        }
    }

    #[inline(always)]
    fn streams<S: Simd, const V: usize, const N: usize>(&mut self, simd: S, number: usize) {
        let width = self.panels.width;
        let mut panels = [&self.panels.numbers[..0]; N];
        for (n, panel) in panels.iter_mut().enumerate() {
            *panel = self.panels.panel(number + n);
        }
        // Columns of a panel that count, where they lie in the row, and how many they are.
        let (first, outputs) = (self.which.start, self.panels.outputs);
        let place = |n: usize, v: usize| {
            let from = (number + n) * width + v * S::F32_LANES;
            (from - first * width, S::F32_LANES.min(outputs.saturating_sub(from)))
        };
        let mut whole = [[simd.splat_f32s(0.0); V]; N];
        if self.add {
            for (n, whole) in whole.iter_mut().enumerate() {
                for (v, whole) in whole.iter_mut().enumerate() {
                    let (at, used) = place(n, v);
                    *whole = simd.partial_load_f32s(self.y.get(at..at + used).unwrap_or_default());
                }
            }
        }
        for (run, x) in self.x.chunks(INNER).enumerate() {
            let mut lines = panels.map(|panel| panel[run * INNER * width..].chunks_exact(width));
            let mut sums = [[simd.splat_f32s(0.0); V]; N];
            for x in x {
                let x = simd.splat_f32s(*x);
                for (sums, lines) in sums.iter_mut().zip(&mut lines) {
                    let Some(line) = lines.next() else { continue };
                    let (line, _) = S::as_simd_f32s(&line[..V * S::F32_LANES]);
                    for (sum, weight) in sums.iter_mut().zip(line) {
                        *sum = simd.mul_add_e_f32s(x, *weight, *sum);
                    }
                }
            }
            for (whole, sums) in whole.iter_mut().zip(sums) {
                for (whole, sum) in whole.iter_mut().zip(sums) {
                    *whole = if self.add || run > 0 { simd.add_f32s(*whole, sum) } else { sum };
                }
            }
        }
        for (n, whole) in whole.iter().enumerate() {
            for (v, sum) in whole.iter().enumerate() {
                let (at, used) = place(n, v);
                simd.partial_store_f32s(self.y.get_mut(at..at + used).unwrap_or_default(), *sum);
            }
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
            let mut panels = PackedMatrix::default();
            panels.pack(&w, outputs, inputs);
            for add in [false, true] {
                let mut y = vec![1.0; rows * outputs];
                panels.product(&x, &mut y, add);
                for (i, y) in y.iter().enumerate() {
                    let (row, output) = (i / outputs, i % outputs);
                    let (x, w) = (&x[row * inputs..][..inputs], &w[output * inputs..][..inputs]);
                    let from = f32::from(u8::from(add));
                    let plain = from + x.iter().zip(w).fold(0.0, |sum, (x, w)| x.mul_add(*w, sum));
                    assert_eq!(*y, plain, "{rows} {outputs} {inputs}");
                }
            }
        }
    }

    #[test]
    fn neither_rows_nor_threads_change_a_bit() {
        // The second is of more panels than one row has streams, and of more than one run.
        for (outputs, inputs) in [(150, 50), (330, 600)] {
            let (w, x) = (numbers(outputs * inputs, 0.7), numbers(40 * inputs, 0.3));
            let mut panels = PackedMatrix::default();
            panels.pack(&w, outputs, inputs);
            for add in [false, true] {
                let mut whole = vec![0.5; 40 * outputs];
                panels.product(&x, &mut whole, add);
                for rows in [1, 2, 5, 6, 7, 40] {
                    for threads in [1, 2, 3, 16] {
                        let (x, whole) = (&x[..rows * inputs], &whole[..rows * outputs]);
                        let mut y = vec![0.5; rows * outputs];
                        panels.shared(x, &mut y, add, threads, &mut Vec::new());
                        assert_eq!(y, whole, "{rows} rows, {threads} threads");
                        let mut y = vec![0.5; rows * outputs];
                        panels.spread(x, &mut y, add, threads);
                        assert_eq!(y, whole, "{rows} rows, {threads} threads");
                    }
                }
            }
        }
    }
}
