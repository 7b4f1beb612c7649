//! Configs based on others: `base = "other.toml"` names a file relative to this one, or a built-in config.

#![expect(clippy::result_large_err, reason = "a config has one fault, and is read once")]

use std::path::{Path, PathBuf};

use allot_base::{Error, Result};

use crate::node::{Location, Node, Value};
use crate::shipped::Shipped;
use crate::tree::{Source, Tree};
use crate::typed::Fault;

/// The key that names a config's bases.
const KEY: &str = "base";
/// The key that names what a config does not take from its bases.
const WITHOUT: &str = "without";
/// Maximum number of files in a config. A file named twice is read twice and counts twice.
const MOST: usize = 64;

/// The origin of a config.
enum Origin {
    Shipped(&'static str),
    File(PathBuf),
}

/// Reads a config file or a built-in config, and applies the overrides, each KEY=VALUE. A config with a
/// `base` is merged over it: tables are merged by key, other values are replaced. With a list of bases,
/// each is merged over the earlier ones. Bases may have bases. What `without` names is removed from the
/// bases first.
///
/// # Errors
///
/// A file cannot be read, is not TOML, or is its own base; `without` names what no base has; or an override
/// is not KEY=VALUE.
pub fn open(path: &Path, overrides: &[String]) -> Result<Tree> {
    let origin = match Shipped::meant(path)? {
        Some(config) => Origin::Shipped(config.name),
        None => Origin::File(path.to_owned()),
    };
    let mut tree = Tree::new(overrides);
    let source = origin.source()?;
    let root = over_its_bases(&mut tree, (&origin, source), &mut Vec::new())?;
    tree.of(root)
}

/// Reads a config and its bases, and merges them. `within` has the configs whose bases are being read.
fn over_its_bases(
    tree: &mut Tree,
    (origin, source): (&Origin, Source),
    within: &mut Vec<PathBuf>,
) -> Result<Node> {
    let mut own = tree.read(source)?;
    let bases = texts_of(&mut own, KEY, "the path or the name of another config, or a list of these");
    let bases = bases.map_err(|fault| tree.told(&fault))?;
    let without = texts_of(&mut own, WITHOUT, "the name of a key or a section of a base, or a list of these");
    let without = without.map_err(|fault| tree.told(&fault))?;
    within.push(origin.whole());
    let mut layers = Vec::with_capacity(bases.len());
    for (base, place) in bases {
        let told = |tree: &Tree, what: String| tree.told(&Fault::new(what, Some(place)));
        let unusable = |tree: &Tree, e: Error| {
            told(tree, format!("the base `{base}` cannot be used: {}", e.what))
                .hint("give a path relative to this file, or the name of a shipped config")
        };
        let next = origin.base(&base).map_err(|e| unusable(tree, e))?;
        if within.contains(&next.whole()) {
            return Err(told(tree, format!("`{base}` is a base of itself")));
        }
        if tree.files_read() == MOST {
            let what = format!("`{base}` would be file {} of this config; {MOST} are allowed", MOST + 1);
            return Err(told(tree, what).hint("name each base once, in fewer files"));
        }
        let source = next.source().map_err(|e| unusable(tree, e))?;
        layers.push(over_its_bases(tree, (&next, source), within)?);
    }
    within.pop();
    let mut under = layers.into_iter().reduce(|mut under, over| {
        tree.lay(&mut under, over);
        under
    });
    for (path, place) in without {
        if !under.as_mut().is_some_and(|under| under.remove(&path)) {
            let fault = Fault::new(format!("no base of this config has `{path}`"), Some(place));
            return Err(tree
                .told(&fault)
                .hint("name a key or a section of a base, as in \"reward.functions\""));
        }
    }
    let Some(mut under) = under else { return Ok(own) };
    tree.lay(&mut under, own);
    Ok(under)
}

/// Removes a key from a config and returns the texts in it. `what` says what it must be.
fn texts_of(node: &mut Node, key: &str, what: &str) -> std::result::Result<Vec<(String, Location)>, Fault> {
    let Some(node) = node.take(key) else { return Ok(Vec::new()) };
    let items = match node.value {
        Value::List(items) => items,
        _ => vec![node],
    };
    let text = |Node { value, place }| match value {
        Value::Text(text) => Ok((text, place)),
        _ => Err(Fault::new(format!("`{key}` must be {what}"), Some(place))),
    };
    items.into_iter().map(text).collect()
}

impl Origin {
    fn source(&self) -> Result<Source> {
        Ok(match self {
            Self::Shipped(name) => {
                Source { name: (*name).to_owned(), text: Shipped::named(name)?.text.to_owned() }
            }
            Self::File(path) => Source { name: path.display().to_string(), text: crate::read(path)? },
        })
    }

    /// Returns a unique path of the config, because several paths may lead to the same file.
    fn whole(&self) -> PathBuf {
        match self {
            Self::Shipped(name) => PathBuf::from(name),
            Self::File(path) => path.canonicalize().unwrap_or_else(|_| path.clone()),
        }
    }

