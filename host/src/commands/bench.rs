//! `allot bench`: measures the speed of sampling and training, here and in a peer.

use std::path::PathBuf;

use allot_base::{Error, Exit, Result};
use allot_bench::{Outcome, Peer, Target, Weights, Work};
use allot_engine::cpu::Instruction;
use allot_engine::model::{By, Precision};
use allot_engine::tensors::DeviceName;
use clap::{Args, Subcommand};

use crate::screen::Screen;

/// Measure sampling and training, in this program and in a peer, in alternating rounds
#[derive(Debug, Args)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Answers to one prompt, sampled together
    Decode {
        #[command(flatten)]
        common: Common,
        /// Answers; several numbers for several measurements
        #[arg(long, value_delimiter = ',', default_value = "32", value_parser = clap::value_parser!(u16).range(1..))]
        batch: Vec<u16>,
        /// The prompt's tokens [default: 32, or what the model's context leaves]
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
        prompt: Option<u16>,
        /// Each answer's tokens [default: 64, or what the model's context leaves]
        #[arg(long, value_parser = clap::value_parser!(u16).range(2..))]
        tokens: Option<u16>,
    },
    /// Log-probabilities of sequences: a forward pass
    Score {
        #[command(flatten)]
        common: Common,
        /// Sequences; several numbers for several measurements
        #[arg(long, value_delimiter = ',', default_value = "8", value_parser = clap::value_parser!(u16).range(1..))]
        batch: Vec<u16>,
        /// Each sequence's tokens [default: 128, or the model's context]
        #[arg(long, value_parser = clap::value_parser!(u16).range(2..))]
        tokens: Option<u16>,
    },
    /// One update: forward, backward, a step of AdamW
    Train {
        #[command(flatten)]
        common: Common,
        /// Sequences; several numbers for several measurements
        #[arg(long, value_delimiter = ',', default_value = "8", value_parser = clap::value_parser!(u16).range(1..))]
        batch: Vec<u16>,
        /// Each sequence's tokens [default: 128, or the model's context]
        #[arg(long, value_parser = clap::value_parser!(u16).range(2..))]
        tokens: Option<u16>,
        /// Make activations again in the backward pass, as `update.recompute` does
        #[arg(long, conflicts_with = "peer")]
        recompute: bool,
    },
}

