//! `allot train`: a language model, trained under a policy.

use std::path::{Path, PathBuf};

use allot_config::train::{Setting, TrainConfig};
use allot_engine::cpu::has_bf16;
use allot_engine::model::Precision;
use allot_engine::tensors::DeviceName;
use allot_error::{Error, Exit, Result, count};
use allot_loop::At;
use allot_outputs::rollouts;
use allot_record::Record;
use allot_sandbox::sha256;
use clap::Args;

use crate::checkpoint;
use crate::memory::{PROGRAM, size};
use crate::progress::{Done, Progress};
use crate::recorder::{RunIdentity, RunRecorder};
use crate::run::{self, Rest};
use crate::screen::Screen;
use crate::stop::Stop;
use crate::swap::Change;
use crate::training::{Prepared, Trained};
use crate::until::Until;
use crate::{components, interrupt, opened, policy_loader, resume, run_dir, shadow, swap};

/// Train a language model under a policy
#[derive(Debug, Args)]
pub struct Train {
    /// The run's config: a file, or the name of one that ships
    #[arg(required_unless_present = "resume")]
    config: Option<PathBuf>,
    /// Another value than the config's, for any key, as KEY=VALUE; may be given many times
    #[arg(short = 'o', long = "override", value_name = "KEY=VALUE", conflicts_with = "resume")]
    overrides: Vec<String>,
    /// Another policy than the config's: a name, a component's path, or oci://…; with --resume it takes over
    #[arg(long)]
    policy: Option<String>,
    /// A setting of the policy, as NAME=VALUE; may be given many times
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Call another policy with the same views, and log where its plans differ; may be given many times
    #[arg(long = "shadow", value_name = "POLICY[,NAME=VALUE…]")]
    shadows: Vec<String>,
    /// Another seed than the config's
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
    /// With --resume: end the step that the run stopped in, and pause
    #[arg(long, requires = "resume")]
    finish_step: bool,
    #[command(flatten)]
    until: Until,
    /// Pause when standard input ends, for processes that start this one
    #[arg(long, hide = true)]
    tied: bool,
}

/// Runs it.
pub fn run(command: &Train, screen: &mut Screen<'_>) -> Result<Exit> {
    // Before anything is looked at, or another process might be at work in between.
    let held = match command.resume.as_deref().or(command.out.as_deref()) {
        Some(folder) if !command.dry_run => run_dir::lock(folder)?,
        _ => None,
    };
    if let Some(run) = &command.resume {
        swap::settle(run)?;
    }
    let Resolved { mut config, mut text, mut change } = resolve(command, screen)?;
    if let Some(run) = &command.resume
        && let Some(over) = resume::over(run, &config)?
    {
        if change.is_some_and(|change| change.of_config(&text)) {
            let error = Error::new("a run that is over has nothing left for another policy");
            return Err(error.hint("begin a run with that policy, and report both: allot report RUN RUN"));
        }
        over.show(run, command.json, screen);
        return Ok(Exit::Good);
    }
    if let Some(out) = command.out.as_deref().filter(|out| out.join("resolved.toml").exists()) {
        let out = out.display();
        let error = Error::new(format!("there is a run in `{out}` already"));
        return Err(error.hint(format!("give another folder, or go on with it: allot train --resume {out}")));
    }
    let sandbox = policy_loader::sandbox(config.policy.caps.caps())?;
    // A path that was named anew may hold another component by now, and shall.
    let demanded = config.policy.sha256.as_deref().filter(|_| !change.as_ref().is_some_and(Change::named));
    let own = command.resume.as_deref().filter(|_| !change.as_ref().is_some_and(Change::named));
    let begun = own.filter(|run| components::in_charge(run).is_some());
    let component = match begun {
        Some(run) => components::of(Some(run), &config.policy.source, screen)?,
        None => components::demanded(own.or(command.out.as_deref()), &config.policy, screen)?,
    };
    let policy = policy_loader::of_bytes(&sandbox, &component, demanded, &config.policy.source, screen)?;
    if let (Some(run), Some(asked)) = (&command.resume, &change) {
        config.policy.sha256 = config.policy.sha256.filter(|sha256| sha256 == policy.sha256());
        text = run_dir::text(&config)?;
        if !asked.is_one(run, &text, &policy)? {
            let name = &policy.description().name;
            screen.tell(format_args!("policy `{name}` is in force already, with these settings"));
            change = None;
        }
    }
    policy_loader::compile_graders(&config.reward, screen);
    let prepared = Prepared::new(config, &policy)?;
    if command.resume.is_none() {
        // With the date, where its prompts have one.
        text = run_dir::text(&prepared.config)?;
    }
    let shadows = shadow::all(&command.shadows, &sandbox, &policy, &prepared.run, screen)?;
    if command.resume.is_none() {
        let notes = prepared.sampler.iter().flat_map(|sampler| &sampler.notes);
        prepared
            .problems
            .notes
            .iter()
            .chain(notes)
            .for_each(|note| screen.tell(format_args!("note: {note}")));
    }
    // A run on a cluster may be tried on a machine that is smaller.
    let room = prepared.has_room();
    if command.dry_run {
        show(&prepared, screen);
        if let Err(error) = room {
            screen.tell(format_args!("note: {}", error.what));
        }
        return Ok(Exit::Good);
    }
    room?;
    let stop = interrupt::listen("stopping: what is sampled is kept; again to stop at once, without");
    if command.tied {
        interrupt::tie(&stop);
    }
    let description = policy.description();
    screen.tell(format_args!(
        "policy {} {}, sha256 {}, seed {}, {} to train on, {} held out",
        description.name,
        description.version,
        &policy.sha256()[..12],
        prepared.config.run.seed,
        count(prepared.problems.train as u64, "problem"),
        prepared.problems.all.len() - prepared.problems.train,
    ));

    prepared.log.iter().for_each(run_dir::tell);
    let (mut world, evaluation, fingerprint) = prepared.build(run_dir::tell)?;
    world.policy.shadows = shadows;
    world.interrupt = stop;
    // After all that can fail, so that a failed start leaves no folder.
    let folder = match &command.resume {
        Some(run) => run.clone(),
        None => run_dir::new(command.out.as_deref(), command.config.as_deref().unwrap_or(Path::new("run")))?,
    };
    let _held = if held.is_some() { held } else { run_dir::lock(&folder)? };
    if command.resume.is_none() {
        // Nobody's run is written over; and of two that begin it at once, the one that has the folder does.
        run_dir::resolved(&prepared.config, &folder.join("resolved.toml"))?;
    }
    let place =
        RunIdentity { folder: &folder, config: sha256(&text), model: fingerprint, component: &component };
    go(command, &prepared, (world, evaluation), (&place, change.as_ref()), screen)
}

