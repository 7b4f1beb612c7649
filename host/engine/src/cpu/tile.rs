//! A tile of a matrix product: some rows of the left side by a panel of the right side. A panel
//! has some adjacent columns, one inner index after the other. A tile's sums stay in registers,
//! and the panel is read by the widest vectors.
//!
//! Each result is a chain of fused multiply-adds from zero, in the order of the inner indices. Its bits
//! do not depend on other rows and columns. The operands are [`Element`]s: numbers, or pairs in bf16.

use pulp::Simd;

use super::element::Element;
use super::unit::{LINE, Multiply, Side, Single, Tile, Unit, WIDEST};

impl Tile<'_> {
    /// Multiplies numbers.
    #[inline(always)]
    pub fn run<S: Simd>(self, simd: S, y: &mut [f32]) {
        self.run_by(simd, Single, y);
    }

    /// Multiplies with a panel that has more columns than a tile.
    #[inline(always)]
    pub fn wide<S: Simd>(self, simd: S, y: &mut [f32]) {
        self.wide_by(simd, Single, y);
    }
}

impl<E: Element> Tile<'_, E> {
    /// Multiplies elements of any kind with a panel that has more columns than a tile. Matrices take a whole one.
    #[inline(always)]
    pub fn wide_by<S: Simd, U: Unit<S, Element = E>>(self, simd: S, unit: U, y: &mut [f32]) {
        if U::MATRICES {
            return unit.matrix(&self, y);
        }
        let (panel, width) = self.panel;
        for column in (0..self.used).step_by(columns::<S>()) {
            let used = columns::<S>().min(self.used - column);
            Tile { panel: (&panel[column..], width), used, ..self }.run_by(simd, unit, &mut y[column..]);
        }
    }

    /// Multiplies elements of any kind. It is a separate call: inlined everywhere, its loops for
    /// every number of rows and columns would be most of this crate.
    #[inline(always)]
    pub fn run_by<S: Simd, U: Unit<S, Element = E>>(self, simd: S, unit: U, y: &mut [f32]) {
        if U::MATRICES {
            unit.matrix(&self, y);
        } else {
            unit.call(simd, Run { tile: &self, y });
        }
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
        // Separate sums for each side; otherwise they would be written to memory at every step.
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

/// A tile to compute.
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

/// Returns the maximum columns of a tile on this machine: with [`ROWS`](super::unit::ROWS) rows 24 sums of 32
/// registers, or 12 of 16.
#[inline(always)]
pub fn columns<S: Simd>() -> usize {
    S::F32_LANES * if S::REGISTER_COUNT >= 32 { 4 } else { 2 }
}

/// Returns the index of the first element at the start of a cache line.
pub fn start<E>(elements: &[E]) -> usize {
    elements.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE)
}
