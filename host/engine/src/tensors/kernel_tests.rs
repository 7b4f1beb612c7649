//! Every kernel held against its plain twin, without a GPU: by [`Emulated`], which runs the kernels' own
//! source. First each by itself, in shapes of models that are not here; then all of them as the steps of
//! whole samplings, on the tiny models.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::path::{Path, PathBuf};

use allot_allocation::seed::Stream;
use candle_core::{DType, Device, Tensor};

use super::Tensors;
use super::decode::{Decode, Extent, kind};
use super::emulated::Emulated;
use super::fused::{Fused, STRIDE};
use super::machine::{Arg, KERNELS, Kind, Launch, Machine as _, Room, SOURCES};
use crate::Sampling;
use crate::core::{Answered, Core as _, Manner, Request, Sequence};
use crate::cpu::{Setup, thought};
use crate::model::{Checkpoint, Precision, attend};

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
fn numbers(machine: &mut Emulated, kind: Kind, room: &Room, count: usize) -> Vec<f32> {
    let read = machine.read(room, count * kind.size()).unwrap();
    if kind.bf16 {
        read.chunks_exact(2)
            .map(|b| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16))
            .collect()
    } else {
        words(&read).into_iter().map(f32::from_bits).collect()
    }
}

fn written(machine: &mut Emulated, bytes: &[u8]) -> Room {
    let room = machine.room(bytes.len()).unwrap();
    machine.write(&room, bytes).unwrap();
    room
}

fn dtype(kind: Kind) -> DType {
    if kind.bf16 { DType::BF16 } else { DType::F32 }
}

/// The largest difference, as a share of the largest number.
fn apart(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    let size = theirs.iter().fold(1e-6_f32, |m, x| m.max(x.abs()));
    // What is not a number is far from everything.
    ours.iter().zip(theirs).map(|(a, b)| (a - b).abs() / size).fold(0.0, |m, d| if d <= m { m } else { d })
}

#[test]
fn attention_is_the_twin_s_in_any_shape() {
    // Prompts and answers of these lengths, in slots 3, 0 and 2; slot 1 is nobody's.
    let (lengths, slots, room) = ([(1, 1), (70, 40), (333, 5)], [3_u32, 0, 2], 41);
    for (bf16, head, heads, kv_heads) in [
        (false, 64, 14, 2),
        (true, 64, 9, 3),
        (false, 128, 4, 2),
        (false, 8, 3, 3),
        (false, 80, 18, 2),
        (false, 256, 10, 1),
    ] {
        let kind = Kind { bf16, head, heads, kv_heads };
        let Some(mut machine) = Emulated::new(kind, 1).unwrap() else { return };
        let mut stream = Stream::new(head as u64);
        let (layer, layers) = (1, 2);
        let queries = any(&mut stream, &[3, heads, head], 3.0).to_dtype(dtype(kind)).unwrap();
        let [keys, values] = [3.0, 1.0]
            .map(|s| any(&mut stream, &[4, kv_heads, room, head], s).to_dtype(dtype(kind)).unwrap());
        let mut prompts = vec![0_u64; 4 * layers * 2];
        let mut states = [[0, 0, 1, 0, 0, 0, 0, 0, 0, 0_u32]; 4];
        let (mut lent, mut expected) = (Vec::new(), Vec::new());
        for (row, ((prompt, own), slot)) in lengths.iter().zip(slots).enumerate() {
            let slot = slot as usize;
            // Of its own tokens some were there at the look, and some came since.
            states[slot] = [7, own - own / 2, 0, *prompt as u32, own / 2, 99, 0, 0, 0, 0];
            let mut whole = Vec::new();
            for (which, cache) in [&keys, &values].into_iter().enumerate() {
                let shared =
                    any(&mut stream, &[1, kv_heads, *prompt, head], 2.0).to_dtype(dtype(kind)).unwrap();
                let address = machine.lend(&shared).unwrap();
                prompts[(slot * layers + layer) * 2 + which] = address.at;
                lent.push(address);
                let own = cache.narrow(0, slot, 1).unwrap().narrow(2, 0, *own as usize).unwrap();
                whole.push(Tensor::cat(&[&shared, &own], 2).unwrap().to_dtype(DType::F32).unwrap());
            }
            let q = queries.narrow(0, row, 1).unwrap().to_dtype(DType::F32).unwrap().unsqueeze(2).unwrap();
            let bias = Tensor::zeros((1, 1, 1, 1), DType::F32, &Device::Cpu).unwrap();
            expected.extend(floats(&attend(&q, &whole[0], &whole[1], &bias).unwrap()));
        }
        let [q, k, v] = [&queries, &keys, &values].map(|t| machine.lend(t).unwrap());
        let prompts = written(&mut machine, &bytes(prompts.iter().map(|a| a.to_le_bytes())));
        let states = written(&mut machine, &bytes(states.iter().flatten().map(|w| w.to_le_bytes())));
        let slots = written(&mut machine, &bytes(slots.iter().map(|s| s.to_le_bytes())));
        for splits in [1, 2, 7] {
            let mixed = machine.room(3 * heads * head * kind.size()).unwrap();
            let parts = machine.room(3 * heads * splits * (head + 2) * 4).unwrap();
            let rooms = [&q, &prompts, &k, &v, &slots, &states, &mixed, &parts].map(Arg::from);
            let args = [&rooms[..], &[layer, layers, room, splits].map(Arg::from)].concat();
            let blocks = [3, heads / kind.share(), splits];
            machine
                .launch(Launch { kernel: "attend", blocks, threads: 128, shared: 0, args: &args })
                .unwrap();
            if splits > 1 {
                let args = [&parts, &slots, &states, &mixed].map(Arg::from);
                let args = [&args[..], &[splits.into()]].concat();
                let (blocks, threads) = ([3, heads, 1], head.next_multiple_of(32));
                machine.launch(Launch { kernel: "join", blocks, threads, shared: 0, args: &args }).unwrap();
            }
            let off = apart(&numbers(&mut machine, kind, &mixed, 3 * heads * head), &expected);
            println!("{kind:?} in {splits} parts: {off:.1e}");
            assert!(off < if bf16 { 0.02 } else { 2e-6 }, "{kind:?} in {splits} parts: {off:e}");
        }
    }
}

