//! A mixture of experts, forward and backward. A router chooses some experts for each token; its
//! probabilities weigh their outputs. Tokens are grouped by expert, so that an expert's tokens share
//! a product. The reference is [`crate::model::Decoder`], where each token goes through all experts.
//!
//! Experts' matrices are not packed. A token's bits depend on it alone. The router's product is
//! always float32, because rounding should not change which expert is chosen.
//!
//! Shapes: N tokens, D hidden, X experts, K experts per token, F width of an expert. A row is a
//! token at one of its K experts; rows are grouped by expert.

use std::ops::Range;

use super::arena::ExpertPlaces;
use super::gemm::{Mat, product};
use super::kernels::{dot, exp, largest, swiglu, swiglu_back};
use super::weights::{Gradients, Weights, sized};
use crate::model::Experts;

/// Intermediate results of a mixture's forward pass.
#[derive(Clone, Debug, Default)]
pub struct KeptExperts {
    /// The router's probabilities, `[N, X]`.
    routes: Vec<f32>,
    /// Weight of each row, `[N, K]`, by descending probability, and the sum of chosen probabilities, `[N]`.
    weights: Vec<f32>,
    sums: Vec<f32>,
    /// Row of each token at each of its experts, by descending probability, `[N, K]`.
    places: Vec<usize>,
    /// Token of each row.
    tokens: Vec<usize>,
    /// Rows of each expert.
    spans: Vec<Range<usize>>,
    /// Gate and up, `[N K, 2 F]`; activated, `[N K, F]`; outputs, `[N K, D]`.
    gate_up: Vec<f32>,
    activated: Vec<f32>,
    made: Vec<f32>,
    /// Inputs of an expert's rows, `[rows, D]`.
    gathered: Vec<f32>,
}

/// A block's mixture.
#[derive(Clone, Copy)]
pub struct Mixture<'a> {
    /// The model's weights.
    pub weights: Weights<'a>,
    /// The places of the mixture's own weights.
    pub places: &'a ExpertPlaces,
    pub experts: Experts,
    /// Threads of each matrix product.
    pub threads: usize,
}

impl Weights<'_> {
    /// Returns the mixture of experts of a layer, if it has one.
    pub fn mixture(&self, layer: usize, threads: usize) -> Option<Mixture<'_>> {
        let (places, experts) =
            (self.arena.blocks[layer].experts.as_ref()?, self.arena.shape.variant.experts?);
        Some(Mixture { weights: *self, places, experts, threads })
    }
}

