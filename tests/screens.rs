//! The program as a user meets it: what each command prints, word for word, in a scratch folder.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "screens/again.rs"]
mod again;
mod scratch;
mod skip;

use scratch::Scratch;
use skip::skip;

const CONFIG: &str = r#"
# a run of seconds
[run]
seed = 3
steps = 30
groups = 4
rollouts = 8

[budget]
rollouts = 1200

[policy]
use = "uniform"

[world]
prompts = 100
held_out = 50
"#;

/// The program in a folder with this config as `run.toml`.
fn with(config: &str, args: &[&str]) -> String {
    let scratch = Scratch::new();
    scratch.write("run.toml", config);
    scratch.allot(args)
}

#[test]
fn policies_are_listed_with_their_settings() {
    insta::assert_snapshot!(Scratch::new().allot(&["policies"]));
}

#[test]
fn a_policy_is_told_as_json() {
    let text = Scratch::new().allot(&["policies", "uniform", "--json"]);
    let json: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(json[0]["name"], "uniform");
    assert_eq!(json[0]["settings"][0]["name"], "rollouts");
}

#[test]
fn a_config_that_ships_is_run_by_its_name_and_printed_to_be_changed() {
    let scratch = Scratch::new();
    let said = scratch.allot(&["configs"]);
    assert!(
        said.lines().any(|line| line.starts_with("quickstart ") && line.contains("152,128 parameters")),
        "{said}"
    );
    let printed = scratch.allot(&["configs", "simulate"]);
    scratch.write("mine.toml", printed.replace("exit code 0", ""));
    let short = ["-o", "budget.rollouts=500"];
    scratch.allot(&[&["simulate", "simulate", "--out", "a"][..], &short].concat());
    scratch.allot(&[&["simulate", "mine.toml", "--out", "b"][..], &short].concat());
    assert_eq!(scratch.read("a/record.jsonl"), scratch.read("b/record.jsonl"));
    // A file of that name comes first.
    scratch.write("simulate", "no config");
    assert!(scratch.allot(&["simulate", "simulate"]).contains("`simulate` line 1"));
}

#[test]
fn a_config_that_is_not_there_is_told_with_what_ships() {
    let said = Scratch::new().allot(&["train", "quikstart"]);
    assert!(said.contains("there is no file `quikstart`, and no config ships under that name"), "{said}");
    assert!(said.contains("hint: did you mean `quickstart`?"), "{said}");
    let said = Scratch::new().allot(&["configs", "nothing-like-it"]);
    assert!(said.contains("hint: run `allot configs` to list the shipped configs"), "{said}");
}

#[test]
fn a_simulation_ends_with_a_table() {
    insta::assert_snapshot!(with(CONFIG, &["simulate", "run.toml"]));
}

#[test]
fn a_simulation_is_repeated_to_the_byte() {
    let scratch = Scratch::new();
    scratch.write("run.toml", CONFIG);
    scratch.allot(&["simulate", "run.toml", "--policy", "pilot-commit", "--out", "a"]);
    scratch.allot(&["simulate", "run.toml", "--policy", "pilot-commit", "--out", "b"]);
    assert_eq!(scratch.read("a/record.jsonl"), scratch.read("b/record.jsonl"));
    scratch.allot(&["simulate", "run.toml", "--policy", "pilot-commit", "--out", "c", "--seed", "4"]);
    assert_ne!(scratch.read("a/record.jsonl"), scratch.read("c/record.jsonl"));
}

