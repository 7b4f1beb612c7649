//! The program and the Python module's library of a release, compiled: for this machine, or for Linux on another architecture.

use std::path::{Path, PathBuf};

use allot_base::{Error, Result};

use crate::files::{copy, made};
use crate::process::{command, output, run, target};

/// The oldest glibc that Rust itself supports.
const GLIBC: (u32, u32) = (2, 17);

/// What was built.
pub struct Built {
    pub program: PathBuf,
    pub library: PathBuf,
    /// The platform in a wheel's name, all that hold.
    pub platforms: Vec<String>,
    /// The platform in an archive's name.
    pub platform: String,
    /// The target, as rustc calls it.
    pub triple: String,
}

/// Takes what `cargo build --release --workspace` left for this machine, without its symbols.
///
/// # Errors
///
/// It is not there, or `strip` fails.
pub fn as_built(root: &Path) -> Result<Built> {
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
    let (platforms, platform) = (vec![format!("{os}_{arch}")], format!("{arch}-{os}"));
    Ok(Built { program, library, platforms, platform, triple: host()? })
}

/// Builds for this machine; or, given an architecture, for Linux on it. On Linux zig links it against an old glibc.
///
/// # Errors
///
/// The target's standard library is missing, or the build fails.
pub fn build(root: &Path, tools: &Path, arch: Option<&str>) -> Result<Built> {
    let levels = levels(root)?;
    match arch {
        Some(arch) => linux(root, tools, arch, &levels),
        None if cfg!(target_os = "linux") => linux(root, tools, std::env::consts::ARCH, &levels),
        None => elsewhere(root, tools, &levels),
    }
}

/// What is linked last, as arguments of `cargo rustc`: the program and the module.
const LINKED: [&[&str]; 2] =
    [&["--package", "allot", "--bin", "allot"], &["--package", "allot-python", "--lib"]];
/// At this level all is optimized as one, where it is linked: at "s" no loop would become vectors, whatever its own crate says.
/// It is said to rustc, since a profile's level of `allot` is that of its library, too, which is for size.
const AS_ONE: [&str; 3] = ["--", "-C", "opt-level=3"];

/// Builds for Linux, by zig.
fn linux(root: &Path, tools: &Path, arch: &str, levels: &[String]) -> Result<Built> {
    let triple = format!("{arch}-unknown-linux-gnu");
    let sysroot = output(&mut command("rustc", ["--print", "sysroot"]))?;
    if !Path::new(sysroot.trim()).join("lib/rustlib").join(&triple).is_dir() {
        let what = format!("this Rust has no standard library for {triple}");
        return Err(Error::new(what).hint(format!("Run `rustup target add {triple}`.")));
    }
    let (major, minor) = GLIBC;
    for linked in LINKED {
        let mut zig = command(tools.join("cargo-zigbuild"), ["rustc", "--profile", "dist", "--locked"]);
        // Its zig is the one beside it.
        let path = std::env::var("PATH").unwrap_or_default();
        zig.env("PATH", format!("{}:{path}", tools.display()));
        zig.env("CARGO_ZIGBUILD_PYTHON_PATH", tools.join("python"));
        zig.env("CARGO_TARGET_DIR", target(root));
        zig.args(linked).args(levels).args(["--target", &format!("{triple}.{major}.{minor}")]).args(AS_ONE);
        run(zig.current_dir(root))?;
    }
    let out = target(root).join(&triple).join("dist");
    Ok(Built {
        program: out.join("allot"),
        library: out.join("liballot_python.so"),
        platforms: vec![format!("manylinux_{major}_{minor}_{arch}"), format!("manylinux2014_{arch}")],
        platform: format!("{arch}-linux"),
        triple,
    })
}

/// Builds for this machine, which has another system than Linux, with the linker that it has.
fn elsewhere(root: &Path, tools: &Path, levels: &[String]) -> Result<Built> {
    for linked in LINKED {
        let mut cargo = command("cargo", ["rustc", "--profile", "dist", "--locked"]);
        run(cargo.args(linked).args(levels).args(AS_ONE).current_dir(root))?;
    }
    let out = target(root).join("dist");
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    // What Python calls this machine, as a wheel's name has it.
    let mut python =
        command(tools.join("python"), ["-c", "import sysconfig; print(sysconfig.get_platform())"]);
    let platform = output(&mut python)?.trim().replace(['-', '.'], "_");
    Ok(Built {
        program: out.join("allot"),
        library: out.join("liballot_python.dylib"),
        platforms: vec![platform],
        platform: format!("{arch}-{os}"),
        triple: host()?,
    })
}

/// This machine's target.
fn host() -> Result<String> {
    Ok(output(&mut command("rustc", ["--print", "host-tuple"]))?.trim().to_owned())
}

/// Crates that a first build compiles at level 1 without a loss, and that a release would compile for size.
const FAST: &str = "aho-corasick crossbeam-deque crossbeam-epoch crossbeam-utils fancy-regex gemm gemm-common half libm \
                    memchr miniz_oxide rayon";

/// Crates of the command line, downloads, figures and debugging, which run for a moment. A release compiles them at "z", the
/// smallest there is, and others that are not named here at "s".
const RARE: &str = "allot-bench allot-outputs allot-pretrain allot-report allot-settings chrono clap clap_complete \
                    clap_derive clap_lex cpp_demangle crossterm csv-core fontdb gimli hf-hub idna object oci-client oci-spec \
                    plotters png ratatui ratatui-crossterm ratatui-widgets resvg roxmltree svgtypes tiny-skia tiny-skia-path \
                    toml_parser toml_writer ureq-proto url wasm-metadata wasmtime-internal-wit-bindgen wat zip";

/// What a first build leaves unoptimized, to save time, is as small as can be in a release, like [`RARE`]; what runs for long is
/// optimized for speed.
fn levels(root: &Path) -> Result<Vec<String>> {
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|e| Error::file("read", path, &e));
    let (path, lock) = (root.join("Cargo.toml"), root.join("Cargo.lock"));
    let (text, locked) = (read(&path)?, read(&lock)?);
    let mut named = RARE.split(' ').chain(FAST.split(' '));
    if let Some(gone) = named.find(|name| !locked.contains(&format!("name = \"{name}\"\n"))) {
        let what =
            format!("a release gives `{gone}` a level of its own, and {} has no such crate", lock.display());
        return Err(Error::new(what).hint("take it out of the lists in host/xtask/src/built.rs"));
    }
    let cold = text.lines().filter_map(|line| line.strip_suffix(" = { opt-level = 0 }"));
    let cold: Vec<&str> = cold.collect();
    if cold.is_empty() {
        return Err(Error::new(format!("{} has no line `NAME = {{ opt-level = 0 }}`", path.display())));
    }
    // Crates that macros share have a line with level 1. A release compiles them like crates that have no line.
    let shared = text.lines().filter_map(|line| line.strip_suffix(" = { opt-level = 1 }"));
    let level = |name: &str, level: &str| format!("profile.dist.package.{name}.opt-level={level}");
    let listed = |name: &str| RARE.split(' ').chain(FAST.split(' ')).any(|other| other == name);
    let plain = shared.filter(|name| !listed(name)).map(|name| level(name, "\"s\""));
    let small = cold.into_iter().chain(RARE.split(' ')).map(|name| level(name, "\"z\""));
    let levels = plain.chain(small).chain(FAST.split(' ').map(|name| level(name, "3")));
    Ok(levels.flat_map(|level| ["--config".to_owned(), level]).collect())
}
