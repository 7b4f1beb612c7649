//! The sources of a run's training prompts, read from its table of problems.

use std::fs::File;
use std::path::Path;

use allot_base::panics::caught;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use parquet::schema::types::Type;

/// Returns the source of each training prompt, by prompt id; none if the run has no table of problems, as
/// in a simulation, or a damaged one.
pub fn read(run: &Path) -> Option<Vec<String>> {
    // The parquet crate may panic on damaged pages.
    caught(|| of_table(run)).ok().flatten()
}

fn of_table(run: &Path) -> Option<Vec<String>> {
    let file = File::open(run.join("problems.parquet")).ok()?;
    let reader = SerializedFileReader::new(file).ok()?;
    let schema = reader.metadata().file_metadata().schema();
    let wanted = ["prompt", "set", "source"];
    let fields = schema.get_fields().iter().filter(|field| wanted.contains(&field.name())).cloned().collect();
    let some = Type::group_type_builder(schema.name()).with_fields(fields).build().ok()?;
    let mut sources = Vec::new();
    for row in reader.get_row_iter(Some(some)).ok()? {
        let row = row.ok()?;
        let of = |name: &str| {
            row.get_column_iter().find(|(column, _)| *column == name).map(|(_, field)| field.clone())
        };
        // Held-out problems follow the training problems.
        if !matches!(of("set")?, Field::Null) {
            break;
        }
        match of("source")? {
            Field::Str(source) => sources.push(source),
            _ => return None,
        }
    }
    Some(sources)
}
