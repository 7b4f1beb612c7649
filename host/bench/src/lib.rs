//! The same work here and in a peer, in one run and by turns: machines are shared, and what else goes on there
//! is then a error of both.
//!
//! A [`Bench`] does a [`Work`] on this program's cores, in several kinds of number if it is asked to; a [`Peer`] in PyTorch. What is made of the times is for
//! `allot bench` to say.
//!
//! ```
//! use allot_bench::Work;
//!
//! // 256 answers of 8 tokens, and one update on 8 sequences of 128 tokens: what `allot bench` measures.
//! let decode = Work::Decode { batch: 256, prompt: 8, tokens: 8 };
//! let train = Work::Train { batch: 8, tokens: 128, recompute: false };
//! assert_ne!(decode, train);
//! ```

mod peer;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use allot_allocation::seed::{self, Stream};
use allot_base::Result;
use allot_engine::core::{Core, PassOptions, Request, Sequence, TokenStatistics};
use allot_engine::cpu::{MachineLimits, Setup};
use allot_engine::model::{Checkpoint, ModelError, Precision, Shape, SpecialIds};
use allot_engine::place;
use allot_engine::tensors::{self, DeviceName};
use allot_engine::{Lengths, OptimizerConfig, Sampling, Stops};
use allot_report::statistics::percentile;
use candle_core::{DType, Device, Tensor, Var};
use serde::Serialize;
use serde_json::json;

pub use peer::Peer;

/// Between two turns.
const REST: Duration = Duration::from_millis(50);
/// A turn does the work again and again for at least so long: in a run it follows on itself, too, and what takes a
/// few milliseconds would else be measured with the waking of threads and cold caches.
const TURN: Duration = Duration::from_millis(250);

/// How long what a machine allows is measured, each time.
const LOOK: Duration = Duration::from_millis(100);

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "work")]
pub enum Work {
    /// Answers to one prompt, sampled together at temperature 1.
    Decode {
        /// Answers.
        batch: usize,
        /// The prompt's tokens.
        prompt: usize,
        /// Each answer's tokens.
        tokens: usize,
    },
    /// Log-probabilities of sequences: a forward pass.
    Score {
        /// Sequences.
        batch: usize,
        /// Each sequence's tokens.
        tokens: usize,
    },
    /// One update: forward, backward, a step of AdamW.
    Train {
        /// Sequences.
        batch: usize,
        /// Each sequence's tokens.
        tokens: usize,
        /// Whether activations are made again in the backward pass. A peer keeps them.
        recompute: bool,
    },
}

/// What it came to.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// What was done.
    #[serde(flatten)]
    pub work: Work,
    /// In what kind of number, here.
    pub dtype: Precision,
    /// Tokens of one round.
    pub tokens_a_round: usize,
    /// Seconds that the work took in each round, here: the mean of a turn.
    pub here: Vec<f64>,
    /// And in the peer, if there was one; else in the first kind of number, if there are several and this is another.
    pub beside: Vec<f64>,
    /// Seconds that this machine's cores would take for it, if they did nothing but multiply and read weights, as fast as they ever
    /// did these between turns. None on a GPU.
    pub limit: Option<f64>,
}

/// Where work is done, and in what kinds of number.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The device.
    pub device: DeviceName,
    /// What matrices are multiplied in: a model for each.
    pub precisions: &'a [Precision],
    /// Threads of the CPU.
    pub threads: usize,
}

