//! Attention in bf16, forward and backward: queries, keys, values, weights and gradients are rounded where a product begins, as
//! pairs of neighbours. Sums and the softmax are float32. The tiles are those of [`gemm`](super::gemm), by any
//! [`Unit`](super::unit::Unit).
//!
//! A token's sums have a fixed order: over a head's width for scores; for mixing over runs of a segment's tokens, in
//! blocks that begin where the segment does. Tokens that a query does not see have weight zero, and change no bit.

pub mod backward;
pub mod cache;
mod forward;
pub mod newest;
pub mod rows;
