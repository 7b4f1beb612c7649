//! The safetensors format as written here: the header's length, the header, then all numbers in
//! the header's order.

use serde_json::{Map, Value, json};

use super::Precision;

/// Returns the bytes before the numbers of these tensors, given by name and shape. `layout`
/// names the framework that the layout follows; transformers refuses weights without it.
pub(crate) fn head<'a>(
    layout: Option<&str>,
    precision: Precision,
    tensors: impl IntoIterator<Item = (&'a str, Vec<usize>)>,
) -> Vec<u8> {
    let kind = match precision {
        Precision::F32 => "F32",
        Precision::Bf16 => "BF16",
    };
    let mut header = Map::new();
    if let Some(layout) = layout {
        header.insert("__metadata__".to_owned(), json!({ "format": layout }));
    }
    let mut end = 0;
    for (name, shape) in tensors {
        let start = end;
        end += shape.iter().product::<usize>() * super::dtype(precision).size_in_bytes();
        let entry = json!({ "dtype": kind, "shape": shape, "data_offsets": [start, end] });
        header.insert(name.to_owned(), entry);
    }
    let mut header = Value::Object(header).to_string();
    // Numbers begin at a multiple of eight.
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat()
}