#[derive(Debug, Args)]
struct Common {
    /// The model: one that ships, a folder, a GGUF file
    #[arg(long, default_value = "tiny-sums")]
    model: String,
    /// Random weights, in the shape that the model's `config.json` tells; its folder needs no more
    #[arg(long)]
    random: bool,
    /// Where it is: `cpu`, `cuda`, `cuda:1`
    #[arg(long, default_value = "cpu")]
    device: DeviceName,
    /// What matrices are multiplied in: `f32`, `bf16`, or both, `f32,bf16`, by turns
    #[arg(long, value_delimiter = ',', default_value = "f32", value_parser = ["f32", "bf16"])]
    dtype: Vec<String>,
    /// A peer's Python, with transformers; see benches/peers
    #[arg(long, value_name = "PYTHON")]
    peer: Option<PathBuf>,
    /// What the peer computes in; in bf16 it trains with float32 weights under autocast
    #[arg(long, default_value = "f32", value_parser = ["f32", "bf16"], requires = "peer")]
    peer_dtype: String,
    /// Threads, here and in the peer [default: all cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Rounds that count
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// All rounds as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the measurements.
pub fn run(command: &Bench, screen: &mut Screen<'_>) -> Result<Exit> {
    let (What::Decode { common, .. } | What::Score { common, .. } | What::Train { common, .. }) =
        &command.what;
    let path = allot_models::find(&common.model)?;
    let shape = allot_models::shape(&path)?;
    let by = if common.device == DeviceName::Cpu { By::Cpu } else { By::Kernels };
    let (most, limit) = shape.most(by);
    let works = works(&command.what, most);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = common.threads.map_or(cores, usize::from);
    let longest = works.iter().map(|work| work.longest()).max().unwrap_or(1);
    if longest > most {
        let what = format!("the longest work has {longest} tokens; the model's {limit} has {most}");
        return Err(Error::new(what).hint("leave out --prompt or --tokens to use a value that fits"));
    }
    let precision = |name: &String| if name == "bf16" { Precision::Bf16 } else { Precision::F32 };
    let precisions: Vec<Precision> = common.dtype.iter().map(precision).collect();
    if common.device == DeviceName::Cpu
        && precisions.contains(&Precision::Bf16)
        && Instruction::here().is_none()
    {
        screen.tell("this processor has no bf16 instructions: products are computed in f32");
    }
    let weights = if common.random { Weights::Random(&shape) } else { Weights::Of(&path) };
    let place = Target { device: common.device, precisions: &precisions, threads };
    let mut model = allot_bench::Bench::load(weights, place, longest)?;
    let folder = tempfile::tempdir().map_err(|e| Error::file("make", &std::env::temp_dir(), &e))?;
    let mut peer = match &common.peer {
        None => None,
        Some(python) => {
            let exported = folder.path().join("model");
            model.export(&exported)?;
            let dtype = precision(&common.peer_dtype);
            let peer = Peer::start(python, &exported, threads, dtype)?;
            screen.tell(format_args!(
                "beside {} in {}, on {threads} threads each",
                peer.versions, common.peer_dtype
            ));
            Some(peer)
        }
    };
    let mut outcomes = Vec::new();
    for work in works {
        screen.draw(format_args!("{work:?}"));
        outcomes.extend(model.rounds(work, usize::from(common.rounds), peer.as_mut())?);
        screen.draw("");
    }
    if common.json {
        let versions = peer.as_ref().map(|peer| peer.versions.as_str());
        screen.say(serde_json::json!({
            "model": common.model, "parameters": shape.parameters(), "threads": threads,
            "device": common.device, "allot": env!("CARGO_PKG_VERSION"),
            "peer": versions, "peer_dtype": versions.map(|_| &common.peer_dtype), "measured": outcomes,
        }));
    } else {
        let beside = if peer.is_some() { "in the peer" } else { "in the first" };
        show(&outcomes, beside, screen);
    }
    Ok(Exit::Good)
}

/// Returns the work for a model with this context. Default lengths are chosen to fit.
fn works(what: &What, context: usize) -> Vec<Work> {
    let given = |n: &Option<u16>| n.map(usize::from);
    match what {
        What::Decode { batch, prompt, tokens, .. } => {
            // If neither is given, a third of a short context is for the prompt.
            let answer = given(tokens).unwrap_or(64.min(context - context / 3));
            let prompt = given(prompt).unwrap_or(32.min(context.saturating_sub(answer)).max(1));
            let tokens = given(tokens).unwrap_or(64.min(context.saturating_sub(prompt)).max(2));
            batch.iter().map(|n| Work::Decode { batch: usize::from(*n), prompt, tokens }).collect()
        }
        What::Score { batch, tokens, .. } => {
            let tokens = given(tokens).unwrap_or(128.min(context));
            batch.iter().map(|n| Work::Score { batch: usize::from(*n), tokens }).collect()
        }
        What::Train { batch, tokens, recompute, .. } => {
            let (tokens, recompute) = (given(tokens).unwrap_or(128.min(context)), *recompute);
            batch.iter().map(|n| Work::Train { batch: usize::from(*n), tokens, recompute }).collect()
        }
    }
}

fn show(outcomes: &[Outcome], beside: &str, screen: &mut Screen<'_>) {
    let several = outcomes.iter().any(|outcome| outcome.dtype != outcomes[0].dtype);
    let title = ("", "tokens/s here", "of the limit", beside);
    screen.say(format_args!("{:<34}{:>14}{:>14}{:>14}  times as fast", title.0, title.1, title.2, title.3));
    for outcome in outcomes {
        let what = match outcome.work {
            Work::Decode { batch, prompt, tokens } => format!("decode {batch} × {tokens}, after {prompt}"),
            Work::Score { batch, tokens } => format!("score {batch} × {tokens}"),
            Work::Train { batch, tokens, recompute } => {
                let again = if recompute { ", recomputed" } else { "" };
                format!("train {batch} × {tokens}{again}")
            }
        };
        let dtype = if outcome.dtype == Precision::Bf16 { ", bf16" } else { ", f32" };
        let what = if several { what + dtype } else { what };
        let other = outcome.beside().map_or_else(|| "–".to_owned(), |beside| format!("{beside:.0}"));
        let ratio = outcome.ratio().map(|(median, low, high)| format!("{median:.2} ({low:.2}–{high:.2})"));
        let share = match outcome.share() {
            Some(share) if share <= 1.0 => format!("{:.0} %", 100.0 * share),
            _ => "–".to_owned(),
        };
        screen.say(format_args!(
            "{what:<34}{:>14.0}{share:>14}{other:>14}  {}",
            outcome.here(),
            ratio.unwrap_or_default()
        ));
    }
    if outcomes.iter().filter_map(Outcome::share).any(|share| share > 1.0) {
        screen
            .tell("note: another program slowed every measurement of the limit, so no share of it is shown");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Typed {
        #[command(flatten)]
        bench: Bench,
    }

    fn lengths(arguments: &[&str], context: usize) -> (usize, usize) {
        let typed = Typed::parse_from([&["bench"], arguments].concat());
        match works(&typed.bench.what, context)[0] {
            Work::Decode { prompt, tokens, .. } => (prompt, tokens),
            Work::Score { tokens, .. } | Work::Train { tokens, .. } => (0, tokens),
        }
    }

    #[test]
    fn lengths_that_nobody_gave_fit_the_context() {
        assert_eq!(lengths(&["decode"], 2048), (32, 64));
        assert_eq!(lengths(&["decode"], 64), (21, 43));
        assert_eq!(lengths(&["decode", "--prompt", "8"], 64), (8, 56));
        assert_eq!(lengths(&["decode", "--tokens", "50"], 64), (14, 50));
        assert_eq!(lengths(&["decode", "--prompt", "40", "--tokens", "60"], 64), (40, 60), "as it was asked");
        assert_eq!(lengths(&["train"], 64), (0, 64));
        assert_eq!(lengths(&["train"], 4096), (0, 128));
    }

    #[test]
    fn activations_are_made_again_where_that_is_asked_for() {
        let recompute = |arguments: &[&str]| {
            let typed = Typed::try_parse_from([&["bench", "train"], arguments].concat()).ok()?;
            Some(matches!(works(&typed.bench.what, 64)[0], Work::Train { recompute: true, .. }))
        };
        assert_eq!(recompute(&[]), Some(false));
        assert_eq!(recompute(&["--recompute"]), Some(true));
        assert_eq!(recompute(&["--recompute", "--peer", "python"]), None, "a peer keeps its activations");
    }
}
