//! Weights packed for products with the tokens of every answer. In bf16, the other side is
//! rounded here, once for all panels.

use std::cell::Cell;

use pulp::Simd;

use super::arena::{Arena, BlockMatrix};
use super::arithmetic::Arithmetic;
use super::element::Element as _;
use super::instruction::Instruction;
use super::lora::Adapters;
use super::panels::Panels;
use super::team::together;
use super::unit::{Multiply, Pair, Unit};

/// A model's weights in panels, adapters merged.
#[derive(Default)]
pub struct PackedWeights {
    /// Matrices of each block, in the order of [`BlockMatrix`].
    blocks: Vec<[PackedMatrix; 4]>,
    pub head: PackedMatrix,
}

impl PackedWeights {
    /// Packs the weights, reusing the memory of `old`: fresh pages are expensive for gigabytes in
    /// each step.
    pub fn of(
        arithmetic: Arithmetic,
        arena: &Arena,
        base: &[f32],
        adapters: Option<(&Adapters, &[f32])>,
        old: Option<Self>,
    ) -> Self {
        let merged = adapters.map(|(adapters, numbers)| {
            let mut merged = base.to_vec();
            adapters.merge(numbers, arena, &mut merged);
            merged
        });
        let numbers = merged.as_deref().unwrap_or(base);
        let mut laid = old.unwrap_or_default();
        laid.blocks.resize_with(arena.blocks.len(), Default::default);
        for (block, panels) in arena.blocks.iter().zip(&mut laid.blocks) {
            for (l, panels) in block.matrices.iter().zip(panels) {
                panels.pack(arithmetic, &numbers[l.weight.clone()], l.rows, l.cols);
            }
        }
        let (outputs, inputs) = (arena.shape.vocabulary, arena.shape.hidden);
        laid.head.pack(arithmetic, &numbers[arena.head.clone()], outputs, inputs);
        laid
    }

    /// Returns the matrix of a block.
    pub fn of_block(&self, layer: usize, matrix: BlockMatrix) -> &PackedMatrix {
        &self.blocks[layer][matrix as usize]
    }
}

/// A matrix `[outputs, inputs]` in panels.
#[derive(Clone, Debug)]
pub enum PackedMatrix {
    Single(Panels<f32>),
    /// In bf16, with the instruction that multiplies it, if there is one.
    Bf16(Panels<Pair>, Option<Instruction>),
}

impl Default for PackedMatrix {
    fn default() -> Self {
        Self::Single(Panels::default())
    }
}

impl PackedMatrix {
    /// Packs a matrix with contiguous rows.
    pub fn pack(&mut self, arithmetic: Arithmetic, weights: &[f32], outputs: usize, inputs: usize) {
        match (arithmetic, &mut *self) {
            (Arithmetic::Single, Self::Single(panels)) => panels.pack(None, weights, outputs, inputs),
            (Arithmetic::Bf16(instruction), Self::Bf16(panels, by)) => {
                *by = instruction;
                panels.pack(instruction, weights, outputs, inputs);
            }
            (Arithmetic::Single, _) => {
                *self = Self::Single(Panels::default());
                self.pack(arithmetic, weights, outputs, inputs);
            }
            (Arithmetic::Bf16(instruction), _) => {
                *self = Self::Bf16(Panels::default(), instruction);
                self.pack(arithmetic, weights, outputs, inputs);
            }
        }
    }

    /// Computes `y = x Wᵀ`, or `y += x Wᵀ` with `add`. `x` is `[N, inputs]`, `y` `[N, outputs]`.
    pub fn product(&self, x: &[f32], y: &mut [f32], add: bool) {
        match self {
            Self::Single(panels) => panels.product(None, x, y, add),
            Self::Bf16(panels, instruction) => {
                in_pairs(*instruction, x, panels.inputs, |x| panels.product(*instruction, x, y, add));
            }
        }
    }

    /// Like `product`, for few rows: several threads share its panels.
    pub fn by(&self, threads: usize, x: &[f32], y: &mut [f32], add: bool, rooms: &mut Vec<Vec<f32>>) {
        if threads == 1 { self.product(x, y, add) } else { self.shared(x, y, add, threads, rooms) }
    }

    /// Like `product`, with rows spread over `threads`.
    pub fn spread(&self, x: &[f32], y: &mut [f32], add: bool, threads: usize) {
        let (outputs, inputs, of_tile) = match self {
            Self::Single(panels) => (panels.outputs, panels.inputs, Arithmetic::Single.rows()),
            Self::Bf16(panels, by) => (panels.outputs, panels.inputs, Arithmetic::Bf16(*by).rows()),
        };
        let rows = (x.len() / inputs.max(1)).div_ceil(threads.max(1)).next_multiple_of(of_tile);
        if rows * inputs >= x.len() {
            return self.product(x, y, add);
        }
        let parts = y.chunks_mut(rows * outputs).zip(x.chunks(rows * inputs));
        together(parts, |(y, x)| self.product(x, y, add));
    }

