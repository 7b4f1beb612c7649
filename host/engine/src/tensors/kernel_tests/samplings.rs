//! Whole samplings, launch by launch as on a GPU.

use super::{folders, fused, model};
use crate::core::{Answered, Core as _, PassOptions, Request, Sequence};
use crate::model::Precision;
use crate::tensors::Tensors;
use crate::tensors::decode::{Decode, Extent, kind};
use crate::tensors::emulated::Emulated;
use crate::tensors::fused::{Fused, STRIDE};
use crate::tensors::machine::KernelConfig;
use crate::{End, Sampling, StopTexts, Stops};

/// Returns prompts of many lengths in groups, and answers with many limits and sampling settings.
fn requests(prompts: &[Vec<u32>]) -> Vec<Request<'_>> {
    let one = |(i, prompt): (usize, _)| {
        (0..5).map(move |j| {
            let sampling = Sampling {
                temperature: [1.0, 0.8, 0.0][j % 3],
                top_k: if j == 1 { 20 } else { 0 },
                top_p: if j == 4 { 0.9 } else { 1.0 },
                max_tokens: [20, 1, 7, 20, 13][(i + j) % 5],
                ..Sampling::default()
            };
            Request { prompt, history: &[], seed: (i * 1000 + j) as u64, sampling }
        })
    };
    prompts.iter().map(Vec::as_slice).enumerate().flat_map(one).collect()
}

fn prompts() -> Vec<Vec<u32>> {
    (0..7_u32).map(|i| (0..3 + i % 7).map(|t| (i * 31 + t * 17) % 396).collect()).collect()
}

/// Samples by kernels.
fn sampled(
    model: &Tensors,
    requests: &[Request<'_>],
    stops: &Stops,
    (rows, stride, width): (usize, usize, usize),
) -> Option<Vec<Answered>> {
    let weights = model.computed();
    let kind = KernelConfig::of(&weights.shape, kind(weights).unwrap().0).unwrap();
    let machine = Emulated::new(kind, width).unwrap()?;
    let extent = Extent::of(requests, rows);
    let mut steps = Fused::new(&machine, kind, weights, stops, extent, stride).unwrap();
    let mut answers = vec![Answered::default(); requests.len()];
    let mut whole = |number: usize, answer| answers[number] = answer;
    Decode { weights, learning: &*model.learning, interrupt: &crate::Interrupt::new() }
        .run(requests, extent.slots, &mut steps, &mut whole)
        .unwrap();
    Some(answers)
}

#[test]
fn answers_made_by_kernels_are_the_plain_steps_own_however_often_is_looked() {
    let mut ended = 0;
    // A Llama, a Qwen2 and a Qwen3; tied and untied.
    for folder in [1, 2, 6].map(|i| folders().swap_remove(i)) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let (model, prompts) = (model(&folder, Precision::F32), prompts());
        // Also a stop text of two tokens, which the kernels do not know.
        let pieces = (0..512).map(|token| vec![b'a' + (token % 7) as u8]).collect();
        let stops = Stops::from((0..512).step_by(16).collect::<Vec<u32>>())
            .with_texts(StopTexts::new(vec!["bc".to_owned()], pieces));
        let all = requests(&prompts);
        let plain = model.answers(&all, &stops, 64).unwrap();
        assert_eq!(all.len(), 35);
        let by_text =
            |a: &&Answered| matches!(stops.end(&a.tokens), Some(End::Text(at)) if at + 1 == a.tokens.len());
        ended += plain.iter().filter(by_text).count();
        assert!(plain.iter().any(|a| a.truncated) && plain.iter().any(|a| !a.truncated), "{name}");
        let mut first: Option<Vec<Answered>> = None;
        // Rows at a time, tokens between inspections, and the machine's width: a wider one splits
        // attention into parts.
        for how in [(35, 1, 1), (35, STRIDE, 1), (6, 5, 100)] {
            let Some(ours) = sampled(&model, &all, &stops, how) else { return };
            let (mut others, mut worst) = (0, 0.0_f32);
            for (ours, plain) in ours.iter().zip(&plain) {
                if ours.tokens != plain.tokens {
                    others += 1;
                    continue;
                }
                assert_eq!(ours.truncated, plain.truncated);
                let pairs = ours.log_probs.iter().zip(&plain.log_probs);
                let off = pairs.map(|(a, b)| (a - b).abs()).chain([(ours.entropy - plain.entropy).abs()]);
                worst = off.fold(worst, |m, d| if d <= m { m } else { d });
            }
            println!("{name:<28} {how:?}: {others} of {} differ, numbers {worst:.1e}", all.len());
            assert!(others <= 1 && worst < 5e-5, "{name} {how:?}: {others}, {worst:e}");
            // If all prompts are read together, inspections do not change a bit.
            match &first {
                Some(first) if how.0 == 35 => assert!(*first == ours, "{name} {how:?}"),
                Some(_) => {}
                None => first = Some(ours),
            }
        }
    }
    assert!(ended > 2, "{ended} answers end by a text");
}

