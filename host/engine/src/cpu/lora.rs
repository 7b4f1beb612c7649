//! Low-rank adapters (Hu et al. 2021, LoRA): `W x + (alpha / rank) · B (A x)` with `W` frozen.
//!
//! Each projection of each block has one pair of matrices, with PEFT's names and shapes. Only
//! they are trained; exported weights have them merged.

pub use allot_settings::LoraConfig;
use std::ops::Range;

use allot_allocation::seed;

use super::arena::{Arena, BlockMatrix, Linear};
use super::gemm::{Mat, product};

/// The place of each adapter in one list of numbers.
#[derive(Clone, Debug)]
pub struct Adapters {
    rank: usize,
    scale: f32,
    /// Adapters of each block and each of its four matrices, in the order of [`BlockMatrix`].
    blocks: Vec<[Vec<Pair>; 4]>,
    len: usize,
    tensors: Vec<(String, Range<usize>, [usize; 2])>,
    /// PEFT's names of the projections with adapters.
    modules: Vec<&'static str>,
}

/// A projection's adapter: the rows that it adds to, and its matrices.
#[derive(Clone, Debug)]
struct Pair {
    rows: Range<usize>,
    a: Range<usize>,
    b: Range<usize>,
}

impl Adapters {
    /// Returns the layout for a model.
    pub fn new(arena: &Arena, config: LoraConfig) -> Self {
        let (mut len, mut tensors, mut blocks) = (0, Vec::new(), Vec::new());
        for (layer, block) in arena.blocks.iter().enumerate() {
            let of = |linear: &Linear| {
                let pair = |(name, rows): &(&str, Range<usize>)| {
                    let mut add = |letter: char, dims: [usize; 2]| {
                        let place = len..len + dims[0] * dims[1];
                        len = place.end;
                        let name =
                            format!("base_model.model.model.layers.{layer}.{name}.lora_{letter}.weight");
                        tensors.push((name, place.clone(), dims));
                        place
                    };
                    let a = add('A', [config.rank, linear.cols]);
                    Pair { rows: rows.clone(), a, b: add('B', [rows.len(), config.rank]) }
                };
                linear.parts.iter().map(pair).collect()
            };
            blocks.push(block.matrices.each_ref().map(of));
        }
        let matrices = arena.blocks.first().into_iter().flat_map(|block| &block.matrices);
        let modules = matrices.flat_map(|matrix| &matrix.parts).map(|(name, _)| *name);
        // Without the name of the block half that contains it.
        let modules = modules.map(|name| name.rsplit('.').next().unwrap_or(name)).collect();
        let scale = config.alpha / config.rank as f32;
        Self { rank: config.rank, scale, blocks, len, tensors, modules }
    }

    /// Returns the number of parameters.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no adapters.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the factor of the adapters' output.
    pub(crate) fn scale(&self) -> f32 {
        self.scale
    }

    /// Returns the place of every matrix, by PEFT's name.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        self.tensors.iter().map(|(name, place, _)| (name.as_str(), place.clone()))
    }

    /// Returns the name of the weight that a matrix belongs to.
    pub(crate) fn weight(name: &str) -> String {
        name.trim_start_matches("base_model.model.").replace(".lora_A", "").replace(".lora_B", "")
    }

    /// Returns adapters that change nothing yet: `A` uniform in ±1/√cols as in PEFT, `B` zero.
    pub fn fresh(&self, run_seed: u64) -> Vec<f32> {
        let mut all = vec![0.0; self.len];
        let matrices = self.tensors.iter().enumerate().filter(|(_, (name, ..))| name.ends_with("A.weight"));
        for (i, (_, place, dims)) in matrices {
            let mut stream = seed::Stream::new(seed::world(run_seed, 100, i as u64));
            let bound = 1.0 / (dims[1] as f64).sqrt();
            all[place.clone()].fill_with(|| ((2.0 * stream.unit() - 1.0) * bound) as f32);
        }
        all
    }

    /// Returns PEFT's name, the shape and the numbers of every matrix.
    pub fn tensors<'a>(&'a self, all: &'a [f32]) -> impl Iterator<Item = (&'a str, &'a [usize], &'a [f32])> {
        self.tensors.iter().map(|(name, place, dims)| (name.as_str(), dims.as_slice(), &all[place.clone()]))
    }

    /// Returns PEFT's `adapter_config.json`, which says which projections the matrices belong to.
    pub fn peft(&self) -> serde_json::Value {
        serde_json::json!({
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": null,
            "r": self.rank,
            "lora_alpha": self.scale * self.rank as f32,
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": false,
            "target_modules": self.modules,
        })
    }

    /// Returns `scale · x Aᵀ`, `[N, rank]`.
    fn inner(&self, all: &[f32], pair: &Pair, linear: &Linear, x: &[f32], n: usize) -> Vec<f32> {
        let mut h = vec![0.0; n * self.rank];
        let a = Mat::of(&all[pair.a.clone()], self.rank, linear.cols);
        product(&mut h, self.rank, false, Mat::of(x, n, linear.cols), a.t(), 1);
        for h in &mut h {
            *h *= self.scale;
        }
        h
    }

    /// Runs the backward pass: adds to the gradients of the adapters and of `x`.
    pub fn back(
        &self,
        all: &[f32],
        gradients: &mut [f32],
        (layer, matrix, linear): (usize, BlockMatrix, &Linear),
        (x, dy, dx): (&[f32], &[f32], &mut [f32]),
    ) {
        let (n, r, cols) = (x.len() / linear.cols, self.rank, linear.cols);
        for pair in &self.blocks[layer][matrix as usize] {
            let h = self.inner(all, pair, linear, x, n);
            let dy = Mat::strided(&dy[pair.rows.start..], n, pair.rows.len(), linear.rows);
            let none = 1;
            product(&mut gradients[pair.b.clone()], r, true, dy.t(), Mat::of(&h, n, r), none);
            let mut dh = vec![0.0; n * r];
            product(&mut dh, r, false, dy, Mat::of(&all[pair.b.clone()], pair.rows.len(), r), none);
            for h in &mut dh {
                *h *= self.scale;
            }
            product(
                &mut gradients[pair.a.clone()],
                cols,
                true,
                Mat::of(&dh, n, r).t(),
                Mat::of(x, n, cols),
                none,
            );
            product(dx, cols, true, Mat::of(&dh, n, r), Mat::of(&all[pair.a.clone()], r, cols), none);
        }
    }

    /// Adds the adapters to their weights.
    pub fn merge(&self, all: &[f32], arena: &Arena, weights: &mut [f32]) {
        for (block, pairs) in arena.blocks.iter().zip(&self.blocks) {
            for (linear, pairs) in block.matrices.iter().zip(pairs) {
                for pair in pairs {
                    let b: Vec<f32> = all[pair.b.clone()].iter().map(|x| x * self.scale).collect();
                    let first = linear.weight.start + pair.rows.start * linear.cols;
                    product(
                        &mut weights[first..linear.weight.end],
                        linear.cols,
                        true,
                        Mat::of(&b, pair.rows.len(), self.rank),
                        Mat::of(&all[pair.a.clone()], self.rank, linear.cols),
                        1,
                    );
                }
            }
        }
    }
}
