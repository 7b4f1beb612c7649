//! The wheel of a release: the Python module, and the program among its scripts.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use allot_base::{Error, Result};

use crate::built::Built;
use crate::files::{copy, made, write};
use crate::folder::{files, with_ending};
use crate::process::{command, output, run, target};
use crate::sbom;

/// What a wheel says of its crates.
pub struct Papers {
    /// The texts of licences.
    pub licences: String,
    /// The bill of materials.
    pub sbom: String,
}

/// Packs the wheel into a folder, and returns its path. `maturin build` would pack the module or the program, not both.
///
/// # Errors
///
/// A file cannot be read or written, or a tool fails.
pub fn pack(root: &Path, folder: &Path, built: &Built, papers: &Papers, tools: &Path) -> Result<PathBuf> {
    let python = root.join("host/python");
    let inside = target(root).join("dist-tools/wheel");
    let _ = std::fs::remove_dir_all(&inside);
    made(&inside)?;
    // Name, version, what it is for and which Pythons it serves: maturin's own words.
    let mut maturin = command(tools.join("maturin"), ["pep517", "write-dist-info", "--metadata-directory"]);
    maturin.arg(&inside).arg("--manifest-path").arg(python.join("Cargo.toml"));
    let named = output(&mut maturin)?;
    let information = inside.join(named.trim());
    let mut text = "Wheel-Version: 1.0
Generator: xtask
Root-Is-Purelib: false
"
    .to_owned();
    for platform in &built.platforms {
        let _ = writeln!(text, "Tag: cp310-abi3-{platform}");
    }
    write(&information.join("WHEEL"), text)?;
    // As PEP 639 and PEP 770 have it.
    made(&information.join("licenses"))?;
    copy(&root.join("LICENSE"), &information.join("licenses/LICENSE"))?;
    write(&information.join("licenses/LICENCES.txt"), &papers.licences)?;
    let metadata = information.join("METADATA");
    let fields = std::fs::read_to_string(&metadata).map_err(|e| Error::file("read", &metadata, &e))?;
    write(&metadata, with_licence_files(&fields, &["LICENSE", "LICENCES.txt"]))?;
    made(&information.join("sboms"))?;
    write(&information.join("sboms").join(sbom::NAME), &papers.sbom)?;

    made(&inside.join("allot"))?;
    for file in files(&python.join("allot"))? {
        copy(&file, &inside.join("allot").join(file.file_name().unwrap_or_default()))?;
    }
    copy(&built.library, &inside.join("allot/_allot.abi3.so"))?;
    let scripts = inside.join(format!("allot-{}.data/scripts", env!("CARGO_PKG_VERSION")));
    made(&scripts)?;
    copy(&built.program, &scripts.join("allot"))?;
    run(command(tools.join("wheel"), ["pack"]).arg(&inside).arg("--dest-dir").arg(folder))?;
    with_ending(folder, ".whl")
}

/// Compresses the files of a wheel anew, by zopfli. On the EPYC of docs/results/speed.md that takes 82 s, and a wheel of 23.3 MB
/// becomes one of 22.5.
///
/// # Errors
///
/// Python fails, or a file of the new wheel is another one.
pub fn squeeze(tools: &Path, wheel: &Path, aside: &Path) -> Result<()> {
    run(command(tools.join("python"), ["-c", SQUEEZE]).args([wheel, aside]))?;
    copy(aside, wheel)
}

/// Zopfli looks longer for what deflates best, and any unzip reads it. Python's `zipfile` has no other way to say who compresses. With
/// 15 iterations, zopfli's default, instead of 5, the Python module's library would take 5,951 kB instead of 5,952.
const SQUEEZE: &str = "
import sys, zipfile, zopfli.zlib
wheel, aside = sys.argv[1:]

class Deflate:
    def __init__(self):
        self.all = bytearray()
    def compress(self, data):
        self.all += data
        return b''
    def flush(self):
        # Without what zlib adds to a stream.
        return zopfli.zlib.compress(bytes(self.all), numiterations=5)[2:-4]

zipfile._get_compressor = lambda kind, level=None: Deflate() if kind == zipfile.ZIP_DEFLATED else None
with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(aside, 'w') as new:
    for member in old.infolist():
        new.writestr(member, old.read(member))
with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(aside) as new:
    for a, b in zip(old.infolist(), new.infolist(), strict=True):
        same = (a.filename, a.external_attr, a.date_time) == (b.filename, b.external_attr, b.date_time)
        if not same or old.read(a) != new.read(b):
            sys.exit(f'{a.filename} is another file in {aside}')
";

/// Has auditwheel say which glibc the wheel's library needs. The program beside it, among the scripts, it does not
/// look at: that one is tried in an older Debian.
///
/// # Errors
///
/// The library needs a newer one than the wheel's name says.
pub fn audit(tools: &Path, wheel: &Path, platforms: &[String]) -> Result<()> {
    let said = output(command(tools.join("auditwheel"), ["show"]).arg(wheel))?;
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    if platforms.iter().any(|platform| words.contains(&format!("following platform tag: \"{platform}\""))) {
        return Ok(());
    }
    Err(Error::new(format!("the wheel does not hold what its name says, {}: {said}", platforms.join(", "))))
}

/// Adds the field `License-File` for each file to a wheel's metadata: above the description, which follows an empty line.
fn with_licence_files(metadata: &str, files: &[&str]) -> String {
    let (fields, description) = metadata.split_once("\n\n").unwrap_or((metadata.trim_end(), ""));
    let mut all = fields.to_owned();
    for file in files {
        let _ = write!(all, "\nLicense-File: {file}");
    }
    all + "\n\n" + description
}

#[cfg(test)]
mod tests {
    use super::with_licence_files;

    #[test]
    fn fields_are_added_above_a_description() {
        let added = with_licence_files("Name: allot\nVersion: 1\n", &["A", "B"]);
        assert_eq!(added, "Name: allot\nVersion: 1\nLicense-File: A\nLicense-File: B\n\n");
        let added = with_licence_files("Name: allot\n\nText\n\nMore\n", &["A"]);
        assert_eq!(added, "Name: allot\nLicense-File: A\n\nText\n\nMore\n");
    }
}
