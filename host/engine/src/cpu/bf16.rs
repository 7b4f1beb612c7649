//! Numbers in bf16, the upper half of a float32. An element has two that are adjacent along a
//! product's inner index, the first one in the lower half.
//!
//! An element adds two products to a sum, the second numbers' first. Each is a fused
//! multiply-add, rounded to nearest, with subnormal inputs and outputs flushed to zero, as Intel
//! documents VDPBF16PS ([`Avx512Bf16`](super::avx512_bf16::Avx512Bf16)). Such a product is exact in float32, so [`Widened`]
//! gives the same sums on any machine, with two exceptions. Without VDPBF16PS, sums below 2⁻¹²⁶
//! are not flushed; without fused instructions, products out of float32's range are rounded.

use std::cell::Cell;
use std::ops::Range;
use std::thread::LocalKey;

use pulp::{Simd, WithSimd, bytemuck};

use super::element::Element;
use super::instruction::Instruction;
use super::kernels::wide_op;
use super::tile::start;
use super::unit::{LINE, Multiply, Pair, Unit};

/// The upper half of a float32.
const UPPER: u32 = 0xffff_0000;

/// Rounds to the nearest bf16, ties to even, and returns a float32. Subnormal numbers become
/// zero, as with VCVTNEPS2BF16; NaN stays NaN.
#[inline(always)]
pub fn rounded(x: f32) -> f32 {
    f32::from_bits(upper(x))
}

/// Returns the bits of [`rounded`].
#[inline(always)]
pub fn upper(x: f32) -> u32 {
    let bits = x.to_bits();
    let size = bits & 0x7fff_ffff;
    let near = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    let near = if size < 0x0080_0000 { bits & 0x8000_0000 } else { near };
    let near = if size > 0x7f80_0000 { bits | 0x0040_0000 } else { near };
    near & UPPER
}

/// Returns two numbers, rounded to bf16.
#[inline(always)]
pub fn pair(first: f32, second: f32) -> Pair {
    upper(first) >> 16 | upper(second)
}

/// Returns pairs in the memory of numbers, from a cache line on.
#[inline(always)]
pub fn pairs(numbers: &[f32]) -> &[Pair] {
    let pairs = bytemuck::cast_slice(numbers);
    &pairs[start(pairs).min(pairs.len())..]
}

/// Returns pairs in the memory of numbers, from a cache line on.
#[inline(always)]
pub fn pairs_mut(numbers: &mut [f32]) -> &mut [Pair] {
    let pairs = bytemuck::cast_slice_mut(numbers);
    let start = start(pairs).min(pairs.len());
    &mut pairs[start..]
}

/// Multiplies pairs as float32, for machines without the instruction.
#[derive(Clone, Copy)]
pub struct Widened;

impl<S: Simd> Unit<S> for Widened {
    type Element = Pair;
    type Vector = S::u32s;

    #[inline(always)]
    fn vectors(elements: &[Pair]) -> &[S::u32s] {
        S::as_simd_u32s(elements).0
    }

    #[inline(always)]
    fn splat(self, simd: S, element: Pair) -> S::u32s {
        simd.splat_u32s(element)
    }

    #[inline(always)]
    fn multiply_add(self, simd: S, a: S::u32s, b: S::u32s, sum: S::f32s) -> S::f32s {
        let second = |x| simd.transmute_f32s_u32s(simd.and_u32s(x, simd.splat_u32s(UPPER)));
        let first = |x| simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(x, simd.splat_u32s(16)));
        let sum = simd.mul_add_e_f32s(second(a), second(b), sum);
        simd.mul_add_e_f32s(first(a), first(b), sum)
    }

    #[inline(always)]
    fn adjacent(self, numbers: &[[f32; LINE]; 2]) -> [Pair; LINE] {
        let numbers = numbers.as_flattened();
        std::array::from_fn(|i| pair(numbers[2 * i], numbers[2 * i + 1]))
    }

    #[inline(always)]
    fn both(self, [first, second]: &[[f32; LINE]; 2]) -> [Pair; LINE] {
        std::array::from_fn(|i| pair(first[i], second[i]))
    }

    #[inline(always)]
    fn call<O: Multiply<Element = Pair>>(self, simd: S, op: O) {
        simd.vectorize(Widening(op));
    }
}

