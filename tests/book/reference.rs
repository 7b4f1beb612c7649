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

/// The page of the config.
const CONFIG: &str = "docs/reference/config.md";

/// Returns the section of a page whose heading begins so.
fn section(page: &str, heading: &str) -> String {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let start = format!("\n## {heading}");
    let (_, rest) = text.split_once(&start).unwrap_or_else(|| panic!("{page} has no section {heading}"));
    rest.split("\n## ").next().unwrap().to_owned()
}

/// Returns the keys of a section of the page of the config.
fn documented(heading: &str) -> BTreeSet<String> {
    keys(&section(CONFIG, &format!("`{heading}`")))
}

/// Returns the first column of a section's tables of keys, split where a row has several.
fn keys(section: &str) -> BTreeSet<String> {
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

/// A config with as little as a run needs.
const SMALLEST: &str = r#"
run = { seed = 1, steps = 1, groups = 2, rollouts = 4 }
budget = { rollouts = 20 }
policy = { use = "uniform" }
model = { use = "tiny-sums" }
sampling = { max_tokens = 8 }
reward = { grader = "exact" }
evaluation = { problems = 3 }
checkpoint = {}

[[tasks]]
kind = "sums"
style = "terse"
count = 50
held_out = 0.2
levels = [{ digits = 2 }]
"#;

/// The page's defaults of a section, by key: those that are a number, a word in quotes, true or false.
fn defaults(heading: &str) -> Vec<(String, toml::Value)> {
    let section = section(CONFIG, &format!("`{heading}`"));
    let mut all = Vec::new();
    for row in section.lines().filter_map(|line| line.strip_prefix("| `")) {
        let mut cells = row.split(" | ");
        let (Some(keys), Some(values)) = (cells.next(), cells.next()) else { continue };
        let keys: Vec<&str> = keys.split("`, `").map(|key| key.trim_matches('`')).collect();
        let split: Vec<&str> = values.split(", ").collect();
        let values = if split.len() == keys.len() { split } else { vec![values; keys.len()] };
        for (key, value) in keys.into_iter().zip(values) {
            let plain = value.trim_matches('`').replace(',', "");
            let read =
                format!("x = {plain}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("x"));
            all.extend(read.filter(|value| !value.is_table()).map(|value| (key.to_owned(), value)));
        }
    }
    all
}

#[test]
fn defaults_on_the_page_are_those_of_a_run() {
    let scratch = Scratch::new();
    scratch.write("run.toml", SMALLEST);
    let said = scratch.allot(&["train", "run.toml", "--out", "run"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let resolved: toml::Table = scratch.read("run/resolved.toml").parse().unwrap();
    let given: toml::Table = SMALLEST.parse().unwrap();
    let number = |value: &toml::Value| value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    let (mut held, mut wrong) = (0, Vec::new());
    for (section, run) in resolved.iter().filter_map(|(name, value)| Some((name, value.as_table()?))) {
        for (key, page) in defaults(&format!("[{section}]")) {
            if given.get(section).and_then(|table| table.get(&key)).is_some() {
                continue;
            }
            let Some(run) = run.get(&key) else { continue };
            held += 1;
            if *run != page && (number(run).is_none() || number(run) != number(&page)) {
                wrong.push(format!("`{section}.{key}` is {run} in a run, and {page} on the page"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(held > 25, "{held}");
}

/// Names of the contract: its records, flags, variants, enums, their fields and cases, and its functions.
fn names_of_the_contract(path: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let mut names = BTreeSet::new();
    for line in lines {
        let words: Vec<&str> = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).collect();
        match words[..] {
            [] | ["package" | "interface" | "world" | "use" | "import" | "export" | "type" | "", ..] => {}
            ["record" | "variant" | "enum" | "flags", name, ..] | [name, ..] => {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

#[test]
fn the_page_of_the_contract_names_all_of_it() {
    let names = names_of_the_contract("wit/0.3/allocation.wit");
    assert!(names.len() > 100, "{names:?}");
    let table = section("docs/reference/contract.md", "Every name\n");
    let missing: Vec<&String> = names.iter().filter(|name| !table.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "the table of docs/reference/contract.md lacks {missing:?}");
    let known = |name: &&str| names.contains(*name) || ["types", "log", "facts", "allocator"].contains(name);
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let gone: Vec<&str> =
        rows.flat_map(|row| row.split('`').skip(1).step_by(2)).filter(|n| !known(n)).collect();
    assert!(gone.is_empty(), "the contract has no {gone:?}");
}

#[test]
fn the_page_of_graders_has_every_grader() {
    let scratch = Scratch::new();
    scratch.write("run.toml", SMALLEST.replace("\"exact\"", "\"no-such-grader\""));
    let said = scratch.allot(&["train", "run.toml", "--dry-run"]);
    let (_, list) = said.split_once("expected one of ").unwrap_or_else(|| panic!("{said}"));
    let names: Vec<&str> = list.lines().next().unwrap().split('`').skip(1).step_by(2).collect();
    assert!(names.len() > 15, "{names:?}");
    let page = std::fs::read_to_string(root().join("docs/reference/rewards.md")).unwrap();
    for name in names {
        assert!(page.contains(&format!("\n| `{name}`")), "docs/reference/rewards.md has no row for `{name}`");
    }
}

#[test]
fn the_readme_counts_the_families_that_the_page_of_models_has() {
    let page = std::fs::read_to_string(root().join("docs/reference/config.md")).unwrap();
    let (_, models) = page.split_once("\nModel families, by the `model_type`").unwrap();
    let rows = models
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2);
    let names = |row: &str| row.split(" | ").next().map_or(0, |first| first.matches('`').count() / 2);
    let families: usize = rows.map(names).sum();
    let numbers = ["nine", "ten", "eleven", "twelve", "thirteen", "fourteen"];
    let word = numbers.get(families - 9).unwrap_or_else(|| panic!("{families} families"));
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains(&format!("[{word} families]")), "README does not say {word}");
}

#[test]
fn the_page_about_servers_has_every_key_of_their_sections() {
    let scratch = Scratch::new();
    let sections = [
        ("A server that speaks the Tinker protocol\n", "[engine]\nuse = \"tinker\"\nno_such_key = 1\n"),
        ("Rollouts on SGLang or vLLM\n", "[rollout_server]\nno_such_key = 1\n"),
    ];
    for (heading, config) in sections {
        let documented = keys(&section("docs/how-to/scaling.md", heading));
        assert_eq!(documented, taken(&scratch, &["train", "--dry-run"], config), "{heading}");
    }
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
    // The first name in backticks of each row that begins with one.
    let row = |line: &str| line.strip_prefix("| `")?.split('`').next().map(str::to_owned);
    let named = |lines: &str| lines.lines().filter_map(row).collect::<BTreeSet<_>>();
    let page = std::fs::read_to_string(root().join("docs/reference/policies.md")).unwrap();
    let (policies, evidence) = page.split_once("\n## Evidence").unwrap();
    assert_eq!(named(policies), shipped);
    assert_eq!(named(evidence), shipped);
}
