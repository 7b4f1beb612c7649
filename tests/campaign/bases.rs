//! Configs that inherit. One config, laid out over files that are bases of each other, is read as it was; and files that are
//! mangled, missing, or bases of themselves are refused by name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use allot_base::{Error, Result};
use toml::{Table, Value};

use crate::files::{made, write};
use crate::readers::{AT_ONCE, Read, judged, told, whole_config};
use crate::{Chance, Class, Outcome, Place, mangled, watch};

/// Folders of configs that are laid out.
const CONFIGS: [&str; 4] = ["configs", "configs/evidence", "tests/cases/training", "tests/cases/campaign"];
/// The config that inherits.
const OWN: &str = "run.toml";
/// Values of `base` that no config can have.
const NO_BASE: [&str; 12] = [
    "3",
    "true",
    "{}",
    "[[]]",
    "\"\"",
    "\".\"",
    "\"/\"",
    "\"/dev/zero\"",
    "\"no-such-config\"",
    "\"\\u0000\"",
    "[\"quickstart\", 1]",
    "[\"no/such.toml\"]",
];

pub struct Bases;

/// A config laid out over files. The first one is its own.
struct Layout {
    files: Vec<Layer>,
}

/// A file: what it says, its bases, by their places, and what it does not take from them.
struct Layer {
    path: PathBuf,
    own: Table,
    bases: Vec<usize>,
    without: Vec<String>,
}

impl Class for Bases {
    fn name(&self) -> &'static str {
        "read-bases"
    }

    fn prepare(&mut self, _: &Place<'_>) -> Result<()> {
        watch::watch();
        Ok(())
    }

    fn case(&self, at: &Place<'_>, chance: &mut Chance) -> Result<Outcome> {
        let mut kinds = BTreeMap::new();
        for _ in 0..AT_ONCE {
            let _ = std::fs::remove_dir_all(&at.folder);
            let from = config(&at.root.join(chance.of_these(&CONFIGS)), chance)?;
            let whole = allot_config::open(&from, &[])?.table()?;
            let layout = Layout::of(&whole, chance);
            layout.write(&at.folder)?;
            let own = at.folder.join(OWN);
            let read = || allot_config::open(&own, &[]).and_then(|tree| tree.table());
            let is_whole = chance.below(4) == 0;
            let wrong = !is_whole && layout.mangle(&at.folder, chance)?;
            let paths: Vec<PathBuf> = layout.files.iter().map(|file| at.folder.join(&file.path)).collect();
            let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
            let what = judged(&paths, &mut kinds, || match (read(), read()) {
                (Ok(one), _) if is_whole && one != whole => {
                    Read::Broken(format!("over {} files it is read as {one}", layout.files.len()))
                }
                (Err(error), _) if is_whole => Read::Broken(error.report()),
                (Ok(_), _) if wrong => Read::Broken("it is taken with a base that can't be".to_owned()),
                // As text: what is no number does not equal itself.
                (Ok(one), Ok(other)) if one.to_string() == other.to_string() => told(whole_config(&own)),
                (Err(one), Err(other)) if one.report() == other.report() => told::<(), _>(Err(one)),
                (one, other) => Read::Broken(format!("it is read as {one:?}, and then as {other:?}")),
            });
            if let Some(what) = what {
                return Ok(Outcome::Broken(format!("{}: {what}", from.display())));
            }
        }
        Ok(Outcome::Many(kinds))
    }
}

impl Layout {
    /// Lays a config out over files.
    fn of(whole: &Table, chance: &mut Chance) -> Self {
        let most = *chance.of_these(&[2, 6, 40]);
        let layers = 2 + chance.below(most);
        let mut tables = vec![Table::new(); layers];
        lay(whole, &mut Vec::new(), &mut tables, chance);
        let mut layout = Self { files: Vec::new() };
        layout.build(&mut tables, chance);
        layout
    }

    /// Makes a file of the last of these tables, whose bases have the others, the first of them undermost. Returns its place.
    fn build(&mut self, tables: &mut [Table], chance: &mut Chance) -> usize {
        let place = self.files.len();
        let folder = *chance.of_these(&["", "", "a", "a/b", "c d"]);
        let name = if place == 0 { OWN.to_owned() } else { format!("{folder}/{place}.toml") };
        let path = PathBuf::from(name.trim_start_matches('/'));
        let (own, mut under) = tables.split_last_mut().expect("a file has a table");
        self.files.push(Layer { path, own: std::mem::take(own), bases: Vec::new(), without: Vec::new() });
        let mut bases = Vec::new();
        while !under.is_empty() {
            let (these, rest) = under.split_at_mut(1 + chance.below(under.len()));
            bases.push(self.build(these, chance));
            under = rest;
        }
        if let Some(first) = bases.first().filter(|_| chance.below(2) == 0) {
            let spare = format!("spare-{place}");
            let own = &mut self.files[*first].own;
            let section = own.iter().find(|(_, value)| value.is_table()).map(|(name, _)| name.clone());
            let path: Vec<String> =
                section.filter(|_| chance.below(2) == 0).into_iter().chain([spare]).collect();
            put(own, &path, chance.of_these(&[Value::Integer(7), Value::Table(Table::new())]).clone());
            self.files[place].without.push(path.join("."));
        }
        self.files[place].bases = bases;
        place
    }

