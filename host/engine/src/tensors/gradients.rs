//! Gradients of trained parameters, summed over sequences: of all weights, or of adapters of some.

use std::collections::BTreeMap;
use std::sync::Arc;

use candle_core::{DType, Result, Tensor};

use super::adapted::{Adapter, Adapters};

/// Gradients by parameter name, f32.
#[derive(Default)]
pub struct Gradients {
    of: BTreeMap<String, Tensor>,
    /// The adapters, if they are trained instead of the weights.
    adapters: Option<Arc<Adapters>>,
}

impl Gradients {
    /// Returns empty gradients, for these adapters or else for all weights.
    pub fn new(adapters: Option<Arc<Adapters>>) -> Self {
        Self { of: BTreeMap::new(), adapters }
    }

    /// Returns all gradients by name.
    pub fn all(&self) -> &BTreeMap<String, Tensor> {
        &self.of
    }

    /// Returns all gradients by name, owned.
    pub fn into_all(self) -> BTreeMap<String, Tensor> {
        self.of
    }

    /// Returns whether the weights themselves are trained.
    pub fn wants(&self, _weight: &str) -> bool {
        self.adapters.is_none()
    }

    /// Returns a weight's adapter, if it has one.
    pub fn adapter(&self, weight: &str) -> Option<Adapter> {
        self.adapters.as_ref()?.of.get(weight).cloned()
    }

    /// Adds a weight's gradient: to its own, or by the chain rule to those of its adapter, from
    /// `W + s B A`: `dA = s Bᵀ dW`, `dB = s dW Aᵀ`. Drops it if neither is trained.
    pub fn add(&mut self, weight: &str, gradient: &Tensor) -> Result<()> {
        // Detached: candle keeps a gradient's whole graph alive, including activations.
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

    /// Removes and returns a gradient, to be added to and put back.
    pub fn take(&mut self, name: &str) -> Option<Tensor> {
        self.of.remove(name)
    }

    /// Replaces a gradient by the result of `make`, which gets the old one or `None`.
    pub fn renew(&mut self, name: &str, make: impl FnOnce(Option<Tensor>) -> Result<Tensor>) -> Result<()> {
        let sum = self.of.remove(name);
        self.of.insert(name.to_owned(), make(sum)?);
        Ok(())
    }
}