/// Where its weights are from.
#[derive(Clone, Copy, Debug)]
pub enum Weights<'a> {
    /// A folder or a GGUF file.
    Of(&'a Path),
    /// Random, for a model of this shape: as good as any others where only time is measured.
    Random(&'a Shape),
}

/// A model that work is done with, in each kind of number.
pub struct Bench {
    models: Vec<(Precision, Box<dyn Core>)>,
    shape: Shape,
    /// In each kind of number. None on a GPU.
    fastest: Vec<Fastest>,
}

impl Bench {
    /// A model somewhere, for sequences of at most so many tokens.
    pub fn load(weights: Weights<'_>, place: Target<'_>, longest: usize) -> Result<Self> {
        let checkpoint = match weights {
            Weights::Of(path) => Checkpoint::load(path, &Device::Cpu)?,
            Weights::Random(shape) => random(shape)?,
        };
        let shape = checkpoint.shape.clone();
        let device = tensors::open(place.device)?;
        let model = |precision: &Precision| {
            let (precision, threads) = (*precision, place.threads);
            let setup = Setup { precision, threads, longest, lora: None, reference: false, seed: 1 };
            Ok::<_, ModelError>((precision, place::core(&device, &checkpoint, setup)?))
        };
        let models = place.precisions.iter().map(model).collect::<std::result::Result<_, _>>()?;
        let looked_at = if place.device == DeviceName::Cpu { place.precisions } else { &[] };
        let fastest = looked_at.iter().map(|dtype| Fastest::new(&shape, *dtype, place.threads));
        let fastest = fastest.collect::<std::result::Result<_, _>>()?;
        Ok(Self { models, shape, fastest })
    }

    /// Writes it down as a peer can read it.
    pub fn export(&self, folder: &Path) -> Result<()> {
        let special = SpecialIds { bos: None, eos: Vec::new(), pad: None };
        if let Some((_, model)) = self.models.first() {
            model.checkpoint()?.export(folder, Precision::F32, &special)?;
        }
        Ok(())
    }

    /// Does the work by turns, in each kind of number here and in the peer; one round more than asked for, of which the
    /// first counts for none.
    pub fn rounds(&mut self, work: Work, rounds: usize, mut peer: Option<&mut Peer>) -> Result<Vec<Outcome>> {
        let tokens_a_round = work.tokens();
        let outcome = |dtype| Outcome {
            work,
            dtype,
            tokens_a_round,
            here: Vec::new(),
            beside: Vec::new(),
            limit: None,
        };
        let mut outcomes: Vec<Outcome> = self.models.iter().map(|(dtype, _)| outcome(*dtype)).collect();
        for round in 0..=rounds as u64 {
            let mut random = Stream::new(round);
            let mut any = |n: usize| -> Vec<u32> {
                (0..n).map(|_| random.below(self.shape.vocabulary) as u32).collect()
            };
            let (prompt, sequences) = match work {
                Work::Decode { prompt, .. } => (any(prompt), Vec::new()),
                Work::Score { batch, tokens } | Work::Train { batch, tokens, .. } => {
                    (Vec::new(), (0..batch).map(|_| any(tokens)).collect())
                }
            };
            self.fastest.iter_mut().for_each(Fastest::look);
            let mut times = Vec::with_capacity(outcomes.len());
            for (_, model) in &mut self.models {
                // A peer's threads, and ours, look out for more work for a while after their last.
                std::thread::sleep(REST);
                let took = turn(|| match work {
                    Work::Decode { batch, tokens, .. } => {
                        decode(model.as_ref(), &prompt, batch, tokens, round)
                    }
                    Work::Score { .. } => score(model.as_mut(), &sequences),
                    Work::Train { recompute, .. } => train(model.as_mut(), &sequences, recompute),
                });
                times.push(took?.as_secs_f64());
            }
            let theirs = match work {
                Work::Decode { batch, tokens, .. } => {
                    json!({ "work": "decode", "prompt": prompt, "batch": batch, "tokens": tokens })
                }
                Work::Score { .. } => json!({ "work": "score", "sequences": sequences }),
                Work::Train { .. } => json!({ "work": "train", "sequences": sequences }),
            };
            std::thread::sleep(REST);
            let theirs = json!({ "least": TURN.as_secs_f64(), "of": theirs });
            let theirs = peer.as_mut().map(|peer| peer.ask(&theirs)).transpose()?;
            if round > 0 {
                for (i, outcome) in outcomes.iter_mut().enumerate() {
                    outcome.here.push(times[i]);
                    outcome.beside.extend(theirs.or((i > 0).then_some(times[0])));
                }
            }
        }
        self.fastest.iter_mut().for_each(Fastest::look);
        for (outcome, fastest) in outcomes.iter_mut().zip(&self.fastest) {
            outcome.limit = Some(limit(work, &self.shape, fastest));
        }
        Ok(outcomes)
    }
}

/// How fast this machine's cores are at best, in one kind of number. One look may meet another program's load that no turn met, so
/// the fastest of all looks counts.
struct Fastest {
    machine: MachineLimits,
    dtype: Precision,
    /// Bytes of the weights.
    weights: f64,
    /// Operations a second.
    products: f64,
    /// Bytes a second.
    read: f64,
}

impl Fastest {
    fn new(shape: &Shape, dtype: Precision, threads: usize) -> std::result::Result<Self, ModelError> {
        let weights = shape.parameters() * if dtype == Precision::Bf16 { 2 } else { 4 };
        let machine = MachineLimits::new(threads, weights)?;
        Ok(Self { machine, dtype, weights: weights as f64, products: 0.0, read: 0.0 })
    }

    /// Measures once more.
    fn look(&mut self) {
        self.read = self.read.max(self.machine.read(LOOK));
        self.products = self.products.max(self.machine.products(self.dtype, LOOK));
    }
}

fn decode(model: &dyn Core, prompt: &[u32], batch: usize, tokens: usize, round: u64) -> Result<Duration> {
    let sampling = Sampling { temperature: 1.0, max_tokens: tokens as u32, ..Sampling::default() };
    let seed = |i: usize| round << 32 | i as u64;
    let requests: Vec<Request<'_>> =
        (0..batch).map(|i| Request { prompt, history: &[], seed: seed(i), sampling }).collect();
    let start = Instant::now();
    let answers = model.answers(&requests, &Stops::default(), batch)?;
    let took = start.elapsed();
    debug_assert!(answers.iter().all(|a| a.tokens.len() == tokens));
    Ok(took)
}

fn score(model: &mut dyn Core, sequences: &[Vec<u32>]) -> Result<Duration> {
    let batch = whole(sequences);
    let start = Instant::now();
    let scored = model.score(&batch, PassOptions { temperature: 1.0, recompute: false }, false)?;
    let took = start.elapsed();
    debug_assert_eq!(scored.len(), batch.len());
    Ok(took)
}

/// Sequences whose first token is the prompt.
fn whole(sequences: &[Vec<u32>]) -> Vec<Sequence<'_>> {
    sequences.iter().map(|tokens| Sequence { tokens, prompt: 1, observed: &[], mask: None }).collect()
}

