//! What multiplies: loops are written once ([`Multiply`]), for any elements and any [`Unit`]. A unit multiplies vectors, and
//! some units multiply matrices.

use pulp::{Simd, WithSimd};

/// Numbers in a cache line. A panel's width is a multiple of it.
pub const LINE: usize = 16;

/// Maximum number of columns of a tile.
pub const WIDEST: usize = 64;

/// Maximum number of rows of a tile that is computed by vectors.
pub const ROWS: usize = 6;

/// Maximum number of rows of a tile that is computed by matrices.
pub const MATRIX_ROWS: usize = 32;

/// Two numbers in bf16.
pub type Pair = u32;

/// The left side of a tile.
#[derive(Clone, Copy)]
pub enum Side<'a, E = f32> {
    /// Rows in place, with their distance.
    Rows(&'a [E], usize),
    /// Transposed: one inner index after the other, with their distance.
    Turned(&'a [E], usize),
}

/// A few rows by a panel.
#[derive(Clone, Copy)]
pub struct Tile<'a, E = f32> {
    /// The rows.
    pub side: Side<'a, E>,
    /// Number of rows, at most [`Unit::ROWS`].
    pub taken: usize,
    /// Number of inner indices.
    pub inner: usize,
    /// The panel, `[inner, width]`, and its width. Whole vectors are read, so the panel must extend
    /// past the last used column, up to a cache line.
    pub panel: (&'a [E], usize),
    /// Number of used columns, at most [`columns`](super::tile::columns).
    pub used: usize,
    /// Distance between rows of the result.
    pub stride: usize,
    /// Whether sums are added to the result.
    pub add: bool,
}

/// A loop of a product.
pub trait Multiply {
    type Element;

    /// Runs the loop. Must be inlined, or it is not compiled for its vectors.
    fn with<S: Simd, U: Unit<S, Element = Self::Element>>(self, simd: S, unit: U);
}

/// Multiplies vectors of elements.
pub trait Unit<S: Simd>: Copy {
    type Element;
    /// A vector with as many elements as a vector of sums.
    type Vector: Copy;
    /// Maximum number of rows of a tile.
    const ROWS: usize = ROWS;
    /// Whether [`matrix`](Self::matrix) computes tiles.
    const MATRICES: bool = false;

    /// Returns elements as vectors.
    fn vectors(elements: &[Self::Element]) -> &[Self::Vector];

    /// Returns a vector of one repeated element.
    fn splat(self, simd: S, element: Self::Element) -> Self::Vector;

    /// Adds products to sums.
    fn multiply_add(self, simd: S, a: Self::Vector, b: Self::Vector, sum: S::f32s) -> S::f32s;

    /// Rounds two lines of adjacent numbers to a line of elements.
    fn adjacent(self, _: &[[f32; LINE]; 2]) -> [Self::Element; LINE] {
        unreachable!("only pairs are rounded")
    }

    /// Rounds two lines of numbers to elements that have one of each.
    fn both(self, _: &[[f32; LINE]; 2]) -> [Self::Element; LINE] {
        unreachable!("only pairs are rounded")
    }

    /// Runs a loop as a separate call.
    fn call<O: Multiply<Element = Self::Element>>(self, simd: S, op: O);

    /// Computes a tile by instructions for matrices. Its side has rows in place. Its inner indices are read up to a multiple of
    /// [`STEP`](super::element::Element::STEP), in rows and panel.
    fn matrix(self, _: &Tile<'_, Self::Element>, _: &mut [f32]) {}
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
pub struct Singly<O>(pub O);

impl<O: Multiply<Element = f32>> WithSimd for Singly<O> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.0.with(simd, Single);
    }
}
