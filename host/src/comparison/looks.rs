//! The reports with p-values of a comparison, one line each in its folder. If seeds were added after a
//! report, they determine how far later p-values hold.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use allot_base::{Error, Result, lasting};
use allot_report::Report;
use allot_report::compare::{Look, before_growth};

const LOOKS: &str = "looks.jsonl";

/// Returns the looks recorded in a comparison's folder.
pub fn read(folder: &Path) -> Result<Vec<Look>> {
    let path = folder.join(LOOKS);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::file("read", &path, &e)),
    };
    let look = |(i, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|e| {
            let what = format!("`{}` line {} is not a valid entry for a report: {e}", path.display(), i + 1);
            Error::new(what).hint("restore the line, or remove it to forget that report")
        })
    };
    text.lines().enumerate().map(look).collect()
}

/// Records a look at a comparison with these planned seeds or runs, if the report has p-values over several seeds
/// and is not recorded yet. The result of one seed is never significant.
pub fn keep(folder: &Path, planned: &[u64], report: &Report) -> Result<()> {
    let costs =
        report.targets.iter().flat_map(|target| &target.rows).any(|row| row.p.is_some() && row.pairs > 1);
    if !costs && report.differences.iter().all(|row| row.p.is_none()) {
        return Ok(());
    }
    let has = |id: &u64| report.arms.iter().flat_map(|arm| &arm.runs).any(|run| run.id == *id);
    let look = Look { planned: planned.to_vec(), seen: planned.iter().copied().filter(has).collect() };
    if read(folder)?.contains(&look) {
        return Ok(());
    }
    let path = folder.join(LOOKS);
    let mut line = serde_json::to_string(&look).map_err(|e| Error::new(format!("no JSON: {e}")))?;
    line.push('\n');
    let append = || {
        let mut file = File::options().append(true).create(true).open(&path)?;
        file.write_all(line.as_bytes())?;
        file.sync_all()
    };
    append().map_err(|e| Error::file("write", &path, &e))?;
    lasting(folder)
}

/// Returns a note about the effect of these added seeds on p-values, if there were looks before.
pub fn note(folder: &Path, planned: &[u64]) -> Result<Option<String>> {
    let before = before_growth(&read(folder)?, planned);
    Ok(before.last().map(|last| {
        let (seeds, looks) = (last.seen.len(), before.len() + 1);
        format!(
            "a report was made with {seeds} seeds: after growing to {}, reports correct p-values for {looks} \
             looks, and also test the fresh seeds alone",
            planned.len()
        )
    }))
}
