//! Operations of scoring and learning, one by one: what they give, and every gradient, against candle's own.

use std::sync::Arc;

use allot_allocation::seed::Stream;
use candle_core::{DType, Device, Result, Tensor, Var};

use super::{KINDS, any, apart, dtype, floats, told};
use crate::model::operations::{Candle, First, Operations, Turn};
use crate::tensors::emulated::Emulated;
use crate::tensors::kernels::Kernels;
use crate::tensors::learning::{Learning, Rates, Trained};
use crate::tensors::machine::Kind;

fn kernels((bf16, head, heads, kv_heads): (bool, usize, usize, usize)) -> Option<(Kind, Kernels)> {
    let kind = Kind { bf16, head, heads, kv_heads };
    let machine = Emulated::new(kind, 1).unwrap()?;
    Some((kind, Kernels::new(Arc::new(machine), kind)))
}

/// Holds an operation and its gradients by all of its inputs against candle's, which computes in float32 on
/// the same numbers. Inputs of one dimension are float32 either way.
fn hold(
    name: &str,
    (kind, kernels): (Kind, &Kernels),
    inputs: &[Tensor],
    operation: impl Fn(&dyn Operations, &[Tensor]) -> Result<Tensor>,
) {
    let rounded = |x: &Tensor| x.to_dtype(if x.rank() == 1 { DType::F32 } else { dtype(kind) }).unwrap();
    let run = |operations: &dyn Operations, same: bool| {
        let inputs = inputs.iter().map(rounded);
        let inputs = inputs.map(|x| if same { x } else { x.to_dtype(DType::F32).unwrap() });
        let vars: Vec<Var> = inputs.map(|x| Var::from_tensor(&x).unwrap()).collect();
        let tensors: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
        let out = operation(operations, &tensors).unwrap();
        let slopes = any(&mut Stream::new(7), out.dims(), 1.0);
        let loss = (out.to_dtype(DType::F32).unwrap() * slopes).unwrap().sum_all().unwrap();
        let gradients = loss.backward().unwrap();
        let mut all = vec![(out.dims().to_vec(), floats(&out.detach()))];
        all.extend(vars.iter().map(|v| (v.dims().to_vec(), floats(gradients.get(v).unwrap()))));
        all
    };
    let (ours, theirs) = (run(kernels, true), run(&Candle, false));
    let mut offs = Vec::new();
    for ((dims, ours), (expected, theirs)) in ours.iter().zip(&theirs) {
        assert_eq!(dims, expected, "{name}");
        offs.push(apart(ours, theirs));
    }
    let said = told(&offs);
    println!("{name:<24} {kind:?}: {said}");
    let most = if kind.bf16 { 0.02 } else { 3e-6 };
    assert!(offs.iter().all(|off| *off < most), "{name} {kind:?}: {said}");
    assert!(run(kernels, true) == ours, "{name} {kind:?}: the same again, to the bit");
}

