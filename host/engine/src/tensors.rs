//! The second core: the model in candle's tensors, on any device that candle supports.
//!
//! Weights and optimizer moments are float32. The model computes with a copy of the matrices in a chosen
//! number format, which every step refreshes. The blocks are defined once, in [`crate::model::Decoder`],
//! and candle differentiates them. They consist of candle's operations or of this crate's kernels. With
//! adapters, the weights stay unchanged and the copy has the adapters merged.

mod adamw;
mod adapted;
mod batch;
#[cfg(feature = "cuda")]
mod cuda;
mod decode;
mod device;
#[cfg(test)]
mod emulated;
#[cfg(any(feature = "cuda", test))]
mod fused;
mod gradients;
mod head;
#[cfg(test)]
mod kernel_tests;
#[cfg(any(feature = "cuda", test))]
mod kernels;
mod learning;
#[cfg(any(feature = "cuda", test))]
mod machine;
mod memory;
mod pass;
mod plain;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::iter::zip;
use std::path::Path;
use std::sync::Arc;

use candle_core::{DType, Device, Tensor, Var};

#[cfg(not(feature = "cuda"))]
pub(crate) use device::no_cuda;
pub use device::{DeviceName, open};
pub use memory::memory;

use crate::core::{Answered, Core, Loss, PassOptions, Request, Sequence, TokenStatistics};
use crate::cpu::{self, Arena, Setup, read_adapters, read_moments, write_adapters, write_moments};
#[cfg(feature = "cuda")]
use crate::model::Shape;
use crate::model::{By, Checkpoint, ModelError, Precision};
use crate::{Interrupt, OptimizerConfig, Stops, optimizer};
use adamw::Moments;
use adapted::Adapters;
use batch::{Batch, batches};
#[cfg(feature = "cuda")]
use cuda::Cuda;
use decode::{Decode, Extent};
#[cfg(feature = "cuda")]
use fused::Fused;
use gradients::Gradients;
#[cfg(feature = "cuda")]
use kernels::Kernels;
use learning::{Candle, Learning};
#[cfg(feature = "cuda")]
use machine::KernelConfig;
use pass::Pass;
use plain::Plain;

/// A model on a device, with its training state.
pub struct Tensors {
    arena: Arena,
    device: Device,
    /// The f32 weights: trained, or frozen beside adapters.
    masters: Checkpoint,
    /// The adapters, if they are trained.
    adapters: Option<Arc<Adapters>>,
    /// The copy to compute with, unless that is the masters themselves. Adapters are merged into it.
    copy: Option<Checkpoint>,
    /// The initial weights, for a KL penalty. `None` if the masters are still the initial weights.
    reference: Option<Checkpoint>,
    /// Accumulated gradients; `None` directly after a step.
    gradients: Option<Gradients>,
    moments: Moments,
    /// Scores, learns and reads prompts.
    learning: Box<dyn Learning>,
    /// The GPU of the model and its kernels; without them, candle's operations sample.
    #[cfg(feature = "cuda")]
    cuda: Option<(Arc<Cuda>, KernelConfig)>,
}

impl Tensors {
    /// Returns a model with these weights on a device, computing in the setup's number format.
    pub fn new(checkpoint: &Checkpoint, setup: Setup, device: &Device) -> Result<Self, ModelError> {
        let precision = setup.precision;
        #[cfg(feature = "cuda")]
        let cuda = cuda(&checkpoint.shape, device, crate::model::dtype(precision))?;
        #[cfg(feature = "cuda")]
        let by = if cuda.is_some() { By::Kernels } else { By::Cpu };
        #[cfg(not(feature = "cuda"))]
        let by = By::Cpu;
        checkpoint.shape.fits(setup.longest, by)?;
        let masters = mapped(checkpoint, |weight| weight.to_device(device))?;
        let kind = crate::model::dtype(precision);
        let fresh = || mapped(&masters, |weight| computing(weight, kind));
        let arena = Arena::new(&checkpoint.shape);
        let adapters = setup.lora.map(|config| {
            let layout = cpu::Adapters::new(&arena, config);
            let numbers = layout.fresh(setup.seed);
            Ok::<_, ModelError>(Arc::new(Adapters::new(layout, &numbers, device)?))
        });
        let adapters = adapters.transpose()?;
        let copy = (precision != Precision::F32 || adapters.is_some()).then(fresh).transpose()?;
        // With adapters in f32 the masters stay the initial weights.
        let apart = precision != Precision::F32 || adapters.is_none();
        let reference = (setup.reference && apart).then(fresh).transpose()?;
        #[cfg(feature = "cuda")]
        let learning: Box<dyn Learning> = match &cuda {
            Some((cuda, kind)) => Box::new(Kernels::new(Arc::clone(cuda) as _, *kind)),
            None => Box::new(Candle),
        };
        #[cfg(not(feature = "cuda"))]
        let learning = Box::new(Candle);
        Ok(Self {
            learning,
            #[cfg(feature = "cuda")]
            cuda,
            arena,
            adapters,
            device: device.clone(),
            copy,
            reference,
            masters,
            gradients: None,
            moments: Moments::default(),
        })
    }

