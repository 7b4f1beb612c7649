//! Models and data sets of the Hugging Face hub, by name: `org/name` or `org/name@revision`.
//!
//! Files go into the cache that other Hugging Face tools use. Nothing is printed, least of all the token.
//! `HF_HOME`, `HF_HUB_CACHE`, `HF_TOKEN`, `HF_ENDPOINT` and `HF_HUB_OFFLINE` have the same meaning as
//! there.

use std::path::{Path, PathBuf};

use allot_base::{Error, Result, listed};
use allot_settings::hub::{is_address, is_commit, parts};
use hf_hub::api::sync::{Api, ApiBuilder, ApiError};
use hf_hub::{Cache, Repo, RepoType};

/// A hub, and the folder of its cached files.
pub struct Hub {
    /// Its address, without a slash at the end.
    pub endpoint: String,
    /// The cache's folder, as in `HF_HUB_CACHE`.
    pub cache: PathBuf,
    /// The access token, if there is one.
    pub token: Option<String>,
    /// Whether only the cache is used.
    pub offline: bool,
}

/// A repository at one commit.
struct Snapshot {
    repo: Repo,
    /// Folder of its files in the cache.
    folder: PathBuf,
    /// Names of its files.
    names: Vec<String>,
}

/// Fetches a model with the environment's settings and returns its folder: see [`Hub::model`].
pub fn model(id: &str) -> Result<PathBuf> {
    Hub::from_env()?.model(id)
}

/// Fetches a data set with the environment's settings and returns its files: see [`Hub::dataset`].
pub fn dataset(id: &str, pattern: &str) -> Result<Vec<PathBuf>> {
    Hub::from_env()?.dataset(id, pattern)
}

/// Fetches the files at a `hub:` address and returns their paths. The address names a data set and a
/// pattern of its files, in which `*` stands for anything.
pub fn at(address: &Path) -> Result<Vec<PathBuf>> {
    let (id, pattern) = parts(&address.to_string_lossy())?;
    dataset(&id, &pattern)
}

/// Returns a model's name in a config, `hub:org/name`, with its revision resolved to the current commit.
pub fn pinned_model(source: &str) -> Result<String> {
    let Some(id) = source.strip_prefix("hub:") else { return Ok(source.to_owned()) };
    Ok(format!("hub:{}", Hub::from_env()?.pinned(id, RepoType::Model)?))
}

/// Returns the address of a data set's files, with its revision resolved to the current commit.
pub fn pinned_files(address: &Path) -> Result<PathBuf> {
    let (true, Ok((id, pattern))) = (is_address(address), parts(&address.to_string_lossy())) else {
        return Ok(address.to_owned());
    };
    let id = Hub::from_env()?.pinned(&id, RepoType::Dataset)?;
    Ok(PathBuf::from(format!("hub:{id}/{pattern}")))
}

impl Hub {
    /// Returns the hub that the environment names.
    pub fn from_env() -> Result<Self> {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let home = var("HF_HOME").map(PathBuf::from).or_else(|| {
            let cache = var("XDG_CACHE_HOME").map(PathBuf::from);
            Some(cache.or_else(|| Some(std::env::home_dir()?.join(".cache")))?.join("huggingface"))
        });
        let Some(cache) = var("HF_HUB_CACHE").map(PathBuf::from).or(home.as_ref().map(|h| h.join("hub")))
        else {
            let what = "there is no home folder to keep the hub's files in";
            return Err(Error::new(what).hint("set `HF_HOME` to a folder"));
        };
        // Saved by `huggingface-cli login`.
        let saved = home.and_then(|home| std::fs::read_to_string(home.join("token")).ok());
        let token = var("HF_TOKEN").or(saved).map(|t| t.trim().to_owned()).filter(|t| !t.is_empty());
        Ok(Self {
            endpoint: var("HF_ENDPOINT")
                .unwrap_or_else(|| "https://huggingface.co".to_owned())
                .trim_end_matches('/')
                .to_owned(),
            cache,
            token,
            offline: var("HF_HUB_OFFLINE")
                .is_some_and(|v| !matches!(v.as_str(), "0" | "false" | "no" | "off")),
        })
    }

    /// Fetches the files that a model needs: configs, tokenizer, chat template and safetensors. Returns
    /// their folder. Cached files of the revision's newest commit are not fetched again.
    pub fn model(&self, id: &str) -> Result<PathBuf> {
        let snapshot = self.snapshot(id, RepoType::Model)?;
        if !snapshot.names.iter().any(|name| name == "config.json") {
            let gguf = snapshot.names.iter().any(|name| ends(name, "gguf"));
            let hint = if gguf {
                "download one of its GGUF files, and set its path"
            } else {
                "use a model with `config.json` and safetensors files"
            };
            return Err(Error::new(format!("`{id}` has no `config.json`")).hint(hint));
        }
        // Small files come first: an access error appears before the weights are fetched.
        let mut names: Vec<&String> = snapshot.names.iter().filter(|name| of_model(name)).collect();
        names.sort_by_key(|name| (ends(name, "safetensors"), name.as_str()));
        self.fetched(id, &snapshot, &names)?;
        Ok(snapshot.folder)
    }

