//! What `allot check` says of what it did not test.

use serde_json::Value;

use crate::scratch::{self, Scratch};

/// The end of `slow`, which follows its loop.
const TRAINS: &str = "(i32.store8 offset=4 (local.get $plan) (i32.const 1))\n(local.get $plan)";

/// The card of the guest whose `decide` is this, as text or as JSON.
fn card(decide: &str, args: &[&str]) -> String {
    let scratch = Scratch::new();
    let frame = std::fs::read_to_string(scratch::root().join("tests/guests/frame.wat")).unwrap();
    let text = frame.replace(";; DECIDE", decide);
    let guest = allot_authoring::component::of_module(text.as_bytes(), "guest").unwrap();
    scratch.write("guest.wasm", guest);
    scratch.allot(&[&["check", "./guest.wasm"], args].concat())
}

fn decide(name: &str) -> String {
    std::fs::read_to_string(scratch::root().join(format!("tests/guests/{name}.wat"))).unwrap()
}

fn json(card: &str) -> Value {
    serde_json::from_str(card.lines().next().unwrap()).unwrap()
}

/// The lines of a card that begin so.
fn lines<'a>(card: &'a str, mark: &str) -> Vec<&'a str> {
    card.lines().filter_map(|line| line.strip_prefix(mark)).collect()
}

#[test]
fn a_check_that_ran_out_of_time_is_incomplete() {
    let card = card(&decide("slow"), &["--within", "3"]);
    assert!(card.ends_with("exit code 3"), "{card}");
    let end = card.lines().rev().nth(1).unwrap();
    assert!(end.starts_with("incomplete: ") && end.contains(" of 321 views were tried"), "{card}");
    assert!(end.ends_with("; --within gives more time"), "{card}");
    assert!(
        card.contains("pass  answers every call (") && card.contains(" of 321 synthetic views)"),
        "{card}"
    );

    // It trained, on nothing: that says nothing of what a plan samples or picks.
    let untested = lines(&card, "not tested  ");
    assert!(
        untested.contains(&"samples only prompts in the pool or buffered (no valid plan sampled)"),
        "{card}"
    );
    assert!(untested.contains(&"picks only buffered prompts (no valid plan trained on a group)"), "{card}");
    assert!(untested.contains(&"runs to a normal end (the time limit was reached)"), "{card}");
    let changes = "changes its state within what the run's record takes in all (the time limit was reached)";
    assert!(untested.contains(&changes), "{card}");
    let passed = lines(&card, "pass  ");
    assert!(passed.contains(&"is pure: equal calls, equal plans"), "{card}");
    assert!(passed.contains(&"keeps its state within the record's bound"), "{card}");

    // A call and an instance have a cost, however short the time is.
    let first = card.lines().find(|line| line.starts_with("   1x ")).unwrap();
    assert!(first.ends_with(" KiB"), "{card}");
    assert!(card.contains("\ninstance in ") && !card.contains("instance in 0 µs"), "{card}");
}

#[test]
fn a_check_without_any_time_passes_nothing() {
    let card = card(&decide("slow"), &["--within", "0.000001", "--seconds", "60", "--json"]);
    assert!(card.ends_with("exit code 3"), "{card}");
    let card = json(&card);
    assert_eq!(
        (&card["result"], &card["pass"], &card["complete"]),
        (&"incomplete".into(), &false.into(), &false.into())
    );
    for rule in card["rules"].as_array().unwrap() {
        assert_eq!((&rule["result"], &rule["pass"]), (&"not tested".into(), &false.into()), "{rule}");
    }
    for row in ["answers", "pure", "runs"] {
        assert_eq!(card["results"][row], "not tested", "{row}");
    }
    assert!(card["costs"][0]["ms"].is_number() && card["instantiate_us"].is_number(), "{card}");
    assert_eq!(card["costs"].as_array().unwrap().len(), 3);
    assert!(card["costs"][2]["ms"].is_null(), "{card}");
    let missing = card["missing"].as_array().unwrap();
    assert!(missing.contains(&"the cost at 16x was not measured".into()), "{missing:?}");
}

