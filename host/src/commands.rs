//! The program's commands, one file each.

mod bank;
mod bench;
mod build;
mod check;
mod compare;
mod completions;
mod configs;
mod fetch;
mod forecast;
mod grade;
mod logs;
mod new;
mod pack;
mod policies;
mod pretrain;
mod replay;
mod report;
mod rollouts;
mod simulate;
mod train;
mod watch;

use allot_base::{Error, Exit, Result};
use clap::{Parser, Subcommand};

use crate::screen::Screen;

/// Rollout allocation for group-based RL post-training, with policies as Wasm components.
#[derive(Debug, Parser)]
#[command(name = "allot", version, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Write the error that ends the program to this file too, as JSON. For whatever starts it: a comparison's runs
    #[arg(long, global = true, hide = true, value_name = "FILE")]
    pub error_file: Option<std::path::PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the shipped policies, with their settings
    Policies(policies::Policies),
    /// List the shipped configs, or print one
    Configs(configs::Configs),
    /// Test a policy or a grader: rules, purity, limits, cost
    Check(check::Check),
    /// Train a language model under a policy
    Train(train::Train),
    /// Compare policies over seeds, under one budget
    Compare(compare::Compare),
    /// Report on runs: a page, figures and tables, from their records alone
    Report(report::ReportRuns),
    /// Show rollouts of a training run: question, answer, reward, and what became of each
    Rollouts(rollouts::Rollouts),
    /// Grade existing answers: verdicts, rewards and their parts
    Grade(grade::Grade),
    /// Watch runs: curves, wasted rollouts, rates, time left
    Watch(watch::Watch),
    /// Run a policy without a model, in seconds: in the coin-flip world, or on a bank of rollouts
    Simulate(simulate::Simulate),
    /// Forecast from logs what each policy would save: rollouts, tokens, operations
    Forecast(forecast::ForecastLogs),
    /// Make a bank for `allot simulate --bank` from rollouts of runs, other trainers or evaluations
    Bank(bank::BankFiles),
    /// Train a small model from random weights in minutes, on examples with mistakes
    Pretrain(pretrain::Pretrain),
    /// Replay a recorded run's decisions with a policy, and show the differences
    Replay(replay::Replay),
    /// Measure sampling and training, in this program and in a peer, in alternating rounds
    Bench(bench::Bench),
    /// Create a project of a policy or a grader
    New(new::New),
    /// Build a component from a project of a policy or a grader, or from a core Wasm module
    Build(build::Build),
    /// Describe a component, and how a config pins it
    Pack(pack::Pack),
    /// Fetch CPython or math-verify for the sandbox
    Fetch(fetch::Fetch),
    /// Print a completion script for a shell
    Completions(completions::Completions),
}

/// Runs the command.
pub fn run(cli: Cli, screen: &mut Screen<'_>) -> Result<Exit> {
    let exit = command(cli.command, screen)?;
    match &screen.failed {
        Some(error) => Err(Error::file("write", std::path::Path::new("standard output"), error)),
        None => Ok(exit),
    }
}

fn command(command: Command, screen: &mut Screen<'_>) -> Result<Exit> {
    match command {
        Command::Policies(command) => policies::run(&command, screen),
        Command::Configs(command) => configs::run(&command, screen),
        Command::Check(command) => check::run(&command, screen),
        Command::Train(command) => train::run(&command, screen),
        Command::Compare(command) => compare::run(&command, screen),
        Command::Report(command) => report::run(&command, screen),
        Command::Rollouts(command) => rollouts::run(&command, screen),
        Command::Grade(command) => grade::run(&command, screen),
        Command::Watch(command) => watch::run(&command, screen),
        Command::Simulate(command) => simulate::run(&command, screen),
        Command::Forecast(command) => forecast::run(&command, screen),
        Command::Bank(command) => bank::run(&command, screen),
        Command::Pretrain(command) => pretrain::run(&command, screen),
        Command::Replay(command) => replay::run(&command, screen),
        Command::Bench(command) => bench::run(&command, screen),
        Command::New(command) => new::run(&command, screen),
        Command::Build(command) => build::run(&command, screen),
        Command::Pack(command) => pack::run(&command, screen),
        Command::Fetch(command) => fetch::run(&command, screen),
        Command::Completions(command) => Ok(completions::run(&command, screen)),
    }
}
