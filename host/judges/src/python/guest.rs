//! The WASI environment of a started interpreter: three streams, a frozen clock, and random bytes that are
//! always the same. The other WASI functions that CPython imports report that they are not supported.
//!
//! It does not use wasmtime's WASI because a guest must be able to pause in the middle of a read, while the
//! host runs another guest to answer it.

use wasmtime::{Caller, Engine, Extern, Linker, Memory, ResourceLimiter, Result, Store, Trap, bail};

/// WASI's error numbers for "bad file descriptor" and "function not supported".
const BADF: i32 = 8;
const NOSYS: i32 = 52;
/// The clock's time: the first second of 2000, in nanoseconds.
const NOW: u64 = 946_684_800_000_000_000;
/// The most bytes kept of one output.
const KEPT: usize = 1 << 20;

/// The error of a program that ends the process, with its exit code.
#[derive(Debug)]
pub struct Exited(pub i32);

impl std::fmt::Display for Exited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it ended with exit code {}", self.0)
    }
}

impl std::error::Error for Exited {}

/// A function that answers requests.
pub type Answer = Box<dyn FnMut(&[u8]) -> Vec<u8> + Send>;

/// The data of a guest's store.
pub struct Guest {
    /// The standard input, and how much of it has been read.
    pub input: Vec<u8>,
    read: usize,
    /// The first part of the standard output.
    pub output: Vec<u8>,
    /// The first part of the standard error.
    pub errors: Vec<u8>,
    /// If set, each line of standard output is a request, and the result becomes the standard input.
    pub answer: Option<Answer>,
    limit: usize,
    random: u64,
}

