//! Drafts: policies in Python that Python runs, before they are components. They decide as their components do, and every
//! output says that they are drafts. All that these tests need is Python.

use std::process::Command;

use allot_authoring::language::Language;
use allot_sandbox::{Caps, Policy};

use crate::scratch::{self, Scratch};
use crate::skip::skip;
use crate::templates::{self, CONFIG};

fn missing() -> bool {
    let there = Command::new("python3").arg("--version").output().is_ok();
    if !there {
        skip("python3", "this machine has no `python3`");
    }
    !there
}

/// The draft of a project in this repository, if there is a Python to run it.
pub fn loaded(folder: &str) -> Option<Policy> {
    if missing() {
        return None;
    }
    let folder = scratch::root().join(folder);
    Some(allot::policy_loader::draft(folder.to_str().unwrap(), Caps::default()).unwrap())
}

/// A scratch folder with a fresh project and a config of a short run.
fn fresh() -> Option<Scratch> {
    if missing() {
        return None;
    }
    let scratch = Scratch::new();
    scratch.allot(&["new", "fresh", "--lang", "python"]);
    scratch.write("run.toml", CONFIG);
    Some(scratch)
}

/// A scratch folder with the guest that does what it must not, as a project.
fn guest() -> Option<Scratch> {
    let scratch = fresh()?;
    scratch.write(
        "fresh/policy.py",
        std::fs::read(scratch::root().join("tests/guests/python/policy.py")).unwrap(),
    );
    Some(scratch)
}