    /// Returns the origin of a base of this config: a file relative to it, or a built-in config.
    fn base(&self, base: &str) -> Result<Self> {
        let folder = match self {
            Self::File(path) => path.parent().unwrap_or(Path::new("")),
            Self::Shipped(_) => return Ok(Self::Shipped(Shipped::named(base)?.name)),
        };
        // Without a leading `./`, for messages.
        let given = Path::new(base);
        let path = folder.join(given.strip_prefix(".").unwrap_or(given));
        match path.canonicalize() {
            Ok(_) if path.is_dir() => Err(Error::new("it is a folder")),
            Ok(_) => Ok(Self::File(path)),
            Err(e) => match Shipped::meant(Path::new(base))? {
                Some(config) => Ok(Self::Shipped(config.name)),
                None => Err(Error::file("read", &path, &e)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Returns the config `run.toml` in a folder with these files as a table, or the error.
    fn opened(files: &[(&str, &str)], overrides: &[&str]) -> std::result::Result<toml::Table, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let overrides: Vec<String> = overrides.iter().map(|&one| one.to_owned()).collect();
        let tree = open(&folder.path().join("run.toml"), &overrides);
        let here = format!("{}/", folder.path().display());
        tree.and_then(|tree| tree.table()).map_err(|e| e.report().replace(&here, ""))
    }

    fn table(text: &str) -> toml::Table {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_config_lies_over_its_base_and_options_over_both() {
        let base = "[run]\nseed = 1\nsteps = 2\n[[tasks]]\nkind = 'sums'\n[[tasks]]\nkind = 'chains'\n";
        let own = "base = 'parts/base.toml'\n[run]\nsteps = 3\n[[tasks]]\nkind = 'products'\n";
        let files = [("run.toml", own), ("parts/base.toml", base)];
        let expected = "[run]\nseed = 1\nsteps = 3\n[[tasks]]\nkind = 'products'\n";
        assert_eq!(opened(&files, &[]), Ok(table(expected)));
        assert_eq!(opened(&files, &["run.steps=4"]), Ok(table(&expected.replace("steps = 3", "steps = 4"))));
    }

    #[test]
    fn another_policy_has_no_settings_of_the_one_beneath() {
        let base = "[policy]\nuse = 'dapo'\nsha256 = 'ab'\nsettings = { most = 3, least = 1 }\nlimits = { fuel = 9 }\n";
        let files = |own: &'static str| [("run.toml", own), ("base.toml", base)];
        let notes = |own, overrides: &[&str]| {
            let folder = tempfile::tempdir().unwrap();
            for (name, text) in files(own) {
                std::fs::write(folder.path().join(name), text).unwrap();
            }
            let overrides: Vec<String> = overrides.iter().map(|&one| one.to_owned()).collect();
            open(&folder.path().join("run.toml"), &overrides).unwrap().notes().skip(1).collect::<Vec<_>>()
        };
        let other = "base = 'base.toml'\n[policy]\nuse = 'spo'\nsettings = { prompts = 4 }\n";
        let left = "settings = { prompts = 4 }\nlimits = { fuel = 9 }\n";
        let expected = table(&format!("[policy]\nuse = 'spo'\n{left}"));
        assert_eq!(opened(&files(other), &[]), Ok(expected));
        let note = "`spo` takes the place of `dapo`, whose settings are left out: `least`, `most`";
        assert_eq!(notes(other, &[]), [note]);

        let same = "base = 'base.toml'\n[policy]\nuse = 'dapo'\nsettings = { most = 4 }\n";
        assert_eq!(
            opened(&files(same), &[]).unwrap()["policy"]["settings"],
            toml::Value::Table(table("most = 4\nleast = 1"))
        );
        assert_eq!(notes(same, &[]), [""; 0]);

        // What options set stays, whichever comes first.
        for options in
            [["policy.use=spo", "policy.settings.prompts=4"], ["policy.settings.prompts=4", "policy.use=spo"]]
        {
            let read = opened(&files("base = 'base.toml'\n"), &options).unwrap();
            assert_eq!(read["policy"]["settings"], toml::Value::Table(table("prompts = 4")));
            assert_eq!(notes("base = 'base.toml'\n", &options), [note]);
        }
    }

    #[test]
    fn what_a_config_is_without_is_not_taken_from_its_bases() {
        let base = "[run]\nseed = 1\n[reward]\ngrader = 'functions'\nfunctions = { file = 'f.py' }\n";
        let read = |own: &str| opened(&[("run.toml", own), ("base.toml", base)], &[]);
        let own = "base = 'base.toml'\nwithout = ['reward.functions', 'run']\n[reward]\ngrader = 'exact'\n";
        assert_eq!(read(own), Ok(table("[reward]\ngrader = 'exact'\n")));
        let own = "base = 'base.toml'\nwithout = 'reward'\n[reward]\ngrader = 'exact'\n";
        assert_eq!(read(own), Ok(table("[run]\nseed = 1\n[reward]\ngrader = 'exact'\n")));

        let told = |own: &str| read(own).unwrap_err();
        let no =
            told("base = 'base.toml'\nwithout = [\n'run',\n'reward.functoins']\n[reward]\nfunctoins = 1\n");
        assert!(no.starts_with("error: `run.toml` line 4, `'reward.functoins']`: no base of this config has `reward.functoins`\n"), "{no}");
        let alone = told("without = 'run'\n[run]\nseed = 1\n");
        assert!(alone.contains("no base of this config has `run`"), "{alone}");
        let number = told("base = 'base.toml'\nwithout = 3\n");
        assert!(number.contains("`without` must be the name of a key or a section of a base"), "{number}");
    }

    #[test]
    fn of_several_bases_the_later_lies_over_the_earlier_and_paths_are_those_of_the_file_that_names_them() {
        let files = [
            ("run.toml", "base = ['parts/one.toml', 'parts/two.toml']\n[a]\nx = 0\n"),
            ("parts/one.toml", "base = 'zero.toml'\n[a]\nx = 1\ny = 1\n"),
            ("parts/zero.toml", "[a]\ny = 0\nz = 0\nw = 0\n"),
            ("parts/two.toml", "base = 'zero.toml'\n[a]\ny = 2\n"),
        ];
        assert_eq!(opened(&files, &[]), Ok(table("[a]\ny = 2\nz = 0\nw = 0\nx = 0\n")));
    }

    #[test]
    fn a_config_that_ships_is_a_base_by_its_name() {
        let whole = opened(&[("run.toml", "base = 'w1-half-unsolvable'\n[run]\nseed = 7\n")], &[]).unwrap();
        assert_eq!(whole["run"]["seed"].as_integer(), Some(7));
        assert_eq!(whole["compare"]["policies"].as_array().unwrap().len(), 9);
        assert_eq!(whole["tasks"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn bases_that_fan_out_end_at_a_number_of_files() {
        let names: Vec<String> = (0..30).map(|i| format!("{i}.toml")).collect();
        let text = |i: usize| format!("base = ['{i}.toml', '{i}.toml']\n");
        let texts: Vec<String> = (0..30).map(|i| if i < 29 { text(i + 1) } else { String::new() }).collect();
        let mut files: Vec<(&str, &str)> =
            names.iter().zip(&texts).map(|(n, t)| (n.as_str(), t.as_str())).collect();
        let own = text(0);
        files.push(("run.toml", &own));
        let error = opened(&files, &[]).unwrap_err();
        assert!(error.contains("would be file 65 of this config; 64 are allowed"), "{error}");
    }

    #[test]
    fn circles_missing_files_and_other_values_are_told_where_they_are_written() {
        let told = |files: &[(&str, &str)]| opened(files, &[]).unwrap_err();
        let circle =
            [("run.toml", "base = 'b.toml'\n"), ("b.toml", "\nbase = './sub/../run.toml'\n"), ("sub/x", "")];
        assert_eq!(
            told(&circle),
            "error: `b.toml` line 2, `base = './sub/../run.toml'`: `./sub/../run.toml` is a base of itself"
        );
        let itself = told(&[("run.toml", "base = 'run.toml'\n")]);
        assert!(itself.contains("`run.toml` is a base of itself"), "{itself}");
        let missing = told(&[("run.toml", "base = 'b.toml'\n")]);
        assert!(missing.starts_with("error: `run.toml` line 1, `base = 'b.toml'`: the base `b.toml` cannot be used: could not read `b.toml`: "), "{missing}");
        let missing = told(&[("run.toml", "base = 'quickstrat'\n")]);
        assert!(missing.contains("no config ships under that name"), "{missing}");
        let number = told(&[("run.toml", "base = 3\n")]);
        assert!(number.contains("`base` must be the path or the name of another config"), "{number}");
        let folder = told(&[("run.toml", "base = 'sub'\n"), ("sub/x", "")]);
        assert!(folder.contains("the base `sub` cannot be used: it is a folder"), "{folder}");
        let long = format!("# {}\n", "x".repeat(1 << 20));
        let long = told(&[("run.toml", "base = 'b.toml'\n"), ("b.toml", &long)]);
        assert!(
            long.contains("`run.toml` line 1") && long.contains("`b.toml` is too long for a config"),
            "{long}"
        );
    }

    #[test]
    fn what_is_wrong_in_a_base_is_told_of_that_file() {
        let files = [("run.toml", "base = 'b.toml'\n[run]\nseed = 1\n"), ("b.toml", "[run]\nsteps = = 1\n")];
        let told = opened(&files, &[]).unwrap_err();
        assert!(told.starts_with("error: `b.toml` line 2, `steps = = 1`: "), "{told}");
    }
}
