//! Columns of a trainer's data set: one list per column, with one entry per prompt.

use std::collections::BTreeMap;

use allot_allocation::{Cell, Column, Columns, LENGTH, Misfit, Run, Terms};

use crate::exception::{Exception, Result};

/// Columns by name.
pub type Given = BTreeMap<String, Vec<Cell>>;

/// Returns a policy's columns, from the given ones and from the prompts' lengths, if those are given.
pub fn wanted(
    policy: (&str, &[String]),
    given: &Given,
    lengths: Option<&[u32]>,
    prompts: u32,
) -> Result<Columns> {
    let mut columns = Columns::default();
    for name in policy.1 {
        if let Some(lengths) = lengths.filter(|_| name == LENGTH) {
            columns.add(Column::lengths(lengths.iter().copied()));
            continue;
        }
        let cells = given.get(name).ok_or_else(|| {
            Exception::new(format!(
                "policy `{}` wants the column `{name}`, which the run does not have",
                policy.0
            ))
            .hint(format!("give what each prompt has in it: columns={{\"{name}\": […]}}"))
        })?;
        if cells.len() != prompts as usize {
            let what =
                format!("the column `{name}` is of {} prompts, and the data set has {prompts}", cells.len());
            return Err(Exception::new(what).hint("a column has something for each prompt, in their order"));
        }
        columns.add(Column::new(name, cells.iter()).map_err(|misfit| {
            let what = format!("in the column `{name}` prompt {} has {}", misfit.prompt, misfit.reason);
            Exception::new(what).hint(Misfit::HINT)
        })?);
    }
    Ok(columns)
}

/// Returns the run without its columns, and a hash of the columns.
pub fn apart(run: &Run) -> (Run, Option<String>) {
    let columns = run.columns();
    let told = (!columns.is_empty()).then(|| {
        let all: Vec<String> = columns.iter().map(|column| serde_json::json!(**column).to_string()).collect();
        allot_record::sha256(all.concat())
    });
    let terms = run.terms.clone().map(|terms| Terms { columns: Columns::default(), ..terms });
    (Run { terms, ..run.clone() }, told)
}
