//! Vector multiplication: loops are written once ([`Multiply`]), for any elements and any [`Unit`].

use pulp::{Simd, WithSimd};

/// Numbers in a cache line. A panel's width is a multiple of it.
pub const LINE: usize = 16;

/// Two numbers in bf16.
pub type Pair = u32;

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

    /// Returns elements as vectors.
    fn vectors(elements: &[Self::Element]) -> &[Self::Vector];

    /// Returns a vector of one repeated element.
    fn splat(self, simd: S, element: Self::Element) -> Self::Vector;

    /// Adds products to sums.
    fn multiply_add(self, simd: S, a: Self::Vector, b: Self::Vector, sum: S::f32s) -> S::f32s;

    /// Runs a loop as a separate call.
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
pub struct Singly<O>(pub O);

impl<O: Multiply<Element = f32>> WithSimd for Singly<O> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.0.with(simd, Single);
    }
}
