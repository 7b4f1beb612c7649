//! The program, started for a case: ended by a signal, or watched until it ends by itself.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use allot_base::{Error, Result};

use crate::watch::{LONGEST, MOST_MEMORY, memory_of};

/// How a process ended, and what it said.
pub struct Ended {
    /// Its exit code, if it ended by itself.
    pub code: Option<i32>,
    /// Standard error.
    pub said: String,
    /// Ended by us, because it took too long.
    pub hung: bool,
    /// The most memory that it had, in KiB.
    pub memory: u64,
}

/// Starts the program in a folder, or a command that starts it.
pub fn started(mut command: Command, folder: &Path, words: &[&str]) -> Result<Child> {
    command.args(words).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let program = command.get_program().display().to_string();
    command.spawn().map_err(|e| Error::new(format!("`{program}` cannot be started: {e}")))
}

/// Waits until it ends, or has taken too long.
pub fn ended(mut child: Child) -> Result<Ended> {
    // Whoever fills a pipe waits for somebody to read it.
    let mut stream = child.stderr.take();
    let said = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.as_mut().map(|stream| stream.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let (process, since) = (child.id().to_string(), Instant::now());
    let (mut hung, mut memory) = (false, 0);
    let status: ExitStatus = loop {
        memory = memory_of(&process).unwrap_or(0).max(memory);
        match child.try_wait().map_err(|e| Error::new(format!("a process cannot be waited for: {e}")))? {
            Some(status) => break status,
            None if !hung && since.elapsed() > LONGEST => {
                hung = true;
                let _ = child.kill();
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    Ok(Ended { code: status.code(), said: said.join().unwrap_or_default(), hung, memory })
}

/// Runs it to its end.
pub fn run(program: &Path, folder: &Path, words: &[&str]) -> Result<Ended> {
    ended(started(Command::new(program), folder, words)?)
}

/// Runs it to its end. Its standard output goes into a file.
pub fn run_into(program: &Path, folder: &Path, words: &[&str], out: &Path) -> Result<Ended> {
    let file = File::create(out).map_err(|e| Error::file("write", out, &e))?;
    let mut command = Command::new(program);
    command.args(words).current_dir(folder).stdin(Stdio::null()).stdout(file).stderr(Stdio::piped());
    ended(command.spawn().map_err(|e| Error::new(format!("`{}`: {e}", program.display())))?)
}

impl Ended {
    /// What is wrong with it, if it was started for one mangled file: as [`Ended::fault`], or too much memory, or no error.
    pub fn fault_of_mangled(&self) -> Option<String> {
        let large = || (self.memory > MOST_MEMORY).then(|| format!("it came to {} KiB", self.memory));
        let silent = || self.is_silent().then(|| format!("it failed without an error: {}", self.said));
        self.fault().or_else(large).or_else(silent)
    }

    /// Whether it failed and did not say why: an error is a sentence that begins so, and nothing else is.
    pub fn is_silent(&self) -> bool {
        self.code == Some(2) && !self.said.lines().any(|line| line.starts_with("error: "))
    }

    /// What is wrong with it, whatever it was started for: a panic, a signal, no end.
    pub fn fault(&self) -> Option<String> {
        let last = self.said.lines().last().unwrap_or_default();
        if self.hung {
            return Some(format!("it did not end in {} s; the last it said: {last}", LONGEST.as_secs()));
        }
        // The program's own words begin a line; those of a mangled policy that panics are quoted, further in.
        let is_panic = |line: &str| line.starts_with("thread '") && line.contains("panicked at");
        if self.said.lines().any(|line| is_panic(line) || line.starts_with("note: run with `RUST_BACKTRACE"))
        {
            return Some(format!("it panicked: {}", self.said));
        }
        match self.code {
            None => Some(format!("a signal ended it; the last it said: {last}")),
            Some(0..=2) => None,
            Some(code) => Some(format!("it ended with code {code}: {last}")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::run;

    #[test]
    fn a_panic_a_signal_and_an_unknown_code_are_faults_and_an_error_is_none() {
        let fault =
            |script: &str| run(Path::new("/bin/sh"), Path::new("/"), &["-c", script]).unwrap().fault();
        assert!(fault("echo \"thread 'main' panicked at x.rs\" >&2; exit 2").unwrap().contains("panicked"));
        assert_eq!(
            fault("echo 'error: it said:\n    panicked at y.rs' >&2; exit 2"),
            None,
            "a policy's panic"
        );
        assert!(fault("kill -SEGV $$").unwrap().contains("a signal ended it"));
        assert!(fault("exit 101").unwrap().contains("code 101"));
        assert_eq!(fault("echo 'error: no' >&2; exit 2"), None);
    }
}
