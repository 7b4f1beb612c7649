//! Which core a model has, by where it is.

use candle_core::Device;

use crate::core::Core;
use crate::cpu::{Cpu, Setup};
use crate::model::{Checkpoint, ModelError};
use crate::tensors::Tensors;

/// The core for a device, with these weights.
pub fn core(device: &Device, checkpoint: &Checkpoint, setup: Setup) -> Result<Box<dyn Core>, ModelError> {
    Ok(match device {
        Device::Cpu => Box::new(Cpu::new(checkpoint, setup)?),
        _ => Box::new(Tensors::new(checkpoint, setup, device)?),
    })
}
