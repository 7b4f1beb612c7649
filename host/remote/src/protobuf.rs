//! Messages that some servers exchange as protobuf and others as JSON: `forward`, `forward_backward`, and
//! the outcomes of these and of `asample`. Messages and field numbers are from `tinker_public.proto` in the
//! package `tinker` 0.25.0, as far as they are used. Lists of numbers are bytes, in little-endian order.

use std::collections::BTreeMap;

use prost::Message;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// The content type of protobuf.
pub(crate) const CONTENT: &str = "application/x-protobuf";

// Kinds of numbers in a list.
const FLOAT32: i32 = 1;
const INT64: i32 = 2;
const BFLOAT16: i32 = 4;

// ---- the request

/// `forward` or `forward_backward`, which are one request in protobuf.
#[derive(PartialEq, Message)]
pub(crate) struct PassRequest {
    #[prost(string, tag = "1")]
    pub(crate) model_id: String,
    #[prost(uint64, tag = "2")]
    pub(crate) seq_id: u64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) data: Vec<Datum>,
    #[prost(string, tag = "4")]
    pub(crate) loss_fn: String,
    #[prost(message, repeated, tag = "5")]
    pub(crate) loss_fn_config: Vec<LossNumber>,
    #[prost(bool, tag = "6")]
    pub(crate) forward_only: bool,
}

/// An entry in the map of a loss's settings.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LossNumber {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(double, tag = "2")]
    number: f64,
}

/// A sequence with its loss inputs.
#[derive(PartialEq, Message)]
pub(crate) struct Datum {
    #[prost(message, repeated, tag = "1")]
    chunks: Vec<Chunk>,
    #[prost(message, repeated, tag = "2")]
    inputs: Vec<LossInput>,
}

#[derive(PartialEq, Message)]
struct Chunk {
    #[prost(message, required, tag = "1")]
    text: Text,
}

#[derive(PartialEq, Message)]
struct Text {
    /// Tokens of 4 bytes.
    #[prost(bytes = "vec", tag = "1")]
    tokens: Vec<u8>,
}

/// An entry in the map of a loss's inputs.
#[derive(PartialEq, Message)]
struct LossInput {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, required, tag = "2")]
    tensor: Tensor,
}

/// A list of numbers.
#[derive(PartialEq, Message)]
pub(crate) struct Tensor {
    #[prost(bytes = "vec", tag = "1")]
    data: Vec<u8>,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(uint64, repeated, tag = "4")]
    shape: Vec<u64>,
}

impl LossNumber {
    pub(crate) fn new(name: &str, number: f64) -> Self {
        Self { name: name.to_owned(), number }
    }
}

impl Datum {
    pub(crate) fn new(tokens: &[u32]) -> Self {
        let tokens = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        Self { chunks: vec![Chunk { text: Text { tokens } }], inputs: Vec::new() }
    }

    /// Adds a loss input.
    pub(crate) fn with(mut self, name: &str, tensor: Tensor) -> Self {
        self.inputs.push(LossInput { name: name.to_owned(), tensor });
        self
    }

    fn json(&self) -> Value {
        let chunk = |chunk: &Chunk| json!({ "type": "encoded_text", "tokens": whole(&chunk.text.tokens, u32::from_le_bytes) });
        let chunks: Vec<Value> = self.chunks.iter().map(chunk).collect();
        let inputs = self.inputs.iter().map(|input| (input.name.clone(), input.tensor.json()));
        json!({ "model_input": { "chunks": chunks }, "loss_fn_inputs": inputs.collect::<Map<_, _>>() })
    }
}

impl Tensor {
    pub(crate) fn tokens(tokens: &[u32]) -> Self {
        Self::new(
            INT64,
            tokens.len(),
            tokens.iter().flat_map(|token| i64::from(*token).to_le_bytes()).collect(),
        )
    }

    pub(crate) fn floats(numbers: &[f32]) -> Self {
        Self::new(FLOAT32, numbers.len(), numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
    }

    fn new(kind: i32, count: usize, data: Vec<u8>) -> Self {
        Self { data, kind, shape: vec![count as u64] }
    }

    fn json(&self) -> Value {
        let (data, dtype) = match self.kind {
            INT64 => (json!(whole(&self.data, i64::from_le_bytes)), "int64"),
            _ => (json!(whole(&self.data, f32::from_le_bytes)), "float32"),
        };
        json!({ "data": data, "dtype": dtype, "shape": self.shape })
    }
}

impl PassRequest {
    /// Returns the request's name in JSON.
    pub(crate) fn verb(&self) -> &'static str {
        if self.forward_only { "forward" } else { "forward_backward" }
    }

