//! Chooses the core for a device.

use candle_core::Device;

use crate::core::Core;
use crate::cpu::{Cpu, Setup};
use crate::model::{Checkpoint, ModelError};

/// Returns the core for a device, with these weights.
pub fn core(device: &Device, checkpoint: &Checkpoint, setup: Setup) -> Result<Box<dyn Core>, ModelError> {
    if device.is_cpu() {
        return Ok(Box::new(Cpu::new(checkpoint, setup)?));
    }
    in_tensors(device, checkpoint, setup)
}

#[cfg(feature = "cuda")]
fn in_tensors(device: &Device, checkpoint: &Checkpoint, setup: Setup) -> Result<Box<dyn Core>, ModelError> {
    Ok(Box::new(crate::tensors::Tensors::new(checkpoint, setup, device)?))
}

/// Fails: without CUDA no other device can be opened. Leaving out the tensor core makes the
/// program smaller by candle's matrix products and derivatives in all number formats.
#[cfg(not(feature = "cuda"))]
fn in_tensors(device: &Device, _: &Checkpoint, _: Setup) -> Result<Box<dyn Core>, ModelError> {
    let (reason, hint) = crate::tensors::no_cuda();
    Err(ModelError::Device { device: format!("{device:?}"), reason, hint })
}
