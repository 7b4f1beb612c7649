//! Tests every kernel against its reference, without a GPU, by [`Emulated`], which runs the
//! kernels' own source. First each kernel alone, in shapes of models that are not in this
//! repository; then all of them together, as whole samplings and whole updates of the tiny models.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod blocks;
mod samplings;
mod steps;
mod updates;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_allocation::seed::Stream;
use candle_core::{DType, Device, Tensor};

use super::Tensors;
use super::emulated::Emulated;
use super::kernels::Kernels;
use super::machine::{DeviceBuffer, KERNELS, KernelConfig, Machine as _, SOURCES};
use crate::cpu::{LoraConfig, Setup};
use crate::model::{Checkpoint, Precision};

/// Head shapes: whether numbers are bfloat16, width, query heads, key and value heads.
const KINDS: [(bool, usize, usize, usize); 6] = [
    (false, 64, 14, 2),
    (true, 64, 9, 3),
    (false, 128, 4, 2),
    (false, 8, 3, 3),
    (false, 80, 18, 2),
    (false, 256, 10, 1),
];

/// Shapes whose whole sequences go through `flash.cu`: 1, 2 and 3 query heads for a key and value head.
const FLASH: [(bool, usize, usize, usize); 3] = [(true, 64, 4, 2), (true, 128, 3, 1), (true, 128, 2, 2)];

/// Shapes with tiles in `attend`: 1, 3, 7, 8 and 16 query heads for a key and value head.
const TILED: [(bool, usize, usize, usize); 8] = [
    (true, 64, 2, 2),
    (true, 64, 14, 2),
    (true, 64, 32, 2),
    (true, 128, 2, 2),
    (true, 128, 3, 1),
    (true, 128, 14, 2),
    (true, 128, 8, 1),
    (true, 256, 8, 1),
];

#[test]
fn every_kernel_has_its_name() {
    let kernels = SOURCES.concat();
    assert_eq!(kernels.matches("extern \"C\" __global__").count(), KERNELS.len());
    assert!(KERNELS.iter().all(|name| kernels.contains(&format!(" {name}("))));
}

/// A block may have 99 KiB on every GPU from compute capability 8.0 on, and a kind without these kernels asks for nothing.
#[test]
fn tiles_fit_into_shared_memory() {
    for (bf16, head) in
        [(true, 64), (true, 128), (true, 256), (true, 80), (false, 64), (false, 128), (false, 256)]
    {
        let kind = KernelConfig { bf16, head, heads: 4, kv_heads: 2 };
        assert_eq!(kind.flash(), bf16 && head != 80 && head != 256);
        let most = KERNELS.iter().map(|kernel| kind.flash_shared(kernel)).max().unwrap();
        assert!(most <= 99 << 10 && (most > 0) == kind.flash(), "{kind:?}: {most}");
    }
}

fn any(stream: &mut Stream, dims: &[usize], scale: f64) -> Tensor {
    let count: usize = dims.iter().product();
    let numbers: Vec<f32> = (0..count).map(|_| ((stream.unit() * 2.0 - 1.0) * scale) as f32).collect();
    Tensor::from_vec(numbers, dims, &Device::Cpu).unwrap()
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn bytes<const N: usize>(numbers: impl Iterator<Item = [u8; N]>) -> Vec<u8> {
    numbers.flatten().collect()
}

/// Returns numbers in the machine's format.
fn numbers(machine: &Emulated, kind: KernelConfig, buffer: &DeviceBuffer, count: usize) -> Vec<f32> {
    let read = machine.read(buffer, count * kind.size()).unwrap();
    if kind.bf16 {
        read.chunks_exact(2)
            .map(|b| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16))
            .collect()
    } else {
        words(&read).into_iter().map(f32::from_bits).collect()
    }
}

fn written(machine: &Emulated, bytes: &[u8]) -> DeviceBuffer {
    let buffer = machine.buffer(bytes.len()).unwrap();
    machine.write(&buffer, bytes).unwrap();
    buffer
}

fn dtype(kind: KernelConfig) -> DType {
    if kind.bf16 { DType::BF16 } else { DType::F32 }
}

/// Returns the largest difference, relative to the largest number.
fn apart(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    let size = theirs.iter().fold(1e-6_f32, |m, x| m.max(x.abs()));
    // NaN counts as far from everything.
    ours.iter().zip(theirs).map(|(a, b)| (a - b).abs() / size).fold(0.0, |m, d| if d <= m { m } else { d })
}

/// Formats differences.
fn told(offs: &[f32]) -> String {
    offs.iter().map(|off| format!("{off:.1e}")).collect::<Vec<_>>().join(", ")
}

/// Returns the checkpoints whose families the kernels compute.
fn folders() -> Vec<PathBuf> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/models");
    let mut all: Vec<PathBuf> = std::fs::read_dir(models).unwrap().map(|e| e.unwrap().path()).collect();
    let computed = |folder: &PathBuf| {
        folder.is_dir() && Checkpoint::load(folder, &Device::Cpu).unwrap().shape.has_kernels().is_ok()
    };
    all.retain(computed);
    all.sort();
    assert!(all.len() > 7, "{all:?}");
    all
}

fn model(folder: &Path, precision: Precision) -> Tensors {
    trained(folder, precision, None)
}

/// Returns a model, with adapters to train if `lora` is given.
fn trained(folder: &Path, precision: Precision, lora: Option<LoraConfig>) -> Tensors {
    let mut checkpoint = Checkpoint::load(folder, &Device::Cpu).unwrap();
    // Kernels compute no windows: sequences longer than a window are refused.
    checkpoint.shape.variant.window = None;
    let setup = Setup { precision, threads: 1, longest: 128, lora, reference: false, seed: 1 };
    Tensors::new(&checkpoint, setup, &Device::Cpu).unwrap()
}

/// Returns a model that scores and learns by kernels.
fn fused(folder: &Path, precision: Precision) -> Option<Tensors> {
    by_kernels(model(folder, precision), precision)
}

/// Makes a model score and learn by kernels.
fn by_kernels(mut model: Tensors, precision: Precision) -> Option<Tensors> {
    let kind = KernelConfig::of(&model.computed().shape, crate::model::dtype(precision)).unwrap();
    let machine = Emulated::new(kind, 1).unwrap()?;
    model.learning = Box::new(Kernels::new(Arc::new(machine), kind));
    Some(model)
}
