//! Builds a policy or grader in JavaScript with componentize-js: an engine, the policy and its imports.

use std::process::Command;

use allot_base::{Error, Result};

use super::bench::{Bench, Built};
use super::tool::{complaint, version};

/// Builds the component of a folder with a `policy.js` or a `grader.js`.
pub fn component(bench: &Bench, tell: &mut dyn FnMut(&str)) -> Result<Built> {
    let Some(node) = version(Command::new("node").arg("--version")) else {
        return Err(Error::new("`node` was not found; it builds components from JavaScript")
            .hint("install it from https://nodejs.org, or on Debian: apt-get install -y nodejs npm"));
    };
    tell(&format!("building {} with node {node}; this takes half a minute", bench.folder.display()));
    let mut command = Command::new("node");
    // It finds componentize-js in the project, and names modules as their author does.
    command.arg(bench.sdk.join("build.mjs")).arg(&bench.folder);
    command.arg(bench.contract()).arg(bench.out());
    if let Some(said) = complaint(&mut command)? {
        let what = format!("could not build a component from `{}`", bench.folder.display());
        return Err(Error::new(what).hint(said.trim()));
    }
    Ok(Built { component: bench.built()?, toolchain: format!("componentize-js, node {node}") })
}
