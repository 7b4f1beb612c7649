//! The sandbox: a Wasm engine for components, with its clock.

use std::path::Path;
use std::sync::Arc;

use allot_allocation::shown;
use wasmtime::component::Component;
use wasmtime::{Config, Engine};

use crate::engine::Guests;
use crate::guest::TICK;
use crate::inspection::{self, Inspection};
use crate::{Caps, Grader, Kind, LoadError, Policy};

/// Compiles and runs policies and graders.
#[derive(Clone)]
pub struct Sandbox {
    engine: Engine,
    caps: Caps,
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
        Self::of(&Guests::Components.config(cache), caps)
    }

    /// Returns a sandbox for a process in which another library handles signals, where a guest's trap would
    /// end the process. Guests use explicit checks instead of signals, and are slightly slower.
    pub fn embedded(caps: Caps, cache: Option<&Path>) -> Result<Self, LoadError> {
        Self::of(Guests::Components.config(cache).signals_based_traps(false), caps)
    }

    fn of(config: &Config, caps: Caps) -> Result<Self, LoadError> {
        let engine = Engine::new(config).map_err(|e| LoadError::Engine(format!("{e:#}")))?;

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
        Ok(Self { engine, caps, _clock: clock })
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
        let component = Component::from_binary(&self.engine, bytes)
            .map_err(|e| LoadError::uncompiled(bytes, cause(&e)))?;
        let (sandbox, size) = (self.clone(), bytes.len() as u64);
        Ok(Compiled { sandbox, component, inspection, sha256: found, size })
    }

    /// Returns the limits of one call.
    pub fn caps(&self) -> Caps {
        self.caps
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }
}

/// Returns an engine's error as one printable line, since it may contain names chosen by a guest.
pub(crate) fn cause(error: &wasmtime::Error) -> String {
    let text = format!("{error:#}");
    let line = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join(" ");
    shown::line(&line, shown::LINE)
}
