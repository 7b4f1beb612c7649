//! A server that answers requests, each by itself.

use url::Url;

use crate::address::{Wrong, wrong_seconds, wrong_url};

/// Where a service is, and how much is put up with.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceConfig {
    /// Where it is. What is asked for comes behind that.
    pub url: String,
    /// The section of the config that says so, for sentences.
    pub section: &'static str,
    /// The variable of the environment that has the key.
    pub api_key_env: Option<String>,
    /// Requests at a time, at most.
    pub connections: u32,
    /// The longest that one exchange may take.
    pub request_seconds: f64,
    /// How long the server may be away.
    pub patience_seconds: f64,
    /// The first pause before something is asked again.
    pub retry_seconds: f64,
    /// How often a request is tried that the server fails at while it does others.
    pub tries: u32,
}

impl ServiceConfig {
    /// The first key whose value makes no sense, its value, and the rule that it breaks. `example` is a good address.
    pub fn wrong(&self, example: &str) -> Option<Wrong> {
        if let Some(wrong) = wrong_url(&self.url, self.api_key_env.is_some(), self.section, example) {
            return Some(wrong);
        }
        for (key, value) in [("connections", self.connections), ("tries", self.tries)] {
            if !(1..=1024).contains(&value) {
                return Some((key, value.to_string(), "it is from 1 to 1024".to_owned()));
            }
        }
        wrong_seconds([
            ("request_seconds", self.request_seconds),
            ("patience_seconds", self.patience_seconds),
            ("retry_seconds", self.retry_seconds),
        ])
    }

    /// The same server, and what is behind it in the address: for a server that has one door alone.
    pub fn parted(mut self) -> (Self, String) {
        let Ok(url) = Url::parse(&self.url) else { return (self, String::new()) };
        let path = url.path().trim_start_matches('/').to_owned();
        let whole = self.url.len() - path.len();
        if self.url.ends_with(&path) {
            self.url.truncate(whole);
        }
        (self, path)
    }
}
