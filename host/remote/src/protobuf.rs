//! The messages that newer servers take and give as protobuf, and nothing else of it: one request, two answers.
//! They are made of the JSON that older servers take, and become the JSON that those answer, so that no other
//! file knows of them. Field numbers are those of `tinker_public.proto` in the package `tinker` 0.25.0; its
//! lists of numbers are bytes, the lowest first.

use serde_json::{Map, Value, json};

/// What such a message calls itself.
pub(crate) const CONTENT: &str = "application/x-protobuf";

/// Kinds of numbers in a list.
const FLOAT32: u64 = 1;
const INT64: u64 = 2;
const BFLOAT16: u64 = 4;

/// The body of `forward` or `forward_backward` as the one request that newer servers know for both. A part of
/// it that is missing is left out.
pub(crate) fn passed(body: &Value, forward: bool) -> Vec<u8> {
    let input = &body[if forward { "forward_input" } else { "forward_backward_input" }];
    let mut message = Writer::default();
    message.text(1, &body["model_id"]);
    message.number(2, body["seq_id"].as_u64().unwrap_or_default());
    for datum in list(&input["data"]) {
        message.bytes(3, &self::datum(datum));
    }
    message.text(4, &input["loss_fn"]);
    for (name, value) in pairs(&input["loss_fn_config"]) {
        let mut entry = Writer::default();
        entry.bytes(1, name.as_bytes());
        entry.double(2, value.as_f64().unwrap_or_default());
        message.bytes(5, &entry.0);
    }
    message.number(6, u64::from(forward));
    message.0
}

fn datum(datum: &Value) -> Vec<u8> {
    let mut message = Writer::default();
    for chunk in list(&datum["model_input"]["chunks"]) {
        let tokens = list(&chunk["tokens"]).filter_map(Value::as_i64);
        let mut text = Writer::default();
        text.bytes(1, &tokens.flat_map(|token| (token as i32).to_le_bytes()).collect::<Vec<u8>>());
        let mut chunk = Writer::default();
        chunk.bytes(1, &text.0);
        message.bytes(1, &chunk.0);
    }
    for (name, tensor) in pairs(&datum["loss_fn_inputs"]) {
        let mut entry = Writer::default();
        entry.bytes(1, name.as_bytes());
        entry.bytes(2, &self::tensor(tensor));
        message.bytes(2, &entry.0);
    }
    message.0
}

fn tensor(tensor: &Value) -> Vec<u8> {
    let whole = tensor["dtype"] == "int64";
    let one = |number: &Value| {
        if whole {
            number.as_i64().unwrap_or_default().to_le_bytes().to_vec()
        } else {
            (number.as_f64().unwrap_or_default() as f32).to_le_bytes().to_vec()
        }
    };
    let mut shape = Writer::default();
    for length in list(&tensor["shape"]).filter_map(Value::as_u64) {
        shape.varint(length);
    }
    let mut message = Writer::default();
    message.bytes(1, &list(&tensor["data"]).flat_map(one).collect::<Vec<u8>>());
    message.number(3, if whole { INT64 } else { FLOAT32 });
    message.bytes(4, &shape.0);
    message.0
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
    let mut sequences = Vec::new();
    for field in fields(bytes) {
        let (1, Field::Bytes(sequence)) = field? else { continue };
        let (mut stop, mut tokens, mut log_probs) = ("stop", Vec::new(), Value::Null);
        for field in fields(sequence) {
            match field? {
                (1, Field::Number(0)) => {}
                (1, Field::Number(1)) => stop = "length",
                (1, _) => return None,
                (2, Field::Bytes(bytes)) => tokens = each(bytes, i32::from_le_bytes)?,
                (3, Field::Bytes(bytes)) if !bytes.is_empty() => {
                    log_probs = json!(each(bytes, f32::from_le_bytes)?);
                }
                _ => {}
            }
        }
        sequences.push(json!({ "stop_reason": stop, "tokens": tokens, "logprobs": log_probs }));
    }
    Some(json!({ "sequences": sequences }))
}

/// Log-probabilities, sequence by sequence. What else a server has measured is passed over.
fn outputs(bytes: &[u8]) -> Option<Value> {
    let mut all: Vec<Value> = Vec::new();
    for field in fields(bytes) {
        let (2, Field::Bytes(record)) = field? else { continue };
        for field in fields(record) {
            let (2, Field::Bytes(entry)) = field? else { continue };
            let (mut name, mut value): (&[u8], &[u8]) = (&[], &[]);
            for field in fields(entry) {
                match field? {
                    (1, Field::Bytes(bytes)) => name = bytes,
                    (2, Field::Bytes(bytes)) => value = bytes,
                    _ => {}
                }
            }
            if name == b"logprobs" {
                all.extend(batch(value)?.into_iter().map(|data| json!({ "logprobs": { "data": data } })));
            }
        }
    }
    Some(json!({ "loss_fn_outputs": all }))
}

/// Lists of numbers, one after the other in one; where each begins and the last ends is told in bytes.
fn batch(bytes: &[u8]) -> Option<Vec<Vec<f32>>> {
    let (mut data, mut offsets, mut kind): (&[u8], &[u8], u64) = (&[], &[], 0);
    for field in fields(bytes) {
        match field? {
            (1, Field::Bytes(bytes)) => data = bytes,
            (2, Field::Bytes(bytes)) => offsets = bytes,
            (3, Field::Number(number)) => kind = number,
            _ => {}
        }
    }
    let offsets = each(offsets, i64::from_le_bytes)?;
    let one = |pair: &[i64]| {
        let part = data.get(usize::try_from(pair[0]).ok()?..usize::try_from(pair[1]).ok()?)?;
        match kind {
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

/// A message that is being written. As the format wants it, what is nothing is left out.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn number(&mut self, field: u64, number: u64) {
        if number != 0 {
            self.varint(field << 3);
            self.varint(number);
        }
    }

    fn double(&mut self, field: u64, number: f64) {
        self.varint(field << 3 | 1);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn text(&mut self, field: u64, text: &Value) {
        if let Some(text) = text.as_str() {
            self.bytes(field, text.as_bytes());
        }
    }
}

/// What a field holds.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A number of four or eight bytes: none that is looked at.
    Fixed,
}

/// The fields of a message, by their numbers. None where it breaks off or is no message, and no more then.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = Option<(u64, Field<'_>)>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = field(&mut rest);
        if field.is_none() {
            rest = &[];
        }
        Some(field)
    })
}

fn field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let tag = varint(rest)?;
    let held = match tag & 7 {
        0 => Field::Number(varint(rest)?),
        1 => take(rest, 8).map(|_| Field::Fixed)?,
        2 => {
            let length = varint(rest)?;
            Field::Bytes(take(rest, usize::try_from(length).ok()?)?)
        }
        5 => take(rest, 4).map(|_| Field::Fixed)?,
        _ => return None,
    };
    Some((tag >> 3, held))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
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
