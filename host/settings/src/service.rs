//! The address and limits of a server that handles independent requests.

use url::Url;

use crate::address::{Wrong, wrong_seconds, wrong_url};

/// The address and limits of a server that handles independent requests.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceConfig {
    /// The address, without the endpoint's path.
    pub url: String,
    /// The config's section, for errors.
    pub section: &'static str,
    /// The environment variable that holds the API key.
    pub api_key_env: Option<String>,
    /// The most concurrent requests.
    pub connections: u32,
    /// Time limit of one request, in seconds.
    pub request_seconds: f64,
    /// Seconds that the server may be unreachable.
    pub patience_seconds: f64,
    /// Seconds before the first retry.
    pub retry_seconds: f64,
    /// Attempts at a request that fails while others succeed.
    pub tries: u32,
}

impl ServiceConfig {
    /// Returns the first key with an invalid value, the value, and the broken rule. `example` is valid.
    pub fn wrong(&self, example: &str) -> Option<Wrong> {
        if let Some(wrong) = wrong_url(&self.url, self.api_key_env.is_some(), self.section, example) {
            return Some(wrong);
        }
        for (key, value) in [("connections", self.connections), ("tries", self.tries)] {
            if !(1..=1024).contains(&value) {
                return Some((key, value.to_string(), "expected 1 to 1024".to_owned()));
            }
        }
        wrong_seconds(self.request_seconds, self.patience_seconds, self.retry_seconds)
    }

    /// Splits the address into the server's address and the path, for a server with a single endpoint.
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