fn train(model: &mut dyn Core, sequences: &[Vec<u32>], recompute: bool) -> Result<Duration> {
    let batch = whole(sequences);
    let all = batch.iter().map(Sequence::answer).sum::<usize>() as f32;
    let options = PassOptions { temperature: 1.0, recompute };
    let optimizer = OptimizerConfig { weight_decay: 0.0, ..OptimizerConfig::default() };
    let start = Instant::now();
    model.learn(&batch, options, &|_, statistics: &[TokenStatistics]| {
        vec![-1.0 / all; statistics.len()].into()
    })?;
    model.step(&optimizer, 1e-6)?;
    // A GPU may still be writing weights.
    model.wait()?;
    Ok(start.elapsed())
}

/// Seconds for products, at so many operations a second, and for reading weights, at so many bytes a second: whichever is
/// longer, token by token. An update also moves weights, gradients and moments, four bytes each, in and out.
fn limit(work: Work, shape: &Shape, fastest: &Fastest) -> f64 {
    let Fastest { weights: bytes, products, read, .. } = *fastest;
    let pass = |operations: f64| (operations / products).max(bytes / read);
    match work {
        Work::Decode { batch, prompt, tokens } => {
            let steps = tokens.saturating_sub(1);
            let each = batch as f64 * shape.decode_flops(Lengths::of(prompt, tokens)) / steps.max(1) as f64;
            pass(shape.prefill_flops(prompt)) + steps as f64 * pass(each)
        }
        Work::Score { batch, tokens } => pass(batch as f64 * shape.pass_flops(Lengths::of(1, tokens - 1))),
        Work::Train { batch, tokens, recompute } => {
            let passes = if recompute { 4.0 } else { 3.0 };
            let operations = passes * batch as f64 * shape.pass_flops(Lengths::of(1, tokens - 1));
            pass(operations) + 8.0 * 4.0 * shape.parameters() as f64 / read
        }
    }
}

