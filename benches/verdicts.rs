//! Verdicts on generated Python, in the sandbox and in a process of plain Python for each answer, by turns: HumanEval's
//! reference solutions against its tests, on one thread.
//!
//! `ALLOT_PYTHON` names CPython's module and `ALLOT_HUMANEVAL` HumanEval's JSON lines; `PEER` another Python than
//! `python3`. A process of plain Python isolates nothing: it is what most trainers do.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use allot_interpreter::trial::Trial;
use allot_interpreter::{Interpreter, Limits};
use serde_json::Value;

const LIMITS: Limits = Limits { fuel: 20_000_000_000, memory: 256 << 20 };
const ROUNDS: usize = 3;

fn main() {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (Some(module), Some(problems)) = (named("ALLOT_PYTHON"), named("ALLOT_HUMANEVAL")) else {
        println!("ALLOT_PYTHON and ALLOT_HUMANEVAL are not set: nothing is measured");
        return;
    };
    let peer = std::env::var("PEER").unwrap_or_else(|_| "python3".to_owned());
    let cache = allot_files::cache("python");
    let began = Instant::now();
    let python = Interpreter::open(&module, cache.as_deref()).unwrap();
    println!("opened in {:.2} s", began.elapsed().as_secs_f64());

    let text = std::fs::read_to_string(problems).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for row in &rows {
            let word = |name: &str| row[name].as_str().unwrap().to_owned();
            let trial = Trial::of(&row.to_string()).unwrap();
            let began = Instant::now();
            let outcome = trial.judge(&python, &word("canonical_solution"), LIMITS).unwrap();
            ours.push(began.elapsed());
            assert!(outcome.is_right(), "{}", row["task_id"]);

            let (prompt, answer) = (word("prompt"), word("canonical_solution"));
            let program = format!("{prompt}{answer}\n{}\ncheck({})\n", word("test"), word("entry_point"));
            let began = Instant::now();
            let done =
                Command::new(&peer).args(["-I", "-c", &program]).stdout(Stdio::null()).status().unwrap();
            theirs.push(began.elapsed());
            assert!(done.success(), "{}", row["task_id"]);
        }
    }
    for (name, mut all) in [("sandbox", ours), (peer.as_str(), theirs)] {
        let total: Duration = all.iter().sum();
        all.sort();
        let at = |share: f64| all[(all.len() as f64 * share) as usize].as_secs_f64() * 1000.0;
        println!(
            "{name}: {:.1} verdicts a second; median {:.1} ms, 95 % within {:.1} ms, longest {:.0} ms",
            all.len() as f64 / total.as_secs_f64(),
            at(0.5),
            at(0.95),
            at(0.9999)
        );
    }
}
