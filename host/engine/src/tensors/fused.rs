//! Steps by this crate's kernels, on a [`Recorder`]. The device only waits for the host every
//! few tokens: the host reads the drawn tokens, gives slots of finished answers to others, and
//! writes the random numbers of the next tokens. Kernels skip answers that finish in between.
//! The draws do not depend on how often the host inspects them.
//!
//! A prompt's keys and values stay where they were read, and all of its answers attend to them
//! there. Each answer's own are in a slot of each block's cache. All steps have the same
//! launches with the same addresses, so that a machine can record them once and replay them.
//!
//! Shapes: R rows of the batch, a slot each; S tokens of the longest answer; D hidden, F
//! feed-forward, H query heads, K key and value heads, E head, V vocabulary.

mod launches;
mod workspace;

use std::sync::Arc;

use super::decode::{Active, Extent, Steps};
use super::machine::{DeviceBuffer, KernelConfig, Recorder};
use crate::Stops;
use crate::core::TokenStatistics;
use crate::model::{Checkpoint, Decoder, ModelError, Shape};
use workspace::{BlockBuffers, DRAWN, STATE, Workspace, bytes};

/// Tokens between two inspections. An inspection costs a wait of some hundred microseconds. A finished
/// answer is computed until the next inspection, which wastes half of these tokens on average.
pub const STRIDE: usize = 16;

/// State of the recording of a step.
enum Script<R> {
    /// None yet: the first step of a batch runs directly, so that libraries load what they need.
    Not,
    /// The next step is recorded.
    Next,
    /// Recorded.
    Written(R),
    /// The machine does not record.
    Never,
}

/// Steps on a machine.
pub struct Fused<'a, M: Recorder> {
    machine: &'a M,
    kind: KernelConfig,
    shape: &'a Shape,
    /// Kernels only know the stop tokens; a row that ends by a text runs on until the next inspection.
    stops: &'a Stops,
    extent: Extent,
    stride: usize,
    table: DeviceBuffer,
    blocks: Vec<BlockBuffers>,
    last_norm: DeviceBuffer,
    head: DeviceBuffer,
    frequencies: DeviceBuffer,
    workspace: Workspace,
    /// The slots of the batch's rows.
    batch: Vec<usize>,
    /// Addresses in [`Workspace::prompts`], and the buffers that keep them valid, for each slot.
    addresses: Vec<u64>,
    lent: Vec<Option<[DeviceBuffer; 2]>>,
    /// Slots for which a token was drawn from their prompt's logits since the last inspection.
    fresh: Vec<usize>,
    /// Whether the kernels' state is older than the host's.
    stale: bool,
    script: Script<M::Recording>,
}

impl<'a, M: Recorder> Fused<'a, M> {
    /// Returns empty caches on a machine with kernels for this kind of model. The host inspects
    /// every `stride` tokens.
    pub fn new(
        machine: &'a M,
        kind: KernelConfig,
        weights: &'a Checkpoint,
        stops: &'a Stops,
        extent: Extent,
        stride: usize,
    ) -> Result<Self, ModelError> {
        let (shape, slots) = (&weights.shape, extent.slots);
        let decoder = Decoder::frozen(weights);
        let block = |layer| BlockBuffers::new(machine, kind, &decoder, shape, layer, extent);
        let frequencies = shape.rope.frequencies(shape.head);
        let buffer = machine.buffer(4 * frequencies.len())?;
        machine.write(&buffer, &bytes(frequencies.iter().map(|f| f.to_le_bytes())))?;
        let mut steps = Self {
            table: machine.lend(&decoder.weight("model.embed_tokens.weight")?)?,
            last_norm: machine.lend(&decoder.weight("model.norm.weight")?)?,
            head: machine.lend(&decoder.head()?)?,
            frequencies: buffer,
            machine,
            kind,
            shape,
            stops,
            extent,
            stride,
            blocks: (0..shape.layers).map(block).collect::<Result<_, _>>()?,
            workspace: Workspace::new(machine, kind, shape, stops.tokens(), slots, stride + 1)?,
            batch: Vec::new(),
            addresses: vec![0; 2 * shape.layers * slots],
            lent: vec![None; slots],
            fresh: Vec::new(),
            stale: true,
            script: Script::Not,
        };
        steps.batch((0..slots).collect())?;
        Ok(steps)
    }

    /// Assigns these slots to the rows of the batch.
    fn batch(&mut self, slots: Vec<usize>) -> Result<(), ModelError> {
        let each = slots.iter().map(|slot| (*slot as u32).to_le_bytes());
        self.machine.write(&self.workspace.slots, &bytes(each))?;
        self.batch = slots;
        self.script = Script::Not;
        Ok(())
    }

