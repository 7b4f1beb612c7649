//! Rules for a server's address and time limits.

use url::Url;

/// Default of `patience_seconds`.
pub(crate) fn patience_seconds() -> f64 {
    1800.0
}

/// Default of `retry_seconds`.
pub(crate) fn retry_seconds() -> f64 {
    0.5
}

/// A key with an invalid value, the value, and the rule that it breaks.
pub type Wrong = (&'static str, String, String);

/// Returns an error for an invalid address. `example` is a valid one.
pub(crate) fn wrong_url(url: &str, keyed: bool, section: &str, example: &str) -> Option<Wrong> {
    let told = |value: &str, rule: &str| Some(("url", value.to_owned(), rule.to_owned()));
    match Url::parse(url) {
        Ok(parsed) if !parsed.username().is_empty() || parsed.password().is_some() => {
            // Never show a password, not even in an error.
            let hidden = "an address with a password";
            told(hidden, &format!("set the key through `{section}.api_key_env` instead"))
        }
        Ok(parsed) if parsed.query().is_some() || parsed.fragment().is_some() => {
            told(url, "expected an address without a query or a fragment")
        }
        Ok(parsed) if parsed.scheme() == "http" && keyed && !is_loopback(&parsed) => {
            told(url, "expected https, because a key is sent to another machine")
        }
        Ok(parsed) if matches!(parsed.scheme(), "http" | "https") && parsed.has_host() => None,
        _ => told(url, &format!("expected an address like {example}")),
    }
}

/// Returns an error for the first time limit that is not more than 0 and at most a day.
pub(crate) fn wrong_seconds(request: f64, patience: f64, retry: f64) -> Option<Wrong> {
    let all = [("request_seconds", request), ("patience_seconds", patience), ("retry_seconds", retry)];
    let (key, value) = all.into_iter().find(|(_, value)| !(*value > 0.0 && *value <= 86_400.0))?;
    Some((key, value.to_string(), "expected more than 0 and at most 86400".to_owned()))
}

/// Returns whether an address is on this machine.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}
