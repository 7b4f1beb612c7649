//! Gradients of weights, as they add up over sequences.

use std::collections::BTreeMap;

use candle_core::{DType, Result, Tensor};

/// Gradients by the names of weights, f32.
pub type Gradients = BTreeMap<String, Tensor>;

/// Adds a gradient to those that are there.
pub fn add(gradients: &mut Gradients, name: &str, gradient: &Tensor) -> Result<()> {
    // Detached: candle leaves to a variable's gradient all that it was made of, activations with it.
    let gradient = gradient.detach().to_dtype(DType::F32)?;
    renew(gradients, name, |sum| match sum {
        Some(sum) => sum + gradient,
        None => Ok(gradient),
    })
}

/// Puts in a gradient's place what is made of it, or of nothing where none is there.
pub fn renew(
    gradients: &mut Gradients,
    name: &str,
    make: impl FnOnce(Option<Tensor>) -> Result<Tensor>,
) -> Result<()> {
    let sum = gradients.remove(name);
    gradients.insert(name.to_owned(), make(sum)?);
    Ok(())
}
