//! Making components: of a Rust policy's crate, or of any core Wasm module. Authors need no tool
//! but this program and their compiler.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};
use wasi_preview1_component_adapter_provider as adapter;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

use crate::trouble::{Result, Trouble};
use allot_record::hex;

/// The contract that components are made for.
pub const CONTRACT: &str = include_str!("../../wit/allocation.wit");
const TARGET: &str = "wasm32-unknown-unknown";

/// A component of a core module's bytes or text; a component comes back as it is.
pub fn of_module(bytes: &[u8], name: &str) -> Result<Vec<u8>> {
    let text = std::str::from_utf8(bytes).is_ok_and(|t| t.contains("(module") || t.contains("(component"));
    if !bytes.starts_with(b"\0asm") && !text {
        return Err(Trouble::new(format!("`{name}` is neither a Wasm module nor its text")));
    }
    let module = wat::parse_bytes(bytes)
        .map_err(|e| Trouble::new(format!("`{name}` is no Wasm: {}", wat_error(&e.to_string()))))?;
    if wasmparser::Parser::is_component(&module) {
        return Ok(module.into_owned());
    }
    encode(module.into_owned()).map_err(|e| {
        let why = one_line(&format!("{e:#}"));
        let trouble = Trouble::new(format!("`{name}` does not become a component: {why}"));
        trouble.hint(
            "a module exports what wit/allocation.wit asks for; `allot new NAME` makes a policy that does",
        )
    })
}

/// The message of an error in Wasm text, and where it is: "message (line 3)".
fn wat_error(text: &str) -> String {
    let message = text.lines().next().unwrap_or_default().trim();
    let place = text.split("<anon>:").nth(1).and_then(|rest| rest.split(':').next());
    place.map_or_else(|| message.to_owned(), |line| format!("{message} (line {line})"))
}

fn encode(mut module: Vec<u8>) -> anyhow::Result<Vec<u8>> {
    let sections: Vec<String> = custom_sections(&module);
    // A module that no binding generator has touched carries no types; it is taken to follow the
    // canonical ABI of the contract.
    if !sections.iter().any(|name| name.starts_with("component-type")) {
        let mut resolve = wit_parser::Resolve::default();
        let package = resolve.push_str("allocation.wit", CONTRACT)?;
        let world = resolve.select_world(&[package], Some("policy"))?;
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
    }
    let mut encoder = ComponentEncoder::default().validate(true).module(&module)?;
    if imports(&module).iter().any(|from| from == adapter::WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME) {
        encoder = encoder.adapter(
            adapter::WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME,
            adapter::WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
        )?;
    }
    encoder.encode()
}

fn custom_sections(module: &[u8]) -> Vec<String> {
    let payloads = wasmparser::Parser::new(0).parse_all(module).filter_map(std::result::Result::ok);
    payloads
        .filter_map(|p| match p {
            wasmparser::Payload::CustomSection(section) => Some(section.name().to_owned()),
            _ => None,
        })
        .collect()
}

fn imports(module: &[u8]) -> Vec<String> {
    let payloads = wasmparser::Parser::new(0).parse_all(module).filter_map(std::result::Result::ok);
    let mut modules = Vec::new();
    for payload in payloads {
        if let wasmparser::Payload::ImportSection(section) = payload {
            modules.extend(section.into_imports().filter_map(|i| Some(i.ok()?.module.to_owned())));
        }
    }
    modules
}

/// A crate that was built.
pub struct Built {
    /// Its component.
    pub component: Vec<u8>,
    /// The compiler that built it, and how it came by the standard library.
    pub toolchain: String,
}

