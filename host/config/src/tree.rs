//! A config as a tree: every value with the place where it was written, in a file or in an option on the
//! command line. A tree is converted to a type ([`Tree::config`]) or to a table ([`Tree::table`]).

#![expect(clippy::result_large_err, reason = "a config has one fault, and is read once")]

use std::borrow::Cow;

use allot_allocation::shown;
use allot_base::{Error, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::hints;
use crate::node::{Key, Location, Node, Value};
use crate::typed::{Fault, Strict};

/// A config before its kind is known: for a run, a comparison or a model.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The config's own file, followed by its bases in the order of reading.
    files: Vec<Source>,
    /// The options on the command line, each as KEY=VALUE. They override the files.
    overrides: Vec<String>,
    root: Node,
    /// What was left out of the layers beneath, a sentence each.
    left: Vec<String>,
}

/// A config's text, and its name in errors.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub name: String,
    pub text: String,
}

/// Maximum length of a line shown in an error, in bytes.
const SHOWN: usize = 200;

impl Tree {
    /// Parses a config's text. `name` names it in errors. `overrides` are options of the form KEY=VALUE,
    /// with dots in the key.
    pub fn parse(text: &str, name: &str, overrides: &[String]) -> Result<Self> {
        let mut tree = Self::new(overrides);
        tree.root = tree.read(Source { name: name.to_owned(), text: text.to_owned() })?;
        tree.overridden()
    }

    /// Returns a config without text.
    pub(crate) fn new(overrides: &[String]) -> Self {
        let root = Node { value: Value::Table(Vec::new()), place: Location::File { file: 0, at: 0 } };
        Self { files: Vec::new(), overrides: overrides.to_vec(), root, left: Vec::new() }
    }

    /// Parses a file. The config's own file must come first, and then its bases.
    pub(crate) fn read(&mut self, source: Source) -> Result<Node> {
        let file = self.files.len();
        self.files.push(source);
        let place = |at| Location::File { file, at };
        let text = &self.files[file].text;
        let table = DeTable::parse(text).map_err(|e| self.told(&Fault::of_toml(&e, place)))?;
        let start = place(table.span().start);
        let value = entries(table.into_inner(), &place).map_err(|fault| self.told(&fault))?;
        Ok(Node { value, place: start })
    }

    /// Returns the number of files read.
    pub(crate) fn files_read(&self) -> usize {
        self.files.len()
    }

    /// Returns the config with this root, which was made from the files read.
    pub(crate) fn of(mut self, root: Node) -> Result<Self> {
        self.root = root;
        self.overridden()
    }

    fn overridden(mut self) -> Result<Self> {
        for i in 0..self.overrides.len() {
            let over = option(&self.overrides[i], i)?.map_err(|fault| self.told(&fault))?;
            self.left.extend(other_policy(&mut self.root, &over));
            merge(&mut self.root, over, "").map_err(|fault| self.told(&fault))?;
        }
        Ok(self)
    }

