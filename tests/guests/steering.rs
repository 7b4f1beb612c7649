//! Text that steers a terminal: escapes, overrides of direction, ends of lines that forge an error of the program's.
//! A walk through the places where text of others reaches a screen: each is shown, and not obeyed.

use std::ffi::OsStr;
use std::process::Output;

use allot_allocation::shown;

use crate::scratch::{self, Scratch};
use crate::{CONFIG, run_text};

/// What is tried everywhere: it clears the screen by either kind of escape, turns the direction, and forges an error.
const EVIL: &str = "\u{1b}[2J\u{9b}2J\u{202e}\nerror: forged";

/// Holds both streams of the program against the rule; gives what they say.
fn harmless(place: &str, done: &Output) -> String {
    let said = [&done.stdout[..], &done.stderr[..]].concat();
    let said = String::from_utf8(said).unwrap_or_else(|_| panic!("{place}: not UTF-8"));
    steers_nothing(place, &said);
    assert!(done.status.code().is_some(), "{place}: {said}");
    said
}

fn steers_nothing(place: &str, said: &str) {
    let bad = said.chars().find(|c| *c != '\n' && shown::steers(*c));
    assert_eq!(bad, None, "{place}: {said:?}");
    assert!(!said.lines().any(|line| line.starts_with("error: forged")), "{place}: {said}");
}

fn check(place: &str, component: &[u8]) -> String {
    let scratch = Scratch::new();
    scratch.write("guest.wasm", component);
    harmless(place, &scratch.command(&["check", "./guest.wasm"]).output().unwrap())
}

/// Bytes with a part put in place of another one of that length.
fn patched(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len(), "lengths in the file stay true");
    let mut patched = bytes.to_vec();
    let mut found = 0;
    for at in 0..=bytes.len() - from.len() {
        if &bytes[at..at + from.len()] == from.as_bytes() {
            patched[at..at + to.len()].copy_from_slice(to.as_bytes());
            found += 1;
        }
    }
    assert!(found > 0, "`{from}` is there");
    patched
}

#[test]
fn names_in_a_component() {
    let other = scratch::component("other_world");
    let said = check("an export", &patched(&other, "answer", "\n\u{1b}[2Jx"));
    assert!(said.contains("\\n\\u001b[2Jx"), "{said}");
    let said = check("an export", &patched(&other, "answer", "\u{202e}\u{9b}x"));
    assert!(said.contains("\\u202e\\u009bx"), "{said}");
    let wants = scratch::component("wants_more");
    let said = check("an import", &patched(&wants, "acme:gpu/device@1.0.0", "xy\nerror: forged\u{1b}[2Jz"));
    assert!(said.contains("imports `xy\\nerror: forged\\u001b[2Jz`"), "{said}");
    let version = scratch::component("other_version");
    let said = check("a version", &patched(&version, "0.4.0", "0.\n\u{1b}2"));
    assert!(said.contains("built for rollout:allocation@0.\\n\\u001b2"), "{said}");
}

#[test]
fn a_description() {
    let text = scratch::guest_text("trains_on_nothing");
    for (place, from, to) in [
        ("a policy's name", "\"guest\"", "\"g\\1b[2\""),
        ("a policy's name", "\"guest\"", "\"\\e2\\80\\aexy\""),
        ("a version", "\"0.0.1\"", "\"1\\c2\\9b2J\""),
        ("a summary", "\"does wrong\"", "\"do\\e2\\80\\ae\\c2\\9bong\""),
    ] {
        let changed = text.replace(from, to);
        assert_ne!(changed, text);
        let component = allot_authoring::component::of_module(changed.as_bytes(), "guest").unwrap();
        let said = check(place, &component);
        assert!(said.contains("its description is unusable"), "{place}: {said}");
    }
}

/// The guest's words, at 64, made evil. They have 22 bytes.
fn evil_words(name: &str) -> String {
    let words = "\\1b[2J\\c2\\9b\\e2\\80\\ae\\0aerror: forg";
    scratch::guest_text(name).replace("\"the words of the guest\"", &format!("\"{words}\""))
}

#[test]
fn words_of_a_guest() {
    for name in ["gives_up", "traps"] {
        let (scratch, said) = run_text(&evil_words(name));
        assert!(said.contains("\\u001b[2J\\u009b\\u202e"), "{name}: {said}");
        for args in [["simulate", "run.toml"], ["check", "./guest.wasm"]] {
            harmless(name, &scratch.command(&args).output().unwrap());
        }
        harmless(name, &scratch.command(&["replay", "out", "--at", "0.0"]).output().unwrap());
    }
    let metric = scratch::guest_text("bad_metric").replace(
        "(data (i32.const 16)",
        "(data (i32.const 128) \"p\\1b[2J\\0aerror: forged name\") (data (i32.const 16)",
    );
    let (scratch, said) = run_text(&metric);
    assert!(said.contains("named a metric `p\\u001b[2J\\nerror: forged name`"), "{said}");
    for args in [&["simulate", "run.toml"][..], &["check", "./guest.wasm"], &["replay", "out", "--at", "0.0"]]
    {
        harmless("a metric", &scratch.command(args).output().unwrap());
    }
    // The name of a function, in a stack.
    let named = scratch::guest_text("trains_on_nothing")
        .replace(";; the first prompt of the pool", "(call $evil) ;; the first prompt of the pool");
    let evil = "(func $evil (@name \"\\1b[2J\\0aerror: forged\\c2\\9b\") unreachable))";
    let (scratch, said) = run_text(&(named.trim_end().strip_suffix(')').unwrap().to_owned() + evil));
    assert!(said.contains("it was in \\u001b[2J\\nerror: forged\\u009b"), "{said}");
    harmless("a function's name", &scratch.command(&["simulate", "run.toml"]).output().unwrap());
}

