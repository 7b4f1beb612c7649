//! The screen: where what was asked for goes, and where it is told how it is going. Nothing that goes through here
//! controls a terminal, from any source.

use std::io::Write;

use allot_allocation::shown::safe;

/// Where words go: results to one place, all else to the other.
pub struct Screen<'a> {
    /// What was asked for.
    pub out: &'a mut dyn Write,
    /// How it is going.
    pub progress: &'a mut dyn Write,
    /// Whether progress may be drawn over itself.
    pub live: bool,
    /// Why a result could not be written, if one could not.
    pub failed: Option<std::io::Error>,
}

impl Screen<'_> {
    /// A line of what was asked for. A reader that went away is no failure; a full disk is.
    pub fn say(&mut self, line: impl std::fmt::Display) {
        if let Err(error) = writeln!(self.out, "{}", safe(&line.to_string()))
            && error.kind() != std::io::ErrorKind::BrokenPipe
        {
            self.failed.get_or_insert(error);
        }
    }

    /// A line of how it is going.
    pub fn tell(&mut self, line: impl std::fmt::Display) {
        let _ = writeln!(self.progress, "{}", safe(&line.to_string()));
    }

    /// How it is going, drawn over what was drawn before; nothing where that can't be.
    pub fn draw(&mut self, line: impl std::fmt::Display) {
        if self.live {
            // Without a wrap at the edge: of a line that became two, only the second is drawn over.
            let line = line.to_string().replace('\n', " ");
            let _ = write!(self.progress, "\r\x1b[2K\x1b[?7l{}\x1b[?7h", safe(&line));
            let _ = self.progress.flush();
        }
    }
}
