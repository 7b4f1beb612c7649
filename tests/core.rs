//! Both cores against transformers, against their plain twin and against each other: log-probs, every
//! gradient, a step of the optimizer, sampling token by token; and that on the CPU nothing but a prompt's
//! own tokens and seed decides what is sampled.
//!
//! `ALLOT_DEVICE=cuda` puts the core in tensors on a GPU, in a build with `--features cuda`.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "core/bf16.rs"]
mod bf16;
#[path = "core/episodes.rs"]
mod episodes;
#[path = "core/rows.rs"]
mod rows;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use allot_allocation::{Ledger, Limits, PromptId, SamplerSettings};
use allot_engine::core::{Answered, Core, PassOptions, Request, Sequence, TokenGradients, TokenStatistics};
use allot_engine::cpu::{Cpu, Instruction, LoraConfig, Setup};
use allot_engine::model::{Checkpoint, Decoder, Precision, Shape, SpecialIds};
use allot_engine::tensors::{Tensors, open};
use allot_engine::{
    Answer, End, Engine as _, Example, Interrupt, LossConfig, LossKind, Native, NativeConfig, Old,
    OptimizerConfig, Purpose, Sample, Sampling, SamplingMask, StopTexts, Stops, UpdateConfig,
};
use candle_core::{DType, Device, IndexOp as _, Tensor, Var};

const PLAIN: PassOptions = PassOptions { temperature: 1.0, recompute: false };

fn folders() -> Vec<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/models");
    let folder = std::env::var_os("ALLOT_TINY_MODELS").map_or(default, PathBuf::from);
    let mut all: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("reference.safetensors").is_file())
        .filter(|path| std::env::var_os("ALLOT_DEVICE").is_none() || on_gpus(path))
        .collect();
    all.sort();
    assert!(!all.is_empty());
    all
}

/// Whether kernels for a GPU compute a model, sequences of any length.
fn on_gpus(folder: &Path) -> bool {
    let shape = Shape::read(&folder.join("config.json")).unwrap();
    shape.has_kernels().is_ok() && shape.variant.window.is_none()
}

fn setup(threads: usize) -> Setup {
    Setup { precision: Precision::F32, threads, longest: 128, lora: None, reference: false, seed: 1 }
}

fn numbers(t: &Tensor) -> Vec<f32> {
    t.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap().to_string_lossy().into_owned()
}

/// A core under test, and how far from float32 on another machine its numbers may be.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    make: fn(&Checkpoint, Setup) -> Box<dyn Core>,
    exact: bool,
    log_prob: f32,
    gradient: f32,
    /// How far log-probabilities may be after a first step of AdamW, in which a weight whose gradient is next to
    /// nothing goes as far as any other, to either side.
    after: f64,
    /// How far what is said while sampling may be from what is said while scoring.
    sampled: f32,
}

