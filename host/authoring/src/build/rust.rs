//! Builds a Rust policy's crate with cargo and a compiler that can build for Wasm.

use std::path::{Path, PathBuf};
use std::process::Command;

use allot_base::{Error, Result};
use allot_record::hex;
use sha2::{Digest, Sha256};

use super::bench::Built;
use super::tool::{output, version};
use crate::component::{self, CONTRACT};

const TARGET: &str = "wasm32-unknown-unknown";
/// The hint if the compiler has no standard library for Wasm.
const NO_LIBRARY: [&str; 2] = [
    "rustup target add wasm32-unknown-unknown",
    "or, on Debian: apt-get install -y --no-install-recommends rustc-web rust-web-src",
];

/// Builds the component of a Rust crate in release mode.
pub fn component(folder: &Path, tell: &mut dyn FnMut(&str)) -> Result<Built> {
    let manifest = folder.join("Cargo.toml");
    if !manifest.is_file() {
        return Err(Error::new(format!("`{}` is not a crate: it has no Cargo.toml", folder.display())));
    }
    if version(Command::new("cargo").arg("--version")).is_none() {
        return Err(Error::new("`cargo` was not found").hint("install it from https://rustup.rs"));
    }
    let metadata = output(
        Command::new("cargo").args(["metadata", "--no-deps", "--format-version=1"]).current_dir(folder),
    )?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)
        .map_err(|e| Error::new(format!("cargo metadata did not print JSON: {e}")))?;
    let text = |v: &serde_json::Value| v.as_str().map(PathBuf::from).unwrap_or_default();
    // A separate target folder, because another compiler may use the crate's own one.
    let target_dir = text(&metadata["target_directory"]).join("component");
    let root = text(&metadata["workspace_root"]);

    let toolchain = Toolchain::find()?;
    tell(&format!("building {} with {}", folder.display(), toolchain.says));
    let mut cargo = toolchain.cargo(&root);
    cargo.args([
        "build",
        "--release",
        "--lib",
        "--target",
        TARGET,
        "--message-format=json-render-diagnostics",
    ]);
    // Settings for a small and fast component, which override the crate's own profile.
    for setting in
        ["lto=true", "codegen-units=1", "panic=\"abort\"", "strip=true", "debug=false", "opt-level=3"]
    {
        cargo.arg("--config").arg(format!("profile.release.{setting}"));
    }
    cargo.arg("--target-dir").arg(&target_dir).current_dir(folder);
    let messages = output(&mut cargo)?;

    let manifest = std::fs::canonicalize(&manifest).map_err(|e| Error::file("read", &manifest, &e))?;
    let artifacts = messages.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    let module = artifacts
        .filter(|m| m["reason"] == "compiler-artifact" && text(&m["manifest_path"]) == manifest)
        .flat_map(|m| m["filenames"].as_array().cloned().unwrap_or_default())
        .map(|name| text(&name))
        .find(|name| name.extension().is_some_and(|e| e == "wasm"));
    let Some(module) = module else {
        let error = Error::new(format!("`{}` builds no Wasm module", folder.display()));
        return Err(error.hint("put `crate-type = [\"cdylib\", \"rlib\"]` under [lib] in its Cargo.toml"));
    };
    let bytes = std::fs::read(&module).map_err(|e| Error::file("read", &module, &e))?;
    let component = component::of_module(&bytes, &module.display().to_string())?;
    Ok(Built { component, toolchain: toolchain.says })
}

