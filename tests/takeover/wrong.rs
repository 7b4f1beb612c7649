//! What can't take over: each told in a sentence, and nothing on the disk is another for it.

use std::fs;

use sha2::{Digest as _, Sha256};

use super::{Scratch, config, files, lines, ran, stopped, told, with};
use crate::scratch;

/// What is said of a change of the run in `out`, for which nothing may be changed.
fn refused(scratch: &Scratch, args: &[&str]) -> String {
    let before = files(scratch.path());
    let said = told(scratch, &[&["train", "--resume", "out"], args].concat());
    assert!(said.ends_with("exit code 2"), "{said}");
    let after = files(scratch.path());
    let differ = before.iter().filter(|(path, bytes)| after.get(*path) != Some(bytes));
    let differ: Vec<_> = differ.map(|(path, _)| path).collect();
    assert!(differ.is_empty() && before.len() == after.len(), "{args:?} changed {differ:?}");
    said
}

/// A guest whose frame has other texts in place of some.
fn framed(guest: &str, changes: &[(&str, &str)]) -> Vec<u8> {
    let read = |name: &str| fs::read_to_string(scratch::root().join("tests/guests").join(name)).unwrap();
    let mut frame = read("frame.wat").replace(";; DECIDE", &read(&format!("{guest}.wat")));
    for (from, to) in changes {
        assert!(frame.contains(from), "{from}");
        frame = frame.replacen(from, to, 1);
    }
    allot_authoring::component::of_module(frame.as_bytes(), "guest").unwrap()
}

/// A guest that wants a signal.
fn curious(guest: &str) -> Vec<u8> {
    let version = "(data (i32.const 24) \"0.0.1\")";
    let word = format!("{version} (data (i32.const 112) \"mean-entropy\")");
    let described = "(i32.store offset=20 (local.get $d) (i32.const 10))";
    let list =
        "(i32.store (i32.const 96) (i32.const 112)) (i32.store offset=4 (i32.const 96) (i32.const 12))";
    let place = "(i32.store offset=32 (local.get $d) (i32.const 96))";
    let one = "(i32.store offset=36 (local.get $d) (i32.const 1))";
    let wants = format!("{described} {list} {place} {one}");
    framed(guest, &[(version, &word), (described, &wants)])
}

