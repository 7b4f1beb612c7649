//! The processor's instruction for products of bf16 matrices, TDPBF16PS of AMX. Other modules use it as the
//! [`Unit`](super::unit::Unit) of [`Pair`](super::unit::Pair)s.
//!
//! One instruction adds to sums the products of 16 pairs: the first numbers of the pairs and the second ones each in a chain of
//! fused multiply-adds from zero, which are then added to each other, and to the sum. All are rounded to nearest, and
//! subnormal numbers are flushed to zero. So its sums have another order than those of
//! [`Avx512Bf16`](super::avx512_bf16::Avx512Bf16), and other last bits.

// Soundness: an instruction that the processor lacks is undefined behavior, and one that the system does not let a process use
// ends it. `Amx` only comes from `here`, which asks both. Its registers belong to a thread: a product lays them out, `run` releases
// them, and nothing else uses them. Pointers come from slices, whose lengths `matrix` compares with what is read and written.
#![allow(unsafe_code)]

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod linux;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod registers;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use linux::Amx;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub use elsewhere::Amx;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod elsewhere {
    use super::super::unit::{Multiply, Pair};

    /// Other processors and systems do not have the instruction.
    #[derive(Clone, Copy, Debug)]
    pub enum Amx {}

    impl Amx {
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
