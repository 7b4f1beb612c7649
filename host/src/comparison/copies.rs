//! The copies of its arms' components that a comparison keeps.

use std::path::Path;

use allot_base::{Error, Result};
use allot_sandbox::sha256;
use toml::Table;

use super::Comparison;
use crate::components::{self, Copy};
use crate::planned::PlannedRun;

impl Comparison {
    /// Returns the bytes at a component's path. Fails if they are not the arm's component.
    pub(super) fn named(&self, run: &PlannedRun, bytes: Vec<u8>, source: &str) -> Result<Vec<u8>> {
        let missing =
            run.component.as_ref().filter(|copy| run.config.exists() && sha256(&bytes) != copy.sha256);
        let Some(copy) = missing else { return Ok(bytes) };
        let what = format!(
            "`{}` has no copy of the component of `{}` with sha256 {}, and `{source}` has changed since",
            self.folder.display(),
            self.arms[run.arm],
            copy.sha256
        );
        Err(Error::new(what).hint("restore the original file, or begin another comparison"))
    }

    /// Returns the comparison's copy of a run's component, or a copy in one of the arm's runs.
    pub(super) fn copy_of(&self, run: &PlannedRun) -> Result<Option<Vec<u8>>> {
        let Some(copy) = &run.component else { return Ok(None) };
        let of_arm = self.runs.iter().filter(|other| other.arm == run.arm);
        let of_runs = of_arm.map(|run| Copy { folder: run.folder.clone(), sha256: copy.sha256.clone() });
        std::iter::once(copy.clone()).chain(of_runs).find_map(|copy| copy.bytes().transpose()).transpose()
    }

    /// Stores a copy of each arm's component, if it is one of the user's own.
    pub(super) fn keep_components(&self) -> Result<()> {
        for (run, text) in self.runs.iter().zip(&self.texts).take(self.arms.len()) {
            let Some(copy) =
                run.component.as_ref().filter(|copy| copy.bytes().is_ok_and(|kept| kept.is_none()))
            else {
                continue;
            };
            let source: Table = allot_config::parse(text, "a run's config")?;
            let source =
                source.get("policy").and_then(|policy| policy.get("use")?.as_str()).unwrap_or_default();
            let bytes = match self.copy_of(run)? {
                Some(bytes) => bytes,
                None => std::fs::read(source).map_err(|e| Error::file("read", Path::new(source), &e))?,
            };
            if sha256(&bytes) == copy.sha256 {
                components::keep(&self.folder, &bytes)?;
            }
        }
        Ok(())
    }
}
