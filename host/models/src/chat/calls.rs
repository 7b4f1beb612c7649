//! Calls of tools, in the forms in which models write them.

use allot_settings::CallFormat;
use serde_json::{Map, Value, json};

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The tool's name.
    pub name: String,
    /// Its arguments: an object, if the model keeps to the form.
    pub arguments: Value,
}

/// Returns the calls in what a model said in a turn. There are none if one of them is not well formed: then the turn is
/// plain text, as in TRL. Calls within reasoning are not meant.
pub fn calls(format: CallFormat, said: &str) -> Vec<ToolCall> {
    let said = answered(said);
    let found: Option<Vec<ToolCall>> = match format {
        CallFormat::Json => tagged(said).map(json_call).collect(),
        CallFormat::Xml => tagged(said).map(xml_call).collect(),
        CallFormat::Bare => Some(bare(said).into_iter().collect()),
    };
    found.unwrap_or_default()
}

/// Returns the form in which a template renders a call of `probe` with the argument `at`.
pub(crate) fn format_of(rendered: &str) -> Option<CallFormat> {
    let is_tagged = rendered.contains("<tool_call>");
    if is_tagged && rendered.contains("<function=probe>") {
        return Some(CallFormat::Xml);
    }
    let named = rendered.contains(r#""name": "probe""#);
    match (is_tagged, named) {
        (true, true) if rendered.contains(r#""arguments""#) => Some(CallFormat::Json),
        (false, true) if rendered.contains(r#""parameters""#) => Some(CallFormat::Bare),
        _ => None,
    }
}

/// Returns the message whose rendering [`format_of`] knows.
pub(crate) fn probe() -> Value {
    json!({ "role": "assistant", "content": "", "tool_calls": [call("probe", &json!({ "at": 3 }))] })
}

/// Returns a call as a message has it.
pub(crate) fn call(name: &str, arguments: &Value) -> Value {
    json!({ "type": "function", "function": { "name": name, "arguments": arguments } })
}

/// Returns what follows the reasoning: nothing, if that has no end. A prompt may have opened it.
fn answered(said: &str) -> &str {
    let opens = said.trim_start().starts_with("<think>");
    let end = said.find("</think>").filter(|end| opens || !said[..*end].contains("<tool_call>"));
    match end {
        Some(end) => &said[end + "</think>".len()..],
        None if opens => "",
        None => said,
    }
}

/// Returns what is between tags; `None` for what has no end.
fn tagged(said: &str) -> impl Iterator<Item = Option<&str>> {
    let parts = said.split("<tool_call>").skip(1);
    parts.map(|part| part.split_once("</tool_call>").map(|(inside, _)| inside.trim()))
}

fn json_call(inside: Option<&str>) -> Option<ToolCall> {
    of_object(serde_json::from_str(inside?).ok()?, "arguments")
}

fn xml_call(inside: Option<&str>) -> Option<ToolCall> {
    let (name, body) = inside?.strip_prefix("<function=")?.split_once('>')?;
    let (body, _) = body.rsplit_once("</function>")?;
    let mut arguments = Map::new();
    for part in body.split("<parameter=").skip(1) {
        let (key, value) = part.split_once('>')?;
        let (value, _) = value.split_once("</parameter>")?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.insert(key.trim().to_owned(), value.into());
    }
    Some(ToolCall { name: name.trim().to_owned(), arguments: arguments.into() })
}

fn bare(said: &str) -> Option<ToolCall> {
    of_object(serde_json::from_str(said.trim()).ok()?, "parameters")
}

fn of_object(object: Value, key: &str) -> Option<ToolCall> {
    let Value::Object(mut fields) = object else { return None };
    let Some(Value::String(name)) = fields.remove("name") else { return None };
    let arguments = match fields.remove(key) {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(arguments) => arguments,
    };
    Some(ToolCall { name, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, arguments: Value) -> ToolCall {
        ToolCall { name: name.to_owned(), arguments }
    }

    #[test]
    fn calls_of_json_are_read_as_trl_reads_them() {
        let said = |text: &str| calls(CallFormat::Json, text);
        let look = "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": 3}}\n</tool_call>";
        let expected = one("look", json!({ "at": 3 }));
        assert_eq!(said(&format!("I look.\n{look}\n{look}")), [expected.clone(), expected.clone()]);
        assert_eq!(said(&format!("<think>{look}</think>no")), []);
        for thought in ["<think>so</think>", "so</think>"] {
            assert_eq!(said(&format!("{thought}{look}")), std::slice::from_ref(&expected));
        }
        assert_eq!(said(&format!("<think>so {look}")), []);
        let at = "<tool_call>{\"name\": \"look\", \"arguments\": {\"at\": \"</think>\"}}</tool_call>";
        assert_eq!(said(at), [one("look", json!({ "at": "</think>" }))]);
        // One malformed call among good ones, a call without an end, and what is no call.
        for bad in ["<tool_call>\n{\"name\": \"look\"\n</tool_call>", "<tool_call>{\"name\": \"look\"}"] {
            assert_eq!(said(&format!("{look}{bad}")), [], "{bad}");
        }
        for bad in ["[1]", "{}", "{\"name\": 3}", "3"] {
            assert_eq!(said(&format!("<tool_call>{bad}</tool_call>")), [], "{bad}");
        }
        let none = one("look", json!({}));
        for bare in ["{\"name\": \"look\"}", "{\"name\": \"look\", \"arguments\": null}"] {
            assert_eq!(said(&format!("<tool_call>{bare}</tool_call>")), std::slice::from_ref(&none));
        }
        let text = "<tool_call>{\"name\": \"look\", \"arguments\": \"3\"}</tool_call>";
        assert_eq!(said(text), [one("look", json!("3"))]);
        assert_eq!(said("{\"name\": \"look\"}"), []);
    }

    #[test]
    fn calls_of_xml_and_bare_calls_are_read() {
        let xml = "<tool_call>\n<function=look>\n<parameter=at>\n3\n</parameter>\n<parameter=why>\na\n\nb\n</parameter>\n\
                   </function>\n</tool_call>";
        assert_eq!(calls(CallFormat::Xml, xml), [one("look", json!({ "at": "3", "why": "a\n\nb" }))]);
        assert_eq!(calls(CallFormat::Xml, &xml.replace("</function>", "")), []);
        let bare = "{\"name\": \"look\", \"parameters\": {\"at\": 3}}";
        assert_eq!(calls(CallFormat::Bare, bare), [one("look", json!({ "at": 3 }))]);
        assert_eq!(calls(CallFormat::Bare, &format!("Now: {bare}")), []);
    }
}
