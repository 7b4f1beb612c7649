//! `config.json` as stored in files: the keys of all families, and the refusal of unknown keys.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Family;

/// The parts of `config.json` that matter.
#[derive(Deserialize)]
pub(super) struct Config {
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: Option<usize>,
    pub head_dim: Option<usize>,
    pub rms_norm_eps: f64,
    pub rope_theta: Option<f64>,
    pub rope_scaling: Option<Value>,
    pub rope_parameters: Option<Value>,
    pub attention_bias: Option<bool>,
    pub mlp_bias: Option<bool>,
    #[serde(rename = "quantization_config")]
    pub quantization: Option<Value>,
    pub tie_word_embeddings: Option<bool>,
    pub max_position_embeddings: Option<usize>,
    /// All other keys.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Keys without effect on training and sampling here: the origin of the file, tokens, initial
/// weights, dropout (never applied), transformers' generation settings, and data of other
/// tools. Keys that begin with `_` are transformers' own.
const WITHOUT_EFFECT: [&str; 62] = [
    "architectures",
    "attention_dropout",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "custom_pipelines",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "embd_pdrop",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "name_or_path",
    "neftune_noise_alpha",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
];

/// Returns an error for a key that is not supported: ignoring it would load a different model.
/// `rest` has the keys that are not fields of [`Config`].
pub(super) fn known(family: &Family, rest: &Map<String, Value>) -> Result<(), String> {
    let own = |key: &str| family.own.contains(&key);
    for (key, value) in rest {
        let key = key.as_str();
        let nothing = match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(all) => all.is_empty(),
            Value::Object(all) => all.is_empty(),
            _ => false,
        };
        if key == family.activation_key {
            let name = family.activation.name();
            if !nothing && value.as_str() != Some(name) {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                return Err(format!("`{key}` is `{text}`; only {name} is known"));
            }
        } else if key == "layer_types" && !own(key) {
            let other = value.as_array().and_then(|all| all.iter().find(|kind| *kind != "full_attention"));
            if let Some(other) = other {
                return Err(format!(
                    "`{key}` has {other}; only full_attention is known for `{}`",
                    family.name
                ));
            }
        } else if !nothing
            && !key.starts_with('_')
            && !own(key)
            && !["model_type", "layer_types"].contains(&key)
            && !WITHOUT_EFFECT.contains(&key)
        {
            let long = value.to_string().len() > 80;
            let text = if long { "long".to_owned() } else { value.to_string() };
            return Err(format!(
                "`{key}` is {text}, and nothing is known here of such a key in a `{}`",
                family.name
            ));
        }
    }
    Ok(())
}

/// Reads the keys of a `config.json` that only some families have.
pub(super) struct Own<'a>(pub &'a Map<String, Value>);

impl Own<'_> {
    /// Returns a key's value; `None` for null.
    fn value(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn one<T>(&self, key: &str, what: &str, of: impl Fn(&Value) -> Option<T>) -> Result<Option<T>, String> {
        let one = |value: &Value| of(value).ok_or_else(|| format!("`{key}` is {value}; it is {what}"));
        self.value(key).map(one).transpose()
    }

    pub fn number(&self, key: &str) -> Result<Option<f64>, String> {
        self.one(key, "a number above 0", |value| value.as_f64().filter(|x| x.is_finite() && *x > 0.0))
    }

    pub fn whole(&self, key: &str) -> Result<Option<usize>, String> {
        self.one(key, "a whole number above 0", |value| value.as_u64().filter(|n| *n > 0).map(|n| n as usize))
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>, String> {
        self.one(key, "true or false", Value::as_bool)
    }

    pub fn text(&self, key: &str) -> Result<Option<&str>, String> {
        let text = |value| Value::as_str(value).ok_or_else(|| format!("`{key}` is {value}; it is a text"));
        self.value(key).map(text).transpose()
    }

    pub fn list<T>(&self, key: &str, of: impl Fn(&Value) -> Option<T>) -> Result<Option<Vec<T>>, String> {
        let one =
            |value: &Value| of(value).ok_or_else(|| format!("`{key}` has {value}, which is not known here"));
        match self.value(key) {
            None => Ok(None),
            Some(Value::Array(all)) => all.iter().map(one).collect::<Result<_, _>>().map(Some),
            Some(other) => Err(format!("`{key}` is {other}; it is a list")),
        }
    }

    /// Returns an error if sliding-window attention is on, for families supported only without it.
    pub fn no_window(&self) -> Result<(), String> {
        if self.value("use_sliding_window") == Some(&Value::Bool(true)) {
            return Err("it has sliding-window attention, which is not known here".to_owned());
        }
        Ok(())
    }
}
