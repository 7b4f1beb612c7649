//! Text to tokens and back: a model's tokenizer, the tokens that end an answer, and its chat template,
//! from a folder in Hugging Face layout or from a GGUF file. It knows nothing of weights.

mod gguf;

use std::collections::BTreeMap;
use std::path::Path;

use allot_engine::model::{Gguf, SpecialIds};
use allot_tasks::Ask;
use serde_json::{Map, Value, json};
use tokenizers::{Model as _, Tokenizer};

use crate::chat::ChatTemplate;
use crate::trouble::{Result, Trouble};

/// What turns a model's text into tokens and back.
pub struct Tokens {
    tokenizer: Tokenizer,
    /// A template that is broken is no trouble until messages are asked.
    chat: Result<Option<ChatTemplate>>,
    special: SpecialIds,
    /// What a folder says of all this, by file name: what [`Tokens::write`] writes.
    files: BTreeMap<&'static str, String>,
    /// Where it came from, for an error.
    source: String,
}

impl Tokens {
    /// Reads a model's folder, or its GGUF file.
    pub fn read(path: &Path) -> Result<Self> {
        if path.is_file() {
            return Self::of_gguf(path);
        }
        let tokenizer_path = path.join("tokenizer.json");
        if path.is_dir() && !tokenizer_path.is_file() {
            let what = format!("`{}` has no `tokenizer.json`", path.display());
            return Err(Trouble::new(what)
                .hint("transformers writes one: `AutoTokenizer.from_pretrained(…).save_pretrained(…)`"));
        }
        let mut files = BTreeMap::new();
        files.insert("tokenizer.json", text(&tokenizer_path)?);
        for name in ["tokenizer_config.json", "generation_config.json", "chat_template.jinja"] {
            if path.join(name).is_file() {
                files.insert(name, text(&path.join(name))?);
            }
        }
        let object = |name: &str, text: Option<&String>| -> Result<Map<String, Value>> {
            let Some(text) = text else { return Ok(Map::new()) };
            serde_json::from_str(text)
                .map_err(|e| Trouble::new(format!("`{}` is no JSON object: {e}", path.join(name).display())))
        };
        let config = object("tokenizer_config.json", files.get("tokenizer_config.json"))?;
        let generation = object("generation_config.json", files.get("generation_config.json"))?;
        let model_text = path.join("config.json").is_file().then(|| text(&path.join("config.json")));
        let model = object("config.json", model_text.transpose()?.as_ref())?;

        let tokenizer = parsed(&files["tokenizer.json"], &tokenizer_path.display().to_string())?;
        let named = |name: &str| {
            let value = config.get(name)?;
            tokenizer.token_to_id(value.as_str().or(value["content"].as_str())?)
        };
        // Each of these ends an answer somewhere: transformers stops at those of the generation config,
        // the tokenizer's own ends a turn, and the model's is what a folder has that has no more.
        let mut eos = ids(generation.get("eos_token_id"));
        eos.extend(ids(model.get("eos_token_id")));
        eos.extend(named("eos_token"));
        let first = |name: &str| ids(generation.get(name)).into_iter().chain(ids(model.get(name))).next();
        let special = SpecialIds {
            bos: first("bos_token_id").or(named("bos_token")),
            eos: distinct(eos),
            pad: first("pad_token_id").or(named("pad_token")),
        };
        let chat = ChatTemplate::find(path, &config);
        Ok(Self { tokenizer, chat, special, files, source: path.display().to_string() })
    }

    /// Reads a GGUF file's metadata.
    pub fn of_gguf(path: &Path) -> Result<Self> {
        let gguf = Gguf::open(path)?;
        let source = path.display().to_string();
        let size = gguf.texts("tokenizer.ggml.tokens").map_or(0, |tokens| tokens.len() as u64);
        // Some files say "none" by a number past the vocabulary.
        let id = |name: &str| {
            let id = gguf.number(&format!("tokenizer.ggml.{name}_token_id"));
            id.filter(|id| *id < size).map(|id| id as u32)
        };
        let special = SpecialIds {
            bos: id("bos"),
            eos: distinct([id("eos"), id("eot"), id("eom")].into_iter().flatten().collect()),
            pad: id("padding"),
        };
        let others = [special.bos, special.pad, id("unknown")].into_iter().flatten();
        let marked: Vec<u32> = special.eos.iter().copied().chain(others).collect();
        let whole = gguf::tokenizer_json(&gguf, &marked, special.bos)?;
        let whole = whole.to_string();
        let tokenizer = parsed(&whole, &source)?;

        let mut config = Map::new();
        config.insert("clean_up_tokenization_spaces".to_owned(), json!(false));
        config.insert("tokenizer_class".to_owned(), json!("PreTrainedTokenizerFast"));
        let named = [
            ("bos", special.bos),
            ("eos", special.eos.first().copied()),
            ("pad", special.pad),
            ("unk", id("unknown")),
        ];
        for (name, id) in named {
            if let Some(token) = id.and_then(|id| tokenizer.id_to_token(id)) {
                config.insert(format!("{name}_token"), json!(token));
            }
        }
        let mut files = BTreeMap::new();
        let mut chat = Ok(None);
        if let Some(template) = gguf.text("tokenizer.chat_template") {
            chat = ChatTemplate::parse(template.to_owned(), config.clone(), &source).map(Some);
            files.insert("chat_template.jinja", template.to_owned());
        }
        let generation =
            json!({"bos_token_id": special.bos, "eos_token_id": special.eos, "pad_token_id": special.pad});
        files.insert("tokenizer.json", whole);
        files.insert("tokenizer_config.json", format!("{:#}\n", Value::Object(config)));
        files.insert("generation_config.json", format!("{generation:#}\n"));
        Ok(Self { tokenizer, chat, special, files, source })
    }

