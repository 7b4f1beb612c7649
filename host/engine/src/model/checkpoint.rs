//! Checkpoints in Hugging Face layout: `config.json` and safetensors, in one file or in shards.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor, Var};
use serde::Deserialize;

use super::{ModelError, Shape};

/// A model's weights, as variables that can be trained, by their names in the checkpoint.
#[derive(Debug)]
pub struct Checkpoint {
    /// The model's shape.
    pub shape: Shape,
    /// The weights, in float32.
    pub weights: BTreeMap<String, Var>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Checkpoint {
    /// Loads a folder. Weights are turned into float32, whatever they are stored as; every tensor
    /// that the config asks for must be there in its shape.
    pub fn load(folder: &Path, device: &Device) -> Result<Self, ModelError> {
        Self::load_as(folder, Shape::read(&folder.join("config.json"))?, device)
    }

    /// The same, for a shape that was read elsewhere.
    pub fn load_as(folder: &Path, shape: Shape, device: &Device) -> Result<Self, ModelError> {
        let mut stored: BTreeMap<String, Tensor> = BTreeMap::new();
        for file in files(folder)? {
            let tensors = candle_core::safetensors::load(&file, device)
                .map_err(|e| ModelError::File { path: file.clone(), reason: e.to_string() })?;
            stored.extend(tensors);
        }
        let mut weights = BTreeMap::new();
        for (name, expected) in shape.tensors() {
            let tensor = stored.remove(&name).ok_or_else(|| ModelError::Missing(name.clone()))?;
            if tensor.dims() != expected {
                return Err(ModelError::WrongShape { name, found: tensor.dims().to_vec(), expected });
            }
            let var = Var::from_tensor(&tensor.to_dtype(DType::F32)?)?;
            weights.insert(name, var);
        }
        Ok(Self { shape, weights })
    }

    /// Writes the weights as one safetensors file, in float32.
    pub fn save(&self, path: &Path) -> Result<(), ModelError> {
        let tensors =
            self.weights.iter().map(|(name, var)| (name.clone(), var.as_detached_tensor())).collect();
        candle_core::safetensors::save(&tensors, path)
            .map_err(|e| ModelError::File { path: path.to_owned(), reason: e.to_string() })
    }
}

/// The safetensors files of a folder: the shards that its index names, or the one file.
fn files(folder: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let index = folder.join("model.safetensors.index.json");
    if !index.is_file() {
        return Ok(vec![folder.join("model.safetensors")]);
    }
    let text = std::fs::read_to_string(&index)
        .map_err(|e| ModelError::File { path: index.clone(), reason: e.to_string() })?;
    let map: Index = serde_json::from_str(&text)
        .map_err(|e| ModelError::Config { path: index.clone(), reason: e.to_string() })?;
    let mut names: Vec<&String> = map.weight_map.values().collect();
    names.sort_unstable();
    names.dedup();
    // A name that leads out of the folder is no shard of this model.
    if let Some(bad) = names.iter().find(|n| Path::new(n).components().count() != 1) {
        return Err(ModelError::Config { path: index, reason: format!("`{bad}` is no file of this folder") });
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}
