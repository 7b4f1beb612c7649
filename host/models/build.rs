//! Packs the models that ship, which `src/shipped.rs` has.

use std::path::Path;
use std::{env, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=shipped");
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for a build script");
    let mut files = allot_packed::Files::default();
    files.add_folder("", Path::new("shipped"))?;
    files.pack(&Path::new(&out).join("shipped"))
}
