//! Graders that do wrong, in Wasm text: none of them gets an answer rewarded, and none stops a run.

use std::collections::BTreeMap;
use std::path::Path;

use allot_allocation::shown;
use allot_judges::component::Components;
use allot_judges::protocol::{Opinion, Question};
use allot_settings::ComponentConfig;
use serde_json::Value;

use crate::scratch::{self, Scratch};
use crate::{config, recorded};

/// Each by its name: what it does with each question, with its list of verdicts at the end and in its description; and
/// words of what is said of it.
const HOSTILE: [(&str, Place, &str, &str); 17] = [
    (
        "traps",
        Place::Grade,
        "(call $log (i32.const 3) (i32.const 64) (i32.const 23)) unreachable",
        "trapped: wasm trap: wasm `unreachable` instruction executed; it said: the words of the grader",
    ),
    (
        "loops",
        Place::Grade,
        "(loop $on (br $on))",
        "ran out of fuel: more than 3000000 Wasm instructions in one call",
    ),
    ("grows", Place::Grade, "(drop (memory.grow (i32.const 20000)))", "ran out of memory: it requested"),
    (
        "a stack without end",
        Place::Grade,
        "(call $one (local.get $question) (local.get $verdict))",
        "trapped: wasm trap: call stack exhausted",
    ),
    (
        "one verdict too few",
        Place::Return,
        "(i32.store offset=4 (local.get $result) (i32.sub (local.get $n) (i32.const 1)))",
        "returned 0 verdicts for 1 answers",
    ),
    (
        "one too many",
        Place::Return,
        "(i32.store offset=4 (local.get $result) (i32.add (local.get $n) (i32.const 1)))",
        "returned 2 verdicts for 1 answers",
    ),
    (
        "a billion verdicts",
        Place::Return,
        "(i32.store offset=4 (local.get $result) (i32.const 1000000000))",
        "trapped: ",
    ),
    (
        "not a number",
        Place::Grade,
        "(i32.store8 offset=8 (local.get $verdict) (i32.const 1)) (f32.store offset=12 (local.get $verdict) (f32.const nan))",
        "gave a reward of NaN",
    ),
    (
        "without end",
        Place::Grade,
        "(i32.store8 offset=8 (local.get $verdict) (i32.const 1)) (f32.store offset=12 (local.get $verdict) (f32.const inf))",
        "gave a reward of inf",
    ),
    (
        "no such part",
        Place::Grade,
        "(i32.store8 offset=8 (local.get $verdict) (i32.const 2)) (i32.store offset=12 (local.get $verdict) (i32.const 160)) (i32.store offset=16 (local.get $verdict) (i32.const 1))",
        "gave a part `format`, which is not in its description",
    ),
    (
        "parts, and none",
        Place::Grade,
        "(i32.store8 offset=8 (local.get $verdict) (i32.const 2))",
        "gave a reward in parts, but no part",
    ),
    (
        "nothing",
        Place::Grade,
        "(i32.store8 offset=4 (local.get $verdict) (i32.const 0))",
        "said neither whether the answer is correct nor a reward",
    ),
    (
        "a kind of verdict that is none",
        Place::Grade,
        "(i32.store8 (local.get $verdict) (i32.const 7))",
        "trapped: ",
    ),
    (
        "words that steer a terminal",
        Place::Grade,
        "(i32.store8 (local.get $verdict) (i32.const 1)) (i32.store offset=4 (local.get $verdict) (i32.const 96)) (i32.store offset=8 (local.get $verdict) (i32.const 26))",
        "said: ",
    ),
    (
        "words that are not UTF-8",
        Place::Grade,
        "(i32.store8 (local.get $verdict) (i32.const 1)) (i32.store offset=4 (local.get $verdict) (i32.const 128)) (i32.store offset=8 (local.get $verdict) (i32.const 3))",
        "trapped: ",
    ),
    (
        "words outside its memory",
        Place::Grade,
        "(i32.store8 (local.get $verdict) (i32.const 1)) (i32.store offset=4 (local.get $verdict) (i32.const -16)) (i32.store offset=8 (local.get $verdict) (i32.const 1000))",
        "trapped: ",
    ),
    (
        "a log without end, that steers a terminal",
        Place::Grade,
        "(loop $on (call $log (i32.const 1) (i32.const 96) (i32.const 26)) (br $on))",
        "ran out of fuel",
    ),
];