/// A row of logits is drawn from by the rule of `sampler.rs`, and said of what the CPU core says.
#[test]
fn draws_are_the_sampler_s() {
    let kind = Kind { bf16: false, head: 16, heads: 4, kv_heads: 2 };
    let Some(mut machine) = Emulated::new(kind, 1).unwrap() else { return };
    let (slots, ring, stops) = (24, 3, [5_u32, 9]);
    let (mut drawn, mut others, mut furthest) = (0, 0, 0.0_f32);
    // With and without a last tile that is not full, and rows that begin at any address.
    for vocabulary in [8, 250, 512, 1337, 5000] {
        let mut stream = Stream::new(vocabulary as u64);
        let samplings: Vec<Sampling> = (0..slots)
            .map(|i| Sampling {
                temperature: [1.0, 0.7, 0.0, 1.3][i % 4],
                top_k: [0, 0, 7, 40, 1, 100_000][i % 6],
                top_p: [1.0, 0.9, 1.0, 0.5, 0.05][i % 5],
                max_tokens: 3,
            })
            .collect();
        // Every third row has few values, so that there are ties everywhere.
        let row = |i: usize| {
            let logits = floats(&any(&mut stream, &[vocabulary], 6.0));
            if i.is_multiple_of(3) { logits.iter().map(|l| l.round()).collect() } else { logits }
        };
        let rows: Vec<Vec<f32>> = (0..slots).map(row).collect();
        let flat = rows.concat();
        let logits =
            machine.lend(&Tensor::from_vec(flat, (slots, vocabulary), &Device::Cpu).unwrap()).unwrap();
        let units: Vec<f64> = (0..slots * ring)
            .map(|i| {
                if i % 17 == 0 {
                    0.0
                } else if i % 19 == 0 {
                    1.0 - f64::EPSILON
                } else {
                    stream.unit()
                }
            })
            .collect();
        let state = |s: &Sampling| {
            let (t, p) = (s.temperature.to_bits(), s.top_p.to_bits());
            [0, 0, 0, 1, 0, s.max_tokens, t, s.top_k as u32, p, 0]
        };
        let states = written(&mut machine, &bytes(samplings.iter().flat_map(state).map(u32::to_le_bytes)));
        let sources = (0..slots).map(|i| (logits.at + (i * vocabulary * 4) as u64).to_le_bytes());
        let sources = written(&mut machine, &bytes(sources));
        let each = written(&mut machine, &bytes((0..slots as u32).map(u32::to_le_bytes)));
        let chance = written(&mut machine, &bytes(units.iter().map(|u| u.to_le_bytes())));
        let out = machine.room(16 * ring * slots).unwrap();
        let ends = written(&mut machine, &bytes(stops.iter().map(|s| s.to_le_bytes())));
        let rooms = [&sources, &each, &states, &chance, &out, &ends].map(Arg::from);
        let args = [&rooms[..], &[stops.len(), vocabulary, ring].map(Arg::from)].concat();
        let threads = [32, 64, 1024][vocabulary % 3];
        let shared = vocabulary.div_ceil(256) * 16;
        for _ in 0..=ring {
            machine
                .launch(Launch { kernel: "draw", blocks: [slots, 1, 1], threads, shared, args: &args })
                .unwrap();
        }
        let told = words(&machine.read(&out, 16 * ring * slots).unwrap());
        let after = words(&machine.read(&states, 40 * slots).unwrap());
        for (i, (row, sampling)) in rows.iter().zip(&samplings).enumerate() {
            let scale = 1.0 / sampling.divisor();
            let cooled: Vec<f32> = row.iter().map(|l| if scale == 1.0 { *l } else { l * scale }).collect();
            let mut count = 0;
            for t in 0..ring {
                let one = &told[(i * ring + t) * 4..][..4];
                let expected = sampling.draw(&cooled, units[i * ring + t]);
                let thought = thought(&cooled, one[0] as usize);
                let (log_prob, entropy) = (f32::from_bits(one[1]), f32::from_bits(one[2]));
                let off = (log_prob - thought.log_prob).abs().max((entropy - thought.entropy).abs());
                furthest = if off <= furthest { furthest } else { off };
                others += usize::from(one[0] != expected);
                (drawn, count) = (drawn + 1, count + 1);
                if stops.contains(&one[0]) {
                    break;
                }
            }
            let state = &after[i * 10..][..3];
            let last = told[(i * ring + count - 1) * 4];
            assert_eq!(state, [last, count as u32, 1], "row {i} of {vocabulary}");
        }
    }
    println!("{others} of {drawn} draws differ; log-probabilities and entropies {furthest:.1e}");
    assert!(others <= 1 && furthest < 1e-5, "{others} of {drawn}, {furthest:e}");
}