    /// Encodes the request. A map's entries are sorted by name, as the package does.
    pub(crate) fn message(mut self) -> Vec<u8> {
        self.loss_fn_config.sort_by(|a, b| a.name.cmp(&b.name));
        for datum in &mut self.data {
            datum.inputs.sort_by(|a, b| a.name.cmp(&b.name));
        }
        self.encode_to_vec()
    }

    /// Returns the request as JSON.
    pub(crate) fn json(&self) -> String {
        let data: Vec<Value> = self.data.iter().map(Datum::json).collect();
        let mut input = json!({ "data": data, "loss_fn": self.loss_fn });
        if !self.loss_fn_config.is_empty() {
            let numbers = self.loss_fn_config.iter().map(|n| (n.name.clone(), json!(n.number)));
            input["loss_fn_config"] = numbers.collect::<Map<_, _>>().into();
        }
        let key = format!("{}_input", self.verb());
        json!({ "model_id": self.model_id, "seq_id": self.seq_id, key: input }).to_string()
    }
}

/// Decodes numbers of `N` bytes each, from bytes that this program wrote.
fn whole<const N: usize, T>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|bytes| number(*bytes)).collect()
}

// ---- the outcomes

/// A server's outcome of a request, as JSON and, for some requests and servers, as protobuf.
pub(crate) trait Outcome: DeserializeOwned {
    /// Decodes a message. Returns none if the message is broken, or if this outcome has no message.
    fn decode(_message: &[u8]) -> Option<Self> {
        None
    }
}

impl Outcome for Value {}

/// The outcome of `asample`.
#[derive(Debug, PartialEq, Deserialize)]
pub(crate) struct Sampled {
    pub(crate) sequences: Vec<SampledSequence>,
}

#[derive(Debug, PartialEq, Deserialize)]
pub(crate) struct SampledSequence {
    pub(crate) stop_reason: String,
    pub(crate) tokens: Vec<u32>,
    /// `null` is a number that is not finite.
    pub(crate) logprobs: Option<Vec<Option<f32>>>,
}

/// The outcome of `forward` and `forward_backward`.
#[derive(Debug, PartialEq, Deserialize)]
pub(crate) struct Passed {
    pub(crate) loss_fn_outputs: Vec<PassedSequence>,
}

#[derive(Debug, PartialEq, Deserialize)]
pub(crate) struct PassedSequence {
    pub(crate) logprobs: Option<LogProbs>,
}

#[derive(Debug, PartialEq, Deserialize)]
pub(crate) struct LogProbs {
    /// `null` is a number that is not finite.
    pub(crate) data: Vec<Option<f32>>,
}

#[derive(PartialEq, Message)]
struct SampledMessage {
    #[prost(message, repeated, tag = "1")]
    sequences: Vec<SequenceMessage>,
}