impl Mixture<'_> {
    fn hidden(&self) -> usize {
        self.weights.arena.shape.hidden
    }

    fn part(&self, place: &Range<usize>) -> &[f32] {
        &self.weights.base[place.clone()]
    }

    /// Runs the forward pass: `y`, `[N, D]`, from `x`, `[N, D]`.
    pub fn forward(&self, x: &[f32], y: &mut [f32], kept: &mut KeptExperts) {
        let (d, k, f) = (self.hidden(), self.experts.active, self.experts.intermediate);
        let n = x.len() / d;
        let arithmetic = self.weights.arithmetic;
        self.route(x, kept);
        let KeptExperts { weights, places, tokens, spans, gate_up, activated, made, gathered, .. } = kept;
        let (gate_up, activated) = (sized(gate_up, n * k * 2 * f), sized(activated, n * k * f));
        let made = sized(made, n * k * d);
        for (span, [first, last]) in spans.iter().zip(&self.places.each) {
            let rows = span.len();
            gather(x, d, &tokens[span.clone()], gathered);
            let both = &mut gate_up[span.start * 2 * f..span.end * 2 * f];
            let matrix = Mat::of(self.part(first), 2 * f, d);
            arithmetic.product(both, 2 * f, false, Mat::of(gathered, rows, d), matrix.t(), self.threads);
            let inside = &mut activated[span.start * f..span.end * f];
            swiglu(both, f, inside);
            let matrix = Mat::of(self.part(last), d, f);
            let out = &mut made[span.start * d..span.end * d];
            arithmetic.product(out, d, false, Mat::of(inside, rows, f), matrix.t(), self.threads);
        }
        y.fill(0.0);
        for ((y, places), weights) in
            y.chunks_exact_mut(d).zip(places.chunks_exact(k)).zip(weights.chunks_exact(k))
        {
            for (place, weight) in places.iter().zip(weights) {
                let row = &made[place * d..(place + 1) * d];
                y.iter_mut().zip(row).for_each(|(y, made)| *y += weight * made);
            }
        }
    }

    /// Chooses the experts of each token and their weights.
    fn route(&self, x: &[f32], kept: &mut KeptExperts) {
        let (d, count, k) = (self.hidden(), self.experts.count, self.experts.active);
        let n = x.len() / d;
        let routes = sized(&mut kept.routes, n * count);
        let router = Mat::of(self.part(&self.places.router), count, d);
        product(routes, count, false, Mat::of(x, n, d), router.t(), self.threads);
        let mut chosen = vec![0; n * k];
        let (weights, sums) = (sized(&mut kept.weights, n * k), sized(&mut kept.sums, n));
        let mut order: Vec<usize> = Vec::with_capacity(count);
        for (token, routes) in routes.chunks_exact_mut(count).enumerate() {
            let top = largest(routes);
            for route in &mut *routes {
                *route = exp(*route - top);
            }
            let share = 1.0 / routes.iter().sum::<f32>();
            for route in &mut *routes {
                *route *= share;
            }
            order.clear();
            order.extend(0..count);
            // Ties go to the first.
            order.sort_by(|a, b| routes[*b].total_cmp(&routes[*a]));
            let sum: f32 = order[..k].iter().map(|expert| routes[*expert]).sum();
            sums[token] = sum;
            for (place, expert) in order[..k].iter().enumerate() {
                chosen[token * k + place] = *expert;
                let route = routes[*expert];
                weights[token * k + place] = if self.experts.normalized { route / sum } else { route };
            }
        }
        kept.spans.clear();
        kept.tokens.clear();
        kept.places.clear();
        kept.places.resize(n * k, 0);
        for expert in 0..count {
            let first = kept.tokens.len();
            for (place, _) in chosen.iter().enumerate().filter(|(_, own)| **own == expert) {
                kept.places[place] = kept.tokens.len();
                kept.tokens.push(place / k);
            }
            kept.spans.push(first..kept.tokens.len());
        }
    }

    /// Runs the backward pass: computes the gradient of `x` from that of `y`; adds to those of weights.
    pub fn backward(
        &self,
        (x, dy): (&[f32], &[f32]),
        kept: &KeptExperts,
        dx: &mut [f32],
        gradients: &mut Gradients<'_>,
    ) {
        let (d, k, f) = (self.hidden(), self.experts.active, self.experts.intermediate);
        let (n, arithmetic) = (x.len() / d, self.weights.arithmetic);
        // The gradients of each row's weight and of its output.
        let (mut dweights, mut dmade) = (vec![0.0; n * k], vec![0.0; n * k * d]);
        for (token, dy) in dy.chunks_exact(d).enumerate() {
            let slots = token * k..(token + 1) * k;
            let own = kept.places[slots.clone()].iter().zip(&kept.weights[slots.clone()]);
            for ((place, weight), dweight) in own.zip(&mut dweights[slots]) {
                let row = place * d..(place + 1) * d;
                *dweight = dot(dy, &kept.made[row.clone()]);
                dmade[row].iter_mut().zip(dy).for_each(|(made, dy)| *made = weight * dy);
            }
        }
        dx.fill(0.0);
        let (mut dinside, mut dboth, mut drows, mut gathered) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (span, [first, last]) in kept.spans.iter().zip(&self.places.each) {
            let rows = span.len();
            let dmade = Mat::of(&dmade[span.start * d..span.end * d], rows, d);
            let dinside = sized(&mut dinside, rows * f);
            arithmetic.product(dinside, f, false, dmade, Mat::of(self.part(last), d, f), self.threads);
            let dboth = sized(&mut dboth, rows * 2 * f);
            swiglu_back(&kept.gate_up[span.start * 2 * f..span.end * 2 * f], f, dinside, dboth);
            let dboth = Mat::of(dboth, rows, 2 * f);
            let drows = sized(&mut drows, rows * d);
            arithmetic.product(drows, d, false, dboth, Mat::of(self.part(first), 2 * f, d), self.threads);
            let tokens = &kept.tokens[span.clone()];
            for (token, row) in tokens.iter().zip(drows.chunks_exact(d)) {
                dx[token * d..(token + 1) * d].iter_mut().zip(row).for_each(|(dx, row)| *dx += row);
            }
            if let Some(dlast) = gradients.of(last) {
                let inside = Mat::of(&kept.activated[span.start * f..span.end * f], rows, f);
                arithmetic.product(dlast, f, true, dmade.t(), inside, self.threads);
            }
            if let Some(dfirst) = gradients.of(first) {
                gather(x, d, tokens, &mut gathered);
                arithmetic.product(dfirst, d, true, dboth.t(), Mat::of(&gathered, rows, d), self.threads);
            }
        }
        self.route_back((x, &dweights), kept, dx, gradients);
    }

    /// Runs the backward pass of the router, from the gradients of the rows' weights, `[N, K]`. A
    /// weight is `w = p`, divided by the sum of the chosen probabilities if normalized.
    fn route_back(
        &self,
        (x, dweights): (&[f32], &[f32]),
        kept: &KeptExperts,
        dx: &mut [f32],
        gradients: &mut Gradients<'_>,
    ) {
        let (d, k, count) = (self.hidden(), self.experts.active, self.experts.count);
        let n = x.len() / d;
        let mut droutes = vec![0.0; n * count];
        for (token, droutes) in droutes.chunks_exact_mut(count).enumerate() {
            let slots = token * k..(token + 1) * k;
            let (own, weights) = (&dweights[slots.clone()], &kept.weights[slots.clone()]);
            let along = if self.experts.normalized { dot(own, weights) } else { 0.0 };
            let over = if self.experts.normalized { kept.sums[token] } else { 1.0 };
            for (place, dweight) in kept.places[slots].iter().zip(own) {
                droutes[kept.expert(*place)] = (dweight - along) / over;
            }
            // The gradient of p = softmax of the router's products.
            let routes = &kept.routes[token * count..(token + 1) * count];
            let mean = dot(routes, droutes);
            droutes.iter_mut().zip(routes).for_each(|(d, route)| *d = route * (*d - mean));
        }
        let router = &self.places.router;
        let droutes = Mat::of(&droutes, n, count);
        product(dx, d, true, droutes, Mat::of(self.part(router), count, d), self.threads);
        if let Some(drouter) = gradients.of(router) {
            product(drouter, d, true, droutes.t(), Mat::of(x, n, d), self.threads);
        }
    }
}

impl KeptExperts {
    /// Returns the expert of a row.
    fn expert(&self, row: usize) -> usize {
        // Experts without rows have spans that end at or before the row and are skipped.
        self.spans.partition_point(|span| span.end <= row)
    }
}

/// Copies some tokens' rows of `x`, one after the other.
fn gather(x: &[f32], d: usize, tokens: &[usize], into: &mut Vec<f32>) {
    into.clear();
    for token in tokens {
        into.extend_from_slice(&x[token * d..(token + 1) * d]);
    }
}
