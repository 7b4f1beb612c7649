//! Wording: from a question to the prompt of a model.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Error, ErrorKind, UndefinedBehavior};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::question::spoken;
use crate::template::{Dialect, Template};
use crate::{Ask, Message};

/// A question as found in a row.
pub(crate) enum Question {
    /// Text.
    Text(String),
    /// Messages.
    Chat(Vec<Message>),
}

/// Reason why a value is not a question.
#[derive(Debug, PartialEq)]
pub(crate) enum QuestionFault {
    /// It is neither text nor a list of messages.
    Kind,
    /// A message has a part of this type, which is not text.
    Part {
        /// The message's number, from 1.
        message: usize,
        /// The part's type.
        of: String,
    },
    /// It is a list of messages written as text.
    Written,
}

/// A message in a data set.
#[derive(Deserialize)]
struct Said {
    role: String,
    content: Content,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    /// Parts, as in OpenAI's API and in data sets with images.
    Parts(Vec<Map<String, Value>>),
}

impl Question {
    /// Returns the question in a value; `None` if it is null or blank.
    pub(crate) fn read(value: &Value) -> Result<Option<Self>, QuestionFault> {
        match value {
            Value::Null => Ok(None),
            Value::String(text) if text.trim().is_empty() => Ok(None),
            Value::String(text) if is_written(text) => Err(QuestionFault::Written),
            Value::String(text) => Ok(Some(Self::Text(text.clone()))),
            Value::Array(messages) if messages.is_empty() => Ok(None),
            Value::Array(_) => {
                let said: Vec<Said> = Vec::deserialize(value).map_err(|_| QuestionFault::Kind)?;
                let messages = said.into_iter().enumerate().map(|(i, said)| message(i + 1, said));
                let messages = messages.collect::<Result<Vec<Message>, _>>()?;
                let blank = messages.iter().all(|m| m.role == "system" || m.content.trim().is_empty());
                Ok((!blank).then_some(Self::Chat(messages)))
            }
            _ => Err(QuestionFault::Kind),
        }
    }
}

/// Joins the parts of a message with nothing between them, as chat templates do.
fn message(number: usize, said: Said) -> Result<Message, QuestionFault> {
    let content = match said.content {
        Content::Text(text) => text,
        Content::Parts(parts) => {
            let text = |part: &Map<String, Value>| match (part.get("type"), part.get("text")) {
                (Some(Value::String(of)), Some(Value::String(text))) if of == "text" => Ok(text.clone()),
                (Some(Value::String(of)), _) if of != "text" => {
                    Err(QuestionFault::Part { message: number, of: of.clone() })
                }
                _ => Err(QuestionFault::Kind),
            };
            parts.iter().map(text).collect::<Result<String, _>>()?
        }
    };
    Ok(Message { role: said.role, content })
}

/// Whether a text is a list of messages written as text, as in CSV.
fn is_written(text: &str) -> bool {
    let inside = text.trim_start().strip_prefix('[').and_then(|rest| rest.trim_start().strip_prefix('{'));
    let key = inside.and_then(|rest| rest.trim_start().strip_prefix(['"', '\'']));
    key.is_some_and(|key| ["role", "content"].iter().any(|name| key.starts_with(name)))
}

impl Question {
    /// Returns its text, without system messages.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Chat(messages) => spoken(messages),
        }
    }
}

/// The way in which questions are put.
pub(crate) struct Wording<'a> {
    template: Option<Template>,
    chat: bool,
    system: Option<&'a str>,
}

impl<'a> Wording<'a> {
    /// Parses the template. The error describes its fault.
    pub(crate) fn new(
        template: Option<&'a str>,
        chat: bool,
        system: Option<&'a str>,
    ) -> Result<Self, String> {
        let template = template.map(parsed).transpose().map_err(|e| told(&e))?;
        Ok(Self { template, chat, system })
    }

    /// Returns the variables of the template.
    pub(crate) fn variables(&self) -> Vec<String> {
        self.template.as_ref().map(Template::variables).unwrap_or_default()
    }

    /// Returns the prompt. The template has the row's columns, and the question's text as `question`.
    /// Errors are phrases that follow a colon.
    pub(crate) fn ask(&self, question: Question, mut row: Map<String, Value>) -> Result<Ask, String> {
        let question = match &self.template {
            None => question,
            Some(template) => {
                row.insert("question".to_owned(), words(question)?.into());
                Question::Text(template.rendered(Serde(&row)).map_err(|error| {
                    let absent: Vec<String> =
                        self.variables().into_iter().filter(|name| !row.contains_key(name)).collect();
                    match (error.kind(), absent.first()) {
                        (ErrorKind::UndefinedError, Some(name)) => {
                            format!("the template uses `{name}`, which does not exist")
                        }
                        _ => format!("the template failed: {}", told(&error)),
                    }
                })?)
            }
        };
        let user = |content| Message { role: "user".to_owned(), content };
        let mut messages = match question {
            Question::Text(text) if !self.chat && self.system.is_none() => return Ok(Ask::Text(text)),
            Question::Text(text) => vec![user(text)],
            Question::Chat(messages) => messages,
        };
        if let Some(system) = self.system {
            match messages.first() {
                // Pilot-Commit's rows begin with an empty system message.
                Some(first) if first.role == "system" && first.content.is_empty() => {
                    messages.remove(0);
                }
                Some(first) if first.role == "system" => {
                    return Err("it has its own system message, but `system` is also set".to_owned());
                }
                _ => {}
            }
            messages.insert(0, Message { role: "system".to_owned(), content: system.to_owned() });
        }
        Ok(Ask::Chat(messages))
    }
}

