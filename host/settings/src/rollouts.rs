//! `[rollouts]` of a config: a server that samples, while this program trains.

use serde::{Deserialize, Serialize};

use crate::address::{Wrong, patience_seconds, retry_seconds, wrong_seconds, wrong_url};
use crate::{Precision, Sampling};

/// The section of the config that this is.
pub const SECTION: &str = "rollouts";

/// A server that samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutsConfig {
    /// Which one it is.
    #[serde(rename = "use")]
    pub kind: ServerKind,
    /// Where it is; a list, where several share the rollouts.
    pub url: Urls,
    /// The folder in which weights are handed over, one folder for each version.
    pub weights: String,
    /// The same folder as the server sees it, where that is another path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights_there: Option<String>,
    /// What weights are written in.
    #[serde(default)]
    pub dtype: Precision,
    /// The model, by the server's name for it. Without it, what the server has is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The variable of the environment that has the key. The key itself is in no config and in no record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// How far the server's log-probabilities may lie from the trainer's own before the run stops: the mean over
    /// the tokens of an update, in nats.
    #[serde(default = "tolerance")]
    pub tolerance: f64,
    /// The longest that one exchange may take: an answer, or a load of weights.
    #[serde(default = "request_seconds")]
    pub request_seconds: f64,
    /// How long the server may be away before the run stops.
    #[serde(default = "patience_seconds")]
    pub patience_seconds: f64,
    /// The first pause before something is asked again. Each further one is twice as long, up to 10 seconds.
    #[serde(default = "retry_seconds")]
    pub retry_seconds: f64,
}

/// Where one server is, or several of one kind with one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "an address in quotes, or a list of them")]
pub enum Urls {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Urls {
    /// All of them.
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(url) => std::slice::from_ref(url),
            Self::Several(urls) => urls,
        }
    }
}

/// A server, by its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerKind {
    /// SGLang.
    Sglang,
    /// vLLM.
    Vllm,
}

impl ServerKind {
    /// Its name in a config.
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
    /// The first key whose value makes no sense, its value, and the rule that it breaks.
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
                &format!("it is an address like {example}, or a list of them"),
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
            return told("url", url, &format!("number {} of the list is one of those before it", i + 1));
        }
        let folders = [("weights", Some(&self.weights)), ("weights_there", self.weights_there.as_ref())];
        for (key, folder) in folders {
            if folder.is_some_and(String::is_empty) {
                return told(key, "empty", "it is the path of a folder");
            }
        }
        // The server's paths may be those of another system, and are whole.
        if let Some(there) = self.weights_there.as_deref().filter(|path| !path.starts_with('/')) {
            return told("weights_there", there, "it is a whole path, from `/` on");
        }
        if !(self.tolerance > 0.0 && self.tolerance.is_finite()) {
            return told("tolerance", &self.tolerance.to_string(), "it is more than 0, in nats");
        }
        wrong_seconds([
            ("request_seconds", self.request_seconds),
            ("patience_seconds", self.patience_seconds),
            ("retry_seconds", self.retry_seconds),
        ])
    }

    /// Why the server's log-probabilities could not be those that ratios are measured from, if they could not.
    pub fn cannot(&self, rollout: &Sampling) -> Option<&'static str> {
        let cut = rollout.top_k > 0 || rollout.top_p < 1.0;
        (self.kind == ServerKind::Vllm && cut && rollout.temperature != 1.0).then_some(
            "vLLM tells log-probabilities before temperature and cuts, or after both: with another temperature \
             than 1, `rollout.top_k` and `rollout.top_p` cut nothing",
        )
    }
}
