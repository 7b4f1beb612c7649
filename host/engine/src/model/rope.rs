//! Rotary embedding: its frequencies, their scaling for longer contexts as in transformers, and
//! its keys in `config.json`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Settings of a rotary embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// Scaling for a longer context.
    pub scaling: Scaling,
}

/// Scaling of rotary frequencies for a longer context (transformers, `modeling_rope_utils.py`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Scaling {
    /// No scaling.
    #[default]
    None,
    /// All frequencies are divided by a factor.
    Linear(Factor),
    /// The base grows with the sequence beyond the context. Within the context nothing changes, and
    /// no sequence here is longer.
    Dynamic(Factor),
    /// YaRN (Peng et al. 2023, arXiv 2309.00071).
    Yarn(Yarn),
    /// Llama 3's scaling of the low frequencies.
    Llama3(Llama3),
}

/// The number of a scaling with only a factor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// Ratio of the new context to the old.
    pub factor: f64,
}

/// YaRN's parameters, under transformers' names (`_compute_yarn_parameters`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Yarn {
    /// Divisor of low frequencies.
    pub factor: f64,
    /// The old context, in tokens.
    pub original_max_position_embeddings: f64,
    /// Frequencies with more turns than this within the old context are unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta_fast: Option<f64>,
    /// Frequencies with fewer turns than this are divided by `factor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta_slow: Option<f64>,
    /// Factor of cosines and sines; computed from the rest if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_factor: Option<f64>,
    /// Weight of the logarithm of `factor` in the numerator of the computed factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mscale: Option<f64>,
    /// Weight of the logarithm of `factor` in its denominator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mscale_all_dim: Option<f64>,
    /// Whether the bounds are rounded to whole dimensions; true by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncate: Option<bool>,
}

/// Llama 3's scaling of rotary frequencies (transformers, `_compute_llama3_parameters`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Llama3 {
    /// Divisor of low frequencies.
    pub factor: f64,
    /// Wavelengths above the old context divided by this are low frequencies.
    pub low_freq_factor: f64,
    /// Wavelengths below the old context divided by this are high frequencies.
    pub high_freq_factor: f64,
    /// The old context, in tokens.
    pub original_max_position_embeddings: f64,
}

impl Rope {
    /// Returns a rotary embedding without scaling.
    pub fn plain(theta: f64) -> Self {
        Self { theta, scaling: Scaling::None }
    }

    /// Reads the rotary embedding of a `config.json`. transformers 5 has one table; 4 has a separate
    /// base, and null without scaling. A file may have both if they agree. The default base is `usual`.
    pub(super) fn read(
        parameters: Option<Value>,
        scaling: Option<Value>,
        theta: Option<f64>,
        usual: f64,
        context: usize,
    ) -> Result<Self, String> {
        let mut told: Option<(&str, Scaling)> = None;
        let mut theta = theta.map(|theta| ("rope_theta", theta));
        for (key, table) in [("rope_parameters", parameters), ("rope_scaling", scaling)] {
            let mut table = match table {
                None | Some(Value::Null) => continue,
                Some(Value::Object(table)) => table,
                Some(_) => return Err(format!("`{key}` is no table")),
            };
            let (kind, old) = (table.remove("rope_type"), table.remove("type"));
            let kind = match kind.or(old) {
                None | Some(Value::Null) => "default".to_owned(),
                Some(Value::String(kind)) => kind,
                Some(_) => return Err(format!("`rope_type` of `{key}` is no text")),
            };
            match table.remove("rope_theta") {
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
            let scaling = Scaling::read(key, &kind, table, context)?;
            if let Some((other, before)) = told
                && before != scaling
            {
                return Err(format!("`{other}` and `{key}` tell two different rotary embeddings"));
            }
            told = Some((key, scaling));
        }
        let scaling = told.map_or(Scaling::None, |(_, scaling)| scaling);
        Ok(Self { theta: theta.map_or(usual, |(_, theta)| theta), scaling })
    }

    /// Returns the config of transformers 4, without the base, and that of 5.
    pub(super) fn config(&self) -> (Value, Value) {
        let old = self.scaling.table();
        let mut new = if old.is_null() { json!({"rope_type": "default"}) } else { old.clone() };
        new["rope_theta"] = json!(self.theta);
        (old, new)
    }

    /// Checks that all numbers are in range. Returns an error message otherwise.
    pub(super) fn check(&self) -> Result<(), String> {
        let positive = |x: f64| x.is_finite() && x > 0.0;
        if !positive(self.theta) {
            return Err(format!("`rope_theta` is {}; it is more than 0", self.theta));
        }
        let factor = |factor| ("factor", Some(factor));
        let old = |tokens| ("original_max_position_embeddings", Some(tokens));
        let numbers: Vec<(&str, Option<f64>)> = match self.scaling {
            Scaling::None => Vec::new(),
            Scaling::Linear(l) | Scaling::Dynamic(l) => vec![factor(l.factor)],
            Scaling::Yarn(y) => vec![
                factor(y.factor),
                old(y.original_max_position_embeddings),
                ("beta_fast", y.beta_fast),
                ("beta_slow", y.beta_slow),
                ("attention_factor", y.attention_factor),
            ],
            Scaling::Llama3(l) => vec![
                factor(l.factor),
                ("low_freq_factor", Some(l.low_freq_factor)),
                ("high_freq_factor", Some(l.high_freq_factor)),
                old(l.original_max_position_embeddings),
            ],
        };
        for (key, x) in numbers {
            if let Some(x) = x.filter(|x| !positive(*x)) {
                return Err(format!("`{key}` of its rotary embedding is {x}; it is more than 0"));
            }
        }
        match self.scaling {
            Scaling::Llama3(l) if l.high_freq_factor <= l.low_freq_factor => Err(format!(
                "`high_freq_factor` of its rotary embedding is {}; it is more than `low_freq_factor`, {}",
                l.high_freq_factor, l.low_freq_factor
            )),
            _ => Ok(()),
        }
    }

    /// Returns the frequencies of a head's pairs of dimensions, in radians per position.
    pub fn frequencies(&self, head: usize) -> Vec<f32> {
        let plain = |i: usize| self.theta.powf(-((2 * i) as f64) / head as f64);
        let scaled = |i: usize| match self.scaling {
            Scaling::None | Scaling::Dynamic(_) => plain(i),
            Scaling::Linear(l) => plain(i) / l.factor,
            Scaling::Yarn(y) => y.scaled(i, plain(i), self.theta, head),
            Scaling::Llama3(l) => l.scaled(plain(i)),
        };
        (0..head / 2).map(|i| scaled(i) as f32).collect()
    }

    /// Returns the factor of cosines and sines.
    pub fn factor(&self) -> f32 {
        match self.scaling {
            Scaling::Yarn(yarn) => yarn.factor() as f32,
            _ => 1.0,
        }
    }
}

impl Scaling {
    fn read(key: &str, kind: &str, mut table: Map<String, Value>, context: usize) -> Result<Self, String> {
        table.retain(|_, value| !value.is_null());
        match table.remove("partial_rotary_factor").map(|part| part.as_f64()) {
            None | Some(Some(1.0)) => {}
            Some(_) => {
                return Err(format!(
                    "`partial_rotary_factor` of `{key}` is not 1: heads that are rotated in part are not known here"
                ));
            }
        }
        match kind {
            "default" => match table.keys().next() {
                None => Ok(Self::None),
                Some(other) => {
                    Err(format!("`{other}` of `{key}` is not known where nothing is scaled (type `default`)"))
                }
            },
            "linear" => of(key, table).map(Self::Linear),
            "dynamic" => {
                // Some configs repeat the context as the old context.
                let same = table.get("original_max_position_embeddings").and_then(Value::as_f64);
                if same == Some(context as f64) {
                    table.remove("original_max_position_embeddings");
                }
                of(key, table).map(Self::Dynamic)
            }
            "yarn" => {
                table.entry("original_max_position_embeddings").or_insert_with(|| json!(context));
                of(key, table).map(Self::Yarn)
            }
            "llama3" => of(key, table).map(Self::Llama3),
            other => Err(format!(
                "its rotary embedding is of type `{other}`; default, linear, dynamic, yarn and llama3 are known"
            )),
        }
    }

