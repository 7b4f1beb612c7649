//! The model families as plain data: their norms, their parts besides matrices, and the keys
//! that only their `config.json` has. To add a family, add it here and to [`FAMILIES`], and add
//! a tiny checkpoint made by transformers to `tests/cases/models`.

use serde_json::{Value, json};

use super::config::Own;
use super::{Rope, Shape};

/// A model family: one `model_type` of transformers.
#[derive(Debug)]
pub struct Family {
    /// Its `model_type` in a `config.json`.
    pub name: &'static str,
    /// Its class in transformers.
    pub(super) class: &'static str,
    /// The norms of attention and of the feed-forward part.
    pub norms: [Norms; 2],
    /// The norms of queries and keys.
    pub head_norms: HeadNorms,
    /// Whether query, key and value have biases.
    pub bias: bool,
    /// Whether query, key and value are one matrix, `qkv_proj`, and gate and up another, `gate_up_proj`.
    pub fused: bool,
    /// The activation of the gate.
    pub activation: Activation,
    /// Whether norms multiply by their weights plus 1.
    pub shifted: bool,
    /// Whether the head is tied to the embedding by default.
    pub(super) tied: bool,
    /// The default base of its rotary embedding.
    pub(super) theta: f64,
    /// The config key of the activation.
    pub(super) activation_key: &'static str,
    /// Keys that its config must have, because transformers has its own defaults for them.
    pub(super) needed: &'static [&'static str],
    /// Config keys that other families do not have.
    pub(super) own: &'static [&'static str],
    /// Reads the settings that only this family has.
    pub(super) read: fn(&Own<'_>, &mut Shape) -> Result<(), String>,
    /// Writes these settings into a `config.json`.
    pub(super) write: fn(&Shape, &mut Value),
}

/// Norms of half a block, by the names of their tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Norms {
    /// Applied to the input.
    pub before: Option<&'static str>,
    /// Applied to the output before it is added to the stream.
    pub after: Option<&'static str>,
}

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadNorms {
    /// No norms.
    None,
    /// One norm per head.
    Each,
    /// One norm over all heads together.
    Whole,
}

/// Activation of the gate in the feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// x · sigmoid(x).
    Silu,
    /// The tanh approximation of the Gaussian error linear unit.
    GeluTanh,
}

impl Activation {
    /// Returns the name in transformers.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Silu => "silu",
            Self::GeluTanh => "gelu_pytorch_tanh",
        }
    }
}

/// Features that only some models have. The default has none of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Factor of embeddings.
    pub embedding: f64,
    /// Factor of each half of a block before it is added to the stream.
    pub residual: f64,
    /// Divisor of logits.
    pub logits: f64,
    /// Factor of attention scores, if it is not one over the root of a head's width.
    pub attention: Option<f64>,
    /// Cap of attention scores, by a hyperbolic tangent.
    pub attention_cap: Option<f64>,
    /// Cap of logits, by a hyperbolic tangent.
    pub logit_cap: Option<f64>,
    /// Number of tokens, itself included, that a token sees in a layer with a sliding window.
    pub window: Option<usize>,
    /// Whether each layer has a window. Empty if all layers are alike.
    pub sliding: Vec<bool>,
    /// The rotary embedding of layers with a window, if it is different.
    pub local: Option<Rope>,
    /// Whether each layer lacks a rotary embedding. Empty if all layers have one.
    pub unrotated: Vec<bool>,
    /// A mixture of experts that replaces each feed-forward part.
    pub experts: Option<Experts>,
}

/// A mixture of experts: a router chooses some experts for each token, and their outputs are
/// summed with its probabilities as weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Number of experts.
    pub count: usize,
    /// Number of experts that a token goes through.
    pub active: usize,
    /// Width inside an expert.
    pub intermediate: usize,
    /// Whether the probabilities of the chosen experts are normalized to sum to 1.
    pub normalized: bool,
}

impl Default for Variant {
    fn default() -> Self {
        Self {
            embedding: 1.0,
            residual: 1.0,
            logits: 1.0,
            attention: None,
            attention_cap: None,
            logit_cap: None,
            window: None,
            sliding: Vec::new(),
            local: None,
            unrotated: Vec::new(),
            experts: None,
        }
    }
}

/// Norms before both halves.
const BEFORE: [Norms; 2] = [
    Norms { before: Some("input_layernorm"), after: None },
    Norms { before: Some("post_attention_layernorm"), after: None },
];
/// Norms after both halves.
const AFTER: [Norms; 2] = [
    Norms { before: None, after: Some("post_attention_layernorm") },
    Norms { before: None, after: Some("post_feedforward_layernorm") },
];
/// Norms before and after both halves.
const AROUND: [Norms; 2] = [
    Norms { before: Some("input_layernorm"), after: Some("post_attention_layernorm") },
    Norms { before: Some("pre_feedforward_layernorm"), after: Some("post_feedforward_layernorm") },
];

