//! Episodes as verifiers records them (`Episode.to_record`, version 0.4.0), one in a row: of `vf-eval`, and of prime-rl in
//! `rollouts/step_N/train/all/traces.jsonl`. Each trace of an agent that is trained is a rollout.

use serde_json::{Map, Value};

use crate::cell::{cell, name, number, whole};
use crate::row::{Left, Row};

/// Returns the rollouts of an episode, or why it has none. An answer is right from the reward `right` on.
pub(super) fn rollouts(episode: &Map<String, Value>, right: f64) -> Vec<Result<Row, Left>> {
    let says = |path: &str| cell(episode, path).and_then(Value::as_str);
    if says("run.type") == Some("train") && says("run.work.type") == Some("eval") {
        return vec![Err(Left::Evaluation)];
    }
    let task = ["task.key", "task.hash", "task.data.prompt", "task.data"];
    let Some(key) = task.into_iter().find_map(|path| cell(episode, path).and_then(name)) else {
        return vec![Err(Left::Unscored)];
    };
    let version = ["run.work.policy.start", "run.work.step"];
    let version = version.into_iter().find_map(|path| cell(episode, path).and_then(whole));
    let traces = cell(episode, "traces").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let trained = |trace: &&Map<String, Value>| cell(trace, "agent.trainable") != Some(&Value::Bool(false));
    let traces = traces.iter().filter_map(Value::as_object).filter(trained);
    let one = |trace: &Map<String, Value>| {
        let reward = reward(trace).ok_or(Left::Unscored)?;
        let calls = cell(trace, "calls").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let calls = || calls.iter().filter_map(Value::as_object);
        let tokens: Option<u32> =
            calls().map(|call| cell(call, "usage.completion_tokens").and_then(whole)).sum();
        let cut =
            |call: &Map<String, Value>| cell(call, "finish_reason").and_then(Value::as_str) == Some("length");
        Ok(Row {
            key: key.clone(),
            version,
            reward: reward as f32,
            correct: reward >= right,
            tokens: tokens.filter(|tokens| *tokens > 0),
            truncated: calls().any(cut),
            ..Row::default()
        })
    };
    let rows: Vec<_> = traces.map(one).collect();
    if rows.is_empty() { vec![Err(Left::Unscored)] } else { rows }
}

/// Returns the weighted sum of a trace's rewards; none if one is missing, or all are.
fn reward(trace: &Map<String, Value>) -> Option<f64> {
    let rewards = cell(trace, "rewards")?.as_object().filter(|rewards| !rewards.is_empty())?;
    let one = |reward: &Value| {
        let reward = reward.as_object()?;
        let weight = cell(reward, "weight").map_or(Some(1.0), number)?;
        Some(cell(reward, "score").and_then(number)? * weight)
    };
    let sum: f64 = rewards.values().map(one).sum::<Option<f64>>()?;
    (sum as f32).is_finite().then_some(sum)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(episode: &Value) -> Vec<Result<Row, Left>> {
        rollouts(episode.as_object().expect("it is one"), 0.5)
    }

    #[test]
    fn each_trace_of_a_trained_agent_is_a_rollout() {
        let trace = |rewards: Value, trained: bool, finish: &str| {
            json!({
                "agent": { "name": "agent", "trainable": trained },
                "calls": [
                    { "finish_reason": "stop", "usage": { "prompt_tokens": 9, "completion_tokens": 7 } },
                    { "finish_reason": finish, "usage": { "prompt_tokens": 20, "completion_tokens": 5 } },
                ],
                "rewards": rewards,
            })
        };
        let parts =
            json!({ "right": { "score": 1.0, "weight": 1.0 }, "form": { "score": 0.5, "weight": 0.2 } });
        let episode = json!({
            "env": { "id": "sums" },
            "task": { "type": "Sum", "hash": "c0ffee", "data": { "prompt": "2+2=" } },
            "run": { "type": "train", "id": "r", "work": { "type": "train", "step": 3, "policy": { "start": 2, "end": 3 } } },
            "traces": [
                trace(parts, true, "length"),
                trace(json!({ "right": { "score": 0.0, "weight": 1.0 } }), true, "stop"),
                trace(json!({ "right": null }), true, "stop"),
                trace(json!({ "right": { "score": 1.0 } }), false, "stop"),
            ],
        });
        let told = of(&episode);
        let first = Row {
            key: "c0ffee".to_owned(),
            version: Some(2),
            reward: 1.1,
            correct: true,
            tokens: Some(12),
            truncated: true,
            ..Row::default()
        };
        let second = Row { reward: 0.0, correct: false, truncated: false, ..first.clone() };
        assert_eq!(told, [Ok(first), Ok(second), Err(Left::Unscored)]);

        let mut evaluated = episode.clone();
        evaluated["run"]["work"]["type"] = "eval".into();
        assert_eq!(of(&evaluated), [Err(Left::Evaluation)]);
        let mut lost = episode;
        lost["traces"] = json!([]);
        assert_eq!(of(&lost), [Err(Left::Unscored)]);
    }
}
