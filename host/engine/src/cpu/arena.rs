//! The place of each tensor of a model in one list of float32 numbers.
//!
//! Weights, gradients and both optimizer moments share this layout. Tensors multiplied with the same
//! input are adjacent, so that one matrix product serves them: query, key and value; gate and up.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::model::{Experts, ModelError, Shape};

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
    /// The head, `[V, D]`; the embedding itself if they are tied.
    pub head: Range<usize>,
    /// Number of parameters.
    pub len: usize,
    /// Every tensor by its name in a checkpoint, with its shape.
    tensors: Vec<(String, Range<usize>, Vec<usize>)>,
}

/// The places of a block's tensors.
#[derive(Clone, Debug)]
pub struct BlockPlaces {
    /// Norm before attention, `[D]`, if there is one.
    pub norm1: Option<Range<usize>>,
    /// Its matrices, in the order of [`BlockMatrix`].
    pub matrices: [Linear; 4],
    /// Norms of queries and keys, if there are any.
    pub head_norms: Option<HeadNormPlaces>,
    /// Norm of attention's output before it is added to the stream, `[D]`, if there is one.
    pub after1: Option<Range<usize>>,
    /// Norm before the feed-forward part, `[D]`, if there is one.
    pub norm2: Option<Range<usize>>,
    /// Experts, if there are any.
    pub experts: Option<ExpertPlaces>,
    /// Norm of the feed-forward output before it is added to the stream, `[D]`, if there is one.
    pub after2: Option<Range<usize>>,
}

/// The places of the norms of queries and keys: `[E]` per head, or `[Q]` and `[KV]` over all heads.
#[derive(Clone, Debug)]
pub struct HeadNormPlaces {
    /// The queries' norm.
    pub query: Range<usize>,
    /// The keys' norm.
    pub key: Range<usize>,
}

impl BlockPlaces {
    /// Returns the place of a matrix.
    pub fn matrix(&self, matrix: BlockMatrix) -> &Linear {
        &self.matrices[matrix as usize]
    }
}

/// A matrix of a block. With experts, the last two have no rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockMatrix {
    /// Query, key and value, `[Q + 2 KV, D]`.
    Qkv = 0,
    /// Output of attention, `[D, Q]`.
    Out = 1,
    /// Gate and up, `[2 F, D]`.
    GateUp = 2,
    /// Down, `[D, F]`.
    Down = 3,
}

/// The places of a mixture of experts.
#[derive(Clone, Debug)]
pub struct ExpertPlaces {
    /// The router, `[experts, D]`.
    pub router: Range<usize>,
    /// For each expert: gate and up, `[2 F, D]`, and down, `[D, F]`.
    pub each: Vec<[Range<usize>; 2]>,
}

/// The places of a matrix `[rows, cols]`, of its bias, and of the projections that it consists of.
#[derive(Clone, Debug)]
pub struct Linear {
    /// Size of the output.
    pub rows: usize,
    /// Size of the input.
    pub cols: usize,
    /// The weight.
    pub weight: Range<usize>,
    /// The bias.
    pub bias: Option<Range<usize>>,
    /// Names and rows of its projections.
    pub parts: Vec<(&'static str, Range<usize>)>,
}

impl Arena {
    /// Returns the layout of a model with this shape.
    pub fn new(shape: &Shape) -> Self {
        let mut layout = Layout::default();
        let embedding = layout.add("model.embed_tokens.weight".to_owned(), &[shape.vocabulary, shape.hidden]);
        let blocks = (0..shape.layers).map(|layer| layout.block(shape, layer)).collect();
        let norm = layout.add("model.norm.weight".to_owned(), &[shape.hidden]);
        let head = if shape.tied {
            embedding.clone()
        } else {
            layout.add("lm_head.weight".to_owned(), &[shape.vocabulary, shape.hidden])
        };
        let Layout { end: len, tensors } = layout;
        Self { shape: shape.clone(), embedding, blocks, norm, head, len, tensors }
    }

    /// Returns the numbers of tensors given by name, in this layout.
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

    /// Returns name, shape and numbers of every tensor in `all`.
    pub fn tensors<'a>(&'a self, all: &'a [f32]) -> impl Iterator<Item = (&'a str, &'a [usize], &'a [f32])> {
        self.tensors.iter().map(|(name, place, dims)| (name.as_str(), dims.as_slice(), &all[place.clone()]))
    }

