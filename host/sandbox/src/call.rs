//! A call of a component: a fresh instance under limits, and whatever happens told in words.

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

/// Bytes that a description may hand over, far more than a usable one has.
pub(crate) const DESCRIPTION: usize = 4 << 20;

/// Makes fresh instances of a component, each for one call.
pub(crate) struct Caller {
    sandbox: Sandbox,
    wasi: bool,
}

impl Caller {
    /// For components that import WASI, or not.
    pub fn new(sandbox: Sandbox, wasi: bool) -> Self {
        Self { sandbox, wasi }
    }

    /// A linker with what of WASI a component gets.
    pub fn linker(&self) -> Result<Linker<GuestState>, LoadError> {
        let mut linker: Linker<GuestState> = Linker::new(self.sandbox.engine());
        if self.wasi {
            wasmtime_wasi::p2::add_to_linker_sync(&mut linker)
                .and_then(|()| never_wait(&mut linker))
                .map_err(|e| LoadError::Engine(sandbox::cause(&e)))?;
        }
        Ok(linker)
    }

    /// The types of a component's exports are compared with the contract's when an instance is made. The first instance
    /// also makes the image of the component's memory, which Linux may refuse while it moves these very pages: then
    /// again. `contract` is what an error calls the contract.
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

    /// Asks a fresh instance, and tells whatever happens in words. The instance hands over `most` bytes
    /// at a time at most.
    pub fn call<T: Send>(
        &self,
        most: usize,
        other: Option<Other>,
        ask: impl FnOnce(&mut Store<GuestState>) -> Answer<T> + Send,
    ) -> Result<(T, Cost), Fault> {
        let here = || {
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
        // The engine keeps this error's type to itself.
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
        // Where there are lines, functions that were inlined have a symbol of their own.
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
    // A recursion that ran into the end of the stack is the same frame over and over.
    frames.dedup();
    frames.truncate(12);
    frames
}
