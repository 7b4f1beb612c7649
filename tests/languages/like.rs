//! `allot new --like`: the copy of each policy that ships passes its own tests, builds, and decides as the one that ships.

use std::fs;
use std::process::Command;

use allot_authoring::language::Language;
use allot_authoring::{copy, fixtures};
use allot_component::shipped;
use allot_sandbox::{Caps, Sandbox};

use crate::native;
use crate::scratch::{self, Scratch};
use crate::tools::{self, cargo_target, runs};

/// Makes the copy, tests and builds it, and compares its plans. The SDK is kept from one to the next, unchanged, so that cargo
/// compiles it once.
fn decides_as(scratch: &Scratch, native: &native::Native) {
    let (like, project) = (native.name, scratch.path().join("mine"));
    let said = scratch.allot(&["new", "mine", "--like", like]);
    assert!(said.starts_with(&format!("./mine is ready, a copy of `{like}` ")), "{said}");
    let kept = scratch.path().join("sdk");
    if kept.exists() {
        fs::remove_dir_all(project.join("sdk")).unwrap();
        fs::rename(&kept, project.join("sdk")).unwrap();
    }
    // The versions that the workspace has: nothing is asked of a registry.
    fs::copy(scratch::root().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    let mut test = Command::new(env!("CARGO"));
    test.args(["test", "--lib"]).current_dir(&project).env("CARGO_TARGET_DIR", cargo_target());
    let tested = runs(&mut test);
    assert!(tested.contains("test result: ok. ") && !tested.contains("ok. 0 passed"), "{like}: {tested}");

    let mut build = scratch.command(&["build", "mine", "-o", "mine.wasm"]);
    runs(build.env("CARGO_TARGET_DIR", cargo_target()));
    let sandbox = Sandbox::new(Caps::default(), None).unwrap();
    let ours = sandbox.load(&fs::read(scratch.path().join("mine.wasm")).unwrap(), None).unwrap();
    let theirs = sandbox.load(shipped::component(like).unwrap(), None).unwrap();
    assert_eq!(ours.description().name, "mine");
    let run = native::run(like);
    let terms = native.everything(run.prompts);
    let run = theirs.shown(run, terms);
    let first = theirs.begin(&run).unwrap().0;
    assert_eq!(ours.begin(&run).unwrap().0, first, "{like}");
    for mut made in fixtures::views(native.signals, 40) {
        fixtures::add_turns(&mut made.view);
        let mut state = first.clone();
        for _ in 0..2 {
            let plan = theirs.decide(&run, &state, &made.view).unwrap().0;
            assert_eq!(ours.decide(&run, &state, &made.view).unwrap().0, plan, "{like} on {}", made.title);
            state = plan.state;
        }
    }
    fs::rename(project.join("sdk"), &kept).unwrap();
    fs::remove_dir_all(&project).unwrap();
}

#[test]
fn a_copy_of_a_policy_that_ships_decides_as_it_does() {
    if tools::missing(Language::Rust) {
        return;
    }
    let (scratch, natives) = (Scratch::new(), native::all());
    assert_eq!(natives.len(), copy::names().len());
    for native in &natives {
        decides_as(&scratch, native);
    }
}

#[test]
fn what_can_t_be_copied_is_refused() {
    let scratch = Scratch::new();
    insta::assert_snapshot!(scratch.allot(&["new", "mine", "--like", "unifrom"]), @"
    error: `--like unifrom`: no policy of that name ships with this program

    hint: did you mean `uniform`?
    exit code 2
    ");
    insta::assert_snapshot!(scratch.allot(&["new", "mine", "--like", "uniform", "--lang", "python"]), @"
    error: `--like` copies source in Rust, and `--lang python` asks for another language

    hint: leave out `--lang`; or leave out `--like` to start from the template for python
    exit code 2
    ");
    insta::assert_snapshot!(scratch.allot(&["new", "mine", "--like", "uniform", "--kind", "grader"]), @"
    error: `--like` copies a policy, and `--kind grader` starts a grader

    hint: leave out one of the two
    exit code 2
    ");
    insta::assert_snapshot!(scratch.allot(&["new", "libm", "--like", "vip"]), @"
    error: `libm` is not a valid policy name

    hint: use lower-case letters, digits and dashes, as in `my-policy`
    exit code 2
    ");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    let said = scratch.allot(&["new", "mine", "--like", "uniform", "--lang", "rust"]);
    assert!(said.ends_with("exit code 0"), "{said}");
}
