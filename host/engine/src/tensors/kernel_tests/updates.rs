//! Whole scorings, gradients and optimizer steps, on the tiny models.

use std::collections::BTreeMap;

use super::{apart, by_kernels, folders, fused, model, told, trained};
use crate::OptimizerConfig;
use crate::core::{Core as _, PassOptions, Sequence, TokenGradients, TokenStatistics};
use crate::cpu::LoraConfig;
use crate::model::Precision;
use crate::tensors::Tensors;

/// Returns sequences of many lengths, some with the same prompt.
fn ragged() -> Vec<(Vec<u32>, usize)> {
    let prompt = |i: u32| (0..3 + i % 7).map(move |t| (i * 31 + t * 17) % 396);
    (0..9).map(|i| (prompt(i / 2).chain(prompt(12 - i)).collect(), prompt(i / 2).count())).collect()
}

fn slope(i: usize, t: usize) -> f32 {
    ((i * 7 + t * 3) % 5) as f32 - 2.0
}

/// Results of an update.
struct Left {
    log_probs: Vec<f32>,
    entropies: Vec<f32>,
    /// By weight name.
    gradients: BTreeMap<String, Vec<f32>>,
    norm: f64,
    after: Vec<f32>,
    again: Vec<f32>,
}

fn update(model: &mut Tensors, options: PassOptions) -> Left {
    let whole = ragged();
    let sequences: Vec<Sequence<'_>> = whole
        .iter()
        .map(|(tokens, prompt)| Sequence { tokens, prompt: *prompt, observed: &[], mask: None })
        .collect();
    let scored = |model: &mut Tensors| model.score(&sequences, options, false).unwrap().concat();
    let log_probs =
        |statistics: &[TokenStatistics]| statistics.iter().map(|t| t.log_prob).collect::<Vec<_>>();
    let first = scored(model);
    for (from, part) in [(0, &sequences[..4]), (4, &sequences[4..])] {
        let loss = |i: usize, statistics: &[TokenStatistics]| {
            // The entropies of some answers also count.
            let entropies = if i.is_multiple_of(2) { Vec::new() } else { vec![0.3; statistics.len()] };
            TokenGradients {
                log_probs: (0..statistics.len()).map(|t| slope(from + i, t)).collect(),
                entropies,
            }
        };
        model.learn(part, options, &loss).unwrap();
    }
    let gathered = model.gathered().unwrap();
    let named = |(n, _, g): (&str, &[usize], &[f32])| (n.to_owned(), g.to_vec());
    let gradients = match model.layout() {
        Some(adapters) => adapters.tensors(&gathered).map(named).collect(),
        None => model.arena().tensors(&gathered).map(named).collect(),
    };
    // A weight with a tiny gradient moves as far as any other, in either direction. A large
    // epsilon limits that.
    let config = OptimizerConfig { epsilon: 1e-3, ..OptimizerConfig::default() };
    let norm = model.step(&config, 1e-3).unwrap();
    Left {
        log_probs: log_probs(&first),
        entropies: first.iter().map(|t| t.entropy).collect(),
        gradients,
        norm,
        after: model.weights().unwrap().into_owned(),
        again: log_probs(&scored(model)),
    }
}

fn most(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, |m, d| if d <= m { m } else { d })
}

fn mean(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f32>() / a.len() as f32
}

/// Returns the differences of log-probabilities and entropies, of the worst gradient relative to
/// its weight's largest, of the norm, of the weights after a step, and of log-probabilities then.
fn far(ours: &Left, theirs: &Left) -> [f32; 5] {
    assert!(ours.gradients.keys().eq(theirs.gradients.keys()));
    let both = ours.gradients.values().zip(theirs.gradients.values());
    let gradients = both.map(|(ours, theirs)| apart(ours, theirs)).fold(0.0, f32::max);
    [
        most(&ours.log_probs, &theirs.log_probs).max(most(&ours.entropies, &theirs.entropies)),
        gradients,
        ((ours.norm - theirs.norm) / theirs.norm).abs() as f32,
        most(&ours.after, &theirs.after),
        most(&ours.again, &theirs.again),
    ]
}

