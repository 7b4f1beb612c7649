//! Components of a comparison that are built anew, moved, renamed or removed: each arm keeps the build that it began with.

use std::fs;
use std::path::Path;

use super::{SIMULATED, records, said, trained, with};
use crate::scratch::{self, Scratch};

/// A component that ships, as bytes.
fn shipped(name: &str) -> Vec<u8> {
    fs::read(scratch::root().join(format!("policies/prebuilt/{name}.wasm"))).unwrap()
}

/// A comparison of simulated runs with one more arm.
fn with_arm(arm: &str) -> String {
    format!("{SIMULATED}\n[[compare.policies]]\n{arm}\n").replace("seeds = 4", "seeds = 2")
}

/// A comparison of two seeds that is over, in `out`. Its arm `mine` is a build of `dapo` at `./mine.wasm`.
fn over() -> Scratch {
    let scratch = with(&with_arm("use = \"./mine.wasm\""));
    scratch.write("mine.wasm", shipped("dapo"));
    let text = said(&scratch, &["compare", "compare.toml", "--out", "out"]);
    assert!(text.ends_with("exit code 0"), "{text}");
    scratch
}

/// The hash of the policy that a record is of.
fn policy_of(scratch: &Scratch, run: &str) -> String {
    let record = scratch.read(&format!("out/runs/{run}/record.jsonl"));
    let head: serde_json::Value = serde_json::from_str(record.lines().next().unwrap()).unwrap();
    head["policy"]["sha256"].as_str().unwrap().to_owned()
}

/// The files below a folder, by their paths, with what is in them.
fn files(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    let of = |path: std::path::PathBuf| {
        if path.is_dir() { files(&path) } else { vec![(path.clone(), fs::read(&path).unwrap())] }
    };
    all.into_iter().flat_map(of).collect()
}

const CHANGED: &str = "note: `[scratch]/mine.wasm` has changed since `mine` was added: the comparison's copy is used, sha256 \
                       HASH; to compare the new build too, add it to the config under another `name`, and give that config \
                       with --out out";

#[test]
fn an_arm_that_was_built_anew_in_place_goes_on_with_the_build_that_it_began_with() {
    let scratch = over();
    let hash = allot_sandbox::sha256(shipped("dapo"));
    assert!(scratch.path().join(format!("out/components/{hash}.wasm")).exists());
    scratch.write("mine.wasm", shipped("pods"));

    let more = said(&scratch, &["compare", "--resume", "out", "--seeds", "3"]);
    assert!(more.contains("8 have finished; 4 are new") && more.ends_with("exit code 0"), "{more}");
    assert_eq!(more.matches("note: `[scratch]").count(), 1, "{more}");
    assert!(more.contains(CHANGED), "{more}");
    assert_eq!(policy_of(&scratch, "mine/seed-0005"), hash);
    // With --out it is the same comparison. A path that leads nowhere by now is no change.
    let again = said(&scratch, &["compare", "compare.toml", "--out", "out", "--seeds", "3"]);
    assert!(again.contains("12 have finished") && again.contains(CHANGED), "{again}");
    fs::remove_file(scratch.path().join("mine.wasm")).unwrap();
    let gone = said(&scratch, &["compare", "--resume", "out", "--seeds", "4"]);
    assert!(gone.contains("4 are new") && gone.ends_with("exit code 0"), "{gone}");
    assert!(!gone.contains("note: `[scratch]"), "{gone}");

    let whole = over();
    said(&whole, &["compare", "--resume", "out", "--seeds", "4"]);
    assert_eq!(records(&scratch.path().join("out")), records(&whole.path().join("out")));
}

#[test]
fn runs_that_train_have_the_build_that_their_arm_began_with() {
    let scratch = with(&trained().replace("\"pods\"", "\"./mine.wasm\""));
    scratch.write("mine.wasm", shipped("pods"));
    said(&scratch, &["compare", "compare.toml", "--out", "out", "--seeds", "1"]);
    scratch.write("mine.wasm", shipped("dapo"));
    let text = said(&scratch, &["compare", "--resume", "out", "--seeds", "2"]);
    assert!(text.contains("2 are new") && text.ends_with("exit code 0"), "{text}");
    assert_eq!(policy_of(&scratch, "mine/seed-0002"), allot_sandbox::sha256(shipped("pods")));
}

