//! The proof that the instruction may be used, and tiles that it computes.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::mem::MaybeUninit;
use std::sync::LazyLock;

use pulp::x86::V4;
use pulp::{f32x16, u32x16};

use super::super::avx512_bf16::Avx512Bf16;
use super::super::unit::{LINE, MATRIX_ROWS, Multiply, Pair, Side, Tile, Unit, WIDEST};
use super::registers::{Product, Registers};

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

impl Unit<V4> for Amx {
    type Element = Pair;
    type Vector = u32x16;
    const ROWS: usize = MATRIX_ROWS;
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
    fn adjacent(self, numbers: &[[f32; LINE]; 2]) -> [Pair; LINE] {
        self.0.adjacent(numbers)
    }

    #[inline(always)]
    fn both(self, numbers: &[[f32; LINE]; 2]) -> [Pair; LINE] {
        self.0.both(numbers)
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
        assert!((1..=MATRIX_ROWS).contains(&taken) && blocks > 0 && used <= WIDEST && width == WIDEST);
        assert!(rows.len() >= (taken - 1) * apart + blocks * LINE, "rows end before their last block");
        assert!(panel.len() >= blocks * LINE * WIDEST, "a panel ends before its last block");
        let product = Product { rows, apart, taken, blocks, panel, halves: used.div_ceil(WIDEST / 2) };
        if !add && used == WIDEST {
            let y = &mut y[..(taken - 1) * stride + WIDEST];
            // SAFETY: there are registers, since `run` is where a unit is used; the lengths were compared above, and
            // `y` has `taken` lines of sums.
            return unsafe { product.write(y.as_mut_ptr(), stride) };
        }
        let mut sums = MaybeUninit::<[f32; MATRIX_ROWS * WIDEST]>::uninit();
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
