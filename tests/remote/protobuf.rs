//! What newer servers take and give as protobuf, from the server's side: written here once more, from SkyRL's
//! `skyrl/tinker/proto_serialization.py` and the descriptors of the package `tinker` 0.25.0.

use serde_json::{Value, json};

pub const CONTENT: &str = "application/x-protobuf";

/// A request as the JSON that it stands for, and whether it is for looking alone.
pub fn request(bytes: &[u8]) -> (Value, bool) {
    let (mut body, mut input) = (json!({}), json!({ "data": [], "loss_fn_config": {} }));
    let mut forward = false;
    for (field, held) in fields(bytes) {
        match field {
            1 => body["model_id"] = text(held),
            2 => body["seq_id"] = json!(held.0),
            3 => input["data"].as_array_mut().unwrap().push(datum(held.1)),
            4 => input["loss_fn"] = text(held),
            5 => {
                let [name, value] = entry(held.1);
                let number = f64::from_le_bytes(value.try_into().unwrap());
                input["loss_fn_config"][std::str::from_utf8(name).unwrap()] = json!(number);
            }
            6 => forward = held.0 == 1,
            _ => panic!("no field {field} in a request"),
        }
    }
    body[if forward { "forward_input" } else { "forward_backward_input" }] = input;
    (body, forward)
}

fn datum(bytes: &[u8]) -> Value {
    let (mut tokens, mut inputs) = (Vec::new(), json!({}));
    for (field, held) in fields(bytes) {
        if field == 1 {
            // A chunk, in it a text, in it the tokens.
            let text = &fields(held.1)[0];
            let bytes = &fields(text.1.1)[0];
            assert_eq!((text.0, bytes.0), (1, 1));
            tokens.extend(bytes.1.1.chunks(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())));
        } else {
            let [name, tensor] = entry(held.1);
            let parts = fields(tensor);
            let part = |n: u64| parts.iter().find(|(field, _)| *field == n).unwrap().1;
            let data: Vec<Value> = match part(3).0 {
                1 => part(1).1.chunks(4).map(|b| json!(f32::from_le_bytes(b.try_into().unwrap()))).collect(),
                2 => part(1).1.chunks(8).map(|b| json!(i64::from_le_bytes(b.try_into().unwrap()))).collect(),
                kind => panic!("no numbers are of kind {kind}"),
            };
            assert_eq!(part(4).1, [data.len() as u8], "a shape of one length, below 128");
            inputs[std::str::from_utf8(name).unwrap()] = json!({ "data": data });
        }
    }
    json!({ "model_input": { "chunks": [{ "tokens": tokens }] }, "loss_fn_inputs": inputs })
}

/// A promise that was kept as such a message, where it is one of those that are.
pub fn answer(value: &Value) -> Option<Vec<u8>> {
    let numbers = |list: &Value| -> Vec<u8> {
        let one = |x: &Value| x.as_f64().map_or(f32::NAN, |x| x as f32).to_le_bytes();
        list.as_array().unwrap().iter().flat_map(one).collect()
    };
    if let Some(sequences) = value["sequences"].as_array() {
        let one = |s: &Value| {
            let tokens = s["tokens"].as_array().unwrap().iter();
            let tokens: Vec<u8> = tokens.flat_map(|t| (t.as_i64().unwrap() as i32).to_le_bytes()).collect();
            let stop = if s["stop_reason"] == "length" { vec![1 << 3, 1] } else { Vec::new() };
            let log_probs =
                if s["logprobs"].is_null() { Vec::new() } else { bytes(3, &numbers(&s["logprobs"])) };
            bytes(1, &[stop, bytes(2, &tokens), log_probs].concat())
        };
        // And a number that nobody asked for, as newer servers have them.
        return Some([sequences.iter().flat_map(one).collect(), vec![4 << 3, 7]].concat());
    }
    let outputs = value["loss_fn_outputs"].as_array()?;
    let parts: Vec<Vec<u8>> = outputs.iter().map(|o| numbers(&o["logprobs"]["data"])).collect();
    let mut offsets = vec![0_i64];
    for part in &parts {
        offsets.push(offsets[offsets.len() - 1] + part.len() as i64);
    }
    let offsets: Vec<u8> = offsets.into_iter().flat_map(i64::to_le_bytes).collect();
    let field = |name: &[u8], data: &[u8]| {
        let tensor = [bytes(1, data), bytes(2, &offsets), vec![3 << 3, 1]].concat();
        bytes(2, &[bytes(1, name), bytes(2, &tensor)].concat())
    };
    let data = parts.concat();
    let record = [field(b"elementwise_loss", &data), field(b"logprobs", &data)].concat();
    Some([bytes(1, b"scalar"), bytes(2, &record)].concat())
}

fn bytes(field: u8, content: &[u8]) -> Vec<u8> {
    let (mut all, mut length) = (vec![field << 3 | 2], content.len());
    while length >= 128 {
        all.push((length % 128 + 128) as u8);
        length /= 128;
    }
    all.push(length as u8);
    all.extend(content);
    all
}

/// A field's number, or its bytes.
type Held<'a> = (u64, &'a [u8]);

fn text(held: Held<'_>) -> Value {
    json!(std::str::from_utf8(held.1).unwrap())
}

fn entry(bytes: &[u8]) -> [&[u8]; 2] {
    let [(1, name), (2, value)] = fields(bytes)[..] else { panic!("an entry is a name and a value") };
    [name.1, value.1]
}

fn fields(mut rest: &[u8]) -> Vec<(u64, Held<'_>)> {
    let mut all = Vec::new();
    let number = |rest: &mut &[u8]| {
        let length = rest.iter().position(|b| *b < 128).unwrap() + 1;
        let (bytes, left) = rest.split_at(length);
        *rest = left;
        bytes.iter().rev().fold(0, |n, b| n << 7 | u64::from(b & 127))
    };
    while !rest.is_empty() {
        let tag = number(&mut rest);
        let (value, length) = match tag & 7 {
            0 => (number(&mut rest), 0),
            1 => (0, 8),
            2 => (0, number(&mut rest) as usize),
            kind => panic!("no field is of kind {kind}"),
        };
        let (held, left) = rest.split_at(length);
        all.push((tag >> 3, (value, held)));
        rest = left;
    }
    all
}
