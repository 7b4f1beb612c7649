//! A server that judges: a language model or a reward model behind an endpoint, or a program of the user's own.
//!
//! Answers are asked about side by side, from a thread that judges while the run's own samples. The same request is
//! made once in a run (`replies`). What a reply means is in `request`; how a server is asked again, and when it is
//! given up, in [`Service`].

mod replies;
mod request;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use allot_error::{Error, Result};
use allot_remote::Service;
use allot_settings::{HttpConfig, http};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::identity::{Identity, Preflight};
use super::protocol::{Hello, Opinion, Question, words};
use super::worker::runtime;
use replies::Replies;
use request::{Form, Reply, Request};

/// A server that judges.
pub struct Http {
    judge: Arc<Judge>,
    /// The file that keeps what was said.
    kept: Option<PathBuf>,
    notice: fn(&str),
    sitting: Option<Sitting>,
    /// How many are being judged.
    open: usize,
}

/// How the server is asked.
struct Judge {
    config: HttpConfig,
    /// What it is asked to see whether it works.
    greeting: Question,
    /// Who it was when the run began.
    known: Option<Identity>,
}

/// The thread that asks.
struct Sitting {
    ask: Option<UnboundedSender<(usize, Question)>>,
    told: UnboundedReceiver<Result<(usize, Opinion)>>,
    thread: Option<JoinHandle<()>>,
}

impl Http {
    /// A server. Nothing is sent yet.
    pub fn new(config: &HttpConfig, greeting: Question, known: Option<Identity>) -> Self {
        let judge = Arc::new(Judge { config: config.clone(), greeting, known });
        Self { judge, kept: None, notice: |_| (), sitting: None, open: 0 }
    }

    /// Asks about the greeting, to see that the server is there and speaks as it should; gives who it is. It must not
    /// be called from async code.
    ///
    /// # Errors
    ///
    /// A server that is not there, has no such model, or gives no verdict.
    pub fn check(&self) -> Result<Preflight> {
        let Judge { config, greeting, .. } = &*self.judge;
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
            Error::new(format!("the judge at {url} does not judge: {why}")).hint(hint)
        })?;
        let opinion = reply.opinion.map_err(|why| {
            let hint =
                "the prompt says how the verdict is to be written, and `verdict` in [reward.http] finds it";
            Error::new(format!("the judge at {url} was asked about a right answer: {why}")).hint(hint)
        })?;
        let model = reply.model.or_else(|| config.model.clone()).map(shown);
        let told = Hello { name: model, version: reply.version.or(version).map(shown) };
        let identity = config.identity();
        let mut words = vec!["http".to_owned(), identity.api.name().to_owned()];
        words.extend(identity.model.iter().chain(&identity.prompt).chain(&identity.verdict).cloned());
        Ok(Preflight { identity: Identity::of(&words, told)?, words, opinion: Ok(opinion) })
    }

    /// Keeps what the server says in a file, and takes from there what it has said before; `notice` is called when the
    /// server is away, and when it is back. For before anything is asked.
    pub fn keep(&mut self, file: &Path, notice: fn(&str)) {
        (self.kept, self.notice) = (Some(file.to_owned()), notice);
    }

    /// Begins to ask about an answer.
    pub fn begin(&mut self, place: usize, question: Question) {
        let (judge, kept, notice) = (&self.judge, &self.kept, self.notice);
        let sitting = self.sitting.get_or_insert_with(|| {
            let (ask, asked) = unbounded_channel();
            let (tell, told) = unbounded_channel();
            let (judge, kept) = (Arc::clone(judge), kept.clone());
            let thread = std::thread::Builder::new().spawn(move || {
                if let Err(error) = sit(&judge, kept.as_deref(), notice, asked, &tell) {
                    let _ = tell.send(Err(error));
                }
            });
            Sitting { ask: Some(ask), told, thread: thread.ok() }
        });
        self.open += 1;
        // Where nobody sits any more, `finish` says so.
        let _ = sitting.ask.as_ref().map(|ask| ask.send((place, question)));
    }

    /// All that was begun, in any order.
    ///
    /// # Errors
    ///
    /// A server that judges nothing any more.
    pub async fn finish(&mut self) -> Result<Vec<(usize, Opinion)>> {
        let mut all = Vec::with_capacity(self.open);
        while self.open > 0 {
            let told = match &mut self.sitting {
                Some(sitting) => sitting.told.recv().await,
                None => None,
            };
            all.push(told.unwrap_or_else(|| Err(Error::new("judging was broken off")))?);
            self.open -= 1;
        }
        Ok(all)
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        if let Some(mut sitting) = self.sitting.take() {
            sitting.ask = None;
            let _ = sitting.thread.take().map(JoinHandle::join);
        }
    }
}