fn folders() -> Vec<PathBuf> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/models");
    let mut all: Vec<PathBuf> = std::fs::read_dir(models).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    assert!(all.len() > 3);
    all
}

fn model(folder: &Path, precision: Precision) -> Tensors {
    let checkpoint = Checkpoint::load(folder, &Device::Cpu).unwrap();
    let setup = Setup { threads: 1, longest: 128, lora: None, reference: false, seed: 1 };
    Tensors::new(&checkpoint, setup, &Device::Cpu, precision).unwrap()
}

/// Prompts of many lengths, in groups; answers of many lengths, drawn in many ways.
fn requests(prompts: &[Vec<u32>]) -> Vec<Request<'_>> {
    let one = |(i, prompt): (usize, _)| {
        (0..5).map(move |j| {
            let sampling = Sampling {
                temperature: [1.0, 0.8, 0.0][j % 3],
                top_k: if j == 1 { 20 } else { 0 },
                top_p: if j == 4 { 0.9 } else { 1.0 },
                max_tokens: [20, 1, 7, 20, 13][(i + j) % 5],
            };
            Request { prompt, seed: (i * 1000 + j) as u64, sampling }
        })
    };
    prompts.iter().map(Vec::as_slice).enumerate().flat_map(one).collect()
}

fn prompts() -> Vec<Vec<u32>> {
    (0..7_u32).map(|i| (0..3 + i % 7).map(|t| (i * 31 + t * 17) % 396).collect()).collect()
}

