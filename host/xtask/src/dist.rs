//! A release: one wheel that is the program and the Python module, the program alone in an archive, the licences of what is
//! in them, and checksums.
//!
//! On Linux both are linked against an old glibc, by zig, so that they run wherever that or a newer one is.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use allot_base::{Error, Result};
use allot_component::sha256;

use crate::files::{copy, made, write};
use crate::licences;
use crate::process::{command, output, python_with, run, target};

/// From PyPI, so that a release needs no more than Rust and Python.
const TOOLS: [&str; 5] =
    ["auditwheel==6.8.2", "cargo-zigbuild==0.24.0", "maturin==1.16.0", "wheel==0.48.0", "ziglang==0.17.1"];

/// The oldest glibc that Rust itself supports.
const GLIBC: (u32, u32) = (2, 17);

/// The name of the checksums of a release.
pub const SUMS: &str = "SHA256SUMS";

/// Bytes that a wheel has at most.
const WHEEL: u64 = 30_000_000;

/// Bytes that the program has at most.
const PROGRAM: u64 = 40_000_000;

/// What was built.
struct Built {
    program: PathBuf,
    library: PathBuf,
    /// The platform in a wheel's name, all that hold.
    platforms: Vec<String>,
    /// The platform in an archive's name.
    platform: String,
}

/// Makes a release into this folder: a new one, or one of an earlier release. As built, it is made of what
/// `cargo build --release --workspace` left, for this machine alone.
///
/// # Errors
///
/// A tool is missing or fails; or what was made is larger than it may be.
pub fn make(root: &Path, folder: &Path, as_built: bool) -> Result<()> {
    if folder.is_dir() && !folder.join(SUMS).exists() && !files(folder)?.is_empty() {
        let what = format!("`{}` has files, and is no release that could be made anew", folder.display());
        return Err(Error::new(what).hint("name another folder"));
    }
    let tools = python_with(&target(root).join("dist-tools"), &TOOLS)?;
    let built = if as_built { built(root)? } else { build(root, &tools)? };
    let _ = std::fs::remove_dir_all(folder);
    made(folder)?;
    let third_parties = licences::of(root)?;

    let archive = format!("allot-{}-{}", env!("CARGO_PKG_VERSION"), built.platform);
    let inside = target(root).join("dist-tools").join(&archive);
    let _ = std::fs::remove_dir_all(&inside);
    made(&inside)?;
    copy(&built.program, &inside.join("allot"))?;
    for name in ["LICENSE", "README.md", "CHANGELOG.md"] {
        copy(&root.join(name), &inside.join(name))?;
    }
    write(&inside.join("LICENCES.txt"), &third_parties)?;
    let packed = folder.join(format!("{archive}.tar.gz"));
    let at = inside.parent().unwrap_or(root);
    run(command("tar", ["-czf"]).arg(&packed).arg("-C").arg(at).arg(&archive))?;

    let wheel = wheel(root, folder, &built, &third_parties, &tools)?;
    if !as_built && cfg!(target_os = "linux") {
        audit(&tools, &wheel, &built.platforms)?;
    }
    sums(folder)?;
    println!("the release is in {}", folder.display());
    if !as_built {
        fits(&wheel, WHEEL)?;
        fits(&built.program, PROGRAM)?;
    }
    Ok(())
}

/// What is there already, without its symbols.
fn built(root: &Path) -> Result<Built> {
    let out = target(root).join("release");
    let at = target(root).join("dist-tools/as-built");
    made(&at)?;
    let mut all = Vec::new();
    for name in ["allot".to_owned(), format!("liballot_python{}", std::env::consts::DLL_SUFFIX)] {
        copy(&out.join(&name), &at.join(&name))?;
        run(command("strip", ["--strip-unneeded"]).arg(at.join(&name)))?;
        all.push(at.join(&name));
    }
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let [program, library] = [all.remove(0), all.remove(0)];
    Ok(Built { program, library, platforms: vec![format!("{os}_{arch}")], platform: format!("{arch}-{os}") })
}

