//! A started CPython. It is opened once; each answer then gets a fresh copy in a fraction of a millisecond.

use std::path::Path;

use allot_base::{Error, Result, write_whole};
use allot_component::{sealed, sha256};
use allot_sandbox::Guests;
use wasmtime::{Engine, InstancePre, Memory, Module, OptLevel, Store, Trap, TypedFunc};

use crate::python::build::{self, BUILDS, Build, MAILBOX};
use crate::python::guest::{self, Exited, Guest};
use crate::python::library::Library;

/// Code that every interpreter runs before the first answer. It imports modules that answers use, and has
/// both ends of calls between interpreters.
const PRELUDE: &str = include_str!("prelude.py");
/// The most instructions of the start and the prelude: several times their actual number.
const START: u64 = 20_000_000_000;
/// The most instructions of importing a library: several times those of sympy.
const IMPORT: u64 = 1_000_000_000_000;
/// Lower bound on the memory of a started interpreter, in bytes.
pub const LEAST_MEMORY: usize = 64 << 20;

/// Limits of one answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Wasm instructions.
    pub fuel: u64,
    /// Bytes of memory.
    pub memory: usize,
}

/// A started interpreter, ready to be copied.
pub struct Interpreter {
    build: &'static Build,
    engine: Engine,
    fresh: InstancePre<Guest>,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It ran to its end.
    Done,
    /// It raised an exception, or could not be compiled.
    Raised,
    /// It ended the process with this exit code.
    Exited(i32),
    /// It exceeded the instruction limit.
    OutOfFuel,
    /// It overflowed the stack, or did something else that stops the interpreter.
    Trapped(String),
}

/// A running interpreter.
pub struct Session {
    store: Store<Guest>,
    run: TypedFunc<(i32, i32), i32>,
    memory: Memory,
    mailbox: usize,
}

impl Interpreter {
    /// Opens the interpreter in this file. The started copy and its compiled form are kept in `cache`.
    /// Without a cache, each call takes most of a minute.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or is not a supported build.
    pub fn open(path: &Path, cache: Option<&Path>) -> Result<Self> {
        let (build, bytes) = known(path)?;
        let started = kept(cache, &key(build), || start(build, &bytes).map_err(failed(build, "start")))?;
        Self::of(build, &started, cache)
    }

    /// Opens the interpreter with an imported library. The first time takes a minute longer.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::open`], and a library that cannot be imported.
    pub fn with(library: &Library, path: &Path, cache: Option<&Path>) -> Result<Self> {
        let (build, bytes) = known(path)?;
        let key = sha256(format!("{} {}", key(build), library.sha256()));
        let imported = kept(cache, &key, || {
            let plain = Self::open(path, cache)?;
            let starting = build::starting(build, &bytes).map_err(|why| wasmtime::format_err!("{why}"));
            starting.and_then(|starting| plain.import(library, &starting)).map_err(failed(build, "prepare"))
        })?;
        Self::of(build, &imported, cache)
    }

    fn of(build: &'static Build, started: &[u8], cache: Option<&Path>) -> Result<Self> {
        let compiled = cache.map(|folder| folder.join("compiled"));
        let engine =
            Engine::new(&Guests::Python.config(compiled.as_deref())).map_err(failed(build, "prepare"))?;
        let module = Module::new(&engine, started).map_err(failed(build, "compile"))?;
        let linker = guest::linker(&engine, &module).map_err(failed(build, "link"))?;
        let fresh = linker.instantiate_pre(&module).map_err(failed(build, "link"))?;
        let interpreter = Self { build, engine, fresh };
        // The first copy makes the image that all share. Linux may refuse that while it moves these pages.
        let words = |error: &wasmtime::Error| error.root_cause().to_string();
        let first = || interpreter.session(Limits { fuel: 1, memory: 1 << 30 }).map(drop);
        sealed(words, first).map_err(failed(build, "copy"))?;
        Ok(interpreter)
    }

    /// Returns the module of a started interpreter that has imported a library.
    fn import(&self, library: &Library, starting: &[u8]) -> wasmtime::Result<Vec<u8>> {
        let mut session = self.session(Limits { fuel: IMPORT, memory: 1 << 30 })?;
        session.guest().give(library.input());
        let end = session.run(library.setup())?;
        if end != End::Done {
            wasmtime::bail!("{} cannot be imported: {end:?} {}", library.name(), session.errors());
        }
        session.memory.write(&mut session.store, session.mailbox, &vec![0; MAILBOX])?;
        build::started(starting, session.memory.data(&session.store))
            .map_err(|why| wasmtime::format_err!("{why}"))
    }

    /// Returns the build's name and version.
    pub fn name(&self) -> &'static str {
        self.build.name
    }

    /// Returns the sha256 of the build's file.
    pub fn sha256(&self) -> &'static str {
        self.build.sha256
    }

    /// Returns a fresh copy of the interpreter.
    ///
    /// # Errors
    ///
    /// A failure of this machine, not caused by an answer.
    pub fn session(&self, limits: Limits) -> wasmtime::Result<Session> {
        let mut store = Store::new(&self.engine, Guest::new(limits.memory));
        store.limiter(|guest| guest);
        store.set_fuel(limits.fuel)?;
        let instance = self.fresh.instantiate(&mut store)?;
        Session::of(store, &instance, self.build.mailbox)
    }
}

impl Session {
    fn of(mut store: Store<Guest>, instance: &wasmtime::Instance, mailbox: usize) -> wasmtime::Result<Self> {
        let run = instance.get_typed_func(&mut store, build::RUN)?;
        let memory = instance
            .get_memory(&mut store, "memory")
            .ok_or_else(|| wasmtime::format_err!("an interpreter without memory"))?;
        Ok(Self { store, run, memory, mailbox })
    }