/// A loop over pairs that uses [`Widened`].
pub struct Widening<O>(pub O);

impl<O: Multiply<Element = Pair>> WithSimd for Widening<O> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.0.with(simd, Widened);
    }
}

thread_local! {
    static SCRATCH: Cell<(Vec<Pair>, Vec<Pair>)> = const { Cell::new((Vec::new(), Vec::new())) };
}

impl Element for Pair {
    const NUMBERS: usize = 2;
    const STEP: usize = LINE;

    #[inline]
    fn run<O: Multiply<Element = Self>>(op: O, instruction: Option<Instruction>) {
        match instruction {
            Some(instruction) => instruction.run(op),
            None => wide_op(Widening(op)),
        }
    }

    #[inline(always)]
    fn rows<'a, S: Simd, U: Unit<S, Element = Self>>(
        unit: U,
        (numbers, stride, len): (&'a [f32], usize, usize),
        count: usize,
        inner: Range<usize>,
        scratch: &'a mut Vec<Pair>,
    ) -> (&'a [Pair], usize) {
        let size = inner.len().next_multiple_of(Self::STEP);
        if scratch.len() < count * size {
            scratch.resize(count * size, 0);
        }
        let rows = scratch.chunks_exact_mut(size.max(1)).zip(numbers.chunks(stride)).take(count);
        for (pairs, row) in rows {
            pack(unit, &row[2 * inner.start..len.min(2 * inner.end)], pairs);
        }
        (scratch, size)
    }

    #[inline(always)]
    fn turn<S: Simd, U: Unit<S, Element = Self>>(
        unit: U,
        (rows, stride, len): (&[f32], usize, usize),
        used: usize,
        inner: Range<usize>,
        width: usize,
        panel: &mut [Pair],
    ) {
        if used < width {
            panel.fill(0);
        }
        // One cache line at a time, so that both sides stay in the cache.
        let mut line = [0; LINE];
        for from in inner.clone().step_by(LINE) {
            let to = inner.end.min(from + LINE);
            for column in 0..used {
                pack(unit, &rows[column * stride..][2 * from..len.min(2 * to)], &mut line);
                let places = panel[(from - inner.start) * width + column..].iter_mut().step_by(width);
                places.zip(&line[..to - from]).for_each(|(place, pair)| *place = *pair);
            }
        }
    }

    #[inline(always)]
    fn line<S: Simd, U: Unit<S, Element = Self>>(
        unit: U,
        (numbers, stride, len): (&[f32], usize, usize),
        inner: usize,
        columns: Range<usize>,
        line: &mut [Pair],
    ) {
        let first = &numbers[2 * inner * stride..][columns.clone()];
        let second = (2 * inner + 1 < len).then(|| &numbers[(2 * inner + 1) * stride..][columns]);
        let (lines, line) = line.as_chunks_mut::<LINE>();
        let (firsts, first) = first.as_chunks::<LINE>();
        let (seconds, second) = second.unwrap_or_default().as_chunks::<LINE>();
        let mut last = [[0.0; LINE]; 2];
        if seconds.len() == lines.len() {
            for ((line, first), second) in lines.iter_mut().zip(firsts).zip(seconds) {
                *line = unit.both(&[*first, *second]);
            }
        } else {
            lines.iter_mut().zip(firsts).for_each(|(line, first)| *line = unit.both(&[*first, [0.0; LINE]]));
        }
        last[0][..first.len()].copy_from_slice(first);
        last[1][..second.len()].copy_from_slice(second);
        line.copy_from_slice(&unit.both(&last)[..line.len()]);
    }

    fn scratch() -> &'static LocalKey<Cell<(Vec<Pair>, Vec<Pair>)>> {
        &SCRATCH
    }
}

