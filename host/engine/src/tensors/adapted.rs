//! Low-rank adapters on a device (Hu et al. 2021, LoRA): `W + (alpha / rank) · B A` with `W`
//! frozen, in the CPU core's layout and with PEFT's names. The model computes with the sums,
//! which every step refreshes. Only `A` and `B` have gradients.

use std::collections::BTreeMap;

use candle_core::{Device, Result, Tensor, Var};

use crate::cpu;
use crate::model::{Checkpoint, ModelResult};

/// The adapter of one weight, `[N, M]`.
#[derive(Clone)]
pub struct Adapter {
    /// `A`, `[rank, M]`, f32.
    pub a: Var,
    /// `B`, `[N, rank]`, f32.
    pub b: Var,
    /// Factor of their product.
    pub scale: f64,
    /// Names of `A` and `B`.
    pub names: [String; 2],
}

/// All adapters of a model.
pub struct Adapters {
    /// Adapters by the names of their weights.
    pub of: BTreeMap<String, Adapter>,
    /// All matrices by their own names, for the optimizer.
    pub vars: BTreeMap<String, Var>,
    /// The place of each matrix in one list of numbers.
    pub layout: cpu::Adapters,
}

impl Adapters {
    /// Returns adapters in a layout, with these numbers, on a device.
    pub fn new(layout: cpu::Adapters, numbers: &[f32], device: &Device) -> ModelResult<Self> {
        let (mut of, mut vars) = (BTreeMap::new(), BTreeMap::new());
        let all: Vec<(&str, Var)> = layout
            .tensors(numbers)
            .map(|(name, dims, numbers)| Ok((name, Var::from_slice(numbers, dims, device)?)))
            .collect::<Result<_>>()?;
        for pair in all.chunks_exact(2) {
            let [(a_name, a), (b_name, b)] = pair else { continue };
            let names = [(*a_name).to_owned(), (*b_name).to_owned()];
            let adapter = Adapter { a: a.clone(), b: b.clone(), scale: f64::from(layout.scale()), names };
            of.insert(cpu::Adapters::weight(a_name), adapter);
            vars.extend([((*a_name).to_owned(), a.clone()), ((*b_name).to_owned(), b.clone())]);
        }
        Ok(Self { of, vars, layout })
    }

    /// Writes the sums into a copy of the weights, in its number format. Other weights are unchanged.
    pub fn merge(&self, base: &Checkpoint, copy: &Checkpoint) -> Result<()> {
        for (name, adapter) in &self.of {
            let (a, b) = (adapter.a.as_detached_tensor(), adapter.b.as_detached_tensor());
            let sum = (base.weights[name].as_detached_tensor() + (b.matmul(&a)? * adapter.scale)?)?;
            let place = &copy.weights[name];
            place.set(&sum.to_dtype(place.dtype())?)?;
        }
        Ok(())
    }

    /// Returns tensors, given by matrix name, as one list on the host. Missing tensors are zero.
    pub fn flat(&self, tensors: &BTreeMap<String, Tensor>) -> Result<Vec<f32>> {
        let mut all = vec![0.0; self.layout.len()];
        for (name, place) in self.layout.places() {
            if let Some(tensor) = tensors.get(name) {
                all[place].copy_from_slice(&tensor.flatten_all()?.to_vec1::<f32>()?);
            }
        }
        Ok(all)
    }

    /// Returns all parameters, on the host.
    pub fn numbers(&self) -> Result<Vec<f32>> {
        let vars = self.vars.iter().map(|(name, var)| (name.clone(), var.as_detached_tensor()));
        self.flat(&vars.collect())
    }

    /// Sets all parameters.
    pub fn set(&self, numbers: &[f32], device: &Device) -> Result<()> {
        for (name, dims, numbers) in self.layout.tensors(numbers) {
            self.vars[name].set(&Tensor::from_slice(numbers, dims, device)?)?;
        }
        Ok(())
    }
}
