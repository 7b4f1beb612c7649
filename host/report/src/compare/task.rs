//! The task of a run: what must be equal for runs to be comparable at all.

use serde_json::{Value, json};

use crate::history::History;

/// The parts of a task, by name.
type Task = [(&'static str, Value); 7];

/// The part that older records of trainers lack.
const LENGTHS: &str = "lengths of prompts";

/// Returns the parts of a run's task: its weights and problems, or its simulated world. The record of a trainer in Python may
/// have only the trainer's name, and the number and lengths of its prompts.
fn task(history: &History) -> Task {
    let head = &history.head;
    let training = head.training.as_ref().unwrap_or(&Value::Null);
    [
        ("engine", json!(head.engine)),
        ("world", json!(head.world)),
        ("weights", training["weights"].clone()),
        ("problems", training["problems"]["sha256"].clone()),
        ("held-out problems", training["held_out"]["sha256"].clone()),
        ("prompts", json!(head.run.prompts)),
        (LENGTHS, json!(head.lengths)),
    ]
}

/// Returns in words how a task differs from another; empty if it does not.
fn differs(task: &Task, other: &Task) -> String {
    let one = |((name, value), (_, other)): (&(&str, Value), &(&str, Value))| match (value, other) {
        _ if value == other => None,
        (Value::Null, _) | (_, Value::Null) if *name == LENGTHS => None,
        (Value::String(value), Value::String(other)) if *name == "engine" => {
            Some(format!("{name} `{value}` instead of `{other}`"))
        }
        (Value::Number(value), Value::Number(other)) => Some(format!("{value} {name} instead of {other}")),
        _ => Some(format!("other {name}")),
    };
    task.iter().zip(other).filter_map(one).collect::<Vec<_>>().join(", ")
}

/// Keeps the runs of the most frequent task; of equally frequent ones, the first.
pub fn of_one_task(histories: Vec<History>, notes: &mut Vec<String>) -> Vec<History> {
    let mut tasks: Vec<(Task, usize)> = Vec::new();
    for history in &histories {
        let task = task(history);
        match tasks.iter_mut().find(|(other, _)| differs(&task, other).is_empty()) {
            Some((known, n)) => {
                *n += 1;
                // What the first run of a task did not tell, the next one does.
                known
                    .iter_mut()
                    .zip(task)
                    .filter(|(part, _)| part.1.is_null())
                    .for_each(|(part, new)| *part = new);
            }
            None => tasks.push((task, 1)),
        }
    }
    let most = tasks.iter().map(|(_, n)| *n).max().unwrap_or(0);
    let Some((chosen, _)) = tasks.into_iter().find(|(_, n)| *n == most) else { return histories };
    let (ours, others): (Vec<_>, Vec<_>) =
        histories.into_iter().partition(|history| differs(&task(history), &chosen).is_empty());
    let first = ours.first().map(|h| h.run.clone()).unwrap_or_default();
    for other in others {
        let how = differs(&task(&other), &chosen);
        notes.push(format!("`{}` is left out: its task is not that of `{first}` ({how})", other.run));
    }
    ours
}