/// All supported families.
pub const FAMILIES: [&Family; 11] = [
    Family::LLAMA,
    Family::QWEN2,
    Family::QWEN3,
    &QWEN3_MOE,
    &MISTRAL,
    &SMOLLM3,
    &GRANITE,
    &OLMO2,
    &PHI3,
    &GEMMA2,
    &GEMMA3,
];

impl Family {
    /// Llama and SmolLM2.
    pub const LLAMA: &'static Self = &Self {
        name: "llama",
        class: "LlamaForCausalLM",
        norms: BEFORE,
        head_norms: HeadNorms::None,
        bias: false,
        fused: false,
        activation: Activation::Silu,
        shifted: false,
        tied: false,
        theta: 10_000.0,
        activation_key: "hidden_act",
        needed: &[],
        own: &["attention_bias", "mlp_bias"],
        read: |_, _| Ok(()),
        write: |_, config| config["attention_bias"] = json!(false),
    };

    /// Qwen2 and Qwen2.5: biases on query, key and value.
    pub const QWEN2: &'static Self = &Self {
        name: "qwen2",
        class: "Qwen2ForCausalLM",
        bias: true,
        own: &["use_sliding_window", "sliding_window", "max_window_layers", "attention_bias"],
        read: |own, _| own.no_window(),
        write: |_, _| {},
        ..*Self::LLAMA
    };

    /// Qwen3, dense: a norm on each query and key head.
    pub const QWEN3: &'static Self = &Self {
        name: "qwen3",
        class: "Qwen3ForCausalLM",
        head_norms: HeadNorms::Each,
        own: &["use_sliding_window", "sliding_window", "max_window_layers", "attention_bias"],
        read: |own, _| own.no_window(),
        ..*Self::LLAMA
    };

    /// Returns the family of a `model_type`, or an error message.
    pub(super) fn named(name: &str) -> Result<&'static Self, String> {
        FAMILIES.into_iter().find(|family| family.name == name).ok_or_else(|| {
            let names = FAMILIES.map(|family| family.name);
            let (last, others) = names.split_last().map_or(("", &names[..]), |(last, others)| (last, others));
            format!("`model_type` is `{name}`; {} and {last} are known", others.join(", "))
        })
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// Qwen3 with a mixture of experts in each block.
const QWEN3_MOE: Family = Family {
    name: "qwen3_moe",
    class: "Qwen3MoeForCausalLM",
    needed: &["head_dim", "moe_intermediate_size", "num_experts_per_tok", "norm_topk_prob"],
    own: &[
        "use_sliding_window",
        "sliding_window",
        "max_window_layers",
        "attention_bias",
        "num_experts",
        "num_local_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "norm_topk_prob",
        "decoder_sparse_step",
        "mlp_only_layers",
        // For an auxiliary loss that is not implemented here.
        "output_router_logits",
        "router_aux_loss_coef",
    ],
    read: |own, shape| {
        own.no_window()?;
        let needed = |key: &str| {
            own.whole(key)?.ok_or_else(|| format!("it has no `{key}`, which a `qwen3_moe` needs"))
        };
        if own.whole("decoder_sparse_step")?.unwrap_or(1) != 1
            || own.list("mlp_only_layers", |_| Some(()))?.is_some_and(|layers| !layers.is_empty())
        {
            return Err("some of its layers have no experts (`decoder_sparse_step`, `mlp_only_layers`), which is not known here".to_owned());
        }
        // transformers 4 and 5 use different names.
        let count = own.whole("num_experts")?.or(own.whole("num_local_experts")?);
        shape.variant.experts = Some(Experts {
            count: count.ok_or("it has no `num_experts`, which a `qwen3_moe` needs")?,
            active: needed("num_experts_per_tok")?,
            intermediate: needed("moe_intermediate_size")?,
            normalized: own.flag("norm_topk_prob")?.unwrap_or(false),
        });
        Ok(())
    },
    write: |shape, config| {
        if let Some(experts) = shape.variant.experts {
            config["num_experts"] = json!(experts.count);
            config["num_local_experts"] = json!(experts.count);
            config["num_experts_per_tok"] = json!(experts.active);
            config["moe_intermediate_size"] = json!(experts.intermediate);
            config["norm_topk_prob"] = json!(experts.normalized);
        }
        config["decoder_sparse_step"] = json!(1);
        config["mlp_only_layers"] = json!([]);
        config["attention_bias"] = json!(false);
        config["use_sliding_window"] = json!(false);
    },
    ..*Family::QWEN3
};

