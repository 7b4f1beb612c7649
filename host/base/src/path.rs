//! What a config or a command line names: a path, or an address.

use std::path::Path;

use crate::{Error, Result};

/// What an address in a registry begins with.
const REGISTRY: &str = "oci:";

/// Whether a policy's source is an address in a registry.
pub fn is_registry_address(source: &str) -> bool {
    source.starts_with(REGISTRY)
}

/// Whether what a config names is a path: it has a slash or a file ending, and is no address in a hub or in a
/// registry.
pub fn looks_like_a_path(source: &str) -> bool {
    !source.starts_with("hub:") && !is_registry_address(source) && source.contains(['/', '\\', '.'])
}

/// Makes what a config names whole, if it is a path.
///
/// # Errors
///
/// A folder at hand that cannot be found.
pub fn settle(source: &mut String) -> Result<()> {
    if looks_like_a_path(source) {
        let path = Path::new(source.as_str());
        *source = std::path::absolute(path).map_err(|e| Error::file("find", path, &e))?.display().to_string();
    }
    Ok(())
}
