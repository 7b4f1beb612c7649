//! math-verify in the sandbox: the verdicts of the grader that is a process. Verdicts that are certain without it: the same.
//!
//! Needs CPython's module and the packages' wheels: `ALLOT_PYTHON` and `ALLOT_WHEELS` name them, or `allot fetch math-verify`
//! has fetched them. `ALLOT_VERIFIER_CASES` names more recorded verdicts than the repository has. `ALLOT_MATH_VERIFY` names a Python
//! with math-verify, which judges as many drawn pairs as `ALLOT_MATH_PAIRS` says (500).
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod skip;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

use allot_judges::math::verdict;
use allot_judges::python::Limits;
use allot_judges::python::build::BUILDS;
use allot_judges::python::math::{Math, WHEELS};
use serde_json::Value;

const LIMITS: Limits = Limits { fuel: 10_000_000_000, memory: 512 << 20 };

fn math() -> Option<&'static Math> {
    static ONE: OnceLock<Option<Math>> = OnceLock::new();
    let one = ONE.get_or_init(|| {
        let cache = allot_base::cache("python");
        let fetched = |name: &str| cache.as_ref().map(|folder| folder.join(name));
        let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let python =
            named("ALLOT_PYTHON").or_else(|| fetched(BUILDS[0].file)).filter(|path| path.exists())?;
        let wheels = named("ALLOT_WHEELS").or_else(|| fetched("wheels"))?;
        let all = WHEELS.iter().all(|wheel| wheels.join(wheel.file).exists());
        all.then(|| Math::open(&wheels, &python, cache.as_deref()).unwrap())
    });
    if one.is_none() {
        skip::skip("math-verify", "no wheels of math-verify: allot fetch math-verify");
    }
    one.as_ref()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn recorded() -> PathBuf {
    let own = || root().join("tests/cases/graders/math_verify_cases.jsonl");
    std::env::var_os("ALLOT_VERIFIER_CASES").map_or_else(own, PathBuf::from)
}

/// Compares verdicts that are certain with those of lines of JSON: a gold answer, an answer, and the verdict, null where
/// math-verify gave none. Returns how many there are, and how many of them are certain.
fn certain(lines: &str) -> (usize, usize) {
    let (mut all, mut decided, mut apart) = (0, 0, Vec::new());
    for line in lines.lines() {
        let (gold, answer, wanted): (String, String, Option<bool>) = serde_json::from_str(line).unwrap();
        let got = verdict(&[gold], &answer);
        all += 1;
        decided += usize::from(got.is_some());
        if got.is_some() && got != wanted {
            apart.push(format!("{got:?} for {line}"));
        }
    }
    assert!(apart.is_empty(), "{} of {all} differ:\n{}", apart.len(), apart.join("\n"));
    println!("{decided} of {all} verdicts are certain without math-verify");
    (all, decided)
}

#[test]
fn certain_verdicts_are_those_of_math_verify() {
    let (all, decided) =
        certain(&std::fs::read_to_string(root().join("tests/cases/graders/math_pairs.jsonl")).unwrap());
    assert!(decided * 4 > all, "{decided} of {all}");
    let text = std::fs::read_to_string(recorded()).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let rows = rows.filter(|row: &Value| row["math_verify"].is_boolean());
    let lines: Vec<String> = rows
        .map(|row| serde_json::json!([row["gold"], row["prediction"], row["math_verify"]]).to_string())
        .collect();
    certain(&lines.join("\n"));
}

#[test]
fn certain_verdicts_on_drawn_pairs_are_those_of_math_verify() {
    let python = std::env::var("ALLOT_MATH_VERIFY").unwrap_or_else(|_| "python3".to_owned());
    let has = Command::new(&python).args(["-c", "import math_verify"]).output();
    if !has.is_ok_and(|has| has.status.success()) {
        return skip::skip("math-verify", "no Python with math-verify");
    }
    let count = std::env::var("ALLOT_MATH_PAIRS").unwrap_or_else(|_| "500".to_owned());
    let judge = root().join("host/judges/src/python/math_verify.py");
    let done = Command::new(&python)
        .args(["-W", "ignore"])
        .arg(root().join("tests/cases/graders/math_pairs.py"))
        .arg(judge)
        .args(["20261128", &count])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let (all, _) = certain(&String::from_utf8(done.stdout).unwrap());
    assert_eq!(all.to_string(), count);
}

