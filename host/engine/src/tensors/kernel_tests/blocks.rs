//! Blocks forward and backward, in shapes of models that are not in this repository: outputs
//! and every gradient against candle's; also the head's statistics and the optimizer's step.

use std::sync::Arc;

use allot_allocation::seed::Stream;
use candle_core::{DType, Device, Tensor, Var};

use super::{FLASH, KINDS, any, apart, dtype, floats, told};
use crate::model::{Checkpoint, Decoder, Family, Rope, Shape, Variant};
use crate::tensors::emulated::Emulated;
use crate::tensors::gradients::Gradients;
use crate::tensors::kernels::Kernels;
use crate::tensors::learning::{Candle, Learning, PassTokens, Rates, Slopes, Trained};
use crate::tensors::machine::KernelConfig;

fn kernels((bf16, head, heads, kv_heads): (bool, usize, usize, usize)) -> Option<(KernelConfig, Kernels)> {
    let kind = KernelConfig { bf16, head, heads, kv_heads };
    let machine = Emulated::new(kind, 1).unwrap()?;
    Some((kind, Kernels::new(Arc::new(machine), kind)))
}

/// Returns two blocks of a family with heads of a kind; tests use the second. The other widths
/// do not match the kernels' block sizes.
fn blocks(family: &'static Family, kind: KernelConfig, seed: u64) -> (Checkpoint, Checkpoint) {
    let shape = Shape {
        family,
        vocabulary: 16,
        hidden: 264,
        intermediate: 1048,
        layers: 2,
        heads: kind.heads,
        kv_heads: kind.kv_heads,
        head: kind.head,
        epsilon: 1e-5,
        rope: Rope::plain(100.0),
        tied: true,
        context: 512,
        variant: Variant::default(),
    };
    let stream = &mut Stream::new(seed);
    let mut of = |(name, dims): (String, Vec<usize>)| {
        let scale = if dims.len() == 1 { 1.0 } else { 1.5 / (dims[1] as f64).sqrt() };
        (name, any(stream, &dims, scale))
    };
    let weights: Vec<(String, Tensor)> = shape.tensors().into_iter().map(&mut of).collect();
    // The reference computes in float32, with the same numbers.
    let as_kind = |x: &Tensor| x.to_dtype(if x.rank() == 1 { DType::F32 } else { dtype(kind) }).unwrap();
    let of = |same: bool| {
        let one = |(name, x): &(String, Tensor)| {
            let x = as_kind(x);
            let x = if same { x } else { x.to_dtype(DType::F32).unwrap() };
            (name.clone(), Var::from_tensor(&x).unwrap())
        };
        Checkpoint { shape: shape.clone(), weights: weights.iter().map(one).collect() }
    };
    (of(true), of(false))
}

/// Runs the second block forward and backward, twice, so that gradients add up. Returns the
/// output, keys, values, the gradient of the input, and that of each weight.
fn there_and_back(
    learning: &dyn Learning,
    checkpoint: &Checkpoint,
    x_btd: &Tensor,
    slope: &Tensor,
) -> Vec<(String, Vec<f32>)> {
    let (tokens, device) = (x_btd.dim(1).unwrap(), &Device::Cpu);
    let positions = Tensor::arange(3, 3 + tokens as u32, device).unwrap().unsqueeze(0).unwrap();
    let rope = Decoder::frozen(checkpoint).rope(&positions).unwrap();
    let way = PassTokens { rope, ahead: learning.ahead(tokens, None, device).unwrap(), near: None };
    let mut gradients = Gradients::default();
    let mut all = Vec::new();
    for (n, x_btd) in [x_btd.clone(), (x_btd * 0.5).unwrap()].iter().enumerate() {
        let made = learning.block(checkpoint, 1, x_btd, &way, true).unwrap();
        let again = learning.block(checkpoint, 1, x_btd, &way, false).unwrap();
        assert!(again.back.is_none() && floats(&again.stream) == floats(&made.stream));
        let dx = made.back.unwrap().back(slope, &mut gradients).unwrap();
        let numbers =
            [("stream", &made.stream), ("keys", &made.cache.0), ("values", &made.cache.1), ("back", &dx)];
        all.extend(numbers.map(|(what, x)| (format!("{what} {n}"), floats(x))));
    }
    assert!(gradients.all().values().all(|g| g.dtype() == DType::F32));
    all.extend(gradients.all().iter().map(|(name, g)| (name.clone(), floats(g))));
    all
}

