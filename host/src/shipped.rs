//! The policies that ship with the program and what they were built from, and policies and their limits as a
//! record has them. No name of any policy is written here.

use std::time::Duration;

pub use allot_component::shipped::{component, names};
use allot_record::{CapsStamp, PolicyStamp};
use allot_sandbox::{Caps, Policy};
use serde::{Deserialize, Serialize};

/// What is written beside the components that ship: what they were built from, and with what.
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
    /// One sha256 over the sources and the contract that it was built from.
    pub sources: String,
    /// The compiler that built it.
    pub toolchain: String,
}

/// The manifest of what ships.
pub fn manifest() -> Option<Manifest> {
    serde_json::from_slice(allot_component::shipped::manifest()?).ok()
}

/// Limits as a record has them.
pub fn stamp(caps: Caps) -> CapsStamp {
    CapsStamp { fuel: caps.fuel, seconds: caps.time.as_secs_f64(), memory: caps.memory }
}

/// A policy as a record has it.
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

/// Limits from a record. Seconds that no config takes come from one that was edited: then the default's.
pub fn caps(stamp: CapsStamp) -> Caps {
    let time = Duration::try_from_secs_f64(stamp.seconds).unwrap_or(Caps::default().time);
    Caps { fuel: stamp.fuel, time, memory: stamp.memory }
}
