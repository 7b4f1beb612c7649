//! GGUF files: metadata, the model's shape, and its weights under the names and in the layout
//! of Hugging Face checkpoints, dequantized to float32. Tokenizers are built elsewhere, from
//! the metadata returned here.
//!
//! Format and key names: ggml's `docs/gguf.md`. Tensor names and layout: llama.cpp's
//! `convert_hf_to_gguf.py` and `gguf-py/gguf/constants.py`. Architectures are in `architecture.rs`.

mod architecture;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::{Device, Tensor, Var};

use super::checkpoint::first_line;
use super::shape::head_width;
use super::{Checkpoint, Factor, Family, Llama3, ModelError, Rope, Scaling, Shape, Variant, Yarn};
use architecture::{Architecture, Keys};

/// A GGUF file with its header read.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    content: Content,
}

/// A file that tracks its read position. candle asks for the position before each string. A
/// tokenizer has a hundred thousand strings, and a plain file would make a system call each time.
struct Counted {
    file: BufReader<File>,
    at: u64,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(into)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Counted {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.at = self.file.seek(to)?;
        Ok(self.at)
    }

    fn stream_position(&mut self) -> std::io::Result<u64> {
        Ok(self.at)
    }
}

impl Gguf {
    /// Reads a file's header: its metadata and the list of its tensors, without their numbers.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let file = File::open(path).map_err(|e| ModelError::file(path, &e))?;
        let mut file = Counted { file: BufReader::new(file), at: 0 };
        let mut magic = [0; 4];
        if file.read_exact(&mut magic).is_err() || magic != *b"GGUF" {
            return Err(ModelError::Foreign {
                path: path.to_owned(),
                reason: "is no GGUF file".to_owned(),
                hint: "a model is a GGUF file, or a folder with `config.json` and safetensors",
            });
        }
        file.rewind().map_err(|e| ModelError::file(path, &e))?;
        let content = Content::read(&mut file).map_err(|e| ModelError::File {
            path: path.to_owned(),
            reason: format!("it is cut off, or of a kind of GGUF that is not known ({})", first_line(&e)),
        })?;
        let gguf = Self { path: path.to_owned(), content };
        match gguf.number("split.count") {
            Some(parts @ 2..) => Err(ModelError::Foreign {
                path: path.to_owned(),
                reason: format!("is one of {parts} parts of a model"),
                hint: "join them with `llama-gguf-split --merge`",
            }),
            _ => Ok(gguf),
        }
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a string of the metadata.
    pub fn text(&self, key: &str) -> Option<&str> {
        text(self.content.metadata.get(key)?)
    }

    /// Returns a whole number of the metadata, of any integer type.
    pub fn number(&self, key: &str) -> Option<u64> {
        number(self.content.metadata.get(key)?)
    }

