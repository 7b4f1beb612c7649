//! Checkpoints: a model's weights, read from a folder in Hugging Face layout or a GGUF file,
//! and written as such a folder. Tokenizers are handled elsewhere.

pub use allot_settings::Precision;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use candle_core::safetensors::SliceSafetensors;
use candle_core::{DType, Device, Tensor, Var};
use serde::Deserialize;

use super::{Gguf, ModelError, Shape, SpecialIds, file, safetensors};

/// A model's weights as trainable variables, by their names in the checkpoint.
#[derive(Debug)]
pub struct Checkpoint {
    /// The model's shape.
    pub shape: Shape,
    /// The weights, in float32.
    pub weights: BTreeMap<String, Var>,
}

/// candle's name for a precision.
pub(crate) fn dtype(precision: Precision) -> DType {
    match precision {
        Precision::F32 => DType::F32,
        Precision::Bf16 => DType::BF16,
    }
}

/// Maximum size of a shard index, in bytes.
const LARGEST_INDEX: u64 = 64 << 20;

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Checkpoint {
    /// Loads a folder in Hugging Face layout or a GGUF file. Weights are converted to float32.
    /// Every tensor of the config must exist with its shape; an unknown tensor is an error if its
    /// name begins with `model.`.
    pub fn load(path: &Path, device: &Device) -> Result<Self, ModelError> {
        if path.is_file() {
            return Gguf::open(path)?.checkpoint(device);
        }
        let config = path.join("config.json");
        if path.is_dir() && !config.is_file() && has(path, |file| ends(file, "gguf")) {
            return Err(ModelError::Foreign {
                path: path.to_owned(),
                reason: "has no `config.json`, but GGUF files".to_owned(),
                hint: "name the GGUF file itself",
            });
        }
        Self::load_as(path, Shape::read(&config)?, device)
    }

    /// Loads a folder with a known shape.
    fn load_as(folder: &Path, shape: Shape, device: &Device) -> Result<Self, ModelError> {
        let places = shape.tensors();
        let (mut weights, mut spare_head) = (BTreeMap::new(), None);
        for file in files(folder)? {
            let bytes = std::fs::read(&file).map_err(|e| ModelError::file(&file, &e))?;
            let stored = opened(&file, &bytes)?;
            let mut names: BTreeSet<String> = stored.tensors().into_iter().map(|(name, _)| name).collect();
            let read = |name: &str| tensor(&stored, name, device).map_err(|e| e.within(&file));
            for (name, expected) in &places {
                if !names.remove(name) {
                    continue;
                }
                let tensor = read(name)?;
                if tensor.dims() != expected {
                    let (found, expected) = (tensor.dims().to_vec(), expected.clone());
                    return Err(ModelError::WrongShape { name: name.clone(), found, expected }.within(&file));
                }
                weights.insert(name.clone(), Var::from_tensor(&tensor)?);
            }
            for name in names {
                if name == "lm_head.weight" && shape.tied {
                    spare_head = Some(read(&name)?);
                } else if name.starts_with("model.") && !name.ends_with(".rotary_emb.inv_freq") {
                    // Ignoring it would silently load a different model. Old versions of transformers saved
                    // rotary frequencies; they follow from the config.
                    return Err(ModelError::Unused(name).within(&file));
                }
            }
        }
        if let Some((missing, _)) = places.iter().find(|(name, _)| !weights.contains_key(name)) {
            if missing == "lm_head.weight" {
                return Err(head(folder, "is not the embedding", "there is no `lm_head.weight`"));
            }
            return Err(ModelError::Missing(missing.clone()).within(folder));
        }
        // Some published folders contain a copy of the embedding. transformers 4 drops it unseen.
        if let (Some(spare), Some(embedding)) = (spare_head, weights.get("model.embed_tokens.weight"))
            && !same(&spare, embedding)?
        {
            return Err(head(folder, "is the embedding", "its `lm_head.weight` is another tensor"));
        }
        Ok(Self { shape, weights })
    }

    /// Writes `config.json` and `model.safetensors` for transformers 4 and 5 into a new or empty
    /// folder. Tokenizer files are not written. Equal weights give equal bytes.
    pub fn export(
        &self,
        folder: &Path,
        precision: Precision,
        special: &SpecialIds,
    ) -> Result<(), ModelError> {
        std::fs::create_dir_all(folder).map_err(|e| ModelError::write(folder, &e))?;
        if has(folder, |_| true) {
            return Err(ModelError::Foreign {
                path: folder.to_owned(),
                reason: "is not empty".to_owned(),
                hint: "a model is written into a new folder, over nothing that is there",
            });
        }
        let config = folder.join("config.json");
        let text = format!("{:#}\n", self.shape.config(precision, special));
        std::fs::write(&config, text).map_err(|e| ModelError::write(&config, &e))?;
        self.write(&folder.join("model.safetensors"), precision)
    }

    /// Writes the weights in the safetensors format.
    fn write(&self, path: &Path, precision: Precision) -> Result<(), ModelError> {
        let tensors = self.weights.iter().map(|(name, var)| (name.as_str(), var.dims().to_vec()));
        let head = safetensors::head(Some("pt"), precision, tensors);
        let failed = |e: std::io::Error| ModelError::write(path, &e);
        let mut file = std::io::BufWriter::new(std::fs::File::create(path).map_err(failed)?);
        file.write_all(&head).map_err(failed)?;
        for var in self.weights.values() {
            var.as_detached_tensor()
                .to_dtype(dtype(precision))?
                .write_bytes(&mut file)
                .map_err(|e| ModelError::Write { path: path.to_owned(), reason: first_line(&e) })?;
        }
        file.flush().map_err(failed)
    }
}

