//! `docs/how-to/writing-a-policy.md`: every command under `## In LANGUAGE` works as it stands, in the order of the page, in
//! one folder for each language. After `<!-- install -->` comes what the tests' tools are installed by already.
//! What stands elsewhere on the page is run with all other pages, by `pages.rs`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use allot_authoring::language::Language;

use crate::{scratch, tools};

/// A block of commands.
pub struct Block {
    /// The heading above it, of the second level.
    pub heading: String,
    /// The comment in the line before, without its marks.
    pub mark: String,
    /// The commands.
    pub text: String,
}

/// The page's blocks of commands.
fn page() -> Vec<Block> {
    blocks(&fs::read_to_string(scratch::root().join("docs/how-to/writing-a-policy.md")).unwrap())
}

/// The blocks of commands of a page.
pub fn blocks(text: &str) -> Vec<Block> {
    let (mut heading, mut mark, mut blocks) = (String::new(), String::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut heading);
        }
        // Within a list, a block is indented, and so are its lines.
        let indent = line.len() - line.trim_start().len();
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            let inside = lines.by_ref().take_while(|line| line.trim_start() != "```");
            let text: String =
                inside.flat_map(|line| [line.get(indent..).unwrap_or_default(), "\n"]).collect();
            if kind == "sh" {
                blocks.push(Block { heading: heading.clone(), mark: mark.clone(), text });
            }
        }
        let comment = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        comment.unwrap_or_default().clone_into(&mut mark);
    }
    blocks
}

pub fn heading(language: Language) -> &'static str {
    match language {
        Language::Rust => "In Rust",
        Language::Python => "In Python",
        Language::Js => "In JavaScript",
        Language::C => "In C",
        Language::Go => "In Go",
    }
}

/// What configs are shortened by, so that runs take seconds: the commands stay as they are printed.
const SHORTER: [(&str, &str, &str); 13] = [
    ("quickstart.toml", "rollouts = 16_000", "rollouts = 4_000"),
    ("quickstart.toml", "every = 5\n", "every = 1\n"),
    ("quickstart.toml", "problems = 1000", "problems = 20"),
    ("compare-quickstart.toml", "rollouts = 16_000", "rollouts = 3_000"),
    ("compare-quickstart.toml", "seeds = 10", "seeds = 2"),
    ("compare-quickstart.toml", "problems = 1000", "problems = 50"),
    ("compare-tiny.toml", "rollouts = 8_000", "rollouts = 800"),
    ("compare-tiny.toml", "seeds = 5", "seeds = 2"),
    ("compare-tiny.toml", "trials = 9", "trials = 2"),
    ("compare-tiny.toml", "problems = 1000", "problems = 50"),
    ("simulate.toml", "rollouts = 100_000", "rollouts = 20_000"),
    (FAIR, "seeds = 10", "seeds = 2"),
    (FAIR, "trials = 9", "trials = 2"),
];

/// The config that a page writes itself.
pub const FAIR: &str = "fair.toml";

/// A folder in which pages' commands find what they name.
pub struct Checkout {
    /// The folder.
    pub folder: PathBuf,
    /// The search path for programs there.
    path: std::ffi::OsString,
    _lock: File,
}

impl Checkout {
    /// Always the same folder, one user at a time: in another cargo would build Rust's own library anew.
    pub fn new(of: &str) -> Self {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("languages");
        fs::create_dir_all(&home).unwrap();
        let lock = File::create(home.join(format!("page-{of}.lock"))).unwrap();
        lock.lock().unwrap();
        let folder = home.join(format!("page-{of}"));
        let _ = fs::remove_dir_all(&folder);

        let (bin, configs) = (folder.join("bin"), folder.join("configs"));
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir(&configs).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_allot"), bin.join("allot")).unwrap();
        for entry in fs::read_dir(scratch::root().join("configs")).unwrap() {
            let path = entry.unwrap().path();
            // A folder there has what pages of results are made with, which are not run here.
            if path.is_file() {
                fs::copy(&path, configs.join(path.file_name().unwrap())).unwrap();
            }
        }
        let names: BTreeSet<&str> = SHORTER.iter().map(|(name, ..)| *name).collect();
        for name in names.into_iter().filter(|name| *name != FAIR) {
            shorten(&configs.join(name), name);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&path))).unwrap();
        Self { folder, path, _lock: lock }
    }

    /// Runs commands, which must succeed; `place` is where they stand.
    pub fn run(&self, place: &str, text: &str) {
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", text]).current_dir(&self.folder).env("PATH", &self.path);
        // An interpreter's functions are compiled by one of the tests, and found by the others.
        bash.env("ALLOT_CACHE", scratch::cache()).env("CARGO_TARGET_DIR", tools::cargo_target());
        let begun = Instant::now();
        let done = bash.stdin(Stdio::null()).output().unwrap();
        // `--nocapture` shows where the time of these tests goes.
        println!(
            "{:6.1} s  {place}: {}",
            begun.elapsed().as_secs_f64(),
            text.lines().next().unwrap_or_default()
        );
        let said =
            [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(done.status.success(), "{place}:\n{text}\n{said}");
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Shortens a config as [`SHORTER`] has it for the one of this name.
pub fn shorten(path: &Path, name: &str) {
    let mut text = fs::read_to_string(path).unwrap();
    for (_, long, short) in SHORTER.iter().filter(|(of, ..)| *of == name) {
        assert!(text.contains(long), "`{long}` is not in {name} any more");
        text = text.replacen(long, short, 1);
    }
    fs::write(path, text).unwrap();
}

fn every_command_works(language: Language) {
    let blocks: Vec<Block> = page().into_iter().filter(|block| block.heading == heading(language)).collect();
    assert!(blocks.len() > 2, "`{}` has {} blocks", heading(language), blocks.len());
    if tools::missing(language) {
        return;
    }
    let checkout = Checkout::new(crate::name(language));
    for block in blocks.iter().filter(|block| block.mark != "install") {
        assert_eq!(block.mark, "", "{}", block.text);
        checkout.run(&format!("under `{}`", block.heading), &block.text);
    }
    assert!(checkout.folder.join("rookie-compared/report/index.html").is_file());
}

in_each_language!(every_command_works);

#[test]
fn every_command_in_rust_works() {
    every_command_works(Language::Rust);
}

#[test]
fn what_the_page_installs_is_what_the_tests_use() {
    let page = page();
    let pinned = fs::read_to_string(scratch::root().join(".ci/toolchains")).unwrap();
    let installs: Vec<&Block> = page.iter().filter(|block| block.mark == "install").collect();
    assert_eq!(installs.len(), 5);
    // `package==1.2.3` of pip, `package@1.2.3` of npm.
    let version = |word: &&str| {
        let number = word.rsplit_once("==").or_else(|| word.rsplit_once('@')).map(|(_, number)| number);
        number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
    };
    let words = installs.iter().flat_map(|block| block.text.split_whitespace()).filter(version);
    let words: Vec<&str> = words.collect();
    assert!(words.len() >= 5, "{words:?}");
    for word in words {
        assert!(pinned.contains(word), "`{word}` is not in .ci/toolchains");
    }
}
