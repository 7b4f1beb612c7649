//! Guests that do wrong, and files that are no guests: each ends with one clear sentence, exit code
//! not 0, no panic, nothing lost. As a user meets it: the binary, in a scratch folder.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "guests/heavy.rs"]
mod heavy;
#[path = "guests/kept.rs"]
mod kept;
#[path = "guests/otherwise.rs"]
mod otherwise;
mod scratch;
#[path = "guests/steering.rs"]
mod steering;
#[path = "guests/untested.rs"]
mod untested;

use scratch::Scratch;

/// A config small enough for guests that do wrong in the first step.
const CONFIG: &str = r#"
[run]
seed = 1
steps = 3
groups = 2
rollouts = 4
[budget]
rollouts = 50
[policy]
use = "./guest.wasm"
[policy.limits]
fuel = 100_000_000
[world]
prompts = 10
"#;

/// What a run under a guest of `tests/guests` ends with.
fn run(guest: &str) -> String {
    let scratch = Scratch::new();
    scratch.write("guest.wasm", scratch::guest(guest));
    scratch.write("run.toml", CONFIG);
    scratch.allot(&["simulate", "run.toml", "--out", "out"])
}

/// What a run under a guest with this text ends with.
fn run_text(text: &str) -> (Scratch, String) {
    let scratch = Scratch::new();
    scratch.write("guest.wasm", allot_authoring::component::of_module(text.as_bytes(), "guest").unwrap());
    scratch.write("run.toml", CONFIG);
    let said = scratch.allot(&["simulate", "run.toml", "--out", "out"]);
    (scratch, said)
}

/// What `allot check` says of a file with these bytes.
fn load(bytes: impl AsRef<[u8]>) -> String {
    let scratch = Scratch::new();
    scratch.write("guest.wasm", bytes);
    scratch.allot(&["check", "./guest.wasm"])
}

