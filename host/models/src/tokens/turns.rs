//! What an environment says before and after a turn, as tokens.

use allot_base::{Error, Result};
use allot_engine::{Answer, Stops};
use allot_settings::CallFormat;
use allot_tasks::Message;
use serde_json::{Map, Value, json};

use super::Tokens;
use crate::chat::ChatTemplate;
use crate::chat::calls;

/// Stands for what the model said where a template is rendered for what follows it.
const SAID: &str = "\u{2063}said\u{2063}";
/// The name of a call that stands for the model's.
const CALLED: &str = "called-by-the-model";
/// What an environment's first words may begin with, for what they can't change.
const BEGINNINGS: [&str; 5] = ["", "\n", " a", "a", "1"];

impl Tokens {
    /// Returns the text of an answer. Of an episode it has a line for each of its speakers' turns, in order,
    /// those that it keeps of another one first.
    pub fn said(&self, answer: &Answer, stops: &Stops) -> Result<String> {
        let Some(episode) = &answer.episode else { return self.answer(&answer.tokens, stops) };
        let rows =
            std::iter::repeat_n(0, episode.kept.len()).chain(episode.turns.iter().map(|turn| turn.row));
        let (mut lines, mut current) = (Vec::new(), 0);
        for ((read, said), row) in episode.all_turns(&answer.tokens).into_iter().zip(rows) {
            let elsewhere = row != std::mem::replace(&mut current, row);
            if !read.is_empty() || elsewhere {
                let place = if elsewhere { format!(" (training row {})", row + 1) } else { String::new() };
                lines.push(format!("environment{place}: {}", self.decode(&read)?));
            }
            lines.push(format!("model: {}", self.answer(&said, stops)?));
        }
        Ok(lines.join("\n"))
    }

    /// Returns the tokens of an environment's reply, up to where the model's next turn begins. In a chat, the reply is a
    /// user's message: what its template writes between two turns belongs to it, but for `ended`, the token with
    /// which the model ended its turn. Nothing that the model said is tokenized again.
    ///
    /// # Errors
    ///
    /// A template that refuses such messages, or does not write what the model says as it is.
    pub fn reply(&self, text: &str, chat: bool, ended: Option<u32>) -> Result<Vec<u32>> {
        if !chat {
            return self.encode(text);
        }
        let template = self.template()?;
        let messages = [("user", "?"), ("assistant", SAID), ("user", text)]
            .map(|(role, content)| json!({ "role": role, "content": content }));
        let rendered = template.render(&messages, &before_a_turn())?;
        let Some((_, after)) = rendered.split_once(SAID) else {
            let what = format!("the chat template in `{}` changes what the model said", self.source);
            return Err(Error::new(what).hint("use a model whose template writes messages as they are"));
        };
        let mut tokens = self.encode(after)?;
        let closes = ended.filter(|ended| self.stops().contains(ended) && tokens.first() == Some(ended));
        if closes.is_some() {
            tokens.remove(0);
        }
        Ok(tokens)
    }

    /// Returns how the model writes calls of tools, by what its template makes of one.
    ///
    /// # Errors
    ///
    /// A template without tools, or with a form of calls that is not known.
    pub fn call_format(&self) -> Result<CallFormat> {
        let (template, user) = (self.template()?, json!({ "role": "user", "content": "?" }));
        let rendered = template.render(&[user, calls::probe()], &Map::new());
        rendered.ok().and_then(|rendered| calls::format_of(&rendered)).ok_or_else(|| {
            let what =
                format!("the chat template in `{}` writes calls of tools in no known form", self.source);
            let forms = "use a model that writes them as Qwen 2.5, Qwen 3 or Llama 3 do, or say which form \
                         it writes: `calls` under [environment.class] is \"json\", \"xml\" or \"bare\"";
            Error::new(what).hint(forms)
        })
    }

    /// Returns the tokens with which a prompt begins whatever the environment says at first, after the last message's
    /// own text.
    ///
    /// # Errors
    ///
    /// No messages, or a template that refuses them.
    pub fn before_first(&self, messages: &[Message], tools: &Value) -> Result<Vec<u32>> {
        let mut same = self.encode(&self.asked(messages, "", tools)?)?;
        for beginning in BEGINNINGS {
            let rendered = self.asked(messages, &format!("{beginning}{SAID}"), tools)?;
            let before = rendered.split_once(SAID).map_or(rendered.as_str(), |(before, _)| before);
            // What it can't encode, the environment can't say.
            let Ok(tokens) = self.encode(before) else { continue };
            same.truncate(same.iter().zip(&tokens).take_while(|(a, b)| a == b).count());
        }
        Ok(same)
    }

