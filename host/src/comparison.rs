//! A comparison's folder: a config for each policy and seed, and a folder for each of their runs. Opening
//! the folder again resumes the comparison, or extends it by seeds and policies. If arms are tuned first,
//! the runs have the winning settings ([`tuning`]).

mod before;
mod builds;
mod copies;
mod declared;
pub mod finished;
pub mod looks;
mod run_config;
pub mod tuning;

use std::path::{Path, PathBuf};

use allot_allocation::Run;
use allot_bank::Draws;
use allot_base::{Error, Result, lasting, lasting_up_to, write_lasting};
use allot_config::PolicyConfig;
use allot_config::compare::{CompareConfig, Seeds};
use allot_config::simulate::SimulateConfig;
use allot_config::train::TrainConfig;
use allot_models::chat::Date;
use toml::Table;

use self::before::{Before, CONFIG};
use self::declared::Declared;
use self::run_config::{RunDefaults, anew, bare, model_of};
use self::tuning::Tuner;
use crate::jobs::Field;
use crate::planned::{PlannedRun, RunKind, config_of};
use crate::policy_loader;
use crate::prepared::Prepared;
use crate::screen::Screen;
use crate::simulation::{SimulatedRun, Simulation};
use crate::until::Means;

/// A comparison.
pub struct Comparison {
    /// Its folder.
    pub folder: PathBuf,
    /// The kind of its runs.
    pub kind: RunKind,
    /// Its section of the config.
    pub section: CompareConfig,
    /// The names of its arms.
    pub arms: Vec<String>,
    /// Its seeds.
    pub seeds: Vec<u64>,
    /// Its runs, seed by seed, so that a stopped comparison has equally many runs of each arm. Before
    /// tuning, they have the arms' declared settings and must not be executed.
    pub runs: Vec<PlannedRun>,
    /// The budget of each run.
    pub means: Means,
    /// The tuning of its arms, if any.
    pub tuner: Option<Tuner>,
    /// Whether its arms have their final settings: tuned, or not to be tuned.
    pub settled: bool,
    /// Notes about its components, for the user.
    pub notes: Vec<String>,
    /// Threads of each run.
    pub threads: usize,
    /// Whether its runs train on a GPU.
    pub gpu: bool,
    /// The text of its runs' configs, in the order of the runs.
    texts: Vec<String>,
    /// The config that it was made from.
    text: String,
    /// Whether that config is the one in its folder.
    resumed: bool,
}

impl Comparison {
    /// Checks a config with all its policies and settings. `overrides` are from the command line. `threads`
    /// is the default for each run's threads; without it, the config must set them.
    pub fn new(path: &Path, overrides: &[String], folder: &Path, threads: Option<usize>) -> Result<Self> {
        let mut declared = Declared::read(path, overrides)?;
        let (before, resumed) = (Before::in_folder(folder)?, path == folder.join(CONFIG));
        let mut arms = declared.arms(folder, before.as_ref())?;
        let mut notes = builds::give(&mut arms, folder, resumed, before.as_ref())?;
        notes.append(&mut declared.notes);
        let tune = declared.section.tune.as_ref();
        let mut tuner = tune.map(|tune| Tuner::new(tune, &declared, folder, &arms)).transpose()?;
        let mut settled = tuner.is_none();
        if let Some(tuner) = &tuner
            && let Some(result) = tuning::result(folder)?
        {
            (arms, settled) = tuner.won(&result);
        }
        // As at the start of the comparison: rounding depends on threads, and prompts depend on the date.
        let first = arms.first().zip(declared.seeds.first());
        let first = first.map(|(arm, seed)| config_of(folder, Path::new(&arm.name), *seed));
        let trial = tuner.as_ref().and_then(Tuner::first_config);
        let kept = first.into_iter().chain(trial).find_map(|config| model_of(&config));
        let date = kept.as_ref().and_then(|kept| kept.date).unwrap_or_else(Date::today);
        let threads = declared.threads(kept.as_ref(), threads)?;
        let defaults = RunDefaults { threads, date };
        if let Some(tuner) = &mut tuner {
            tuner.defaults = defaults;
        }
        let (mut runs, mut texts) = (Vec::new(), Vec::new());
        for (column, seed) in declared.seeds.iter().enumerate() {
            for (i, arm) in arms.iter().enumerate() {
                let component = builds::copy(folder, &arm.config);
                let planned = PlannedRun::new(folder, Path::new(&arm.name), *seed);
                let run = PlannedRun { arm: i, column, component, ..planned };
                let name = format!("{}, {}", declared.name, arm.name);
                texts.push(run_config::settled(&run, declared.kind, &arm.with_seed(*seed), &name, defaults)?);
                runs.push(run);
            }
        }
        let Declared { kind, section, seeds, means, gpu, text, .. } = declared;
        Ok(Self {
            folder: folder.to_owned(),
            kind,
            section,
            arms: arms.into_iter().map(|arm| arm.shown).collect(),
            seeds,
            runs,
            means,
            tuner,
            settled,
            notes,
            threads,
            gpu,
            texts,
            text,
            resumed,
        })
    }

