//! A matrix of weights, packed for products.
//!
//! A general product packs one of its sides in each call, which is most of the work with few
//! rows. These panels are packed once: some adjacent outputs, one input after the other, so
//! that a panel is read from start to end by the widest vectors.
//!
//! The tiles are those of [`gemm`](super::gemm), with the same bits.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::element::Element;
use super::gemm::INNER;
use super::instruction::Instruction;
use super::kernels::wide_op;
use super::team::together;
use super::tile::{columns, start};
use super::unit::{LINE, Multiply, Side, Tile, Unit};

/// Panels that one row is multiplied with at a time.
const STREAMS: usize = 4;

/// The panels of a matrix, for one kind of element.
#[derive(Clone, Debug, Default)]
pub struct Panels<E> {
    elements: Vec<E>,
    /// Start of the first panel, at a cache line.
    start: usize,
    /// Size of the output.
    pub outputs: usize,
    /// Size of the input.
    pub inputs: usize,
    /// Elements of an input, up to a multiple of [`Element::STEP`].
    inner: usize,
    /// Outputs of a panel.
    width: usize,
}

impl<E: Element> Panels<E> {
    /// Packs a matrix with contiguous rows.
    pub fn pack(&mut self, instruction: Option<Instruction>, weights: &[f32], outputs: usize, inputs: usize) {
        let (width, inner) = (wide_op(Width), inputs.div_ceil(E::NUMBERS).next_multiple_of(E::STEP));
        let panels = outputs.div_ceil(width);
        self.elements.resize(panels * width * inner + LINE, E::default());
        let start = start(&self.elements);
        let places = self.elements[start..].par_chunks_exact_mut((width * inner).max(1));
        places.zip(weights.par_chunks((width * inputs).max(1))).for_each(|(panel, rows)| {
            E::run(Packing { rows, inputs, inner, width, panel }, instruction);
        });
        (self.start, self.outputs, self.inputs, self.inner, self.width) =
            (start, outputs, inputs, inner, width);
    }

    /// Computes `y = x Wᵀ`, or `y += x Wᵀ` with `add`. `x` is `[N, inner]`, `y` `[N, outputs]`.
    pub fn product(&self, instruction: Option<Instruction>, x: &[E], y: &mut [f32], add: bool) {
        let which = 0..self.outputs.div_ceil(self.width);
        E::run(Product { panels: self, which, x, y, stride: self.outputs, add }, instruction);
    }

    /// Like `product`, with panels spread over `threads`, each with its own buffer.
    pub fn shared(
        &self,
        instruction: Option<Instruction>,
        x: &[E],
        y: &mut [f32],
        add: bool,
        threads: usize,
        rooms: &mut Vec<Vec<f32>>,
    ) {
        let panels = self.outputs.div_ceil(self.width);
        let each = panels.div_ceil(threads.max(1)).max(1);
        let parts = panels.div_ceil(each);
        if parts <= 1 {
            return self.product(instruction, x, y, add);
        }
        let span = |part: usize| part * each..panels.min((part + 1) * each);
        let rows = x.len() / self.inner.max(1);
        if rows == 1 {
            // Each part writes its share of the row in place.
            let parts = y.chunks_mut(each * self.width).enumerate();
            return together(parts, |(part, y)| {
                let stride = y.len();
                E::run(Product { panels: self, which: span(part), x, y, stride, add }, instruction);
            });
        }
        rooms.resize_with(parts.max(rooms.len()), Vec::new);
        let columns =
            |part: usize| part * each * self.width..self.outputs.min((part + 1) * each * self.width);
        let before = &*y;
        together(rooms[..parts].iter_mut().enumerate(), |(part, scratch)| {
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
            E::run(Product { panels: self, which: span(part), x, y: scratch, stride, add }, instruction);
        });
        for (part, scratch) in rooms[..parts].iter().enumerate() {
            let columns = columns(part);
            for (y, scratch) in y.chunks_exact_mut(self.outputs).zip(scratch.chunks_exact(columns.len())) {
                y[columns.clone()].copy_from_slice(scratch);
            }
        }
    }