/// The mean of a turn's times.
fn turn(mut once: impl FnMut() -> Result<Duration>) -> Result<Duration> {
    let (mut all, mut times) = (Duration::ZERO, 0);
    while all < TURN {
        all += once()?;
        times += 1;
    }
    Ok(all / times)
}

/// Random weights: even between plus and minus as much as gives each a deviation of 0.02; norms are 1.
///
/// # Errors
///
/// A shape that tensors can't have.
pub fn random(shape: &Shape) -> Result<Checkpoint> {
    let mut weights = BTreeMap::new();
    for (index, (name, dims)) in shape.tensors().into_iter().enumerate() {
        let tensor = if name.ends_with("norm.weight") {
            Tensor::ones(dims, DType::F32, &Device::Cpu)
        } else {
            let mut random = Stream::new(seed::world(1, 0, index as u64));
            let one = |_| ((random.unit() * 2.0 - 1.0) * 0.02 * 3.0_f64.sqrt()) as f32;
            let numbers: Vec<f32> = (0..dims.iter().product()).map(one).collect();
            Tensor::from_vec(numbers, dims, &Device::Cpu)
        };
        let weight = tensor.and_then(|tensor| Var::from_tensor(&tensor)).map_err(ModelError::from)?;
        weights.insert(name, weight);
    }
    Ok(Checkpoint { shape: shape.clone(), weights })
}

impl Work {
    /// The longest sequence, in tokens.
    pub fn longest(self) -> usize {
        match self {
            Self::Decode { prompt, tokens, .. } => prompt + tokens,
            Self::Score { tokens, .. } | Self::Train { tokens, .. } => tokens,
        }
    }

    /// Tokens that are made or learned from.
    fn tokens(self) -> usize {
        match self {
            Self::Decode { batch, tokens, .. } => batch * tokens,
            Self::Score { batch, tokens } | Self::Train { batch, tokens, .. } => batch * (tokens - 1),
        }
    }
}

impl Outcome {
    /// Tokens a second here: the median of the rounds.
    pub fn here(&self) -> f64 {
        self.tokens_a_round as f64 / median(&self.here)
    }

    /// And in what it is measured beside.
    pub fn beside(&self) -> Option<f64> {
        (!self.beside.is_empty()).then(|| self.tokens_a_round as f64 / median(&self.beside))
    }

    /// The share of what the machine's cores can do: the median of the rounds. More than 1 says that another program kept the cores
    /// from their best whenever the limit was measured.
    pub fn share(&self) -> Option<f64> {
        self.limit.map(|limit| limit / median(&self.here))
    }

    /// How many times as fast it is here: the median of the rounds, the lowest and the highest.
    pub fn ratio(&self) -> Option<(f64, f64, f64)> {
        let ratios: Vec<f64> =
            self.here.iter().zip(&self.beside).map(|(here, beside)| beside / here).collect();
        let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ratios.iter().copied().fold(0.0, f64::max);
        (!ratios.is_empty()).then(|| (median(&ratios), low, high))
    }
}

fn median(numbers: &[f64]) -> f64 {
    percentile(numbers, 0.5).unwrap_or(f64::NAN)
}
