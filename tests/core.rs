//! The CPU core against transformers and against its plain twin: log-probs, every gradient, a step of
//! the optimizer, sampling token by token; and that nothing but a prompt's own tokens and seed decides
//! what is sampled.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use allot_engine::cpu::{Cpu, LoraConfig, Manner, Request, Sequence, Setup, Thought};
use allot_engine::model::{Checkpoint, Decoder, Input};
use allot_engine::{OptimizerConfig, Sampling};
use candle_core::{DType, Device, IndexOp as _, Tensor};

const PLAIN: Manner = Manner { temperature: 1.0, recompute: false };

fn folders() -> Vec<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases/models");
    let folder = std::env::var_os("ALLOT_TINY_MODELS").map_or(default, PathBuf::from);
    let mut all: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("reference.safetensors").is_file())
        .collect();
    all.sort();
    assert!(!all.is_empty());
    all
}

fn setup(threads: usize) -> Setup {
    Setup { threads, longest: 128, lora: None, reference: false, seed: 1 }
}

fn numbers(t: &Tensor) -> Vec<f32> {
    t.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap().to_string_lossy().into_owned()
}

struct Case {
    checkpoint: Checkpoint,
    reference: HashMap<String, Tensor>,
    told: serde_json::Value,
    ids: Vec<u32>,
}

impl Case {
    fn read(folder: &Path) -> Self {
        let reference =
            candle_core::safetensors::load(folder.join("reference.safetensors"), &Device::Cpu).unwrap();
        let told = std::fs::read_to_string(folder.join("reference.json")).unwrap();
        Self {
            checkpoint: Checkpoint::load(folder, &Device::Cpu).unwrap(),
            ids: reference["input_ids"].to_dtype(DType::U32).unwrap().to_vec2().unwrap().swap_remove(0),
            told: serde_json::from_str(&told).unwrap(),
            reference,
        }
    }

    fn number(&self, path: &str) -> f64 {
        self.told.pointer(path).and_then(serde_json::Value::as_f64).unwrap()
    }

    /// The reference's clipped loss, as its gradient by each log-probability.
    fn loss(&self) -> impl Fn(usize, &[Thought]) -> Vec<f32> + Sync {
        let (old, advantages) =
            (numbers(&self.reference["old_logp"]), numbers(&self.reference["advantages"]));
        let mask = numbers(&self.reference["response_mask"]);
        let count: f32 = mask.iter().sum();
        let (low, high) = (self.number("/clip/low") as f32, self.number("/clip/high") as f32);
        move |_, thoughts| {
            let one = |(i, thought): (usize, &Thought)| {
                let ratio = (thought.log_prob - old[i]).exp();
                let a = advantages[i % advantages.len()];
                let free = ratio * a <= ratio.clamp(1.0 - low, 1.0 + high) * a;
                if free { -ratio * a * mask[i] / count } else { 0.0 }
            };
            thoughts.iter().enumerate().map(one).collect()
        }
    }
}

