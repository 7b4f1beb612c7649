//! A model's shape, as `config.json` tells it, and a `config.json` that tells it: with the field names
//! that transformers 5 writes and with those that published repositories carry (transformers 4).

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{ModelError, Precision, file};

/// The largest `config.json`, in bytes.
const LARGEST: u64 = 16 << 20;

/// The architectures that the decoder covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Llama, and SmolLM2 with it.
    Llama,
    /// Qwen2 and Qwen2.5: biases on query, key and value.
    Qwen2,
    /// Qwen3, dense: a norm on each query and key head.
    Qwen3,
}

impl Family {
    /// What a `config.json` calls it, as its `model_type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }
}

/// A model's shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// The architecture.
    pub family: Family,
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
    /// Whether query, key and value have biases.
    pub bias: bool,
    /// Whether the head is the embedding.
    pub tied: bool,
    /// Longest sequence it was made for, in tokens.
    pub context: usize,
}

/// Rotary embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// Llama 3's scaling of the low frequencies, if any.
    pub llama3: Option<Llama3>,
}

/// Llama 3's scaling of rotary frequencies (transformers, `_compute_llama3_parameters`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Llama3 {
    /// Low frequencies are divided by it.
    pub factor: f64,
    /// Wavelengths past the old context over this are low.
    pub low_freq_factor: f64,
    /// Wavelengths under the old context over this are high.
    pub high_freq_factor: f64,
    /// The old context, in tokens.
    pub original_max_position_embeddings: f64,
}

/// The tokens that a model's config names. They are no part of its shape: who writes a folder knows
/// them from the tokenizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// Begins a text.
    pub bos: Option<u32>,
    /// Each of them ends an answer.
    pub eos: Vec<u32>,
    /// Fills up a batch.
    pub pad: Option<u32>,
}

/// `config.json`, the parts that matter.
#[derive(Deserialize)]
struct Config {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    rms_norm_eps: f64,
    rope_theta: Option<f64>,
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    #[serde(rename = "quantization_config")]
    quantization: Option<Value>,
    tie_word_embeddings: Option<bool>,
    max_position_embeddings: Option<usize>,
    hidden_act: Option<String>,
    use_sliding_window: Option<bool>,
}