#[derive(PartialEq, Message)]
struct SequenceMessage {
    /// 0 for a sequence that ended, 1 for one that reached the length limit.
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
struct PassedMessage {
    #[prost(message, repeated, tag = "2")]
    records: Vec<RecordMessage>,
}

#[derive(PartialEq, Message)]
struct RecordMessage {
    #[prost(btree_map = "string, message", tag = "2")]
    lists: BTreeMap<String, ListsMessage>,
}

/// Concatenated lists of numbers. `offsets` has the byte offset of each list, and the end of the last one.
#[derive(PartialEq, Message)]
struct ListsMessage {
    #[prost(bytes = "vec", tag = "1")]
    data: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    offsets: Vec<u8>,
    #[prost(int32, tag = "3")]
    kind: i32,
}

impl Outcome for Sampled {
    fn decode(message: &[u8]) -> Option<Self> {
        let sequence = |sequence: SequenceMessage| {
            let stop_reason = ["stop", "length"].get(usize::try_from(sequence.stop).ok()?)?;
            // Tokens start at 0; negative values are invalid.
            let token = |bytes| u32::try_from(i32::from_le_bytes(bytes)).ok();
            Some(SampledSequence {
                stop_reason: (*stop_reason).to_owned(),
                tokens: each(&sequence.tokens, token)?.into_iter().collect::<Option<_>>()?,
                logprobs: match &sequence.log_probs[..] {
                    [] => None,
                    bytes => Some(each(bytes, finite)?),
                },
            })
        };
        let sequences = SampledMessage::decode(message).ok()?.sequences;
        Some(Self { sequences: sequences.into_iter().map(sequence).collect::<Option<_>>()? })
    }
}

impl Outcome for Passed {
    /// Decodes log-probabilities, sequence by sequence. Other measurements of the server are ignored.
    fn decode(message: &[u8]) -> Option<Self> {
        let mut loss_fn_outputs = Vec::new();
        for record in PassedMessage::decode(message).ok()?.records {
            if let Some(lists) = record.lists.get("logprobs") {
                let outputs = split(lists)?.into_iter();
                loss_fn_outputs
                    .extend(outputs.map(|data| PassedSequence { logprobs: Some(LogProbs { data }) }));
            }
        }
        Some(Self { loss_fn_outputs })
    }
}

fn split(lists: &ListsMessage) -> Option<Vec<Vec<Option<f32>>>> {
    let offsets = each(&lists.offsets, i64::from_le_bytes)?;
    let one = |pair: &[i64]| {
        let part = lists.data.get(usize::try_from(pair[0]).ok()?..usize::try_from(pair[1]).ok()?)?;
        match lists.kind {
            FLOAT32 => each(part, finite),
            // The upper half of a 32-bit float.
            BFLOAT16 => each(part, |[low, high]: [u8; 2]| finite([0, 0, low, high])),
            _ => None,
        }
    };
    offsets.windows(2).map(one).collect()
}

fn finite(bytes: [u8; 4]) -> Option<f32> {
    Some(f32::from_le_bytes(bytes)).filter(|number| number.is_finite())
}

/// Decodes numbers of `N` bytes each. Returns none if bytes are left over.
fn each<const N: usize, T>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Option<Vec<T>> {
    bytes.len().is_multiple_of(N).then(|| whole(bytes, number))
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

    /// The same request in JSON.
    const JSON: &str = r#"{"model_id":"model_1","seq_id":300,"forward_input":{"data":[{"model_input":{"chunks":[{"type":"encoded_text","tokens":[1,70000]}]},"loss_fn_inputs":{"weights":{"data":[0.0,0.5],"dtype":"float32","shape":[2]},"target_tokens":{"data":[70000,3],"dtype":"int64","shape":[2]}}}],"loss_fn":"ppo","loss_fn_config":{"clip_high_threshold":1.2}}}"#;

    fn request() -> PassRequest {
        let datum = Datum::new(&[1, 70_000])
            .with("weights", Tensor::floats(&[0.0, 0.5]))
            .with("target_tokens", Tensor::tokens(&[70_000, 3]));
        PassRequest {
            model_id: "model_1".to_owned(),
            seq_id: 300,
            data: vec![datum],
            loss_fn: "ppo".to_owned(),
            loss_fn_config: vec![LossNumber::new("clip_high_threshold", 1.2)],
            forward_only: true,
        }
    }

    #[test]
    fn a_request_is_written_as_the_package_writes_it() {
        assert_eq!(request().json(), JSON);
        assert_eq!(request().message(), unhex(REQUEST));
        let backward = PassRequest { forward_only: false, loss_fn_config: Vec::new(), ..request() };
        let json = JSON.replace("forward_input", "forward_backward_input");
        assert_eq!(backward.json(), json.replace(r#","loss_fn_config":{"clip_high_threshold":1.2}"#, ""));
    }

    #[test]
    fn answers_are_read_as_the_package_writes_them() {
        let sampled = json!({ "sequences": [
            { "stop_reason": "stop", "tokens": [5, 0], "logprobs": [-0.5, -1.25] },
            { "stop_reason": "length", "tokens": [7], "logprobs": [null] },
            { "stop_reason": "length", "tokens": [7], "logprobs": null },
        ] });
        assert_eq!(<Sampled as Outcome>::decode(&unhex(SAMPLED)), serde_json::from_value(sampled).ok());
        let outputs = json!({ "loss_fn_outputs": [
            { "logprobs": { "data": [-1.0, -2.0] } },
            { "logprobs": { "data": [-3.0] } },
        ] });
        assert_eq!(<Passed as Outcome>::decode(&unhex(OUTPUTS)), serde_json::from_value(outputs).ok());
        assert_eq!(<Value as Outcome>::decode(&unhex(OUTPUTS)), None);
    }

    #[test]
    fn an_answer_that_breaks_off_or_is_changed_is_none_or_another() {
        let broken = broken(unhex(SAMPLED), <Sampled as Outcome>::decode)
            + broken(unhex(OUTPUTS), <Passed as Outcome>::decode);
        assert!(broken > 300, "{broken}");
    }

    /// Returns how many prefixes of a message, and messages with one flipped bit, cannot be decoded.
    fn broken<T: PartialEq>(message: Vec<u8>, read: impl Fn(&[u8]) -> Option<T>) -> usize {
        let (right, mut broken) = (read(&message), 0);
        for end in 1..message.len() {
            let cut = read(&message[..end]);
            broken += usize::from(cut.is_none());
            assert!(end + 21 >= message.len() || cut != right, "cut after {end} bytes");
        }
        for (at, bit) in (0..message.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut changed = message.clone();
            changed[at] ^= 1 << bit;
            broken += usize::from(read(&changed).is_none());
        }
        broken
    }
}
