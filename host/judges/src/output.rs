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

#[cfg(unix)]
use unix::{Pipe, Waking};

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

        pub fn linger(&mut self, unread: &mut Vec<u8>, most: Duration, waking: &mut Waking) -> Result<()> {
            let (fd, began) = (self.unwatched()?, Instant::now());
            let look = |patience: Duration| {
                let patience = Timespec::try_from(patience).map_err(|_| Errno::INVAL)?;
                poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&patience))
            };
            let (awake, mut readable) = (waking.begin().min(most), Ok(0));
            if !awake.is_zero() {
                loop {
                    // Before the first look, too: the process has only just been asked.
                    std::thread::yield_now();
                    readable = look(Duration::ZERO);
                    if readable != Ok(0) || began.elapsed() > awake {
                        break;
                    }
                }
                waking.end(began.elapsed());
            }
            loop {
                if readable == Ok(0) {
                    readable = look(most.saturating_sub(began.elapsed()));
                }
                match std::mem::replace(&mut readable, Ok(0)) {
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

    /// How long a thread that waits for a line stays awake. A quick process judges an answer in some 20 µs and 32 in some 100, and
    /// to fall asleep and wake takes long beside that. Between two looks any other thread may have the core.
    const AWAKE: Duration = Duration::from_micros(200);

    /// What a wait that was awake in vain may cost each of the lines that are then waited for asleep.
    const COST: Duration = Duration::from_micros(2);

    /// Whether a thread stays awake while it waits. It does not where lines take longer to come: either the process is slower, or
    /// other threads want the core, of which one that yields has it back after milliseconds, and one that wakes at once.
    #[derive(Debug, Default)]
    pub struct Waking {
        /// For how many lines it still sleeps at once.
        asleep: u32,
    }

    impl Waking {
        /// Returns how long it stays awake for the next line.
        fn begin(&mut self) -> Duration {
            let awake = if self.asleep == 0 { AWAKE } else { Duration::ZERO };
            self.asleep = self.asleep.saturating_sub(1);
            awake
        }

        /// Learns how long the line took, or how long it was waited for awake.
        fn end(&mut self, took: Duration) {
            if took > AWAKE {
                self.asleep = u32::try_from(took.as_nanos() / COST.as_nanos()).unwrap_or(u32::MAX);
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use std::io::Write as _;

        use super::*;

        #[test]
        fn a_wait_in_vain_is_spread_over_the_lines_after_it() {
            let mut waking = Waking::default();
            let mut asleep = |took: Duration| {
                assert_eq!(waking.begin(), AWAKE);
                waking.end(took);
                (0..10_000).take_while(|_| waking.asleep > 0 && waking.begin().is_zero()).count()
            };
            let late = AWAKE + Duration::from_nanos(1);
            assert_eq!([AWAKE, late, AWAKE, Duration::from_millis(3)].map(&mut asleep), [0, 100, 0, 1500]);
        }

        #[test]
        fn a_line_is_waited_for_awake_and_asleep_but_no_longer_than_is_said() {
            let (read, mut write) = std::io::pipe().expect("a pipe");
            let (mut pipe, mut unread) = (Pipe::Unwatched(read.into()), Vec::new());
            let mut linger = |most: Duration, asleep: u32| {
                let mut waking = Waking { asleep };
                pipe.linger(&mut unread, most, &mut waking).expect("it can be read");
                String::from_utf8(std::mem::take(&mut unread)).expect("text")
            };
            let long = Duration::from_mins(1);
            for asleep in [0, 1] {
                write.write_all(b"at once\n").expect("it is open");
                assert_eq!(linger(long, asleep), "at once\n");
                assert_eq!(linger(Duration::from_micros(50), asleep), "");
                write.write_all(b"a part").expect("it is open");
                assert_eq!(linger(Duration::from_millis(2), asleep), "a part");
                let said = std::thread::scope(|scope| {
                    scope.spawn(|| {
                        std::thread::sleep(Duration::from_millis(2));
                        write.write_all(b"late\n").expect("it is open");
                    });
                    linger(long, asleep)
                });
                assert_eq!(said, "late\n");
            }
            drop(write);
            assert_eq!([linger(long, 0), linger(long, 1)], ["", ""]);
        }
    }
}

/// There the runtime waits.
#[cfg(not(unix))]
type Waking = ();

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
