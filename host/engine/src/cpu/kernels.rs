//! The expensive loops besides products: norms, rope, the exponential.
//!
//! Loops are written so that the compiler vectorizes them; [`wide`] lets it use the machine's
//! widest vectors.

use std::ops::Range;

use super::unit::LINE;

/// Runs a loop compiled for the widest vectors of this machine.
#[inline]
pub fn wide<R>(run: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(run)
}

/// Runs a loop written in vectors, with the widest of this machine.
#[inline]
pub fn wide_op<O: pulp::WithSimd>(op: O) -> O::Output {
    pulp::Arch::new().dispatch(op)
}

/// Copies a few numbers, one cache line at a time. For heads and panels a call of `memcpy`
/// would cost more than the copy.
#[inline(always)]
pub fn copy(from: &[f32], to: &mut [f32]) {
    let ((lines, rest), (places, last)) = (from.as_chunks::<LINE>(), to.as_chunks_mut::<LINE>());
    places.iter_mut().zip(lines).for_each(|(place, line)| *place = *line);
    last.iter_mut().zip(rest).for_each(|(place, number)| *place = *number);
}

/// Returns `Σ a·b`, with sixteen partial sums.
#[inline(always)]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 16];
    let (a16, b16) = (a.chunks_exact(16), b.chunks_exact(16));
    let rest: f32 = a16.remainder().iter().zip(b16.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a16.zip(b16) {
        for i in 0..16 {
            sums[i] += x[i] * y[i];
        }
    }
    total(sums) + rest
}

/// Returns `Σ a·b·c`, with sixteen partial sums.
#[inline(always)]
fn dot3(a: &[f32], b: &[f32], c: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 16];
    let whole = a.len() / 16 * 16;
    for at in (0..whole).step_by(16) {
        let (a, b, c) = (&a[at..at + 16], &b[at..at + 16], &c[at..at + 16]);
        for i in 0..16 {
            sums[i] += a[i] * b[i] * c[i];
        }
    }
    let rest: f32 = (whole..a.len()).map(|i| a[i] * b[i] * c[i]).sum();
    total(sums) + rest
}

/// Returns `Σ x`, with sixteen partial sums.
#[inline(always)]
pub fn sum(x: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 16];
    let x16 = x.chunks_exact(16);
    let rest: f32 = x16.remainder().iter().sum();
    for x in x16 {
        for i in 0..16 {
            sums[i] += x[i];
        }
    }
    total(sums) + rest
}

/// Returns the largest number, with sixteen partial searches.
#[inline(always)]
pub fn largest(x: &[f32]) -> f32 {
    let mut all = [f32::MIN; 16];
    let x16 = x.chunks_exact(16);
    let rest = x16.remainder().iter().copied().fold(f32::MIN, larger);
    for x in x16 {
        for i in 0..16 {
            all[i] = larger(all[i], x[i]);
        }
    }
    larger(halved(all, larger), rest)
}

/// Returns the larger of two numbers.
#[inline(always)]
pub fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// Returns the sum of sixteen numbers.
#[inline(always)]
pub fn total(sums: [f32; 16]) -> f32 {
    halved(sums, |a, b| a + b)
}

/// Reduces sixteen numbers to one by halves: four dependent steps instead of sixteen.
#[inline(always)]
pub fn halved(mut all: [f32; 16], join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = 8;
    while half > 0 {
        for i in 0..half {
            all[i] = join(all[i], all[i + half]);
        }
        half /= 2;
    }
    all[0]
}

