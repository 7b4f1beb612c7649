//! The component build of each arm. An arm keeps its first build: its configs have the hash, and the
//! comparison's folder has a copy. A newer build at the same path is another arm, if it is requested.

use std::path::{Path, PathBuf};

use allot_base::{Error, Result, looks_like_a_path, settle};
use allot_config::compare::{Arm, CompareConfig};
use allot_sandbox::sha256;
use toml::{Table, Value};

use super::before::Before;
use crate::components::Copy;
use crate::planned;

/// Returns the copy that a comparison keeps of an arm's component, if the arm's config has its hash.
pub fn copy(comparison: &Path, config: &Table) -> Option<Copy> {
    policy(config, "use").filter(|source| looks_like_a_path(source))?;
    Some(Copy { folder: comparison.to_owned(), sha256: policy(config, "sha256")?.to_lowercase() })
}

/// Gives each arm its build: the one that the comparison in `folder` keeps, or else the one at its path.
/// `resumed` says whether the config is the folder's own. Returns notes for the user.
///
/// Fails if an arm of that comparison would get another component.
pub fn give(arms: &mut [Arm], folder: &Path, resumed: bool, before: Option<&Before>) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    for arm in arms {
        let Some(source) = policy(&arm.config, "use").filter(|source| looks_like_a_path(source)) else {
            continue;
        };
        let mut path = source.to_owned();
        settle(&mut path)?;
        let kept = before.filter(|before| before.has(arm)).and_then(|_| Kept::of(folder, &arm.name));
        let demanded = policy(&arm.config, "sha256").map(str::to_lowercase);
        let (path, hash) = if let Some(kept) = kept {
            // The folder's own config may have a path relative to another folder.
            let path = if resumed { kept.source.clone() } else { path };
            notes.extend(kept.beside(arm, &path, demanded.as_deref(), folder)?);
            (kept.source, Some(kept.sha256))
        } else {
            let hash = demanded.or_else(|| Some(sha256(&std::fs::read(&path).ok()?)));
            (path, hash)
        };
        set(&mut arm.config, "use", path);
        if let Some(hash) = hash {
            set(&mut arm.config, "sha256", hash);
        }
    }
    Ok(notes)
}

/// Renames arms that are named after their files: if the comparison in `folder` has the same bytes with the
/// same settings, they get its name. Returns whether the config has changed.
pub fn name(
    whole: &mut Table,
    section: &CompareConfig,
    arms: &[Arm],
    folder: &Path,
    before: &Before,
) -> bool {
    let unnamed = |i: usize| match i.checked_sub(1) {
        None => whole.get("run").and_then(|run| run.get("name")).is_none(),
        Some(i) => section.policies[i].name.is_none(),
    };
    let gone: Vec<(&str, Kept)> = before
        .arms
        .iter()
        .filter(|(name, _)| !arms.iter().any(|arm| arm.name == *name))
        .filter_map(|(name, shown)| Some((shown.as_str(), Kept::of(folder, name)?)))
        .collect();
    let mut names: Vec<(usize, String)> = Vec::new();
    for (i, arm) in arms.iter().enumerate().filter(|(i, arm)| unnamed(*i) && !before.has(arm)) {
        let source = policy(&arm.config, "use").filter(|source| looks_like_a_path(source));
        let Some(Ok(bytes)) = source.map(std::fs::read) else { continue };
        let (hash, settings) = (sha256(&bytes), settings(&arm.config));
        let same = |(_, kept): &&(&str, Kept)| kept.sha256 == hash && kept.settings == settings;
        let free = |(shown, _): &&(&str, Kept)| !names.iter().any(|(_, taken)| taken == shown);
        if let Some((shown, _)) = gone.iter().filter(same).find(free) {
            names.push((i, (*shown).to_owned()));
        }
    }
    for (i, name) in &names {
        let place = match i.checked_sub(1) {
            None => whole.get_mut("run"),
            Some(i) => whole.get_mut("compare").and_then(|compare| compare.get_mut("policies")?.get_mut(i)),
        };
        if let Some(Value::Table(place)) = place {
            place.insert("name".to_owned(), Value::String(name.clone()));
        }
    }
    !names.is_empty()
}

/// The policy that a comparison keeps for an arm.
struct Kept {
    source: String,
    sha256: String,
    settings: Table,
}

impl Kept {
    /// Reads any of the arm's configs; none if they have no component's hash.
    fn of(folder: &Path, arm: &str) -> Option<Self> {
        let tuning = planned::tuning(folder);
        let config =
            [&*tuning, folder].into_iter().find_map(|of| any_config(&of.join("configs").join(arm)))?;
        let config: Table = toml::from_str(&std::fs::read_to_string(config).ok()?).ok()?;
        Some(Self {
            source: policy(&config, "use")?.to_owned(),
            sha256: policy(&config, "sha256")?.to_lowercase(),
            settings: settings(&config),
        })
    }

    /// Checks that the arm's config has the same component, at `path` or by its hash. Returns a note if the
    /// file has changed since.
    fn beside(&self, arm: &Arm, path: &str, demanded: Option<&str>, folder: &Path) -> Result<Option<String>> {
        let (shown, own, moved) = (&arm.shown, short(&self.sha256), path != self.source);
        let folder = folder.display();
        let other = |which: String, hash: &str| {
            let what = format!(
                "`{shown}` of the comparison in `{folder}` is the component with sha256 {own}, but {which} \
                 {}",
                short(hash)
            );
            let hint =
                "give the new build another `name`, to add it as an arm; or give another folder with --out";
            Err(Error::new(what).hint(hint))
        };
        if let Some(demanded) = demanded.filter(|demanded| *demanded != self.sha256) {
            return other("the config expects".to_owned(), demanded);
        }
        match std::fs::read(path).map(|bytes| sha256(&bytes)) {
            Ok(now) if now == self.sha256 => Ok(None),
            Ok(now) if moved => other(format!("`{path}` is"), &now),
            Ok(_) => Ok(Some(format!(
                "`{path}` has changed since `{shown}` was added: the comparison's copy is used, sha256 {own}; to compare the \
                 new build too, add it to the config under another `name`, and give that config with --out {folder}"
            ))),
            Err(e) if moved => Err(Error::file("read", Path::new(path), &e)),
            // The copy still exists.
            Err(_) => Ok(None),
        }
    }
}

/// Returns the first config in a folder or in its subfolders.
fn any_config(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    let mut all: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    all.sort();
    let config = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "toml");
    all.iter().find(|path| config(path)).cloned().or_else(|| all.iter().find_map(|path| any_config(path)))
}

fn policy<'c>(config: &'c Table, key: &str) -> Option<&'c str> {
    config.get("policy")?.get(key)?.as_str()
}

fn settings(config: &Table) -> Table {
    let settings = config.get("policy").and_then(|policy| policy.get("settings")?.as_table());
    settings.cloned().unwrap_or_default()
}

fn set(config: &mut Table, key: &str, value: String) {
    if let Some(Value::Table(policy)) = config.get_mut("policy") {
        policy.insert(key.to_owned(), Value::String(value));
    }
}

/// Returns the shortened hash for a message.
fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}
