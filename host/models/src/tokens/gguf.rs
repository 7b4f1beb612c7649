//! The `tokenizer.json` that a GGUF file's metadata stands for.
//!
//! candle has such a reader, too; it takes every splitting of text that it does not know for another, and
//! among those that it does not know is SmolLM2's. Here each is written out, and what is unknown is refused.

use allot_engine::model::Gguf;
use allot_error::{Error, Result};
use serde_json::{Map, Value, json};

/// The `tokenizer.json` that a GGUF file was made from, as far as its metadata goes. `marked` are the
/// tokens that it names as special.
pub(super) fn tokenizer_json(gguf: &Gguf, marked: &[u32], bos: Option<u32>) -> Result<Value> {
    let place = gguf.path().display();
    let none = |key: &str| Error::new(format!("`{place}` has no `{key}`, so it has no tokenizer"));
    match gguf.text("tokenizer.ggml.model") {
        Some("gpt2") => {}
        Some(other) => {
            let what = format!("the tokenizer in `{place}` is of the kind `{other}`; only gpt2 is known");
            return Err(Error::new(what).hint("take the model's folder in Hugging Face layout instead"));
        }
        None => return Err(none("tokenizer.ggml.model")),
    }
    let tokens = gguf.texts("tokenizer.ggml.tokens").ok_or_else(|| none("tokenizer.ggml.tokens"))?;
    let merges = gguf.texts("tokenizer.ggml.merges").ok_or_else(|| none("tokenizer.ggml.merges"))?;
    let kinds = gguf.numbers("tokenizer.ggml.token_type").unwrap_or_default();
    let pre = gguf.text("tokenizer.ggml.pre").ok_or_else(|| none("tokenizer.ggml.pre"))?;
    let Some(split) = splitting(pre) else {
        let what = format!("the tokenizer in `{place}` splits text in the way `{pre}`");
        return Err(Error::new(what).hint(
            "known are smollm, qwen2, llama-bpe, gpt-2 and default; else take the model's folder in Hugging Face layout",
        ));
    };
    let llama3 = split["llama3"] == true;

    // The kinds are llama.cpp's `llama_token_type`.
    let (mut vocabulary, mut added) = (Map::with_capacity(tokens.len()), Vec::new());
    for (id, token) in tokens.iter().enumerate() {
        let (unknown, control, of_users, unused) = (2, 3, 4, 5);
        let kind = kinds.get(id).copied().unwrap_or(1);
        let special = kind == unknown || kind == control || marked.contains(&(id as u32));
        // Nothing becomes such a token: it fills the vocabulary up to a round number.
        if kind == unused && !special {
            continue;
        }
        vocabulary.insert((*token).to_owned(), json!(id));
        if special || kind == of_users {
            added.push(json!({
                "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": special,
            }));
        }
    }
    // As in llama.cpp, where the metadata does not say: Llama 3 begins every text with a token.
    let adds_bos = gguf.flag("tokenizer.ggml.add_bos_token").unwrap_or(llama3);
    let bos = bos.filter(|_| adds_bos).and_then(|id| Some((id, *tokens.get(id as usize)?)));
    let text = |name: &str, kind: u8| json!({"Sequence": {"id": name, "type_id": kind}});
    let (mut single, mut pair) = (vec![text("A", 0)], vec![text("A", 0), text("B", 1)]);
    let mut around = Map::new();
    if let Some((id, token)) = bos {
        let first = json!({"SpecialToken": {"id": token, "type_id": 0}});
        single.insert(0, first.clone());
        pair.insert(0, first);
        around.insert(token.to_owned(), json!({"id": token, "ids": [id], "tokens": [token]}));
    }
    let mut whole = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": split["normalizer"],
        "pre_tokenizer": split["pre_tokenizer"],
        "post_processor": {
            "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": around,
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": llama3,
        },
    });
    // Moved in, for `json!` would copy them.
    let merges = merges.into_iter().map(|merge| Value::String(merge.to_owned())).collect();
    whole["model"]["vocab"] = Value::Object(vocabulary);
    whole["model"]["merges"] = Value::Array(merges);
    Ok(whole)
}

/// How text is split before pairs are merged, by llama.cpp's name for it (`llama-vocab.cpp`), in the words
/// of the published `tokenizer.json` files that llama.cpp follows.
fn splitting(pre: &str) -> Option<Value> {
    let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let bytes = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
    let sequence = |parts: Vec<Value>| json!({"type": "Sequence", "pretokenizers": parts});
    // Llama 3's and Qwen's differ in how many digits go together.
    let words = |digits: &str| {
        split(&format!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ))
    };
    Some(match pre {
        // SmolLM2: each digit apart, then GPT-2's rule.
        "smollm" => {
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
        "gpt-2" => json!({"pre_tokenizer": bytes(true)}),
        // llama.cpp's own, for a tokenizer that its converter did not recognize.
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
