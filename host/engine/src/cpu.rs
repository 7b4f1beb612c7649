//! The model on the CPU: sampling, scoring and learning with this crate's own loops and matrix
//! products. It uses fewer and larger operations than candle's autograd and reuses its buffers.
//! Tests compare it with [`crate::model::Decoder`].

mod adamw;
mod amx;
pub(crate) mod arena;
mod arithmetic;
mod attention;
mod attention_back;
mod attention_one;
mod attention_rows;
#[cfg(test)]
mod attention_tests;
mod avx512_bf16;
mod bf16;
mod block;
mod decode;
mod element;
mod experts;
mod gemm;
mod half;
pub(crate) mod head;
mod head_pass;
mod instruction;
pub(crate) mod kernels;
mod limits;
mod lora;
mod memory;
mod newest;
mod packed;
mod paired;
mod panels;
mod parked;
mod pass;
mod reading;
mod saved;
mod softmax;
mod supply;
mod team;
mod tile;
mod unit;
mod weights;

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, mpsc};

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::model::{By, Checkpoint, ModelError, Precision};
use crate::{Interrupt, Stops};

pub use arena::Arena;
pub use instruction::Instruction;
pub use limits::MachineLimits;
pub use lora::{Adapters, LoraConfig};
pub use memory::{Memory, Sampled};
pub(crate) use saved::{read_adapters, read_moments, write_adapters, write_moments};

use crate::core::{Answered, Core, Loss, PassOptions, Request, Sequence, TokenStatistics, Training};
use crate::optimizer::{Moments, OptimizerConfig};
use crate::talk::{Event, Next, Talk};
use arithmetic::Arithmetic;
use block::RopeTable;
use decode::{Decode, Tell};
use packed::PackedWeights;
use pass::{Pass, PassContext};
use supply::{Closing, Supply, Turns};
use weights::{Gradients, Weights};

/// Limit in bytes of the gradients of all threads together; beyond it, threads share gradients.
const GRADIENTS: usize = 2 << 30;

/// Maximum number of open episodes for each row. One that waits for its environment has no row.
pub const OPEN: usize = 2;

/// A model on the CPU, with its training state.
pub struct Cpu {
    arena: Arena,
    arithmetic: Arithmetic,
    base: Vec<f32>,
    adapters: Option<(Adapters, Vec<f32>)>,
    /// The initial weights, for a KL penalty. Adapters need no copy.
    reference: Option<Vec<f32>>,
    rope: RopeTable,
    /// The weights packed for products, until they change.
    laid: OnceLock<PackedWeights>,
    /// Buffers for the next packed weights.
    spare: Mutex<Option<PackedWeights>>,
    moments: Moments,
    /// Gradients, one list for each slice of a batch.
    gradients: Vec<Vec<f32>>,
    passes: Vec<Pass>,
    pool: ThreadPool,
    threads: usize,
}

/// Settings of a model.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Number format of products.
    pub precision: Precision,
    /// Threads.
    pub threads: usize,
    /// Longest sequence, prompt and answer together, in tokens.
    pub longest: usize,
    /// Adapters to train instead of all weights.
    pub lora: Option<LoraConfig>,
    /// Whether the initial weights are kept as a reference.
    pub reference: bool,
    /// The run's seed, for fresh adapters.
    pub seed: u64,
}

impl Cpu {
    /// Returns a model with these weights.
    pub fn new(checkpoint: &Checkpoint, setup: Setup) -> Result<Self, ModelError> {
        let arena = Arena::new(&checkpoint.shape);
        let numbers = |t: &candle_core::Tensor| t.flatten_all()?.to_vec1::<f32>();
        let mut tensors = Vec::with_capacity(checkpoint.weights.len());
        for (name, var) in &checkpoint.weights {
            tensors.push((name.as_str(), numbers(var.as_tensor())?));
        }
        let base = arena.fill(tensors.into_iter())?;
        Self::of(arena, base, setup)
    }

