//! The `tokenizer.json` for a GGUF file's metadata: of byte-level BPE tokenizers, like GPT-2's, and of
//! SentencePiece tokenizers (`pieces.rs`).
//!
//! candle has such a reader, too, but it treats a pre-tokenizer that it does not know as another one;
//! SmolLM2's is among these. Here each known one is written out, and an unknown one is an error.

mod pieces;

use allot_base::{Error, Result};
use allot_engine::model::Gguf;
use serde_json::{Map, Value, json};

/// Types of tokens: llama.cpp's `llama_token_type`.
const NORMAL: u64 = 1;
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const OF_USERS: u64 = 4;
const UNUSED: u64 = 5;

/// The tokens listed in a file.
struct Listed<'a> {
    gguf: &'a Gguf,
    /// Their texts.
    tokens: Vec<&'a str>,
    kinds: Vec<u64>,
    /// Tokens that the file names as special.
    marked: &'a [u32],
}

/// Returns the `tokenizer.json` that a GGUF file was made from, as far as its metadata allow. `marked` are
/// the tokens that it names as special.
pub(super) fn tokenizer_json(gguf: &Gguf, marked: &[u32], bos: Option<u32>) -> Result<Value> {
    let tokens = gguf.texts("tokenizer.ggml.tokens");
    let kinds = gguf.numbers("tokenizer.ggml.token_type").unwrap_or_default();
    let kind = gguf.text("tokenizer.ggml.model").ok_or_else(|| none(gguf, "tokenizer.ggml.model"))?;
    let listed = |tokens| Listed { gguf, tokens, kinds, marked };
    let tokens = tokens.ok_or_else(|| none(gguf, "tokenizer.ggml.tokens"));
    match kind {
        "gpt2" => of_bytes(&listed(tokens?), bos),
        "llama" => pieces::tokenizer_json(&listed(tokens?), bos),
        other => {
            let place = gguf.path().display();
            let what =
                format!("the tokenizer in `{place}` has the type `{other}`; expected `gpt2` or `llama`");
            Err(Error::new(what).hint("use the model's folder in Hugging Face format instead"))
        }
    }
}

fn none(gguf: &Gguf, key: &str) -> Error {
    Error::new(format!("`{}` has no `{key}`, so it has no tokenizer", gguf.path().display()))
}

impl Listed<'_> {
    fn kind(&self, id: usize) -> u64 {
        self.kinds.get(id).copied().unwrap_or(NORMAL)
    }

    /// Returns the vocabulary, and the tokens that are matched first: special and user-defined tokens.
    fn vocabulary(&self) -> (Map<String, Value>, Vec<Value>) {
        let (mut vocabulary, mut added) = (Map::with_capacity(self.tokens.len()), Vec::new());
        for (id, token) in self.tokens.iter().enumerate() {
            let kind = self.kind(id);
            let special = kind == UNKNOWN || kind == CONTROL || self.marked.contains(&(id as u32));
            // An unused token never occurs: it pads the vocabulary to a round number.
            if kind == UNUSED && !special {
                continue;
            }
            vocabulary.insert((*token).to_owned(), json!(id));
            if special || kind == OF_USERS {
                added.push(json!({
                    "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": special,
                }));
            }
        }
        (vocabulary, added)
    }

    /// Returns the post-processor, which adds the BOS token to a text, if there is one to add.
    fn around(&self, bos: Option<u32>, adds_bos: bool) -> Value {
        // The metadata may set it; the default is llama.cpp's.
        let adds_bos = self.gguf.flag("tokenizer.ggml.add_bos_token").unwrap_or(adds_bos);
        let bos = bos.filter(|_| adds_bos).and_then(|id| Some((id, *self.tokens.get(id as usize)?)));
        let text = |name: &str, kind: u8| json!({"Sequence": {"id": name, "type_id": kind}});
        let (mut single, mut pair) = (vec![text("A", 0)], vec![text("A", 0), text("B", 1)]);
        let mut around = Map::new();
        if let Some((id, token)) = bos {
            let first = json!({"SpecialToken": {"id": token, "type_id": 0}});
            single.insert(0, first.clone());
            pair.insert(0, first);
            around.insert(token.to_owned(), json!({"id": token, "ids": [id], "tokens": [token]}));
        }
        json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": around})
    }
}

