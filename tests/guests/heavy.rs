//! Guests that are small and ask for much: of the host's memory, its disk, its compiler.

use allot_sandbox::{Caps, LoadError, Sandbox};

use crate::scratch::{self, Scratch};
use crate::{load, run, run_text};

#[test]
fn a_list_that_no_plan_has_is_not_copied() {
    let said = run("many_ids");
    assert!(
        said.contains("policy `guest` returned or logged too much: more than 33558528 bytes at once"),
        "{said}"
    );
    assert!(said.ends_with("exit code 2"), "{said}");
}

#[test]
fn lists_that_overlap_count_each() {
    let said = run("overlaps");
    assert!(
        said.contains("policy `guest` returned or logged too much: more than 33558528 bytes at once"),
        "{said}"
    );
}

#[test]
fn a_plan_that_is_kept_is_cut() {
    let (scratch, said) = run_text(&scratch::guest_text("skips_a_million"));
    assert!(said.contains("skipped prompt `0`"), "{said}");
    let kept: serde_json::Value = serde_json::from_str(&scratch.read("out/view-0.0.json")).unwrap();
    assert_eq!(kept["plan_cut_to"], 10_000);
    assert_eq!(kept["plan"]["skip"].as_array().unwrap().len(), 10_000);
    assert!(scratch.allot(&["replay", "out", "./guest.wasm", "--at", "0.0"]).contains("skipped prompt `0`"));
}

#[test]
fn the_state_that_a_run_begins_with_has_the_bound_of_all_states() {
    let begin = |bytes: u32| {
        let state = format!(
            "(local $s i32) (local.set $s (call $alloc (i32.const 32)))
             (i32.store offset=4 (local.get $s) (call $alloc (i32.const {bytes})))
             (i32.store offset=8 (local.get $s) (i32.const {bytes})) (local.get $s))"
        );
        run_text(&scratch::guest_text("trains_on_nothing").replace("(call $alloc (i32.const 32)))", &state)).1
    };
    let said = begin(17 << 20);
    let why = "policy `guest` returned a state of 17825792 bytes; the limit of the record is 16777216";
    assert!(said.contains(why) && said.ends_with("exit code 2"), "{said}");
    let said = begin(600_000_000);
    assert!(said.contains("policy `guest` returned or logged too much: more than 33554432 bytes"), "{said}");
}

/// A guest that describes one setting, with a text of so many of these bytes as its default.
fn described(bytes: u32, byte: u8) -> String {
    let setting = format!(
        "(local.set $d (call $alloc (i32.const 96)))
         (i32.store offset=24 (local.get $d) (i32.add (local.get $d) (i32.const 48)))
         (i32.store offset=28 (local.get $d) (i32.const 1))
         (i32.store offset=48 (local.get $d) (i32.const 16)) (i32.store offset=52 (local.get $d) (i32.const 5))
         (i32.store8 offset=56 (local.get $d) (i32.const 3))
         (i32.store offset=64 (local.get $d) (call $alloc (i32.const {bytes})))
         (i32.store offset=68 (local.get $d) (i32.const {bytes}))
         (memory.fill (i32.load offset=64 (local.get $d)) (i32.const {byte}) (i32.const {bytes}))"
    );
    scratch::guest_text("trains_on_nothing").replace("(local.set $d (call $alloc (i32.const 40)))", &setting)
}

#[test]
fn a_default_that_is_no_line_is_refused_by_every_command() {
    let scratch = Scratch::new();
    let write = |bytes, byte| {
        let text = described(bytes, byte);
        scratch.write("guest.wasm", allot_authoring::component::of_module(text.as_bytes(), "guest").unwrap());
    };
    for (bytes, byte) in [(66_000, b'a'), (3, 0x1b)] {
        write(bytes, byte);
        for command in ["check", "policies", "pack"] {
            let said = scratch.allot(&[command, "./guest.wasm"]);
            let why = "the default of its setting `guest` is not one line of at most 1024 bytes";
            assert!(said.contains(why) && said.ends_with("exit code 2"), "{command}: {said}");
        }
    }
    write(200_000_000, 0x1b);
    let said = scratch.allot(&["pack", "./guest.wasm"]);
    assert!(said.contains("its `describe` failed: returned or logged too much"), "{said}");
    // The longest that is taken fits on a screen.
    write(1024, b'a');
    let said = scratch.allot(&["policies", "./guest.wasm"]);
    assert!(said.ends_with("exit code 0") && said.lines().all(|line| line.len() < 200), "{said}");
}

