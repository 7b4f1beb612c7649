//! A connection to a registry, and its errors.

use std::io::{Cursor, Error as IoError, ErrorKind};
use std::time::Duration;

use allot_base::{Error, Result};
use allot_component::sha256;
use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::manifest::{
    IMAGE_MANIFEST_LIST_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE,
    OCI_IMAGE_MEDIA_TYPE,
};
use oci_client::secrets::RegistryAuth;
use oci_client::{Reference as Image, RegistryOperation};
use rustls::crypto::{CryptoProvider, ring};

use super::layer::Layer;
use super::login::Login;
use super::reference::{self, Reference};

/// Time limits for connecting to a registry, and for its silence afterwards.
const CONNECT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_mins(1);

/// A connection for one name in a registry.
pub(super) struct Connection<'a> {
    pub client: Client,
    pub image: Image,
    host: &'a str,
    login: Option<Login>,
    operation: RegistryOperation,
}

impl<'a> Connection<'a> {
    pub async fn open(host: &'a str, image: Image, operation: RegistryOperation) -> Result<Self> {
        if CryptoProvider::get_default().is_none() {
            // Fails only if another thread was faster.
            let _ = ring::default_provider().install_default();
        }
        let near = reference::is_loopback(host);
        let config = ClientConfig {
            protocol: if near { ClientProtocol::Http } else { ClientProtocol::Https },
            platform_resolver: None,
            connect_timeout: Some(CONNECT),
            read_timeout: Some(SILENCE),
            user_agent: concat!("allot/", env!("CARGO_PKG_VERSION")),
            // A proxy would resolve a loopback address to itself, so no host uses a proxy.
            http_proxy: near.then(|| format!("http://{host}")),
            no_proxy: near.then(|| "*,0.0.0.0/0,::/0".to_owned()),
            ..ClientConfig::default()
        };
        let client = Client::try_from(config).map_err(|error| {
            Error::new(format!("could not set up a connection to {host}: {}", root(&error)))
                .hint("install the system's certificates, on Debian `ca-certificates`")
        })?;
        let line = Self { client, image, host, login: Login::of(host), operation };
        let auth = line.login.as_ref().map_or(RegistryAuth::Anonymous, Login::auth);
        let thing = format!("`{}`", line.image.repository());
        let token = line.client.auth(&line.image, &auth, operation).await;
        let token = token.map_err(|error| line.told(&thing, &error))?;
        // The token becomes a header.
        if token.is_some_and(|token| !token.bytes().all(|b| b.is_ascii_graphic())) {
            return Err(line.strange(&thing));
        }
        Ok(line)
    }

    pub async fn manifest(&self, reference: &Reference) -> Result<Vec<u8>> {
        let kinds = [
            OCI_IMAGE_MEDIA_TYPE,
            IMAGE_MANIFEST_MEDIA_TYPE,
            // Accepted so that the error can name what was found instead.
            OCI_IMAGE_INDEX_MEDIA_TYPE,
            IMAGE_MANIFEST_LIST_MEDIA_TYPE,
        ];
        let auth = RegistryAuth::Anonymous; // the line has the right one already
        let pull = self.client.pull_manifest_raw(&self.image, &auth, &kinds);
        // A manifest is small; one that takes longer is treated as missing.
        let Ok(pulled) = tokio::time::timeout(SILENCE, pull).await else { return Err(self.silent()) };
        let thing = format!("`{}@sha256:{}`", reference.name(), reference.digest());
        let (bytes, _) = pulled.map_err(|error| match error {
            OciDistributionError::DigestError(_) => self.other(reference.digest()),
            error => self.told(&thing, &error),
        })?;
        self.verified(bytes.into(), reference.digest())
    }

    pub async fn component(&self, layer: &Layer, reference: &Reference) -> Result<Vec<u8>> {
        // Exactly the announced size: a longer stream fails.
        let mut bytes = vec![0; layer.size as usize];
        let digest = format!("sha256:{}", layer.digest);
        let pulled = self.client.pull_blob(&self.image, digest.as_str(), Cursor::new(&mut bytes[..])).await;
        pulled.map_err(|error| match error {
            OciDistributionError::DigestError(_) | OciDistributionError::IoError(_) => {
                self.other(&layer.digest)
            }
            error => self.told(&format!("`{digest}` of `{}`", reference.name()), &error),
        })?;
        self.verified(bytes, &layer.digest)
    }

    fn verified(&self, bytes: Vec<u8>, digest: &str) -> Result<Vec<u8>> {
        if sha256(&bytes) == digest { Ok(bytes) } else { Err(self.other(digest)) }
    }