    /// Converts the tree to a config's type.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T> {
        T::deserialize(Strict::of(&self.root)).map_err(|fault| self.told(&fault))
    }

    /// Converts the tree to a TOML table.
    pub fn table(&self) -> Result<toml::Table> {
        self.config()
    }

    /// Returns the config's text: the file's text if there are no bases and no overrides, else a new one.
    pub fn text(&self) -> Result<Cow<'_, str>> {
        if let (true, [own]) = (self.overrides.is_empty(), self.files.as_slice()) {
            return Ok(Cow::Borrowed(&own.text));
        }
        let text = toml::to_string(&self.table()?);
        text.map(Cow::Owned).map_err(|e| Error::new(format!("could not write the config: {e}")))
    }

    /// Returns the config's name in errors.
    pub fn name(&self) -> &str {
        self.files.first().map_or("", |own| &own.name)
    }

    /// Returns sentences that name the config's bases, if it has any, and what was left out.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let bases: Vec<&str> = self.files.iter().skip(1).map(|file| file.name.as_str()).collect();
        let based = format!("`{}` is based on {}", self.name(), bases.join(", "));
        (!bases.is_empty()).then_some(based).into_iter().chain(self.left.iter().cloned())
    }

    /// Merges a config over its base.
    pub(crate) fn lay(&mut self, under: &mut Node, over: Node) {
        self.left.extend(other_policy(under, &over));
        lay(under, over);
    }

    /// Returns whether the config has this section.
    pub fn has(&self, section: &str) -> bool {
        self.sections().any(|name| name == section)
    }

    /// Returns the names of the config's sections.
    pub fn sections(&self) -> impl Iterator<Item = &str> {
        let keys = match &self.root.value {
            Value::Table(entries) => entries.as_slice(),
            _ => &[],
        };
        keys.iter().map(|(key, _)| key.name.as_str())
    }

    /// Returns the error for a fault: place, message and hint.
    pub(crate) fn told(&self, fault: &Fault) -> Error {
        let place = match fault.place {
            None => format!("`{}`", self.name()),
            Some(Location::Option(i)) => format!("`-o {}`", cut(&self.overrides[i])),
            Some(Location::File { file, at }) => {
                let Source { name, text } = &self.files[file];
                let before = text.get(..at).unwrap_or(text);
                let line = before.matches('\n').count();
                let source = text.lines().nth(line).unwrap_or_default().trim();
                // What a base wrote is its own; what is missing is the config's, too.
                let missing = file > 0 && fault.missing.is_some();
                let of = if missing { format!(", in a base of `{}`", self.name()) } else { String::new() };
                format!("`{name}` line {}, `{}`{of}", line + 1, cut(source))
            }
        };
        let error = Error::new(format!("{place}: {}", fault.what));
        match hints::of(fault, self.name(), &self.sections().collect::<Vec<_>>(), &self.keys(fault)) {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }

    /// Returns the keys that a fault is about, with dots: the typed key, or all at its place and below.
    fn keys(&self, fault: &Fault) -> Vec<String> {
        if let Some(Location::Option(i)) = fault.place {
            return self.overrides[i]
                .split_once('=')
                .map(|(key, _)| key.trim().to_owned())
                .into_iter()
                .collect();
        }
        let unknown = fault.unknown.iter().map(|(unknown, _)| unknown.as_str());
        let path: Vec<&str> = fault.path.iter().rev().map(String::as_str).chain(unknown).collect();
        let node = path.iter().try_fold(&self.root, |node, name| node.get(name));
        let mut keys = Vec::new();
        if let Some(node) = node {
            leaves(node, &path.join("."), &mut keys);
        }
        keys
    }
}

/// Appends the names of all keys below a node, with dots. A node that is not a table has one key.
fn leaves(node: &Node, name: &str, keys: &mut Vec<String>) {
    match &node.value {
        Value::Table(entries) => {
            for (key, node) in entries {
                leaves(node, &format!("{name}.{}", key.name), keys);
            }
        }
        _ => keys.push(name.to_owned()),
    }
}

/// Shortens a line for an error.
fn cut(line: &str) -> String {
    shown::word(line, SHOWN)
}

/// Converts a table's entries. `place` converts a byte offset to a place.
fn entries(table: DeTable<'_>, place: &dyn Fn(usize) -> Location) -> std::result::Result<Value, Fault> {
    let mut entries = Vec::with_capacity(table.len());
    for (key, value) in table {
        let at = place(key.span().start);
        let start = place(value.span().start);
        let node = Node { value: self::value(value, place)?, place: start };
        entries.push((Key { name: key.into_inner().into_owned(), place: at }, node));
    }
    Ok(Value::Table(entries))
}

fn value(
    value: toml::Spanned<DeValue<'_>>,
    place: &dyn Fn(usize) -> Location,
) -> std::result::Result<Value, Fault> {
    let at = place(value.span().start);
    let number = |value| ValueDeserializer::from(value);
    let wrong = |e: toml::de::Error| Fault::of_toml(&e, |_| at);
    Ok(match value.as_ref() {
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Integer(_) => Value::Integer(i128::deserialize(number(value)).map_err(wrong)?),
        DeValue::Float(_) => Value::Number(f64::deserialize(number(value)).map_err(wrong)?),
        DeValue::String(_) => Value::Text(String::deserialize(number(value)).map_err(wrong)?),
        // `model.date` accepts a date with or without quotes.
        DeValue::Datetime(date) => Value::Text(date.to_string()),
        DeValue::Array(_) => {
            let DeValue::Array(items) = value.into_inner() else { unreachable!("it was one") };
            let item = |item: toml::Spanned<DeValue<'_>>| {
                let start = place(item.span().start);
                Ok(Node { value: self::value(item, place)?, place: start })
            };
            Value::List(items.into_iter().map(item).collect::<std::result::Result<_, Fault>>()?)
        }
        DeValue::Table(_) => {
            let DeValue::Table(table) = value.into_inner() else { unreachable!("it was one") };
            entries(table, place)?
        }
    })
}

