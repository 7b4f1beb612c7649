//! `allot train`: trains a language model under a policy.

mod dry_run;
mod resolved;

use std::fs::File;
use std::path::{Path, PathBuf};

use allot_base::{Error, Exit, Result, count};
use allot_loop::{At, Scores};
use allot_record::Record;
use allot_sandbox::sha256;
use clap::Args;

use self::resolved::Resolved;
use crate::checkpoint;
use crate::evaluation::Evaluation;
use crate::prepared::Prepared;
use crate::progress::{Done, Progress};
use crate::recorder::{RunIdentity, RunRecorder};
use crate::run::{self, Rest};
use crate::screen::Screen;
use crate::stop::Stop;
use crate::swap::{self, Change};
use crate::training::Trained;
use crate::until::Until;
use crate::{components, interrupt, policy_loader, resume, run_dir, shadow};

/// Train a language model under a policy
#[derive(Debug, Args)]
pub struct Train {
    /// The run's config: a file, or a shipped config's name
    #[arg(required_unless_present = "resume")]
    config: Option<PathBuf>,
    /// Override a key of the config, as KEY=VALUE; repeatable
    #[arg(short = 'o', long = "override", value_name = "KEY=VALUE", conflicts_with = "resume")]
    overrides: Vec<String>,
    /// Use this policy instead of the config's: a name, a component's path, or oci://…; with --resume it
    /// takes over
    #[arg(long)]
    policy: Option<String>,
    /// Set one of the policy's settings, as NAME=VALUE; repeatable
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Call another policy with the same views, and log where its plans differ; repeatable
    #[arg(long = "shadow", value_name = "POLICY[,NAME=VALUE…]")]
    shadows: Vec<String>,
    /// Use this seed instead of the config's
    #[arg(long, conflicts_with = "resume")]
    seed: Option<u64>,
    /// The folder for the run [default: a new one under runs/]
    #[arg(long, conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Resume the run in this folder from its last checkpoint
    #[arg(long, value_name = "RUN")]
    resume: Option<PathBuf>,
    /// Check everything but the weights, say what would run, and stop
    #[arg(long, conflicts_with = "resume")]
    dry_run: bool,
    /// The summary as JSON
    #[arg(long)]
    json: bool,
    /// With --resume: finish the step in which the run stopped, then pause
    #[arg(long, requires = "resume")]
    finish_step: bool,
    #[command(flatten)]
    until: Until,
    /// Pause when standard input ends, for processes that start this one
    #[arg(long, hide = true)]
    tied: bool,
}

/// Trains a model.
pub fn run(command: &Train, screen: &mut Screen<'_>) -> Result<Exit> {
    // Locked before anything is read, so that no other process can start in between.
    let held = match command.resume.as_deref().or(command.out.as_deref()) {
        Some(folder) if !command.dry_run => run_dir::lock(folder)?,
        _ => None,
    };
    if let Some(run) = &command.resume {
        swap::settle(run)?;
    }
    let mut resolved = Resolved::of(command, screen)?;
    if let Some(run) = &command.resume
        && let Some(over) = resume::over(run, &resolved.config)?
    {
        resolved.refuse_change()?;
        over.show(run, command.json, screen);
        return Ok(Exit::Good);
    }
    refuse_existing(command.out.as_deref())?;
    let sandbox = policy_loader::sandbox(resolved.config.policy.limits.caps())?;
    let (component, policy) = resolved.policy(command, &sandbox, screen)?;
    if let Some(run) = &command.resume {
        resolved.keep_a_change(run, &policy, screen)?;
    }
    let Resolved { config, mut text, change } = resolved;
    policy_loader::compile_graders(&config.reward, screen);
    let prepared = Prepared::new(config, &policy)?;
    if command.resume.is_none() {
        // With the date, if its prompts contain one.
        text = run_dir::text(&prepared.config)?;
    }
    let shadows = shadow::all(&command.shadows, &sandbox, &policy, &prepared.run, screen)?;
    if command.resume.is_none() {
        prepared.notes().for_each(|note| screen.tell(format_args!("note: {note}")));
    }
    // A run on a cluster may be tried on a smaller machine.
    let room = prepared.has_room();
    if command.dry_run {
        dry_run::show(&prepared, screen);
        if let Err(error) = room {
            screen.tell(format_args!("note: {}", error.what));
        }
        return Ok(Exit::Good);
    }
    room?;
    let stop = interrupt::listen("stopping: samples are kept; press Ctrl-C again to discard them");
    if command.tied {
        interrupt::tie(&stop);
    }
    announce(&prepared, screen);
    let (mut world, evaluation, fingerprint) = prepared.build(run_dir::tell)?;
    world.policy.shadows = shadows;
    world.interrupt = stop;
    // After all steps that can fail, so that a failed start leaves no folder.
    let (folder, _held) = folder(command, &prepared, held)?;
    let place =
        RunIdentity { folder: &folder, config: sha256(&text), model: fingerprint, component: &component };
    let start = Start { command, prepared: &prepared, place, change: change.as_ref() };
    start.go(world, evaluation, screen)
}

