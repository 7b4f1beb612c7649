//! What is judged: recorded cases of this repository, HumanEval, and real answers where `ALLOT_DATA` names a folder with
//! them. Both sides get the same.

use std::path::{Path, PathBuf};
use std::process::Command;

use allot_judges::environment::make;
use allot_judges::protocol::Question;
use allot_tasks::dataset::EnvironmentConfig;
use serde_json::{Value, json};

/// Questions, of which so many at the start are timed. All are compared.
#[derive(Clone, Default)]
pub struct Batch {
    pub questions: Vec<Question>,
    pub timed: usize,
    /// The answers' tokens, where a grader gets those.
    pub tokens: Vec<Vec<u32>>,
    /// What the peer is told, as variables of its environment.
    pub told: Vec<(String, String)>,
}

impl Batch {
    pub fn of(questions: Vec<Question>) -> Self {
        Self { timed: questions.len(), questions, ..Self::default() }
    }

    /// Every fourth, of which so many are timed.
    pub fn every_fourth(&self, timed: usize) -> Self {
        Self { timed, ..Self::of(self.questions.iter().step_by(4).cloned().collect()) }
    }

    /// Those that this is true of.
    pub fn only(&self, keep: impl Fn(&Question) -> bool) -> Self {
        Self::of(self.questions.iter().filter(|q| keep(q)).cloned().collect())
    }
}

/// The Python that has the peers.
pub fn python() -> String {
    std::env::var("PEER").unwrap_or_else(|_| "python3".to_owned())
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn script() -> PathBuf {
    root().join("benches/peers/verdicts.py")
}

/// What the script prints.
pub fn printed(arguments: &[&str]) -> String {
    let done = Command::new(python()).arg(script()).args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn read(path: &Path) -> Vec<Value> {
    rows(&std::fs::read_to_string(path).unwrap())
}

fn question(gold: &str, answer: impl Into<String>) -> Question {
    Question { gold: vec![gold.to_owned()], answer: answer.into(), ..Question::default() }
}

fn word<'v>(row: &'v Value, name: &str) -> &'v str {
    row[name].as_str().unwrap()
}

/// Recorded gold answers and predictions; of `slow` ones, those too at which math-verify may run out of time.
pub fn cases(slow: bool) -> Batch {
    let rows = read(&root().join("tests/cases/graders/verifier_cases.jsonl"));
    let kept = rows.iter().filter(|row| slow || row["slow"].as_array().is_none_or(Vec::is_empty));
    Batch::of(kept.map(|row| question(word(row, "gold"), word(row, "prediction"))).collect())
}

fn data(path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("ALLOT_DATA")?).join(path);
    path.exists().then_some(path)
}

fn asked(lines: &str) -> Batch {
    let of = |row: &Value| question(word(&row["gold"], "0"), word(row, "answer"));
    let flat = rows(lines).into_iter().map(|mut row| {
        row["gold"] = json!({ "0": row["gold"][0] });
        row
    });
    Batch::of(flat.map(|row| of(&row)).collect())
}

/// 800 answers of Qwen2.5-Math to problems of MATH, eight to each.
pub fn rollouts() -> Option<Batch> {
    let file = data("qwen_eval/model_outputs_math_cot_100.jsonl")?;
    Some(asked(&printed(&["rollouts", file.to_str()?])))
}

/// GSM8K's worked solutions, each as an answer to its own problem and to the next one.
pub fn gsm8k() -> Option<Batch> {
    let rows = read(&data("gsm8k/test.jsonl")?);
    let gold = |row: &Value| word(row, "answer").rsplit("#### ").next().unwrap().trim().replace(',', "");
    let pairs = rows.iter().zip(rows.iter().cycle().skip(1));
    let two = |(row, next): (&Value, &Value)| {
        [question(&gold(row), word(row, "answer")), question(&gold(next), word(row, "answer"))]
    };
    Some(Batch::of(pairs.flat_map(two).collect()))
}

/// Answers with and without a section of thoughts: whole, not closed, not opened, and not at the start.
pub fn thoughts(answers: &Batch) -> Batch {
    let form = |(i, q): (usize, &Question)| {
        let text = &q.answer;
        let (before, last) = text.rsplit_once('\n').unwrap_or(("", text));
        let answer = match i / 2 % 4 {
            0 => format!("<think>\n{before}\n</think>\n{last}"),
            1 => format!("<think>\n{before}\n{last}"),
            2 => format!("{before}\n</think>\n{last}"),
            _ => format!("Well, <think>\n{before}\n</think>\n{last}"),
        };
        Question { answer, ..q.clone() }
    };
    Batch::of(answers.questions.iter().enumerate().map(form).collect())
}