#[test]
fn a_block_is_candle_s_with_every_gradient() {
    for shape in KINDS.into_iter().chain(FLASH) {
        let Some((kind, kernels)) = kernels(shape) else { return };
        for (family, tokens) in [(Family::LLAMA, 8), (Family::QWEN2, 40), (Family::QWEN3, 264)] {
            // Long sequences only where they are fast.
            let tokens = if kind.heads * kind.head > 512 { tokens.min(40) } else { tokens };
            // Three tiles, the last of which is cut.
            let tokens = if kind.flash() { tokens.min(136) } else { tokens };
            let (ours, exact) = blocks(family, kind, shape.1 as u64);
            let stream = &mut Stream::new(tokens as u64);
            let [x, slope] = [2.0, 1.0].map(|scale| any(stream, &[2, tokens, 264], scale));
            let [x, slope] = [x, slope].map(|x| x.to_dtype(dtype(kind)).unwrap());
            let [wide_x, wide_slope] = [&x, &slope].map(|x| x.to_dtype(DType::F32).unwrap());
            let by_kernels = there_and_back(&kernels, &ours, &x, &slope);
            let by_candle = there_and_back(&Candle, &exact, &wide_x, &wide_slope);
            let more = match family.name {
                "qwen2" => 3,
                "qwen3" => 2,
                _ => 0,
            };
            assert_eq!(by_kernels.len(), 8 + 9 + more);
            let mut worst = (0.0, "");
            for ((name, ours), (twin, theirs)) in by_kernels.iter().zip(&by_candle) {
                assert_eq!(name, twin);
                let off = apart(ours, theirs);
                worst = if off > worst.0 { (off, name.as_str()) } else { worst };
            }
            println!("{}, {tokens} tokens, {kind:?}: {:.1e} {}", family.name, worst.0, worst.1);
            assert!(worst.0 < if kind.bf16 { 0.04 } else { 1e-5 }, "{} {kind:?}: {worst:?}", family.name);
            assert!(there_and_back(&kernels, &ours, &x, &slope) == by_kernels, "the same again, to the bit");
        }
    }
}

#[test]
fn thoughts_and_their_slopes_are_candle_s() {
    for shape in [KINDS[0], KINDS[1]] {
        let Some((kind, kernels)) = kernels(shape) else { return };
        let rows = 7;
        for (vocabulary, temperature) in [(8, 1.0), (250, 0.7), (1337, 1.3), (9000, 1.0)] {
            let stream = &mut Stream::new(vocabulary as u64);
            let logits = any(stream, &[rows, vocabulary], 12.0).to_dtype(dtype(kind)).unwrap();
            let targets: Vec<u32> = (0..rows).map(|_| stream.below(vocabulary) as u32).collect();
            let targets = Tensor::from_vec(targets, rows, &Device::Cpu).unwrap();
            let slopes = Slopes { log_probs: any(stream, &[rows], 2.0), entropies: None };
            let more = Slopes { entropies: Some(any(stream, &[rows], 0.5)), ..slopes.clone() };
            let exact = logits.to_dtype(DType::F32).unwrap();
            let run = |learning: &dyn Learning, logits: &Tensor| {
                let statistics = learning.logprob_entropy(logits, &targets, temperature).unwrap();
                let back = |slopes: &Slopes| {
                    let logits = logits.copy().unwrap();
                    let back = learning.dlogits(logits, &targets, &statistics, slopes, temperature).unwrap();
                    assert_eq!(back.dims(), [rows, vocabulary]);
                    floats(&back)
                };
                (floats(&statistics), back(&slopes), back(&more))
            };
            let (ours, theirs) = (run(&kernels, &logits), run(&Candle, &exact));
            let statistics = ours.0.iter().zip(&theirs.0).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(ours.1 != ours.2 && theirs.1 != theirs.2);
            let slopes = apart(&ours.1, &theirs.1).max(apart(&ours.2, &theirs.2));
            println!("{vocabulary} tokens, {kind:?}: {statistics:.1e}, slopes {slopes:.1e}");
            assert!(
                statistics < 1e-5 && slopes < if kind.bf16 { 4e-3 } else { 2e-6 },
                "{statistics:e} {slopes:e}"
            );
        }
    }
}

