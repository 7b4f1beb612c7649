//! Tests of attention, forward and backward, against sums written out in float64, and that threads change no bit.

use super::arithmetic::Arithmetic;
use super::attention::{AttentionScratch, Cache, Heads, Past, Span, attend, attend_after};
use super::attention_back::{BackScratch, attend_back};
use super::attention_one::attend_one;
use super::attention_rows::Together;
use super::bf16::rounded;
use super::gemm::tests::{arithmetics, numbers};
use super::head_pass::Mixed;
use super::instruction::Instruction;
use super::kernels::wide_op;
use super::paired::newest::Newest;
use super::paired::rows::Buffers as PairBuffers;

fn heads(arithmetic: Arithmetic, query: usize, kv: usize, width: usize) -> Heads {
    Heads { arithmetic, query, kv, width, scale: 0.3, cap: None, window: None }
}

/// Heads with a cap, with a window, and with keys and values for one head, for three and for all, in all arithmetics of this
/// machine.
fn kinds() -> Vec<Heads> {
    let of = |arithmetic| {
        let capped = Heads { cap: Some(2.0), ..heads(arithmetic, 3, 1, 20) };
        let near = Heads { window: Some(70), ..heads(arithmetic, 4, 2, 16) };
        [heads(arithmetic, 6, 2, 16), heads(arithmetic, 2, 2, 8), capped, near]
    };
    arithmetics().into_iter().flat_map(of).collect()
}

/// Heads of more and of wider ones than are computed at a time, and than a tile has columns.
fn large() -> Vec<Heads> {
    let of =
        |arithmetic| [heads(arithmetic, 7, 1, 72), Heads { cap: Some(2.0), ..heads(arithmetic, 10, 2, 136) }];
    arithmetics().into_iter().flat_map(of).collect()
}

/// Returns what products read of numbers.
fn read(heads: Heads, numbers: &[f32]) -> Vec<f32> {
    numbers.iter().map(|x| if heads.in_pairs() { rounded(*x) } else { *x }).collect()
}

/// A short prompt with two answers, of which one is long, and without one, and a long prompt with an answer.
fn spans() -> Vec<Span> {
    let span = |prompt: std::ops::Range<usize>, own| Span { prompt, own };
    vec![
        span(0..0, 0..7),
        span(0..7, 7..150),
        span(0..7, 150..160),
        span(0..7, 160..160),
        span(0..0, 160..300),
        span(160..300, 300..371),
    ]
}

/// What attention makes of rows, in float64: mixed values, and the gradient of the rows by one of the mixed values.
fn plain(heads: Heads, rows: &[f32], spans: &[Span], gradient: &[f32]) -> (Vec<f64>, Vec<f64>) {
    let (row, width, wide) = (heads.row(), heads.width, heads.query * heads.width);
    let [keys, values] = heads.past();
    let (mut mixed, mut drows) = (vec![0.0; rows.len() / row * wide], vec![0.0; rows.len()]);
    let number = |i: usize| f64::from(rows[i]);
    for span in spans {
        let seen: Vec<usize> = span.prompt.clone().chain(span.own.clone()).collect();
        for (i, token) in span.own.clone().enumerate() {
            let to = span.prompt.len() + i + 1;
            let seen = &seen[heads.first_seen(to)..to];
            for head in 0..heads.query {
                let of = head / heads.group() * width;
                let (query, key, value) = (head * width, keys.start + of, values.start + of);
                let dot = |t: usize| {
                    (0..width)
                        .map(|e| number(token * row + query + e) * number(t * row + key + e))
                        .sum::<f64>()
                };
                let capped = |x: f64| heads.cap.map_or(x, |cap| f64::from(cap) * (x / f64::from(cap)).tanh());
                let scores: Vec<f64> =
                    seen.iter().map(|t| capped(dot(*t) * f64::from(heads.scale))).collect();
                let sum: f64 = scores.iter().map(|s| s.exp()).sum();
                let weights: Vec<f64> = scores.iter().map(|s| s.exp() / sum).collect();
                let d = |e: usize| f64::from(gradient[token * wide + query + e]);
                let mut slopes = Vec::new();
                for (t, weight) in seen.iter().zip(&weights) {
                    let mut slope = 0.0;
                    for e in 0..width {
                        mixed[token * wide + query + e] += weight * number(t * row + value + e);
                        drows[t * row + value + e] += weight * d(e);
                        slope += d(e) * number(t * row + value + e);
                    }
                    slopes.push(slope);
                }
                let along: f64 = slopes.iter().zip(&weights).map(|(s, w)| s * w).sum();
                for (i, t) in seen.iter().enumerate() {
                    let bent = heads.cap.map_or(1.0, |cap| 1.0 - (scores[i] / f64::from(cap)).powi(2));
                    let slope = weights[i] * (slopes[i] - along) * bent * f64::from(heads.scale);
                    for e in 0..width {
                        drows[token * row + query + e] += slope * number(t * row + key + e);
                        drows[t * row + key + e] += slope * number(token * row + query + e);
                    }
                }
            }
        }
    }
    (mixed, drows)
}