/// Returns the exponential, branch-free for vectors. Relative error: below 2e-6 for |x| ≤ 10, else 1e-5.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // 2^(k + f), k whole and |f| ≤ ½; the polynomial is the Taylor series of 2^f.
    let x = x.clamp(-87.0, 88.0) * std::f32::consts::LOG2_E;
    // 1.5 · 2²³ is so large that its last bit has the value 1, which leaves k in the low bits. A
    // conversion would check its edge cases one number at a time.
    let whole = x + 12_582_912.0;
    let k = whole - 12_582_912.0;
    let f = (x - k) * std::f32::consts::LN_2;
    let series = 1.0 / 5040.0;
    let series = series * f + 1.0 / 720.0;
    let series = series * f + 1.0 / 120.0;
    let series = series * f + 1.0 / 24.0;
    let series = series * f + 1.0 / 6.0;
    let series = series * f + 0.5;
    let series = series * f + 1.0;
    let series = series * f + 1.0;
    f32::from_bits(whole.to_bits().wrapping_add(127) << 23) * series
}

/// Returns the exponential of a number that is not above zero, or little, for weights that are rounded to bf16: in fused
/// steps, and in fewer of them. Relative error: below 5e-6 for x ≥ -10, else 1e-5.
#[inline(always)]
pub fn exp_below(x: f32) -> f32 {
    const LN_2: f32 = std::f32::consts::LN_2;
    // As above. The series is that of 2^f. What is no number stays none: an overflow is to be seen in what follows.
    let x = larger(x, -87.0);
    let whole = x.mul_add(std::f32::consts::LOG2_E, 12_582_912.0);
    let f = x.mul_add(std::f32::consts::LOG2_E, 12_582_912.0 - whole);
    let series = LN_2 * LN_2 * LN_2 * LN_2 * LN_2 / 120.0;
    let series = series.mul_add(f, LN_2 * LN_2 * LN_2 * LN_2 / 24.0);
    let series = series.mul_add(f, LN_2 * LN_2 * LN_2 / 6.0);
    let series = series.mul_add(f, LN_2 * LN_2 / 2.0);
    let series = series.mul_add(f, LN_2).mul_add(f, 1.0);
    f32::from_bits(whole.to_bits().wrapping_add(127) << 23) * series
}

/// Transposes a square: four times, the lines of its halves are interleaved.
#[inline(always)]
pub fn transpose<E: Copy + Default>(lines: &mut [[E; LINE]; LINE]) {
    let mut others = [[E::default(); LINE]; LINE];
    for _ in 0..LINE.ilog2() / 2 {
        interleave(lines, &mut others);
        interleave(&others, lines);
    }
}

/// The compiler makes shuffles of it.
#[inline(always)]
fn interleave<E: Copy>(from: &[[E; LINE]; LINE], to: &mut [[E; LINE]; LINE]) {
    const HALF: usize = LINE / 2;
    for i in 0..HALF {
        for k in 0..HALF {
            (to[2 * i][2 * k], to[2 * i][2 * k + 1]) = (from[i][k], from[i + HALF][k]);
            (to[2 * i + 1][2 * k], to[2 * i + 1][2 * k + 1]) = (from[i][k + HALF], from[i + HALF][k + HALF]);
        }
    }
}

/// Returns `cap · tanh(x / cap)`: close to x if x is small, and never beyond the cap.
#[inline(always)]
pub fn capped(x: f32, cap: f32) -> f32 {
    // 1 - 2 / (e^2y + 1) is tanh(y).
    cap - 2.0 * cap / (1.0 + exp(2.0 * x / cap))
}

/// Returns the derivative of [`capped`] from its result.
#[inline(always)]
pub fn uncapped(y: f32, cap: f32) -> f32 {
    1.0 - (y / cap) * (y / cap)
}

/// Root-mean-square norm of rows as wide as `weight`: `y = x · weight / rms(x)`. `scales` gets `1 / rms`.
pub fn norm(x: &[f32], weight: &[f32], epsilon: f32, y: &mut [f32], scales: &mut [f32]) {
    let width = weight.len();
    wide(
        #[inline(always)]
        || {
            for ((x, y), scale) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)).zip(scales) {
                let s = 1.0 / (dot(x, x) / width as f32 + epsilon).sqrt();
                *scale = s;
                for ((y, x), w) in y.iter_mut().zip(x).zip(weight) {
                    *y = x * s * w;
                }
            }
        },
    );
}

