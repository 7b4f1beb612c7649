//! Builds a policy or grader in Python with componentize-py: an interpreter, the policy and its imports.

use std::path::PathBuf;
use std::process::Command;

use allot_base::{Error, Result};
use allot_component::Kind;

use super::bench::{Bench, Built};
use super::tool::{complaint, version};

/// The tested version.
const PACKAGE: &str = "componentize-py==0.25.1";

/// Builds the component of a folder with a `policy.py` or a `grader.py`.
pub fn component(bench: &Bench, tell: &mut dyn FnMut(&str)) -> Result<Built> {
    let (tool, toolchain) = tool(bench)?;
    tell(&format!("building {} with {toolchain}; this takes half a minute", bench.folder.display()));
    let left = bench.folder.join("__pycache__");
    let was_there = left.exists();
    let mut command = Command::new(&tool);
    command.arg("-q").arg("-d").arg(bench.wit()).args(["-w", bench.kind.world(), "componentize"]);
    command.arg("-p").arg(&bench.folder).arg("-p").arg(&bench.sdk);
    let entry = match bench.kind {
        Kind::Policy => "allot_policy.component",
        Kind::Grader => "allot_grader.component",
    };
    command.args([entry, "-o"]).arg(bench.out()).env("RUST_BACKTRACE", "0");
    let built = complaint(&mut command);
    if !was_there {
        // Removes bytecode of another Python than the author's.
        let _ = std::fs::remove_dir_all(&left);
    }
    if let Some(said) = built? {
        let what = format!("could not build a component from `{}`", bench.folder.display());
        return Err(Error::new(what).hint(format!("componentize-py says:\n{}", of_policy(&said))));
    }
    Ok(Built { component: bench.built()?, toolchain })
}

/// Returns the part of the output about the policy, without the part about componentize-py.
fn of_policy(said: &str) -> &str {
    let from = said.split_once("AssertionError: ").map_or(said, |(_, rest)| rest);
    from.split_once("\n\nCaused by:").map_or(from, |(words, _)| words).trim()
}

/// Returns the componentize-py of the project's virtual environment, or the one on the path.
fn tool(bench: &Bench) -> Result<(PathBuf, String)> {
    let own = [".venv", "venv"].map(|env| bench.folder.join(env).join("bin/componentize-py"));
    let all = own.into_iter().chain([PathBuf::from("componentize-py")]);
    let found = all.into_iter().find_map(|tool| {
        let version = version(Command::new(&tool).arg("--version"))?;
        Some((tool, version))
    });
    found.ok_or_else(|| {
        Error::new("`componentize-py` was not found; it makes components from Python")
            .hint(format!("run: pip install {PACKAGE}"))
    })
}
