//! Softmax over scores, some rows side by side: each is a long chain of steps that wait for each other, and short rows
//! have nothing else to wait with.

use super::kernels::{exp, halved, larger, total};
use super::tile::{LINE, ROWS};

/// Turns the first scores of each of some rows, times `scale`, into weights that sum to 1, and gives the logarithms of
/// the sums of their exponentials. Rows are `stride` apart, `lens` says how many scores each has. `scale` is above
/// zero. What is behind a row's last score becomes 0, as far as the longest row's last line goes.
#[inline(always)]
pub fn softmax<const N: usize>(scores: &mut [f32], stride: usize, lens: [usize; N], scale: f32) -> [f32; N] {
    let lines = lens.iter().max().map_or(0, |len| len.div_ceil(LINE));
    let there = |n: usize, line: usize| lens[n].saturating_sub(line * LINE) as u32;
    let mut tops = [[f32::MIN; LINE]; N];
    for line in 0..lines {
        for (n, top) in tops.iter_mut().enumerate() {
            let (numbers, there) = (&scores[n * stride + line * LINE..][..LINE], there(n, line));
            for i in 0..LINE {
                let number = if (i as u32) < there { numbers[i] } else { f32::MIN };
                top[i] = larger(top[i], number);
            }
        }
    }
    // Loops, for `map` becomes a call where there are several.
    let mut top = [0.0; N];
    for (top, tops) in top.iter_mut().zip(tops) {
        *top = halved(tops, larger) * scale;
    }
    let mut sums = [[0.0; LINE]; N];
    for line in 0..lines {
        let mut all = [[0.0; LINE]; N];
        for (n, low) in all.iter_mut().enumerate() {
            let numbers = &scores[n * stride + line * LINE..][..LINE];
            for i in 0..LINE {
                low[i] = numbers[i] * scale - top[n];
            }
        }
        for x in all.as_flattened_mut() {
            *x = exp(*x);
        }
        for (n, (weights, sum)) in all.iter().zip(&mut sums).enumerate() {
            let (numbers, there) = (&mut scores[n * stride + line * LINE..][..LINE], there(n, line));
            for i in 0..LINE {
                let weight = if (i as u32) < there { weights[i] } else { 0.0 };
                numbers[i] = weight;
                sum[i] += weight;
            }
        }
    }
    let (mut shares, mut logs) = ([0.0; N], [0.0; N]);
    for n in 0..N {
        let total = total(sums[n]);
        (shares[n], logs[n]) = (1.0 / total, top[n] + total.ln());
    }
    for line in 0..lines {
        for (n, share) in shares.iter().enumerate() {
            for number in &mut scores[n * stride + line * LINE..][..LINE] {
                *number *= share;
            }
        }
    }
    logs
}

/// The same for as many rows as there are lengths, at most [`ROWS`]; `logs` gets the logarithms.
#[inline(always)]
pub fn softmaxes(scores: &mut [f32], stride: usize, lens: &[usize], scale: f32, logs: &mut [f32; ROWS]) {
    match *lens {
        [a, b, c, d, e, f] => logs[..6].copy_from_slice(&softmax(scores, stride, [a, b, c, d, e, f], scale)),
        [a, b, c, d, e] => logs[..5].copy_from_slice(&softmax(scores, stride, [a, b, c, d, e], scale)),
        [a, b, c, d] => logs[..4].copy_from_slice(&softmax(scores, stride, [a, b, c, d], scale)),
        [a, b, c] => logs[..3].copy_from_slice(&softmax(scores, stride, [a, b, c], scale)),
        [a, b] => logs[..2].copy_from_slice(&softmax(scores, stride, [a, b], scale)),
        [a] => logs[..1].copy_from_slice(&softmax(scores, stride, [a], scale)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_side_by_side_are_the_plain_ones_each() {
        const STRIDE: usize = 48;
        // What is behind a row's last score is anything.
        let scores: Vec<f32> = (0..ROWS * STRIDE).map(|i| (i as f32 * 0.7).sin() * 9.0).collect();
        for first in [1, 11, 16, 27, 40] {
            let lens: [usize; ROWS] = std::array::from_fn(|n| first + n);
            let (mut all, mut logs) = (scores.clone(), [0.0; ROWS]);
            softmaxes(&mut all, STRIDE, &lens, 0.25, &mut logs);
            let seen = (first + ROWS - 1).next_multiple_of(LINE);
            for (n, len) in lens.into_iter().enumerate() {
                let row = &scores[n * STRIDE..][..len];
                let plain: Vec<f64> = row.iter().map(|s| (f64::from(*s) * 0.25).exp()).collect();
                let total: f64 = plain.iter().sum();
                assert!((f64::from(logs[n]) - total.ln()).abs() < 1e-5, "{} {}", logs[n], total.ln());
                let weights = &all[n * STRIDE..][..seen];
                for (weight, plain) in weights.iter().zip(&plain) {
                    assert!((f64::from(*weight) - plain / total).abs() < 1e-6);
                }
                assert!(weights[len..].iter().all(|weight| *weight == 0.0));

                let mut alone = scores[n * STRIDE..][..STRIDE].to_vec();
                let [log] = softmax(&mut alone, STRIDE, [len], 0.25);
                assert_eq!((log, &alone[..len]), (logs[n], &weights[..len]), "neighbours change a row");
            }
        }
    }
}
