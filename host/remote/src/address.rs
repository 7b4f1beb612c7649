//! Where a server is, how it is spoken to, and how much is put up with: what every engine on another machine has in
//! its section of the config.

use std::time::Duration;

use reqwest::Url;

/// A server's place, and the manners towards it.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) url: String,
    /// What comes between that and a verb.
    pub(crate) path: &'static str,
    /// The section of the config that says so, for sentences.
    pub(crate) section: &'static str,
    /// The variable of the environment that has the key.
    pub(crate) api_key_env: Option<String>,
    /// How the key is shown.
    pub(crate) lock: Lock,
    /// Exchanges at a time, at most.
    pub(crate) connections: u32,
    /// The longest that one exchange may take.
    pub(crate) request: Duration,
    /// How long the server may be away.
    pub(crate) patience: Duration,
    /// The first pause before something is asked again.
    pub(crate) retry: Duration,
}

/// How a server wants its key.
#[derive(Clone, Copy)]
pub(crate) enum Lock {
    /// In a header of its own, `x-api-key`.
    ApiKey,
    /// As `authorization: Bearer …`. With it goes the name that such a key's variable usually has.
    Bearer(&'static str),
}

impl Lock {
    /// The header's name, and what comes before the key in it.
    pub(crate) fn header(self) -> (&'static str, &'static str) {
        match self {
            Self::ApiKey => ("x-api-key", ""),
            Self::Bearer(_) => ("authorization", "Bearer "),
        }
    }

    /// What a variable with such a key may be called.
    pub(crate) fn example(self) -> &'static str {
        match self {
            Self::ApiKey => "TINKER_API_KEY",
            Self::Bearer(name) => name,
        }
    }
}

/// How long a server may be away, where the config does not say.
pub(crate) fn patience_seconds() -> f64 {
    1800.0
}

/// The first pause before something is asked again, where the config does not say.
pub(crate) fn retry_seconds() -> f64 {
    0.5
}

/// A key of the config, its value, and the rule that it breaks.
pub type Wrong = (&'static str, String, String);

/// What is wrong with an address, if anything is. `example` is a good one.
pub(crate) fn wrong_url(url: &str, keyed: bool, section: &str, example: &str) -> Option<Wrong> {
    let told = |value: &str, rule: &str| Some(("url", value.to_owned(), rule.to_owned()));
    match Url::parse(url) {
        Ok(parsed) if !parsed.username().is_empty() || parsed.password().is_some() => {
            // Not even to say what is wrong with it.
            let hidden = "an address with a password";
            told(hidden, &format!("a key is given by `{section}.api_key_env` alone"))
        }
        Ok(parsed) if parsed.query().is_some() || parsed.fragment().is_some() => {
            told(url, "it ends with a path, or before it")
        }
        Ok(parsed) if parsed.scheme() == "http" && keyed && !is_loopback(&parsed) => {
            told(url, "a key goes over https alone, but on this machine")
        }
        Ok(parsed) if matches!(parsed.scheme(), "http" | "https") && parsed.has_host() => None,
        _ => told(url, &format!("it is an address like {example}")),
    }
}

/// The first number of seconds that makes no sense.
pub(crate) fn wrong_seconds(all: [(&'static str, f64); 3]) -> Option<Wrong> {
    let (key, value) = all.into_iter().find(|(_, value)| !(*value > 0.0 && *value <= 86_400.0))?;
    Some((key, value.to_string(), "it is more than 0 and at most a day, 86400".to_owned()))
}

/// Whether an address is on this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}
