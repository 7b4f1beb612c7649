//! What the backward pass of a head reads.

use std::ops::Range;

use super::attention::{Cache, Heads, Span};
use super::kernels::wide;

/// The results of attention's forward pass, and the gradient of its output.
#[derive(Clone, Copy, Debug)]
pub struct Mixed<'a> {
    /// Mixed values, `[N, Q]`.
    pub values: &'a [f32],
    /// Logarithms of the sums of weights, `[N, H]`.
    pub log_sums: &'a [f32],
    /// Gradient of the mixed values, `[N, Q]`.
    pub gradient: &'a [f32],
}

/// A segment's keys and values, in the layouts of products.
#[derive(Clone, Debug, Default)]
pub struct SegmentLayout {
    pub key_columns: Vec<f32>,
    pub value_columns: Vec<f32>,
    pub key_lines: Vec<f32>,
}

impl SegmentLayout {
    /// Copies the keys and values of these rows.
    pub fn lay(&mut self, heads: Heads, rows: &[f32], which: &Range<usize>) {
        let cache = Cache::new(heads, which.len());
        self.key_columns.resize(cache.columns(), 0.0);
        self.value_columns.resize(cache.columns(), 0.0);
        self.key_lines.resize(cache.lines(), 0.0);
        let [keys, values] = heads.past();
        wide(
            #[inline(always)]
            || {
                let rows = rows[which.start * heads.row()..which.end * heads.row()].chunks_exact(heads.row());
                for (token, row) in rows.enumerate() {
                    cache.put_column(token, &row[keys.clone()], &mut self.key_columns);
                    cache.put_column(token, &row[values.clone()], &mut self.value_columns);
                    cache.put_line(token, &row[keys.clone()], &mut self.key_lines);
                }
            },
        );
    }
}

/// A head of a span.
pub struct HeadPass<'a> {
    pub heads: Heads,
    pub rows: &'a [f32],
    pub mixed: Mixed<'a>,
    pub span: &'a Span,
    pub prompt: &'a SegmentLayout,
    pub own: &'a SegmentLayout,
    pub head: usize,
}
