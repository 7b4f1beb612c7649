//! Where a policy's component is from: the name of one that ships, or a path.

use std::path::Path;

use allot_base::did_you_mean;
use allot_sandbox::shipped::{component, names};
use pyo3::prelude::*;

use crate::exception::{Exception, Result};

/// The names of the policies that ship.
#[pyfunction]
pub fn shipped() -> Vec<&'static str> {
    names()
}

/// A component's bytes, by the name of one that ships or by a path. Anything with a slash or a file ending
/// is a path.
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
