//! The registers of a thread: how they are laid out, and products in them.

use std::arch::asm;
use std::cell::Cell;

use super::super::unit::{LINE, MATRIX_ROWS, Pair, WIDEST};

/// Rows of a register. A row has a cache line.
const HALF: usize = MATRIX_ROWS / 2;
/// Bytes between two rows of a panel.
const WIDE: usize = WIDEST * size_of::<Pair>();

/// How the registers are laid out, as LDTILECFG reads it.
#[repr(C, align(64))]
struct Layout {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    /// Bytes of a row.
    bytes: [u16; 16],
    rows: [u8; 16],
}

impl Layout {
    /// Two registers of rows, with these numbers of them, four of sums, and two of a panel.
    const fn two([above, below]: [u8; 2]) -> Self {
        let part = HALF as u8;
        Self::of([above, above, below, below, above, below, part, part])
    }

    /// A register of rows, with this number of them, four of sums, and three of a panel.
    const fn one(rows: u8) -> Self {
        let part = HALF as u8;
        Self::of([rows, rows, rows, rows, rows, part, part, part])
    }

    const fn of([a, b, c, d, e, f, g, h]: [u8; 8]) -> Self {
        let line = (LINE * size_of::<Pair>()) as u16;
        let bytes = [line, line, line, line, line, line, line, line, 0, 0, 0, 0, 0, 0, 0, 0];
        let rows = [a, b, c, d, e, f, g, h, 0, 0, 0, 0, 0, 0, 0, 0];
        Self { palette: 1, start_row: 0, reserved: [0; 14], bytes, rows }
    }

    #[inline(always)]
    fn load(&self) {
        // SAFETY: `self` has the 64 bytes that are read, in a layout that every processor with AMX takes. The registers
        // are in no one else's use.
        unsafe {
            asm!("ldtilecfg [{layout}]", layout = in(reg) self, options(nostack, preserves_flags, readonly));
        }
    }
}

thread_local! {
    /// Numbers of rows for which this thread's registers are laid out: of two registers, or of one and none.
    static LAID: Cell<[u8; 2]> = const { Cell::new([0; 2]) };
}

/// Lays out registers, unless they already are: few rows are multiplied with one panel after the other.
#[inline(always)]
fn lay_out(rows: [u8; 2]) {
    if LAID.get() != rows {
        if rows[1] == 0 { Layout::one(rows[0]) } else { Layout::two(rows) }.load();
        LAID.set(rows);
    }
}

/// The registers of this thread, while they are laid out.
pub struct Registers;

impl Registers {
    pub fn new() -> Self {
        LAID.set([0; 2]);
        Self
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        LAID.set([0; 2]);
        // SAFETY: nothing reads the registers afterwards.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) }
    }
}

/// Rows by a panel.
pub struct Product<'a> {
    pub rows: &'a [Pair],
    /// Distance between rows.
    pub apart: usize,
    /// Number of rows, at most [`MATRIX_ROWS`].
    pub taken: usize,
    /// Number of lines of a row, at least 1.
    pub blocks: usize,
    pub panel: &'a [Pair],
    /// Halves of the panel that are used.
    pub halves: usize,
}

impl Product<'_> {
    /// Writes lines of sums, `stride` apart: `taken` lines of the panel's halves that are used, or of both.
    ///
    /// # Safety
    ///
    /// There are [`Registers`] of this thread. Rows and panel have `blocks` lines, and `y` room for the sums.
    #[inline(always)]
    pub unsafe fn write(&self, y: *mut f32, stride: usize) {
        let (rows, panel) = (self.rows.as_ptr(), self.panel.as_ptr());
        let (apart, below) = (self.apart * size_of::<Pair>(), self.taken.saturating_sub(HALF));
        let stride = stride * size_of::<f32>();
        lay_out([self.taken.min(HALF) as u8, below as u8]);
        if below == 0 {
            // SAFETY: as the caller promises.
            return unsafe { one(rows, apart, panel, self.blocks, y, stride) };
        }
        for half in 0..self.halves {
            let first = half * WIDEST / 2;
            let ahead = if half == 0 { LINE * WIDE } else { 0 };
            // SAFETY: as the caller promises.
            unsafe { two(rows, apart, (panel.add(first), ahead), self.blocks, y.add(first), stride) };
        }
    }
}

