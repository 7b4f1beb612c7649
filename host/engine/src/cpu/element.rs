//! Elements of a product's sides: float32 numbers here, pairs of adjacent numbers in [`bf16`](super::bf16).

use std::cell::Cell;
use std::ops::Range;
use std::thread::LocalKey;

use pulp::Simd;

use super::instruction::Instruction;
use super::kernels::{copy, wide_op};
use super::unit::{LINE, Multiply, Singly, Unit};

/// An element of a product's side in memory: a number, or a pair of numbers adjacent along the inner
/// index. Positions along that index are counted in elements here, lengths of rows in numbers. The unit rounds numbers.
pub trait Element: Copy + Default + Send + Sync + 'static {
    const NUMBERS: usize;
    /// What is packed ends at a multiple of so many elements along the inner index, with zeros after the last.
    const STEP: usize;

    /// Runs a product's loop, with the instruction for its elements if there is one.
    fn run<O: Multiply<Element = Self>>(op: O, instruction: Option<Instruction>);

    /// Returns elements of `count` rows, in place or in `scratch`, up to a multiple of [`STEP`](Self::STEP), and the distance
    /// between rows.
    /// `rows` is `(numbers, distance, numbers per row)`.
    fn rows<'a, S: Simd, U: Unit<S, Element = Self>>(
        unit: U,
        rows: (&'a [f32], usize, usize),
        count: usize,
        inner: Range<usize>,
        scratch: &'a mut Vec<Self>,
    ) -> (&'a [Self], usize);

    /// Transposes `used` rows into the columns of a panel `width` wide; further columns are zero.
    /// `rows` is `(numbers, distance, numbers per row)`.
    fn turn<S: Simd, U: Unit<S, Element = Self>>(
        unit: U,
        rows: (&[f32], usize, usize),
        used: usize,
        inner: Range<usize>,
        width: usize,
        panel: &mut [Self],
    );

    /// Copies one inner index of some adjacent columns of `[len, stride]` numbers.
    fn line<S: Simd, U: Unit<S, Element = Self>>(
        unit: U,
        numbers: (&[f32], usize, usize),
        inner: usize,
        columns: Range<usize>,
        line: &mut [Self],
    );

    /// Returns thread-local buffers for parts of both sides.
    fn scratch() -> &'static LocalKey<Cell<(Vec<Self>, Vec<Self>)>>;
}

thread_local! {
    static SCRATCH: Cell<(Vec<f32>, Vec<f32>)> = const { Cell::new((Vec::new(), Vec::new())) };
}

impl Element for f32 {
    const NUMBERS: usize = 1;
    const STEP: usize = 1;

    #[inline]
    fn run<O: Multiply<Element = Self>>(op: O, _: Option<Instruction>) {
        wide_op(Singly(op));
    }

    #[inline(always)]
    fn rows<'a, S: Simd, U: Unit<S, Element = f32>>(
        _: U,
        (numbers, stride, _): (&'a [f32], usize, usize),
        _: usize,
        inner: Range<usize>,
        _: &'a mut Vec<f32>,
    ) -> (&'a [f32], usize) {
        (&numbers[inner.start..], stride)
    }

    #[inline(always)]
    fn turn<S: Simd, U: Unit<S, Element = f32>>(
        _: U,
        (rows, stride, _): (&[f32], usize, usize),
        used: usize,
        inner: Range<usize>,
        width: usize,
        panel: &mut [f32],
    ) {
        if used < width {
            panel.fill(0.0);
        }
        // One cache line at a time, so that both sides stay in the cache.
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
    fn line<S: Simd, U: Unit<S, Element = f32>>(
        _: U,
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
