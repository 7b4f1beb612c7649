//! A scratch folder with the real program in it.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where compiled components are kept. All tests share it, as a user's runs do.
pub fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache")
}

/// A folder that goes away with the test.
pub struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path().join(name), bytes).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap()
    }

    /// Puts a shipped model into the folder `mine`, as a chat model: with a template that writes each message as it is.
    pub fn chat_model(&self, name: &str) {
        let mine = self.path().join("mine");
        std::fs::create_dir_all(&mine).unwrap();
        for entry in std::fs::read_dir(allot_models::find(name).unwrap()).unwrap().map(Result::unwrap) {
            std::fs::copy(entry.path(), mine.join(entry.file_name())).unwrap();
        }
        let template = "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}<end>{% endif %}{% endfor %}";
        self.write("mine/chat_template.jinja", template);
    }

    /// The program, not yet started.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
        command.args(args).current_dir(self.path()).env("ALLOT_CACHE", cache());
        command
    }

    /// Starts the program without reading its output.
    pub fn started(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Starts a command that goes on with what it began, and kills it after so many milliseconds, each time a quarter longer, until
    /// it comes to its end. Returns how often it was killed. A constant step would take the square of a machine's slowness.
    pub fn killed_until_it_ends(&self, args: &[&str], mut millis: u64) -> u32 {
        for kills in 0.. {
            let mut child = self.started(args);
            let until = Instant::now() + Duration::from_millis(millis);
            while Instant::now() < until && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(10));
            }
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return kills;
            }
            // What it started finds out by the end of its input, and saves.
            child.kill().unwrap();
            child.wait().unwrap();
            millis += millis / 4;
        }
        unreachable!("it never came to its end")
    }

    /// What the program prints: standard output, then standard error, then the exit code.
    pub fn allot(&self, args: &[&str]) -> String {
        let done = self.command(args).output().unwrap();
        // That it takes a while to load is said where it does: that hangs on the machine and what it did before.
        let waits = |line: &&str| !line.starts_with("compiling `");
        let text = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            text.split_inclusive('\n').filter(waits).collect::<String>().trim_end().to_owned()
        };
        let parts = [
            text(&done.stdout),
            text(&done.stderr),
            format!("exit code {}", done.status.code().unwrap_or(-1)),
        ];
        hide_hashes(&parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join("\n"))
    }
}

/// Hashes change with every build of a component; what is said around them does not.
fn hide_hashes(text: &str) -> String {
    // A letter tells a hash from a long number.
    let letter = |w: &str| w.chars().any(|c| c.is_ascii_lowercase());
    let hash = |w: &str| {
        w.len() >= 12 && letter(w) && w.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
    };
    let words = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
    words
        .map(|word| {
            let bare = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            if hash(bare) { word.replace(bare, "HASH") } else { word.to_owned() }
        })
        .collect()
}

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The component of a guest in `tests/guests`: the frame with the guest's `decide` in it.
pub fn guest(name: &str) -> Vec<u8> {
    allot_authoring::component::of_module(guest_text(name).as_bytes(), name).unwrap()
}

/// The text of its module.
pub fn guest_text(name: &str) -> String {
    let read = |name: &str| std::fs::read_to_string(root().join("tests/guests").join(name)).unwrap();
    read("frame.wat").replace(";; DECIDE", &read(&format!("{name}.wat")))
}

/// The component of a guest of contract 0.2, with this in its `describe`.
pub fn guest_0_2(name: &str, describe: &str) -> Vec<u8> {
    guest_0_2_but(name, describe, &[])
}

/// The same where some lines, each marked by a word at its end, store another number.
pub fn guest_0_2_but(name: &str, describe: &str, numbers: &[(&str, u32)]) -> Vec<u8> {
    let read = |name: &str| std::fs::read_to_string(root().join("tests/guests/0.2").join(name)).unwrap();
    let text = read("frame.wat").replace(";; DECIDE", &read(&format!("{name}.wat")));
    let mut text = text.replace(";; DESCRIBE", describe);
    for (word, number) in numbers {
        let mark = format!(")) ;; {word}\n");
        let end = text.find(&mark).unwrap();
        let start = text[..end].rfind(' ').unwrap() + 1;
        text.replace_range(start..end, &number.to_string());
    }
    allot_authoring::component::of_module(text.as_bytes(), name).unwrap()
}

/// A component whose text is in `tests/guests`.
pub fn component(name: &str) -> Vec<u8> {
    wat::parse_file(root().join("tests/guests").join(format!("{name}.wat"))).unwrap()
}
