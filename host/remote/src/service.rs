//! A server for independent, stateless requests, such as a grader. The caller defines requests and
//! interprets replies.
//!
//! Requests are retried after pauses, up to the patience, as for all servers. If a request fails while the
//! server answers others, the caller gets the reason and the run continues.

use std::time::{Duration, Instant};

use allot_engine::EngineError;
use allot_settings::ServiceConfig;
use reqwest::StatusCode;
use serde_json::Value;

use crate::address::Address;
use crate::client::{Client, RequestBody, dash, told, words};
use crate::preflight::waited;

/// The longest reply that is accepted, in bytes.
const LONGEST_REPLY: usize = 16 << 20;
/// The longest pause that a server may request.
const LONGEST_LATER: Duration = Duration::from_mins(1);

/// A server that answers requests.
pub struct Service {
    client: Client,
    tries: u32,
}

/// The reply to a request, or why there is none although the server is available.
pub type Replied = Result<Vec<u8>, String>;

impl Service {
    /// Returns a service. Sends nothing yet. `notice` is called when the server is unavailable or back.
    pub fn open(config: &ServiceConfig, notice: fn(&str)) -> Result<Self, EngineError> {
        Ok(Self { client: Client::open(Address::service(config), notice)?, tries: config.tries })
    }

    /// Returns the result of some work before a run starts, with a short patience and no retries.
    pub fn first<T, E: From<EngineError>>(
        config: &ServiceConfig,
        work: impl AsyncFnOnce(&Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let service = Self { client: Client::first(Address::service(config))?, tries: 1 };
        waited(work(&service))?
    }

    /// Returns the JSON at a path, if there is any.
    pub async fn get(&self, path: &str) -> Result<Option<Value>, EngineError> {
        match self.replied(path, None, None).await {
            Ok(replied) => Ok(replied.ok().and_then(|body| serde_json::from_slice(&body).ok())),
            Err(Halt::NoSuchPath(_)) => Ok(None),
            Err(Halt::Stop(error)) => Err(error),
        }
    }

    /// Returns the reply to a request, as JSON. `other` is a request that a working server can answer. An
    /// error means that the server does not work any more.
    pub async fn ask(&self, path: &str, body: &str, other: Option<&str>) -> Result<Replied, EngineError> {
        self.replied(path, Some(body), other).await.map_err(|halt| match halt {
            Halt::Stop(error) => error,
            Halt::NoSuchPath(detail) => {
                let (url, section) = (&self.client.to().url, self.client.to().section);
                let what = format!("the server at {url} has no `{path}`, or no such model{}", dash(&detail));
                told(what, &format!("set `{section}.url` to the part before `{path}`; check the server"))
            }
        })
    }

    async fn replied(&self, path: &str, body: Option<&str>, other: Option<&str>) -> Result<Replied, Halt> {
        let client = &self.client;
        let (mut began, mut failures, mut pauses) = (None, 0, client.pauses());
        loop {
            let turn = client.turn().await;
            // The time spent waiting for a permit does not count against the server's patience.
            let began = *began.get_or_insert_with(Instant::now);
            let heard = client.once(path, body.map(RequestBody::Json)).await;
            drop(turn);
            let mut later = None;
            let (why, own) = match heard {
                Ok(heard) if heard.body().len() > LONGEST_REPLY => {
                    return Ok(Err(format!("the server replied with more than {LONGEST_REPLY} bytes")));
                }
                Ok(heard) if heard.status().is_success() => {
                    client.back();
                    return Ok(Ok(heard.body().to_vec()));
                }
                Ok(heard) => {
                    let (status, detail) = (heard.status(), client.detail(heard.body()));
                    match status.as_u16() {
                        401 | 403 => return Err(Halt::Stop(client.locked(status))),
                        404 | 405 | 410 => return Err(Halt::NoSuchPath(detail)),
                        408 | 425 | 429 | 500.. => {}
                        code => {
                            return Ok(Err(format!("the server refused it ({code}){}", dash(&detail))));
                        }
                    }
                    later = heard.later();
                    // Other errors mean that the server is busy or unavailable, whatever the request.
                    let own = status == StatusCode::INTERNAL_SERVER_ERROR;
                    (format!("it answers {status}{}", dash(&detail)), own)
                }
                Err(error) => (words(&error), !error.is_connect()),
            };
            failures += u32::from(own);
            if failures >= self.tries && other.is_some() && self.does(path, other).await {
                return Ok(Err(format!("the server failed {failures} times: {why}")));
            }
            if began.elapsed() >= client.to().patience {
                return Err(Halt::Stop(client.away(path, &why)));
            }
            client.gone(path, &why);
            let pause = pauses.next().unwrap_or_default();
            tokio::time::sleep(later.map_or(pause, |later| later.clamp(pause, LONGEST_LATER))).await;
        }
    }

    /// Returns whether the server answers this request now.
    async fn does(&self, path: &str, body: Option<&str>) -> bool {
        let _turn = self.client.turn().await;
        let heard = self.client.once(path, body.map(RequestBody::Json)).await;
        heard.is_ok_and(|heard| heard.status().is_success())
    }
}

/// Why no reply is possible any more.
enum Halt {
    NoSuchPath(String),
    Stop(EngineError),
}
