//! The program.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use allot::commands::{Cli, Verdict, run};
use allot::screen::Screen;
use clap::Parser as _;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (mut out, mut progress) = (std::io::stdout(), std::io::stderr());
    let live = progress.is_terminal();
    match run(cli, &mut Screen { out: &mut out, progress: &mut progress, live, failed: None }) {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Bad) => ExitCode::from(1),
        Err(trouble) => {
            use std::io::Write as _;
            let _ = writeln!(progress, "{trouble}");
            ExitCode::from(2)
        }
    }
}
