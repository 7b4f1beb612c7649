//! `allot new`: a policy project to start from.

use std::path::{Path, PathBuf};

use clap::Args;
use include_dir::{Dir, DirEntry, include_dir};

use super::{Screen, Verdict};
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

static TEMPLATE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../policies/templates/rust");
/// The SDK goes along, so that the project builds wherever crates can be fetched.
static SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../policies/sdk");

/// Makes it.
pub fn run(command: &New, screen: &mut Screen<'_>) -> Result<Verdict> {
    let name = &command.name;
    let fine = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !name.ends_with('-')
        && name.len() <= 40;
    if !fine {
        let trouble = Trouble::new(format!("`{name}` can't be a policy's name"));
        return Err(trouble.hint("a name is lower-case letters, digits and dashes, as in `my-policy`"));
    }
    let folder = command.out.join(name);
    if folder.exists() {
        return Err(Trouble::new(format!("there is a `{}` already", folder.display())));
    }
    let words = [("{{name}}", name.clone()), ("{{snake}}", name.replace('-', "_")), ("{{Type}}", camel(name))];
    write(&TEMPLATE, &folder, &words)?;
    write(&SDK, &folder.join("sdk"), &[])?;
    screen.say(format_args!("{} is ready; its README has the three commands", folder.display()));
    Ok(Verdict::Good)
}

fn write(dir: &Dir<'_>, to: &Path, words: &[(&str, String)]) -> Result<()> {
    std::fs::create_dir_all(to).map_err(|e| Trouble::file("make", to, &e))?;
    for entry in dir.entries() {
        let name = entry.path().file_name().unwrap_or_default();
        let path = to.join(name);
        match entry {
            DirEntry::Dir(inner) => write(inner, &path, words)?,
            DirEntry::File(file) => {
                let text = String::from_utf8_lossy(file.contents());
                let text = words.iter().fold(text.into_owned(), |text, (from, to)| text.replace(from, to));
                std::fs::write(&path, text).map_err(|e| Trouble::file("write", &path, &e))?;
            }
        }
    }
    Ok(())
}

fn camel(name: &str) -> String {
    let word = |w: &str| w[..1].to_uppercase() + &w[1..];
    name.split('-').filter(|w| !w.is_empty()).map(word).collect()
}