#[test]
fn a_new_build_is_a_new_arm_if_the_config_asks_for_one() {
    let scratch = over();
    scratch.write("mine.wasm", shipped("pods"));
    let two =
        with_arm("use = \"./mine.wasm\"\n[[compare.policies]]\nuse = \"./mine.wasm\"\nname = \"new build\"");
    scratch.write("compare.toml", two);
    let text = said(&scratch, &["compare", "compare.toml", "--out", "out"]);
    assert!(text.contains("8 have finished; 2 are new") && text.contains(CHANGED), "{text}");
    assert_eq!(policy_of(&scratch, "mine/seed-0003"), allot_sandbox::sha256(shipped("dapo")));
    assert_eq!(policy_of(&scratch, "new-build/seed-0003"), allot_sandbox::sha256(shipped("pods")));
    // From here both have a copy.
    scratch.write("mine.wasm", shipped("knapsack"));
    let text = said(&scratch, &["compare", "--resume", "out", "--seeds", "3"]);
    assert!(text.contains("5 are new") && text.ends_with("exit code 0"), "{text}");
    assert!(
        text.contains("since `mine` was added") && text.contains("since `new build` was added"),
        "{text}"
    );
    assert_eq!(policy_of(&scratch, "new-build/seed-0005"), allot_sandbox::sha256(shipped("pods")));
}

#[test]
fn the_same_bytes_under_another_path_are_the_same_arm() {
    for place in ["elsewhere/mine.wasm", "renamed.wasm"] {
        let scratch = over();
        fs::create_dir(scratch.path().join("elsewhere")).unwrap();
        fs::rename(scratch.path().join("mine.wasm"), scratch.path().join(place)).unwrap();
        scratch.write("compare.toml", with_arm(&format!("use = \"./{place}\"")));
        let text = said(&scratch, &["compare", "compare.toml", "--out", "out", "--seeds", "3"]);
        assert!(text.contains("8 have finished; 4 are new"), "{place}: {text}");
        assert!(!text.contains("note: `[scratch]"), "{place}: {text}");
        // It is called as before, wherever the file is, and if there is none.
        fs::remove_file(scratch.path().join(place)).unwrap();
        let text = said(&scratch, &["compare", "--resume", "out", "--seeds", "4"]);
        assert!(text.contains("4 are new") && text.contains("\nmine "), "{place}: {text}");
    }
    // As the baseline, too.
    let own = |path: &str| SIMULATED.replacen("use = \"uniform\"", &format!("use = \"{path}\""), 1);
    let scratch = with(&own("./mine.wasm"));
    scratch.write("mine.wasm", shipped("pods"));
    said(&scratch, &["compare", "compare.toml", "--out", "out", "--seeds", "1"]);
    fs::rename(scratch.path().join("mine.wasm"), scratch.path().join("renamed.wasm")).unwrap();
    scratch.write("compare.toml", own("./renamed.wasm"));
    let text = said(&scratch, &["compare", "compare.toml", "--out", "out", "--seeds", "2"]);
    assert!(text.contains("3 have finished; 3 are new") && text.contains("\nmine "), "{text}");
}