    /// Returns its runs as a table.
    pub fn field(&self) -> Field {
        Field {
            kind: self.kind,
            means: self.means,
            rows: self.arms.clone(),
            columns: self.seeds.iter().map(u64::to_string).collect(),
            runs: self.runs.clone(),
        }
    }

    /// Opens the comparison in a folder, with overrides that extend it.
    pub fn open(folder: &Path, overrides: &[String], threads: Option<usize>) -> Result<Self> {
        let path = folder.join(CONFIG);
        if !path.exists() {
            let error = Error::new(format!("there is no comparison in `{}`", folder.display()));
            return Err(error.hint("give the folder of a comparison, which has a `compare.toml`"));
        }
        let comparison = Self::new(&path, overrides, folder, threads)?;
        let missing = comparison.runs.iter().find(|run| !run.config.exists() && comparison.tuner.is_none());
        if let Some(missing) = missing.filter(|_| overrides.is_empty()) {
            let what = format!(
                "`{}` includes a run without a config, `{}`",
                path.display(),
                missing.config.display()
            );
            let hint = "restore what was changed; to add seeds, set --seeds; to add policies, give the \
                        longer config and this folder with --out";
            return Err(Error::new(what).hint(hint));
        }
        Ok(comparison)
    }

    /// Returns whether the folder has a comparison.
    pub fn exists(folder: &Path) -> bool {
        folder.join(CONFIG).exists()
    }

