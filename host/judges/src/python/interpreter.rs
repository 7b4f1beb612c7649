//! CPython that has started: opened once, and from then on a fresh one for each answer in a fraction of a millisecond.

use std::path::Path;

use allot_base::{Error, Result, write_whole};
use allot_component::{sealed, sha256};
use allot_sandbox::Guests;
use wasmtime::{Engine, InstancePre, Memory, Module, OptLevel, Store, Trap, TypedFunc};

use crate::python::build::{self, BUILDS, Build, MAILBOX};
use crate::python::guest::{self, Exited, Guest};
use crate::python::library::Library;

/// What every interpreter has at hand before any answer comes: modules that answers import, and the two ends of a
/// call from one interpreter to another.
const PRELUDE: &str = include_str!("prelude.py");
/// Instructions that starting and the prelude may take: some times what they do.
const START: u64 = 20_000_000_000;
/// Instructions that importing a library may take: some times what sympy does.
const IMPORT: u64 = 1_000_000_000_000;
/// What an interpreter that has started has of memory, at least, in bytes.
pub const LEAST_MEMORY: usize = 64 << 20;

/// What one answer may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Wasm instructions.
    pub fuel: u64,
    /// Bytes of memory.
    pub memory: usize,
}

/// An interpreter that has started, ready to be copied.
pub struct Interpreter {
    build: &'static Build,
    engine: Engine,
    fresh: InstancePre<Guest>,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It came to its end.
    Done,
    /// It raised an exception, or could not be compiled.
    Raised,
    /// It ended the process.
    Exited(i32),
    /// It used up its instructions.
    OutOfFuel,
    /// It used up its stack, or did something else that ends the interpreter.
    Trapped(String),
}

/// An interpreter at work.
pub struct Session {
    store: Store<Guest>,
    run: TypedFunc<(i32, i32), i32>,
    memory: Memory,
    mailbox: usize,
}

impl Interpreter {
    /// Opens the interpreter in this file. What is made of it, a copy that has started and its compiled form, is kept
    /// in `cache`; without one each opening takes the better part of a minute.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or is none of the builds that are known.
    pub fn open(path: &Path, cache: Option<&Path>) -> Result<Self> {
        let (build, bytes) = known(path)?;
        let started = kept(cache, &key(build), || start(build, &bytes).map_err(failed(build, "start")))?;
        Self::of(build, &started, cache)
    }

    /// The same with a library that has been imported: a minute more the first time, and nothing later.
    ///
    /// # Errors
    ///
    /// As for [`Self::open`], and a library that cannot be imported.
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
        // The first copy makes the image that the others share, which Linux may refuse while it moves these very pages.
        let words = |error: &wasmtime::Error| error.root_cause().to_string();
        let first = || interpreter.session(Limits { fuel: 1, memory: 1 << 30 }).map(drop);
        sealed(words, first).map_err(failed(build, "copy"))?;
        Ok(interpreter)
    }

    /// The module of a fresh one that has imported a library.
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

    /// What it is called, with its version.
    pub fn name(&self) -> &'static str {
        self.build.name
    }

    /// The hash of the file that it was made from.
    pub fn sha256(&self) -> &'static str {
        self.build.sha256
    }

    /// A fresh one.
    ///
    /// # Errors
    ///
    /// What keeps this machine from running one: no answer's fault.
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

    /// What its program reads and writes.
    pub fn guest(&mut self) -> &mut Guest {
        self.store.data_mut()
    }

    /// What its program wrote to its standard error.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.store.data().errors).into_owned()
    }

    /// The exception that its program raised, as Python prints it last.
    pub fn last_error(&self) -> String {
        self.errors().lines().last().unwrap_or("it raised an exception").to_owned()
    }

    /// Instructions that are left.
    pub fn fuel(&self) -> u64 {
        self.store.get_fuel().unwrap_or_default()
    }

    /// Runs a program in its main module. After any end but [`End::Done`] and [`End::Raised`] it cannot run another.
    ///
    /// # Errors
    ///
    /// What keeps this machine from running it: no answer's fault.
    pub fn run(&mut self, program: &str) -> wasmtime::Result<End> {
        // A text with a null in it is no program, and one that does not fit is longer than any answer.
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

/// How a call ended that did not come back. Whatever it was, it came of what the program did.
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

/// Starts a build, and gives the module that has started.
fn start(build: &Build, module: &[u8]) -> wasmtime::Result<Vec<u8>> {
    let broken = |why: String| wasmtime::format_err!("{why}");
    let starting = build::starting(build, module).map_err(broken)?;
    let mut config = Guests::Python.config(None);
    // It runs once.
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

/// The bytes of a build that is known.
fn known(path: &Path) -> Result<(&'static Build, Vec<u8>)> {
    let bytes = std::fs::read(path).map_err(|e| Error::file("read", path, &e))?;
    let hash = sha256(&bytes);
    let build = BUILDS.iter().find(|build| build.sha256 == hash).ok_or_else(|| unknown(path, &hash))?;
    Ok((build, bytes))
}

/// What is kept under a key, or else is made, and kept.
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

/// What a started copy is kept under: all that it is made of.
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
