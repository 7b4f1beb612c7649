//! A tile of a matrix product: some rows of the left side by a panel of the right one, some columns side by side,
//! an inner index after the other, so that a tile's sums stay in registers and the panel is read by the widest
//! vectors there are.
//!
//! Each number is a chain of fused multiplies and adds from zero, in the order of the inner indices: the same to
//! the last bit whichever other rows and columns there are. What is multiplied are [`Element`]s: numbers, or pairs of
//! neighbours in bf16.

use pulp::Simd;

use super::element::Element;
use super::unit::{LINE, Multiply, Single, Unit};

/// The most rows of a tile.
pub const ROWS: usize = 6;
/// The most columns that a tile has.
pub const WIDEST: usize = 64;

/// The left side of a tile.
#[derive(Clone, Copy)]
pub enum Side<'a, E = f32> {
    /// Rows as they lie, so far apart.
    Rows(&'a [E], usize),
    /// An inner index after the other, so far apart.
    Turned(&'a [E], usize),
}

/// A few rows by a panel.
#[derive(Clone, Copy)]
pub struct Tile<'a, E = f32> {
    /// The rows.
    pub side: Side<'a, E>,
    /// How many they are, at most [`ROWS`].
    pub taken: usize,
    /// Inner indices.
    pub inner: usize,
    /// The panel, `[inner, width]`, and its width. Whole vectors are read, so that it goes on behind the last
    /// column that counts, up to a line.
    pub panel: (&'a [E], usize),
    /// Columns that count: no more than [`columns`].
    pub used: usize,
    /// From a row of the result to the next.
    pub stride: usize,
    /// Whether sums are added to what is there.
    pub add: bool,
}

impl Tile<'_> {
    /// Multiplies numbers.
    #[inline(always)]
    pub fn run<S: Simd>(self, simd: S, y: &mut [f32]) {
        self.run_by(simd, Single, y);
    }

    /// The same for a panel with more columns than a tile has.
    #[inline(always)]
    pub fn wide<S: Simd>(self, simd: S, y: &mut [f32]) {
        let (panel, width) = self.panel;
        for column in (0..self.used).step_by(columns::<S>()) {
            let used = columns::<S>().min(self.used - column);
            Tile { panel: (&panel[column..], width), used, ..self }.run(simd, &mut y[column..]);
        }
    }
}

impl<E: Element> Tile<'_, E> {
    /// Multiplies elements of any kind. It is a call of its own: made anew in each place that wants one, its loops for
    /// every number of rows and columns would be most of this crate.
    #[inline(always)]
    pub fn run_by<S: Simd, U: Unit<S, Element = E>>(self, simd: S, unit: U, y: &mut [f32]) {
        unit.call(simd, Run { tile: &self, y });
    }

    #[inline(always)]
    fn columns<S: Simd, U: Unit<S, Element = E>>(self, simd: S, unit: U, y: &mut [f32]) {
        let vectors = self.used.div_ceil(S::F32_LANES);
        if columns::<S>() == 4 * S::F32_LANES {
            match vectors {
                1 => self.rows::<S, U, 1>(simd, unit, y),
                2 => self.rows::<S, U, 2>(simd, unit, y),
                3 => self.rows::<S, U, 3>(simd, unit, y),
                _ => self.rows::<S, U, 4>(simd, unit, y),
            }
        } else if vectors == 1 {
            self.rows::<S, U, 1>(simd, unit, y);
        } else {
            self.rows::<S, U, 2>(simd, unit, y);
        }
    }

    #[inline(always)]
    fn rows<S: Simd, U: Unit<S, Element = E>, const V: usize>(self, simd: S, unit: U, y: &mut [f32]) {
        match self.taken {
            6 => self.sums::<S, U, V, 6>(simd, unit, y),
            5 => self.sums::<S, U, V, 5>(simd, unit, y),
            4 => self.sums::<S, U, V, 4>(simd, unit, y),
            3 => self.sums::<S, U, V, 3>(simd, unit, y),
            2 => self.sums::<S, U, V, 2>(simd, unit, y),
            _ => self.sums::<S, U, V, 1>(simd, unit, y),
        }
    }

    #[inline(always)]
    fn sums<S: Simd, U: Unit<S, Element = E>, const V: usize, const R: usize>(
        self,
        simd: S,
        unit: U,
        y: &mut [f32],
    ) {
        let (panel, width) = self.panel;
        let lines = panel.chunks(width).take(self.inner).map(|line| {
            let line = U::vectors(&line[..V * S::F32_LANES]);
            std::array::from_fn::<U::Vector, V, _>(|v| line[v])
        });
        // Sums of each side's own, or they would be written to memory at every step.
        let sums = match self.side {
            Side::Rows(a, stride) => {
                let rows: [&[E]; R] = std::array::from_fn(|r| &a[r * stride..][..self.inner]);
                let mut sums = [[simd.splat_f32s(0.0); V]; R];
                for (i, line) in lines.enumerate() {
                    for (sums, row) in sums.iter_mut().zip(&rows) {
                        let a = unit.splat(simd, row[i]);
                        for (sum, b) in sums.iter_mut().zip(line) {
                            *sum = unit.multiply_add(simd, a, b, *sum);
                        }
                    }
                }
                sums
            }
            Side::Turned(a, stride) => {
                let mut sums = [[simd.splat_f32s(0.0); V]; R];
                for (line, a) in lines.zip(a.chunks(stride)) {
                    let a: [E; R] = std::array::from_fn(|r| a[..R][r]);
                    for (sums, a) in sums.iter_mut().zip(a) {
                        let a = unit.splat(simd, a);
                        for (sum, b) in sums.iter_mut().zip(line) {
                            *sum = unit.multiply_add(simd, a, b, *sum);
                        }
                    }
                }
                sums
            }
        };
        for (r, sums) in sums.iter().enumerate() {
            let y = &mut y[r * self.stride..][..self.used];
            if self.used == V * S::F32_LANES {
                let (places, _) = S::as_mut_simd_f32s(y);
                for (place, sum) in places.iter_mut().zip(sums) {
                    *place = if self.add { simd.add_f32s(*place, *sum) } else { *sum };
                }
            } else {
                let mut whole = [0.0; WIDEST];
                let (places, _) = S::as_mut_simd_f32s(&mut whole);
                places.iter_mut().zip(sums).for_each(|(place, sum)| *place = *sum);
                if self.add {
                    y.iter_mut().zip(&whole).for_each(|(y, sum)| *y += sum);
                } else {
                    y.copy_from_slice(&whole[..self.used]);
                }
            }
        }
    }
}

/// A tile on its way.
struct Run<'r, 'a, E> {
    tile: &'r Tile<'a, E>,
    y: &'r mut [f32],
}

impl<E: Element> Multiply for Run<'_, '_, E> {
    type Element = E;

    #[inline(always)]
    fn with<S: Simd, U: Unit<S, Element = E>>(self, simd: S, unit: U) {
        self.tile.columns(simd, unit, self.y);
    }
}

/// The most columns of a tile on this machine: with [`ROWS`] rows 24 sums of 32 registers, or 12 of 16.
#[inline(always)]
pub fn columns<S: Simd>() -> usize {
    S::F32_LANES * if S::REGISTER_COUNT >= 32 { 4 } else { 2 }
}

/// The first element that begins a line of the cache.
pub fn start<E>(elements: &[E]) -> usize {
    elements.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE)
}