    fn write(&self, folder: &Path) -> Result<()> {
        for file in &self.files {
            let path = folder.join(&file.path);
            made(path.parent().unwrap_or(folder))?;
            let bases: Vec<Value> = file
                .bases
                .iter()
                .map(|base| Value::String(between(&file.path, &self.files[*base].path)))
                .collect();
            let mut table = file.own.clone();
            if !file.without.is_empty() {
                table.insert("without".to_owned(), Value::try_from(&file.without).expect("texts"));
            }
            match <[Value; 1]>::try_from(bases) {
                Ok([base]) => _ = table.insert("base".to_owned(), base),
                Err(bases) if bases.is_empty() => {}
                Err(bases) => _ = table.insert("base".to_owned(), Value::Array(bases)),
            }
            let text = toml::to_string(&table).map_err(|e| Error::new(e.to_string()))?;
            write(&path, text)?;
        }
        Ok(())
    }

    /// Breaks something. Whether the config can't be read any more, whatever was broken.
    fn mangle(&self, folder: &Path, chance: &mut Chance) -> Result<bool> {
        let at = chance.below(self.files.len());
        let path = folder.join(&self.files[at].path);
        let rebased = |base: &str| {
            // A table's keys come before its tables.
            let text = toml::to_string(&self.files[at].own).map_err(|e| Error::new(e.to_string()))?;
            write(&path, format!("base = {base}\n{text}"))
        };
        let to =
            |other: usize| Value::String(between(&self.files[at].path, &self.files[other].path)).to_string();
        match chance.below(8) {
            0 if at > 0 => {
                std::fs::remove_file(&path).map_err(|e| Error::file("remove", &path, &e))?;
                return Ok(true);
            }
            1 => {
                // A circle, by way of the first file; alone, or beside others.
                rebased(&if chance.below(2) == 0 { to(0) } else { format!("[{}, \"quickstart\"]", to(0)) })?;
                return Ok(true);
            }
            2 => {
                rebased(NO_BASE[chance.below(NO_BASE.len())])?;
                return Ok(true);
            }
            3 => {
                // One that is named so often that there are too many files.
                rebased(&format!("[{}]", vec![to(self.files.len() - 1); 70].join(", ")))?;
                return Ok(true);
            }
            4 if at > 0 => {
                std::fs::remove_file(&path).map_err(|e| Error::file("remove", &path, &e))?;
                made(&path)?;
                return Ok(true);
            }
            _ => {
                let mut bytes = std::fs::read(&path).map_err(|e| Error::file("read", &path, &e))?;
                mangled::mangle(&mut bytes, &path, chance);
                write(&path, bytes)?;
            }
        }
        Ok(false)
    }
}

/// Puts each value of a table into one of these, and other values under some of them, which it lies over.
fn lay(table: &Table, within: &mut Vec<String>, tables: &mut [Table], chance: &mut Chance) {
    for (key, value) in table {
        within.push(key.clone());
        if let Value::Table(inner) = value
            && !inner.is_empty()
        {
            lay(inner, within, tables, chance);
        } else {
            let top = chance.below(tables.len());
            put(&mut tables[top], within, value.clone());
            // Settings of another policy would not stay.
            let other = within != &["policy", "use"];
            for under in &mut tables[..top] {
                if other && chance.below(4) == 0 {
                    let other =
                        [Value::Integer(7), Value::String("other".to_owned()), Value::Array(Vec::new())];
                    put(under, within, chance.of_these(&other).clone());
                }
            }
        }
        within.pop();
    }
}

fn put(table: &mut Table, within: &[String], value: Value) {
    let Some((key, rest)) = within.split_first() else { return };
    if rest.is_empty() {
        table.insert(key.clone(), value);
    } else if let Value::Table(inner) = table.entry(key.clone()).or_insert_with(|| Value::Table(Table::new()))
    {
        put(inner, rest, value);
    }
}

/// The path of a file as another one names it.
fn between(from: &Path, to: &Path) -> String {
    let up = from.parent().map_or(0, |folder| folder.components().count());
    format!("{}{}", "../".repeat(up), to.display())
}

/// Any config in a folder.
fn config(folder: &Path, chance: &mut Chance) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).map_err(|e| Error::file("read", folder, &e))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    files.sort();
    Ok(chance.of_these(&files).clone())
}
