//! The processor's instruction for products of bf16 matrices, TDPBF16PS of AMX. Other modules use it as the [`Unit`] of
//! [`Pair`]s.
//!
//! One instruction adds to sums the products of [`LINE`] pairs: the first numbers of the pairs and the second ones each in a chain of
//! fused multiply-adds from zero, which are then added to each other, and to the sum. All are rounded to nearest, and
//! subnormal numbers are flushed to zero. So its sums have another order than those of
//! [`Avx512Bf16`](super::avx512_bf16::Avx512Bf16), and other last bits.

// Soundness: an instruction that the processor lacks is undefined behavior, and one that the system does not let a process use
// ends it. `Amx` only comes from `here`, which asks both. Its registers belong to a thread: `run` lays them out and releases
// them, and nothing else uses them. Pointers come from slices, whose lengths `matrix` compares with what is read and written.
#![allow(unsafe_code)]

/// Rows of a tile: those of two registers.
pub const ROWS: usize = 32;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use linux::Amx;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod linux {
    use std::arch::asm;
    use std::arch::x86_64::__cpuid_count;
    use std::mem::MaybeUninit;
    use std::sync::LazyLock;

    use pulp::x86::V4;
    use pulp::{f32x16, u32x16};

    use super::super::avx512_bf16::Avx512Bf16;
    use super::super::tile::WIDEST;
    use super::super::unit::{LINE, Multiply, Pair, Side, Tile, Unit};
    use super::ROWS;

    /// Rows of a register. A row has a cache line.
    const HALF: usize = ROWS / 2;
    /// Bytes between two rows of a panel, and of the sums of a tile.
    const WIDE: usize = WIDEST * size_of::<Pair>();

    /// Proof that this process may use the instruction, and of AVX512-BF16, which every such processor has.
    #[derive(Clone, Copy, Debug)]
    pub struct Amx(Avx512Bf16);

    impl Amx {
        /// Returns the proof if this processor has the instruction and the system lets this process use it.
        pub fn here() -> Option<Self> {
            static ALLOWED: LazyLock<bool> = LazyLock::new(|| is_there() && is_allowed());
            Avx512Bf16::here().filter(|_| *ALLOWED).map(Self)
        }

        /// Runs a loop compiled for the instruction.
        pub fn run<O: Multiply<Element = Pair>>(self, op: O) {
            let _registers = Registers::new();
            self.0.run_by(op, self);
        }
    }

    /// Bits 22 and 24 of EDX: AMX-BF16 and AMX-TILE.
    fn is_there() -> bool {
        let bits = 1 << 22 | 1 << 24;
        __cpuid_count(7, 0).edx & bits == bits
    }

    /// Asks Linux for the registers, which it saves for a process only then. It refuses if a thread's signal stack could not take them.
    fn is_allowed() -> bool {
        const ARCH_PRCTL: i64 = 158;
        const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
        const XFEATURE_XTILEDATA: i64 = 18;
        let answer: i64;
        // SAFETY: a call of the system that reads and writes no memory of this process.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") ARCH_PRCTL => answer,
                in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") XFEATURE_XTILEDATA,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack),
            );
        }
        answer == 0
    }

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

    const WHOLE: Layout = Layout::two([HALF as u8; 2]);

    /// The registers of this thread, laid out.
    struct Registers;

    impl Registers {
        fn new() -> Self {
            WHOLE.load();
            Self
        }
    }

    impl Drop for Registers {
        fn drop(&mut self) {
            // SAFETY: nothing reads the registers afterwards.
            unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) }
        }
    }

    impl Unit<V4> for Amx {
        type Element = Pair;
        type Vector = u32x16;
        const ROWS: usize = ROWS;
        const MATRICES: bool = true;

        #[inline(always)]
        fn vectors(elements: &[Pair]) -> &[u32x16] {
            <Avx512Bf16 as Unit<V4>>::vectors(elements)
        }

        #[inline(always)]
        fn splat(self, simd: V4, element: Pair) -> u32x16 {
            self.0.splat(simd, element)
        }

        #[inline(always)]
        fn multiply_add(self, simd: V4, a: u32x16, b: u32x16, sum: f32x16) -> f32x16 {
            self.0.multiply_add(simd, a, b, sum)
        }

        #[inline(always)]
        fn call<O: Multiply<Element = Pair>>(self, simd: V4, op: O) {
            self.0.call(simd, op);
        }

        #[inline(always)]
        fn matrix(self, tile: &Tile<'_, Pair>, y: &mut [f32]) {
            let Tile { taken, inner, panel: (panel, width), used, stride, add, .. } = *tile;
            let Side::Rows(rows, apart) = tile.side else { unreachable!("rows of a matrix are in place") };
            let blocks = inner.div_ceil(LINE);
            assert!((1..=ROWS).contains(&taken) && blocks > 0 && used <= WIDEST && width == WIDEST);
            assert!(rows.len() >= (taken - 1) * apart + blocks * LINE, "rows end before their last block");
            assert!(panel.len() >= blocks * LINE * WIDEST, "a panel ends before its last block");
            let product = Product { rows, apart, taken, blocks, panel, halves: used.div_ceil(WIDEST / 2) };
            if !add && used == WIDEST {
                let y = &mut y[..(taken - 1) * stride + WIDEST];
                // SAFETY: the registers are laid out, since `run` is where a unit is used; the lengths were compared above, and
                // `y` has `taken` lines of sums.
                return unsafe { product.write(y.as_mut_ptr(), stride) };
            }
            let mut sums = MaybeUninit::<[f32; ROWS * WIDEST]>::uninit();
            // SAFETY: as above.
            unsafe { product.write(sums.as_mut_ptr().cast(), WIDEST) };
            for (i, y) in y.chunks_mut(stride).take(taken).enumerate() {
                // SAFETY: the first `used` sums of the first `taken` lines were written.
                let sums =
                    unsafe { std::slice::from_raw_parts(sums.as_ptr().cast::<f32>().add(i * WIDEST), used) };
                if add {
                    y[..used].iter_mut().zip(sums).for_each(|(y, sum)| *y += sum);
                } else {
                    y[..used].copy_from_slice(sums);
                }
            }
        }
    }

    /// Rows by a panel.
    struct Product<'a> {
        rows: &'a [Pair],
        /// Distance between rows.
        apart: usize,
        /// Number of rows, at most [`ROWS`].
        taken: usize,
        /// Number of lines of a row, at least 1.
        blocks: usize,
        panel: &'a [Pair],
        /// Halves of the panel that are used.
        halves: usize,
    }

    impl Product<'_> {
        /// Writes lines of sums, `stride` apart: `taken` lines of the panel's halves that are used, or of both.
        ///
        /// # Safety
        ///
        /// The registers are laid out as [`WHOLE`]. Rows and panel have `blocks` lines, and `y` room for the sums.
        #[inline(always)]
        unsafe fn write(&self, y: *mut f32, stride: usize) {
            let (rows, panel) = (self.rows.as_ptr(), self.panel.as_ptr());
            let (apart, below) = (self.apart * size_of::<Pair>(), self.taken.saturating_sub(HALF));
            let stride = stride * size_of::<f32>();
            if below == 0 {
                let part = self.taken < HALF;
                if part {
                    Layout::one(self.taken as u8).load();
                }
                // SAFETY: the caller's.
                unsafe { one(rows, apart, panel, self.blocks, y, stride) };
                if part {
                    WHOLE.load();
                }
                return;
            }
            let part = below < HALF;
            if part {
                Layout::two([HALF as u8, below as u8]).load();
            }
            for half in 0..self.halves {
                let first = half * WIDEST / 2;
                let ahead = if half == 0 { LINE * WIDE } else { 0 };
                // SAFETY: the caller's.
                unsafe { two(rows, apart, (panel.add(first), ahead), self.blocks, y.add(first), stride) };
            }
            if part {
                WHOLE.load();
            }
        }
    }

    /// A register of rows by a whole panel. Distances between lines are in bytes.
    ///
    /// With few rows a panel comes from memory, once: it is asked for two blocks ahead, since loads of registers alone wait for
    /// each other. What is asked for past the end of the panels is not read.
    #[inline(always)]
    unsafe fn one(
        rows: *const Pair,
        apart: usize,
        panel: *const Pair,
        blocks: usize,
        y: *mut f32,
        stride: usize,
    ) {
        // SAFETY: the caller's.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "2:",
                "lea {ahead}, [{panel} + 8192]",
                "lea {end}, [{panel} + 12288]",
                "3:",
                "prefetcht0 [{ahead}]",
                "prefetcht0 [{ahead} + 64]",
                "prefetcht0 [{ahead} + 128]",
                "prefetcht0 [{ahead} + 192]",
                "add {ahead}, 256",
                "cmp {ahead}, {end}",
                "jb 3b",
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
                ahead = out(reg) _,
                end = out(reg) _,
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

    /// Two registers of rows by half of a panel. `ahead` bytes of it are asked for two blocks ahead: 4096 for both halves, or 0.
    #[inline(always)]
    unsafe fn two(
        rows: *const Pair,
        apart: usize,
        (panel, ahead): (*const Pair, usize),
        blocks: usize,
        y: *mut f32,
        stride: usize,
    ) {
        // SAFETY: the caller's.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "2:",
                "lea {next}, [{panel} + 8192]",
                "lea {end}, [{next} + {ahead}]",
                "3:",
                "cmp {next}, {end}",
                "jae 4f",
                "prefetcht0 [{next}]",
                "prefetcht0 [{next} + 64]",
                "prefetcht0 [{next} + 128]",
                "prefetcht0 [{next} + 192]",
                "add {next}, 256",
                "jmp 3b",
                "4:",
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
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub use elsewhere::Amx;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod elsewhere {
    use super::super::unit::{Multiply, Pair};

    /// Other processors and systems do not have the instruction.
    #[derive(Clone, Copy, Debug)]
    pub enum Amx {}

    impl Amx {
        /// Returns `None`.
        pub fn here() -> Option<Self> {
            None
        }

        /// Never called.
        pub fn run<O: Multiply<Element = Pair>>(self, _: O) {
            match self {}
        }
    }
}
