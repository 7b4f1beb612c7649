//! A model's shape, read from and written to `config.json`, with the field names of
//! transformers 5 and of published repositories (transformers 4).

use std::path::Path;

use serde_json::{Map, Value, json};

use super::config::{Config, Own, known};
use super::{Family, HeadNorms, ModelError, Precision, Rope, Scaling, Variant, file};

/// Maximum size of a `config.json`, in bytes.
const LARGEST: u64 = 16 << 20;

/// A model's shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// The model's family.
    pub family: &'static Family,
    /// Tokens in the vocabulary, padding included.
    pub vocabulary: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width inside the feed-forward blocks.
    pub intermediate: usize,
    /// Blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head: usize,
    /// Added to the mean square in a norm.
    pub epsilon: f64,
    /// Rotary embedding.
    pub rope: Rope,
    /// Whether the head is the embedding.
    pub tied: bool,
    /// Longest sequence that the model was made for, in tokens.
    pub context: usize,
    /// Features that only some models have.
    pub variant: Variant,
}

/// The implementation that computes a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The CPU core or candle's operations.
    Cpu,
    /// GPU kernels.
    Kernels,
}

/// The special tokens in a model's config. They are not part of its shape: when a folder is
/// written they come from the tokenizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// Begins a text.
    pub bos: Option<u32>,
    /// End an answer.
    pub eos: Vec<u32>,
    /// Pads a batch.
    pub pad: Option<u32>,
}

impl Shape {
    /// Returns whether attention is in bf16, too, where products are. Narrower heads would be zeros for the most part in what
    /// the processor multiplies at a time, and are faster in float32.
    pub(crate) fn rounds_attention(&self) -> bool {
        self.head >= 32
    }