/// Letters, as models give them.
pub fn letters() -> Batch {
    let forms = [
        "LETTER",
        "(LETTER)",
        "The answer is LETTER.",
        "The answer is (LETTER).",
        "Answer: LETTER",
        "**Answer: LETTER**",
        "Final answer: (LETTER)",
        "So it must be \\boxed{LETTER}.",
        "So it must be $\\boxed{\\text{LETTER}}$.",
        "The ball falls, because nothing holds it. Option A would need a force, which rules it out.\n\nAnswer: LETTER",
        "A is too small and B too large. The correct answer is LETTER",
        "Let me see. I think that it's (A)... no, since 3 > 2 it is (LETTER).",
    ];
    let all: Vec<char> = ('A'..='D').collect();
    let pairs = all.iter().flat_map(|gold| all.iter().map(move |given| (gold, given)));
    let of = |(gold, given): (&char, &char)| {
        forms.map(|form| question(&gold.to_string(), form.replace("LETTER", &given.to_string())))
    };
    Batch::of(pairs.flat_map(of).collect())
}

/// Puzzles of reasoning-gym, each with a right answer and one that is wrong in some way.
pub fn countdown() -> Batch {
    asked(&printed(&["countdown"]))
}

/// Problems of reasoning-gym, each with its own answer and with the next problem's.
pub fn environment() -> Batch {
    let folder = tempfile::tempdir().unwrap();
    let tasks = ["chain_sum", "gcd", "prime_factorization", "countdown", "word_sorting"];
    let config = json!({ "use": "reasoning-gym", "tasks": tasks, "size": 100, "seed": 1, "tag": "answer" });
    let config: EnvironmentConfig = serde_json::from_value(config).unwrap();
    let files = make(&config, false, &[python()], folder.path()).unwrap();
    let rows: Vec<Value> = files.iter().flat_map(|file| read(file)).collect();
    let answer = |row: &Value| format!("<answer>{}</answer>", word(row, "oracle"));
    let pairs = rows.iter().zip(rows.iter().cycle().skip(1));
    let two = |(row, next): (&Value, &Value)| {
        [answer(row), answer(next)].map(|answer| question(&row["answer"].to_string(), answer))
    };
    Batch::of(pairs.flat_map(two).collect())
}

/// HumanEval's reference solutions, which are timed; then empty ones, and twins with one thing changed.
pub fn programs() -> Option<Batch> {
    const CHANGES: [(&str, &str); 9] = [
        (" + ", " - "),
        ("<=", "<"),
        ("==", "!="),
        (" and ", " or "),
        ("[0]", "[-1]"),
        ("True", "False"),
        ("range(", "range(1, "),
        ("1", "2"),
        ("return ", "return not "),
    ];
    let rows = read(Path::new(&std::env::var_os("ALLOT_HUMANEVAL")?));
    let of = |row: &Value, answer: &str| question(&row.to_string(), answer);
    let mut questions: Vec<Question> =
        rows.iter().map(|row| of(row, word(row, "canonical_solution"))).collect();
    for (i, row) in rows.iter().enumerate() {
        questions.push(of(row, "    pass\n"));
        let whole = word(row, "canonical_solution");
        let changes = CHANGES.iter().cycle().skip(i % CHANGES.len()).take(CHANGES.len());
        let twins = changes.filter(|(from, _)| whole.contains(from));
        questions.extend(twins.take(1).map(|(from, to)| of(row, &whole.replacen(from, to, 1))));
    }
    Some(Batch { timed: rows.len(), ..Batch::of(questions) })
}

/// Programs that try to be rewarded without solving the problem. None is timed.
pub fn hostile() -> Batch {
    let text = std::fs::read_to_string(root().join("tests/cases/hostile/python.txt")).unwrap();
    let gold = json!({
        "prompt": "from typing import List\n\ndef median(numbers: List[float]) -> float:\n    \"\"\"The median of a \
                   list that is not empty.\"\"\"\n    pass\n\n",
        "test": "def check(candidate):\n    assert candidate([9, 1, 2]) == 2\n    assert candidate([4, 1, 3, 2]) == 2.5\n    \
                 assert candidate([5]) == 5\n    assert candidate([-1, -1, 7, 9]) == 3.0\n",
        "entry_point": "median",
    });
    let answers = text.split("\n=== ").skip(1).map(|one| one.split_once('\n').unwrap().1);
    let questions: Vec<Question> = answers.map(|answer| question(&gold.to_string(), answer)).collect();
    let told = vec![("SECONDS".to_owned(), "1".to_owned())];
    Batch { timed: 0, told, ..Batch::of(questions) }
}