    /// Makes all checks that need no model, for the first seed of each arm. Returns the arms' runs as their
    /// policies see them.
    pub fn check(&self, screen: &mut Screen<'_>) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        for (run, text) in self.runs.iter().zip(&self.texts).take(self.arms.len()) {
            let name = format!("the config of `{}`", self.arms[run.arm]);
            let mut load = |policy: &PolicyConfig| {
                let sandbox = policy_loader::sandbox(policy.limits.caps())?;
                let (source, hash) = (&policy.source, policy.sha256.as_deref());
                let bytes = match self.copy_of(run)? {
                    Some(bytes) => bytes,
                    None => self.named(run, policy_loader::bytes(source, screen)?, source)?,
                };
                policy_loader::of_bytes(&sandbox, &bytes, hash, source, screen)
            };
            let checked = match self.kind {
                RunKind::Train => {
                    let config = TrainConfig::parse(text, &name)?;
                    let policy = load(&config.policy)?;
                    Prepared::new(config, &policy).map(|prepared| prepared.run)
                }
                RunKind::Simulate => {
                    let config = SimulateConfig::parse(text, &name)?;
                    let policy = load(&config.policy)?;
                    match config.bank {
                        None => Simulation::new(&config, &policy, |_| {}).map(|(s, _)| s.world.run.of.run),
                        Some(_) => SimulatedRun::<Draws, _>::new(&config, &policy, |_| {})
                            .map(|(s, _)| s.world.run.of.run),
                    }
                }
            };
            runs.push(checked.map_err(|t| named(t, &name))?);
        }
        self.tuner.as_ref().map_or(Ok(()), Tuner::check)?;
        Ok(runs)
    }

    /// Returns notes about what its runs can't show, from the runs that [`check`](Self::check) returns.
    pub fn idle(&self, runs: &[Run]) -> Vec<String> {
        let mut told = Vec::new();
        let most = |run: &Run| {
            let uniform = u64::from(self.means.steps) * u64::from(run.groups) * u64::from(run.rollouts);
            self.means.budget.rollouts.map_or(uniform, |budget| budget.min(uniform))
        };
        let passes = |run: &Run| most(run) as f64 / (f64::from(run.rollouts) * f64::from(run.prompts));
        if let Some(run) = runs.first().filter(|_| runs.iter().all(|run| passes(run) < 1.0)) {
            told.push(format!(
                "no prompt is offered twice unless a policy asks for fewer than {:.1} rollouts per prompt: \
                 the use of past visits and the eviction of prompts would not be tested",
                most(run) as f64 / f64::from(run.prompts)
            ));
        }
        for (i, one) in runs.iter().enumerate() {
            for (j, other) in runs.iter().enumerate().skip(i + 1) {
                if one == other && bare(&self.texts[i]) == bare(&self.texts[j]) {
                    let (one, other) = (&self.arms[i], &self.arms[j]);
                    told.push(format!("`{one}` and `{other}` are the same policy with the same settings"));
                }
            }
        }
        told
    }

    /// Returns the number of runs that the comparison in its folder lacks; none if there is no comparison.
    /// Fails if it is a different comparison: only seeds and policies can be added.
    pub fn more(&self) -> Result<Option<usize>> {
        let path = self.folder.join(CONFIG);
        if !path.exists() {
            return Ok(None);
        }
        let there = allot_config::read(&path)?;
        if toml::from_str::<Table>(&there).ok() == toml::from_str(&self.text).ok() {
            return Ok(Some(0));
        }
        let before = Before::of(&there, &path, &self.folder)?;
        let shown = self.folder.display();
        let other = |why: String, hint: &str| {
            Err(if self.resumed {
                Error::new(format!("the comparison in `{shown}` is a different one: {why}")).hint(hint)
            } else {
                let what = format!("there is already a different comparison in `{shown}`: {why}");
                Error::new(what).hint("give another folder with --out, or continue that one with --resume")
            })
        };
        let back = "restore what was changed";
        if let Some(seed) = before.seeds.iter().find(|seed| !self.seeds.contains(seed)) {
            let what = format!("the comparison in `{shown}` has seed {seed}, which this command leaves out");
            let all = before.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            return Err(Error::new(what).hint(format!("give its seeds, and those to add: --seeds {all}")));
        }
        let asks =
            |s: &CompareConfig| CompareConfig { seeds: Seeds::Count(1), policies: Vec::new(), ..s.clone() };
        if asks(&before.section) != asks(&self.section) {
            let why = "its targets, axis, margin or tuning differ, and these can't change";
            return other(why.to_owned(), back);
        }
        for config in &before.configs {
            let shown = config.display();
            let Some(place) = self.runs.iter().position(|run| run.config == *config) else {
                let why = format!("it has the run of `{shown}`, which this one leaves out");
                return other(why, back);
            };
            if self.tuner.is_some() && !config.exists() {
                // The arm is not tuned yet.
                continue;
            }
            let then = anew(self.kind, &allot_config::read(config)?, &shown.to_string())?;
            let now = &self.texts[place];
            if let Some((then, now)) = then.lines().zip(now.lines()).find(|(then, now)| then != now) {
                return other(format!("`{shown}` says `{then}`, and this one `{now}`"), back);
            }
        }
        if let Some((config, then, now)) = self.tuner.as_ref().map_or(Ok(None), Tuner::differs)? {
            return other(format!("`{}` says `{then}`, and this one `{now}`", config.display()), back);
        }
        Ok(Some(self.runs.len() - before.configs.len()))
    }

    /// Writes the configs of its runs that are missing.
    pub fn keep(&self) -> Result<()> {
        let path = self.folder.join(CONFIG);
        let before = Before::in_folder(&self.folder)?.map_or_else(Vec::new, |before| before.configs);
        self.keep_components()?;
        if before.len() == self.runs.len() && self.tuner.is_none() {
            return Ok(());
        }
        let there = |config: &PathBuf| before.contains(config) && (self.tuner.is_none() || config.exists());
        let missing =
            self.runs.iter().zip(&self.texts).filter(|(run, _)| self.settled && !there(&run.config));
        let mut folders: Vec<&Path> = Vec::new();
        for (run, text) in missing {
            folders.extend(run.keep(text)?);
        }
        std::fs::create_dir_all(&self.folder).map_err(|e| Error::file("make", &self.folder, &e))?;
        // Everything else is on disk before the file that marks the comparison.
        lasting_up_to(folders, &self.folder)?;
        write_lasting(&path, self.text.as_bytes())?;
        lasting(&self.folder)
    }
}

/// Returns the question of a folder's comparison for a report, if it has one.
pub fn question(folder: &Path) -> Option<allot_report::compare::Question> {
    let text = std::fs::read_to_string(folder.join(CONFIG)).ok()?;
    let whole: Table = toml::from_str(&text).ok()?;
    let section: CompareConfig = whole.get("compare")?.clone().try_into().ok()?;
    let order = section.arms(&whole, CONFIG).ok()?.into_iter().map(|arm| arm.shown);
    let first = u64::try_from(whole.get("run")?.get("seed")?.as_integer()?).ok()?;
    Some(allot_report::compare::Question {
        baseline: None,
        targets: section.targets.clone(),
        axis: section.axis,
        margin: Some(section.margin),
        order: order.collect(),
        sources: Vec::new(),
        tuning: tuning::result(folder).ok().flatten().filter(|_| section.tune.is_some()),
        ignored: Vec::new(),
        planned: section.seeds(first),
        of_runs: false,
        looks: Vec::new(),
    })
}

fn named(error: Error, name: &str) -> Error {
    Error { what: format!("{name}: {}", error.what), ..error }
}
