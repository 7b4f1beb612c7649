//! Small files of a model, read whole up to a size limit, since a path may lead to an endless file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::ModelError;

/// Returns a file's text, of at most `most` bytes.
pub fn text(path: &Path, most: u64) -> Result<String, ModelError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    read.map_err(|e| ModelError::file(path, &e))?;
    if bytes.len() as u64 > most {
        let reason = format!("it has more than {most} bytes");
        return Err(ModelError::File { path: path.to_owned(), reason });
    }
    String::from_utf8(bytes)
        .map_err(|_| ModelError::File { path: path.to_owned(), reason: "it is not UTF-8 text".to_owned() })
}
