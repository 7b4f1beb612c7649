//! The lines that a process writes. The program's runtime reads them, or for a short time the thread that waits for
//! them: a line that comes soon then has no other thread to wake.

use std::io::Result;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStdout;

/// At least so many bytes are read at a time, if there are so many.
const ROOM: usize = 1 << 13;

/// A process's output.
pub(crate) struct Output {
    pipe: Pipe,
    waking: Waking,
    /// What was read of it beyond the last line that was taken.
    unread: Vec<u8>,
}

impl Output {
    /// Returns a process's output, of which nothing was read.
    pub fn new(stdout: ChildStdout) -> Result<Self> {
        Ok(Self { pipe: Pipe::new(stdout)?, waking: Waking::default(), unread: Vec::new() })
    }

    /// Returns the next line with its end, or without one if it is longer than `longest` bytes or the output has ended;
    /// nothing at the end of the output.
    pub async fn line(&mut self, longest: usize) -> Result<Vec<u8>> {
        let mut looked = 0;
        loop {
            let end = self.unread[looked..].iter().position(|byte| *byte == b'\n').map(|at| looked + at + 1);
            if end.is_some() || self.unread.len() >= longest {
                return Ok(self.unread.drain(..end.unwrap_or(longest).min(longest)).collect());
            }
            looked = self.unread.len();
            self.unread.reserve(ROOM);
            if self.pipe.reader()?.read_buf(&mut self.unread).await? == 0 {
                return Ok(std::mem::take(&mut self.unread));
            }
        }
    }

    /// Blocks this thread until there is a line, or something else that [`Self::line`] returns at once; at most so long.
    /// What it reads until then is not lost.
    pub fn linger(&mut self, most: Duration) -> Result<()> {
        self.pipe.linger(&mut self.unread, most, &mut self.waking)
    }
}

/// So long a thread that waits for a line stays awake. A quick process judges an answer in some 20 µs and 32 in some 100, and to
/// fall asleep and wake takes from several µs to 40. Between two looks any other thread may have the core.
#[cfg(unix)]
const AWAKE: Duration = Duration::from_micros(200);

/// The fewest and the most lines that are waited for asleep, after one for which the core was another thread's.
const ASLEEP: (u32, u32) = (16, 4096);

/// Whether a thread stays awake while it waits. Where other threads want its core it had better sleep: one that yields has the core
/// back after milliseconds, one that wakes at once.
#[derive(Debug)]
#[cfg_attr(not(unix), expect(dead_code, reason = "there the runtime waits"))]
struct Waking {
    /// For so many lines it sleeps at once.
    asleep: u32,
    /// So many there will be when its core is another thread's again.
    next: u32,
}

impl Default for Waking {
    fn default() -> Self {
        Self { asleep: 0, next: ASLEEP.0 }
    }
}

#[cfg(unix)]
impl Waking {
    /// Returns how long it stays awake for the next line.
    fn begin(&mut self) -> Duration {
        let awake = if self.asleep == 0 { AWAKE } else { Duration::ZERO };
        self.asleep = self.asleep.saturating_sub(1);
        awake
    }

    /// Learns how long it was awake, from the first look to the last.
    fn end(&mut self, awake: Duration) {
        if awake > 2 * AWAKE {
            (self.asleep, self.next) = (self.next, ASLEEP.1.min(2 * self.next));
        } else {
            self.next = ASLEEP.0;
        }
    }
}

#[cfg(unix)]
use unix::Pipe;

#[cfg(unix)]
mod unix {
    use std::io::{Error, Result};
    use std::os::fd::OwnedFd;
    use std::time::{Duration, Instant};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;
    use tokio::net::unix::pipe::Receiver;
    use tokio::process::ChildStdout;

    use super::Waking;

    /// A pipe that the runtime watches only while it reads it: otherwise it would wake for each line, too.
    pub enum Pipe {
        Unwatched(OwnedFd),
        Watched(Receiver),
        /// It could not be changed from one to the other.
        Lost,
    }

    impl Pipe {
        pub fn new(stdout: ChildStdout) -> Result<Self> {
            Ok(Self::Unwatched(stdout.into_owned_fd()?))
        }

        /// Has the program's runtime watch the pipe, on any thread that reads it.
        pub fn reader(&mut self) -> Result<&mut Receiver> {
            if let Self::Unwatched(_) = self
                && let Self::Unwatched(fd) = std::mem::replace(self, Self::Lost)
            {
                let _entered = allot_remote::runtime().map_err(Error::other)?.enter();
                *self = Self::Watched(Receiver::from_owned_fd(fd)?);
            }
            match self {
                Self::Watched(reader) => Ok(reader),
                _ => Err(Error::other("its output can't be read any more")),
            }
        }

        fn unwatched(&mut self) -> Result<&OwnedFd> {
            if let Self::Watched(_) = self
                && let Self::Watched(reader) = std::mem::replace(self, Self::Lost)
            {
                *self = Self::Unwatched(reader.into_nonblocking_fd()?);
            }
            match self {
                Self::Unwatched(fd) => Ok(fd),
                _ => Err(Error::other("its output can't be read any more")),
            }
        }

        pub fn linger(&mut self, unread: &mut Vec<u8>, most: Duration, waking: &mut Waking) -> Result<()> {
            let (fd, began, mut awake) = (self.unwatched()?, Instant::now(), waking.begin());
            loop {
                let past = began.elapsed();
                let left = if past < awake { Duration::ZERO } else { most.saturating_sub(past) };
                let left = Timespec::try_from(left).map_err(Error::other)?;
                let readable = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&left));
                if past < awake && readable == Ok(0) {
                    std::thread::yield_now();
                    continue;
                }
                if !std::mem::take(&mut awake).is_zero() {
                    waking.end(past);
                }
                match readable {
                    Ok(0) => return Ok(()),
                    Err(Errno::INTR) => continue,
                    readable => _ = readable?,
                }
                let looked = unread.len();
                unread.reserve(super::ROOM);
                match rustix::io::read(fd, rustix::buffer::spare_capacity(unread)) {
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    // At the end there is nothing more to come.
                    read if read? == 0 || unread[looked..].contains(&b'\n') => return Ok(()),
                    _ => {}
                }
            }
        }
    }
}

/// A pipe that the runtime always watches.
#[cfg(not(unix))]
struct Pipe(ChildStdout);

#[cfg(not(unix))]
impl Pipe {
    fn new(stdout: ChildStdout) -> Result<Self> {
        Ok(Self(stdout))
    }

    fn reader(&mut self) -> Result<&mut ChildStdout> {
        Ok(&mut self.0)
    }

    fn linger(&mut self, _unread: &mut Vec<u8>, _most: Duration, _waking: &mut Waking) -> Result<()> {
        Ok(())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_sleeps_for_longer_and_longer_where_others_want_its_core() {
        let mut waking = Waking::default();
        let mut asleep = |took: Duration| {
            assert_eq!(waking.begin(), AWAKE);
            waking.end(took);
            (0..10_000).take_while(|_| waking.asleep > 0 && waking.begin().is_zero()).count()
        };
        let (alone, beside) = (AWAKE, 3 * AWAKE);
        assert_eq!([alone, beside, beside, beside, alone, beside].map(&mut asleep), [0, 16, 32, 64, 0, 16]);
        let most = (0..10).map(|_| asleep(beside)).last();
        assert_eq!(most, Some(4096));
    }
}
