//! Which files of a crate import one another, and the circles that they make.
//!
//! A file has an arrow to each module that it names: in a `use`, or in a path such as `crate::a::f()` or `module::f()`. The
//! arrow ends at the last module of the path; what this module hands on from elsewhere (`pub use`) is not followed. A file
//! may name the modules that it is in (`super`, `crate`), so these are no arrows, and neither is `mod`: a child that uses
//! its parent is no circle, two children that use each other are. Methods, fields and anything under `#[cfg(test)]` are
//! not looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::sources::Source;

/// Which file names which other one, by their numbers, and what of it.
type Arrows = BTreeMap<(usize, usize), BTreeSet<String>>;

/// Files that import each other.
pub struct Circle {
    /// Their paths, sorted.
    pub files: Vec<String>,
    /// Its arrows: from, to, the names.
    pub arrows: Vec<(String, String, Vec<String>)>,
}

/// The circles of a crate's files: of its library, its programs, tests and benches.
pub fn circles(sources: &[Source]) -> Vec<Circle> {
    // A file that no other one declares is the root of a tree of modules.
    let trees: Vec<Modules> = (0..sources.len()).map(|root| Modules::from(sources, root)).collect();
    let declared: BTreeSet<usize> = trees.iter().flat_map(Modules::declared).collect();
    let mut arrows = Arrows::new();
    for (_, tree) in trees.iter().enumerate().filter(|(root, _)| !declared.contains(root)) {
        tree.add_arrows(&mut arrows);
    }
    let reached: Vec<BTreeSet<usize>> = (0..sources.len()).map(|file| reached(&arrows, file)).collect();
    let around = |file: usize| {
        let circle = reached[file].iter().filter(|other| reached[**other].contains(&file));
        circle.copied().collect::<Vec<usize>>()
    };
    let circles: BTreeSet<Vec<usize>> =
        (0..sources.len()).map(around).filter(|files| files.len() > 1).collect();
    let name = |file: &usize| sources[*file].path.to_string_lossy().into_owned();
    let circle = |files: Vec<usize>| {
        let inside = arrows.iter().filter(|((from, to), _)| files.contains(from) && files.contains(to));
        let arrows =
            inside.map(|((from, to), names)| (name(from), name(to), names.iter().cloned().collect()));
        Circle { arrows: arrows.collect(), files: files.iter().map(name).collect() }
    };
    circles.into_iter().map(circle).collect()
}

/// The files that a file names, straight or through others.
fn reached(arrows: &Arrows, file: usize) -> BTreeSet<usize> {
    let (mut all, mut open) = (BTreeSet::new(), vec![file]);
    while let Some(from) = open.pop() {
        let next = arrows.range((from, 0)..(from + 1, 0)).map(|((_, to), _)| *to);
        open.extend(next.filter(|to| all.insert(*to)));
    }
    all
}

/// A path in the code, by its names.
type Names = Vec<String>;

/// A module: a file, or a part of one.
#[derive(Default)]
struct Module {
    file: usize,
    parent: usize,
    children: BTreeMap<String, usize>,
    /// What its `use` lines bring in, by the name that it has here.
    imports: Vec<(String, Names)>,
    /// All paths that it names, those of `use` among them.
    paths: Vec<Names>,
}

/// A tree of modules, the root first.
struct Modules<'a> {
    sources: &'a [Source],
    all: Vec<Module>,
    /// Files that are modules of tests alone.
    tests: BTreeSet<usize>,
}

impl<'a> Modules<'a> {
    /// The tree below a file.
    fn from(sources: &'a [Source], root: usize) -> Self {
        let mut tree =
            Self { sources, all: vec![Module { file: root, ..Module::default() }], tests: BTreeSet::new() };
        tree.read(sources[root].tokens.clone(), 0, Path::new(""));
        tree
    }

    /// The files of its modules below the root.
    fn declared(&self) -> impl Iterator<Item = usize> {
        let root = self.all[0].file;
        self.all
            .iter()
            .map(|module| module.file)
            .filter(move |file| *file != root)
            .chain(self.tests.iter().copied())
    }

    /// Reads tokens of a module. `inline` are the modules of this file that it is in.
    fn read(&mut self, tokens: TokenStream, module: usize, inline: &Path) {
        let code = Code::new(tokens);
        let mut at = 0;
        while at < code.tokens.len() {
            let next = code.word(at + 1);
            match code.word(at) {
                "#" if code.is_for_tests(at + 1) => {
                    let end = code.end(at + 2);
                    if let Some(place) = (at..end).find(|at| code.word(*at) == "mod") {
                        self.tests.extend(self.find(module, inline, code.word(place + 1)));
                    }
                    at = end;
                }
                "use" if next != "<" => {
                    let end = (at..code.tokens.len()).find(|at| code.word(*at) == ";");
                    let end = end.unwrap_or(code.tokens.len());
                    self.all[module].import(&code, at + 1..end, &[]);
                    at = end;
                }
                "mod" if is_name(next) => {
                    self.child(module, inline, next, code.group(at + 2));
                    at += 2;
                }
                word if is_name(word) => at = self.all[module].path(&code, at),
                _ => {
                    if let Some(inner) = code.group(at) {
                        self.read(inner, module, inline);
                    }
                }
            }
            at += 1;
        }
    }

