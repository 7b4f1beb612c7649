//! `allot simulate`: runs a policy without a model, in the coin-flip world or on a bank of rollouts.

use std::fs::File;
use std::path::{Path, PathBuf};

use allot_allocation::{Plan, View};
use allot_bank::Draws;
use allot_base::{Error, Exit, Result, lasting};
use allot_config::simulate::{BankConfig, SimulateConfig};
use allot_engine::Coin;
use allot_loop::{Clipped, Scores};
use allot_record::{End, StepEnd};
use allot_report::Costs;
use allot_sandbox::{LogLine, Policy, Sandbox};
use clap::Args;

use crate::callbacks::{Callbacks, CameIn, Go};
use crate::progress::Clips;
use crate::run::Rest;
use crate::screen::Screen;
use crate::shadow::Decider;
use crate::simulation::{Simulated, SimulatedRun};
use crate::stop::Stop;
use crate::summary::{Totals, percent};
use crate::until::{Means, Until};
use crate::world::World;
use crate::{components, interrupt, opened, policy_loader, run, run_dir, shadow};
use allot_outputs::log::Log;

/// Run a policy without a model, in seconds: in the coin-flip world, or on a bank of rollouts
#[derive(Debug, Args)]
pub struct Simulate {
    /// The run's config: a file, or the name of one that ships. Or a policy, for the shipped config `simulate`: a
    /// component's path, or a draft
    config: PathBuf,
    /// Override a key of the config, as KEY=VALUE; repeatable
    #[arg(short = 'o', long = "override", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Draw rollouts from this bank, made by `allot bank`, instead of the coin-flip world
    #[arg(long, value_name = "FILE")]
    bank: Option<PathBuf>,
    /// Use this policy instead of the config's: a name, a component's path, oci://…, or a draft (a path to
    /// `policy.py`, or to its folder)
    #[arg(long)]
    policy: Option<String>,
    /// Set one of the policy's settings, as NAME=VALUE; repeatable
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Call another policy with the same views, and log where its plans differ; repeatable
    #[arg(long = "shadow", value_name = "POLICY[,NAME=VALUE…]")]
    shadows: Vec<String>,
    /// Use this seed instead of the config's
    #[arg(long)]
    seed: Option<u64>,
    /// The folder for the record [default: a new one under runs/]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Write no record
    #[arg(long, conflicts_with = "out")]
    no_record: bool,
    /// The summary as JSON
    #[arg(long)]
    json: bool,
    /// End when standard input does, for processes that start this one
    #[arg(long, hide = true)]
    tied: bool,
    #[command(flatten)]
    until: Until,
}

impl Simulate {
    /// Returns whether the command has a policy in place of a config.
    fn gives_policy(&self) -> bool {
        policy_loader::is_draft(&self.config.to_string_lossy())
            || self.config.extension().is_some_and(|end| end == "wasm")
    }
}

/// Runs the simulation.
pub fn run(command: &Simulate, screen: &mut Screen<'_>) -> Result<Exit> {
    if command.tied {
        interrupt::end_with_input();
    }
    let held = command.out.as_deref().map_or(Ok(None), run_dir::lock)?;
    let config = resolve(command, screen)?;
    let sandbox = policy_loader::sandbox(config.policy.limits.caps())?;
    let (source, demanded) = (&config.policy.source, config.policy.sha256.as_deref());
    // A hash in the config is a component's, never a draft's.
    let (component, policy) = if demanded.is_none() && policy_loader::is_draft(source) {
        (None, policy_loader::draft(source, sandbox.caps())?)
    } else {
        let component = components::demanded(command.out.as_deref(), &config.policy, screen)?;
        let policy = policy_loader::of_bytes(&sandbox, &component, demanded, source, screen)?;
        (Some(component), policy)
    };
    let component = component.as_deref();
    let loaded = Loaded { config: &config, sandbox: &sandbox, component, policy: &policy, held };
    match config.bank {
        None => play::<Coin>(command, loaded, screen),
        Some(_) => play::<Draws>(command, loaded, screen),
    }
}

