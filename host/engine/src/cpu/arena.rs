//! Where each tensor of a model lies in one long run of float32 numbers.
//!
//! Weights, gradients and both moments of the optimizer have this one layout. Tensors that are
//! multiplied with the same input lie one after the other, so that one matrix product serves them:
//! query, key and value; gate and up.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::model::{ModelError, Shape};

/// The places of all tensors.
#[derive(Clone, Debug)]
pub struct Arena {
    /// The model's shape.
    pub shape: Shape,
    /// Token embeddings, `[V, D]`.
    pub embedding: Range<usize>,
    /// The blocks, first to last.
    pub blocks: Vec<BlockPlaces>,
    /// The final norm, `[D]`.
    pub norm: Range<usize>,
    /// The head, `[V, D]`: the embedding itself where they are tied.
    pub head: Range<usize>,
    /// Numbers in all.
    pub len: usize,
    /// Every tensor by its name in a checkpoint, with its shape.
    tensors: Vec<(String, Range<usize>, Vec<usize>)>,
}

/// The places of a block's tensors.
#[derive(Clone, Debug)]
pub struct BlockPlaces {
    /// Norm before attention, `[D]`, where there is one.
    pub norm1: Option<Range<usize>>,
    /// Query, key and value, `[Q + 2 KV, D]`, with biases where there are any.
    pub qkv: Linear,
    /// Norms of each query head and key head, `[E]` each, or of all of them, `[Q]` and `[KV]`, where there are any.
    pub head_norms: Option<(Range<usize>, Range<usize>)>,
    /// Output of attention, `[D, Q]`.
    pub out: Linear,
    /// Norm of that before it joins the stream, `[D]`, where there is one.
    pub after1: Option<Range<usize>>,
    /// Norm before the feed-forward part, `[D]`, where there is one.
    pub norm2: Option<Range<usize>>,
    /// Gate and up, `[2 F, D]`: of no rows where there are experts.
    pub gate_up: Linear,
    /// Down, `[D, F]`: the same.
    pub down: Linear,
    /// Experts, where there are some.
    pub experts: Option<ExpertPlaces>,
    /// Norm of that before it joins the stream, `[D]`, where there is one.
    pub after2: Option<Range<usize>>,
}

/// The places of a mixture of experts.
#[derive(Clone, Debug)]
pub struct ExpertPlaces {
    /// The router, `[experts, D]`.
    pub router: Range<usize>,
    /// Of each expert: gate and up, `[2 F, D]`, and down, `[D, F]`.
    pub each: Vec<[Range<usize>; 2]>,
}

