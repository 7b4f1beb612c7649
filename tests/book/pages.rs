//! The pages of this repository, and what is in them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::scratch::root;

/// A page in Markdown.
pub struct Page {
    /// Its path from the repository's root.
    pub path: String,
    pub text: String,
}

/// README, the change log, and everything below `docs`.
pub fn all() -> Vec<Page> {
    let mut paths: Vec<String> = below("docs").into_iter().filter(|path| is(path, &["md"])).collect();
    paths.extend(["README.md", "CHANGELOG.md"].map(str::to_owned));
    let page = |path: String| Page { text: std::fs::read_to_string(root().join(&path)).unwrap(), path };
    paths.into_iter().map(page).collect()
}

/// Whether a file is of one of these kinds, by its ending.
pub fn is(path: &str, kinds: &[&str]) -> bool {
    Path::new(path).extension().is_some_and(|kind| kinds.iter().any(|one| kind == *one))
}

/// All files below a folder, from the repository's root, without what is built or fetched there.
pub fn below(folder: &str) -> Vec<String> {
    let (mut folders, mut files) = (vec![PathBuf::from(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if !entry.file_type().unwrap().is_dir() {
                files.extend(path.to_str().map(str::to_owned));
            } else if !path.ends_with("target") && !path.ends_with("node_modules") {
                folders.push(path);
            }
        }
    }
    files.sort();
    files
}

impl Page {
    /// The folder that it is in.
    pub fn folder(&self) -> &Path {
        Path::new(&self.path).parent().unwrap()
    }

    /// Its lines outside of blocks of code.
    pub fn lines(&self) -> Vec<&str> {
        let mut code = false;
        let outside = |line: &&str| {
            let fence = line.trim_start().starts_with("```");
            code ^= fence;
            !code && !fence
        };
        self.text.lines().filter(outside).collect()
    }

    /// What its links lead to: addresses, paths and anchors, as they are written.
    pub fn links(&self) -> Vec<String> {
        let targets = |line: &str| {
            let plain = without_code(line);
            let rest = plain.split("](").skip(1);
            rest.filter_map(|rest| rest.split_once(')').map(|(target, _)| target.to_owned()))
                .collect::<Vec<_>>()
        };
        self.lines().into_iter().flat_map(targets).collect()
    }

    /// What stands in backticks.
    pub fn code(&self) -> Vec<String> {
        let spans = |line: &str| line.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        self.lines().into_iter().flat_map(spans).collect()
    }

    /// The anchors of its headings, as mdBook and code hosts make them.
    pub fn anchors(&self) -> BTreeSet<String> {
        let mut anchors = BTreeSet::new();
        for line in self.lines() {
            let title = line.trim_start_matches('#');
            let Some(title) = title.strip_prefix(' ').filter(|title| title.len() + 1 < line.len()) else {
                continue;
            };
            let base = anchor(title);
            let numbered = (1..).map(|n| format!("{base}-{n}"));
            let free = std::iter::once(base.clone()).chain(numbered).find(|one| !anchors.contains(one));
            anchors.extend(free);
        }
        anchors
    }
}

/// A line with what is in backticks left out.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// A heading's anchor: letters, digits, `_` and `-`, in small letters, with `-` for spaces.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(|c| if c == ' ' { vec!['-'] } else { c.to_lowercase().collect() }).collect()
}

#[test]
fn anchors_are_those_of_the_book() {
    let text = "# `[run]`: constants\n## A b\n## A b\n```sh\n# no heading\n```\n### C_d, e-f!\n";
    let page = Page { path: "page".into(), text: text.into() };
    let anchors: Vec<String> = page.anchors().into_iter().collect();
    assert_eq!(anchors, ["a-b", "a-b-1", "c_d-e-f", "run-constants"]);
}
