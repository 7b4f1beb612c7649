//! Weights laid out for products: what is multiplied with the tokens of every answer.
//!
//! A general product lays out one of its sides anew in each call, which is most of the work where there are
//! few rows. Here the weights lie in panels that were made once: some outputs side by side, an input after
//! the other, so that a panel is read from its start to its end by the widest vectors there are.
//!
//! The tiles are those of every [`product`](super::product), to the same last bit.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::block::Weights;
use super::kernels::wide_op;
use super::lora::Place;
use super::product::INNER;
use super::tile::{LINE, ROWS, Side, Tile, columns, start, turn};

/// A model's weights in panels, adapters merged.
#[derive(Default)]
pub struct Laid {
    /// Of each block: query, key and value; output; gate and up; down.
    blocks: Vec<[Panels; 4]>,
    /// The head.
    pub head: Panels,
}

impl Laid {
    /// Lays them out, in the room of some that are not needed any more: fresh pages are dear where there are
    /// gigabytes of them in each step.
    pub fn of(weights: Weights<'_>, old: Option<Self>) -> Self {
        let arena = weights.arena;
        let merged = weights.adapters.map(|(adapters, numbers)| {
            let mut merged = weights.base.to_vec();
            adapters.merge(numbers, arena, &mut merged);
            merged
        });
        let numbers = merged.as_deref().unwrap_or(weights.base);
        let mut laid = old.unwrap_or_default();
        laid.blocks.resize_with(arena.blocks.len(), Default::default);
        for (block, panels) in arena.blocks.iter().zip(&mut laid.blocks) {
            for (l, panels) in [&block.qkv, &block.out, &block.gate_up, &block.down].into_iter().zip(panels) {
                panels.lay(&numbers[l.weight.clone()], l.rows, l.cols);
            }
        }
        laid.head.lay(&numbers[arena.head.clone()], arena.shape.vocabulary, arena.shape.hidden);
        laid
    }

    /// A matrix of a block.
    pub fn of_block(&self, layer: usize, place: Place) -> &Panels {
        &self.blocks[layer][place as usize]
    }
}

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

impl Panels {
    /// Takes in a matrix whose rows lie one after the other.
    pub fn lay(&mut self, weights: &[f32], outputs: usize, inputs: usize) {
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
        rooms[..parts].par_iter_mut().enumerate().for_each(|(part, room)| {
            let stride = columns(part).len();
            room.clear();
            if add {
                let own = columns(part);
                before.chunks_exact(self.outputs).for_each(|row| room.extend_from_slice(&row[own.clone()]));
            } else {
                room.resize(rows * stride, 0.0);
            }
            wide_op(Product { panels: self, which: span(part), x, y: room, stride, add });
        });
        for (part, room) in rooms[..parts].iter().enumerate() {
            let columns = columns(part);
            for (y, room) in y.chunks_exact_mut(self.outputs).zip(room.chunks_exact(columns.len())) {
                y[columns.clone()].copy_from_slice(room);
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
        let Self { panels, which, x, y, stride, add } = self;
        let (inputs, width) = (panels.inputs, panels.width);
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
            let mut panels = Panels::default();
            panels.lay(&w, outputs, inputs);
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
        let (outputs, inputs) = (150, 50);
        let (w, x) = (numbers(outputs * inputs, 0.7), numbers(40 * inputs, 0.3));
        let mut panels = Panels::default();
        panels.lay(&w, outputs, inputs);
        let mut whole = vec![0.5; 40 * outputs];
        panels.product(&x, &mut whole, true);
        for rows in [1, 2, 5, 6, 7, 40] {
            for threads in [1, 2, 3, 16] {
                let mut y = vec![0.5; rows * outputs];
                panels.shared(&x[..rows * inputs], &mut y, true, threads, &mut Vec::new());
                assert_eq!(y, whole[..rows * outputs], "{rows} rows, {threads} threads");
                let mut y = vec![0.5; rows * outputs];
                panels.spread(&x[..rows * inputs], &mut y, true, threads);
                assert_eq!(y, whole[..rows * outputs], "{rows} rows, {threads} threads");
            }
        }
    }
}
