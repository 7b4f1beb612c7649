//! Half a block on its way from the stream and back into it: norms before and after, and what it is multiplied by.
//! Most models have a norm before each half and nothing else: then what comes out is added to the stream by the
//! product itself, and nothing here is done.

use std::borrow::Cow;
use std::ops::Range;

use super::kernels::{geglu, geglu_back, norm, norm_back, swiglu, swiglu_back};
use super::weights::{Gradients, Weights, sized};
use crate::model::{Activation, Shape};

/// Whether something is done with what a half gives before it joins the stream.
pub fn is_apart(shape: &Shape) -> bool {
    shape.variant.residual != 1.0 || shape.family.norms.iter().any(|norms| norms.after.is_some())
}

impl<'a> Weights<'a> {
    /// A token's embedding.
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

    /// What a norm multiplies by.
    pub fn gain(&self, place: &Range<usize>) -> Cow<'a, [f32]> {
        let weights = &self.base[place.clone()];
        if self.arena.shape.family.shifted {
            return weights.iter().map(|w| 1.0 + w).collect();
        }
        Cow::Borrowed(weights)
    }

    /// What goes into a half: the stream after a norm, or as it is.
    pub fn enter(&self, place: Option<&Range<usize>>, x: &[f32], y: &mut [f32], scales: &mut [f32]) {
        match place {
            Some(place) => norm(x, &self.gain(place), self.arena.shape.epsilon as f32, y, scales),
            None => y.copy_from_slice(x),
        }
    }

    /// Its backward pass: adds to the gradient of the stream.
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

    /// What a half gave, where it [is apart](is_apart), joins the stream. Keeps the norm's scales.
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

    /// Its backward pass: the gradient of what the half gave, from the stream's.
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

    /// The gate's activation times up.
    pub fn activate(&self, gate_up: &[f32], activated: &mut [f32]) {
        let shape = &self.arena.shape;
        match shape.family.activation {
            Activation::Silu => swiglu(gate_up, shape.intermediate, activated),
            Activation::GeluTanh => geglu(gate_up, shape.intermediate, activated),
        }
    }

    /// Its backward pass.
    pub fn activate_back(&self, gate_up: &[f32], dactivated: &[f32], dgate_up: &mut [f32]) {
        let shape = &self.arena.shape;
        match shape.family.activation {
            Activation::Silu => swiglu_back(gate_up, shape.intermediate, dactivated, dgate_up),
            Activation::GeluTanh => geglu_back(gate_up, shape.intermediate, dactivated, dgate_up),
        }
    }
}