impl Shape {
    /// The name of the head's tensor.
    pub(crate) fn head_name(&self) -> &'static str {
        if self.tied { "model.embed_tokens.weight" } else { "lm_head.weight" }
    }

    /// Reads a `config.json`.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let text = file::text(path, LARGEST)?;
        Self::parse(&text).map_err(|reason| ModelError::Config { path: path.to_owned(), reason })
    }

    /// The shape that a `config.json`'s text tells.
    pub fn parse(text: &str) -> Result<Self, String> {
        // What it is first: another architecture's config lacks other fields, too.
        let kind: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let family = match kind["model_type"].as_str() {
            Some("llama") => Family::Llama,
            Some("qwen2") => Family::Qwen2,
            Some("qwen3") => Family::Qwen3,
            Some(other) => {
                return Err(format!("`model_type` is `{other}`; llama, qwen2 and qwen3 are known"));
            }
            None => return Err("it has no `model_type`, so it is no model's config".to_owned()),
        };
        let config: Config = serde_json::from_value(kind).map_err(|e| e.to_string())?;
        if let Some(quantized) = config.quantization {
            let method = quantized["quant_method"].as_str().unwrap_or("unknown");
            return Err(format!("its weights are quantized (`{method}`); bf16, f16 and f32 can be read"));
        }
        // In Qwen2 the three biases are a given; elsewhere the flag adds one to the output, too.
        if family != Family::Qwen2 && config.attention_bias == Some(true) || config.mlp_bias == Some(true) {
            return Err("it has biases (`attention_bias`, `mlp_bias`) that are not known here".to_owned());
        }
        if let Some(act) = config.hidden_act.filter(|act| act != "silu") {
            return Err(format!("`hidden_act` is `{act}`; only silu is known"));
        }
        if config.use_sliding_window == Some(true) {
            return Err("it has sliding-window attention, which is not known here".to_owned());
        }
        let kv_heads = config.num_key_value_heads.unwrap_or(config.num_attention_heads);
        if config.num_attention_heads == 0
            || kv_heads == 0
            || !config.num_attention_heads.is_multiple_of(kv_heads)
        {
            let heads = config.num_attention_heads;
            return Err(format!("{heads} query heads can't share {kv_heads} key and value heads"));
        }
        let rope = rope(config.rope_parameters, config.rope_scaling, config.rope_theta)?;
        let head = config.head_dim.unwrap_or(config.hidden_size / config.num_attention_heads);
        if head == 0 || !head.is_multiple_of(2) {
            return Err(format!("a head has {head} dimensions; rotary embedding needs an even number"));
        }
        let shape = Self {
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
            bias: family == Family::Qwen2,
            // What transformers takes where nothing is said, in each of the three.
            tied: config.tie_word_embeddings.unwrap_or(false),
            context: config.max_position_embeddings.unwrap_or(2048),
        };
        shape.check()?;
        Ok(shape)
    }

    /// Whether a model can have it: what is past these bounds is a damaged file or a slip of the hand, and more
    /// than any machine holds. Errs with what is wrong, in transformers' names.
    pub fn check(&self) -> Result<(), String> {
        let sizes = [
            ("vocab_size", self.vocabulary, 1 << 24),
            ("hidden_size", self.hidden, 1 << 16),
            ("intermediate_size", self.intermediate, 1 << 19),
            ("num_hidden_layers", self.layers, 1 << 11),
            ("num_attention_heads", self.heads, 1 << 10),
            ("num_key_value_heads", self.kv_heads, 1 << 10),
            ("head_dim", self.head, 1 << 11),
            ("max_position_embeddings", self.context, 1 << 30),
        ];
        if let Some((key, size, most)) = sizes.into_iter().find(|(_, size, most)| !(1..=*most).contains(size))
        {
            return Err(format!("`{key}` is {size}; it is from 1 to {most}"));
        }
        let Rope { theta, llama3 } = self.rope;
        let positive = |x: f64| x.is_finite() && x > 0.0;
        if !(self.epsilon.is_finite() && self.epsilon >= 0.0) {
            return Err(format!("`rms_norm_eps` is {}; it is 0 or more", self.epsilon));
        }
        if !positive(theta) {
            return Err(format!("`rope_theta` is {theta}; it is more than 0"));
        }
        let Some(l) = llama3 else { return Ok(()) };
        let numbers = [
            ("factor", l.factor),
            ("low_freq_factor", l.low_freq_factor),
            ("high_freq_factor", l.high_freq_factor),
            ("original_max_position_embeddings", l.original_max_position_embeddings),
        ];
        match numbers.into_iter().find(|(_, x)| !positive(*x)) {
            Some((key, x)) => Err(format!("`{key}` of its rotary embedding is {x}; it is more than 0")),
            None if l.high_freq_factor <= l.low_freq_factor => Err(format!(
                "`high_freq_factor` of its rotary embedding is {}; it is more than `low_freq_factor`, {}",
                l.high_freq_factor, l.low_freq_factor
            )),
            None => Ok(()),
        }
    }

    /// A `config.json` for it. What transformers 4 and 5 call by two names is there under both: the
    /// number format, and the rotary embedding.
    pub(super) fn config(&self, precision: Precision, special: &SpecialIds) -> Value {
        let class = match self.family {
            Family::Llama => "LlamaForCausalLM",
            Family::Qwen2 => "Qwen2ForCausalLM",
            Family::Qwen3 => "Qwen3ForCausalLM",
        };
        let dtype = match precision {
            Precision::F32 => "float32",
            Precision::Bf16 => "bfloat16",
        };
        let eos = match special.eos.as_slice() {
            [] => Value::Null,
            [one] => json!(one),
            several => json!(several),
        };
        let scaling = self.rope.llama3.map_or(Value::Null, |llama3| {
            let mut table = json!(llama3);
            table["rope_type"] = json!("llama3");
            table["original_max_position_embeddings"] = json!(llama3.original_max_position_embeddings as u64);
            table
        });
        let mut rope = if scaling.is_null() { json!({"rope_type": "default"}) } else { scaling.clone() };
        rope["rope_theta"] = json!(self.rope.theta);
        let mut config = json!({
            "architectures": [class],
            "attention_dropout": 0.0,
            "bos_token_id": special.bos,
            "dtype": dtype,
            "eos_token_id": eos,
            "head_dim": self.head,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "initializer_range": 0.02,
            "intermediate_size": self.intermediate,
            "max_position_embeddings": self.context,
            "model_type": self.family.name(),
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
        if self.family != Family::Qwen2 {
            config["attention_bias"] = json!(self.bias);
        }
        config
    }

    /// Every tensor of the model: its name in a checkpoint, and its shape.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (d, f) = (self.hidden, self.intermediate);
        let (q, kv) = (self.heads * self.head, self.kv_heads * self.head);
        let mut all = vec![("model.embed_tokens.weight".to_owned(), vec![self.vocabulary, d])];
        for layer in 0..self.layers {
            let mut add = |name: &str, shape: &[usize]| {
                all.push((format!("model.layers.{layer}.{name}"), shape.to_vec()));
            };
            add("input_layernorm.weight", &[d]);
            for (name, rows) in [("q_proj", q), ("k_proj", kv), ("v_proj", kv)] {
                add(&format!("self_attn.{name}.weight"), &[rows, d]);
                if self.bias {
                    add(&format!("self_attn.{name}.bias"), &[rows]);
                }
            }
            if self.family == Family::Qwen3 {
                add("self_attn.q_norm.weight", &[self.head]);
                add("self_attn.k_norm.weight", &[self.head]);
            }
            add("self_attn.o_proj.weight", &[d, q]);
            add("post_attention_layernorm.weight", &[d]);
            add("mlp.gate_proj.weight", &[f, d]);
            add("mlp.up_proj.weight", &[f, d]);
            add("mlp.down_proj.weight", &[d, f]);
        }
        all.push(("model.norm.weight".to_owned(), vec![d]));
        if !self.tied {
            all.push(("lm_head.weight".to_owned(), vec![self.vocabulary, d]));
        }
        all
    }

    /// Numbers in the model.
    pub fn parameters(&self) -> usize {
        self.tensors().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }
}