#[test]
fn an_arm_with_another_component_is_refused() {
    let scratch = over();
    fs::create_dir(scratch.path().join("elsewhere")).unwrap();
    scratch.write("elsewhere/mine.wasm", shipped("pods"));
    let told = |arm: &str| {
        scratch.write("compare.toml", with_arm(arm));
        said(&scratch, &["compare", "compare.toml", "--out", "out", "--seeds", "3"])
    };
    insta::assert_snapshot!(told("use = \"./elsewhere/mine.wasm\""), @"
    error: `mine` of the comparison in `out` is the component with sha256 HASH, but `[scratch]/elsewhere/mine.wasm` is HASH

    hint: give the new build another `name`, to add it as an arm; or give another folder with --out
    exit code 2
    ");
    let demanded = format!("use = \"./mine.wasm\"\nsha256 = \"{}\"", allot_sandbox::sha256(shipped("pods")));
    insta::assert_snapshot!(told(&demanded), @"
    error: `mine` of the comparison in `out` is the component with sha256 HASH, but the config expects HASH

    hint: give the new build another `name`, to add it as an arm; or give another folder with --out
    exit code 2
    ");
    insta::assert_snapshot!(told("use = \"./nowhere/mine.wasm\""), @"
    error: could not read `[scratch]/nowhere/mine.wasm`: there is no such file or folder
    exit code 2
    ");
    // Under another name it is another arm, and the one before is missed.
    insta::assert_snapshot!(told("use = \"./elsewhere/mine.wasm\"\nname = \"other\""), @"
    error: there is already a different comparison in `out`: it has the run of `out/configs/mine/seed-0003.toml`, which this one leaves out

    hint: give another folder with --out, or continue that one with --resume
    exit code 2
    ");
    assert_eq!(records(&scratch.path().join("out")).len(), 8);
}

#[test]
fn a_comparison_without_copies_takes_those_of_its_runs() {
    let scratch = over();
    fs::remove_dir_all(scratch.path().join("out/components")).unwrap();
    scratch.write("mine.wasm", shipped("pods"));
    let text = said(&scratch, &["compare", "--resume", "out", "--seeds", "3"]);
    assert!(text.contains("4 are new") && text.ends_with("exit code 0"), "{text}");
    assert_eq!(policy_of(&scratch, "mine/seed-0005"), allot_sandbox::sha256(shipped("dapo")));
}

#[test]
fn a_copy_that_is_gone_or_damaged_is_told_before_anything_runs() {
    let scratch = over();
    let hash = allot_sandbox::sha256(shipped("dapo"));
    scratch.write("mine.wasm", shipped("pods"));
    scratch.write(&format!("out/components/{hash}.wasm"), "cut off");
    insta::assert_snapshot!(said(&scratch, &["compare", "--resume", "out", "--seeds", "3"]), @"
    error: `out/components/HASH.wasm` does not contain the component that it is named after

    hint: restore the file, or remove it: then the component that the config names is used
    exit code 2
    ");
    for folder in ["out", "out/runs/mine/seed-0003", "out/runs/mine/seed-0004"] {
        fs::remove_dir_all(scratch.path().join(folder).join("components")).unwrap();
    }
    insta::assert_snapshot!(said(&scratch, &["compare", "--resume", "out", "--seeds", "3"]), @"
    error: `out` has no copy of the component of `mine` with sha256 HASH, and `[scratch]/mine.wasm` has changed since

    hint: restore the original file, or begin another comparison
    exit code 2
    ");
    // What is over needs nothing that it was made of.
    let text = said(&scratch, &["compare", "--resume", "out"]);
    assert!(text.contains("8 have finished") && text.ends_with("exit code 0"), "{text}");
}

#[test]
fn a_dry_run_says_what_a_run_would() {
    let scratch = over();
    scratch.write("mine.wasm", shipped("pods"));
    scratch.write("other.wasm", shipped("pods"));
    scratch.write("other.toml", with_arm("use = \"./other.wasm\"\nname = \"mine\""));
    scratch.write(
        "dearer.toml",
        with_arm("use = \"./mine.wasm\"").replace("rollouts = 2000", "rollouts = 3000"),
    );
    let before = files(&scratch.path().join("out"));
    let refused: [&[&str]; 6] = [
        &["compare", "other.toml", "--out", "out"],
        &["compare", "dearer.toml", "--out", "out"],
        &["compare", "compare.toml", "--out", "out", "--seeds", "1"],
        &["compare", "--resume", "out", "--seeds", "1"],
        &["compare", "--resume", "nowhere"],
        &["compare", "--resume", "out", "--seeds", "0"],
    ];
    for args in refused {
        let (run, dry) = (said(&scratch, args), said(&scratch, &[args, &["--dry-run"]].concat()));
        assert!(run.starts_with("error: ") && run == dry, "{run}\n\n{dry}");
        assert!(!args.contains(&"--resume") || !run.contains("--resume"), "{run}");
    }
    assert!(files(&scratch.path().join("out")) == before, "what was refused changed something");
    // What is over by now, what comes to it, and which builds it has.
    let grown: [&[&str]; 3] = [
        &["compare", "--resume", "out"],
        &["compare", "compare.toml", "--out", "out"],
        &["compare", "--resume", "out", "--seeds", "3"],
    ];
    for args in grown {
        let dry = said(&scratch, &[args, &["--dry-run"]].concat());
        assert!(files(&scratch.path().join("out")) == before, "a dry run changed something");
        assert!(dry.contains(CHANGED) && dry.ends_with("exit code 0"), "{dry}");
        let stand = dry.lines().find(|line| line.starts_with("runs ")).unwrap().to_owned();
        let stand = stand.split_once(';').unwrap().1;
        let run = said(&scratch, args);
        assert!(run.lines().next_back() == Some("exit code 0") && run.contains(CHANGED), "{run}");
        assert!(run.contains(&format!("in out;{stand}")), "{stand}\n\n{run}");
    }
}
