//! `allot compare`: compares policies over seeds, under one budget.

use std::path::{Path, PathBuf};

use allot_allocation::Run;
use allot_base::{Error, Exit, Result, count};
use allot_config::compare::Seeds;
use allot_executor::{Setup, Where};
use clap::Args;

use super::report::{self, Asked};
use crate::board::all_over;
use crate::comparison::finished::Finished;
use crate::comparison::{Comparison, looks};
use crate::gather;
use crate::jobs::{JobState, Jobs};
use crate::run_dir;
use crate::screen::Screen;
use crate::tuning::{self, Rest};

/// Compare policies over seeds, under one budget
#[derive(Debug, Args)]
pub struct Compare {
    /// The config, a file or the name of one that ships: a run's, with a section for the comparison
    #[arg(required_unless_present_any = ["resume", "runs"])]
    config: Option<PathBuf>,
    /// Override a key of the config, as KEY=VALUE; repeatable
    #[arg(short = 'o', long = "override", value_name = "KEY=VALUE", conflicts_with = "resume")]
    overrides: Vec<String>,
    /// Compare these finished runs instead, of this program or of a trainer: folders of runs, or with runs below them
    #[arg(long, value_name = "RUN", num_args = 1.., conflicts_with_all = OF_A_CONFIG)]
    runs: Vec<PathBuf>,
    /// With --runs: a key in which the arms may differ, beside their policies; repeatable
    #[arg(long = "ignore", value_name = "KEY", requires = "runs")]
    ignored: Vec<String>,
    #[command(flatten)]
    asked: Asked,
    /// The folder for the comparison; an existing one is resumed [default: a new one under runs/]
    #[arg(long, conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Resume the comparison in this folder
    #[arg(long, value_name = "FOLDER")]
    resume: Option<PathBuf>,
    /// Use these seeds instead of the config's: a number, as in 20, or a list, as in 3,5,8; an existing
    /// comparison runs the ones it lacks
    #[arg(long)]
    seeds: Option<Seeds>,
    /// Try every combination of the values in [compare.tune], and show all of them: no comparison, no winner
    #[arg(long, conflicts_with = "resume")]
    grid: bool,
    /// Runs at a time [default: as many as there are cores for their threads; with slurm, no limit]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Where the runs are executed
    #[arg(long, value_enum, default_value_t = Where::Local)]
    executor: Where,
    /// Options for sbatch, as in "--partition=short --time=2:00:00"
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    slurm_options: Option<String>,
    /// Check every policy and setting, say what would run, and stop
    #[arg(long)]
    dry_run: bool,
    /// The report as JSON
    #[arg(long)]
    json: bool,
}

/// Options that make no sense for runs that are over.
const OF_A_CONFIG: [&str; 9] =
    ["config", "overrides", "resume", "seeds", "grid", "jobs", "executor", "slurm_options", "dry_run"];

/// Runs the comparison.
pub fn run(command: &Compare, screen: &mut Screen<'_>) -> Result<Exit> {
    if !command.runs.is_empty() {
        return of_finished(command, screen);
    }
    if !command.asked.nothing() {
        let error = Error::new("--baseline, --target and --axis are for --runs");
        return Err(error.hint("leave them out: a comparison's config has its own"));
    }
    of_config(command, screen)
}