fn tensors(checkpoint: &Checkpoint, setup: Setup, precision: Precision) -> Box<dyn Core> {
    let place = std::env::var("ALLOT_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let device = open(place.parse().unwrap()).unwrap();
    Box::new(Tensors::new(checkpoint, Setup { precision, ..setup }, &device).unwrap())
}

/// The cores that compute in float32, then those in bfloat16: it has 8 bits of a number, so that a part in
/// 256 of each is lost.
fn cores() -> [Kind; 4] {
    let exact = Kind {
        name: "cpu",
        make: |checkpoint, setup| Box::new(Cpu::new(checkpoint, setup).unwrap()),
        exact: true,
        log_prob: 5e-5,
        gradient: 2e-4,
        after: 5e-4,
        // To the last bit: every sum is made in one way, a token at a time or many at once.
        sampled: 0.0,
    };
    let make: fn(&Checkpoint, Setup) -> Box<dyn Core> = |c, setup| tensors(c, setup, Precision::F32);
    let on_device = std::env::var_os("ALLOT_DEVICE").is_some();
    let after = if on_device { 5e-3 } else { exact.after };
    let tensors_f32 = Kind { name: "tensors", make, sampled: 1e-4, after, ..exact };
    let tensors_bf16 = Kind {
        name: "tensors in bf16",
        make: |c, setup| tensors(c, setup, Precision::Bf16),
        exact: false,
        log_prob: 0.25,
        gradient: 0.2,
        after: f64::INFINITY,
        // On a GPU products of other shapes may be added up in other orders, and round to other numbers.
        sampled: if on_device { 0.25 } else { 0.05 },
    };
    let cpu_bf16 = Kind {
        name: "cpu in bf16",
        make: |c, setup| Box::new(Cpu::new(c, Setup { precision: Precision::Bf16, ..setup }).unwrap()),
        sampled: 0.0,
        ..tensors_bf16
    };
    [exact, tensors_f32, tensors_bf16, cpu_bf16]
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
    fn loss(&self) -> impl Fn(usize, &[TokenStatistics]) -> TokenGradients + Sync {
        let (old, advantages) =
            (numbers(&self.reference["old_logp"]), numbers(&self.reference["advantages"]));
        let mask = numbers(&self.reference["response_mask"]);
        let count: f32 = mask.iter().sum();
        let (low, high) = (self.number("/clip/low") as f32, self.number("/clip/high") as f32);
        move |_, statistics| {
            let one = |(i, statistics): (usize, &TokenStatistics)| {
                let ratio = (statistics.log_prob - old[i]).exp();
                let a = advantages[i % advantages.len()];
                let free = ratio * a <= ratio.clamp(1.0 - low, 1.0 + high) * a;
                if free { -ratio * a * mask[i] / count } else { 0.0 }
            };
            statistics.iter().enumerate().map(one).collect()
        }
    }
}

#[test]
fn the_cores_compute_and_learn_what_transformers_does() {
    for folder in folders() {
        let case = Case::read(&folder);
        for (kind, recompute) in cores().iter().flat_map(|k| [(k, false), (k, true)]) {
            let name = format!("{}, {}", name(&folder), kind.name);
            let mut core = (kind.make)(&case.checkpoint, setup(1));
            let options = PassOptions { recompute, ..PLAIN };
            let sequences = [Sequence { tokens: &case.ids, prompt: 1, observed: &[], mask: None }];
            let statistics = core.score(&sequences, options, false).unwrap().swap_remove(0);
            let expected = numbers(&case.reference["token_logp"]);
            let mut offs: Vec<f32> =
                statistics.iter().zip(&expected).map(|(t, e)| (t.log_prob - e).abs()).collect();
            offs.sort_by(f32::total_cmp);
            // In bfloat16 a token whose experts are nearly as likely as others goes to others: most do not.
            let flips = !kind.exact && case.checkpoint.shape.variant.experts.is_some();
            let worst = if flips { offs[offs.len() / 2] } else { offs[offs.len() - 1] };
            assert!(worst < kind.log_prob, "{name}: log-probs differ by {worst:e}");
            let entropy =
                statistics.iter().map(|t| f64::from(t.entropy)).sum::<f64>() / statistics.len() as f64;
            println!("{name:<44} log-probs {worst:.1e}, entropy {entropy:.4}");
            // In bfloat16 a ratio may fall on the other side of the clip, and has another gradient there.
            if !kind.exact {
                continue;
            }

            core.learn(&sequences, options, &case.loss()).unwrap();
            let gathered = core.gathered().unwrap();
            let norms = case.told["grad_norms"].as_object().unwrap();
            let (mut held, mut largest, mut furthest) = (0, 0.0_f32, 0.0_f64);
            for (weight, _, ours) in core.arena().tensors(&gathered) {
                let norm = ours.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
                let theirs = norms[weight].as_f64().unwrap();
                let off = (norm - theirs).abs() / theirs.max(1e-3);
                assert!(off < 1e-4, "{name}: {weight}: {norm} not {theirs}");
                furthest = furthest.max(off);
                if let Some(expected) = case.reference.get(&format!("grad.{weight}")) {
                    let expected = numbers(expected);
                    let size = expected.iter().fold(1e-3_f32, |m, g| m.max(g.abs()));
                    let worst =
                        ours.iter().zip(&expected).map(|(o, e)| (o - e).abs()).fold(0.0, f32::max) / size;
                    assert!(worst < kind.gradient, "{name}: the gradient of {weight} differs by {worst:e}");
                    largest = largest.max(worst);
                    held += 1;
                }
            }
            assert_eq!(norms.len(), core.arena().tensors(&gathered).count());
            assert!(held > 10);
            println!("{name:<44} {held} gradients, worst {largest:.1e}; norms, worst {furthest:.1e}");

            let config = OptimizerConfig {
                learning_rate: case.number("/adamw/lr"),
                beta1: case.number("/adamw/betas/0"),
                beta2: case.number("/adamw/betas/1"),
                epsilon: case.number("/adamw/eps"),
                weight_decay: case.number("/adamw/weight_decay"),
                max_norm: case.number("/adamw/max_grad_norm"),
                ..OptimizerConfig::default()
            };
            let norm = core.step(&config, config.learning_rate).unwrap();
            let theirs = case.number("/grad_norm_total");
            assert!((norm - theirs).abs() < 1e-4 * theirs, "{name}: norm {norm}");
            assert!(core.gathered().unwrap().iter().all(|g| *g == 0.0), "gradients are zero after a step");
            assert!(core.finite().unwrap() && core.steps() == 1, "{name}");
            let after = numbers(&case.reference["logits_after_step"].i(0).unwrap());
            let v = core.shape().vocabulary;
            let expected = case.ids[1..].iter().enumerate().map(|(t, id)| {
                let row = &after[t * v..(t + 1) * v];
                let sum: f64 = row.iter().map(|l| f64::from(*l).exp()).sum();
                f64::from(row[*id as usize]) - sum.ln()
            });
            let statistics = core.score(&sequences, options, false).unwrap().swap_remove(0);
            let worst = statistics.iter().zip(expected).map(|(t, e)| (f64::from(t.log_prob) - e).abs());
            let worst = worst.fold(0.0, f64::max);
            println!("{name:<44} after a step {worst:.1e}");
            assert!(worst < kind.after, "{name}: after a step log-probs differ by {worst:e}");
        }
    }
}

#[test]
fn greedy_answers_are_transformers_own() {
    for folder in folders() {
        let case = Case::read(&folder);
        let greedy =
            case.reference["greedy_output_ids"].to_dtype(DType::U32).unwrap().to_vec2::<u32>().unwrap();
        let expected = &greedy[0][case.ids.len()..];
        let sampling =
            Sampling { temperature: 0.0, max_tokens: expected.len() as u32, ..Sampling::default() };
        // The reference was told never to end; where the end is likeliest the two part.
        let config = std::fs::read_to_string(folder.join("config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        let end = config["eos_token_id"].as_u64().unwrap() as u32;
        // In bfloat16 another token may be the likeliest.
        for kind in cores().iter().filter(|k| k.exact) {
            let name = format!("{}, {}", name(&folder), kind.name);
            let core = (kind.make)(&case.checkpoint, setup(2));
            let wanted = [Request { prompt: &case.ids, history: &[], seed: 0, sampling }];
            let answer = core.answers(&wanted, &Stops::default(), 4).unwrap().swap_remove(0);
            let until = answer.tokens.iter().position(|t| *t == end).unwrap_or(expected.len());
            assert!(until > 0, "{name}: nothing to compare");
            assert_eq!(answer.tokens[..until], expected[..until], "{name}");
        }
    }
}

/// Requests for a mixed bag of prompts, in groups.
fn requests(prompts: &[Vec<u32>], each: u64) -> Vec<Request<'_>> {
    let sampling = Sampling { max_tokens: 20, ..Sampling::default() };
    prompts
        .iter()
        .enumerate()
        .flat_map(|(i, prompt)| {
            (0..each).map(move |j| Request { prompt, history: &[], seed: i as u64 * 1000 + j, sampling })
        })
        .collect()
}

/// Three tokens and a text of two, of those that stand for its letters.
fn stops() -> Stops {
    let pieces = (0..400_u32).map(|token| vec![b'a' + (token % 9) as u8]).collect();
    Stops::from([5, 9, 100]).with_texts(StopTexts::new(vec!["ab".to_owned()], pieces))
}

/// Whether a text has ended an answer, in its last token.
fn by_text(stops: &Stops, answer: &Answered) -> bool {
    stops.end(&answer.tokens) == Some(End::Text(answer.tokens.len() - 1))
}

fn prompts() -> Vec<Vec<u32>> {
    (0..13_u32).map(|i| (0..3 + i % 7).map(|t| (i * 31 + t * 17) % 396).collect()).collect()
}

#[test]
fn batch_size_order_threads_and_neighbours_change_nothing() {
    let mut ended = 0;
    for (folder, precision) in
        folders().into_iter().flat_map(|f| [(f.clone(), Precision::F32), (f, Precision::Bf16)])
    {
        let case = Case::read(&folder);
        let setup = |threads| Setup { precision, ..setup(threads) };
        let prompts = prompts();
        let all = requests(&prompts, 7);
        let stops = stops();
        let base = Cpu::new(&case.checkpoint, setup(2)).unwrap().answers(&all, &stops, 64).unwrap();
        ended += base.iter().filter(|answer| by_text(&stops, answer)).count();
        assert!(base.iter().any(|a| a.truncated) && base.iter().any(|a| !a.truncated), "{}", name(&folder));
        for (threads, rows) in [(1, 1), (1, 5), (2, 33), (3, 1000)] {
            let core = Cpu::new(&case.checkpoint, setup(threads)).unwrap();
            assert!(core.answers(&all, &stops, rows).unwrap() == base, "{}: {rows} rows", name(&folder));
        }
        let core = Cpu::new(&case.checkpoint, setup(2)).unwrap();
        let backwards: Vec<Request<'_>> = all.iter().rev().copied().collect();
        let mut answers = core.answers(&backwards, &stops, 16).unwrap();
        answers.reverse();
        assert!(answers == base, "{}: backwards", name(&folder));
        for (i, answer) in base.iter().enumerate().step_by(10) {
            assert!(core.answers(&all[i..=i], &stops, 8).unwrap()[0] == *answer, "{}: alone", name(&folder));
        }
    }
    assert!(ended > 20, "{ended} answers end by a text");
}

/// The model with a vocabulary, of repeated tokens, whose weights stay in no core's cache: threads share each of its tokens.
fn large(small: &Checkpoint) -> Checkpoint {
    let (mut shape, mut weights) = (small.shape.clone(), BTreeMap::new());
    let times = (5 << 20) / (4 * shape.vocabulary * shape.hidden) + 1;
    for (name, weight) in &small.weights {
        let one = weight.as_tensor();
        let of_tokens = one.dims()[0] == shape.vocabulary;
        let more = if of_tokens { Tensor::cat(&vec![one; times], 0).unwrap() } else { one.clone() };
        weights.insert(name.clone(), Var::from_tensor(&more).unwrap());
    }
    shape.vocabulary *= times;
    Checkpoint { shape, weights }
}

#[test]
fn rows_that_read_a_long_prompt_together_are_what_each_is_alone() {
    let long: Vec<Vec<u32>> =
        [5_u32, 64, 70, 97].map(|n| (0..n).map(|t| (n * 31 + t * 17) % 396).collect()).into();
    for folder in folders() {
        let small = Case::read(&folder).checkpoint;
        let mut narrow = Checkpoint { shape: small.shape.clone(), weights: small.weights.clone() };
        // In the middle of some answers the prompt is not seen whole any more.
        narrow.shape.variant.window = Some(75);
        for checkpoint in [large(&small), small, narrow] {
            // Answers of several lengths: a row that is free takes the next in the middle of others.
            let mut all = requests(&long, 6);
            for (i, request) in all.iter_mut().enumerate() {
                request.sampling.max_tokens = 4 + (i as u32 * 7) % 17;
            }
            let of = |threads, rows| {
                let core = Cpu::new(&checkpoint, setup(threads)).unwrap();
                core.answers(&all, &Stops::default(), rows).unwrap()
            };
            let alone = of(1, 1);
            for (threads, rows) in [(1, 5), (1, 64), (2, 64), (3, 2), (3, 7)] {
                assert!(of(threads, rows) == alone, "{}: {rows} rows, {threads} threads", name(&folder));
            }
        }
    }
}

/// Prompts that begin alike share the read of that beginning, whether it is short, longer than what a product reads at once, or all
/// of a prompt but its last token.
#[test]
fn prompts_that_begin_alike_are_what_each_is_alone() {
    let numbers = |n: u32, step: u32| (0..n).map(move |t| (n + t * step) % 396);
    for (folder, precision) in
        folders().into_iter().flat_map(|f| [(f.clone(), Precision::F32), (f, Precision::Bf16)])
    {
        let small = Case::read(&folder).checkpoint;
        let mut narrow = Checkpoint { shape: small.shape.clone(), weights: small.weights.clone() };
        narrow.shape.variant.window = Some(30);
        for (checkpoint, opening) in [(large(&small), 70), (small, 9), (narrow, 40)] {
            let begun = |n| numbers(opening, 17).chain(numbers(n, 31)).collect();
            let prompts: Vec<Vec<u32>> = [12, 1, 65, 1, 30].map(begun).into();
            let all = requests(&prompts, 3);
            let core =
                |threads| Cpu::new(&checkpoint, Setup { precision, longest: 200, ..setup(threads) }).unwrap();
            let alone: Vec<Answered> = all
                .iter()
                .flat_map(|request| core(1).answers(&[*request], &Stops::default(), 1).unwrap())
                .collect();
            for (threads, rows) in [(1, 1), (1, 64), (2, 4), (3, 64)] {
                let answers = core(threads).answers(&all, &Stops::default(), rows).unwrap();
                assert!(answers == alone, "{}: {rows} rows, {threads} threads", name(&folder));
            }
        }
    }
}

/// Sums depend on the shape of what a device is given, so that in tensors a number may differ in its last
/// bits with what is sampled beside it, and once in a while another token is drawn. The seeds are the
/// same: where no number falls between two tokens, so are the answers.
#[test]
fn each_answer_is_told_once_when_it_is_whole() {
    let folder = folders().swap_remove(0);
    let case = Case::read(&folder);
    let prompts = prompts();
    let mut all = requests(&prompts, 7);
    // The first one takes longest, and is not waited for.
    all[0].sampling.max_tokens = 40;
    for kind in cores() {
        let core = (kind.make)(&case.checkpoint, setup(2));
        let mut told = Vec::new();
        let take = &mut |number: usize, answer| told.push((number, answer));
        core.sample(&all, &Stops::default(), 16, take, &Interrupt::new()).unwrap();
        assert!(told[0].0 != 0, "{}: the others wait for the longest", kind.name);
        told.sort_by_key(|(number, _)| *number);
        assert!(told.iter().map(|(number, _)| *number).eq(0..all.len()), "{}", kind.name);
        assert!(told.iter().zip(&all).all(|((_, a), r)| a.tokens.len() == r.sampling.max_tokens as usize));
    }
}

#[test]
fn in_tensors_the_same_seeds_draw_the_same_answers_but_for_rounding() {
    let mut ended = 0;
    for folder in folders() {
        let (name, case) = (name(&folder), Case::read(&folder));
        let prompts = prompts();
        let all = requests(&prompts, 7);
        let stops = stops();
        let base = Cpu::new(&case.checkpoint, setup(2)).unwrap().answers(&all, &stops, 64).unwrap();
        ended += base.iter().filter(|answer| by_text(&stops, answer)).count();
        for rows in [1, 5, 33, 1000] {
            let core = (cores()[1].make)(&case.checkpoint, setup(1));
            let answers = core.answers(&all, &stops, rows).unwrap();
            let (mut others, mut worst) = (0, 0.0_f32);
            for (ours, theirs) in answers.iter().zip(&base) {
                if ours.tokens != theirs.tokens {
                    others += 1;
                    continue;
                }
                assert_eq!(ours.truncated, theirs.truncated);
                assert!((ours.entropy - theirs.entropy).abs() < 1e-4);
                let pairs = ours.log_probs.iter().zip(&theirs.log_probs);
                worst = pairs.map(|(a, b)| (a - b).abs()).fold(worst, f32::max);
            }
            println!("{name:<28} {rows} rows: {others} of {} differ, log-probs {worst:.1e}", base.len());
            assert!(others <= 2 && worst < 1e-4, "{name}: {rows} rows: {others}, {worst:e}");
        }
    }
    assert!(ended > 20, "{ended} answers end by a text");
}

/// Temperatures, top-k and top-p, one answer beside another.
#[test]
fn however_it_is_drawn_the_cores_draw_the_same_but_for_rounding() {
    let folder = &folders()[0];
    let (case, prompts) = (Case::read(folder), prompts());
    let mut all = requests(&prompts, 12);
    for (i, request) in all.iter_mut().enumerate() {
        let sampling = &mut request.sampling;
        sampling.temperature = [1.0, 0.7, 0.0, 1.4][i % 4];
        sampling.top_k = [0, 30, 1, 0, 100_000][i % 5];
        sampling.top_p = [1.0, 0.9, 0.3][i % 3];
        sampling.max_tokens = [20, 1, 7, 16, 17, 18, 33][i % 7];
    }
    let stops = Stops::from([5, 9, 100]);
    let base = Cpu::new(&case.checkpoint, setup(2)).unwrap().answers(&all, &stops, 64).unwrap();
    let core = (cores()[1].make)(&case.checkpoint, setup(1));
    for rows in [5, 200] {
        let answers = core.answers(&all, &stops, rows).unwrap();
        let others = answers.iter().zip(&base).filter(|(a, b)| a.tokens != b.tokens).count();
        println!("{rows} rows: {others} of {} differ", base.len());
        assert!(others <= 3, "{rows} rows: {others} of {}", base.len());
    }
}

#[test]
fn what_sampling_says_of_its_tokens_is_what_scoring_says() {
    for folder in folders() {
        let case = Case::read(&folder);
        let prompts = prompts();
        for (kind, temperature) in cores().iter().flat_map(|k| [(k, 1.0), (k, 0.7)]) {
            let mut all = requests(&prompts, 3);
            for request in &mut all {
                request.sampling.temperature = temperature;
            }
            let mut core = (kind.make)(&case.checkpoint, setup(2));
            let answers = core.answers(&all, &[5].into(), 16).unwrap();
            let whole: Vec<Vec<u32>> =
                all.iter().zip(&answers).map(|(r, a)| [r.prompt, &a.tokens].concat()).collect();
            let sequences: Vec<Sequence<'_>> = whole
                .iter()
                .zip(&all)
                .map(|(w, r)| Sequence { tokens: w, prompt: r.prompt.len(), observed: &[], mask: None })
                .collect();
            let scored = core.score(&sequences, PassOptions { temperature, ..PLAIN }, false).unwrap();
            let mut worst = 0.0_f32;
            for (answer, statistics) in answers.iter().zip(&scored) {
                assert_eq!(answer.tokens.len(), statistics.len());
                for (log_prob, statistics) in answer.log_probs.iter().zip(statistics) {
                    worst = worst.max((log_prob - statistics.log_prob).abs());
                }
                let entropy = statistics.iter().map(|t| t.entropy).sum::<f32>() / statistics.len() as f32;
                assert!((answer.entropy - entropy).abs() < kind.sampled + 1e-6);
            }
            println!("{:<28} {:<16} {worst:.1e}", name(&folder), kind.name);
            assert!(worst <= kind.sampled, "{}, {}: {worst:e}", name(&folder), kind.name);
        }
    }
}

/// Sequences of many lengths, some of one prompt, and a number for each token of their answers.
fn ragged(prompts: &[Vec<u32>]) -> Vec<(Vec<u32>, usize)> {
    (0..9).map(|i| ([&prompts[i / 2][..], &prompts[12 - i][..]].concat(), prompts[i / 2].len())).collect()
}

fn coefficient(i: usize, t: usize) -> f32 {
    ((i * 7 + t * 3) % 5) as f32 - 2.0
}

/// What the entropy of a token counts; nothing in some answers.
fn bonus(i: usize, t: usize) -> f32 {
    if i.is_multiple_of(3) { 0.0 } else { -0.2 * (1 + t % 3) as f32 }
}

#[test]
fn slices_and_micro_batches_add_up_to_the_plain_twin_s_gradient() {
    for folder in folders() {
        let case = Case::read(&folder);
        let whole = ragged(&prompts());
        let sequences: Vec<Sequence<'_>> = whole
            .iter()
            .map(|(tokens, prompt)| Sequence { tokens, prompt: *prompt, observed: &[], mask: None })
            .collect();
        let gradient = |kind: &Kind, options: PassOptions| {
            let mut core = (kind.make)(&case.checkpoint, setup(3));
            for (from, part) in [(0, &sequences[..4]), (4, &sequences[4..])] {
                let loss = |i: usize, statistics: &[TokenStatistics]| {
                    let each =
                        |of: fn(usize, usize) -> f32| (0..statistics.len()).map(move |t| of(from + i, t));
                    let entropies =
                        if (from + i).is_multiple_of(3) { Vec::new() } else { each(bonus).collect() };
                    TokenGradients { log_probs: each(coefficient).collect(), entropies }
                };
                core.learn(part, options, &loss).unwrap();
            }
            core
        };

        let decoder = Decoder::new(&case.checkpoint);
        let mut loss = Tensor::zeros((), DType::F32, &Device::Cpu).unwrap();
        for (i, sequence) in sequences.iter().enumerate() {
            let tokens = Tensor::new(vec![sequence.tokens], &Device::Cpu).unwrap();
            let logits = decoder.forward(&tokens).unwrap().logits;
            let log_probs = allot_engine::model::token_log_probs(&logits, &tokens).unwrap();
            let answer = log_probs.narrow(1, sequence.prompt - 1, sequence.answer()).unwrap();
            let c: Vec<f32> = (0..sequence.answer()).map(|t| coefficient(i, t)).collect();
            let c = Tensor::from_vec(c, (1, sequence.answer()), &Device::Cpu).unwrap();
            loss = (loss + (answer * c).unwrap().sum_all().unwrap()).unwrap();
            let all = logits.narrow(1, sequence.prompt - 1, sequence.answer()).unwrap();
            let all = candle_nn::ops::log_softmax(&all, 2).unwrap();
            let entropies = (all.exp().unwrap() * &all).unwrap().sum(2).unwrap().neg().unwrap();
            let b: Vec<f32> = (0..sequence.answer()).map(|t| bonus(i, t)).collect();
            let b = Tensor::from_vec(b, (1, sequence.answer()), &Device::Cpu).unwrap();
            loss = (loss + (entropies * b).unwrap().sum_all().unwrap()).unwrap();
        }
        let gradients = loss.backward().unwrap();
        for (kind, recompute) in cores().iter().flat_map(|k| [(k, false), (k, true)]) {
            let options = PassOptions { recompute, ..PLAIN };
            let core = gradient(kind, options);
            let ours = core.gathered().unwrap();
            let mut largest = 0.0_f32;
            for (weight, _, ours) in core.arena().tensors(&ours) {
                let theirs = numbers(gradients.get(&case.checkpoint.weights[weight]).unwrap());
                let size = theirs.iter().fold(1e-2_f32, |m, g| m.max(g.abs()));
                let worst = ours.iter().zip(&theirs).map(|(o, e)| (o - e).abs()).fold(0.0, f32::max) / size;
                assert!(worst < kind.gradient / 2.0, "{}, {}: {weight} {worst:e}", name(&folder), kind.name);
                largest = largest.max(worst);
            }
            println!("{:<28} {:<16} {largest:.1e}", name(&folder), kind.name);
            assert!(gradient(kind, options).gathered().unwrap() == ours, "the same again, to the bit");
        }
    }
}

/// A step along the gradient moves an entropy bonus as far as the gradient says, at another temperature than 1, too.
/// Threads that are more than the sequences share the work of each: products, attention, and what is done row by row.
#[test]
fn threads_that_share_a_sequence_change_no_bit_of_its_gradient() {
    for (folder, precision) in folders().iter().flat_map(|f| [(f, Precision::F32), (f, Precision::Bf16)]) {
        let case = Case::read(folder);
        let tokens: Vec<u32> = case.ids.iter().copied().cycle().take(120).collect();
        let sequences = [Sequence { tokens: &tokens, prompt: 4, observed: &[], mask: None }];
        let learned = |threads| {
            let mut core = Cpu::new(&case.checkpoint, Setup { precision, ..setup(threads) }).unwrap();
            let how = PassOptions { temperature: 0.7, recompute: threads == 3 };
            let loss = |i: usize, statistics: &[TokenStatistics]| TokenGradients {
                log_probs: (0..statistics.len()).map(|t| coefficient(i, t)).collect(),
                entropies: (0..statistics.len()).map(|t| bonus(i, t)).collect(),
            };
            core.learn(&sequences, how, &loss).unwrap();
            (core.score(&sequences, how, false).unwrap(), core.gathered().unwrap())
        };
        let alone = learned(1);
        assert!(alone.1.iter().any(|number| *number != 0.0));
        for threads in [2, 3, 16] {
            assert!(learned(threads) == alone, "{} in {precision:?}: {threads} threads", name(folder));
        }
    }
}

#[test]
fn the_gradient_of_entropies_is_their_slope() {
    for folder in folders() {
        let case = Case::read(&folder);
        let whole = ragged(&prompts());
        let sequences: Vec<Sequence<'_>> = whole
            .iter()
            .map(|(tokens, prompt)| Sequence { tokens, prompt: *prompt, observed: &[], mask: None })
            .collect();
        let options = PassOptions { temperature: 0.7, ..PLAIN };
        let mut core = Cpu::new(&case.checkpoint, setup(1)).unwrap();
        let bonuses = |i: usize, statistics: &[TokenStatistics]| TokenGradients {
            log_probs: vec![0.0; statistics.len()],
            entropies: (0..statistics.len()).map(|t| bonus(i, t)).collect(),
        };
        core.learn(&sequences, options, &bonuses).unwrap();
        let gradient = core.gathered().unwrap();
        let norm = gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
        let base = core.weights().unwrap().into_owned();
        let value = |by: f64| -> f64 {
            let moved = base.iter().zip(&gradient).map(|(w, g)| w + (by * f64::from(*g) / norm) as f32);
            let mut moved = Cpu::of(core.arena().clone(), moved.collect(), setup(1)).unwrap();
            let all = moved.score(&sequences, options, false).unwrap();
            let one = |(i, answer): (usize, &Vec<TokenStatistics>)| -> f64 {
                answer.iter().enumerate().map(|(t, s)| f64::from(bonus(i, t)) * f64::from(s.entropy)).sum()
            };
            all.iter().enumerate().map(one).sum()
        };
        let step = 1e-3;
        let slope = (value(step) - value(-step)) / (2.0 * step);
        println!("{:<28} norm {norm:.5}, slope {slope:.5}", name(&folder));
        assert!(norm > 0.1 && (slope - norm).abs() < 5e-3 * norm, "{}: {slope} {norm}", name(&folder));
    }
}

/// Windows of any width, over sequences that go on through several panels and runs of a cache: past them nothing is seen,
/// forward and back, and what sampling says is what scoring says.
#[test]
fn windows_of_any_width_are_the_plain_twin_s() {
    // No kernels for a GPU compute windows, so that it is not among the folders there.
    let Some(mistral) = folders().into_iter().find(|folder| folder.ends_with("tiny-mistral")) else {
        assert!(std::env::var_os("ALLOT_DEVICE").is_some());
        return;
    };
    let mut checkpoint = Case::read(&mistral).checkpoint;
    let token = |i: u32| (i * i * 7 + i * 13) % 393;
    // A long prompt with short answers, and a short one with a long answer.
    let (long, short): (Vec<u32>, Vec<u32>) = ((0..530).map(token).collect(), (0..5).map(token).collect());
    let answers: [Vec<u32>; 3] = [
        (0..40).map(|i| token(i + 3)).collect(),
        (0..9).map(|i| token(i + 70)).collect(),
        long[7..300].to_vec(),
    ];
    let whole = [
        ([&long[..], &answers[0]].concat(), long.len()),
        ([&long[..], &answers[1]].concat(), long.len()),
        ([&short[..], &answers[2]].concat(), short.len()),
    ];
    let sequences: Vec<Sequence<'_>> = whole
        .iter()
        .map(|(tokens, prompt)| Sequence { tokens, prompt: *prompt, observed: &[], mask: None })
        .collect();
    let weigh = |i: usize, statistics: &[TokenStatistics]| -> Vec<f32> {
        (0..statistics.len()).map(|t| coefficient(i, t) / 10.0).collect()
    };
    let setup = Setup { longest: 600, ..setup(2) };
    let mut seen = Vec::new();
    for window in [1, 6, 16, 65, 513, 1000] {
        checkpoint.shape.variant.window = Some(window);
        // Both, and the second one alone.
        for sliding in [Vec::new(), vec![false, true]] {
            let alone = !sliding.is_empty();
            checkpoint.shape.variant.sliding = sliding;
            let mut core = Cpu::new(&checkpoint, setup).unwrap();
            let scored = core.score(&sequences, PLAIN, false).unwrap();
            core.learn(&sequences, PLAIN, &|i: usize, s: &[TokenStatistics]| weigh(i, s).into()).unwrap();
            let gradient = core.gathered().unwrap();

            let decoder = Decoder::new(&checkpoint);
            let (mut loss, mut worst) = (Tensor::zeros((), DType::F32, &Device::Cpu).unwrap(), 0.0_f32);
            for (i, sequence) in sequences.iter().enumerate() {
                let tokens = Tensor::new(vec![sequence.tokens], &Device::Cpu).unwrap();
                let logits = decoder.forward(&tokens).unwrap().logits;
                let log_probs = allot_engine::model::token_log_probs(&logits, &tokens).unwrap();
                let answer = log_probs.narrow(1, sequence.prompt - 1, sequence.answer()).unwrap();
                let pairs = scored[i].iter().zip(numbers(&answer));
                worst = pairs.map(|(ours, theirs)| (ours.log_prob - theirs).abs()).fold(worst, f32::max);
                let c = Tensor::from_vec(weigh(i, &scored[i]), (1, sequence.answer()), &Device::Cpu).unwrap();
                loss = (loss + (answer * c).unwrap().sum_all().unwrap()).unwrap();
            }
            let theirs = loss.backward().unwrap();
            let mut furthest = 0.0_f32;
            for (weight, _, ours) in core.arena().tensors(&gradient) {
                let theirs = numbers(theirs.get(&checkpoint.weights[weight]).unwrap());
                let size = theirs.iter().fold(1e-2_f32, |m, g| m.max(g.abs()));
                let off = ours.iter().zip(&theirs).map(|(o, e)| (o - e).abs()).fold(0.0, f32::max) / size;
                furthest = furthest.max(off);
            }
            println!("window {window:<5} {alone:<6} log-probs {worst:.1e}, gradients {furthest:.1e}");
            assert!(worst < 5e-5 && furthest < 2e-4, "window {window}: {worst:e}, {furthest:e}");

            // Token by token, from both prompts.
            let sampling = Sampling { max_tokens: 60, ..Sampling::default() };
            let requests = [(&long, 1), (&long, 2), (&short, 3)].map(|(prompt, seed)| Request {
                prompt,
                history: &[],
                seed,
                sampling,
            });
            let answers = core.answers(&requests, &Stops::default(), 4).unwrap();
            for (request, answer) in requests.iter().zip(&answers) {
                let tokens = [request.prompt, &answer.tokens].concat();
                let sequence =
                    Sequence { tokens: &tokens, prompt: request.prompt.len(), observed: &[], mask: None };
                let scored = core.score(&[sequence], PLAIN, false).unwrap().swap_remove(0);
                assert!(
                    scored.iter().map(|t| t.log_prob).eq(answer.log_probs.iter().copied()),
                    "window {window}: sampling and scoring differ"
                );
            }
            seen.push(scored[0][0].log_prob);
        }
    }
    // Each of them is another model, until a window is wider than all there is.
    assert_eq!(seen[10], seen[11]);
    let mut distinct = seen[..10].to_vec();
    distinct.dedup();
    assert_eq!(distinct.len(), 10);
}

/// Where the mask is kept, an answer's log-probabilities are those of what it was drawn from: to the last bit in scoring,
/// and with the gradient of that. For an answer of one token they say what an expectation under sampling says: nothing, of
/// a reward that is the same for all. Without the mask it would.
#[test]
fn a_kept_mask_is_what_tokens_were_drawn_from() {
    let mut looked = 0;
    for folder in folders() {
        let case = Case::read(&folder);
        let prompts = prompts();
        let mut all = requests(&prompts, 4);
        for (i, request) in all.iter_mut().enumerate() {
            let own =
                Sampling { temperature: 0.8, top_k: 12, top_p: [0.9, 0.6, 1.0][i % 3], ..request.sampling };
            request.sampling = Sampling { keep_mask: true, ..own };
        }
        let options = PassOptions { temperature: 0.8, ..PLAIN };
        let core = Cpu::new(&case.checkpoint, setup(2)).unwrap();
        let answers = core.answers(&all, &stops(), 16).unwrap();
        let plain: Vec<Request<'_>> = all
            .iter()
            .map(|r| Request { sampling: Sampling { keep_mask: false, ..r.sampling }, ..*r })
            .collect();
        let without = core.answers(&plain, &stops(), 16).unwrap();
        let whole: Vec<Vec<u32>> =
            all.iter().zip(&answers).map(|(r, a)| [r.prompt, &a.tokens].concat()).collect();
        let sequence = |i: usize| Sequence {
            tokens: &whole[i],
            prompt: all[i].prompt.len(),
            observed: &[],
            mask: Some(&answers[i].mask),
        };
        let sequences: Vec<Sequence<'_>> = (0..all.len()).map(sequence).collect();
        for (a, b) in answers.iter().zip(&without) {
            assert_eq!(
                (&a.tokens, a.truncated),
                (&b.tokens, b.truncated),
                "it changes nothing of what is drawn"
            );
            assert!(b.mask.is_empty() && a.mask.rows().count() == a.tokens.len());
            for ((kept, token), (log_prob, all)) in
                a.mask.rows().zip(&a.tokens).zip(a.log_probs.iter().zip(&b.log_probs))
            {
                assert!(kept.len() <= 12 && kept.contains(token) && log_prob >= all, "{kept:?}");
                assert!(kept.len() > 1 || *log_prob == 0.0);
            }
        }
        assert!(answers.iter().zip(&without).any(|(a, b)| a.log_probs != b.log_probs));

        // What the plain twin says of it, and how that changes with the weights.
        let decoder = Decoder::new(&case.checkpoint);
        let mut loss = Tensor::zeros((), DType::F32, &Device::Cpu).unwrap();
        let v = case.checkpoint.shape.vocabulary;
        for (i, sequence) in sequences.iter().enumerate() {
            let tokens = Tensor::new(vec![sequence.tokens], &Device::Cpu).unwrap();
            let logits = decoder.forward(&tokens).unwrap().logits;
            let logits =
                logits.narrow(1, sequence.prompt - 1, sequence.answer()).unwrap().squeeze(0).unwrap();
            let bias: Vec<f32> = answers[i]
                .mask
                .rows()
                .flat_map(|kept| (0..v as u32).map(|token| if kept.contains(&token) { 0.0 } else { -1e5 }))
                .collect();
            let bias = Tensor::from_vec(bias, (sequence.answer(), v), &Device::Cpu).unwrap();
            let logs = candle_nn::ops::log_softmax(&((logits / 0.8).unwrap() + bias).unwrap(), 1).unwrap();
            let targets = Tensor::new(&sequence.tokens[sequence.prompt..], &Device::Cpu).unwrap();
            let chosen = logs.gather(&targets.unsqueeze(1).unwrap(), 1).unwrap().squeeze(1).unwrap();
            let c: Vec<f32> = (0..sequence.answer()).map(|t| coefficient(i, t)).collect();
            let c = Tensor::from_vec(c, sequence.answer(), &Device::Cpu).unwrap();
            loss = (loss + (chosen * c).unwrap().sum_all().unwrap()).unwrap();
            let entropies = (logs.exp().unwrap() * &logs).unwrap().sum(1).unwrap().neg().unwrap();
            let b: Vec<f32> = (0..sequence.answer()).map(|t| bonus(i, t)).collect();
            let b = Tensor::from_vec(b, sequence.answer(), &Device::Cpu).unwrap();
            loss = (loss + (entropies * b).unwrap().sum_all().unwrap()).unwrap();
        }
        let gradients = loss.backward().unwrap();
        for kind in cores().iter().filter(|kind| kind.exact) {
            let name = format!("{}, {}", name(&folder), kind.name);
            let mut core = (kind.make)(&case.checkpoint, setup(2));
            let scored = core.score(&sequences, options, false).unwrap();
            let worst = scored.iter().zip(&answers).flat_map(|(s, a)| s.iter().zip(&a.log_probs));
            let worst = worst.map(|(s, log_prob)| (s.log_prob - log_prob).abs()).fold(0.0, f32::max);
            assert!(worst <= kind.sampled, "{name}: {worst:e}");
            let own = |i: usize, statistics: &[TokenStatistics]| TokenGradients {
                log_probs: (0..statistics.len()).map(|t| coefficient(i, t)).collect(),
                entropies: (0..statistics.len()).map(|t| bonus(i, t)).collect(),
            };
            core.learn(&sequences, options, &own).unwrap();
            let ours = core.gathered().unwrap();
            let mut largest = 0.0_f32;
            for (weight, _, ours) in core.arena().tensors(&ours) {
                let theirs = numbers(gradients.get(&case.checkpoint.weights[weight]).unwrap());
                let size = theirs.iter().fold(1e-2_f32, |m, g| m.max(g.abs()));
                largest = ours.iter().zip(&theirs).map(|(o, t)| (o - t).abs() / size).fold(largest, f32::max);
            }
            println!("{name:<44} log-probs {worst:.1e}, gradients {largest:.1e}");
            assert!(largest < kind.gradient / 2.0, "{name}: {largest:e}");
        }

        // An expectation over all answers of one token, of a reward that is 1 whatever it is.
        let first = |i: &usize| answers[*i].mask.rows().next().is_some_and(|kept| kept.len() > 1);
        let Some(i) = (0..all.len()).find(first) else { continue };
        looked += 1;
        let (prompt, kept) = (all[i].prompt, answers[i].mask.rows().next().unwrap());
        let one: Vec<Vec<u32>> = kept.iter().map(|token| [prompt, &[*token]].concat()).collect();
        let mut mask = SamplingMask::default();
        mask.push(kept);
        let norm = |mask: Option<&SamplingMask>| -> f64 {
            let mut core = Cpu::new(&case.checkpoint, setup(1)).unwrap();
            let masked: Vec<Sequence<'_>> = one
                .iter()
                .map(|tokens| Sequence { tokens, prompt: prompt.len(), observed: &[], mask })
                .collect();
            let among: Vec<Sequence<'_>> = masked.iter().map(|s| Sequence { ..*s }).collect();
            let likely = core.score(&among, options, false).unwrap();
            let total: f32 = likely.iter().map(|s| s[0].log_prob.exp()).sum();
            let shares: Vec<f32> = likely.iter().map(|s| s[0].log_prob.exp() / total).collect();
            core.learn(&masked, options, &|i, _| vec![shares[i]].into()).unwrap();
            core.gathered().unwrap().iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt()
        };
        let (with, without) = (norm(Some(&mask)), norm(None));
        println!("{:<44} of a reward of 1: {with:.1e} with the mask, {without:.1e} without", name(&folder));
        assert!(with < 1e-3 * without && without > 1e-2, "{}: {with:e} {without:e}", name(&folder));
    }
    assert!(looked > 5, "{looked}");
}

/// What one core saved the other takes up: weights, moments, the next step.
#[test]
fn a_run_goes_on_on_the_other_core() {
    let sgd = OptimizerConfig { learning_rate: 1e-3, ..OptimizerConfig::default() };
    for folder in folders() {
        let case = Case::read(&folder);
        let sequences = [Sequence { tokens: &case.ids, prompt: 4, observed: &[], mask: None }];
        let up = |_: usize, statistics: &[TokenStatistics]| vec![-0.1; statistics.len()].into();
        let step = |core: &mut Box<dyn Core>| {
            core.learn(&sequences, PLAIN, &up).unwrap();
            assert!(core.step(&sgd, sgd.learning_rate).unwrap() > 0.0);
        };
        let said = |core: &mut Box<dyn Core>, reference: bool| -> Vec<f32> {
            let statistics = core.score(&sequences, PLAIN, reference).unwrap().swap_remove(0);
            statistics.iter().map(|t| t.log_prob).collect()
        };
        let off = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let cores = cores();
        let others = [(0, 1), (1, 0), (0, 2), (0, 3), (3, 2)];
        for (one, other) in others.map(|(one, other)| (&cores[one], &cores[other])) {
            let name = format!("{}, {} to {}", name(&folder), one.name, other.name);
            let slack = if other.exact { 2e-4 } else { other.log_prob };
            let scratch = tempfile::tempdir().unwrap();
            let (training, model) = (scratch.path(), scratch.path().join("model"));
            let referring = Setup { reference: true, ..setup(2) };
            let mut first = (one.make)(&case.checkpoint, referring);
            let begun = said(&mut first, false);
            step(&mut first);
            step(&mut first);
            assert!(off(&said(&mut first, false), &begun) > 1e-2, "{name}: nothing was learned");
            assert_eq!(off(&said(&mut first, true), &begun), 0.0, "{name}: the reference stays");
            first.save_training(training).unwrap();
            first.checkpoint().unwrap().export(&model, Precision::F32, &SpecialIds::default()).unwrap();

            let mut second = (other.make)(&case.checkpoint, setup(2));
            second.load_training(training, &model, first.steps()).unwrap();
            assert_eq!(second.steps(), 2);
            assert!(first.weights().unwrap() == second.weights().unwrap(), "{name}: weights");
            step(&mut first);
            step(&mut second);
            let worst = off(&said(&mut first, false), &said(&mut second, false));
            println!("{name:<60} {worst:.1e}");
            assert!(worst < slack, "{name}: {worst:e}");
        }
    }
}

/// With nothing to learn from there is a step all the same; without `learn` there is none. Broken
/// gradients change nothing.
#[test]
fn a_step_needs_gradients_that_are_finite() {
    let case = Case::read(&folders()[0]);
    let sequences = [Sequence { tokens: &case.ids, prompt: 4, observed: &[], mask: None }];
    let config = OptimizerConfig { weight_decay: 0.5, ..OptimizerConfig::default() };
    for kind in cores().iter().filter(|k| k.exact || k.name == "cpu in bf16") {
        let mut core = (kind.make)(&case.checkpoint, setup(1));
        let begun = core.weights().unwrap().into_owned();
        assert!(core.step(&config, 0.1).unwrap() == 0.0 && core.steps() == 0, "{}", kind.name);
        core.learn(&sequences, PLAIN, &|_, statistics| vec![f32::NAN; statistics.len()].into()).unwrap();
        assert!(!core.step(&config, 0.1).unwrap().is_finite() && core.steps() == 0, "{}", kind.name);
        assert!(core.weights().unwrap() == begun, "{}", kind.name);
        core.learn(&[], PLAIN, &|_, _| TokenGradients::default()).unwrap();
        assert!(core.step(&config, 0.1).unwrap() == 0.0 && core.steps() == 1, "{}", kind.name);
        let decayed = core.weights().unwrap().iter().zip(&begun).all(|(w, b)| (w - b * 0.95).abs() < 1e-6);
        assert!(decayed, "{}", kind.name);
    }
}

#[test]
fn tensors_refuse_what_they_do_not_do() {
    let case = Case::read(&folders()[0]);
    let mut core = (cores()[1].make)(&case.checkpoint, setup(1));
    let tokens = [1, 2, 1_000_000];
    let refused = core
        .score(&[Sequence { tokens: &tokens, prompt: 1, observed: &[], mask: None }], PLAIN, false)
        .err()
        .unwrap();
    assert!(refused.to_string().starts_with("token 1000000 is past the vocabulary"), "{refused}");
}

#[test]
fn adapters_learn_and_merge() {
    for folder in folders() {
        let case = Case::read(&folder);
        let config = LoraConfig { rank: 4, alpha: 8.0 };
        let mut core = Cpu::new(&case.checkpoint, Setup { lora: Some(config), ..setup(2) }).unwrap();
        let sequences = [Sequence { tokens: &case.ids, prompt: 4, observed: &[], mask: None }];
        let sum = |core: &mut Cpu| -> f64 {
            core.score(&sequences, PLAIN, false).unwrap()[0].iter().map(|t| f64::from(t.log_prob)).sum()
        };
        let before = sum(&mut core);
        let bare = Cpu::new(&case.checkpoint, setup(1)).unwrap();
        assert!(core.merged() == bare.merged(), "fresh adapters change nothing");

        // A few steps that make both matrices other than zero.
        let up = OptimizerConfig { weight_decay: 0.0, max_norm: 0.0, ..OptimizerConfig::default() };
        let all_up = |_: usize, statistics: &[TokenStatistics]| vec![-1.0; statistics.len()].into();
        for _ in 0..3 {
            core.learn(&sequences, PLAIN, &all_up).unwrap();
            core.step(&up, 1e-2).unwrap();
        }
        let after = sum(&mut core);
        assert!(after > before + 1.0, "{}: {before} to {after}", name(&folder));
        core.learn(&sequences, PLAIN, &all_up).unwrap();
        let gradient = core.gathered().unwrap();
        // By the chain rule from the gradient of the merged weights: dA = s Bᵀ dW, dB = s dW Aᵀ.
        let mut whole = Cpu::of(core.arena().clone(), core.merged().into_owned(), setup(1)).unwrap();
        whole.learn(&sequences, PLAIN, &all_up).unwrap();
        let full = whole.gathered().unwrap();
        let full: HashMap<&str, &[f32]> = whole.arena().tensors(&full).map(|(n, _, g)| (n, g)).collect();
        let adapters = core.adapters().unwrap();
        let numbers: Vec<_> = adapters.tensors(core.trained()).collect();
        let ours: Vec<_> = adapters.tensors(&gradient).collect();
        for (pair, ours) in numbers.chunks(2).zip(ours.chunks(2)) {
            let ((name_a, dims_a, a), (_, dims_b, b)) = (pair[0], pair[1]);
            let name = name_a.trim_start_matches("base_model.model.").replace(".lora_A", "");
            let (dw, scale) = (full[name.as_str()], config.alpha / config.rank as f32);
            let (rank, cols, rows) = (dims_a[0], dims_a[1], dims_b[0]);
            let da = |r: usize, c: usize| (0..rows).map(|i| b[i * rank + r] * dw[i * cols + c]).sum::<f32>();
            let db = |i: usize, r: usize| (0..cols).map(|c| dw[i * cols + c] * a[r * cols + c]).sum::<f32>();
            let theirs_a: Vec<f32> = (0..rank * cols).map(|n| scale * da(n / cols, n % cols)).collect();
            let theirs_b: Vec<f32> = (0..rows * rank).map(|n| scale * db(n / rank, n % rank)).collect();
            for (ours, theirs) in [(ours[0].2, theirs_a), (ours[1].2, theirs_b)] {
                let size = theirs.iter().fold(1e-2_f32, |m, g| m.max(g.abs()));
                let worst = ours.iter().zip(&theirs).map(|(o, t)| (o - t).abs()).fold(0.0, f32::max) / size;
                assert!(worst < 1e-3, "{}: {name} {worst:e}", folder.display());
            }
        }
        let merged = core.merged().into_owned();
        let mut plain = Cpu::of(core.arena().clone(), merged, setup(1)).unwrap();
        assert!((sum(&mut plain) - sum(&mut core)).abs() < 1e-3, "{}", name(&folder));
        assert!(
            (core.score(&sequences, PLAIN, true).unwrap()[0]
                .iter()
                .map(|t| f64::from(t.log_prob))
                .sum::<f64>()
                - before)
                .abs()
                < 1e-3
        );
    }
}

/// Adapters on both cores: the same gradients, the same steps, the same sums with the weights; and what one saved the
/// other takes up.
#[test]
fn adapters_are_the_same_on_both_cores() {
    let sgd = OptimizerConfig { learning_rate: 1e-2, ..OptimizerConfig::default() };
    let lora = Some(LoraConfig { rank: 4, alpha: 8.0 });
    for folder in folders() {
        let case = Case::read(&folder);
        let whole = ragged(&prompts());
        let sequences: Vec<Sequence<'_>> = whole
            .iter()
            .map(|(tokens, prompt)| Sequence { tokens, prompt: *prompt, observed: &[], mask: None })
            .collect();
        let step = |core: &mut Box<dyn Core>, options: PassOptions| -> (Vec<f32>, f64) {
            for (from, part) in [(0, &sequences[..4]), (4, &sequences[4..])] {
                let loss = |i: usize, statistics: &[TokenStatistics]| {
                    (0..statistics.len()).map(|t| coefficient(from + i, t)).collect()
                };
                core.learn(part, options, &loss).unwrap();
            }
            let gathered = core.gathered().unwrap();
            (gathered, core.step(&sgd, sgd.learning_rate).unwrap())
        };
        let said = |core: &mut Box<dyn Core>, reference: bool| -> Vec<f32> {
            let all = core.score(&sequences, PLAIN, reference).unwrap().concat();
            all.iter().map(|t| t.log_prob).collect()
        };
        let off = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let size = |a: &[f32]| a.iter().fold(1e-3_f32, |m, x| m.max(x.abs()));
        let adapted = Setup { lora, reference: true, ..setup(2) };
        let base = case.checkpoint.weights.len();
        for (kind, recompute) in cores().iter().skip(1).flat_map(|k| [(k, false), (k, true)]) {
            let name = format!("{}, {}", name(&folder), kind.name);
            let options = PassOptions { recompute, ..PLAIN };
            let [mut ours, mut theirs] =
                [kind.make, cores()[0].make].map(|make| make(&case.checkpoint, adapted));
            assert!(ours.adapted() && ours.shape() == theirs.shape());
            let before = said(&mut ours, false);
            assert!(off(&before, &said(&mut theirs, false)) < kind.log_prob, "{name}");
            let mut worst = 0.0_f32;
            for _ in 0..3 {
                let ((a, norm), (b, other)) = (step(&mut ours, options), step(&mut theirs, options));
                assert_eq!(a.len(), b.len());
                worst = worst.max(off(&a, &b) / size(&b));
                assert!((norm - other).abs() < f64::from(kind.gradient) * other, "{name}: {norm} {other}");
            }
            assert!(worst < 4.0 * kind.gradient, "{name}: gradients {worst:e}");
            let (a, b) = (said(&mut ours, false), said(&mut theirs, false));
            println!("{name:<44} gradients {worst:.1e}, after three steps {:.1e}", off(&a, &b));
            assert!(off(&a, &before) > 0.1, "{name}: nothing was learned");
            if kind.exact {
                assert!(off(&a, &b) < 2e-2, "{name}: {:e}", off(&a, &b));
            }
            assert!(
                off(&said(&mut ours, true), &before) < kind.sampled.max(1e-6),
                "{name}: the reference stays"
            );
            assert!(ours.finite().unwrap() && ours.steps() == 3);

            // The weights stay; what others see has the adapters in it.
            assert!(ours.weights().unwrap() == theirs.weights().unwrap(), "{name}");
            let merged = ours.checkpoint().unwrap();
            assert_eq!(merged.weights.len(), base);
            let mut plain = (kind.make)(&merged, setup(1));
            assert!(off(&said(&mut plain, false), &a) < kind.log_prob, "{name}: the sums");

            let scratch = tempfile::tempdir().unwrap();
            ours.save_training(scratch.path()).unwrap();
            step(&mut ours, options);
            let next = said(&mut ours, false);
            for (make, alike) in [(cores()[0].make, kind.exact), (kind.make, true)] {
                let mut other = make(&case.checkpoint, adapted);
                other.load_training(scratch.path(), Path::new("nowhere"), 3).unwrap();
                assert_eq!(other.steps(), 3);
                // In another kind of number another expert may be asked.
                let far = off(&said(&mut other, false), &a);
                assert!(!alike || far < kind.log_prob, "{name}: taken up {far:e}");
                // With the moments: the next step goes as far.
                step(&mut other, options);
                let far = off(&said(&mut other, false), &next);
                assert!(!kind.exact || far < 2e-2, "{name}: a step on {far:e}");
            }
        }
    }
}

/// The engine's config of the tests below.
fn native(update: UpdateConfig) -> NativeConfig {
    NativeConfig {
        seed: 1,
        sampling: Sampling { max_tokens: 20, ..Sampling::default() },
        evaluation: Vec::new(),
        stops: [5].into(),
        rows: 8,
        update,
        optimizer: OptimizerConfig { learning_rate: 1e-4, ..OptimizerConfig::default() },
        updates: 4,
        signals: Vec::new(),
    }
}

/// Prompt, version, position and sampling settings say what a rollout is, and nothing that is granted beside it, before
/// or after.
#[test]
fn a_rollout_is_the_same_in_whichever_portion_it_comes() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let case = Case::read(&folders().swap_remove(0));
    let limits = Limits { rounds: 9, step_rollouts: None, run_rollouts: None, run_tokens: None, longest: 20 };
    let hot = Some(SamplerSettings { temperature: 1.4, max_tokens: 9, max_turns: 1 });
    let whole = |portions: &[&[(u32, u32)]], own: Option<SamplerSettings>| {
        let core = Box::new(Cpu::new(&case.checkpoint, setup(2)).unwrap());
        let mut engine = Native::new(core, native(UpdateConfig::default()), prompts());
        let (mut ledger, mut next, mut all) = (Ledger::new(limits), HashMap::new(), Vec::new());
        for portion in portions {
            let one = |(prompt, count): &(u32, u32)| {
                // Some prompts only.
                let sampling = own.filter(|_| prompt % 2 == 0);
                allot_allocation::Request {
                    sampling,
                    ..allot_allocation::Request::new(PromptId(*prompt), *count)
                }
            };
            let order: Vec<_> = portion.iter().map(one).collect();
            let grant = ledger.grant(&order, |prompt| (next.get(&prompt).copied().unwrap_or(0), 0));
            portion.iter().for_each(|(prompt, count)| *next.entry(PromptId(*prompt)).or_default() += count);
            let sampled =
                runtime.block_on(engine.sample(grant, Purpose::Training, &mut |_, _| {}, &Interrupt::new()));
            let sampled: Vec<_> = sampled.unwrap().into_iter().flatten().collect();
            ledger.charge(sampled.iter().map(|s| (s.prompt, s.position, s.tokens))).unwrap();
            all.extend(sampled);
        }
        all.sort_by_key(|sample| (sample.prompt, sample.position));
        all
    };
    for own in [None, hot] {
        let at_once = whole(&[&[(1, 7), (2, 6), (4, 5)]], own);
        assert_eq!(at_once.len(), 18);
        assert!(whole(&[&[(4, 2), (1, 3)], &[(2, 6), (4, 1)], &[(1, 4), (4, 2)]], own) == at_once);
        for sample in &at_once {
            let longest = own.filter(|_| sample.sampling.is_some()).map_or(20, |own| own.max_tokens);
            assert_eq!(sample.sampling.is_some(), own.is_some() && sample.prompt.0 % 2 == 0);
            assert!(
                sample.tokens <= longest
                    && sample.truncated == (sample.tokens == longest && !stopped(sample))
            );
        }
    }
}

fn stopped(sample: &Sample<Answer>) -> bool {
    sample.answer.tokens.last() == Some(&5)
}

/// Each rollout is learned from at the temperature that it was sampled at: fresh ones have a ratio of exactly 1, whatever
/// stands beside them in a batch.
#[test]
fn rollouts_of_several_temperatures_are_learned_from_at_their_own() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let case = Case::read(&folders().swap_remove(0));
    let limits = Limits { rounds: 9, step_rollouts: None, run_rollouts: None, run_tokens: None, longest: 20 };
    let core = Box::new(Cpu::new(&case.checkpoint, setup(2)).unwrap());
    let mut engine = Native::new(core, native(UpdateConfig::default()), prompts());
    let order: Vec<_> = (0..6)
        .map(|i| {
            let own = SamplerSettings { temperature: 0.6 + 0.2 * i as f32, max_tokens: 20, max_turns: 1 };
            let sampling = (i != 2).then_some(own);
            allot_allocation::Request { sampling, ..allot_allocation::Request::new(PromptId(i), 3) }
        })
        .collect();
    let grant = Ledger::new(limits).grant(&order, |_| (0, 0));
    let sampled =
        runtime.block_on(engine.sample(grant, Purpose::Training, &mut |_, _| {}, &Interrupt::new())).unwrap();
    let sampled: Vec<Sample<Answer>> = sampled.into_iter().flatten().collect();
    let core = Cpu::new(&case.checkpoint, setup(2));
    let mut core = core.unwrap();
    for sample in &sampled {
        let prompt = engine.prompt(sample.prompt);
        let tokens = [prompt, &sample.answer.tokens].concat();
        let temperature = sample.sampling.map_or(1.0, |own| own.temperature);
        let sequence = Sequence { tokens: &tokens, prompt: prompt.len(), observed: &[], mask: None };
        let scored = core.score(&[sequence], PassOptions { temperature, ..PLAIN }, false).unwrap();
        let scored: Vec<f32> = scored[0].iter().map(|t| t.log_prob).collect();
        assert_eq!(scored, sample.answer.log_probs, "on the CPU to the last bit");
    }
    let batch: Vec<Example<'_, Answer>> = sampled
        .iter()
        .enumerate()
        .map(|(i, sample)| Example { sample, advantage: [1.0, -1.0][i % 2], by_turn: &[] })
        .collect();
    let told = runtime.block_on(engine.update(&batch, None, &Interrupt::new())).unwrap().metrics;
    let told: HashMap<&str, f64> = told.into_iter().collect();
    assert_eq!(told["clip_ratio/region_mean"], 0.0, "{told:?}");
}

