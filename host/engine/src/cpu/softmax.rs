//! Softmax over scores, for several rows at once. Each row is a long chain of dependent steps;
//! short rows leave the processor idle otherwise.

use super::kernels::{exp, exp_below, halved, larger, total};
use super::unit::{LINE, ROWS};

/// The range of a row's scores that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub from: usize,
    /// One past the last.
    pub to: usize,
}

/// No bit in the first line, all bits in the second.
static STEP: [u32; 2 * LINE] = {
    let mut step = [0; 2 * LINE];
    let mut i = LINE;
    while i < step.len() {
        step[i] = u32::MAX;
        i += 1;
    }
    step
};

impl Seen {
    /// Returns a mask of a line: all bits of the scores that count, and none of others. A comparison for each score would not be
    /// computed by vectors.
    #[inline(always)]
    pub fn of_line(self, line: usize) -> [u32; LINE] {
        let first = line * LINE;
        let mut mask = [u32::MAX; LINE];
        if self.from <= first && first + LINE <= self.to {
            return mask;
        }
        let place = |end: usize| LINE - end.saturating_sub(first).min(LINE);
        let (from, to) = (&STEP[place(self.from)..][..LINE], &STEP[place(self.to)..][..LINE]);
        for i in 0..LINE {
            mask[i] = from[i] & !to[i];
        }
        mask
    }
}

/// Turns the scores that count, times `scale` (above zero), into weights that sum to 1, for
/// rows `stride` apart. Returns the logarithms of the sums of their exponentials. Other scores
/// become 0, up to the longest row's last cache line.
#[inline(always)]
pub fn softmax<const N: usize>(scores: &mut [f32], stride: usize, seen: [Seen; N], scale: f32) -> [f32; N] {
    let (shares, logs) = exponentials::<N, false>(scores, stride, seen, scale);
    let lines = seen.iter().map(|seen| seen.to).max().map_or(0, |len| len.div_ceil(LINE));
    for line in 0..lines {
        for (n, share) in shares.iter().enumerate() {
            for number in &mut scores[n * stride + line * LINE..][..LINE] {
                *number *= share;
            }
        }
    }
    logs
}

/// Like [`softmax`], but without the last step: returns what weights are to be multiplied with, too. `ROUNDED` is for weights that
/// are then rounded to bf16.
#[inline(always)]
fn exponentials<const N: usize, const ROUNDED: bool>(
    scores: &mut [f32],
    stride: usize,
    seen: [Seen; N],
    scale: f32,
) -> ([f32; N], [f32; N]) {
    let lines = seen.iter().map(|seen| seen.to).max().map_or(0, |len| len.div_ceil(LINE));
    let mut tops = [[f32::MIN; LINE]; N];
    for line in 0..lines {
        for (n, top) in tops.iter_mut().enumerate() {
            let numbers = &scores[n * stride + line * LINE..][..LINE];
            let mask = seen[n].of_line(line);
            for i in 0..LINE {
                let number = numbers[i].to_bits() & mask[i] | f32::MIN.to_bits() & !mask[i];
                top[i] = larger(top[i], f32::from_bits(number));
            }
        }
    }
    // Loops, because `map` becomes a call if there are several.
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
                low[i] =
                    if ROUNDED { numbers[i].mul_add(scale, -top[n]) } else { numbers[i] * scale - top[n] };
            }
        }
        for x in all.as_flattened_mut() {
            *x = if ROUNDED { exp_below(*x) } else { exp(*x) };
        }
        for (n, (weights, sum)) in all.iter().zip(&mut sums).enumerate() {
            let numbers = &mut scores[n * stride + line * LINE..][..LINE];
            let mask = seen[n].of_line(line);
            for i in 0..LINE {
                let weight = f32::from_bits(weights[i].to_bits() & mask[i]);
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
    (shares, logs)
}

/// [`exponentials`] of weights that are then rounded to bf16, for as many rows as `seen` has, at most [`ROWS`]; writes factors and logarithms.
#[inline(always)]
pub fn exponentials_of(
    scores: &mut [f32],
    stride: usize,
    seen: &[Seen],
    scale: f32,
    (shares, logs): (&mut [f32; ROWS], &mut [f32; ROWS]),
) {
    macro_rules! rows {
        ($n:literal) => {{
            let seen = std::array::from_fn(|n| seen[n]);
            let (share, log) = exponentials::<$n, true>(scores, stride, seen, scale);
            shares[..$n].copy_from_slice(&share);
            logs[..$n].copy_from_slice(&log);
        }};
    }
    match seen.len() {
        6 => rows!(6),
        5 => rows!(5),
        4 => rows!(4),
        3 => rows!(3),
        2 => rows!(2),
        1 => rows!(1),
        _ => {}
    }
}

/// Like [`softmax`], for as many rows as `seen` has, at most [`ROWS`]; writes the logarithms to `logs`.
#[inline(always)]
pub fn softmaxes(scores: &mut [f32], stride: usize, seen: &[Seen], scale: f32, logs: &mut [f32; ROWS]) {
    match *seen {
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
        // Scores past a row's last are arbitrary.
        let scores: Vec<f32> = (0..ROWS * STRIDE).map(|i| (i as f32 * 0.7).sin() * 9.0).collect();
        for (first, window) in
            [1, 11, 16, 27, 40].into_iter().flat_map(|first| [1, 3, 17, 100].map(|w| (first, w)))
        {
            let seen: [Seen; ROWS] =
                std::array::from_fn(|n| Seen { from: (first + n).saturating_sub(window), to: first + n });
            let (mut all, mut logs) = (scores.clone(), [0.0; ROWS]);
            softmaxes(&mut all, STRIDE, &seen, 0.25, &mut logs);
            let lines = (first + ROWS - 1).next_multiple_of(LINE);
            for (n, Seen { from, to }) in seen.into_iter().enumerate() {
                let row = &scores[n * STRIDE..][from..to];
                let plain: Vec<f64> = row.iter().map(|s| (f64::from(*s) * 0.25).exp()).collect();
                let total: f64 = plain.iter().sum();
                assert!((f64::from(logs[n]) - total.ln()).abs() < 1e-5, "{} {}", logs[n], total.ln());
                let weights = &all[n * STRIDE..][..lines];
                for (weight, plain) in weights[from..to].iter().zip(&plain) {
                    assert!((f64::from(*weight) - plain / total).abs() < 1e-6);
                }
                assert!(weights[..from].iter().chain(&weights[to..]).all(|weight| *weight == 0.0));

                let mut alone = scores[n * STRIDE..][..STRIDE].to_vec();
                let [log] = softmax(&mut alone, STRIDE, [seen[n]], 0.25);
                assert_eq!((log, &alone[..to]), (logs[n], &weights[..to]), "neighbours change a row");
            }
        }
    }
}