#[test]
fn a_draft_runs_as_its_component_does() {
    let Some(component) = templates::fresh(Language::Python) else { return };
    let draft = fresh().unwrap();
    let said = draft.allot(&["simulate", "run.toml", "--policy", "fresh", "--out", "out"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let record = draft.read("out/record.jsonl");
    let (head, steps) = record.split_once('\n').unwrap();
    assert!(head.contains(r#""draft":true"#), "{head}");
    assert_eq!(steps, templates::record(&component));

    // And each repeats the other's run.
    draft.write("fresh.wasm", std::fs::read(component.path().join("fresh.wasm")).unwrap());
    let of_draft = draft.allot(&["replay", "out", "./fresh.wasm"]);
    assert!(of_draft.ends_with("exit code 0"), "{of_draft}");
    let of_component =
        component.allot(&["replay", "out", draft.path().join("fresh/policy.py").to_str().unwrap()]);
    assert!(of_component.ends_with("exit code 0"), "{of_component}");
}

#[test]
fn every_output_says_that_it_is_a_draft() {
    let Some(scratch) = fresh() else { return };
    let said = scratch.allot(&["simulate", "run.toml", "--policy", "./fresh/policy.py", "--out", "out"]);
    assert!(said.contains("policy fresh 0.1.0, a draft, sha256 HASH"), "{said}");
    assert!(said.contains("\na draft decided; "), "{said}");
    let json = scratch.allot(&["simulate", "run.toml", "--policy", "fresh", "--no-record", "--json"]);
    assert!(json.contains(r#""draft":true"#), "{json}");
    let report = scratch.allot(&["report", "out", "--out", "report"]);
    assert!(report.contains("fresh (draft)"), "{report}");
    assert!(scratch.read("report/index.html").contains("fresh (draft)"));
    let replayed = scratch.allot(&["replay", "out", "fresh", "--set", "pilot=3"]);
    assert!(replayed.contains("fresh (draft) (+)"), "{replayed}");
    let replayed = scratch.allot(&["replay", "out", "fresh", "--json"]);
    assert!(replayed.contains(r#""draft":true"#), "{replayed}");
    let own = scratch.allot(&["replay", "out"]);
    insta::assert_snapshot!(own, @"
    error: this run used a draft of `fresh`, and runs do not keep copies of drafts

    hint: give the policy to replay: `allot replay RUN FOLDER/policy.py`, or a component
    exit code 2
    ");
}

#[test]
fn a_draft_is_checked_but_for_what_only_the_sandbox_shows() {
    let Some(scratch) = fresh() else { return };
    let card = scratch.allot(&["check", "fresh", "--within", "600"]);
    for words in [
        "    a draft, run by Python\n",
        "pass  is pure: equal calls, equal plans\n",
        "not tested  runs in the sandbox: with fuel, and without files, clocks and randomness (it is a draft: check its component)\n",
        "not counted",
        "incomplete: not tested: 1 requirement\nexit code 3",
    ] {
        assert!(card.contains(words), "{words}\n{card}");
    }
    assert!(!card.contains("FAIL"), "{card}");
}

#[test]
fn an_endless_loop_of_a_draft_fails_its_check() {
    let Some(scratch) = guest() else { return };
    let card = scratch.allot(&["check", "fresh", "--set", "how=loop", "--seconds", "0.5"]);
    for words in [
        "\n      on a fresh step: ran out of time: more than 0.5 s in one call; it was in decide (policy.py:55)\n",
        "\n      hint: look for an endless loop, ",
        "\nFAIL: 1 requirement\nincomplete: 1 of 321 views were tried, ",
    ] {
        assert!(card.contains(words), "{words}\n{card}");
    }
    assert!(!card.contains("--within") && card.ends_with("exit code 1"), "{card}");
    // The check's own time ended the call.
    let card = scratch.allot(&["check", "fresh", "--set", "how=loop", "--within", "1"]);
    assert!(card.contains(", a call on a fresh step took longer than the whole check, "), "{card}");
    assert!(card.ends_with("; --within gives more time\nexit code 3"), "{card}");
}

#[test]
fn a_replay_tells_which_settings_are_the_records() {
    let Some(scratch) = fresh() else { return };
    scratch.allot(&["simulate", "run.toml", "--policy", "fresh", "--out", "out"]);
    let source = scratch.read("fresh/policy.py");
    assert!(!scratch.allot(&["replay", "out", "fresh"]).contains("as recorded"));
    scratch.write("fresh/policy.py", source.replacen("setting(12,", "setting(9,", 1));
    let said = scratch.allot(&["replay", "out", "fresh"]);
    assert!(said.contains("as recorded, unless --set says otherwise: commit = 12 (default 9)\n"), "{said}");
    let set = scratch.allot(&["replay", "out", "fresh", "--set", "commit=9"]);
    assert!(!set.contains("as recorded") && set.ends_with("exit code 1"), "{set}");
}

#[test]
fn a_policy_in_the_configs_place_runs_under_the_shipped_one() {
    let Some(scratch) = fresh() else { return };
    let said = scratch.allot(&["simulate", "fresh/policy.py", "-o", "run.steps=3", "--no-record"]);
    assert!(said.contains("policy fresh 0.1.0, a draft, sha256 HASH, seed 1"), "{said}");
    assert!(said.ends_with("exit code 0"), "{said}");
    let kept = scratch.allot(&["simulate", "fresh/policy.py", "-o", "run.steps=3"]);
    assert!(kept.contains("record in runs/fresh-001/record.jsonl"), "{kept}");
    let two = scratch.allot(&["simulate", "fresh/policy.py", "--policy", "uniform"]);
    insta::assert_snapshot!(two, @"
    error: `fresh/policy.py` and `--policy uniform` are two policies

    hint: give a config, or leave out --policy
    exit code 2
    ");
}

#[test]
fn runs_of_models_and_comparisons_refuse_drafts() {
    let Some(scratch) = fresh() else { return };
    let refused = r"
    error: `HERE/fresh/policy.py` is a draft: only `simulate`, `check` and `replay` run drafts

    hint: build the component, and give its path: `allot build HERE/fresh`
    exit code 2
    ";
    // A comparison says what is left out in its plan, which is not drawn up here.
    let note = "note: `./fresh/policy.py` takes the place of `pilot-commit`, whose settings are left out: \
                `commit`, `pilot`\n";
    for (command, before) in
        [(&["train", "quickstart"][..], note), (&["compare", "compare-quickstart", "--dry-run"], "")]
    {
        let args = [command, &["-o", "policy.use=./fresh/policy.py"]].concat();
        let said = here(&scratch, &scratch.allot(&args));
        assert_eq!(said, format!("{before}{}", refused.replace("\n    ", "\n").trim()), "{command:?}");
    }
}

/// With no path of this machine.
fn here(scratch: &Scratch, said: &str) -> String {
    let real = std::fs::canonicalize(scratch.path()).unwrap();
    said.replace(real.to_str().unwrap(), "HERE").replace(scratch.path().to_str().unwrap(), "HERE")
}

#[test]
fn what_fails_is_told_with_a_command_that_repeats_it() {
    let Some(scratch) = guest() else { return };
    let one = |way: &str, more: &[&str]| {
        let args = ["simulate", "run.toml", "--policy", "fresh", "--set", way, "--out", way];
        scratch.allot(&[&args, more].concat())
    };
    let raised = one("how=raise", &[]);
    for words in [
        "policy `faulty` trapped: an exception in Python; it said:\n    Traceback (most recent call last):\n      File \"policy.py\", line 52, in decide\n",
        "    ValueError: invalid literal for int() with base 10: 'step 0'\n",
        "to repeat the call: allot replay how=raise fresh --at 0.0\n",
    ] {
        assert!(raised.contains(words), "{words}\n{raised}");
    }
    let again = scratch.allot(&["replay", "how=raise", "fresh", "--at", "0.0"]);
    assert!(again.contains("ValueError: invalid literal for int() with base 10: 'step 0'"), "{again}");
    let exits = one("how=exit", &[]);
    assert!(exits.contains("the policy called `sys.exit`; to stop the run it raises `GiveUp`"), "{exits}");
    let refuses = one("how=give-up", &[]);
    assert!(refuses.contains("policy `faulty` gave up: the data set is not for this policy"), "{refuses}");
    let hoards = one("how=grow", &["-o", "policy.limits.memory=100_000_000"]);
    assert!(hoards.contains("MemoryError"), "{hoards}");
    let endless = one("how=loop", &["-o", "policy.limits.seconds=0.5"]);
    let within = "ran out of time: more than 0.5 s in one call; it was in decide (policy.py:55)\n";
    assert!(endless.contains(within), "{endless}");
    // A call into C is ended, too.
    std::fs::remove_dir_all(scratch.path().join("how=loop")).unwrap();
    let stuck = scratch.read("fresh/policy.py").replace("while True: pass", "sum(range(10**15))");
    scratch.write("fresh/policy.py", stuck);
    let stuck = one("how=loop", &["-o", "policy.limits.seconds=0.5"]);
    assert!(stuck.contains("; it was in decide (policy.py:55)\n"), "{stuck}");
    let prints = one("how=print", &[]);
    assert!(prints.contains("printed in step 0") && prints.contains("logged as a warning"), "{prints}");
}

#[test]
fn what_is_not_a_draft_is_told() {
    let Some(scratch) = fresh() else { return };
    std::fs::rename(scratch.path().join("fresh/policy.py"), scratch.path().join("fresh/rule.py")).unwrap();
    let said = |source: &str| here(&scratch, &scratch.allot(&["simulate", "run.toml", "--policy", source]));
    insta::assert_snapshot!(said("./fresh/rule.py"), @"
    error: `HERE/fresh/rule.py` is not a draft: a policy in Python is a file `policy.py`

    hint: rename it to `policy.py`, in a folder of its own
    exit code 2
    ");
    insta::assert_snapshot!(said("./nothing/policy.py"), @"
    error: could not read `HERE/nothing`: there is no such file or folder
    exit code 2
    ");
    scratch.write("fresh/policy.py", "name = 'fresh'\n");
    insta::assert_snapshot!(said("fresh"), @"
    error: `fresh` does not load as a policy; Python says:
        `policy.py` has no `version`
    exit code 2
    ");
    std::fs::remove_file(scratch.path().join("fresh/sdk/allot_policy/draft.py")).unwrap();
    insta::assert_snapshot!(said("fresh"), @"
    error: the SDK in `HERE/fresh/sdk` is too old to run drafts

    hint: delete that folder to use the SDK of this program
    exit code 2
    ");
}

#[test]
fn a_build_tells_at_once_what_python_can_tell() {
    let Some(scratch) = fresh() else { return };
    let source = scratch.read("fresh/policy.py");
    let built = |source: String| {
        scratch.write("fresh/policy.py", source);
        // With Python alone on the path there is nothing to build with.
        let real = "import os, sys; print(os.path.realpath(sys.executable), end='')";
        let python = Command::new("python3").args(["-c", real]).output().unwrap().stdout;
        let python = String::from_utf8(python).unwrap();
        let folder = scratch.path().join("bin");
        let _ = std::fs::create_dir(&folder);
        let _ = std::os::unix::fs::symlink(python, folder.join("python3"));
        let done = scratch.command(&["build", "fresh"]).env("PATH", &folder).output().unwrap();
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let keyword = built(source.replacen("minimum=0", "minimun=0", 1));
    assert!(
        keyword.contains("error: `fresh` does not load as a policy; Python says:\n    Traceback"),
        "{keyword}"
    );
    assert!(
        keyword.contains("TypeError: setting() got an unexpected keyword argument 'minimun'"),
        "{keyword}"
    );
    let decision = built(source.replacen("view.can_sample", "view.can_smple", 1));
    assert!(
        decision.contains("`fresh` failed on a fresh step, in the trial before the build: "),
        "{decision}"
    );
    assert!(decision.contains("'View' object has no attribute 'can_smple'"), "{decision}");
    let good = built(source);
    assert!(good.contains("`componentize-py` was not found"), "{good}");
}
