//! Calls of a component, each in a fresh instance under limits, with failures turned into [`Fault`]s.

use allot_allocation::shown;
use allot_component::sealed;
use wasmtime::component::Linker;
use wasmtime::{Store, Trap, WasmBacktrace};

use crate::calls::Answer;
use crate::cost::Cost;
use crate::fault::{Fault, Misuse};
use crate::guest::GuestState;
use crate::restricted_wasi::{Other, RestrictedWasi, never_wait};
use crate::{LoadError, Sandbox, sandbox};

/// Most bytes that a description may return; a usable description needs far fewer.
pub(crate) const DESCRIPTION: usize = 4 << 20;

/// Makes fresh instances of a component, each for one call.
pub(crate) struct Caller {
    sandbox: Sandbox,
    wasi: bool,
}

impl Caller {
    /// Returns a caller. `wasi` says whether its components import WASI.
    pub fn new(sandbox: Sandbox, wasi: bool) -> Self {
        Self { sandbox, wasi }
    }

    /// Returns a linker with the restricted WASI if the component imports WASI.
    pub fn linker(&self) -> Result<Linker<GuestState>, LoadError> {
        let mut linker: Linker<GuestState> = Linker::new(self.sandbox.engine());
        if self.wasi {
            wasmtime_wasi::p2::add_to_linker_sync(&mut linker)
                .and_then(|()| never_wait(&mut linker))
                .map_err(|e| LoadError::Engine(sandbox::cause(&e)))?;
        }
        Ok(linker)
    }

    /// Compares the types of a component's exports with the contract's by instantiating it once. The first
    /// instance also creates the component's memory image. Linux may refuse that while it moves the same
    /// pages, so the attempt is repeated. `contract` is the contract's name in errors.
    pub fn fits<I>(
        &self,
        contract: &str,
        instantiate: impl Fn(&mut Store<GuestState>) -> wasmtime::Result<I>,
    ) -> Result<(), LoadError> {
        let misfit = |error: &LoadError| match error {
            LoadError::Misfit { why, .. } => why.clone(),
            _ => String::new(),
        };
        sealed(misfit, || {
            let _slot = self.sandbox.slot();
            let mut store =
                self.store(None, DESCRIPTION).map_err(|e| LoadError::Engine(sandbox::cause(&e)))?;
            let made = instantiate(&mut store);
            match made {
                Ok(_) => Ok(()),
                Err(e) if e.downcast_ref::<Trap>().is_some() || store.data().limiter.refused.is_some() => {
                    Err(LoadError::Describe(self.fault(&e, &store)))
                }
                Err(e) => Err(LoadError::Misfit { contract: contract.to_owned(), why: sandbox::cause(&e) }),
            }
        })
    }

    fn store(&self, other: Option<Other>, most: usize) -> wasmtime::Result<Store<GuestState>> {
        let quiet = self.wasi.then(|| RestrictedWasi::new(other));
        GuestState::store(self.sandbox.engine(), self.sandbox.caps(), quiet, most)
    }

    /// Calls a fresh instance and returns the answer with its cost, or the fault. The instance may return
    /// at most `most` bytes at a time.
    pub fn call<T: Send>(
        &self,
        most: usize,
        other: Option<Other>,
        ask: impl FnOnce(&mut Store<GuestState>) -> Answer<T> + Send,
    ) -> Result<(T, Cost), Fault> {
        let here = || {
            let _slot = self.sandbox.slot();
            let mut store = self.store(other, most).map_err(|e| Fault::Engine(sandbox::cause(&e)))?;
            let answer = ask(&mut store).map_err(|error| self.fault(&error, &store))?;
            let fuel = store.get_fuel().map_or(0, |left| self.sandbox.caps().fuel.saturating_sub(left));
            let room = store.data_mut();
            let printed = room.printed();
            let cost = Cost { fuel, memory: room.limiter.peak, log: room.take_log(), printed };
            Ok((answer.map_err(Fault::Refused)?, cost))
        };
        if !self.wasi {
            return here();
        }
        // WASI's blocking calls can't run on a thread that drives an async runtime.
        std::thread::scope(|scope| match scope.spawn(here).join() {
            Ok(answer) => answer,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    fn fault(&self, error: &wasmtime::Error, store: &Store<GuestState>) -> Fault {
        let caps = self.sandbox.caps();
        let room = store.data();
        if let Some(wanted) = room.limiter.refused {
            return Fault::OutOfMemory { wanted, limit: caps.memory };
        }
        // Wasmtime does not export this error's type, so its text is compared.
        let words = error.root_cause().to_string();
        if words.contains("fuel allocated for hostcalls has been exhausted") {
            return Fault::TooMuch(store.hostcall_fuel());
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => return Fault::OutOfFuel(caps.fuel),
            Some(Trap::Interrupt) => return Fault::OutOfTime { limit: caps.time, place: None },
            _ => {}
        }
        if let Some(misuse) = error.downcast_ref::<Misuse>() {
            return Fault::Misused(misuse.clone());
        }
        let stack = error.downcast_ref::<WasmBacktrace>().map(frames).unwrap_or_default();
        let reason = error.downcast_ref::<Trap>().map_or(words, ToString::to_string);
        let reason = shown::line(&reason, shown::LINE);
        Fault::Trapped { reason, said: room.last_words(), stack }
    }
}

fn frames(backtrace: &WasmBacktrace) -> Vec<String> {
    let shown = |name: &str| shown::word(name, 200);
    let mut frames: Vec<String> = Vec::new();
    for frame in backtrace.frames() {
        // With line information, each inlined function has its own symbol.
        let symbols = frame.symbols();
        for symbol in symbols {
            let Some(name) = symbol.name().or(frame.func_name()) else { continue };
            let place =
                symbol.file().zip(symbol.line()).map(|(file, line)| format!(" ({}:{line})", shown(file)));
            frames.push(shown(name) + &place.unwrap_or_default());
        }
        if symbols.is_empty() {
            frames.extend(frame.func_name().map(shown));
        }
    }
    // A recursion that overflowed the stack repeats the same frame.
    frames.dedup();
    frames.truncate(12);
    frames
}
