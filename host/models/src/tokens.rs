//! A model's tokenizer, the tokens that end an answer, and its chat template, from a folder in Hugging Face
//! layout or from a GGUF file. Nothing here needs the weights.

mod gguf;
mod stops;
mod turns;

use std::collections::BTreeMap;
use std::path::Path;

use allot_allocation::shown;
use allot_base::{Error, Result, panics};
use allot_engine::model::{Gguf, SpecialIds, file};
use allot_tasks::Ask;
use serde_json::{Map, Value, json};
use tokenizers::{Model as _, Tokenizer};

use crate::chat::{ChatTemplate, Date};

/// Converts a model's text to tokens and back.
pub struct Tokens {
    tokenizer: Tokenizer,
    /// A broken template is an error only once messages are encoded.
    chat: Result<Option<ChatTemplate>>,
    special: SpecialIds,
    /// The tokenizer's files by name, for [`Tokens::write`].
    files: BTreeMap<&'static str, String>,
    /// Its source, for error messages.
    source: String,
    /// The largest token id, plus one.
    vocabulary: usize,
}

/// The most bytes of text for each token: words have about 4, and the longest runs of white space 128. A text that has
/// more for a limit of tokens need not be tokenized, which takes hundreds of bytes per byte.
pub const BYTES_A_TOKEN: usize = 256;

/// Largest `tokenizer.json`, in bytes. That of Gemma 3 has 33 MB; other files are small.
const LARGEST: u64 = 1 << 30;

impl Tokens {
    /// Reads a model's folder, or its GGUF file.
    pub fn read(path: &Path) -> Result<Self> {
        if path.is_file() {
            return Self::of_gguf(path);
        }
        let tokenizer_path = path.join("tokenizer.json");
        if path.is_dir() && !tokenizer_path.is_file() {
            let what = format!("`{}` has no `tokenizer.json`", path.display());
            return Err(Error::new(what)
                .hint("write one with transformers: `AutoTokenizer.from_pretrained(…).save_pretrained(…)`"));
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
                .map_err(|e| Error::new(format!("`{}` is not a JSON object: {e}", path.join(name).display())))
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
        let of = |file: &Map<String, Value>, name: &str, key: &str| {
            ids(file.get(key)).ok_or_else(|| {
                let what = format!(
                    "`{}`: `{key}` is {}; expected a token ID, or a list of them",
                    path.join(name).display(),
                    shown::name(&file[key].to_string())
                );
                Error::new(what)
            })
        };
        let (of_generation, of_model) = (
            |key: &str| of(&generation, "generation_config.json", key),
            |key: &str| of(&model, "config.json", key),
        );
        // Each of these ends an answer in some model: transformers stops at those of the generation config,
        // the tokenizer's own token ends a turn, and some folders have only the model config's.
        let mut eos = of_generation("eos_token_id")?;
        eos.extend(of_model("eos_token_id")?);
        eos.extend(named("eos_token"));
        let first = |key: &str| -> Result<Option<u32>> {
            Ok(of_generation(key)?.into_iter().chain(of_model(key)?).next())
        };
        let special = SpecialIds {
            bos: first("bos_token_id")?.or(named("bos_token")),
            eos: distinct(eos),
            pad: first("pad_token_id")?.or(named("pad_token")),
        };
        let chat = ChatTemplate::find(path, &config);
        Self { tokenizer, chat, special, files, source: path.display().to_string(), vocabulary: 0 }.counted()
    }

    /// Sets the size of the vocabulary.
    fn counted(mut self) -> Result<Self> {
        let counted = panics::caught(|| vocabulary(&self.tokenizer, &self.special));
        self.vocabulary = counted.map_err(|said| self.fails(&said))?;
        Ok(self)
    }

    /// Reads the metadata of a GGUF file.
    pub fn of_gguf(path: &Path) -> Result<Self> {
        let gguf = Gguf::open(path)?;
        let source = path.display().to_string();
        let size = gguf.texts("tokenizer.ggml.tokens").map_or(0, |tokens| tokens.len() as u64);
        // Some files express "none" by an id past the vocabulary. Some SentencePiece files have no ids;
        // llama.cpp then uses Llama's.
        let is_pieces = gguf.text("tokenizer.ggml.model") == Some("llama");
        let usual = |name: &str| {
            let all = [("unknown", 0), ("bos", 1), ("eos", 2)];
            all.into_iter().find(|(usual, _)| is_pieces && *usual == name).map(|(_, id)| id)
        };
        let id = |name: &str| {
            let id = gguf.number(&format!("tokenizer.ggml.{name}_token_id")).or_else(|| usual(name));
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
        Self { tokenizer, chat, special, files, source, vocabulary: 0 }.counted()
    }

    /// Sets the date that the chat template writes, if it writes one.
    pub fn set_date(&self, date: Date) {
        if let Ok(Some(chat)) = &self.chat {
            chat.set_date(date);
        }
    }

    /// Returns the date that was written into an encoded prompt, if any.
    pub fn date(&self) -> Option<Date> {
        self.chat.as_ref().ok()?.as_ref()?.date()
    }

    /// Returns the tokens of a text, with nothing added before or after it. Text that reads like a special
    /// token becomes that token.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.encoded(text, Additions::None)
    }

    /// Returns the tokens of a prompt. Plain text gets the tokens that the tokenizer adds to every text:
    /// some models were always trained with a first token. Messages go through the chat template, up to
    /// where the answer begins. The template itself has such tokens.
    pub fn encode_ask(&self, ask: &Ask) -> Result<Vec<u32>> {
        let messages = match ask {
            Ask::Text(text) => return self.encoded(text, Additions::OfTokenizer),
            Ask::Chat(messages) => messages,
        };
        if let Ok(None) = self.chat {
            let what =
                format!("the model in `{}` has no chat template, but the prompts are messages", self.source);
            return Err(Error::new(what).hint("use plain-text prompts, or a chat model"));
        }
        self.encode(&self.asked(messages, "", &Value::Null)?)
    }

    /// Returns the text of tokens, without special tokens. An incomplete character becomes `U+FFFD`.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.tried(|| self.tokenizer.decode(ids, true))
    }

