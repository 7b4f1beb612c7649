//! Inspects a component before any of it is compiled (which can take a minute) or run: its kind, exports
//! and imports.

use allot_allocation::shown;
use allot_component::TooLarge;
use wasmparser::{Encoding, Parser, Payload};

use crate::complexity::Complexity;
use crate::{Kind, LoadError, kind};

/// The result of an inspection.
pub(crate) struct Inspection {
    /// The version in its export's name, such as `0.1.0`.
    pub version: String,
    /// Whether it imports WASI.
    pub wasi: bool,
}

/// Inspects a component. Returns an error if it is not a component of this kind.
pub(crate) fn of(bytes: &[u8], kind: Kind) -> Result<Inspection, LoadError> {
    if bytes.is_empty() {
        return Err(LoadError::Empty);
    }
    TooLarge::check(bytes.len() as u64)?;
    if !bytes.starts_with(b"\0asm") {
        let text = std::str::from_utf8(bytes).unwrap_or("");
        let code = text.lines().map(str::trim_start).find(|l| !l.is_empty() && !l.starts_with(";;"));
        let wat = code.is_some_and(|l| l.starts_with("(module") || l.starts_with("(component"));
        return Err(if wat { LoadError::Text } else { LoadError::NotWasm });
    }
    let (exports, imports) = names(bytes)?;

    let version = spoken(&exports, kind)?;
    for import in &imports {
        let quiet =
            ["wasi:cli/", "wasi:clocks/", "wasi:filesystem/", "wasi:io/", "wasi:random/", "wasi:sockets/"];
        let ours = kind.imports().iter().any(|name| kind::interface(kind.package(), import, name).is_some());
        if !ours && !quiet.iter().any(|prefix| import.starts_with(prefix)) {
            return Err(LoadError::ForeignImport { kind, name: shown::name(import) });
        }
    }
    Ok(Inspection { version, wasi: imports.iter().any(|name| name.starts_with("wasi:")) })
}

/// Returns a component's kind, or `None` if its exports belong to no known contract.
pub fn kind_of(component: &[u8]) -> Option<Kind> {
    let (exports, _) = names(component).ok()?;
    kind::among(&exports)
}

/// Returns the exact contract version that a component with these exports uses; of several, the newest
/// supported.
fn spoken(exports: &[String], kind: Kind) -> Result<String, LoadError> {
    let versions: Vec<String> = exports.iter().filter_map(|name| kind::version(kind, name)).collect();
    let known = versions.iter().filter_map(|version| Some((kind::rank(kind, version)?, version)));
    if let Some((_, version)) = known.max_by_key(|(rank, _)| *rank) {
        return Ok(version.clone());
    }
    let package = kind.package();
    let other = exports.iter().find(|name| name.starts_with(package));
    Err(match (versions.first(), other) {
        (Some(version), _) => LoadError::OtherVersion {
            kind,
            built_for: shown::name(&format!("{package}@{version}")),
            known: kind::known(kind),
            newer: kind::is_newer(kind, version),
        },
        (None, Some(name)) => LoadError::OtherVersion {
            kind,
            built_for: shown::name(name),
            known: kind::known(kind),
            newer: false,
        },
        (None, None) => LoadError::NoExport { kind, exports: list(exports), is: kind::among(exports) },
    })
}

/// Returns the names of a component's exports and imports.
fn names(bytes: &[u8]) -> Result<(Vec<String>, Vec<String>), LoadError> {
    let damaged = |e: wasmparser::BinaryReaderError| LoadError::damaged(&e);
    let (mut exports, mut imports) = (Vec::new(), Vec::new());
    // Sections of nested modules and components occur in between; only the outermost component counts.
    let mut depth = 0_i32;
    let mut scales = Complexity::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(damaged)?;
        scales.take(&payload)?;
        match payload {
            Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                return Err(LoadError::CoreModule);
            }
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section {
                    exports.push(export.map_err(damaged)?.name.name.to_owned());
                }
            }
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section {
                    imports.push(import.map_err(damaged)?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok((exports, imports))
}

fn list(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(4).map(|n| format!("`{}`", shown::name(n))).collect();
    match names.len() {
        0 => "nothing".to_owned(),
        n if n > shown.len() => format!("{} and {} more", shown.join(", "), n - shown.len()),
        _ => shown.join(", "),
    }
}
