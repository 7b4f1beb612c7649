//! Compiles the crate anew when a config is added to `configs` or taken away: embedding them tells the compiler only of those it found.

fn main() {
    println!("cargo::rerun-if-changed=../../configs");
}
