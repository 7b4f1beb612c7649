//! A grading server: a language model or reward model behind an endpoint, or the user's own program.
//!
//! Answers are sent concurrently, while the run samples. A request is made once in a run (`replies`).
//! `request` parses replies; [`Service`] handles repeated requests and gives up on a server.

mod replies;
mod request;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use allot_base::{Error, Result};
use allot_remote::Service;
use allot_settings::{HttpConfig, http};
use serde_json::Value;

use super::identity::{GraderPreflight, Identity};
use super::protocol::{Hello, Opinion, Question, words};
use super::workers::{Places, Workers};
use replies::Replies;
use request::{Form, Reply, Request};

/// A grader that is a server; it is a judge if a language model answers.
pub struct Http {
    config: HttpConfig,
    /// A question that a working server can answer.
    greeting: Question,
    /// Its identity when the run began.
    known: Option<Identity>,
    /// The file of its replies.
    kept: Option<PathBuf>,
    notice: fn(&str),
    /// Created at the first question; an error if that failed.
    asking: Option<Result<Asking>>,
}

/// The questions of a round.
struct Asking {
    server: Arc<Server>,
    workers: Workers<Request, (String, Opinion)>,
    places: Places,
    /// Answers that no request can be made from, with the reason.
    unasked: Vec<(usize, Opinion)>,
}

/// The state that all requests share.
struct Server {
    url: String,
    /// The model that graded when the run began.
    known: Option<String>,
    form: Form,
    /// Number of concurrent requests.
    most: usize,
    service: Service,
    /// The path of the endpoint.
    path: String,
    /// A request that a working server can answer.
    greeting: String,
    /// The lock is never held across an await.
    replies: Mutex<Replies>,
}

impl Http {
    /// Returns a server. Sends nothing yet.
    pub fn new(config: &HttpConfig, greeting: Question, known: Option<Identity>) -> Self {
        let config = config.clone();
        Self { config, greeting, known, kept: None, notice: |_| (), asking: None }
    }

    /// Sends the greeting to check the server. Returns its identity. Must not be called from async code.
    ///
    /// # Errors
    ///
    /// A server that is missing, does not have the model, or gives no verdict.
    pub fn check(&self) -> Result<GraderPreflight> {
        let Self { config, greeting, .. } = self;
        let form = form(config)?;
        let (service, path) = config.service();
        let request = form.request(greeting).map_err(Error::new)?;
        let (version, replied) = Service::first(&service, async |service| {
            let listed =
                if config.api == http::Api::Custom { None } else { service.get(config.models()).await? };
            let version = listed.map(|listed| root(&listed, config)).transpose()?.flatten();
            Ok::<_, Error>((version, service.ask(&path, &request.body, None).await?))
        })?;
        let reply = replied.and_then(|body| form.reply(&request, &body));
        let url = &config.url;
        let reply = reply.map_err(|why| {
            let hint = format!("`{}` has `api = \"{}\"`", http::SECTION, config.api.name());
            Error::new(format!("the grader at {url} gave no verdict: {why}")).hint(hint)
        })?;
        let opinion = reply.opinion.map_err(|why| {
            let hint =
                "say in the prompt how to write the verdict, and set `verdict` in [reward.http] to find it";
            Error::new(format!("the grader at {url} failed on a right answer: {why}")).hint(hint)
        })?;
        let model = reply.model.or_else(|| config.model.clone()).map(shown);
        let hello = Hello { name: model, version: reply.version.or(version).map(shown) };
        let identity = config.identity();
        let mut words = vec!["http".to_owned(), identity.api.name().to_owned()];
        words.extend(identity.model.iter().chain(&identity.prompt).chain(&identity.verdict).cloned());
        Ok(GraderPreflight {
            identity: Identity::of(&words, hello)?,
            words,
            opinion: Ok(opinion),
            compares: false,
        })
    }

    /// Stores the server's replies in a file, and reuses those already in it. `notice` is called when the
    /// server becomes unavailable, and when it is back. Call this before the first question.
    pub fn keep(&mut self, file: &Path, notice: fn(&str)) {
        (self.kept, self.notice) = (Some(file.to_owned()), notice);
    }

    /// Asks about an answer without waiting for the opinion.
    pub fn begin(&mut self, place: usize, question: &Question) {
        let Self { config, greeting, known, kept, notice, asking } = self;
        let open =
            || Server::open(config, greeting, known.as_ref(), kept.as_deref(), *notice).map(Asking::of);
        if let Ok(asking) = asking.get_or_insert_with(open) {
            asking.begin(place, question);
        }
    }