/// Returns the first line of a library's error.
pub(super) fn first_line(error: &candle_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Returns the safetensors files of a folder: the shards named by its index, or the single file.
fn files(folder: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let index = folder.join("model.safetensors.index.json");
    if !index.is_file() {
        let file = folder.join("model.safetensors");
        if !file.is_file() && has(folder, |file| ends(file, "bin") || ends(file, "pth")) {
            return Err(ModelError::Foreign {
                path: folder.to_owned(),
                reason: "has its weights as PyTorch pickles, which are not read".to_owned(),
                hint: "transformers writes safetensors: `AutoModelForCausalLM.from_pretrained(…).save_pretrained(…)`",
            });
        }
        return Ok(vec![file]);
    }
    let text = file::text(&index, LARGEST_INDEX)?;
    let map: Index = serde_json::from_str(&text)
        .map_err(|e| ModelError::Config { path: index.clone(), reason: e.to_string() })?;
    let mut names: Vec<&String> = map.weight_map.values().collect();
    names.sort_unstable();
    names.dedup();
    // A name that leads out of the folder is not a shard of this model.
    if let Some(bad) = names.iter().find(|n| Path::new(n).components().count() != 1) {
        return Err(ModelError::Config { path: index, reason: format!("`{bad}` is no file of this folder") });
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// Returns whether a folder contains a file that matches.
fn has(folder: &Path, such: impl Fn(&Path) -> bool) -> bool {
    std::fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| such(&entry.path()))
}

fn ends(file: &Path, extension: &str) -> bool {
    file.extension().is_some_and(|own| own == extension)
}

/// Parses a safetensors file's header and checks it against the file's length.
fn opened<'a>(path: &Path, bytes: &'a [u8]) -> Result<SliceSafetensors<'a>, ModelError> {
    if bytes.starts_with(b"version https://git-lfs") {
        return Err(ModelError::Foreign {
            path: path.to_owned(),
            reason: "is a Git LFS pointer, not the weights".to_owned(),
            hint: "fetch them with `git lfs pull`",
        });
    }
    SliceSafetensors::new(bytes).map_err(|e| ModelError::File {
        path: path.to_owned(),
        reason: format!("it is cut off, or no safetensors file ({})", first_line(&e)),
    })
}

/// Returns one tensor, in float32.
fn tensor(stored: &SliceSafetensors<'_>, name: &str, device: &Device) -> Result<Tensor, ModelError> {
    let kind = stored.get(name)?.dtype();
    match DType::try_from(kind) {
        Ok(DType::F32 | DType::F16 | DType::BF16) => Ok(stored.load(name, device)?.to_dtype(DType::F32)?),
        _ => Err(ModelError::WrongKind { name: name.to_owned(), stored: format!("{kind:?}").to_lowercase() }),
    }
}

/// Returns the error of a head that contradicts the config.
fn head(folder: &Path, said: &str, found: &str) -> ModelError {
    ModelError::Foreign {
        path: folder.join("config.json"),
        reason: format!("says that the head {said} (`tie_word_embeddings`), but {found}"),
        hint: "set `tie_word_embeddings` to what the weights are, or load the model whose weights these are",
    }
}

/// Returns whether two tensors have equal shapes and numbers.
fn same(a: &Tensor, b: &Tensor) -> Result<bool, ModelError> {
    if a.dims() != b.dims() {
        return Ok(false);
    }
    Ok(a.ne(b)?.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()? == 0.0)
}