#[test]
fn steps_of_the_optimizer_are_candle_s() {
    let Some((_, kernels)) = kernels(KINDS[1]) else { return };
    let stream = &mut Stream::new(5);
    let dims = [vec![70_001], vec![40, 24], vec![3]];
    let begun: Vec<Tensor> = dims.iter().map(|dims| any(stream, dims, 1.0)).collect();
    let gradients: Vec<Vec<Tensor>> =
        (0..3).map(|_| dims.iter().map(|dims| any(stream, dims, 0.1)).collect()).collect();
    for gradients in &gradients {
        let all: Vec<&Tensor> = gradients.iter().collect();
        let (ours, theirs) = (kernels.squares(&all).unwrap(), Candle.squares(&all).unwrap());
        assert!((ours - theirs).abs() < 1e-6 * theirs, "{ours} {theirs}");
    }
    assert_eq!(kernels.squares(&[]).unwrap(), 0.0);

    // The first weight has a float32 copy, the second a bfloat16 one, the third none. One step of
    // one weight has no gradient.
    let run = |learning: &dyn Learning| {
        let mut all = Vec::new();
        for (i, begun) in begun.iter().enumerate() {
            let master = Var::from_tensor(begun).unwrap();
            let copy = [Some(DType::F32), Some(DType::BF16), None][i];
            let copy =
                copy.map(|kind| Var::from_tensor(&begun.to_dtype(kind).unwrap().copy().unwrap()).unwrap());
            let mut moments = (begun.zeros_like().unwrap(), begun.zeros_like().unwrap());
            for (n, gradients) in gradients.iter().enumerate() {
                let steps = n as i32 + 1;
                let rates = Rates {
                    cut: 0.7,
                    betas: (0.9, 0.99),
                    root: (1.0 - 0.99_f64.powi(steps)).sqrt().recip(),
                    epsilon: 1e-8,
                    keep: 0.999,
                    rate: 1e-2 / (1.0 - 0.9_f64.powi(steps)),
                };
                let gradient = (i + n != 3).then_some(&gradients[i]);
                let weight = Trained { master: &master, copy: copy.as_ref(), gradient };
                moments = learning.adamw(weight, moments, &rates).unwrap();
            }
            all.push(floats(master.as_tensor()));
            all.extend(copy.map(|copy| floats(copy.as_tensor())));
            all.extend([floats(&moments.0), floats(&moments.1)]);
        }
        all
    };
    let (ours, theirs) = (run(&kernels), run(&Candle));
    assert_eq!(ours.len(), 11);
    let offs: Vec<f32> = ours.iter().zip(&theirs).map(|(a, b)| apart(a, b)).collect();
    let said = told(&offs);
    println!("weights, copies and moments: {said}");
    // A rounded copy may differ in its last bit.
    assert!(offs.iter().enumerate().all(|(i, off)| *off < if i == 5 { 4e-3 } else { 1e-6 }), "{said}");
    assert!(offs.iter().filter(|off| **off == 0.0).count() > 2, "{said}");
}
