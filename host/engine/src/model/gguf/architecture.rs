//! The architectures of GGUF files as plain data: family, row order of queries and keys, and metadata
//! keys that only one architecture has. Missing keys get llama.cpp's defaults (`src/models/NAME.cpp`).

use super::Gguf;
use crate::model::{Experts, Rope, Scaling, Shape};

/// An architecture, named as in `general.architecture`.
#[derive(Debug)]
pub struct Architecture {
    pub name: &'static str,
    pub family: &'static str,
    /// Whether rows of queries and keys are reordered for a rope that pairs neighboring dimensions.
    pub is_interleaved: bool,
    /// Reads the settings that only this architecture has.
    pub read: fn(&Keys<'_>, &mut Shape) -> Result<(), String>,
}

/// All supported architectures.
static ARCHITECTURES: [Architecture; 10] = [
    Architecture { name: "llama", family: "llama", is_interleaved: true, read: |_, _| Ok(()) },
    Architecture { name: "qwen2", family: "qwen2", is_interleaved: false, read: |_, _| Ok(()) },
    Architecture { name: "qwen3", family: "qwen3", is_interleaved: false, read: |_, _| Ok(()) },
    Architecture { name: "qwen3moe", family: "qwen3_moe", is_interleaved: false, read: qwen3moe },
    Architecture {
        name: "smollm3",
        family: "smollm3",
        is_interleaved: true,
        // Every fourth layer has no rotary embedding; the metadata does not say so.
        read: |_, shape| {
            shape.variant.unrotated = (1..=shape.layers).map(|layer| layer % 4 == 0).collect();
            Ok(())
        },
    },
    Architecture { name: "granite", family: "granite", is_interleaved: true, read: granite },
    Architecture { name: "olmo2", family: "olmo2", is_interleaved: false, read: olmo2 },
    Architecture { name: "phi3", family: "phi3", is_interleaved: false, read: phi3 },
    Architecture { name: "gemma2", family: "gemma2", is_interleaved: false, read: gemma2 },
    Architecture { name: "gemma3", family: "gemma3_text", is_interleaved: false, read: gemma3 },
];

impl Architecture {
    /// Returns the architecture with this name, or an error message.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        ARCHITECTURES.iter().find(|known| known.name == name).ok_or_else(|| {
            let names: Vec<&str> = ARCHITECTURES.iter().map(|known| known.name).collect();
            let (last, others) =
                names.split_last().map_or(("", &names[..]), |(last, others)| (*last, others));
            format!("its architecture is `{name}`; {} and {last} are known", others.join(", "))
        })
    }
}

/// A file's metadata about its architecture.
pub struct Keys<'a> {
    pub gguf: &'a Gguf,
    /// The architecture's name, which is the prefix of its keys.
    pub arch: &'a str,
}

impl Keys<'_> {
    /// Returns the full name of a key.
    pub fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }

    pub fn number(&self, key: &str) -> Option<usize> {
        self.gguf.number(&self.name(key)).map(|n| n as usize)
    }

    pub fn fraction(&self, key: &str) -> Option<f64> {
        self.gguf.fraction(&self.name(key))
    }

    /// Returns a whole number that a file must have.
    pub fn needed(&self, key: &str) -> Result<usize, String> {
        self.number(key).ok_or_else(|| format!("it has no number `{}`", self.name(key)))
    }

    /// Returns a fraction above 0, if the key exists.
    fn scale(&self, key: &str) -> Result<Option<f64>, String> {
        match self.fraction(key) {
            Some(scale) if !(scale.is_finite() && scale > 0.0) => {
                Err(format!("`{}` is {scale}; it is a number above 0", self.name(key)))
            }
            scale => Ok(scale),
        }
    }

    /// Returns the number of tokens that layers with a sliding window see; 0 in the file means no window.
    fn window(&self) -> Option<usize> {
        self.number("attention.sliding_window").filter(|window| *window > 0)
    }
}

/// llama.cpp always normalizes the probabilities of the chosen experts to sum to 1.
fn qwen3moe(keys: &Keys<'_>, shape: &mut Shape) -> Result<(), String> {
    shape.variant.experts = Some(Experts {
        count: keys.needed("expert_count")?,
        active: keys.needed("expert_used_count")?,
        intermediate: keys.needed("expert_feed_forward_length")?,
        normalized: true,
    });
    Ok(())
}

fn granite(keys: &Keys<'_>, shape: &mut Shape) -> Result<(), String> {
    shape.variant.attention = Some(keys.scale("attention.scale")?.unwrap_or_else(|| shape.scale()));
    shape.variant.embedding = keys.scale("embedding_scale")?.unwrap_or(1.0);
    shape.variant.residual = keys.scale("residual_scale")?.unwrap_or(1.0);
    shape.variant.logits = keys.scale("logit_scale")?.unwrap_or(1.0);
    Ok(())
}

/// OLMo 3 also has this name, and it has windows.
fn olmo2(keys: &Keys<'_>, _: &mut Shape) -> Result<(), String> {
    match keys.window() {
        Some(_) => Err("it has sliding windows, so it is an OLMo 3, which is not known here".to_owned()),
        None => Ok(()),
    }
}

/// The window applies as in the original model, although llama.cpp ignores it.
fn phi3(keys: &Keys<'_>, shape: &mut Shape) -> Result<(), String> {
    shape.variant.window = keys.window();
    if shape.rope.scaling != Scaling::None || keys.gguf.dims("rope_factors_long.weight").is_some() {
        return Err("its rotary embedding is scaled, which is not known here for `phi3`".to_owned());
    }
    Ok(())
}

fn gemma2(keys: &Keys<'_>, shape: &mut Shape) -> Result<(), String> {
    gemma(shape, 2, 46);
    shape.variant.window = Some(keys.window().unwrap_or(4096));
    shape.variant.attention_cap = Some(keys.scale("attn_logit_softcapping")?.unwrap_or(50.0));
    shape.variant.logit_cap = Some(keys.scale("final_logit_softcapping")?.unwrap_or(30.0));
    Ok(())
}

fn gemma3(keys: &Keys<'_>, shape: &mut Shape) -> Result<(), String> {
    gemma(shape, 6, 62);
    if keys.gguf.has(&keys.name("attention.sliding_window_pattern")) {
        let pattern = keys.name("attention.sliding_window_pattern");
        return Err(format!("it says which layers have a window (`{pattern}`), which is not known here"));
    }
    shape.variant.window = keys.window();
    shape.variant.logit_cap = keys.scale("final_logit_softcapping")?;
    shape.variant.local = Some(Rope::plain(keys.scale("rope.freq_base_swa")?.unwrap_or(10_000.0)));
    Ok(())
}

/// Sets what Gemma 2 and 3 share: every layer except each `every`-th has a window. The largest model has
/// `largest` layers and scales its scores by hidden width over heads; the others by the head's width.
fn gemma(shape: &mut Shape, every: usize, largest: usize) {
    let width =
        if shape.layers == largest { shape.hidden as f64 / shape.heads as f64 } else { shape.head as f64 };
    shape.variant.attention = Some(width.powf(-0.5));
    shape.variant.embedding = (shape.hidden as f64).sqrt();
    shape.variant.sliding = (1..=shape.layers).map(|layer| layer % every != 0).collect();
}
