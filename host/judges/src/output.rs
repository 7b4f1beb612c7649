//! The lines that a process writes. The program's runtime reads them, or for a short time the thread that waits for
//! them: a line that comes soon then has no other thread to wake.

use std::io::Result;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStdout;

/// At least so many bytes are read at a time, if there are so many.
const ROOM: usize = 1 << 13;
/// So long a thread that waits for a line stays awake: a quick process answers in some 20 µs, of which falling asleep and
/// waking would be several. Between two looks any other thread may have the core.
#[cfg(unix)]
const AWAKE: Duration = Duration::from_micros(50);

/// A process's output.
pub(crate) struct Output {
    pipe: Pipe,
    /// What was read of it beyond the last line that was taken.
    unread: Vec<u8>,
}

impl Output {
    /// Returns a process's output, of which nothing was read.
    pub fn new(stdout: ChildStdout) -> Result<Self> {
        Ok(Self { pipe: Pipe::new(stdout)?, unread: Vec::new() })
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
        self.pipe.linger(&mut self.unread, most)
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

        pub fn linger(&mut self, unread: &mut Vec<u8>, most: Duration) -> Result<()> {
            let (fd, began) = (self.unwatched()?, Instant::now());
            loop {
                let (past, none) = (began.elapsed(), Duration::ZERO);
                let left = if past < super::AWAKE { none } else { most.saturating_sub(past) };
                let left = Timespec::try_from(left).map_err(Error::other)?;
                match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&left)) {
                    Ok(0) if past < super::AWAKE => {
                        std::thread::yield_now();
                        continue;
                    }
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

    fn linger(&mut self, _unread: &mut Vec<u8>, _most: Duration) -> Result<()> {
        Ok(())
    }
}
