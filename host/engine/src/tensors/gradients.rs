//! Gradients of what is trained, as they add up over sequences: of all weights, or of adapters beside some of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use candle_core::{DType, Result, Tensor};

use super::adapted::{Adapter, Adapters};

/// Gradients by the names of what is trained, f32.
#[derive(Default)]
pub struct Gradients {
    of: BTreeMap<String, Tensor>,
    /// What is trained beside weights, and they are not.
    adapters: Option<Arc<Adapters>>,
}

impl Gradients {
    /// None yet, of these adapters or else of all weights.
    pub fn new(adapters: Option<Arc<Adapters>>) -> Self {
        Self { of: BTreeMap::new(), adapters }
    }

    /// All of them, by name.
    pub fn all(&self) -> &BTreeMap<String, Tensor> {
        &self.of
    }

    /// The same, to be kept.
    pub fn into_all(self) -> BTreeMap<String, Tensor> {
        self.of
    }

    /// Whether a weight is trained itself.
    pub fn wants(&self, _weight: &str) -> bool {
        self.adapters.is_none()
    }

    /// What is trained beside a weight.
    pub fn adapter(&self, weight: &str) -> Option<Adapter> {
        self.adapters.as_ref()?.of.get(weight).cloned()
    }

    /// Adds a weight's gradient to those that are there: to its own, or by the chain rule to those of what is trained
    /// beside it, from `W + s B A`: `dA = s Bᵀ dW`, `dB = s dW Aᵀ`. Where nothing of it is trained it is dropped.
    pub fn add(&mut self, weight: &str, gradient: &Tensor) -> Result<()> {
        // Detached: candle leaves to a variable's gradient all that it was made of, activations with it.
        let whole = gradient.detach().to_dtype(DType::F32)?;
        if self.wants(weight) {
            return self.renew(weight, |sum| match sum {
                Some(sum) => sum + whole,
                None => Ok(whole),
            });
        }
        let Some(adapter) = self.adapter(weight) else { return Ok(()) };
        let (a, b) = (adapter.a.as_detached_tensor(), adapter.b.as_detached_tensor());
        let whole = (whole * adapter.scale)?;
        let (da, db) = (b.t()?.matmul(&whole)?, whole.matmul(&a.t()?)?);
        for (name, more) in [(&adapter.names[0], da), (&adapter.names[1], db)] {
            self.renew(name, |sum| sum.map_or_else(|| Ok(more.clone()), |sum| sum + &more))?;
        }
        Ok(())
    }

    /// Takes a gradient out, to be put back with more in it.
    pub fn take(&mut self, name: &str) -> Option<Tensor> {
        self.of.remove(name)
    }

    /// Puts in a gradient's place what is made of it, or of nothing where none is there.
    pub fn renew(&mut self, name: &str, make: impl FnOnce(Option<Tensor>) -> Result<Tensor>) -> Result<()> {
        let sum = self.of.remove(name);
        self.of.insert(name.to_owned(), make(sum)?);
        Ok(())
    }
}