/// Fails if the folder already has a run.
fn refuse_existing(out: Option<&Path>) -> Result<()> {
    let Some(out) = out.filter(|out| out.join("resolved.toml").exists()) else { return Ok(()) };
    let out = out.display();
    let error = Error::new(format!("there is already a run in `{out}`"));
    Err(error.hint(format!("give another folder, or continue it: allot train --resume {out}")))
}

/// Returns the run's folder, locked. A new run's folder gets its config.
fn folder(command: &Train, prepared: &Prepared<'_>, held: Option<File>) -> Result<(PathBuf, Option<File>)> {
    let lock = |folder: &Path| held.map_or_else(|| run_dir::lock(folder), |held| Ok(Some(held)));
    if let Some(run) = &command.resume {
        return Ok((run.clone(), lock(run)?));
    }
    let named = command.config.as_deref().unwrap_or(Path::new("run"));
    let folder = run_dir::new(command.out.as_deref(), named)?;
    let held = lock(&folder)?;
    // Nothing is overwritten: if two processes start in one folder, only the one with the lock succeeds.
    run_dir::resolved(&prepared.config, &folder.join("resolved.toml"))?;
    Ok((folder, held))
}

/// Prints which policy trains which model.
fn announce(prepared: &Prepared<'_>, screen: &mut Screen<'_>) {
    let (policy, problems) = (prepared.policy, &prepared.problems);
    screen.tell(format_args!(
        "policy {} {}, sha256 {}, seed {}, {} to train on, {} held out",
        policy.description().name,
        policy.description().version,
        &policy.sha256()[..12],
        prepared.config.run.seed,
        count(problems.train as u64, "problem"),
        problems.all.len() - problems.train,
    ));
    prepared.log.iter().for_each(run_dir::tell);
}

/// A run that is about to begin, or to resume from its last checkpoint.
struct Start<'a> {
    command: &'a Train,
    prepared: &'a Prepared<'a>,
    place: RunIdentity<'a>,
    change: Option<&'a Change>,
}

impl<'a> Start<'a> {
    fn go(&self, mut world: Trained<'a>, evaluation: Evaluation, screen: &'a mut Screen<'_>) -> Result<Exit> {
        let Self { command, prepared, place, change } = self;
        world.reward.keep(place.folder, run_dir::note);
        let runtime = allot_remote::runtime()?;
        let found = match &command.resume {
            Some(run) => resume::last(run, place, prepared, *change, screen)?,
            None => None,
        };
        if found.is_none() && change.is_some() {
            let error = Error::new("the run has no checkpoint yet at which another policy could take over");
            return Err(error.hint("continue it without --policy and --set, or begin a run with that policy"));
        }
        let mut recorder = if let Some(checkpoint) = found {
            self.resumed(checkpoint, &mut world, evaluation, screen)?
        } else {
            let mut recorder = self.fresh(evaluation, screen)?;
            let scores = match runtime.block_on(run::evaluated(&mut world, &mut recorder)) {
                Ok(scores) => scores,
                Err(Stop::Interrupted) => {
                    let shown = place.folder.display();
                    let words =
                        format!("paused before the first step; to continue: allot train --resume {shown}");
                    recorder.progress.tell(words);
                    return Ok(Exit::Bad);
                }
                Err(stop) => return Err(run_dir::stopped(&stop, Some(place.folder), None)),
            };
            self.begun(&mut world, &mut recorder, scores)?;
            recorder
        };
        recorder.until = command.until;
        let rest = if recorder.is_there(&world) {
            Ok(Rest::Paused)
        } else {
            runtime.block_on(run::run(&mut world, &mut recorder))
        };
        for shadow in &world.policy.shadows {
            recorder.progress.tell(shadow.summary());
        }
        self.rested(rest, &world, recorder)
    }