/// These sequences as rollouts whose log-probabilities are made up.
fn made_up(whole: &[(Vec<u32>, usize)]) -> Vec<Sample<Answer>> {
    let one = |(i, (tokens, prompt)): (usize, &(Vec<u32>, usize))| {
        let tokens = tokens[*prompt..].to_vec();
        let log_probs = vec![-5.5 - 0.1 * i as f32; tokens.len()];
        Sample {
            prompt: PromptId(i as u32),
            position: 0,
            version: 0,
            tokens: tokens.len() as u32,
            truncated: false,
            log_prob: log_probs.iter().map(|l| f64::from(*l)).sum(),
            signals: Vec::new(),
            sampling: None,
            answer: Answer { tokens, log_probs, ..Answer::default() },
        }
    };
    whole.iter().enumerate().map(one).collect()
}

/// What was sampled at earlier weights has moved since. It is weighted by that, clipped by it, or neither.
#[test]
fn stale_rollouts_are_weighted_or_clipped_by_how_far_they_moved() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let case = Case::read(&folders()[0]);
    let whole = ragged(&prompts());
    let sampled = made_up(&whole);
    let batch: Vec<Example<'_, Answer>> = sampled
        .iter()
        .enumerate()
        .map(|(i, sample)| Example { sample, advantage: if i % 2 == 0 { 1.0 } else { -1.0 }, by_turn: &[] })
        .collect();
    let stale = |old_log_probs| {
        let update =
            UpdateConfig { loss: LossConfig::of(LossKind::Grpo), old_log_probs, ..UpdateConfig::default() };
        let core = (cores()[0].make)(&case.checkpoint, setup(1));
        let prompts = whole.iter().map(|(tokens, prompt)| tokens[..*prompt].to_vec()).collect();
        let mut engine = Native::new(core, native(update), prompts);
        let mut update = || runtime.block_on(engine.update(&batch, None, &Interrupt::new())).unwrap();
        update();
        let told = update();
        let number = |name: &str| told.metrics.iter().find(|(n, _)| *n == name).map_or(f64::NAN, |(_, x)| *x);
        let weight = number("sampling/importance_sampling_ratio/mean");
        (weight, number("clip_ratio/region_mean"), engine.computed().flops.training)
    };
    let [decoupled, sampling, recomputed] = [Old::Decoupled, Old::Sampling, Old::Recomputed].map(stale);
    assert!(decoupled.0 != 1.0 && decoupled.1 == 0.0, "weighted: {decoupled:?}");
    assert!(sampling.0 == 1.0 && sampling.1 > 0.0, "clipped: {sampling:?}");
    assert_eq!((recomputed.0, recomputed.1), (1.0, 0.0), "as if it were fresh");
    assert!(
        sampling.2 < decoupled.2 && decoupled.2 < recomputed.2,
        "no pass, one for the stale, one for all"
    );
}

