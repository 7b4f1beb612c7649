//! The training state in a checkpoint: the optimizer's moments and the adapters. Also the exported weights.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use candle_core::{Device, Tensor, Var};

use super::{Adapters, Cpu};
use crate::model::{Checkpoint, ModelError, Precision, safetensors};
use crate::optimizer::Moments;

const OPTIMIZER: &str = "optimizer.safetensors";
/// In PEFT's layout.
const ADAPTER: &str = "adapter";
const ADAPTERS: &str = "adapter/adapter_model.safetensors";
const ADAPTER_CONFIG: &str = "adapter/adapter_config.json";

impl Cpu {
    /// Returns the weights with adapters merged.
    pub(super) fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
        let merged = self.merged();
        let mut weights = BTreeMap::new();
        for (name, shape, numbers) in self.arena.tensors(&merged) {
            weights.insert(name.to_owned(), Var::from_slice(numbers, shape, &Device::Cpu)?);
        }
        Ok(Checkpoint { shape: self.arena.shape.clone(), weights })
    }

    /// Writes moments and adapters into a folder, without the weights.
    pub(super) fn save_training(&self, folder: &Path) -> Result<(), ModelError> {
        write_moments(folder, &self.moments)?;
        self.adapters.as_ref().map_or(Ok(()), |(adapters, numbers)| write_adapters(folder, adapters, numbers))
    }

    /// Resumes training from a checkpoint: its adapters if they are trained, else its weights, and
    /// the moments after `steps` optimizer steps.
    pub(super) fn load_training(
        &mut self,
        folder: &Path,
        model: &Path,
        steps: u32,
    ) -> Result<(), ModelError> {
        let trained = match &self.adapters {
            None => {
                let loaded = Checkpoint::load(model, &Device::Cpu)?;
                let mut tensors = Vec::new();
                for (name, var) in &loaded.weights {
                    tensors.push((name.as_str(), var.as_tensor().flatten_all()?.to_vec1::<f32>()?));
                }
                self.arena.fill(tensors.into_iter())?
            }
            Some((adapters, _)) => read_adapters(folder, adapters)?,
        };
        let moments = read_moments(folder, steps, trained.len())?;
        self.restore(trained, moments);
        Ok(())
    }
}

/// Writes adapters in PEFT's layout.
pub(crate) fn write_adapters(folder: &Path, adapters: &Adapters, numbers: &[f32]) -> Result<(), ModelError> {
    let mut all = HashMap::new();
    for (name, shape, numbers) in adapters.tensors(numbers) {
        all.insert(name.to_owned(), Tensor::from_slice(numbers, shape, &Device::Cpu)?);
    }
    let adapter = folder.join(ADAPTER);
    std::fs::create_dir_all(&adapter).map_err(|e| ModelError::write(&adapter, &e))?;
    write(&folder.join(ADAPTERS), all)?;
    let config = folder.join(ADAPTER_CONFIG);
    let text = format!("{:#}\n", adapters.peft());
    std::fs::write(&config, text).map_err(|e| ModelError::write(&config, &e))
}

/// Reads adapters in their layout.
pub(crate) fn read_adapters(folder: &Path, adapters: &Adapters) -> Result<Vec<f32>, ModelError> {
    let mut stored = read(&folder.join(ADAPTERS))?;
    let mut all = Vec::with_capacity(adapters.len());
    for (name, place) in adapters.places() {
        let numbers = take(&mut stored, name)?;
        if numbers.len() != place.len() {
            let (name, found) = (name.to_owned(), vec![numbers.len()]);
            return Err(ModelError::WrongShape { name, found, expected: vec![place.len()] });
        }
        all.extend(numbers);
    }
    Ok(all)
}

/// Writes moments in the format of all cores: the layout of the trained parameters. A run may
/// continue on another core.
pub(crate) fn write_moments(folder: &Path, moments: &Moments) -> Result<(), ModelError> {
    let path = folder.join(OPTIMIZER);
    let failed = |e: std::io::Error| ModelError::write(&path, &e);
    let all = [("means", &moments.means), ("squares", &moments.squares)];
    let head =
        safetensors::head(None, Precision::F32, all.map(|(name, numbers)| (name, vec![numbers.len()])));
    // In the safetensors format, directly from their place: a copy would be twice the model.
    let mut file = BufWriter::with_capacity(1 << 16, File::create(&path).map_err(failed)?);
    file.write_all(&head).map_err(failed)?;
    for number in all.into_iter().flat_map(|(_, numbers)| numbers) {
        file.write_all(&number.to_le_bytes()).map_err(failed)?;
    }
    file.flush().map_err(failed)
}

/// Reads moments after this many steps; `trained` is the number of trained parameters.
pub(crate) fn read_moments(folder: &Path, steps: u32, trained: usize) -> Result<Moments, ModelError> {
    let mut stored = read(&folder.join(OPTIMIZER))?;
    let moments =
        Moments { steps, means: take(&mut stored, "means")?, squares: take(&mut stored, "squares")? };
    if steps > 0 && (moments.means.len() != trained || moments.squares.len() != trained) {
        let (found, expected) = (vec![moments.means.len()], vec![trained]);
        return Err(ModelError::WrongShape { name: "means".to_owned(), found, expected });
    }
    Ok(moments)
}

fn write(path: &Path, tensors: HashMap<String, Tensor>) -> Result<(), ModelError> {
    candle_core::safetensors::save(&tensors, path)
        .map_err(|e| ModelError::Write { path: path.to_owned(), reason: e.to_string() })
}

fn read(path: &Path) -> Result<HashMap<String, Tensor>, ModelError> {
    candle_core::safetensors::load(path, &Device::Cpu)
        .map_err(|e| ModelError::File { path: path.to_owned(), reason: e.to_string() })
}

fn take(stored: &mut HashMap<String, Tensor>, name: &str) -> Result<Vec<f32>, ModelError> {
    let tensor = stored.remove(name).ok_or_else(|| ModelError::Missing(name.to_owned()))?;
    Ok(tensor.flatten_all()?.to_vec1()?)
}
