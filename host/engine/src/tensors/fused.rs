//! Steps by kernels of our own, on a [`Machine`]. Nothing waits for the host but a look every few tokens,
//! when it reads what was drawn, gives the slots of finished answers to others, and hands over the numbers of
//! chance for the tokens to come. An answer that comes to its end in between is passed over by the kernels.
//! What is drawn does not depend on how often is looked.
//!
//! A prompt's keys and values stay where they were read, and all of its answers attend to them there; an
//! answer's own lie in a cache for each block, a slot each. A step is the same launches with the same
//! addresses every time, so that a machine may write them down once and do them again.
//!
//! Shapes: R rows of the batch, a slot each; S tokens of the longest answer; D hidden, F feed-forward, H
//! query heads, K key and value heads, E head, V vocabulary.

use std::sync::Arc;

use candle_core::Tensor;

use super::decode::{Extent, Row, Steps};
use super::machine::{Arg, Kind, Launch, Machine, Product, Room};
use crate::core::Thought;
use crate::model::{Checkpoint, Decoder, Family, ModelError, Shape};

/// Tokens between two looks. A look costs a wait and some hundred microseconds; an answer that has come to
/// its end is computed along until the next, so that half of these tokens are wasted on it.
pub const STRIDE: usize = 16;

/// Bytes of what the kernels know of a slot, and of a token that was drawn: `Row` and `Drawn` in `number.cu`.
const STATE: usize = 40;
const DRAWN: usize = 16;

/// Most parts that a row's attention is cut into.
const SPLITS: usize = 16;

/// Tokens of the vocabulary that `draw` has a tile for, and the bytes of that.
const TILE: (usize, usize) = (256, 16);

/// The weights of a block. Query, key and value are one matrix, and so are gate and up.
struct Block {
    first_norm: Room,
    qkv: Room,
    bias: Option<Room>,
    q_norm: Option<Room>,
    k_norm: Option<Room>,
    out: Room,
    second_norm: Room,
    gate_up: Room,
    down: Room,
    /// Keys and values of the answers, `[slots, K, S, E]` each.
    keys: Room,
    values: Room,
}

/// What a step works with.
struct Desk {
    /// The residual stream, what a part of a block made, and what goes into the next: `[R, D]` each.
    stream: Room,
    part: Room,
    normed: Room,
    /// `[R, (H + 2 K) E]`.
    qkv: Room,
    /// `[R, H E]` each.
    queries: Room,
    mixed: Room,
    /// `[R, 2 F]` and `[R, F]`.
    both: Room,
    gated: Room,
    /// `[R, V]`.
    logits: Room,
    /// `[R, H, splits, E + 2]`, f32.
    parts: Room,
    /// Each row's slot, and where its logits are.
    slots: Room,
    sources: Room,
    /// The same of answers that are drawn from their prompts' logits.
    fresh_slots: Room,
    fresh_sources: Room,
    /// What the kernels know of each slot.
    states: Room,
    /// Numbers of chance, and what was drawn with them: `[slots, ring]`.
    units: Room,
    drawn: Room,
    /// Addresses of keys and values of each slot's prompt, `[slots, layers, 2]`.
    prompts: Room,
    stops: Room,
}

/// Whether the launches of a step are written down.
enum Script<R> {
    /// Not yet: the first step of a batch is done as it is, so that libraries have loaded what they need.
    Not,
    /// From the next one on.
    Next,
    /// Done.
    Written(R),
    /// The machine does not do that.
    Never,
}

/// Steps on a machine.
pub struct Fused<'a, M: Machine> {
    machine: &'a mut M,
    kind: Kind,
    shape: &'a Shape,
    stops: &'a [u32],
    extent: Extent,
    stride: usize,
    table: Room,
    blocks: Vec<Block>,
    last_norm: Room,
    head: Room,
    frequencies: Room,
    desk: Desk,
    /// The slots of the batch's rows.
    batch: Vec<usize>,
    /// Addresses in [`Desk::prompts`], and what keeps them valid for each slot.
    addresses: Vec<u64>,
    lent: Vec<Vec<Room>>,
    /// Slots that had a token drawn from their prompt since the look.
    fresh: Vec<usize>,
    /// Whether the kernels know less than the host.
    stale: bool,
    script: Script<M::Recording>,
}

