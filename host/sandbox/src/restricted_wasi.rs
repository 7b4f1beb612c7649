//! Restricted WASI, for guests whose toolchain needs WASI: captured standard output, a frozen clock, seeded
//! randomness, no files, no network, no environment.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{DynPollable, OutputStream, Pollable, StreamError};
use wasmtime_wasi::{
    HostMonotonicClock, HostWallClock, ResourceTable, WasiCtx, WasiCtxView, WasiView, async_trait, random,
};

/// Something that a guest must not depend on, because it has no meaning in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// The time of the clocks, which are frozen.
    Time,
    /// The random bytes, which are the same in each call.
    Random,
    /// The contents of memory, which last for one call.
    Memory,
}

/// Most bytes of standard output kept for one call; the same for the log.
pub(crate) const LOG: usize = 64 << 10;

/// The WASI state of a guest.
pub(crate) struct RestrictedWasi {
    wasi: WasiCtx,
    table: ResourceTable,
    output: Tail,
}

impl RestrictedWasi {
    /// Returns a view for WASI's own functions.
    pub fn view(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }

    /// Returns the state that every guest gets, or one with `other` perturbed.
    pub fn new(other: Option<Other>) -> Self {
        let output = Tail::default();
        let clock = Frozen { later: if other == Some(Other::Time) { 86_461 } else { 0 } };
        let random = other == Some(Other::Random);
        let seeded = || {
            let bytes = 0..=255;
            random::Deterministic::new(if random { bytes.rev().collect() } else { bytes.collect() })
        };
        let mut wasi = wasmtime_wasi::WasiCtxBuilder::new();
        wasi.wall_clock(clock)
            .monotonic_clock(clock)
            .secure_random(seeded())
            .insecure_random(seeded())
            .insecure_random_seed(if random { 43 } else { 42 })
            .stdout(output.clone())
            .stderr(output.clone())
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false);
        Self { wasi: wasi.build(), table: ResourceTable::new(), output }
    }

    /// Returns the end of the guest's output.
    pub fn printed(&self) -> String {
        let tail = self.output.kept();
        let bytes: Vec<u8> = tail.bytes.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        if tail.dropped == 0 {
            return text.into_owned();
        }
        // Begins at a whole line.
        let whole = text.split_once('\n').map_or("", |(_, rest)| rest);
        format!("{} bytes before this were dropped\n{whole}", tail.dropped + text.len() - whole.len())
    }
}

/// A sink for a guest's output that keeps only the end: error messages of a language runtime come last.
#[derive(Clone, Default)]
struct Tail(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    bytes: VecDeque<u8>,
    dropped: usize,
}

impl Tail {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, bytes: &[u8]) {
        let mut kept = self.kept();
        kept.bytes.extend(bytes);
        let over = kept.bytes.len().saturating_sub(LOG);
        kept.bytes.drain(..over);
        kept.dropped += over;
    }
}

impl OutputStream for Tail {
    fn write(&mut self, bytes: Bytes) -> Result<(), StreamError> {
        self.take(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StreamError> {
        Ok(())
    }

    fn check_write(&mut self) -> Result<usize, StreamError> {
        Ok(LOG)
    }
}

#[async_trait]
impl Pollable for Tail {
    async fn ready(&mut self) {}
}

impl AsyncWrite for Tail {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.take(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl IsTerminal for Tail {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Tail {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

/// Makes every poll ready at once, because the clock is frozen. Otherwise a guest could sleep forever:
/// neither fuel nor epochs stop a call that is inside the host.
pub(crate) fn never_wait<T: WasiView + 'static>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut poll = linker.instance("wasi:io/poll@0.2.12")?;
    poll.func_wrap("poll", |_, (all,): (Vec<Resource<DynPollable>>,)| {
        Ok(((0..all.len() as u32).collect::<Vec<u32>>(),))
    })?;
    poll.func_wrap("[method]pollable.ready", |_, (_one,): (Resource<DynPollable>,)| Ok((true,)))?;
    poll.func_wrap("[method]pollable.block", |_, (_one,): (Resource<DynPollable>,)| Ok(()))?;
    linker.allow_shadowing(false);
    Ok(())
}

/// A frozen clock, `later` seconds ahead of the usual time.
#[derive(Clone, Copy)]
struct Frozen {
    later: u64,
}

impl HostWallClock for Frozen {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn now(&self) -> Duration {
        Duration::from_secs(1_700_000_000 + self.later)
    }
}

impl HostMonotonicClock for Frozen {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        // Not 0, because Go's runtime aborts at 0.
        1_000_000 + self.later * 1_000_000_000
    }
}