/// A guest with a function of so many local variables, which are all used, and so many loops within each other.
fn nested(locals: usize, loops: usize) -> Vec<u8> {
    let each = |form: fn(usize) -> String, n| (0..n).map(form).collect::<String>();
    let function = format!(
        "(func (param i32) (local{}) {}{}{})",
        " i32".repeat(locals),
        each(|_| "(loop (br_if 0 (local.get 0)) ".to_owned(), loops),
        each(|i| format!("(local.set {i} (i32.add (local.get {}) (i32.const 1)))", i + 1), locals),
        ")".repeat(loops),
    );
    let text = scratch::guest_text("trains_on_nothing");
    let text = text.trim_end().strip_suffix(')').unwrap().to_owned() + &function + ")";
    allot_authoring::component::of_module(text.as_bytes(), "guest").unwrap()
}

#[test]
fn a_function_that_takes_gigabytes_to_compile_is_refused_before() {
    let why = |locals, loops| {
        let sandbox = Sandbox::new(Caps::default(), None).unwrap();
        match sandbox.load(&nested(locals, loops), None) {
            Err(LoadError::TooHeavy(why)) => why,
            Err(other) => panic!("{other}"),
            Ok(_) => "taken".to_owned(),
        }
    };
    assert_eq!(why(500, 50), "taken");
    let depth = why(4_000, 15_000);
    assert!(depth.contains("15000 nested loops; the limit is 100"), "{depth}");
    let locals = why(30_000, 1);
    assert!(locals.contains("30000 local variables; the limit is 5000"), "{locals}");
}

#[test]
fn local_variables_count_once_for_each_block() {
    // Loops side by side, in each of which one of the variables changes.
    let side_by_side = |locals: usize, loops: usize| {
        let one = "(loop (local.set 1 (i32.add (local.get 2) (i32.const 1))) (br_if 0 (local.get 0)))";
        let function = format!("(func (param i32) (local{}) {})", " i32".repeat(locals), one.repeat(loops));
        let text = scratch::guest_text("trains_on_nothing");
        let text = text.trim_end().strip_suffix(')').unwrap().to_owned() + &function + ")";
        let component = allot_authoring::component::of_module(text.as_bytes(), "guest").unwrap();
        Sandbox::new(Caps::default(), None).unwrap().load(&component, None).map(|_| ())
    };
    assert!(side_by_side(100, 1000).is_ok());
    let refused = side_by_side(4_000, 3000).unwrap_err().to_string();
    assert!(refused.contains("local variables by blocks; the limit is 16777216"), "{refused}");
}

#[test]
fn what_is_not_run_here_is_told_from_what_is_damaged() {
    // A module with an exception of the old kind, put at the end of a component that is whole.
    let legacy = wat::parse_str("(module (func try catch_all end))").unwrap();
    let mut component = scratch::guest("trains_on_nothing");
    component.push(1);
    assert!(legacy.len() < 128, "its length is one byte");
    component.push(legacy.len() as u8);
    component.extend(legacy);
    let said = load(&component);
    assert!(said.contains("the component uses an unsupported part of Wasm: "), "{said}");
    assert!(said.ends_with("exit code 2"), "{said}");
}

#[test]
fn a_module_that_the_tools_give_up_on_is_a_sentence() {
    // Every byte of a module is changed in turn. It becomes a component or a sentence, and never a panic.
    let module = wat::parse_str(scratch::guest_text("traps")).unwrap();
    for at in 8..module.len() {
        for change in [0xff, 0x01] {
            let mut changed = module.clone();
            changed[at] ^= change;
            if let Err(error) = allot_authoring::component::of_module(&changed, "changed") {
                let said = error.to_string();
                let ours = ["`changed` ", "could not build a component from `changed`: "];
                assert!(ours.iter().any(|start| said.starts_with(start)), "byte {at}: {said}");
            }
        }
    }
}