    /// Fetches a data set's files that match the pattern, such as `main/train-*.parquet`, in which `*`
    /// stands for anything. Returns their paths, sorted by name.
    pub fn dataset(&self, id: &str, pattern: &str) -> Result<Vec<PathBuf>> {
        let snapshot = self.snapshot(id, RepoType::Dataset)?;
        let mut names: Vec<&String> = snapshot.names.iter().filter(|name| matches(pattern, name)).collect();
        names.sort_unstable();
        if names.is_empty() {
            let kinds = ["parquet", "jsonl", "json", "csv", "tsv", "arrow", "gz", "zst"];
            let data = |name: &&String| kinds.iter().any(|kind| ends(name, kind));
            let some = snapshot.names.iter().filter(data).take(8).map(String::as_str);
            let what = format!("no file of the data set `{id}` matches `{pattern}`");
            return Err(Error::new(what).hint(format!("it has {}", listed(some))));
        }
        self.fetched(id, &snapshot, &names)
    }

    /// Returns a name with its revision resolved to the current commit.
    pub fn pinned(&self, id: &str, kind: RepoType) -> Result<String> {
        if id.split_once('@').is_some_and(|(_, revision)| is_commit(revision)) {
            return Ok(id.to_owned());
        }
        // The cache names the folder of a commit's files after the commit.
        let folder = self.snapshot(id, kind)?.folder;
        let commit = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(format!("{}@{commit}", id.split('@').next().unwrap_or(id)))
    }

    /// Resolves a name to a commit and its files: by the hub or, offline, by the cache.
    fn snapshot(&self, id: &str, kind: RepoType) -> Result<Snapshot> {
        let repo = parsed(id, kind)?;
        let cached = Cache::new(self.cache.clone()).repo(repo.clone());
        if self.offline {
            let reference = self.cache.join(repo.folder_name()).join("refs").join(repo.revision());
            // A commit is its own name; only branches and tags have a reference.
            let commit = std::fs::read_to_string(reference).unwrap_or_else(|_| repo.revision().to_owned());
            let folder = cached.pointer_path(commit.trim());
            let names = files_under(&folder, &folder);
            if names.is_empty() {
                let what = format!("`{id}` is not in the cache `{}`", self.cache.display());
                return Err(Error::new(what).hint("`HF_HUB_OFFLINE` is set: unset it to use the hub"));
            }
            return Ok(Snapshot { repo, folder, names });
        }
        let info = self.api(id)?.repo(repo.clone()).info().map_err(|e| self.told(id, None, &e))?;
        // Check both, because both become paths.
        let names: Vec<String> = info.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
        if let Some(bad) = names.iter().chain([&info.sha]).find(|name| !inside(name)) {
            return Err(Error::new(format!("{} names a file `{bad}` in `{id}`", self.endpoint)));
        }
        cached.create_ref(&info.sha).map_err(|e| Error::file("write into", &self.cache, &e))?;
        let folder = cached.pointer_path(&info.sha);
        // All files come from one commit, even if the branch moves in the meantime.
        let name = id.split('@').next().unwrap_or(id);
        Ok(Snapshot { repo: Repo::with_revision(name.to_owned(), kind, info.sha), folder, names })
    }

    /// Returns the paths of files, and fetches those that are not in the cache.
    fn fetched(&self, id: &str, snapshot: &Snapshot, names: &[&String]) -> Result<Vec<PathBuf>> {
        let api = self.api(id)?.repo(snapshot.repo.clone());
        let mut paths = Vec::new();
        for name in names {
            let path = snapshot.folder.join(name);
            if !path.exists() {
                let fetched = api.download(name).map_err(|e| self.told(id, Some(name), &e))?;
                if fetched != path {
                    let what = format!("{} returned `{name}` from another commit of `{id}`", self.endpoint);
                    return Err(Error::new(what).hint("try again"));
                }
            }
            paths.push(path);
        }
        Ok(paths)
    }

    fn api(&self, id: &str) -> Result<Api> {
        let builder = ApiBuilder::from_cache(Cache::new(self.cache.clone()))
            .with_endpoint(self.endpoint.clone())
            .with_token(self.token.clone())
            .with_user_agent("allot", env!("CARGO_PKG_VERSION"))
            .with_retries(2)
            .with_progress(false);
        builder.build().map_err(|e| self.told(id, None, &e))
    }