macro_rules! zero_sums {
    () => {
        "tilezero tmm0; tilezero tmm1; tilezero tmm2; tilezero tmm3"
    };
}

/// Asks for `ahead` bytes of the panel two blocks ahead. With few rows a panel comes from memory, once, and loads of registers alone
/// leave too few reads in flight. What is asked for past the end of the panels is not read.
macro_rules! ask_ahead {
    () => {
        "lea {next}, [{panel} + 8192]
         lea {end}, [{next} + {ahead}]
         3:
         cmp {next}, {end}
         jae 4f
         prefetcht0 [{next}]
         prefetcht0 [{next} + 64]
         prefetcht0 [{next} + 128]
         prefetcht0 [{next} + 192]
         add {next}, 256
         jmp 3b
         4:"
    };
}

/// Multiplies a register of rows with a whole panel. Distances between lines are in bytes.
///
/// # Safety
///
/// As of [`Product::write`].
#[inline(always)]
unsafe fn one(
    rows: *const Pair,
    apart: usize,
    panel: *const Pair,
    blocks: usize,
    y: *mut f32,
    stride: usize,
) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            zero_sums!(),
            "2:",
            ask_ahead!(),
            "tileloadd tmm4, [{rows} + {apart}]",
            "tileloadd tmm5, [{panel} + {wide}]",
            "tdpbf16ps tmm0, tmm4, tmm5",
            "tileloadd tmm6, [{panel} + {wide} + 64]",
            "tdpbf16ps tmm1, tmm4, tmm6",
            "tileloadd tmm7, [{panel} + {wide} + 128]",
            "tdpbf16ps tmm2, tmm4, tmm7",
            "tileloadd tmm5, [{panel} + {wide} + 192]",
            "tdpbf16ps tmm3, tmm4, tmm5",
            "add {rows}, 64",
            "add {panel}, 4096",
            "dec {blocks}",
            "jnz 2b",
            "tilestored [{y} + {stride}], tmm0",
            "tilestored [{y} + {stride} + 64], tmm1",
            "tilestored [{y} + {stride} + 128], tmm2",
            "tilestored [{y} + {stride} + 192], tmm3",
            next = out(reg) _,
            end = out(reg) _,
            ahead = in(reg) LINE * WIDE,
            rows = inout(reg) rows => _,
            apart = in(reg) apart,
            panel = inout(reg) panel => _,
            wide = in(reg) WIDE,
            blocks = inout(reg) blocks => _,
            y = in(reg) y,
            stride = in(reg) stride,
            options(nostack),
        );
    }
}

/// Multiplies two registers of rows with half of a panel. Distances between lines are in bytes; `ahead` is a block of the whole
/// panel, or 0.
///
/// # Safety
///
/// As of [`Product::write`].
#[inline(always)]
unsafe fn two(
    rows: *const Pair,
    apart: usize,
    (panel, ahead): (*const Pair, usize),
    blocks: usize,
    y: *mut f32,
    stride: usize,
) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            zero_sums!(),
            "2:",
            ask_ahead!(),
            "tileloadd tmm4, [{rows} + {apart}]",
            "tileloadd tmm6, [{panel} + {wide}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{panel} + {wide} + 64]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{below} + {apart}]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {rows}, 64",
            "add {below}, 64",
            "add {panel}, 4096",
            "dec {blocks}",
            "jnz 2b",
            "tilestored [{y} + {stride}], tmm0",
            "tilestored [{y} + {stride} + 64], tmm1",
            "tilestored [{after} + {stride}], tmm2",
            "tilestored [{after} + {stride} + 64], tmm3",
            next = out(reg) _,
            end = out(reg) _,
            ahead = in(reg) ahead,
            rows = inout(reg) rows => _,
            below = inout(reg) rows.byte_add(HALF * apart) => _,
            apart = in(reg) apart,
            panel = inout(reg) panel => _,
            wide = in(reg) WIDE,
            blocks = inout(reg) blocks => _,
            y = in(reg) y,
            after = in(reg) y.byte_add(HALF * stride),
            stride = in(reg) stride,
            options(nostack),
        );
    }
}
