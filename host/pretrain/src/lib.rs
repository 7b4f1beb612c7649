//! Pretraining: a small model made from nothing, by demonstrations of problems that a generator draws.
//!
//! The demonstrations are sloppy on purpose. A model that saw right answers alone is right always or
//! never, and reinforcement has nothing to choose between; one that learned from somebody who forgets
//! to carry is right now and then, and can be rewarded for it. Problems that are held out are never
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
pub mod folder;
mod lessons;
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
pub use lessons::{Care, Example, Lessons, Level};
pub use slip::Mistake;
pub use spread::{LevelRow, Spread, measure};
pub use training::{Progress, Trained, train};
pub use unfinished::{Reached, Unfinished};

/// What a model is made by: a TOML file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The model's shape.
    pub model: ModelConfig,
    /// Its tokens.
    pub tokenizer: TokenizerConfig,
    /// What is demonstrated.
    pub lessons: Vec<LessonConfig>,
    /// How it learns.
    pub training: TrainingConfig,
    /// What is told of it at the end.
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
    /// Blocks.
    pub layers: usize,
    /// Heads; each has an equal share of the width.
    pub heads: usize,
    /// Longest sequence, in tokens.
    pub context: usize,
}

/// A model's tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerConfig {
    /// Every character that it knows. Each is a token; one more ends an answer.
    pub alphabet: String,
}

/// A task that is demonstrated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LessonConfig {
    /// The share of examples that each of its levels has, measured against all other weights.
    pub weights: Vec<f64>,
    /// The probability of a mistake at each level.
    pub slips: Vec<f64>,
    /// Held-out problems of each level that the model is measured on, at most.
    pub measured: Vec<usize>,
    /// How a demonstration goes wrong.
    pub mistake: Mistake,
    /// The task.
    pub task: TaskConfig,
}

/// How a model learns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingConfig {
    /// Seeds all randomness.
    pub seed: u64,
    /// Steps of the optimizer.
    pub steps: u32,
    /// Examples in each.
    pub batch: usize,
    /// The share of the steps, from the first on, in which nothing goes wrong. What is mostly shown with
    /// mistakes is learned late or not at all; what was learned before is kept, and done now and then.
    #[serde(default)]
    pub careful: f64,
    /// Where it is trained: `cpu`, `cuda` or, for one of several GPUs, `cuda:1`.
    #[serde(default)]
    pub device: DeviceName,
    /// What matrices are multiplied in: `f32`, or `bf16` with weights and moments kept in float32.
    #[serde(default)]
    pub dtype: Precision,
    /// Threads of the CPU. Sums are made thread by thread, so that another number makes another model, by
    /// rounding. A GPU has no use for them.
    pub threads: usize,
    /// Steps from one line of progress to the next.
    pub report: u32,
    /// The optimizer.
    pub optimizer: OptimizerConfig,
}

impl TrainingConfig {
    /// How the model is set up.
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

/// What a model's spread of difficulty is measured over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpreadConfig {
    /// Answers sampled for each.
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

    /// Reads and checks a recipe; `name` is what it is called in an error.
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        Self::of(&Tree::parse(text, name, &[])?)
    }

    /// The recipe that a tree is, checked.
    pub fn of(tree: &Tree) -> Result<Self> {
        let (recipe, name): (Self, _) = (tree.config()?, tree.name());
        recipe.bounds(name)?;
        recipe.check().map_err(|what| Error::new(format!("`{name}`: {what}")))?;
        Ok(recipe)
    }

    /// Refuses numbers that are out of bounds.
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

    /// What makes no sense, if anything does not.
    fn check(&self) -> std::result::Result<(), String> {
        let Self { model, training, .. } = self;
        // A head turns its numbers in pairs.
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

    /// What training on the CPU takes of memory.
    pub fn memory(&self, shape: &Shape, lessons: &Lessons) -> Memory {
        let answer = lessons.longest_answer();
        let batch = self.training.batch.saturating_mul(lessons.longest_question() + answer);
        let sampled = Sampled { rows: spread::ROWS, answer, together: self.spread.samples as usize + 1 };
        Memory::of(shape, &self.training.setup(shape), sampled, batch, false)
    }

    /// Whether the model is trained on a GPU.
    pub fn is_on_a_gpu(&self) -> bool {
        self.training.device != DeviceName::Cpu
    }

    /// The model's shape, for an alphabet.
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

/// An engine's error about a model, for the user of the command.
pub(crate) fn told(error: &ModelError) -> Error {
    Error::told(error.to_string(), error.hint())
}