impl<'a, M: Machine> Fused<'a, M> {
    /// Empty caches, on a machine whose kernels are compiled for this kind of model. It looks every `stride`
    /// tokens.
    pub fn new(
        machine: &'a mut M,
        kind: Kind,
        weights: &'a Checkpoint,
        stops: &'a [u32],
        extent: Extent,
        stride: usize,
    ) -> Result<Self, ModelError> {
        let (shape, slots, ring) = (&weights.shape, extent.slots, stride + 1);
        let decoder = Decoder::frozen(weights);
        let (q, kv) = (shape.heads * shape.head, shape.kv_heads * shape.head);
        let cache = slots * kv * extent.answer.max(1) * kind.size();

        let mut blocks = Vec::with_capacity(shape.layers);
        for layer in 0..shape.layers {
            let one = |part: &str| decoder.weight(&format!("model.layers.{layer}.{part}"));
            let joined = |parts: &[&str]| {
                let parts = parts.iter().map(|part| one(part)).collect::<Result<Vec<_>, _>>()?;
                Ok::<_, ModelError>(Tensor::cat(&parts, 0)?)
            };
            let qkv = ["q", "k", "v"].map(|part| format!("self_attn.{part}_proj"));
            let all = |kind: &str| {
                let names = qkv.clone().map(|part| format!("{part}.{kind}"));
                joined(&names.each_ref().map(String::as_str))
            };
            let mut lend = |tensor: Tensor| machine.lend(&tensor.contiguous()?);
            let normed = shape.family == Family::Qwen3;
            let head_norm = |part: &str| normed.then(|| one(&format!("self_attn.{part}_norm.weight")));
            blocks.push(Block {
                first_norm: lend(one("input_layernorm.weight")?)?,
                qkv: lend(all("weight")?)?,
                bias: shape.bias.then(|| all("bias")).transpose()?.map(&mut lend).transpose()?,
                q_norm: head_norm("q").transpose()?.map(&mut lend).transpose()?,
                k_norm: head_norm("k").transpose()?.map(&mut lend).transpose()?,
                out: lend(one("self_attn.o_proj.weight")?)?,
                second_norm: lend(one("post_attention_layernorm.weight")?)?,
                gate_up: lend(joined(&["mlp.gate_proj.weight", "mlp.up_proj.weight"])?)?,
                down: lend(one("mlp.down_proj.weight")?)?,
                keys: machine.room(cache)?,
                values: machine.room(cache)?,
            });
        }

        let splittable = slots.max(4 * machine.width() / (shape.kv_heads * chunks(&kind)) + 1);
        let mut numbers = |width: usize| machine.room(slots * width * kind.size());
        let desk = Desk {
            stream: numbers(shape.hidden)?,
            part: numbers(shape.hidden)?,
            normed: numbers(shape.hidden)?,
            qkv: numbers(q + 2 * kv)?,
            queries: numbers(q)?,
            mixed: numbers(q)?,
            both: numbers(2 * shape.intermediate)?,
            gated: numbers(shape.intermediate)?,
            logits: numbers(shape.vocabulary)?,
            parts: machine.room(4 * splittable * shape.heads * (shape.head + 2))?,
            slots: machine.room(4 * slots)?,
            sources: machine.room(8 * slots)?,
            fresh_slots: machine.room(4 * slots)?,
            fresh_sources: machine.room(8 * slots)?,
            states: machine.room(STATE * slots)?,
            units: machine.room(8 * ring * slots)?,
            drawn: machine.room(DRAWN * ring * slots)?,
            prompts: machine.room(16 * shape.layers * slots)?,
            stops: machine.room(4 * stops.len())?,
        };
        machine.write(&desk.stops, &bytes(stops.iter().map(|stop| stop.to_le_bytes())))?;
        let row = shape.vocabulary * kind.size();
        let sources = (0..slots).map(|i| (desk.logits.at + (i * row) as u64).to_le_bytes());
        machine.write(&desk.sources, &bytes(sources))?;

        let frequencies = shape.rope.frequencies(shape.head);
        let room = machine.room(4 * frequencies.len())?;
        machine.write(&room, &bytes(frequencies.iter().map(|f| f.to_le_bytes())))?;
        let mut steps = Self {
            table: machine.lend(&decoder.weight("model.embed_tokens.weight")?)?,
            last_norm: machine.lend(&decoder.weight("model.norm.weight")?)?,
            head: machine.lend(&decoder.head()?)?,
            frequencies: room,
            machine,
            kind,
            shape,
            stops,
            extent,
            stride,
            blocks,
            desk,
            batch: Vec::new(),
            addresses: vec![0; 2 * shape.layers * slots],
            lent: vec![Vec::new(); slots],
            fresh: Vec::new(),
            stale: true,
            script: Script::Not,
        };
        steps.batch((0..slots).collect())?;
        Ok(steps)
    }