/// Packs adjacent numbers into whole lines of pairs. What is missing is zero.
#[inline(always)]
fn pack<S: Simd, U: Unit<S, Element = Pair>>(unit: U, numbers: &[f32], pairs: &mut [Pair]) {
    let (lines, _) = pairs.as_chunks_mut::<LINE>();
    let (whole, rest) = numbers.as_chunks::<{ 2 * LINE }>();
    let line = |numbers: &[f32; 2 * LINE]| {
        let (halves, _) = numbers.as_chunks::<LINE>();
        unit.adjacent(&[halves[0], halves[1]])
    };
    lines.iter_mut().zip(whole).for_each(|(place, numbers)| *place = line(numbers));
    let after = &mut lines[whole.len()..];
    after.as_flattened_mut().fill(0);
    if let Some(place) = after.first_mut() {
        let mut last = [0.0; 2 * LINE];
        last[..rest.len()].copy_from_slice(rest);
        *place = line(&last);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use candle_core::{DType, Device, Tensor};

    use super::super::amx::Amx;
    use super::super::avx512_bf16::Avx512Bf16;
    use super::super::unit::{Side, Tile, WIDEST};
    use super::*;

    /// Returns zero for a subnormal number.
    fn zeroed(x: f32) -> f32 {
        if x.is_subnormal() { 0.0_f32.copysign(x) } else { x }
    }

    /// Adds a product as both instructions do.
    fn flushed(sum: f32, a: f32, b: f32) -> f32 {
        zeroed(zeroed(a).mul_add(zeroed(b), zeroed(sum)))
    }

    /// Returns the two numbers of an element.
    fn both(element: Pair) -> [f32; 2] {
        [f32::from_bits(element << 16), f32::from_bits(element & UPPER)]
    }

    /// Returns a sum plus the two products of an element, as Intel documents VDPBF16PS: the reference.
    pub(in super::super) fn added(sum: f32, a: Pair, b: Pair) -> f32 {
        let (a, b) = (both(a), both(b));
        flushed(flushed(sum, a[1], b[1]), a[0], b[0])
    }

    /// Returns a sum plus the products of some elements, as Intel documents TDPBF16PS: the reference of AMX.
    pub(in super::super) fn added_block(sum: f32, elements: impl Iterator<Item = (Pair, Pair)>) -> f32 {
        let [first, second] = elements.fold([0.0, 0.0], |[first, second], (a, b)| {
            let (a, b) = (both(a), both(b));
            [flushed(first, a[0], b[0]), flushed(second, a[1], b[1])]
        });
        zeroed(zeroed(sum) + zeroed(first + second))
    }

    /// Like `added`, but without flushing subnormal numbers to zero.
    fn added_widened(sum: f32, a: Pair, b: Pair) -> f32 {
        let (a, b) = (both(a), both(b));
        a[0].mul_add(b[0], a[1].mul_add(b[1], sum))
    }

    /// One sum per element.
    struct Each<'a> {
        a: &'a [Pair],
        b: &'a [Pair],
        sums: &'a mut [f32],
    }

    impl Multiply for Each<'_> {
        type Element = Pair;

        #[inline(always)]
        fn with<S: Simd, U: Unit<S, Element = Pair>>(self, simd: S, unit: U) {
            let (sums, _) = S::as_mut_simd_f32s(self.sums);
            for ((sum, a), b) in sums.iter_mut().zip(U::vectors(self.a)).zip(U::vectors(self.b)) {
                *sum = unit.multiply_add(simd, *a, *b, *sum);
            }
        }
    }

    /// Rounds lines of numbers, two at a time.
    struct Rounding<'a>(&'a [f32], &'a mut [Pair]);

    impl Multiply for Rounding<'_> {
        type Element = Pair;

        #[inline(always)]
        fn with<S: Simd, U: Unit<S, Element = Pair>>(self, _: S, unit: U) {
            let (numbers, places) = (self.0.as_chunks::<LINE>().0, self.1.as_chunks_mut::<LINE>().0);
            for (numbers, places) in numbers.as_chunks::<2>().0.iter().zip(places.as_chunks_mut::<2>().0) {
                *places = [unit.adjacent(numbers), unit.both(numbers)];
            }
        }
    }

    #[test]
    fn instructions_round_as_their_twin_does() {
        let mut stream = Stream(9);
        let numbers: Vec<f32> = (0..1 << 16).map(|_| f32::from_bits(stream.number(0..256))).collect();
        let rounded = |instruction| {
            let mut pairs = vec![0; numbers.len()];
            Pair::run(Rounding(&numbers, &mut pairs), instruction);
            pairs
        };
        let twin = rounded(None);
        assert_eq!(twin[5], pair(numbers[10], numbers[11]));
        assert_eq!(twin[LINE + 5], pair(numbers[5], numbers[LINE + 5]));
        for instruction in Instruction::all() {
            assert!(rounded(Some(instruction)) == twin, "{instruction}");
        }
    }

    struct Stream(u64);

    impl Stream {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        /// Returns the bits of a float32 with an exponent in this range.
        fn number(&mut self, exponents: Range<u64>) -> u32 {
            let exponent = exponents.start + (self.next() >> 40) % (exponents.end - exponents.start);
            self.next() as u32 & 0x807f_ffff | (exponent as u32) << 23
        }
    }

    /// Exponents of elements and of sums: common values, around the smallest normal numbers,
    /// subnormal inputs, all exponents, around the largest.
    const CLASSES: [(Range<u64>, Range<u64>); 5] =
        [(115..135, 110..140), (50..75, 0..12), (0..3, 0..3), (0..256, 0..256), (185..195, 245..255)];

    fn elements(class: usize, count: usize) -> (Vec<Pair>, Vec<Pair>, Vec<f32>) {
        let mut stream = Stream(88_172_645_463_325_252 + class as u64);
        let (of, sums) = CLASSES[class].clone();
        let elements = |stream: &mut Stream| -> Vec<Pair> {
            let mut one = || stream.number(of.clone());
            (0..count).map(|_| one() >> 16 | one() & UPPER).collect()
        };
        let (a, b) = (elements(&mut stream), elements(&mut stream));
        (a, b, (0..count).map(|_| f32::from_bits(stream.number(sums.clone()))).collect())
    }

    fn same(ours: f32, twin: f32) -> bool {
        // The bits of a NaN depend on the processor.
        ours.to_bits() == twin.to_bits() || ours.is_nan() && twin.is_nan()
    }

    #[test]
    fn the_instruction_adds_what_its_twin_does() {
        let Some(instruction) = Avx512Bf16::here().map(Instruction::Avx512Bf16) else {
            return crate::skip::skip("avx512-bf16", "this processor does not have it");
        };
        for class in 0..CLASSES.len() {
            let (a, b, from) = elements(class, 1 << 16);
            let mut sums = from.clone();
            Pair::run(Each { a: &a, b: &b, sums: &mut sums }, Some(instruction));
            for (i, (ours, from)) in sums.iter().zip(from).enumerate() {
                let twin = added(from, a[i], b[i]);
                assert!(same(*ours, twin), "{from:e} {:x} {:x}: {ours:e}, {twin:e}", a[i], b[i]);
            }
        }
    }

    #[test]
    fn matrices_add_what_their_twin_does() {
        const ROWS: usize = 32;
        let Some(instruction) = Amx::here().map(Instruction::Amx) else {
            return crate::skip::skip(
                "amx",
                "this processor does not have it, or the system does not allow it",
            );
        };
        for class in 0..CLASSES.len() {
            for (rows, blocks) in [(1, 1), (7, 2), (16, 1), (17, 3), (31, 1), (32, 2)] {
                let inner = blocks * LINE;
                let (a, _, _) = elements(class, rows * inner);
                let (_, b, from) = elements(class, WIDEST * inner.max(ROWS));
                let mut sums = from[..rows * WIDEST].to_vec();
                let side = Side::Rows(&a[..], inner);
                let panel = (&b[..], WIDEST);
                let tile = Tile { side, taken: rows, inner, panel, used: WIDEST, stride: WIDEST, add: true };
                Pair::run(Whole { tile, sums: &mut sums }, Some(instruction));
                for (i, ours) in sums.iter().enumerate() {
                    let (row, column) = (i / WIDEST, i % WIDEST);
                    let block = |block: usize| {
                        (block * LINE..(block + 1) * LINE)
                            .map(move |k| (row * inner + k, k * WIDEST + column))
                            .map(|(at, there)| (a[at], b[there]))
                    };
                    let twin = from[i] + (0..blocks).fold(0.0, |sum, k| added_block(sum, block(k)));
                    assert!(same(*ours, twin), "{class}, {rows} rows: {row}, {column}: {ours:e}, {twin:e}");
                }
            }
        }
    }

    /// A tile by matrices.
    struct Whole<'a> {
        tile: Tile<'a, Pair>,
        sums: &'a mut [f32],
    }

    impl Multiply for Whole<'_> {
        type Element = Pair;

        #[inline(always)]
        fn with<S: Simd, U: Unit<S, Element = Pair>>(self, _: S, unit: U) {
            unit.matrix(&self.tile, self.sums);
        }
    }

    /// Runs with the vectors of every machine type that this processor supports.
    #[test]
    fn without_the_instruction_the_same_numbers_come_out() {
        #[allow(clippy::type_complexity, reason = "a table, read once")]
        let machines: [(&str, fn(Each<'_>) -> bool); 4] = [
            ("these", |op| {
                Pair::run(op, None);
                true
            }),
            ("one by one", |op| {
                Widening(op).with_simd(pulp::Scalar);
                true
            }),
            #[cfg(target_arch = "x86_64")]
            ("AVX2", |op| {
                pulp::x86::V3::try_new().map(|simd| simd.vectorize(|| Widening(op).with_simd(simd))).is_some()
            }),
            #[cfg(target_arch = "x86_64")]
            ("AVX-512", |op| {
                pulp::x86::V4::try_new().map(|simd| simd.vectorize(|| Widening(op).with_simd(simd))).is_some()
            }),
        ];
        for (name, run) in machines {
            for class in 0..CLASSES.len() {
                let (a, b, from) = elements(class, 1 << 12);
                let mut sums = from.clone();
                if !run(Each { a: &a, b: &b, sums: &mut sums }) {
                    continue;
                }
                for (i, (ours, from)) in sums.iter().zip(from).enumerate() {
                    // Without fused instructions, products out of range are rounded once more.
                    let (twin, widened) = (added(from, a[i], b[i]), added_widened(from, a[i], b[i]));
                    let right = same(*ours, if class == 0 { twin } else { widened });
                    assert!(
                        right || name == "one by one" && class > 0,
                        "{name}: {from:e}: {ours:e}, {twin:e}"
                    );
                }
            }
        }
    }

    #[test]
    fn rounding_is_to_the_nearest_and_keeps_what_is_no_number() {
        let mut stream = Stream(7);
        let numbers: Vec<f32> = (0..1 << 16).map(|_| f32::from_bits(stream.number(1..255))).collect();
        let count = numbers.len();
        let tensor = Tensor::from_slice(&numbers, count, &Device::Cpu).expect("a tensor");
        let there = tensor.to_dtype(DType::BF16).and_then(|t| t.to_dtype(DType::F32)?.to_vec1::<f32>());
        for (x, expected) in numbers.iter().zip(there.expect("candle rounds")) {
            assert_eq!(rounded(*x).to_bits(), expected.to_bits(), "{x:e}");
        }
        // Halfway between two: ties to even.
        for (x, expected) in
            [(0x3f80_8000, 0x3f80_0000), (0x3f81_8000, 0x3f82_0000), (0x3f80_8001, 0x3f81_0000)]
        {
            assert_eq!(rounded(f32::from_bits(x)).to_bits(), expected);
        }
        assert_eq!(rounded(f32::MAX), f32::INFINITY);
        assert_eq!(rounded(f32::NEG_INFINITY), f32::NEG_INFINITY);
        for bits in [0x7f80_0001, 0xffff_ffff, 0x7fc0_0000_u32] {
            assert!(rounded(f32::from_bits(bits)).is_nan(), "{bits:x}");
        }
        assert_eq!(rounded(-1e-39).to_bits(), 0x8000_0000, "below the normal numbers is zero");
        assert_eq!(pair(1.0, -2.0), 0xc000_3f80);
    }
}