/// An answer, and others with the same box in another place.
fn around(content: &str) -> [String; 5] {
    let many = "As 3 and 4 are 7, and 7 and 5 are 12, the sum is x. ".repeat(40);
    [
        format!(r"\boxed{{{content}}}"),
        format!("{many}\nThe final answer is:\n\n\\[\n\\boxed{{{content}}}\n\\]"),
        format!(r"First \[y = 2\], so $x = \boxed{{{content}}}$."),
        format!(
            "\\[3, 6, 9\\]\nSo it is \\(\\boxed{{{content}}}\\).\n\nEach of the others is too large, as we saw above, so we are done. It is \\(\\boxed{{{content}}}\\)."
        ),
        format!("It is 5.\nThe final answer is $ \\boxed{{{content}}} $. I am sure."),
    ]
}

#[test]
fn verdicts_on_the_same_box_are_the_same() {
    let Some(math) = math() else { return };
    let pairs = [
        ("x^2+1", "1+x^2"),
        (r"\sqrt{34} + 3\sqrt{10}", r"3\sqrt{10}+\sqrt{34}"),
        ("28", r"\sqrt{34} + 3\sqrt{10}"),
        ("4:30p..", r"4:30 \text{ p.m.}"),
        (r"\frac{1}{x+1}", r"\frac{2}{2x+2}"),
        ("1<x", "x>1"),
        ("3+5", r"\frac{24}{3}+1"),
        (r"\{1,2\}", "1, 2"),
    ];
    let mut right = 0;
    for (gold, content) in pairs {
        let gold = [gold.to_owned()];
        let verdicts: Vec<bool> = around(content)
            .iter()
            .map(|answer| {
                assert_eq!(allot_judges::math::content(answer), Some(content), "{answer}");
                math.judged(&gold, answer, LIMITS).unwrap().0
            })
            .collect();
        assert!(verdicts.iter().all(|one| *one == verdicts[0]), "{content} for {gold:?}: {verdicts:?}");
        right += usize::from(verdicts[0]);
        // What is known of one is said of all, without an interpreter: with one instruction none gives a verdict.
        let [first, others @ ..] = around(content);
        assert_eq!(math.judge(&gold, &first, LIMITS).unwrap().correct, Some(verdicts[0]), "{first}");
        for answer in others {
            let said = math.judge(&gold, &answer, Limits { fuel: 1, ..LIMITS });
            assert_eq!(said.unwrap().correct, Some(verdicts[0]), "{answer}");
        }
    }
    assert!((3..8).contains(&right), "{right}");
    // Nothing is left of it, a second box may be read, or it may take long.
    for other in [r"\boxed{\text{ }}", r"\boxed{x+1} or \boxed{y}", r"\boxed{2^{2^{2^{2^x}}}}", "x+1"] {
        assert_eq!(allot_judges::math::content(other), None, "{other}");
    }
}

#[test]
fn verdicts_are_those_of_the_process() {
    let Some(math) = math() else { return };
    let text = std::fs::read_to_string(recorded()).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rows: Vec<&Value> = rows.iter().filter(|row| row["math_verify"].is_boolean()).collect();
    let (mut agree, mut late, mut fuels) = (0, 0, Vec::new());
    let began = Instant::now();
    let judge = |row: &Value| {
        let text = |column: &str| row[column].as_str().unwrap().to_owned();
        math.judged(&[text("gold")], &text("prediction"), LIMITS)
    };
    let half = rows.len() / 2;
    let got: Vec<_> = std::thread::scope(|scope| {
        let first = scope.spawn(|| rows[..half].iter().map(|row| judge(row)).collect::<Vec<_>>());
        let rest: Vec<_> = rows[half..].iter().map(|row| judge(row)).collect();
        first.join().unwrap().into_iter().chain(rest).collect()
    });
    for (row, got) in rows.iter().zip(&got) {
        let fuel = got.as_ref().map_or(0, |(_, fuel)| *fuel);
        fuels.push(fuel);
        late += u32::from(fuel == LIMITS.fuel);
        if got.as_ref().ok().map(|(correct, _)| *correct) == row["math_verify"].as_bool() {
            agree += 1;
        } else {
            println!("{}: expected {}, got {got:?}", row["id"], row["math_verify"]);
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    fuels.sort_unstable();
    println!(
        "math-verify agrees on {agree} of {} cases, {late} of them out of instructions, in {seconds:.1} s; instructions in \
         the median {} million, for 99 % at most {}",
        rows.len(),
        fuels[fuels.len() / 2] / 1_000_000,
        fuels[fuels.len() * 99 / 100] / 1_000_000
    );
    assert!(agree * 1000 >= rows.len() * 995, "{agree} of {}", rows.len());
}