/// The parts of a run that do not depend on the world.
struct Loaded<'a> {
    config: &'a SimulateConfig,
    sandbox: &'a Sandbox,
    /// None for a draft.
    component: Option<&'a [u8]>,
    policy: &'a Policy,
    /// The lock of its folder, if the folder already exists.
    held: Option<File>,
}

/// Runs the simulation in a world of this kind.
fn play<E: Simulated>(command: &Simulate, loaded: Loaded<'_>, screen: &mut Screen<'_>) -> Result<Exit> {
    let Loaded { config, sandbox, component, policy, held } = loaded;
    let (mut simulation, head) = SimulatedRun::<E, _>::new(config, policy, run_dir::tell)?;
    simulation.world.policy.shadows =
        shadow::all(&command.shadows, sandbox, policy, &simulation.world.run.of.run, screen)?;
    // The policy's own name, because all drafts have the same file name.
    let named = if command.gives_policy() { Path::new(&policy.description().name) } else { &command.config };
    let folder = if command.no_record { None } else { Some(run_dir::new(command.out.as_deref(), named)?) };
    let _held = match (held, &folder) {
        (None, Some(folder)) => run_dir::lock(folder)?,
        (held, _) => held,
    };
    if let Some(folder) = &folder {
        simulation.keep(folder, head)?;
        run_dir::resolved(config, &folder.join("resolved.toml")).inspect_err(|_| {
            // A run that did not start leaves no record.
            let _ = std::fs::remove_file(folder.join("record.jsonl"));
        })?;
        component.map_or(Ok(()), |component| components::keep(folder, component))?;
        simulation.world.policy.keep(folder, (0, 0))?;
    }
    let mut log = folder.as_ref().map(|folder| Log::create(&folder.join("log.jsonl"))).transpose()?;
    log.as_mut().map_or(Ok(()), |log| log.write(None, &simulation.begun))?;

    let (description, sha256, seed) = (policy.description(), &policy.sha256()[..12], config.run.seed);
    let draft = if policy.is_draft() { ", a draft" } else { "" };
    let (name, version) = (&description.name, &description.version);
    screen.tell(format_args!("policy {name} {version}{draft}, sha256 {sha256}, seed {seed}"));
    simulation.world.engine.before().into_iter().for_each(|words| screen.tell(words));
    let runtime = allot_remote::runtime()?;
    let totals = Totals::new(simulation.world.engine.accuracy());
    let means = Means { budget: config.budget, steps: config.run.steps };
    let until = command.until;
    let mut shown = Shown { totals, means, until, clips: Clips::default(), log, screen };
    let world = &mut simulation.world;
    let rest = runtime.block_on(run::run(world, &mut shown));
    let Shown { totals, screen, .. } = shown;
    if let (Ok(_), Some(folder)) = (&rest, &folder) {
        // A comparison relies on the record from now on, and does not check again.
        world.record.sync()?;
        lasting(folder)?;
    }
    world.policy.shadows.iter().for_each(|shadow| screen.tell(shadow.summary()));
    match rest {
        Ok(Rest::Over(end)) => {
            show(command, &totals, &end, world, screen);
            if let Some(folder) = &folder {
                screen.tell(format_args!("record in {}", folder.join("record.jsonl").display()));
            }
            Ok(Exit::Good)
        }
        Ok(Rest::Paused) => Ok(Exit::Bad),
        Err(stop) => {
            let draft = policy.is_draft().then_some(config.policy.source.as_str());
            Err(run_dir::stopped(&stop, folder.as_deref(), draft))
        }
    }
}