/// Runs the comparison of a config, or goes on with it.
fn of_config(command: &Compare, screen: &mut Screen<'_>) -> Result<Exit> {
    let here = command.executor == Where::Local;
    if command.slurm_options.is_some() && command.executor != Where::Slurm {
        let error = Error::new("--slurm-options needs --executor slurm");
        return Err(error.hint("leave it out, or set --executor slurm"));
    }
    let jobs = command.jobs.map(usize::from);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let comparison = open(command, here.then(|| (cores / jobs.unwrap_or(1)).max(1)), screen)?;
    let of_cores = here.then(|| (cores / comparison.threads).max(1));
    let most =
        comparison.runs.len().max(comparison.tuner.as_ref().map_or(0, |t| t.field(0, &t.all()).runs.len()));
    let at_once = jobs.or(of_cores).map(|n| n.min(most));
    let place = comparison.folder.clone();
    let setup = Setup {
        folder: &place,
        comparison: &place,
        at_once,
        threads: comparison.threads,
        gpu: comparison.gpu,
        slurm: command.slurm_options.as_deref(),
    };
    let held = if command.dry_run { None } else { run_dir::lock(&place)? };
    let pace = pace(at_once, command.executor);
    let standing = Standing::of(command, &comparison, &setup)?;
    let arms = standing.check(command, &comparison, screen)?;
    if command.dry_run {
        let each = count(comparison.threads as u64, "thread");
        let runs = format!("{}, {pace}, {each} each{}", comparison.runs.len(), standing.words(standing.done));
        show(&comparison, &arms, runs, screen);
        return Ok(Exit::Good);
    }
    let _held = held.map_or_else(|| run_dir::begun(&place), |held| Ok(Some(held)))?;
    comparison.keep()?;
    let go_on = go_on(command, &place);
    let open_at = |folder: &Path| command.executor.open(&Setup { folder, ..setup });
    let comparison = match tuned(comparison, &open_at, &seeds_of(command), screen)? {
        Tuned::Settled(comparison) => *comparison,
        Tuned::Looked => return Ok(Exit::Good),
        Tuned::Paused => return Ok(paused(&go_on, screen)),
    };
    let field = comparison.field();
    let mut jobs = Jobs::of(&field, open_at(&place)?)?;
    let done = jobs.count(|state| matches!(state, JobState::Finished(_)));
    let policies = if comparison.arms.len() == 1 { "policy" } else { "policies" };
    let (arms, seeds) = (comparison.arms.len(), count(comparison.seeds.len() as u64, "seed"));
    let (all, shown) = (count(jobs.all.len() as u64, "run"), place.display());
    let stand = standing.words(done);
    screen.tell(format_args!("{arms} {policies} × {seeds}: {all}, {pace}, in {shown}{stand}"));
    if !all_over(&mut jobs, screen, &mut |_| {})? {
        return Ok(paused(&go_on, screen));
    }
    let failed = failed(&jobs, screen);
    if failed {
        screen.tell(format_args!("to try failed runs again: {go_on}"));
    }
    report(&place, command.json, screen)?;
    Ok(if failed { Exit::Bad } else { Exit::Good })
}

/// Compares runs that are over.
fn of_finished(command: &Compare, screen: &mut Screen<'_>) -> Result<Exit> {
    let out = command.out.as_deref();
    let _held = out.map(run_dir::lock).transpose()?;
    let mut gathered = gather::gather(&command.runs)?;
    command.asked.of(&mut gathered.question)?;
    screen.draw(format_args!("reading {} runs", gathered.runs.len()));
    let histories = gather::histories(&gathered)?;
    let list = Finished::of(&gathered.runs, histories, &command.ignored, &gathered.question, out)?;
    let folder = list.keep(out)?;
    report(&folder, command.json, screen)?;
    Ok(Exit::Good)
}

/// Returns the number of concurrent runs, in words.
fn pace(at_once: Option<usize>, executor: Where) -> String {
    match (at_once, executor) {
        (Some(n), Where::Local) => format!("{n} at a time"),
        (Some(n), place) => format!("{n} at a time with {}", place.name()),
        (None, place) => format!("as many at a time as {} has room for", place.name()),
    }
}

/// Returns the command that resumes a comparison.
fn go_on(command: &Compare, folder: &Path) -> String {
    let executor = command.executor;
    let place =
        if executor == Where::Local { String::new() } else { format!(" --executor {}", executor.key()) };
    let options = command.slurm_options.as_ref().map(|o| format!(" --slurm-options \"{o}\""));
    format!("allot compare --resume {}{place}{}", folder.display(), options.unwrap_or_default())
}