    /// Restores a run from its checkpoint. Another policy may take over.
    fn resumed<'s>(
        &self,
        checkpoint: PathBuf,
        world: &mut Trained<'a>,
        mut evaluation: Evaluation,
        screen: &'a mut Screen<'s>,
    ) -> Result<RunRecorder<'a, 's>> {
        let Self { command, prepared, place, change } = self;
        let (steps, budget) = (prepared.config.run.steps, prepared.config.budget);
        let mut state = checkpoint::state(&checkpoint)?;
        if change.is_some() {
            swap::has_room(&state, steps)?;
        }
        shadow::check(place.folder, &state.shadows)?;
        evaluation.restore(state.evaluation);
        let run = &state.run;
        screen.tell(format_args!("goes on {} of {steps}", place_of(run)));
        let done = Done { steps: run.finished(), spent: run.costs().0, measured: run.measured };
        let (accuracy, effective) = (state.totals.last, state.totals.effective);
        let progress = Progress::new(screen, steps, budget, done, accuracy, effective);
        let at = run.call();
        let kept = (checkpoint.clone(), &mut state);
        let (mut recorder, record) = RunRecorder::resumed(prepared, evaluation, place, progress, kept)?;
        prepared.restore(world, &checkpoint, state)?;
        recorder.until_next_step = command.finish_step;
        world.record = record;
        world.policy.keep(place.folder, at)?;
        if let Some(change) = change {
            components::keep(place.folder, place.component)?;
            swap::done(place.folder, change, prepared, world, &mut recorder)?;
            let (name, step) = (&prepared.policy.description().name, world.run.state.steps);
            recorder.progress.tell(format_args!("policy `{name}` takes over from step {step} on"));
        }
        Ok(recorder)
    }

    /// Prepares the folder of a run before its first evaluation.
    fn fresh<'s>(&self, evaluation: Evaluation, screen: &'a mut Screen<'s>) -> Result<RunRecorder<'a, 's>> {
        let Self { command, prepared, place, .. } = self;
        let config = &prepared.config;
        if command.resume.is_some() {
            screen.tell("it has no checkpoint yet, so it starts over");
            resume::clear(place.folder)?;
        }
        components::keep(place.folder, place.component)?;
        let progress = Progress::new(screen, config.run.steps, config.budget, Done::default(), 0.0, 0);
        let recorder = RunRecorder::fresh(prepared, evaluation, place, progress)?;
        recorder.progress.screen.draw("evaluating at the start");
        Ok(recorder)
    }

    /// Begins the record of a run after its first evaluation.
    fn begun(
        &self,
        world: &mut Trained<'a>,
        recorder: &mut RunRecorder<'_, '_>,
        scores: Scores,
    ) -> Result<()> {
        let place = &self.place;
        world.run.state.scored = Some((0, scores.clone()));
        recorder.started(world, &scores)?;
        world.record = Record::create(&place.folder.join("record.jsonl"))?;
        world.record.begin(Box::new(self.prepared.head(world, &place.model, &scores)))?;
        world.policy.keep(place.folder, (0, 0))
    }

    /// Prints how a run stopped, and how to resume it.
    fn rested(
        &self,
        rest: std::result::Result<Rest, Stop>,
        world: &Trained<'a>,
        mut recorder: RunRecorder<'a, '_>,
    ) -> Result<Exit> {
        let (folder, policy) = (self.place.folder, self.prepared.policy);
        let shown = folder.display();
        let again = format!("allot train --resume {shown}");
        match rest {
            Ok(Rest::Over(end)) => {
                recorder.progress.tell(format_args!("the run is in {shown}"));
                let finished = recorder.finish(world);
                let (totals, screen) =
                    finished.map_err(|stop| run_dir::stopped(&stop, Some(folder), None))?;
                if self.command.json {
                    let (name, sha256) = (&policy.description().name, policy.sha256());
                    let (seed, more) = (self.prepared.config.run.seed, totals.accuracies_json(&end));
                    screen.say(totals.json(&end, name, sha256, seed, more));
                } else {
                    totals.show(&end, totals.accuracies(&end), screen);
                }
                Ok(Exit::Good)
            }
            Ok(Rest::Paused) => {
                let place = place_of(&world.run.state);
                recorder.progress.tell(format_args!("paused {place}; to continue: {again}"));
                Ok(Exit::Bad)
            }
            Err(stop) => {
                recorder.progress.screen.draw("");
                let saved = recorder.saved.as_ref().filter(|saved| saved.exists()).map(|saved| {
                    let last = format!("the last good checkpoint is {}", saved.display());
                    if stop.may_pass() { format!("{last}; to resume from it: {again}") } else { last }
                });
                Err(run_dir::stopped(&stop, Some(folder), None).note(saved))
            }
        }
    }
}

/// Returns where a run is, in words.
fn place_of(run: &allot_loop::State) -> String {
    match run.at {
        At::Asking(_) | At::Sampling(_) | At::Updating(..) => format!("within step {}", run.steps + 1),
        At::Between | At::Evaluating(_) | At::Ended(_) | At::Closing | At::Over => {
            format!("after step {}", run.finished())
        }
    }
}
