//! `allot compare`: policies over seeds, under one budget.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use allot_allocation::Run;
use allot_config::compare::Seeds;
use allot_error::{Error, Exit, Result, count};
use allot_executor::{Setup, Where};
use clap::Args;

use super::report;
use crate::comparison::Comparison;
use crate::gather;
use crate::interrupt;
use crate::jobs::{Happened, Jobs, State};
use crate::run_dir;
use crate::screen::Screen;

/// Compare policies over seeds, under one budget
#[derive(Debug, Args)]
pub struct Compare {
    /// The config: a run's, with a section for the comparison
    #[arg(required_unless_present = "resume")]
    config: Option<PathBuf>,
    /// Another value than the config's, for any key, as KEY=VALUE; may be given many times
    #[arg(short = 'o', long = "override", value_name = "KEY=VALUE", conflicts_with = "resume")]
    overrides: Vec<String>,
    /// The folder for the comparison; an existing one is resumed [default: a new one under runs/]
    #[arg(long, conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Resume the comparison in this folder
    #[arg(long, value_name = "FOLDER")]
    resume: Option<PathBuf>,
    /// Other seeds than the config's: how many, as in 20, or which, as in 3,5,8; an existing comparison
    /// gets those that it lacks
    #[arg(long)]
    seeds: Option<Seeds>,
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

/// Runs it.
pub fn run(command: &Compare, screen: &mut Screen<'_>) -> Result<Exit> {
    let here = command.executor == Where::Local;
    if command.slurm_options.is_some() && command.executor != Where::Slurm {
        let error = Error::new("--slurm-options is for runs that Slurm makes");
        return Err(error.hint("leave it out, or say --executor slurm"));
    }
    let jobs = command.jobs.map(usize::from);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let comparison = open(command, here.then(|| (cores / jobs.unwrap_or(1)).max(1)), screen)?;
    let of_cores = here.then(|| (cores / comparison.threads).max(1));
    let at_once = jobs.or(of_cores).map(|n| n.min(comparison.runs.len()));
    let pace = match (at_once, command.executor) {
        (Some(n), Where::Local) => format!("{n} at a time"),
        (Some(n), place) => format!("{n} at a time with {}", place.name()),
        (None, place) => format!("as many at a time as {} has room for", place.name()),
    };
    if command.dry_run {
        let runs = comparison.check(screen)?;
        show(&comparison, &runs, &pace, screen);
        return Ok(Exit::Good);
    }
    let shown = comparison.folder.display().to_string();
    let setup = Setup {
        folder: &comparison.folder,
        at_once,
        threads: comparison.threads,
        gpu: comparison.gpu,
        slurm: command.slurm_options.as_deref(),
    };
    let held = run_dir::lock(&comparison.folder)?;
    let more = comparison.more()?;
    if more.is_some_and(|more| more > 0) {
        // Clusters know runs by their numbers, and those are others in a comparison that has grown.
        Where::nothing_left(&setup)?;
    }
    if more.is_some_and(|more| more > 0) || (more.is_none() && command.out.is_some()) {
        comparison.check(screen)?;
    }
    comparison.keep()?;
    let _held = held.map_or_else(|| run_dir::lock(&comparison.folder), |held| Ok(Some(held)))?;
    let mut jobs = Jobs::of(&comparison, command.executor.open(&setup)?)?;
    let done = jobs.count(|state| matches!(state, State::Finished(_)));
    let policies = match comparison.arms.len() {
        1 => "1 policy".to_owned(),
        n => format!("{n} policies"),
    };
    let (seeds, all) = (count(comparison.seeds.len() as u64, "seed"), count(jobs.all.len() as u64, "run"));
    let before = if done > 0 { format!("; {done} are over already") } else { String::new() };
    let before = match more.unwrap_or(0) {
        0 => before,
        more => format!("{before}; {more} came to it"),
    };
    screen.tell(format_args!("{policies} × {seeds}: {all}, {pace}, in {shown}{before}"));
    let place = if here { String::new() } else { format!(" --executor {}", command.executor.key()) };
    let options = command.slurm_options.as_ref().map(|o| format!(" --slurm-options \"{o}\""));
    let go_on = format!("allot compare --resume {shown}{place}{}", options.unwrap_or_default());
    if !all_over(&mut jobs, screen)? {
        screen.tell(format_args!("paused; to go on: {go_on}"));
        return Ok(Exit::Bad);
    }

    let failed: Vec<String> = jobs
        .all
        .iter()
        .filter_map(|job| match &job.state {
            State::Failed(reason) => {
                let (name, seed) = (&comparison.arms[job.planned.arm], job.planned.seed);
                Some(format!("`{name}` with seed {seed} failed: {reason}"))
            }
            _ => None,
        })
        .collect();
    for words in &failed {
        screen.tell(words);
    }
    if !failed.is_empty() {
        screen.tell(format_args!("to try failed runs again: {go_on}"));
    }
    let out = comparison.folder.join("report");
    screen.draw("making the report");
    let gathered = gather::gather(std::slice::from_ref(&comparison.folder))?;
    let made = gather::report(&gathered, &out)?;
    screen.draw("");
    if command.json {
        let json = serde_json::to_string(&made);
        screen.say(json.map_err(|e| Error::new(format!("no JSON: {e}")))?);
    } else {
        report::show(&made, screen);
    }
    screen.tell(format_args!("the report is in {}", out.join("index.html").display()));
    Ok(if failed.is_empty() { Exit::Good } else { Exit::Bad })
}

/// The comparison that is meant.
fn open(command: &Compare, threads: Option<usize>, screen: &mut Screen<'_>) -> Result<Comparison> {
    // The option is a short word for a key, whose place in the config tells what may be said.
    let seeds: Vec<String> =
        command.seeds.iter().map(|seeds| format!("compare.seeds={}", seeds.value())).collect();
    let overrides = [command.overrides.as_slice(), &seeds].concat();
    if let Some(folder) = &command.resume {
        if command.config.is_some() {
            let error = Error::new("--resume takes no config");
            return Err(error.hint("leave the config out: a comparison goes on with its own"));
        }
        return Comparison::open(folder, &seeds, threads);
    }
    let config = command.config.as_deref().ok_or_else(|| Error::new("no config was given"))?;
    if let Some(out) = &command.out {
        return Comparison::new(config, &overrides, out, threads);
    }
    // A folder is made for what can run; whatever is wrong with it is told before.
    let nowhere = Comparison::new(config, &overrides, std::path::Path::new("runs"), threads)?;
    if command.dry_run {
        return Ok(nowhere);
    }
    nowhere.check(screen)?;
    Comparison::new(config, &overrides, &run_dir::new(None, config)?, threads)
}

/// Runs what is left to run. False where somebody wanted it to stop.
fn all_over(jobs: &mut Jobs<'_>, screen: &mut Screen<'_>) -> Result<bool> {
    let stop =
        interrupt::listen("stopping: what the runs have sampled is kept; again to stop at once, without");
    let mut table = Table { began: Instant::now(), before: jobs.all.iter().map(|j| j.share).sum(), lines: 0 };
    let mut looked: Option<Instant> = None;
    let (began, mut told, mut paused) = (Instant::now(), false, false);
    loop {
        let stopping = stop.is_asked();
        let Happened { ended, words } = jobs.poll(stopping)?;
        if !words.is_empty() {
            // As below a table that was drawn: it is drawn anew under it.
            for words in &words {
                screen.tell(words);
            }
            table.lines = 0;
        }
        for (n, i) in ended.iter().enumerate() {
            Table::ended(jobs, *i, ended.len() - 1 - n, screen);
        }
        if stopping {
            if !paused {
                // What was just said stands below the table: it is drawn anew under it.
                table.lines = 0;
                paused = true;
            }
            jobs.pause()?;
        } else {
            jobs.start()?;
        }
        let open = jobs.count(|state| matches!(state, State::Waiting));
        if jobs.with_executor() == 0 && (stopping || open == 0) {
            table.draw(jobs, screen);
            // A run that paused was stopped by somebody, too.
            return Ok(!stopping && jobs.count(|state| matches!(state, State::Paused)) == 0);
        }
        if jobs.with_executor() == 0 && !told && began.elapsed() > Duration::from_secs(2) {
            screen.tell(
                "waiting for a process that is still at work on a run, as of a comparison that was killed",
            );
            told = true;
        }
        if looked.is_none_or(|at| at.elapsed() >= Duration::from_millis(700)) {
            if screen.live {
                jobs.look();
                table.draw(jobs, screen);
            }
            looked = Some(Instant::now());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// All runs on the screen: a row for each policy, a column for each seed.
struct Table {
    began: Instant,
    /// Runs' worth of work that was done before.
    before: f64,
    /// Lines drawn last.
    lines: usize,
}

impl Table {
    /// A run ended: a line of its own, where the table can't be drawn over itself.
    /// `later` ended at the same time, and are told of after it.
    fn ended(jobs: &Jobs<'_>, i: usize, later: usize, screen: &mut Screen<'_>) {
        let job = &jobs.all[i];
        let (name, seed) = (jobs.arm(i), job.planned.seed);
        let over = jobs.count(|s| matches!(s, State::Finished(_) | State::Failed(_))).saturating_sub(later);
        let words = match &job.state {
            State::Finished(accuracy) => format!("accuracy {accuracy:.4}"),
            State::Failed(reason) => format!("failed: {reason}"),
            State::Paused => "paused".to_owned(),
            State::Waiting | State::Queued | State::Running => return,
        };
        if !screen.live {
            let all = jobs.all.len();
            screen.tell(format_args!("{over:>4}/{all}  {name:<24} seed {seed:<6} {words}"));
        }
    }

    fn draw(&mut self, jobs: &Jobs<'_>, screen: &mut Screen<'_>) {
        use std::fmt::Write as _;
        if !screen.live {
            return;
        }
        let lines = self.text(jobs);
        let mut drawn = String::new();
        if self.lines > 0 {
            let _ = write!(drawn, "\x1b[{}A", self.lines);
        }
        // A narrow terminal cuts off the end of a line; it does not wrap it.
        drawn.push_str("\r\x1b[?7l");
        for line in &lines {
            let _ = writeln!(drawn, "\x1b[2K{line}");
        }
        drawn.push_str("\x1b[?7h");
        self.lines = lines.len();
        let _ = screen.progress.write_all(drawn.as_bytes());
        let _ = screen.progress.flush();
    }

    fn text(&self, jobs: &Jobs<'_>) -> Vec<String> {
        let seeds = jobs.seeds();
        let wide = jobs.arms().iter().map(|name| name.chars().count()).max().unwrap_or(0).min(24);
        let head: Vec<String> = seeds.iter().map(|seed| format!("{seed:>6}")).collect();
        let mut lines = vec![format!("{:wide$}{}", "", head.concat())];
        for (arm, name) in jobs.arms().iter().enumerate() {
            let short: String = name.chars().take(24).collect();
            let cell = |seed: &u64| {
                let job = jobs.all.iter().find(|j| j.planned.arm == arm && j.planned.seed == *seed);
                job.map_or_else(String::new, |job| match &job.state {
                    State::Waiting | State::Queued => format!("{:>6}", "·"),
                    State::Running => format!("{:>5.0}%", 100.0 * job.share),
                    State::Finished(accuracy) => format!("{accuracy:>6.3}"),
                    State::Failed(_) => format!("{:>6}", "failed"),
                    State::Paused => format!("{:>6}", "paused"),
                })
            };
            let cells: String = seeds.iter().map(cell).collect();
            lines.push(format!("{short:wide$}{cells}"));
        }
        let over = jobs.count(|s| matches!(s, State::Finished(_) | State::Failed(_)));
        let done: f64 = jobs.all.iter().map(|j| j.share).sum::<f64>() - self.before;
        let left = jobs.all.len() as f64 - self.before - done;
        let seconds = self.began.elapsed().as_secs_f64();
        let time = if done > 0.05 { about(seconds / done * left) } else { String::new() };
        let (all, running) = (jobs.all.len(), jobs.count(|s| matches!(s, State::Running)));
        let queued = match jobs.count(|s| matches!(s, State::Queued)) {
            0 => String::new(),
            n => format!(", {n} queued"),
        };
        lines.push(format!("{over} of {all} runs are over, {running} under way{queued}{time}"));
        lines
    }
}

fn about(seconds: f64) -> String {
    if seconds < 90.0 {
        format!(", {seconds:.0} s left")
    } else {
        format!(", {:.0} min left", seconds / 60.0)
    }
}

/// Says what would run.
fn show(comparison: &Comparison, arms: &[Run], pace: &str, screen: &mut Screen<'_>) {
    let mut row = |name: &str, value: String| screen.say(format_args!("{name:<22}{value}"));
    for (i, name) in comparison.arms.iter().enumerate() {
        row(if i == 0 { "policies" } else { "" }, name.clone());
    }
    let seeds: Vec<String> = comparison.seeds.iter().map(u64::to_string).collect();
    row("seeds", seeds.join(", "));
    row(
        "runs",
        format!("{}, {pace}, {} each", comparison.runs.len(), count(comparison.threads as u64, "thread")),
    );
    row(
        "budget of each",
        format!("{}, at most {} steps", comparison.budget.words().join(", "), comparison.steps),
    );
    if let Some(run) = arms.first() {
        let spent = comparison.budget.rollouts.map(|budget| {
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
    for words in comparison.idle(arms) {
        screen.say(format_args!("note: {words}"));
    }
}