/// Samples by kernels.
fn fused(
    model: &Tensors,
    requests: &[Request<'_>],
    stops: &[u32],
    (rows, stride, width): (usize, usize, usize),
) -> Option<Vec<Answered>> {
    let weights = model.computed();
    let kind = Kind::of(&weights.shape, kind(weights).unwrap().0).unwrap();
    let mut machine = Emulated::new(kind, width).unwrap()?;
    let extent = Extent::of(requests, rows);
    let mut steps = Fused::new(&mut machine, kind, weights, stops, extent, stride).unwrap();
    let mut answers = vec![Answered::default(); requests.len()];
    let mut whole = |number: usize, answer| answers[number] = answer;
    Decode { weights }.run(requests, extent.slots, &mut steps, &mut whole).unwrap();
    Some(answers)
}

#[test]
fn answers_made_by_kernels_are_the_plain_steps_own_however_often_is_looked() {
    // A Llama, a Qwen2 and a Qwen3; tied and untied.
    for folder in [1, 2, 6].map(|i| folders().swap_remove(i)) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let (model, prompts) = (model(&folder, Precision::F32), prompts());
        let stops: Vec<u32> = (0..512).step_by(16).collect();
        let all = requests(&prompts);
        let plain = model.answers(&all, &stops, 64).unwrap();
        assert_eq!(all.len(), 35);
        assert!(plain.iter().any(|a| a.truncated) && plain.iter().any(|a| !a.truncated), "{name}");
        let mut first: Option<Vec<Answered>> = None;
        // Rows at a time, tokens between looks, and how wide the machine is: a wider one cuts attention into
        // parts.
        for how in [(35, 1, 1), (35, STRIDE, 1), (6, 5, 100)] {
            let Some(ours) = fused(&model, &all, &stops, how) else { return };
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
            // Where all prompts are read together, nothing depends on the looks by a single bit.
            match &first {
                Some(first) if how.0 == 35 => assert!(*first == ours, "{name} {how:?}"),
                Some(_) => {}
                None => first = Some(ours),
            }
        }
    }
}

/// Scoring is candle's, in bfloat16 and in float32. It rounds after each of its operations, and the kernels
/// seldom, so that the kernels are no further from float32 than it is, and as far from it as that.
#[test]
fn in_bfloat16_kernels_say_of_their_tokens_what_scoring_says_but_for_rounding() {
    for folder in [0, 3].map(|i| folders().swap_remove(i)) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let (mut rounded, mut exact) = (model(&folder, Precision::Bf16), model(&folder, Precision::F32));
        let prompts = prompts();
        let mut all = requests(&prompts);
        for request in &mut all {
            request.sampling.temperature = 1.0;
        }
        let Some(answers) = fused(&rounded, &all, &[5], (12, STRIDE, 20)) else { return };
        let whole: Vec<Vec<u32>> =
            all.iter().zip(&answers).map(|(r, a)| [r.prompt, &a.tokens].concat()).collect();
        let sequences: Vec<Sequence<'_>> =
            whole.iter().zip(&all).map(|(w, r)| Sequence { tokens: w, prompt: r.prompt.len() }).collect();
        let manner = Manner { temperature: 1.0, recompute: false };
        let scored = |model: &mut Tensors| -> Vec<f32> {
            let thoughts = model.score(&sequences, manner, false).unwrap().concat();
            thoughts.iter().map(|thought| thought.log_prob).collect()
        };
        let ours: Vec<f32> = answers.iter().flat_map(|a| a.log_probs.clone()).collect();
        let (plain, exact) = (scored(&mut rounded), scored(&mut exact));
        // The mean and the largest difference.
        let apart = |a: &[f32], b: &[f32]| {
            assert_eq!(a.len(), b.len());
            let each = || a.iter().zip(b).map(|(a, b)| (a - b).abs());
            let most = each().fold(0.0, |m, d| if d <= m { m } else { d });
            (each().sum::<f32>() / a.len() as f32, most)
        };
        let (near, far, twin) = (apart(&ours, &plain), apart(&ours, &exact), apart(&plain, &exact));
        println!("{name}: from scoring {near:?}, from float32 {far:?}; scoring from float32 {twin:?}");
        assert!(near.0 < 0.03 && near.1 < 0.25, "{name}: {near:?}");
        assert!(far.0 < 1.2 * twin.0 && far.1 < 0.25, "{name}: {far:?}, scoring {twin:?}");
    }
}
