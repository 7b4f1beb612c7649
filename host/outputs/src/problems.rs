//! `problems.parquet`: one row per prompt of a run. The table of rollouts refers to prompts only by
//! position.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use allot_base::{Error, Result};
use allot_tasks::{Ask, Problem};

use super::columns::{Column, Columns, Sheet, told};

/// A prompt.
struct Line<'a> {
    prompt: usize,
    problem: &'a Problem,
    /// Its held-out set, if it is in one.
    set: Option<&'a str>,
    /// The prompt's text, as the model reads it.
    asked: String,
}

fn columns<'a>() -> Columns<Line<'a>> {
    vec![
        ("prompt", Column::Count(|l| l.prompt as i64)),
        ("problem", Column::Text(|l| l.problem.id().as_str().into())),
        ("set", Column::MaybeText(|l| l.set.map(Into::into))),
        ("source", Column::Text(|l| l.problem.source.as_str().into())),
        ("question", Column::Text(|l| question(l.problem).as_str().into())),
        ("asked", Column::Text(|l| l.asked.as_str().into())),
        ("gold", Column::Text(|l| serde_json::json!(l.problem.gold).to_string().as_str().into())),
        ("file", Column::MaybeText(|l| l.problem.place.as_ref().map(|place| (*place.file).into()))),
        ("row", Column::MaybeCount(|l| l.problem.place.as_ref().map(|place| place.number as i64))),
    ]
}

/// Returns the question: plain text, or the messages of a chat, each after its role.
fn question(problem: &Problem) -> String {
    match &problem.ask {
        Ask::Text(text) => text.clone(),
        Ask::Chat(messages) => {
            let one = |m: &allot_tasks::Message| format!("{}: {}", m.role, m.content);
            messages.iter().map(one).collect::<Vec<_>>().join("\n")
        }
    }
}

/// Writes the table of a run's problems, each with the tokens of its prompt. `set` returns the held-out set
/// of a prompt, if it is in one; `read` decodes the tokens of a prompt.
pub fn write<'a>(
    path: &Path,
    problems: impl ExactSizeIterator<Item = (&'a Problem, &'a [u32])>,
    set: impl Fn(u32) -> Option<&'a str>,
    read: impl Fn(&[u32]) -> Result<String>,
) -> Result<()> {
    let mut lines = Vec::with_capacity(problems.len());
    for (prompt, (problem, tokens)) in problems.enumerate() {
        lines.push(Line { prompt, problem, set: set(prompt as u32), asked: read(tokens)? });
    }
    // A hidden file, which is renamed once it is complete.
    let aside = path.with_file_name(".problems.parquet");
    let written = File::create(&aside).and_then(|file| {
        let sheet = Sheet::new(BufWriter::new(file), columns(), "prompt", &["question", "asked"]);
        let ended = sheet.and_then(|mut sheet| {
            sheet.write(&lines)?;
            sheet.finish()
        });
        ended.map_err(told)?.into_inner()?.sync_all()?;
        std::fs::rename(&aside, path)
    });
    written.map_err(|e| Error::file("write", path, &e))
}
