//! Chat templates against transformers' renderings: `ALLOT_CHAT` names another folder of templates and
//! cases.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::{Path, PathBuf};

use allot_models::chat::ChatTemplate;
use serde_json::{Map, Value};

#[test]
fn every_recorded_conversation_renders_as_in_transformers() {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/chat");
    let folder = std::env::var_os("ALLOT_CHAT").map_or(default, PathBuf::from);
    let mut rendered = 0;
    for line in std::fs::read_to_string(folder.join("cases.jsonl")).unwrap().lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let template = ChatTemplate::read(&folder.join(case["tokenizer"].as_str().unwrap())).unwrap();
        let messages = case["messages"].as_array().unwrap();
        let text = template.render(messages, case["kwargs"].as_object().unwrap()).unwrap();
        assert_eq!(text, case["rendered"].as_str().unwrap(), "{} of {}", case["case"], case["tokenizer"]);
        rendered += 1;
    }
    assert!(rendered >= 42, "only {rendered} cases");
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
        (&raw, "it writes more than"),
        (captured, "it writes more than"),
        (calls, "recursion limit"),
        (&" ".repeat(200_000), "it has 200000 bytes"),
    ] {
        let said = render(text).unwrap_err().what;
        assert!(said.contains(why), "{why}: {said}");
    }
}