    /// The rows of the batch work for these slots from now on.
    fn batch(&mut self, slots: Vec<usize>) -> Result<(), ModelError> {
        let each = slots.iter().map(|slot| (*slot as u32).to_le_bytes());
        self.machine.write(&self.desk.slots, &bytes(each))?;
        self.batch = slots;
        self.script = Script::Not;
        Ok(())
    }

    /// Tells the kernels what the host knows.
    fn tell(&mut self, owners: &[Option<Row>]) -> Result<(), ModelError> {
        let mut states = Vec::with_capacity(STATE * owners.len());
        let mut units = vec![0.0; (self.stride + 1) * owners.len()];
        for (owner, units) in owners.iter().zip(units.chunks_exact_mut(self.stride + 1)) {
            let nobody = [0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
            let state = owner.as_ref().map_or(nobody, |row| {
                let (draft, sampling) = (&row.draft, row.draft.sampling());
                draft.chance(units);
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
        self.machine.write(&self.desk.states, &states)?;
        self.machine.write(&self.desk.units, &bytes(units.iter().map(|unit| unit.to_le_bytes())))?;
        self.stale = false;
        Ok(())
    }

    /// Reads what was drawn since the last look, in so many steps, into the drafts.
    fn look(&mut self, owners: &mut [Option<Row>], steps: usize) -> Result<(), ModelError> {
        let ring = self.stride + 1;
        let drawn = self.machine.read(&self.desk.drawn, DRAWN * ring * owners.len())?;
        for (slot, (owner, drawn)) in owners.iter_mut().zip(drawn.chunks_exact(DRAWN * ring)).enumerate() {
            let Some(row) = owner else { continue };
            let count = steps + usize::from(self.fresh.contains(&slot));
            for one in drawn.chunks_exact(DRAWN).take(count) {
                if row.draft.done() {
                    break;
                }
                let word = |i: usize| u32::from_le_bytes([one[i], one[i + 1], one[i + 2], one[i + 3]]);
                let thought = Thought { log_prob: f32::from_bits(word(4)), entropy: f32::from_bits(word(8)) };
                row.draft.told(word(0), thought, self.stops);
            }
        }
        self.fresh.clear();
        self.stale = true;
        Ok(())
    }

    /// One more token for every row of the batch.
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

    fn launches(&mut self) -> Result<(), ModelError> {
        let (d, f) = (self.shape.hidden, self.shape.intermediate);
        let (q, kv) = (self.shape.heads * self.shape.head, self.shape.kv_heads * self.shape.head);
        let [table, head, last_norm] = [&self.table, &self.head, &self.last_norm].map(Room::clone);
        let a_row = d.div_ceil(8).next_multiple_of(32).min(256);
        let [stream, part, normed, slots, states] = {
            let desk = &self.desk;
            [&desk.stream, &desk.part, &desk.normed, &desk.slots, &desk.states].map(Arg::from)
        };
        let rows = self.batch.len();
        self.launch("embed", [rows, 1, 1], a_row, 0, &[(&table).into(), slots, states, stream, d.into()])?;
        let mut before = Arg::Address(0);
        for layer in 0..self.blocks.len() {
            self.norm(before, layer, a_row, |block| &block.first_norm)?;
            self.product(|block| &block.qkv, layer, |desk| (&desk.normed, &desk.qkv), (d, q + 2 * kv))?;
            self.attention(layer)?;
            self.product(|block| &block.out, layer, |desk| (&desk.mixed, &desk.part), (q, d))?;
            self.norm(part, layer, a_row, |block| &block.second_norm)?;
            self.product(|block| &block.gate_up, layer, |desk| (&desk.normed, &desk.both), (d, 2 * f))?;
            let blocks = [rows, f.div_ceil(8 * 128), 1];
            let args = [(&self.desk.both).into(), (&self.desk.gated).into(), f.into()];
            self.launch("swiglu", blocks, 128, 0, &args)?;
            self.product(|block| &block.down, layer, |desk| (&desk.gated, &desk.part), (f, d))?;
            before = part;
        }
        let args = [stream, before, (&last_norm).into(), normed, d.into(), self.shape.epsilon.into()];
        self.launch("rms_norm", [rows, 1, 1], a_row, 0, &args)?;
        let (x, y) = (self.desk.normed.at, self.desk.logits.at);
        let outer = self.shape.vocabulary;
        self.machine.product(Product { w: head.at, x, y, rows, inner: d, outer })?;
        self.draw(rows, Arg::from(&self.desk.sources), slots)
    }

    /// Biases, norms of heads, rotations; the cache; attention itself.
    fn attention(&mut self, layer: usize) -> Result<(), ModelError> {
        let (shape, desk, block, rows) = (self.shape, &self.desk, &self.blocks[layer], self.batch.len());
        let room = self.extent.answer.max(1);
        let [slots, states, keys, values] =
            [&desk.slots, &desk.states, &block.keys, &block.values].map(Arg::from);
        let [queries, mixed, parts] = [&desk.queries, &desk.mixed, &desk.parts].map(Arg::from);
        let turn = [
            (&desk.qkv).into(),
            block.bias.as_ref().into(),
            block.q_norm.as_ref().into(),
            block.k_norm.as_ref().into(),
            (&self.frequencies).into(),
            slots,
            states,
            queries,
            keys,
            values,
            room.into(),
            shape.epsilon.into(),
        ];
        let prompts = (&desk.prompts).into();
        let heads = shape.heads + 2 * shape.kv_heads;
        self.launch("turn", [rows, heads.div_ceil(4), 1], 128, 0, &turn)?;

        let groups = shape.kv_heads * chunks(&self.kind);
        let splits = (4 * self.machine.width() / (rows * groups)).clamp(1, SPLITS);
        let counts = [layer, shape.layers, room, splits].map(Arg::from);
        let attend = [queries, prompts, keys, values, slots, states, mixed, parts];
        self.launch("attend", [rows, groups, splits], 128, 0, &[&attend[..], &counts].concat())?;
        if splits > 1 {
            let threads = shape.head.next_multiple_of(32);
            let join = [parts, slots, states, mixed, splits.into()];
            self.launch("join", [rows, shape.heads, 1], threads, 0, &join)?;
        }
        Ok(())
    }

    /// The stream takes up a part and is normed by a block's weights.
    fn norm(
        &mut self,
        part: Arg,
        layer: usize,
        threads: usize,
        weight: impl Fn(&Block) -> &Room,
    ) -> Result<(), ModelError> {
        let (desk, weight) = (&self.desk, weight(&self.blocks[layer]));
        let (width, epsilon) = (self.shape.hidden.into(), self.shape.epsilon.into());
        let args = [(&desk.stream).into(), part, weight.into(), (&desk.normed).into(), width, epsilon];
        self.launch("rms_norm", [self.batch.len(), 1, 1], threads, 0, &args)
    }

    /// A product with a block's matrix.
    fn product(
        &mut self,
        weight: impl Fn(&Block) -> &Room,
        layer: usize,
        rooms: impl Fn(&Desk) -> (&Room, &Room),
        (inner, outer): (usize, usize),
    ) -> Result<(), ModelError> {
        let (w, (x, y)) = (weight(&self.blocks[layer]).at, rooms(&self.desk));
        let product = Product { w, x: x.at, y: y.at, rows: self.batch.len(), inner, outer };
        Ok(self.machine.product(product)?)
    }

    /// Draws a token for each of these rows, from the logits at these addresses.
    fn draw(&mut self, rows: usize, sources: Arg, slots: Arg) -> Result<(), ModelError> {
        let (desk, v) = (&self.desk, self.shape.vocabulary);
        let args = [
            sources,
            slots,
            (&desk.states).into(),
            (&desk.units).into(),
            (&desk.drawn).into(),
            (&desk.stops).into(),
            self.stops.len().into(),
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

impl<M: Machine> Steps for Fused<'_, M> {
    fn begin(&mut self, owners: &mut [Option<Row>], slots: &[usize]) -> Result<(), ModelError> {
        if !self.fresh.is_empty() {
            self.look(owners, 0)?;
        }
        let mut sources: Vec<u64> = Vec::with_capacity(slots.len());
        let mut last: Option<(*const super::decode::Prefix, usize)> = None;
        for slot in slots {
            let Some(row) = &owners[*slot] else { continue };
            let prefix = Arc::as_ptr(&row.prefix);
            let rooms = match last {
                Some((known, slot)) if known == prefix => self.lent[slot].clone(),
                _ => {
                    let tensors = row.prefix.blocks.iter().flat_map(|(keys, values)| [keys, values]);
                    let tensors = tensors.chain([&row.prefix.logits]);
                    tensors.map(|tensor| self.machine.lend(tensor)).collect::<Result<Vec<_>, _>>()?
                }
            };
            let (logits, blocks) = rooms.split_last().map_or((0, &[][..]), |(l, blocks)| (l.at, blocks));
            let addresses = self.addresses.chunks_exact_mut(2 * self.shape.layers).nth(*slot);
            for (address, room) in addresses.into_iter().flatten().zip(blocks) {
                *address = room.at;
            }
            sources.push(logits);
            self.lent[*slot] = rooms;
            last = Some((prefix, *slot));
        }
        self.machine.write(&self.desk.prompts, &bytes(self.addresses.iter().map(|a| a.to_le_bytes())))?;
        self.machine.write(&self.desk.fresh_sources, &bytes(sources.iter().map(|a| a.to_le_bytes())))?;
        let each = slots.iter().map(|slot| (*slot as u32).to_le_bytes());
        self.machine.write(&self.desk.fresh_slots, &bytes(each))?;
        self.tell(owners)?;
        self.fresh = slots.to_vec();
        self.draw(slots.len(), (&self.desk.fresh_sources).into(), (&self.desk.fresh_slots).into())
    }

    fn advance(&mut self, owners: &mut [Option<Row>]) -> Result<(), ModelError> {
        if self.stale {
            self.tell(owners)?;
        }
        // Tokens that the longest answer may still have.
        let left = |(slot, owner): (usize, &Option<Row>)| {
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

    fn shrink(&mut self, owners: &mut Vec<Option<Row>>) -> Result<(), ModelError> {
        let held: Vec<usize> = (0..owners.len()).filter(|i| owners[*i].is_some()).collect();
        if !held.is_empty() && held.len() * 2 <= self.batch.len() {
            self.batch(held)?;
        }
        Ok(())
    }
}

/// Blocks of `attend` for one head of keys and values.
fn chunks(kind: &Kind) -> usize {
    kind.heads / kind.kv_heads / kind.share()
}

/// Numbers as bytes.
fn bytes<const N: usize>(numbers: impl Iterator<Item = [u8; N]>) -> Vec<u8> {
    numbers.flatten().collect()
}
