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

/// Returns a section of `docs/reference/config.md`, given the start of its heading.
fn section(heading: &str) -> String {
    let page = std::fs::read_to_string(root().join("docs/reference/config.md")).unwrap();
    let start = format!("\n## `{heading}`");
    let (_, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no section {heading}"));
    rest.split("\n## ").next().unwrap().to_owned()
}

/// Returns the rows of the tables of keys in a section: the keys, split where a row has several, and the next cell.
fn rows(section: &str) -> Vec<(Vec<String>, String)> {
    let (mut of_keys, mut rows) = (false, Vec::new());
    for line in section.lines() {
        of_keys = line.starts_with("| Key") || (of_keys && line.starts_with('|'));
        let first = line.strip_prefix("| `").and_then(|row| row.split_once(" | "));
        if let Some((first, rest)) = first.filter(|_| of_keys) {
            let keys = first.split("`, `").map(|key| key.trim_matches('`').to_owned()).collect();
            rows.push((keys, rest.split(" | ").next().unwrap_or_default().to_owned()));
        }
    }
    rows
}

/// Returns the keys of a section of the page.
fn documented(heading: &str) -> BTreeSet<String> {
    rows(&section(heading)).into_iter().flat_map(|(keys, _)| keys).collect()
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

#[test]
fn the_page_of_the_config_has_the_defaults_of_a_run() {
    let scratch = Scratch::new();
    let config = r#"
        run = { seed = 1, steps = 1, groups = 2, rollouts = 4 }
        budget = { rollouts = 100 }
        policy = { use = "uniform" }
        model = { use = "tiny-sums" }
        sampling = { max_tokens = 8 }
        reward = { grader = "exact" }
        tasks = [{ kind = "sums", style = "terse", count = 100, held_out = 0.2, levels = [{ digits = 2 }] }]
    "#;
    scratch.write("run.toml", config);
    let said = scratch.allot(&["train", "run.toml", "--out", "run"]);
    let resolved: toml::Table =
        toml::from_str(&scratch.read("run/resolved.toml")).unwrap_or_else(|error| panic!("{error}\n{said}"));
    let number = |value: &toml::Value| value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    let literal = |cell: &str| {
        let text = format!("v = {}", cell.trim_matches('`'));
        toml::from_str::<toml::Table>(&text).ok().and_then(|mut table| table.remove("v"))
    };
    let (mut compared, mut wrong) = (0, Vec::new());
    let sections = ["run", "budget", "advantage", "model", "sampling", "update", "optimizer", "reward"];
    for name in sections.into_iter().chain(["evaluation", "checkpoint"]) {
        for (keys, cell) in rows(&section(&format!("[{name}]"))) {
            let cells: Vec<&str> =
                if keys.len() > 1 { cell.split(", ").collect() } else { vec![cell.as_str()] };
            for (key, cell) in keys.iter().zip(cells) {
                // The shipped model takes no answer of 256 tokens.
                let is_set = name == "sampling" && key == "max_tokens";
                let there = resolved.get(name).and_then(|table| table.get(key.as_str())).filter(|_| !is_set);
                let (Some(there), Some(documented)) = (there, literal(cell)) else { continue };
                let same = match (number(there), number(&documented)) {
                    (Some(a), Some(b)) => a.total_cmp(&b).is_eq(),
                    // A table of which the page has the first key alone.
                    _ => *there == documented || there.is_table(),
                };
                compared += 1;
                if !same {
                    wrong.push(format!("[{name}] `{key}`: {documented} on the page, {there} in a run"));
                }
            }
        }
    }
    assert!(compared > 30, "{compared}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_page_about_servers_has_every_key_of_their_sections() {
    let scratch = Scratch::new();
    let page = std::fs::read_to_string(root().join("docs/how-to/scaling.md")).unwrap();
    let sections = [
        ("A server that speaks the Tinker protocol", "[engine]\nuse = \"tinker\"\nno_such_key = 1\n"),
        ("Rollouts on SGLang or vLLM", "[rollout_server]\nno_such_key = 1\n"),
    ];
    for (heading, config) in sections {
        let start = format!("\n## {heading}\n");
        let (_, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no section {heading}"));
        let keys = rows(rest.split("\n## ").next().unwrap()).into_iter().flat_map(|(keys, _)| keys);
        assert_eq!(
            keys.collect::<BTreeSet<_>>(),
            taken(&scratch, &["train", "--dry-run"], config),
            "{heading}"
        );
    }
}

/// Returns the first name in backticks of each row that begins with one.
fn named(lines: &str) -> BTreeSet<String> {
    let row = |line: &str| line.strip_prefix("| `")?.split('`').next().map(str::to_owned);
    lines.lines().filter_map(row).collect()
}

#[test]
fn the_page_of_rewards_has_every_grader() {
    let scratch = Scratch::new();
    scratch.write("asked.toml", "[reward]\ngrader = \"no_such_grader\"\n");
    let said = scratch.allot(&["train", "--dry-run", "asked.toml"]);
    let (_, list) = said.split_once("expected one of ").unwrap_or_else(|| panic!("{said}"));
    let known: BTreeSet<String> =
        list.lines().next().unwrap().split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let page = std::fs::read_to_string(root().join("docs/reference/rewards.md")).unwrap();
    let (_, table) = page.split_once("\n| `grader` |").unwrap();
    assert_eq!(named(table.split("\n\n").next().unwrap()), known);
}

#[test]
fn the_page_of_policies_has_each_that_ships_and_what_is_known_of_it() {
    let said = Scratch::new().allot(&["policies"]);
    // A policy's line has its name and its version; its settings are indented.
    let policy = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        let version = rest.split(' ').next()?;
        let is_version = version.contains('.') && version.chars().all(|c| c.is_ascii_digit() || c == '.');
        (!name.is_empty() && is_version).then(|| name.to_owned())
    };
    let shipped: BTreeSet<String> = said.lines().filter_map(policy).collect();
    assert!(shipped.len() > 10, "{said}");
    let page = std::fs::read_to_string(root().join("docs/reference/policies.md")).unwrap();
    let (policies, evidence) = page.split_once("\n## Evidence").unwrap();
    assert_eq!(named(policies), shipped);
    assert_eq!(named(evidence), shipped);
}