#[test]
fn a_guest_that_traps_is_quoted() {
    insta::assert_snapshot!(run("traps"), @"
    policy guest 0.0.1, sha256 HASH, seed 1
    error: in step 0, round 0 policy `guest` trapped: wasm trap: wasm `unreachable` instruction executed; it said: the words of the guest

    note: its view is in out/view-0.0.json; to repeat the call: allot replay out --at 0.0
    note: everything that was finished is in out/record.jsonl
    exit code 2
    ");
}

#[test]
fn a_guest_that_loops_runs_out_of_fuel() {
    insta::assert_snapshot!(run("loops"), @"
    policy guest 0.0.1, sha256 HASH, seed 1
    error: in step 0, round 0 policy `guest` ran out of fuel: more than 100000000 Wasm instructions in one call

    hint: look for an endless loop, or raise `fuel` under [policy.limits]
    note: its view is in out/view-0.0.json; to repeat the call: allot replay out --at 0.0
    note: everything that was finished is in out/record.jsonl
    exit code 2
    ");
}

#[test]
fn a_guest_that_loops_runs_out_of_time_where_fuel_is_plenty() {
    let scratch = Scratch::new();
    scratch.write("guest.wasm", scratch::guest("loops"));
    scratch.write(
        "run.toml",
        CONFIG.replace("fuel = 100_000_000", "fuel = 9_000_000_000_000_000_000\nseconds = 0.05"),
    );
    insta::assert_snapshot!(scratch.allot(&["simulate", "run.toml", "--out", "out"]), @"
    policy guest 0.0.1, sha256 HASH, seed 1
    error: in step 0, round 0 policy `guest` ran out of time: more than 0.05 s in one call

    hint: look for an endless loop, or raise `seconds` under [policy.limits]
    note: its view is in out/view-0.0.json; to repeat the call: allot replay out --at 0.0
    note: everything that was finished is in out/record.jsonl
    exit code 2
    ");
}

#[test]
fn a_guest_that_grows_runs_out_of_memory() {
    insta::assert_snapshot!(run("grows"), @"
    policy guest 0.0.1, sha256 HASH, seed 1
    error: in step 0, round 0 policy `guest` ran out of memory: it requested 1080295440 bytes of at most 1073741824

    hint: look for a list that only grows, or raise `memory` under [policy.limits]
    note: its view is in out/view-0.0.json; to repeat the call: allot replay out --at 0.0
    note: everything that was finished is in out/record.jsonl
    exit code 2
    ");
}

#[test]
fn a_guest_with_a_state_of_a_gigabyte_runs_out_of_memory() {
    insta::assert_snapshot!(run("huge_state"), @"
    policy guest 0.0.1, sha256 HASH, seed 1
    error: in step 0, round 0 policy `guest` ran out of memory: it requested 1074003984 bytes of at most 1073741824

    hint: look for a list that only grows, or raise `memory` under [policy.limits]
    note: its view is in out/view-0.0.json; to repeat the call: allot replay out --at 0.0
    note: everything that was finished is in out/record.jsonl
    exit code 2
    ");
}

#[test]
fn a_guest_that_gives_up_is_quoted() {
    insta::assert_snapshot!(run("gives_up"), @"
    policy guest 0.0.1, sha256 HASH, seed 1
    error: in step 0, round 0 policy `guest` gave up: the words of the guest

    note: its view is in out/view-0.0.json; to repeat the call: allot replay out --at 0.0
    note: everything that was finished is in out/record.jsonl
    exit code 2
    ");
}

#[test]
fn a_list_outside_the_guest_s_memory_is_a_trap() {
    insta::assert_snapshot!(run("outside_memory"), @"
    policy guest 0.0.1, sha256 HASH, seed 1
    error: in step 0, round 0 policy `guest` trapped: list pointer/length out of bounds of memory

    note: its view is in out/view-0.0.json; to repeat the call: allot replay out --at 0.0
    note: everything that was finished is in out/record.jsonl
    exit code 2
    ");
}

#[test]
fn a_guest_that_logs_without_end_keeps_its_last_words() {
    insta::assert_snapshot!(run("chats"), @"
    policy guest 0.0.1, sha256 HASH, seed 1
    error: in step 0, round 0 policy `guest` trapped: wasm trap: wasm `unreachable` instruction executed; it said: the words of the guest

    note: its view is in out/view-0.0.json; to repeat the call: allot replay out --at 0.0
    note: everything that was finished is in out/record.jsonl
    exit code 2
    ");
}

#[test]
fn a_check_of_a_guest_that_loops_ends() {
    let scratch = Scratch::new();
    scratch.write("guest.wasm", scratch::guest("loops"));
    let report = scratch.allot(&["check", "./guest.wasm", "--fuel", "10000000"]);
    assert!(
        report.contains(
            "FAIL  answers every call (1 call on 1 of 321 synthetic views)\n      on a fresh step: ran out of fuel"
        ),
        "{report}"
    );
}

#[test]
fn a_guest_of_the_wasi_world_gets_the_quiet_room() {
    // No sleep, a frozen clock, seeded randomness, no variables, no folder (8 is "bad file descriptor"), and what
    // it printed is told. Twice the same, or it would be no pure function.
    let quiet = || {
        let scratch = Scratch::new();
        let text = std::fs::read(scratch::root().join("tests/guests/prints.wat")).unwrap();
        scratch.write("guest.wasm", allot_authoring::component::of_module(&text, "prints").unwrap());
        scratch.write("run.toml", CONFIG);
        scratch.allot(&["simulate", "run.toml", "--out", "out"])
    };
    let said = quiet();
    assert_eq!(said, quiet());
    insta::assert_snapshot!(said, @"
    policy guest 0.0.1, sha256 HASH, seed 1
    error: in step 0, round 0 policy `guest` trapped: wasm trap: wasm `unreachable` instruction executed; it said: clock HASH random HASH variables 0000000000000000 no folder 0000000000000008

    note: its view is in out/view-0.0.json; to repeat the call: allot replay out --at 0.0
    note: everything that was finished is in out/record.jsonl
    exit code 2
    ");
}

#[test]
fn a_prompt_asked_for_twice_breaks_a_rule() {
    insta::assert_snapshot!(run("asks_twice"), @"
    policy guest 0.0.1, sha256 HASH, seed 1
    error: policy `guest` asked for prompt `1` twice in one plan (step 0, round 0)

    hint: add the counts up in one request
    note: its view is in out/view-0.0.json; to repeat the call: allot replay out --at 0.0
    note: everything that was finished is in out/record.jsonl
    exit code 2
    ");
}

#[test]
fn a_position_past_the_end_breaks_a_rule() {
    insta::assert_snapshot!(run("past_the_end"), @"
    policy guest 0.0.1, sha256 HASH, seed 1
    error: policy `guest` picked rollout 99 of prompt `1`, which has 4 buffered (0 to 3) (step 0, round 1)

    hint: positions index the group's lists, from 0, each once
    note: its view is in out/view-0.1.json; to repeat the call: allot replay out --at 0.1
    note: everything that was finished is in out/record.jsonl
    exit code 2
    ");
}

#[test]
fn a_weight_that_is_no_number_breaks_a_rule() {
    insta::assert_snapshot!(run("nan_weight"), @"
    policy guest 0.0.1, sha256 HASH, seed 1
    error: policy `guest` gave prompt `1` the weight NaN; a weight is from 0 to 1000000 (step 0, round 1)

    hint: look for a division by zero
    note: its view is in out/view-0.1.json; to repeat the call: allot replay out --at 0.1
    note: everything that was finished is in out/record.jsonl
    exit code 2
    ");
}

#[test]
fn a_state_of_20_megabytes_breaks_a_rule() {
    insta::assert_snapshot!(run("big_state"), @"
    policy guest 0.0.1, sha256 HASH, seed 1
    error: policy `guest` returned a state of 20000000 bytes; the limit of the record is 16777216 (step 0, round 0)

    hint: past visits and held rollouts come with every view; remember only what does not
    note: its view is in out/view-0.0.json; to repeat the call: allot replay out --at 0.0
    note: everything that was finished is in out/record.jsonl
    exit code 2
    ");
}

#[test]
fn a_plan_that_asks_nothing_breaks_a_rule() {
    insta::assert_snapshot!(run("asks_nothing"), @"
    policy guest 0.0.1, sha256 HASH, seed 1
    error: policy `guest` asked for no rollouts, skipped nothing and evicted nothing (step 0, round 0)

    hint: answer `train` when there is nothing to sample; its picks may be empty
    note: its view is in out/view-0.0.json; to repeat the call: allot replay out --at 0.0
    note: everything that was finished is in out/record.jsonl
    exit code 2
    ");
}

#[test]
fn four_billion_rollouts_are_clipped_to_the_budget() {
    insta::assert_snapshot!(run("asks_for_all"), @"
    the budget is spent
      rollouts sampled                           50  100.0 %
        trained on                                0    0.0 %
          with an advantage                       0    0.0 %
        discarded                                50  100.0 %
          of zero-variance groups                 0    0.0 %
        stale                                     0    0.0 %
        left in the buffer, or unscorable         0    0.0 %
      generated tokens                        11284
      model updates                               0
      held-out accuracy                      0.4045
        at the start                         0.4045
    no update was made, because the policy's plans trained on nothing, though rewards differed in 1 of 1 groups
    policy guest 0.0.1, sha256 HASH, seed 1
    note: step 1 asked for 4294967295 rollouts and was granted 50: the run's budget has no more
    record in out/record.jsonl
    exit code 0
    ");
}

#[test]
fn a_core_module_is_told_from_a_component() {
    insta::assert_snapshot!(load(wat::parse_str("(module)").unwrap()), @"
    error: could not load policy `./guest.wasm`: the file is a core Wasm module, not a component

    hint: make it a component: allot build FILE
    exit code 2
    ");
}

#[test]
fn text_is_told_from_wasm() {
    insta::assert_snapshot!(load("(module)"), @"
    error: could not load policy `./guest.wasm`: the file is Wasm text, not a binary component

    hint: build it into a component: allot build FILE
    exit code 2
    ");
    insta::assert_snapshot!(load("def decide(run, state, view):\n    pass\n"), @"
    error: could not load policy `./guest.wasm`: the file is not a Wasm component: it does not begin with the Wasm magic number
    exit code 2
    ");
}

#[test]
fn an_empty_file_is_said_to_be_empty() {
    insta::assert_snapshot!(load(""), @"
    error: could not load policy `./guest.wasm`: the file is empty
    exit code 2
    ");
}

#[test]
fn a_component_that_is_cut_off_is_said_to_be_damaged() {
    let whole = scratch::guest("traps");
    insta::assert_snapshot!(load(&whole[..whole.len() / 2]), @"
    error: could not load policy `./guest.wasm`: the component is damaged or cut off: unexpected end-of-file (at offset 0xb96)

    hint: copy or build it again
    exit code 2
    ");
    // Cut anywhere, it is never a panic and never taken for whole.
    for cut in (0..whole.len()).step_by(37) {
        assert!(load(&whole[..cut]).contains("exit code 2"), "cut at {cut}");
    }
}

#[test]
fn a_huge_file_is_not_read() {
    let scratch = Scratch::new();
    let file = std::fs::File::create(scratch.path().join("guest.wasm")).unwrap();
    file.set_len(5 << 30).unwrap();
    insta::assert_snapshot!(scratch.allot(&["check", "./guest.wasm"]), @"
    error: could not load policy `./guest.wasm`: the file has 5368709120 bytes; expected at most 134217728
    exit code 2
    ");
}

#[test]
fn a_component_of_another_world_is_told_what_is_missing() {
    insta::assert_snapshot!(load(scratch::component("other_world")), @"
    error: could not load policy `./guest.wasm`: the component exports `answer`, but no `rollout:allocation/allocator`

    hint: export the contract's interface: `allot new NAME` makes a policy that does
    exit code 2
    ");
}

#[test]
fn a_component_of_another_version_is_told_which_one_is_spoken_here() {
    insta::assert_snapshot!(load(scratch::component("other_version")), @"
    error: could not load policy `./guest.wasm`: this policy is built for rollout:allocation@0.4.0; this program knows 0.1, 0.2 and 0.3

    hint: use a newer version of this program, or build the policy with this one: allot build
    exit code 2
    ");
}

#[test]
fn a_component_with_a_foreign_import_is_told_which_one() {
    insta::assert_snapshot!(load(scratch::component("wants_more")), @"
    error: could not load policy `./guest.wasm`: the component imports `acme:gpu/device@1.0.0`, which is not available to a policy

    hint: import only `rollout:allocation/log` and restricted WASI: a policy has no files and no network
    exit code 2
    ");
}

#[test]
fn a_component_with_other_types_is_told_that_it_does_not_fit() {
    insta::assert_snapshot!(load(scratch::component("misfit")), @"
    error: could not load policy `./guest.wasm`: the component does not fit the contract rollout:allocation@0.1: failed to convert function to given type: type mismatch with results: expected `record` found `u32`

    hint: build it again with this program: allot build
    exit code 2
    ");
}

#[test]
fn a_cache_that_cannot_be_used_is_warned_of_once() {
    let scratch = Scratch::new();
    scratch.write("file", "");
    let mut command = scratch.command(&["policies", "uniform"]);
    let done = command.env("ALLOT_CACHE", scratch.path().join("file")).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success(), "{said}");
    assert_eq!(said.matches("warning: compiled WebAssembly cannot be kept").count(), 1, "{said}");
    assert!(said.contains("hint: Make the folder writable, or set ALLOT_CACHE"), "{said}");
}

#[test]
fn a_hash_that_the_config_demands_is_enforced() {
    let scratch = Scratch::new();
    scratch.write("guest.wasm", scratch::guest("traps"));
    scratch.write("run.toml", CONFIG.replace("[policy.limits]", "sha256 = \"00ff\"\n[policy.limits]"));
    insta::assert_snapshot!(scratch.allot(&["simulate", "run.toml"]), @"
    error: could not load policy `./guest.wasm`: the component's sha256 is HASH; the config expects 00ff

    hint: load the file that the config means, or change `sha256` in it
    exit code 2
    ");
}

#[test]
fn check_fails_a_guest_by_rule_with_exit_code_1() {
    let report = load(scratch::guest("asks_twice"));
    assert!(report.contains("exit code 1"), "{report}");
    assert!(report.contains("FAIL  asks for a prompt once in a plan"), "{report}");
    assert!(report.contains("policy `guest` asked for prompt"), "{report}");
}

#[test]
fn what_a_failing_guest_was_shown_is_kept() {
    let scratch = Scratch::new();
    scratch.write("guest.wasm", scratch::guest("traps"));
    scratch.write("run.toml", CONFIG);
    scratch.allot(&["simulate", "run.toml", "--out", "out"]);
    let kept = std::fs::read_to_string(scratch.path().join("out/view-0.0.json")).unwrap();
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    let view: allot_allocation::View = serde_json::from_value(kept["view"].clone()).unwrap();
    assert_eq!((view.step, view.round, view.pool.len()), (0, 0, 8));
    let record = std::fs::read_to_string(scratch.path().join("out/record.jsonl")).unwrap();
    assert!(record.lines().last().unwrap().contains("\"normal\":false"), "{record}");
}
