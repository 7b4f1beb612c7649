//! A model's weights as a pass reads them, with the two products that every part of a block is made of, and the gradients
//! of what is trained.

use std::ops::Range;

use super::arena::{Arena, BlockMatrix};
use super::arithmetic::Arithmetic;
use super::attention::Heads;
use super::gemm::Mat;
use super::lora::Adapters;
use super::packed::PackedWeights;

/// The numbers that a model computes with.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    pub arena: &'a Arena,
    pub base: &'a [f32],
    /// Adapters beside them, if any.
    pub adapters: Option<(&'a Adapters, &'a [f32])>,
    /// The same numbers laid out for products, adapters merged: none of a reference's, which are used too seldom.
    pub laid: Option<&'a PackedWeights>,
    pub arithmetic: Arithmetic,
}

/// Gradients of what is trained: of all weights, or of the adapters alone.
pub enum Gradients<'a> {
    /// In the layout of the weights.
    Full(&'a mut [f32]),
    /// In the layout of the adapters.
    Adapters(&'a mut [f32]),
}

impl Weights<'_> {
    /// The heads of the model.
    pub fn heads(&self) -> Heads {
        Heads::of(&self.arena.shape)
    }

    /// The same as they are in a layer, which may have a window.
    pub fn heads_in(&self, layer: usize) -> Heads {
        Heads { window: self.arena.shape.window(layer), ..self.heads() }
    }

    /// The same numbers laid out for products, in the room of some that are not needed any more.
    pub fn pack(self, old: Option<PackedWeights>) -> PackedWeights {
        PackedWeights::of(self.arithmetic, self.arena, self.base, self.adapters, old)
    }

    /// `y = x Wᵀ + b`, adapters included; `y += …` with `add`. `x` is `[N, cols]`, `y` `[N, rows]`.
    pub fn linear(
        &self,
        layer: usize,
        matrix: BlockMatrix,
        x: &[f32],
        y: &mut [f32],
        add: bool,
        threads: usize,
    ) {
        let linear = self.arena.blocks[layer].matrix(matrix);
        let (rows, cols) = (linear.rows, linear.cols);
        if let Some(laid) = self.laid {
            laid.of_block(layer, matrix).spread(x, y, add, threads);
        } else {
            // A reference's weights, which have no adapters.
            let weight = Mat::of(&self.base[linear.weight.clone()], rows, cols);
            let x = Mat::of(x, x.len() / cols, cols);
            self.arithmetic.product(y, rows, add, x, weight.t(), threads);
        }
        if let Some(bias) = &linear.bias {
            let bias = &self.base[bias.clone()];
            y.chunks_exact_mut(rows).for_each(|y| y.iter_mut().zip(bias).for_each(|(y, b)| *y += b));
        }
    }

    /// The backward pass of [`linear`](Self::linear): `dx`, and gradients of what is trained.
    pub fn linear_back(
        &self,
        gradients: &mut Gradients<'_>,
        layer: usize,
        matrix: BlockMatrix,
        (x, dy, dx): (&[f32], &[f32], &mut [f32]),
        threads: usize,
    ) {
        let linear = self.arena.blocks[layer].matrix(matrix);
        let (rows, cols) = (linear.rows, linear.cols);
        let n = x.len() / cols;
        let weight = Mat::of(&self.base[linear.weight.clone()], rows, cols);
        self.arithmetic.product(dx, cols, false, Mat::of(dy, n, rows), weight, threads);
        match gradients {
            Gradients::Full(all) => {
                let dw = &mut all[linear.weight.clone()];
                let (dy_t, x) = (Mat::of(dy, n, rows).t(), Mat::of(x, n, cols));
                self.arithmetic.product(dw, cols, true, dy_t, x, threads);
                if let Some(bias) = &linear.bias {
                    let db = &mut all[bias.clone()];
                    dy.chunks_exact(rows).for_each(|dy| db.iter_mut().zip(dy).for_each(|(b, d)| *b += d));
                }
            }
            Gradients::Adapters(all) => {
                if let Some((adapters, numbers)) = self.adapters {
                    adapters.back(numbers, all, (layer, matrix, linear), (x, dy, dx));
                }
            }
        }
    }
}

impl Gradients<'_> {
    /// The gradient of a weight, if that is trained.
    pub fn of(&mut self, place: &Range<usize>) -> Option<&mut [f32]> {
        match self {
            Self::Full(all) => Some(&mut all[place.clone()]),
            Self::Adapters(_) => None,
        }
    }
}

/// A buffer of this many numbers, whatever they are. What it once had room for it keeps.
pub fn sized(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    buffer.resize(len, 0.0);
    buffer
}