/// With adapters, candle uses the chain rule for gradients; kernels skip the weights' gradients.
#[test]
fn an_update_of_adapters_by_kernels_is_candle_s() {
    let lora = Some(LoraConfig { rank: 4, alpha: 8.0 });
    for folder in [1, 6].map(|i| folders().swap_remove(i)) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let options = PassOptions { temperature: 0.8, recompute: false };
        let twice = |mut model: Tensors| {
            // `B` is zero at first, and so is the gradient of `A`.
            let first = update(&mut model, options);
            assert!(
                first.gradients.iter().all(|(name, g)| name.contains("_A") == g.iter().all(|g| *g == 0.0))
            );
            update(&mut model, options)
        };
        let theirs = twice(trained(&folder, Precision::F32, lora));
        let kernels = |precision| by_kernels(trained(&folder, precision, lora), precision).map(twice);
        let Some(ours) = kernels(Precision::F32) else { return };
        let off = far(&ours, &theirs);
        println!("{name:<28} adapters, float32 {}", told(&off));
        let least = [1e-4, 2e-5, 1e-6, 1e-6, 1e-4];
        assert!(off.iter().zip(least).all(|(off, least)| *off < least), "{name}: {}", told(&off));

        let Some(rounded) = kernels(Precision::Bf16) else { return };
        let candle = twice(trained(&folder, Precision::Bf16, lora));
        let means = [&rounded, &candle].map(|left| mean(&left.log_probs, &theirs.log_probs));
        let off = far(&rounded, &theirs);
        println!(
            "{name:<28} bfloat16 from float32 {}; candle's {}",
            told(&off),
            told(&far(&candle, &theirs))
        );
        println!("{name:<28} log-probabilities on average, and candle's: {}", told(&means));
        let most = [1.0, 0.2, 0.05, 1e-6, 1.0];
        assert!(off.iter().zip(most).all(|(off, most)| *off < most), "{name}: {}", told(&off));
        assert!(means[0] < 1.5 * means[1], "{name}: {}", told(&means));
    }
}

#[test]
fn an_update_by_kernels_is_candle_s() {
    // A Llama, a Qwen2 and a Qwen3; tied and untied.
    for folder in [1, 3, 6].map(|i| folders().swap_remove(i)) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        for (recompute, temperature) in [(false, 1.0), (true, 0.8)] {
            let options = PassOptions { temperature, recompute };
            let Some(mut ours) = fused(&folder, Precision::F32) else { return };
            let ours = update(&mut ours, options);
            let theirs = update(&mut model(&folder, Precision::F32), options);
            let off = far(&ours, &theirs);
            println!("{name:<28} float32 {}", told(&off));
            let least = [2e-5, 2e-5, 1e-6, 1e-6, 5e-5];
            assert!(off.iter().zip(least).all(|(off, least)| *off < least), "{name}: {}", told(&off));

            let Some(mut rounded) = fused(&folder, Precision::Bf16) else { return };
            let rounded = update(&mut rounded, options);
            let candle = update(&mut model(&folder, Precision::Bf16), options);
            let means = [&rounded, &candle].map(|left| mean(&left.log_probs, &theirs.log_probs));
            let (rounded, candle) = (far(&rounded, &theirs), far(&candle, &theirs));
            println!("{name:<28} bfloat16 from float32 {}; candle's {}", told(&rounded), told(&candle));
            println!("{name:<28} log-probabilities on average, and candle's: {}", told(&means));
            let most = [0.5, 0.1, 0.02, 1e-3, 0.5];
            assert!(rounded.iter().zip(most).all(|(off, most)| *off < most), "{name}: {}", told(&rounded));
            assert!(means[0] < 1.5 * means[1], "{name}: {}", told(&means));
        }
    }
}
