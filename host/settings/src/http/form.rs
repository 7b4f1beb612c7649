//! The prompt of a server that judges, and the regular expression that finds its verdict, as a config gives them.
//!
//! An answer may try to be its own judge. Where it stands in a prompt, it is between lines that have a mark, and the
//! verdict has the mark too.

use allot_tasks::template::{Dialect, Template};
use minijinja::UndefinedBehavior;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use regex::{Regex, RegexBuilder};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{HttpConfig, VERDICT};
use crate::words;

/// What stands for the mark in a regular expression.
const MARK: &str = "{{ mark }}";
/// What the mark is while a reply is searched, so that one regular expression serves all marks: to compile one takes
/// longer than all else. A reply that has it loses it.
const STANDS_IN: char = '\u{f8ff}';
/// The largest regular expression, compiled, in bytes.
const LARGEST: usize = 1 << 20;

/// A prompt's template and the regular expression of a verdict, compiled.
pub struct Form {
    template: Option<Template>,
    /// With [`STANDS_IN`] for the mark.
    verdict: Regex,
}

/// The variables of a prompt's template.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Variables<'a> {
    /// The question that was answered.
    pub question: &'a str,
    /// The answer.
    pub answer: &'a str,
    /// The first gold answer.
    pub gold: &'a str,
    /// All of them.
    pub golds: &'a [String],
    /// The problem's source.
    pub source: &'a str,
    /// What the answer is marked with.
    pub mark: &'a str,
    /// The gold answer, where it is a whole row of the data set.
    pub row: Option<&'a Map<String, Value>>,
}

impl Form {
    /// Compiles a config's prompt and verdict.
    ///
    /// # Errors
    ///
    /// The key that is broken, and how.
    pub fn new(config: &HttpConfig) -> Result<Self, (&'static str, String)> {
        let source = config.prompt.as_deref().or(config.api.prompt());
        let template = source.map(parsed).transpose();
        let template = template.map_err(|e| ("prompt", format!("could not parse the template: {e}")))?;
        let verdict = config.verdict.as_deref().unwrap_or(VERDICT);
        let verdict = pattern(verdict).map_err(|e| ("verdict", e))?;
        if verdict.captures_len() < 2 {
            return Err(("verdict", "expected a group, in parentheses, for the verdict".to_owned()));
        }
        let form = Self { template, verdict };
        form.prompt(Variables::default()).map_err(|e| ("prompt", e))?;
        Ok(form)
    }

    /// Whether there is a template.
    pub fn has_prompt(&self) -> bool {
        self.template.is_some()
    }

    /// Returns the prompt; an empty text without a template.
    ///
    /// # Errors
    ///
    /// A template that fails at these variables.
    pub fn prompt(&self, variables: Variables<'_>) -> Result<String, String> {
        let Some(template) = &self.template else { return Ok(String::new()) };
        template
            .rendered(Serde(&variables))
            .map_err(|e| format!("could not render the prompt: {}", words(e.to_string().as_bytes())))
    }

    /// Returns the word that the last verdict in a reply gives, if there is one: before the last, a model may reason
    /// and cite.
    pub fn verdict(&self, reply: &str, mark: &str) -> Option<String> {
        let marked = reply.replace(STANDS_IN, "").replace(mark, STANDS_IN.encode_utf8(&mut [0; 4]));
        let found = self.verdict.captures_iter(&marked).last()?;
        let group = found.name("verdict").or_else(|| found.iter().skip(1).flatten().next());
        Some(group.map(|group| group.as_str().trim().to_owned()).unwrap_or_default())
    }
}

fn pattern(verdict: &str) -> Result<Regex, String> {
    let source = verdict.replace(MARK, STANDS_IN.encode_utf8(&mut [0; 4]));
    let pattern = RegexBuilder::new(&source).size_limit(LARGEST).build();
    pattern.map_err(|e| format!("expected a regular expression: {}", words(e.to_string().as_bytes())))
}

fn parsed(source: &str) -> Result<Template, minijinja::Error> {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    Template::parse(source, Dialect::Plain, syntax, |environment| {
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
    })
}
