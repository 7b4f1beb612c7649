//! Starts a project as a copy of a shipped policy, under another name. The policies that can be copied are
//! the folders in `policies` that are crates.

use std::path::Path;

use allot_base::{Error, Result, did_you_mean};
use toml::{Table, Value};

use crate::language::{Language, PROJECTS, write};

const WORKSPACE: &str = include_str!("../../../Cargo.toml");
const LICENSE: &str = include_str!("../../../LICENSE");

/// Returns the names of the policies that can be copied.
pub fn names() -> Vec<&'static str> {
    let manifests =
        PROJECTS.names().filter_map(|name| name.strip_prefix("sources/")?.strip_suffix("/Cargo.toml"));
    let mut names: Vec<&str> = manifests.collect();
    names.sort_unstable();
    names
}

/// Starts a project with this name from the source of the policy `like`. Returns that policy's version.
pub fn start(like: &str, name: &str, folder: &Path) -> Result<String> {
    let manifest = PROJECTS.text(&format!("sources/{like}/Cargo.toml"));
    let Some(manifest) = manifest.filter(|_| names().contains(&like)) else {
        let error = Error::new(format!("`--like {like}`: no policy of that name ships with this program"));
        return Err(error.hint(did_you_mean(like, names())));
    };
    let manifest = table(manifest, like)?;
    let package = |key: &str| manifest.get("package").and_then(|package| package.get(key)).cloned();
    let version = package("version").and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
    let description = package("description").unwrap_or_else(|| like.into()).to_string();
    let allot = env!("CARGO_PKG_VERSION");
    let words = [
        ("{{name}}", name),
        ("{{like}}", like),
        ("{{version}}", &version),
        ("{{allot}}", allot),
        ("{{description}}", &description),
        ("{{dependencies}}", &dependencies(&manifest, like)?),
    ];
    write("templates/like", &words, folder)?;
    let (own, new) = (format!("NAME: &'static str = \"{like}\""), format!("NAME: &'static str = \"{name}\""));
    write(&format!("sources/{like}/src"), &[(own.as_str(), new.as_str())], &folder.join("src"))?;
    let license = folder.join("LICENSE");
    std::fs::write(&license, LICENSE).map_err(|e| Error::file("write", &license, &e))?;
    Language::Rust.sdk(&folder.join("sdk"))?;
    Ok(version)
}

/// Returns a policy's dependencies without the SDK, as lines of a manifest. Versions from this workspace
/// are written out.
fn dependencies(manifest: &Table, like: &str) -> Result<String> {
    let shared = table(WORKSPACE, "workspace")?;
    let shared = shared.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let own = manifest.get("dependencies").and_then(Value::as_table);
    let own = own.into_iter().flatten().filter(|(_, wanted)| wanted.get("path").is_none());
    let line = |(name, wanted): (&String, &Value)| {
        let inherits = wanted.get("workspace").is_some();
        let found = if inherits { shared.and_then(|all| all.get(name)) } else { Some(wanted) };
        let missing =
            || Error::new(format!("policy `{like}`: the version of its dependency `{name}` is unknown"));
        Ok(format!("{name} = {}\n", found.ok_or_else(missing)?))
    };
    own.map(line).collect()
}

fn table(text: &str, of: &str) -> Result<Table> {
    text.parse().map_err(|e: toml::de::Error| Error::new(format!("the manifest of `{of}`: {}", e.message())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policies_that_ship_can_be_copied() {
        assert_eq!(names(), allot_component::shipped::names());
    }

    #[test]
    fn a_copy_is_the_source_under_another_name() {
        let parent = tempfile::tempdir().expect("a folder");
        for like in names() {
            let folder = parent.path().join(format!("x-{like}"));
            let name = format!("x-{like}");
            start(like, &name, &folder).expect("a copy");
            let read = |file: &str| std::fs::read_to_string(folder.join(file)).expect("a file of the copy");
            let theirs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies").join(like);
            let theirs = std::fs::read_to_string(theirs.join("src/lib.rs")).expect("its source");
            let (lines, ours): (Vec<&str>, String) = (theirs.lines().collect(), read("src/lib.rs"));
            let changed: Vec<&str> = ours.lines().filter(|line| !lines.contains(line)).collect();
            assert_eq!(changed, [format!("    const NAME: &'static str = \"{name}\";")]);

            let manifest = table(&read("Cargo.toml"), like).expect("a manifest");
            assert_eq!(manifest["package"]["name"].as_str(), Some(&*name));
            assert_eq!(manifest["package"]["license"].as_str(), Some("Apache-2.0"));
            let dependencies = manifest["dependencies"].as_table().expect("a table");
            assert!(dependencies.values().all(|one| one.get("workspace").is_none()), "{dependencies:?}");
            assert!(read("Cargo.toml").lines().all(|line| !line.contains("{{")));
            assert!(
                read("README.md").contains(&format!("a copy of `{like}` "))
                    && read("LICENSE").contains("Apache")
            );
            assert!(folder.join("sdk/src/lib.rs").is_file());
        }
    }

    #[test]
    fn an_unknown_name_is_refused() {
        let parent = tempfile::tempdir().expect("a folder");
        for unknown in ["nothing", "..", "", "src"] {
            let error = start(unknown, "x", &parent.path().join("x")).expect_err("no such policy").report();
            assert!(error.contains("no policy of that name ships"), "{error}");
        }
        assert!(!parent.path().join("x").exists());
    }
}
