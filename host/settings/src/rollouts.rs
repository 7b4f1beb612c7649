//! `[rollout_server]` of a config: an inference server that samples while this program trains.

use serde::{Deserialize, Serialize};

use crate::address::{Wrong, patience_seconds, retry_seconds, wrong_seconds, wrong_url};
use crate::{Precision, Sampling};

/// The config's section.
pub const SECTION: &str = "rollout_server";

/// An inference server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutsConfig {
    /// The kind of server.
    #[serde(rename = "use")]
    pub kind: ServerKind,
    /// The server's address, or a list of addresses of servers that share the rollouts.
    pub url: Urls,
    /// The folder for weights, with a folder for each version.
    pub weights: String,
    /// The path of that folder on the server, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights_there: Option<String>,
    /// The number format of the weights written.
    #[serde(default)]
    pub dtype: Precision,
    /// The server's name for the model; by default the one it serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The environment variable that holds the API key. The key itself is written in no config and no record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// The run stops if the server's log-probabilities differ by more than this from the trainer's, as the
    /// mean over the tokens of an update, in nats.
    #[serde(default = "tolerance")]
    pub tolerance: f64,
    /// Time limit of one request, an answer or a load of weights, in seconds.
    #[serde(default = "request_seconds")]
    pub request_seconds: f64,
    /// Seconds that the server may be unreachable before the run stops.
    #[serde(default = "patience_seconds")]
    pub patience_seconds: f64,
    /// Seconds before the first retry. Each further pause is twice as long, up to 10 seconds.
    #[serde(default = "retry_seconds")]
    pub retry_seconds: f64,
}

/// The address of a server, or the addresses of several of one kind with one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "an address in quotes, or a list of them")]
pub enum Urls {
    /// One address.
    One(String),
    /// Several addresses.
    Several(Vec<String>),
}

impl Urls {
    /// Returns all addresses.
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(url) => std::slice::from_ref(url),
            Self::Several(urls) => urls,
        }
    }
}

/// The kind of an inference server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerKind {
    /// SGLang.
    Sglang,
    /// vLLM.
    Vllm,
}

impl ServerKind {
    /// Returns the kind's name in a config.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sglang => "sglang",
            Self::Vllm => "vllm",
        }
    }
}

fn tolerance() -> f64 {
    0.5
}

fn request_seconds() -> f64 {
    600.0
}

impl RolloutsConfig {
    /// Returns the first key with an invalid value, the value, and the rule that it breaks.
    pub fn wrong(&self) -> Option<Wrong> {
        let told = |key, value: &str, rule: &str| Some((key, value.to_owned(), rule.to_owned()));
        let example = match self.kind {
            ServerKind::Sglang => "http://localhost:30000",
            ServerKind::Vllm => "http://localhost:8000",
        };
        let urls = self.url.all();
        if urls.is_empty() {
            return told(
                "url",
                "an empty list",
                &format!("expected an address like {example}, or a list of them"),
            );
        }
        let keyed = self.api_key_env.is_some();
        if let Some(wrong) = urls.iter().find_map(|url| wrong_url(url, keyed, SECTION, example)) {
            return Some(wrong);
        }
        let place = |url: &String| url.trim_end_matches('/').to_owned();
        if let Some((i, url)) = urls
            .iter()
            .enumerate()
            .find(|(i, url)| urls[..*i].iter().any(|before| place(before) == place(url)))
        {
            return told("url", url, &format!("item {} of the list repeats an earlier one", i + 1));
        }
        let folders = [("weights", Some(&self.weights)), ("weights_there", self.weights_there.as_ref())];
        for (key, folder) in folders {
            if folder.is_some_and(String::is_empty) {
                return told(key, "empty", "expected the path of a folder");
            }
        }
        // The path is not resolved here, because the server may run another system. It must be absolute.
        if let Some(there) = self.weights_there.as_deref().filter(|path| !path.starts_with('/')) {
            return told("weights_there", there, "expected an absolute path");
        }
        if !(self.tolerance > 0.0 && self.tolerance.is_finite()) {
            return told("tolerance", &self.tolerance.to_string(), "expected more than 0, in nats");
        }
        wrong_seconds(self.request_seconds, self.patience_seconds, self.retry_seconds)
    }

    /// Returns the reason why the server's log-probabilities cannot be the denominators of ratios, if so.
    pub fn cannot(&self, sampling: &Sampling) -> Option<&'static str> {
        let cut = sampling.top_k > 0 || sampling.top_p < 1.0;
        (self.kind == ServerKind::Vllm && cut && sampling.temperature != 1.0).then_some(
            "vLLM reports log-probabilities from before temperature and truncation, or from after both: with a \
             temperature other than 1, `sampling.top_k` must be 0 and `sampling.top_p` 1",
        )
    }
}