fn parsed(source: &str) -> Result<Template, Error> {
    // Keep the last newline, which a base model's prompt may need.
    let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build()?;
    Template::parse(source, Dialect::Plain, syntax, |environment| {
        // A misspelt column must be an error, not an empty prompt.
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
    })
}

/// Returns a question's text for a template. Messages must be a single one, from the user.
fn words(question: Question) -> Result<String, String> {
    match question {
        Question::Text(text) => Ok(text),
        Question::Chat(messages) => {
            let mut spoken = messages.into_iter().filter(|m| !m.content.trim().is_empty());
            match (spoken.next(), spoken.next()) {
                (Some(only), None) if only.role == "user" => Ok(only.content),
                _ => Err("the template needs one question, but this is a conversation".to_owned()),
            }
        }
    }
}

fn told(error: &Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{what} (its line {line})"),
        None => what,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ask(wording: Result<Wording<'_>, String>, row: Value) -> Result<Ask, String> {
        let Value::Object(row) = row else { return Err("no row".to_owned()) };
        let question = Question::read(&row["q"]).ok().flatten().ok_or("no question")?;
        wording?.ask(question, row)
    }

    #[test]
    fn a_template_says_what_is_asked_to_the_letter() {
        let row = json!({"q": "How many <b>?", "Body": "Three & four."});
        let template = "{{ Body }} {{ question }}\n";
        let text = ask(Wording::new(Some(template), false, None), row.clone());
        assert_eq!(text, Ok(Ask::Text("Three & four. How many <b>?\n".to_owned())));
        let chat = ask(Wording::new(Some("{{ question }}"), true, Some("Be brief.")), row.clone());
        let said = |role: &str, content: &str| Message { role: role.into(), content: content.into() };
        assert_eq!(chat, Ok(Ask::Chat(vec![said("system", "Be brief."), said("user", "How many <b>?")])));
        let misspelt = ask(Wording::new(Some("{{ body }}"), false, None), row);
        assert_eq!(misspelt, Err("the template uses `body`, which does not exist".to_owned()));
        let broken = Wording::new(Some("one\n{{ question"), false, None).err();
        assert_eq!(
            broken.as_deref(),
            Some("unexpected end of input, expected end of variable block (its line 2)")
        );
    }

    #[test]
    fn a_template_has_an_end() {
        let row = json!({"q": "1 + 1?"});
        let endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
        let said = ask(Wording::new(Some(endless), false, None), row.clone()).expect_err("it has no end");
        assert!(said.starts_with("the template failed: engine ran out of fuel"), "{said}");
        let doubled =
            "{% set x = question %}".to_owned() + &"{% set x = x ~ x %}".repeat(60) + "{{ x|length }}";
        let listed = "{{ [question] * 99999999999 }}".to_owned();
        for greedy in [doubled, listed] {
            let said =
                ask(Wording::new(Some(&greedy), false, None), row.clone()).expect_err("it has no bound");
            assert!(said.starts_with("the template failed: it makes more than 134217728 bytes"), "{said}");
        }
        let terms = format!("{{{{ {}1 }}}}", "1 + ".repeat(100_000));
        let said = Wording::new(Some(&terms), false, None).err();
        assert!(said.is_some_and(|said| said.contains("expected at most 131072")));
    }

    #[test]
    fn messages_stay_messages() {
        let messages = json!([{"role": "system", "content": ""}, {"role": "user", "content": "1 + 1?"}]);
        let row = json!({"q": messages});
        let plain = ask(Wording::new(None, false, None), row.clone());
        assert!(matches!(plain, Ok(Ask::Chat(all)) if all.len() == 2), "the empty one is kept");
        let with_system = ask(Wording::new(None, false, Some("Think.")), row.clone());
        assert!(matches!(with_system, Ok(Ask::Chat(all)) if all.len() == 2 && all[0].content == "Think."));
        let text = ask(Wording::new(Some("Q: {{ question }}"), false, None), row);
        assert_eq!(text, Ok(Ask::Text("Q: 1 + 1?".to_owned())));
        let two = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
        assert!(ask(Wording::new(Some("{{ question }}"), false, None), json!({"q": two})).is_err());
        assert_eq!(Question::read(&json!([1, 2])).err(), Some(QuestionFault::Kind));
        assert_eq!(Question::read(&json!(3)).err(), Some(QuestionFault::Kind));
    }
}