/// Parses KEY=VALUE to a tree. The value is parsed as TOML, or taken as text if it is not valid TOML.
fn option(typed: &str, index: usize) -> Result<std::result::Result<Node, Fault>> {
    let form = || {
        let what = format!("`-o {}` is not of the form KEY=VALUE", cut(typed));
        Error::new(what).hint("write it as in -o optimizer.learning_rate=3e-5")
    };
    let (key, text) = typed.split_once('=').ok_or_else(form)?;
    let place = |_| Location::Option(index);
    let read = |line: &str| {
        let table = DeTable::parse(line).ok().filter(|table| table.as_ref().len() == 1)?;
        Some(entries(table.into_inner(), &place).map(|value| Node { value, place: Location::Option(index) }))
    };
    // A line break would allow several keys.
    let one_line = !typed.contains(['\n', '\r']);
    if let Some(node) = read(typed).filter(|_| one_line) {
        return Ok(node);
    }
    let quoted = toml::Value::String(text.trim().to_owned());
    read(&format!("{key}={quoted}")).filter(|_| !key.contains(['\n', '\r'])).ok_or_else(form)
}

/// Removes the settings and the hash of a policy if what comes over it names another policy, for which they are not. What the
/// command line set stays. Returns a sentence with the removed settings, if there are any.
fn other_policy(under: &mut Node, over: &Node) -> Option<String> {
    let used = |node: &Node| match &node.get("policy")?.get("use")?.value {
        Value::Text(policy) => Some(policy.clone()),
        _ => None,
    };
    let (old, new) = (used(under)?, used(over)?);
    let policy = under.get_mut("policy").filter(|_| old != new)?;
    if policy.get("sha256").is_some_and(|hash| !hash.is_typed()) {
        policy.take("sha256");
    }
    let Value::Table(settings) = &mut policy.get_mut("settings")?.value else { return None };
    let gone: Vec<String> = settings
        .extract_if(.., |(_, node)| !node.is_typed())
        .map(|(key, _)| format!("`{}`", key.name))
        .collect();
    let gone = (!gone.is_empty()).then(|| gone.join(", "))?;
    Some(format!("`{new}` takes the place of `{old}`, whose settings are left out: {gone}"))
}

/// Merges a node over that of a base. Tables are merged by key; other values are replaced.
fn lay(under: &mut Node, over: Node) {
    match (&mut under.value, over) {
        (Value::Table(known), Node { value: Value::Table(entries), place }) => {
            // Errors about missing keys should name the last file.
            under.place = place;
            for (key, node) in entries {
                match known.iter_mut().find(|(k, _)| k.name == key.name) {
                    Some((_, old)) => lay(old, node),
                    None => known.push((key, node)),
                }
            }
        }
        (_, over) => *under = over,
    }
}

/// Merges an override into a tree. Tables are merged by key, list items by their index from 0, and other
/// values are replaced.
fn merge(under: &mut Node, over: Node, path: &str) -> std::result::Result<(), Fault> {
    let Node { value, place } = over;
    match (&mut under.value, value) {
        (Value::Table(known), Value::Table(entries)) => {
            for (key, node) in entries {
                let path = format!("{path}{}.", key.name);
                match known.iter_mut().find(|(k, _)| k.name == key.name) {
                    Some((_, old)) => merge(old, node, &path)?,
                    None => known.push((key, node)),
                }
            }
        }
        (Value::List(items), Value::Table(entries)) => {
            let many = items.len();
            for (key, node) in entries {
                let path = format!("{path}{}.", key.name);
                let item = key.name.parse().ok().and_then(|i: usize| items.get_mut(i));
                let item = item.ok_or_else(|| {
                    let list = path.trim_end_matches(&format!(".{}.", key.name)).to_owned();
                    let what = format!(
                        "`{list}` has no item `{}`; it is a list of {many}, numbered from 0",
                        key.name
                    );
                    Fault::new(what, Some(place))
                })?;
                merge(item, node, &path)?;
            }
        }
        (_, value) => {
            if matches!(under.place, Location::Option(_)) {
                let what = format!("`{}` is given twice", path.trim_end_matches('.'));
                return Err(Fault::new(what, Some(place)));
            }
            *under = Node { value, place };
        }
    }
    Ok(())
}