fn paused(go_on: &str, screen: &mut Screen<'_>) -> Exit {
    screen.tell(format_args!("paused; to continue: {go_on}"));
    Exit::Bad
}

/// The existing part of a comparison.
struct Standing {
    /// Number of runs that the comparison in its folder lacks; none if the folder has no comparison.
    more: Option<usize>,
    /// Number of finished runs.
    done: usize,
}

impl Standing {
    fn of(command: &Compare, comparison: &Comparison, setup: &Setup<'_>) -> Result<Self> {
        // Without a folder, a dry run describes a new comparison.
        let placed = !command.dry_run || command.resume.is_some() || command.out.is_some();
        let more = if placed { comparison.more()? } else { None };
        if more.is_some_and(|more| more > 0) {
            // Clusters identify runs by numbers, which change when a comparison grows.
            Where::nothing_left(setup)?;
        }
        let done = if more.is_some() && comparison.settled { comparison.field().over() } else { 0 };
        Ok(Self { more, done })
    }

    /// Checks the arms if runs are left, and prints the comparison's notes.
    fn check(&self, command: &Compare, comparison: &Comparison, screen: &mut Screen<'_>) -> Result<Vec<Run>> {
        let left = self.done < comparison.runs.len();
        // Finished runs are not repeated, so their components are not needed.
        let checked = command.resume.is_none() && command.out.is_none() && !command.dry_run;
        let arms = if left && !checked { comparison.check(screen)? } else { Vec::new() };
        let grown = self.more.is_some_and(|more| more > 0);
        let looked = if grown { looks::note(&comparison.folder, &comparison.seeds)? } else { None };
        comparison.notes.iter().chain(&looked).for_each(|words| screen.tell(format_args!("note: {words}")));
        Ok(arms)
    }

    /// Returns how many runs have finished, and how many are added to an existing comparison.
    fn words(&self, done: usize) -> String {
        let done = if done > 0 { format!("; {done} have finished") } else { String::new() };
        match self.more.unwrap_or(0) {
            0 => done,
            more => format!("{done}; {more} are new"),
        }
    }
}

/// Prints which runs failed. Returns whether any did.
fn failed(jobs: &Jobs<'_>, screen: &mut Screen<'_>) -> bool {
    let mut some = false;
    for job in &jobs.all {
        if let JobState::Failed(reason) = &job.state {
            let (name, seed) = (&jobs.field.rows[job.planned.arm], job.planned.seed);
            screen.tell(format_args!("`{name}` with seed {seed} failed: {reason}"));
            some = true;
        }
    }
    some
}

/// Writes the report of a comparison, and shows it.
fn report(folder: &PathBuf, json: bool, screen: &mut Screen<'_>) -> Result<()> {
    let out = folder.join("report");
    screen.draw("making the report");
    let gathered = gather::gather(std::slice::from_ref(folder))?;
    let made = gather::report(&gathered, &out)?;
    screen.draw("");
    report::tell(&made, &out, json, screen)
}

/// The result of tuning the arms.
enum Tuned {
    /// The arms have their final settings.
    Settled(Box<Comparison>),
    /// A grid search is complete.
    Looked,
    /// The tuning can be resumed.
    Paused,
}

/// Tunes a comparison's arms, unless they are already tuned.
fn tuned(
    comparison: Comparison,
    open: tuning::Open<'_>,
    seeds: &[String],
    screen: &mut Screen<'_>,
) -> Result<Tuned> {
    let Some(tuner) = comparison.tuner.as_ref().filter(|_| !comparison.settled) else {
        return Ok(Tuned::Settled(Box::new(comparison)));
    };
    let tuning = match tuning::tune(tuner, open, screen)? {
        Rest::Over(tuning) => tuning,
        Rest::Paused => return Ok(Tuned::Paused),
    };
    report::tuned(&tuning, screen);
    if tuner.is_grid() {
        let out = comparison.folder.join("report");
        gather::grid(&tuning, &out)?;
        screen.tell(format_args!("a map of all of it is in {}", out.join("index.html").display()));
        return Ok(Tuned::Looked);
    }
    let again = Comparison::open(&comparison.folder, seeds, Some(comparison.threads))?;
    again.keep()?;
    Ok(Tuned::Settled(Box::new(again)))
}