#[test]
fn records_that_were_edited() {
    let scratch = Scratch::new();
    let config =
        CONFIG.replace("./guest.wasm", "uniform").replace("[policy.limits]\nfuel = 100_000_000\n", "");
    scratch.write("run.toml", config);
    let said = scratch.allot(&["simulate", "run.toml", "--out", "out"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let record = scratch.read("out/record.jsonl");
    let lines = record.lines().map(|line| {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        match line["kind"].as_str().unwrap() {
            "head" => {
                line["policy"]["name"] = EVIL.into();
                line["policy"]["version"] = EVIL.into();
                line["run"]["settings"] = serde_json::json!([[EVIL, EVIL]]);
            }
            "call" => line["plan"]["metrics"] = serde_json::json!([[EVIL, 1.0]]),
            "end" => line["reason"] = EVIL.into(),
            _ => {}
        }
        line.to_string() + "\n"
    });
    let edited: String = lines.collect();
    scratch.write("out/record.jsonl", &edited);
    for args in [
        &["replay", "out"][..],
        &["replay", "out", "--json"],
        &["replay", "out", "--at", "0.0"],
        &["replay", "out", "--at", "0.0", "--json"],
        &["watch", "out"],
        &["report", "out", "--out", "report"],
    ] {
        let said = harmless(&args.join(" "), &scratch.command(args).output().unwrap());
        if args.contains(&"--json") {
            // What is written out stays the same value.
            assert!(said.contains("\\u202e"), "{said}");
            let json = said.lines().find(|line| line.starts_with('{')).unwrap();
            serde_json::from_str::<serde_json::Value>(json).unwrap();
        }
    }
    scratch.write(
        "out/record.jsonl",
        edited.replace("\"kind\":\"call\"", "\"kind\":\"\\u001b[2J\\nerror: forged\""),
    );
    for args in [["replay", "out"], ["watch", "out"]] {
        harmless("a line of no kind", &scratch.command(&args).output().unwrap());
    }
}

#[test]
fn configs_and_names_of_files() {
    let scratch = Scratch::new();
    let key = "\"\\u001B[2J\\u009B2J\\u202E\\nerror: forged\"";
    for (place, text) in [
        ("a key", format!("{key} = 1\n{CONFIG}")),
        ("a section's key", CONFIG.replace("seed = 1", &format!("seed = 1\n{key} = 1"))),
        (
            "a setting",
            CONFIG.replace("[policy.limits]", &format!("[policy.settings]\n{key} = {key}\n[policy.limits]")),
        ),
        ("a policy", CONFIG.replace("\"./guest.wasm\"", key)),
        ("raw text", CONFIG.replace("seed = 1", "seed = \"\u{9b}2J\u{202e}")),
        ("a raw escape", CONFIG.replace("seed = 1", "seed = \u{1b}[2J")),
    ] {
        scratch.write("guest.wasm", scratch::guest("trains_on_nothing"));
        scratch.write("run.toml", text);
        let said = harmless(place, &scratch.command(&["simulate", "run.toml"]).output().unwrap());
        assert!(said.starts_with("error: "), "{place}: {said}");
    }
    let name = format!("{EVIL}.toml");
    for args in [["simulate", &name], ["check", &format!("./{name}")], ["replay", &name], ["watch", &name]] {
        harmless("a file that is not there", &scratch.command(&args).output().unwrap());
    }
    scratch.write(&name, "seed = [");
    for args in [["simulate", &name], ["train", &name], ["check", &format!("./{name}")], ["replay", &name]] {
        harmless("a file that is no good", &scratch.command(&args).output().unwrap());
    }
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt as _;
        let odd = OsStr::from_bytes(b"./\xff\x1b[2J.wasm");
        harmless("a name that is no text", &scratch.command(&["check"]).arg(odd).output().unwrap());
    }
}

#[test]
fn words_of_libraries_and_templates() {
    let template = "{{ raise_exception('\u{1b}[2J\u{202e}\\nerror: forged') }}".to_owned();
    let chat =
        allot_models::chat::ChatTemplate::parse(template, serde_json::Map::new(), "a template").unwrap();
    let error = chat.render(&[], &serde_json::Map::new()).unwrap_err();
    steers_nothing("raise_exception", &error.report());
    let module = "(module (func (export \"\\1b[2J\\0aerror: forged\\c2\\9b\")) (import \"\\1b\" \"\\0aerror: forged\" (func)))";
    let error = allot_authoring::component::of_module(module.as_bytes(), EVIL).unwrap_err();
    steers_nothing("a module", &error.report());
}
