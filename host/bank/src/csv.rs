//! CSV, as spreadsheets and pandas write it (RFC 4180): commas, quotes where a cell has commas, quotes or lines in it, and
//! names in the first row.

use std::path::Path;
use std::sync::Arc;

use allot_error::{Error, Result};
use allot_tasks::dataset::Place;
use serde_json::{Map, Value};

/// A file's rows, each with its place. Cells are text; an empty one is none.
pub(super) struct Csv {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<(Place, Map<String, Value>)>,
}

impl Csv {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|e| Error::file("read", path, &e))?;
        let file: Arc<str> = path.to_string_lossy().into();
        let text = String::from_utf8(bytes).map_err(|e| {
            let before = &e.as_bytes()[..e.utf8_error().valid_up_to()];
            let line = before.split(|byte| *byte == b'\n').count();
            Error::new(format!("`{file}` line {line} is not UTF-8 text"))
                .hint("write the file again as UTF-8")
        })?;
        let mut records = records(text.strip_prefix('\u{feff}').unwrap_or(&text), &file)?.into_iter();
        let Some((_, columns)) = records.next() else {
            return Err(Error::new(format!("`{file}` has no rows")));
        };
        let mut rows = Vec::new();
        for (line, cells) in records {
            let place = Place { file: Arc::clone(&file), unit: "line", number: line };
            if cells.len() != columns.len() {
                let what = format!("{place} has {} cells; the first row has {}", cells.len(), columns.len());
                return Err(Error::new(what).hint("a cell with a comma in it stands between quotes"));
            }
            let cells = cells.into_iter().map(|cell| if cell.is_empty() { Value::Null } else { cell.into() });
            rows.push((place, columns.iter().cloned().zip(cells).collect()));
        }
        Ok(Self { columns, rows })
    }
}

/// The records of a text, each with the line where it begins. Blank lines are none.
fn records(text: &str, file: &str) -> Result<Vec<(u64, Vec<String>)>> {
    let mut records = Vec::new();
    let (mut cells, mut cell) = (Vec::new(), String::new());
    let (mut line, mut begun) = (1, 1);
    let mut quoted = false;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        line += u64::from(c == '\n');
        match c {
            '"' if quoted && rest.peek() == Some(&'"') => {
                rest.next();
                cell.push('"');
            }
            '"' if quoted => quoted = false,
            '"' if cell.is_empty() => quoted = true,
            _ if quoted => cell.push(c),
            ',' => cells.push(std::mem::take(&mut cell)),
            '\r' if rest.peek() == Some(&'\n') => {}
            '\n' => {
                cells.push(std::mem::take(&mut cell));
                let whole = std::mem::take(&mut cells);
                if whole != [""] {
                    records.push((begun, whole));
                }
                begun = line;
            }
            _ => cell.push(c),
        }
    }
    if quoted {
        let what = format!("`{file}` line {begun}: a quote is open at the end of the file");
        return Err(Error::new(what).hint("a quote in a cell between quotes is written twice"));
    }
    if !cell.is_empty() || !cells.is_empty() {
        cells.push(cell);
        records.push((begun, cells));
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(text: &str) -> Vec<Vec<String>> {
        records(text, "x.csv").expect("it is whole").into_iter().map(|(_, cells)| cells).collect()
    }

    #[test]
    fn quotes_hold_commas_lines_and_quotes() {
        assert_eq!(cells("a,b\n1,\"x, \"\"y\"\"\nz\"\n"), [["a", "b"], ["1", "x, \"y\"\nz"]]);
        assert_eq!(cells("a,b\r\n\r\n1,"), [["a", "b"], ["1", ""]]);
        assert_eq!(cells(""), Vec::<Vec<String>>::new());
        let fault = records("a\n\"x", "x.csv").expect_err("a quote is open");
        assert_eq!(fault.what, "`x.csv` line 2: a quote is open at the end of the file");
    }

    #[test]
    fn a_record_stands_where_it_begins() {
        let lines: Vec<u64> =
            records("a\n\"1\n2\"\n3\n", "x.csv").expect("it is whole").into_iter().map(|(n, _)| n).collect();
        assert_eq!(lines, [1, 2, 4]);
    }
}
