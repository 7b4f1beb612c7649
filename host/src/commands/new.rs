//! `allot new`: a policy project to start from.

use std::path::{Path, PathBuf};

use clap::Args;
use include_dir::{Dir, DirEntry, include_dir};

use super::Verdict;
use crate::screen::Screen;
use crate::trouble::{Result, Trouble};

/// Start a policy of your own
#[derive(Debug, Args)]
pub struct New {
    /// Its name: lower-case letters, digits and dashes
    name: String,
    /// Where to make its folder
    #[arg(long, default_value = ".")]
    out: PathBuf,
}

/// Names that no crate can have, or that this one needs.
const TAKEN: [&str; 42] = [
    "abstract",
    "allot-policy",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "final",
    "fn",
    "for",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "match",
    "mod",
    "move",
    "mut",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "type",
    "use",
];

static TEMPLATE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../policies/templates/rust");
/// The SDK goes along, so that the project builds wherever crates can be fetched.
static SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../policies/sdk");

/// Makes it.
pub fn run(command: &New, screen: &mut Screen<'_>) -> Result<Verdict> {
    let name = &command.name;
    let fine = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !name.ends_with('-')
        && name.len() <= 40
        && !TAKEN.contains(&name.as_str());
    if !fine {
        let trouble = Trouble::new(format!("`{name}` can't be a policy's name"));
        return Err(trouble.hint("a name is lower-case letters, digits and dashes, as in `my-policy`"));
    }
    let folder = command.out.join(name);
    if folder.exists() {
        return Err(Trouble::new(format!("there is a `{}` already", folder.display())));
    }
    write(&TEMPLATE, &folder, name)?;
    write(&SDK, &folder.join("sdk"), name)?;
    screen.say(format_args!("{} is ready; its README has the three commands", folder.display()));
    Ok(Verdict::Good)
}

fn write(dir: &Dir<'_>, to: &Path, name: &str) -> Result<()> {
    std::fs::create_dir_all(to).map_err(|e| Trouble::file("make", to, &e))?;
    for entry in dir.entries() {
        let path = to.join(entry.path().file_name().unwrap_or_default());
        match entry {
            DirEntry::Dir(inner) => write(inner, &path, name)?,
            DirEntry::File(file) => {
                let text = String::from_utf8_lossy(file.contents());
                std::fs::write(&path, text.replace("{{name}}", name))
                    .map_err(|e| Trouble::file("write", &path, &e))?;
            }
        }
    }
    Ok(())
}