#[test]
fn runs_are_paired_by_construction() {
    // At the first weights, two policies that sample the same prompt get the same rollouts.
    let first_rewards = |policy: &str| {
        let scratch = Scratch::new();
        scratch.write("run.toml", CONFIG);
        scratch.allot(&["simulate", "run.toml", "--policy", policy, "--out", "out"]);
        let record = scratch.read("out/record.jsonl");
        let rollouts = record.lines().find(|l| l.starts_with(r#"{"kind":"rollouts""#)).unwrap();
        let rollouts: serde_json::Value = serde_json::from_str(rollouts).unwrap();
        let list = rollouts["sampled"].as_array().unwrap().clone();
        list.into_iter()
            .map(|s| (s["prompt"].as_u64().unwrap(), s["correct"].as_str().unwrap().to_owned()))
            .collect::<Vec<_>>()
    };
    let (a, b) = (first_rewards("uniform"), first_rewards("knapsack"));
    assert_eq!(a.len(), 4);
    for (prompt, correct) in &a {
        let twin = b.iter().find(|(p, _)| p == prompt).expect("both begin with the same prompts");
        let n = correct.len().min(twin.1.len());
        assert_eq!(correct[..n], twin.1[..n], "prompt {prompt}");
    }
}

#[test]
fn the_summary_comes_as_json_and_alone_on_standard_output() {
    let scratch = Scratch::new();
    scratch.write("run.toml", CONFIG);
    let done = scratch.command(&["simulate", "run.toml", "--json", "--no-record"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&json["rollouts"], &json["reason"]), (&960.into(), &"all steps are done".into()));
    assert!(!scratch.path().join("runs").exists());
}

#[test]
fn every_policy_that_ships_passes_its_check() {
    for policy in allot::shipped::names() {
        let text = Scratch::new().allot(&["check", policy, "--json"]);
        let json: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(json["pass"], true, "{policy}: {text}");
        assert_eq!((&json["result"], &json["complete"]), (&"pass".into(), &true.into()), "{policy}");
        assert_eq!(json["rules"].as_array().unwrap().len(), 43);
        assert!(json["calls"].as_u64().unwrap() > 600, "{policy}");
        assert_eq!(json["costs"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn a_report_card_shows_each_rule() {
    let text = Scratch::new().allot(&["check", "dapo"]);
    // What follows the empty line after the rules is measured, and differs from run to run.
    let card: Vec<&str> = text.split("\n\n").take(2).collect();
    insta::assert_snapshot!(card.join("\n\n"));
    assert!(text.ends_with("exit code 0"), "{text}");
}

#[test]
fn a_replay_of_the_same_policy_shows_no_difference() {
    let scratch = Scratch::new();
    scratch.write("run.toml", format!("{CONFIG}[requests]\nleast_tokens = 16\n"));
    for policy in allot::shipped::names() {
        let said = scratch.allot(&["simulate", "run.toml", "--policy", policy, "--out", policy]);
        // A coin has no entropy.
        if said.contains("wants the signal") {
            continue;
        }
        // Nor turns, unless the world has some.
        if said.contains("needs `turns`") {
            continue;
        }
        let text = scratch.allot(&["replay", policy, policy]);
        assert!(text.contains("calls, no difference\nexit code 0"), "{policy}: {text}");
    }
}

#[test]
fn a_replay_of_another_setting_shows_where_it_differs() {
    let scratch = Scratch::new();
    scratch.write("run.toml", CONFIG);
    scratch.allot(&["simulate", "run.toml", "--out", "out"]);
    insta::assert_snapshot!(scratch.allot(&[
        "replay",
        "out",
        "uniform",
        "--set",
        "rollouts=7",
        "--show",
        "1"
    ]));
}

#[test]
fn a_replay_of_another_policy_says_what_it_means() {
    let scratch = Scratch::new();
    scratch.write("run.toml", CONFIG);
    scratch.allot(&["simulate", "run.toml", "--out", "out"]);
    insta::assert_snapshot!(scratch.allot(&["replay", "out", "pods", "--show", "0"]));
}

#[test]
fn a_record_that_was_cut_off_is_read_as_far_as_it_goes() {
    let scratch = Scratch::new();
    scratch.write("run.toml", CONFIG);
    scratch.allot(&["simulate", "run.toml", "--out", "out"]);
    let whole = scratch.read("out/record.jsonl");
    // In the middle of the last line, and then anywhere.
    scratch.write("cut.jsonl", &whole[..whole.len() - 20]);
    insta::assert_snapshot!(scratch.allot(&["replay", "cut.jsonl", "uniform"]), @"
    60 calls, no difference
    the record's last line is cut off and was left out (line 122)
    exit code 0
    ");
    for cut in (500..whole.len()).step_by(997) {
        scratch.write("cut.jsonl", &whole[..cut]);
        let text = scratch.allot(&["replay", "cut.jsonl", "uniform"]);
        let told = text.contains("is cut off and was left out")
            || text.contains("has no end")
            || text.contains("not one whole line");
        assert!(told, "cut at {cut}: {text}");
    }
}

#[test]
fn a_record_that_was_edited_is_refused() {
    let scratch = Scratch::new();
    scratch.write("run.toml", CONFIG);
    scratch.allot(&["simulate", "run.toml", "--out", "out"]);
    let whole = scratch.read("out/record.jsonl");
    let lines: Vec<&str> = whole.lines().collect();
    let without = |n: usize| {
        lines.iter().enumerate().filter(|(i, _)| *i != n).flat_map(|(_, l)| [*l, "\n"]).collect::<String>()
    };
    scratch.write("edited.jsonl", without(2));
    insta::assert_snapshot!(scratch.allot(&["replay", "edited.jsonl", "uniform"]), @"
    error: the record's lines of step 0, round 1 do not fit those before them

    hint: the record was edited or damaged
    exit code 2
    ");
    scratch.write("edited.jsonl", whole.replacen("\"round\":1", "\"round\":", 1));
    insta::assert_snapshot!(scratch.allot(&["replay", "edited.jsonl", "uniform"]), @"
    error: `edited.jsonl` line 4 is not a line of a record: expected value at line 1 column 33
    exit code 2
    ");
    scratch.write("edited.jsonl", whole.replacen("\"format\":1", "\"format\":9", 1));
    insta::assert_snapshot!(scratch.allot(&["replay", "edited.jsonl", "uniform"]), @"
    error: `edited.jsonl` is a record of format 9; this program reads format 1
    exit code 2
    ");
    let picks = whole.replacen(
        r#""train":{"picks":[{"prompt":"#,
        r#""train":{"picks":[{"rollouts":[99999],"prompt":"#,
        1,
    );
    assert_ne!(picks, whole);
    scratch.write("edited.jsonl", picks);
    insta::assert_snapshot!(scratch.allot(&["replay", "edited.jsonl", "uniform"]), @"
    error: the record's lines of step 0, round 1 do not fit those before them

    hint: the record was edited or damaged
    exit code 2
    ");
    for (what, with) in [
        (r#""rewards":["#, r#""unscorable":4000000000,"rewards":["#),
        (r#""correct":"0"#, r#""correct":"é"#),
        (r#""sampled":[{"prompt":"#, r#""sampled":[{"prompt":9"#),
        (r#""kind":"step","step":0"#, r#""kind":"step","step":7"#),
        (r#""granted":32"#, r#""granted":10000000000000000000"#),
    ] {
        let edited = whole.replacen(what, with, 1);
        assert_ne!(edited, whole, "{what}");
        scratch.write("edited.jsonl", edited);
        let text = scratch.allot(&["replay", "edited.jsonl", "uniform"]);
        assert!(
            text.contains("do not fit those before them") && text.ends_with("exit code 2"),
            "{what}: {text}"
        );
    }
    scratch.write("edited.jsonl", format!("{whole}{whole}"));
    assert!(scratch.allot(&["replay", "edited.jsonl", "uniform"]).contains("do not fit those before them"));
    scratch.write("edited.jsonl", "");
    insta::assert_snapshot!(scratch.allot(&["replay", "edited.jsonl", "uniform"]), @"
    error: `edited.jsonl` holds no record: not one whole line
    exit code 2
    ");
}

#[test]
fn a_record_is_never_written_over() {
    let scratch = Scratch::new();
    scratch.write("run.toml", CONFIG);
    scratch.allot(&["simulate", "run.toml", "--out", "out"]);
    insta::assert_snapshot!(scratch.allot(&["simulate", "run.toml", "--out", "out"]), @"
    error: there is a record in `out/record.jsonl` already

    hint: give another folder with --out, or remove it
    exit code 2
    ");
}

#[test]
fn a_config_that_is_not_there_or_not_text_is_told() {
    insta::assert_snapshot!(Scratch::new().allot(&["simulate", "none.toml"]), @"
    error: could not read `none.toml`: there is no such file or folder
    exit code 2
    ");
    let scratch = Scratch::new();
    scratch.write("run.toml", b"[run]\nseed = 1 # \xff\xfe\n");
    insta::assert_snapshot!(scratch.allot(&["simulate", "run.toml"]), @"
    error: `run.toml` line 2 is not UTF-8 text
    exit code 2
    ");
}

#[test]
fn an_unknown_key_is_told_with_the_nearest_name() {
    insta::assert_snapshot!(with(&CONFIG.replace("steps =", "stepps ="), &["simulate", "run.toml"]), @"
    error: `run.toml` line 5, `stepps = 30`: unknown field `stepps`, expected one of `name`, `seed`, `steps`, `groups`, `rollouts`, `pool`, `max_age`, `lag`, `order`

    hint: did you mean `steps`?
    exit code 2
    ");
    insta::assert_snapshot!(with(&CONFIG.replace("[budget]", "[budgett]"), &["simulate", "run.toml"]), @"
    error: `run.toml` line 9, `[budgett]`: unknown field `budgett`, expected one of `run`, `budget`, `policy`, `advantage`, `evaluation`, `requests`, `world`, `bank`, `compare`

    hint: did you mean `budget`?
    exit code 2
    ");
}

#[test]
fn a_value_of_the_wrong_type_is_told_with_its_line() {
    insta::assert_snapshot!(with(&CONFIG.replace("groups = 4", "groups = \"four\""), &["simulate", "run.toml"]), @r#"
    error: `run.toml` line 6, `groups = "four"`: invalid type: string "four", expected a whole number from 0 to 4294967295
    exit code 2
    "#);
    insta::assert_snapshot!(with(&CONFIG.replace("groups = 4", "groups = -4"), &["simulate", "run.toml"]), @"
    error: `run.toml` line 6, `groups = -4`: invalid value: integer `-4`, expected a whole number from 0 to 4294967295
    exit code 2
    ");
    insta::assert_snapshot!(with(&CONFIG.replace("groups = 4", "groups = 0"), &["simulate", "run.toml"]), @"
    error: `run.toml`: `run.groups` is 0; expected at least 1
    exit code 2
    ");
    insta::assert_snapshot!(with(&CONFIG.replace("groups = 4", "groups = "), &["simulate", "run.toml"]), @"
    error: `run.toml` line 6, `groups =`: string values must be quoted, expected literal string
    exit code 2
    ");
}

#[test]
fn a_missing_key_is_told() {
    insta::assert_snapshot!(with(&CONFIG.replace("groups = 4", ""), &["simulate", "run.toml"]), @"
    error: `run.toml` line 3, `[run]`: missing field `groups`
    exit code 2
    ");
}

#[test]
fn a_budget_that_limits_nothing_is_refused() {
    insta::assert_snapshot!(with(&CONFIG.replace("rollouts = 1200", ""), &["simulate", "run.toml"]), @"
    error: `run.toml`: [budget] sets no limit

    hint: set `rollouts`, `tokens`, `flops` or `seconds`
    exit code 2
    ");
    insta::assert_snapshot!(with(&CONFIG.replace("rollouts = 1200", "flops = -1.0"), &["simulate", "run.toml"]), @"
    error: `run.toml`: `budget.flops` is -1; expected a finite number above 0
    exit code 2
    ");
}

#[test]
fn a_run_is_scored_by_one_measure() {
    let twice = format!("{CONFIG}\n[evaluation]\nevery = 5\nevery_rollouts = 100\n");
    insta::assert_snapshot!(with(&twice, &["simulate", "run.toml"]), @"
    error: `run.toml`: `evaluation.every` and `evaluation.every_rollouts` are both given

    hint: set only one of them
    exit code 2
    ");
}

#[test]
fn a_run_is_scored_wherever_its_rollouts_pass_a_multiple() {
    let config = format!("{CONFIG}\n[evaluation]\nevery_rollouts = 300\n");
    insta::assert_snapshot!(with(&config, &["simulate", "run.toml"]), @"
    all steps are done
      rollouts sampled                          960  100.0 %
        trained on                              960  100.0 %
          with an advantage                     544   56.7 %
        discarded                                 0    0.0 %
          of zero-variance groups                 0    0.0 %
        stale                                     0    0.0 %
        left in the buffer, or unscorable         0    0.0 %
      generated tokens                       215947
      model updates                              30
      held-out accuracy                      0.4122
        at the start                         0.3558
    policy uniform 0.1.0, sha256 HASH, seed 3
    step    10/30  rollouts      320/1200  accuracy 0.3717  effective  50.0 %
    step    19/30  rollouts      608/1200  accuracy 0.3895  effective  25.0 %
    step    29/30  rollouts      928/1200  accuracy 0.4104  effective  50.0 %
    record in runs/run-001/record.jsonl
    exit code 0
    ");
}

#[test]
fn an_unknown_policy_is_told_with_the_nearest_name() {
    insta::assert_snapshot!(with(CONFIG, &["simulate", "run.toml", "--policy", "pilot-comit"]), @"
    error: no policy is called `pilot-comit`

    hint: did you mean `pilot-commit`?
    hint: give your own component by its path, as in `./mine.wasm`
    exit code 2
    ");
}

#[test]
fn settings_are_checked_by_name_type_and_sense() {
    let set = |what: &str| with(CONFIG, &["simulate", "run.toml", "--policy", "pods", "--set", what]);
    insta::assert_snapshot!(set("kepp=4"), @"
    error: policy `pods` has no setting `kepp`

    hint: did you mean `keep`?
    exit code 2
    ");
    insta::assert_snapshot!(set("run.seed=4"), @"
    error: policy `pods` has no setting `run.seed`

    hint: Use `-o run.seed=…` instead of `--set`: `run.seed` is a key of the config.
    exit code 2
    ");
    insta::assert_snapshot!(set("learning_rate=1e-3"), @"
    error: policy `pods` has no setting `learning_rate`

    hint: use one of `generate`, `keep`, `rule`
    hint: Use `-o SECTION.KEY=VALUE` to change a key of the config.
    exit code 2
    ");
    insta::assert_snapshot!(set("keep=0.5"), @"
    error: policy `pods`: setting `keep` is 0.5; it must be a whole number from -2147483648 to 2147483647
    exit code 2
    ");
    insta::assert_snapshot!(set("keep=0"), @"
    error: policy `pods` refused its setting `keep`: must be at least 2: one rollout alone has no deviation to be measured by
    exit code 2
    ");
    insta::assert_snapshot!(set("rule=best"), @"
    error: policy `pods` refused its setting `rule`: `best` is unknown; expected one of max-variance, max-reward, random
    exit code 2
    ");
    insta::assert_snapshot!(set("keep"), @"
    error: `--set keep` is not of the form NAME=VALUE
    exit code 2
    ");
}

#[test]
fn limits_that_make_no_sense_are_told() {
    let caps = |caps: &str| {
        with(
            &CONFIG.replace("[world]", &format!("[policy.limits]\n{caps}\n[world]")),
            &["simulate", "run.toml"],
        )
    };
    insta::assert_snapshot!(caps("seconds = 1e30"), @"
    error: `run.toml`, [policy.limits]: `seconds` is 1000000000000000000000000000000; expected more than 0 and at most 86400
    exit code 2
    ");
    insta::assert_snapshot!(caps("fuel = 1000"), @"
    error: could not load policy `uniform`: its `describe` failed: ran out of fuel: more than 1000 Wasm instructions in one call

    hint: look for an endless loop, or raise `fuel` under [policy.limits]
    exit code 2
    ");
    insta::assert_snapshot!(with(&CONFIG.replace("prompts = 100", "prompts = 4_000_000_000"), &["simulate", "run.toml"]), @"
    error: `world.prompts` is 4000000000; it is from 1 to 20,000,000
    exit code 2
    ");
}

#[test]
fn what_a_user_wrote_is_never_written_over() {
    let scratch = Scratch::new();
    scratch.write("resolved.toml", CONFIG);
    let text = scratch.allot(&["simulate", "resolved.toml", "--out", "."]);
    assert!(text.ends_with("exit code 2"), "{text}");
    assert_eq!(scratch.read("resolved.toml"), CONFIG);
}

#[test]
fn a_failed_start_leaves_no_folder() {
    let scratch = Scratch::new();
    scratch.write("run.toml", CONFIG);
    scratch.allot(&["simulate", "run.toml", "--set", "none=1"]);
    assert!(!scratch.path().join("runs").exists());
}

#[test]
fn a_result_that_can_not_be_written_is_no_success() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let done = Scratch::new().command(&["policies"]).stdout(full).output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.contains("could not write `standard output`: the disk is full"), "{said}");
}

#[test]
fn no_policy_s_name_is_in_the_host() {
    // Anything that ships is found by looking at what ships.
    let mut folders = vec![scratch::root().join("host")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                for name in allot::shipped::names() {
                    assert!(!text.contains(&format!("\"{name}\"")), "{} names {name}", path.display());
                }
            }
        }
    }
}

#[test]
fn a_policy_is_started_built_checked_and_run() {
    let scratch = Scratch::new();
    insta::assert_snapshot!(scratch.allot(&["new", "My Policy"]), @"
    error: `My Policy` is not a valid policy name

    hint: use lower-case letters, digits and dashes, as in `my-policy`
    exit code 2
    ");
    insta::assert_snapshot!(scratch.allot(&["new", "my-policy"]), @"
    ./my-policy is ready; its README has the commands
    exit code 0
    ");
    insta::assert_snapshot!(scratch.allot(&["new", "my-policy"]), @"
    error: `./my-policy` already exists
    exit code 2
    ");

    // Its own tests, as its README says, with the lock file of the workspace where that serves.
    let project = scratch.path().join("my-policy");
    let target = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-policy");
    let cargo = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO"));
        command.args(args).current_dir(&project).env("CARGO_TARGET_DIR", &target).output().unwrap()
    };
    let tests = cargo(&["test"]);
    let said = String::from_utf8_lossy(&tests.stdout).into_owned() + &String::from_utf8_lossy(&tests.stderr);
    assert!(tests.status.success() && said.contains("1 passed"), "{said}");
    let strict = cargo(&["rustc", "--lib", "--", "-Dwarnings"]);
    assert!(strict.status.success(), "{}", String::from_utf8_lossy(&strict.stderr));

    let built = scratch.allot(&["build", "my-policy"]);
    if built.contains("has no standard library for wasm32") {
        // Loud, and only where nothing can build for Wasm.
        skip("language-rust", &format!("this machine has no Wasm target, so nothing was built: {built}"));
        assert!(
            built.contains("rustup target add wasm32-unknown-unknown") && built.contains("apt-get install"),
            "{built}"
        );
        return;
    }
    assert!(built.ends_with("exit code 0"), "{built}");
    let checked = scratch.allot(&["check", "./my-policy.wasm"]);
    assert!(checked.ends_with("exit code 0"), "{checked}");
    scratch.write("run.toml", CONFIG);
    let ran = scratch.allot(&["simulate", "run.toml", "--policy", "./my-policy.wasm", "--out", "out"]);
    assert!(ran.ends_with("exit code 0"), "{ran}");
    let replayed = scratch.allot(&["replay", "out", "./my-policy.wasm"]);
    assert!(replayed.contains("no difference"), "{replayed}");
}

#[test]
fn building_nonsense_is_told() {
    let scratch = Scratch::new();
    scratch.write("noise.wasm", [0, 1, 2, 3]);
    insta::assert_snapshot!(scratch.allot(&["build", "noise.wasm"]), @"
    error: `noise.wasm` is neither a Wasm module nor its text
    exit code 2
    ");
    scratch.write("empty.wat", "(module)");
    insta::assert_snapshot!(scratch.allot(&["build", "empty.wat"]), @"
    error: could not build a component from `empty.wat`: failed to decode world from module: module was not valid: failed to find export of interface `rollout:allocation/allocator@0.3.0` function `describe`

    hint: export the contract's interface from the module: `allot new NAME` makes a policy that does, `allot new NAME --kind grader` a grader
    exit code 2
    ");
    insta::assert_snapshot!(scratch.allot(&["build", "."]), @"
    error: `.` is not a project of a policy or a grader

    hint: run `allot new NAME --lang LANGUAGE` to start one; a policy has one of `Cargo.toml`, `policy.py`, `policy.js`, `policy.c`, `go.mod`, a grader one of `Cargo.toml`, `grader.py`, `grader.js`, `grader.c`, `go.mod`
    exit code 2
    ");
}

#[test]
fn completions_name_every_command_for_every_shell() {
    let help = with(CONFIG, &["--help"]);
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        // What is indented further goes on with a description.
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() > 10 && commands.contains(&"compare"), "{help}");
    for shell in ["bash", "zsh", "fish"] {
        let script = with(CONFIG, &["completions", shell]);
        assert!(script.ends_with("exit code 0"), "{script}");
        assert!(commands.iter().all(|command| script.contains(command)), "{shell} lacks one of {commands:?}");
        assert!(script.contains("dry-run"), "{shell} has no options");
    }
}
