//! Contents, links, and files that are named.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::pages::{Page, all, below, is};
use crate::scratch::root;

/// Folders of the repository that pages name files of.
const FOLDERS: [&str; 8] = ["host", "tests", "docs", "configs", "benches", "policies", "wit", ".ci"];

/// Measurements of a day, which are not in the book.
const ARCHIVE: &str = "docs/archive";

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut whole, part| {
        match part {
            Component::ParentDir => {
                whole.pop();
            }
            Component::CurDir => {}
            other => whole.push(other),
        }
        whole
    })
}

#[test]
fn every_page_is_in_the_contents_once() {
    let pages = all();
    let contents = pages.iter().find(|page| page.path == "docs/SUMMARY.md").unwrap();
    let mut listed: Vec<String> = contents.links().iter().map(|link| format!("docs/{link}")).collect();
    listed.sort();
    let there = pages.iter().map(|page| page.path.clone());
    let of_the_book =
        |path: &String| path.starts_with("docs/") && path != "docs/SUMMARY.md" && !path.starts_with(ARCHIVE);
    let mut there: Vec<String> = there.filter(of_the_book).collect();
    there.sort();
    assert_eq!(listed, there);
}

#[test]
fn a_page_has_one_title_in_the_contents_and_in_its_heading() {
    let pages = all();
    let contents = pages.iter().find(|page| page.path == "docs/SUMMARY.md").unwrap();
    let mut found = 0;
    for line in contents.lines() {
        let entry = line.trim_start_matches("- ").strip_prefix('[').and_then(|rest| rest.split_once("]("));
        let Some((title, link)) = entry.filter(|(_, link)| *link != "index.md)") else { continue };
        let path = format!("docs/{}", link.trim_end_matches(')'));
        let page = pages.iter().find(|page| page.path == path).unwrap();
        assert_eq!(page.text.lines().next(), Some(format!("# {title}").as_str()), "{path}");
        found += 1;
    }
    assert!(found > 20, "{found}");
}

/// Who hears a table hears the heading of a column before each of its cells.
#[test]
fn each_column_of_a_table_has_a_heading() {
    let rule = |line: &str| line.starts_with("|-") && line.chars().all(|c| "|-: ".contains(c));
    let mut found = 0;
    for page in all().iter().filter(|page| !page.path.starts_with(ARCHIVE)) {
        for pair in page.lines().windows(2).filter(|pair| rule(pair[1])) {
            let empty = pair[0].trim_matches('|').split('|').any(|heading| heading.trim().is_empty());
            assert!(!empty, "{}: a column without a heading: {}", page.path, pair[0]);
            found += 1;
        }
    }
    assert!(found > 50, "{found}");
}

/// A reader who comes to an old measurement learns first which page has what is true today.
#[test]
fn an_archived_page_begins_with_what_supersedes_it() {
    let pages = all();
    let archived: Vec<&Page> = pages.iter().filter(|page| page.path.starts_with(ARCHIVE)).collect();
    assert!(archived.len() > 20, "{}", archived.len());
    for page in archived {
        let second = page.text.lines().nth(2).unwrap_or_default();
        let newer =
            second.strip_prefix("> **Archived.** Superseded by [").and_then(|rest| rest.split_once("]("));
        let newer = newer.unwrap_or_else(|| panic!("{}: {second}", page.path)).1;
        let newer = plain(&page.folder().join(newer.split_once(')').unwrap().0));
        assert!(!newer.starts_with(ARCHIVE) && root().join(&newer).exists(), "{}: {newer:?}", page.path);
    }
}

