//! The processor's instruction for products of bf16 vectors, VDPBF16PS of AVX512-BF16. Other modules use it as the [`Unit`] of
//! [`Pair`]s. With [`amx`](super::amx), the only unsafe code of the CPU core.

// Soundness: an instruction that the processor lacks is undefined behavior. `Avx512Bf16` only comes
// from `here`, which checks for it and all features of `run` (`pulp::x86::V4` proves the rest).
// Vectors and arrays are converted between types of the same 64 bytes, for which any bits are valid. No pointers.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use super::unit::Unit;
use super::unit::{Multiply, Pair};

#[cfg(target_arch = "x86_64")]
pub use x86_64::Avx512Bf16;

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{
        __m512, __m512bh, __m512i, _mm512_cvtne2ps_pbh, _mm512_dpbf16_ps, _mm512_permutexvar_epi16,
    };
    use std::mem::transmute;

    use pulp::x86::V4;
    use pulp::{Simd, f32x16, u32x16};

    use super::super::unit::LINE;
    use super::{Multiply, Pair, Unit};

    /// The order in which the first and the second half of 32 numbers alternate.
    const ALTERNATING: [u16; 2 * LINE] = {
        let mut order = [0; 2 * LINE];
        let mut i = 0;
        while i < order.len() {
            order[i] = (i / 2 + i % 2 * LINE) as u16;
            i += 1;
        }
        order
    };

    /// Proof that this processor has the instruction.
    #[derive(Clone, Copy, Debug)]
    pub struct Avx512Bf16(V4);

    impl Avx512Bf16 {
        /// Returns the proof if this processor has the instruction.
        pub fn here() -> Option<Self> {
            let simd = V4::try_new()?;
            std::arch::is_x86_feature_detected!("avx512bf16").then_some(Self(simd))
        }

        /// Runs a loop compiled for the instruction.
        #[inline(always)]
        pub fn run<O: Multiply<Element = Pair>>(self, op: O) {
            self.run_by(op, self);
        }

        /// Runs a loop of another unit, compiled for this instruction.
        #[inline(always)]
        pub fn run_by<O: Multiply<Element = Pair>>(self, op: O, unit: impl Unit<V4, Element = Pair>) {
            // SAFETY: the processor has the features of `V4`, by `self.0`, and the instruction, by `self`.
            unsafe { run(op, self.0, unit) }
        }
    }

    /// Compiled for the features of `V4` and the instruction.
    #[target_feature(enable = "sse,sse2,fxsr,sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,bmi1,bmi2,fma,lzcnt")]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16")]
    #[inline]
    fn run<O: Multiply<Element = Pair>>(op: O, simd: V4, unit: impl Unit<V4, Element = Pair>) {
        op.with(simd, unit);
    }

    impl Unit<V4> for Avx512Bf16 {
        type Element = Pair;
        type Vector = u32x16;

        #[inline(always)]
        fn vectors(elements: &[Pair]) -> &[u32x16] {
            V4::as_simd_u32s(elements).0
        }

        #[inline(always)]
        fn splat(self, simd: V4, element: Pair) -> u32x16 {
            simd.splat_u32s(element)
        }

        #[inline(always)]
        fn multiply_add(self, _: V4, a: u32x16, b: u32x16, sum: f32x16) -> f32x16 {
            // SAFETY: `self` proves the instruction. All five types are 64 bytes of plain numbers.
            unsafe {
                let sum = transmute::<f32x16, __m512>(sum);
                let (a, b) = (transmute::<u32x16, __m512bh>(a), transmute::<u32x16, __m512bh>(b));
                transmute::<__m512, f32x16>(_mm512_dpbf16_ps(sum, a, b))
            }
        }

        #[inline(always)]
        fn adjacent(self, [first, second]: &[[f32; LINE]; 2]) -> [Pair; LINE] {
            // SAFETY: as above.
            unsafe {
                let [first, second] = [first, second].map(|line| transmute::<[f32; LINE], __m512>(*line));
                transmute::<__m512bh, [Pair; LINE]>(_mm512_cvtne2ps_pbh(second, first))
            }
        }

        #[inline(always)]
        fn both(self, numbers: &[[f32; LINE]; 2]) -> [Pair; LINE] {
            // SAFETY: as above; `V4` has the other instruction.
            unsafe {
                let apart = transmute::<[Pair; LINE], __m512i>(self.adjacent(numbers));
                let order = transmute::<[u16; 2 * LINE], __m512i>(ALTERNATING);
                transmute::<__m512i, [Pair; LINE]>(_mm512_permutexvar_epi16(order, apart))
            }
        }

        #[inline(always)]
        fn call<O: Multiply<Element = Pair>>(self, _: V4, op: O) {
            self.run(op);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub use elsewhere::Avx512Bf16;

#[cfg(not(target_arch = "x86_64"))]
mod elsewhere {
    use super::{Multiply, Pair};

    /// Other processors do not have the instruction.
    #[derive(Clone, Copy, Debug)]
    pub enum Avx512Bf16 {}

    impl Avx512Bf16 {
        /// Returns `None`.
        pub fn here() -> Option<Self> {
            None
        }

        /// Never called.
        pub fn run<O: Multiply<Element = Pair>>(self, _: O) {
            match self {}
        }
    }
}
