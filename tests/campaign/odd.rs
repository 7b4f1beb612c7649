//! Odd file systems and clocks, laid over a program by `LD_PRELOAD`: what this library answers to the program's calls, the system
//! would answer there. `ODD` says which. Compiled by a campaign, with `rustc` alone.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_int, c_long, c_uint};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn __errno_location() -> *mut c_int;
    fn getenv(name: *const c_char) -> *const c_char;
}

#[cfg(target_arch = "x86_64")]
mod number {
    pub const OPENAT: i64 = 257;
    pub const MKDIRAT: i64 = 258;
    pub const UNLINKAT: i64 = 263;
    pub const RENAMEAT2: i64 = 316;
    pub const LINKAT: i64 = 265;
    pub const FLOCK: i64 = 73;
    pub const FACCESSAT: i64 = 269;
    pub const CLOCK_GETTIME: i64 = 228;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub const OPENAT: i64 = 56;
    pub const MKDIRAT: i64 = 34;
    pub const UNLINKAT: i64 = 35;
    pub const RENAMEAT2: i64 = 276;
    pub const LINKAT: i64 = 37;
    pub const FLOCK: i64 = 32;
    pub const FACCESSAT: i64 = 48;
    pub const CLOCK_GETTIME: i64 = 113;
}

const HERE: c_int = -100;
const EPERM: c_int = 1;
const EEXIST: c_int = 17;
const EROFS: c_int = 30;
const ENOLCK: c_int = 37;
/// `O_WRONLY | O_RDWR | O_CREAT`
const WRITES: c_int = 0o103;

/// What is odd.
#[derive(Clone, Copy, PartialEq)]
enum Odd {
    Nothing,
    /// Nothing can be written.
    ReadOnly,
    /// Nothing can be written in the folder at hand, and below it.
    ReadOnlyHere,
    /// Nothing can be written elsewhere.
    ReadOnlyElsewhere,
    /// Nothing can be renamed over what is there.
    NoRenameOver,
    NoLinks,
    NoLocks,
    /// The time of day jumps to and fro, by these chances.
    Clock(u64),
}

fn odd() -> Odd {
    static ODD: OnceLock<Odd> = OnceLock::new();
    *ODD.get_or_init(|| {
        let word = unsafe { getenv(c"ODD".as_ptr()) };
        if word.is_null() {
            return Odd::Nothing;
        }
        match unsafe { CStr::from_ptr(word) }.to_str().unwrap_or_default() {
            "read-only" => Odd::ReadOnly,
            "read-only-here" => Odd::ReadOnlyHere,
            "read-only-elsewhere" => Odd::ReadOnlyElsewhere,
            "no-rename-over" => Odd::NoRenameOver,
            "no-links" => Odd::NoLinks,
            "no-locks" => Odd::NoLocks,
            clock => Odd::Clock(clock.strip_prefix("clock-").and_then(|n| n.parse().ok()).unwrap_or(1)),
        }
    })
}

fn fails(with: c_int) -> c_int {
    unsafe { *__errno_location() = with };
    -1
}

/// Whether nothing can be written there.
unsafe fn is_read_only(path: *const c_char) -> bool {
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let elsewhere = path.starts_with(b"/");
    if path.starts_with(b"/dev/") || path.starts_with(b"/proc/") {
        return false;
    }
    match odd() {
        Odd::ReadOnly => true,
        Odd::ReadOnlyHere => !elsewhere,
        Odd::ReadOnlyElsewhere => elsewhere,
        _ => false,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    unsafe { openat64(HERE, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    unsafe { openat64(HERE, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    unsafe { openat64(at, path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    if flags & WRITES != 0 && unsafe { is_read_only(path) } {
        return fails(EROFS);
    }
    unsafe { syscall(number::OPENAT, at, path, flags, mode) as c_int }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: c_uint) -> c_int {
    // What is there is said to be there, wherever it is.
    let is_there = unsafe { syscall(number::FACCESSAT, HERE, path, 0) } == 0;
    if !is_there && unsafe { is_read_only(path) } {
        return fails(EROFS);
    }
    unsafe { syscall(number::MKDIRAT, HERE, path, mode) as c_int }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    if unsafe { is_read_only(path) } {
        return fails(EROFS);
    }
    unsafe { syscall(number::UNLINKAT, HERE, path, 0) as c_int }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    if unsafe { is_read_only(to) } {
        return fails(EROFS);
    }
    if odd() == Odd::NoRenameOver && unsafe { syscall(number::FACCESSAT, HERE, to, 0) } == 0 {
        return fails(EEXIST);
    }
    unsafe { syscall(number::RENAMEAT2, HERE, from, HERE, to, 0) as c_int }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(a: c_int, from: *const c_char, b: c_int, to: *const c_char, flags: c_int) -> c_int {
    if unsafe { is_read_only(to) } {
        return fails(EROFS);
    }
    if odd() == Odd::NoLinks {
        return fails(EPERM);
    }
    unsafe { syscall(number::LINKAT, a, from, b, to, flags) as c_int }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    unsafe { linkat(HERE, from, HERE, to, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flock(file: c_int, how: c_int) -> c_int {
    if odd() == Odd::NoLocks {
        return fails(ENOLCK);
    }
    unsafe { syscall(number::FLOCK, file, how) as c_int }
}

#[repr(C)]
pub struct Time {
    seconds: i64,
    nanoseconds: i64,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Time) -> c_int {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let said = unsafe { syscall(number::CLOCK_GETTIME, clock, time) as c_int };
    if let Odd::Clock(seed) = odd()
        && said == 0
        && clock == 0
    {
        // Days, mostly; now and then before 1970, or past what 32 bits can say.
        let mut z = seed.wrapping_add(ASKED.fetch_add(1, Ordering::Relaxed)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^= z >> 31;
        let by = match z % 8 {
            0 => -4_000_000_000,
            1 => 9_000_000_000,
            2 => 0,
            _ => (z >> 8) as i64 % 1_000_000 - 500_000,
        };
        unsafe { (*time).seconds += by };
    }
    said
}