/// The component of a Rust crate, built in release mode.
pub fn of_crate(folder: &Path, tell: &mut dyn FnMut(&str)) -> Result<Built> {
    let manifest = folder.join("Cargo.toml");
    if !manifest.is_file() {
        return Err(Trouble::new(format!("`{}` is no crate: it has no Cargo.toml", folder.display())));
    }
    let metadata = output(
        Command::new("cargo").args(["metadata", "--no-deps", "--format-version=1"]).current_dir(folder),
    )?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)
        .map_err(|e| Trouble::new(format!("cargo metadata gave no JSON: {e}")))?;
    let text = |v: &serde_json::Value| v.as_str().map(PathBuf::from).unwrap_or_default();
    // Apart from the crate's own target folder: another compiler may be at work here.
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
    // What makes a component small and quick, whatever the crate's own profile says.
    for setting in
        ["lto=true", "codegen-units=1", "panic=\"abort\"", "strip=true", "debug=false", "opt-level=3"]
    {
        cargo.arg("--config").arg(format!("profile.release.{setting}"));
    }
    cargo.arg("--target-dir").arg(&target_dir).current_dir(folder);
    let messages = output(&mut cargo)?;

    let manifest = std::fs::canonicalize(&manifest).map_err(|e| Trouble::file("read", &manifest, &e))?;
    let artifacts = messages.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    let module = artifacts
        .filter(|m| m["reason"] == "compiler-artifact" && text(&m["manifest_path"]) == manifest)
        .flat_map(|m| m["filenames"].as_array().cloned().unwrap_or_default())
        .map(|name| text(&name))
        .find(|name| name.extension().is_some_and(|e| e == "wasm"));
    let Some(module) = module else {
        let trouble = Trouble::new(format!("`{}` builds no Wasm module", folder.display()));
        return Err(trouble.hint("put `crate-type = [\"cdylib\", \"rlib\"]` under [lib] in its Cargo.toml"));
    };
    let bytes = std::fs::read(&module).map_err(|e| Trouble::file("read", &module, &e))?;
    let component = of_module(&bytes, &module.display().to_string())?;
    Ok(Built { component, toolchain: toolchain.says })
}

/// A compiler that can build for Wasm, and how.
struct Toolchain {
    says: String,
    rustc: PathBuf,
    build_std: bool,
    linker: Option<PathBuf>,
    remap: Vec<(PathBuf, &'static str)>,
}

impl Toolchain {
    /// The first of: a toolchain with the Wasm target; one with its library's source; Debian's pair
    /// of packages, which need no rustup.
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
        let trouble = Trouble::new(format!("{version} has no standard library for {TARGET}"));
        Err(trouble.hint(
            "rustup target add wasm32-unknown-unknown\nhint: or, on Debian: apt-get install -y --no-install-recommends rustc-web rust-web-src",
        ))
    }

    /// cargo, set up for this compiler, with no path of this machine left in what it builds.
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

/// Runs a program and gives what it prints; what it complains of goes to the screen.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let args: Vec<String> = command.get_args().take(2).map(|a| a.to_string_lossy().into_owned()).collect();
    let done = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).output();
    let done = done.map_err(|e| {
        let trouble = Trouble::new(format!("could not run `{program}`: {e}"));
        trouble.hint("install Rust from https://rustup.rs, or with your system's packages")
    })?;
    if !done.status.success() {
        return Err(Trouble::new(format!("`{program} {}` failed ({})", args.join(" "), done.status)));
    }
    String::from_utf8(done.stdout).map_err(|_| Trouble::new(format!("`{program}` printed no UTF-8")))
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join(" ")
}

/// One sha256 over everything that a crate's component is made of: its sources, those of its path
/// dependencies, and the contract.
pub fn sources_hash(folder: &Path) -> Result<String> {
    let mut files = Vec::new();
    let mut crates = Vec::new();
    gather(folder, &mut files, &mut crates)?;
    let mut hash = Sha256::new();
    for path in files {
        let bytes = std::fs::read(&path).map_err(|e| Trouble::file("read", &path, &e))?;
        hash.update(Sha256::digest(&bytes));
    }
    hash.update(Sha256::digest(CONTRACT.as_bytes()));
    Ok(hex(&hash.finalize()))
}

/// The sources of a crate and then of its path dependencies, each in the order of their names.
fn gather(folder: &Path, files: &mut Vec<PathBuf>, crates: &mut Vec<PathBuf>) -> Result<()> {
    let manifest = folder.join("Cargo.toml");
    let known = std::fs::canonicalize(&manifest).map_err(|e| Trouble::file("read", &manifest, &e))?;
    if crates.contains(&known) {
        return Ok(());
    }
    crates.push(known);
    let text = std::fs::read_to_string(&manifest).map_err(|e| Trouble::file("read", &manifest, &e))?;
    let table: toml::Table = toml::from_str(&text)
        .map_err(|e| Trouble::new(format!("`{}`: {}", manifest.display(), e.message())))?;
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
    let entries = std::fs::read_dir(folder).map_err(|e| Trouble::file("read", folder, &e))?;
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