#[test]
fn what_can_not_take_over_is_told() {
    let scratch = with("uniform");
    stopped(&scratch, "whole", "out", 4);
    insta::assert_snapshot!(refused(&scratch, &["--policy", "pod"]), @"
    error: no policy is called `pod`

    hint: did you mean `pods`?
    hint: give your own component by its path, as in `./mine.wasm`
    exit code 2
    ");
    insta::assert_snapshot!(refused(&scratch, &["--policy", "./none.wasm"]), @"
    error: could not read `[scratch]/none.wasm`: there is no such file or folder
    exit code 2
    ");
    insta::assert_snapshot!(refused(&scratch, &["--policy", "pods", "--set", "kepp=3"]), @"
    error: policy `pods` has no setting `kepp`

    hint: did you mean `keep`?
    exit code 2
    ");
    insta::assert_snapshot!(refused(&scratch, &["--set", "rollouts=many"]), @r#"
    error: policy `uniform`: setting `rollouts` is "many"; it must be a whole number from -2147483648 to 2147483647
    exit code 2
    "#);
    insta::assert_snapshot!(refused(&scratch, &["--set", "rollouts"]), @"
    error: `--set rollouts` is not of the form NAME=VALUE
    exit code 2
    ");
    // Its `begin` says no, of a setting and for a reason of its own.
    insta::assert_snapshot!(refused(&scratch, &["--policy", "pods", "--set", "keep=0"]), @"
    error: policy `pods` refused its setting `keep`: must be at least 2: one rollout alone has no deviation to be measured by
    exit code 2
    ");
    let begin = "(param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)\n";
    scratch.write("no.wasm", framed("trains_on_nothing", &[(begin, &format!("{begin}    unreachable"))]));
    insta::assert_snapshot!(refused(&scratch, &["--policy", "./no.wasm"]), @"
    error: policy `guest` trapped: wasm trap: wasm `unreachable` instruction executed
    exit code 2
    ");
    // It wants what was not measured of the buffered rollouts.
    scratch.write("curious.wasm", curious("trains_on_nothing"));
    insta::assert_snapshot!(refused(&scratch, &["--policy", "./curious.wasm"]), @"
    policy guest 0.0.1, sha256 HASH, seed 1, 90 problems to train on, 30 held out
    error: policy `guest` wants the signal `mean-entropy`; the run measures no signals

    hint: begin a run with that policy: buffered rollouts were already measured
    exit code 2
    ");
    insta::assert_snapshot!(refused(&scratch, &["--policy", "pods", "--seed", "3"]), @"
    error: the argument '--resume <RUN>' cannot be used with '--seed <SEED>'

    Usage: allot train --resume <RUN> --policy <POLICY> [CONFIG]

    For more information, try '--help'.
    exit code 2
    ");
    // A config is a run's own, or another run's.
    insta::assert_snapshot!(told(&scratch, &["train", "run.toml", "--resume", "out", "--policy", "pods"]), @"
    error: the run in `out` has a different config from the one given

    hint: leave the config out: a run continues with its own
    exit code 2
    ");
}

#[test]
fn a_run_that_has_nothing_to_decide_is_left_as_it_is() {
    let scratch = with("uniform");
    // Over.
    stopped(&scratch, "whole", "out", 8);
    insta::assert_snapshot!(refused(&scratch, &["--policy", "pods"]), @"
    error: the run is over, so another policy cannot take it over

    hint: begin a run with that policy, and compare both: allot report RUN RUN
    exit code 2
    ");
    // Stopped after its last step, before its end.
    let all = lines(&scratch.path().join("out"));
    let cut = |lines: &[String]| scratch.write("out/record.jsonl", lines.join("\n") + "\n");
    cut(&all[..all.len() - 1]);
    let last = "out/checkpoints/step-000008";
    let hash = |text: &str| allot_record::hex(&Sha256::digest(text.as_bytes()));
    let mark = |lines: &[String]| {
        let text = lines.join("\n") + "\n";
        format!("\"record\":{{\"bytes\":{},\"sha256\":\"{}\"}}", text.len(), hash(&text))
    };
    let state = scratch.read(&format!("{last}/state.json"));
    assert!(state.contains(&mark(&all)));
    let earlier = state.replace(&mark(&all), &mark(&all[..all.len() - 1]));
    let manifest = scratch.read(&format!("{last}/manifest.json"));
    scratch.write(&format!("{last}/manifest.json"), manifest.replace(&hash(&state), &hash(&earlier)));
    scratch.write(&format!("{last}/state.json"), &earlier);
    let said = refused(&scratch, &["--policy", "pods"]);
    insta::assert_snapshot!(&said[said.find("error: ").unwrap()..], @"
    error: the run has only to finish, so another policy cannot take it over

    hint: finish it first, without --policy and --set
    exit code 2
    ");
    assert!(ran(&scratch, &["--resume", "out"]).contains("goes on after step 8 of 8"));
    // Without a checkpoint.
    let run = stopped(&scratch, "whole", "out", 0);
    cut(&all[..9]);
    insta::assert_snapshot!(refused(&scratch, &["--policy", "pods"]), @"
    policy pods 0.1.0, sha256 HASH, seed 1, 90 problems to train on, 30 held out
    error: the run has no checkpoint yet at which another policy could take over

    hint: continue it without --policy and --set, or begin a run with that policy
    exit code 2
    ");
    insta::assert_snapshot!(refused(&scratch, &["--set", "rollouts=4"]), @"
    policy uniform 0.1.0, sha256 HASH, seed 1, 90 problems to train on, 30 held out
    error: the run has no checkpoint yet at which another policy could take over

    hint: continue it without --policy and --set, or begin a run with that policy
    exit code 2
    ");
    // Without a run.
    fs::remove_file(run.join("resolved.toml")).unwrap();
    insta::assert_snapshot!(refused(&scratch, &["--policy", "pods"]), @"
    error: could not read `out/resolved.toml`: there is no such file or folder

    hint: --resume takes the folder of a run
    exit code 2
    ");
}

#[test]
fn a_run_goes_on_with_its_own_component_whatever_lies_in_its_place() {
    let scratch = Scratch::new();
    let built =
        |name: &str| fs::read(scratch::root().join(format!("policies/prebuilt/{name}.wasm"))).unwrap();
    scratch.write("mine.wasm", built("uniform"));
    scratch.write("looks.wasm", built("pods"));
    scratch.write("run.toml", config());
    let args = ["run.toml", "--policy", "./mine.wasm", "--shadow", "./looks.wasm", "--out", "whole"];
    ran(&scratch, &args);
    let whole = scratch.read("whole/record.jsonl");
    let mut kept: Vec<_> = fs::read_dir(scratch.path().join("whole/components")).unwrap().flatten().collect();
    kept.sort_by_key(fs::DirEntry::file_name);
    let held: Vec<_> = kept.iter().map(|entry| fs::read(entry.path()).unwrap()).collect();
    assert!(held.len() == 2 && held.contains(&built("uniform")) && held.contains(&built("pods")));

    // Built anew, and gone.
    for other in [Some(built("dapo")), None] {
        stopped(&scratch, "whole", "out", 4);
        match &other {
            Some(bytes) => scratch.write("mine.wasm", bytes),
            None => fs::remove_file(scratch.path().join("mine.wasm")).unwrap(),
        }
        let said = ran(&scratch, &["--resume", "out"]);
        let note = "mine.wasm` has changed since the run began; the run's own copy is used, sha256 ";
        assert_eq!(said.contains(note), other.is_some(), "{said}");
        assert_eq!(scratch.read("out/record.jsonl"), whole);
        let replayed = scratch.allot(&["replay", "out"]);
        assert!(replayed.contains("no difference"), "{replayed}");
    }
    // Named, another one takes over.
    stopped(&scratch, "whole", "out", 4);
    scratch.write("mine.wasm", built("dapo"));
    ran(&scratch, &["--resume", "out", "--policy", "./mine.wasm"]);
    assert_ne!(scratch.read("out/record.jsonl"), whole);
    assert_eq!(fs::read_dir(scratch.path().join("out/components")).unwrap().count(), 3);
    // What is kept is what it is called by.
    stopped(&scratch, "whole", "out", 4);
    let uniform = kept.iter().find(|entry| fs::read(entry.path()).unwrap() == built("uniform")).unwrap();
    let place = scratch.path().join("out/components").join(uniform.file_name());
    fs::write(place, built("pods")).unwrap();
    let said = refused(&scratch, &[]);
    assert!(said.contains(".wasm` does not contain the component that it is named after"), "{said}");
}

#[test]
fn of_a_run_that_kept_no_component_another_build_is_another_policy() {
    let scratch = Scratch::new();
    let build = |name: &str| {
        let path = scratch::root().join(format!("policies/prebuilt/{name}.wasm"));
        scratch.write("mine.wasm", fs::read(path).unwrap());
    };
    build("uniform");
    scratch.write("run.toml", config());
    ran(&scratch, &["run.toml", "--policy", "./mine.wasm", "--out", "whole"]);
    stopped(&scratch, "whole", "out", 4);
    // As older versions left a run.
    fs::remove_dir_all(scratch.path().join("out/components")).unwrap();
    build("dapo");
    insta::assert_snapshot!(refused(&scratch, &[]), @"
    policy dapo 0.1.0, sha256 HASH, seed 1, 90 problems to train on, 30 held out
    error: the checkpoint `out/checkpoints/step-000004` is from a run with another policy

    hint: the component that the config names has changed since; named by --policy, it takes over
    exit code 2
    ");
    // Settings are of the policy that was there.
    let resolved = scratch.read("out/resolved.toml");
    build("uniform");
    let mut bytes = fs::read(scratch.path().join("mine.wasm")).unwrap();
    // A custom section is another build of the same.
    bytes.extend([0, 2, 1, b'x']);
    scratch.write("mine.wasm", bytes);
    for args in [&["--set", "rollouts=4"][..], &[]] {
        let said = refused(&scratch, args);
        assert!(said.contains("is from a run with another policy"), "{said}");
    }
    assert_eq!(scratch.read("out/resolved.toml"), resolved);
}

#[test]
fn signals_are_shown_to_whom_wants_them_and_to_nobody_else() {
    let scratch = Scratch::new();
    scratch.write("run.toml", config());
    scratch.write("curious.wasm", curious("asks_for_all"));
    scratch.write("run.toml", config().replace("steps = 8", "steps = 2"));
    ran(&scratch, &["run.toml", "--policy", "./curious.wasm", "--out", "out", "--shadow", "./curious.wasm"]);
    let record = lines(&scratch.path().join("out"));
    let head: serde_json::Value = serde_json::from_str(&record[0]).unwrap();
    assert_eq!(head["signals"], serde_json::json!(["mean-entropy"]));
    let rollouts = record.iter().find(|line| line.starts_with(r#"{"kind":"rollouts""#)).unwrap();
    let rollouts: serde_json::Value = serde_json::from_str(rollouts).unwrap();
    let one = &rollouts["sampled"][0];
    let signals = one["signals"][0].as_array().unwrap();
    assert_eq!(signals.len(), one["rewards"].as_array().unwrap().len());
    assert!(signals.iter().all(|s| s.as_f64().unwrap() >= 0.0) && signals.iter().any(|s| *s != 0.0));
    assert!(told(&scratch, &["replay", "out"]).contains("calls, no difference"));
    // Whoever wants others can't look on, and can't be asked.
    insta::assert_snapshot!(told(&scratch, &["train", "run.toml", "--shadow", "./curious.wasm"]), @"
    error: shadow `guest` wants the signal `mean-entropy`; the run shows no signals

    hint: use a shadow with the same signals: it sees only what the live policy sees
    exit code 2
    ");
    insta::assert_snapshot!(told(&scratch, &["replay", "out", "uniform"]), @"
    error: policy `uniform` wants no signals; the record has the signal `mean-entropy`
    exit code 2
    ");
}