fn form(config: &HttpConfig) -> Result<Form> {
    Form::new(config).map_err(|(key, why)| Error::new(format!("`{}.{key}`: {why}", http::SECTION)))
}

fn shown(text: String) -> String {
    words(text.as_bytes())
}

/// What a list of models says of the one that judges: the files that it was loaded from, where the server tells.
fn root(listed: &Value, config: &HttpConfig) -> Result<Option<String>> {
    let Some(models) = listed["data"].as_array() else { return Ok(None) };
    let wanted = config.model.as_deref().unwrap_or_default();
    let ids: Vec<&str> = models.iter().filter_map(|model| model["id"].as_str()).collect();
    if let Some(model) = models.iter().find(|model| model["id"] == wanted) {
        return Ok(model["root"].as_str().filter(|root| *root != wanted).map(|root| format!("root {root}")));
    }
    let has: Vec<String> = ids.iter().take(12).map(|id| format!("`{}`", shown((*id).to_owned()))).collect();
    let what = format!("the judge at {} has no model `{wanted}`", config.url);
    Err(Error::new(what).hint(format!("it has {}; set `{}.model`", has.join(", "), http::SECTION)))
}

/// Asks until nobody wants to know any more.
fn sit(
    judge: &Judge,
    kept: Option<&Path>,
    notice: fn(&str),
    mut asked: UnboundedReceiver<(usize, Question)>,
    tell: &UnboundedSender<Result<(usize, Opinion)>>,
) -> Result<()> {
    let form = form(&judge.config)?;
    let (service, path) = judge.config.service();
    let service = Service::open(&service, notice)?;
    let greeting = form.request(&judge.greeting).map_err(Error::new)?;
    let mut replies = kept.map(Replies::open).transpose()?.unwrap_or_default();
    runtime()?.block_on(async {
        let mut under_way = FuturesUnordered::new();
        // Who waits for a request that is under way.
        let mut waiting: HashMap<String, Vec<usize>> = HashMap::new();
        loop {
            tokio::select! {
                next = asked.recv() => {
                    let Some((place, question)) = next else { return Ok(()) };
                    let request = match form.request(&question) {
                        Ok(request) => request,
                        Err(why) => {
                            let _ = tell.send(Ok((place, Err(why))));
                            continue;
                        }
                    };
                    if let Some(opinion) = replies.get(&request.key) {
                        let _ = tell.send(Ok((place, opinion.clone())));
                    } else if let Some(places) = waiting.get_mut(&request.key) {
                        places.push(place);
                    } else {
                        waiting.insert(request.key.clone(), vec![place]);
                        let (service, path, greeting) = (&service, &path, &greeting.body);
                        under_way.push(async move {
                            let replied = service.ask(path, &request.body, Some(greeting)).await;
                            (request, replied)
                        });
                    }
                }
                Some((request, replied)) = under_way.next() => {
                    let opinion = heard(judge, &form, &request, replied?, &mut replies)?;
                    for place in waiting.remove(&request.key).unwrap_or_default() {
                        let _ = tell.send(Ok((place, opinion.clone())));
                    }
                }
            }
        }
    })
}

/// What a reply comes to. What the server said is kept; that it said nothing is not.
fn heard(
    judge: &Judge,
    form: &Form,
    request: &Request,
    replied: std::result::Result<Vec<u8>, String>,
    replies: &mut Replies,
) -> Result<Opinion> {
    let body = match replied {
        Ok(body) => body,
        Err(why) => return Ok(Err(why)),
    };
    let (reply, opinion) = match form.reply(request, &body) {
        Ok(Reply { model, words, opinion, .. }) => {
            same(judge, model)?;
            (words, opinion)
        }
        Err(why) => (Value::Null, Err(why)),
    };
    replies.keep(request.key.clone(), reply, opinion.clone())?;
    Ok(opinion)
}

/// Refuses a verdict of another model than the one that the run began with.
fn same(judge: &Judge, model: Option<String>) -> Result<()> {
    let known = judge.known.as_ref().and_then(|known| known.told.name.as_deref());
    let (Some(known), Some(model)) = (known, model.map(shown)) else { return Ok(()) };
    if model == known {
        return Ok(());
    }
    let url = &judge.config.url;
    let what =
        format!("the judge at {url} has changed while the run went on: it was `{known}`, and is `{model}`");
    Err(Error::new(what).hint("put it back as it was when the run began, and go on with --resume"))
}
