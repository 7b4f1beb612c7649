//! Packs the components that ship, which `src/shipped.rs` has.

fn main() -> std::io::Result<()> {
    allot_packed::pack_folder("../../policies/prebuilt", "prebuilt")
}