    /// Returns a fraction of the metadata. A 32-bit float is read as its shortest decimal, so that
    /// 1e-5 is 1e-5, as in the original `config.json`.
    pub fn fraction(&self, key: &str) -> Option<f64> {
        match self.content.metadata.get(key)? {
            Value::F32(value) => value.to_string().parse().ok(),
            Value::F64(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns a boolean of the metadata.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.content.metadata.get(key)?.to_bool().ok()
    }

    /// Returns a list of strings of the metadata.
    pub fn texts(&self, key: &str) -> Option<Vec<&str>> {
        self.content.metadata.get(key)?.to_vec().ok()?.iter().map(text).collect()
    }

    /// Returns a list of whole numbers of the metadata.
    pub fn numbers(&self, key: &str) -> Option<Vec<u64>> {
        self.content.metadata.get(key)?.to_vec().ok()?.iter().map(number).collect()
    }

    /// Returns a list of fractions of the metadata.
    pub fn fractions(&self, key: &str) -> Option<Vec<f32>> {
        self.content.metadata.get(key)?.to_vec().ok()?.iter().map(|value| value.to_f32().ok()).collect()
    }

    /// Returns whether the metadata has a key.
    fn has(&self, key: &str) -> bool {
        self.content.metadata.contains_key(key)
    }

    /// Returns the model's shape, from the metadata and the list of tensors.
    pub fn shape(&self) -> Result<Shape, ModelError> {
        let arch = self.architecture()?;
        self.shape_of(arch).map_err(|reason| self.says(reason))
    }

    fn architecture(&self) -> Result<&'static Architecture, ModelError> {
        let arch = self.text("general.architecture").unwrap_or("unknown");
        Architecture::named(arch).map_err(|reason| self.says(reason))
    }

    fn shape_of(&self, arch: &Architecture) -> Result<Shape, String> {
        let family = Family::named(arch.family)?;
        let keys = Keys { gguf: self, arch: arch.name };
        let (hidden, heads) = (keys.needed("embedding_length")?, keys.needed("attention.head_count")?);
        let kv_heads = keys.number("attention.head_count_kv").unwrap_or(heads);
        let head = head_width(heads, kv_heads, hidden, keys.number("attention.key_length"))?;
        for (name, usual) in
            [("attention.value_length", head), ("rope.dimension_count", head), ("expert_count", 0)]
        {
            let other = keys.number(name).filter(|n| *n != usual);
            if let Some(other) = other.filter(|_| !(name == "expert_count" && arch.name == "qwen3moe")) {
                return Err(format!("`{}` is {other}; only {usual} is known here", keys.name(name)));
            }
        }
        let epsilon = "attention.layer_norm_rms_epsilon";
        let theta = keys.fraction("rope.freq_base").unwrap_or(10_000.0);
        let embedding = "token_embd.weight";
        let dims =
            self.dims(embedding).ok_or_else(|| ModelError::Missing(embedding.to_owned()).to_string())?;
        let mut shape = Shape {
            family,
            vocabulary: dims.first().copied().unwrap_or(0),
            hidden,
            intermediate: keys.needed("feed_forward_length")?,
            layers: keys.needed("block_count")?,
            heads,
            kv_heads,
            head,
            epsilon: keys
                .fraction(epsilon)
                .ok_or_else(|| format!("it has no number `{}`", keys.name(epsilon)))?,
            rope: Rope { theta, scaling: self.scaling(&keys, theta, head)? },
            tied: self.dims("output.weight").is_none(),
            context: keys.number("context_length").unwrap_or(2048),
            variant: Variant::default(),
        };
        // Lists of layers are built below.
        shape.check()?;
        (arch.read)(&keys, &mut shape)?;
        shape.check()?;
        Ok(shape)
    }

    /// Returns the weights. Every tensor of the file must have a place in the model.
    pub fn checkpoint(&self, device: &Device) -> Result<Checkpoint, ModelError> {
        let (arch, shape) = (self.architecture()?, self.shape()?);
        let mut file = BufReader::new(File::open(&self.path).map_err(|e| ModelError::file(&self.path, &e))?);
        let mut unused: Vec<&String> = self.content.tensor_infos.keys().collect();
        unused.sort_unstable();
        let mut weights = BTreeMap::new();
        // Matrices of all experts of a layer; the file has one tensor for each kind.
        let mut stacks: BTreeMap<String, Tensor> = BTreeMap::new();
        for (name, expected) in shape.tensors() {
            let stacked = stack_of(&name).zip(shape.variant.experts);
            let theirs = stacked
                .as_ref()
                .map_or_else(|| their_name(&name, shape.family), |((stack, _), _)| stack.clone());
            let expected = match &stacked {
                Some((_, experts)) => [&[experts.count][..], &expected].concat(),
                None => expected,
            };
            // Checked before any number is read: a damaged header may ask for more memory than there is.
            let Some(found) = self.dims(&theirs) else {
                return Err(ModelError::Missing(theirs).within(&self.path));
            };
            if found != expected {
                let error = ModelError::WrongShape { name: theirs, found: found.to_vec(), expected };
                return Err(error.within(&self.path));
            }
            unused.retain(|other| **other != theirs);
            let mut read = || {
                let read = self.content.tensor(&mut file, &theirs, device).and_then(|q| q.dequantize(device));
                read.map_err(|e| ModelError::File {
                    path: self.path.clone(),
                    reason: format!("it is cut off or damaged at tensor `{theirs}` ({})", first_line(&e)),
                })
            };
            let tensor = match &stacked {
                Some(((_, expert), experts)) => {
                    let stack = match stacks.remove(&theirs) {
                        Some(stack) => stack,
                        None => read()?,
                    };
                    let own = stack.get(*expert)?.contiguous()?;
                    if expert + 1 < experts.count {
                        stacks.insert(theirs, stack);
                    }
                    own
                }
                None => read()?,
            };
            let tensor = match interleaved_heads(&name, &shape).filter(|_| arch.is_interleaved) {
                Some(heads) => halves(&tensor, heads)?,
                // llama.cpp stores the factors themselves.
                None if shape.family.shifted && name.ends_with("norm.weight") => (tensor - 1.0)?,
                None => tensor,
            };
            weights.insert(name, Var::from_tensor(&tensor)?);
        }
        match unused.into_iter().find(|name| *name != SCALES) {
            Some(name) => Err(ModelError::Unused(name.clone()).within(&self.path)),
            None => Ok(Checkpoint { shape, weights }),
        }
    }

    /// Returns the scaling of the rotary frequencies. For Llama 3's scaling, llama.cpp stores the
    /// divisor of each frequency, not the four numbers behind them. They are reconstructed, because
    /// exporting needs them; all of Meta's models use 1 and 4 for two of them.
    fn scaling(&self, keys: &Keys<'_>, theta: f64, head: usize) -> Result<Scaling, String> {
        let kind = self.text(&keys.name("rope.scaling.type")).unwrap_or("none");
        // Older files have only a factor.
        let linear = keys.fraction("rope.scale_linear").filter(|factor| *factor != 1.0);
        let factor = keys.fraction("rope.scaling.factor").or(linear);
        let needed = || {
            let key = keys.name("rope.scaling.factor");
            factor.ok_or_else(|| format!("its rotary embedding is scaled (`{kind}`), and it has no `{key}`"))
        };
        match kind {
            "none" => {
                if let Some(factor) = linear {
                    return Ok(Scaling::Linear(Factor { factor }));
                }
            }
            "linear" => return Ok(Scaling::Linear(Factor { factor: needed()? })),
            "yarn" => return self.yarn(keys, needed()?).map(Scaling::Yarn),
            other => {
                return Err(format!(
                    "its rotary embedding is scaled in the way `{other}`; linear, yarn and llama3 are known"
                ));
            }
        }
        Ok(self.llama3(theta, head)?.map_or(Scaling::None, Scaling::Llama3))
    }

    fn yarn(&self, keys: &Keys<'_>, factor: f64) -> Result<Yarn, String> {
        // transformers and llama.cpp interpret these differently.
        for key in
            ["rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_ext_factor"]
        {
            if self.has(&keys.name(key)) {
                return Err(format!(
                    "its rotary embedding has a `{}`, which is not known here",
                    keys.name(key)
                ));
            }
        }
        let old = "rope.scaling.original_context_length";
        Ok(Yarn {
            factor,
            original_max_position_embeddings: keys.needed(old)? as f64,
            beta_fast: keys.fraction("rope.scaling.yarn_beta_fast"),
            beta_slow: keys.fraction("rope.scaling.yarn_beta_slow"),
            attention_factor: None,
            mscale: None,
            mscale_all_dim: None,
            truncate: None,
        })
    }

    /// Returns Llama 3's scaling, if there is one.
    fn llama3(&self, theta: f64, head: usize) -> Result<Option<Llama3>, String> {
        let Some(dims) = self.dims(SCALES) else { return Ok(None) };
        let wrong = || format!("`{SCALES}` is not Llama 3's scaling, the one that is known");
        if dims != [head / 2] {
            return Err(wrong());
        }
        let mut file = File::open(&self.path).map_err(|e| e.to_string())?;
        let device = Device::Cpu;
        let read = self.content.tensor(&mut file, SCALES, &device).and_then(|q| q.dequantize(&device));
        let scales = read
            .and_then(|t| t.to_vec1::<f32>())
            .map_err(|e| format!("it is cut off or damaged at tensor `{SCALES}` ({})", first_line(&e)))?;
        let factor = f64::from(scales.iter().copied().fold(1.0, f32::max));
        let plain = Rope::plain(theta).frequencies(head);
        let fits = |llama3: &Llama3| {
            let scaled = Rope { theta, scaling: Scaling::Llama3(*llama3) }.frequencies(head);
            plain.iter().zip(&scaled).zip(&scales).all(|((f, s), by)| (f / s - by).abs() < 1e-4 * by)
        };
        let guesses = (5..=20).map(|power| Llama3 {
            factor,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: f64::from(1 << power),
        });
        // For a narrow head several may fit, with the same frequencies. 8192 is Meta's value.
        let mut fitting = guesses.filter(fits).collect::<Vec<_>>();
        fitting.sort_by_key(|guess| guess.original_max_position_embeddings != 8192.0);
        fitting.into_iter().next().map(Some).ok_or_else(wrong)
    }

    /// Returns a tensor's shape, outermost dimension first.
    fn dims(&self, name: &str) -> Option<&[usize]> {
        self.content.tensor_infos.get(name).map(|info| info.shape.dims())
    }

    /// Returns the error of invalid metadata.
    fn says(&self, reason: String) -> ModelError {
        ModelError::Config { path: self.path.clone(), reason }
    }
}

/// The tensor with the divisors of Llama 3's frequencies.
const SCALES: &str = "rope_freqs.weight";

fn text(value: &Value) -> Option<&str> {
    value.to_string().ok().map(String::as_str)
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::U8(n) => Some(u64::from(*n)),
        Value::U16(n) => Some(u64::from(*n)),
        Value::U32(n) => Some(u64::from(*n)),
        Value::U64(n) => Some(*n),
        Value::I8(n) => u64::try_from(*n).ok(),
        Value::I16(n) => u64::try_from(*n).ok(),
        Value::I32(n) => u64::try_from(*n).ok(),
        Value::I64(n) => u64::try_from(*n).ok(),
        _ => None,
    }
}

