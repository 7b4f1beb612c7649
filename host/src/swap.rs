//! Another policy for a run that goes on. It takes over between two steps, at a checkpoint: what the host
//! remembers stays, what the policy before remembered is gone, and the record says where.
//!
//! A swap is done once a checkpoint is of the new config. Stopped before that, it never was; stopped after,
//! the next process ends it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use allot_record::{Line, Swap, hex};
use sha2::{Digest as _, Sha256};

use crate::checkpoint::Checkpoints;
use crate::config;
use crate::config::train::TrainConfig;
use crate::keeper::Keeper;
use crate::training::{Prepared, Trained};
use crate::trouble::{Result, Trouble};
use crate::{folder, shipped};

/// The config to be in force, until it is.
const NEXT: &str = "next.toml";

/// Ends a swap that a stop cut short, or takes it back.
pub fn settle(run: &Path) -> Result<()> {
    let next = run.join(NEXT);
    let text = match std::fs::read(&next) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        Err(e) => return Err(Trouble::file("read", &next, &e)),
    };
    match Checkpoints::of(run, 1).latest()? {
        Some(manifest) if manifest.config == hex(&Sha256::digest(&text)) => replace(run, manifest.steps),
        _ => std::fs::remove_file(&next).map_err(|e| Trouble::file("remove", &next, &e)),
    }
}

/// The config of a run with another policy, or with other settings of the same one.
pub fn config(kept: &TrainConfig, policy: Option<&str>, typed: &[String]) -> Result<TrainConfig> {
    let mut config = kept.clone();
    if let Some(policy) = policy {
        config.policy.become_other(policy);
        // The path may hold another component by now, and shall: it was named anew.
        config.policy.sha256 = None;
        config.policy.settle()?;
    }
    config.policy.settings.extend(config::typed(typed)?);
    Ok(config)
}

/// Lets the policy at hand take over a world that was put back from a checkpoint of another.
pub fn done(
    run: &Path,
    prepared: &Prepared<'_>,
    world: &mut Trained<'_>,
    keeper: &mut Keeper<'_, '_>,
) -> Result<()> {
    let next = run.join(NEXT);
    let text = folder::text(&prepared.config)?;
    std::fs::write(&next, text).map_err(|e| Trouble::file("write", &next, &e))?;
    world.state = prepared.first_state().to_vec();
    let swap = Swap {
        step: world.steps,
        policy: shipped::policy_stamp(prepared.policy),
        settings: prepared.run.settings.clone(),
        caps: shipped::stamp(prepared.config.policy.caps.caps()),
        state: hex(&world.state),
    };
    world.record.write(&Line::Swap(Box::new(swap)))?;
    keeper.save(world)?;
    replace(run, world.steps)
}

/// Puts the new config in force. The one before is kept beside it.
fn replace(run: &Path, steps: u32) -> Result<()> {
    let (next, place) = (run.join(NEXT), run.join("resolved.toml"));
    let before = before(run, steps);
    std::fs::copy(&place, &before).map_err(|e| Trouble::file("write", &before, &e))?;
    std::fs::rename(&next, &place).map_err(|e| Trouble::file("write", &place, &e))
}

/// Where the config is kept that was in force until so many steps were done.
fn before(run: &Path, steps: u32) -> PathBuf {
    (0..1000)
        .map(|n| if n == 0 { String::new() } else { format!("-{n}") })
        .map(|again| run.join(format!("until-step-{steps:06}{again}.toml")))
        .find(|path| !path.exists())
        .unwrap_or_else(|| run.join("until.toml"))
}
