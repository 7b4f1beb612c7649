//! The files and programs of a draft: a policy in Python that is not a component yet.

use std::path::{Path, PathBuf};
use std::process::Command;

use allot_base::{Error, Result};
use tempfile::TempDir;

use crate::build::tool;
use crate::language::Language;

/// The file of a policy in Python.
const SIGN: &str = "policy.py";

/// The files and programs that run a draft.
pub struct Draft {
    /// Python, 3.10 or newer.
    pub python: PathBuf,
    /// The Python SDK: the project's own copy, or this program's.
    pub sdk: PathBuf,
    /// The project's folder.
    pub folder: PathBuf,
    /// The project's Python files without its tests, sorted by name: names and contents.
    pub sources: Vec<(String, Vec<u8>)>,
    /// The folder of this program's SDK. Keep it while the draft runs.
    pub scratch: Option<TempDir>,
}

/// Returns whether a path is a draft: a Python file, or the folder of a policy in Python.
pub fn is_one(source: &Path) -> bool {
    source.extension().is_some_and(|end| end == "py") || source.join(SIGN).is_file()
}

impl Draft {
    /// Returns the draft in a file `policy.py` or its folder.
    pub fn of(source: &Path) -> Result<Self> {
        let source = std::path::absolute(source).map_err(|e| Error::file("find", source, &e))?;
        let folder = match source.file_name() {
            _ if source.is_dir() => source.clone(),
            Some(name) if name == SIGN => source.parent().unwrap_or(&source).to_owned(),
            _ => {
                let what =
                    format!("`{}` is not a draft: a policy in Python is a file `{SIGN}`", source.display());
                return Err(Error::new(what).hint(format!("rename it to `{SIGN}`, in a folder of its own")));
            }
        };
        let sources = sources(&folder)?;
        let own = folder.join("sdk");
        let (sdk, scratch) = if own.is_dir() {
            (own, None)
        } else {
            let make = |e| Error::file("make", &std::env::temp_dir().join("a folder"), &e);
            let scratch = TempDir::new().map_err(make)?;
            Language::Python.sdk(scratch.path())?;
            (scratch.path().to_owned(), Some(scratch))
        };
        if !sdk.join("allot_policy/draft.py").is_file() {
            let what = format!("the SDK in `{}` is too old to run drafts", sdk.display());
            return Err(Error::new(what).hint("delete that folder to use the SDK of this program"));
        }
        Ok(Self { python: python(&folder)?, sdk, folder, sources, scratch })
    }
}

fn sources(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let read = |e| Error::file("read", folder, &e);
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(read)? {
        let path = entry.map_err(read)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let python = path.extension().is_some_and(|end| end == "py");
        if python && !name.starts_with("test_") && path.is_file() {
            sources.push((name, std::fs::read(&path).map_err(|e| Error::file("read", &path, &e))?));
        }
    }
    if sources.iter().all(|(name, _)| name != SIGN) {
        return Err(Error::new(format!("`{}` is not there", folder.join(SIGN).display())));
    }
    sources.sort();
    Ok(sources)
}

/// Returns the Python of the project's virtual environment, or the one on the path.
fn python(folder: &Path) -> Result<PathBuf> {
    let own = [".venv", "venv"].map(|env| folder.join(env).join("bin/python"));
    let hint = "install Python 3.10 or newer, or build a component: `allot build FOLDER`";
    let all = own.into_iter().chain([PathBuf::from("python3")]);
    let found = all.into_iter().find_map(|python| {
        let version = tool::version(Command::new(&python).arg("--version"))?;
        Some((python, version))
    });
    let Some((python, version)) = found else {
        return Err(Error::new("`python3` was not found; it runs drafts").hint(hint));
    };
    let number = version.strip_prefix("Python ").unwrap_or_default();
    let mut parts = number.split('.').map_while(|part| part.parse::<u32>().ok());
    if (parts.next(), parts.next()) < (Some(3), Some(10)) {
        let what = format!("`{}` is {version}; drafts need Python 3.10 or newer", python.display());
        return Err(Error::new(what).hint(hint));
    }
    Ok(python)
}
