//! A model's folder: written as transformers reads it, and read back.

use std::path::Path;

use allot_engine::cpu::{Cpu, Setup};
use allot_engine::model::{Checkpoint, ModelError, Precision};
use allot_error::{Result, Trouble};
use candle_core::{Device, Tensor, Var};

use super::{Alphabet, told};

/// Whether a model can be written there: better asked before training than after it.
pub fn is_free(folder: &Path) -> Result<()> {
    let mut entries = std::fs::read_dir(folder).into_iter().flatten();
    if folder.is_file() || entries.next().is_some() {
        let what = format!("`{}` is there already, and is not empty", folder.display());
        return Err(
            Trouble::new(what).hint("a model is written into a new folder, over nothing that is there")
        );
    }
    Ok(())
}

/// Writes a model and its tokenizer, rounded to bfloat16.
pub fn write(core: &Cpu, alphabet: &Alphabet, folder: &Path) -> Result<()> {
    let checkpoint = checkpoint(core).map_err(|e| told(&e))?;
    checkpoint.export(folder, Precision::Bf16, &alphabet.special()).map_err(|e| told(&e))?;
    alphabet.write(folder)
}

/// Reads a model back.
pub fn read(folder: &Path, alphabet: &Alphabet, threads: usize) -> Result<Cpu> {
    let checkpoint = Checkpoint::load(folder, &Device::Cpu).map_err(|e| told(&e))?;
    let (vocabulary, longest) = (checkpoint.shape.vocabulary, checkpoint.shape.context);
    if vocabulary != alphabet.len() {
        let own = alphabet.len();
        let what =
            format!("the model in `{}` has {vocabulary} tokens, and the recipe {own}", folder.display());
        return Err(Trouble::new(what).hint("measure a model by the recipe that it was made by"));
    }
    let setup = Setup { threads, longest, lora: None, reference: false, seed: 0 };
    Cpu::new(&checkpoint, setup).map_err(|e| told(&e))
}

fn checkpoint(core: &Cpu) -> std::result::Result<Checkpoint, ModelError> {
    let merged = core.merged();
    let variable = |(name, dims, numbers): (&str, &[usize], &[f32])| {
        let tensor = Tensor::from_slice(numbers, dims, &Device::Cpu)?;
        Ok((name.to_owned(), Var::from_tensor(&tensor)?))
    };
    let weights =
        core.arena().tensors(&merged).map(variable).collect::<std::result::Result<_, ModelError>>()?;
    Ok(Checkpoint { shape: core.shape().clone(), weights })
}
