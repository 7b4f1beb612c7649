//! `allot-smith SHAPE FOLDER SEED FIRST COUNT`: random Wasm modules with the exports of a module, and some of its imports, each made
//! of the seed and its number: FOLDER/N.wasm. A number of which no module can be made has no file.

#[allow(dead_code, reason = "a campaign uses all of it")]
#[path = "../../chance.rs"]
mod chance;

use std::path::Path;
use std::process::ExitCode;

use arbitrary::Unstructured;
use chance::Chance;
use wasm_smith::{Config, Module};

fn main() -> ExitCode {
    match written(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
    }
}

fn written(args: &[String]) -> Result<(), String> {
    let [shape, folder, seed, first, count] = args else {
        return Err("allot-smith SHAPE FOLDER SEED FIRST COUNT".to_owned());
    };
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("`{text}` is no number: {e}"));
    let (seed, first, count) = (number(seed)?, number(first)?, number(count)?);
    let shape = std::fs::read(shape).map_err(|e| format!("`{shape}` cannot be read: {e}"))?;
    for n in first..first + count {
        let Some(module) = module(&shape, seed, n) else { continue };
        let path = Path::new(folder).join(format!("{n}.wasm"));
        std::fs::write(&path, module).map_err(|e| format!("`{}` cannot be written: {e}", path.display()))?;
    }
    Ok(())
}

fn module(shape: &[u8], seed: u64, n: u64) -> Option<Vec<u8>> {
    let mut chance = Chance(seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let bytes: Vec<u8> = (0..512 << (n % 5)).flat_map(|_| chance.next().to_le_bytes()).collect();
    // What every engine knows, and in every third what only some do.
    let new = n % 3 == 2;
    let config = Config {
        exports: Some(shape.to_vec()),
        available_imports: Some(shape.to_vec()),
        max_funcs: 40,
        max_memory32_bytes: 64 << 20,
        max_memories: 1,
        memory64_enabled: new,
        threads_enabled: new,
        gc_enabled: new,
        exceptions_enabled: new,
        // References to what the host has: they want a collector.
        reference_types_enabled: new,
        tail_call_enabled: new,
        custom_page_sizes_enabled: false,
        wide_arithmetic_enabled: new,
        shared_everything_threads_enabled: false,
        ..Config::default()
    };
    Module::new(config, &mut Unstructured::new(&bytes)).ok().map(|module| module.to_bytes())
}