/// Returns the option `--seeds` as an override of its config key.
fn seeds_of(command: &Compare) -> Vec<String> {
    command.seeds.iter().map(|seeds| format!("compare.seeds={}", seeds.value())).collect()
}

/// Opens the command's comparison.
fn open(command: &Compare, threads: Option<usize>, screen: &mut Screen<'_>) -> Result<Comparison> {
    let seeds = seeds_of(command);
    let grid = command.grid.then(|| "compare.tune.grid=true".to_owned());
    let overrides: Vec<String> = command.overrides.iter().chain(&seeds).cloned().chain(grid).collect();
    if let Some(folder) = &command.resume {
        if command.config.is_some() {
            let error = Error::new("--resume takes no config");
            return Err(error.hint("leave the config out: a comparison continues with its own"));
        }
        return Comparison::open(folder, &seeds, threads);
    }
    let config = command.config.as_deref().ok_or_else(|| Error::new("no config was given"))?;
    if let Some(out) = &command.out {
        return Comparison::new(config, &overrides, out, threads);
    }
    // Checked before the folder is created, so that an invalid comparison leaves no folder.
    let nowhere = Comparison::new(config, &overrides, Path::new("runs/.new"), threads)?;
    if command.dry_run {
        return Ok(nowhere);
    }
    nowhere.check(screen)?;
    Comparison::new(config, &overrides, &run_dir::new(None, config)?, threads)
}

/// Shows the runs of a dry run.
fn show(comparison: &Comparison, arms: &[Run], runs: String, screen: &mut Screen<'_>) {
    let mut row = |name: &str, value: String| screen.say(format_args!("{name:<22}{value}"));
    for (i, name) in comparison.arms.iter().enumerate() {
        row(if i == 0 { "policies" } else { "" }, name.clone());
    }
    let seeds: Vec<String> = comparison.seeds.iter().map(u64::to_string).collect();
    row("seeds", seeds.join(", "));
    row("runs", runs);
    row(
        "budget of each",
        format!("{}, at most {} steps", comparison.means.budget.words().join(", "), comparison.means.steps),
    );
    if let Some(run) = arms.first() {
        let spent = comparison.means.budget.rollouts.map(|budget| {
            let groups = budget.div_ceil(u64::from(run.rollouts).max(1));
            let passes = groups as f64 / f64::from(run.prompts.max(1));
            format!("; the budget is {groups} groups of {}, {passes:.2} of a pass over them", run.rollouts)
        });
        row("prompts on offer", format!("{}{}", run.prompts, spent.unwrap_or_default()));
    }
    let targets: Vec<String> = comparison.section.targets.iter().map(f64::to_string).collect();
    row(
        "targets",
        if targets.is_empty() { "none; one is chosen afterwards".to_owned() } else { targets.join(", ") },
    );
    if let Some(tuner) = &comparison.tuner {
        for (i, (name, trials)) in tuner.trials().into_iter().enumerate() {
            let rungs: Vec<String> = tuner
                .rungs
                .iter()
                .map(|(size, share)| {
                    format!("{} to {}", size.min(&trials), allot_report::number::percent_tick(*share))
                })
                .collect();
            let most = tuner.most(trials) * tuner.seeds.len() as f64;
            let words = format!(
                "`{name}`: {} on {}, at most {most:.1} budgets; rungs: {} of the budget",
                count(trials as u64, "trial"),
                count(tuner.seeds.len() as u64, "seed"),
                rungs.join(", ")
            );
            row(if i == 0 { "tuning" } else { "" }, words);
        }
    }
    for words in comparison.idle(arms) {
        screen.say(format_args!("note: {words}"));
    }
}