    /// Returns the sequences with these indices as a batch on the device.
    fn batch(&self, sequences: &[Sequence<'_>], numbers: Vec<usize>) -> Result<Batch, ModelError> {
        let vocabulary = self.arena.shape.vocabulary;
        Batch::new(self.learning.even(), sequences, numbers, vocabulary, &self.device)
    }

    /// The adapters' layout, if adapters are trained.
    #[cfg(test)]
    fn layout(&self) -> Option<&cpu::Adapters> {
        self.adapters.as_deref().map(|adapters| &adapters.layout)
    }

    /// The weights to compute with.
    fn computed(&self) -> &Checkpoint {
        self.copy.as_ref().unwrap_or(&self.masters)
    }

    /// Refreshes the copy from the masters and adapters.
    fn refresh(&self) -> Result<(), ModelError> {
        if let (Some(copy), Some(adapters)) = (&self.copy, &self.adapters) {
            adapters.merge(&self.masters, copy)?;
        } else if let Some(copy) = &self.copy {
            for (name, weight) in &copy.weights {
                weight.set(&self.masters.weights[name].as_detached_tensor().to_dtype(weight.dtype())?)?;
            }
        }
        Ok(())
    }

    /// Returns tensors, given by weight name, as one flat list on the host.
    fn flat<'t>(
        &self,
        tensors: impl Iterator<Item = (&'t String, &'t Tensor)>,
    ) -> Result<Vec<f32>, ModelError> {
        let numbers = |(name, tensor): (&'t String, &Tensor)| {
            Ok::<_, ModelError>((name.as_str(), tensor.flatten_all()?.to_vec1::<f32>()?))
        };
        self.arena.fill(tensors.map(numbers).collect::<Result<Vec<_>, _>>()?.into_iter())
    }
}

impl Core for Tensors {
    fn arena(&self) -> &Arena {
        &self.arena
    }

    fn adapted(&self) -> bool {
        self.adapters.is_some()
    }

