//! The program.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use allot::commands::{Cli, run};
use allot::screen::Screen;
use clap::Parser as _;

/// With the system's allocator, a third of the time of tokenizing a data set is allocation: GSM8K takes 1.2
/// seconds with it, and 0.9 with this one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let error_file = cli.error_file.clone();
    let (mut out, mut progress) = (std::io::stdout(), std::io::stderr());
    let live = progress.is_terminal();
    let done = run(cli, &mut Screen { out: &mut out, progress: &mut progress, live, failed: None });
    let exit = done.unwrap_or_else(|error| {
        // Failures to report the error can't be reported.
        let _ = writeln!(progress, "{}", error.report());
        let _ = error_file.map(|path| error.write(&path));
        error.exit()
    });
    ExitCode::from(exit.code())
}
