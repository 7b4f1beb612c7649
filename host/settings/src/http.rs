//! `[reward.http]` of a config: a server that grades.

mod form;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ServiceConfig;
use crate::address::Wrong;
pub use form::{Form, Variables};

/// The config's section.
pub const SECTION: &str = "reward.http";

/// Default of `prompt` for a language model.
const PROMPT: &str = include_str!("http/prompt.txt");
/// Default of `verdict`.
const VERDICT: &str = r"(?i)verdict {{ mark }}\W*(yes|no)\b";
/// Default of `max_tokens`.
pub const MAX_TOKENS: u32 = 1024;

/// A server that grades.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// The server's address without the endpoint, but with `/v1` if the server has it. For `custom`, the
    /// whole address. Not part of the run's identity, because the same judge may move to another address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The endpoint's API.
    pub api: Api,
    /// The server's name for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The Jinja template of the model's prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// For `chat`: the regular expression that finds the verdict in the reply. The last match counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// For `chat`: length limit of the reply, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Fields added to every request's body; they replace fields of the same names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub body: BTreeMap<String, Value>,
    /// The environment variable that holds the API key. The key itself is written in no config and no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// The most concurrent requests.
    #[serde(default = "connections", skip_serializing_if = "is_connections")]
    pub connections: u32,
    /// Time limit of one request, in seconds.
    #[serde(default = "request_seconds", skip_serializing_if = "is_request_seconds")]
    pub request_seconds: f64,
    /// Seconds that the server may be unreachable before the run stops.
    #[serde(default = "patience_seconds", skip_serializing_if = "is_patience_seconds")]
    pub patience_seconds: f64,
    /// Seconds before the first retry. Each further pause is twice as long, up to 10 seconds.
    #[serde(default = "retry_seconds", skip_serializing_if = "is_retry_seconds")]
    pub retry_seconds: f64,
    /// Attempts at an answer for which the server fails while it grades others.
    #[serde(default = "tries", skip_serializing_if = "is_tries")]
    pub tries: u32,
}

/// The API of a grading server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// A language model as a judge: OpenAI's `chat/completions`.
    Chat,
    /// A reward model, or a classifier: vLLM's and SGLang's `classify`.
    Classify,
    /// A reward model behind SGLang's `embeddings`.
    Embeddings,
    /// A model that scores pairs of question and answer: vLLM's and SGLang's `score`.
    Score,
    /// A server of the user, which gets the arguments of verl's `compute_score`.
    Custom,
}

macro_rules! defaults {
    ($($name:ident, $is:ident: $type:ty = $value:expr;)*) => {$(
        fn $name() -> $type {
            $value
        }

        #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
        fn $is(value: &$type) -> bool {
            *value == $value
        }
    )*};
}

defaults! {
    connections, is_connections: u32 = 32;
    request_seconds, is_request_seconds: f64 = 120.0;
    patience_seconds, is_patience_seconds: f64 = 600.0;
    retry_seconds, is_retry_seconds: f64 = 0.5;
    tries, is_tries: u32 = 5;
}

impl Api {
    /// Returns the API's name in a config.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Classify => "classify",
            Self::Embeddings => "embeddings",
            Self::Score => "score",
            Self::Custom => "custom",
        }
    }

    /// Returns the endpoint's path.
    pub fn endpoint(self) -> &'static str {
        match self {
            Self::Chat => "chat/completions",
            Self::Classify => "classify",
            Self::Embeddings => "embeddings",
            Self::Score => "score",
            Self::Custom => "",
        }
    }

    /// Returns the default prompt.
    pub fn prompt(self) -> Option<&'static str> {
        (self == Self::Chat).then_some(PROMPT)
    }

    /// Returns the default regular expression of a verdict.
    pub fn verdict(self) -> Option<&'static str> {
        (self == Self::Chat).then_some(VERDICT)
    }

    /// Returns the default length limit of a reply, in tokens.
    pub fn max_tokens(self) -> Option<u32> {
        (self == Self::Chat).then_some(MAX_TOKENS)
    }
}