    fn sample(
        &self,
        requests: &[Request<'_>],
        stops: &Stops,
        rows: usize,
        whole: &mut dyn FnMut(usize, Answered),
        interrupt: &Interrupt,
    ) -> Result<(), ModelError> {
        if requests.iter().any(|request| !request.history.is_empty()) {
            // What an episode has so far is read as one prompt.
            let so_far: Vec<Vec<u32>> = requests.iter().map(|r| [r.prompt, r.history].concat()).collect();
            let requests = requests.iter().zip(&so_far);
            let requests: Vec<Request<'_>> =
                requests.map(|(r, prompt)| Request { prompt, history: &[], ..*r }).collect();
            return self.sample(&requests, stops, rows, whole, interrupt);
        }
        let weights = self.computed();
        let decode = Decode { weights, learning: &*self.learning, interrupt };
        let extent = Extent::of(requests, rows);
        if requests.is_empty() {
            return Ok(());
        }
        #[cfg(feature = "cuda")]
        if let Some((cuda, kind)) = &self.cuda {
            let mut steps = Fused::new(&**cuda, *kind, weights, stops, extent, fused::STRIDE)?;
            return decode.run(requests, extent.slots, &mut steps, whole);
        }
        decode.run(requests, extent.slots, &mut Plain::new(weights, stops, extent)?, whole)
    }

    fn score(
        &mut self,
        sequences: &[Sequence<'_>],
        options: PassOptions,
        reference: bool,
    ) -> Result<Vec<Vec<TokenStatistics>>, ModelError> {
        let frozen = self.reference.as_ref().or_else(|| self.adapters.is_some().then_some(&self.masters));
        let weights = frozen.filter(|_| reference).unwrap_or(self.computed());
        let mut all = vec![Vec::new(); sequences.len()];
        for numbers in batches(sequences) {
            let batch = self.batch(sequences, numbers)?;
            let mut statistics = Pass::new(&*self.learning, weights, &batch, options)?.score()?.into_iter();
            for i in &batch.numbers {
                all[*i] = statistics.by_ref().take(sequences[*i].answer()).collect();
            }
        }
        Ok(all)
    }

    fn learn(
        &mut self,
        sequences: &[Sequence<'_>],
        options: PassOptions,
        loss: &Loss<'_>,
    ) -> Result<(), ModelError> {
        let mut gradients = self.gradients.take().unwrap_or_else(|| Gradients::new(self.adapters.clone()));
        for numbers in batches(sequences) {
            let answers: Vec<usize> = numbers.iter().map(|i| sequences[*i].answer()).collect();
            let batch = self.batch(sequences, numbers)?;
            let pass = Pass::new(&*self.learning, self.computed(), &batch, options)?;
            pass.learn(&answers, loss, &mut gradients)?;
        }
        self.gradients = Some(gradients);
        Ok(())
    }

    fn forget(&mut self) {
        self.gradients = None;
    }

    fn step(&mut self, config: &OptimizerConfig, rate: f64) -> Result<f64, ModelError> {
        let Some(gradients) = self.gradients.take() else { return Ok(0.0) };
        let (learning, gradients) = (&*self.learning, gradients.into_all());
        let Some(adapters) = &self.adapters else {
            let copies = self.copy.as_ref().map(|copy| &copy.weights);
            return Ok(self.moments.step(
                learning,
                &self.masters.weights,
                copies,
                gradients,
                (config, rate),
            )?);
        };
        let norm = self.moments.step(learning, &adapters.vars, None, gradients, (config, rate))?;
        self.refresh()?;
        Ok(norm)
    }

    fn wait(&self) -> Result<(), ModelError> {
        Ok(self.device.synchronize()?)
    }

    fn steps(&self) -> u32 {
        self.moments.steps
    }

    fn finite(&self) -> Result<bool, ModelError> {
        // A sum of squares is finite only if all parameters are.
        let trained = self.adapters.as_ref().map_or(&self.masters.weights, |adapters| &adapters.vars);
        let all: Vec<&Tensor> = trained.values().map(Var::as_tensor).collect();
        Ok(self.learning.squares(&all)?.is_finite())
    }

    fn weights(&self) -> Result<Cow<'_, [f32]>, ModelError> {
        let weights = self.masters.weights.iter().map(|(name, weight)| (name, weight.as_tensor()));
        Ok(Cow::Owned(self.flat(weights)?))
    }

    fn gathered(&self) -> Result<Vec<f32>, ModelError> {
        let none = BTreeMap::new();
        let gradients = self.gradients.as_ref().map_or(&none, Gradients::all);
        match &self.adapters {
            Some(adapters) => Ok(adapters.flat(gradients)?),
            None if gradients.is_empty() => Ok(vec![0.0; self.arena.len]),
            None => self.flat(gradients.iter()),
        }
    }

    fn checkpoint(&self) -> Result<Checkpoint, ModelError> {
        let Some(adapters) = &self.adapters else {
            return mapped(&self.masters, |weight| weight.to_device(&Device::Cpu));
        };
        // Merged in the same way as by the CPU core.
        let mut merged = self.weights()?.into_owned();
        adapters.layout.merge(&adapters.numbers()?, &self.arena, &mut merged);
        let mut weights = BTreeMap::new();
        for (name, dims, numbers) in self.arena.tensors(&merged) {
            weights.insert(name.to_owned(), Var::from_slice(numbers, dims, &Device::Cpu)?);
        }
        Ok(Checkpoint { shape: self.arena.shape.clone(), weights })
    }

    fn save_training(&self, folder: &Path) -> Result<(), ModelError> {
        let mut moments = optimizer::Moments { steps: self.moments.steps, ..optimizer::Moments::default() };
        let of = &self.moments.of;
        if let Some(adapters) = &self.adapters {
            if !of.is_empty() {
                let by = |one: fn(&(Tensor, Tensor)) -> &Tensor| {
                    of.iter().map(|(name, both)| (name.clone(), one(both).clone())).collect()
                };
                moments.means = adapters.flat(&by(|(mean, _)| mean))?;
                moments.squares = adapters.flat(&by(|(_, square)| square))?;
            }
            write_adapters(folder, &adapters.layout, &adapters.numbers()?)?;
        } else if !of.is_empty() {
            moments.means = self.flat(of.iter().map(|(name, (mean, _))| (name, mean)))?;
            moments.squares = self.flat(of.iter().map(|(name, (_, square))| (name, square)))?;
        }
        write_moments(folder, &moments)
    }

    fn load_training(&mut self, folder: &Path, model: &Path, steps: u32) -> Result<(), ModelError> {
        let device = &self.device;
        let stored = if let Some(adapters) = &self.adapters {
            let stored = read_moments(folder, steps, adapters.layout.len())?;
            adapters.set(&read_adapters(folder, &adapters.layout)?, device)?;
            stored
        } else {
            let loaded = Checkpoint::load(model, device)?;
            let stored = read_moments(folder, steps, self.arena.len)?;
            for (name, weight) in &self.masters.weights {
                let new = loaded.weights.get(name).ok_or_else(|| ModelError::Missing(name.clone()))?;
                weight.set(new.as_tensor())?;
            }
            stored
        };
        let moments = |numbers| -> Vec<(&str, &[usize], &[f32])> {
            match &self.adapters {
                _ if steps == 0 => Vec::new(),
                Some(adapters) => adapters.layout.tensors(numbers).collect(),
                None => self.arena.tensors(numbers).collect(),
            }
        };
        let mut of = BTreeMap::new();
        for ((name, dims, mean), (_, _, square)) in zip(moments(&stored.means), moments(&stored.squares)) {
            let tensor = |numbers: &[f32]| Tensor::from_slice(numbers, dims, device);
            of.insert(name.to_owned(), (tensor(mean)?, tensor(square)?));
        }
        self.refresh()?;
        self.moments = Moments { steps, of };
        self.gradients = None;
        Ok(())
    }
}

/// Returns the GPU with its kernels. `ALLOT_CUDA` selects a mode for measurements: `graphs`
/// (the default) records each sampling step as a CUDA graph; `launches` does not; `plain` uses
/// only candle's operations, also for scoring and learning.
#[cfg(feature = "cuda")]
fn cuda(
    shape: &Shape,
    device: &Device,
    numbers: DType,
) -> Result<Option<(Arc<Cuda>, KernelConfig)>, ModelError> {
    let how = std::env::var("ALLOT_CUDA").unwrap_or_else(|_| "graphs".to_owned());
    let refused = |reason, hint| ModelError::Device { device: "cuda".to_owned(), reason, hint };
    let graphs = match how.as_str() {
        "graphs" => true,
        "launches" => false,
        "plain" => return Ok(None),
        _ => {
            let reason = format!("`ALLOT_CUDA` is `{how}`");
            return Err(refused(reason, "it is `graphs`, `launches` or `plain`"));
        }
    };
    if !device.is_cuda() {
        return Ok(None);
    }
    let hint = "set the device to \"cpu\"";
    let kind = KernelConfig::of(shape, numbers).map_err(|reason| refused(reason, hint))?;
    let cuda = device::quietly(|| Cuda::new(device, kind, graphs));
    let cuda = cuda.map_err(|(reason, hint)| refused(reason, hint))?;
    Ok(Some((Arc::new(cuda), kind)))
}

/// Returns a weight as the model computes with it. Norms and biases stay float32: they are
/// small, and their gradients are sums over all tokens.
fn computing(weight: &Tensor, kind: DType) -> candle_core::Result<Tensor> {
    weight.to_dtype(if weight.rank() == 1 { DType::F32 } else { kind })
}

/// Returns the same model with converted weights, which share no variables with the given ones.
fn mapped(
    checkpoint: &Checkpoint,
    other: impl Fn(&Tensor) -> candle_core::Result<Tensor>,
) -> Result<Checkpoint, ModelError> {
    let mut weights = BTreeMap::new();
    for (name, weight) in &checkpoint.weights {
        let tensor = other(&weight.as_detached_tensor())?;
        // A new variable: candle copies any tensor that is not itself a variable.
        weights.insert(name.clone(), Var::from_tensor(&tensor.detach())?);
    }
    Ok(Checkpoint { shape: checkpoint.shape.clone(), weights })
}
