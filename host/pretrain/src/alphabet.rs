//! The alphabet: a tokenizer of characters, and the files that tell it to transformers and to
//! [`allot_models::tokens::Tokens`]. It has no unknown token: what it does not know is an error.

use std::path::Path;

use allot_base::{Error, Result};
use allot_engine::model::SpecialIds;
use serde_json::{Map, Value, json};

/// What ends an answer, as text. It is also the padding of batches.
const END: &str = "<end>";

/// The characters that a model knows. The end is token 0, the first character token 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alphabet {
    characters: Vec<char>,
}

impl Alphabet {
    /// The token that ends an answer.
    pub const END: u32 = 0;

    /// An alphabet of these characters, each of them once.
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

    /// Tokens, the end among them.
    #[expect(clippy::len_without_is_empty, reason = "there is always the end")]
    pub fn len(&self) -> usize {
        self.characters.len() + 1
    }

    /// A text's tokens, without an end.
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

    /// The tokens that a model's config names.
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

    /// The tokenizer as the tokenizers library has it: a vocabulary of words that are one character each.
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
            // Every character for itself. A dot would leave out the line's end, and the regular expressions
            // of Rust and of Python's build have different words for one that does not.
            "pre_tokenizer": {
                "type": "Split", "pattern": { "Regex": "[\\s\\S]" }, "behavior": "Isolated", "invert": false,
            },
            "post_processor": null,
            "decoder": { "type": "Fuse" },
            // A name that the vocabulary lacks, so that an unknown character is an error.
            "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "<unknown>" },
        })
    }
}
