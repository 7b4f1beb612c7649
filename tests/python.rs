//! Generated Python in the sandbox: right answers pass, wrong ones fail, and hostile ones get nothing.
//!
//! Needs CPython's module: `ALLOT_PYTHON` names it, or `allot fetch python` has fetched it. `ALLOT_HUMANEVAL` names
//! HumanEval's JSON lines.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod skip;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Instant;

use allot_judges::python::build::BUILDS;
use allot_judges::python::trial::{Outcome, Trial};
use allot_judges::python::{Interpreter, Limits};
use allot_sandbox::Guests;
use serde_json::{Value, json};
use wasmtime::{Engine, Instance, Module, Store};

const LIMITS: Limits = Limits { fuel: 2_000_000_000, memory: 256 << 20 };

fn interpreter() -> Option<&'static Interpreter> {
    static ONE: OnceLock<Option<Interpreter>> = OnceLock::new();
    let one = ONE.get_or_init(|| {
        let cache = allot_base::cache("python");
        let fetched = cache.as_ref().map(|folder| folder.join(BUILDS[0].file));
        let path =
            std::env::var_os("ALLOT_PYTHON").map(PathBuf::from).or(fetched).filter(|path| path.exists())?;
        Some(Interpreter::open(&path, cache.as_deref()).unwrap())
    });
    if one.is_none() {
        skip::skip("python", "no CPython for WASI: allot fetch python");
    }
    one.as_ref()
}

/// A NaN has many forms, and processors differ in which they make: 0/0 is negative on x86 and positive on ARM. Both engines
/// make the same one, which a program can see in its bits.
#[test]
fn both_engines_make_the_same_nan_on_every_machine() {
    let module = r#"(module (func (export "bits") (param f64 f64) (result i64)
        (i64.reinterpret_f64 (f64.div (local.get 0) (local.get 1)))))"#;
    let module = wat::parse_str(module).unwrap();
    for guests in Guests::ALL {
        let engine = Engine::new(&guests.config(None)).unwrap();
        let mut store = Store::new(&engine, ());
        store.set_fuel(1_000).unwrap();
        store.set_epoch_deadline(1);
        let instance = Instance::new(&mut store, &Module::new(&engine, &module).unwrap(), &[]).unwrap();
        let bits = instance.get_typed_func::<(f64, f64), i64>(&mut store, "bits").unwrap();
        let marked = f64::from_bits(0xfff8_0000_dead_beef);
        for (a, b) in [(0.0, 0.0), (f64::INFINITY, f64::NEG_INFINITY), (marked, 1.0), (1.0, marked)] {
            let made = bits.call(&mut store, (a, b)).unwrap();
            assert_eq!(made, 0x7ff8_0000_0000_0000, "{guests:?}: {a}/{b} is {made:x}");
        }
    }
}