    /// Like `product`, with panels spread over `threads`, each with its own buffer.
    fn shared(&self, x: &[f32], y: &mut [f32], add: bool, threads: usize, rooms: &mut Vec<Vec<f32>>) {
        match self {
            Self::Single(panels) => panels.shared(None, x, y, add, threads, rooms),
            Self::Bf16(panels, instruction) => {
                in_pairs(*instruction, x, panels.inputs, |x| {
                    panels.shared(*instruction, x, y, add, threads, rooms);
                });
            }
        }
    }
}

thread_local! {
    static PAIRS: Cell<Vec<Pair>> = const { Cell::new(Vec::new()) };
}

/// Runs on rows of `inputs` numbers, rounded to bf16.
fn in_pairs(instruction: Option<Instruction>, x: &[f32], inputs: usize, run: impl FnOnce(&[Pair])) {
    let mut pairs = PAIRS.take();
    let (rows, inner) = (x.len() / inputs.max(1), inputs.div_ceil(2).next_multiple_of(Pair::STEP));
    Pair::run(Rounding { x, inputs, rows, inner, pairs: &mut pairs }, instruction);
    run(&pairs[..rows * inner]);
    PAIRS.set(pairs);
}

/// The rounding of rows.
struct Rounding<'a> {
    x: &'a [f32],
    inputs: usize,
    rows: usize,
    inner: usize,
    pairs: &'a mut Vec<Pair>,
}

impl Multiply for Rounding<'_> {
    type Element = Pair;

    #[inline(always)]
    fn with<S: Simd, U: Unit<S, Element = Pair>>(self, _: S, unit: U) {
        let Self { x, inputs, rows, inner, pairs } = self;
        Pair::rows(unit, (x, inputs, inputs), rows, 0..inner, pairs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::gemm::{Mat, tests::arithmetics, tests::numbers};
    use crate::model::Precision;

    /// `gemm.rs` is tested against plain sums.
    #[test]
    fn a_product_is_that_of_matrices_that_were_not_laid_out() {
        // The last ones have more than one run and an odd number of inputs.
        let sizes =
            [(1, 1, 1), (5, 7, 3), (7, 64, 16), (13, 130, 33), (32, 65, 64), (1, 300, 1030), (8, 70, 1031)];
        for (arithmetic, (rows, outputs, inputs)) in
            arithmetics().into_iter().flat_map(|a| sizes.map(|sizes| (a, sizes)))
        {
            let (w, x) = (numbers(outputs * inputs, 0.7), numbers(rows * inputs, 0.3));
            let mut panels = PackedMatrix::default();
            panels.pack(arithmetic, &w, outputs, inputs);
            for add in [false, true] {
                let (mut y, mut plain) = (vec![1.0; rows * outputs], vec![1.0; rows * outputs]);
                panels.product(&x, &mut y, add);
                let (x, w) = (Mat::of(&x, rows, inputs), Mat::of(&w, outputs, inputs));
                arithmetic.product(&mut plain, outputs, add, x, w.t(), 1);
                assert_eq!(y, plain, "{arithmetic:?} {rows} {outputs} {inputs}");
            }
        }
    }

    #[test]
    fn neither_rows_nor_threads_change_a_bit() {
        // The second has more panels than one row has streams, and more than one run.
        let sizes = [(150, 50), (330, 600), (330, 1201)];
        for (arithmetic, (outputs, inputs)) in
            arithmetics().into_iter().flat_map(|a| sizes.map(|sizes| (a, sizes)))
        {
            let (w, x) = (numbers(outputs * inputs, 0.7), numbers(40 * inputs, 0.3));
            let mut panels = PackedMatrix::default();
            panels.pack(arithmetic, &w, outputs, inputs);
            for add in [false, true] {
                let mut whole = vec![0.5; 40 * outputs];
                panels.product(&x, &mut whole, add);
                for rows in [1, 2, 5, 6, 7, 40] {
                    for threads in [1, 2, 3, 16] {
                        let (x, whole) = (&x[..rows * inputs], &whole[..rows * outputs]);
                        let mut y = vec![0.5; rows * outputs];
                        panels.shared(x, &mut y, add, threads, &mut Vec::new());
                        assert_eq!(y, whole, "{arithmetic:?}: {rows} rows, {threads} threads");
                        let mut y = vec![0.5; rows * outputs];
                        panels.spread(x, &mut y, add, threads);
                        assert_eq!(y, whole, "{arithmetic:?}: {rows} rows, {threads} threads");
                    }
                }
            }
        }
    }

    #[test]
    fn what_was_packed_in_one_arithmetic_is_packed_anew_in_another() {
        let (w, x) = (numbers(70 * 40, 0.7), numbers(40, 0.3));
        let mut panels = PackedMatrix::default();
        let mut product = |arithmetic: Arithmetic| {
            panels.pack(arithmetic, &w, 70, 40);
            let mut y = vec![0.0; 70];
            panels.product(&x, &mut y, false);
            y
        };
        let [single, rounded] = [Arithmetic::Single, Arithmetic::of(Precision::Bf16)];
        let [first, rounded, again] = [single, rounded, single].map(&mut product);
        assert!(first == again && first != rounded);
    }
}