    /// The tokens of a text as it stands: nothing is put before or after it. What reads like a special
    /// token is one.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.encoded(text, Additions::None)
    }

    /// The tokens of what a model is asked. Plain text gets what the tokenizer puts around every text,
    /// which for some models is a first token that they never went without. Messages go through the chat
    /// template, which has such tokens itself, up to where the answer begins.
    pub fn encode_ask(&self, ask: &Ask) -> Result<Vec<u32>> {
        let messages = match ask {
            Ask::Text(text) => return self.encoded(text, Additions::OfTokenizer),
            Ask::Chat(messages) => messages,
        };
        let Some(chat) = self.chat.as_ref().map_err(Trouble::clone)? else {
            let what =
                format!("the model in `{}` has no chat template, and it is asked messages", self.source);
            return Err(Trouble::new(what).hint("ask it plain text, or take a model that was made for chats"));
        };
        let messages: Vec<Value> =
            messages.iter().map(|m| json!({"role": m.role, "content": m.content})).collect();
        let more = Map::from_iter([("add_generation_prompt".to_owned(), json!(true))]);
        self.encode(&chat.render(&messages, &more)?)
    }

    /// The text of tokens, without the special ones. A character whose tokens are not all there becomes
    /// `U+FFFD`.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.tokenizer
            .decode(ids, true)
            .map_err(|e| Trouble::new(format!("the tokenizer in `{}` fails: {e}", self.source)))
    }

    /// The tokens that end an answer, the main one first. There may be none: then only the limit does.
    pub fn stops(&self) -> &[u32] {
        &self.special.eos
    }

    /// The tokens that a model's config names.
    pub fn special(&self) -> &SpecialIds {
        &self.special
    }

    /// Whether messages can be asked.
    pub fn can_chat(&self) -> bool {
        matches!(self.chat, Ok(Some(_)))
    }

    /// One more than the largest token that it knows.
    pub fn vocabulary(&self) -> usize {
        let model = self.tokenizer.get_model();
        let size = model.get_vocab_size();
        // As many tokens as numbers from 0 on: hardly any model has gaps. Only there its vocabulary is copied.
        let has_no_gap = (0..size as u32).all(|id| model.id_to_token(id).is_some());
        let known = if has_no_gap { size } else { past(model.get_vocab().into_values()) };
        let added = self.tokenizer.get_added_tokens_decoder().into_keys();
        known.max(past(added.chain(self.special.eos.iter().copied())))
    }

    /// Whether a model has all of these tokens. It may have more: vocabularies are padded to round numbers.
    pub fn fits(&self, vocabulary: usize) -> Result<()> {
        let own = self.vocabulary();
        if own <= vocabulary {
            return Ok(());
        }
        let what = format!(
            "the tokenizer in `{}` goes up to token {}, and the model has {vocabulary}",
            self.source,
            own - 1
        );
        Err(Trouble::new(what).hint("tokenizer and weights are of different models"))
    }

    /// Writes the tokenizer's files into a folder, beside a model's weights: what was read, or what was
    /// made of a GGUF file.
    pub fn write(&self, folder: &Path) -> Result<()> {
        for (name, text) in &self.files {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|e| Trouble::file("write", &path, &e))?;
        }
        Ok(())
    }

    fn encoded(&self, text: &str, additions: Additions) -> Result<Vec<u32>> {
        let encoding = self.tokenizer.encode_fast(text, additions == Additions::OfTokenizer);
        let encoding =
            encoding.map_err(|e| Trouble::new(format!("the tokenizer in `{}` fails: {e}", self.source)))?;
        Ok(encoding.get_ids().to_vec())
    }
}

/// What a tokenizer adds to a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Additions {
    None,
    OfTokenizer,
}

fn text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| Trouble::file("read", path, &e))
}

fn parsed(json: &str, source: &str) -> Result<Tokenizer> {
    let mut tokenizer = Tokenizer::from_bytes(json)
        .map_err(|e| Trouble::new(format!("the tokenizer in `{source}` is broken: {e}")))?;
    // Left over from whoever saved it: a prompt is neither cut nor filled up.
    let cut = tokenizer.with_truncation(None).map(|_| ());
    cut.map_err(|e| Trouble::new(format!("the tokenizer in `{source}` is broken: {e}")))?;
    tokenizer.with_padding(None);
    Ok(tokenizer)
}

/// One more than the largest of some tokens.
fn past(ids: impl Iterator<Item = u32>) -> usize {
    ids.max().map_or(0, |largest| largest as usize + 1)
}

/// A config's token or tokens.
fn ids(value: Option<&Value>) -> Vec<u32> {
    let one = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Some(Value::Array(several)) => several.iter().filter_map(one).collect(),
        Some(value) => one(value).into_iter().collect(),
        None => Vec::new(),
    }
}

fn distinct(ids: Vec<u32>) -> Vec<u32> {
    let mut seen = Vec::new();
    for id in ids {
        if !seen.contains(&id) {
            seen.push(id);
        }
    }
    seen
}
