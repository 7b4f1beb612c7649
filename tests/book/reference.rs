//! The reference, held to the program: its commands, and the keys of a config.

use std::collections::BTreeSet;

use crate::scratch::{Scratch, root};

/// `docs/reference/commands.md` as the program would have it.
fn commands() -> String {
    let scratch = Scratch::new();
    let help = |args: &[&str]| {
        let mut command = scratch.command(args);
        let done = command.env_remove("COLUMNS").output().unwrap();
        assert!(done.status.success(), "{args:?}");
        String::from_utf8(done.stdout).unwrap().trim_end().to_owned()
    };
    let whole = help(&["--help"]);
    let list = whole.split_once("Commands:\n").unwrap().1.split("\n\n").next().unwrap();
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() > 10, "{names:?}");
    let section = |name: &&str| format!("\n## `allot {name}`\n\n```text\n{}\n```\n", help(&[name, "--help"]));
    let head = "# Commands\n\nWhat `allot COMMAND --help` prints. `tests/book.rs` holds this page to it.\n";
    names
        .iter()
        .map(section)
        .fold(format!("{head}\n```text\n{whole}\n```\n"), |page, section| page + &section)
}

#[test]
fn the_page_of_commands_is_what_the_program_says_of_itself() {
    let path = root().join("docs/reference/commands.md");
    let page = commands();
    if std::env::var_os("ALLOT_WRITE_PAGES").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = written.lines().zip(page.lines()).find(|(a, b)| a != b);
    assert!(
        written == page,
        "docs/reference/commands.md is not what the program says, first in {differs:?}; to write it again: \
         ALLOT_WRITE_PAGES=1 cargo test --release --locked --workspace --test book"
    );
}

