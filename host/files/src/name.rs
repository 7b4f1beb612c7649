//! What a config or a command line names: a path, or an address.

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
