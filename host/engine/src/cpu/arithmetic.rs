//! The arithmetic of a model's products: float32 numbers, or pairs of adjacent numbers in bf16
//! ([`bf16`](super::bf16)).

use super::bf16::rounded;
use super::instruction::Instruction;
use super::unit::{MATRIX_ROWS, Pair, ROWS};
use crate::model::Precision;

/// Arithmetic of a model's products. Sums are always float32.
#[derive(Clone, Copy, Debug)]
pub enum Arithmetic {
    /// Both sides are float32.
    Single,
    /// Both sides are rounded to bf16 and multiplied by an instruction of the processor, if it has one.
    Bf16(Option<Instruction>),
}

impl Arithmetic {
    /// Returns the arithmetic of a precision on this machine.
    pub fn of(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::Single,
            Precision::Bf16 => Self::Bf16(Instruction::here()),
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

    /// Returns the instruction that multiplies, if one does.
    pub fn instruction(self) -> Option<Instruction> {
        match self {
            Self::Single => None,
            Self::Bf16(instruction) => instruction,
        }
    }

    /// Returns the same arithmetic by another instruction for bf16, or by none.
    pub fn by(self, instruction: Option<Instruction>) -> Self {
        match self {
            Self::Single => self,
            Self::Bf16(_) => Self::Bf16(instruction),
        }
    }

    /// Returns the rows of a tile.
    pub fn rows(self) -> usize {
        match self {
            Self::Bf16(Some(Instruction::Amx(_))) => MATRIX_ROWS,
            _ => ROWS,
        }
    }
}
