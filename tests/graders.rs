//! The graders of `allot-tasks` against recorded verdicts of the code they are ported from
//! (`tests/cases/graders/README.md`). `ALLOT_VERIFIER_CASES` names another file of verdicts, and
//! `ALLOT_NORMALIZE_CASES` another of normalised strings. Texts made to hang or crash a grader.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use allot_tasks::grader::{Grader, Ungradable, latex_to_text, mathd, minerva, prm800k, split_tuple};
use serde_json::Value;

/// Graders by the column that holds their original's verdicts.
const COLUMNS: [(&str, Grader); 4] = [
    ("hendrycks", Grader::Hendrycks),
    ("tinker_sympy", Grader::Tinker),
    ("math_dapo_answer_line", Grader::DapoLine),
    ("math_dapo", Grader::DapoBox),
];

fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/graders").join(name)
}

/// The rows of a file, and whether it is the project's own.
fn rows(variable: &str, name: &str) -> (Vec<Value>, bool) {
    let other = std::env::var_os(variable).map(PathBuf::from);
    let path = other.clone().unwrap_or_else(|| own(name));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!rows.is_empty(), "{} holds no case", path.display());
    (rows, other.is_none())
}

fn text<'a>(row: &'a Value, column: &str) -> &'a str {
    row[column].as_str().unwrap_or_else(|| panic!("{row} has no text `{column}`"))
}

#[test]
fn verdicts_agree_with_the_original_graders() {
    let (rows, own_copy) = rows("ALLOT_VERIFIER_CASES", "verifier_cases.jsonl");
    let mut table = format!("{:<24}{:>7}{:>7}{:>9}{:>9}\n", "grader", "cases", "agree", "share", "µs each");
    let mut listed = String::new();
    let mut shares = Vec::new();
    for (column, grader) in COLUMNS {
        let slow = |row: &Value| row["slow"].as_array().is_some_and(|s| s.iter().any(|name| name == column));
        let judged = rows.iter().filter(|row| !slow(row) && row[column].is_boolean());
        let (mut cases, mut agree, mut time) = (0_u32, 0_u32, Duration::ZERO);
        for row in judged {
            let (gold, prediction) = (text(row, "gold"), text(row, "prediction"));
            let started = Instant::now();
            let got = grader.grade(gold, prediction);
            time += started.elapsed();
            cases += 1;
            if got.as_ref().is_ok_and(|grade| row[column] == grade.correct) {
                agree += 1;
            } else {
                let id = text(row, "id");
                println!(
                    "{column} {id}: gold {gold:?}, prediction {prediction:?}, expected {}, got {got:?}",
                    row[column]
                );
                writeln!(listed, "{column} {id}").unwrap();
            }
        }
        let share = f64::from(agree) / f64::from(cases.max(1));
        let each = time.as_secs_f64() * 1e6 / f64::from(cases.max(1));
        writeln!(table, "{column:<24}{cases:>7}{agree:>7}{:>8.2}%{each:>9.1}", 100.0 * share).unwrap();
        shares.push((column, cases, share));
    }
    println!("{table}");
    for (column, cases, share) in shares {
        assert!(cases > 0, "no case has a verdict of {column}");
        assert!(share >= 0.99, "{column} agrees on {:.2} % of {cases} cases\n{table}", 100.0 * share);
    }
    if own_copy {
        let expected = std::fs::read_to_string(own("differences.txt")).unwrap();
        assert_eq!(listed, expected, "differences.txt lists other differences than there are");
    }
}