impl HttpConfig {
    /// Returns the settings that verdicts depend on, with defaults filled in. The record stores them.
    pub fn identity(&self) -> Self {
        let form = |text: &Option<String>, usual: Option<&str>| text.clone().or(usual.map(str::to_owned));
        Self {
            url: String::new(),
            prompt: form(&self.prompt, self.api.prompt()),
            verdict: form(&self.verdict, self.api.verdict()),
            max_tokens: self.max_tokens.or_else(|| self.api.max_tokens()),
            api_key_env: None,
            connections: connections(),
            request_seconds: request_seconds(),
            patience_seconds: patience_seconds(),
            retry_seconds: retry_seconds(),
            tries: tries(),
            ..self.clone()
        }
    }

    /// Returns the first key with an invalid value, the value, and the rule that it breaks.
    pub fn wrong(&self) -> Option<Wrong> {
        let broken = || Form::new(self).err().map(|(key, why)| (key, "broken".to_owned(), why));
        self.contradictory().or_else(broken)
    }

    /// Returns the first key whose value contradicts the others, the value, and the rule.
    fn contradictory(&self) -> Option<Wrong> {
        let told = |key, value: &str, rule: &str| Some((key, value.to_owned(), rule.to_owned()));
        let example = match self.api {
            Api::Chat | Api::Embeddings => "http://localhost:8000/v1",
            Api::Classify | Api::Score => "http://localhost:8000",
            Api::Custom => "http://localhost:8000/judge",
        };
        if let Some(wrong) = self.whole().wrong(example) {
            return Some(wrong);
        }
        let name = self.api.name();
        match (&self.model, self.api) {
            (None, Api::Custom) => {}
            (Some(model), Api::Custom) => {
                let rule = "`custom` does not use it; put everything the server should receive into `body`";
                return told("model", model, rule);
            }
            (None, _) => return told("model", "missing", "expected the server's name for the model"),
            (Some(model), _) if model.is_empty() => {
                return told("model", "empty", "expected the server's name for the model");
            }
            _ => {}
        }
        let reads = matches!(self.api, Api::Chat | Api::Classify | Api::Embeddings);
        if self.prompt.is_some() && !reads {
            return told("prompt", "given", &format!("`{name}` does not take a prompt"));
        }
        if self.prompt.is_none() && self.api == Api::Embeddings {
            let rule = "`embeddings` needs one: the model's chat template, with the question and the answer";
            return told("prompt", "missing", rule);
        }
        for (key, given) in [("verdict", self.verdict.is_some()), ("max_tokens", self.max_tokens.is_some())] {
            if given && self.api != Api::Chat {
                return told(key, "given", &format!("`{name}` does not return text; `chat` does"));
            }
        }
        if self.max_tokens == Some(0) {
            return told("max_tokens", "0", "expected at least 1");
        }
        None
    }

    /// Returns the server's address and limits.
    fn whole(&self) -> ServiceConfig {
        ServiceConfig {
            url: self.url.clone(),
            section: SECTION,
            api_key_env: self.api_key_env.clone(),
            connections: self.connections,
            request_seconds: self.request_seconds,
            patience_seconds: self.patience_seconds,
            retry_seconds: self.retry_seconds,
            tries: self.tries,
        }
    }

    /// Returns the server's address and limits, and the endpoint's path.
    pub fn service(&self) -> (ServiceConfig, String) {
        match self.api {
            Api::Custom => self.whole().parted(),
            api => (self.whole(), api.endpoint().to_owned()),
        }
    }

    /// Returns the path of the server's list of models.
    pub fn models(&self) -> &'static str {
        let versioned = self.url.trim_end_matches('/').ends_with("/v1");
        if versioned || matches!(self.api, Api::Chat | Api::Embeddings) { "models" } else { "v1/models" }
    }
}
