//! Training: from random weights to weights that answer like the demonstrations.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use allot_allocation::seed::{self, Stream};
use allot_base::{Error, Result};
use allot_engine::core::{Core, PassOptions, Sequence, TokenStatistics};
use allot_engine::model::{Checkpoint, ModelError, Shape};
use allot_engine::{Interrupt, place};
use candle_core::{Device, Tensor, Var};

use super::{Care, Lessons, Reached, Recipe, told};

/// Purposes of randomness, which are part of each stream's seed.
const WEIGHTS: u64 = 0;
const EXAMPLES: u64 = 1;

/// The progress of training.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Optimizer steps made.
    pub step: u32,
    /// Total number of steps.
    pub steps: u32,
    /// Mean loss since the last report, in nats per answer token.
    pub loss: f64,
    /// Tokens per second since the last report.
    pub speed: f64,
}

/// The result of training.
pub struct Trained {
    /// The model with its optimizer state.
    pub core: Box<dyn Core>,
    /// Optimizer steps made: fewer than the recipe's after an interrupt.
    pub steps: u32,
}

/// Trains a model by a recipe, on the recipe's device, from the beginning or from a stored state. `report`
/// may store the state that it is called with.
pub fn train(
    recipe: &Recipe,
    shape: &Shape,
    lessons: &Lessons,
    device: &Device,
    from: Option<&Reached>,
    stop: &Interrupt,
    mut report: impl FnMut(Progress, &dyn Core) -> Result<()>,
) -> Result<Trained> {
    let config = &recipe.training;
    let weights = fresh(shape, config.seed).map_err(|e| told(&e))?;
    let mut core = place::core(device, &weights, config.setup(shape)).map_err(|e| told(&e))?;
    drop(weights);
    from.map_or(Ok(()), |from| from.restore(core.as_mut()))?;
    let begin = from.map_or(0, |from| from.steps);
    let options = PassOptions { temperature: 1.0, recompute: false };

    let (mut since, mut loss, mut steps, mut tokens) = (Instant::now(), 0.0, 0, 0);
    for step in begin..config.steps {
        if stop.is_asked() {
            return Ok(Trained { core, steps: step });
        }
        let mut stream = Stream::new(seed::world(config.seed, EXAMPLES, u64::from(step)));
        let progress = f64::from(step) / f64::from(config.steps);
        // First without mistakes, then with them.
        let care = if progress < config.careful { Care::Full } else { Care::Usual };
        let examples =
            (0..config.batch).map(|_| lessons.draw(care, &mut stream)).collect::<Result<Vec<_>>>()?;
        let sequences: Vec<Sequence<'_>> = examples
            .iter()
            .map(|e| Sequence { tokens: &e.tokens, prompt: e.prompt, observed: &e.observed, mask: None })
            .collect();
        // The mean over all answer tokens, so that an answer weighs as many tokens as it has.
        let scale = 1.0 / sequences.iter().map(Sequence::answer).sum::<usize>() as f64;
        let losses = Mutex::new(vec![0.0; sequences.len()]);
        let loss_of = |i: usize, statistics: &[TokenStatistics]| {
            let sum: f64 = statistics.iter().map(|t| f64::from(t.log_prob)).sum();
            if let Ok(mut losses) = losses.lock() {
                losses[i] = -sum * scale;
            }
            vec![-scale as f32; statistics.len()].into()
        };
        core.learn(&sequences, options, &loss_of).map_err(|e| told(&e))?;
        let rate = config.optimizer.rate(step, progress);
        if !core.step(&config.optimizer, rate).map_err(|e| told(&e))?.is_finite() {
            let error =
                Error::new(format!("training diverged at step {}: its gradient is not finite", step + 1));
            return Err(error.hint("lower `training.optimizer.learning_rate`"));
        }
        loss += losses.into_inner().unwrap_or_default().iter().sum::<f64>();
        steps += 1;
        tokens += sequences.iter().map(Sequence::read).sum::<usize>();
        if (step + 1) % config.report == 0 || step + 1 == config.steps {
            let speed = tokens as f64 / since.elapsed().as_secs_f64();
            let loss_of_each = loss / f64::from(steps);
            report(
                Progress { step: step + 1, steps: config.steps, loss: loss_of_each, speed },
                core.as_ref(),
            )?;
            (since, loss, steps, tokens) = (Instant::now(), 0.0, 0, 0);
        }
    }
    Ok(Trained { core, steps: config.steps })
}

/// Returns random weights, by tensor name. Norms are 1. Weights that add to the residual stream are smaller
/// in deeper models, as in GPT-2.
fn fresh(shape: &Shape, run: u64) -> std::result::Result<Checkpoint, ModelError> {
    // Nguyen and Salazar (2019): larger than the usual 0.02 for a narrow model.
    let deviation = (0.4 / shape.hidden as f64).sqrt();
    let added = deviation / (2.0 * shape.layers as f64).sqrt();
    let tensor = |(index, (name, dims)): (usize, (String, Vec<usize>))| {
        let count = dims.iter().product();
        let mut stream = Stream::new(seed::world(run, WEIGHTS, index as u64));
        let deviation = if name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight") {
            added
        } else {
            deviation
        };
        let weights: Vec<f32> = if name.ends_with("norm.weight") {
            vec![1.0; count]
        } else {
            (0..count).map(|_| (normal(&mut stream) * deviation) as f32).collect()
        };
        Ok((name, Var::from_tensor(&Tensor::from_vec(weights, dims, &Device::Cpu)?)?))
    };
    let weights = shape.tensors().into_iter().enumerate().map(tensor);
    let weights: std::result::Result<BTreeMap<_, _>, ModelError> = weights.collect();
    Ok(Checkpoint { shape: shape.clone(), weights: weights? })
}

/// Returns the centred sum of twelve uniform draws: mean 0, variance 1, and the same on every machine.
fn normal(stream: &mut Stream) -> f64 {
    (0..12).map(|_| stream.unit()).sum::<f64>() - 6.0
}