    /// Returns a model with these weights, in the arena's layout.
    pub fn of(arena: Arena, base: Vec<f32>, setup: Setup) -> Result<Self, ModelError> {
        arena.shape.fits(setup.longest, By::Cpu)?;
        let adapters = setup.lora.map(|config| {
            let adapters = Adapters::new(&arena, config);
            let fresh = adapters.fresh(setup.seed);
            (adapters, fresh)
        });
        let reference = (setup.reference && adapters.is_none()).then(|| base.clone());
        let pool = pool(setup.threads)?;
        Ok(Self {
            rope: RopeTable::new(&arena, setup.longest),
            arithmetic: Arithmetic::of(setup.precision),
            arena,
            base,
            adapters,
            reference,
            laid: OnceLock::new(),
            spare: Mutex::default(),
            moments: Moments::default(),
            gradients: Vec::new(),
            passes: Vec::new(),
            pool,
            threads: setup.threads,
        })
    }

    /// Computes products in bf16 by another instruction of this machine, or by none.
    pub fn by(self, instruction: Option<Instruction>) -> Self {
        Self { arithmetic: self.arithmetic.by(instruction), laid: OnceLock::new(), ..self }
    }

    /// The trained parameters.
    pub fn trained(&self) -> &[f32] {
        self.adapters.as_ref().map_or(&self.base, |(_, numbers)| numbers)
    }

    /// Restores the trained parameters and the optimizer's moments.
    fn restore(&mut self, trained: Vec<f32>, moments: Moments) {
        self.outdated();
        match &mut self.adapters {
            Some((_, numbers)) => *numbers = trained,
            None => self.base = trained,
        }
        self.moments = moments;
    }

    /// The adapters' layout, if adapters are trained.
    pub fn adapters(&self) -> Option<&Adapters> {
        self.adapters.as_ref().map(|(adapters, _)| adapters)
    }

    /// All weights to export, with any adapters merged.
    pub fn merged(&self) -> Cow<'_, [f32]> {
        match &self.adapters {
            None => Cow::Borrowed(&self.base),
            Some((adapters, numbers)) => {
                let mut base = self.base.clone();
                adapters.merge(numbers, &self.arena, &mut base);
                Cow::Owned(base)
            }
        }
    }

    fn view(&self) -> Weights<'_> {
        let adapters = self.adapters.as_ref().map(|(a, n)| (a, n.as_slice()));
        Weights { arena: &self.arena, base: &self.base, adapters, laid: None, arithmetic: self.arithmetic }
    }

    /// Returns the weights packed for products, packing them if they have changed.
    fn packed(&self) -> &PackedWeights {
        self.laid.get_or_init(|| {
            let spare = self.spare.lock().ok().and_then(|mut spare| spare.take());
            self.view().pack(spare)
        })
    }

    /// Returns the context of `passes` at the same time on the pool's threads, with the current weights or the
    /// reference. The reference is used too rarely to be packed.
    fn how(
        &self,
        PassOptions { temperature, recompute }: PassOptions,
        reference: bool,
        passes: usize,
    ) -> PassContext<'_> {
        let weights = if reference {
            let base = self.reference.as_deref().unwrap_or(&self.base);
            Weights { base, adapters: None, ..self.view() }
        } else {
            Weights { laid: Some(self.packed()), ..self.view() }
        };
        // Long sequences may be fewer than threads: these share the work of each.
        let threads = (self.threads / passes.max(1)).max(1);
        PassContext { weights, rope: &self.rope, temperature, recompute, threads }
    }

    /// Samples on the model's threads, which call `tell`.
    fn decode(
        &self,
        supply: &Supply<'_>,
        (stops, rows): (&Stops, usize),
        tell: Tell<'_>,
        interrupt: &Interrupt,
    ) {
        let laid = self.packed();
        let (weights, rope, threads) =
            (Weights { laid: Some(laid), ..self.view() }, &self.rope, self.threads);
        Decode { weights, laid, rope, stops, rows, threads, tell, interrupt }.run(supply);
    }

    /// Drops the packed weights, which are about to change.
    fn outdated(&mut self) {
        if let (Some(laid), Ok(spare)) = (self.laid.take(), self.spare.get_mut()) {
            *spare = Some(laid);
        }
    }

    /// Number of slices of a batch: one per thread, as long as their gradients fit.
    fn slices(&self) -> usize {
        self.threads.min(GRADIENTS / (4 * self.trained().len()).max(1)).max(1)
    }
}

