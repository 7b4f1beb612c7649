//! Matrix products with any strides; [`Panels`](super::panels::Panels) has those with packed weights.
//!
//! Both multiply tiles ([`Tile`]).
//!
//! Each result is computed in one fixed order. Runs of [`INNER`] [elements](Element) are chains of fused
//! multiply-adds from zero, and the runs are added one after the other. So the bits do not depend on
//! other rows and columns, on strides or on the number of threads, and a sum of thousands stays precise.

use pulp::Simd;
use rayon::prelude::*;

use super::arithmetic::Arithmetic;
use super::element::Element;
use super::instruction::Instruction;
use super::tile::{columns, start};
use super::unit::{LINE, Multiply, Pair, ROWS, Side, Tile, Unit};

/// Elements of a run along the inner index: a tile's rows stay in the nearest cache.
pub const INNER: usize = 512;
/// Rows that are packed together, at most, and of tiles by vectors: six and three cache lines.
const MOST: usize = 96;
const GROUP: usize = 8 * ROWS;
/// Elements of the right side packed at a time: they stay in a core's own cache.
const NEAR: usize = 1 << 18;

/// A matrix product's view of a slice: `rows` rows of `cols` numbers, `stride` apart.
#[derive(Clone, Copy)]
pub struct Mat<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    stride: usize,
    turned: bool,
}

impl<'a> Mat<'a> {
    /// Returns a view of contiguous rows.
    pub fn of(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// Returns a view of rows `stride` apart.
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, stride: usize) -> Self {
        Self { data, rows, cols, stride, turned: false }
    }

    /// Returns the transpose.
    pub fn t(self) -> Self {
        Self { turned: !self.turned, ..self }
    }

    /// Returns rows and columns as the product sees them.
    fn seen(&self) -> (usize, usize) {
        if self.turned { (self.cols, self.rows) } else { (self.rows, self.cols) }
    }

    fn fits(&self) -> bool {
        fits(self.data.len(), self.rows, self.cols, self.stride)
    }
}

fn fits(len: usize, rows: usize, cols: usize, stride: usize) -> bool {
    rows == 0 || cols == 0 || (stride >= cols && len >= (rows - 1) * stride + cols)
}

/// [`Arithmetic::product`] in float32.
pub fn product(y: &mut [f32], stride: usize, add: bool, a: Mat<'_>, b: Mat<'_>, threads: usize) {
    Arithmetic::Single.product(y, stride, add, a, b, threads);
}

impl Arithmetic {
    /// Computes `y = a · b`, or `y += a · b` with `add`; `y`'s rows are `stride` apart.
    pub fn product(self, y: &mut [f32], stride: usize, add: bool, a: Mat<'_>, b: Mat<'_>, threads: usize) {
        let ((m, k), (k2, n)) = (a.seen(), b.seen());
        assert!(k == k2, "a product of {m}×{k} and {k2}×{n}");
        assert!(a.fits() && b.fits() && fits(y.len(), m, n, stride), "a product's numbers do not fit");
        if m == 0 || n == 0 {
            return;
        }
        if k == 0 {
            if !add {
                y.chunks_mut(stride).take(m).for_each(|row| row[..n].fill(0.0));
            }
            return;
        }
        let rows = m.div_ceil(threads.max(1)).next_multiple_of(self.rows());
        let some = |y: &mut [f32], from: usize| {
            let part = Part { y, stride, add, a, b, from, rows: rows.min(m - from) };
            match self {
                Self::Single => part.run::<f32>(None),
                Self::Bf16(instruction) => part.run::<Pair>(instruction),
            }
        };
        if rows >= m {
            return some(y, 0);
        }
        let parts = y.par_chunks_mut(rows * stride).take(m.div_ceil(rows)).enumerate();
        parts.for_each(|(part, y)| some(y, part * rows));
    }
}

