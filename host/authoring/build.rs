//! Collects the sources of the shipped policies into one folder, which `src/copy.rs` embeds. The rest of
//! `policies` (components, SDKs, templates, twins in other languages) would make the program larger.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=../../policies");
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for a build script");
    let to = Path::new(&out).join("policies");
    if to.exists() {
        fs::remove_dir_all(&to)?;
    }
    for entry in fs::read_dir("../../policies")? {
        let policy = entry?;
        if policy.path().join("Cargo.toml").is_file() {
            let to = to.join(policy.file_name());
            copy(&policy.path().join("src"), &to.join("src"))?;
            fs::copy(policy.path().join("Cargo.toml"), to.join("Cargo.toml"))?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (entry, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name())))?;
        if entry.is_dir() { copy(&entry, &to)? } else { fs::copy(&entry, &to).map(|_| ())? }
    }
    Ok(())
}