impl Core for Cpu {
    fn arena(&self) -> &Arena {
        &self.arena
    }

    fn adapted(&self) -> bool {
        self.adapters.is_some()
    }

    /// Runs on the model's threads. The calling thread hands over answers meanwhile.
    fn sample(
        &self,
        requests: &[Request<'_>],
        stops: &Stops,
        rows: usize,
        whole: &mut dyn FnMut(usize, Answered),
        interrupt: &Interrupt,
    ) -> Result<(), ModelError> {
        let (tell, told) = mpsc::channel();
        let supply = &Supply::of(requests);
        self.pool.in_place_scope(|scope| {
            scope.spawn(move |_| {
                // The receiver is gone only if it panicked.
                let tell = |whole| drop(tell.send(whole));
                self.decode(supply, (stops, rows), &tell, interrupt);
            });
            for (number, answer) in told.into_iter().flatten() {
                whole(number, answer);
            }
        });
        Ok(())
    }

    /// Keeps the keys and values of each episode, also while it waits for its environment.
    fn converse(
        &self,
        prompts: &[&[u32]],
        stops: &Stops,
        rows: usize,
        room: usize,
        talk: &mut Talk<'_>,
        interrupt: &Interrupt,
    ) -> Result<(), ModelError> {
        if prompts.is_empty() {
            return Ok(());
        }
        let turns = Arc::new(Turns::new(prompts, room, OPEN * rows.max(1)));
        let (supply, events) = (Supply::Episodes(Arc::clone(&turns)), talk.sender());
        self.pool.in_place_scope(|scope| {
            scope.spawn(move |_| {
                let _lost = TellIfLost(&events);
                let tell = |whole: Vec<(usize, Answered)>| {
                    for (number, turn) in whole {
                        // The receiver is gone after an interrupt.
                        let _ = events.send(Event::Turn(number, turn));
                    }
                };
                self.decode(&supply, (stops, rows), &tell, interrupt);
            });
            let _closing = Closing(&turns);
            let mut open = prompts.len();
            while open > 0
                && let Some(next) = talk.wait(interrupt)
            {
                for next in next {
                    match next {
                        Next::Turn(number, turn) => turns.add(number, turn),
                        Next::End(number) => {
                            turns.end(number);
                            open -= 1;
                        }
                    }
                }
            }
        });
        Ok(())
    }

    fn score(
        &mut self,
        sequences: &[Sequence<'_>],
        options: PassOptions,
        reference: bool,
    ) -> Result<Vec<Vec<TokenStatistics>>, ModelError> {
        let slices = self.slices();
        let mut passes = std::mem::take(&mut self.passes);
        passes.resize_with(slices, Pass::default);
        let scored = self.pool.install(|| {
            let parts = split(sequences, slices);
            let how = self.how(options, reference, parts.len());
            let work = parts.into_par_iter().zip(passes.par_iter_mut());
            work.map(|(part, pass)| pass.score(how, &sequences[part])).collect::<Vec<_>>().concat()
        });
        self.passes = passes;
        Ok(scored)
    }

    fn learn(
        &mut self,
        sequences: &[Sequence<'_>],
        options: PassOptions,
        loss: &Loss<'_>,
    ) -> Result<(), ModelError> {
        let (slices, trained) = (self.slices(), self.trained().len());
        self.gradients.resize_with(slices, || vec![0.0; trained]);
        if sequences.is_empty() {
            return Ok(());
        }
        let (mut passes, mut gradients) =
            (std::mem::take(&mut self.passes), std::mem::take(&mut self.gradients));
        passes.resize_with(slices, Pass::default);
        self.pool.install(|| {
            let parts = split(sequences, slices);
            let how = self.how(options, false, parts.len());
            let work = parts.into_par_iter().zip(passes.par_iter_mut()).zip(gradients.par_iter_mut());
            work.for_each(|((part, pass), gradients)| {
                let first = part.start;
                let mut gradients = match self.adapters {
                    Some(_) => Gradients::Adapters(gradients),
                    None => Gradients::Full(gradients),
                };
                let own = |i: usize, statistics: &[TokenStatistics]| loss(first + i, statistics);
                pass.learn(how, &sequences[part], own, &mut gradients);
            });
        });
        (self.passes, self.gradients) = (passes, gradients);
        Ok(())
    }

    fn forget(&mut self) {
        self.gradients.clear();
    }

    fn step(&mut self, config: &OptimizerConfig, rate: f64) -> Result<f64, ModelError> {
        self.outdated();
        let Self { base, adapters, gradients, moments, pool, .. } = self;
        let trained = adapters.as_mut().map_or(base, |(_, numbers)| numbers);
        Ok(pool.install(|| moments.step(trained, gradients, config, rate)))
    }

    fn fork(&self) -> Result<Option<Box<dyn Core + Send>>, ModelError> {
        Ok(Some(Box::new(Self {
            arena: self.arena.clone(),
            arithmetic: self.arithmetic,
            base: self.base.clone(),
            adapters: self.adapters.clone(),
            reference: self.reference.clone(),
            rope: self.rope.clone(),
            laid: OnceLock::new(),
            spare: Mutex::default(),
            moments: self.moments.clone(),
            gradients: Vec::new(),
            passes: Vec::new(),
            pool: pool(self.threads)?,
            threads: self.threads,
        })))
    }

    fn training(&self) -> Option<Training<'_>> {
        Some(Training { trained: self.trained(), moments: &self.moments })
    }

    fn follow(&mut self, fork: Training<'_>) {
        self.outdated();
        let trained = self.adapters.as_mut().map_or(&mut self.base, |(_, numbers)| numbers);
        trained.copy_from_slice(fork.trained);
        // In place: a clone would need a second copy of the model.
        let Moments { steps, means, squares } = fork.moments;
        self.moments.steps = *steps;
        self.moments.means.clone_from(means);
        self.moments.squares.clone_from(squares);
    }

    fn steps(&self) -> u32 {
        self.moments.steps
    }

    fn finite(&self) -> Result<bool, ModelError> {
        Ok(self.trained().iter().all(|w| w.is_finite()))
    }

    fn weights(&self) -> Result<Cow<'_, [f32]>, ModelError> {
        Ok(Cow::Borrowed(&self.base))
    }

    fn gathered(&self) -> Result<Vec<f32>, ModelError> {
        let mut all = self.gradients.first().cloned().unwrap_or_default();
        for more in self.gradients.iter().skip(1) {
            all.iter_mut().zip(more).for_each(|(a, b)| *a += b);
        }
        Ok(all)
    }

    fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
        self.checkpoint()
    }

