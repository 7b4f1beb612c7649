//! A model's weights as a pass reads them, with the two products used in every part of a block,
//! and the gradients of trained parameters.

use std::ops::Range;

use super::arena::{Arena, BlockMatrix};
use super::arithmetic::Arithmetic;
use super::attention::Heads;
use super::gemm::Mat;
use super::lora::Adapters;
use super::packed::PackedWeights;

/// The weights that a model computes with.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    pub arena: &'a Arena,
    pub base: &'a [f32],
    /// Adapters beside the weights, if any.
    pub adapters: Option<(&'a Adapters, &'a [f32])>,
    /// The weights packed for products, adapters merged; `None` for a reference, which is used too rarely.
    pub laid: Option<&'a PackedWeights>,
    pub arithmetic: Arithmetic,
}

/// Gradients of trained parameters: of all weights, or only of adapters.
pub enum Gradients<'a> {
    /// In the layout of the weights.
    Full(&'a mut [f32]),
    /// In the layout of the adapters.
    Adapters(&'a mut [f32]),
}

impl Weights<'_> {
    /// Returns the model's heads.
    pub fn heads(&self) -> Heads {
        Heads::of(&self.arena.shape, self.arithmetic)
    }

    /// Returns the heads in a layer, which may have a window.
    pub fn heads_in(&self, layer: usize) -> Heads {
        Heads { window: self.arena.shape.window(layer), ..self.heads() }
    }

    /// Packs the weights for products, reusing the memory of `old`.
    pub fn pack(self, old: Option<PackedWeights>) -> PackedWeights {
        PackedWeights::of(self.arithmetic, self.arena, self.base, self.adapters, old)
    }

    /// Computes `y = x Wᵀ + b` with adapters; `y += …` with `add`. `x` is `[N, cols]`, `y` `[N, rows]`.
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

    /// The backward pass of [`linear`](Self::linear): computes `dx` and adds to the gradients.
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
    /// Returns the gradient of a weight, if it is trained.
    pub fn of(&mut self, place: &Range<usize>) -> Option<&mut [f32]> {
        match self {
            Self::Full(all) => Some(&mut all[place.clone()]),
            Self::Adapters(_) => None,
        }
    }
}

/// Resizes a buffer and returns it, with arbitrary contents. It keeps its capacity.
pub fn sized(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    buffer.resize(len, 0.0);
    buffer
}