/// The same problem in the three ways in which problems come: the median of numbers.
fn trials() -> [(&'static str, Trial); 4] {
    let of = |gold: Value| Trial::of(&gold.to_string()).unwrap();
    [
        (
            "tests",
            of(json!({
                "prompt": "from typing import List\n\ndef median(numbers: List[float]) -> float:\n    \
                           \"\"\"The median of a list that is not empty.\"\"\"\n",
                "test": "def check(candidate):\n    assert candidate([9, 1, 2]) == 2\n    \
                         assert candidate([4, 1, 3, 2]) == 2.5\n    assert candidate([5]) == 5\n    \
                         assert candidate([-1, -1, 7, 9]) == 3.0\n",
                "entry_point": "median",
            })),
        ),
        (
            "statements",
            of(json!({ "test_list": [
                "assert median([9, 1, 2]) == 2",
                "assert median([4, 1, 3, 2]) == 2.5",
                "assert median((5,)) == 5",
            ]})),
        ),
        (
            "calls",
            of(json!({
                "fn_name": "median",
                "inputs": [[[9, 1, 2]], [[4, 1, 3, 2]], [[5]]],
                "outputs": [2, 2.5, 5],
            })),
        ),
        (
            "streams",
            of(json!({ "inputs": ["9 1 2\n", "4 1 3 2\n", "5\n"], "outputs": ["2\n", "2.5\n", "5\n"] })),
        ),
    ]
}

const RIGHT: &str = "def median(numbers):
    numbers = sorted(numbers)
    half = len(numbers) // 2
    if len(numbers) % 2:
        return numbers[half]
    return (numbers[half - 1] + numbers[half]) / 2
";

fn judge(python: &Interpreter, trial: &Trial, answer: &str) -> Outcome {
    trial.judge(python, answer, LIMITS).unwrap()
}

#[test]
fn right_answers_pass_and_wrong_ones_do_not() {
    let Some(python) = interpreter() else { return };
    let mut said = String::new();
    for (kind, trial) in trials() {
        let reads = if kind == "streams" { "print(median([int(x) for x in input().split()]))\n" } else { "" };
        let whole = format!("{RIGHT}{reads}");
        let answers = [
            ("right", whole.clone()),
            ("in a block", format!("Sort, then take the middle.\n```python\n{whole}```\nThat is it.")),
            ("cut off", format!("```python\n{whole}")),
            ("the last block counts", format!("```\n1/0\n```\nNo, rather:\n```py\n{whole}```")),
            (
                "of a class",
                format!(
                    "class Solution:\n    def median(self, numbers):\n        return f(numbers)\n\n{}",
                    RIGHT.replace("median", "f")
                ),
            ),
            ("wrong", "def median(numbers):\n    return sum(numbers) / len(numbers)\nprint(2)\n".to_owned()),
            ("raises", "def median(numbers):\n    return numbers[1000]\n1 / 0\n".to_owned()),
            ("no program", "It is 2.5.".to_owned()),
            ("nothing", String::new()),
            ("for ever", "def median(numbers):\n    while True: pass\nwhile True: pass\n".to_owned()),
            ("memory", "def median(numbers):\n    return [0] * 10**9\nmedian(1)\n".to_owned()),
            ("recursion", "def median(numbers):\n    return median(numbers)\nmedian(1)\n".to_owned()),
        ];
        for (name, answer) in answers {
            let Outcome { passed, tests, stopped } = judge(python, &trial, &answer);
            writeln!(
                said,
                "{kind}, {name}: {passed} of {tests}{}",
                stopped.map(|s| format!(": {s}")).unwrap_or_default()
            )
            .unwrap();
        }
    }
    insta::assert_snapshot!("python_answers", said);
}

/// What comes out of an answer's interpreter is compared as Python compares it, and JSON's forms of it exactly.
#[test]
fn values_are_compared_exactly() {
    let Some(python) = interpreter() else { return };
    let call = |wanted: &str, answer: &str| {
        let gold = format!(r#"{{"fn_name": "f", "inputs": [[1]], "outputs": [{wanted}]}}"#);
        judge(python, &Trial::of(&gold).unwrap(), &format!("def f(n): return {answer}"))
    };
    for (wanted, right, wrong) in [
        (
            "265252859812191058636308480000000",
            "265252859812191058636308480000000",
            "265252859812191058636308480000001",
        ),
        ("9007199254740993", "9007199254740993", "9007199254740992.0"),
        ("[1, [2.5, null]]", "(1, [2.5, None])", "[1, [2.5, 0]]"),
        (r#"{"1": "a", "2": "b"}"#, "{1: 'a', '2': 'b'}", "{1: 'a', '1': 'a'}"),
        ("true", "True", "1"),
        (r#""12""#, "'12'", "'2'"),
        ("[7]", "7", "8"),
        ("[3, 4]", "iter([3, 4]) and [3, 4]", "map(str, [3, 4])"),
    ] {
        let outcome = call(wanted, right);
        assert!(outcome.is_right(), "{right} is {wanted}: {outcome:?}");
        assert!(!call(wanted, wrong).is_right(), "{wrong} is not {wanted}");
    }
    let statement = |test: &str, answer: &str| {
        let gold = json!({ "test_list": [test] }).to_string();
        judge(python, &Trial::of(&gold).unwrap(), answer).is_right()
    };
    // Tests that warn, print, or catch everything.
    assert!(statement(r"assert f(1) is 1 or print('x' * 100_000) or '\d'", "def f(n): return 1"));
    assert!(!statement(
        "try:
    f(1)
except:
    pass",
        "def f(n): raise SystemExit(0)"
    ));
    assert!(!statement("assert sum(f(1)) == 3", "def f(n): return range(10**12)"));
    assert!(statement(
        "assert sorted(f(3)) == [0, 1, 2]",
        "def f(n):
    yield from range(n)"
    ));
    assert!(statement(
        "try:
    f(1)
    assert False
except ValueError: pass",
        "def f(n): raise ValueError(n)"
    ));
}

#[test]
fn an_answer_costs_the_same_each_time() {
    let Some(python) = interpreter() else { return };
    let program = "import random, time\nprint(random.random(), hash('text'), id(object()), time.time())\n";
    let run = || {
        let mut session = python.session(LIMITS).unwrap();
        session.run(program).unwrap();
        session.run("sys.stdout.flush()").unwrap();
        (session.fuel(), String::from_utf8_lossy(&session.guest().output).into_owned())
    };
    let first = run();
    assert!(first.0 > 0 && first.1.ends_with(" 946684800.0\n"), "{first:?}");
    assert_eq!(run(), first);
}

#[test]
fn no_hostile_program_is_rewarded() {
    let Some(python) = interpreter() else { return };
    let corpus = include_str!("cases/hostile/python.txt");
    let programs: Vec<(&str, &str)> =
        corpus.split("\n=== ").skip(1).filter_map(|part| part.split_once('\n')).collect();
    assert!(programs.len() >= 200, "{}", programs.len());
    let mut rewarded = Vec::new();
    for (kind, trial) in trials() {
        for (name, program) in &programs {
            // Enough for a hundred medians; many of these programs use up whatever they get.
            match trial.judge(python, program, Limits { fuel: 200_000_000, ..LIMITS }) {
                Ok(outcome) if !outcome.is_right() => {}
                other => rewarded.push(format!("{kind}, {name}: {other:?}")),
            }
        }
    }
    assert!(rewarded.is_empty(), "{}", rewarded.join("\n"));
}

/// HumanEval's reference solutions pass; without their bodies none does, and none whose results are negated, or that
/// empties its arguments and returns something empty.
#[test]
fn reference_solutions_of_humaneval_pass_and_broken_ones_do_not() {
    let Some(python) = interpreter() else { return };
    let Some(path) = std::env::var_os("ALLOT_HUMANEVAL") else {
        return skip::skip("published-data", "ALLOT_HUMANEVAL does not name HumanEval.jsonl");
    };
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 164);
    let limits = Limits { fuel: 20_000_000_000, ..LIMITS };
    let mut took = Vec::new();
    for row in &rows {
        let trial = Trial::of(&row.to_string()).unwrap();
        let solution = row["canonical_solution"].as_str().unwrap();
        let began = Instant::now();
        let outcome = trial.judge(python, solution, limits).unwrap();
        took.push(began.elapsed().as_secs_f64() * 1000.0);
        assert!(outcome.is_right(), "{} {outcome:?}", row["task_id"]);
        let empties = |empty: &str| {
            let name = row["entry_point"].as_str().unwrap();
            format!(
                "    pass\n\ndef {name}(*all):\n    for x in all:\n        getattr(x, 'clear', str)()\n    return {empty}\n"
            )
        };
        let broken = ["    pass\n".to_owned(), solution.replace("return ", "return not ")];
        for broken in broken.into_iter().chain(["[]", "0", "''", "True", "all[0]"].map(empties)) {
            assert!(!trial.judge(python, &broken, limits).unwrap().is_right(), "{} {broken}", row["task_id"]);
        }
    }
    took.sort_by(f64::total_cmp);
    println!("median {:.1} ms, p95 {:.1} ms, longest {:.0} ms", took[82], took[156], took[163]);
}

/// Problems and programs of a file: each begins with its name, and then has its problem as a line.
fn programs(file: &str) -> impl Iterator<Item = (&str, Trial, &str)> {
    file.split("\n=== ").skip(1).map(|part| {
        let (name, rest) = part.split_once('\n').unwrap();
        let (gold, program) = rest.split_once('\n').unwrap();
        (name, Trial::of(gold).unwrap_or_else(|e| panic!("{name}: {e}")), program)
    })
}

#[test]
fn right_programs_as_people_write_them_pass() {
    let Some(python) = interpreter() else { return };
    let mut refused = Vec::new();
    let mut count = 0;
    for (name, trial, program) in programs(include_str!("cases/python/right.txt")) {
        count += 1;
        let outcome = judge(python, &trial, program);
        if !outcome.is_right() {
            refused.push(format!("{name}: {outcome:?}"));
        }
    }
    assert!(count >= 24 && refused.is_empty(), "{}", refused.join("\n"));
}

/// No program is rewarded for what it does to its arguments, for a name that it has not defined, or a number nearby.
#[test]
fn no_change_name_or_number_is_rewarded() {
    let Some(python) = interpreter() else { return };
    let mut rewarded = Vec::new();
    let mut count = 0;
    for (name, trial, program) in programs(include_str!("cases/hostile/changed.txt")) {
        count += 1;
        match trial.judge(python, program, LIMITS) {
            Ok(outcome) if !outcome.is_right() => {}
            other => rewarded.push(format!("{name}: {other:?}")),
        }
    }
    assert!(count >= 24 && rewarded.is_empty(), "{}", rewarded.join("\n"));
}

#[test]
fn a_tolerance_is_a_share() {
    let of = |tolerance: &str| {
        Trial::of(&format!(r#"{{"inputs": ["1"], "outputs": ["1"], "tolerance": {tolerance}}}"#))
    };
    assert!(of("0").is_ok() && of("1e-6").is_ok());
    for wrong in ["-1", "1.5", "1e300"] {
        assert!(of(wrong).is_err_and(|e| e.contains("`tolerance`")), "{wrong}");
    }
}
