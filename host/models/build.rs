//! Packs the models that ship, which `src/shipped.rs` has.

fn main() -> std::io::Result<()> {
    allot_packed::pack_folder("shipped", "shipped")
}