/// The rotary embedding that a `config.json` tells: transformers 5 has one table for it; 4 has the base apart, and
/// null where nothing is scaled. A file may have both, as long as they say the same.
fn rope(parameters: Option<Value>, scaling: Option<Value>, theta: Option<f64>) -> Result<Rope, String> {
    let mut told: Option<(&str, Option<Llama3>)> = None;
    let mut theta = theta.map(|theta| ("rope_theta", theta));
    for (key, table) in [("rope_parameters", parameters), ("rope_scaling", scaling)] {
        let table = match table {
            None | Some(Value::Null) => continue,
            Some(Value::Object(table)) => table,
            Some(_) => return Err(format!("`{key}` is no table")),
        };
        let kind = match table.get("rope_type").or(table.get("type")) {
            None | Some(Value::Null) => "default",
            Some(Value::String(kind)) => kind.as_str(),
            Some(_) => return Err(format!("`rope_type` of `{key}` is no text")),
        };
        match table.get("rope_theta") {
            None | Some(Value::Null) => {}
            Some(own) => {
                let own = own.as_f64().ok_or_else(|| format!("`rope_theta` of `{key}` is no number"))?;
                if let Some((other, theta)) = theta.filter(|(_, theta)| *theta != own) {
                    return Err(format!(
                        "`rope_theta` of `{key}` is {own}, and that of `{other}` is {theta}"
                    ));
                }
                theta = Some((key, own));
            }
        }
        let llama3 = match kind {
            "default" => None,
            "llama3" => {
                let llama3 = serde_json::from_value(Value::Object(table));
                Some(llama3.map_err(|e| format!("`{key}`: {e}"))?)
            }
            other => {
                return Err(format!(
                    "its rotary embedding is of type `{other}`; default and llama3 are known"
                ));
            }
        };
        if let Some((other, before)) = told
            && before != llama3
        {
            return Err(format!("`{other}` and `{key}` tell two different rotary embeddings"));
        }
        told = Some((key, llama3));
    }
    let llama3 = told.and_then(|(_, llama3)| llama3);
    Ok(Rope { theta: theta.map_or(10_000.0, |(_, theta)| theta), llama3 })
}

impl Rope {
    /// The frequencies of a head's pairs of dimensions, in radians a position.
    pub fn frequencies(&self, head: usize) -> Vec<f32> {
        let plain = (0..head / 2).map(|i| self.theta.powf(-((2 * i) as f64) / head as f64));
        let Some(s) = self.llama3 else { return plain.map(|f| f as f32).collect() };
        let old = s.original_max_position_embeddings;
        plain
            .map(|frequency| {
                let wavelength = std::f64::consts::TAU / frequency;
                let scaled = if wavelength > old / s.low_freq_factor {
                    frequency / s.factor
                } else if wavelength < old / s.high_freq_factor {
                    frequency
                } else {
                    let smooth =
                        (old / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
                    (1.0 - smooth) * frequency / s.factor + smooth * frequency
                };
                scaled as f32
            })
            .collect()
    }
}
