//! The component's layer in a manifest.

use allot_base::{Error, Result, count};
use allot_component::TooLarge;
use oci_client::manifest::{OciImageManifest, WASM_LAYER_MEDIA_TYPE};
use serde_json::Value;

use crate::registry::reference::{self, Reference};

/// The media type of a component's layer; tools before 2024 used another one.
pub const WASM: &str = "application/wasm";

/// The layer that contains the component.
pub struct Layer {
    /// Its digest, without the algorithm's name.
    pub digest: String,
    /// Its size in bytes.
    pub size: u64,
}

impl Layer {
    /// Returns a manifest's layer of a component. Other layers, such as a licence or a signature, are ignored.
    pub fn of(manifest: &[u8], reference: &Reference) -> Result<Self> {
        let wrong = |what: &str| Error::new(format!("`{reference}` {what}"));
        let manifest: Value =
            serde_json::from_slice(manifest).map_err(|_| wrong("is not a registry manifest"))?;
        if manifest.get("manifests").is_some() {
            return Err(wrong("is an index of manifests, not one of them")
                .hint(format!("run `oras manifest fetch {}` to list their digests", reference.bare())));
        }
        let manifest: OciImageManifest =
            serde_json::from_value(manifest).map_err(|_| wrong("is not an image manifest"))?;
        let is_wasm = |kind: &str| kind == WASM || kind == WASM_LAYER_MEDIA_TYPE;
        let layers: Vec<_> = manifest.layers.iter().filter(|layer| is_wasm(&layer.media_type)).collect();
        let [layer] = layers[..] else {
            let what = format!("has {} with Wasm", count(layers.len() as u64, "layer"));
            return Err(wrong(&what).hint(format!("push a policy as one component, in one layer `{WASM}`")));
        };
        let Some(digest) = reference::sha256(&layer.digest) else {
            return Err(wrong("does not name its component by a sha256"));
        };
        let size = u64::try_from(layer.size).map_err(|_| wrong("has a component of negative size"))?;
        TooLarge::check(size)
            .map_err(|error| Error::new(format!("could not load policy `{reference}`: {error}")))?;
        Ok(Self { digest: digest.to_owned(), size })
    }
}