    /// Returns the table of `config.json`; null without scaling.
    fn table(self) -> Value {
        let (kind, mut table) = match self {
            Self::None => return Value::Null,
            Self::Linear(l) => ("linear", json!(l)),
            Self::Dynamic(d) => ("dynamic", json!(d)),
            Self::Yarn(y) => ("yarn", json!(y)),
            Self::Llama3(l) => ("llama3", json!(l)),
        };
        table["rope_type"] = json!(kind);
        if let Some(tokens) = table["original_max_position_embeddings"].as_f64() {
            table["original_max_position_embeddings"] = json!(tokens as u64);
        }
        table
    }
}

/// Parses a scaling's numbers from its table.
fn of<T: for<'de> Deserialize<'de>>(key: &str, table: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(table)).map_err(|e| format!("`{key}`: {e}"))
}

impl Yarn {
    /// Returns the frequency of a pair of dimensions: unchanged, divided, or interpolated.
    fn scaled(&self, i: usize, frequency: f64, theta: f64, head: usize) -> f64 {
        // The dimension that makes this many turns within the old context.
        let dimension = |turns: f64| {
            let wavelength = self.original_max_position_embeddings / (turns * std::f64::consts::TAU);
            head as f64 * wavelength.ln() / (2.0 * theta.ln())
        };
        let (mut low, mut high) =
            (dimension(self.beta_fast.unwrap_or(32.0)), dimension(self.beta_slow.unwrap_or(1.0)));
        if self.truncate.unwrap_or(true) {
            (low, high) = (low.floor(), high.ceil());
        }
        let (low, mut high) = (low.max(0.0), high.min(head as f64 - 1.0));
        if low == high {
            high += 0.001;
        }
        let divided = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
        frequency / self.factor * divided + frequency * (1.0 - divided)
    }

    /// Returns the paper's temperature (section 3.4), as computed by transformers.
    fn factor(&self) -> f64 {
        let of = |weight: f64| if self.factor <= 1.0 { 1.0 } else { 0.1 * weight * self.factor.ln() + 1.0 };
        let given = |x: Option<f64>| x.filter(|x| *x != 0.0);
        match (self.attention_factor, given(self.mscale), given(self.mscale_all_dim)) {
            (Some(factor), ..) => factor,
            (None, Some(above), Some(below)) => of(above) / of(below),
            _ => of(1.0),
        }
    }
}

impl Llama3 {
    fn scaled(&self, frequency: f64) -> f64 {
        let (s, old) = (self, self.original_max_position_embeddings);
        let wavelength = std::f64::consts::TAU / frequency;
        if wavelength > old / s.low_freq_factor {
            frequency / s.factor
        } else if wavelength < old / s.high_freq_factor {
            frequency
        } else {
            let smooth = (old / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
            (1.0 - smooth) * frequency / s.factor + smooth * frequency
        }
    }
}