impl Guest {
    /// Returns a guest with `limit` bytes of memory.
    pub fn new(limit: usize) -> Self {
        Self {
            input: Vec::new(),
            read: 0,
            output: Vec::new(),
            errors: Vec::new(),
            answer: None,
            limit,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Sets the standard input.
    pub fn give(&mut self, input: Vec<u8>) {
        (self.input, self.read) = (input, 0);
    }

    /// Returns how many more bytes of an output are kept. Requests are always kept whole.
    fn room(&self, error: bool) -> usize {
        if self.answer.is_some() && !error {
            return usize::MAX;
        }
        KEPT.saturating_sub(if error { self.errors.len() } else { self.output.len() })
    }

    fn write(&mut self, error: bool, bytes: &[u8]) {
        let kept = if error { &mut self.errors } else { &mut self.output };
        kept.extend_from_slice(bytes);
        if !error
            && let Some(answer) = &mut self.answer
            && self.output.ends_with(b"\n")
        {
            let request = std::mem::take(&mut self.output);
            let reply = answer(&request);
            self.give(reply);
        }
    }

    fn byte(&mut self) -> u8 {
        // SplitMix64. CPython seeds its own generator with these bytes.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) as u8
    }
}

impl ResourceLimiter for Guest {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        Ok(desired <= self.limit)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        Ok(desired <= 1 << 20)
    }
}

/// The environment of every interpreter. Hashes of strings are the same in each.
const ENVIRONMENT: &[&str] = &["PYTHONHASHSEED=0", "PYTHONDONTWRITEBYTECODE=1"];
/// The arguments of the start. The program is never run: see [`crate::python::build`].
const ARGUMENTS: &[&str] = &["python", "-I", "-c", "pass"];

/// Returns a linker with the guest's WASI. The module's other imports return "not supported".
pub fn linker(engine: &Engine, module: &wasmtime::Module) -> Result<Linker<Guest>> {
    let mut linker: Linker<Guest> = Linker::new(engine);
    let wasi = "wasi_snapshot_preview1";
    for (name, texts) in [("args", ARGUMENTS), ("environ", ENVIRONMENT)] {
        linker.func_wrap(wasi, &format!("{name}_sizes_get"), move |c: Caller<'_, Guest>, n, to| {
            sizes(c, texts, n, to)
        })?;
        linker.func_wrap(wasi, &format!("{name}_get"), move |c: Caller<'_, Guest>, list, to| {
            put_all(c, texts, list, to)
        })?;
    }
    linker.func_wrap(wasi, "clock_res_get", |mut c: Caller<'_, Guest>, _: i32, to: i32| {
        put(&mut c, to, &1_000_u64.to_le_bytes())
    })?;
    linker.func_wrap(wasi, "clock_time_get", |mut c: Caller<'_, Guest>, _: i32, _: i64, to: i32| {
        put(&mut c, to, &NOW.to_le_bytes())
    })?;
    linker.func_wrap(wasi, "random_get", random_get)?;
    linker.func_wrap(wasi, "sched_yield", || 0)?;
    linker.func_wrap(wasi, "fd_close", |_: i32| 0)?;
    linker.func_wrap(wasi, "fd_prestat_get", |_: i32, _: i32| BADF)?;
    linker.func_wrap(wasi, "fd_seek", |_: i32, _: i64, _: i32, _: i32| BADF)?;
    // Each stream is a readable and writable character device without flags.
    let (mut flags, mut file) = ([0; 24], [0; 64]);
    (flags[0], file[16]) = (2, 2);
    flags[8..16].fill(0xff);
    linker.func_wrap(wasi, "fd_fdstat_get", move |c: Caller<'_, Guest>, fd, to| about(c, fd, to, &flags))?;
    linker.func_wrap(wasi, "fd_filestat_get", move |c: Caller<'_, Guest>, fd, to| about(c, fd, to, &file))?;
    linker.func_wrap(wasi, "fd_write", fd_write)?;
    linker.func_wrap(wasi, "fd_read", fd_read)?;
    linker.func_wrap(wasi, "proc_exit", |code: i32| -> Result<()> { Err(Exited(code).into()) })?;
    for import in module.imports() {
        let Some(kind) = import.ty().func().cloned() else { bail!("it imports `{}`", import.name()) };
        if linker.get(&mut Store::new(engine, Guest::new(0)), import.module(), import.name()).is_err() {
            linker.func_new(import.module(), import.name(), kind, |_, _, results| {
                results.fill(wasmtime::Val::I32(NOSYS));
                Ok(())
            })?;
        }
    }
    Ok(linker)
}

/// Writes the status of a stream.
fn about(mut caller: Caller<'_, Guest>, fd: i32, to: i32, stat: &[u8]) -> Result<i32> {
    if (0..3).contains(&fd) { put(&mut caller, to, stat) } else { Ok(BADF) }
}

fn random_get(mut caller: Caller<'_, Guest>, to: i32, length: i32) -> Result<i32> {
    charge(&mut caller, 8 * u64::from(length as u32))?;
    let mut at = to as u32;
    let mut left = length as u32 as usize;
    while left > 0 {
        let some: Vec<u8> = (0..left.min(1 << 16)).map(|_| caller.data_mut().byte()).collect();
        put(&mut caller, at as i32, &some)?;
        (at, left) = (at.wrapping_add(some.len() as u32), left - some.len());
    }
    Ok(0)
}

fn fd_write(mut caller: Caller<'_, Guest>, fd: i32, list: i32, n: i32, to: i32) -> Result<i32> {
    if !(1..3).contains(&fd) {
        return Ok(BADF);
    }
    let parts = vectors(&mut caller, list, n)?;
    let all: usize = parts.iter().map(|(_, length)| length).sum();
    charge(&mut caller, all as u64)?;
    // Excess bytes are dropped but reported as written, so that the guest continues.
    let mut room = caller.data().room(fd == 2);
    let mut bytes = Vec::new();
    for (at, length) in parts {
        let memory = memory(&mut caller)?;
        let part = memory.data(&caller).get(at..at.saturating_add(length)).ok_or(Trap::MemoryOutOfBounds)?;
        let some = &part[..length.min(room)];
        bytes.extend_from_slice(some);
        room -= some.len();
    }
    caller.data_mut().write(fd == 2, &bytes);
    put(&mut caller, to, &(all as u32).to_le_bytes())
}

fn fd_read(mut caller: Caller<'_, Guest>, fd: i32, list: i32, n: i32, to: i32) -> Result<i32> {
    if fd != 0 {
        return Ok(BADF);
    }
    let mut all = 0_u32;
    for (at, length) in vectors(&mut caller, list, n)? {
        let guest = caller.data_mut();
        let part = guest.input[guest.read..].iter().take(length).copied().collect::<Vec<u8>>();
        guest.read += part.len();
        all += part.len() as u32;
        charge(&mut caller, part.len() as u64)?;
        put(&mut caller, at as i32, &part)?;
    }
    put(&mut caller, to, &all.to_le_bytes())
}

fn memory(caller: &mut Caller<'_, Guest>) -> Result<Memory> {
    match caller.get_export("memory") {
        Some(Extern::Memory(memory)) => Ok(memory),
        _ => bail!("it has no memory"),
    }
}

/// Charges fuel for the host's work on `bytes` bytes, before it is done, as if the guest did it.
fn charge(caller: &mut Caller<'_, Guest>, bytes: u64) -> Result<()> {
    let left = caller.get_fuel()?.checked_sub(bytes).ok_or(Trap::OutOfFuel)?;
    caller.set_fuel(left)
}

fn put(caller: &mut Caller<'_, Guest>, at: i32, bytes: &[u8]) -> Result<i32> {
    memory(caller)?.write(caller, at as u32 as usize, bytes).map_err(|_| Trap::MemoryOutOfBounds)?;
    Ok(0)
}

/// Returns addresses and lengths of the parts of a read or a write.
fn vectors(caller: &mut Caller<'_, Guest>, list: i32, n: i32) -> Result<Vec<(usize, usize)>> {
    let memory = memory(caller)?;
    let mut parts = Vec::new();
    for i in 0..(n as u32 as usize).min(1024) {
        let mut pair = [0; 8];
        let at = list as u32 as usize + 8 * i;
        memory.read(&mut *caller, at, &mut pair).map_err(|_| Trap::MemoryOutOfBounds)?;
        let [a, b, c, d, e, f, g, h] = pair;
        parts.push((u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes([e, f, g, h]) as usize));
    }
    Ok(parts)
}

fn sizes(mut caller: Caller<'_, Guest>, all: &[&str], n: i32, bytes: i32) -> Result<i32> {
    let length: usize = all.iter().map(|text| text.len() + 1).sum();
    put(&mut caller, n, &(all.len() as u32).to_le_bytes())?;
    put(&mut caller, bytes, &(length as u32).to_le_bytes())
}

fn put_all(mut caller: Caller<'_, Guest>, all: &[&str], list: i32, mut text: i32) -> Result<i32> {
    for (i, one) in all.iter().enumerate() {
        put(&mut caller, list + 4 * i as i32, &text.to_le_bytes())?;
        put(&mut caller, text, one.as_bytes())?;
        put(&mut caller, text + one.len() as i32, &[0])?;
        text += one.len() as i32 + 1;
    }
    Ok(0)
}
