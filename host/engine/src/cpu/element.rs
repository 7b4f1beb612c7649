//! What the sides of a product are made of: numbers in float32 here, pairs of neighbours in [`bf16`](super::bf16).

use std::cell::Cell;
use std::ops::Range;
use std::thread::LocalKey;

use super::avx512_bf16::Avx512Bf16;
use super::kernels::{copy, wide_op};
use super::unit::{LINE, Multiply, Singly};

/// What the sides of a product are made of, as it lies in memory: a number, or a pair of neighbours along the inner
/// index. Positions along that index are counted in elements here, lengths of rows in numbers.
pub trait Element: Copy + Default + Send + Sync + 'static {
    const NUMBERS: usize;

    /// Runs a product's loop, by the instruction for its elements if there is one.
    fn run<O: Multiply<Element = Self>>(op: O, instruction: Option<Avx512Bf16>);

    /// Some of the elements of `count` rows: `(numbers, from one row to the next, numbers of a row)`. What comes out lies
    /// in `scratch`, or where it lay, and is given with the elements from one row to the next.
    fn rows<'a>(
        rows: (&'a [f32], usize, usize),
        count: usize,
        inner: Range<usize>,
        scratch: &'a mut Vec<Self>,
    ) -> (&'a [Self], usize);

    /// Rows become columns of a panel `width` wide: so many rows, `stride` apart and of `len` numbers, with zeros past the
    /// last.
    fn turn(rows: (&[f32], usize, usize), used: usize, inner: Range<usize>, width: usize, panel: &mut [Self]);

    /// One inner index of some columns that lie side by side: the numbers are `[len, stride]`.
    fn line(numbers: (&[f32], usize, usize), inner: usize, columns: Range<usize>, line: &mut [Self]);

    /// Room for parts of both sides.
    fn scratch() -> &'static LocalKey<Cell<(Vec<Self>, Vec<Self>)>>;
}

thread_local! {
    static SCRATCH: Cell<(Vec<f32>, Vec<f32>)> = const { Cell::new((Vec::new(), Vec::new())) };
}

impl Element for f32 {
    const NUMBERS: usize = 1;

    #[inline]
    fn run<O: Multiply<Element = Self>>(op: O, _: Option<Avx512Bf16>) {
        wide_op(Singly(op));
    }

    #[inline(always)]
    fn rows<'a>(
        (numbers, stride, _): (&'a [f32], usize, usize),
        _: usize,
        inner: Range<usize>,
        _: &'a mut Vec<f32>,
    ) -> (&'a [f32], usize) {
        (&numbers[inner.start..], stride)
    }

    #[inline(always)]
    fn turn(
        (rows, stride, _): (&[f32], usize, usize),
        used: usize,
        inner: Range<usize>,
        width: usize,
        panel: &mut [f32],
    ) {
        if used < width {
            panel.fill(0.0);
        }
        // A few at a time, so that both sides stay in the cache.
        for from in (0..inner.len()).step_by(LINE) {
            let to = inner.len().min(from + LINE);
            for column in 0..used {
                let row = &rows[column * stride + inner.start..][from..to];
                let places = panel[from * width + column..].iter_mut().step_by(width);
                places.zip(row).for_each(|(place, number)| *place = *number);
            }
        }
    }

    #[inline(always)]
    fn line(
        (numbers, stride, _): (&[f32], usize, usize),
        inner: usize,
        columns: Range<usize>,
        line: &mut [f32],
    ) {
        copy(&numbers[inner * stride..][columns], line);
    }

    fn scratch() -> &'static LocalKey<Cell<(Vec<f32>, Vec<f32>)>> {
        &SCRATCH
    }
}