/// The norm's backward pass: adds to the gradient of `x`, and to that of `weight` if given.
pub fn norm_back(
    x: &[f32],
    weight: &[f32],
    scales: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    mut dweight: Option<&mut [f32]>,
) {
    let width = weight.len();
    wide(
        #[inline(always)]
        || {
            let rows = x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(dx.chunks_exact_mut(width));
            for (((x, dy), dx), s) in rows.zip(scales) {
                let along = dot3(x, dy, weight) * s * s / width as f32;
                for (((dx, x), dy), w) in dx.iter_mut().zip(x).zip(dy).zip(weight) {
                    *dx += s * (dy * w - x * along);
                }
                if let Some(dweight) = dweight.as_deref_mut() {
                    add_row(dweight, x, *s, dy);
                }
            }
        },
    );
}

/// Adds a row's part of the gradient of a norm's weights.
#[inline(always)]
fn add_row(dweight: &mut [f32], x: &[f32], scale: f32, dy: &[f32]) {
    for ((dw, x), dy) in dweight.iter_mut().zip(x).zip(dy) {
        *dw += x * scale * dy;
    }
}

/// The rest of the norm's backward pass for some columns: adds to the gradient of their weights, row after row as [`norm_back`] does.
pub fn gain_back(
    x: &[f32],
    width: usize,
    scales: &[f32],
    dy: &[f32],
    columns: Range<usize>,
    dweight: &mut [f32],
) {
    wide(
        #[inline(always)]
        || {
            for ((x, dy), s) in x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(scales) {
                add_row(dweight, &x[columns.clone()], *s, &dy[columns.clone()]);
            }
        },
    );
}

/// Computes `a = silu(gate) · up` for rows of gate and up side by side, `[N, 2 F]` to `[N, F]`
/// (Shazeer 2020, SwiGLU).
pub fn swiglu(gate_up: &[f32], width: usize, a: &mut [f32]) {
    wide(
        #[inline(always)]
        || {
            for (gu, a) in gate_up.chunks_exact(2 * width).zip(a.chunks_exact_mut(width)) {
                let (gate, up) = gu.split_at(width);
                for ((a, g), u) in a.iter_mut().zip(gate).zip(up) {
                    *a = g / (1.0 + exp(-g)) * u;
                }
            }
        },
    );
}

/// SwiGLU's backward pass: from the gradient of `a` to those of gate and up.
pub fn swiglu_back(gate_up: &[f32], width: usize, da: &[f32], dgate_up: &mut [f32]) {
    wide(
        #[inline(always)]
        || {
            let rows = gate_up.chunks_exact(2 * width).zip(da.chunks_exact(width));
            for ((gu, da), dgu) in rows.zip(dgate_up.chunks_exact_mut(2 * width)) {
                let ((gate, up), (dgate, dup)) = (gu.split_at(width), dgu.split_at_mut(width));
                for i in 0..width {
                    let s = 1.0 / (1.0 + exp(-gate[i]));
                    dup[i] = da[i] * gate[i] * s;
                    dgate[i] = da[i] * up[i] * s * (1.0 + gate[i] * (1.0 - s));
                }
            }
        },
    );
}

/// `√(8/π)` and the factor of the cube in [`geglu`]: `gelu(x) = x · sigmoid(ROOT · (x + CUBE · x³))`,
/// the tanh approximation (Hendrycks and Gimpel 2016).
const ROOT: f32 = 1.595_769;
const CUBE: f32 = 0.044_715;

/// Computes `a = gelu(gate) · up` of gate and up, `[N, 2 F]` to `[N, F]` (Shazeer 2020, GEGLU).
pub fn geglu(gate_up: &[f32], width: usize, a: &mut [f32]) {
    wide(
        #[inline(always)]
        || {
            for (gu, a) in gate_up.chunks_exact(2 * width).zip(a.chunks_exact_mut(width)) {
                let (gate, up) = gu.split_at(width);
                for ((a, g), u) in a.iter_mut().zip(gate).zip(up) {
                    *a = g / (1.0 + exp(-ROOT * (g + CUBE * g * g * g))) * u;
                }
            }
        },
    );
}

