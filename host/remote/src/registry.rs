//! Policies from container registries: `oci://REGISTRY/NAME@sha256:DIGEST`.
//!
//! The digest is the manifest's, and the manifest has the component's digest. Bytes that do not match are
//! refused, whichever server they come from. Manifest and component are cached under their hashes, and
//! verified at each read. Nothing is printed, in particular no password.
//!
//! The layout is that of other Wasm tools: an image manifest with one layer, `application/wasm`, and a
//! config with the component's imports and exports.
//!
//! ```
//! use allot_remote::registry::Reference;
//!
//! let address = format!("oci://ghcr.io/you/policy@sha256:{}", "0".repeat(64));
//! assert_eq!(Reference::parse(&address)?.registry(), "ghcr.io");
//! // A tag can move.
//! assert!(Reference::parse("oci://ghcr.io/you/policy:0.1.0").is_err());
//! # Ok::<(), allot_base::Error>(())
//! ```

mod cached;
mod connection;
mod layer;
mod login;
mod reference;

use std::path::Path;

use allot_base::{Error, Result};
use allot_component::sha256;
use oci_client::client::{Config, ImageLayer};
use oci_client::manifest::{OCI_IMAGE_MEDIA_TYPE, OciImageManifest};
use oci_client::{Reference as Image, RegistryOperation};
use serde_json::{Value, json};
use wit_component::DecodedWasm;

use cached::{keep, kept};
use connection::{Connection, online};
use layer::{Layer, WASM};
pub use reference::Reference;

const WASM_CONFIG: &str = "application/vnd.wasm.config.v0+json";

/// Returns the component of a reference: from the cache if it is there and intact, else from the registry.
pub fn fetch(reference: &Reference, cache: Option<&Path>) -> Result<Vec<u8>> {
    let here = kept(cache, reference.digest())
        .and_then(|manifest| Layer::of(&manifest, reference).ok())
        .and_then(|layer| kept(cache, &layer.digest));
    if let Some(component) = here {
        return Ok(component);
    }
    online(async || {
        let line = Connection::open(reference.registry(), reference.image(), RegistryOperation::Pull).await?;
        let manifest = line.manifest(reference).await?;
        let layer = Layer::of(&manifest, reference)?;
        let component = match kept(cache, &layer.digest) {
            Some(component) => component,
            None => line.component(&layer, reference).await?,
        };
        keep(cache, &component);
        keep(cache, &manifest);
        Ok(component)
    })
}

/// Pushes a component to a registry, at an address like `oci://ghcr.io/me/policy:1.0`; the default tag is
/// `latest`. Returns its reference. Equal components have equal digests everywhere.
pub fn push(component: &[u8], address: &str) -> Result<Reference> {
    let (registry, name, tag) = reference::tagged(address)?;
    let layer = ImageLayer::new(component.to_vec(), WASM.to_owned(), None);
    let about = about(component, &layer.sha256_digest())?.to_string();
    let config = Config::new(about, WASM_CONFIG.to_owned(), None);
    let mut manifest = OciImageManifest::build(std::slice::from_ref(&layer), &config, None);
    manifest.media_type = Some(OCI_IMAGE_MEDIA_TYPE.to_owned());
    let text = json!(manifest).to_string().into_bytes();
    let reference = Reference::new(&registry, &name, sha256(&text));
    online(async || {
        let image = Image::with_tag(registry.clone(), name.clone(), tag.clone());
        let line = Connection::open(&registry, image, RegistryOperation::Push).await?;
        let told = |error| line.told(&format!("`{name}:{tag}`"), &error);
        for (bytes, digest) in
            [(layer.data, &manifest.layers[0].digest), (config.data, &manifest.config.digest)]
        {
            line.client.push_blob(&line.image, bytes, digest).await.map_err(told)?;
        }
        let kind = OCI_IMAGE_MEDIA_TYPE.parse().expect("a media type is a header's value");
        line.client.push_manifest_raw(&line.image, text, kind).await.map_err(told)?;
        Ok(())
    })?;
    Ok(reference)
}

/// Returns the config, which other tools read before they fetch a component. It needs a time, which is
/// constant here: otherwise no component would have the same digest twice.
fn about(component: &[u8], digest: &str) -> Result<Value> {
    let decoded = wasmparser::Parser::is_component(component).then(|| wit_component::decode(component));
    let Some(Ok(DecodedWasm::Component(resolve, world))) = decoded else {
        return Err(Error::new("the file to push is not a component")
            .hint("run `allot build` to make one from a core module, or `allot new` to start a policy"));
    };
    let world = &resolve.worlds[world];
    let imports: Vec<_> = world.imports.keys().map(|key| resolve.name_world_key(key)).collect();
    let exports: Vec<_> = world.exports.keys().map(|key| resolve.name_world_key(key)).collect();
    Ok(json!({
        "created": "1970-01-01T00:00:00Z",
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [digest],
        "component": { "exports": exports, "imports": imports },
    }))
}
