//! The processor's instruction for products in bf16, VDPBF16PS of AVX512-BF16: the one place of the CPU core where the
//! compiler can't vouch for what is called. Everywhere else it is the [`Unit`] for [`Pair`]s.

// What makes it sound: an instruction that the processor does not have would be undefined, and `Avx512Bf16` can only be
// had from `here`, which asks the processor for it and for all that `run` is compiled for (`pulp::x86::V4` is a proof
// of the rest). Vectors are converted between types of the same 64 bytes, of which any are valid. No pointers.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use super::unit::Unit;
use super::unit::{Multiply, Pair};

#[cfg(target_arch = "x86_64")]
pub use x86_64::Avx512Bf16;

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{__m512, __m512bh, _mm512_dpbf16_ps};
    use std::mem::transmute;

    use pulp::x86::V4;
    use pulp::{Simd, f32x16, u32x16};

    use super::{Multiply, Pair, Unit};

    /// A proof that this processor has the instruction.
    #[derive(Clone, Copy, Debug)]
    pub struct Avx512Bf16(V4);

    impl Avx512Bf16 {
        /// On this processor, if it has it.
        pub fn here() -> Option<Self> {
            let simd = V4::try_new()?;
            std::arch::is_x86_feature_detected!("avx512bf16").then_some(Self(simd))
        }

        /// Runs a loop that is compiled for it.
        #[inline(always)]
        pub fn run<O: Multiply<Element = Pair>>(self, op: O) {
            // SAFETY: the processor has the features of `V4`, which `self.0` proves, and the instruction, which `self` does.
            unsafe { run(op, self) }
        }
    }

    /// For the features of `V4`, and the instruction.
    #[target_feature(enable = "sse,sse2,fxsr,sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,bmi1,bmi2,fma,lzcnt")]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16")]
    #[inline]
    fn run<O: Multiply<Element = Pair>>(op: O, unit: Avx512Bf16) {
        op.with(unit.0, unit);
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
            // SAFETY: `self` proves that there is the instruction. All five types are 64 bytes of plain numbers.
            unsafe {
                let sum = transmute::<f32x16, __m512>(sum);
                let (a, b) = (transmute::<u32x16, __m512bh>(a), transmute::<u32x16, __m512bh>(b));
                transmute::<__m512, f32x16>(_mm512_dpbf16_ps(sum, a, b))
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

    /// No other kind of processor has the instruction.
    #[derive(Clone, Copy, Debug)]
    pub enum Avx512Bf16 {}

    impl Avx512Bf16 {
        /// Never.
        pub fn here() -> Option<Self> {
            None
        }

        /// Never called.
        pub fn run<O: Multiply<Element = Pair>>(self, _: O) {
            match self {}
        }
    }
}