/// Mistral: Llama with a sliding window in its first version.
const MISTRAL: Family = Family {
    name: "mistral",
    class: "MistralForCausalLM",
    needed: &["num_key_value_heads", "sliding_window"],
    own: &["sliding_window"],
    read: |own, shape| {
        shape.variant.window = own.whole("sliding_window")?;
        Ok(())
    },
    write: |shape, config| config["sliding_window"] = json!(shape.variant.window),
    ..*Family::LLAMA
};

/// SmolLM3: every fourth layer has no rotary embedding.
const SMOLLM3: Family = Family {
    name: "smollm3",
    class: "SmolLM3ForCausalLM",
    tied: true,
    theta: 2_000_000.0,
    needed: &["num_key_value_heads"],
    own: &[
        "no_rope_layers",
        "no_rope_layer_interval",
        "use_sliding_window",
        "sliding_window",
        "max_window_layers",
        "attention_bias",
        "mlp_bias",
    ],
    read: |own, shape| {
        own.no_window()?;
        let every = own.whole("no_rope_layer_interval")?.unwrap_or(4);
        let listed = own.list("no_rope_layers", |value| match value.as_u64() {
            Some(rotated @ 0..=1) => Some(rotated == 0),
            _ => None,
        })?;
        if listed.is_none() && every == 0 {
            return Err("`no_rope_layer_interval` is 0; it is 1 or more".to_owned());
        }
        let unrotated =
            listed.unwrap_or_else(|| (1..=shape.layers).map(|layer| layer % every == 0).collect());
        if unrotated.len() < shape.layers {
            return Err(format!("`no_rope_layers` has {} of {} layers", unrotated.len(), shape.layers));
        }
        shape.variant.unrotated = unrotated[..shape.layers].to_vec();
        Ok(())
    },
    write: |shape, config| {
        let rotated: Vec<u8> = shape.variant.unrotated.iter().map(|without| u8::from(!without)).collect();
        config["no_rope_layers"] = json!(rotated);
        config["attention_bias"] = json!(false);
        config["mlp_bias"] = json!(false);
        config["use_sliding_window"] = json!(false);
        config["layer_types"] = json!(vec!["full_attention"; shape.layers]);
    },
    ..*Family::LLAMA
};

/// Granite 3, dense: Llama with four multipliers.
const GRANITE: Family = Family {
    name: "granite",
    class: "GraniteForCausalLM",
    own: &[
        "embedding_multiplier",
        "residual_multiplier",
        "attention_multiplier",
        "logits_scaling",
        "attention_bias",
        "mlp_bias",
    ],
    read: |own, shape| {
        let number = |key| Ok::<_, String>(own.number(key)?.unwrap_or(1.0));
        shape.variant.embedding = number("embedding_multiplier")?;
        shape.variant.residual = number("residual_multiplier")?;
        shape.variant.logits = number("logits_scaling")?;
        shape.variant.attention = Some(number("attention_multiplier")?);
        Ok(())
    },
    write: |shape, config| {
        config["embedding_multiplier"] = json!(shape.variant.embedding);
        config["residual_multiplier"] = json!(shape.variant.residual);
        config["logits_scaling"] = json!(shape.variant.logits);
        config["attention_multiplier"] = json!(shape.scale());
        config["attention_bias"] = json!(false);
        config["mlp_bias"] = json!(false);
    },
    ..*Family::LLAMA
};

/// OLMo 2: a norm after each half, one over all queries and one over all keys.
const OLMO2: Family = Family {
    name: "olmo2",
    class: "Olmo2ForCausalLM",
    norms: AFTER,
    head_norms: HeadNorms::Whole,
    own: &["attention_bias"],
    ..*Family::LLAMA
};

/// Phi-3 and Phi-4, dense: Llama with two of its matrices joined.
const PHI3: Family = Family {
    name: "phi3",
    class: "Phi3ForCausalLM",
    fused: true,
    own: &["sliding_window", "original_max_position_embeddings", "partial_rotary_factor", "attention_bias"],
    read: |own, shape| {
        shape.variant.window = own.whole("sliding_window")?;
        if own.number("partial_rotary_factor")?.is_some_and(|part| part != 1.0) {
            return Err(
                "`partial_rotary_factor` is not 1: heads that are rotated in part are not known here"
                    .to_owned(),
            );
        }
        if shape.rope.scaling != super::Scaling::None {
            // transformers treats `yarn` as `longrope` here.
            return Err("its rotary embedding is scaled, which is not known here for `phi3`".to_owned());
        }
        Ok(())
    },
    write: |shape, config| config["sliding_window"] = json!(shape.variant.window),
    ..*Family::LLAMA
};

