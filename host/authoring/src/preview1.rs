//! WASI preview 1, the target of the C and Go toolchains, implemented with the few functions that
//! restricted WASI has.
//!
//! wasmtime's own adapter allocates in the guest before Go's runtime is up, and uses a page that Go's heap
//! then grows over. This one, `preview1.wat`, allocates nothing. A component that prints keeps three
//! imports of WASI; one that does not print keeps none.

use wit_component::{StringEncoding, embed_component_metadata};

/// The module name of preview 1 imports.
pub const NAME: &str = "wasi_snapshot_preview1";

/// The adapter's own imports: only what printing needs, in WASI's lowest version, which every later version
/// provides.
const WORLD: &str = "
package allot:preview1;

world preview1 {
    import wasi:cli/stdout@0.2.0;
    import wasi:cli/stderr@0.2.0;
}

package wasi:cli@0.2.0 {
    interface stdout {
        use wasi:io/streams@0.2.0.{output-stream};
        get-stdout: func() -> output-stream;
    }
    interface stderr {
        use wasi:io/streams@0.2.0.{output-stream};
        get-stderr: func() -> output-stream;
    }
}

package wasi:io@0.2.0 {
    interface error {
        resource error;
    }
    interface streams {
        use error.{error};
        variant stream-error {
            last-operation-failed(error),
            closed,
        }
        resource output-stream {
            blocking-write-and-flush: func(contents: list<u8>) -> result<_, stream-error>;
        }
    }
}
";

/// Returns the adapter, for `ComponentEncoder::adapter` under [`NAME`].
pub fn adapter() -> anyhow::Result<Vec<u8>> {
    let mut module = wat::parse_str(include_str!("preview1.wat"))?;
    let mut resolve = wit_parser::Resolve::default();
    let package = resolve.push_str("preview1.wit", WORLD)?;
    let world = resolve.select_world(&[package], Some("preview1"))?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
    Ok(module)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use wit_component::ComponentEncoder;

    /// Returns a component of a module with these functions of preview 1.
    fn component(imports: &str) -> Vec<u8> {
        let module = format!("(module {imports} (memory (export \"memory\") 1))");
        let mut module = wat::parse_str(module).unwrap();
        let mut resolve = wit_parser::Resolve::default();
        let package = resolve.push_str("empty.wit", "package a:b; world empty {}").unwrap();
        let world = resolve.select_world(&[package], None).unwrap();
        let utf8 = wit_component::StringEncoding::UTF8;
        wit_component::embed_component_metadata(&mut module, &resolve, world, utf8).unwrap();
        let encoder = ComponentEncoder::default().validate(true).module(&module).unwrap();
        encoder.adapter(super::NAME, &super::adapter().unwrap()).unwrap().encode().unwrap()
    }

    fn asks_for_wasi(component: &[u8]) -> bool {
        let name = b"wasi:cli/stdout@0.2.0";
        component.windows(name.len()).any(|w| w == name)
    }

    #[test]
    fn only_what_prints_asks_for_wasi() {
        let clock = r#"(import "wasi_snapshot_preview1" "clock_time_get"
            (func (param i32 i64 i32) (result i32)))"#;
        let write = r#"(import "wasi_snapshot_preview1" "fd_write"
            (func (param i32 i32 i32 i32) (result i32)))"#;
        assert!(!asks_for_wasi(&component(clock)));
        assert!(asks_for_wasi(&component(write)));
    }
}