/// Every loss, with answers masked that met their length limit. Where it is a mean over answers they count among these, as
/// if they had no advantage; where it is a mean over tokens it is that of the others, as if they were not there. A
/// divergence from a reference is not measured of them either.
#[test]
fn truncated_answers_that_are_masked_teach_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let case = Case::read(&folders()[0]);
    let whole = ragged(&prompts());
    let mut sampled = made_up(&whole);
    for sample in sampled.iter_mut().skip(1).step_by(3) {
        sample.truncated = true;
    }
    let advantage = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -0.7 };
    let all: Vec<Example<'_, Answer>> = sampled
        .iter()
        .enumerate()
        .map(|(i, sample)| Example { sample, advantage: advantage(i), by_turn: &[] })
        .collect();
    let those = |truncated: bool| -> Vec<Example<'_, Answer>> {
        all.iter()
            .filter(|e| e.sample.truncated == truncated)
            .map(|e| Example { sample: e.sample, advantage: e.advantage, by_turn: &[] })
            .collect()
    };
    let without = those(false);
    let unmoved: Vec<_> = all
        .iter()
        .map(|e| Example { advantage: if e.sample.truncated { 0.0 } else { e.advantage }, ..*e })
        .collect();
    let (shares, masked) = (without.len() as f64 / all.len() as f64, (all.len() - without.len()) as f64);
    assert!(masked > 1.0 && shares > 0.5);
    let run = |kind: LossKind, kl: f64, mask_truncated: bool, batch: &[Example<'_, Answer>]| {
        let loss = LossConfig { kl, ..LossConfig::of(kind) };
        let update = UpdateConfig { loss, mask_truncated, micro_batch_tokens: 24, ..UpdateConfig::default() };
        let core = Box::new(Cpu::new(&case.checkpoint, Setup { reference: true, ..setup(1) }).unwrap());
        let prompts = whole.iter().map(|(tokens, prompt)| tokens[..*prompt].to_vec()).collect();
        let mut engine = Native::new(core, native(update), prompts);
        let mut told = Vec::new();
        for _ in 0..2 {
            // In the second one they are stale, and have left the reference.
            told = runtime.block_on(engine.update(batch, None, &Interrupt::new())).unwrap().metrics;
        }
        let weights = engine.core().weights().unwrap().into_owned();
        (weights, told.into_iter().collect::<HashMap<&str, f64>>(), engine.computed())
    };
    for kind in
        [LossKind::Grpo, LossKind::DrGrpo, LossKind::Dapo, LossKind::Gspo, LossKind::Cispo, LossKind::Rloo]
    {
        let by_tokens = matches!(kind, LossKind::Dapo | LossKind::Cispo);
        let (weights, told, computed) = run(kind, 0.0, true, &all);
        assert_eq!(told["masked"], masked, "{kind:?}");
        let (same, same_told, same_computed) =
            run(kind, 0.0, false, if by_tokens { &without } else { &unmoved });
        assert!(weights == same && told["loss"] == same_told["loss"], "{kind:?}");
        assert_eq!(computed, same_computed, "{kind:?}: they are not computed");
        assert!(!same_told.contains_key("masked"));
        assert!(weights != run(kind, 0.0, false, &all).0, "{kind:?}: they would teach something");
        if !by_tokens {
            assert!(weights != run(kind, 0.0, true, &without).0, "{kind:?}: they count among the answers");
        }

        let (first, second) = (run(kind, 0.3, true, &all), run(kind, 0.3, false, &without));
        assert_eq!(first.2, second.2, "{kind:?}");
        if by_tokens {
            assert!(first.0 == second.0, "{kind:?}: without them");
        } else {
            assert!(first.0 != second.0 && first.0 != run(kind, 0.3, false, &unmoved).0, "{kind:?}");
        }
    }
    // Where all are masked the optimizer makes its step, and nothing is learned.
    let (_, told, computed) = run(LossKind::Dapo, 0.3, true, &those(true));
    assert_eq!((told["loss"], told["grad_norm"], told["optimizer_steps"]), (0.0, 0.0, 1.0));
    assert_eq!((computed.trained_tokens, computed.optimizer_steps, computed.flops.training), (0, 2, 0.0));
}