#[test]
fn every_string_is_normalised_as_by_the_original_code() {
    let (rows, _) = rows("ALLOT_NORMALIZE_CASES", "normalize_cases.jsonl");
    let mut differences = Vec::new();
    let mut differ = |column: &str, row: &Value, got: Value| {
        if row[column] != got {
            differences.push(format!("{column} of {}: expected {}, got {got}", row["input"], row[column]));
        }
    };
    for row in &rows {
        let input = text(row, "input");
        let normal = prm800k(input).ok();
        differ("mathd", row, mathd(input).into());
        differ("split", row, normal.as_deref().map(split_tuple).into());
        differ("prm800k", row, normal.into());
        differ("minerva", row, minerva(input).into());
        let plain = if input.contains('\\') { latex_to_text(input).ok() } else { None };
        differ("latex2text", row, plain.into());
    }
    println!("{} strings, {} differences", rows.len(), differences.len());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// No text of 100,000 characters takes a grader long, or crashes it.
#[test]
fn hostile_texts_are_judged_in_time() {
    const SIZE: usize = 100_000;
    let pieces = [
        "{",
        "}",
        "[",
        "(",
        "((",
        "\\",
        "$",
        "$$",
        "%",
        "&",
        "\n",
        " ",
        "  ",
        "^",
        "-",
        "- ",
        "1",
        "1,",
        "1 ",
        "1,000,",
        "9.",
        ".",
        "/",
        "=",
        "é",
        "a",
        "a ",
        "\\text{",
        "\\text{ ",
        "\\frac",
        "\\frac{",
        "\\frac1",
        "\\sqrt",
        "\\sqrt{",
        "\\sqrt[",
        "\\bar{",
        "\\\\",
        "\\\\*[",
        "\\(",
        "\\[",
        "\\begin{x}",
        "\\begin{pmatrix}",
        "\\begin{array}",
        "\\end{x}",
        "\\boxed",
        "\\boxed{",
        "\\boxed ",
        "degrees ",
        "meter^",
        "^2^22",
        "Answer:",
        "Answer: ",
        "answer",
        "####",
        "<answer>",
        "</answer>",
        "(A)",
        "A ",
        "1+",
        "million",
        "\\not",
    ];
    let golds = [
        (Grader::Hendrycks, r"\frac{1}{2}"),
        (Grader::Tinker, r"(x, \frac{1}{2})"),
        (Grader::DapoLine, "x"),
        (Grader::DapoBox, "x"),
        (Grader::Integer, "7"),
        (Grader::Number, "0.5"),
        (Grader::Choice, "Z"),
        (Grader::Countdown, r#"{"target": 6, "numbers": [1, 2, 3]}"#),
        (Grader::Exact, "x"),
    ];
    let mut slowest = (Duration::ZERO, String::new());
    let mut judge = |grader: Grader, gold: &str, answer: &str, piece: &str| {
        let started = Instant::now();
        let verdict = grader.grade(gold, answer);
        let took = started.elapsed();
        // Wrong or too much to judge; none of these is right.
        let ends_well = match &verdict {
            Ok(grade) => !grade.correct,
            Err(why) => matches!(why, Ungradable::TooMuch { .. }),
        };
        assert!(ends_well, "{grader:?} on {piece:?}: {verdict:?}");
        if took > slowest.0 {
            slowest = (took, format!("{} on {piece:?}", grader.name()));
        }
    };
    for piece in pieces {
        let long = piece.repeat(SIZE / piece.len());
        let half = piece.repeat(SIZE / piece.len() / 2);
        let texts = [
            long.clone(),
            format!("\\boxed{{{long}}}"),
            format!("\\boxed{{{half}{}}}", "}".repeat(half.matches('{').count())),
        ];
        for answer in &texts {
            for (grader, gold) in golds {
                judge(grader, gold, answer, piece);
            }
        }
    }
    println!("slowest: {:?}, {}", slowest.0, slowest.1);
    assert!(slowest.0 < Duration::from_secs(10), "{slowest:?}");
}

#[test]
fn no_hostile_text_is_rewarded() {
    let path = own("../hostile/texts.jsonl");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.len() >= 200, "{}", rows.len());
    let mut rewarded = Vec::new();
    for row in &rows {
        let grader: Grader = serde_json::from_value(row["grader"].clone()).unwrap();
        let (gold, answer) = (row["gold"].as_str().unwrap(), row["answer"].as_str().unwrap());
        if grader.grade(gold, answer).is_ok_and(|grade| grade.correct) {
            rewarded.push(format!("{}: {}", grader.name(), row["trick"]));
        }
    }
    assert!(rewarded.is_empty(), "{}", rewarded.join("\n"));
}
