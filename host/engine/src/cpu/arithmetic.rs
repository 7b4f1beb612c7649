//! What a model's products multiply, and by which instructions: numbers in float32, or pairs of neighbours in bf16
//! ([`bf16`](super::bf16)).

use super::avx512_bf16::Avx512Bf16;
use super::bf16::rounded;
use super::unit::Pair;
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
