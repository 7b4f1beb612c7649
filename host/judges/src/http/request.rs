//! Requests to a grading server, and the verdicts in its replies.
//!
//! An answer may try to grade itself. A prompt therefore encloses it in lines with a mark, which the
//! verdict must repeat. The mark is a hash of question and answer, so no answer can contain its own.

use allot_record::sha256;
use allot_settings::http::{self, Api, HttpConfig, MAX_TOKENS, Variables};
use serde_json::{Map, Value, json};

use crate::protocol::{self, Judgement, Opinion, Question, words};

/// Characters of a mark.
const MARK_LENGTH: usize = 8;

/// Builds requests for answers, and reads verdicts from replies.
pub(super) struct Form {
    api: Api,
    model: Option<String>,
    compiled: http::Form,
    max_tokens: u32,
    body: Map<String, Value>,
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// The body to send.
    pub body: String,
    /// The key under which its reply is stored.
    pub key: String,
    /// The mark around the answer.
    mark: String,
}

/// A server's reply: its model, the text to store, and the opinion.
pub(super) struct Reply {
    /// The model that the server names in the reply.
    pub model: Option<String>,
    /// The model's version, if the server names one.
    pub version: Option<String>,
    /// The part of the reply that is stored.
    pub words: Value,
    /// The opinion that results from the reply.
    pub opinion: Opinion,
}

impl Form {
    /// Returns the form of a config's requests, or the invalid key and the reason.
    pub fn new(config: &HttpConfig) -> Result<Self, (&'static str, String)> {
        Ok(Self {
            api: config.api,
            model: config.model.clone(),
            compiled: http::Form::new(config)?,
            max_tokens: config.max_tokens.unwrap_or(MAX_TOKENS),
            body: config.body.clone().into_iter().collect(),
        })
    }

    /// Returns the request for the verdict on an answer.
    pub fn request(&self, question: &Question) -> Result<Request, String> {
        let mark = mark(question);
        let mut body = match self.api {
            Api::Chat => json!({
                "model": self.model,
                "messages": [{ "role": "user", "content": self.text(question, &mark)? }],
                "temperature": 0,
                "seed": 0,
                "max_tokens": self.max_tokens,
            }),
            // A reward model's raw output is needed, without a softmax.
            Api::Classify if self.compiled.has_prompt() => {
                json!({ "model": self.model, "input": self.text(question, &mark)?, "use_activation": false })
            }
            Api::Classify => json!({
                "model": self.model,
                "messages": [
                    { "role": "user", "content": question.prompt },
                    { "role": "assistant", "content": question.answer },
                ],
                "use_activation": false,
            }),
            Api::Embeddings => json!({ "model": self.model, "input": self.text(question, &mark)? }),
            Api::Score => {
                json!({ "model": self.model, "text_1": question.prompt, "text_2": question.answer })
            }
            Api::Custom => verl(question),
        };
        if let Value::Object(fields) = &mut body {
            // OpenAI's newer name for `max_tokens`; servers reject both together.
            if self.body.contains_key("max_completion_tokens") {
                fields.remove("max_tokens");
            }
            fields.extend(self.body.clone());
        }
        let body = body.to_string();
        let key = sha256(format!("{}\n{body}", self.api.name()));
        Ok(Request { body, key, mark })
    }

    fn text(&self, question: &Question, mark: &str) -> Result<String, String> {
        let Question { gold: golds, answer, prompt: question, source, .. } = question;
        let gold = golds.first().map(String::as_str).unwrap_or_default();
        let row = row(gold);
        self.compiled.prompt(Variables { question, answer, gold, golds, source, mark, row: row.as_ref() })
    }

