//! The sandbox: a Wasm engine for components, with its clock.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_allocation::shown;
use wasmtime::component::Component;
use wasmtime::{Config, Engine};

use crate::engine::Guests;
use crate::functions::Functions;
use crate::guest::TICK;
use crate::inspection::{self, Inspection};
use crate::slots::{Slot, Slots};
use crate::{Caps, Grader, Kind, LoadError, Policy};

/// Components from this size on contain an interpreter or a language's runtime: compiled functions are kept for the next one.
/// Below it, a component compiles in less time than those functions are read in.
const LARGE: usize = 1 << 20;

/// Compiles and runs policies and graders.
#[derive(Clone)]
pub struct Sandbox {
    engine: Engine,
    caps: Caps,
    /// What the engine was made with, and the folder in which compiled code is cached.
    config: Arc<Config>,
    cache: Option<PathBuf>,
    /// Room for calls, if memory is kept between them.
    slots: Option<Arc<Slots>>,
    // Keeps the clock ticking while the sandbox or one of its policies exists.
    _clock: Arc<()>,
}

/// A compiled component that is not linked yet.
pub(crate) struct Compiled {
    pub sandbox: Sandbox,
    pub component: Component,
    pub inspection: Inspection,
    pub sha256: String,
    /// In bytes.
    pub size: u64,
}

impl Sandbox {
    /// Returns a sandbox. Compiled code is cached in `cache`, if given. An unusable cache costs time, but
    /// changes no result.
    pub fn new(caps: Caps, cache: Option<&Path>) -> Result<Self, LoadError> {
        Self::of(&Guests::Components.config(cache), cache, caps, true)
    }

    /// Returns a sandbox for a process in which another library handles signals, where a guest's trap would
    /// end the process. Guests use explicit checks instead of signals, and are slightly slower.
    pub fn embedded(caps: Caps, cache: Option<&Path>) -> Result<Self, LoadError> {
        Self::of(Guests::Components.config(cache).signals_based_traps(false), cache, caps, false)
    }

    fn of(config: &Config, cache: Option<&Path>, caps: Caps, keeps: bool) -> Result<Self, LoadError> {
        let (engine, slots) = match keeps.then(|| Slots::engine(config, caps)).flatten() {
            Some((engine, slots)) => (engine, Some(Arc::new(slots))),
            None => (Engine::new(config).map_err(unmade)?, None),
        };

        let clock = Arc::new(());
        let (ticked, alive) = (engine.weak(), Arc::downgrade(&clock));
        std::thread::Builder::new()
            .name("wasm-clock".to_owned())
            .spawn(move || {
                while alive.strong_count() > 0 {
                    std::thread::sleep(TICK);
                    if let Some(engine) = ticked.upgrade() {
                        engine.increment_epoch();
                    }
                }
            })
            .map_err(|e| LoadError::Engine(format!("no thread for its clock: {e}")))?;
        let (config, cache) = (Arc::new(config.clone()), cache.map(Path::to_owned));
        Ok(Self { engine, caps, config, cache, slots, _clock: clock })
    }

    /// Returns the same sandbox with an engine that uses these functions, since an engine can't be given them later. What it
    /// compiles is the same.
    fn with(&self, functions: &Arc<Functions>) -> Result<Self, LoadError> {
        let mut config = Config::clone(&self.config);
        config.enable_incremental_compilation(Arc::clone(functions) as _).map_err(unmade)?;
        Self::of(&config, self.cache.as_deref(), self.caps, self.slots.is_some())
    }

    /// Loads a policy from a component's bytes. `sha256` is the expected hash, if the config has one.
    pub fn load(&self, bytes: &[u8], sha256: Option<&str>) -> Result<Policy, LoadError> {
        Policy::new(self.compile(bytes, sha256, Kind::Policy)?)
    }

    /// Loads a grader from a component's bytes. `sha256` is the expected hash, if the config has one.
    pub fn load_grader(&self, bytes: &[u8], sha256: Option<&str>) -> Result<Grader, LoadError> {
        Grader::new(self.compile(bytes, sha256, Kind::Grader)?)
    }

    fn compile(&self, bytes: &[u8], sha256: Option<&str>, kind: Kind) -> Result<Compiled, LoadError> {
        let found = allot_component::sha256(bytes);
        if let Some(expected) = sha256.filter(|expected| !expected.eq_ignore_ascii_case(&found)) {
            return Err(LoadError::OtherHash { found, expected: expected.to_owned() });
        }
        let inspection = inspection::of(bytes, kind)?;
        let cache = self.cache.as_deref().filter(|_| bytes.len() >= LARGE);
        let functions = cache.map(|cache| Arc::new(Functions::of(cache)));
        let mut sandbox =
            functions.as_ref().map_or_else(|| Ok(self.clone()), |functions| self.with(functions))?;
        let mut component = Component::from_binary(&sandbox.engine, bytes);
        if component.is_err() && sandbox.slots.is_some() {
            // It may have more memories or tables than there is kept memory for.
            sandbox = Self::of(&sandbox.config, self.cache.as_deref(), self.caps, false)?;
            component = Component::from_binary(&sandbox.engine, bytes);
        }
        let component = component.map_err(|e| LoadError::uncompiled(bytes, cause(&e)))?;
        if let Some(functions) = functions {
            functions.keep();
        }
        let size = bytes.len() as u64;
        Ok(Compiled { sandbox, component, inspection, sha256: found, size })
    }

    /// Returns the limits of one call.
    pub fn caps(&self) -> Caps {
        self.caps
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns room for a call, if memory is kept between calls.
    pub(crate) fn slot(&self) -> Option<Slot<'_>> {
        self.slots.as_ref().map(|slots| slots.enter())
    }
}

fn unmade(error: wasmtime::Error) -> LoadError {
    LoadError::Engine(format!("{error:#}"))
}

/// Returns an engine's error as one printable line, since it may contain names chosen by a guest.
pub(crate) fn cause(error: &wasmtime::Error) -> String {
    let text = format!("{error:#}");
    let line = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join(" ");
    shown::line(&line, shown::LINE)
}
