//! The calls of a recorded run: views and plans.

use std::path::PathBuf;

use allot_record::{Asked, Line, Reader, Views};
use pyo3::prelude::*;
use pythonize::pythonize;

use crate::exception::{Exception, Result};

/// Reads a record from its file or the run's folder. Returns its head and a list of (view, plan).
#[pyfunction]
pub fn calls(py: Python<'_>, record: PathBuf) -> PyResult<Py<PyAny>> {
    let (head, asked) = py.detach(|| read(&record))?;
    let asked: Vec<_> = asked.iter().map(|asked| (&asked.view, &asked.plan)).collect();
    Ok(pythonize(py, &(head, asked))?.unbind())
}

fn read(record: &std::path::Path) -> Result<(allot_record::Head, Vec<Asked>)> {
    let (reader, head) = Reader::open(record)?;
    let mut views = Views::new(&head)?;
    let mut all = Vec::new();
    for line in reader {
        let line = line?;
        if let Line::Swap(swap) = &line {
            let what = format!("another policy takes over in step {} of the record", swap.step);
            return Err(Exception::new(what).hint("`allot replay` asks such a record again"));
        }
        all.extend(views.take(&line)?);
    }
    Ok((head, all))
}