/// Names of tensors outside blocks: ours and llama.cpp's.
const OUTSIDE: [(&str, &str); 3] =
    [("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];

/// Names of a block's parts except norms: ours and llama.cpp's.
const INSIDE: [(&str, &str); 12] = [
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    // The joined matrix has the name of one of its two parts.
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("mlp.gate", "ffn_gate_inp"),
];

/// Returns llama.cpp's name of a tensor.
fn their_name(name: &str, family: &Family) -> String {
    let (stem, kind) = name.rsplit_once('.').unwrap_or((name, ""));
    let Some((layer, part)) = stem.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')) else {
        let theirs = OUTSIDE.iter().find(|(ours, _)| *ours == stem).map_or(stem, |(_, theirs)| theirs);
        return format!("{theirs}.{kind}");
    };
    // A norm's name in transformers depends on which other norms exist.
    let [attention, feed_forward] = family.norms;
    let norms = [
        (attention.before, "attn_norm"),
        (attention.after, "post_attention_norm"),
        (feed_forward.before, "ffn_norm"),
        (feed_forward.after, "post_ffw_norm"),
    ];
    let norms = norms.into_iter().filter_map(|(ours, theirs)| Some((ours?, theirs)));
    let theirs = norms.chain(INSIDE).find(|(ours, _)| *ours == part).map_or(part, |(_, theirs)| theirs);
    format!("blk.{layer}.{theirs}.{kind}")
}

/// Returns the place of an expert's matrix: the tensor of its layer, `[experts, …]`, and its index.
fn stack_of(name: &str) -> Option<(String, usize)> {
    let (layer, rest) = name.strip_prefix("model.layers.")?.split_once(".mlp.experts.")?;
    let (expert, part) = rest.split_once('.')?;
    let part = part.strip_suffix("_proj.weight")?;
    Some((format!("blk.{layer}.ffn_{part}_exps.weight"), expert.parse().ok()?))
}

/// Returns the number of heads if llama.cpp reorders the tensor's rows for rope: queries and keys.
fn interleaved_heads(name: &str, shape: &Shape) -> Option<usize> {
    if name.contains(".q_proj.") {
        Some(shape.heads)
    } else if name.contains(".k_proj.") {
        Some(shape.kv_heads)
    } else {
        None
    }
}

/// Reverses llama.cpp's row order: `[heads · E, …]` to the same shape. llama.cpp pairs
/// neighboring dimensions of a head, Hugging Face the two halves. `LlamaModel.permute` in
/// `convert_hf_to_gguf.py` moves row `half · E/2 + i` of each head to `2 i + half`.
fn halves(tensor: &Tensor, heads: usize) -> Result<Tensor, ModelError> {
    let rows = tensor.dim(0)?;
    let width = tensor.elem_count() / rows.max(1);
    let pairs = tensor.reshape((heads, rows / heads / 2, 2, width))?;
    Ok(pairs.transpose(1, 2)?.contiguous()?.reshape(tensor.dims())?)
}
