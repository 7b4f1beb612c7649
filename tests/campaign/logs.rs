//! Logs of rollouts in every layout that `allot forecast` and `allot bank` read, to be mangled.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use allot_bank::{Asked, Bank, Field};
use allot_base::{Error, Result};
use allot_outputs::banked::{self, BankedRow};
use serde_json::{Value, json};

use crate::Chance;
use crate::files::write;

/// Prompts of a log, rollouts of each in a step, and steps.
const PROMPTS: u32 = 8;
const EACH: u32 = 4;
const STEPS: u32 = 2;

/// Makes the logs in a folder, one of each layout that is text, and a bank in parquet.
pub fn make(folder: &Path) -> Result<()> {
    let write = |name: &str, text: String| write(&folder.join(name), text);
    for (name, row) in LAYOUTS {
        let lines: Vec<String> = rows().map(|(step, prompt, i)| row(step, prompt, i).to_string()).collect();
        write(name, lines.join("\n") + "\n")?;
    }
    let mut table = "question,score,n_tokens,step\n".to_owned();
    for (step, prompt, i) in rows() {
        let _ = writeln!(table, "q{prompt},{},{},{step}", reward(step, prompt, i), 20 + i);
    }
    write("columns.tsv", table.replace(',', "\t"))?;
    write("columns.csv", table)?;
    let rate = |prompt: u32| format!("{prompt},{},{EACH}\n", f64::from(prompt % 5) / 4.0);
    write("rates.csv", format!("id,pass_rate,n\n{}", (0..PROMPTS).map(rate).collect::<String>()))?;
    let (rows, _) = allot_bank::read(&[folder.join("allot.jsonl")], &Asked::default())?;
    let bank = Bank::of(rows);
    let row = |(prompt, rollout): (u32, &allot_bank::Rollout)| BankedRow {
        prompt,
        problem: "2+2",
        prompt_tokens: Some(9),
        version: rollout.version,
        tokens: rollout.tokens,
        truncated: rollout.truncated,
        reward: rollout.reward,
        correct: rollout.correct,
    };
    let all =
        (0..).zip(&bank.prompts).flat_map(|(i, prompt)| prompt.rollouts.iter().map(move |one| (i, one)));
    banked::write(&folder.join("bank.parquet"), &all.map(row).collect::<Vec<_>>())
}

/// Any of the logs that were made in this folder.
pub fn any(folder: &Path, chance: &mut Chance) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).map_err(|e| Error::file("read", folder, &e))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    Ok(chance.of_these(&files).clone())
}

/// How a log is read: by its layout, with the columns that have to be typed, and with more that a user may ask for.
pub fn asked(path: &Path, chance: &mut Chance) -> Asked {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let typed: &[(Field, &[&str])] = match &*name {
        name if name.starts_with("completions") => &[(Field::Reward, &["accuracy_reward", "format_reward"])],
        name if name.starts_with("columns") => {
            &[(Field::Prompt, &["question"]), (Field::Reward, &["score"]), (Field::Tokens, &["n_tokens"])]
        }
        _ => &[],
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let columns: BTreeMap<_, _> = typed.iter().map(|(field, of)| (*field, names(of))).collect();
    let mut asked = Asked { columns, ..Asked::default() };
    match chance.below(6) {
        0 => asked.characters_per_token = Some(*chance.of_these(&[1e-300, 0.5, 4.0, 1e300])),
        1 => asked.versions = Some(*chance.of_these(&[0, 1])..=*chance.of_these(&[1, u32::MAX])),
        2 => asked.right = *chance.of_these(&[-1.0, 0.0, 1e308]),
        3 => asked.only.push(("step".to_owned(), "1".to_owned())),
        _ => {}
    }
    asked
}

/// The options of the command that read a log as [`asked`] does of its layout.
pub fn options(file: &str) -> &'static [&'static str] {
    match file {
        file if file.starts_with("completions") => &["--column", "reward=accuracy_reward+format_reward"],
        file if file.starts_with("columns") => {
            &["--column", "prompt=question", "--column", "reward=score", "--column", "tokens=n_tokens"]
        }
        _ => &[],
    }
}

/// A step, a prompt and a position in its group, of each row.
fn rows() -> impl Iterator<Item = (u32, u32, u32)> {
    (1..=STEPS)
        .flat_map(|step| (0..PROMPTS).flat_map(move |prompt| (0..EACH).map(move |i| (step, prompt, i))))
}

/// Prompts that are always wrong, always right, and between.
fn reward(step: u32, prompt: u32, i: u32) -> f64 {
    f64::from(u8::from((i + step) % EACH < prompt % (EACH + 1)))
}

/// A row of a layout, of a step, a prompt and a position.
type Row = fn(u32, u32, u32) -> Value;

/// The layouts that are lines of JSON, by the name of a file.
const LAYOUTS: [(&str, Row); 7] = [
    ("allot.jsonl", |step, prompt, i| {
        json!({"prompt": prompt, "problem": format!("q{prompt}"), "prompt_tokens": 9, "version": step, "tokens": 20 + i,
               "truncated": i == 3, "reward": reward(step, prompt, i), "correct": reward(step, prompt, i) > 0.5,
               "purpose": "training", "arm": "uniform", "seed": 1})
    }),
    ("verl.jsonl", |step, prompt, i| {
        json!({"input": format!("q{prompt}"), "output": "word ".repeat(i as usize), "gts": "2", "step": step,
               "score": 2.0 * reward(step, prompt, i) - 1.0, "acc": reward(step, prompt, i) > 0.5})
    }),
    ("episodes.jsonl", |step, prompt, i| {
        let rewards = json!({"right": {"score": reward(step, prompt, i), "weight": 1.0}});
        let calls = json!([{"usage": {"completion_tokens": 7}, "finish_reason": "stop"}]);
        json!({"env": "sums", "task": {"key": format!("q{prompt}"), "data": {"prompt": "2+2"}},
               "run": {"type": "train", "work": {"type": "train", "step": step, "policy": {"start": step}}},
               "traces": [{"agent": {"trainable": true}, "rewards": rewards, "calls": calls}]})
    }),
    ("verifiers.jsonl", |step, prompt, i| {
        json!({"example_id": prompt, "prompt": [{"role": "user", "content": "2+2"}], "completion": [{"role":
               "assistant", "content": "4"}], "reward": reward(step, prompt, i), "is_truncated": false,
               "token_usage": {"output_tokens": 20 + i}})
    }),
    ("trl.jsonl", |step, prompt, i| {
        json!({"step": step, "prompt": format!("q{prompt}"), "completion": "4", "right":
               reward(step, prompt, i), "advantage": 0.0})
    }),
    ("lm-eval.jsonl", |step, prompt, i| {
        json!({"doc_id": prompt, "doc": {"question": "?"}, "target": "2", "resps": [["2"]], "filtered_resps": ["2"],
               "filter": "strict", "prompt_hash": format!("p{prompt}"), "exact_match": reward(step, prompt, i)})
    }),
    ("gym.jsonl", |step, prompt, i| {
        json!({"responses_create_params": {"input": [{"role": "user", "content": "?"}]}, "_ng_task_index": prompt,
               "response": {"usage": {"input_tokens": 12, "output_tokens": 40 + i}}, "reward": reward(step, prompt, i)})
    }),
];
