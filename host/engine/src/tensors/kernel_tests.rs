//! Every kernel held against its plain twin, without a GPU: by [`Emulated`], which runs the kernels' own
//! source. First each by itself, in shapes of models that are not here; then all of them together, as whole
//! samplings and as whole updates of the tiny models.

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

/// Shapes of heads: whether numbers are bfloat16, width, heads of queries, of keys and values.
const KINDS: [(bool, usize, usize, usize); 6] = [
    (false, 64, 14, 2),
    (true, 64, 9, 3),
    (false, 128, 4, 2),
    (false, 8, 3, 3),
    (false, 80, 18, 2),
    (false, 256, 10, 1),
];

/// Shapes that `attend` has tiles for, with 1, 3, 7 and 8 query heads for a head of keys and values.
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

/// Numbers of a machine's kind.
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

/// The largest difference, as a share of the largest number.
fn apart(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    let size = theirs.iter().fold(1e-6_f32, |m, x| m.max(x.abs()));
    // What is not a number is far from everything.
    ours.iter().zip(theirs).map(|(a, b)| (a - b).abs() / size).fold(0.0, |m, d| if d <= m { m } else { d })
}

/// Differences, shortly.
fn told(offs: &[f32]) -> String {
    offs.iter().map(|off| format!("{off:.1e}")).collect::<Vec<_>>().join(", ")
}

/// The checkpoints whose families the kernels compute.
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

/// The same, with adapters if there are any to train.
fn trained(folder: &Path, precision: Precision, lora: Option<LoraConfig>) -> Tensors {
    let mut checkpoint = Checkpoint::load(folder, &Device::Cpu).unwrap();
    // Kernels compute none: sequences within one are refused past it.
    checkpoint.shape.variant.window = None;
    let setup = Setup { precision, threads: 1, longest: 128, lora, reference: false, seed: 1 };
    Tensors::new(&checkpoint, setup, &Device::Cpu).unwrap()
}

/// A model that scores and learns by kernels.
fn fused(folder: &Path, precision: Precision) -> Option<Tensors> {
    by_kernels(model(folder, precision), precision)
}

/// The same model, which scores and learns by kernels.
fn by_kernels(mut model: Tensors, precision: Precision) -> Option<Tensors> {
    let kind = KernelConfig::of(&model.computed().shape, crate::model::dtype(precision)).unwrap();
    let machine = Emulated::new(kind, 1).unwrap()?;
    model.learning = Box::new(Kernels::new(Arc::new(machine), kind));
    Some(model)
}
