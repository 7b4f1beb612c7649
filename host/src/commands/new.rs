//! `allot new`: creates a project of a policy or a grader.

use std::path::PathBuf;

use allot_authoring::copy;
use allot_authoring::language::Language;
use allot_base::{Error, Exit, Result};
use allot_component::Kind;
use clap::{Args, ValueEnum};

use crate::screen::Screen;

/// Create a project of a policy or a grader
#[derive(Debug, Args)]
pub struct New {
    /// The project's name: lower-case letters, digits and dashes
    name: String,
    /// What to create
    #[arg(long, value_enum, default_value_t = What::Policy)]
    kind: What,
    /// The language to write it in [default: rust]
    #[arg(long, value_enum)]
    lang: Option<Language>,
    /// Start from the source of a shipped policy, in Rust: `allot policies` lists them
    #[arg(long, value_name = "POLICY")]
    like: Option<String>,
    /// Create the project in this folder
    #[arg(long, default_value = ".")]
    out: PathBuf,
}

/// What a project is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// A policy, which allocates rollouts
    Policy,
    /// A grader, which judges answers
    Grader,
}

/// Names that a crate can't have, or that the project's crate itself needs.
const TAKEN: [&str; 44] = [
    "abstract",
    "allot-grader",
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
    "libm",
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

/// Creates the project.
pub fn run(command: &New, screen: &mut Screen<'_>) -> Result<Exit> {
    let name = &command.name;
    let kind = match command.kind {
        What::Policy => Kind::Policy,
        What::Grader => Kind::Grader,
    };
    let fine = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !name.ends_with('-')
        && name.len() <= 40
        && !TAKEN.contains(&name.as_str());
    if !fine {
        let error = Error::new(format!("`{name}` is not a valid {} name", kind.noun()));
        return Err(error.hint("use lower-case letters, digits and dashes, as in `my-policy`"));
    }
    let folder = command.out.join(name);
    if folder.exists() {
        return Err(Error::new(format!("`{}` already exists", folder.display())));
    }
    let Some(like) = &command.like else {
        command.lang.unwrap_or(Language::Rust).start(kind, name, &folder)?;
        screen.say(format_args!("{} is ready; its README has the commands", folder.display()));
        return Ok(Exit::Good);
    };
    command.can_copy()?;
    let version = copy::start(like, name, &folder)?;
    let folder = folder.display();
    screen.say(format_args!("{folder} is ready, a copy of `{like}` {version}; its README has the commands"));
    Ok(Exit::Good)
}

impl New {
    /// Checks that the other options are compatible with `--like`.
    fn can_copy(&self) -> Result<()> {
        if self.kind == What::Grader {
            let error = Error::new("`--like` copies a policy, and `--kind grader` starts a grader");
            return Err(error.hint("leave out one of the two"));
        }
        match self.lang.filter(|lang| *lang != Language::Rust).and_then(|lang| lang.to_possible_value()) {
            None => Ok(()),
            Some(lang) => {
                let lang = lang.get_name();
                let what =
                    format!("`--like` copies source in Rust, and `--lang {lang}` asks for another language");
                Err(Error::new(what).hint(format!(
                    "leave out `--lang`; or leave out `--like` to start from the template for {lang}"
                )))
            }
        }
    }
}
