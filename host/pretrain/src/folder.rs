//! Writes a model's folder in transformers' format, and reads it back.

use std::path::{Path, PathBuf};

use allot_base::{Error, Result, lasting_up_to, lasting_whole};
use allot_engine::core::Core;
use allot_engine::model::{Checkpoint, Precision};
use allot_engine::place;
use candle_core::Device;

use super::{Alphabet, TrainingConfig, told};

/// Checks that a model can be written there. Call this before training.
pub fn is_free(folder: &Path) -> Result<()> {
    if folder.file_name().is_none() {
        let error = Error::new(format!("`{}` is no name of a folder", folder.display()));
        return Err(
            error.hint("a model is written under another name first, and gets its own when it is whole")
        );
    }
    let mut entries = std::fs::read_dir(folder).into_iter().flatten();
    if folder.is_file() || entries.next().is_some() {
        let what = format!("`{}` is there already, and is not empty", folder.display());
        return Err(Error::new(what).hint("a model is written into a new folder, over nothing that is there"));
    }
    Ok(())
}

/// Writes a model and its tokenizer, rounded to bfloat16, completely or not at all.
pub fn write(core: &dyn Core, alphabet: &Alphabet, folder: &Path) -> Result<()> {
    let aside = beside(folder, ".", ".writing");
    cleared(&aside)?;
    let checkpoint = core.checkpoint().map_err(|e| told(&e))?;
    checkpoint.export(&aside, Precision::Bf16, &alphabet.special()).map_err(|e| told(&e))?;
    alphabet.write(&aside)?;
    lasting_whole(&aside)?;
    // If the folder exists, it is empty.
    cleared(folder)?;
    std::fs::rename(&aside, folder).map_err(|e| Error::file("write", folder, &e))?;
    lasting_up_to([], folder)
}

/// Returns another name in the same parent folder.
pub(crate) fn beside(folder: &Path, before: &str, after: &str) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.with_file_name(format!("{before}{name}{after}"))
}

/// Removes a folder if it exists.
pub(crate) fn cleared(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::file("remove", folder, &e)),
        _ => Ok(()),
    }
}

/// Reads a model back, onto the device that it was trained on.
pub fn read(
    folder: &Path,
    alphabet: &Alphabet,
    config: &TrainingConfig,
    device: &Device,
) -> Result<Box<dyn Core>> {
    let checkpoint = Checkpoint::load(folder, &Device::Cpu).map_err(|e| told(&e))?;
    let vocabulary = checkpoint.shape.vocabulary;
    if vocabulary != alphabet.len() {
        let own = alphabet.len();
        let what =
            format!("the model in `{}` has {vocabulary} tokens, and the recipe {own}", folder.display());
        return Err(Error::new(what).hint("measure a model by the recipe that it was made by"));
    }
    let setup = config.setup(&checkpoint.shape);
    place::core(device, &checkpoint, setup).map_err(|e| told(&e))
}