    /// Whether a character by itself has a token.
    pub fn knows(&self, c: char) -> bool {
        self.encode(&c.to_string()).is_ok_and(|ids| !ids.is_empty())
    }

    /// Returns all characters that it knows, if they are few and each has its own token.
    pub fn characters(&self) -> Option<String> {
        const FEW: usize = 128;
        if self.vocabulary > FEW {
            return None;
        }
        let vocabulary = self.tokenizer.get_model().get_vocab();
        let special = self.tokenizer.get_added_vocabulary().get_vocab();
        let mut all: Vec<&String> = vocabulary.keys().filter(|token| !special.contains_key(*token)).collect();
        all.sort_unstable();
        let one_each = all.iter().all(|token| token.chars().count() == 1);
        let all: String = all.into_iter().map(String::as_str).collect();
        one_each.then(|| format!("`{}`", shown::word(&all, 4 * FEW)))
    }

    /// The tokens that end an answer, the main one first. If there are none, only the length limit ends it.
    pub fn stops(&self) -> &[u32] {
        &self.special.eos
    }

    /// The special tokens named by the model's config.
    pub fn special(&self) -> &SpecialIds {
        &self.special
    }

    /// The largest token id, plus one.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Checks that a model has all of these tokens. It may have more: vocabularies are padded to round
    /// numbers.
    pub fn fits(&self, vocabulary: usize) -> Result<()> {
        let own = self.vocabulary();
        if own <= vocabulary {
            return Ok(());
        }
        let what = format!(
            "the tokenizer in `{}` goes up to token {}, but the model has {vocabulary}",
            self.source,
            own - 1
        );
        Err(Error::new(what).hint("use the tokenizer and the weights of one model"))
    }