    /// Returns the width of a token's queries, keys and values together.
    pub fn qkv_width(&self) -> usize {
        (self.shape.heads + 2 * self.shape.kv_heads) * self.shape.head
    }
}

/// Places tensors one after the other.
#[derive(Default)]
struct Layout {
    end: usize,
    tensors: Vec<(String, Range<usize>, Vec<usize>)>,
}

impl Layout {
    fn add(&mut self, name: String, dims: &[usize]) -> Range<usize> {
        let place = self.end..self.end + dims.iter().product::<usize>();
        self.end = place.end;
        self.tensors.push((name, place.clone(), dims.to_vec()));
        place
    }

    fn block(&mut self, shape: &Shape, layer: usize) -> BlockPlaces {
        let (d, f, fused) = (shape.hidden, shape.intermediate, shape.family.fused);
        let (q, kv) = (shape.heads * shape.head, shape.kv_heads * shape.head);
        let [attention, feed_forward] = shape.family.norms;
        let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
        let norm1 = attention.before.map(|n| self.add(name(n), &[d]));
        let mut qkv = if fused {
            self.matrix(layer, d, &[("self_attn.qkv_proj", q + 2 * kv)])
        } else {
            self.matrix(
                layer,
                d,
                &[("self_attn.q_proj", q), ("self_attn.k_proj", kv), ("self_attn.v_proj", kv)],
            )
        };
        qkv.bias = shape.family.bias.then(|| {
            let start = self.end;
            for (part, rows) in &qkv.parts {
                self.add(format!("model.layers.{layer}.{part}.bias"), &[rows.len()]);
            }
            start..self.end
        });
        let head_norms = shape.head_norms().map(|[query, key]| HeadNormPlaces {
            query: self.add(name("self_attn.q_norm"), &[query]),
            key: self.add(name("self_attn.k_norm"), &[key]),
        });
        let out = self.matrix(layer, q, &[("self_attn.o_proj", d)]);
        let after1 = attention.after.map(|n| self.add(name(n), &[d]));
        let norm2 = feed_forward.before.map(|n| self.add(name(n), &[d]));
        let experts = shape.variant.experts.map(|experts| self.experts(layer, d, experts));
        let (gate_up, down): (&[_], &[_]) = match (&experts, fused) {
            (Some(_), _) => (&[], &[]),
            (None, true) => (&[("mlp.gate_up_proj", 2 * f)], &[("mlp.down_proj", d)]),
            (None, false) => (&[("mlp.gate_proj", f), ("mlp.up_proj", f)], &[("mlp.down_proj", d)]),
        };
        let matrices = [qkv, out, self.matrix(layer, d, gate_up), self.matrix(layer, f, down)];
        let after2 = feed_forward.after.map(|n| self.add(name(n), &[d]));
        BlockPlaces { norm1, matrices, head_norms, after1, norm2, experts, after2 }
    }

    /// Places a matrix that consists of these projections, given by name and rows.
    fn matrix(&mut self, layer: usize, cols: usize, parts: &[(&'static str, usize)]) -> Linear {
        let (start, mut rows) = (self.end, 0);
        let part = |&(name, n): &(&'static str, usize)| {
            self.add(format!("model.layers.{layer}.{name}.weight"), &[n, cols]);
            rows += n;
            (name, rows - n..rows)
        };
        let parts = parts.iter().map(part).collect();
        Linear { rows, cols, weight: start..self.end, bias: None, parts }
    }

    fn experts(&mut self, layer: usize, d: usize, experts: Experts) -> ExpertPlaces {
        let (f, name) =
            (experts.intermediate, |part: &str| format!("model.layers.{layer}.mlp.{part}.weight"));
        let router = self.add(name("gate"), &[experts.count, d]);
        let mut one = |expert: usize| {
            let part = |p: &str| name(&format!("experts.{expert}.{p}_proj"));
            let gate = self.add(part("gate"), &[f, d]);
            [gate.start..self.add(part("up"), &[f, d]).end, self.add(part("down"), &[d, f])]
        };
        ExpertPlaces { router, each: (0..experts.count).map(&mut one).collect() }
    }
}
