//! The source of a policy's component: the name of a shipped policy, or a path.

use std::path::Path;

use allot_base::did_you_mean;
use allot_sandbox::shipped::{component, names};
use pyo3::prelude::*;

use crate::exception::{Exception, Result};

/// Returns the names of the shipped policies.
#[pyfunction]
pub fn shipped() -> Vec<&'static str> {
    names()
}

/// Returns a component's bytes, by the name of a shipped policy or by a path. Text with a slash or a file
/// extension is a path.
pub fn bytes(source: &str) -> Result<Vec<u8>> {
    let path = Path::new(source);
    if source.contains(['/', '\\']) || path.extension().is_some() {
        return std::fs::read(path).map_err(|e| Exception::file("read", path, &e));
    }
    if let Some(component) = component(source) {
        return Ok(component.to_owned());
    }
    let near = did_you_mean(source, names());
    let own = "give your own component by its path, as in `./mine.wasm`";
    Err(Exception::new(format!("no policy is called `{source}`")).hint(near).hint(own))
}
