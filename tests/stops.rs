//! Texts that end answers: what each tokenizer makes of tokens, where an answer ends, and its text up to there.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::{Path, PathBuf};

use allot_allocation::seed::Stream;
use allot_engine::End;
use allot_models::tokens::Tokens;
use serde_json::{Value, json};

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/models");
    let mut all: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    all.retain(|path| path.join("tokenizer.json").is_file());
    all.push(allot_models::find("tiny-sums").unwrap());
    all
}

/// A tokenizer as sentencepiece has them: `▁` is a space, unknown characters are bytes, and a text loses the space
/// that it begins with.
fn sentences() -> (tempfile::TempDir, Tokens) {
    let words = ["<unk>", "</s>", "▁", "▁Q", "Q", ":", "▁A", "n", "<0x0A>", "<0xE2>", "<0x82>", "<0xAC>"];
    let vocabulary: serde_json::Map<String, Value> =
        words.iter().enumerate().map(|(id, word)| ((*word).to_owned(), json!(id))).collect();
    let replace =
        |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
    let whole = json!({
        "version": "1.0", "truncation": null, "padding": null, "post_processor": null, "pre_tokenizer": null,
        "added_tokens": [
            {"id": 1, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
             "normalized": false, "special": true},
        ],
        "normalizer": replace(" ", "▁"),
        "decoder": {"type": "Sequence", "decoders": [
            replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocabulary,
            "merges": [["▁", "Q"]],
        },
    });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), whole.to_string()).unwrap();
    std::fs::write(folder.path().join("generation_config.json"), r#"{"eos_token_id": 1}"#).unwrap();
    let tokens = Tokens::read(folder.path()).unwrap();
    (folder, tokens)
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

#[test]
fn a_text_is_found_in_the_tokens_that_make_it() {
    let mut found = 0;
    for folder in cases() {
        let tokens = Tokens::read(&folder).unwrap();
        let stream = &mut Stream::new(7);
        let mut below = |n: usize| (stream.unit() * n as f64) as usize;
        for _ in 0..60 {
            let ids: Vec<u32> = (0..12).map(|_| below(tokens.vocabulary()) as u32).collect();
            let so_far = |n: usize| tokens.decode(&ids[..n]).unwrap();
            let text: Vec<char> = so_far(ids.len()).chars().collect();
            let from = below(text.len().max(1));
            let stop: String = text[from..text.len().min(from + 1 + below(6))].iter().collect();
            // A broken character is none, and may be a whole one with what comes behind it.
            if stop.is_empty() || stop.contains('\u{fffd}') {
                continue;
            }
            let stops = tokens.stops_and(std::slice::from_ref(&stop)).unwrap();
            let plain = (0..ids.len()).find(|at| so_far(at + 1).contains(&stop)).unwrap();
            let end = stops.end(&ids).unwrap();
            // The end of a turn may come before.
            let ended = ids.iter().position(|id| tokens.stops().contains(id)).filter(|at| *at < plain);
            assert_eq!(
                end,
                ended.map_or(End::Text(plain), End::Token),
                "{}: {stop:?} in {ids:?}",
                folder.display()
            );
            if ended.is_none() {
                let whole = so_far(plain + 1);
                let text = tokens.answer(&ids[..=plain], &stops).unwrap();
                assert_eq!(whole.split(&stop).next().unwrap(), text);
                found += 1;
            }
        }
    }
    assert!(found > 300, "{found}");
}

#[test]
fn an_answer_ends_where_a_text_does_and_its_text_before_it() {
    let folder = cases().into_iter().find(|path| path.ends_with("tiny-qwen2-tied")).unwrap();
    let tokens = Tokens::read(&folder).unwrap();
    let stops = tokens.stops_and(&texts(["\nQ:", "€!", " end of it"])).unwrap();
    for (text, cut) in [
        ("one two\nQ: three", "one two"),
        ("\nQ", "\nQ"),
        ("a € and €! or", "a € and "),
        ("this is the end of it, and so on\nQ: no", "this is the"),
        ("nothing", "nothing"),
    ] {
        let ids = tokens.encode(text).unwrap();
        let end = stops.end(&ids);
        assert_eq!(end.is_some(), text != cut, "{text:?}");
        // What comes behind the token in which it ended is nobody's.
        let own = &ids[..end.map_or(ids.len(), |end| end.at() + 1)];
        assert_eq!(tokens.answer(own, &stops).unwrap(), cut, "{text:?}");
        assert!(tokens.decode(own).unwrap().len() > cut.len() || end.is_none());
    }
    // With no texts nothing is cut.
    let end = tokens.special().eos[0];
    let ids = [tokens.encode("\nQ: 1").unwrap(), vec![end]].concat();
    assert_eq!(tokens.answer(&ids, &tokens.stops_and(&[]).unwrap()).unwrap(), "\nQ: 1");
    assert_eq!(tokens.stops_and(&[]).unwrap().tokens(), tokens.stops());
}

#[test]
fn a_text_may_begin_with_the_space_that_an_answer_loses() {
    let (_folder, tokens) = sentences();
    let stops = tokens.stops_and(&texts([" Q:", "n€"])).unwrap();
    let told = |ids: &[u32]| (stops.end(ids), tokens.answer(ids, &stops).unwrap());
    assert_eq!(told(&[3, 5]), (Some(End::Text(1)), String::new()));
    assert_eq!(told(&[4, 5]), (None, "Q:".to_owned()), "without the space it is another text");
    assert_eq!(told(&[4, 5, 1]), (Some(End::Token(2)), "Q:".to_owned()));
    assert_eq!(told(&[6, 3, 5]), (Some(End::Text(2)), "A".to_owned()));
    assert_eq!(told(&[7, 9, 10, 11]), (Some(End::Text(3)), String::new()), "a character of three tokens");
    assert_eq!(told(&[7, 9, 10]), (None, "n\u{fffd}\u{fffd}".to_owned()));
}

#[test]
fn what_ends_no_answer_is_told() {
    let folder = cases().into_iter().find(|path| path.ends_with("tiny-qwen2-tied")).unwrap();
    let tokens = Tokens::read(&folder).unwrap();
    let end = "<|im_end|>".to_owned();
    let told = |stop: &str| tokens.stops_and(&texts([stop])).err().map(|error| error.to_string());
    let quoted = format!("`model.stop` has \"{end}\\n\", which contains a special token");
    assert!(told(&format!("{end}\n")).unwrap().starts_with(&quoted), "{quoted}");
    assert!(told("").unwrap().starts_with("`model.stop` has \"\", which has no token"));
    let long = "x".repeat(5000);
    assert!(told(&long).unwrap().contains("5000 bytes in total; expected at most 4096"));
    // By itself it is a token.
    let stops = tokens.stops_and(&texts([end.as_str()])).unwrap();
    assert!(stops.texts().is_empty() && stops.tokens().len() == 2);
    // One token of text is both.
    let stops = tokens.stops_and(&texts(["a"])).unwrap();
    assert_eq!((stops.texts().len(), stops.tokens().len()), (1, 2));
}
