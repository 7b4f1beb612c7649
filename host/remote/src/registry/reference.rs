//! Addresses in registries.

use std::fmt;

use allot_base::{Error, Result};
use oci_client::Reference as Image;

const SUCH: &str = "write it as `oci://REGISTRY/NAME@sha256:DIGEST`";

/// An immutable reference to one component in a registry: names can move, digests cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    registry: String,
    name: String,
    digest: String,
}

impl Reference {
    /// Parses `oci://REGISTRY/NAME@sha256:DIGEST`.
    pub fn parse(text: &str) -> Result<Self> {
        let rest = stripped(text)?;
        let Some((named, digest)) = rest.split_once('@') else {
            let tagged = if tag(rest).1.is_some() { rest.to_owned() } else { format!("{rest}:TAG") };
            return Err(Error::new(format!("`{text}` has no digest")).hint(format!(
                "run `oras resolve {tagged}` to get the digest, and add it as `@sha256:…`: a tag can move, a \
                 digest can't"
            )));
        };
        let (bare, tag) = tag(named);
        if let Some(tag) = tag {
            let what = format!("`{text}` has a tag and a digest");
            return Err(Error::new(what).hint(format!("leave out `:{tag}`: the digest is enough")));
        }
        let (registry, name) = place(text, bare)?;
        let Some(digest) = sha256(digest) else {
            let why = match digest.split_once(':') {
                Some(("sha256", hex)) if sha256(&format!("sha256:{}", hex.to_lowercase())).is_some() => {
                    "has a digest in capital letters"
                }
                Some(("sha256", _)) => "has a digest that does not have 64 hexadecimal digits",
                _ => "has a digest that is not a sha256",
            };
            return Err(Error::new(format!("`{text}` {why}")).hint(SUCH));
        };
        Ok(Self::new(registry, name, digest.to_owned()))
    }

    /// Returns a reference of parts that were already checked.
    pub(super) fn new(registry: &str, name: &str, digest: String) -> Self {
        Self { registry: registry.to_owned(), name: name.to_owned(), digest }
    }

    /// Returns the registry's host, with its port if there is one.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Returns the name in the registry.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the manifest's sha256, in hexadecimal digits.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the reference as other tools write it, without a scheme.
    pub fn bare(&self) -> String {
        format!("{}/{}@sha256:{}", self.registry, self.name, self.digest)
    }

    pub(super) fn image(&self) -> Image {
        Image::with_digest(self.registry.clone(), self.name.clone(), format!("sha256:{}", self.digest))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "oci://{}", self.bare())
    }
}

/// Parses `oci://REGISTRY/NAME:TAG`, an address to push to. Returns registry, name and tag.
pub(super) fn tagged(text: &str) -> Result<(String, String, String)> {
    let rest = stripped(text)?;
    if rest.contains('@') {
        let what = format!("`{text}` has a digest already");
        return Err(Error::new(what).hint("give a tag, as in `NAME:1.0`: the content decides the digest"));
    }
    let (bare, tag) = tag(rest);
    let (registry, name) = place(text, bare)?;
    let tag = tag.unwrap_or("latest");
    let first = tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if !first || tag.len() > 128 || !tag.chars().all(plain) {
        return Err(Error::new(format!("`{text}` has an invalid tag"))
            .hint("use up to 128 letters, digits, dots, dashes and underscores"));
    }
    Ok((registry.to_owned(), name.to_owned(), tag.to_owned()))
}

/// Returns the hexadecimal digits of a digest, if it is a sha256.
pub(super) fn sha256(digest: &str) -> Option<&str> {
    let digits = digest.strip_prefix("sha256:")?;
    let hexadecimal = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    (digits.len() == 64 && digits.bytes().all(hexadecimal)).then_some(digits)
}

/// Returns whether a registry is on this machine. Such a registry is accessed by plain HTTP.
pub(super) fn is_loopback(registry: &str) -> bool {
    matches!(parted(registry).0, "localhost" | "127.0.0.1" | "[::1]")
}

/// Returns a registry's host and port.
fn parted(registry: &str) -> (&str, Option<&str>) {
    match registry.rsplit_once(':') {
        // Otherwise the colon belongs to an IPv6 address.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (registry, None),
    }
}

/// Returns an address without its scheme.
fn stripped(text: &str) -> Result<&str> {
    let Some(rest) = text.strip_prefix("oci://") else {
        let what = format!("`{text}` is not an address in a registry");
        return Err(Error::new(what).hint(format!("{SUCH}, with two slashes")));
    };
    // The text is not repeated, because it would be a password.
    let host = rest.split('/').next().unwrap_or_default();
    if host.split_once('@').is_some_and(|(_, follows)| !follows.starts_with("sha256:")) {
        return Err(Error::new("an address in a registry can't have a user or a password")
            .hint("use `docker login` instead"));
    }
    Ok(rest)
}

/// Splits a name and the tag that follows it.
fn tag(named: &str) -> (&str, Option<&str>) {
    // A colon before the last slash belongs to a port.
    match named.rsplit_once(':') {
        Some((bare, tag)) if bare.contains('/') && !tag.contains('/') => (bare, Some(tag)),
        _ => (named, None),
    }
}

/// Returns registry and name of an address.
fn place<'a>(text: &str, bare: &'a str) -> Result<(&'a str, &'a str)> {
    let wrong = |why: &str| Err(Error::new(format!("`{text}` {why}")).hint(SUCH));
    let (registry, name) = bare.split_once('/').unwrap_or((bare, ""));
    if registry.is_empty() {
        return wrong("does not name a registry");
    }
    if name.is_empty() {
        return wrong("has no name after its registry");
    }
    if bare.contains(|c: char| c.is_ascii_uppercase()) {
        return wrong("has capital letters, which names in a registry can't have");
    }
    let (host, port) = parted(registry);
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let known = inner.map_or_else(|| plain(host), |ip| ip.parse::<std::net::Ipv6Addr>().is_ok());
    if !known || port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return wrong("names a registry with an invalid host name");
    }
    if !name.split('/').all(plain) {
        return wrong("has a name with characters that are not allowed in a registry");
    }
    Ok((registry, name))
}

/// Returns whether a part has only lower-case letters and digits, separated by dots, dashes or underscores.
fn plain(part: &str) -> bool {
    let small = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !part.contains("..")
        && part.starts_with(small)
        && part.ends_with(small)
        && part.chars().all(|c| small(c) || matches!(c, '.' | '-' | '_'))
}