#[test]
fn a_failure_of_an_incomplete_check_is_a_failure() {
    let slow = decide("slow");
    let both = slow.replace(TRAINS, &decide("asks_twice"));
    assert_ne!(both, slow);
    let text = card(&both, &["--within", "3"]);
    assert!(text.ends_with("exit code 1"), "{text}");
    assert!(
        text.contains("FAIL  asks for a prompt once in a plan")
            && text.contains("\n      hint: add the counts up in one request\n")
            && !text.contains("--within"),
        "{text}"
    );
    // How many fail, depends on how many views were tried. A run that breaks off is one more.
    let (_, end) = text.split_once("\nFAIL: ").unwrap();
    let (failed, end) = end.split_once(' ').unwrap();
    assert!(failed.parse::<u32>().unwrap() >= 2 && end.starts_with("requirements\nincomplete: "), "{text}");
    let card = json(&card(&both, &["--within", "3", "--json"]));
    assert_eq!(
        (&card["result"], &card["pass"], &card["complete"]),
        (&"fail".into(), &false.into(), &false.into())
    );
    let result = |name: &str| card["results"][name].as_str().unwrap().to_owned();
    assert_eq!(result("requested-twice"), "fail");
    // A plan is checked up to the first rule that it breaks.
    assert_eq!(result("no-count"), "not tested");
}

#[test]
fn what_no_plan_does_is_not_tested_however_long_the_check_takes() {
    let text = card(&decide("trains_on_nothing"), &[]);
    assert!(text.ends_with("exit code 3"), "{text}");
    assert!(text.contains("pass  answers every call (642 calls on 321 synthetic views)"), "{text}");
    let untested = lines(&text, "not tested  ");
    assert_eq!(
        untested.iter().filter(|line| line.ends_with(" (no valid plan sampled)")).count(),
        8,
        "{text}"
    );
    assert_eq!(
        untested.iter().filter(|line| line.ends_with(" (no valid plan trained on a group)")).count(),
        13
    );
    assert_eq!(untested.len(), 21, "{text}");
    assert!(text.contains("\nincomplete: not tested: 21 requirements\n"), "{text}");
}

#[test]
fn a_trap_at_scale_is_a_failure() {
    // It traps with more groups than any view has, and fewer than 16 times those of the published run.
    let traps =
        "(if (i32.ge_u (i32.load offset=92 (local.get $args)) (i32.const 1200)) (then unreachable))\n";
    let card = card(&format!("{traps}{}", decide("trains_on_nothing")), &[]);
    assert!(card.contains("FAIL  answers every call"), "{card}");
    assert!(card.contains("on the view at 16x: trapped"), "{card}");
    assert!(
        card.lines().any(|line| line.starts_with("  16x ") && line.contains("not measured: trapped")),
        "{card}"
    );
    assert!(card.ends_with("exit code 1"), "{card}");
}

#[test]
fn a_call_that_outlasts_the_check_is_not_tested() {
    // The loop counts down from 0, past all 4 billion numbers: longer than the check, on any machine. No limit of its own
    // ends it. The check's time is enough to begin a call on a busy one.
    let slow = decide("slow").replace("30000000", "0");
    let short = card(&slow, &["--within", "0.5"]);
    assert!(short.ends_with("exit code 3") && !short.contains("FAIL"), "{short}");
    assert!(short.contains("not tested  answers every call (1 call on 0 of 321 synthetic views)"), "{short}");
    let limited = card(&slow, &["--seconds", "0.1"]);
    assert!(limited.contains("FAIL  answers every call (1 call on 1 of 321 synthetic views)"), "{limited}");
    assert!(limited.contains("ran out of time: more than 0.1 s in one call"), "{limited}");
    assert!(limited.ends_with("exit code 1"), "{limited}");
}

#[test]
fn a_time_for_a_check_is_a_number_of_seconds() {
    let card = card(&decide("slow"), &["--within", "nan"]);
    assert!(card.contains("`--within` is NaN, which is out of range"), "{card}");
}
