//! Stop texts: the bytes of each token, and an answer's text up to a stop text.

use allot_allocation::shown;
use allot_base::{Error, Result};
use allot_engine::{End, StopTexts, Stops, TokenBytes};
use serde_json::Value;

use super::Tokens;

impl Tokens {
    /// Returns the tokens and texts that end an answer. A special token ends it as a token, because it is
    /// not part of its text. Any other text ends it wherever it occurs, in whichever tokens.
    ///
    /// # Errors
    ///
    /// A text is empty or contains a special token, the texts are longer than [`StopTexts::MOST`], or the
    /// text of a token depends on the tokens around it.
    pub fn stops_and(&self, texts: &[String]) -> Result<Stops> {
        let (mut tokens, mut plain, special) = (self.stops().to_vec(), Vec::new(), self.special_tokens());
        for text in texts {
            let ids = self.encode(text)?;
            match ids[..] {
                [] => return Err(wrong(text, "which has no token").hint("leave it out")),
                [one] if special.contains(&one) => tokens.push(one),
                _ if ids.iter().any(|id| special.contains(id)) => {
                    let hint = "write a special token as a text by itself";
                    return Err(wrong(text, "which contains a special token").hint(hint));
                }
                _ => {
                    // A sampler that does not know texts still stops at those of one token.
                    tokens.extend(ids.first().filter(|_| ids.len() == 1));
                    plain.push(text.clone());
                }
            }
        }
        let (bytes, most) = (plain.iter().map(String::len).sum::<usize>(), StopTexts::MOST);
        if bytes > most {
            let what = format!("`model.stop` has texts of {bytes} bytes in total; expected at most {most}");
            return Err(Error::new(what));
        }
        let stops = Stops::from(tokens);
        if plain.is_empty() { Ok(stops) } else { Ok(stops.with_texts(StopTexts::new(plain, self.pieces()?))) }
    }

    /// Returns the text of an answer, up to its stop text.
    pub fn answer(&self, ids: &[u32], stops: &Stops) -> Result<String> {
        let mut text = self.decode(ids)?;
        if let Some(End::Text(_)) = stops.end(ids) {
            let found = stops.texts().iter().filter_map(|stop| Some((text.find(stop)?, stop.len())));
            // The stop text that ended first and, of several, the longest.
            let first = found.min_by_key(|(from, len)| (from + len, *from)).map(|(from, _)| from);
            // Some tokenizers drop a space at the start of a text.
            let bare = |stop: &String| stop.strip_prefix(' ').is_some_and(|stop| text.starts_with(stop));
            let first = first.or_else(|| stops.texts().iter().any(bare).then_some(0));
            text.truncate(first.unwrap_or(text.len()));
        }
        Ok(text)
    }

    /// Special tokens, which are left out of text.
    fn special_tokens(&self) -> Vec<u32> {
        let added = self.tokenizer.get_added_tokens_decoder().into_iter();
        added.filter(|(_, token)| token.special).map(|(id, _)| id).collect()
    }

    /// Returns the bytes of each token. A character may be split between tokens.
    fn pieces(&self) -> Result<TokenBytes> {
        let decoder = serde_json::to_value(self.tokenizer.get_decoder()).unwrap_or_default();
        let special = self.special_tokens();
        let by_bytes = has(&decoder, "ByteLevel");
        let fallback = has(&decoder, "ByteFallback");
        let anchor = if by_bytes { None } else { self.anchor() };
        let one = |id: u32| -> Result<Vec<u8>> {
            let Some(token) = self.tokenizer.id_to_token(id).filter(|_| !special.contains(&id)) else {
                return Ok(Vec::new());
            };
            if by_bytes {
                return Ok(bytes_of(&token));
            }
            if let Some(byte) = fallback.then(|| byte_token(&token)).flatten() {
                return Ok(vec![byte]);
            }
            let Some((anchor, before)) = &anchor else { return Ok(self.decode(&[id])?.into_bytes()) };
            // Decoded after another token, because a first token may lose its space.
            let text = self.decode(&[*anchor, id])?;
            let own = text.strip_prefix(before.as_str()).ok_or_else(|| self.changes(&token))?;
            Ok(own.as_bytes().to_vec())
        };
        (0..self.vocabulary as u32).map(one).collect()
    }

    /// Returns a token that has visible text, and the text.
    fn anchor(&self) -> Option<(u32, String)> {
        let text = |id: u32| self.decode(&[id]).ok().filter(|text| !text.trim().is_empty());
        (0..self.vocabulary as u32).find_map(|id| Some((id, text(id)?)))
    }

    fn changes(&self, token: &str) -> Error {
        let what = format!(
            "`model.stop` has texts, and the tokenizer in `{}` makes other text of a token where `{}` follows",
            self.source,
            shown::name(token)
        );
        Error::new(what).hint("use only special tokens")
    }
}

fn wrong(text: &str, why: &str) -> Error {
    Error::new(format!("`model.stop` has {}, {why}", shown::word(&format!("{text:?}"), shown::NAME)))
}

/// Whether a decoder is of a kind, or contains one of that kind.
fn has(decoder: &Value, kind: &str) -> bool {
    match decoder {
        Value::Object(fields) => {
            fields.get("type").is_some_and(|own| own == kind) || fields.values().any(|part| has(part, kind))
        }
        Value::Array(parts) => parts.iter().any(|part| has(part, kind)),
        _ => false,
    }
}

/// Returns the bytes of a token in a byte-level vocabulary, which writes each byte as one character,
/// invisible ones from `U+0100` on (Radford et al. 2019, `bytes_to_unicode`). Other tokens are plain text.
fn bytes_of(token: &str) -> Vec<u8> {
    let plain = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let hidden: Vec<u8> = (0..=255_u8).filter(|byte| !plain(byte)).collect();
    let byte = |c: char| match u8::try_from(c) {
        Ok(byte) if plain(&byte) => Some(byte),
        _ => hidden.get((c as usize).checked_sub(0x100)?).copied(),
    };
    token.chars().map(byte).collect::<Option<_>>().unwrap_or_else(|| token.as_bytes().to_vec())
}

/// Parses the byte of a token like `<0x0A>`.
fn byte_token(token: &str) -> Option<u8> {
    u8::from_str_radix(token.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()
}