#[test]
fn the_core_computes_and_learns_what_transformers_does() {
    for folder in folders() {
        let (name, case) = (name(&folder), Case::read(&folder));
        for recompute in [false, true] {
            let mut core = Cpu::new(&case.checkpoint, setup(1)).unwrap();
            let manner = Manner { recompute, ..PLAIN };
            let sequences = [Sequence { tokens: &case.ids, prompt: 1 }];
            let thoughts = core.score(&sequences, manner, false).swap_remove(0);
            let expected = numbers(&case.reference["token_logp"]);
            let worst =
                thoughts.iter().zip(&expected).map(|(t, e)| (t.log_prob - e).abs()).fold(0.0, f32::max);
            assert!(worst < 5e-5, "{name}: log-probs differ by {worst:e}");
            let entropy = thoughts.iter().map(|t| f64::from(t.entropy)).sum::<f64>() / thoughts.len() as f64;
            println!("{name:<28} log-probs {worst:.1e}, entropy {entropy:.4}");

            core.learn(&sequences, manner, case.loss());
            let gathered = core.gathered();
            let norms = case.told["grad_norms"].as_object().unwrap();
            let mut held = 0;
            let mut largest = 0.0_f32;
            for (weight, _, ours) in core.arena().tensors(&gathered) {
                let norm = ours.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
                let theirs = norms[weight].as_f64().unwrap();
                assert!(
                    (norm - theirs).abs() < 1e-4 * theirs.max(1e-3),
                    "{name}: {weight}: {norm} not {theirs}"
                );
                if let Some(expected) = case.reference.get(&format!("grad.{weight}")) {
                    let expected = numbers(expected);
                    let size = expected.iter().fold(1e-3_f32, |m, g| m.max(g.abs()));
                    let worst =
                        ours.iter().zip(&expected).map(|(o, e)| (o - e).abs()).fold(0.0, f32::max) / size;
                    assert!(worst < 2e-4, "{name}: the gradient of {weight} differs by {worst:e}");
                    largest = largest.max(worst);
                    held += 1;
                }
            }
            assert_eq!(norms.len(), core.arena().tensors(&gathered).count());
            assert!(held > 10);
            println!("{name:<28} {held} gradients, worst {largest:.1e}");

            let config = OptimizerConfig {
                learning_rate: case.number("/adamw/lr"),
                beta1: case.number("/adamw/betas/0"),
                beta2: case.number("/adamw/betas/1"),
                epsilon: case.number("/adamw/eps"),
                weight_decay: case.number("/adamw/weight_decay"),
                max_norm: case.number("/adamw/max_grad_norm"),
                ..OptimizerConfig::default()
            };
            let norm = core.step(&config, config.learning_rate);
            assert!((norm - case.number("/grad_norm_total")).abs() < 1e-4 * norm, "{name}: norm {norm}");
            assert!(core.gathered().iter().all(|g| *g == 0.0), "gradients are zero after a step");
            let after = numbers(&case.reference["logits_after_step"].i(0).unwrap());
            let v = core.shape().vocabulary;
            let expected = case.ids[1..].iter().enumerate().map(|(t, id)| {
                let row = &after[t * v..(t + 1) * v];
                let sum: f64 = row.iter().map(|l| f64::from(*l).exp()).sum();
                f64::from(row[*id as usize]) - sum.ln()
            });
            let thoughts = core.score(&sequences, manner, false).swap_remove(0);
            let worst = thoughts.iter().zip(expected).map(|(t, e)| (f64::from(t.log_prob) - e).abs());
            let worst = worst.fold(0.0, f64::max);
            println!("{name:<28} after a step {worst:.1e}");
            assert!(worst < 5e-4, "{name}: after a step log-probs differ by {worst:e}");
        }
    }
}

#[test]
fn greedy_answers_are_transformers_own() {
    for folder in folders() {
        let (name, case) = (name(&folder), Case::read(&folder));
        let core = Cpu::new(&case.checkpoint, setup(2)).unwrap();
        let greedy =
            case.reference["greedy_output_ids"].to_dtype(DType::U32).unwrap().to_vec2::<u32>().unwrap();
        let expected = &greedy[0][case.ids.len()..];
        let sampling =
            Sampling { temperature: 0.0, max_tokens: expected.len() as u32, ..Sampling::default() };
        let answer = core.sample(&[Request { prompt: &case.ids, seed: 0, sampling }], &[], 4).swap_remove(0);
        // The reference was told never to end; where the end is likeliest the two part.
        let config = std::fs::read_to_string(folder.join("config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        let end = config["eos_token_id"].as_u64().unwrap() as u32;
        let until = answer.tokens.iter().position(|t| *t == end).unwrap_or(expected.len());
        assert!(until > 0, "{name}: nothing to compare");
        assert_eq!(answer.tokens[..until], expected[..until], "{name}");
    }
}

/// Requests for a mixed bag of prompts, in groups.
fn requests<'a>(prompts: &'a [Vec<u32>], each: u64) -> Vec<Request<'a>> {
    let sampling = Sampling { max_tokens: 20, ..Sampling::default() };
    prompts
        .iter()
        .enumerate()
        .flat_map(|(i, prompt)| {
            (0..each).map(move |j| Request { prompt, seed: i as u64 * 1000 + j, sampling })
        })
        .collect()
}

