//! Who asks: what `docker login` left behind.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci_client::secrets::RegistryAuth;
use serde_json::Value;

/// A user and a password, for one registry. They go to it and nowhere else.
pub(super) struct Login {
    user: String,
    password: String,
}

impl Login {
    /// Where logins come from.
    pub const READ: &str = "logins in Docker's `config.json` are read, those in a credential helper are not";

    /// The one for a registry in `$DOCKER_CONFIG/config.json` or `~/.docker/config.json`. A registry without
    /// one is asked as by anyone, and so it is where there is no such file or it can't be read: it is another
    /// program's. Logins that a credential helper keeps (`credHelpers`, `credsStore`) are not asked for.
    pub fn of(registry: &str) -> Option<Self> {
        let set = std::env::var_os("DOCKER_CONFIG").filter(|folder| !folder.is_empty()).map(PathBuf::from);
        let folder = set.or_else(|| Some(std::env::home_dir()?.join(".docker")))?;
        let config: Value = serde_json::from_slice(&std::fs::read(folder.join("config.json")).ok()?).ok()?;
        let logins = config.get("auths")?.as_object()?;
        let (_, login) = logins.iter().find(|(written, _)| host(written) == host(registry))?;
        let both = String::from_utf8(STANDARD.decode(login.get("auth")?.as_str()?.trim()).ok()?).ok()?;
        let (user, password) = both.split_once(':')?;
        // Without a password there is a token of another kind, which is none of ours.
        let whole = !user.is_empty() && !password.is_empty();
        whole.then(|| Self { user: user.to_owned(), password: password.to_owned() })
    }

    /// As it is sent.
    pub fn auth(&self) -> RegistryAuth {
        RegistryAuth::Basic(self.user.clone(), self.password.clone())
    }
}

/// A registry as it is meant, however it was written: with `https://`, with the version at its end, and
/// Docker's own by its old name.
fn host(written: &str) -> &str {
    let bare = written.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    let bare = bare.trim_end_matches("/v1").trim_end_matches("/v2");
    if bare == "index.docker.io" { "docker.io" } else { bare }
}