    /// Returns the opinions on all answers since the last call, with their places, in any order.
    ///
    /// # Errors
    ///
    /// A server that can't grade any more.
    pub async fn finish(&mut self) -> Result<Vec<(usize, Opinion)>> {
        match &mut self.asking {
            None => Ok(Vec::new()),
            Some(Ok(asking)) => asking.finish().await,
            Some(Err(error)) => Err(error.clone()),
        }
    }
}

impl Asking {
    fn of(server: Server) -> Self {
        let server = Arc::new(server);
        let asked = Arc::clone(&server);
        let workers = Workers::waiting(server.most, move |request| {
            let server = Arc::clone(&asked);
            async move { server.opinion(request).await }
        });
        Self { server, workers, places: Places::default(), unasked: Vec::new() }
    }

    fn begin(&mut self, place: usize, question: &Question) {
        match self.server.form.request(question) {
            Err(why) => self.unasked.push((place, Err(why))),
            Ok(request) if self.places.add(&request.key, place) => self.workers.begin(request),
            Ok(_) => {}
        }
    }

    async fn finish(&mut self) -> Result<Vec<(usize, Opinion)>> {
        let (places, mut all) = (std::mem::take(&mut self.places), std::mem::take(&mut self.unasked));
        let opinions: HashMap<String, Opinion> = self.workers.finish().await?.into_iter().collect();
        all.extend(places.opinions(|key| opinions.get(key).cloned()));
        Ok(all)
    }
}

impl Server {
    fn open(
        config: &HttpConfig,
        greeting: &Question,
        known: Option<&Identity>,
        kept: Option<&Path>,
        notice: fn(&str),
    ) -> Result<Self> {
        let form = form(config)?;
        let (service, path) = config.service();
        Ok(Self {
            url: config.url.clone(),
            known: known.and_then(|known| known.hello.name.clone()),
            greeting: form.request(greeting).map_err(Error::new)?.body,
            form,
            // A request that waits for a retry holds no connection, and must not delay the others.
            most: 2 * config.connections as usize,
            service: Service::open(&service, notice)?,
            path,
            replies: Mutex::new(kept.map(Replies::open).transpose()?.unwrap_or_default()),
        })
    }

    fn replies(&self) -> MutexGuard<'_, Replies> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the opinion in the server's reply, which may be from earlier in the run. Replies are stored;
    /// a missing reply is not.
    async fn opinion(&self, request: Request) -> Result<(String, Opinion)> {
        let known = self.replies().get(&request.key).cloned();
        if let Some(opinion) = known {
            return Ok((request.key, opinion));
        }
        let body = match self.service.ask(&self.path, &request.body, Some(&self.greeting)).await? {
            Ok(body) => body,
            Err(why) => return Ok((request.key, Err(why))),
        };
        let (reply, opinion) = match self.form.reply(&request, &body) {
            Ok(Reply { model, words, opinion, .. }) => {
                self.same(model)?;
                (words, opinion)
            }
            Err(why) => (Value::Null, Err(why)),
        };
        self.replies().keep(request.key.clone(), reply, opinion.clone())?;
        Ok((request.key, opinion))
    }

    /// Rejects a verdict of another model than the one at the start of the run.
    fn same(&self, model: Option<String>) -> Result<()> {
        let (Some(known), Some(model)) = (&self.known, model.map(shown)) else { return Ok(()) };
        if model == *known {
            return Ok(());
        }
        let url = &self.url;
        let what =
            format!("the grader at {url} changed during the run: it was `{known}`, and is now `{model}`");
        Err(Error::new(what).hint("restore it as it was when the run began, and continue with --resume"))
    }
}

fn form(config: &HttpConfig) -> Result<Form> {
    Form::new(config).map_err(|(key, why)| Error::new(format!("`{}.{key}`: {why}", http::SECTION)))
}

fn shown(text: String) -> String {
    words(text.as_bytes())
}

/// Returns the files that the server loaded the model from, if its list of models names them.
fn root(listed: &Value, config: &HttpConfig) -> Result<Option<String>> {
    let Some(models) = listed["data"].as_array() else { return Ok(None) };
    let wanted = config.model.as_deref().unwrap_or_default();
    let ids: Vec<&str> = models.iter().filter_map(|model| model["id"].as_str()).collect();
    if let Some(model) = models.iter().find(|model| model["id"] == wanted) {
        return Ok(model["root"].as_str().filter(|root| *root != wanted).map(|root| format!("root {root}")));
    }
    let has: Vec<String> = ids.iter().take(12).map(|id| format!("`{}`", shown((*id).to_owned()))).collect();
    let what = format!("the grader at {} has no model `{wanted}`", config.url);
    Err(Error::new(what).hint(format!("it has {}; set `{}.model`", has.join(", "), http::SECTION)))
}
