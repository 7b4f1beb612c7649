//! The kernels of a step of sampling, one by one.

use std::sync::Arc;

use allot_allocation::seed::Stream;
use candle_core::{DType, Device, Tensor};

use super::{FLASH, KINDS, TILED, any, apart, bytes, dtype, floats, numbers, words, written};
use crate::Sampling;
use crate::core::TokenStatistics;
use crate::model::operations::{Scores, Sides, attend};
use crate::tensors::emulated::Emulated;
use crate::tensors::kernels::Kernels;
use crate::tensors::machine::{Arg, DeviceBuffer, KernelConfig, Launch, Machine as _};

/// Rounds a number to bfloat16.
fn rounded(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

/// Computes attention of one query, rounded to bfloat16 where the kernels round: see `softmax.cu`.
fn rounding_twin(query: &[f32], keys: &[f32], values: &[f32]) -> Vec<f32> {
    let head = query.len();
    let dot = |key: &[f32]| rounded(key.iter().zip(query).map(|(k, q)| k * q).sum());
    let scale = std::f32::consts::LOG2_E / (head as f32).sqrt();
    let scores: Vec<f32> = keys.chunks_exact(head).map(|key| dot(key) * scale).collect();
    let base = scores.iter().fold(f32::NEG_INFINITY, |m, s| m.max(s.ceil()));
    let weights: Vec<f32> = scores.iter().map(|s| rounded((s - base).exp2())).collect();
    let all: f32 = weights.iter().sum();
    let value = |e: usize| weights.iter().zip(values.chunks_exact(head)).map(|(w, v)| w * v[e]).sum();
    (0..head).map(|e| rounded(rounded(value(e)) / all)).collect()
}

#[test]
fn attention_is_the_twin_s_in_any_shape() {
    for kind in KINDS {
        hold(kind, [(1, 1), (70, 40), (333, 5)]);
    }
    // Prompts and answers that end within a tile, at its end, and within the first; many tiles per warp.
    for (i, kind) in TILED.into_iter().enumerate() {
        hold(kind, [[(1, 2), (48, 16), (13, 33)], [(16, 1), (130, 41), (7, 9)]][i % 2]);
    }
    hold(TILED[1], [(300, 41), (128, 20), (64, 32)]);
}

/// Whole sequences round where a step of sampling does, so that a fresh rollout's importance ratio is 1.
#[test]
fn attention_of_whole_sequences_is_the_twin_s() {
    for (bf16, head, heads, kv_heads) in FLASH {
        let kind = KernelConfig { bf16, head, heads, kv_heads };
        let Some(machine) = Emulated::new(kind, 1).unwrap() else { return };
        let kernels = Kernels::new(Arc::new(machine), kind);
        let (stream, tokens) = (&mut Stream::new(head as u64), 136);
        let [q, k, v] = [(heads, 3.0), (kv_heads, 3.0), (kv_heads, 1.0)].map(|(heads, scale)| {
            any(stream, &[2, heads, tokens, head], scale).to_dtype(DType::BF16).unwrap()
        });
        let (_, mixed) = kernels.attend(&q, &k, &v).unwrap();
        let (mixed, [q, k, v]) = (floats(&mixed), [&q, &k, &v].map(floats));
        let mut others = 0;
        for (i, ours) in mixed.chunks_exact(head).enumerate() {
            let (h, t, b) = (i % heads, i / heads % tokens, i / heads / tokens);
            let from = (b * kv_heads + h / (heads / kv_heads)) * tokens * head;
            let [keys, values] = [&k, &v].map(|x| &x[from..][..(t + 1) * head]);
            let twin = rounding_twin(&q[((b * heads + h) * tokens + t) * head..][..head], keys, values);
            assert!(apart(ours, &twin) < 0.02, "{kind:?}: head {h} of token {t}");
            others += ours.iter().zip(&twin).filter(|(a, b)| a != b).count();
        }
        let others = others as f32 / mixed.len() as f32;
        println!("{kind:?}: {others:.4} rounded otherwise");
        assert!(others < 0.01, "{kind:?}: {others}");
    }
}

/// Tests `attend` and `join` against their references, for prompts and answers of these lengths
/// in slots 3, 0 and 2; slot 1 is free.
fn hold((bf16, head, heads, kv_heads): (bool, usize, usize, usize), lengths: [(usize, usize); 3]) {
    let (slots, buffer) = ([3_u32, 0, 2], 41);
    let kind = KernelConfig { bf16, head, heads, kv_heads };
    let Some(machine) = Emulated::new(kind, 1).unwrap() else { return };
    let mut stream = Stream::new(head as u64);
    let (layer, layers) = (1, 2);
    let queries = any(&mut stream, &[3, heads, head], 3.0).to_dtype(dtype(kind)).unwrap();
    // Cache entries not yet written are NaN.
    let [keys, values] = [3.0, 1.0].map(|scale| {
        let cache = |slot: u32| {
            let own = slots.iter().position(|s| *s == slot).map_or(0, |row| lengths[row].1);
            let own = any(&mut stream, &[1, kv_heads, own, head], scale);
            let rest = buffer - own.dim(2).unwrap();
            let rest = Tensor::full(f32::NAN, (1, kv_heads, rest, head), &Device::Cpu).unwrap();
            Tensor::cat(&[&own, &rest], 2).unwrap()
        };
        let all: Vec<Tensor> = (0..4).map(cache).collect();
        Tensor::cat(&all, 0).unwrap().to_dtype(dtype(kind)).unwrap()
    });
    let mut prompts = vec![0_u64; 4 * layers * 2];
    let mut states = [[0, 0, 1, 0, 0, 0, 0, 0, 0, 0_u32]; 4];
    let (mut lent, mut expected, mut twin) = (Vec::new(), Vec::new(), Vec::new());
    for (row, ((prompt, own), slot)) in lengths.iter().zip(slots).enumerate() {
        let slot = slot as usize;
        // Some of the answer's tokens were there at the inspection, and some came since.
        states[slot] = [7, (own - own / 2) as u32, 0, *prompt as u32, (own / 2) as u32, 99, 0, 0, 0, 0];
        let mut whole = Vec::new();
        for (which, cache) in [&keys, &values].into_iter().enumerate() {
            let shared = any(&mut stream, &[1, kv_heads, *prompt, head], 2.0).to_dtype(dtype(kind)).unwrap();
            let address = machine.lend(&shared).unwrap();
            prompts[(slot * layers + layer) * 2 + which] = address.at;
            lent.push(address);
            let own = cache.narrow(0, slot, 1).unwrap().narrow(2, 0, *own).unwrap();
            whole.push(Tensor::cat(&[&shared, &own], 2).unwrap().to_dtype(DType::F32).unwrap());
        }
        let q = queries.narrow(0, row, 1).unwrap().to_dtype(DType::F32).unwrap().unsqueeze(2).unwrap();
        let bias = Tensor::zeros((1, 1, 1, 1), DType::F32, &Device::Cpu).unwrap();
        let scores = Scores { over: (head as f64).sqrt(), cap: None, sides: Sides::Plain };
        expected.extend(floats(&attend(&q, &whole[0], &whole[1], &bias, scores).unwrap()));
        for h in 0..heads {
            let one = |t: &Tensor, h| floats(&t.narrow(1, h, 1).unwrap());
            let kv = h / (heads / kv_heads);
            twin.extend(rounding_twin(&one(&q, h), &one(&whole[0], kv), &one(&whole[1], kv)));
        }
    }
    let [q, k, v] = [&queries, &keys, &values].map(|t| machine.lend(t).unwrap());
    let prompts = written(&machine, &bytes(prompts.iter().map(|a| a.to_le_bytes())));
    let states = written(&machine, &bytes(states.iter().flatten().map(|w| w.to_le_bytes())));
    let slots = written(&machine, &bytes(slots.iter().map(|s| s.to_le_bytes())));
    for splits in [1, 2, 7] {
        let buffers = [&q, &prompts, &k, &v, &slots, &states];
        let ours = attended(&machine, kind, buffers, [layer, layers, buffer, splits]);
        let off = apart(&ours, &expected);
        // If a sum is between two numbers, its order decides which one is taken.
        let others = ours.iter().zip(&twin).filter(|(a, b)| a != b).count();
        let others = if bf16 { others as f32 / ours.len() as f32 } else { 0.0 };
        println!("{kind:?} in {splits} parts: {off:.1e}, {others:.4} rounded otherwise");
        assert!(off < if bf16 { 0.02 } else { 2e-6 }, "{kind:?} in {splits} parts: {off:e}");
        assert!(others < 0.01, "{kind:?} in {splits} parts: {others}");
    }
}

/// Returns the results of `attend` and `join`. `buffers` are their first six arguments, `sizes` the last.
fn attended(
    machine: &Emulated,
    kind: KernelConfig,
    buffers: [&DeviceBuffer; 6],
    sizes: [usize; 4],
) -> Vec<f32> {
    let (KernelConfig { head, heads, .. }, [.., slots, states], [.., splits]) = (kind, buffers, sizes);
    let mixed = machine.buffer(3 * heads * head * kind.size()).unwrap();
    let parts = machine.buffer(3 * heads * splits * (head + 2) * 4).unwrap();
    let args = buffers.into_iter().chain([&mixed, &parts]).map(Arg::from);
    let args: Vec<Arg> = args.chain(sizes.map(Arg::from)).collect();
    let blocks = [3, heads / kind.share(), splits];
    machine.launch(Launch { kernel: "attend", blocks, threads: 128, shared: 0, args: &args }).unwrap();
    if splits > 1 {
        let args = [&parts, slots, states, &mixed].map(Arg::from);
        let args = [&args[..], &[splits.into()]].concat();
        let (blocks, threads) = ([3, heads, 1], head.next_multiple_of(32));
        machine.launch(Launch { kernel: "join", blocks, threads, shared: 0, args: &args }).unwrap();
    }
    numbers(machine, kind, &mixed, 3 * heads * head)
}

/// Number of rows to draw from, and of draws from each at a time.
const ROWS: usize = 24;
const RING: usize = 3;
/// Tokens that end an answer.
const STOPS: [u32; 2] = [5, 9];

/// Tests that rows are drawn by the rule of `sampler.rs`, with the CPU core's statistics.
#[test]
fn draws_are_the_sampler_s() {
    let kind = KernelConfig { bf16: false, head: 16, heads: 4, kv_heads: 2 };
    let Some(machine) = Emulated::new(kind, 1).unwrap() else { return };
    let samplings: Vec<Sampling> = (0..ROWS)
        .map(|i| Sampling {
            temperature: [1.0, 0.7, 0.0, 1.3][i % 4],
            top_k: [0, 0, 7, 40, 1, 100_000][i % 6],
            top_p: [1.0, 0.9, 1.0, 0.5, 0.05][i % 5],
            max_tokens: 3,
            ..Sampling::default()
        })
        .collect();
    let (mut drawn, mut others, mut furthest) = (0, 0, 0.0_f32);
    // With and without an incomplete last tile, and rows that begin at any address.
    for vocabulary in [8, 250, 512, 1337, 5000] {
        let mut stream = Stream::new(vocabulary as u64);
        // Every third row has few values, so that there are ties everywhere.
        let row = |i: usize| {
            let logits = floats(&any(&mut stream, &[vocabulary], 6.0));
            if i.is_multiple_of(3) { logits.iter().map(|l| l.round()).collect() } else { logits }
        };
        let rows: Vec<Vec<f32>> = (0..ROWS).map(row).collect();
        let unit = |i: usize| match i {
            _ if i.is_multiple_of(17) => 0.0,
            _ if i.is_multiple_of(19) => 1.0 - f64::EPSILON,
            _ => stream.unit(),
        };
        let units: Vec<f64> = (0..ROWS * RING).map(unit).collect();
        let [told, after] = drawn_from(&machine, &rows, &samplings, &units);
        for (i, (row, sampling)) in rows.iter().zip(&samplings).enumerate() {
            let scale = 1.0 / sampling.divisor();
            let cooled: Vec<f32> = row.iter().map(|l| if scale == 1.0 { *l } else { l * scale }).collect();
            let mut count = 0;
            for t in 0..RING {
                let one = &told[(i * RING + t) * 4..][..4];
                let expected = crate::sampler::draw(sampling, &cooled, units[i * RING + t]);
                let statistics = TokenStatistics::of(&cooled, one[0] as usize);
                let (log_prob, entropy) = (f32::from_bits(one[1]), f32::from_bits(one[2]));
                let off = (log_prob - statistics.log_prob).abs().max((entropy - statistics.entropy).abs());
                furthest = if off <= furthest { furthest } else { off };
                others += usize::from(one[0] != expected);
                (drawn, count) = (drawn + 1, count + 1);
                if STOPS.contains(&one[0]) {
                    break;
                }
            }
            let last = told[(i * RING + count - 1) * 4];
            assert_eq!(after[i * 10..][..3], [last, count as u32, 1], "row {i} of {vocabulary}");
        }
    }
    println!("{others} of {drawn} draws differ; log-probabilities and entropies {furthest:.1e}");
    assert!(others <= 1 && furthest < 1e-5, "{others} of {drawn}, {furthest:e}");
}

/// Draws from rows of logits with `draw`, once more than the ring can hold. Returns its output,
/// four words for each draw, and the rows' states after it, ten words each.
fn drawn_from(machine: &Emulated, rows: &[Vec<f32>], samplings: &[Sampling], units: &[f64]) -> [Vec<u32>; 2] {
    let vocabulary = rows[0].len();
    let logits = Tensor::from_vec(rows.concat(), (ROWS, vocabulary), &Device::Cpu).unwrap();
    let logits = machine.lend(&logits).unwrap();
    let state = |s: &Sampling| {
        let (t, p) = (s.temperature.to_bits(), s.top_p.to_bits());
        [0, 0, 0, 1, 0, s.max_tokens, t, s.top_k as u32, p, 0]
    };
    let states = written(machine, &bytes(samplings.iter().flat_map(state).map(u32::to_le_bytes)));
    let sources = (0..ROWS).map(|i| (logits.at + (i * vocabulary * 4) as u64).to_le_bytes());
    let sources = written(machine, &bytes(sources));
    let each = written(machine, &bytes((0..ROWS as u32).map(u32::to_le_bytes)));
    let random = written(machine, &bytes(units.iter().map(|u| u.to_le_bytes())));
    let out = machine.buffer(16 * RING * ROWS).unwrap();
    let ends = written(machine, &bytes(STOPS.iter().map(|s| s.to_le_bytes())));
    let buffers = [&sources, &each, &states, &random, &out, &ends].map(Arg::from);
    let args = [&buffers[..], &[STOPS.len(), vocabulary, RING].map(Arg::from)].concat();
    let (threads, shared) = ([32, 64, 1024][vocabulary % 3], vocabulary.div_ceil(256) * 16);
    for _ in 0..=RING {
        let launch = Launch { kernel: "draw", blocks: [ROWS, 1, 1], threads, shared, args: &args };
        machine.launch(launch).unwrap();
    }
    [(&out, 16 * RING * ROWS), (&states, 40 * ROWS)].map(|(of, size)| words(&machine.read(of, size).unwrap()))
}
