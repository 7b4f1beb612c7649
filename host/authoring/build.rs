//! Packs what new projects are made of: templates, SDKs, and the sources of the shipped policies. The rest of `policies`
//! (components, twins in other languages) would make the program larger.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=../../policies");
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for a build script");
    let (policies, mut files) = (Path::new("../../policies"), allot_packed::Files::default());
    for name in ["templates", "sdk"] {
        files.add_folder(name, &policies.join(name))?;
    }
    for entry in fs::read_dir(policies)? {
        let (policy, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if policy.join("Cargo.toml").is_file() {
            let name = format!("sources/{}", name.to_string_lossy());
            files.add_folder(&format!("{name}/src"), &policy.join("src"))?;
            files.add(&format!("{name}/Cargo.toml"), &policy.join("Cargo.toml"));
        }
    }
    files.pack(&Path::new(&out).join("projects"))
}