#[test]
fn every_operation_is_candle_s_with_every_gradient() {
    for shape in KINDS {
        let Some((kind, kernels)) = kernels(shape) else { return };
        let (both, stream) = ((kind, &kernels), &mut Stream::new(shape.1 as u64));
        let (b, t, e, h, k) = (3, 24, kind.head, kind.heads, kind.kv_heads);

        let [x, w] = [any(stream, &[b, t, 40], 1.0), any(stream, &[56, 40], 0.3)];
        hold("linear", both, &[x.clone(), w], |o, x| o.linear(&x[0], &x[1]));
        let [gate, up] = [0, 0].map(|_| any(stream, &[1048, 40], 0.7));
        hold("gated", both, &[x.clone(), gate, up], |o, x| o.gated(&x[0], &x[1], &x[2]));
        for width in [8, 264, 2064] {
            let [x, w] = [any(stream, &[5, 7, width], 2.0), any(stream, &[width], 1.0)];
            hold("norm", both, &[x, w], |o, x| o.norm(&x[0], &x[1], 1e-5));
        }

        let w = any(stream, &[h * e, 40], 0.5);
        let (plain, biased) = ([x.clone(), w.clone()], [x.clone(), w.clone(), any(stream, &[h * e], 1.0)]);
        let normed = [x, w, any(stream, &[e], 1.5)];
        // All sequences at the same positions, and each at its own.
        for sequences in [1, b] {
            let angles = any(stream, &[sequences, 1, t, e / 2], 9.0);
            let rope = (angles.cos().unwrap(), angles.sin().unwrap());
            let rotations = Some(&rope);
            hold("project", both, &plain, |o, x| {
                o.project(&x[0], &x[1], Turn { heads: h, first: First::Nothing, rotations })
            });
            hold("project, with a bias", both, &biased, |o, x| {
                o.project(&x[0], &x[1], Turn { heads: h, first: First::Bias(&x[2]), rotations })
            });
            hold("project, with a norm", both, &normed, |o, x| {
                o.project(&x[0], &x[1], Turn { heads: h, first: First::Norm(&x[2], 1e-5), rotations })
            });
        }
        hold("project, no rotations", both, &biased, |o, x| {
            o.project(&x[0], &x[1], Turn { heads: h, first: First::Bias(&x[2]), rotations: None })
        });

        for tokens in [8, 24, 264] {
            let mut heads = |n: usize, scale| any(stream, &[2, n, tokens, e], scale);
            let [q, k, v] = [heads(h, 2.0), heads(k, 2.0), heads(k, 1.0)];
            hold(&format!("attend, {tokens} tokens"), both, &[q, k, v], |o, x| {
                o.attend(&x[0], &x[1], &x[2], &o.ahead(tokens, &Device::Cpu)?)
            });
        }
    }
}

/// Columns that need more than one part.
#[test]
fn gradients_of_what_all_rows_share_are_sums_of_parts() {
    let Some((kind, kernels)) = kernels(KINDS[0]) else { return };
    let stream = &mut Stream::new(3);
    let width = kind.heads * kind.head;
    let inputs = [any(stream, &[3, 200, 8], 1.0), any(stream, &[width, 8], 1.0), any(stream, &[width], 1.0)];
    hold("bias of many rows", (kind, &kernels), &inputs, |o, x| {
        let turn = Turn { heads: kind.heads, first: First::Bias(&x[2]), rotations: None };
        o.project(&x[0], &x[1], turn)
    });
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
            let dlog_probs = any(stream, &[rows], 2.0);
            let exact = logits.to_dtype(DType::F32).unwrap();
            let run = |learning: &dyn Learning, logits: &Tensor| {
                let thoughts = learning.think(logits, &targets, temperature).unwrap();
                let logits = logits.copy().unwrap();
                let slopes = learning.slopes(logits, &targets, &thoughts, &dlog_probs, temperature).unwrap();
                assert_eq!(slopes.dims(), [rows, vocabulary]);
                (floats(&thoughts), floats(&slopes))
            };
            let (ours, theirs) = (run(&kernels, &logits), run(&Candle, &exact));
            let thoughts = ours.0.iter().zip(&theirs.0).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            let slopes = apart(&ours.1, &theirs.1);
            println!("{vocabulary} tokens, {kind:?}: {thoughts:.1e}, slopes {slopes:.1e}");
            assert!(
                thoughts < 1e-5 && slopes < if kind.bf16 { 4e-3 } else { 2e-6 },
                "{thoughts:e} {slopes:e}"
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

    // The first has a copy of its own kind, the second a rounded one, the third none, and a step without a
    // gradient.
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
    // A rounded copy may have another last bit.
    assert!(offs.iter().enumerate().all(|(i, off)| *off < if i == 5 { 4e-3 } else { 1e-6 }), "{said}");
    assert!(offs.iter().filter(|off| **off == 0.0).count() > 2, "{said}");
}