/// Some rows of a product, on one thread.
struct Part<'a> {
    /// The result, from the first of these rows on.
    y: &'a mut [f32],
    stride: usize,
    add: bool,
    a: Mat<'a>,
    b: Mat<'a>,
    from: usize,
    rows: usize,
}

impl Part<'_> {
    fn run<E: Element>(self, instruction: Option<Instruction>) {
        // The buffers are taken and put back: code called inside another crate's closure is not
        // compiled for the widest vectors.
        let (mut left, mut right) = E::scratch().take();
        E::run(Product { part: self, left: &mut left, right: &mut right }, instruction);
        E::scratch().set((left, right));
    }
}

/// A part with buffers for the packed pieces of both sides.
struct Product<'a, E> {
    part: Part<'a>,
    left: &'a mut Vec<E>,
    right: &'a mut Vec<E>,
}

impl<E: Element> Multiply for Product<'_, E> {
    type Element = E;

    #[inline(always)]
    fn with<S: Simd, U: Unit<S, Element = E>>(self, simd: S, unit: U) {
        let Self { part: Part { y, stride, add, a, b, from, rows }, left, right } = self;
        let ((_, k), (_, n)) = (a.seen(), b.seen());
        let (k, width) = (k.div_ceil(E::NUMBERS), columns::<S>());
        let panels = n.div_ceil(width);
        let inner = k.min(INNER);
        // As even as possible: the packed left side is used for many panels.
        let most = (NEAR / (inner * width)).max(1);
        let group = panels.div_ceil(panels.div_ceil(most));
        let right = aligned(right, group * inner.next_multiple_of(E::STEP) * width);
        let together = if U::MATRICES { MOST } else { GROUP };
        for first in (0..panels).step_by(group) {
            let columns = first * width..n.min((first + group) * width);
            for k0 in (0..k).step_by(inner) {
                let k1 = k.min(k0 + inner);
                let size = (k1 - k0).next_multiple_of(E::STEP) * width;
                for (column, right) in columns.clone().step_by(width).zip(right.chunks_exact_mut(size)) {
                    lay(unit, &b, k0..k1, column, width, right);
                }
                for some in (0..rows).step_by(together) {
                    let taken = together.min(rows - some);
                    let group = Group::of(unit, (&a, from + some, taken), k0..k1, left);
                    for (i, row) in (some..some + taken).step_by(U::ROWS).enumerate() {
                        let (side, taken) = (group.side(i, U::ROWS), U::ROWS.min(rows - row));
                        let y = &mut y[row * stride + columns.start..];
                        let panels = right.chunks_exact(size).zip((0..columns.len()).step_by(width));
                        for (panel, column) in panels {
                            let used = width.min(columns.len() - column);
                            let (inner, add) = (k1 - k0, add || k0 > 0);
                            let tile = Tile { side, taken, inner, panel: (panel, width), used, stride, add };
                            tile.run_by(simd, unit, &mut y[column..]);
                        }
                    }
                }
            }
        }
    }
}

/// The left side of some tiles, [`ROWS`] rows each.
struct Group<'a, E> {
    data: &'a [E],
    stride: usize,
    /// Distance between tiles, if the rows were packed.
    tile: Option<usize>,
}