    /// Returns the program's streams.
    pub fn guest(&mut self) -> &mut Guest {
        self.store.data_mut()
    }

    /// Returns the program's standard error.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.store.data().errors).into_owned()
    }

    /// Returns the last line of the standard error: the exception that the program raised.
    pub fn last_error(&self) -> String {
        self.errors().lines().last().unwrap_or("it raised an exception").to_owned()
    }

    /// Returns the number of instructions left.
    pub fn fuel(&self) -> u64 {
        self.store.get_fuel().unwrap_or_default()
    }

    /// Runs a program in its main module; not after an end other than [`End::Done`] and [`End::Raised`].
    ///
    /// # Errors
    ///
    /// A failure of this machine, not caused by an answer.
    pub fn run(&mut self, program: &str) -> wasmtime::Result<End> {
        // A text with a null is not a program, and one that does not fit is longer than any answer.
        if program.len() >= MAILBOX || program.contains('\0') {
            return Ok(End::Raised);
        }
        self.memory.write(&mut self.store, self.mailbox, program.as_bytes())?;
        self.memory.write(&mut self.store, self.mailbox + program.len(), &[0])?;
        match self.run.call(&mut self.store, (self.mailbox as i32, 0)) {
            Ok(0) => Ok(End::Done),
            Ok(_) => Ok(End::Raised),
            Err(error) => Ok(ended(&error)),
        }
    }
}

/// Returns the end of a call that trapped. Every trap is caused by the program.
fn ended(error: &wasmtime::Error) -> End {
    if let Some(Exited(code)) = error.downcast_ref() {
        return End::Exited(*code);
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => End::OutOfFuel,
        Some(trap) => End::Trapped(trap.to_string()),
        None => End::Trapped(error.root_cause().to_string()),
    }
}

/// Starts a build and returns the module that has started.
fn start(build: &Build, module: &[u8]) -> wasmtime::Result<Vec<u8>> {
    let broken = |why: String| wasmtime::format_err!("{why}");
    let starting = build::starting(build, module).map_err(broken)?;
    let mut config = Guests::Python.config(None);
    // Not optimized, because it runs only once.
    config.cranelift_opt_level(OptLevel::None);
    let engine = Engine::new(&config)?;
    let compiled = Module::new(&engine, &starting)?;
    let mut store = Store::new(&engine, Guest::new(1 << 30));
    store.limiter(|guest| guest);
    store.set_fuel(START)?;
    let instance = guest::linker(&engine, &compiled)?.instantiate(&mut store, &compiled)?;
    let memory = instance.get_memory(&mut store, "memory");
    let memory = memory.ok_or_else(|| wasmtime::format_err!("it exports no memory"))?;
    if memory.data_size(&store) != build.mailbox {
        wasmtime::bail!("it begins with {} bytes of memory", memory.data_size(&store));
    }
    memory.grow(&mut store, (MAILBOX / build::PAGE) as u64)?;
    let begun = instance.get_typed_func::<(), ()>(&mut store, "_start")?.call(&mut store, ());
    let errors = String::from_utf8_lossy(&store.data().errors).into_owned();
    match begun.map_err(|error| ended(&error)) {
        Err(End::Trapped(_)) if errors.is_empty() => {}
        other => wasmtime::bail!("it did not stop at the expected place: {other:?} {errors}"),
    }
    let mut session = Session::of(store, &instance, build.mailbox)?;
    let prepared = session.run(PRELUDE)?;
    if prepared != End::Done {
        wasmtime::bail!("its prelude ended with {prepared:?}: {}", session.errors());
    }
    session.memory.write(&mut session.store, build.mailbox, &vec![0; MAILBOX])?;
    build::started(&starting, session.memory.data(&session.store)).map_err(broken)
}

/// Reads a file and returns its build, if the build is supported.
fn known(path: &Path) -> Result<(&'static Build, Vec<u8>)> {
    let bytes = std::fs::read(path).map_err(|e| Error::file("read", path, &e))?;
    let hash = sha256(&bytes);
    let build = BUILDS.iter().find(|build| build.sha256 == hash).ok_or_else(|| unknown(path, &hash))?;
    Ok((build, bytes))
}

/// Returns the file stored under a key. If there is none, makes it and stores it.
fn kept(cache: Option<&Path>, key: &str, make: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
    let Some(kept) = cache.map(|folder| folder.join(format!("started-{}.wasm", &key[..16]))) else {
        return make();
    };
    if let Ok(started) = std::fs::read(&kept) {
        return Ok(started);
    }
    let started = make()?;
    write_whole(&kept, &started).map_err(|e| Error::file("write", &kept, &e))?;
    Ok(started)
}

fn failed(build: &Build, what: &str) -> impl FnOnce(wasmtime::Error) -> Error {
    let what = format!("could not {what} {}", build.name);
    move |e: wasmtime::Error| Error::new(format!("{what}: {e:#}"))
}

/// Returns the cache key of a started copy: a hash of everything that it is made of.
fn key(build: &Build) -> String {
    let (prelude, version) = (sha256(PRELUDE), env!("CARGO_PKG_VERSION"));
    sha256(format!("{} {prelude} {version} {}", build.sha256, Guests::SETTINGS))
}

fn unknown(path: &Path, hash: &str) -> Error {
    let known =
        BUILDS.iter().map(|b| format!("{} of {} {} (sha256 {})", b.name, b.package.0, b.package.1, b.sha256));
    Error::new(format!("`{}` is not a known build of Python: its sha256 is {hash}", path.display()))
        .hint(format!("use {}", known.collect::<Vec<_>>().join(", ")))
}