    fn save_training(&self, folder: &Path) -> Result<(), ModelError> {
        self.save_training(folder)
    }

    fn load_training(&mut self, folder: &Path, model: &Path, steps: u32) -> Result<(), ModelError> {
        self.load_training(folder, model, steps)
    }
}

/// Says that the sampling threads are lost if it is dropped in a panic, so that nothing waits for their turns.
struct TellIfLost<'a>(&'a mpsc::Sender<Event>);

impl Drop for TellIfLost<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.send(Event::Lost);
        }
    }
}

/// Returns a thread pool for a model.
fn pool(threads: usize) -> Result<ThreadPool, ModelError> {
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|e| ModelError::Threads(e.to_string()))
}

/// Splits sequences into non-empty ranges with about the same number of tokens. The split
/// depends only on the sequences and the number of slices, so that sums are reproducible.
fn split(sequences: &[Sequence<'_>], slices: usize) -> Vec<std::ops::Range<usize>> {
    let shares = |i: usize| i > 0 && sequences[i].shares_prompt(&sequences[i - 1]);
    let prompt = |i: usize| if shares(i) { 0 } else { sequences[i].prompt };
    let cost = |i: usize| prompt(i) + sequences[i].own();
    let total: usize = (0..sequences.len()).map(cost).sum();
    let (mut parts, mut from, mut seen) = (Vec::with_capacity(slices), 0, 0);
    for slice in 1..=slices {
        let mut to = from;
        while to < sequences.len() && (slice == slices || seen * slices < total * slice) {
            seen += cost(to);
            to += 1;
        }
        if to > from {
            parts.push(from..to);
        }
        from = to;
    }
    parts
}