    fn other(&self, digest: &str) -> Error {
        let host = self.host;
        Error::new(format!("{host} sent content that is not sha256:{digest}; nothing was kept"))
            .hint("check the registry: the content was changed there or on the way")
    }

    fn silent(&self) -> Error {
        let seconds = SILENCE.as_secs();
        Error::new(format!("{} did not answer within {seconds} s", self.host)).hint("try again later")
    }

    fn strange(&self, thing: &str) -> Error {
        Error::new(format!("{} does not answer like a registry when asked for {thing}", self.host))
            .hint("check that there is a registry at this address")
    }

    /// Returns a library's error in words, without text from the server. That text is arbitrary, and a
    /// redirected address may contain a key.
    pub fn told(&self, thing: &str, error: &OciDistributionError) -> Error {
        use OciDistributionError as E;
        match error {
            E::ServerError { code, .. } => self.refused(thing, *code),
            E::UnauthorizedError { .. } | E::AuthenticationFailure(_) => self.refused(thing, 401),
            E::RegistryError { envelope, .. } => match envelope.errors.first().map(|error| &error.code) {
                Some(OciErrorCode::Unauthorized) => self.refused(thing, 401),
                Some(OciErrorCode::Denied) => self.refused(thing, 403),
                Some(OciErrorCode::NameUnknown) => {
                    self.refused(&format!("`{}`", self.image.repository()), 404)
                }
                Some(
                    OciErrorCode::ManifestUnknown
                    | OciErrorCode::BlobUnknown
                    | OciErrorCode::ManifestBlobUnknown
                    | OciErrorCode::NotFound,
                ) => self.refused(thing, 404),
                Some(OciErrorCode::Toomanyrequests) => self.refused(thing, 429),
                _ => self.refused(thing, 400),
            },
            E::RequestError(error) if error.is_timeout() && error.is_connect() => {
                let seconds = CONNECT.as_secs();
                self.unreached(&format!("no answer within {seconds} s"))
            }
            E::RequestError(error) if error.is_timeout() => self.silent(),
            E::RequestError(error) if error.is_connect() => self.unreached(&root(error)),
            E::RequestError(error) => {
                let what = format!("the connection to {} broke at {thing}: {}", self.host, root(error));
                Error::new(what).hint("try again")
            }
            _ => self.strange(thing),
        }
    }

    fn unreached(&self, why: &str) -> Error {
        Error::new(format!("could not reach {}: {why}", self.host))
            .hint("try again later, or give a local component by its path")
    }

    fn refused(&self, thing: &str, code: u16) -> Error {
        let host = self.host;
        let who = if self.login.is_some() { "this login" } else { "an anonymous user" };
        let (does, to) =
            if self.operation == RegistryOperation::Pull { ("give", "to") } else { ("take", "from") };
        match code {
            401 | 403 => Error::new(format!("{host} does not {does} {thing} {to} {who} ({code})"))
                .hint(format!("check the name; if it is right, `docker login {host}`: {}", Login::READ)),
            404 => Error::new(format!("{host} has no {thing}")).hint("check the name and the tag or digest"),
            429 | 500.. => {
                Error::new(format!("{host} can't serve {thing} now ({code})")).hint("try again later")
            }
            code => Error::new(format!("{host} refuses {thing} ({code})")).hint("check name and address"),
        }
    }
}

/// Returns the innermost cause of an error, in words. The outer ones contain the address.
fn root(error: &dyn std::error::Error) -> String {
    let mut last = "unknown reason".to_owned();
    for link in std::iter::successors(error.source(), |error| below(*error)) {
        if let Some(tls) = link.downcast_ref::<rustls::Error>() {
            return format!("TLS failed, {tls}");
        }
        match link.downcast_ref().map(IoError::kind) {
            Some(ErrorKind::ConnectionRefused) => return "connection refused".to_owned(),
            Some(ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof) => {
                return "the connection was cut".to_owned();
            }
            _ => {}
        }
        last = link.to_string();
        if last == "dns error" {
            return "the host was not found".to_owned();
        }
    }
    last
}

/// Returns the cause of an error. The content of an `io::Error` is not among its sources.
fn below<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a (dyn std::error::Error + 'static)> {
    match error.downcast_ref().and_then(IoError::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

/// Runs work that needs the network, on a thread and a runtime that end with it: a caller's runtime allows
/// no second one, and a trainer in Python may fork later, which threads do not survive.
pub(super) fn online<T: Send>(work: impl AsyncFnOnce() -> Result<T> + Send) -> Result<T> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Error::new(format!("could not set up a connection to a registry: {e}")))?;
        let done = runtime.block_on(work());
        // Does not wait for a name resolution in progress.
        runtime.shutdown_background();
        done
    };
    let panicked = |_| Err(Error::new("the registry's answer could not be read"));
    std::thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(panicked))
}
