//! `allot watch`: shows runs on a terminal while they progress.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use allot_base::{Error, Exit, Result};
use allot_watch::live;
use clap::Args;
use ratatui::crossterm::terminal;

use crate::screen::Screen;

/// The picture's size without a terminal.
const SIZE: (u16, u16) = (80, 24);

/// Watch runs: curves, wasted rollouts, rates, time left
#[derive(Debug, Args)]
pub struct Watch {
    /// A run's folder, or one with runs somewhere in it; new runs appear as they start
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Seconds between refreshes
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    every: f64,
    /// Print one picture as plain text, and end
    #[arg(long)]
    once: bool,
}

/// Shows the runs.
pub fn run(command: &Watch, screen: &mut Screen<'_>) -> Result<Exit> {
    let every = command.every;
    if !(0.1..=3600.0).contains(&every) {
        return Err(Error::new(format!("`--every` is {every}; expected 0.1 to 3600 seconds")));
    }
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let on_terminal = std::io::stdout().is_terminal() && !dumb;
    if command.once || !on_terminal {
        let size = if on_terminal { terminal::size().unwrap_or(SIZE) } else { SIZE };
        screen.say(allot_watch::once(&command.runs, size)?);
    } else {
        live::show(&command.runs, Duration::from_secs_f64(every))?;
    }
    Ok(Exit::Good)
}
