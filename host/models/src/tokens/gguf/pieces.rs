//! SentencePiece tokenizers (Mistral, Phi-3-mini, Gemma): pieces with scores. The pair that makes the piece
//! of the best score is merged first (transformers, `generate_merges` in
//! `tokenization_utils_tokenizers.py`). `▁` is a space, and text without a piece becomes its bytes.

use std::collections::HashMap;

use allot_base::Result;
use serde_json::{Value, json};

use super::{Listed, NORMAL, OF_USERS, none};

/// How a space is written in pieces.
const SPACE: &str = "\u{2581}";

/// Returns the `tokenizer.json` of a file with a SentencePiece tokenizer.
pub(super) fn tokenizer_json(listed: &Listed<'_>, bos: Option<u32>) -> Result<Value> {
    let gguf = listed.gguf;
    let scores = gguf.fractions("tokenizer.ggml.scores");
    let scores = scores.ok_or_else(|| none(gguf, "tokenizer.ggml.scores"))?;
    let unknown = gguf.number("tokenizer.ggml.unknown_token_id").unwrap_or(0);
    let unknown = listed.tokens.get(unknown as usize).copied();
    // The default is llama.cpp's: Llama begins a text with a space.
    let adds_space = gguf.flag("tokenizer.ggml.add_space_prefix").unwrap_or(true);
    let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE});
    let mut normalizers = vec![spaces];
    if adds_space {
        normalizers.insert(0, json!({"type": "Prepend", "prepend": SPACE}));
    }
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if adds_space {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let (vocabulary, added) = listed.vocabulary();
    let mut whole = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": null,
        "post_processor": listed.around(bos, true),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
        },
    });
    let merges = merges(listed, &scores);
    whole["model"]["vocab"] = Value::Object(vocabulary);
    whole["model"]["merges"] = Value::Array(merges);
    Ok(whole)
}

/// Returns all pairs of pieces that make a piece, best score first.
fn merges(listed: &Listed<'_>, scores: &[f32]) -> Vec<Value> {
    let is_piece = |id: &usize| matches!(listed.kind(*id), NORMAL | OF_USERS);
    let ids = (0..listed.tokens.len()).filter(is_piece);
    let known: HashMap<&str, usize> = ids.map(|id| (listed.tokens[id], id)).collect();
    let mut all = Vec::new();
    for (piece, id) in &known {
        let score = scores.get(*id).copied().unwrap_or(f32::MIN);
        for (place, _) in piece.char_indices().skip(1) {
            let (left, right) = piece.split_at(place);
            if let (Some(first), Some(second)) = (known.get(left), known.get(right)) {
                all.push((score, *id, *first, *second));
            }
        }
    }
    // Pairs with one score are sorted by the id of their piece, then by their own ids.
    all.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then_with(|| (a.1, a.2, a.3).cmp(&(b.1, b.2, b.3))));
    let pair = |(_, _, left, right)| json!([listed.tokens[left], listed.tokens[right]]);
    all.into_iter().map(pair).collect()
}
