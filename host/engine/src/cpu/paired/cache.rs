//! The layout of keys and values in bf16.
//!
//! As columns, a head has panels of [`WIDEST`] adjacent tokens, `[pairs of E, WIDEST]` each, with zeros up to a multiple of
//! [`Element::STEP`] pairs. As lines, a head has a panel for each [`WIDEST`] numbers of E, `[pairs of tokens, WIDEST]`.
//! Both begin at a cache line, for which there is room.

use std::ops::Range;

use pulp::Simd;

use super::super::attention::Cache;
use super::super::bf16::{pair, upper};
use super::super::element::Element;
use super::super::gemm::INNER;
use super::super::unit::{LINE, Pair, Side, Tile, Unit, WIDEST};

/// Tokens whose values are multiplied together: those of the pairs that matrices take at a time. While tokens are
/// sampled, what follows the newest one in its block is zero; among many, their weights are.
pub const BLOCK: usize = 2 * Pair::STEP;

/// Tokens of a run: its pairs are a chain of sums.
const RUN: usize = 2 * INNER;

impl Cache {
    /// Returns the pairs of a query or key.
    #[inline(always)]
    pub fn inner(self) -> usize {
        self.heads.width.div_ceil(2).next_multiple_of(Pair::STEP)
    }

    /// Returns the pairs of a head's lines.
    #[inline(always)]
    fn of_lines(self) -> usize {
        self.capacity / 2 * self.heads.width.next_multiple_of(WIDEST)
    }

    /// Returns the size of all heads as columns.
    pub fn pair_columns(self) -> usize {
        self.heads.kv * self.capacity * self.inner() + LINE
    }

    /// Returns the size of all heads as lines.
    pub fn pair_lines(self) -> usize {
        self.heads.kv * self.of_lines() + LINE
    }

    /// Copies a token's heads, `[K, E]`, into columns. The first token of a panel clears what lies after a key's last number.
    #[inline(always)]
    pub fn put_pair_column(self, token: usize, numbers: &[f32], columns: &mut [Pair]) {
        let (inner, first) = (self.inner(), token / WIDEST * WIDEST);
        for (head, numbers) in numbers.chunks_exact(self.heads.width).enumerate() {
            let panel = &mut columns[(head * self.capacity + first) * inner..][..inner * WIDEST];
            if token == first {
                panel[numbers.len().div_ceil(2) * WIDEST..].fill(0);
            }
            let places = panel[token - first..].iter_mut().step_by(WIDEST);
            for (place, two) in places.zip(numbers.chunks(2)) {
                *place = pair(two[0], two.get(1).copied().unwrap_or(0.0));
            }
        }
    }

    /// Copies a token's heads, `[K, E]`, into lines. The first token of a block clears the block.
    #[inline(always)]
    pub fn put_pair_line(self, token: usize, numbers: &[f32], lines: &mut [Pair]) {
        for (head, numbers) in numbers.chunks_exact(self.heads.width).enumerate() {
            for (column, numbers) in (0..).step_by(WIDEST).zip(numbers.chunks(WIDEST)) {
                let begin = head * self.of_lines() + column * self.capacity / 2;
                let block = &mut lines[begin + token / 2 * WIDEST..];
                if token.is_multiple_of(BLOCK) {
                    block[..BLOCK / 2 * WIDEST].fill(0);
                }
                let places = block.iter_mut().zip(numbers);
                if token.is_multiple_of(2) {
                    places.for_each(|(place, number)| *place = pair(*number, 0.0));
                } else {
                    places.for_each(|(place, number)| *place |= upper(*number));
                }
            }
        }
    }

    /// Multiplies `count` rows of pairs with a head's columns: a sum for each of `tokens`, whose first must begin a panel, and
    /// arbitrary numbers up to the end of the last panel.
    #[inline(always)]
    pub fn score_pairs<S: Simd, U: Unit<S, Element = Pair>>(
        self,
        (simd, unit): (S, U),
        (head, columns): (usize, &[Pair]),
        (rows, count): (&[Pair], usize),
        tokens: Range<usize>,
        (y, stride): (&mut [f32], usize),
    ) {
        let inner = self.inner();
        for first in tokens.clone().step_by(WIDEST) {
            let panel = (&columns[(head * self.capacity + first) * inner..][..inner * WIDEST], WIDEST);
            let seen = (tokens.end - first).min(WIDEST).next_multiple_of(LINE);
            // Matrices write whole lines at once.
            let used = if U::MATRICES { WIDEST } else { seen };
            for row in (0..count).step_by(U::ROWS) {
                let (side, taken) = (Side::Rows(&rows[row * inner..], inner), U::ROWS.min(count - row));
                let tile = Tile { side, taken, inner, panel, used, stride, add: false };
                tile.wide_by(simd, unit, &mut y[row * stride + first - tokens.start..]);
            }
        }
    }

    /// Multiplies `count` rows of weights with a head's lines, summed over `tokens`. Rows begin at the first token's block, are
    /// `apart` pairs apart, and have zeros up to the end of the last token's block.
    #[inline(always)]
    pub fn mix_pairs<S: Simd, U: Unit<S, Element = Pair>>(
        self,
        (simd, unit): (S, U),
        (head, lines): (usize, &[Pair]),
        (weights, apart, count): (&[Pair], usize, usize),
        tokens: Range<usize>,
        (y, stride, add): (&mut [f32], usize, bool),
    ) {
        if tokens.is_empty() {
            return;
        }
        let (width, begin) = (self.heads.width, tokens.start / BLOCK * BLOCK);
        for column in (0..width).step_by(WIDEST) {
            let lines = &lines[head * self.of_lines() + column * self.capacity / 2..];
            let (used, mut first) = (WIDEST.min(width - column), begin);
            while first < tokens.end {
                let to = tokens.end.min((first / RUN + 1) * RUN);
                let panel = (&lines[first / 2 * WIDEST..self.capacity / 2 * WIDEST], WIDEST);
                for row in (0..count).step_by(U::ROWS) {
                    let side = Side::Rows(&weights[row * apart + (first - begin) / 2..], apart);
                    let (inner, add) = ((to - first).div_ceil(2), add || first > begin);
                    let taken = U::ROWS.min(count - row);
                    let tile = Tile { side, taken, inner, panel, used, stride, add };
                    tile.wide_by(simd, unit, &mut y[row * stride + column..]);
                }
                first = to;
            }
        }
    }
}
