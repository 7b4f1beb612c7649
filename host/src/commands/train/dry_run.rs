//! The output of `allot train --dry-run`: the run that would begin, and its memory.

use allot_base::count;
use allot_config::train::{Setting, TrainConfig};
use allot_engine::cpu::Instruction;
use allot_engine::model::Precision;
use allot_engine::tensors::DeviceName;
use allot_outputs::rollouts;

use crate::memory::{PROGRAM, size};
use crate::prepared::Prepared;
use crate::screen::Screen;

/// Shows the run of `--dry-run`.
pub fn show(prepared: &Prepared<'_>, screen: &mut Screen<'_>) {
    let (config, memory) = (&prepared.config, &prepared.memory);
    let description = prepared.policy.description();
    let mut row = |name: &str, value: String| screen.say(format_args!("{name:<22}{value}"));
    if let Some(server) = config.engine.server() {
        row("server", server.url.clone());
        row("  model", server.base_model.clone());
        row("  adapters", format!("of rank {}", server.lora_rank));
    }
    if let (Some(rollouts), Some(sampler)) = (&config.rollout_server, &prepared.sampler) {
        let mut urls = rollouts.url.all().iter();
        row("rollouts", urls.next().cloned().unwrap_or_default());
        urls.for_each(|url| row("", url.clone()));
        row("  server", format!("{} {}", rollouts.kind.name(), sampler.version));
        row("  weights", format!("in {}, in {}", rollouts.weights, precision(rollouts.dtype)));
    }
    row("model", config.model.source.clone());
    row("  parameters", prepared.shape.parameters().to_string());
    if config.engine.is_native() {
        row("  of them trained", memory.trained.to_string());
    }
    row("problems", format!("{} to train on", prepared.problems.train));
    for set in &prepared.problems.sets {
        let each = |(name, rollouts): &Setting| {
            let rollouts = count(u64::from(*rollouts), "rollout");
            name.as_ref().map_or(format!("{rollouts} each"), |name| format!("{rollouts} as `{name}`"))
        };
        let all: Vec<String> = config.evaluation.settings().iter().map(each).collect();
        row("  held out", format!("{} in `{}`, {}", set.prompts.len(), set.name, all.join(", ")));
    }
    row("policy", format!("{} {}", description.name, description.version));
    for (name, value) in &prepared.run.settings {
        row("", format!("{name} = {value}"));
    }
    let mut budget = config.budget.words().into_iter();
    let first = budget.next().unwrap_or_default();
    row("budget", format!("{first}, at most {} steps", config.run.steps));
    budget.for_each(|words| row("", words));
    row("answers", format!("up to {} tokens", config.sampling.max_tokens));
    if config.engine.is_native() {
        show_machine(prepared, &mut row);
    }
}

/// Shows the resources that the run needs on this machine.
fn show_machine(prepared: &Prepared<'_>, row: &mut impl FnMut(&str, String)) {
    let (config, memory) = (&prepared.config, &prepared.memory);
    let (at_hand, table) = (at_hand(config), table(config));
    row("memory", format!("about {}", size(memory.total() + at_hand + table + PROGRAM)));
    row("  weights", size(memory.weights));
    row("  optimizer", size(memory.optimizer));
    row("  sampling", size(memory.rollouts));
    row("  activations", size(memory.activations));
    if memory.learner > 0 {
        row("  the learner's copy", size(memory.learner));
    }
    if memory.saving > 0 {
        row("  saving", size(memory.saving));
    }
    row("  rollouts at hand", size(at_hand));
    row("  table of rollouts", size(table));
    row("  the program itself", size(PROGRAM));
    let (device, dtype) = (config.model.device, config.model.dtype);
    if device == DeviceName::Cpu {
        row("threads", prepared.setup.threads.to_string());
    }
    match (device, dtype) {
        (DeviceName::Cpu, Precision::F32) => {}
        (DeviceName::Cpu, Precision::Bf16) => {
            let by = Instruction::here().map_or("instructions for f32".to_owned(), |by| by.to_string());
            row("device", format!("cpu, in bf16 by {by}"));
        }
        (device, dtype) => row("device", format!("{device}, in {}", precision(dtype))),
    }
}

/// Returns the memory of the rollouts of steps that wait for their updates, under a policy that samples
/// like the uniform one: about 3 KiB per rollout, as measured, and 24 bytes per token, for its id and
/// log-probability in the buffer and in the update, and as text.
fn at_hand(config: &TrainConfig) -> usize {
    let steps = 1 + config.run.lag as usize;
    let step = config.run.groups as usize * config.run.rollouts as usize;
    step.saturating_mul(steps).saturating_mul(3 * 1024 + 24 * config.sampling.max_tokens as usize)
}

/// Returns the most memory of the table of rollouts, under a policy that samples like the uniform one: a
/// step's rollouts wait for their fates, and a row group fills. A token of text has four bytes.
fn table(config: &TrainConfig) -> usize {
    let step = config.run.groups as usize * config.run.rollouts as usize;
    let text = if config.checkpoint.text { 4 * config.sampling.max_tokens as usize } else { 0 };
    rollouts::memory(step, step.saturating_mul(config.checkpoint.every as usize), text)
}

fn precision(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "f32",
        Precision::Bf16 => "bf16",
    }
}
