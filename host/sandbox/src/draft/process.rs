//! The Python process of a draft, and the messages to and from it: two lengths of 8 bytes, a pickle and a
//! state. Pickles hold what JSON can't (bytes, and numbers that are not finite), and Python reads and
//! writes them in C.

use std::io::{BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_pickle::{DeOptions, SerOptions};

use super::Interpreter;
use crate::fault::Fault;

/// The code that Python runs: the SDK's end of the pipe, with the project's folder first on its path.
const MAIN: &str =
    "import sys; sys.path[:1] = sys.argv[1:3]; from allot_policy import draft; draft.main(sys.argv[1])";

pub(super) struct Process {
    child: Child,
    // Dropped first: the process exits at the end of its input.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Process {
    /// Starts Python, which imports the policy and waits for a call.
    pub fn start(interpreter: &Interpreter) -> Result<Self, Fault> {
        let mut command = Command::new(&interpreter.python);
        command.args(["-c", MAIN]).arg(&interpreter.folder).arg(&interpreter.sdk);
        command.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let failed = |e| Fault::Engine(format!("`{}` did not start: {e}", interpreter.python.display()));
        let mut child = command.spawn().map_err(failed)?;
        let (to, from) = (child.stdin.take(), child.stdout.take().expect("its output is a pipe"));
        Ok(Self { child, to, from: BufReader::new(from) })
    }

    /// Writes a message with a state: a call, or the answer to a question.
    pub fn write(&mut self, message: &impl Serialize, state: &[u8]) -> Result<(), Fault> {
        let body =
            serde_pickle::to_vec(message, SerOptions::new()).map_err(|e| Fault::Engine(e.to_string()))?;
        let to = self.to.as_mut().expect("it is there until this is dropped");
        let lengths = [body.len() as u64, state.len() as u64];
        let all = [&lengths[0].to_le_bytes(), &lengths[1].to_le_bytes(), body.as_slice(), state];
        match all.into_iter().try_for_each(|part| to.write_all(part)).and_then(|()| to.flush()) {
            // The process has ended. Reading its answer shows why.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|e| Fault::Engine(format!("could not ask the draft's process: {e}"))),
        }
    }

    /// Returns the next message and its state.
    pub fn answer<T: DeserializeOwned>(&mut self) -> Result<(T, Vec<u8>), Fault> {
        let mut length = [0; 8];
        let mut lengths = [0_u64; 2];
        let read = lengths.iter_mut().try_for_each(|one| {
            self.from.read_exact(&mut length)?;
            *one = u64::from_le_bytes(length);
            Ok(())
        });
        let [body, state] = read.and_then(|()| self.bytes(lengths)).map_err(|e: std::io::Error| {
            let ended = self.child.try_wait().ok().flatten();
            Fault::Engine(match ended {
                Some(status) => format!("the draft's process ended ({status})"),
                None => format!("the draft's process did not answer: {e}"),
            })
        })?;
        let message = serde_pickle::from_slice(&body, DeOptions::new())
            .map_err(|e| Fault::Engine(format!("the draft's process sent an unexpected response: {e}")))?;
        Ok((message, state))
    }

    fn bytes(&mut self, lengths: [u64; 2]) -> std::io::Result<[Vec<u8>; 2]> {
        let mut parts = [Vec::new(), Vec::new()];
        for (part, length) in parts.iter_mut().zip(lengths) {
            // Allocates only for bytes that arrive, however large the length is.
            let read = self.from.by_ref().take(length).read_to_end(part)?;
            if (read as u64) < length {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(parts)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
