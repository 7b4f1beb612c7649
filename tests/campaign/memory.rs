//! Memory: a run takes what `--dry-run` says, whatever its model and its settings.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use allot_base::{Error, Result};

use crate::files::write;
use crate::watch::memory_of;
use crate::{Chance, Class, Outcome, Place, kills, runs};

/// How a batch is cut.
const MINI_BATCHES: [&str; 4] = ["mini_batch=0", "mini_batch=8", "mini_batch=64", "mini_batch_tokens=40"];

/// What a run may take over what was said: it was said of a model of any size, and in words "about".
const OVER: f64 = 1.1;

pub struct Memory;

impl Class for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn prepare(&mut self, _: &Place<'_>) -> Result<()> {
        Ok(())
    }

    fn case(&self, at: &Place<'_>, chance: &mut Chance) -> Result<Outcome> {
        // A model of any shape, of one step.
        let heads = *chance.of_these(&[1, 2, 4, 8]);
        let hidden = heads * *chance.of_these(&[8, 16, 32, 64]);
        let shape = [
            ("hidden", hidden),
            ("intermediate", *chance.of_these(&[32, 128, 512, 1536])),
            ("layers", *chance.of_these(&[1, 2, 4, 8])),
            ("heads", heads),
            ("context", *chance.of_these(&[32, 64, 256])),
        ];
        let mut words =
            vec!["pretrain".to_owned(), "recipe.toml".to_owned(), "--out".to_owned(), "model".to_owned()];
        for (key, value) in shape {
            words.extend(["-o".to_owned(), format!("model.{key}={value}")]);
        }
        words.extend(["--steps".to_owned(), "1".to_owned()]);
        write(&at.folder.join("recipe.toml"), kills::config(at, "pretrain")?)?;
        let made = runs::run(at.program, &at.folder, &words.iter().map(String::as_str).collect::<Vec<_>>())?;
        if made.code != Some(0) {
            return Ok(Outcome::Broken(format!("no model: {}", made.said)));
        }
        // Trained under any settings; prompts may be long where the model has room for them.
        let mut config = kills::config(at, "uniform")?;
        if shape[4].1 == 256 && chance.below(2) == 0 {
            let digits = "0123456789".repeat(1 + chance.below(20));
            config = config
                .replace("[[tasks]]\n", &format!("[[tasks]]\ntemplate = \"{digits}+{{{{ question }}}}\"\n"));
        }
        write(&at.folder.join("run.toml"), config)?;
        let mut settings = vec![
            "model.use=\"./model\"".to_owned(),
            format!("model.threads={}", chance.of_these(&[1, 2, 4])),
            format!("model.rows={}", chance.of_these(&[8, 64, 256, 1024])),
            format!("run.groups={}", chance.of_these(&[2, 8, 32])),
            format!("run.rollouts={}", chance.of_these(&[2, 8, 32])),
            format!("sampling.max_tokens={}", chance.of_these(&[4, 8, 16])),
            format!("update.{}", chance.of_these(&MINI_BATCHES)),
            format!("evaluation.rollouts={}", chance.of_these(&[1, 2, 16])),
            "run.steps=3".to_owned(),
        ];
        for (one_in, setting) in [
            (3, "model.dtype=\"bf16\"".to_owned()),
            (3, "model.lora={ rank = 4, alpha = 8.0 }".to_owned()),
            (3, "update.recompute=true".to_owned()),
            (3, "run.lag=1".to_owned()),
            (2, format!("update.micro_batch_tokens={}", chance.of_these(&[64, 512, 4096]))),
        ] {
            if chance.below(one_in) == 0 {
                settings.push(setting);
            }
        }
        let mut words = vec!["train", "run.toml"];
        for setting in &settings {
            words.extend(["-o", setting.as_str()]);
        }
        let told = settings.join(" ");
        let said = said(at.program, &at.folder, &words)?;
        words.extend(["--out", "out"]);
        let (ended, took) = watched(at.program, &at.folder, &words)?;
        if let Some(fault) = ended.fault() {
            return Ok(Outcome::Broken(format!("{told}: {fault}")));
        }
        if ended.code != Some(0) {
            return Ok(Outcome::Broken(format!("{told}: {}", ended.said)));
        }
        let share = took / said;
        Ok(if share > OVER {
            Outcome::Broken(format!("{told}: it took {took:.1} MiB, and {said:.1} were said"))
        } else {
            // How far apart they are: of a model that is nothing beside the program, most of it is the program.
            let kind = if share > 1.0 {
                "a little more"
            } else if share > 0.5 {
                "as said"
            } else {
                "less than half"
            };
            Outcome::Kept(kind.to_owned())
        })
    }
}

/// MiB that `--dry-run` says.
fn said(program: &Path, folder: &Path, words: &[&str]) -> Result<f64> {
    let shown = Command::new(program).args(words).arg("--dry-run").current_dir(folder).output();
    let shown = shown.map_err(|e| Error::new(format!("no run: {e}")))?;
    let text = String::from_utf8_lossy(&shown.stdout);
    let size = text.lines().find_map(|line| line.strip_prefix("memory ")?.trim().strip_prefix("about "));
    let size = size.and_then(|size| size.split_once(' '));
    let number = size.and_then(|(number, _)| number.parse::<f64>().ok());
    match (number, size) {
        (Some(number), Some((_, "MiB"))) => Ok(number),
        (Some(number), Some((_, "GiB"))) => Ok(number * 1024.0),
        _ => Err(Error::new(format!("no memory is said: {text}{}", String::from_utf8_lossy(&shown.stderr)))),
    }
}

/// Runs it to its end, and gives the most MiB that it had.
fn watched(program: &Path, folder: &Path, words: &[&str]) -> Result<(runs::Ended, f64)> {
    let child = runs::started(Command::new(program), folder, words)?;
    let process = child.id().to_string();
    let watching = std::thread::spawn(move || {
        let mut most = 0;
        while let Some(kib) = memory_of(&process) {
            most = most.max(kib);
            std::thread::sleep(Duration::from_millis(2));
        }
        most
    });
    let ended = runs::ended(child)?;
    Ok((ended, watching.join().unwrap_or(0) as f64 / 1024.0))
}
