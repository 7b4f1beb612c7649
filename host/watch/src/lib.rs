//! A live view of runs in a terminal: curves, waste, rates and time left.
//!
//! It reads only `record.jsonl` and `times.jsonl` in the runs' folders. It needs no access to their
//! processes, and a run does not know that it is watched.
//!
//! ```
//! let folder = std::env::temp_dir().join("no runs are here");
//! assert!(allot_watch::once(&[folder], (80, 24)).is_err());
//! ```

pub mod chart;
pub mod live;
pub mod observer;
pub mod pace;
pub mod scene;
pub mod style;
pub mod table;
pub mod view;

use std::path::PathBuf;

use allot_base::{Error, Result};
use observer::Observer;
use style::Style;
use view::Size;

/// Returns one view of the runs, as plain text.
pub fn once(places: &[PathBuf], size: Size) -> Result<String> {
    let scene = Observer::at(places)?.scene();
    match scene.empty.first() {
        Some(empty) if scene.runs.is_empty() => Err(Error::new(empty.words())
            .hint("give a run's folder, or a folder with runs somewhere in it, four levels deep at most")),
        _ => Ok(view::plain(&scene, Style::here(), size)),
    }
}