/// Buffers of both passes.
#[derive(Default)]
struct Buffers(AttentionScratch, BackScratch);

fn passed(
    heads: Heads,
    rows: &[f32],
    spans: &[Span],
    gradient: &[f32],
    (buffers, threads): (&mut Buffers, usize),
) -> [Vec<f32>; 3] {
    let tokens = rows.len() / heads.row();
    let (mut mixed, mut log_sums) =
        (vec![0.0; tokens * heads.query * heads.width], vec![0.0; tokens * heads.query]);
    attend(heads, rows, spans, (&mut mixed, &mut log_sums), &mut buffers.0, threads);
    let mut drows = vec![0.0; rows.len()];
    let results = Mixed { values: &mixed, log_sums: &log_sums, gradient };
    attend_back(heads, rows, spans, results, &mut drows, (&mut buffers.1, threads));
    [mixed, log_sums, drows]
}

/// Compares each number with the plain one, and in bf16 their mean, too: there weights and gradients of scores are rounded once more.
fn close(heads: Heads, ours: &[f32], plain: &[f64]) {
    let most = if heads.in_pairs() { 2e-2 } else { 1e-4 };
    let (mut all, mut size) = (0.0, 0.0);
    for (ours, plain) in ours.iter().zip(plain) {
        let off = (f64::from(*ours) - plain).abs();
        assert!(off < most, "{heads:?}: {ours}, {plain}");
        (all, size) = (all + off * off, size + plain * plain);
    }
    let [off, size] = [all, size].map(|sum| (sum / plain.len() as f64).sqrt());
    assert!(!heads.in_pairs() || off < 5e-3 * size + 5e-4, "{heads:?}: {off} of {size}");
}

#[test]
fn attention_is_the_plain_one_and_neither_threads_nor_buffers_change_a_bit() {
    for heads in kinds().into_iter().chain(large()) {
        let (spans, tokens) = (spans(), 371);
        let rows = numbers(tokens * heads.row(), 0.7);
        let gradient = numbers(tokens * heads.query * heads.width, 0.3);
        let (mixed, drows) = plain(heads, &read(heads, &rows), &spans, &read(heads, &gradient));
        let mut buffers = Buffers(AttentionScratch::of(vec![f32::NAN; 1 << 16]), BackScratch::default());
        let alone = passed(heads, &rows, &spans, &gradient, (&mut buffers, 1));
        close(heads, &alone[0], &mixed);
        close(heads, &alone[2], &drows);
        for threads in [2, 3, 8] {
            let together = passed(heads, &rows, &spans, &gradient, (&mut Buffers::default(), threads));
            assert!(together == alone, "{heads:?}: {threads} threads");
        }
        let nothing = vec![f32::NAN; rows.len()];
        passed(heads, &nothing, &spans, &gradient, (&mut buffers, 1));
        assert!(passed(heads, &rows, &spans, &gradient, (&mut buffers, 1)) == alone, "{heads:?}: buffers");
    }
}

/// More tokens than a run of the backward pass has, after more than a run of sums, all seen or some.
#[test]
fn long_spans_are_the_plain_ones() {
    let spans = [Span { prompt: 0..0, own: 0..1100 }, Span { prompt: 0..1100, own: 1100..1700 }];
    for (arithmetic, window) in arithmetics().into_iter().flat_map(|a| [None, Some(300)].map(|w| (a, w))) {
        let heads = Heads { window, ..heads(arithmetic, 2, 1, 16) };
        let (rows, gradient) = (numbers(1700 * heads.row(), 0.7), numbers(1700 * 32, 0.3));
        let (mixed, drows) = plain(heads, &read(heads, &rows), &spans, &read(heads, &gradient));
        let ours = passed(heads, &rows, &spans, &gradient, (&mut Buffers::default(), 1));
        close(heads, &ours[0], &mixed);
        close(heads, &ours[2], &drows);
        assert!(passed(heads, &rows, &spans, &gradient, (&mut Buffers::default(), 2)) == ours, "{heads:?}");
    }
}

#[test]
fn with_and_without_an_instruction_for_vectors_attention_is_the_same() {
    let vectors = Instruction::all().into_iter().find(|one| matches!(one, Instruction::Avx512Bf16(_)));
    if vectors.is_none() {
        return crate::skip::skip("avx512-bf16", "this processor does not have it");
    }
    let (spans, without) = (spans(), Arithmetic::Bf16(None));
    for (query, kv, width) in [(6, 2, 16), (3, 1, 20), (2, 1, 136)] {
        let rows = numbers(371 * heads(without, query, kv, width).row(), 0.7);
        let gradient = numbers(371 * query * width, 0.3);
        let by = |instruction| {
            let heads = heads(without.by(instruction), query, kv, width);
            passed(heads, &rows, &spans, &gradient, (&mut Buffers::default(), 1))
        };
        assert!(by(vectors) == by(None), "{width}");
    }
}

/// Keys and values in their layout.
type Laid = (Cache, Vec<f32>, Vec<f32>);

