//! Gradients of weights, as they add up over sequences.

use std::collections::BTreeMap;

use candle_core::{DType, Result, Tensor};

/// Gradients by the names of weights, f32.
pub type Gradients = BTreeMap<String, Tensor>;

/// Adds a gradient to those that are there.
pub fn add(gradients: &mut Gradients, name: &str, gradient: &Tensor) -> Result<()> {
    // Detached: candle leaves to a variable's gradient all that it was made of, activations with it.
    let gradient = gradient.detach().to_dtype(DType::F32)?;
    let sum = match gradients.remove(name) {
        Some(sum) => (sum + gradient)?,
        None => gradient,
    };
    gradients.insert(name.to_owned(), sum);
    Ok(())
}
