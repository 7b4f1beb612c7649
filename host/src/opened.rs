//! Opens a config, with notes about its bases.

use std::path::Path;

use allot_base::Result;
use allot_config::Tree;

use crate::screen::Screen;

/// Reads a config with overrides from the command line, and notes its bases and what was left out of them.
pub fn config(path: &Path, overrides: &[String], screen: &mut Screen<'_>) -> Result<Tree> {
    let tree = allot_config::open(path, overrides)?;
    for words in tree.notes() {
        screen.tell(format_args!("note: {words}"));
    }
    Ok(tree)
}
