//! Makes a component of a core Wasm module of any compiler.

use allot_allocation::shown;
use allot_base::{Error, Result, panics::caught};
use allot_component::Kind;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

use crate::preview1;

/// The contract of new projects.
pub const CONTRACT: &str = include_str!("../../../wit/0.3/allocation.wit");
/// The contract before it, for projects whose SDK is of that version.
pub const CONTRACT_0_2: &str = include_str!("../../../wit/0.2/allocation.wit");
/// The first contract, for projects whose SDK is of that version.
pub const CONTRACT_0_1: &str = include_str!("../../../wit/0.1/allocation.wit");

/// The contract of new graders.
pub const REWARD: &str = include_str!("../../../wit/reward/0.2/reward.wit");
/// The first contract of graders, for projects whose SDK is of that version.
pub const REWARD_0_1: &str = include_str!("../../../wit/reward/0.1/reward.wit");

/// The contracts of a module, by the prefix of its exports' names.
const BY_EXPORT: [(&str, Kind, &str); 5] = [
    ("rollout:allocation/allocator@0.1", Kind::Policy, CONTRACT_0_1),
    ("rollout:allocation/allocator@0.2", Kind::Policy, CONTRACT_0_2),
    ("rollout:allocation/allocator@0.3", Kind::Policy, CONTRACT),
    ("rollout:reward/grader@0.1", Kind::Grader, REWARD_0_1),
    ("rollout:reward/grader@0.2", Kind::Grader, REWARD),
];

/// Makes a component of a core module's bytes or text. A component is returned unchanged.
pub fn of_module(bytes: &[u8], name: &str) -> Result<Vec<u8>> {
    let text = std::str::from_utf8(bytes).is_ok_and(|t| t.contains("(module") || t.contains("(component"));
    if !bytes.starts_with(b"\0asm") && !text {
        return Err(Error::new(format!("`{name}` is neither a Wasm module nor its text")));
    }
    let module = wat::parse_bytes(bytes)
        .map_err(|e| Error::new(format!("`{name}` is not Wasm: {}", wat_error(&e.to_string()))))?;
    if wasmparser::Parser::is_component(&module) {
        return Ok(module.into_owned());
    }
    // The encoder may panic on modules that no compiler produced.
    let made = caught(|| encode(module.into_owned()).map_err(|e| one_line(&format!("{e:#}"))));
    made.and_then(|made| made).map_err(|why| {
        let error = Error::new(format!("could not build a component from `{name}`: {why}"));
        error.hint(
            "export the contract's interface from the module: `allot new NAME` makes a policy that does, \
             `allot new NAME --kind grader` a grader",
        )
    })
}

/// Returns the message of an error in Wasm text, and its position: "message (line 3)".
fn wat_error(text: &str) -> String {
    let message = text.lines().next().unwrap_or_default().trim();
    let place = text.split("<anon>:").nth(1).and_then(|rest| rest.split(':').next());
    place.map_or_else(|| message.to_owned(), |line| format!("{message} (line {line})"))
}

fn encode(mut module: Vec<u8>) -> anyhow::Result<Vec<u8>> {
    let sections: Vec<String> = custom_sections(&module);
    // A module without a binding generator's types is assumed to follow the canonical ABI of the contract.
    if !sections.iter().any(|name| name.starts_with("component-type")) {
        let mut resolve = wit_parser::Resolve::default();
        let (kind, contract) = contract(&module);
        let package = resolve.push_str("contract.wit", contract)?;
        let world = resolve.select_world(&[package], Some(kind.world()))?;
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
    }
    let mut encoder = ComponentEncoder::default().validate(true).module(&module)?;
    if imports(&module).iter().any(|from| from == preview1::NAME) {
        encoder = encoder.adapter(preview1::NAME, &preview1::adapter()?)?;
    }
    encoder.encode()
}

/// Returns the contract of a module, from the names of its exports.
fn contract(module: &[u8]) -> (Kind, &'static str) {
    let payloads = wasmparser::Parser::new(0).parse_all(module).filter_map(std::result::Result::ok);
    let mut exports = Vec::new();
    for payload in payloads {
        if let wasmparser::Payload::ExportSection(section) = payload {
            exports.extend(section.into_iter().filter_map(|e| Some(e.ok()?.name.to_owned())));
        }
    }
    let follows = |begins: &str| exports.iter().any(|name| name.starts_with(begins));
    let known = BY_EXPORT.into_iter().find(|(begins, ..)| follows(begins));
    known.map_or((Kind::Policy, CONTRACT), |(_, kind, contract)| (kind, contract))
}

fn custom_sections(module: &[u8]) -> Vec<String> {
    let payloads = wasmparser::Parser::new(0).parse_all(module).filter_map(std::result::Result::ok);
    payloads
        .filter_map(|p| match p {
            wasmparser::Payload::CustomSection(section) => Some(section.name().to_owned()),
            _ => None,
        })
        .collect()
}

fn imports(module: &[u8]) -> Vec<String> {
    let payloads = wasmparser::Parser::new(0).parse_all(module).filter_map(std::result::Result::ok);
    let mut modules = Vec::new();
    for payload in payloads {
        if let wasmparser::Payload::ImportSection(section) = payload {
            modules.extend(section.into_imports().filter_map(|i| Some(i.ok()?.module.to_owned())));
        }
    }
    modules
}

fn one_line(text: &str) -> String {
    let line = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join(" ");
    shown::line(&line, shown::LINE)
}
