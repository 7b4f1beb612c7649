//! Credentials that `docker login` has stored.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci_client::secrets::RegistryAuth;
use serde_json::Value;

/// A user and a password for one registry. They are sent only to that registry.
pub(super) struct Login {
    user: String,
    password: String,
}

impl Login {
    /// The source of credentials, for messages.
    pub const READ: &str = "logins in Docker's `config.json` are read, those in a credential helper are not";

    /// Returns a registry's login in `$DOCKER_CONFIG/config.json` or `~/.docker/config.json`. Without one,
    /// or if the file is missing or unreadable, requests are anonymous. Logins in a credential helper
    /// (`credHelpers`, `credsStore`) are not used.
    pub fn of(registry: &str) -> Option<Self> {
        let set = std::env::var_os("DOCKER_CONFIG").filter(|folder| !folder.is_empty()).map(PathBuf::from);
        let folder = set.or_else(|| Some(std::env::home_dir()?.join(".docker")))?;
        let config: Value = serde_json::from_slice(&std::fs::read(folder.join("config.json")).ok()?).ok()?;
        let logins = config.get("auths")?.as_object()?;
        let (_, login) = logins.iter().find(|(written, _)| host(written) == host(registry))?;
        let both = String::from_utf8(STANDARD.decode(login.get("auth")?.as_str()?.trim()).ok()?).ok()?;
        let (user, password) = both.split_once(':')?;
        // Without a password, the entry has another kind of token, which is not supported.
        let whole = !user.is_empty() && !password.is_empty();
        whole.then(|| Self { user: user.to_owned(), password: password.to_owned() })
    }

    /// Returns the login for a request.
    pub fn auth(&self) -> RegistryAuth {
        RegistryAuth::Basic(self.user.clone(), self.password.clone())
    }
}

/// Returns the host of a registry in any spelling: with `https://`, with a version at its end, or Docker's
/// old name.
fn host(written: &str) -> &str {
    let bare = written.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    let bare = bare.trim_end_matches("/v1").trim_end_matches("/v2");
    if bare == "index.docker.io" { "docker.io" } else { bare }
}
