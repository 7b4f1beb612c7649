//! Chat templates against transformers' renderings: `ALLOT_CHAT` names another folder of templates and
//! cases.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::{Path, PathBuf};

use allot_models::chat::ChatTemplate;
use serde_json::{Map, Value};

/// The day on which `record.py` renders.
const DATE: &str = "2026-11-25";

/// A recorded case: a template by its folder, its file or its source, and what transformers made of it.
fn agrees(folder: &Path, case: &Value) -> Result<(), String> {
    let special = || case["special"].as_object().unwrap().clone();
    let template = if let Some(name) = case["tokenizer"].as_str() {
        ChatTemplate::read(&folder.join(name))
    } else if let Some(name) = case["template"].as_str() {
        ChatTemplate::parse(std::fs::read_to_string(folder.join(name)).unwrap(), special(), name)
    } else {
        ChatTemplate::parse(case["source"].as_str().unwrap().to_owned(), special(), "here")
    };
    let text = template.and_then(|template| {
        template.set_date(DATE.parse().unwrap());
        template.render(case["messages"].as_array().unwrap(), case["kwargs"].as_object().unwrap())
    });
    match (text, case["rendered"].as_str()) {
        (Ok(text), Some(recorded)) if text == recorded => Ok(()),
        (Err(_), None) => Ok(()),
        // Where Python has a generator, minijinja has a list, and a list can be written as JSON.
        (Ok(_), None) if case["refused"].as_str().unwrap().contains("type generator") => Ok(()),
        (Ok(text), Some(recorded)) => Err(format!("{text:?}\n  recorded: {recorded:?}")),
        (Ok(text), None) => Err(format!("{text:?}\n  refused: {}", case["refused"])),
        (Err(error), Some(recorded)) => Err(format!("{}\n  recorded: {recorded:?}", error.what)),
    }
}

fn cases(file: &Path) -> Vec<Value> {
    std::fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_recorded_conversation_renders_as_in_transformers() {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/chat");
    let folder = std::env::var_os("ALLOT_CHAT").map_or(default, PathBuf::from);
    let cases = cases(&folder.join("cases.jsonl"));
    let mut differ = Vec::new();
    for case in &cases {
        if let Err(why) = agrees(&folder, case) {
            let name = case["tokenizer"].as_str().or(case["template"].as_str()).unwrap();
            differ.push(format!("{name}, {}, {}: {why}", case["case"], case["kwargs"]));
        }
    }
    assert!(cases.len() >= 42, "only {} cases", cases.len());
    let shown = differ.join("\n");
    assert!(differ.is_empty(), "{} of {} cases differ:\n{shown}", differ.len(), cases.len());
}

#[test]
fn every_construct_renders_as_in_transformers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/chat");
    let cases = cases(&folder.join("constructs.jsonl"));
    let differ = |case: &Value| {
        agrees(&folder, case).err().map(|why| format!("{}, {}: {why}", case["case"], case["source"]))
    };
    let differ: Vec<String> = cases.iter().filter_map(differ).collect();
    assert!(cases.len() >= 120, "only {} cases", cases.len());
    assert!(
        differ.is_empty(),
        "{} of {} constructs differ:\n{}",
        differ.len(),
        cases.len(),
        differ.join("\n")
    );
}

#[test]
fn what_is_wrong_with_a_template_is_told() {
    let parse = |text: &str| ChatTemplate::parse(text.to_owned(), Map::new(), "mine.jinja");
    let broken = parse("{% for m in messages %}").map(|_| ()).unwrap_err().what;
    assert!(broken.starts_with("the chat template in `mine.jinja` is broken: syntax error"), "{broken}");

    let strict = parse("{{ raise_exception('roles must take turns') }}").unwrap();
    let refused = strict.render(&[], &Map::new()).unwrap_err().what;
    assert!(
        refused.contains("refuses these messages") && refused.contains("roles must take turns"),
        "{refused}"
    );

    let folder = tempfile::tempdir().unwrap();
    let read = || ChatTemplate::read(folder.path()).map(|_| ()).unwrap_err();
    assert!(read().what.ends_with("there is no such file or folder"), "{}", read().what);
    std::fs::write(folder.path().join("tokenizer_config.json"), "{}").unwrap();
    assert!(read().what.ends_with("has no chat template"), "{}", read().what);
    std::fs::write(folder.path().join("tokenizer_config.json"), "[]").unwrap();
    assert!(read().what.contains("is no JSON object"), "{}", read().what);
}

#[test]
fn a_template_has_an_end() {
    let render = |text: &str| {
        let template = ChatTemplate::parse(text.to_owned(), Map::new(), "mine.jinja")?;
        template.render(&[], &Map::new())
    };
    // As many terms as a source has room for, with the stack that they take.
    let terms = render(&format!("{{{{ {}1 }}}}", "1+".repeat(65_000))).unwrap();
    assert_eq!(terms, "65001");
    let endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
    let raw = format!("{{% for i in range(99999) %}}{}{{% endfor %}}", "a".repeat(10_000));
    let captured = "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(99) %}\
                    {% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}";
    let calls = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    for (text, why) in [
        (endless, "ran out of fuel"),
        (&raw, "it makes more than"),
        (captured, "it makes more than"),
        (calls, "recursion limit"),
        (&" ".repeat(200_000), "it has 200000 bytes"),
    ] {
        let said = render(text).unwrap_err().what;
        assert!(said.contains(why), "{why}: {said}");
    }
}
