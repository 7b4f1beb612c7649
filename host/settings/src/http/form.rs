//! The prompt of a grading server and the regular expression of its verdict, as given in a config.
//!
//! An answer may contain text that imitates a verdict. So the prompt encloses the answer in lines with a
//! mark, and a verdict counts only with the same mark.

use allot_tasks::template::{Dialect, Template};
use minijinja::UndefinedBehavior;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use regex::{Regex, RegexBuilder};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{HttpConfig, VERDICT};
use crate::words;

/// Placeholder of the mark in a regular expression.
const MARK: &str = "{{ mark }}";
/// Character that replaces the mark while a reply is searched, so that one compiled regular expression
/// serves all marks: compiling one takes longer than all else. Removed from replies that contain it.
const STANDS_IN: char = '\u{f8ff}';
/// Maximum size of a compiled regular expression, in bytes.
const LARGEST: usize = 1 << 20;

/// The compiled prompt template and verdict expression of a config.
pub struct Form {
    template: Option<Template>,
    /// The verdict expression, with [`STANDS_IN`] in place of the mark.
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
    /// All gold answers.
    pub golds: &'a [String],
    /// The problem's source.
    pub source: &'a str,
    /// The mark that encloses the answer.
    pub mark: &'a str,
    /// The gold answer as a row of the data set, if it is one.
    pub row: Option<&'a Map<String, Value>>,
}

impl Form {
    /// Compiles a config's prompt and verdict.
    ///
    /// # Errors
    ///
    /// Returns the key with the invalid value, and the reason.
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

    /// Returns whether there is a prompt template.
    pub fn has_prompt(&self) -> bool {
        self.template.is_some()
    }

    /// Returns the prompt, or an empty text without a template.
    ///
    /// # Errors
    ///
    /// The template cannot be rendered with these variables.
    pub fn prompt(&self, variables: Variables<'_>) -> Result<String, String> {
        let Some(template) = &self.template else { return Ok(String::new()) };
        template
            .rendered(Serde(&variables))
            .map_err(|e| format!("could not render the prompt: {}", words(e.to_string().as_bytes())))
    }

    /// Returns the last verdict in a reply, if there is one. A model may discuss or quote verdicts before
    /// its own, so the last one counts.
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