    /// Writes the tokenizer's files into a folder, beside a model's weights: the files that were read, or
    /// those made from a GGUF file.
    pub fn write(&self, folder: &Path) -> Result<()> {
        for (name, text) in &self.files {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|e| Error::file("write", &path, &e))?;
        }
        Ok(())
    }

    fn encoded(&self, text: &str, additions: Additions) -> Result<Vec<u32>> {
        let with = additions == Additions::OfTokenizer;
        let ids = self.tried(|| self.tokenizer.encode_fast(text, with).map(|e| e.get_ids().to_vec()))?;
        // A post-processor has its own token ids, which the library does not check against the vocabulary.
        match ids.iter().find(|id| **id as usize >= self.vocabulary) {
            None => Ok(ids),
            Some(id) => Err(self.fails(&format!("it produces token {id}, which is outside its vocabulary"))),
        }
    }

    /// Runs the tokenizer, and catches panics: it is third-party code with a third-party file.
    fn tried<T>(&self, work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
        let done = panics::caught(work).map_err(|said| self.fails(&said))?;
        done.map_err(|e| self.fails(&shown::line(&e.to_string(), shown::LINE)))
    }

    fn fails(&self, why: &str) -> Error {
        let error = Error::new(format!("the tokenizer in `{}` fails: {why}", self.source));
        error.hint("replace its `tokenizer.json` by one that the `tokenizers` library can load")
    }
}

/// Returns the largest token id of a tokenizer plus one, special tokens included.
fn vocabulary(tokenizer: &Tokenizer, special: &SpecialIds) -> usize {
    let model = tokenizer.get_model();
    let size = model.get_vocab_size();
    // Almost no model has gaps between its ids. Only for one with gaps is the vocabulary copied.
    let has_no_gap = (0..size as u32).all(|id| model.id_to_token(id).is_some());
    let known = if has_no_gap { size } else { past(model.get_vocab().into_values()) };
    let added = tokenizer.get_added_tokens_decoder().into_keys();
    known.max(past(added.chain(special.eos.iter().copied())))
}

/// Tokens that a tokenizer adds to a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Additions {
    None,
    OfTokenizer,
}

fn text(path: &Path) -> Result<String> {
    Ok(file::text(path, LARGEST)?)
}

fn parsed(json: &str, source: &str) -> Result<Tokenizer> {
    let broken = |why: &str| Error::new(format!("the tokenizer in `{source}` is broken: {why}"));
    let read = || -> tokenizers::Result<Tokenizer> {
        let mut tokenizer = Tokenizer::from_bytes(json)?;
        // These settings remain from training the tokenizer. A prompt is neither truncated nor padded.
        tokenizer.with_truncation(None)?;
        tokenizer.with_padding(None);
        Ok(tokenizer)
    };
    let read = panics::caught(read).map_err(|said| broken(&said))?;
    read.map_err(|e| broken(&shown::line(&e.to_string(), shown::LINE)))
}

/// Returns the largest of some token ids plus one; 0 if there are none.
fn past(ids: impl Iterator<Item = u32>) -> usize {
    ids.max().map_or(0, |largest| largest as usize + 1)
}

/// Parses a config's token id or list of ids; `None` if the value is of another type. An id of -1 means
/// none, as in the first conversions of Llama.
fn ids(value: Option<&Value>) -> Option<Vec<u32>> {
    let one = |value: &Value| match value.as_i64() {
        Some(-1) => Some(None),
        _ => value.as_u64().and_then(|id| u32::try_from(id).ok()).map(Some),
    };
    match value {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(several)) => {
            several.iter().map(one).collect::<Option<Vec<_>>>().map(|ids| ids.into_iter().flatten().collect())
        }
        Some(value) => one(value).map(|id| id.into_iter().collect()),
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