/// The place of a matrix `[rows, cols]` that is multiplied with, of its bias, and of the projections
/// that it is made of.
#[derive(Clone, Debug)]
pub struct Linear {
    /// Numbers that come out.
    pub rows: usize,
    /// Numbers that go in.
    pub cols: usize,
    /// The weight.
    pub weight: Range<usize>,
    /// The bias.
    pub bias: Option<Range<usize>>,
    /// Its projections' names and their rows.
    pub parts: Vec<(&'static str, Range<usize>)>,
}

impl Linear {
    fn new(weight: Range<usize>, cols: usize, parts: &[(&'static str, usize)]) -> Self {
        let mut rows = 0;
        let parts = parts.iter().map(|(name, n)| {
            rows += n;
            (*name, rows - n..rows)
        });
        let parts = parts.collect();
        Self { rows, cols, weight, bias: None, parts }
    }
}

impl Arena {
    /// The layout of a model of this shape.
    pub fn new(shape: &Shape) -> Self {
        let (d, f) = (shape.hidden, shape.intermediate);
        let (q, kv) = (shape.heads * shape.head, shape.kv_heads * shape.head);
        let ([attention, feed_forward], fused) = (shape.family.norms, shape.family.fused);
        let mut tensors = Vec::new();
        let mut end = 0;
        let mut add = |name: String, dims: &[usize]| {
            let place = end..end + dims.iter().product::<usize>();
            end = place.end;
            tensors.push((name, place.clone(), dims.to_vec()));
            place
        };
        let embedding = add("model.embed_tokens.weight".to_owned(), &[shape.vocabulary, d]);
        let mut blocks = Vec::with_capacity(shape.layers);
        for layer in 0..shape.layers {
            let name = |part: &str| format!("model.layers.{layer}.{part}");
            let norm = |n: &str| format!("{n}.weight");
            let norm1 = attention.before.map(|n| add(name(&norm(n)), &[d]));
            let qkv = if fused {
                add(name("self_attn.qkv_proj.weight"), &[q + 2 * kv, d])
            } else {
                let first = add(name("self_attn.q_proj.weight"), &[q, d]);
                add(name("self_attn.k_proj.weight"), &[kv, d]);
                first.start..add(name("self_attn.v_proj.weight"), &[kv, d]).end
            };
            let qkv_bias = shape.family.bias.then(|| {
                let first = add(name("self_attn.q_proj.bias"), &[q]);
                add(name("self_attn.k_proj.bias"), &[kv]);
                first.start..add(name("self_attn.v_proj.bias"), &[kv]).end
            });
            let head_norms = shape.head_norms().map(|[query, key]| {
                (add(name("self_attn.q_norm.weight"), &[query]), add(name("self_attn.k_norm.weight"), &[key]))
            });
            let out = add(name("self_attn.o_proj.weight"), &[d, q]);
            let after1 = attention.after.map(|n| add(name(&norm(n)), &[d]));
            let norm2 = feed_forward.before.map(|n| add(name(&norm(n)), &[d]));
            let experts = shape.variant.experts.map(|experts| {
                let router = add(name("mlp.gate.weight"), &[experts.count, d]);
                let mut one = |expert: usize| {
                    let (f, part) = (experts.intermediate, |p: &str| {
                        name(&format!("mlp.experts.{expert}.{p}_proj.weight"))
                    });
                    let gate = add(part("gate"), &[f, d]);
                    [gate.start..add(part("up"), &[f, d]).end, add(part("down"), &[d, f])]
                };
                ExpertPlaces { router, each: (0..experts.count).map(&mut one).collect() }
            });
            let gate_up = if experts.is_some() {
                0..0
            } else if fused {
                add(name("mlp.gate_up_proj.weight"), &[2 * f, d])
            } else {
                let gate = add(name("mlp.gate_proj.weight"), &[f, d]);
                gate.start..add(name("mlp.up_proj.weight"), &[f, d]).end
            };
            let down = if experts.is_some() { 0..0 } else { add(name("mlp.down_proj.weight"), &[d, f]) };
            let after2 = feed_forward.after.map(|n| add(name(&norm(n)), &[d]));
            let parts: &[(&'static str, usize)] = if fused {
                &[("self_attn.qkv_proj", q + 2 * kv)]
            } else {
                &[("self_attn.q_proj", q), ("self_attn.k_proj", kv), ("self_attn.v_proj", kv)]
            };
            let qkv = Linear { bias: qkv_bias, ..Linear::new(qkv, d, parts) };
            let out = Linear::new(out, q, &[("self_attn.o_proj", d)]);
            let [parts, down_parts]: [&[(&'static str, usize)]; 2] = if experts.is_some() {
                [&[], &[]]
            } else if fused {
                [&[("mlp.gate_up_proj", 2 * f)], &[("mlp.down_proj", d)]]
            } else {
                [&[("mlp.gate_proj", f), ("mlp.up_proj", f)], &[("mlp.down_proj", d)]]
            };
            let gate_up = Linear::new(gate_up, d, parts);
            let down = Linear::new(down, f, down_parts);
            blocks.push(BlockPlaces {
                norm1,
                qkv,
                head_norms,
                out,
                after1,
                norm2,
                gate_up,
                down,
                experts,
                after2,
            });
        }
        let norm = add("model.norm.weight".to_owned(), &[d]);
        let head = if shape.tied {
            embedding.clone()
        } else {
            add("lm_head.weight".to_owned(), &[shape.vocabulary, d])
        };
        Self { shape: shape.clone(), embedding, blocks, norm, head, len: end, tensors }
    }

    /// The numbers of tensors given by name, in this layout.
    pub fn fill<'a>(
        &self,
        tensors: impl Iterator<Item = (&'a str, Vec<f32>)>,
    ) -> Result<Vec<f32>, ModelError> {
        let mut given: BTreeMap<&str, Vec<f32>> = tensors.collect();
        let mut all = vec![0.0; self.len];
        for (name, place, dims) in &self.tensors {
            let numbers = given.remove(name.as_str()).ok_or_else(|| ModelError::Missing(name.clone()))?;
            if numbers.len() != place.len() {
                let (name, expected) = (name.clone(), dims.clone());
                return Err(ModelError::WrongShape { name, found: vec![numbers.len()], expected });
            }
            all[place.clone()].copy_from_slice(&numbers);
        }
        Ok(all)
    }

    /// Every tensor of numbers in this layout: name, shape, numbers.
    pub fn tensors<'a>(&'a self, all: &'a [f32]) -> impl Iterator<Item = (&'a str, &'a [usize], &'a [f32])> {
        self.tensors.iter().map(|(name, place, dims)| (name.as_str(), dims.as_slice(), &all[place.clone()]))
    }

    /// Width of a token's queries, keys and values together.
    pub fn qkv_width(&self) -> usize {
        (self.shape.heads + 2 * self.shape.kv_heads) * self.shape.head
    }
}