    /// Writes the host's state to the kernels.
    fn tell(&mut self, owners: &[Option<Active>]) -> Result<(), ModelError> {
        let mut states = Vec::with_capacity(STATE * owners.len());
        let mut units = vec![0.0; (self.stride + 1) * owners.len()];
        for (owner, units) in owners.iter().zip(units.chunks_exact_mut(self.stride + 1)) {
            let free = [0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
            let state = owner.as_ref().map_or(free, |row| {
                let (draft, sampling) = (&row.draft, row.draft.sampling());
                draft.random(units);
                [
                    if draft.len() == 0 { 0 } else { draft.newest() },
                    0,
                    u32::from(draft.done()),
                    row.prefix.tokens as u32,
                    draft.len() as u32,
                    sampling.max_tokens.saturating_sub(draft.len() as u32),
                    sampling.temperature.to_bits(),
                    u32::try_from(sampling.top_k).unwrap_or(u32::MAX),
                    sampling.top_p.to_bits(),
                    0,
                ]
            });
            states.extend(state.iter().flat_map(|word| word.to_le_bytes()));
        }
        self.machine.write(&self.workspace.states, &states)?;
        self.machine.write(&self.workspace.units, &bytes(units.iter().map(|unit| unit.to_le_bytes())))?;
        self.stale = false;
        Ok(())
    }

    /// Reads the tokens drawn since the last inspection, in `steps` steps, into the drafts.
    fn look(&mut self, owners: &mut [Option<Active>], steps: usize) -> Result<(), ModelError> {
        let ring = self.stride + 1;
        let drawn = self.machine.read(&self.workspace.drawn, DRAWN * ring * owners.len())?;
        for (slot, (owner, drawn)) in owners.iter_mut().zip(drawn.chunks_exact(DRAWN * ring)).enumerate() {
            let Some(row) = owner else { continue };
            let count = steps + usize::from(self.fresh.contains(&slot));
            for one in drawn.chunks_exact(DRAWN).take(count) {
                if row.draft.done() {
                    break;
                }
                let word = |i: usize| u32::from_le_bytes([one[i], one[i + 1], one[i + 2], one[i + 3]]);
                let statistics =
                    TokenStatistics { log_prob: f32::from_bits(word(4)), entropy: f32::from_bits(word(8)) };
                row.draft.told(word(0), statistics, self.stops);
            }
        }
        self.fresh.clear();
        self.stale = true;
        Ok(())
    }

    /// Adds one token to every row of the batch.
    fn step(&mut self) -> Result<(), ModelError> {
        match &self.script {
            Script::Written(script) => return Ok(self.machine.replay(script)?),
            Script::Next if self.machine.record()? => {
                self.launches()?;
                let script = self.machine.recorded()?;
                self.machine.replay(&script)?;
                self.script = Script::Written(script);
                return Ok(());
            }
            Script::Not => self.script = Script::Next,
            Script::Next => self.script = Script::Never,
            Script::Never => {}
        }
        self.launches()
    }
}

impl<M: Recorder> Steps for Fused<'_, M> {
    fn begin(&mut self, owners: &mut [Option<Active>], slots: &[usize]) -> Result<(), ModelError> {
        if !self.fresh.is_empty() {
            self.look(owners, 0)?;
        }
        let mut sources: Vec<u64> = Vec::with_capacity(slots.len());
        let mut last: Option<(*const super::decode::Prefix, usize)> = None;
        for slot in slots {
            let Some(row) = &owners[*slot] else { continue };
            let prefix = Arc::as_ptr(&row.prefix);
            let buffers = match last {
                Some((known, slot)) if known == prefix => self.lent[slot].clone(),
                _ => {
                    let [caches, logits] = [&row.prefix.caches, &row.prefix.logits];
                    Some([self.machine.lend(caches)?, self.machine.lend(logits)?])
                }
            };
            let Some([caches, logits]) = &buffers else { continue };
            let cache = self.shape.kv_heads * row.prefix.tokens * self.shape.head * self.kind.size();
            let addresses = self.addresses.chunks_exact_mut(2 * self.shape.layers).nth(*slot);
            for (i, address) in addresses.into_iter().flatten().enumerate() {
                *address = caches.at + (i * cache) as u64;
            }
            sources.push(logits.at);
            self.lent[*slot] = buffers;
            last = Some((prefix, *slot));
        }
        self.machine
            .write(&self.workspace.prompts, &bytes(self.addresses.iter().map(|a| a.to_le_bytes())))?;
        self.machine.write(&self.workspace.fresh_sources, &bytes(sources.iter().map(|a| a.to_le_bytes())))?;
        let each = slots.iter().map(|slot| (*slot as u32).to_le_bytes());
        self.machine.write(&self.workspace.fresh_slots, &bytes(each))?;
        self.tell(owners)?;
        self.fresh = slots.to_vec();
        self.draw(slots.len(), (&self.workspace.fresh_sources).into(), (&self.workspace.fresh_slots).into())
    }

    fn advance(&mut self, owners: &mut [Option<Active>]) -> Result<(), ModelError> {
        if self.stale {
            self.tell(owners)?;
        }
        // Maximum number of tokens that any answer may still get.
        let left = |(slot, owner): (usize, &Option<Active>)| {
            let row = owner.as_ref().filter(|row| !row.draft.done())?;
            let had = row.draft.len() + usize::from(self.fresh.contains(&slot));
            Some((row.draft.sampling().max_tokens as usize).saturating_sub(had))
        };
        let steps = owners.iter().enumerate().filter_map(left).max().unwrap_or(0).min(self.stride);
        for _ in 0..steps {
            self.step()?;
        }
        self.look(owners, steps)
    }

    fn shrink(&mut self, owners: &mut Vec<Option<Active>>) -> Result<(), ModelError> {
        let held: Vec<usize> = (0..owners.len()).filter(|i| owners[*i].is_some()).collect();
        if !held.is_empty() && held.len() * 2 <= self.batch.len() {
            self.batch(held)?;
        }
        Ok(())
    }
}
