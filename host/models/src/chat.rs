//! Chat templates: from messages to a prompt's text, as transformers renders them.
//!
//! A template is Jinja with the few methods of Python's strings and lists that published templates
//! call. It comes in `chat_template.jinja`, in older folders inside `tokenizer_config.json`, or in a GGUF
//! file's metadata.

use std::path::Path;

use allot_allocation::shown;
use allot_error::{Error, Result};
use allot_tasks::template;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error as TemplateError, ErrorKind};
use serde_json::{Map, Value};

/// A tokenizer's chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// `bos_token` and its like: what templates may name.
    special: Map<String, Value>,
    /// Where it came from, for an error.
    source: String,
}

impl ChatTemplate {
    /// The template of a tokenizer's folder.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("tokenizer_config.json");
        let text = std::fs::read_to_string(&path).map_err(|e| Error::file("read", &path, &e))?;
        let config: Map<String, Value> = serde_json::from_str(&text)
            .map_err(|e| Error::new(format!("`{}` is no JSON object: {e}", path.display())))?;
        Self::find(folder, &config)?.ok_or_else(|| {
            let what = format!("`{}` has no chat template", folder.display());
            Error::new(what).hint("give a prompt template in the config instead")
        })
    }

    /// The template of a folder whose `tokenizer_config.json` is this, if it has one.
    pub fn find(folder: &Path, config: &Map<String, Value>) -> Result<Option<Self>> {
        let own = folder.join("chat_template.jinja");
        let (template, source) = if own.is_file() {
            (std::fs::read_to_string(&own).map_err(|e| Error::file("read", &own, &e))?, own)
        } else {
            let template = match config.get("chat_template") {
                Some(Value::String(template)) => Some(template.as_str()),
                // transformers 4 could write several, by name.
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

    /// A template's text; `source` is what it is called where it fails.
    pub fn parse(template: String, special: Map<String, Value>, source: &str) -> Result<Self> {
        let told = |e: TemplateError| Error::new(format!("the chat template in `{source}` is broken: {e}"));
        let mut environment = Environment::new();
        // As in transformers' `_compile_jinja_template`.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(told)?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function(
            "raise_exception",
            |why: String| -> std::result::Result<String, TemplateError> {
                Err(TemplateError::new(ErrorKind::InvalidOperation, shown::line(&why, shown::LINE)))
            },
        );
        template::bound(&mut environment);
        let text = template.clone();
        template::parsed(&text, || environment.add_template_owned("chat", template)).map_err(told)?;
        Ok(Self { environment, special, source: source.to_owned() })
    }

    /// The text of these messages. `more` holds what else the template may ask for, such as
    /// `add_generation_prompt` or `tools`.
    pub fn render(&self, messages: &[Value], more: &Map<String, Value>) -> Result<String> {
        let mut context = self.special.clone();
        context.extend(more.clone());
        context.insert("messages".to_owned(), Value::from(messages.to_vec()));
        let rendered = self.environment.get_template("chat");
        let rendered = rendered.and_then(|t| template::rendered(&t, Serde(&context)));
        rendered.map_err(|e| {
            Error::new(format!("the chat template in `{}` refuses these messages: {e}", self.source))
        })
    }
}

/// The special tokens of a tokenizer's config, by name: as text, or as an object with the text inside.
fn special_tokens(config: &Map<String, Value>) -> Map<String, Value> {
    let text = |value: &Value| value.as_str().or(value["content"].as_str()).map(Value::from);
    let tokens = config.iter().filter(|(name, _)| name.ends_with("_token"));
    tokens.filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect()
}
