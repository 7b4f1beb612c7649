//! The shipped policies with their manifest, and conversions of policies and limits to a record's form. No
//! policy's name is written here.

use std::time::Duration;

pub use allot_component::shipped::{baseline, component, names};
use allot_record::{CapsStamp, PolicyStamp};
use allot_sandbox::{Caps, Policy};
use serde::{Deserialize, Serialize};

/// The manifest of the shipped components: their sources and compilers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The components, by name.
    pub components: Vec<Entry>,
}

/// One component of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The policy's name: the component is `NAME.wasm`.
    pub name: String,
    /// The component's sha256.
    pub sha256: String,
    /// A sha256 over the sources and the contract that it was built from.
    pub sources: String,
    /// The compiler that built it.
    pub toolchain: String,
}

/// Returns the manifest of the shipped components.
pub fn manifest() -> Option<Manifest> {
    serde_json::from_slice(allot_component::shipped::manifest()?).ok()
}

/// Converts limits to a record's form.
pub fn stamp(caps: Caps) -> CapsStamp {
    CapsStamp { fuel: caps.fuel, seconds: caps.time.as_secs_f64(), memory: caps.memory }
}

/// Converts a policy to a record's form.
pub fn policy_stamp(policy: &Policy) -> PolicyStamp {
    let description = policy.description();
    PolicyStamp {
        name: description.name.clone(),
        version: description.version.clone(),
        contract: policy.contract().to_owned(),
        sha256: policy.sha256().to_owned(),
        draft: policy.is_draft(),
    }
}

/// Converts limits from a record. Invalid seconds, in an edited record, become the default.
pub fn caps(stamp: CapsStamp) -> Caps {
    let time = Duration::try_from_secs_f64(stamp.seconds).unwrap_or(Caps::default().time);
    Caps { fuel: stamp.fuel, time, memory: stamp.memory }
}