/// GEGLU's backward pass: from the gradient of `a` to those of gate and up.
pub fn geglu_back(gate_up: &[f32], width: usize, da: &[f32], dgate_up: &mut [f32]) {
    wide(
        #[inline(always)]
        || {
            let rows = gate_up.chunks_exact(2 * width).zip(da.chunks_exact(width));
            for ((gu, da), dgu) in rows.zip(dgate_up.chunks_exact_mut(2 * width)) {
                let ((gate, up), (dgate, dup)) = (gu.split_at(width), dgu.split_at_mut(width));
                for i in 0..width {
                    let g = gate[i];
                    let s = 1.0 / (1.0 + exp(-ROOT * (g + CUBE * g * g * g)));
                    dup[i] = da[i] * g * s;
                    dgate[i] = da[i] * up[i] * s * (1.0 + g * (1.0 - s) * ROOT * (1.0 + 3.0 * CUBE * g * g));
                }
            }
        },
    );
}

/// Rotates a row's heads by its position: heads of `2 · cos.len()` numbers. A head's first half
/// is paired with its second, as in Hugging Face checkpoints.
#[inline(always)]
pub fn rotate(row: &mut [f32], cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    for head in row.chunks_exact_mut(2 * half) {
        let (a, b) = head.split_at_mut(half);
        for ((a, b), (cos, sin)) in a.iter_mut().zip(b).zip(cos.iter().zip(sin)) {
            let (x, y) = (*a, *b);
            *a = x * cos - y * sin;
            *b = y * cos + x * sin;
        }
    }
}

/// The inverse rotation, which is also the backward pass.
#[inline(always)]
pub fn rotate_back(row: &mut [f32], cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    for head in row.chunks_exact_mut(2 * half) {
        let (a, b) = head.split_at_mut(half);
        for ((a, b), (cos, sin)) in a.iter_mut().zip(b).zip(cos.iter().zip(sin)) {
            let (x, y) = (*a, *b);
            *a = x * cos + y * sin;
            *b = y * cos - x * sin;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_one() {
        let worst = (-8700..8800).map(|i| {
            let x = i as f32 / 100.0;
            (f64::from(exp(x)) / f64::from(x).exp() - 1.0).abs()
        });
        let worst = worst.fold(0.0, f64::max);
        assert!(worst < 1e-5, "{worst:e}");
        let near = (-1000..1000)
            .map(|i| (f64::from(exp(i as f32 / 100.0)) / (f64::from(i) / 100.0).exp() - 1.0).abs());
        assert!(near.fold(0.0, f64::max) < 2e-6);
    }

    #[test]
    fn the_exponential_for_weights_is_one() {
        for i in -8700..=0 {
            let x = i as f32 / 100.0;
            let off = (f64::from(exp_below(x)) / f64::from(x).exp() - 1.0).abs();
            assert!(off < if i < -1000 { 1e-5 } else { 5e-6 }, "{x}: {off:e}");
        }
        assert!(exp_below(1e-3) > 1.0 && exp_below(-1e30) < 1e-37 && exp_below(f32::NAN).is_nan());
    }

    #[test]
    fn a_square_transposed_has_columns_for_lines() {
        let mut lines = std::array::from_fn(|i| std::array::from_fn(|k| LINE * i + k));
        transpose::<usize>(&mut lines);
        assert!((0..LINE).all(|i| (0..LINE).all(|k| lines[i][k] == LINE * k + i)));
    }

    #[test]
    fn a_rotation_back_undoes_one() {
        let row: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let (cos, sin): (Vec<f32>, Vec<f32>) = (0..4).map(|i| ((i as f32).cos(), (i as f32).sin())).unzip();
        let mut turned = row.clone();
        rotate(&mut turned, &cos, &sin);
        assert!(turned[1] != row[1]);
        rotate_back(&mut turned, &cos, &sin);
        assert!(turned.iter().zip(&row).all(|(a, b)| (a - b).abs() < 1e-5));
    }
}
