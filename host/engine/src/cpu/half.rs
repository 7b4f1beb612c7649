//! The path of half a block from the stream and back: norms before and after, and the residual
//! factor. Most models only have a norm before each half: then the product itself adds the
//! output to the stream, and `join` is not used.
//!
//! Threads share the rows. The bits of a row, and of a sum over rows, do not depend on their number.

use std::borrow::Cow;
use std::ops::Range;

use rayon::prelude::*;

use super::kernels::{gain_back, geglu, geglu_back, norm, norm_back, swiglu, swiglu_back};
use super::weights::{Gradients, Weights, sized};
use crate::model::{Activation, Shape};

/// Returns the rows of a thread's share, so that `threads` share all of them.
pub fn share(rows: usize, threads: usize) -> usize {
    rows.div_ceil(threads.max(1)).max(1)
}

/// Returns whether a half's output is normed or scaled before it is added to the stream.
pub fn is_apart(shape: &Shape) -> bool {
    shape.variant.residual != 1.0 || shape.family.norms.iter().any(|norms| norms.after.is_some())
}

impl<'a> Weights<'a> {
    /// Reads a token's embedding.
    pub fn embed(&self, token: u32, x: &mut [f32]) {
        let (shape, first) = (&self.arena.shape, self.arena.embedding.start);
        let row = &self.base[first + token as usize * shape.hidden..][..shape.hidden];
        self.arithmetic.read(row, x);
        if shape.variant.embedding != 1.0 {
            let scale = shape.variant.embedding as f32;
            for x in x {
                *x *= scale;
            }
        }
    }

    /// Returns the factors of a norm.
    pub fn gain(&self, place: &Range<usize>) -> Cow<'a, [f32]> {
        let weights = &self.base[place.clone()];
        if self.arena.shape.family.shifted {
            return weights.iter().map(|w| 1.0 + w).collect();
        }
        Cow::Borrowed(weights)
    }

    /// Computes the input of a half: the stream after a norm, or unchanged.
    pub fn enter(
        &self,
        place: Option<&Range<usize>>,
        x: &[f32],
        y: &mut [f32],
        scales: &mut [f32],
        threads: usize,
    ) {
        let Some(place) = place else { return y.copy_from_slice(x) };
        let (gain, epsilon) = (self.gain(place), self.arena.shape.epsilon as f32);
        let rows = share(scales.len(), threads);
        let size = rows * gain.len();
        let shares = x.par_chunks(size).zip(y.par_chunks_mut(size)).zip(scales.par_chunks_mut(rows));
        shares.for_each(|((x, y), scales)| norm(x, &gain, epsilon, y, scales));
    }

    /// The backward pass of `enter`: adds to the gradient of the stream.
    pub fn enter_back(
        &self,
        place: Option<&Range<usize>>,
        (x, scales): (&[f32], &[f32]),
        dy: &[f32],
        dx: &mut [f32],
        gradients: &mut Gradients<'_>,
        threads: usize,
    ) {
        let Some(place) = place else { return dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy) };
        let (gain, dgain) = (self.gain(place), gradients.of(place));
        if threads == 1 {
            return norm_back(x, &gain, scales, dy, dx, dgain);
        }
        let (rows, width) = (share(scales.len(), threads), gain.len());
        let size = rows * width;
        let shares = x.par_chunks(size).zip(dy.par_chunks(size)).zip(dx.par_chunks_mut(size));
        shares
            .zip(scales.par_chunks(rows))
            .for_each(|(((x, dy), dx), scales)| norm_back(x, &gain, scales, dy, dx, None));
        // A sum over rows is shared by columns.
        let columns = share(width, threads);
        if let Some(dgain) = dgain {
            dgain.par_chunks_mut(columns).enumerate().for_each(|(part, dgain)| {
                let columns = part * columns..part * columns + dgain.len();
                gain_back(x, width, scales, dy, columns, dgain);
            });
        }
    }

    /// Adds a half's output to the stream, if it [is apart](is_apart). Keeps the norm's scales.
    pub fn join(
        &self,
        place: Option<&Range<usize>>,
        half: &[f32],
        x: &mut [f32],
        scales: &mut [f32],
        scratch: &mut Vec<f32>,
        threads: usize,
    ) {
        let residual = self.arena.shape.variant.residual as f32;
        let normed = sized(scratch, x.len());
        self.enter(place, half, normed, scales, threads);
        x.iter_mut().zip(normed).for_each(|(x, y)| *x += residual * *y);
    }

    /// The backward pass of `join`: the gradient of the half's output, from the stream's.
    pub fn join_back(
        &self,
        place: Option<&Range<usize>>,
        (half, scales): (&[f32], &[f32]),
        dx: &[f32],
        (dhalf, scratch): (&mut Vec<f32>, &mut Vec<f32>),
        gradients: &mut Gradients<'_>,
        threads: usize,
    ) {
        let residual = self.arena.shape.variant.residual as f32;
        let above = sized(scratch, dx.len());
        above.iter_mut().zip(dx).for_each(|(y, x)| *y = residual * x);
        let dhalf = sized(dhalf, dx.len());
        dhalf.fill(0.0);
        self.enter_back(place, (half, scales), above, dhalf, gradients, threads);
    }

    /// Computes the activation of the gate times up.
    pub fn activate(&self, gate_up: &[f32], activated: &mut [f32], threads: usize) {
        let width = self.arena.shape.intermediate;
        let run = match self.arena.shape.family.activation {
            Activation::Silu => swiglu,
            Activation::GeluTanh => geglu,
        };
        let rows = share(activated.len() / width, threads);
        let shares = gate_up.par_chunks(2 * rows * width).zip(activated.par_chunks_mut(rows * width));
        shares.for_each(|(gate_up, activated)| run(gate_up, width, activated));
    }

    /// The backward pass of `activate`.
    pub fn activate_back(&self, gate_up: &[f32], dactivated: &[f32], dgate_up: &mut [f32], threads: usize) {
        let width = self.arena.shape.intermediate;
        let run = match self.arena.shape.family.activation {
            Activation::Silu => swiglu_back,
            Activation::GeluTanh => geglu_back,
        };
        let rows = share(dactivated.len() / width, threads);
        let (size, twice) = (rows * width, 2 * rows * width);
        let shares = gate_up.par_chunks(twice).zip(dactivated.par_chunks(size));
        shares
            .zip(dgate_up.par_chunks_mut(twice))
            .for_each(|((gate_up, da), dgate_up)| run(gate_up, width, da, dgate_up));
    }
}
