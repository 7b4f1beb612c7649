//! The screen: results and progress messages. Control characters are removed from everything that is
//! written here.

use std::io::Write;

use allot_allocation::shown::safe;

/// The outputs of the program: one for results, one for everything else.
pub struct Screen<'a> {
    /// The output for results.
    pub out: &'a mut dyn Write,
    /// The output for progress messages.
    pub progress: &'a mut dyn Write,
    /// Whether progress may be redrawn in place.
    pub live: bool,
    /// The error of writing a result, if one occurred.
    pub failed: Option<std::io::Error>,
}

impl Screen<'_> {
    /// Writes a line of the result. A closed pipe is not a failure, but a full disk is.
    pub fn say(&mut self, line: impl std::fmt::Display) {
        if let Err(error) = writeln!(self.out, "{}", safe(&line.to_string()))
            && error.kind() != std::io::ErrorKind::BrokenPipe
        {
            self.failed.get_or_insert(error);
        }
    }

    /// Writes a progress message.
    pub fn tell(&mut self, line: impl std::fmt::Display) {
        let _ = writeln!(self.progress, "{}", safe(&line.to_string()));
    }

    /// Redraws the progress line in place; does nothing without a terminal.
    pub fn draw(&mut self, line: impl std::fmt::Display) {
        if self.live {
            // Without wrapping: only the last row of a wrapped line would be redrawn.
            let line = line.to_string().replace('\n', " ");
            let _ = write!(self.progress, "\r\x1b[2K\x1b[?7l{}\x1b[?7h", safe(&line));
            let _ = self.progress.flush();
        }
    }
}
