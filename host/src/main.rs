//! The program.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use allot::commands::{Cli, Verdict, run};
use allot::screen::Screen;
use clap::Parser as _;

/// A third of the work of turning a data set into tokens is allocation, with the system's allocator: GSM8K takes 1.2
/// seconds of work with that one, and 0.9 with this one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (mut out, mut progress) = (std::io::stdout(), std::io::stderr());
    let live = progress.is_terminal();
    match run(cli, &mut Screen { out: &mut out, progress: &mut progress, live, failed: None }) {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Bad) => ExitCode::from(1),
        Err(trouble) => {
            use std::io::Write as _;
            let _ = writeln!(progress, "{}", trouble.report());
            ExitCode::from(2)
        }
    }
}
