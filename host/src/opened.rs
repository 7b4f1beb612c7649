//! A config that is opened, with a word about what it lies over.

use std::path::Path;

use allot_base::Result;
use allot_config::Tree;

use crate::screen::Screen;

/// Reads a config with what was typed on top of it, and names its bases.
pub fn config(path: &Path, overrides: &[String], screen: &mut Screen<'_>) -> Result<Tree> {
    let tree = allot_config::open(path, overrides)?;
    if let Some(words) = tree.based_on() {
        screen.tell(format_args!("note: {words}"));
    }
    Ok(tree)
}
