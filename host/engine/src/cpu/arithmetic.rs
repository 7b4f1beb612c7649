//! The arithmetic of a model's products: float32 numbers, or pairs of adjacent numbers in bf16
//! ([`bf16`](super::bf16)).

use super::avx512_bf16::Avx512Bf16;
use super::bf16::rounded;
use super::unit::Pair;
use crate::model::Precision;

/// Arithmetic of a model's products. Sums are always float32.
#[derive(Clone, Copy, Debug)]
pub enum Arithmetic {
    /// Both sides are float32.
    Single,
    /// Both sides are rounded to bf16 and multiplied by the processor's bf16 instruction, if it has one.
    Bf16(Option<Avx512Bf16>),
}

impl Arithmetic {
    /// Returns the arithmetic of a precision on this machine.
    pub fn of(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::Single,
            Precision::Bf16 => Self::Bf16(Avx512Bf16::here()),
        }
    }

    /// Returns the bytes of a packed weight.
    pub fn bytes(self) -> usize {
        match self {
            Self::Single => size_of::<f32>(),
            Self::Bf16(_) => size_of::<Pair>() / 2,
        }
    }

    /// Copies weights that are not multiplied but looked up: an embedding.
    pub fn read(self, weights: &[f32], numbers: &mut [f32]) {
        match self {
            Self::Single => numbers.copy_from_slice(weights),
            Self::Bf16(_) => numbers.iter_mut().zip(weights).for_each(|(x, w)| *x = rounded(*w)),
        }
    }

    /// Returns the same arithmetic without the bf16 instruction.
    pub fn without_instruction(self) -> Self {
        match self {
            Self::Single => self,
            Self::Bf16(_) => Self::Bf16(None),
        }
    }
}
