//! Policies and what they are written over as plain functions, without Wasm: their own tests, in their own
//! language's runner.

use std::path::Path;
use std::process::Command;

use allot_authoring::language::Language;

use crate::scratch::{self, Scratch};
use crate::tools::{self, runs};

/// A folder of the repository.
fn at(folder: &str) -> std::path::PathBuf {
    scratch::root().join(folder)
}

#[test]
fn in_python() {
    if tools::missing(Language::Python) {
        return;
    }
    let unittest = |folder: &Path| {
        let mut python = Command::new("python3");
        // -B: no bytecode in the sources.
        python.args(["-B", "-W", "error", "-m", "unittest"]).current_dir(folder);
        runs(python.env("PYTHONPATH", at("policies/sdk/python")))
    };
    let twins = ["pilot-commit", "pods", "info-steps", "ar3po"].map(|name| format!("policies/{name}/python"));
    for twin in twins.iter().map(String::as_str).chain(["tests/languages/sdk"]) {
        let said = unittest(&at(twin));
        assert!(said.contains("\nOK") && !said.contains("Ran 0 tests"), "{twin}: {said}");
    }
}

#[test]
fn in_javascript() {
    if tools::missing(Language::Js) {
        return;
    }
    for twin in ["policies/pilot-commit/js", "policies/pods/js", "tests/languages/sdk"] {
        let said = runs(Command::new("node").arg("--test").current_dir(at(twin)));
        assert!(said.contains("fail 0") && !said.contains("pass 0"), "{twin}: {said}");
    }
}

#[test]
fn in_c() {
    if tools::missing(Language::C) {
        return;
    }
    let (scratch, sdk) = (Scratch::new(), at("policies/sdk/c"));
    let tests = [("policies/sdk/c", "test_allot.c"), ("policies/uniform/c", "test_policy.c")];
    for (folder, file) in tests {
        let program = scratch.path().join(file).with_extension("");
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I"]).arg(&sdk).arg(file);
        runs(cc.args(["-o", program.to_str().unwrap(), "-lm"]).current_dir(at(folder)));
        let said = runs(&mut Command::new(&program));
        assert!(said.trim_end().ends_with(" tests passed"), "{folder}: {said}");
    }
}

#[test]
fn in_go() {
    if tools::missing(Language::Go) {
        return;
    }
    for folder in ["policies/sdk/go", "policies/uniform/go"] {
        let go = |args: &[&str]| {
            let mut go = Command::new("go");
            runs(go.args(args).current_dir(at(folder)).env("GOFLAGS", "-buildvcs=false"))
        };
        let said = go(&["test", "./..."]);
        assert!(said.contains("ok "), "{folder}: {said}");
    }
}
