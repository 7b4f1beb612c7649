//! Names of models and data sets on the Hugging Face hub: `org/name`, or `org/name@revision`.

use std::path::Path;

use allot_base::{Error, Result};

/// Returns whether a text has the form of a hub name: owner, slash, name.
pub fn is_name(source: &str) -> bool {
    let plain = |part: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !part.is_empty() && !part.starts_with('.') && part.chars().all(known)
    };
    let file = Path::new(source).extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"));
    !file && source.split_once('/').is_some_and(|(owner, name)| plain(owner) && plain(name))
}

/// Returns whether a path is the address of a data set's files on the hub, such as
/// `hub:openai/gsm8k@main/main/train-*.parquet`.
pub fn is_address(path: &Path) -> bool {
    path.to_string_lossy().starts_with("hub:")
}

/// Splits the address of a data set's files into the data set's id and the pattern of its files.
pub fn parts(address: &str) -> Result<(String, String)> {
    let parts: Vec<&str> = address.trim_start_matches("hub:").splitn(3, '/').collect();
    let [owner, name, pattern] = parts[..] else {
        let what = format!("`{address}` names no files of a data set");
        return Err(Error::new(what).hint("name the files, as in `hub:openai/gsm8k/main/train-*.parquet`"));
    };
    Ok((format!("{owner}/{name}"), pattern.to_owned()))
}

/// Returns whether `pinned` is `other` with a commit in place of a branch or tag; both are names of models.
pub fn is_pinned_model(pinned: &str, other: &str) -> bool {
    matches!((pinned.strip_prefix("hub:"), other.strip_prefix("hub:")), (Some(a), Some(b)) if is_pinned(a, b))
}

/// Does the same for addresses of data sets' files.
pub fn are_pinned_files(pinned: &Path, other: &Path) -> bool {
    let of = |path: &Path| parts(&path.to_string_lossy()).ok().filter(|_| is_address(path));
    matches!((of(pinned), of(other)), (Some((a, all)), Some((b, same))) if all == same && is_pinned(&a, &b))
}

fn is_pinned(pinned: &str, other: &str) -> bool {
    let (name, commit) = pinned.split_once('@').unwrap_or((pinned, "main"));
    let (other, revision) = other.split_once('@').unwrap_or((other, "main"));
    name == other && is_commit(commit) && !is_commit(revision)
}

/// Returns whether a revision is the hash of a commit.
pub fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|b| b.is_ascii_hexdigit())
}
