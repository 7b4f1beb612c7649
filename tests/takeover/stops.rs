//! Swaps that a stop cuts short: whatever the moment, the run goes on under one policy or under the other,
//! to the very end that it would have come to undisturbed.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use super::{Scratch, ran, stopped, swapped, swaps, told, with};

/// Waits until something is so, or the program has ended.
fn until(child: &mut Child, so: impl Fn() -> bool) {
    while !so() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Goes on with the run in `out` and looks what it came to: to the byte one of two records. Says which.
fn comes_to_one_of_two(scratch: &Scratch, what: &str) -> bool {
    let said = ran(scratch, &["--resume", "out"]);
    let run = scratch.path().join("out");
    let other = !swaps(&run).is_empty();
    let want = if other { "other" } else { "whole" };
    for file in ["record.jsonl", "resolved.toml"] {
        let read = |of: &str| scratch.read(&format!("{of}/{file}"));
        assert_eq!(read("out"), read(want), "{what}: {file}: {said}");
    }
    // One config is kept for the swap that was made, and nothing else lies about.
    let mut names: Vec<String> =
        fs::read_dir(&run).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.contains(".toml"));
    names.sort();
    let expected: &[&str] =
        if other { &["resolved.toml", "until-step-000004.toml"] } else { &["resolved.toml"] };
    assert_eq!(names, expected, "{what}");
    if other {
        assert_eq!(scratch.read("out/until-step-000004.toml"), scratch.read("whole/resolved.toml"), "{what}");
    }
    for late in fs::read_dir(run.join("checkpoints")).unwrap().flatten() {
        assert!(late.file_name().to_string_lossy().starts_with("step-"), "{what}");
    }
    other
}

/// What a kill within some microseconds leaves behind.
#[test]
fn configs_whose_writing_was_interrupted_are_gone_when_the_run_goes_on() {
    let scratch = with("uniform");
    let run = stopped(&scratch, "whole", "out", 4);
    for half in [".next.toml", ".until-step-000004.toml"] {
        fs::write(run.join(half), "seed = ").unwrap();
    }
    assert!(!comes_to_one_of_two(&scratch, "half a config"));
}

#[test]
fn a_swap_that_is_killed_at_any_moment_was_made_or_was_not() {
    let scratch = with("uniform");
    swapped(&scratch, "other", 4, "pods");
    let (mut kills, mut made) = (0, 0);
    let is_writing = |run: &Path| {
        let entries = fs::read_dir(run.join("checkpoints")).into_iter().flatten().flatten();
        entries.into_iter().any(|e| e.file_name().to_string_lossy().starts_with('.'))
    };
    // Wherever it is after so many milliseconds; then by what lies on the disk.
    for n in 0..20_u64 {
        let run = stopped(&scratch, "whole", "out", 4);
        let mut child = scratch.started(&["train", "--resume", "out", "--policy", "pods"]);
        match n {
            0..6 => std::thread::sleep(Duration::from_millis(5 + 16 * n)),
            6..9 => until(&mut child, || run.join("next.toml").exists()),
            9..13 => until(&mut child, || run.join("next.toml").exists() && is_writing(&run)),
            13..17 => until(&mut child, || run.join("until-step-000004.toml").exists()),
            _ => until(&mut child, || run.join("checkpoints/step-000005").exists()),
        }
        if n % 2 == 1 {
            std::thread::sleep(Duration::from_micros(300 * n));
        }
        child.kill().unwrap();
        kills += usize::from(child.wait().unwrap().code().is_none());
        made += usize::from(comes_to_one_of_two(&scratch, &format!("kill {n}")));
    }
    assert!(kills >= 8 && (4..20).contains(&made), "{kills} {made}");
}

#[test]
fn what_a_stop_leaves_of_a_swap_is_put_in_order() {
    let scratch = with("uniform");
    let other = swapped(&scratch, "other", 4, "pods");
    let next = scratch.read("other/resolved.toml");
    let old = scratch.read("whole/resolved.toml");
    let is = |what: &str, made: bool| assert_eq!(comes_to_one_of_two(&scratch, what), made, "{what}");

    // The config was written, as a whole or not, and no checkpoint is of it.
    for part in [0, next.len() / 2, next.len()] {
        let run = stopped(&scratch, "whole", "out", 4);
        fs::write(run.join("next.toml"), &next[..part]).unwrap();
        is("before its checkpoint", false);
    }
    // So was the record's line.
    let run = stopped(&scratch, "whole", "out", 4);
    fs::write(run.join("next.toml"), &next).unwrap();
    let record = scratch.read("other/record.jsonl");
    let (at, _) = swaps(&other)[0];
    let lines: Vec<&str> = record.split_inclusive('\n').take(at + 1).collect();
    fs::write(run.join("record.jsonl"), lines.concat()).unwrap();
    is("after the record's line", false);
    // The checkpoint was being put in the old one's place.
    let run = stopped(&scratch, "whole", "out", 4);
    let checkpoints = run.join("checkpoints");
    fs::write(run.join("next.toml"), &next).unwrap();
    fs::rename(checkpoints.join("step-000004"), checkpoints.join(".replaced-step-000004")).unwrap();
    fs::create_dir(checkpoints.join(".writing-step-000004")).unwrap();
    fs::write(checkpoints.join(".writing-step-000004/manifest.json"), "{").unwrap();
    is("in the middle of its checkpoint", false);
    // It has the place, and the old one is not gone yet.
    let run = stopped(&scratch, "other", "out", 4);
    fs::remove_file(run.join("until-step-000004.toml")).unwrap();
    fs::write(run.join("resolved.toml"), &old).unwrap();
    fs::write(run.join("next.toml"), &next).unwrap();
    fs::create_dir(run.join("checkpoints/.replaced-step-000004")).unwrap();
    is("after its checkpoint", true);
    // The old config was kept, and is in force still.
    let run = stopped(&scratch, "other", "out", 4);
    fs::write(run.join("resolved.toml"), &old).unwrap();
    fs::write(run.join("next.toml"), &next).unwrap();
    is("between two configs", true);
    // Another change than the one that was cut short is made on top of it.
    let run = stopped(&scratch, "other", "out", 4);
    fs::write(run.join("resolved.toml"), &old).unwrap();
    fs::write(run.join("next.toml"), &next).unwrap();
    let said = told(&scratch, &["train", "--resume", "out", "--policy", "pods"]);
    assert!(said.contains("the run already uses policy `pods` with these settings"), "{said}");
    assert_eq!(scratch.read("out/record.jsonl"), record);
    assert_eq!(scratch.read("out/resolved.toml"), next);
    assert!(!run.join("next.toml").exists());
}
