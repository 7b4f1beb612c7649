//! The messages that newer servers take and give as protobuf: one request, two answers. They are made of the JSON that
//! older servers take, and become the JSON that those answer, so that no other file knows of them. Messages and field
//! numbers are those of `tinker_public.proto` in the package `tinker` 0.25.0, as far as they are used here; its lists of
//! numbers are bytes, the lowest first.

use std::collections::BTreeMap;

use prost::Message;
use serde_json::{Map, Value, json};

/// What such a message calls itself.
pub(crate) const CONTENT: &str = "application/x-protobuf";

// Kinds of numbers in a list.
const FLOAT32: i32 = 1;
const INT64: i32 = 2;
const BFLOAT16: i32 = 4;

// ---- the request

/// `forward` and `forward_backward`.
#[derive(PartialEq, Message)]
struct PassRequest {
    #[prost(string, tag = "1")]
    model: String,
    #[prost(uint64, tag = "2")]
    number: u64,
    #[prost(message, repeated, tag = "3")]
    data: Vec<Datum>,
    #[prost(string, tag = "4")]
    loss: String,
    #[prost(btree_map = "string, double", tag = "5")]
    loss_config: BTreeMap<String, f64>,
    #[prost(bool, tag = "6")]
    forward_only: bool,
}

#[derive(PartialEq, Message)]
struct Datum {
    #[prost(message, repeated, tag = "1")]
    chunks: Vec<Chunk>,
    #[prost(btree_map = "string, message", tag = "2")]
    inputs: BTreeMap<String, Tensor>,
}

#[derive(PartialEq, Message)]
struct Chunk {
    #[prost(message, optional, tag = "1")]
    text: Option<Text>,
}

#[derive(PartialEq, Message)]
struct Text {
    /// Tokens of 4 bytes.
    #[prost(bytes = "vec", tag = "1")]
    tokens: Vec<u8>,
}

#[derive(PartialEq, Message)]
struct Tensor {
    #[prost(bytes = "vec", tag = "1")]
    data: Vec<u8>,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(uint64, repeated, tag = "4")]
    shape: Vec<u64>,
}

/// The body of `forward` or `forward_backward` as the one request that newer servers know for both. A part of
/// it that is missing is left out.
pub(crate) fn passed(body: &Value, forward: bool) -> Vec<u8> {
    let input = &body[if forward { "forward_input" } else { "forward_backward_input" }];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    PassRequest {
        model: text(&body["model_id"]),
        number: body["seq_id"].as_u64().unwrap_or_default(),
        data: list(&input["data"]).map(datum).collect(),
        loss: text(&input["loss_fn"]),
        loss_config: pairs(&input["loss_fn_config"])
            .map(|(name, value)| (name.clone(), value.as_f64().unwrap_or_default()))
            .collect(),
        forward_only: forward,
    }
    .encode_to_vec()
}

fn datum(datum: &Value) -> Datum {
    let chunk = |chunk: &Value| {
        let tokens = list(&chunk["tokens"]).filter_map(Value::as_i64);
        Chunk { text: Some(Text { tokens: tokens.flat_map(|token| (token as i32).to_le_bytes()).collect() }) }
    };
    Datum {
        chunks: list(&datum["model_input"]["chunks"]).map(chunk).collect(),
        inputs: pairs(&datum["loss_fn_inputs"]).map(|(name, value)| (name.clone(), tensor(value))).collect(),
    }
}

fn tensor(tensor: &Value) -> Tensor {
    let whole = tensor["dtype"] == "int64";
    let one = |number: &Value| {
        if whole {
            number.as_i64().unwrap_or_default().to_le_bytes().to_vec()
        } else {
            (number.as_f64().unwrap_or_default() as f32).to_le_bytes().to_vec()
        }
    };
    Tensor {
        data: list(&tensor["data"]).flat_map(one).collect(),
        kind: if whole { INT64 } else { FLOAT32 },
        shape: list(&tensor["shape"]).filter_map(Value::as_u64).collect(),
    }
}

// ---- the answers

#[derive(PartialEq, Message)]
struct SampleAnswer {
    #[prost(message, repeated, tag = "1")]
    sequences: Vec<Sequence>,
}

#[derive(PartialEq, Message)]
struct Sequence {
    /// 0 where it came to its end, 1 where it met the length limit.
    #[prost(int32, tag = "1")]
    stop: i32,
    /// Tokens of 4 bytes.
    #[prost(bytes = "vec", tag = "2")]
    tokens: Vec<u8>,
    /// Log-probabilities of 4 bytes, or none.
    #[prost(bytes = "vec", tag = "3")]
    log_probs: Vec<u8>,
}

#[derive(PartialEq, Message)]
struct PassAnswer {
    #[prost(message, repeated, tag = "2")]
    records: Vec<Outputs>,
}

#[derive(PartialEq, Message)]
struct Outputs {
    #[prost(btree_map = "string, message", tag = "2")]
    lists: BTreeMap<String, Lists>,
}

/// Lists of numbers, one after the other in one; where each begins and the last ends is told in bytes.
#[derive(PartialEq, Message)]
struct Lists {
    #[prost(bytes = "vec", tag = "1")]
    data: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    offsets: Vec<u8>,
    #[prost(int32, tag = "3")]
    kind: i32,
}

/// An answer to `verb` as JSON. None where it is no such message.
pub(crate) fn answer(verb: &str, bytes: &[u8]) -> Option<Value> {
    match verb {
        "asample" => sampled(bytes),
        "forward" | "forward_backward" => outputs(bytes),
        _ => None,
    }
}

