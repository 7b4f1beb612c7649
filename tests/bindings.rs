//! The SDK's committed bindings are what wit-bindgen makes of the contract. They are committed so
//! that an author's build needs neither the generator nor its minutes.
//!
//! After a change of the WIT: `ALLOT_BLESS=1 cargo test --release --test bindings`.

use std::path::Path;

use wit_bindgen_core::{Files, WorldGenerator};

#[test]
fn sdk_bindings_match_the_contract() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("host/ lies in the workspace");
    let mut resolve = wit_parser::Resolve::default();
    let (package, _) = resolve.push_path(root.join("wit/allocation.wit")).expect("the contract parses");
    let world =
        resolve.select_world(&[package], Some("policy")).expect("the contract has the world `policy`");

    let opts = wit_bindgen_rust::Opts {
        generate_all: true,
        pub_export_macro: true,
        export_macro_name: Some("export_component".to_owned()),
        default_bindings_module: Some("$crate::bindings".to_owned()),
        additional_derive_attributes: vec!["PartialEq".to_owned()],
        format: true,
        ..Default::default()
    };
    let mut files = Files::default();
    opts.build().generate(&mut resolve, world, &mut files).expect("the generator runs");
    let (_, fresh) = files.iter().next().expect("the generator gives one file");

    let path = root.join("policies/sdk/rust/src/bindings.rs");
    if std::env::var_os("ALLOT_BLESS").is_some() {
        std::fs::write(&path, fresh).expect("policies/sdk/rust/src is writable");
    }
    let committed = std::fs::read(&path).expect("policies/sdk/rust/src/bindings.rs is there");
    assert!(
        committed == fresh,
        "the bindings are stale; run: ALLOT_BLESS=1 cargo test --release --test bindings"
    );
}
