//! `[reward.http]` of a config: a server that judges.

mod form;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ServiceConfig;
use crate::address::Wrong;
pub use form::{Form, Variables};

/// The section of the config that this is.
pub const SECTION: &str = "reward.http";

/// What a language model is asked, where the config does not say.
const PROMPT: &str = include_str!("http/prompt.txt");
/// How its verdict is found, where the config does not say.
const VERDICT: &str = r"(?i)verdict {{ mark }}\W*(yes|no)\b";
/// The longest reply, where the config does not say, in tokens.
pub const MAX_TOKENS: u32 = 1024;

/// A server that judges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// Where it is: what comes before the name of the endpoint, with `/v1` where the server has that; for `custom` the
    /// whole address. It is in no record: a run is the same wherever its judge is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// How it is spoken to.
    pub api: Api,
    /// The model, by the server's name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The Jinja template of what the model reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// For `chat`: the regular expression by which the verdict is found in the reply. The last match counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// For `chat`: the longest reply, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// What else is in every request, or instead of what would be.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub body: BTreeMap<String, Value>,
    /// The variable of the environment that has the key. The key itself is in no config and in no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// Requests at a time, at most.
    #[serde(default = "connections", skip_serializing_if = "is_connections")]
    pub connections: u32,
    /// The longest that one exchange may take.
    #[serde(default = "request_seconds", skip_serializing_if = "is_request_seconds")]
    pub request_seconds: f64,
    /// How long the server may be away before the run stops.
    #[serde(default = "patience_seconds", skip_serializing_if = "is_patience_seconds")]
    pub patience_seconds: f64,
    /// The first pause before something is asked again. Each further one is twice as long, up to 10 seconds.
    #[serde(default = "retry_seconds", skip_serializing_if = "is_retry_seconds")]
    pub retry_seconds: f64,
    /// How often an answer is given to a server that fails at it and judges others.
    #[serde(default = "tries", skip_serializing_if = "is_tries")]
    pub tries: u32,
}

/// How a server that judges is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// A language model says what it thinks: OpenAI's `chat/completions`.
    Chat,
    /// A reward model, or a classifier: vLLM's and SGLang's `classify`.
    Classify,
    /// A reward model behind SGLang's `embeddings`.
    Embeddings,
    /// A model that scores pairs of texts, question and answer: vLLM's and SGLang's `score`.
    Score,
    /// A server of the user's own: it gets what verl's `compute_score` gets.
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
    /// Its name in a config.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Classify => "classify",
            Self::Embeddings => "embeddings",
            Self::Score => "score",
            Self::Custom => "custom",
        }
    }

    /// What it is called on a server.
    pub fn endpoint(self) -> &'static str {
        match self {
            Self::Chat => "chat/completions",
            Self::Classify => "classify",
            Self::Embeddings => "embeddings",
            Self::Score => "score",
            Self::Custom => "",
        }
    }

    /// What is asked by default.
    pub fn prompt(self) -> Option<&'static str> {
        (self == Self::Chat).then_some(PROMPT)
    }

    /// How a verdict is found by default.
    pub fn verdict(self) -> Option<&'static str> {
        (self == Self::Chat).then_some(VERDICT)
    }

    /// The longest reply by default.
    pub fn max_tokens(self) -> Option<u32> {
        (self == Self::Chat).then_some(MAX_TOKENS)
    }
}

impl HttpConfig {
    /// What of it decides verdicts, with all that is not written down: what a record has.
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

    /// The first key whose value makes no sense, its value, and the rule that it breaks.
    pub fn wrong(&self) -> Option<Wrong> {
        let broken = || Form::new(self).err().map(|(key, why)| (key, "broken".to_owned(), why));
        self.contradictory().or_else(broken)
    }

    /// The first key whose value makes no sense beside the others, its value, and the rule that it breaks.
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
                let rule = "`custom` has none; what the server should get goes into `body`";
                return told("model", model, rule);
            }
            (None, _) => return told("model", "missing", "it is the server's name for the model"),
            (Some(model), _) if model.is_empty() => {
                return told("model", "empty", "it is the server's name for the model");
            }
            _ => {}
        }
        let reads = matches!(self.api, Api::Chat | Api::Classify | Api::Embeddings);
        if self.prompt.is_some() && !reads {
            return told("prompt", "given", &format!("`{name}` has no prompt"));
        }
        if self.prompt.is_none() && self.api == Api::Embeddings {
            let rule = "`embeddings` needs one: the model's chat template, with question and answer";
            return told("prompt", "missing", rule);
        }
        for (key, given) in [("verdict", self.verdict.is_some()), ("max_tokens", self.max_tokens.is_some())] {
            if given && self.api != Api::Chat {
                return told(key, "given", &format!("`{name}` gives no text; `chat` does"));
            }
        }
        if self.max_tokens == Some(0) {
            return told("max_tokens", "0", "it is at least 1");
        }
        None
    }

    /// Where the server is, as the config has it.
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

    /// Where the server is, and what is asked for there.
    pub fn service(&self) -> (ServiceConfig, String) {
        match self.api {
            Api::Custom => self.whole().parted(),
            api => (self.whole(), api.endpoint().to_owned()),
        }
    }

    /// Where the server lists its models.
    pub fn models(&self) -> &'static str {
        let versioned = self.url.trim_end_matches('/').ends_with("/v1");
        if versioned || matches!(self.api, Api::Chat | Api::Embeddings) { "models" } else { "v1/models" }
    }
}
