//! `metrics.jsonl`: a line of JSON for each step, its numbers by name.
//!
//! Where a number is what TRL logs, it has TRL's name, so that dashboards and scripts made for TRL read it.
//! The file does not know what the names mean: whoever has a number names it by this table. TRL's meanings
//! are those of TRL 1.16 (`trl/trainer/grpo_trainer.py`, and "Logged metrics" in `grpo_trainer.md`).
//!
//! | Name | In TRL | Here |
//! |---|---|---|
//! | `reward` | mean reward of the batch, unscorable rollouts left out | the same, over the step's rollouts, trained on or not |
//! | `reward_std` | standard deviation over the whole batch, not by group, divided by n - 1 | the same, over the step's rollouts |
//! | `frac_reward_zero_std` | fraction of rollouts, not of groups, whose group has no spread (below 1e-8) | the same, for rewards that are all equal |
//! | `completions/mean_length`, `…/min_length`, `…/max_length` | generated tokens | the same |
//! | `completions/mean_terminated_length`, `…/min_…`, `…/max_…` | those that ended by themselves; 0 where none did | the same |
//! | `completions/clipped_ratio` | fraction that met the length limit | the same |
//! | `num_tokens` | tokens so far in the run, prompts and answers | the same, of every rollout paid for |
//! | `step_time` | seconds of a training step, sampling included | seconds of a step, all its rounds included |
//! | `loss`, `grad_norm`, `learning_rate` | of the optimizer's steps since the last line; the norm before clipping | the same |
//! | `entropy` | mean over generated tokens, in nats | the same, over tokens trained on |
//! | `kl` | mean over tokens of Schulman's k3 against the reference; only where it has a weight | the same |
//! | `clip_ratio/low_mean`, `…/high_mean`, `…/region_mean` | fraction of tokens whose ratio is past the lower bound, the upper one, either, and does not count | the same |
//! | `sampling/importance_sampling_ratio/mean` | mean weight of what was sampled by other weights or another engine | the same |
//! | `epoch` | passes over the data set | not written: policies visit prompts as they see fit |
//! | | | `budget/rollouts`, `budget/tokens`: spent so far in the run |
//! | | | `alloc/trained`, `alloc/released`, `alloc/stale`, `alloc/held`: what became of rollouts in the step |
//! | | | `alloc/effective`: rollouts trained on whose advantage is not 0 |
//! | | | `alloc/age`: mean age of the rollouts trained on, in model updates |
//! | | | `alloc/sampled`, `alloc/unscorable`, `alloc/groups`, `alloc/flat`: the step's rollouts, groups trained on |
//! | | | `accuracy`, `eval/SET/avg@K`, `eval/SET/pass@K` (K each power of two, too), `eval/SET/SOURCE`: held-out scores, in the steps after which they were taken |
//! | | | `tokens_per_second`: generated tokens of the step over its seconds |

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use allot_record::reopened;

use super::fresh;
use crate::trouble::{Result, Trouble};

/// The file of a run's numbers by step.
#[derive(Debug)]
pub struct Metrics {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl Metrics {
    /// A new file. Fails where there is one already.
    pub fn create(path: &Path) -> Result<Self> {
        Ok(Self::to(fresh(path)?, path))
    }

    /// The file of a run that goes on from a checkpoint: lines after its first `bytes` bytes are cut off.
    /// Fails where it is shorter than that.
    pub fn resume(path: &Path, bytes: u64) -> Result<Self> {
        Ok(Self { bytes, ..Self::to(reopened(path, bytes)?, path) })
    }

    /// Lines written to an open file; `path` is what it is called where it fails.
    pub fn to(file: File, path: &Path) -> Self {
        Self { file, path: path.to_owned(), bytes: 0 }
    }

    /// Appends a step's line, the step first, and hands it to the operating system. A number that is not
    /// finite is `null`, as JSON has no word for it; of two by one name the later one counts.
    pub fn write(&mut self, step: u32, values: &[(String, f64)]) -> Result<()> {
        let mut object = Map::from_iter([("step".to_owned(), Value::from(step))]);
        let others = values.iter().filter(|(name, _)| name != "step");
        object.extend(others.map(|(name, value)| (name.clone(), Value::from(*value))));
        let line = format!("{}\n", Value::Object(object));
        self.file.write_all(line.as_bytes()).map_err(|e| Trouble::file("write", &self.path, &e))?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Bytes in whole lines so far: what a checkpoint keeps for [`Metrics::resume`].
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits until the lines are on the disk. To be called before a checkpoint that counts on them.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| Trouble::file("write", &self.path, &e))
    }
}