/// A whole update of the engine, with stale rollouts, a reference and micro-batches, says and leaves the
/// same behind on both cores.
#[test]
fn an_update_is_the_same_on_both_cores() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for folder in folders() {
        let case = Case::read(&folder);
        let whole = ragged(&prompts());
        let mut sampled = made_up(&whole);
        sampled[2].truncated = true;
        let batch: Vec<Example<'_, Answer>> = sampled
            .iter()
            .enumerate()
            .map(|(i, sample)| Example { sample, advantage: coefficient(i, 1), by_turn: &[] })
            .collect();
        let sequences: Vec<Sequence<'_>> = whole
            .iter()
            .map(|(tokens, prompt)| Sequence { tokens, prompt: *prompt, observed: &[], mask: None })
            .collect();
        let run = |kind: &Kind| -> (Vec<(&str, f64)>, Vec<f64>) {
            let config = NativeConfig {
                seed: 1,
                sampling: Sampling::default(),
                evaluation: Vec::new(),
                stops: [5].into(),
                rows: 8,
                update: UpdateConfig {
                    loss: LossConfig { kl: 0.1, entropy: 0.02, ..LossConfig::of(LossKind::Dapo) },
                    mask_truncated: true,
                    mini_batch: 5,
                    micro_batch_tokens: 24,
                    recompute: true,
                    ..UpdateConfig::default()
                },
                optimizer: OptimizerConfig { learning_rate: 1e-4, ..OptimizerConfig::default() },
                updates: 4,
                signals: Vec::new(),
            };
            let core = (kind.make)(&case.checkpoint, Setup { reference: true, ..setup(2) });
            let prompts = whole.iter().map(|(tokens, prompt)| tokens[..*prompt].to_vec()).collect();
            let mut engine = Native::new(core, config, prompts);
            runtime.block_on(async {
                let mut told = engine.update(&batch, None, &Interrupt::new()).await.unwrap().metrics;
                // Now they are stale.
                told.extend(engine.update(&batch, None, &Interrupt::new()).await.unwrap().metrics);
                let (after, scorer) = (engine.core().checkpoint().unwrap(), cores()[0].make);
                let statistics = scorer(&after, setup(1)).score(&sequences, PLAIN, false).unwrap();
                (told, statistics.iter().map(|t| t.iter().map(|t| f64::from(t.log_prob)).sum()).collect())
            })
        };
        let [one, other, ..] = cores();
        let ((told, scores), (other_told, other_scores)) = (run(&one), run(&other));
        for ((name, a), (_, b)) in told.iter().zip(&other_told) {
            assert!((a - b).abs() < 1e-3 * a.abs().max(0.1), "{}: {name}: {a} and {b}", folder.display());
        }
        let worst = scores.iter().zip(&other_scores).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        println!("{:<28} scores after two updates {worst:.1e}", name(&folder));
        assert!(worst < 5e-3, "{}: {worst:e}", folder.display());
    }
}
