//! The processor's instructions for products in bf16. Other modules take one as the [`Unit`](super::unit::Unit) of a loop.

use std::fmt;

use super::amx::Amx;
use super::avx512_bf16::Avx512Bf16;
use super::unit::{Multiply, Pair};

/// An instruction for products in bf16, and the proof that this processor has it.
#[derive(Clone, Copy, Debug)]
pub enum Instruction {
    /// VDPBF16PS, which multiplies vectors.
    Avx512Bf16(Avx512Bf16),
    /// TDPBF16PS, which multiplies matrices.
    Amx(Amx),
}

impl Instruction {
    /// Returns the fastest one of this machine.
    pub fn here() -> Option<Self> {
        Self::all().pop()
    }

    /// Returns those of this machine, the fastest last.
    pub fn all() -> Vec<Self> {
        let vectors = Avx512Bf16::here().map(Self::Avx512Bf16);
        vectors.into_iter().chain(Amx::here().map(Self::Amx)).collect()
    }

    /// Runs a loop that is compiled for the instruction.
    #[inline]
    pub(super) fn run<O: Multiply<Element = Pair>>(self, op: O) {
        match self {
            Self::Avx512Bf16(unit) => unit.run(op),
            Self::Amx(unit) => unit.run(op),
        }
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Avx512Bf16(_) => "AVX512-BF16",
            Self::Amx(_) => "AMX",
        })
    }
}
