//! Tests of attention, forward and backward, against sums written out in float64, and that threads change no bit.

use super::attention::{AttentionScratch, Cache, Heads, Past, Span, attend, attend_after};
use super::attention_back::{BackScratch, Mixed, attend_back};
use super::attention_one::attend_one;
use super::attention_rows::Together;
use super::gemm::tests::numbers;
use super::kernels::wide_op;

fn heads(query: usize, kv: usize, width: usize) -> Heads {
    Heads { query, kv, width, scale: 0.3, cap: None, window: None }
}

/// Heads with a cap, with a window, and with keys and values for one head, for three and for all.
fn kinds() -> [Heads; 4] {
    let capped = Heads { cap: Some(2.0), ..heads(3, 1, 20) };
    [heads(6, 2, 16), heads(2, 2, 8), capped, Heads { window: Some(70), ..heads(4, 2, 16) }]
}

/// A short prompt with two answers, of which one is long, and a long prompt with an answer.
fn spans() -> Vec<Span> {
    let span = |prompt: std::ops::Range<usize>, own| Span { prompt, own };
    vec![
        span(0..0, 0..7),
        span(0..7, 7..150),
        span(0..7, 150..160),
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

fn passed(heads: Heads, rows: &[f32], spans: &[Span], gradient: &[f32], threads: usize) -> [Vec<f32>; 3] {
    let tokens = rows.len() / heads.row();
    let (mut mixed, mut log_sums) =
        (vec![0.0; tokens * heads.query * heads.width], vec![0.0; tokens * heads.query]);
    let scratch = &mut AttentionScratch::of(vec![f32::NAN; 1 << 16]);
    attend(heads, rows, spans, (&mut mixed, &mut log_sums), scratch, threads);
    let mut drows = vec![0.0; rows.len()];
    let results = Mixed { values: &mixed, log_sums: &log_sums, gradient };
    attend_back(heads, rows, spans, results, &mut drows, (&mut BackScratch::default(), threads));
    [mixed, log_sums, drows]
}

#[test]
fn attention_is_the_plain_one_and_threads_change_no_bit() {
    for heads in kinds() {
        let (spans, tokens) = (spans(), 371);
        let rows = numbers(tokens * heads.row(), 0.7);
        let gradient = numbers(tokens * heads.query * heads.width, 0.3);
        let (mixed, drows) = plain(heads, &rows, &spans, &gradient);
        let alone = passed(heads, &rows, &spans, &gradient, 1);
        for (ours, plain) in alone[0].iter().zip(&mixed).chain(alone[2].iter().zip(&drows)) {
            assert!((f64::from(*ours) - plain).abs() < 1e-4, "{heads:?}: {ours}, {plain}");
        }
        for threads in [2, 3, 8] {
            assert!(
                passed(heads, &rows, &spans, &gradient, threads) == alone,
                "{heads:?}: {threads} threads"
            );
        }
    }
}

/// Keys and values in their layout.
type Laid = (Cache, Vec<f32>, Vec<f32>);

fn laid(heads: Heads, rows: &[f32], which: std::ops::Range<usize>) -> Laid {
    let cache = Cache::new(heads, which.len());
    let (mut columns, mut lines) = (vec![0.0; cache.columns()], vec![0.0; cache.lines()]);
    let [keys, values] = heads.past();
    for (token, row) in rows.chunks_exact(heads.row()).skip(which.start).take(which.len()).enumerate() {
        cache.put_column(token, &row[keys.clone()], &mut columns);
        cache.put_line(token, &row[values.clone()], &mut lines);
    }
    (cache, columns, lines)
}

fn past((cache, keys, values): &Laid, seen: std::ops::Range<usize>) -> Past<'_> {
    Past { cache: *cache, keys, values, seen }
}

/// More tokens than threads share by heads, of which the last are one, some and many.
#[test]
fn tokens_that_follow_others_mix_what_they_do_together() {
    for heads in kinds() {
        let (before, after) = (700, 400);
        let (row, wide) = (heads.row(), heads.query * heads.width);
        let rows = numbers((before + after) * row, 0.7);
        let of_prompt = Span { prompt: 0..0, own: 0..before };
        let spans = [of_prompt, Span { prompt: 0..before, own: before..before + after }];
        let gradient = vec![0.0; (before + after) * wide];
        let [whole, ..] = passed(heads, &rows, &spans, &gradient, 1);
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
            let mut mixed = vec![0.0; wide];
            attend_one(heads, &rows[last * row..][..wide], &segments, &mut mixed, (&mut Vec::new(), threads));
            assert!(mixed == whole[last * wide..], "{heads:?}: {threads} threads");
        }
    }
}

/// Fewer rows than a tile has, as many, and more than are computed at a time, with answers of several lengths.
#[test]
fn rows_after_one_prompt_mix_what_each_does_alone() {
    // With more heads than are computed at a time, too, and wider ones than a tile.
    let large = [heads(7, 1, 72), Heads { cap: Some(2.0), ..heads(10, 2, 136) }];
    for heads in kinds().into_iter().chain(large).map(|heads| Heads { window: None, ..heads }) {
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
            let mut scores = vec![f32::NAN; 1 << 20];
            wide_op(Together {
                heads,
                qkv: &newest,
                prompt: past(&prompt, 0..before),
                own: &own,
                mixed: &mut mixed,
                scores: &mut scores,
            });
            for (i, own) in own.iter().enumerate() {
                let (mut alone, segments) = (vec![0.0; wide], [past(&prompt, 0..before), own.clone()]);
                attend_one(heads, &newest[i * row..][..wide], &segments, &mut alone, (&mut Vec::new(), 1));
                assert!(mixed[i * wide..][..wide] == alone, "{heads:?}: row {i} of {count} after {before}");
            }
        }
    }
}
