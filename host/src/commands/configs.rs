//! `allot configs`: the shipped configs, for users without a checkout.

use allot_base::{Exit, Result};
use allot_config::Shipped;
use clap::Args;

use crate::screen::Screen;

/// List the shipped configs, or print one
#[derive(Debug, Args)]
pub struct Configs {
    /// Print this one, to be changed: allot configs quickstart > mine.toml
    config: Option<String>,
    /// List also those that made the published results
    #[arg(long, conflicts_with = "config")]
    all: bool,
}

/// Lists the configs, or prints one.
pub fn run(command: &Configs, screen: &mut Screen<'_>) -> Result<Exit> {
    if let Some(name) = &command.config {
        screen.say(Shipped::named(name)?.text.trim_end());
        return Ok(Exit::Good);
    }
    let mut all = Shipped::all();
    all.retain(|config| command.all || !config.evidence);
    let width = all.iter().map(|config| config.name.len()).max().unwrap_or(0);
    for config in all {
        screen.say(format_args!("{:<width$}  {}", config.name, config.summary()));
    }
    Ok(Exit::Good)
}
