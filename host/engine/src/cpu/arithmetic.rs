//! What a product multiplies, and by which instructions: numbers in float32, or pairs of neighbours in bf16
//! ([`bf16`](super::bf16)). Its loops are written once ([`Multiply`]), for any elements and any unit.

use std::cell::Cell;
use std::ops::Range;
use std::thread::LocalKey;

use pulp::{Simd, WithSimd};

use super::avx512_bf16::Avx512Bf16;
use super::bf16::{Pair, rounded};
use super::kernels::{copy, wide_op};
use super::tile::LINE;
use crate::model::Precision;

/// How a model's products are computed. Sums are in float32 in any case.
#[derive(Clone, Copy, Debug)]
pub enum Arithmetic {
    /// Both sides are float32.
    Single,
    /// Both sides are rounded to bf16 and multiplied by the processor's instruction for that, where it has one.
    Bf16(Option<Avx512Bf16>),
}

impl Arithmetic {
    /// That of a precision, on this machine.
    pub fn of(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::Single,
            Precision::Bf16 => Self::Bf16(Avx512Bf16::here()),
        }
    }

    /// Bytes of a weight as products read it.
    pub fn bytes(self) -> usize {
        match self {
            Self::Single => size_of::<f32>(),
            Self::Bf16(_) => size_of::<Pair>() / 2,
        }
    }

    /// Weights that are not multiplied with, but read: an embedding.
    pub fn read(self, weights: &[f32], numbers: &mut [f32]) {
        match self {
            Self::Single => numbers.copy_from_slice(weights),
            Self::Bf16(_) => numbers.iter_mut().zip(weights).for_each(|(x, w)| *x = rounded(*w)),
        }
    }

    /// The same numbers without the instruction.
    pub fn without_instruction(self) -> Self {
        match self {
            Self::Single => self,
            Self::Bf16(_) => Self::Bf16(None),
        }
    }
}

/// What the sides of a product are made of, as it lies in memory: a number, or a pair of neighbours along the inner
/// index. Positions along that index are counted in elements here, lengths of rows in numbers.
pub trait Element: Copy + Default + Send + Sync + 'static {
    /// Numbers in it.
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

/// A loop of a product.
pub trait Multiply {
    /// What it multiplies.
    type Element: Element;

    /// Runs it. Always inlined, or it is not compiled for the vectors that it is run with.
    fn with<S: Simd, U: Unit<S, Element = Self::Element>>(self, simd: S, unit: U);
}

/// What multiplies vectors of elements.
pub trait Unit<S: Simd>: Copy {
    /// The elements.
    type Element: Element;
    /// As many of them as there are sums in a vector.
    type Vector: Copy;

    /// Elements as vectors.
    fn vectors(elements: &[Self::Element]) -> &[Self::Vector];

    /// The same element everywhere.
    fn splat(self, simd: S, element: Self::Element) -> Self::Vector;

    /// Adds products to sums.
    fn multiply_add(self, simd: S, a: Self::Vector, b: Self::Vector, sum: S::f32s) -> S::f32s;

    /// Runs a loop as a call of its own.
    fn call<O: Multiply<Element = Self::Element>>(self, simd: S, op: O);
}

/// Multiplies float32.
#[derive(Clone, Copy)]
pub struct Single;

impl<S: Simd> Unit<S> for Single {
    type Element = f32;
    type Vector = S::f32s;

    #[inline(always)]
    fn vectors(elements: &[f32]) -> &[S::f32s] {
        S::as_simd_f32s(elements).0
    }

    #[inline(always)]
    fn splat(self, simd: S, element: f32) -> S::f32s {
        simd.splat_f32s(element)
    }

    #[inline(always)]
    fn multiply_add(self, simd: S, a: S::f32s, b: S::f32s, sum: S::f32s) -> S::f32s {
        simd.mul_add_e_f32s(a, b, sum)
    }

    #[inline(always)]
    fn call<O: Multiply<Element = f32>>(self, simd: S, op: O) {
        simd.vectorize(Singly(op));
    }
}

/// A loop in float32.
struct Singly<O>(O);

impl<O: Multiply<Element = f32>> WithSimd for Singly<O> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.0.with(simd, Single);
    }
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
