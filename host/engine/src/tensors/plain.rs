//! Steps by candle's operations: the reference for `fused.rs`, and the sampler of devices without kernels.
//!
//! Each block has one cache of keys and values, allocated for the longest prompt and answer and
//! written in place. Rows have their own positions and masks. For each token, all logits are
//! copied to the host, which draws it.
//!
//! Shapes: R rows, a slot each, S cached tokens, K key and value heads, E head, V vocabulary.

use candle_core::{DType, Device, Result as Computed, Tensor};
use rayon::prelude::*;

use super::decode::{Active, Extent, Steps, kind, logits};
use crate::Stops;
use crate::model::operations::{Scores, attend, side_by_side};
use crate::model::{Checkpoint, Decoder, ModelError};

/// The caches, and the weights and stops of sampling.
pub struct Plain<'a> {
    weights: &'a Checkpoint,
    stops: &'a Stops,
    device: Device,
    /// Keys and values of each block, `[R, K, S, E]` each.
    blocks: Vec<(Tensor, Tensor)>,
}

impl<'a> Plain<'a> {
    /// Returns empty caches.
    pub fn new(weights: &'a Checkpoint, stops: &'a Stops, extent: Extent) -> Result<Self, ModelError> {
        let shape = &weights.shape;
        let (kind, device) = kind(weights)?;
        let dims = (extent.slots, shape.kv_heads, extent.whole, shape.head);
        let cache = || Tensor::zeros(dims, kind, &device);
        let blocks = (0..shape.layers).map(|_| Ok((cache()?, cache()?))).collect::<Computed<Vec<_>>>()?;
        Ok(Self { weights, stops, device, blocks })
    }
}

impl Steps for Plain<'_> {
    fn begin(&mut self, owners: &mut [Option<Active>], slots: &[usize]) -> Result<(), ModelError> {
        for slot in slots {
            let Some(row) = &mut owners[*slot] else { continue };
            for (i, cache) in self.blocks.iter().flat_map(|(keys, values)| [keys, values]).enumerate() {
                cache.narrow(0, *slot, 1)?.slice_set(&row.prefix.caches.narrow(0, i, 1)?, 2, 0)?;
            }
            let mut logits = row.prefix.logits.to_dtype(DType::F32)?.to_vec1()?;
            row.draft.cool(&mut logits);
            row.draft.take(&logits, self.stops);
        }
        Ok(())
    }

    /// Adds a token to every row. Free rows are computed too, and ignored.
    fn advance(&mut self, owners: &mut [Option<Active>]) -> Result<(), ModelError> {
        let decoder = Decoder::frozen(self.weights);
        let (shape, device) = (&self.weights.shape, &self.device);
        let count = owners.len();
        let newest: Vec<u32> = owners.iter().map(|r| r.as_ref().map_or(0, |r| r.draft.newest())).collect();
        // The position at which the newest token enters the cache.
        let place = |r: &Active| (r.prefix.tokens + r.draft.len() - 1) as u32;
        let places: Vec<u32> = owners.iter().map(|r| r.as_ref().map_or(0, place)).collect();
        let seen = 1 + places.iter().max().copied().unwrap_or(0);

        let tokens = Tensor::from_vec(newest, (count, 1), device)?;
        let places = Tensor::from_vec(places, (count, 1), device)?;
        let rope = decoder.rope(&places)?;
        let places = places.reshape((count, 1, 1, 1))?;
        // Each row's place for its key and value, `[R, K, 1, E]`, and its attention bias, `[R, 1, 1, S]`.
        let into = places.broadcast_as((count, shape.kv_heads, 1, shape.head))?.contiguous()?;
        let all = Tensor::arange(0, seen, device)?.reshape((1, 1, 1, seen as usize))?;
        let bias = (all.broadcast_gt(&places)?.to_dtype(DType::F32)? * -1e9)?;
        // The same for layers with a sliding window: tokens before the window are masked, too.
        let near = match shape.variant.window {
            Some(window) => {
                let past = (all + window as f64)?.broadcast_le(&places)?;
                (&bias + (past.to_dtype(DType::F32)? * -1e9)?)?
            }
            None => bias.clone(),
        };

        let (mut x, scores) = (decoder.embed(&tokens)?, Scores::of(shape));
        for (layer, (keys, values)) in self.blocks.iter().enumerate() {
            x = decoder.block(layer, &x, &rope, |q, k, v| {
                keys.scatter_set(&into, k, 2)?;
                values.scatter_set(&into, v, 2)?;
                let seen = |cache: &Tensor| cache.narrow(2, 0, seen as usize);
                let bias = if shape.window(layer).is_some() { &near } else { &bias };
                side_by_side(&attend(q, &seen(keys)?, &seen(values)?, bias, scores)?)
            })?;
        }
        let logits = logits(&decoder, &x.squeeze(1)?)?;
        let mut logits: Vec<f32> = logits.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
        let work = logits.par_chunks_exact_mut(shape.vocabulary).zip(owners.par_iter_mut());
        work.for_each(|(logits, owner)| {
            if let Some(row) = owner {
                row.draft.cool(logits);
                row.draft.take(logits, self.stops);
            }
        });
        Ok(())
    }

    fn shrink(&mut self, owners: &mut Vec<Option<Active>>) -> Result<(), ModelError> {
        let held: Vec<u32> = (0..owners.len()).filter(|i| owners[*i].is_some()).map(|i| i as u32).collect();
        if held.is_empty() || held.len() * 2 > owners.len() {
            return Ok(());
        }
        let held = Tensor::new(held, &self.device)?;
        for (keys, values) in &mut self.blocks {
            *keys = keys.index_select(&held, 0)?;
            *values = values.index_select(&held, 0)?;
        }
        owners.retain(Option::is_some);
        Ok(())
    }
}