    /// Returns the tokens from there to the model's first turn, if the environment says this at first. `before` is
    /// what [`Self::before_first`] returns. Where the first words would change its last tokens, they are tokenized by
    /// themselves: the text is the same.
    ///
    /// # Errors
    ///
    /// A template that refuses the messages, or begins in another way for them.
    pub fn first(
        &self,
        messages: &[Message],
        first: &str,
        tools: &Value,
        before: &[u32],
    ) -> Result<Vec<u32>> {
        let text = self.asked(messages, first, tools)?;
        let whole = self.encode(&text)?;
        if let Some(rest) = whole.strip_prefix(before) {
            return Ok(rest.to_vec());
        }
        let begun = self.tried(|| self.tokenizer.decode(before, false))?;
        let rest = text.strip_prefix(&begun).ok_or_else(|| {
            Error::new("the chat template begins the prompt in another way for what the environment says")
        })?;
        self.encode(rest)
    }

    /// Returns the tokens between a turn with calls of tools and the model's next turn: the results, each with its
    /// tool's name. `ended` is the token with which the model ended its turn. As TRL does, a template is rendered
    /// with a call that stands for the model's, and cut at the end of that turn: what the model said is not tokenized
    /// again.
    ///
    /// # Errors
    ///
    /// A template that refuses results, or ends a turn by no token that the model ends it with.
    pub fn results(&self, results: &[(String, String)], ended: Option<u32>) -> Result<Vec<u32>> {
        let mut messages = vec![
            json!({ "role": "user", "content": "?" }),
            json!({ "role": "assistant", "content": "", "tool_calls": [calls::call(CALLED, &json!({}))] }),
        ];
        messages.extend(
            results.iter().map(|(name, said)| json!({ "role": "tool", "name": name, "content": said })),
        );
        let rendered = self.template()?.render(&messages, &before_a_turn())?;
        let after_call = rendered.split_once(CALLED).map(|(_, after)| after);
        let ends = self.stops().iter().filter_map(|stop| {
            let text = self.tokenizer.id_to_token(*stop)?;
            Some((after_call?.find(&text)?, text.len(), *stop))
        });
        let Some((at, length, end)) = ends.min() else {
            let what = format!(
                "the chat template in `{}` ends a turn with a call by no token that ends an answer",
                self.source
            );
            return Err(Error::new(what).hint("name the token of the model's end of turn in `eos_token_id`"));
        };
        let mut tokens = self.encode(&after_call.unwrap_or_default()[at + length..])?;
        if ended.is_none_or(|ended| !self.stops().contains(&ended)) {
            tokens.insert(0, end);
        }
        Ok(tokens)
    }

    /// Returns the text of a prompt, up to where the model's turn begins. An environment has tools, a list of schemas or
    /// null, and says something at first, which is appended to the last message.
    ///
    /// # Errors
    ///
    /// A template that refuses the messages.
    pub fn asked(&self, messages: &[Message], first: &str, tools: &Value) -> Result<String> {
        let last = messages.len().saturating_sub(1);
        let one = |(i, message): (usize, &Message)| {
            let first = if i == last { first } else { "" };
            json!({ "role": message.role, "content": format!("{}{first}", message.content) })
        };
        let messages: Vec<Value> = messages.iter().enumerate().map(one).collect();
        let mut more = before_a_turn();
        if tools.as_array().is_some_and(|tools| !tools.is_empty()) {
            more.insert("tools".to_owned(), tools.clone());
        }
        self.template()?.render(&messages, &more)
    }

    fn template(&self) -> Result<&ChatTemplate> {
        self.chat.as_ref().map_err(Error::clone)?.as_ref().ok_or_else(|| {
            let what = format!("the model in `{}` has no chat template", self.source);
            Error::new(what).hint("use a chat model")
        })
    }
}

/// Returns the variables with which a template ends where the model's turn begins.
fn before_a_turn() -> Map<String, Value> {
    Map::from_iter([("add_generation_prompt".to_owned(), json!(true))])
}
