//! A release: one wheel that is the program and the Python module, the program alone in an archive, the licences and the bill of
//! materials of both, and checksums.
//!
//! On Linux both are linked against an old glibc, by zig, so that they run wherever that or a newer one is.

use std::fmt::Write as _;
use std::path::Path;

use allot_base::{Error, Result};
use allot_component::sha256;

use crate::files::{copy, made, write};
use crate::folder::files;
use crate::process::{command, python_with, run, target};
use crate::wheel::{self, Papers};
use crate::{built, crates, licences, sbom};

/// From PyPI, so that a release needs no more than Rust and Python.
const TOOLS: [&str; 6] = [
    "auditwheel==6.8.2",
    "cargo-zigbuild==0.24.0",
    "maturin==1.16.0",
    "wheel==0.48.0",
    "ziglang==0.17.1",
    "zopfli==0.4.3",
];

/// The name of the checksums of a release.
pub const SUMS: &str = "SHA256SUMS";

/// Bytes that a wheel has at most: 22.5 MB on x86-64.
const WHEEL: u64 = 23_000_000;

/// Bytes that the program has at most. On x86-64 it had 38.6 MB on 2026-11-24, 45.4 on 2026-11-28, 44.0 on 2026-11-30 in the morning,
/// and 39.3 in the evening, since what ships in it is packed.
const PROGRAM: u64 = 40_000_000;

/// What a release is made of.
pub enum Of<'a> {
    /// What `cargo build --release --workspace` left, for this machine alone.
    AsBuilt,
    /// A build of its own, for this kind of machine.
    Here,
    /// A build of its own, for Linux on this architecture.
    Linux(&'a str),
}

/// Makes a release into this folder: a new one, or one of an earlier release.
///
/// # Errors
///
/// A tool is missing or fails; or what was made is larger than it may be.
pub fn make(root: &Path, folder: &Path, of: &Of) -> Result<()> {
    if folder.is_dir() && !folder.join(SUMS).exists() && !files(folder)?.is_empty() {
        let what = format!("`{}` has files, and is no release that could be made anew", folder.display());
        return Err(Error::new(what).hint("name another folder"));
    }
    let tools = python_with(&target(root).join("dist-tools"), &TOOLS)?;
    let as_built = matches!(of, Of::AsBuilt);
    let built = match of {
        Of::AsBuilt => built::as_built(root)?,
        Of::Here => built::build(root, &tools, None)?,
        Of::Linux(arch) => built::build(root, &tools, Some(arch))?,
    };
    if !as_built {
        fits(&built.program, PROGRAM)?;
    }
    let _ = std::fs::remove_dir_all(folder);
    made(folder)?;
    let version = env!("CARGO_PKG_VERSION");
    let crates = crates::linked(root, &built.triple)?;
    let papers = Papers { licences: licences::of(&crates)?, sbom: sbom::of(&crates, version)? };

    let archive = format!("allot-{version}-{}", built.platform);
    let inside = target(root).join("dist-tools").join(&archive);
    let _ = std::fs::remove_dir_all(&inside);
    made(&inside)?;
    copy(&built.program, &inside.join("allot"))?;
    for name in ["LICENSE", "README.md", "CHANGELOG.md"] {
        copy(&root.join(name), &inside.join(name))?;
    }
    write(&inside.join("LICENCES.txt"), &papers.licences)?;
    write(&inside.join(sbom::NAME), &papers.sbom)?;
    let packed = folder.join(format!("{archive}.tar.gz"));
    let at = inside.parent().unwrap_or(root);
    run(command("tar", ["-czf"]).arg(&packed).arg("-C").arg(at).arg(&archive))?;

    let wheel = wheel::pack(root, folder, &built, &papers, &tools)?;
    if !as_built && cfg!(target_os = "linux") {
        wheel::audit(&tools, &wheel, &built.platforms)?;
    }
    if !as_built {
        wheel::squeeze(&tools, &wheel, &target(root).join("dist-tools/squeezed.whl"))?;
    }
    sums(folder)?;
    println!("the release is in {}", folder.display());
    if as_built { Ok(()) } else { fits(&wheel, WHEEL) }
}

/// Says how large a file is.
///
/// # Errors
///
/// It is larger than it may be.
fn fits(path: &Path, most: u64) -> Result<()> {
    let bytes = std::fs::metadata(path).map_err(|e| Error::file("read", path, &e))?.len();
    let mb = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    println!("{}: {}", path.display(), mb(bytes));
    if bytes <= most {
        return Ok(());
    }
    let what = format!("`{}` has {}, and may have at most {}", path.display(), mb(bytes), mb(most));
    Err(Error::new(what).hint("docs/archive/2026-11-24-build.md says what its parts are"))
}

/// Writes the checksums of what is in a folder, in the form that `sha256sum --check` reads.
fn sums(folder: &Path) -> Result<()> {
    let mut text = String::new();
    for path in files(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let _ = writeln!(text, "{}  {name}", sum(&path)?);
    }
    write(&folder.join(SUMS), text)
}

/// A file's checksum.
///
/// # Errors
///
/// It cannot be read.
pub fn sum(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|e| Error::file("read", path, &e))?;
    Ok(sha256(bytes))
}
