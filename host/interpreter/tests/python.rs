//! Generated Python in the sandbox: right answers pass, wrong ones fail, and hostile ones get nothing.
//!
//! Needs the module of CPython, in `ALLOT_PYTHON`.

#[path = "../../../tests/skip.rs"]
mod skip;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use allot_interpreter::trial::Trial;
use allot_interpreter::{Interpreter, Limits};

const LIMITS: Limits = Limits { fuel: 10_000_000_000, memory: 256 << 20 };

fn interpreter() -> Option<&'static Interpreter> {
    static ONE: OnceLock<Option<Interpreter>> = OnceLock::new();
    let one = ONE.get_or_init(|| {
        let path = PathBuf::from(std::env::var_os("ALLOT_PYTHON")?);
        let cache = std::env::var_os("XDG_CACHE_HOME").or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache").into()));
        Some(Interpreter::open(&path, cache.map(|c| PathBuf::from(c).join("allot/python")).as_deref()).expect("it opens"))
    });
    if one.is_none() {
        skip::skip("python", "ALLOT_PYTHON does not name CPython's module");
    }
    one.as_ref()
}

#[test]
fn tests_of_humaneval_pass_or_fail() {
    let Some(python) = interpreter() else { return };
    let gold = serde_json::json!({
        "prompt": "from typing import List\n\ndef add(a: int, b: int) -> int:\n    \"\"\"Adds.\"\"\"\n",
        "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(-1, 1) == 0\n",
        "entry_point": "add",
    });
    let trial = Trial::of(&gold.to_string()).unwrap();
    let judge = |answer: &str| trial.judge(python, answer, LIMITS).unwrap();
    let right = judge("    return a + b\n");
    assert!(right.is_right(), "{right:?}");
    let block = judge("Here:\n```python\ndef add(a, b):\n    return a + b\n```\nDone.");
    assert!(block.is_right(), "{block:?}");
    for wrong in ["    return a - b\n", "    pass\n", "", "    while True: pass\n", "    return [0] * 10**9\n", "nonsense("] {
        let outcome = judge(wrong);
        assert!(!outcome.is_right(), "{wrong:?}: {outcome:?}");
    }
}

/// HumanEval's reference solutions pass, and without their bodies none does. `ALLOT_HUMANEVAL` names its JSON lines.
#[test]
fn reference_solutions_of_humaneval_pass_and_empty_bodies_do_not() {
    let Some(python) = interpreter() else { return };
    let Some(path) = std::env::var_os("ALLOT_HUMANEVAL") else {
        return skip::skip("published-data", "ALLOT_HUMANEVAL does not name HumanEval.jsonl");
    };
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut took = Vec::new();
    for row in &rows {
        let trial = Trial::of(&row.to_string()).unwrap();
        let began = std::time::Instant::now();
        let outcome = trial.judge(python, row["canonical_solution"].as_str().unwrap(), LIMITS);
        took.push((began.elapsed().as_secs_f64() * 1000.0, row["task_id"].to_string()));
        if !outcome.as_ref().is_ok_and(|o| o.is_right()) { println!("{} {outcome:?}", row["task_id"]); }
        let empty = trial.judge(python, "    pass\n", LIMITS).unwrap();
        assert!(!empty.is_right(), "{}", row["task_id"]);
    }
    took.sort_by(|a, b| a.0.total_cmp(&b.0));
    println!("{} problems; median {:.1} ms, p95 {:.1} ms, longest {:?}", rows.len(), took[82].0, took[156].0, took[163]);
}