/// Scoring by kernels rounds in the same places as sampling; candle's scoring in others. None
/// of the three is further from float32 than the others.
#[test]
fn in_bfloat16_scoring_by_kernels_says_of_tokens_what_sampling_says() {
    for folder in [0, 3, 6].map(|i| folders().swap_remove(i)) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let (mut plain, mut exact) = (model(&folder, Precision::Bf16), model(&folder, Precision::F32));
        let Some(mut rounded) = fused(&folder, Precision::Bf16) else { return };
        let prompts = prompts();
        let mut all = requests(&prompts);
        for request in &mut all {
            request.sampling.temperature = 1.0;
        }
        let Some(answers) = sampled(&rounded, &all, &[5].into(), (12, STRIDE, 20)) else { return };
        let whole: Vec<Vec<u32>> =
            all.iter().zip(&answers).map(|(r, a)| [r.prompt, &a.tokens].concat()).collect();
        let sequences: Vec<Sequence<'_>> = whole
            .iter()
            .zip(&all)
            .map(|(w, r)| Sequence { tokens: w, prompt: r.prompt.len(), observed: &[], mask: None })
            .collect();
        let options = PassOptions { temperature: 1.0, recompute: false };
        let scored = |model: &mut Tensors| -> Vec<f32> {
            let statistics = model.score(&sequences, options, false).unwrap().concat();
            statistics.iter().map(|statistics| statistics.log_prob).collect()
        };
        let ours: Vec<f32> = answers.iter().flat_map(|a| a.log_probs.clone()).collect();
        let [kernels, plain, exact] = [&mut rounded, &mut plain, &mut exact].map(scored);
        // Returns the mean and the largest difference.
        let apart = |a: &[f32], b: &[f32]| {
            assert_eq!(a.len(), b.len());
            let each = || a.iter().zip(b).map(|(a, b)| (a - b).abs());
            let most = each().fold(0.0, |m, d| if d <= m { m } else { d });
            (each().sum::<f32>() / a.len() as f32, most)
        };
        let (near, candle) = (apart(&ours, &kernels), apart(&ours, &plain));
        let (far, twin, score) = (apart(&ours, &exact), apart(&plain, &exact), apart(&kernels, &exact));
        println!("{name}: sampling from scoring by kernels {near:?}, from candle's {candle:?};");
        println!("{name}: from float32 sampling {far:?}, scoring {score:?}, candle's {twin:?}");
        // If a sum is between two numbers, its order decides which one is written.
        assert!(near.0 < 5e-4 && near.1 < 0.1, "{name}: {near:?}");
        assert!(far.0 < 1.2 * twin.0 && far.1 < 0.4, "{name}: {far:?}, candle's {twin:?}");
        assert!(score.0 < 1.2 * twin.0 && score.1 < 0.4, "{name}: {score:?}, candle's {twin:?}");
    }
}
