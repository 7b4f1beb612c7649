//! Pretraining: trains a small model from scratch on demonstrations of generated problems.
//!
//! The demonstrations contain mistakes on purpose. A model that saw only right answers is always right or
//! always wrong, and reinforcement learning has nothing to choose from. A model that learned from forgotten
//! carries is right some of the time, and can be rewarded for that. Held-out problems are never
//! demonstrated.
//!
//! ```
//! use allot_pretrain::Alphabet;
//!
//! // Every character is a token.
//! let alphabet = Alphabet::new("0123456789+=")?;
//! assert_eq!(alphabet.encode("12+34=")?.len(), 6);
//! # Ok::<(), allot_base::Error>(())
//! ```

mod alphabet;
mod example;
pub mod folder;
mod lessons;
mod play;
mod slip;
mod spread;
mod training;
mod unfinished;

use std::path::Path;

use allot_base::{Error, Result};
use allot_config::Tree;
use allot_config::train::MOST_THREADS;
use allot_engine::cpu::{Memory, Sampled, Setup};
use allot_engine::model::{Family, ModelError, Precision, Rope, Shape, Variant};
use allot_engine::tensors::DeviceName;
use allot_engine::{OptimizerConfig, Schedule};
use allot_tasks::generate::TaskConfig;
use serde::{Deserialize, Serialize};

pub use alphabet::Alphabet;
pub use example::{Example, Exercise};
pub use lessons::{Care, Lessons, Level};
pub use slip::Mistake;
pub use spread::{LevelRow, Spread, measure};
pub use training::{Progress, Trained, train};
pub use unfinished::{Reached, Unfinished};

/// A pretraining recipe, read from a TOML file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The model's shape.
    pub model: ModelConfig,
    /// Its tokenizer.
    pub tokenizer: TokenizerConfig,
    /// The demonstrated tasks.
    pub lessons: Vec<LessonConfig>,
    /// The training settings.
    pub training: TrainingConfig,
    /// The settings of the final measurement.
    #[serde(default)]
    pub spread: SpreadConfig,
}

/// A model's shape: the Llama family, with tied embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width inside the feed-forward blocks.
    pub intermediate: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Number of heads, which share the width equally.
    pub heads: usize,
    /// The longest sequence, in tokens.
    pub context: usize,
}

/// A model's tokenizer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerConfig {
    /// All known characters. Each is a token; one more token ends an answer.
    pub alphabet: String,
}

/// A demonstrated task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LessonConfig {
    /// The weight of each level: its share of examples, relative to the weights of all levels of all tasks.
    pub weights: Vec<f64>,
    /// The probability of a mistake at each level.
    pub slips: Vec<f64>,
    /// The most held-out problems of each level to measure the model on.
    pub measured: Vec<usize>,
    /// The kind of mistake.
    pub mistake: Mistake,
    /// The task.
    pub task: TaskConfig,
}

/// The training settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingConfig {
    /// Seeds all randomness.
    pub seed: u64,
    /// Number of optimizer steps.
    pub steps: u32,
    /// Examples per step.
    pub batch: usize,
    /// The share of steps, at the start, without mistakes. A model learns late or never what is mostly
    /// demonstrated with mistakes. What it learned before, it keeps and sometimes does.
    #[serde(default)]
    pub careful: f64,
    /// The device: `cpu`, `cuda` or, for one of several GPUs, `cuda:1`.
    #[serde(default)]
    pub device: DeviceName,
    /// The precision of matrix products: `f32`, or `bf16` with weights and moments in float32.
    #[serde(default)]
    pub dtype: Precision,
    /// Number of CPU threads. Sums are computed per thread, so another number gives a model that differs by
    /// rounding. Unused on a GPU.
    pub threads: usize,
    /// Number of steps between two lines of progress.
    pub report: u32,
    /// The optimizer.
    pub optimizer: OptimizerConfig,
}

impl TrainingConfig {
    /// Returns the setup of the model.
    fn setup(&self, shape: &Shape) -> Setup {
        Setup {
            precision: self.dtype,
            threads: self.threads,
            longest: shape.context,
            lora: None,
            reference: false,
            seed: self.seed,
        }
    }
}

/// The settings of measuring a model's spread of difficulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpreadConfig {
    /// Sampled answers for each problem.
    pub samples: u32,
}

impl Default for SpreadConfig {
    fn default() -> Self {
        Self { samples: 16 }
    }
}

impl Recipe {
    /// Reads and checks a recipe.
    pub fn read(path: &Path) -> Result<Self> {
        Self::of(&allot_config::open(path, &[])?)
    }