    /// Returns the name of the head's tensor.
    pub(crate) fn head_name(&self) -> &'static str {
        if self.tied { "model.embed_tokens.weight" } else { "lm_head.weight" }
    }

    /// Reads a `config.json`.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let text = file::text(path, LARGEST)?;
        Self::parse(&text).map_err(|reason| ModelError::Config { path: path.to_owned(), reason })
    }

    /// Parses the text of a `config.json`.
    pub fn parse(text: &str) -> Result<Self, String> {
        // Checked first: configs of other architectures also lack other fields.
        let kind: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let family = match kind["model_type"].as_str() {
            Some(name) => Family::named(name)?,
            None => return Err("it has no `model_type`, so it is no model's config".to_owned()),
        };
        let Value::Object(all) = kind.clone() else {
            return Err("it is no table".to_owned());
        };
        let config: Config = serde_json::from_value(kind).map_err(|e| e.to_string())?;
        supported(family, &config, &all)?;
        let kv_heads = config.num_key_value_heads.unwrap_or(config.num_attention_heads);
        let head = head_width(config.num_attention_heads, kv_heads, config.hidden_size, config.head_dim)?;
        let context = config.max_position_embeddings.unwrap_or(2048);
        let (parameters, local) = rope_tables(config.rope_parameters, context)?;
        let variant = Variant { local, ..Variant::default() };
        let rope = Rope::read(parameters, config.rope_scaling, config.rope_theta, family.theta, context)?;
        let mut shape = Self {
            family,
            vocabulary: config.vocab_size,
            hidden: config.hidden_size,
            intermediate: config.intermediate_size,
            layers: config.num_hidden_layers,
            heads: config.num_attention_heads,
            kv_heads,
            head,
            epsilon: config.rms_norm_eps,
            rope,
            // transformers' default.
            tied: config.tie_word_embeddings.unwrap_or(family.tied),
            context,
            variant,
        };
        // Lists of layers are built below.
        shape.check()?;
        (family.read)(&Own(&all), &mut shape)?;
        if shape.variant.local.is_some() && shape.variant.sliding.is_empty() {
            return Err(format!(
                "`rope_parameters` has two tables, which is not known for `{}`",
                family.name
            ));
        }
        shape.check()?;
        Ok(shape)
    }

    /// Checks the sizes against bounds. Larger values mean a damaged file or a typo, and exceed the
    /// memory of any machine. Returns an error message with transformers' names.
    pub fn check(&self) -> Result<(), String> {
        let mut sizes = vec![
            ("vocab_size", self.vocabulary, 1 << 24),
            ("hidden_size", self.hidden, 1 << 16),
            ("intermediate_size", self.intermediate, 1 << 19),
            ("num_hidden_layers", self.layers, 1 << 11),
            ("num_attention_heads", self.heads, 1 << 10),
            ("num_key_value_heads", self.kv_heads, 1 << 10),
            ("head_dim", self.head, 1 << 11),
            ("max_position_embeddings", self.context, 1 << 30),
        ];
        if let Some(experts) = self.variant.experts {
            sizes.extend([
                ("num_experts", experts.count, 1 << 12),
                ("num_experts_per_tok", experts.active, experts.count),
                ("moe_intermediate_size", experts.intermediate, 1 << 19),
            ]);
        }
        if let Some((key, size, most)) = sizes.into_iter().find(|(_, size, most)| !(1..=*most).contains(size))
        {
            return Err(format!("`{key}` is {size}; it is from 1 to {most}"));
        }
        if !(self.epsilon.is_finite() && self.epsilon >= 0.0) {
            return Err(format!("`rms_norm_eps` is {}; it is 0 or more", self.epsilon));
        }
        self.rope.check()?;
        self.variant.local.map_or(Ok(()), |local| local.check())
    }

    /// Returns the longest sequence that the model was made for, in tokens, and the part of the model
    /// that sets it. GPU kernels do not compute sliding windows, so there a sequence must fit into one.
    pub fn most(&self, by: By) -> (usize, &'static str) {
        match self.variant.window.filter(|window| by == By::Kernels && *window < self.context) {
            Some(window) => (window, "sliding window"),
            None => (self.context, "context"),
        }
    }

    /// Returns an error if sequences of `longest` tokens cannot be computed. Beyond its context a
    /// model only gets worse, but a dynamic rotary embedding or a skipped window would be wrong.
    pub(crate) fn fits(&self, longest: usize, by: By) -> Result<(), ModelError> {
        let dynamic = matches!(self.rope.scaling, Scaling::Dynamic(_));
        let (most, what) = self.most(by);
        let windowed = by == By::Kernels && self.variant.window.is_some_and(|window| longest > window);
        if longest > most && (dynamic || windowed) {
            return Err(ModelError::TooLong { longest, most, what });
        }
        Ok(())
    }

    /// Returns the sliding window of a layer in tokens, including the token itself, if it has one.
    pub fn window(&self, layer: usize) -> Option<usize> {
        let has_one = self.variant.sliding.get(layer).copied().unwrap_or(self.variant.sliding.is_empty());
        self.variant.window.filter(|_| has_one)
    }

    /// Returns the factor of attention scores.
    pub fn scale(&self) -> f64 {
        self.variant.attention.unwrap_or_else(|| (self.head as f64).powf(-0.5))
    }

    /// Returns the rotary embedding of a layer, if it has one.
    pub fn rope(&self, layer: usize) -> Option<&Rope> {
        let is = |layers: &[bool]| layers.get(layer).copied().unwrap_or(false);
        if is(&self.variant.unrotated) {
            return None;
        }
        Some(self.variant.local.as_ref().filter(|_| is(&self.variant.sliding)).unwrap_or(&self.rope))
    }

    /// Checks whether GPU kernels can compute the model: they are written for Llama and Qwen.
    pub fn has_kernels(&self) -> Result<(), String> {
        let window = Variant { window: self.variant.window, ..Variant::default() };
        let (family, plain) = (self.family, Family::LLAMA);
        let alike = family.norms == plain.norms
            && family.head_norms != HeadNorms::Whole
            && !family.fused
            && !family.shifted
            && family.activation == plain.activation
            && self.variant == window
            && !matches!(self.rope.scaling, Scaling::Yarn(_));
        if alike { Ok(()) } else { Err(format!("there are no kernels for what `{}` needs", family.name)) }
    }

    /// Returns a `config.json`. The number format and the rotary embedding have different names in
    /// transformers 4 and 5 and are written under both.
    pub(super) fn config(&self, precision: Precision, special: &SpecialIds) -> Value {
        let dtype = match precision {
            Precision::F32 => "float32",
            Precision::Bf16 => "bfloat16",
        };
        let eos = match special.eos.as_slice() {
            [] => Value::Null,
            [one] => json!(one),
            several => json!(several),
        };
        let (scaling, rope) = self.rope.config();
        let mut config = json!({
            "architectures": [self.family.class],
            "attention_dropout": 0.0,
            "bos_token_id": special.bos,
            "dtype": dtype,
            "eos_token_id": eos,
            "head_dim": self.head,
            self.family.activation_key: self.family.activation.name(),
            "hidden_size": self.hidden,
            "initializer_range": 0.02,
            "intermediate_size": self.intermediate,
            "max_position_embeddings": self.context,
            "model_type": self.family.name,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "pad_token_id": special.pad,
            "rms_norm_eps": self.epsilon,
            "rope_parameters": rope,
            "rope_scaling": scaling,
            "rope_theta": self.rope.theta,
            "tie_word_embeddings": self.tied,
            "torch_dtype": dtype,
            "use_cache": true,
            "vocab_size": self.vocabulary,
        });
        (self.family.write)(self, &mut config);
        config
    }

    /// Returns the name in a checkpoint and the shape of every tensor.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (d, f) = (self.hidden, self.intermediate);
        let (q, kv) = (self.heads * self.head, self.kv_heads * self.head);
        let mut all = vec![("model.embed_tokens.weight".to_owned(), vec![self.vocabulary, d])];
        for layer in 0..self.layers {
            let mut add = |name: &str, shape: &[usize]| {
                all.push((format!("model.layers.{layer}.{name}"), shape.to_vec()));
            };
            let [attention, feed_forward] = self.family.norms;
            if let Some(norm) = attention.before {
                add(&format!("{norm}.weight"), &[d]);
            }
            if self.family.fused {
                add("self_attn.qkv_proj.weight", &[q + 2 * kv, d]);
            } else {
                for (name, rows) in [("q_proj", q), ("k_proj", kv), ("v_proj", kv)] {
                    add(&format!("self_attn.{name}.weight"), &[rows, d]);
                    if self.family.bias {
                        add(&format!("self_attn.{name}.bias"), &[rows]);
                    }
                }
            }
            if let Some([query, key]) = self.head_norms() {
                add("self_attn.q_norm.weight", &[query]);
                add("self_attn.k_norm.weight", &[key]);
            }
            add("self_attn.o_proj.weight", &[d, q]);
            for norm in attention.after.into_iter().chain(feed_forward.before) {
                add(&format!("{norm}.weight"), &[d]);
            }
            if let Some(experts) = self.variant.experts {
                add("mlp.gate.weight", &[experts.count, d]);
                for expert in 0..experts.count {
                    let f = experts.intermediate;
                    for (name, shape) in [("gate", [f, d]), ("up", [f, d]), ("down", [d, f])] {
                        add(&format!("mlp.experts.{expert}.{name}_proj.weight"), &shape);
                    }
                }
            } else {
                if self.family.fused {
                    add("mlp.gate_up_proj.weight", &[2 * f, d]);
                } else {
                    add("mlp.gate_proj.weight", &[f, d]);
                    add("mlp.up_proj.weight", &[f, d]);
                }
                add("mlp.down_proj.weight", &[d, f]);
            }
            if let Some(norm) = feed_forward.after {
                add(&format!("{norm}.weight"), &[d]);
            }
        }
        all.push(("model.norm.weight".to_owned(), vec![d]));
        if !self.tied {
            all.push(("lm_head.weight".to_owned(), vec![self.vocabulary, d]));
        }
        all
    }

    /// Returns the widths of the norms of queries and keys, if there are any.
    pub fn head_norms(&self) -> Option<[usize; 2]> {
        match self.family.head_norms {
            HeadNorms::None => None,
            HeadNorms::Each => Some([self.head; 2]),
            HeadNorms::Whole => Some([self.heads * self.head, self.kv_heads * self.head]),
        }
    }

    /// Returns the number of parameters.
    pub fn parameters(&self) -> usize {
        self.tensors().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }
}