    /// Parses a reply.
    ///
    /// # Errors
    ///
    /// A description of what is wrong with the reply.
    pub fn reply(&self, request: &Request, body: &[u8]) -> Result<Reply, String> {
        let garbage =
            || format!("the server said `{}`, which is not a reply of `{}`", words(body), self.api.name());
        let said: Value = serde_json::from_slice(body).map_err(|_| garbage())?;
        let model = said["model"].as_str().map(str::to_owned);
        let number = |x: &Value| x.as_f64().map(|x| protocol::number("score", x).map(rewarded));
        // Of several numbers the last, as in verl.
        let last = |list: &Value| list.as_array().and_then(|list| number(list.last()?));
        let (words, opinion) = match self.api {
            Api::Chat => {
                let choice = &said["choices"][0];
                let Some(text) = choice["message"]["content"].as_str() else { return Err(garbage()) };
                let cut = choice["finish_reason"] == "length";
                (text.into(), if cut { Err(self.cut()) } else { self.verdict_in(text, &request.mark) })
            }
            Api::Classify => {
                (said["data"][0]["probs"].clone(), last(&said["data"][0]["probs"]).ok_or_else(garbage)?)
            }
            Api::Embeddings => {
                let opinion = last(&said["data"][0]["embedding"]).ok_or_else(garbage)?;
                (said["data"][0]["embedding"].as_array().and_then(|all| all.last()).cloned().into(), opinion)
            }
            Api::Score => {
                (said["data"][0]["score"].clone(), number(&said["data"][0]["score"]).ok_or_else(garbage)?)
            }
            Api::Custom => (said.clone(), custom(&said).ok_or_else(garbage)?),
        };
        let (model, version) = if self.api == Api::Custom {
            let text = |key: &str| said[key].as_str().map(str::to_owned);
            (text("name"), text("version"))
        } else {
            (model, None)
        };
        Ok(Reply { model, version, words, opinion })
    }

    fn cut(&self) -> String {
        format!("the grader's reply was cut after {} tokens", self.max_tokens)
    }

    /// Returns the verdict in a language model's reply. The last verdict counts, because the model may
    /// reason and quote before it.
    fn verdict_in(&self, text: &str, mark: &str) -> Opinion {
        let Some(word) = self.compiled.verdict(text, mark) else {
            return Err(format!("the grader gave no verdict, and said `{}`", tail(text)));
        };
        match word.to_lowercase().as_str() {
            "yes" | "true" | "correct" | "right" => Ok(true.into()),
            "no" | "false" | "incorrect" | "wrong" => Ok(false.into()),
            _ => match word.parse::<f64>() {
                Ok(x) if x.is_finite() => protocol::number("verdict", x).map(rewarded),
                _ => Err(format!(
                    "the grader's verdict `{}` is not yes, no or a number",
                    words(word.as_bytes())
                )),
            },
        }
    }
}

/// Returns a mark that an answer can't contain: the answer would have to contain its own hash.
fn mark(question: &Question) -> String {
    let Question { gold, answer, prompt, source, .. } = question;
    let mut hash = sha256(json!([prompt, gold, source, answer]).to_string());
    hash.truncate(MARK_LENGTH);
    hash
}

fn rewarded(reward: f32) -> Judgement {
    Judgement { reward: Some(reward), ..Judgement::default() }
}

/// Parses a gold answer that is a whole row of the data set.
fn row(gold: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(gold).ok()
}

/// Returns the arguments of verl's `compute_score`. Several gold answers become a list.
fn verl(question: &Question) -> Value {
    let Question { gold, answer, prompt, source, .. } = question;
    let (row, gold) = match &gold[..] {
        [one] => (row(one), Value::from(one.as_str())),
        all => (None, json!(all)),
    };
    let truth = row.as_ref().and_then(|row| {
        row.get("reward_model")
            .and_then(|model| model.get("ground_truth"))
            .or_else(|| row.get("ground_truth"))
    });
    let of_row = |key: &str| row.as_ref().and_then(|row| row.get(key)).cloned();
    json!({
        "data_source": of_row("data_source").unwrap_or_else(|| source.as_str().into()),
        "solution_str": answer,
        "ground_truth": truth.cloned().unwrap_or(gold),
        "extra_info": of_row("extra_info").unwrap_or_else(|| json!({ "question": prompt })),
    })
}

/// Returns the opinion in a custom server's reply: a number, verl's `score` and `acc`, or protocol fields.
fn custom(said: &Value) -> Option<Opinion> {
    if let Some(score) = said.as_f64() {
        return Some(protocol::number("score", score).map(rewarded));
    }
    let Some(score) = said.get("score") else { return protocol::said(said) };
    let correct = match said.get("acc").or_else(|| said.get("correct")) {
        None | Some(Value::Null) => None,
        Some(Value::Bool(correct)) => Some(*correct),
        Some(acc) => Some(acc.as_f64()? != 0.0),
    };
    let score = protocol::number("score", score.as_f64()?);
    Some(score.map(|score| Judgement { correct, ..rewarded(score) }))
}

/// Returns the end of a text, as one line for a message.
fn tail(text: &str) -> String {
    let text = text.trim_end();
    let from = text.char_indices().rev().nth(99).map_or(0, |(at, _)| at);
    words(&text.as_bytes()[from..])
}