/// Where in the frame a text stands.
#[derive(Clone, Copy)]
enum Place {
    Describe,
    Grade,
    Return,
}

/// The component of a grader with this text.
fn grader(texts: &[(Place, &str)]) -> Vec<u8> {
    let frame = scratch::root().join("tests/component_graders/frame.wat");
    let mut text = std::fs::read_to_string(frame).unwrap();
    for (place, own) in texts {
        let mark = match place {
            Place::Describe => ";; DESCRIBE",
            Place::Grade => ";; GRADE",
            Place::Return => ";; RETURN",
        };
        text = text.replace(mark, own);
    }
    allot_authoring::component::of_module(text.as_bytes(), "hostile").unwrap()
}

/// A config of a run that such a component judges.
const REWARD: &str = "[reward]\ngrader = \"component\"\nright = 1.0\n[reward.component]\nuse = \"./hostile.wasm\"\nfuel = 3000000\nmemory = 1048576\n";

/// What of a component's words may not reach a terminal.
fn steers_nothing(name: &str, said: &str) {
    assert_eq!(said.chars().find(|c| *c != '\n' && shown::steers(*c)), None, "{name}: {said:?}");
    assert!(!said.lines().any(|line| line.starts_with("error: forged")), "{name}: {said}");
}

#[test]
fn one_that_does_nothing_wrong_rewards_all() {
    let scratch = Scratch::new();
    scratch.write("hostile.wasm", grader(&[]));
    scratch.write("run.toml", config(REWARD));
    let said = scratch.allot(&["train", "run.toml", "--out", "run"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    assert!(recorded(&scratch, "run").iter().all(|reward| *reward == 1.0));
}

#[test]
fn none_is_rewarded_and_the_run_goes_on() {
    std::thread::scope(|scope| {
        for part in HOSTILE.chunks(9) {
            scope.spawn(move || part.iter().for_each(|one| goes_unrewarded(*one)));
        }
    });
}

fn goes_unrewarded((name, place, text, words): (&str, Place, &str, &str)) {
    let scratch = Scratch::new();
    scratch.write("hostile.wasm", grader(&[(place, text)]));
    scratch.write("run.toml", config(REWARD));
    let said = scratch.allot(&["train", "run.toml", "--out", "run"]);
    assert!(said.ends_with("exit code 0"), "{name}: {said}");
    assert!(said.contains(&format!("grader `hostile` {words}")), "{name}: {said}");
    steers_nothing(name, &said);
    let rewards = recorded(&scratch, "run");
    assert!(rewards.iter().all(Value::is_null), "{name}: {rewards:?}");
    assert!(!scratch.read("run/record.jsonl").contains("\"rewards\":[1"), "{name}");

    let checked = scratch.allot(&["check", "./hostile.wasm", "--fuel", "3000000", "--memory", "1048576"]);
    steers_nothing(name, &checked);
    // It may say of every answer that it can't judge it, and then no verdict was tested; all else is a fault.
    let expected = if words == "said: " { 3 } else { 1 };
    assert!(checked.ends_with(&format!("exit code {expected}")), "{name}: {checked}");
}

#[test]
fn what_a_description_may_not_say_is_told_before_the_run() {
    let parts = |count: u32, at: u32| {
        format!(
            "(i32.store offset=32 (local.get $d) (i32.const {at})) (i32.store offset=36 (local.get $d) (i32.const {count}))"
        )
    };
    // Twice the same name: two entries made of one another's bytes.
    let twice = "(i64.store (i32.const 168) (i64.load (i32.const 160)))".to_owned() + &parts(2, 160);
    let evil = "(i32.store (local.get $d) (i32.const 96)) (i32.store offset=4 (local.get $d) (i32.const 26))";
    let evil_part = "(i64.store (i32.const 168) (i64.const 0x1a00000060))".to_owned() + &parts(1, 168);
    for (name, text, words) in [
        ("a part twice", twice.as_str(), "its description is unusable: it has the part `format` twice"),
        ("a name that steers", evil, "its description is unusable"),
        ("a part that steers", &evil_part, "its description is unusable: it has the part `"),
        ("a trap", "unreachable", "its `describe` failed: trapped: "),
        ("a loop", "(loop $on (br $on))", "its `describe` failed: ran out of fuel"),
    ] {
        let scratch = Scratch::new();
        scratch.write("hostile.wasm", grader(&[(Place::Describe, text)]));
        scratch.write("run.toml", config(REWARD));
        let said = scratch.allot(&["train", "run.toml", "--out", "run"]);
        assert!(said.contains(words) && said.ends_with("exit code 2"), "{name}: {said}");
        assert!(!said.contains("policy.limits"), "{name}: {said}");
        assert!(!scratch.path().join("run").exists(), "{name}");
        steers_nothing(name, &said);
    }
}

/// What comes of answers, in the order of these.
fn opinions(path: &Path, answers: &[&str]) -> Vec<Opinion> {
    let component = ComponentConfig { fuel: 3_000_000, ..ComponentConfig::of(path.to_str().unwrap()) };
    let mut components = Components::new(&component, None).unwrap();
    for (place, answer) in answers.iter().enumerate() {
        let (gold, answer) = (vec!["5".to_owned()], (*answer).to_owned());
        components.begin(place, Question { gold, answer, ..Question::default() });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let told: BTreeMap<usize, Opinion> = runtime.block_on(components.finish()).unwrap().into_iter().collect();
    assert_eq!(told.len(), answers.len());
    told.into_values().collect()
}

#[test]
fn an_answer_that_breaks_a_grader_costs_nobody_but_itself() {
    let scratch = Scratch::new();
    // It breaks, in one way or another, on answers that begin with `!`.
    let broken =
        "(if (i32.eq (i32.load8_u (i32.load offset=24 (local.get $question))) (i32.const 33)) (then BREAKS))";
    for breaks in ["unreachable", "(loop $on (br $on))", "(drop (memory.grow (i32.const 20000)))"] {
        scratch.write("grader.wasm", grader(&[(Place::Grade, &broken.replace("BREAKS", breaks))]));
        let path = scratch.path().join("grader.wasm");
        let answers: Vec<&str> = (0..50).map(|i| if i % 11 == 3 { "!" } else { "5" }).collect();
        let said = opinions(&path, &answers);
        for (answer, said) in answers.iter().zip(&said) {
            assert_eq!(said.is_err(), *answer == "!", "{breaks}: {said:?}");
        }
    }
}

#[test]
fn one_that_remembers_is_found_out_by_its_check() {
    let scratch = Scratch::new();
    // Right is every answer but the first of a batch.
    let counts = "(i32.store8 offset=5 (local.get $verdict) (i32.ne (global.get $calls) (i32.const 0))) (global.set $calls (i32.const 1))";
    scratch.write("grader.wasm", grader(&[(Place::Grade, counts)]));
    let said = scratch.allot(&["check", "./grader.wasm"]);
    assert!(said.contains("FAIL  gives an answer the same verdict in a batch and alone"), "{said}");
    assert!(said.ends_with("exit code 1"), "{said}");
}

#[test]
fn a_check_of_a_grader_that_ran_out_of_time_is_incomplete() {
    let scratch = Scratch::new();
    // The first answer of a call takes a part of the time, and 32 calls take more than all of it, on machines
    // of very different speeds.
    let slow = "(if (i32.eqz (global.get $calls)) (then (local.set $n (i32.const 500000000)) (loop $on (br_if $on (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))) (global.set $calls (i32.const 1))";
    scratch.write("grader.wasm", grader(&[(Place::Grade, slow)]));
    let limits = ["--within", "4", "--fuel", "1000000000000"];
    let said = scratch.allot(&[&["check", "./grader.wasm"], &limits[..]].concat());
    assert!(said.ends_with("exit code 3") && !said.contains("FAIL"), "{said}");
    assert!(said.contains(" of 162 synthetic questions)\n"), "{said}");
    let end = said.lines().rev().nth(1).unwrap();
    assert!(end.starts_with("incomplete: ") && end.contains(" of 162 questions were tried"), "{said}");
    let batches =
        "not tested  gives an answer the same verdict in a batch and alone (no batch was graded as a whole)";
    assert!(said.contains(batches), "{said}");
    let first = said.lines().find(|line| line.starts_with("a short answer ")).unwrap();
    assert!(first.ends_with(" KiB"), "{said}");

    let said =
        scratch.allot(&["check", "./grader.wasm", "--within", "0.000001", "--seconds", "60", "--json"]);
    let card: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&card["result"], &card["pass"], &card["tried"]),
        (&"incomplete".into(), &false.into(), &0.into())
    );
    for row in ["answers", "usable", "pure", "batches"] {
        assert_eq!(card["results"][row], "not tested", "{row}");
    }
}