/// Returns the width of a head: as given, or hidden width per query head; an error for impossible heads.
pub(super) fn head_width(
    heads: usize,
    kv_heads: usize,
    hidden: usize,
    given: Option<usize>,
) -> Result<usize, String> {
    if heads == 0 || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(format!("{heads} query heads can't share {kv_heads} key and value heads"));
    }
    match given.unwrap_or(hidden / heads) {
        head if head > 0 && head.is_multiple_of(2) => Ok(head),
        head => Err(format!("a head has {head} dimensions; rotary embedding needs an even number")),
    }
}

/// Returns an error if a config needs a feature that this program lacks.
fn supported(family: &Family, config: &Config, all: &Map<String, Value>) -> Result<(), String> {
    if let Some(quantized) = &config.quantization {
        let method = quantized["quant_method"].as_str().unwrap_or("unknown");
        return Err(format!("its weights are quantized (`{method}`); bf16, f16 and f32 can be read"));
    }
    // Qwen2 always has its three biases; elsewhere the flag also adds one to the output.
    if !family.bias && config.attention_bias == Some(true) || config.mlp_bias == Some(true) {
        return Err("it has biases (`attention_bias`, `mlp_bias`) that are not known here".to_owned());
    }
    if let Some(key) = family.needed.iter().find(|key| !all.contains_key(**key)) {
        return Err(format!("it has no `{key}`, which a `{}` needs", family.name));
    }
    known(family, &config.rest)
}

/// Returns the parameters of a model's rotary embedding, and the embedding of its sliding-window
/// layers if they have their own; then the config has a table for each kind of layer.
fn rope_tables(parameters: Option<Value>, context: usize) -> Result<(Option<Value>, Option<Rope>), String> {
    let Some(Value::Object(mut tables)) = parameters else { return Ok((parameters, None)) };
    let Some(full) = tables.shift_remove("full_attention") else {
        return Ok((Some(Value::Object(tables)), None));
    };
    let local = tables.shift_remove("sliding_attention");
    if let Some(other) = tables.keys().next() {
        return Err(format!("`rope_parameters` has a table `{other}`, which is not known here"));
    }
    let local = local.map(|table| Rope::read(Some(table), None, None, 10_000.0, context)).transpose()?;
    Ok((Some(full), local))
}