fn prompts() -> Vec<Vec<u32>> {
    (0..13_u32).map(|i| (0..3 + i % 7).map(|t| (i * 31 + t * 17) % 396).collect()).collect()
}

#[test]
fn batch_size_order_threads_and_neighbours_change_nothing() {
    for folder in folders() {
        let case = Case::read(&folder);
        let prompts = prompts();
        let all = requests(&prompts, 7);
        let stops = [5, 9, 100];
        let base = Cpu::new(&case.checkpoint, setup(2)).unwrap().sample(&all, &stops, 64);
        assert!(base.iter().any(|a| a.truncated) && base.iter().any(|a| !a.truncated), "{}", name(&folder));
        for (threads, rows) in [(1, 1), (1, 5), (2, 33), (3, 1000)] {
            let core = Cpu::new(&case.checkpoint, setup(threads)).unwrap();
            assert!(core.sample(&all, &stops, rows) == base, "{}: {rows} rows", name(&folder));
        }
        let core = Cpu::new(&case.checkpoint, setup(2)).unwrap();
        let backwards: Vec<Request<'_>> = all.iter().rev().copied().collect();
        let mut answers = core.sample(&backwards, &stops, 16);
        answers.reverse();
        assert!(answers == base, "{}: backwards", name(&folder));
        for (i, answer) in base.iter().enumerate().step_by(10) {
            assert!(core.sample(&all[i..=i], &stops, 8)[0] == *answer, "{}: alone", name(&folder));
        }
    }
}

#[test]
fn what_sampling_says_of_its_tokens_is_what_scoring_says() {
    for folder in folders() {
        let case = Case::read(&folder);
        let prompts = prompts();
        for temperature in [1.0, 0.7] {
            let mut all = requests(&prompts, 3);
            for request in &mut all {
                request.sampling.temperature = temperature;
            }
            let mut core = Cpu::new(&case.checkpoint, setup(2)).unwrap();
            let answers = core.sample(&all, &[5], 16);
            let whole: Vec<Vec<u32>> =
                all.iter().zip(&answers).map(|(r, a)| [r.prompt, &a.tokens].concat()).collect();
            let sequences: Vec<Sequence<'_>> =
                whole.iter().zip(&all).map(|(w, r)| Sequence { tokens: w, prompt: r.prompt.len() }).collect();
            let scored = core.score(&sequences, Manner { temperature, ..PLAIN }, false);
            for (answer, thoughts) in answers.iter().zip(&scored) {
                assert_eq!(answer.tokens.len(), thoughts.len());
                for (log_prob, thought) in answer.log_probs.iter().zip(thoughts) {
                    assert!((log_prob - thought.log_prob).abs() < 1e-4, "{}", name(&folder));
                }
            }
        }
    }
}

