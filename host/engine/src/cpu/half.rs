//! The path of half a block from the stream and back: norms before and after, and the residual
//! factor. Most models only have a norm before each half: then the product itself adds the
//! output to the stream, and `join` is not used.

use std::borrow::Cow;
use std::ops::Range;

use super::kernels::{geglu, geglu_back, norm, norm_back, swiglu, swiglu_back};
use super::weights::{Gradients, Weights, sized};
use crate::model::{Activation, Shape};

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
    pub fn enter(&self, place: Option<&Range<usize>>, x: &[f32], y: &mut [f32], scales: &mut [f32]) {
        match place {
            Some(place) => norm(x, &self.gain(place), self.arena.shape.epsilon as f32, y, scales),
            None => y.copy_from_slice(x),
        }
    }

    /// The backward pass of `enter`: adds to the gradient of the stream.
    pub fn enter_back(
        &self,
        place: Option<&Range<usize>>,
        (x, scales): (&[f32], &[f32]),
        dy: &[f32],
        dx: &mut [f32],
        gradients: &mut Gradients<'_>,
    ) {
        match place {
            Some(place) => norm_back(x, &self.gain(place), scales, dy, dx, gradients.of(place)),
            None => dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy),
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
    ) {
        let residual = self.arena.shape.variant.residual as f32;
        let normed = sized(scratch, x.len());
        self.enter(place, half, normed, scales);
        x.iter_mut().zip(normed).for_each(|(x, y)| *x += residual * *y);
    }

    /// The backward pass of `join`: the gradient of the half's output, from the stream's.
    pub fn join_back(
        &self,
        place: Option<&Range<usize>>,
        (half, scales): (&[f32], &[f32]),
        dx: &[f32],
        dhalf: &mut Vec<f32>,
        scratch: &mut Vec<f32>,
        gradients: &mut Gradients<'_>,
    ) {
        let residual = self.arena.shape.variant.residual as f32;
        let above = sized(scratch, dx.len());
        above.iter_mut().zip(dx).for_each(|(y, x)| *y = residual * x);
        let dhalf = sized(dhalf, dx.len());
        dhalf.fill(0.0);
        self.enter_back(place, (half, scales), above, dhalf, gradients);
    }

    /// Computes the activation of the gate times up.
    pub fn activate(&self, gate_up: &[f32], activated: &mut [f32]) {
        let shape = &self.arena.shape;
        match shape.family.activation {
            Activation::Silu => swiglu(gate_up, shape.intermediate, activated),
            Activation::GeluTanh => geglu(gate_up, shape.intermediate, activated),
        }
    }

    /// The backward pass of `activate`.
    pub fn activate_back(&self, gate_up: &[f32], dactivated: &[f32], dgate_up: &mut [f32]) {
        let shape = &self.arena.shape;
        match shape.family.activation {
            Activation::Silu => swiglu_back(gate_up, shape.intermediate, dactivated, dgate_up),
            Activation::GeluTanh => geglu_back(gate_up, shape.intermediate, dactivated, dgate_up),
        }
    }
}
