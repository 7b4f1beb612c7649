//! The configuration of both Wasm engines: the one for components in this crate, and the one for generated Python in
//! `allot_judges::python`. A guest's results and its use of fuel are the same in both, and on every machine.

use std::io::Write as _;
use std::path::Path;
use std::sync::Once;

use allot_allocation::shown;
use wasmtime::{Cache, CacheConfig, Config, WasmBacktraceDetails};

/// The guests of an engine.
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
    /// The settings that guests can see, in words: part of the key of a memory that a guest has computed. (The key of compiled
    /// code has all settings by itself.)
    pub const SETTINGS: &str = "canonical NaNs, deterministic relaxed SIMD";

    /// Returns the configuration of an engine for these guests, whose compiled code is kept in a folder, if there is one.
    pub fn config(self, cache: Option<&Path>) -> Config {
        let mut config = Config::new();
        // An answer may depend on these, so that no default of a processor or of a version counts.
        config
            .consume_fuel(true)
            .cranelift_nan_canonicalization(true)
            .relaxed_simd_deterministic(true)
            .max_wasm_stack(self.stack());
        match self {
            Self::Components => {
                config.wasm_component_model(true).epoch_interruption(true);
                // Files and lines of a guest's stack, if it names them. The default depends on the environment.
                config.wasm_backtrace_details(WasmBacktraceDetails::Enable)
            }
            Self::Python => config.wasm_backtrace_max_frames(None),
        };
        if let Some(folder) = cache {
            keep_compiled(&mut config, folder);
        }
        config
    }

    /// Bytes of a guest's stack. A program's tests call its functions from one interpreter to another: both have their
    /// stack on one thread of 2 MiB.
    fn stack(self) -> usize {
        match self {
            Self::Components => 1 << 20,
            Self::Python => 512 << 10,
        }
    }
}

/// Keeps compiled code in a folder. A folder that cannot be used costs time and changes no result: there is a warning, once.
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