    /// Returns a readable error for an error of the hub library.
    fn told(&self, id: &str, file: Option<&str>, error: &ApiError) -> Error {
        let thing = file.map_or(format!("`{id}`"), |file| format!("`{file}` of `{id}`"));
        let place = &self.endpoint;
        let page = format!("{place}/{}", id.split('@').next().unwrap_or(id));
        let request = match error {
            ApiError::RequestError(request) => request,
            ApiError::TooManyRetries(last) => return self.told(id, file, last),
            ApiError::IoError(e) => {
                return Error::new(format!("could not fetch {thing} into `{}`: {e}", self.cache.display()));
            }
            ApiError::LockAcquisition(lock) => {
                let what = format!("another program holds `{}`", lock.display());
                return Error::new(what).hint(format!("wait until it has fetched {thing}"));
            }
            ApiError::InvalidResume => {
                let what = format!("an earlier download of {thing} left more bytes than the file has");
                let cache = self.cache.display();
                return Error::new(what).hint(format!("remove the `.part` files in `{cache}`"));
            }
            other => return Error::new(format!("{place} sent an unexpected response for {thing}: {other}")),
        };
        match request.as_ref() {
            ureq::Error::StatusCode(code @ (401 | 403)) => {
                let what = format!("{place} does not give {thing} to {} ({code})", self.asker());
                Error::new(what).hint(format!(
                    "check the name; if it is private or gated, ask for access at {page} and put your token into `HF_TOKEN`"
                ))
            }
            ureq::Error::StatusCode(404) => {
                let what = format!("{place} has no {thing}");
                Error::new(what).hint(format!("check the name and the revision at {page}"))
            }
            ureq::Error::StatusCode(code @ (429 | 500..)) => {
                Error::new(format!("{place} can't serve {thing} now ({code})")).hint("try again later")
            }
            ureq::Error::StatusCode(code) => Error::new(format!("{place} refuses {thing} ({code})")),
            ureq::Error::Json(_) | ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
                let what = format!("{place} sent an unexpected response for {thing}: {request}");
                Error::new(what).hint("check the address in `HF_ENDPOINT`")
            }
            other => Error::new(format!("could not reach {place} for {thing}: {other}"))
                .hint("give a folder instead of a name, or set `HF_HUB_OFFLINE=1` to use what the cache has"),
        }
    }

    fn asker(&self) -> &'static str {
        if self.token.is_some() { "the owner of this token" } else { "someone without a token" }
    }
}

/// Parses a name. The default revision is `main`.
fn parsed(id: &str, kind: RepoType) -> Result<Repo> {
    let (name, revision) = id.split_once('@').unwrap_or((id, "main"));
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-'])
            && !part.contains("..")
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
    };
    // The revision becomes a path in the cache. Branches such as `refs/pr/1` have slashes.
    if !matches!(name.split_once('/'), Some((org, name)) if plain(org) && plain(name))
        || !revision.split('/').all(plain)
    {
        let what = format!("`{id}` is not a valid name on the hub");
        return Err(Error::new(what).hint("write it as `org/name` or `org/name@revision`"));
    }
    Ok(Repo::with_revision(name.to_owned(), kind, revision.to_owned()))
}

/// Whether a model needs this file. Files in subfolders are other formats or checkpoints.
fn of_model(name: &str) -> bool {
    let known =
        ["config.json", "generation_config.json", "chat_template.jinja", "model.safetensors.index.json"];
    let tokenizer = name.starts_with("tokenizer") && ends(name, "json");
    let weights = name.starts_with("model") && ends(name, "safetensors");
    !name.contains('/') && (known.contains(&name) || tokenizer || weights)
}

fn ends(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|own| own == extension)
}

/// Whether a name matches a pattern in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            (0..=name.len()).filter_map(|i| name.get(i..)).any(|tail| matches(rest, tail))
        }),
    }
}

/// Whether a name stays inside the folder that it is joined to.
fn inside(name: &str) -> bool {
    let parts = || Path::new(name).components();
    parts().next().is_some() && parts().all(|part| matches!(part, std::path::Component::Normal(_)))
}

/// Returns the files under a folder as paths from `root` with slashes, sorted.
fn files_under(root: &Path, folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            names.extend(files_under(root, &path));
        } else if let Ok(name) = path.strip_prefix(root) {
            let parts: Vec<_> = name.iter().map(std::ffi::OsStr::to_string_lossy).collect();
            names.push(parts.join("/"));
        }
    }
    names.sort_unstable();
    names
}