fn laid(heads: Heads, rows: &[f32], which: std::ops::Range<usize>) -> Laid {
    let cache = Cache::new(heads, which.len());
    let (mut columns, mut lines) = (vec![f32::NAN; cache.columns()], vec![f32::NAN; cache.lines()]);
    let rows = rows[which.start * heads.row()..which.end * heads.row()].chunks_exact(heads.row());
    cache.put(0, rows, heads.past(), (&mut columns, &mut lines));
    (cache, columns, lines)
}

fn past((cache, keys, values): &Laid, seen: std::ops::Range<usize>) -> Past<'_> {
    Past { cache: *cache, keys, values, seen }
}

/// What a token mixes by itself.
fn alone(heads: Heads, qkv: &[f32], segments: &[Past<'_>; 2], threads: usize) -> Vec<f32> {
    let wide = heads.query * heads.width;
    let mut mixed = vec![0.0; wide];
    if heads.in_pairs() {
        let [prompt, own] = segments;
        Newest { heads, qkv, prompt, own: std::slice::from_ref(own) }.attend(&mut mixed, threads);
    } else {
        attend_one(heads, &qkv[..wide], segments, &mut mixed, (&mut Vec::new(), threads));
    }
    mixed
}

/// More tokens than threads share by heads, of which the last are one, some and many.
#[test]
fn tokens_that_follow_others_mix_what_they_do_together() {
    for heads in kinds().into_iter().chain(large()) {
        let (before, after) = (700, 400);
        let (row, wide) = (heads.row(), heads.query * heads.width);
        let rows = numbers((before + after) * row, 0.7);
        let of_prompt = Span { prompt: 0..0, own: 0..before };
        let spans = [of_prompt, Span { prompt: 0..before, own: before..before + after }];
        let gradient = vec![0.0; (before + after) * wide];
        let [whole, ..] = passed(heads, &rows, &spans, &gradient, (&mut Buffers::default(), 1));
        let (prompt, own) = (laid(heads, &rows, 0..before), laid(heads, &rows, before..before + after));
        for (taken, threads) in [(1, 1), (1, 2), (5, 2), (200, 1), (200, 3)] {
            let first = before + after - taken;
            let own_rows = &rows[first * row..];
            let (mut mixed, mut log_sums) = (vec![0.0; taken * wide], vec![0.0; taken * heads.query]);
            let segments = [past(&prompt, 0..before), past(&own, 0..after)];
            attend_after(
                heads,
                own_rows,
                segments,
                (&mut mixed, &mut log_sums),
                &mut AttentionScratch::default(),
                threads,
            );
            assert!(mixed == whole[first * wide..], "{heads:?}: {taken} tokens, {threads} threads");
        }
        let (last, begin) = (before + after - 1, heads.first_seen(before + after));
        for threads in [1, 2, 3] {
            let segments =
                [past(&prompt, begin.min(before)..before), past(&own, begin.saturating_sub(before)..after)];
            let mixed = alone(heads, &rows[last * row..][..row], &segments, threads);
            assert!(mixed == whole[last * wide..], "{heads:?}: {threads} threads");
        }
    }
}

/// Fewer rows than a tile has, as many, and more than are computed at a time, with answers of several lengths.
#[test]
fn rows_after_one_prompt_mix_what_each_does_alone() {
    for heads in kinds().into_iter().chain(large()).map(|heads| Heads { window: None, ..heads }) {
        for (before, count) in [(1, 2), (63, 5), (64, 6), (65, 7), (600, 13), (513, 25)] {
            let (row, wide) = (heads.row(), heads.query * heads.width);
            let prompt = numbers(before * row, 0.7);
            let prompt = laid(heads, &prompt, 0..before);
            let newest = numbers(count * row, 0.4);
            let answers: Vec<(Laid, usize)> = (0..count)
                .map(|i| {
                    let tokens = 1 + i * 37 % 150;
                    (laid(heads, &numbers(tokens * row, 0.2 + i as f32), 0..tokens), tokens)
                })
                .collect();
            let own: Vec<Past<'_>> = answers.iter().map(|(laid, tokens)| past(laid, 0..*tokens)).collect();
            let mut mixed = vec![f32::NAN; count * wide];
            let prompt = past(&prompt, 0..before);
            if heads.in_pairs() {
                PairBuffers::fill(1 << 20);
                Newest { heads, qkv: &newest, prompt: &prompt, own: &own }.attend(&mut mixed, 1);
            } else {
                let (qkv, prompt, own, scores) =
                    (&newest[..], prompt.clone(), &own[..], &mut vec![f32::NAN; 1 << 20]);
                wide_op(Together { heads, qkv, prompt, own, mixed: &mut mixed, scores });
            }
            for (i, own) in own.iter().enumerate() {
                let alone = alone(heads, &newest[i * row..][..row], &[prompt.clone(), own.clone()], 1);
                assert!(mixed[i * wide..][..wide] == alone, "{heads:?}: row {i} of {count} after {before}");
            }
        }
    }
}