/// Builds the program and the Python module's library.
fn build(root: &Path, tools: &Path) -> Result<Built> {
    let what =
        ["--profile", "dist", "--locked", "-p", "allot", "-p", "allot-python", "--bin", "allot", "--lib"];
    let arguments = what.map(str::to_owned).into_iter().chain(levels(root)?);
    let arch = std::env::consts::ARCH;
    if !cfg!(target_os = "linux") {
        run(command("cargo", ["build"]).args(arguments).current_dir(root))?;
        let out = target(root).join("dist");
        let os = std::env::consts::OS;
        // What Python calls this machine, as a wheel's name has it.
        let mut python =
            command(tools.join("python"), ["-c", "import sysconfig; print(sysconfig.get_platform())"]);
        let platform = output(&mut python)?.trim().replace(['-', '.'], "_");
        let library = out.join("liballot_python.dylib");
        return Ok(Built {
            program: out.join("allot"),
            library,
            platforms: vec![platform],
            platform: format!("{arch}-{os}"),
        });
    }
    let triple = format!("{arch}-unknown-linux-gnu");
    let (major, minor) = GLIBC;
    let mut zig = command(tools.join("cargo-zigbuild"), ["zigbuild"]);
    // Its zig is the one beside it.
    let path = std::env::var("PATH").unwrap_or_default();
    zig.env("PATH", format!("{}:{path}", tools.display()));
    zig.env("CARGO_ZIGBUILD_PYTHON_PATH", tools.join("python"));
    zig.env("CARGO_TARGET_DIR", target(root));
    zig.args(arguments).args(["--target", &format!("{triple}.{major}.{minor}")]);
    run(zig.current_dir(root))?;
    let out = target(root).join(triple).join("dist");
    Ok(Built {
        program: out.join("allot"),
        library: out.join("liballot_python.so"),
        platforms: vec![format!("manylinux_{major}_{minor}_{arch}"), format!("manylinux2014_{arch}")],
        platform: format!("{arch}-linux"),
    })
}

/// Crates that a first build compiles at level 1 without a loss, and that a release would compile for size.
const FAST: &str = "aho-corasick crossbeam-deque crossbeam-epoch crossbeam-utils fancy-regex gemm gemm-common half libm \
                    memchr miniz_oxide rayon";

/// What a first build leaves unoptimized, to save time, is optimized for size in a release; what runs for long, for speed.
fn levels(root: &Path) -> Result<Vec<String>> {
    let path = root.join("Cargo.toml");
    let text = std::fs::read_to_string(&path).map_err(|e| Error::file("read", &path, &e))?;
    let cold = text.lines().filter_map(|line| line.strip_suffix(" = { opt-level = 0 }"));
    let cold: Vec<&str> = cold.collect();
    if cold.is_empty() {
        return Err(Error::new(format!("{} has no line `NAME = {{ opt-level = 0 }}`", path.display())));
    }
    let level = |name: &str, level: &str| format!("profile.dist.package.{name}.opt-level={level}");
    let levels =
        cold.iter().map(|name| level(name, "\"s\"")).chain(FAST.split(' ').map(|name| level(name, "3")));
    Ok(levels.flat_map(|level| ["--config".to_owned(), level]).collect())
}

/// Packs the wheel: the module, and the program among its scripts. `maturin build` would do one or the other.
fn wheel(root: &Path, folder: &Path, built: &Built, licences: &str, tools: &Path) -> Result<PathBuf> {
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
    made(&information.join("licenses"))?;
    copy(&root.join("LICENSE"), &information.join("licenses/LICENSE"))?;
    write(&information.join("licenses/LICENCES.txt"), licences)?;

    made(&inside.join("allot"))?;
    let files = std::fs::read_dir(python.join("allot")).map_err(|e| Error::file("read", &python, &e))?;
    for file in files.flatten().map(|entry| entry.path()).filter(|path| path.is_file()) {
        copy(&file, &inside.join("allot").join(file.file_name().unwrap_or_default()))?;
    }
    copy(&built.library, &inside.join("allot/_allot.abi3.so"))?;
    let scripts = inside.join(format!("allot-{}.data/scripts", env!("CARGO_PKG_VERSION")));
    made(&scripts)?;
    copy(&built.program, &scripts.join("allot"))?;
    run(command(tools.join("wheel"), ["pack"]).arg(&inside).arg("--dest-dir").arg(folder))?;
    with_ending(folder, ".whl")
}

/// The one file in a folder with this ending.
///
/// # Errors
///
/// There is none, or there are several.
pub fn with_ending(folder: &Path, ending: &str) -> Result<PathBuf> {
    let named = |path: &PathBuf| path.to_string_lossy().ends_with(ending);
    let mut found = files(folder)?.into_iter().filter(named);
    if let (Some(one), None) = (found.next(), found.next()) {
        return Ok(one);
    }
    let what = format!("`{}` does not have one file that ends in `{ending}`", folder.display());
    Err(Error::new(what).hint("`cargo xtask dist` makes a release"))
}

/// Has auditwheel say which glibc the wheel's library needs. The program beside it, among the scripts, it does not
/// look at: that one is tried in an older Debian.
fn audit(tools: &Path, wheel: &Path, platforms: &[String]) -> Result<()> {
    let said = output(command(tools.join("auditwheel"), ["show"]).arg(wheel))?;
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    if platforms.iter().any(|platform| words.contains(&format!("following platform tag: \"{platform}\""))) {
        return Ok(());
    }
    Err(Error::new(format!("the wheel does not hold what its name says, {}: {said}", platforms.join(", "))))
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

/// A folder's files, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = std::fs::read_dir(folder).map_err(|e| Error::file("read", folder, &e))?;
    let mut all: Vec<_> = read.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    all.sort();
    Ok(all)
}
