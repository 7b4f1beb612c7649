//! A policy or a grader in C, by clang or zig.

use std::path::Path;
use std::process::Command;

use allot_base::{Error, Result};
use allot_component::Kind;

use super::bench::{Bench, Built};
use super::tool::{complaint, version};
use crate::component;

/// The Debian packages that clang needs to build for Wasm.
const PACKAGES: &str =
    "run: apt-get install -y --no-install-recommends clang lld wasi-libc libclang-rt-14-dev-wasm32";

/// Builds the component of a folder with a `policy.c` or a `grader.c`.
pub fn component(bench: &Bench, tell: &mut dyn FnMut(&str)) -> Result<Built> {
    let Compiler { mut command, toolchain, own } = Compiler::find()?;
    tell(&format!("building {} with {toolchain}", bench.folder.display()));
    command.args(["-mexec-model=reactor", "-std=c11", "-O2", "-flto", "-Wall", "-Wextra"]).args(own);
    // A policy's assertions are checks that must stay in optimized builds.
    command.arg("-UNDEBUG");
    // Built files contain no path of this machine, and name files as their author does.
    command.arg(format!("-ffile-prefix-map={}=.", bench.folder.display()));
    command.arg(format!("-ffile-prefix-map={}=sdk", bench.sdk.display()));
    let (file, glue) = match bench.kind {
        Kind::Policy => ("policy.c", ["allot.c", "gen/policy.c"]),
        Kind::Grader => ("grader.c", ["allot_grader.c", "gen/reward.c"]),
    };
    command.arg("-Wl,-z,stack-size=1048576").arg("-I").arg(&bench.sdk).arg(file);
    command.args(glue.map(|glue| bench.sdk.join(glue)));
    command.arg("-o").arg(bench.out()).current_dir(&bench.folder);
    if let Some(said) = complaint(&mut command)? {
        let what = format!("`{}` does not compile", bench.folder.join(file).display());
        return Err(Error::new(what).hint(format!("the compiler says:\n{}", said.trim())));
    }
    let name = bench.folder.join(file).display().to_string();
    Ok(Built { component: component::of_module(&bench.built()?, &name)?, toolchain })
}

/// A compiler that can build for Wasm.
struct Compiler {
    command: Command,
    toolchain: String,
    /// Arguments that only this compiler needs.
    own: &'static [&'static str],
}

impl Compiler {
    /// Returns the first of these: the clang of a WASI SDK, the installed clang if it has a library and a
    /// linker, zig as a Python package, zig.
    fn find() -> Result<Self> {
        let sdk = std::env::var_os("WASI_SDK_PATH").map(|path| Path::new(&path).join("bin/clang"));
        let clang = sdk.into_iter().chain(["clang".into()]).find_map(|program| {
            let toolchain = version(Command::new(&program).arg("--version"))?;
            whole(&program).then_some((program, toolchain))
        });
        if let Some((program, toolchain)) = clang {
            let mut command = Command::new(program);
            command.arg("--target=wasm32-wasi");
            // The stack is below the data, so that its overflow traps. Line numbers are for error messages.
            let own = &["-Wl,--stack-first", "-gline-tables-only"];
            return Ok(Self { command, toolchain, own });
        }
        let zigs: [(&str, &[&str]); 2] = [("python3", &["-m", "ziglang"]), ("zig", &[])];
        let zig = zigs.into_iter().find_map(|(program, args)| {
            let version = version(Command::new(program).args(args).arg("version"))?;
            Some((program, args, format!("zig {version}")))
        });
        let Some((program, args, toolchain)) = zig else {
            let error = Error::new("there is no C compiler for Wasm");
            return Err(error.hint(PACKAGES).hint("or run: pip install ziglang"));
        };
        let mut command = Command::new(program);
        command.args(args).args(["cc", "-target", "wasm32-wasi"]);
        Ok(Self { command, toolchain, own: &["-s"] })
    }
}

/// Returns whether a clang has all that a build needs.
fn whole(clang: &Path) -> bool {
    ["-print-prog-name=wasm-ld", "-print-file-name=crt1-reactor.o", "-print-libgcc-file-name"]
        .into_iter()
        .all(|part| {
            let mut ask = Command::new(clang);
            version(ask.args(["--target=wasm32-wasi", part])).is_some_and(|path| Path::new(&path).is_file())
        })
}
