//! The launches of a step: the same for every step, with the same addresses.

use super::Fused;
use super::workspace::{BlockBuffers, Workspace, chunks};
use crate::model::ModelError;
use crate::tensors::kernels::threads;
use crate::tensors::machine::{Arg, DeviceBuffer, Launch, Product, Recorder};

/// Maximum number of parts of a row's attention.
const SPLITS: usize = 16;

/// Tokens of the vocabulary per tile of `draw`, and bytes per tile.
const TILE: (usize, usize) = (256, 16);

impl<M: Recorder> Fused<'_, M> {
    pub(super) fn launches(&mut self) -> Result<(), ModelError> {
        let (d, f) = (self.shape.hidden, self.shape.intermediate);
        let (q, kv) = (self.shape.heads * self.shape.head, self.shape.kv_heads * self.shape.head);
        let [table, head, last_norm] = [&self.table, &self.head, &self.last_norm].map(DeviceBuffer::clone);
        let a_row = threads(d);
        let [stream, part, normed, slots, states] = {
            let workspace = &self.workspace;
            [&workspace.stream, &workspace.part, &workspace.normed, &workspace.slots, &workspace.states]
                .map(Arg::from)
        };
        let rows = self.batch.len();
        self.launch("embed", [rows, 1, 1], a_row, 0, &[(&table).into(), slots, states, stream, d.into()])?;
        let mut before = Arg::Address(0);
        for layer in 0..self.blocks.len() {
            self.norm(before, layer, a_row, |block| &block.first_norm)?;
            self.product(
                |block| &block.qkv,
                layer,
                |workspace| (&workspace.normed, &workspace.qkv),
                (d, q + 2 * kv),
            )?;
            self.attention(layer)?;
            self.product(|block| &block.out, layer, |workspace| (&workspace.mixed, &workspace.part), (q, d))?;
            self.norm(part, layer, a_row, |block| &block.second_norm)?;
            self.product(
                |block| &block.gate_up,
                layer,
                |workspace| (&workspace.normed, &workspace.both),
                (d, 2 * f),
            )?;
            let blocks = [rows, f.div_ceil(8 * 128), 1];
            let up = Arg::Address(self.workspace.both.at + (f * self.kind.size()) as u64);
            let args =
                [(&self.workspace.both).into(), up, (&self.workspace.gated).into(), f.into(), (2 * f).into()];
            self.launch("swiglu", blocks, 128, 0, &args)?;
            self.product(
                |block| &block.down,
                layer,
                |workspace| (&workspace.gated, &workspace.part),
                (f, d),
            )?;
            before = part;
        }
        let args = [stream, before, stream, (&last_norm).into(), normed, d.into(), self.shape.epsilon.into()];
        self.launch("rms_norm", [rows, 1, 1], a_row, 0, &args)?;
        let (x, y) = (self.workspace.normed.at, self.workspace.logits.at);
        let outer = self.shape.vocabulary;
        self.machine.product(Product { w: head.at, x, y, rows, inner: d, outer })?;
        self.draw(rows, Arg::from(&self.workspace.sources), slots)
    }

    /// Launches biases, norms of heads, rope, the cache and attention.
    fn attention(&mut self, layer: usize) -> Result<(), ModelError> {
        let (shape, workspace, block, rows) =
            (self.shape, &self.workspace, &self.blocks[layer], self.batch.len());
        let buffer = self.extent.answer.max(1);
        let [slots, states, keys, values] =
            [&workspace.slots, &workspace.states, &block.keys, &block.values].map(Arg::from);
        let [queries, mixed, parts] = [&workspace.queries, &workspace.mixed, &workspace.parts].map(Arg::from);
        let turn = [
            (&workspace.qkv).into(),
            block.bias.as_ref().into(),
            block.q_norm.as_ref().into(),
            block.k_norm.as_ref().into(),
            (&self.frequencies).into(),
            slots,
            states,
            queries,
            keys,
            values,
            buffer.into(),
            shape.epsilon.into(),
        ];
        let prompts = (&workspace.prompts).into();
        let heads = shape.heads + 2 * shape.kv_heads;
        self.launch("rope_qkv", [rows, heads.div_ceil(4), 1], 128, 0, &turn)?;

        let groups = shape.kv_heads * chunks(&self.kind);
        let splits = (4 * self.machine.width() / (rows * groups)).clamp(1, SPLITS);
        let counts = [layer, shape.layers, buffer, splits].map(Arg::from);
        let attend = [queries, prompts, keys, values, slots, states, mixed, parts];
        self.launch("attend", [rows, groups, splits], 128, 0, &[&attend[..], &counts].concat())?;
        if splits > 1 {
            let threads = shape.head.next_multiple_of(32);
            let join = [parts, slots, states, mixed, splits.into()];
            self.launch("join", [rows, shape.heads, 1], threads, 0, &join)?;
        }
        Ok(())
    }

    /// Adds a part to the stream and norms the stream by a block's weights.
    fn norm(
        &mut self,
        part: Arg,
        layer: usize,
        threads: usize,
        weight: impl Fn(&BlockBuffers) -> &DeviceBuffer,
    ) -> Result<(), ModelError> {
        let (workspace, weight) = (&self.workspace, weight(&self.blocks[layer]));
        let (width, epsilon) = (self.shape.hidden.into(), self.shape.epsilon.into());
        let stream = (&workspace.stream).into();
        let args = [stream, part, stream, weight.into(), (&workspace.normed).into(), width, epsilon];
        self.launch("rms_norm", [self.batch.len(), 1, 1], threads, 0, &args)
    }

    /// Multiplies with a block's matrix.
    fn product(
        &mut self,
        weight: impl Fn(&BlockBuffers) -> &DeviceBuffer,
        layer: usize,
        buffers: impl Fn(&Workspace) -> (&DeviceBuffer, &DeviceBuffer),
        (inner, outer): (usize, usize),
    ) -> Result<(), ModelError> {
        let (w, (x, y)) = (weight(&self.blocks[layer]).at, buffers(&self.workspace));
        let product = Product { w, x: x.at, y: y.at, rows: self.batch.len(), inner, outer };
        Ok(self.machine.product(product)?)
    }

    /// Draws a token for each of these rows, from the logits at these addresses.
    pub(super) fn draw(&mut self, rows: usize, sources: Arg, slots: Arg) -> Result<(), ModelError> {
        let (workspace, v) = (&self.workspace, self.shape.vocabulary);
        let args = [
            sources,
            slots,
            (&workspace.states).into(),
            (&workspace.units).into(),
            (&workspace.drawn).into(),
            (&workspace.stops).into(),
            self.stops.tokens().len().into(),
            v.into(),
            (self.stride + 1).into(),
        ];
        let threads = v.div_ceil(8).next_multiple_of(32).min(1024);
        self.launch("draw", [rows, 1, 1], threads, v.div_ceil(TILE.0) * TILE.1, &args)
    }

    fn launch(
        &mut self,
        kernel: &'static str,
        blocks: [usize; 3],
        threads: usize,
        shared: usize,
        args: &[Arg],
    ) -> Result<(), ModelError> {
        Ok(self.machine.launch(Launch { kernel, blocks, threads, shared, args })?)
    }
}
