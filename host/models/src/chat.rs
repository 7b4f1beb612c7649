//! Chat templates: render messages as a prompt's text, as transformers does.
//!
//! A template is Jinja with transformers' additions: `{% generation %}`, `strftime_now`, `raise_exception`,
//! `tojson` as Python's `json.dumps`, and the methods of Python's strings and lists that templates call. It
//! is in `chat_template.jinja`, in an older folder's `tokenizer_config.json`, or in a GGUF file's metadata.

pub mod calls;
mod python;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use allot_allocation::shown;
use allot_base::{Error, Result};
use allot_engine::model::Gguf;
pub use allot_settings::Date;
use allot_tasks::template::{Dialect, Template, newlines, string};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Error as TemplateError, ErrorKind};
use serde_json::{Map, Value};

/// A tokenizer's chat template.
pub struct ChatTemplate {
    template: Template,
    date: Arc<Written>,
    /// `bos_token` and other special tokens that templates may refer to.
    special: Map<String, Value>,
    /// Its source, for error messages.
    source: String,
}

/// The date of `strftime_now`, the same in all renderings.
#[derive(Default)]
struct Written {
    date: OnceLock<Date>,
    /// Whether a template has asked for it.
    is_written: AtomicBool,
}

/// Whether a model's chat template may ask for the date. `model` is its folder or GGUF file.
pub fn may_ask_for_date(model: &Path) -> bool {
    let has = |text: &str| text.contains("strftime_now");
    if model.is_file() {
        return Gguf::open(model).is_ok_and(|gguf| gguf.text("tokenizer.chat_template").is_some_and(has));
    }
    let files = ["chat_template.jinja", "tokenizer_config.json"];
    files.iter().any(|name| std::fs::read_to_string(model.join(name)).is_ok_and(|text| has(&text)))
}

impl ChatTemplate {
    /// Reads the template of a tokenizer's folder. Fails if it has none.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("tokenizer_config.json");
        let text = std::fs::read_to_string(&path).map_err(|e| Error::file("read", &path, &e))?;
        let config: Map<String, Value> = serde_json::from_str(&text)
            .map_err(|e| Error::new(format!("`{}` is not a JSON object: {e}", path.display())))?;
        Self::find(folder, &config)?.ok_or_else(|| {
            let what = format!("`{}` has no chat template", folder.display());
            Error::new(what).hint("set a prompt template in the config instead")
        })
    }

    /// Finds the template of a folder with this `tokenizer_config.json`, if it has one.
    pub fn find(folder: &Path, config: &Map<String, Value>) -> Result<Option<Self>> {
        let own = folder.join("chat_template.jinja");
        let (template, source) = if own.is_file() {
            (std::fs::read_to_string(&own).map_err(|e| Error::file("read", &own, &e))?, own)
        } else {
            let template = match config.get("chat_template") {
                Some(Value::String(template)) => Some(template.as_str()),
                // transformers 4 could write several templates, by name.
                Some(Value::Array(named)) => {
                    named.iter().find(|one| one["name"] == "default").and_then(|one| one["template"].as_str())
                }
                _ => None,
            };
            let Some(template) = template else { return Ok(None) };
            (template.to_owned(), folder.join("tokenizer_config.json"))
        };
        Self::parse(template, special_tokens(config), &source.display().to_string()).map(Some)
    }

    /// Parses the text of a template; `source` names it in errors.
    pub fn parse(template: String, special: Map<String, Value>, source: &str) -> Result<Self> {
        let told = |e: TemplateError| Error::new(format!("the chat template in `{source}` is broken: {e}"));
        // As in transformers' `_compile_jinja_template`.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(told)?;
        let date = Arc::<Written>::default();
        let day = Arc::clone(&date);
        let refused = |why: String| -> Rendered { Err(TemplateError::new(ErrorKind::InvalidOperation, why)) };
        let template = Template::parse(&newlines(&template), Dialect::Transformers, syntax, |environment| {
            python::add(environment);
            environment.add_function("raise_exception", move |why: &minijinja::Value| {
                refused(shown::line(&string(why)?, shown::LINE))
            });
            environment.add_function("strftime_now", move |format: &str| {
                let date = day.date.get_or_init(Date::today);
                day.is_written.store(true, Ordering::Relaxed);
                date.format(format).or_else(refused)
            });
        });
        let template = template.map_err(told)?;
        Ok(Self { template, date, special, source: source.to_owned() })
    }

    /// Sets the date that the template writes. By default it is the date of the first rendering that asks.
    pub fn set_date(&self, date: Date) {
        self.date.date.get_or_init(|| date);
    }

    /// Returns the date that the template has written, if any.
    pub fn date(&self) -> Option<Date> {
        let is_written = self.date.is_written.load(Ordering::Relaxed);
        self.date.date.get().copied().filter(|_| is_written)
    }

    /// Renders these messages. `more` has other variables of the template, such as `add_generation_prompt`
    /// or `tools`.
    pub fn render(&self, messages: &[Value], more: &Map<String, Value>) -> Result<String> {
        let mut context = self.special.clone();
        // transformers always passes these, even if they are empty.
        context.insert("add_generation_prompt".to_owned(), Value::Bool(false));
        context.insert("tools".to_owned(), Value::Null);
        context.insert("documents".to_owned(), Value::Null);
        context.extend(more.clone());
        context.insert("messages".to_owned(), messages.iter().map(as_passed).collect());
        self.template.rendered(Serde(&context)).map_err(|e| {
            Error::new(format!("the chat template in `{}` refuses these messages: {e}", self.source))
        })
    }
}

type Rendered = std::result::Result<String, TemplateError>;

/// Returns a message as transformers passes it on: without nulls, with reasoning under both names in use.
fn as_passed(message: &Value) -> Value {
    let Value::Object(fields) = message else { return message.clone() };
    let mut fields: Map<String, Value> = fields
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let names = ["reasoning_content", "thinking", "reasoning"];
    if let Some(reasoning) = names.iter().find_map(|name| fields.get(*name)).cloned() {
        fields.entry("thinking").or_insert_with(|| reasoning.clone());
        fields.insert("reasoning_content".to_owned(), reasoning);
    }
    Value::Object(fields)
}

/// Returns the special tokens of a tokenizer's config, by name. A value is text or contains it.
fn special_tokens(config: &Map<String, Value>) -> Map<String, Value> {
    let text = |value: &Value| value.as_str().or(value["content"].as_str()).map(Value::from);
    let tokens = config.iter().filter(|(name, _)| name.ends_with("_token"));
    tokens.filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect()
}