/// The keys of a section of the page: the first column of its tables of keys, split where a row has several.
fn documented(heading: &str) -> BTreeSet<String> {
    let page = std::fs::read_to_string(root().join("docs/reference/config.md")).unwrap();
    let start = format!("\n## `{heading}`");
    let (_, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no section {heading}"));
    let section = rest.split("\n## ").next().unwrap();
    let (mut of_keys, mut keys) = (false, BTreeSet::new());
    for line in section.lines() {
        of_keys = line.starts_with("| Key") || (of_keys && line.starts_with('|'));
        let first = line.strip_prefix("| `").and_then(|row| row.split_once(" | "));
        if let Some((first, _)) = first.filter(|_| of_keys) {
            keys.extend(first.split("`, `").map(|key| key.trim_matches('`').to_owned()));
        }
    }
    keys
}

/// What the program says that it takes in a section, told by a key that it can't know.
fn taken(scratch: &Scratch, command: &[&str], config: &str) -> BTreeSet<String> {
    scratch.write("asked.toml", config);
    let said = scratch.allot(&[command, &["asked.toml"]].concat());
    let list =
        said.split_once("expected one of ").or_else(|| said.split_once("expected ")).map(|(_, list)| list);
    let list = list.unwrap_or_else(|| panic!("{config}\n{said}")).lines().next().unwrap();
    assert!(said.contains("unknown field `no_such_key`"), "{said}");
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_page_of_the_config_has_every_key_and_no_other() {
    let scratch = Scratch::new();
    // A section's heading on the page; the tables of a config in it, each with what its keys are called there.
    let plain = |section: &str| vec![(format!("[{section}]\nno_such_key = 1\n"), String::new())];
    let sections = [
        ("[run]", plain("run")),
        ("[budget]", plain("budget")),
        ("[advantage]", plain("advantage")),
        ("[model]", plain("model")),
        ("[sampling]", plain("sampling")),
        ("[requests]", plain("requests")),
        ("[update]", plain("update")),
        ("[optimizer]", plain("optimizer")),
        (
            "[evaluation]",
            vec![
                ("[evaluation]\nno_such_key = 1\n".into(), String::new()),
                ("[[evaluation.also]]\nno_such_key = 1\n".into(), String::new()),
            ],
        ),
        ("[checkpoint]", plain("checkpoint")),
        (
            "[[data]]",
            vec![
                ("[[data]]\nno_such_key = 1\n".into(), String::new()),
                ("[[data]]\n[data.environment]\nno_such_key = 1\n".into(), "environment.".into()),
            ],
        ),
        (
            "[policy]",
            vec![
                ("[policy]\nno_such_key = 1\n".into(), String::new()),
                ("[policy.limits]\nno_such_key = 1\n".into(), "limits.".into()),
            ],
        ),
        (
            "[reward]",
            vec![
                ("[reward]\nno_such_key = 1\n".into(), String::new()),
                ("[reward.process]\nno_such_key = 1\n".into(), "process.".into()),
                ("[reward.python]\nno_such_key = 1\n".into(), "python.".into()),
                ("[reward.functions]\nno_such_key = 1\n".into(), "functions.".into()),
                ("[reward.http]\nno_such_key = 1\n".into(), "http.".into()),
                ("[reward.component]\nno_such_key = 1\n".into(), "component.".into()),
                ("[reward.pattern]\nno_such_key = 1\n".into(), "pattern.".into()),
            ],
        ),
        (
            "[[tasks]]",
            vec![
                ("[[tasks]]\nno_such_key = 1\n".into(), String::new()),
                ("[[tasks]]\nlevels = [{ no_such_key = 1 }]\n".into(), String::new()),
            ],
        ),
        (
            "[compare]",
            vec![
                ("[compare]\nno_such_key = 1\n".into(), String::new()),
                ("[[compare.policies]]\nno_such_key = 1\n".into(), String::new()),
                ("[compare.tune]\nno_such_key = 1\n".into(), String::new()),
            ],
        ),
    ];
    let mut wrong = Vec::new();
    for (heading, tables) in sections {
        let mut keys = BTreeSet::new();
        for (config, prefix) in &tables {
            keys.extend(
                taken(&scratch, &["train", "--dry-run"], config)
                    .into_iter()
                    .map(|key| format!("{prefix}{key}")),
            );
        }
        // A table whose keys stand by themselves.
        let inner = |key: &String| tables.iter().any(|(_, prefix)| *prefix == format!("{key}."));
        keys.retain(|key| !inner(key));
        let page = documented(heading);
        wrong.extend(keys.difference(&page).map(|key| format!("{heading}: `{key}` is not on the page")));
        wrong.extend(page.difference(&keys).map(|key| format!("{heading}: `{key}` is on the page alone")));
    }
    let training = taken(&scratch, &["pretrain", "--out", "model"], "[training]\nno_such_key = 1\n");
    let page = documented("[training]");
    wrong.extend(training.symmetric_difference(&page).map(|key| format!("[training]: `{key}`")));
    for section in ["[world]", "[bank]"] {
        let keys = taken(&scratch, &["simulate"], &format!("{section}\nno_such_key = 1\n"));
        let page = documented(section);
        wrong.extend(keys.symmetric_difference(&page).map(|key| format!("{section}: `{key}`")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_glossary_has_every_section_of_a_config() {
    let glossary = std::fs::read_to_string(root().join("docs/reference/glossary.md")).unwrap();
    let first = |line: &str| line.strip_prefix("| ")?.split(" | ").next().map(str::to_lowercase);
    let words: Vec<String> = glossary.lines().filter_map(first).collect();
    let sections = taken(&Scratch::new(), &["train"], "no_such_key = 1\n");
    assert!(sections.len() > 12, "{sections:?}");
    for section in sections {
        let word = section.replace('_', " ");
        let there = |one: &String| {
            one.split(|c: char| !(c.is_alphanumeric() || c == ' ' || c == '-')).any(|part| {
                let part = part.trim();
                part == word || format!("{part}s") == word
            })
        };
        assert!(words.iter().any(there), "`{section}` is not in the glossary");
    }
}