/// Returns the `tokenizer.json` of a byte-level BPE tokenizer.
fn of_bytes(listed: &Listed<'_>, bos: Option<u32>) -> Result<Value> {
    let gguf = listed.gguf;
    let merges = gguf.texts("tokenizer.ggml.merges").ok_or_else(|| none(gguf, "tokenizer.ggml.merges"))?;
    let pre = gguf.text("tokenizer.ggml.pre").ok_or_else(|| none(gguf, "tokenizer.ggml.pre"))?;
    let Some(split) = splitting(pre) else {
        let what =
            format!("the tokenizer in `{}` has the unsupported pre-tokenizer `{pre}`", gguf.path().display());
        return Err(Error::new(what).hint(
            "use smollm, refact, qwen2, llama-bpe, dbrx, smaug-bpe, gpt-2 or default, or the model's folder in Hugging Face format",
        ));
    };
    let llama3 = split["llama3"] == true;
    let (vocabulary, added) = listed.vocabulary();
    let mut whole = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": split["normalizer"],
        "pre_tokenizer": split["pre_tokenizer"],
        // Llama 3 begins every text with a BOS token.
        "post_processor": listed.around(bos, llama3),
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": llama3,
        },
    });
    // Added afterwards, because `json!` would copy them.
    let merges = merges.into_iter().map(|merge| Value::String(merge.to_owned())).collect();
    whole["model"]["vocab"] = Value::Object(vocabulary);
    whole["model"]["merges"] = Value::Array(merges);
    Ok(whole)
}

/// Returns how text is split before pairs are merged, for llama.cpp's name of it (`llama-vocab.cpp`). The
/// format is that of the published `tokenizer.json` files that llama.cpp follows.
fn splitting(pre: &str) -> Option<Value> {
    let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let bytes = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
    let sequence = |parts: Vec<Value>| json!({"type": "Sequence", "pretokenizers": parts});
    // Llama 3 and Qwen differ in how many digits they group.
    let words = |digits: &str| {
        split(&format!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ))
    };
    Some(match pre {
        // SmolLM2 and Granite 3: each digit separately, then GPT-2's rule.
        "smollm" | "refact" => {
            let digits = json!({"type": "Digits", "individual_digits": true});
            json!({"pre_tokenizer": sequence(vec![digits, bytes(true)])})
        }
        // Qwen2, Qwen2.5 and Qwen3.
        "qwen2" | "deepseek-r1-qwen" => json!({
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": sequence(vec![words(r"\p{N}"), bytes(false)]),
        }),
        "llama-bpe" | "llama3" | "llama-v3" => json!({
            "pre_tokenizer": sequence(vec![words(r"\p{N}{1,3}"), bytes(false)]),
            "llama3": true,
        }),
        // OLMo 2 and Phi-4; SmolLM3: split as in Llama 3, but merged as usual.
        "dbrx" | "smaug-bpe" => json!({"pre_tokenizer": sequence(vec![words(r"\p{N}{1,3}"), bytes(false)])}),
        "gpt-2" => json!({"pre_tokenizer": bytes(true)}),
        // llama.cpp's default, for a tokenizer that its converter did not recognize.
        "default" => json!({"pre_tokenizer": sequence(vec![
            split(r"[\p{P}\$\+<=>\^~\|]+"),
            split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"),
            split(r"\p{N}+"),
            split(r"[0-9][0-9][0-9]"),
            bytes(false),
        ])}),
        _ => return None,
    })
}