/// Gemma 2: norms around each half, capped scores and logits, a window in every other layer.
const GEMMA2: Family = Family {
    name: "gemma2",
    class: "Gemma2ForCausalLM",
    norms: AROUND,
    activation: Activation::GeluTanh,
    shifted: true,
    tied: true,
    activation_key: "hidden_activation",
    needed: &[
        "num_key_value_heads",
        "head_dim",
        "query_pre_attn_scalar",
        "sliding_window",
        "attn_logit_softcapping",
        "final_logit_softcapping",
    ],
    own: GEMMA_KEYS,
    read: |own, shape| gemma(own, shape, 2),
    write: gemma_config,
    ..*Family::LLAMA
};

/// Gemma 3, text models: five layers of six have a window and a rotary embedding of their own.
const GEMMA3: Family = Family {
    name: "gemma3_text",
    class: "Gemma3ForCausalLM",
    head_norms: HeadNorms::Each,
    theta: 1_000_000.0,
    needed: &["num_key_value_heads", "head_dim", "query_pre_attn_scalar", "sliding_window"],
    read: |own, shape| {
        let every = own.whole("sliding_window_pattern")?.or(own.whole("_sliding_window_pattern")?);
        gemma(own, shape, every.unwrap_or(6))?;
        // The table of transformers 5 is read together with the other rotary embedding.
        if shape.variant.local.is_none() {
            shape.variant.local = Some(Rope::plain(own.number("rope_local_base_freq")?.unwrap_or(10_000.0)));
        }
        Ok(())
    },
    write: |shape, config| {
        gemma_config(shape, config);
        let local = shape.variant.local.unwrap_or(shape.rope);
        let (_, full) = shape.rope.config();
        config["rope_parameters"] = json!({ "full_attention": full, "sliding_attention": local.config().1 });
        config["rope_local_base_freq"] = json!(local.theta);
    },
    ..GEMMA2
};

const GEMMA_KEYS: &[&str] = &[
    "hidden_act",
    "query_pre_attn_scalar",
    "sliding_window",
    "sliding_window_pattern",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "rope_local_base_freq",
    "layer_types",
    "attention_bias",
];

/// Reads the settings shared by Gemma 2 and 3. By default each `every`-th layer has no window.
fn gemma(own: &Own<'_>, shape: &mut Shape, every: usize) -> Result<(), String> {
    if own.text("hidden_act")?.is_some_and(|act| act != "gelu_pytorch_tanh") {
        return Err("`hidden_act` is not gelu_pytorch_tanh, the one that is known for Gemma".to_owned());
    }
    let scalar = own.number("query_pre_attn_scalar")?.unwrap_or(256.0);
    let sliding = own.list("layer_types", |kind| match kind.as_str() {
        Some("sliding_attention") => Some(true),
        Some("full_attention") => Some(false),
        _ => None,
    })?;
    let every = every.max(1);
    let sliding = sliding.unwrap_or_else(|| (1..=shape.layers).map(|layer| layer % every != 0).collect());
    if sliding.len() != shape.layers {
        return Err(format!("`layer_types` has {} of {} layers", sliding.len(), shape.layers));
    }
    let variant = &mut shape.variant;
    variant.embedding = (shape.hidden as f64).sqrt();
    variant.attention = Some(scalar.powf(-0.5));
    variant.attention_cap = own.number("attn_logit_softcapping")?;
    variant.logit_cap = own.number("final_logit_softcapping")?;
    variant.window = own.whole("sliding_window")?.filter(|_| sliding.contains(&true));
    variant.sliding = sliding;
    Ok(())
}

fn gemma_config(shape: &Shape, config: &mut Value) {
    let variant = &shape.variant;
    let kind = |sliding: &bool| if *sliding { "sliding_attention" } else { "full_attention" };
    let scalar = shape.scale().powi(-2);
    // A whole number, up to the rounding of a root and a square.
    let whole = scalar.round();
    config["query_pre_attn_scalar"] =
        if (scalar - whole).abs() < 1e-6 * scalar { json!(whole as u64) } else { json!(scalar) };
    config["layer_types"] = json!(variant.sliding.iter().map(kind).collect::<Vec<_>>());
    config["sliding_window"] = json!(variant.window);
    config["attn_logit_softcapping"] = json!(variant.attention_cap);
    config["final_logit_softcapping"] = json!(variant.logit_cap);
    config["attention_bias"] = json!(false);
}