impl<'a, E: Element> Group<'a, E> {
    #[inline(always)]
    fn of<S: Simd, U: Unit<S, Element = E>>(
        unit: U,
        (a, row, rows): (&Mat<'a>, usize, usize),
        inner: std::ops::Range<usize>,
        scratch: &'a mut Vec<E>,
    ) -> Self {
        if !a.turned {
            let of = (&a.data[row * a.stride..], a.stride, a.cols);
            let (data, stride) = E::rows(unit, of, rows, inner, scratch);
            return Self { data, stride, tile: None };
        }
        if U::MATRICES {
            return Self::turned(unit, (a, row, rows), inner, scratch);
        }
        // Whole cache lines are read, and a tile's rows become adjacent. Tiles are one line apart;
        // otherwise the same numbers of all tiles would compete for one place in the cache.
        let (size, mut line) = (inner.len() * ROWS + LINE, [E::default(); GROUP]);
        scratch.resize(rows.div_ceil(ROWS) * size, E::default());
        for (i, k) in inner.enumerate() {
            E::line(unit, (a.data, a.stride, a.rows), k, row..row + rows, &mut line[..rows]);
            let (parts, rest) = line[..rows].as_chunks::<ROWS>();
            let mut at = i * ROWS;
            for part in parts {
                scratch[at..at + ROWS].copy_from_slice(part);
                at += size;
            }
            if !rest.is_empty() {
                scratch[at..at + rest.len()].copy_from_slice(rest);
            }
        }
        Self { data: scratch, stride: ROWS, tile: Some(size) }
    }

    /// Transposes the rows of a transposed side, for instructions that take rows. Rows are one line further apart, as tiles are
    /// above.
    #[inline(always)]
    fn turned<S: Simd, U: Unit<S, Element = E>>(
        unit: U,
        (a, row, rows): (&Mat<'a>, usize, usize),
        inner: std::ops::Range<usize>,
        scratch: &'a mut Vec<E>,
    ) -> Self {
        let stride = inner.len().next_multiple_of(LINE) + LINE;
        let mut lines = [[E::default(); MOST]; LINE];
        if scratch.len() < rows * stride {
            scratch.resize(rows * stride, E::default());
        }
        for (first, k) in inner.clone().step_by(LINE).enumerate() {
            let known = LINE.min(inner.end - k);
            for (k, line) in (k..k + known).zip(&mut lines) {
                E::line(unit, (a.data, a.stride, a.rows), k, row..row + rows, &mut line[..rows]);
            }
            lines[known..].fill([E::default(); MOST]);
            for (i, places) in scratch.chunks_exact_mut(stride).take(rows).enumerate() {
                let places = &mut places[first * LINE..][..LINE];
                places.iter_mut().zip(&lines).for_each(|(place, line)| *place = line[i]);
            }
        }
        Self { data: scratch, stride, tile: None }
    }

    #[inline(always)]
    fn side(&self, tile: usize, rows: usize) -> Side<'_, E> {
        match self.tile {
            None => Side::Rows(&self.data[tile * rows * self.stride..], self.stride),
            Some(size) => Side::Turned(&self.data[tile * size..][..size], ROWS),
        }
    }
}

/// Returns a buffer of `len` elements that begins at a cache line, with arbitrary contents.
pub fn aligned<E: Element>(scratch: &mut Vec<E>, len: usize) -> &mut [E] {
    if scratch.len() < len + LINE {
        scratch.resize(len + LINE, E::default());
    }
    let start = start(scratch);
    &mut scratch[start..start + len]
}

/// Packs a panel of the right side: `width` columns from `column` on, with zeros past the last.
#[inline(always)]
fn lay<E: Element, S: Simd, U: Unit<S, Element = E>>(
    unit: U,
    b: &Mat<'_>,
    inner: std::ops::Range<usize>,
    column: usize,
    width: usize,
    panel: &mut [E],
) {
    let used = width.min(b.seen().1 - column);
    let (panel, after) = panel.split_at_mut(inner.len() * width);
    after.fill(E::default());
    if b.turned {
        return E::turn(unit, (&b.data[column * b.stride..], b.stride, b.cols), used, inner, width, panel);
    }
    for (k, panel) in inner.zip(panel.chunks_exact_mut(width)) {
        let (elements, rest) = panel.split_at_mut(used);
        E::line(unit, (b.data, b.stride, b.rows), k, column..column + used, elements);
        rest.fill(E::default());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::cpu::bf16::{pair, tests::added, tests::added_block};

    pub(in super::super) fn numbers(n: usize, step: f32) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * step).sin()).collect()
    }

    /// Returns all arithmetics of this machine.
    pub(in super::super) fn arithmetics() -> Vec<Arithmetic> {
        let instructions =
            Instruction::all().into_iter().map(|instruction| Arithmetic::Bf16(Some(instruction)));
        [Arithmetic::Single, Arithmetic::Bf16(None)].into_iter().chain(instructions).collect()
    }

    /// Returns `from` plus a row times a column of `k` numbers, in the documented order.
    fn plain(
        arithmetic: Arithmetic,
        k: usize,
        from: f32,
        a: impl Fn(usize) -> f32,
        b: impl Fn(usize) -> f32,
    ) -> f32 {
        let at = |x: &dyn Fn(usize) -> f32, l: usize| if l < k { x(l) } else { 0.0 };
        let (each, elements) = match arithmetic {
            Arithmetic::Single => (1, k),
            Arithmetic::Bf16(_) => (2, k.div_ceil(2)),
        };
        (0..elements).step_by(INNER).fold(from, |sum, first| {
            let run = first..elements.min(first + INNER);
            let both = |x: &dyn Fn(usize) -> f32, l: usize| pair(at(x, each * l), at(x, each * l + 1));
            sum + match arithmetic {
                Arithmetic::Single => run.fold(0.0, |sum, l| a(l).mul_add(b(l), sum)),
                Arithmetic::Bf16(Some(Instruction::Amx(_))) => run.step_by(LINE).fold(0.0, |sum, l| {
                    let block = (l..l + LINE).map(|l| (both(&a, l), both(&b, l)));
                    added_block(sum, block)
                }),
                Arithmetic::Bf16(_) => run.fold(0.0, |sum, l| added(sum, both(&a, l), both(&b, l))),
            }
        })
    }

    #[test]
    fn a_product_is_the_plain_one_whatever_lies_how() {
        for (m, k, n) in
            [(1, 1, 1), (5, 7, 3), (6, 64, 64), (13, 33, 130), (20, 1100, 65), (9, 2, 600), (50, 1031, 7)]
        {
            let (a, b) = (numbers(m * (k + 2), 0.7), numbers(k * (n + 3), 0.3));
            let turn = |x: &[f32], rows: usize, cols: usize, stride: usize| -> Vec<f32> {
                (0..cols).flat_map(|c| (0..rows).map(move |r| x[r * stride + c])).collect()
            };
            let (at, bt) = (turn(&a, m, k, k + 2), turn(&b, k, n, n + 3));
            let ways = [(false, 1), (true, 1), (true, 3)];
            for (arithmetic, (add, threads)) in arithmetics().into_iter().flat_map(|a| ways.map(|w| (a, w))) {
                let sum = |i: usize, j: usize| {
                    let from = if add { 0.5 } else { 0.0 };
                    plain(arithmetic, k, from, |l| a[i * (k + 2) + l], |l| b[l * (n + 3) + j])
                };
                for (a, b) in [
                    (Mat::strided(&a, m, k, k + 2), Mat::strided(&b, k, n, n + 3)),
                    (Mat::of(&at, k, m).t(), Mat::strided(&b, k, n, n + 3)),
                    (Mat::strided(&a, m, k, k + 2), Mat::of(&bt, n, k).t()),
                    (Mat::of(&at, k, m).t(), Mat::of(&bt, n, k).t()),
                ] {
                    let mut y = vec![0.5; m * (n + 1)];
                    arithmetic.product(&mut y, n + 1, add, a, b, threads);
                    for i in 0..m {
                        for j in 0..n {
                            // Equal bits, as documented above: stricter than a tolerance.
                            let (ours, plain) = (y[i * (n + 1) + j], sum(i, j));
                            assert_eq!(ours, plain, "{arithmetic:?} {m} {k} {n}: {i}, {j}");
                        }
                        assert_eq!(y[i * (n + 1) + n], 0.5, "nothing is written past a row");
                    }
                }
            }
        }
    }

    #[test]
    fn a_product_over_nothing_is_zero() {
        let mut y = vec![1.0; 6];
        product(&mut y, 3, false, Mat::of(&[], 2, 0), Mat::of(&[], 0, 3), 1);
        assert_eq!(y, [0.0; 6]);
    }
}