/// Shows a run's result.
fn show<E: Simulated>(
    command: &Simulate,
    totals: &Totals,
    end: &End,
    world: &World<E, E::Judge, Decider<'_>>,
    screen: &mut Screen<'_>,
) {
    let (engine, policy, seed) = (&world.engine, world.policy.live, world.run.of.seed);
    if command.json {
        let more = engine.json(totals, end);
        let mut json = totals.json(end, &policy.description().name, policy.sha256(), seed, more);
        if policy.is_draft() {
            json["draft"] = true.into();
        }
        screen.say(json);
    } else {
        totals.show(end, engine.rows(totals, end), screen);
    }
    engine.after(totals).into_iter().for_each(|words| screen.tell(words));
    if policy.is_draft() {
        screen.tell(
            "a draft decided; for `allot train` and `allot compare` build the component: `allot build FOLDER`",
        );
    }
}

/// The screen of a simulated run.
struct Shown<'a, 's> {
    totals: Totals,
    means: Means,
    until: Until,
    clips: Clips,
    log: Option<Log>,
    screen: &'a mut Screen<'s>,
}

impl<E: Simulated, R, P> Callbacks<E, R, P> for Shown<'_, '_> {
    async fn evaluate(&mut self, world: &mut World<E, R, P>) -> std::result::Result<Scores, Stop> {
        ().evaluate(world).await
    }

    fn clipped(&mut self, clipped: &Clipped) {
        if let Some(words) = self.clips.add(clipped) {
            self.screen.tell(words);
        }
    }

    fn decided(&mut self, view: &View, plan: &Plan, said: &[LogLine]) -> std::result::Result<(), Stop> {
        self.totals.decided(view, plan);
        self.log
            .as_mut()
            .map_or(Ok(()), |log| log.write(Some((view.step, view.round)), said).map_err(Stop::Outputs))
    }

    fn sampled(&mut self, came: CameIn<'_, E::Answer>) -> std::result::Result<(), Stop> {
        self.totals.sampled(came.outcomes);
        Ok(())
    }

    fn after(&mut self, world: &mut World<E, R, P>, step: &StepEnd) -> std::result::Result<Go, Stop> {
        self.totals.add(step);
        if let Some(accuracy) = step.accuracy {
            let budget = self.means.budget.rollouts.map(|most| format!("/{most}")).unwrap_or_default();
            self.screen.tell(format_args!(
                "step {:>5}/{}  rollouts {:>8}{budget}{}  effective {:>5.1} %",
                step.step + 1,
                self.means.steps,
                step.spent.run_rollouts,
                world.engine.progress(accuracy),
                percent(step.effective, step.trained)
            ));
        }
        self.totals.warning().into_iter().for_each(|words| self.screen.tell(words));
        let costs = Costs { spent: step.spent, compute: step.compute, seconds: None };
        let pauses = self.until.is_met(&self.means, step.step + 1, &costs, step.accuracy);
        Ok(if pauses { Go::Pause } else { Go::On })
    }
}

/// Returns the config with overrides from the command line.
fn resolve(command: &Simulate, screen: &mut Screen<'_>) -> Result<SimulateConfig> {
    // A policy in place of a config runs under the shipped config `simulate`.
    let given = command.config.to_string_lossy();
    let policy = command.gives_policy();
    let path = if policy { Path::new("simulate") } else { &command.config };
    let mut config = SimulateConfig::of(&opened::config(path, &command.overrides, screen)?)?;
    if policy && let Some(other) = &command.policy {
        let what = format!("`{given}` and `--policy {other}` are two policies");
        return Err(Error::new(what).hint("give a config, or leave out --policy"));
    }
    if let Some(policy) = command.policy.as_deref().or(policy.then_some(&*given)) {
        config.policy.replace(policy, &command.overrides)?;
    }
    if let Some(seed) = command.seed {
        config.run.seed = seed;
    }
    if let Some(file) = &command.bank {
        config.bank = Some(BankConfig::of(file));
        config.check_bank(&path.display().to_string())?;
    }
    config.policy.settings.extend(allot_config::typed(&command.set, "--set ")?);
    Ok(config)
}