    /// Parses and checks a recipe. Errors call it `name`.
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        Self::of(&Tree::parse(text, name, &[])?)
    }

    /// Returns the checked recipe of a config tree.
    pub fn of(tree: &Tree) -> Result<Self> {
        let (recipe, name): (Self, _) = (tree.config()?, tree.name());
        recipe.bounds(name)?;
        recipe.check().map_err(|what| Error::new(format!("`{name}`: {what}")))?;
        Ok(recipe)
    }

    /// Rejects numbers that are out of bounds.
    fn bounds(&self, name: &str) -> Result<()> {
        let Self { model, training, spread, .. } = self;
        let any = u64::from(u32::MAX);
        allot_config::bounded(
            name,
            &[
                ("model.hidden", model.hidden as u64, 1 << 16),
                ("model.intermediate", model.intermediate as u64, 1 << 19),
                ("model.layers", model.layers as u64, 1 << 11),
                ("model.heads", model.heads as u64, 1 << 10),
                ("model.context", model.context as u64, 1 << 20),
                ("training.steps", u64::from(training.steps), any),
                ("training.batch", training.batch as u64, 1 << 16),
                ("training.threads", training.threads as u64, MOST_THREADS),
                ("training.report", u64::from(training.report), any),
                ("spread.samples", u64::from(spread.samples), 1 << 16),
            ],
        )
    }

    /// Returns a description of settings that contradict each other, if any.
    fn check(&self) -> std::result::Result<(), String> {
        let Self { model, training, .. } = self;
        // A head rotates its numbers in pairs.
        if !model.hidden.is_multiple_of(2 * model.heads) {
            let (hidden, heads) = (model.hidden, model.heads);
            return Err(format!(
                "`model.hidden` is {hidden}; it is an even number for each of {heads} heads"
            ));
        }
        if !(0.0..=1.0).contains(&training.careful) {
            return Err(format!("`training.careful` is {}; it is a share, from 0 to 1", training.careful));
        }
        if let Some((key, value, rule)) = training.optimizer.wrong() {
            return Err(format!("`training.optimizer.{key}` is {value}; {rule}"));
        }
        if training.optimizer.schedule == Schedule::Constant && training.optimizer.final_share != 0.0 {
            return Err("`training.optimizer.final_share` is for a schedule that falls".to_owned());
        }
        for lesson in &self.lessons {
            let (kind, levels) = (lesson.task.kind, lesson.task.levels.len());
            if lesson.measured.len() != levels {
                let found = lesson.measured.len();
                return Err(format!("the lesson of {kind} has {found} `measured` for {levels} levels"));
            }
            for (key, values, most) in [("weights", &lesson.weights, f64::MAX), ("slips", &lesson.slips, 1.0)]
            {
                if values.len() != levels {
                    let found = values.len();
                    return Err(format!("the lesson of {kind} has {found} `{key}` for {levels} levels"));
                }
                if let Some(value) = values.iter().find(|v| !(0.0..=most).contains(*v)) {
                    return Err(format!(
                        "the lesson of {kind} has {value} among its `{key}`, which can't be"
                    ));
                }
            }
        }
        if !self.lessons.iter().flat_map(|l| &l.weights).any(|w| *w > 0.0) {
            return Err("nothing is demonstrated: all weights are 0".to_owned());
        }
        Ok(())
    }

    /// Returns the memory that training on the CPU needs.
    pub fn memory(&self, shape: &Shape, lessons: &Lessons) -> Memory {
        let answer = lessons.longest_answer();
        let batch = self.training.batch.saturating_mul(lessons.longest_question() + answer);
        let sampled =
            Sampled { rows: play::ROWS, answer, together: self.spread.samples as usize + 1, read: 0 };
        Memory::of(shape, &self.training.setup(shape), sampled, batch, false)
    }

    /// Returns whether the model is trained on a GPU.
    pub fn is_on_a_gpu(&self) -> bool {
        self.training.device != DeviceName::Cpu
    }

    /// Returns the model's shape, for an alphabet.
    pub fn shape(&self, alphabet: &Alphabet) -> Shape {
        let ModelConfig { hidden, intermediate, layers, heads, context } = self.model;
        Shape {
            family: Family::LLAMA,
            vocabulary: alphabet.len(),
            hidden,
            intermediate,
            layers,
            heads,
            kv_heads: heads,
            head: hidden / heads,
            epsilon: 1e-5,
            rope: Rope::plain(10_000.0),
            tied: true,
            context,
            variant: Variant::default(),
        }
    }
}

/// Converts an engine's error about a model.
pub(crate) fn told(error: &ModelError) -> Error {
    Error::told(error.to_string(), error.hint())
}
