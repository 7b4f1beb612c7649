//! `allot completions`: prints a completion script for a shell.

use allot_base::Exit;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::Cli;
use crate::screen::Screen;

/// Print a completion script for a shell
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub fn run(command: &Completions, screen: &mut Screen<'_>) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(command.shell, &mut Cli::command(), "allot", &mut script);
    screen.say(String::from_utf8_lossy(&script).trim_end());
    Exit::Good
}
