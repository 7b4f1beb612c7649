//! Configurations of both Wasm engines: the one for components in this crate, and the one for generated
//! Python in `allot_judges::python`. Results and fuel use are the same in both, and on every machine.

use std::io::Write as _;
use std::path::Path;
use std::sync::Once;

use allot_allocation::shown;
use wasmtime::{Cache, CacheConfig, Config, WasmBacktraceDetails};

/// The kind of guests that an engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guests {
    /// Policies and graders.
    Components,
    /// Generated programs in CPython.
    Python,
}

impl Guests {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Components, Self::Python];
    /// Settings that guests can observe. They are part of the cache key of a precomputed guest memory. (The
    /// cache key of compiled code includes all settings by itself.)
    pub const SETTINGS: &str = "canonical NaNs, deterministic relaxed SIMD";

    /// Returns the engine configuration for these guests. Compiled code is cached in `cache`, if given.
    pub fn config(self, cache: Option<&Path>) -> Config {
        let mut config = Config::new();
        // Answers may depend on these settings, so they must not follow a processor's or version's default.
        config
            .consume_fuel(true)
            .cranelift_nan_canonicalization(true)
            .relaxed_simd_deterministic(true)
            .max_wasm_stack(self.stack());
        match self {
            Self::Components => {
                config.wasm_component_model(true).epoch_interruption(true);
                // Backtraces show the guest's files and lines. The default depends on the environment.
                config.wasm_backtrace_details(WasmBacktraceDetails::Enable)
            }
            Self::Python => config.wasm_backtrace_max_frames(None),
        };
        if let Some(folder) = cache {
            keep_compiled(&mut config, folder);
        }
        config
    }

    /// Returns the stack size of a guest in bytes. A program's tests call its functions from one
    /// interpreter in another; both have their stack on one thread of 2 MiB.
    fn stack(self) -> usize {
        match self {
            Self::Components => 1 << 20,
            Self::Python => 512 << 10,
        }
    }
}

/// Caches compiled code in a folder. Warns once if the folder is unusable, which costs time but no result.
fn keep_compiled(config: &mut Config, folder: &Path) {
    static WARNED: Once = Once::new();
    let mut settings = CacheConfig::new();
    settings.with_directory(folder);
    match Cache::new(settings) {
        Ok(cache) => _ = config.cache(Some(cache)),
        Err(error) => WARNED.call_once(|| {
            let error = shown::line(&format!("{error:#}"), shown::LINE);
            let _ = writeln!(
                std::io::stderr(),
                "warning: compiled WebAssembly cannot be kept, so that each start compiles it again: {error}\n\
                 hint: Make the folder writable, or set ALLOT_CACHE to one that is."
            );
        }),
    }
}