    fn panel(&self, number: usize) -> &[E] {
        let size = self.width * self.inner;
        &self.elements[self.start + number * size..][..size]
    }
}

/// The packing of a panel.
struct Packing<'a, E> {
    rows: &'a [f32],
    inputs: usize,
    inner: usize,
    width: usize,
    panel: &'a mut [E],
}

impl<E: Element> Multiply for Packing<'_, E> {
    type Element = E;

    #[inline(always)]
    fn with<S: Simd, U: Unit<S, Element = E>>(self, _: S, unit: U) {
        let Self { rows, inputs, inner, width, panel } = self;
        E::turn(unit, (rows, inputs, inputs), rows.len() / inputs, 0..inner, width, panel);
    }
}

/// Outputs of a panel on this machine: as many as registers can hold sums for.
struct Width;

impl WithSimd for Width {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        columns::<S>()
    }
}

/// A product with some panels. `y` has only their outputs, `stride` per row.
struct Product<'a, E> {
    panels: &'a Panels<E>,
    which: std::ops::Range<usize>,
    x: &'a [E],
    y: &'a mut [f32],
    stride: usize,
    add: bool,
}

impl<E: Element> Multiply for Product<'_, E> {
    type Element = E;

    #[inline(always)]
    fn with<S: Simd, U: Unit<S, Element = E>>(self, simd: S, unit: U) {
        let (length, width) = (self.panels.inner, self.panels.width);
        if !U::MATRICES && self.x.len() == length {
            if width == 4 * S::F32_LANES {
                self.one_row::<S, U, 4>(simd, unit);
            } else {
                self.one_row::<S, U, 2>(simd, unit);
            }
            return;
        }
        let Self { panels, which, x, y, stride, add } = self;
        let rows = x.len() / length.max(1);
        let first = which.start * width;
        for number in which {
            let panel = panels.panel(number);
            let at = number * width - first;
            let used = width.min(panels.outputs - number * width);
            for (run, panel) in panel.chunks(INNER * width).enumerate() {
                let add = add || run > 0;
                for row in (0..rows).step_by(U::ROWS) {
                    let side = Side::Rows(&x[row * length + run * INNER..], length);
                    let (taken, inner) = (U::ROWS.min(rows - row), panel.len() / width);
                    let tile = Tile { side, taken, inner, panel: (panel, width), used, stride, add };
                    tile.run_by(simd, unit, &mut y[row * stride + at..]);
                }
            }
        }
    }
}

impl<E: Element> Product<'_, E> {
    /// One row is limited by the speed of reading weights from memory. [`STREAMS`] panels are read
    /// at once, which keeps more reads in flight than one. The sums are those of a [`Tile`].
    #[inline(always)]
    fn one_row<S: Simd, U: Unit<S, Element = E>, const V: usize>(mut self, simd: S, unit: U) {
        let mut number = self.which.start;
        while number + STREAMS <= self.which.end {
            self.streams::<S, U, V, STREAMS>(simd, unit, number);
            number += STREAMS;
        }
        for number in number..self.which.end {
            self.streams::<S, U, V, 1>(simd, unit, number);
        }
    }

    #[inline(always)]
    fn streams<S: Simd, U: Unit<S, Element = E>, const V: usize, const N: usize>(
        &mut self,
        simd: S,
        unit: U,
        number: usize,
    ) {
        let width = self.panels.width;
        let mut panels = [&self.panels.elements[..0]; N];
        for (n, panel) in panels.iter_mut().enumerate() {
            *panel = self.panels.panel(number + n);
        }
        // The used columns of a panel: where they are in the row, and their number.
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
                let x = unit.splat(simd, *x);
                for (sums, lines) in sums.iter_mut().zip(&mut lines) {
                    let Some(line) = lines.next() else { continue };
                    let line = U::vectors(&line[..V * S::F32_LANES]);
                    for (sum, weight) in sums.iter_mut().zip(line) {
                        *sum = unit.multiply_add(simd, x, *weight, *sum);
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
