//! `docs/how-to/any-language.md`: its blocks of Zig are a policy, its commands build and run it, and the mistakes that it
//! tells of are told as it says.

use std::fs;
use std::process::Command;

use crate::page::{Checkout, blocks};
use crate::{scratch, skip::skip};

fn text() -> String {
    fs::read_to_string(scratch::root().join("docs/how-to/any-language.md")).unwrap()
}

/// The page's blocks of Zig, one after the other.
fn source() -> String {
    let text = text();
    let blocks = text.split("```zig\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    blocks.collect::<Vec<_>>().join("\n")
}

fn no_zig() -> bool {
    let version = Command::new("python3").args(["-m", "ziglang", "version"]).output();
    if version.is_ok_and(|done| done.status.success()) {
        return false;
    }
    skip("zig", "python3 has no ziglang");
    true
}

#[test]
fn the_pages_policy_in_zig_works_and_its_mistakes_are_told() {
    if no_zig() {
        return;
    }
    let checkout = Checkout::new("any");
    let source = source();
    fs::write(checkout.folder.join("policy.zig"), &source).unwrap();
    let text = text();
    let commands: Vec<_> = blocks(&text).into_iter().filter(|block| block.mark != "install").collect();
    assert!(!commands.is_empty());
    for block in &commands {
        checkout.run("docs/how-to/any-language.md", &block.text);
    }
    // It acts: some prompts get more than their pilots.
    checkout.run("what it asked for", "grep -q '\"count\":26' runs/ziggy/record.jsonl");

    // Each with what the page says about it.
    let mistakes = [
        (
            "@ptrFromInt(16) else",
            "@ptrFromInt(0xaaaaaaa8) else",
            "list pointer/length out of bounds of memory",
        ),
        ("some: bool = false", "some: u8 = 7", "invalid option discriminant"),
        ("@export(&realloc, .{ .name = \"cabi_realloc\" });", "", "cabi_realloc"),
        ("allocator@0.3.0#", "allocator@0.1.0#", "type mismatch for function `begin"),
        (".of(\"Tries", ".of(\"\\xffTries", "invalid utf-8 sequence"),
    ];
    for (right, wrong, said) in mistakes {
        assert!(source.contains(right) && text.contains(said), "{right}: {said}");
        fs::write(checkout.folder.join("policy.zig"), source.replacen(right, wrong, 1)).unwrap();
        let build = commands[0].text.lines().next().unwrap();
        let told = format!(
            "rm -f w.wasm; {build}; (allot build policy.wasm --out w.wasm && allot check ./w.wasm) >told 2>&1 && exit 1\n\
             grep -qF '{said}' told || {{ cat told; exit 1; }}"
        );
        checkout.run("a mistake", &told);
    }
}
