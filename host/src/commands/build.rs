//! `allot build`: builds components of projects and modules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use allot_authoring::draft::{self, Draft};
use allot_authoring::{build, component, fixtures};
use allot_base::{Error, Exit, Result};
use allot_sandbox::{Caps, Fault};
use clap::Args;

use crate::loaded::{self, Loaded};
use crate::policy_loader;
use crate::screen::Screen;
use crate::shipped::{Entry, Manifest};

/// Build a component from a project of a policy or a grader, in any of its languages, or from a core Wasm module
#[derive(Debug, Args)]
pub struct Build {
    /// A project's folder, a core module, or a module's text; several with --into
    #[arg(required = true)]
    what: Vec<PathBuf>,
    /// The component's file [default: NAME.wasm here, NAME as it calls itself]
    #[arg(short, long, conflicts_with = "into")]
    out: Option<PathBuf>,
    /// Build several Rust crates into this folder, with a manifest beside them
    #[arg(long)]
    into: Option<PathBuf>,
}

/// Prompts in the data set of the run in which a policy is tried before it is built.
const PROMPTS: u32 = 1000;

/// Builds the components.
pub fn run(command: &Build, screen: &mut Screen<'_>) -> Result<Exit> {
    match &command.into {
        Some(folder) => many(&command.what, folder, screen)?,
        None if command.what.len() > 1 => {
            return Err(Error::new("several components need a folder").hint("give one with --into"));
        }
        None => {
            let (bytes, _) = one(&command.what[0], screen)?;
            let built = described(&bytes, &command.what[0], screen)?;
            let name = || PathBuf::from(format!("{}.wasm", built.about().name));
            let out = command.out.clone().unwrap_or_else(name);
            std::fs::write(&out, &bytes).map_err(|e| Error::file("write", &out, &e))?;
            say(&built, &out, screen);
        }
    }
    Ok(Exit::Good)
}

fn one(what: &Path, screen: &mut Screen<'_>) -> Result<(Vec<u8>, String)> {
    if what.is_dir() {
        try_out(what)?;
        let built = build::project(what, &mut |line| screen.tell(line))?;
        return Ok((built.component, built.toolchain));
    }
    let bytes = std::fs::read(what).map_err(|e| Error::file("read", what, &e))?;
    Ok((component::of_module(&bytes, &what.display().to_string())?, String::new()))
}

/// Runs a policy in Python once as a draft: imports it, describes it and lets it decide on one view. That
/// takes 0.1 s, while the build takes half a minute to report the same mistakes.
fn try_out(folder: &Path) -> Result<()> {
    let source = folder.display().to_string();
    if !draft::is_one(folder) {
        return Ok(());
    }
    // Without a Python for drafts, or with an old SDK, only the build can find mistakes.
    let Ok(draft) = Draft::of(folder) else { return Ok(()) };
    let policy = policy_loader::of_draft(draft, &source, Caps::default())?;
    let description = policy.description();
    let settings = allot_config::settings(description, &BTreeMap::new())?;
    let run = policy.shown_too(fixtures::run(settings, &description.columns, PROMPTS));
    let views = fixtures::views(description.signals.len(), 0);
    let fresh = views.first().expect("the first view is that of a fresh step");
    let decided = policy.begin(&run).and_then(|(state, _)| policy.decide(&run, &state, &fresh.view));
    match decided {
        // A policy may reject this run.
        Ok(_) | Err(Fault::Refused(_)) => Ok(()),
        Err(fault) => {
            let what =
                format!("`{source}` failed on {}, in the trial before the build: {fault}", fresh.title);
            Err(Error::told(what, fault.hint()))
        }
    }
}

fn many(crates: &[PathBuf], folder: &Path, screen: &mut Screen<'_>) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| Error::file("make", folder, &e))?;
    let mut manifest = Manifest { components: Vec::new() };
    for what in crates {
        let (bytes, toolchain) = one(what, screen)?;
        let built = described(&bytes, what, screen)?;
        let name = built.about().name.to_owned();
        let out = folder.join(format!("{name}.wasm"));
        std::fs::write(&out, &bytes).map_err(|e| Error::file("write", &out, &e))?;
        let sources = build::sources_hash(what)?;
        manifest.components.push(Entry { name, sha256: built.about().sha256.to_owned(), sources, toolchain });
        say(&built, &out, screen);
    }
    manifest.components.sort_by(|a, b| a.name.cmp(&b.name));
    let path = folder.join("manifest.json");
    let mut text = serde_json::to_string_pretty(&manifest)
        .map_err(|e| Error::new(format!("could not write the manifest: {e}")))?;
    text.push('\n');
    std::fs::write(&path, text).map_err(|e| Error::file("write", &path, &e))
}

fn described(bytes: &[u8], what: &Path, screen: &mut Screen<'_>) -> Result<Loaded> {
    let sandbox = policy_loader::sandbox(Caps::default())?;
    Loaded::of(&sandbox, bytes, &what.display().to_string(), screen).map_err(|e| {
        let kind = allot_sandbox::kind_of(bytes).unwrap_or_default();
        let what = format!("`{}` was built, but is not a valid {}: {e}", what.display(), kind.noun());
        Error::told(what, loaded::hint(kind, &e))
    })
}

fn say(built: &Loaded, out: &Path, screen: &mut Screen<'_>) {
    let d = built.about();
    screen.say(format_args!(
        "{}  {} {}  {} bytes  sha256 {}",
        out.display(),
        d.name,
        d.version,
        d.size,
        d.sha256
    ));
}
