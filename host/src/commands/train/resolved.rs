//! The config of a run to begin or resume, and its policy's component.

use std::path::Path;

use allot_base::{Error, Result};
use allot_config::train::TrainConfig;
use allot_models::hub;
use allot_sandbox::{Policy, Sandbox};

use super::Train;
use crate::screen::Screen;
use crate::swap::{self, Change};
use crate::{components, opened, policy_loader, run_dir};

/// A run's config.
pub struct Resolved {
    /// The config.
    pub config: TrainConfig,
    /// Its text in the run's folder.
    pub text: String,
    /// The change of a run that resumes, if any.
    pub change: Option<Change>,
}

impl Resolved {
    /// Returns the config of the command's run.
    pub fn of(command: &Train, screen: &mut Screen<'_>) -> Result<Self> {
        let Some(run) = &command.resume else {
            let path = command.config.as_deref().ok_or_else(|| Error::new("no config was given"))?;
            let mut config = given(command, path, screen)?;
            config.pin(hub::pinned_model, hub::pinned_files)?;
            return Ok(Self { text: run_dir::text(&config)?, config, change: None });
        };
        let path = run.join("resolved.toml");
        let text = allot_config::read(&path).map_err(|t| t.hint("--resume takes the folder of a run"))?;
        let kept = TrainConfig::parse(&text, &path.display().to_string())?;
        if let Some(path) = &command.config {
            let mut given = given(command, path, screen)?;
            given.pin_as(&kept);
            if run_dir::text(&given)? != run_dir::text(&kept)? {
                let what =
                    format!("the run in `{}` has a different config from the one given", run.display());
                return Err(Error::new(what).hint("leave the config out: a run continues with its own"));
            }
        } else if command.policy.is_some() || !command.set.is_empty() {
            let named = command.policy.as_deref();
            let config = swap::config(&kept, named, &command.set)?;
            let change = Some(Change::of(&text, named));
            return Ok(Self { text: run_dir::text(&config)?, config, change });
        }
        Ok(Self { config: kept, text, change: None })
    }

    /// Fails if a finished run was to be changed.
    pub fn refuse_change(&self) -> Result<()> {
        if !self.change.as_ref().is_some_and(|change| change.of_config(&self.text)) {
            return Ok(());
        }
        let error = Error::new("the run is over, so another policy cannot take it over");
        Err(error.hint("begin a run with that policy, and compare both: allot report RUN RUN"))
    }

    /// Returns the component of the run's policy, and the loaded policy.
    pub fn policy(
        &self,
        command: &Train,
        sandbox: &Sandbox,
        screen: &mut Screen<'_>,
    ) -> Result<(Vec<u8>, Policy)> {
        let policy = &self.config.policy;
        // The component at a path given on the command line may have changed; the new one is used.
        let named = self.change.as_ref().is_some_and(Change::named);
        let demanded = policy.sha256.as_deref().filter(|_| !named);
        let own = command.resume.as_deref().filter(|_| !named);
        let component = match own.filter(|run| components::in_charge(run).is_some()) {
            Some(run) => components::of(Some(run), &policy.source, screen)?,
            None => components::demanded(own.or(command.out.as_deref()), policy, screen)?,
        };
        let policy = policy_loader::of_bytes(sandbox, &component, demanded, &policy.source, screen)?;
        Ok((component, policy))
    }

    /// Checks the change of a run under this policy, and drops a change without effect.
    pub fn keep_a_change(&mut self, run: &Path, policy: &Policy, screen: &mut Screen<'_>) -> Result<()> {
        let Some(change) = &self.change else { return Ok(()) };
        let demanded = &mut self.config.policy.sha256;
        *demanded = demanded.take().filter(|sha256| sha256 == policy.sha256());
        self.text = run_dir::text(&self.config)?;
        if !change.is_one(run, &self.text, policy)? {
            let name = &policy.description().name;
            screen.tell(format_args!("the run already uses policy `{name}` with these settings"));
            self.change = None;
        }
        Ok(())
    }
}

/// Returns a config with overrides from the command line.
fn given(command: &Train, path: &Path, screen: &mut Screen<'_>) -> Result<TrainConfig> {
    let mut config = TrainConfig::of(&opened::config(path, &command.overrides, screen)?)?;
    if let Some(policy) = &command.policy {
        config.policy.replace(policy, &command.overrides)?;
    }
    if let Some(seed) = command.seed {
        config.run.seed = seed;
    }
    config.policy.settings.extend(allot_config::typed(&command.set, "--set ")?);
    config.settle()?;
    Ok(config)
}