    /// Enters a child module: of these tokens, or of a file.
    fn child(&mut self, parent: usize, inline: &Path, name: &str, tokens: Option<TokenStream>) {
        let (file, tokens, inline) = match (tokens, self.find(parent, inline, name)) {
            (Some(tokens), _) => (self.all[parent].file, tokens, inline.join(name)),
            (None, Some(file)) => (file, self.sources[file].tokens.clone(), PathBuf::new()),
            (None, None) => return,
        };
        let child = self.all.len();
        self.all.push(Module { file, parent, ..Module::default() });
        self.all[parent].children.insert(name.to_owned(), child);
        self.read(tokens, child, &inline);
    }

    /// The file of a child module: below the parent's name, or beside the parent.
    fn find(&self, parent: usize, inline: &Path, name: &str) -> Option<usize> {
        let file = &self.sources[self.all[parent].file].path;
        let places = [file.with_extension("").join(inline), file.with_file_name("").join(inline)];
        let mut paths = places
            .iter()
            .flat_map(|place| [place.join(name).with_extension("rs"), place.join(name).join("mod.rs")]);
        paths.find_map(|path| self.sources.iter().position(|source| source.path == path))
    }

    /// Adds the arrows between its files.
    fn add_arrows(&self, arrows: &mut Arrows) {
        for (number, module) in self.all.iter().enumerate() {
            for path in &module.paths {
                let Some(named) = self.named(number, path, 0) else { continue };
                let file = self.all[named].file;
                if !self.is_in(number, file) {
                    arrows.entry((module.file, file)).or_default().extend(path.last().cloned());
                }
            }
        }
    }

    /// Whether a module is in a file, or below it.
    fn is_in(&self, mut module: usize, file: usize) -> bool {
        while module != 0 && self.all[module].file != file {
            module = self.all[module].parent;
        }
        self.all[module].file == file
    }

    /// The last module of a path, seen from a module: none where it leads out of the crate, or to an item here.
    fn named(&self, from: usize, path: &[String], depth: usize) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let imported = || {
            let mut imports = self.all[from].imports.iter();
            let (_, path) = imports.find(|(name, path)| name == first && path[0] != *first)?;
            // A longer chain of imports leads back to itself.
            if depth < 8 { self.named(from, path, depth + 1) } else { None }
        };
        let mut module = match first.as_str() {
            "crate" => 0,
            "self" => from,
            "super" => self.all[from].parent,
            name => self.all[from].children.get(name).copied().or_else(imported)?,
        };
        for name in rest {
            match self.all[module].children.get(name) {
                Some(child) => module = *child,
                None if name == "super" => module = self.all[module].parent,
                None => break,
            }
        }
        Some(module)
    }
}

impl Module {
    /// Reads the tree of a `use`, whose paths begin with these names.
    fn import(&mut self, code: &Code, range: Range<usize>, before: &[String]) {
        let (mut path, mut name) = (before.to_vec(), None);
        for at in range.start..=range.end {
            match code.word(at) {
                word if at == range.end || word == "," => {
                    if path.len() > before.len() || name.is_some() {
                        let name = name.take().or_else(|| path.last().cloned());
                        self.imports.extend(name.map(|name| (name, path.clone())));
                        self.paths.push(path);
                    }
                    path = before.to_vec();
                }
                "self" if !path.is_empty() => name = path.last().cloned(),
                "as" => name = Some(code.word(at + 1).to_owned()),
                word if is_name(word) && name.is_none() => path.push(word.to_owned()),
                _ => {
                    if let Some(inner) = code.group(at).map(Code::new) {
                        self.import(&inner, 0..inner.tokens.len(), &path);
                        path = before.to_vec();
                    }
                }
            }
        }
    }

    /// Reads the path that begins at a name. Where it ends.
    fn path(&mut self, code: &Code, mut at: usize) -> usize {
        let mut path = vec![code.word(at).to_owned()];
        while code.word(at + 1) == ":" && code.word(at + 2) == ":" && is_name(code.word(at + 3)) {
            at += 3;
            path.push(code.word(at).to_owned());
        }
        if path.len() > 1 {
            self.paths.push(path);
        }
        at
    }
}

/// Tokens beside their words; groups and literals have none.
struct Code {
    tokens: Vec<TokenTree>,
    words: Vec<String>,
}

impl Code {
    fn new(tokens: TokenStream) -> Self {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let word = |token: &TokenTree| match token {
            TokenTree::Ident(_) | TokenTree::Punct(_) => token.to_string(),
            TokenTree::Group(_) | TokenTree::Literal(_) => String::new(),
        };
        Self { words: tokens.iter().map(word).collect(), tokens }
    }

    fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    fn group(&self, at: usize) -> Option<TokenStream> {
        if let Some(TokenTree::Group(group)) = self.tokens.get(at) { Some(group.stream()) } else { None }
    }

    /// Whether an attribute is `#[cfg(test)]`, or more than that.
    fn is_for_tests(&self, at: usize) -> bool {
        let Some(attribute) = self.group(at).map(Self::new) else { return false };
        let Some(mut condition) = attribute.group(1).map(Self::new) else { return false };
        if condition.word(0) == "all" {
            condition = Self::new(condition.group(1).unwrap_or_default());
        }
        attribute.word(0) == "cfg" && condition.word(0) == "test"
    }

    /// The end of the item that begins here.
    fn end(&self, at: usize) -> usize {
        let is_body = |at: &usize| match &self.tokens[*at] {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            _ => self.word(*at) == ";",
        };
        (at..self.tokens.len()).find(is_body).unwrap_or(self.tokens.len())
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_alphabetic() || first == '_')
}