fn sampled(bytes: &[u8]) -> Option<Value> {
    let sequence = |sequence: &Sequence| {
        let stop = match sequence.stop {
            0 => "stop",
            1 => "length",
            _ => return None,
        };
        let log_probs = match &sequence.log_probs[..] {
            [] => Value::Null,
            bytes => json!(each(bytes, f32::from_le_bytes)?),
        };
        let tokens = each(&sequence.tokens, i32::from_le_bytes)?;
        Some(json!({ "stop_reason": stop, "tokens": tokens, "logprobs": log_probs }))
    };
    let answer = SampleAnswer::decode(bytes).ok()?;
    let sequences: Option<Vec<Value>> = answer.sequences.iter().map(sequence).collect();
    Some(json!({ "sequences": sequences? }))
}

/// Log-probabilities, sequence by sequence. What else a server has measured is passed over.
fn outputs(bytes: &[u8]) -> Option<Value> {
    let mut all: Vec<Value> = Vec::new();
    for record in PassAnswer::decode(bytes).ok()?.records {
        if let Some(lists) = record.lists.get("logprobs") {
            all.extend(split(lists)?.into_iter().map(|data| json!({ "logprobs": { "data": data } })));
        }
    }
    Some(json!({ "loss_fn_outputs": all }))
}

fn split(lists: &Lists) -> Option<Vec<Vec<f32>>> {
    let offsets = each(&lists.offsets, i64::from_le_bytes)?;
    let one = |pair: &[i64]| {
        let part = lists.data.get(usize::try_from(pair[0]).ok()?..usize::try_from(pair[1]).ok()?)?;
        match lists.kind {
            FLOAT32 => each(part, f32::from_le_bytes),
            // The upper half of a float.
            BFLOAT16 => each(part, |half: [u8; 2]| f32::from_le_bytes([0, 0, half[0], half[1]])),
            _ => None,
        }
    };
    offsets.windows(2).map(one).collect()
}

/// Numbers of so many bytes each.
fn each<const N: usize, T>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Option<Vec<T>> {
    let (all, rest) = bytes.as_chunks::<N>();
    rest.is_empty().then(|| all.iter().map(|bytes| number(*bytes)).collect())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn pairs(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unhex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    /// Written by Google's library from the package's own messages.
    const REQUEST: &str = "0a076d6f64656c5f3110ac021a540a0c0a0a0a08010000007011010012280a0d7461726765745f746f6b65\
                           6e7312170a10701101000000000003000000000000001802220102121a0a0777656967687473120f0a0800\
                           0000000000003f1801220102220370706f2a1e0a13636c69705f686967685f7468726573686f6c64113333\
                           33333333f33f3001";
    const SAMPLED: &str = "0a14120805000000000000001a08000000bf0000a0bf0a0e08011204070000001a040000c07f0a08080112\
                           04070000002003";
    const OUTPUTS: &str = "0a067363616c6172123a12360a086c6f6770726f6273122a0a0c000080bf000000c0000040c01218000000\
                           000000000008000000000000000c00000000000000180118021a130a086c6f73733a73756d110000000000\
                           00f83f";

    #[test]
    fn a_request_is_written_as_the_package_writes_it() {
        let body = json!({
            "model_id": "model_1",
            "seq_id": 300,
            "forward_input": {
                "data": [{
                    "model_input": { "chunks": [{ "type": "encoded_text", "tokens": [1, 70_000] }] },
                    "loss_fn_inputs": {
                        "target_tokens": { "data": [70_000, 3], "dtype": "int64", "shape": [2] },
                        "weights": { "data": [0.0, 0.5], "dtype": "float32", "shape": [2] },
                    },
                }],
                "loss_fn": "ppo",
                "loss_fn_config": { "clip_high_threshold": 1.2 },
            },
        });
        assert_eq!(passed(&body, true), unhex(REQUEST));
    }

    #[test]
    fn answers_are_read_as_the_package_writes_them() {
        let sampled = json!({ "sequences": [
            { "stop_reason": "stop", "tokens": [5, 0], "logprobs": [-0.5, -1.25] },
            { "stop_reason": "length", "tokens": [7], "logprobs": [null] },
            { "stop_reason": "length", "tokens": [7], "logprobs": null },
        ] });
        assert_eq!(answer("asample", &unhex(SAMPLED)), Some(sampled));
        let outputs = json!({ "loss_fn_outputs": [
            { "logprobs": { "data": [-1.0, -2.0] } },
            { "logprobs": { "data": [-3.0] } },
        ] });
        assert_eq!(answer("forward", &unhex(OUTPUTS)), Some(outputs));
        assert_eq!(answer("optim_step", &unhex(OUTPUTS)), None);
    }

    #[test]
    fn an_answer_that_breaks_off_or_is_changed_is_none_or_another() {
        let mut none = 0;
        for (verb, whole) in [("asample", unhex(SAMPLED)), ("forward", unhex(OUTPUTS))] {
            let right = answer(verb, &whole);
            for end in 1..whole.len() {
                let cut = answer(verb, &whole[..end]);
                none += usize::from(cut.is_none());
                assert!(end + 21 >= whole.len() || cut != right, "{verb} was cut after {end} bytes");
            }
            for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                none += usize::from(answer(verb, &changed).is_none());
            }
        }
        assert!(none > 300, "{none}");
    }
}
