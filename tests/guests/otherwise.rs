//! Policies that use what means nothing in a run, as `allot check` tells their authors.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

use crate::load;
use crate::scratch::{self, Scratch};

/// What WASI's packages offer, as far as it is used here.
const WASI: &str = "
package test:wasi;
world asks {
    import wasi:clocks/monotonic-clock@0.2.0;
    import wasi:random/random@0.2.0;
}
package wasi:clocks@0.2.0 { interface monotonic-clock { now: func() -> u64; } }
package wasi:random@0.2.0 { interface random { get-random-u64: func() -> u64; } }
";

/// A component of a guest that imports this function of WASI as `$ask`, and asks for as many rollouts of the first
/// prompt as its last bits say.
fn asks(interface: &str, function: &str) -> Vec<u8> {
    let counts = scratch::guest_text("counts");
    let import = format!("(import \"{interface}\" \"{function}\" (func $ask (result i64)))\n  (memory");
    let text = counts.replacen("(memory", &import, 1).replacen(
        "(i32.add (i32.load (i32.const 96)) (i32.const 1))",
        "(i32.add (i32.rem_u (i32.wrap_i64 (call $ask)) (i32.const 97)) (i32.const 1))",
        1,
    );
    let mut module = wat::parse_str(text).unwrap();
    let utf8 = StringEncoding::UTF8;
    for (file, text, world) in
        [("allocation.wit", allot_authoring::component::CONTRACT_0_1, "policy"), ("wasi.wit", WASI, "asks")]
    {
        let mut resolve = wit_parser::Resolve::default();
        let package = resolve.push_str(file, text).unwrap();
        let world = resolve.select_world(&[package], Some(world)).unwrap();
        embed_component_metadata(&mut module, &resolve, world, utf8).unwrap();
    }
    ComponentEncoder::default().validate(true).module(&module).unwrap().encode().unwrap()
}

fn warnings(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.starts_with("warn")).collect()
}

#[test]
fn what_means_nothing_in_a_run_is_warned_of() {
    let chance = load(asks("wasi:random/random@0.2.0", "get-random-u64"));
    assert_eq!(
        warnings(&chance),
        [
            "warn  uses random bytes, which are the same in each call: use `view.seed`, which differs in each call"
        ]
    );
    let time = load(asks("wasi:clocks/monotonic-clock@0.2.0", "now"));
    assert_eq!(
        warnings(&time),
        ["warn  uses a clock, but all clocks are frozen: use `view.step` and `view.round`"]
    );
    let memory = load(scratch::guest("counts"));
    assert_eq!(
        warnings(&memory),
        [
            "warn  keeps something in memory, but each call starts with fresh memory: return it as the state instead"
        ]
    );
    // What ships uses nothing of the kind.
    for name in allot_sandbox::shipped::names() {
        let said = Scratch::new().allot(&["check", name]);
        assert_eq!(warnings(&said), [""; 0], "{said}");
    }
}
