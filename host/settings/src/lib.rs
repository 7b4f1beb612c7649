//! The types of a config's sections, and the rules for their values. They are plain data: reading a config
//! builds neither an engine nor a sandbox.
//!
//! Each section's type has a method `wrong` (`check` for several sections) that finds an invalid value. The
//! crates that use the values document their meaning.
//!
//! ```
//! use allot_settings::OptimizerConfig;
//!
//! let config = OptimizerConfig { beta1: 1.0, ..OptimizerConfig::default() };
//! assert_eq!(config.wrong(), Some(("beta1", 1.0, "expected at least 0 and below 1")));
//! ```

pub mod address;
pub mod axis;
mod check;
pub mod coin;
pub mod component;
pub mod date;
pub mod device;
pub mod engine;
pub mod environment;
mod grader;
pub mod http;
pub mod hub;
pub mod lora;
pub mod loss;
pub mod optimizer;
mod pattern;
pub mod precision;
pub mod python;
pub mod reward;
pub mod rollouts;
pub mod sampling;
pub mod server;
pub mod service;
pub mod update;

pub use address::Wrong;
pub use axis::Axis;
pub use coin::CoinConfig;
pub use component::ComponentConfig;
pub use date::Date;
pub use device::DeviceName;
pub use engine::RemoteConfig;
pub use environment::{
    AnyEnvironment, CallFormat, ClassConfig, EnvironmentSettings, SidecarConfig, VerifiersConfig,
};
pub use grader::AnyGrader;
pub use http::HttpConfig;
pub use lora::LoraConfig;
pub use loss::{Bounds, LossConfig, LossKind};
pub use optimizer::{OptimizerConfig, Schedule};
pub use precision::Precision;
pub use python::PythonConfig;
pub use reward::RewardConfig;
pub use rollouts::RolloutsConfig;
pub use sampling::Sampling;
pub use server::Server;
pub use service::ServiceConfig;
pub use update::{Old, UpdateConfig};

/// Returns another program's output, shortened for use in a message.
pub fn words(bytes: &[u8]) -> String {
    allot_allocation::shown::word(String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]).trim(), 200)
}
