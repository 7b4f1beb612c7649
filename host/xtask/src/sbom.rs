//! A software bill of materials: the crates in a release, as CycloneDX 1.6 in JSON. In a wheel, PEP 770 has the place for it.
//!
//! maturin would write one, in `maturin build` alone: of the Python module without the program, for all platforms, and with a
//! time and a random serial number. This one has neither, so one release gives one file.

use allot_base::{Error, Result};
use allot_component::sha256;
use serde_json::{Value, json};

use crate::crates::Crate;

/// The file's name, in a wheel and in an archive.
pub const NAME: &str = "allot.cdx.json";

/// Returns the bill of a release with these crates.
///
/// # Errors
///
/// It cannot be written as JSON.
pub fn of(crates: &[Crate], version: &str) -> Result<String> {
    let components: Vec<Value> = crates.iter().map(component).collect();
    let purl = format!("pkg:pypi/allot@{version}");
    let mut bill = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": "",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": purl,
                "name": "allot",
                "version": version,
                "licenses": [{ "expression": env!("CARGO_PKG_LICENSE") }],
                "purl": purl,
            },
        },
        "components": components,
    });
    // Of its content: the same crates have the same serial number.
    bill["serialNumber"] = json!(serial(&sha256(bill.to_string())));
    let text = serde_json::to_string_pretty(&bill);
    text.map(|text| text + "\n").map_err(|e| Error::new(format!("the bill of materials is not JSON: {e}")))
}

/// One crate's entry. It is known by its package URL, where a `+` in a version is encoded.
fn component(one: &Crate) -> Value {
    let purl = format!("pkg:cargo/{}@{}", one.name, one.version.replace('+', "%2B"));
    let mut entry = json!({
        "type": "library",
        "bom-ref": purl,
        "name": one.name,
        "version": one.version,
        "hashes": [{ "alg": "SHA-256", "content": one.checksum }],
        "licenses": [{ "expression": one.licence }],
        "purl": purl,
    });
    if !one.repository.is_empty() {
        entry["externalReferences"] = json!([{ "type": "vcs", "url": one.repository }]);
    }
    entry
}

/// A UUID of version 8 (RFC 9562), of a hash in hexadecimal.
fn serial(hash: &str) -> String {
    let part = |from: usize, to: usize| hash.get(from..to).unwrap_or_default();
    format!("urn:uuid:{}-{}-8{}-8{}-{}", part(0, 8), part(8, 12), part(12, 15), part(15, 18), part(18, 30))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::PathBuf;

    use serde_json::Value;

    use super::of;
    use crate::crates::Crate;

    fn crates(version: &str) -> Vec<Crate> {
        vec![Crate {
            name: "zstd-sys".to_owned(),
            version: version.to_owned(),
            licence: "BSD-3-Clause".to_owned(),
            repository: String::new(),
            checksum: "00ff".to_owned(),
            folder: PathBuf::new(),
        }]
    }

    #[test]
    fn the_same_crates_give_the_same_file_and_others_another_serial_number() {
        let (one, again, other) = (
            of(&crates("2.1.2+zstd.1.5.7"), "0.1.0").unwrap(),
            of(&crates("2.1.2+zstd.1.5.7"), "0.1.0").unwrap(),
            of(&crates("2.1.3+zstd.1.5.7"), "0.1.0").unwrap(),
        );
        assert_eq!(one, again);
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let (one, other) = (read(&one), read(&other));
        assert_ne!(one["serialNumber"], other["serialNumber"]);
        assert_eq!(one["serialNumber"].as_str().unwrap().len(), "urn:uuid:".len() + 36);
        assert_eq!(one["components"][0]["purl"], "pkg:cargo/zstd-sys@2.1.2%2Bzstd.1.5.7");
        assert_eq!(one["components"][0]["licenses"][0]["expression"], "BSD-3-Clause");
    }
}
