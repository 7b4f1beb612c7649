//! `allot pretrain`: trains a small model from random weights.

use std::path::PathBuf;
use std::time::Instant;

use allot_base::{Exit, Result};
use allot_pretrain::{Alphabet, Lessons, Progress, Recipe, Trained, Unfinished, folder, measure, train};
use clap::Args;

use crate::screen::Screen;
use crate::{interrupt, memory, opened, run_dir};

/// Train a small model from random weights in minutes, on examples with mistakes
#[derive(Debug, Args)]
pub struct Pretrain {
    /// The recipe: a file, or a shipped recipe's name
    recipe: PathBuf,
    /// The model's folder; a training that was stopped there resumes
    #[arg(long)]
    out: PathBuf,
    /// Override a key of the recipe, as KEY=VALUE; repeatable
    #[arg(short = 'o', long = "override", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Train for this number of steps instead of the recipe's
    #[arg(long, conflicts_with = "measure_only", value_parser = clap::value_parser!(u32).range(1..))]
    steps: Option<u32>,
    /// Only evaluate the model that is in the folder
    #[arg(long)]
    measure_only: bool,
}

/// Trains the model, and prints its accuracy.
pub fn run(command: &Pretrain, screen: &mut Screen<'_>) -> Result<Exit> {
    let mut recipe = Recipe::of(&opened::config(&command.recipe, &command.overrides, screen)?)?;
    recipe.training.steps = command.steps.unwrap_or(recipe.training.steps);
    let device = allot_engine::tensors::open(recipe.training.device)?;
    let alphabet = Alphabet::new(&recipe.tokenizer.alphabet)?;
    let unfinished = Unfinished::of(&command.out);
    // It may have stopped when the model was complete, but its training state was not yet removed.
    let there = folder::is_free(&command.out).err().filter(|_| !command.measure_only);
    if let Some(error) = there.as_ref().filter(|_| !unfinished.exists()) {
        return Err(error.clone());
    }
    let lessons = Lessons::new(&recipe, alphabet.clone())?;
    for short in &lessons.short {
        screen.tell(short);
    }
    if !command.measure_only {
        let shape = recipe.shape(&alphabet);
        screen.tell(format_args!("{} parameters, {} tokens", shape.parameters(), shape.vocabulary));
        // The check is about this machine's memory, not a GPU's.
        if !recipe.is_on_a_gpu() {
            memory::has_room(&recipe.memory(&shape, &lessons))?;
        }
        let reached = unfinished.begin(&recipe)?;
        let _held = run_dir::lock(unfinished.folder())?;
        if there.is_none() {
            if let Some(reached) = &reached {
                screen.tell(format_args!("goes on after step {}", reached.steps));
            }
            let start = Instant::now();
            let stop = interrupt::listen("stopping: progress is kept; press Ctrl-C again to stop at once");
            let trained =
                train(&recipe, &shape, &lessons, &device, reached.as_ref(), &stop, |progress, core| {
                    let Progress { step, steps, loss, speed } = progress;
                    screen
                        .tell(format_args!("step {step:>6}/{steps}  loss {loss:.4}  {speed:>7.0} tokens/s"));
                    unfinished.keep(core, &alphabet, step)
                })?;
            let Trained { core, steps } = trained;
            if steps < recipe.training.steps {
                unfinished.keep(core.as_ref(), &alphabet, steps)?;
                let folder = unfinished.folder().display();
                screen.tell(format_args!(
                    "paused after step {steps}, which is in {folder}; the same command goes on"
                ));
                return Ok(Exit::Bad);
            }
            screen.tell(format_args!("trained in {:.0} s", start.elapsed().as_secs_f64()));
            folder::write(core.as_ref(), &alphabet, &command.out)?;
        }
        unfinished.done()?;
        screen.tell(format_args!("model in {}", command.out.display()));
    }
    // Read back even after training, to measure what was written, including rounding.
    let core = folder::read(&command.out, &alphabet, &recipe.training, &device)?;
    screen.say(measure(core.as_ref(), &lessons, &alphabet, recipe.spread, recipe.training.seed)?);
    Ok(Exit::Good)
}
