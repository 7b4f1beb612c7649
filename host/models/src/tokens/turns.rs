//! What an environment says after a turn, as tokens that follow the turn's own.

use allot_base::{Error, Result};
use allot_engine::{Answer, Stops};
use serde_json::{Map, json};

use super::Tokens;

/// Stands for what the model said where a template is rendered for what follows it.
const SAID: &str = "\u{2063}said\u{2063}";

impl Tokens {
    /// Returns the text of an answer. Of an episode it has a line for each of its speakers' turns, in order.
    pub fn said(&self, answer: &Answer, stops: &Stops) -> Result<String> {
        let Some(episode) = &answer.episode else { return self.answer(&answer.tokens, stops) };
        let (mut lines, mut rest) = (Vec::new(), answer.tokens.as_slice());
        for turn in &episode.turns {
            let (own, more) = rest.split_at((turn.tokens as usize).min(rest.len()));
            rest = more;
            if !turn.read.is_empty() {
                lines.push(format!("environment: {}", self.decode(&turn.read)?));
            }
            lines.push(format!("model: {}", self.answer(own, stops)?));
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
        let Some(template) = self.chat.as_ref().map_err(Error::clone)? else {
            return Err(Error::new(format!("the model in `{}` has no chat template", self.source)));
        };
        let messages = [("user", "?"), ("assistant", SAID), ("user", text)]
            .map(|(role, content)| json!({ "role": role, "content": content }));
        let more = Map::from_iter([("add_generation_prompt".to_owned(), json!(true))]);
        let rendered = template.render(&messages, &more)?;
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
}