/// The run itself, from its start or from its last checkpoint.
fn go(
    command: &Train,
    prepared: &Prepared<'_>,
    (mut world, mut evaluation): (Trained<'_>, crate::evaluation::Evaluation),
    (place, change): (&RunIdentity<'_>, Option<&Change>),
    screen: &mut Screen<'_>,
) -> Result<Exit> {
    let config = &prepared.config;
    world.reward.keep(place.folder, run_dir::note);
    let runtime = allot_remote::runtime()?;
    let found = match &command.resume {
        Some(run) => resume::last(run, config, place, prepared, change, screen)?,
        None => None,
    };
    if found.is_none() && change.is_some() {
        let error = Error::new("the run has no checkpoint yet at which another policy could take over");
        return Err(error.hint("go on with it without --policy and --set, or begin a run with that policy"));
    }
    let (steps, budget) = (config.run.steps, config.budget);
    let mut recorder = if let Some(checkpoint) = found {
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
        prepared.restore(&mut world, &checkpoint, state)?;
        recorder.until_next_step = command.finish_step;
        world.record = record;
        world.policy.keep(place.folder, at)?;
        if let Some(change) = change {
            components::keep(place.folder, place.component)?;
            swap::done(place.folder, change, prepared, &mut world, &mut recorder)?;
            let name = &prepared.policy.description().name;
            recorder
                .progress
                .tell(format_args!("policy `{name}` takes over from step {} on", world.run.state.steps));
        }
        recorder
    } else {
        if command.resume.is_some() {
            screen.tell("it has no checkpoint yet, and starts anew");
            resume::clear(place.folder)?;
        }
        components::keep(place.folder, place.component)?;
        let progress = Progress::new(screen, steps, budget, Done::default(), 0.0, 0);
        let mut recorder = RunRecorder::fresh(prepared, evaluation, place, progress)?;
        recorder.progress.screen.draw("taking the score at the start");
        let scores = match runtime.block_on(run::evaluated(&mut world, &mut recorder)) {
            Ok(scores) => scores,
            Err(Stop::Interrupted) => {
                let shown = place.folder.display();
                let words = format!("paused before the first step; to go on: allot train --resume {shown}");
                recorder.progress.tell(words);
                return Ok(Exit::Bad);
            }
            Err(stop) => return Err(run_dir::stopped(&stop, Some(place.folder), None)),
        };
        world.run.state.scored = Some((0, scores.clone()));
        recorder.started(&world, &scores)?;
        world.record = Record::create(&place.folder.join("record.jsonl"))?;
        let head = prepared.head(&world, &place.model, &scores);
        world.record.begin(Box::new(head))?;
        world.policy.keep(place.folder, (0, 0))?;
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
    let shown = place.folder.display();
    let again = format!("allot train --resume {shown}");
    match rest {
        Ok(Rest::Over(end)) => {
            recorder.progress.tell(format_args!("the run is in {shown}"));
            let (totals, screen) =
                recorder.finish(&world).map_err(|stop| run_dir::stopped(&stop, Some(place.folder), None))?;
            if command.json {
                let description = prepared.policy.description();
                let sha256 = prepared.policy.sha256();
                screen.say(totals.json(
                    &end,
                    &description.name,
                    sha256,
                    config.run.seed,
                    totals.accuracies_json(&end),
                ));
            } else {
                totals.show(&end, totals.accuracies(&end), screen);
            }
            Ok(Exit::Good)
        }
        Ok(Rest::Paused) => {
            recorder.progress.tell(format_args!("paused {}; to go on: {again}", place_of(&world.run.state)));
            Ok(Exit::Bad)
        }
        Err(stop) => {
            recorder.progress.screen.draw("");
            let saved = recorder.saved.as_ref().filter(|saved| saved.exists()).map(|saved| {
                let last = format!("the last good checkpoint is {}", saved.display());
                if stop.may_pass() { format!("{last}; to resume from it: {again}") } else { last }
            });
            Err(run_dir::stopped(&stop, Some(place.folder), None).note(saved))
        }
    }
}

/// Where a run is, in words.
fn place_of(run: &allot_loop::State) -> String {
    match run.at {
        At::Asking(_) | At::Sampling(_) | At::Updating(..) => format!("within step {}", run.steps + 1),
        At::Between | At::Evaluating(_) | At::Ended(_) | At::Closing | At::Over => {
            format!("after step {}", run.finished())
        }
    }
}

/// The config in force.
struct Resolved {
    config: TrainConfig,
    /// Its text, as it is written down.
    text: String,
    /// What is to be changed of a run that goes on.
    change: Option<Change>,
}

fn resolve(command: &Train, screen: &mut Screen<'_>) -> Result<Resolved> {
    let Some(run) = &command.resume else {
        let path = command.config.as_deref().ok_or_else(|| Error::new("no config was given"))?;
        let mut config = given(command, path, screen)?;
        config.pin()?;
        return Ok(Resolved { text: run_dir::text(&config)?, config, change: None });
    };
    let path = run.join("resolved.toml");
    let text = allot_config::read(&path).map_err(|t| t.hint("--resume takes the folder of a run"))?;
    let kept = TrainConfig::parse(&text, &path.display().to_string())?;
    if let Some(path) = &command.config {
        let mut given = given(command, path, screen)?;
        given.pin_as(&kept);
        if run_dir::text(&given)? != run_dir::text(&kept)? {
            let what = format!("the run in `{}` has another config than the one given", run.display());
            return Err(Error::new(what).hint("leave the config out: a run goes on with its own"));
        }
    } else if command.policy.is_some() || !command.set.is_empty() {
        let named = command.policy.as_deref();
        let config = swap::config(&kept, named, &command.set)?;
        let change = Some(Change::of(&text, named));
        return Ok(Resolved { text: run_dir::text(&config)?, config, change });
    }
    Ok(Resolved { config: kept, text, change: None })
}

/// A config with what was typed on top of it.
fn given(command: &Train, path: &Path, screen: &mut Screen<'_>) -> Result<TrainConfig> {
    let mut config = TrainConfig::of(&opened::config(path, &command.overrides, screen)?)?;
    if let Some(policy) = &command.policy {
        config.policy.become_other(policy);
    }
    if let Some(seed) = command.seed {
        config.run.seed = seed;
    }
    config.policy.settings.extend(allot_config::typed(&command.set, "--set ")?);
    config.settle()?;
    Ok(config)
}

/// Says what would run.
fn show(prepared: &Prepared<'_>, screen: &mut Screen<'_>) {
    let (config, memory) = (&prepared.config, &prepared.memory);
    let description = prepared.policy.description();
    let mut row = |name: &str, value: String| screen.say(format_args!("{name:<22}{value}"));
    if let Some(server) = config.engine.server() {
        row("server", server.url.clone());
        row("  model", server.base_model.clone());
        row("  adapters", format!("of rank {}", server.lora_rank));
    }
    if let (Some(rollouts), Some(sampler)) = (&config.rollouts, &prepared.sampler) {
        let mut urls = rollouts.url.all().iter();
        row("rollouts", urls.next().cloned().unwrap_or_default());
        urls.for_each(|url| row("", url.clone()));
        row("  server", format!("{} {}", rollouts.kind.name(), sampler.version));
        row("  weights", format!("in {}, in {}", rollouts.weights, precision(rollouts.dtype)));
    }
    row("model", config.model.source.clone());
    row("  parameters", prepared.shape.parameters().to_string());
    if config.engine.is_native() {
        row("  of them trained", memory.trained.to_string());
    }
    row("problems", format!("{} to train on", prepared.problems.train));
    for set in &prepared.problems.sets {
        let each = |(name, rollouts): &Setting| {
            let rollouts = count(u64::from(*rollouts), "rollout");
            name.as_ref().map_or(format!("{rollouts} each"), |name| format!("{rollouts} as `{name}`"))
        };
        let all: Vec<String> = config.evaluation.settings().iter().map(each).collect();
        row("  held out", format!("{} in `{}`, {}", set.prompts.len(), set.name, all.join(", ")));
    }
    row("policy", format!("{} {}", description.name, description.version));
    for (name, value) in &prepared.run.settings {
        row("", format!("{name} = {value}"));
    }
    let mut budget = config.budget.words().into_iter();
    let first = budget.next().unwrap_or_default();
    row("budget", format!("{first}, at most {} steps", config.run.steps));
    budget.for_each(|words| row("", words));
    row("answers", format!("up to {} tokens", config.rollout.max_tokens));
    if !config.engine.is_native() {
        return;
    }
    let (at_hand, table) = (at_hand(config), table(config));
    row("memory", format!("about {}", size(memory.total() + at_hand + table + PROGRAM)));
    row("  weights", size(memory.weights));
    row("  optimizer", size(memory.optimizer));
    row("  sampling", size(memory.rollouts));
    row("  activations", size(memory.activations));
    if memory.learner > 0 {
        row("  the learner's copy", size(memory.learner));
    }
    if memory.saving > 0 {
        row("  saving", size(memory.saving));
    }
    row("  rollouts at hand", size(at_hand));
    row("  table of rollouts", size(table));
    row("  the program itself", size(PROGRAM));
    let (device, dtype) = (config.model.device, config.model.dtype);
    if device == DeviceName::Cpu {
        row("threads", prepared.setup.threads.to_string());
    }
    match (device, dtype) {
        (DeviceName::Cpu, Precision::F32) => {}
        (DeviceName::Cpu, Precision::Bf16) if has_bf16() => {
            row("device", "cpu, in bf16 by AVX512-BF16".to_owned());
        }
        (DeviceName::Cpu, Precision::Bf16) => {
            row("device", "cpu, in bf16 by instructions for f32".to_owned());
        }
        (device, dtype) => row("device", format!("{device}, in {}", precision(dtype))),
    }
}

/// What the rollouts of steps take that wait for their updates, under a policy that samples as the uniform one does: some 3 KiB for
/// each, as measured, and for each token its number and its log-probability, in the buffer, in the update that is made of
/// it, and as text.
fn at_hand(config: &TrainConfig) -> usize {
    let steps = 1 + config.run.lag as usize;
    let step = config.run.groups as usize * config.run.rollouts as usize;
    step.saturating_mul(steps).saturating_mul(3 * 1024 + 24 * config.rollout.max_tokens as usize)
}

/// What the table of rollouts takes at most under a policy that samples as the uniform one does: a step's rollouts
/// wait for their fates, and a row group fills. A token of text is four bytes.
fn table(config: &TrainConfig) -> usize {
    let step = config.run.groups as usize * config.run.rollouts as usize;
    let text = if config.checkpoint.text { 4 * config.rollout.max_tokens as usize } else { 0 };
    rollouts::memory(step, step.saturating_mul(config.checkpoint.every as usize), text)
}

fn precision(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "f32",
        Precision::Bf16 => "bf16",
    }
}
