//! The alphabet: a character tokenizer, and its files for transformers and
//! [`allot_models::tokens::Tokens`]. There is no unknown token: an unknown character is an error.

use std::path::Path;

use allot_base::{Error, Result};
use allot_engine::model::SpecialIds;
use serde_json::{Map, Value, json};

/// The text of the end token, which is also the padding token.
const END: &str = "<end>";

/// The characters that a model knows. The end is token 0, the first character token 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alphabet {
    characters: Vec<char>,
}

impl Alphabet {
    /// The token that ends an answer.
    pub const END: u32 = 0;

    /// Returns an alphabet of these characters, which must be distinct.
    pub fn new(characters: &str) -> Result<Self> {
        let characters: Vec<char> = characters.chars().collect();
        if characters.is_empty() {
            return Err(Error::new("the alphabet has no characters"));
        }
        let twice = characters.iter().enumerate().find(|(i, c)| characters[..*i].contains(c));
        match twice {
            Some((_, c)) => Err(Error::new(format!("the alphabet has {c:?} twice"))),
            None => Ok(Self { characters }),
        }
    }

    /// Returns the number of tokens, including the end.
    #[expect(clippy::len_without_is_empty, reason = "there is always the end")]
    pub fn len(&self) -> usize {
        self.characters.len() + 1
    }

    /// Returns a text's tokens, without an end.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let token = |c: char| {
            let at = self.characters.iter().position(|known| *known == c);
            at.map(|at| at as u32 + 1).ok_or_else(|| {
                Error::new(format!("{c:?} of `{text}` is not in the alphabet"))
                    .hint("add it to `tokenizer.alphabet`")
            })
        };
        text.chars().map(token).collect()
    }

    /// Returns the text of tokens, up to the end.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let known = tokens.iter().take_while(|token| **token != Self::END);
        known.filter_map(|token| self.characters.get(*token as usize - 1)).collect()
    }

    /// Returns the special tokens of a model's config.
    pub fn special(&self) -> SpecialIds {
        SpecialIds { bos: None, eos: vec![Self::END], pad: Some(Self::END) }
    }

    /// Writes `tokenizer.json`, `tokenizer_config.json` and `generation_config.json` into a model's
    /// folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let config = json!({
            "clean_up_tokenization_spaces": false,
            "eos_token": END,
            "pad_token": END,
            "tokenizer_class": "PreTrainedTokenizerFast",
        });
        let generation = json!({ "eos_token_id": Self::END, "pad_token_id": Self::END });
        for (name, value) in [
            ("tokenizer.json", self.tokenizer()),
            ("tokenizer_config.json", config),
            ("generation_config.json", generation),
        ] {
            let path = folder.join(name);
            std::fs::write(&path, format!("{value:#}\n")).map_err(|e| Error::file("write", &path, &e))?;
        }
        Ok(())
    }

    /// Returns the tokenizer in the tokenizers library's format: a vocabulary of one-character words.
    fn tokenizer(&self) -> Value {
        let mut vocabulary = Map::new();
        vocabulary.insert(END.to_owned(), json!(Self::END));
        for (c, id) in self.characters.iter().zip(1..) {
            vocabulary.insert(c.to_string(), json!(id));
        }
        json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": [{
                "id": Self::END, "content": END, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true,
            }],
            "normalizer": null,
            // Splits at every character. A dot would not match a line break, and the regular expressions of
            // Rust and of Python's build have different syntax for one that does.
            "pre_tokenizer": {
                "type": "Split", "pattern": { "Regex": "[\\s\\S]" }, "behavior": "Isolated", "invert": false,
            },
            "post_processor": null,
            "decoder": { "type": "Fuse" },
            // This name is not in the vocabulary, so that an unknown character is an error.
            "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "<unknown>" },
        })
    }
}