#[test]
fn slices_and_micro_batches_add_up_to_the_plain_twin_s_gradient() {
    for folder in folders() {
        let case = Case::read(&folder);
        let prompts = prompts();
        let whole: Vec<Vec<u32>> = (0..9).map(|i| [&prompts[i][..], &prompts[12 - i][..]].concat()).collect();
        let sequences: Vec<Sequence<'_>> =
            whole.iter().enumerate().map(|(i, w)| Sequence { tokens: w, prompt: prompts[i].len() }).collect();
        let coefficient = |i: usize, t: usize| ((i * 7 + t * 3) % 5) as f32 - 2.0;
        let gradient = |threads: usize, cut: usize| {
            let mut core = Cpu::new(&case.checkpoint, setup(threads)).unwrap();
            for (from, part) in [(0, &sequences[..cut]), (cut, &sequences[cut..])] {
                core.learn(part, PLAIN, |i, thoughts| {
                    (0..thoughts.len()).map(|t| coefficient(from + i, t)).collect()
                });
            }
            (core.gathered(), core)
        };
        let (ours, core) = gradient(3, 4);

        let decoder = Decoder::new(&case.checkpoint);
        let mut loss = Tensor::zeros((), DType::F32, &Device::Cpu).unwrap();
        for (i, sequence) in sequences.iter().enumerate() {
            let input = Input::of(&[sequence.tokens.to_vec()], &Device::Cpu).unwrap();
            let logits = decoder.forward(&input).unwrap().logits;
            let log_probs = allot_engine::model::token_log_probs(&logits, &input.tokens).unwrap();
            let answer = log_probs.narrow(1, sequence.prompt - 1, sequence.answer()).unwrap();
            let c: Vec<f32> = (0..sequence.answer()).map(|t| coefficient(i, t)).collect();
            let c = Tensor::from_vec(c, (1, sequence.answer()), &Device::Cpu).unwrap();
            loss = (loss + (answer * c).unwrap().sum_all().unwrap()).unwrap();
        }
        let gradients = loss.backward().unwrap();
        for (weight, _, ours) in core.arena().tensors(&ours) {
            let theirs = numbers(gradients.get(&case.checkpoint.weights[weight]).unwrap());
            let size = theirs.iter().fold(1e-2_f32, |m, g| m.max(g.abs()));
            let worst = ours.iter().zip(&theirs).map(|(o, e)| (o - e).abs()).fold(0.0, f32::max) / size;
            assert!(worst < 1e-4, "{}: {weight} {worst:e}", name(&folder));
        }
        assert!(gradient(3, 4).0 == ours, "the same again, to the bit");
    }
}

#[test]
fn adapters_learn_and_merge() {
    for folder in folders() {
        let case = Case::read(&folder);
        let config = LoraConfig { rank: 4, alpha: 8.0 };
        let mut core = Cpu::new(&case.checkpoint, Setup { lora: Some(config), ..setup(2) }).unwrap();
        let sequences = [Sequence { tokens: &case.ids, prompt: 4 }];
        let sum = |core: &mut Cpu| -> f64 {
            core.score(&sequences, PLAIN, false)[0].iter().map(|t| f64::from(t.log_prob)).sum()
        };
        let before = sum(&mut core);
        let bare = Cpu::new(&case.checkpoint, setup(1)).unwrap();
        assert!(core.merged() == bare.merged(), "fresh adapters change nothing");

        // One step that makes both matrices other than zero, then gradients by finite differences.
        let up = OptimizerConfig { weight_decay: 0.0, max_norm: 0.0, ..OptimizerConfig::default() };
        let all_up = |_: usize, thoughts: &[Thought]| vec![-1.0; thoughts.len()];
        for _ in 0..3 {
            core.learn(&sequences, PLAIN, all_up);
            core.step(&up, 1e-2);
        }
        let after = sum(&mut core);
        assert!(after > before + 1.0, "{}: {before} to {after}", name(&folder));
        core.learn(&sequences, PLAIN, all_up);
        let gradient = core.gathered();
        let trained = core.trained().to_vec();
        let moments = core.moments().clone();
        for at in (0..trained.len()).step_by(trained.len() / 23) {
            let mut moved = |by: f32| {
                let mut weights = trained.clone();
                weights[at] += by;
                core.restore(weights, moments.clone());
                -sum(&mut core)
            };
            let slope = (moved(1e-3) - moved(-1e-3)) / 2e-3;
            let g = f64::from(gradient[at]);
            assert!((slope - g).abs() < 0.02 * g.abs().max(0.5), "{}: {slope} {g}", name(&folder));
        }
        core.restore(trained, moments);
        let merged = core.merged().into_owned();
        let mut plain = Cpu::of(core.arena().clone(), merged, setup(1)).unwrap();
        assert!((sum(&mut plain) - sum(&mut core)).abs() < 1e-3, "{}", name(&folder));
        assert!(
            (core.score(&sequences, PLAIN, true)[0].iter().map(|t| f64::from(t.log_prob)).sum::<f64>()
                - before)
                .abs()
                < 1e-3
        );
    }
}
