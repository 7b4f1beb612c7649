//! Guests by hand: modules that do nothing wrong, and what is added to them that does.

use std::fmt::Write as _;

use allot_sandbox::Kind;

use crate::Chance;

/// What the words of guests are made of: a module that does nothing wrong, and where more of it goes.
pub const FRAMES: [Frame; 3] = [
    Frame { file: "tests/guests/frame.wat", place: ";; DECIDE", own: "$plan", size: 64, kind: Kind::Policy },
    Frame {
        file: "tests/guests/0.2/frame.wat",
        place: ";; DECIDE",
        own: "$plan",
        size: 76,
        kind: Kind::Policy,
    },
    Frame {
        file: "tests/component_graders/frame.wat",
        place: ";; GRADE",
        own: "$verdict",
        size: 20,
        kind: Kind::Grader,
    },
];

#[derive(Clone, Copy)]
pub struct Frame {
    /// Its file, in the repository.
    pub file: &'static str,
    /// Where more goes.
    pub place: &'static str,
    /// What it answers by, and its bytes.
    own: &'static str,
    size: usize,
    /// What it is.
    pub kind: Kind,
}

/// Words that a guest does wrong with: what is small, what is an address of its own, and what no address is.
const WORDS: [&str; 16] = [
    "0",
    "1",
    "1",
    "2",
    "3",
    "7",
    "16",
    "48",
    "64",
    "255",
    "4096",
    "65535",
    "65536",
    "0x7fffffff",
    "-1",
    "-65536",
];

/// What is done in a call: nothing much, or one or several things too many.
pub fn body(frame: &Frame, chance: &mut Chance) -> String {
    let mut text = String::new();
    let word = |chance: &mut Chance| match chance.below(5) {
        0 => format!("(local.get {})", frame.own),
        1 if frame.own == "$plan" => "(local.get $list)".to_owned(),
        2 if frame.own == "$plan" => "(local.get $id)".to_owned(),
        _ => format!("(i32.const {})", chance.of_these(&WORDS)),
    };
    if frame.own == "$plan" && chance.below(2) == 0 {
        // A plan that may be taken, if nothing is changed in it: train on nothing.
        text += "(i32.store offset=4 (local.get $plan) (i32.const 1))\n";
    }
    let most = *chance.of_these(&[3, 14]);
    for _ in 0..chance.below(most) {
        let offset = chance.below(frame.size / 4) * 4;
        let _ = match chance.below(20) {
            // A word of the answer, as it may be or as it may not.
            0..=8 => {
                let (offset, word) = if frame.size == 76 && chance.below(4) == 0 {
                    (0, "(i32.const 0)".to_owned())
                } else {
                    (offset, word(chance))
                };
                writeln!(text, "(i32.store offset={offset} (local.get {}) {word})", frame.own)
            }
            9 | 10 if frame.own == "$plan" => {
                let (at, word) = (chance.below(64) * 4, word(chance));
                writeln!(text, "(i32.store offset={at} (local.get $list) {word})")
            }
            11 if frame.own == "$plan" => {
                let number = chance.of_these(&["nan", "inf", "-inf", "0", "1", "-1e30"]);
                let at = chance.below(32) * 8;
                writeln!(text, "(f64.store offset={at} (local.get $list) (f64.const {number}))")
            }
            // Requests that a rule may take.
            12 | 13 if frame.own == "$plan" => {
                let count = 1 + chance.below(4);
                let (head, entry) = if frame.size == 76 { (8, 36) } else { (8, 8) };
                let _ = entry;
                writeln!(
                    text,
                    "(i32.store offset={head} (local.get $plan) (local.get $list)) (i32.store offset={} (local.get $plan) (i32.const 1)) (i32.store (local.get $list) (local.get $id)) (i32.store offset=4 (local.get $list) (i32.const {count}))",
                    head + 4
                )
            }
            14 => writeln!(text, "(call $log {} {} {})", word(chance), word(chance), word(chance)),
            // Up to its memory, and beyond: it has 4 pages, and may have 128.
            15 => writeln!(
                text,
                "(drop (memory.grow (i32.const {})))",
                [1, 8, 100, 123, 124, 125, 126, 65_535][chance.below(8)]
            ),
            // Up to its fuel, and beyond: some instructions each time.
            16 if chance.below(3) == 0 => {
                let n = [1_000, 500_000, 700_000, 800_000, 1_000_000, 2_000_000_000][chance.below(6)];
                let counter = if frame.own == "$plan" { "$id" } else { "$n" };
                writeln!(
                    text,
                    "(local.set {counter} (i32.const {n})) (loop $on (br_if $on (local.tee {counter} (i32.sub (local.get {counter}) (i32.const 1)))))"
                )
            }
            17 if frame.size == 76 => {
                let call = ["$counts", "$measures"][chance.below(2)];
                let words: Vec<String> = (0..5).map(|_| word(chance)).collect();
                writeln!(text, "(call {call} {})", words.join(" "))
            }
            18 if frame.size == 76 => {
                let words: Vec<String> = (0..6).map(|_| word(chance)).collect();
                writeln!(text, "(call $column {})", words.join(" "))
            }
            19 if chance.below(6) == 0 => writeln!(text, "unreachable"),
            _ => Ok(()),
        };
    }
    if frame.own == "$plan" {
        let answer = if chance.below(12) == 0 { word(chance) } else { "(local.get $plan)".to_owned() };
        text += &answer;
    }
    text
}