#[test]
fn every_link_leads_somewhere() {
    let pages = all();
    let anchors: BTreeMap<PathBuf, _> =
        pages.iter().map(|page| (PathBuf::from(&page.path), page.anchors())).collect();
    let wrong = |page: &Page, link: &str| {
        if link.contains("://") {
            return None;
        }
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let to = match path {
            "" => PathBuf::from(&page.path),
            path => plain(&page.folder().join(path)),
        };
        if !root().join(&to).exists() {
            return Some("leads nowhere");
        }
        // In the book there is nothing else.
        let of_the_book = |path: &Path| path.starts_with("docs") && !path.starts_with(ARCHIVE);
        if of_the_book(Path::new(&page.path)) && !of_the_book(&to) {
            return Some("leads out of the book: name the file in backticks");
        }
        let known = anchors.get(&to).is_none_or(|anchors| anchor.is_empty() || anchors.contains(anchor));
        (!known).then_some("has no such heading")
    };
    let links = pages.iter().flat_map(|page| page.links().into_iter().map(move |link| (page, link)));
    let wrong =
        links.filter_map(|(page, link)| Some(format!("{}: `{link}` {}", page.path, wrong(page, &link)?)));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Results tell of the files of their day.
#[test]
fn files_that_pages_name_are_there() {
    let named = |code: &String| {
        let path = code.split_once('/').is_some_and(|(first, _)| FOLDERS.contains(&first));
        let stands_for_another = code.contains("NAME") || code.contains("POLICY");
        path && !stands_for_another
            && code.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_'))
    };
    let mut gone = Vec::new();
    for page in all().iter().filter(|page| !page.path.starts_with(ARCHIVE) && page.path != "CHANGELOG.md") {
        let code = page.code();
        let missing = code.iter().filter(|code| named(code) && !root().join(code).exists());
        gone.extend(missing.map(|code| format!("{}: `{code}`", page.path)));
    }
    assert!(gone.is_empty(), "not there:\n{}", gone.join("\n"));
}

/// A hint or a comment that names a page of `docs`.
#[test]
fn pages_that_code_names_are_there() {
    let code = ["host", "policies", "tests", "benches", "configs"].map(below).concat();
    let texts = code.iter().filter(|path| is(path, &["rs", "py", "toml", "md", "js", "go", "c"]));
    let (mut found, mut gone) = (0, Vec::new());
    for path in texts {
        let Ok(text) = std::fs::read_to_string(root().join(path)) else { continue };
        for rest in text.split("docs/").skip(1) {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_')));
            let (name, rest) = rest.split_at(end.unwrap_or(rest.len()));
            // `docs/gguf.md` is ggml's.
            if !name.is_empty() && name != "gguf" && rest.starts_with(".md") {
                found += 1;
                let there = root().join("docs").join(format!("{name}.md")).exists();
                gone.extend((!there).then(|| format!("{path}: docs/{name}.md")));
            }
        }
    }
    assert!(found > 20, "{found}");
    assert!(gone.is_empty(), "{}", gone.join("\n"));
}

/// Those who have the wheel have neither a checkout nor this book: a message names a key or a command.
#[test]
fn messages_name_no_file_that_a_wheel_does_not_have() {
    let files = ["docs/", "configs/", "benches/", "wit/0", "wit/reward"];
    let not_said = ["include", "path", "Path"];
    let mut named = Vec::new();
    let sources =
        below("host").into_iter().filter(|path| is(path, &["rs"]) && !path.starts_with("host/xtask"));
    for path in sources.filter(|path| !path.ends_with("build.rs") && !path.contains("test")) {
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        let said = lines.filter(|line| !not_said.iter().any(|word| line.contains(word)));
        named.extend(
            said.filter(|line| files.iter().any(|file| line.contains(file)))
                .map(|line| format!("{path}: {line}")),
        );
    }
    assert!(named.is_empty(), "{}", named.join("\n"));
}

/// A test that an invariant names.
#[test]
fn tests_that_invariants_name_are_there() {
    let sources = ["host", "tests"].map(below).concat();
    let sources = sources.iter().filter(|path| is(path, &["rs"]));
    let sources: String = sources.map(|path| std::fs::read_to_string(root().join(path)).unwrap()).collect();
    let pages = all();
    let invariants = pages.iter().filter(|page| page.text.contains("*Held by*"));
    let mut named: Vec<String> = invariants.flat_map(Page::code).collect();
    named.retain(|code| {
        code.matches('_').count() > 1 && code.chars().all(|c| c == '_' || c.is_ascii_lowercase())
    });
    assert!(named.len() > 20, "{}", named.len());
    named.retain(|name| !sources.contains(&format!("fn {name}(")));
    assert!(named.is_empty(), "no such tests: {}", named.join(", "));
}

/// A reader decides within a minute: README and the page of evidence stay short, and a number has one home.
#[test]
fn the_front_door_is_short_and_quotes_the_evidence() {
    let pages = all();
    let page = |path: &str| &pages.iter().find(|page| page.path == path).unwrap().text;
    let (readme, evidence) = (page("README.md"), page("docs/results/evidence.md"));
    for (text, most) in [(readme, 1100), (evidence, 1200)] {
        let words = text.split_whitespace().count();
        assert!(words <= most, "{words} words");
    }
    let (_, measured) = readme.split_once("\n## What we measured\n").unwrap();
    let (measured, _) = measured.split_once("\n## ").unwrap();
    let ratios = measured.split("needs ").skip(1).filter_map(|rest| rest.split(" (").next());
    let ratios: Vec<&str> =
        ratios.filter(|words| words.ends_with("more") || words.ends_with("fewer")).collect();
    assert_eq!(ratios.len(), 3, "{ratios:?}");
    for ratio in ratios {
        // Bold there if it is significant, else a cell of its table.
        let there = [format!("**{ratio}**"), format!("| {ratio} |")];
        assert!(there.iter().any(|text| evidence.contains(text)), "{ratio} is not on the page of evidence");
    }
    let numbers = measured.split(|c: char| c.is_whitespace() || c == ',').filter(|word| word.ends_with('k'));
    let numbers: Vec<&str> = numbers.filter(|word| word.starts_with(|c: char| c.is_ascii_digit())).collect();
    assert!(numbers.len() >= 5, "{numbers:?}");
    assert!(evidence.contains("24.6k") && evidence.contains("4.0k"), "the untuned and the tuned baseline");
}