/// A compiler that can build for Wasm, and its settings.
struct Toolchain {
    says: String,
    rustc: PathBuf,
    build_std: bool,
    linker: Option<PathBuf>,
    remap: Vec<(PathBuf, &'static str)>,
}

impl Toolchain {
    /// Returns the first of these: a toolchain with the Wasm target, one with the library's source, or
    /// Debian's two packages, which need no rustup.
    fn find() -> Result<Self> {
        let rustc = std::env::var_os("RUSTC").map_or_else(|| PathBuf::from("rustc"), PathBuf::from);
        let sysroot = PathBuf::from(output(Command::new(&rustc).args(["--print", "sysroot"]))?.trim());
        let version = output(Command::new(&rustc).arg("--version"))?.trim().to_owned();
        let library = sysroot.join("lib/rustlib/src/rust");
        if sysroot.join("lib/rustlib").join(TARGET).join("lib").is_dir() {
            return Ok(Self {
                says: version,
                rustc,
                build_std: false,
                linker: None,
                remap: vec![(library, "/rust")],
            });
        }
        if library.join("library/Cargo.lock").is_file() {
            let says = format!("{version}, its library from source");
            return Ok(Self { says, rustc, build_std: true, linker: None, remap: vec![(library, "/rust")] });
        }
        let debian = PathBuf::from("/usr/bin/rustc");
        let library = PathBuf::from("/usr/lib/rustlib/src/rust");
        let newer = PathBuf::from("/usr/share/cargo/registry");
        if debian.is_file() && library.join("library/Cargo.lock").exists() {
            let version = output(Command::new(&debian).arg("--version"))?.trim().to_owned();
            let says = format!("{version}, its library from source");
            let host = output(Command::new(&rustc).arg("-vV"))?;
            let host = host.lines().find_map(|l| l.strip_prefix("host: ")).unwrap_or_default();
            let lld = sysroot.join("lib/rustlib").join(host).join("bin/rust-lld");
            let linker = lld.is_file().then_some(lld);
            let remap = vec![(library, "/rust"), (newer, "/registry")];
            return Ok(Self { says, rustc: debian, build_std: true, linker, remap });
        }
        let error = Error::new(format!("{version} has no standard library for {TARGET}"));
        Err(error.hints(NO_LIBRARY))
    }

    /// Returns cargo, set up for this compiler. Built files contain no path of this machine.
    fn cargo(&self, root: &Path) -> Command {
        let mut cargo = Command::new("cargo");
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cargo")));
        let mut remap: Vec<(PathBuf, &str)> = self.remap.clone();
        remap.push((root.to_owned(), "/src"));
        remap.extend(home.map(|home| (home, "/cargo")));
        let flags: Vec<String> =
            remap.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())).collect();
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        cargo.env_remove("RUSTFLAGS").env_remove("CARGO_BUILD_TARGET").env_remove("RUSTC_WRAPPER");
        cargo.env_remove("CARGO_TARGET_DIR").env("RUSTC", &self.rustc);
        if self.build_std {
            cargo.env("RUSTC_BOOTSTRAP", "1").arg("-Zbuild-std=std,panic_abort");
        }
        if let Some(linker) = &self.linker {
            cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
        }
        cargo
    }
}

/// Returns a sha256 over all sources of a crate's component: its own, those of its path dependencies, and
/// the contract.
pub fn sources_hash(folder: &Path) -> Result<String> {
    let mut files = Vec::new();
    let mut crates = Vec::new();
    gather(folder, &mut files, &mut crates)?;
    let mut hash = Sha256::new();
    for path in files {
        let bytes = std::fs::read(&path).map_err(|e| Error::file("read", &path, &e))?;
        hash.update(Sha256::digest(&bytes));
    }
    hash.update(Sha256::digest(CONTRACT.as_bytes()));
    Ok(hex(&hash.finalize()))
}

/// Collects the sources of a crate and then of its path dependencies, each sorted by name.
fn gather(folder: &Path, files: &mut Vec<PathBuf>, crates: &mut Vec<PathBuf>) -> Result<()> {
    let manifest = folder.join("Cargo.toml");
    let known = std::fs::canonicalize(&manifest).map_err(|e| Error::file("read", &manifest, &e))?;
    if crates.contains(&known) {
        return Ok(());
    }
    crates.push(known);
    let text = std::fs::read_to_string(&manifest).map_err(|e| Error::file("read", &manifest, &e))?;
    let table: toml::Table = toml::from_str(&text)
        .map_err(|e| Error::new(format!("`{}`: {}", manifest.display(), e.message())))?;
    files.push(manifest);
    tree(&folder.join("src"), files)?;
    let dependencies = table.get("dependencies").and_then(toml::Value::as_table);
    for dependency in dependencies.into_iter().flat_map(toml::Table::values) {
        if let Some(path) = dependency.get("path").and_then(toml::Value::as_str) {
            gather(&folder.join(path), files, crates)?;
        }
    }
    Ok(())
}

fn tree(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).map_err(|e| Error::file("read", folder, &e))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            tree(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
