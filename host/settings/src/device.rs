//! The device that a model computes on: the CPU or an NVIDIA GPU.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A device, by its name: `cpu`, `cuda` or, for one of several GPUs, `cuda:1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceName {
    /// The CPU.
    #[default]
    Cpu,
    /// The GPU with this index.
    Cuda(usize),
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(0) => f.write_str("cuda"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => {
                name.strip_prefix("cuda:").and_then(|number| number.parse().ok()).map(Self::Cuda).ok_or_else(
                    || format!("no device is called `{name}`; expected `cpu`, `cuda` or, say, `cuda:1`"),
                )
            }
        }
    }
}

impl TryFrom<String> for DeviceName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl From<DeviceName> for String {
    fn from(name: DeviceName) -> Self {
        name.to_string()
    }
}
