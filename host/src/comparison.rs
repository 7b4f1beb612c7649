//! A comparison's folder: a config for each policy and seed, and a folder for each of their runs. The same
//! folder again is the same comparison, which goes on, or grows by more seeds and more policies. Where its arms are
//! tuned first, its runs are those of the settings that won ([`tuning`]).

mod builds;
pub mod looks;
pub mod tuning;

use std::path::{Path, PathBuf};

use allot_allocation::Run;
use allot_bank::Draws;
use allot_config::PolicyConfig;
use allot_config::compare::{Arm, CompareConfig, Seeds};
use allot_config::simulate::SimulateConfig;
use allot_config::train::{ModelConfig, TrainConfig};
use allot_engine::tensors::DeviceName;
use allot_error::{Error, Result};
use allot_files::{lasting, lasting_up_to, write_lasting};
use allot_models::chat::{Date, may_ask_for_date};
use allot_report::Axis;
use allot_sandbox::sha256;
use toml::Table;

use self::tuning::{Shared, Tuner};
use crate::components::{self, Copy};
use crate::jobs::Field;
use crate::planned::{Planned, RunKind};
use crate::prepared::Prepared;
use crate::screen::Screen;
use crate::simulation::{SimulatedRun, Simulation};
use crate::until::{Means, Until};
use crate::{checkpoint, policy_loader, run_dir};

/// A comparison.
pub struct Comparison {
    /// Its folder.
    pub folder: PathBuf,
    /// What kind of runs it has.
    pub kind: RunKind,
    /// Its section of the config.
    pub section: CompareConfig,
    /// What its arms are called.
    pub arms: Vec<String>,
    /// Its seeds.
    pub seeds: Vec<u64>,
    /// Its runs, seed by seed: a comparison that is stopped has as many runs of each arm. Before its arms are tuned,
    /// they are those of the arms as they were declared, and are not to be made.
    pub runs: Vec<Planned>,
    /// What each run may spend.
    pub means: Means,
    /// How its arms are tuned, if they are.
    pub tuner: Option<Tuner>,
    /// Whether its arms are what they are compared as: tuned, or never to be.
    pub settled: bool,
    /// What to tell the user of its components.
    pub notes: Vec<String>,
    /// Threads that each run takes.
    pub threads: usize,
    /// Whether its runs train on a GPU.
    pub gpu: bool,
    /// The configs of its runs, as text, in the order of the runs.
    texts: Vec<String>,
    /// The config that it was made from.
    text: String,
    /// Whether that config is the one in its folder.
    resumed: bool,
}

/// The config of a comparison in its folder. It is written last, and says that the rest is whole.
const CONFIG: &str = "compare.toml";

impl Comparison {
    /// Checks a config, every policy and every setting in it. `overrides` were typed on top of it; `threads` is what
    /// each run takes where the config does not say it; none where the config has to.
    pub fn new(path: &Path, overrides: &[String], folder: &Path, threads: Option<usize>) -> Result<Self> {
        let tree = allot_config::open(path, overrides)?;
        let (name, mut whole, mut text) = (tree.name().to_owned(), tree.table()?, tree.text()?.into_owned());
        let simulated = whole.contains_key("world") || whole.contains_key("bank");
        let kind = if simulated { RunKind::Simulate } else { RunKind::Train };
        // For its line numbers: what is wrong is told of the file as it is.
        let (section, first, steps, budget, gpu) = match kind {
            RunKind::Train => {
                let config = TrainConfig::of(&tree)?;
                let gpu = config.model.device != DeviceName::Cpu;
                (config.compare, config.run.seed, config.run.steps, config.budget, gpu)
            }
            RunKind::Simulate => {
                let config = SimulateConfig::of(&tree)?;
                (config.compare, config.run.seed, config.run.steps, config.budget, false)
            }
        };
        let Some(mut section) = section else {
            let error = Error::new(format!("`{name}` has no section [compare]"));
            return Err(error.hint("say what is compared, as in configs/compare-tiny.toml"));
        };
        let unknown = kind == RunKind::Simulate && matches!(section.axis, Some(Axis::Flops | Axis::Seconds));
        if let Some(axis) = section.axis.filter(|_| unknown) {
            let what = format!("`{name}`: `compare.axis` is `{}`; a simulation does not know it", axis.key());
            return Err(Error::new(what));
        }
        let (mut arms, seeds) = (section.arms(&whole, &name)?, section.seeds(first));
        let (before, resumed) = (Before::in_folder(folder)?, path == folder.join(CONFIG));
        if let Some(before) = &before
            && builds::name(&mut whole, &section, &arms, folder, before)
        {
            text = toml::to_string(&whole)
                .map_err(|e| Error::new(format!("could not write the config: {e}")))?;
            section = section_of(&whole, &name)?;
            arms = section.arms(&whole, &name)?;
        }
        let mut notes = builds::give(&mut arms, folder, resumed, before.as_ref())?;
        notes.extend(tree.based_on());
        let means = Means { budget, steps };
        let shared = Shared { name: &name, folder, section: &section, seeds: (first, &seeds), kind, means };
        let tuner = section.tune.as_ref().map(|tune| Tuner::new(tune, &shared, &arms)).transpose()?;
        let mut settled = tuner.is_none();
        if let Some(tuner) = &tuner
            && let Some(result) = tuning::result(folder)?
        {
            (arms, settled) = tuner.won(&result);
        }
        // As they were decided when the comparison began: weights depend on threads, to the last bit, and prompts on the day.
        let kept = {
            let first = arms.first().zip(seeds.first());
            let first = first.map(|(arm, seed)| config_of(folder, &arm.name, *seed));
            let trial = tuner
                .as_ref()
                .and_then(|tuner| tuner.field(0, &tuner.all()).runs.first().map(|r| r.config.clone()));
            first.into_iter().chain(trial).find_map(|config| model_of(&config))
        };
        let date = kept.as_ref().and_then(|kept| kept.date).unwrap_or_else(Date::today);
        let threads = match kind {
            RunKind::Simulate => 1,
            RunKind::Train => {
                let given =
                    whole.get("model").and_then(|m| m.get("threads")).and_then(toml::Value::as_integer);
                let given = given.map(|n| n.max(1) as usize);
                kept.and_then(|kept| kept.threads).or(given).or(threads).ok_or_else(|| {
                    let what = format!("`{name}` does not say how many threads a run takes on a node");
                    Error::new(what)
                        .hint("set `model.threads`: the cores of this machine are not a cluster's")
                })?
            }
        };
        let (mut runs, mut texts) = (Vec::new(), Vec::new());
        for (column, seed) in seeds.iter().enumerate() {
            for (i, arm) in arms.iter().enumerate() {
                let called = format!("seed-{seed:04}");
                let place = folder.join("runs").join(&arm.name);
                runs.push(Planned {
                    arm: i,
                    column,
                    trial: None,
                    seed: *seed,
                    until: Until::default(),
                    config: config_of(folder, &arm.name, *seed),
                    folder: place.join(&called),
                    log: place.join(format!("{called}.log")),
                    component: builds::copy(folder, &arm.config),
                });
                let run = Decided { config: &config_of(folder, &arm.name, *seed), threads, date };
                texts.push(self::settled(
                    kind,
                    &arm.with_seed(*seed),
                    &format!("{name}, {}", arm.name),
                    &run,
                )?);
            }
        }
        let arms = arms.into_iter().map(|arm| arm.shown).collect();
        let folder = folder.to_owned();
        let tuner = tuner.map(|tuner| tuner.decided(threads, date));
        Ok(Self {
            folder,
            kind,
            section,
            arms,
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

    /// Its runs, as they stand side by side.
    pub fn field(&self) -> Field {
        Field {
            kind: self.kind,
            means: self.means,
            rows: self.arms.clone(),
            columns: self.seeds.iter().map(u64::to_string).collect(),
            runs: self.runs.clone(),
        }
    }

    /// The comparison of a folder that has one, with what was typed on top of its config if it is to grow.
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
                "`{}` asks for a run that has no config, `{}`",
                path.display(),
                missing.config.display()
            );
            let hint = "put back what was changed; for more seeds say --seeds, and for more policies give the longer config and this folder with --out";
            return Err(Error::new(what).hint(hint));
        }
        Ok(comparison)
    }

    /// Whether its folder is one already.
    pub fn exists(folder: &Path) -> bool {
        folder.join(CONFIG).exists()
    }

    /// Checks all that a run checks before its model is loaded, for the first seed of each arm. Gives the arms'
    /// runs as their policies would see them.
    pub fn check(&self, screen: &mut Screen<'_>) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        for (run, text) in self.runs.iter().zip(&self.texts).take(self.arms.len()) {
            let name = format!("the config of `{}`", self.arms[run.arm]);
            let mut load = |policy: &PolicyConfig| {
                let sandbox = policy_loader::sandbox(policy.caps.caps())?;
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

    /// The bytes at a component's path, if they are those of the arm.
    fn named(&self, run: &Planned, bytes: Vec<u8>, source: &str) -> Result<Vec<u8>> {
        let missing =
            run.component.as_ref().filter(|copy| run.config.exists() && sha256(&bytes) != copy.sha256);
        let Some(copy) = missing else { return Ok(bytes) };
        let what = format!(
            "`{}` keeps no copy of the component of `{}`, with sha256 {}, and `{source}` is another component by now",
            self.folder.display(),
            self.arms[run.arm],
            copy.sha256
        );
        Err(Error::new(what).hint("put the file of that time back, or begin another comparison"))
    }

    /// The copy of a run's component that the comparison keeps, or else one of the runs of its arm.
    fn copy_of(&self, run: &Planned) -> Result<Option<Vec<u8>>> {
        let Some(copy) = &run.component else { return Ok(None) };
        let of_arm = self.runs.iter().filter(|other| other.arm == run.arm);
        let of_runs = of_arm.map(|run| Copy { folder: run.folder.clone(), sha256: copy.sha256.clone() });
        std::iter::once(copy.clone()).chain(of_runs).find_map(|copy| copy.bytes().transpose()).transpose()
    }

    /// What its runs can't show, by arithmetic alone, of arms as [`check`](Self::check) gives them.
    pub fn idle(&self, runs: &[Run]) -> Vec<String> {
        let mut told = Vec::new();
        let most = |run: &Run| {
            let uniform = u64::from(self.means.steps) * u64::from(run.groups) * u64::from(run.rollouts);
            self.means.budget.rollouts.map_or(uniform, |budget| budget.min(uniform))
        };
        let passes = |run: &Run| most(run) as f64 / (f64::from(run.rollouts) * f64::from(run.prompts));
        if let Some(run) = runs.first().filter(|_| runs.iter().all(|run| passes(run) < 1.0)) {
            told.push(format!(
                "no prompt is offered twice, unless a policy asks for fewer than {:.1} rollouts a prompt: what a policy \
                 makes of past visits, and of evicting prompts for good, would not be tested",
                most(run) as f64 / f64::from(run.prompts)
            ));
        }
        for (i, one) in runs.iter().enumerate() {
            for (j, other) in runs.iter().enumerate().skip(i + 1) {
                if one == other && bare(&self.texts[i]) == bare(&self.texts[j]) {
                    let (one, other) = (&self.arms[i], &self.arms[j]);
                    told.push(format!("`{one}` and `{other}` are the same, with the same settings in force"));
                }
            }
        }
        told
    }

    /// How many runs it has beyond those of the comparison in its folder; none if there is no comparison there.
    /// Fails if that is another one: a comparison grows by seeds and by policies, and changes in nothing else.
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
        let other = |why: String, hint: &'static str| {
            let shown = self.folder.display();
            Err(if self.resumed {
                Error::new(format!("the comparison in `{shown}` is another one: {why}")).hint(hint)
            } else {
                let what = format!("there is another comparison in `{shown}` already: {why}");
                Error::new(what).hint("give another folder with --out, or go on with it: --resume")
            })
        };
        let back = "put back what was changed";
        let asks =
            |s: &CompareConfig| CompareConfig { seeds: Seeds::Count(1), policies: Vec::new(), ..s.clone() };
        if asks(&before.section) != asks(&self.section) {
            let why = "its targets, axis, margin or tuning are others, and they are set beforehand";
            return other(why.to_owned(), back);
        }
        for config in &before.configs {
            let shown = config.display();
            let Some(place) = self.runs.iter().position(|run| run.config == *config) else {
                let why = format!("it has the run of `{shown}`, which this one leaves out");
                return other(why, "list every seed that it has in --seeds, and those to add");
            };
            if self.tuner.is_some() && !config.exists() {
                // Its arm is not tuned yet.
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

    /// Writes the configs of its runs, but for those that are there.
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
        // All else is there before what says that it is.
        lasting_up_to(folders, &self.folder)?;
        write_lasting(&path, self.text.as_bytes())?;
        lasting(&self.folder)
    }

    /// Keeps a copy of each arm's component, if it is one of the user's own.
    fn keep_components(&self) -> Result<()> {
        for (run, text) in self.runs.iter().zip(&self.texts).take(self.arms.len()) {
            let Some(copy) =
                run.component.as_ref().filter(|copy| copy.bytes().is_ok_and(|kept| kept.is_none()))
            else {
                continue;
            };
            let source: Table = allot_config::parse(text, "a run's config")?;
            let source =
                source.get("policy").and_then(|policy| policy.get("use")?.as_str()).unwrap_or_default();
            let bytes = match self.copy_of(run)? {
                Some(bytes) => bytes,
                None => std::fs::read(source).map_err(|e| Error::file("read", Path::new(source), &e))?,
            };
            if sha256(&bytes) == copy.sha256 {
                components::keep(&self.folder, &bytes)?;
            }
        }
        Ok(())
    }
}

/// What a folder's comparison was made of.
struct Before {
    section: CompareConfig,
    /// Its arms: the names of their folders, and what they are called.
    arms: Vec<(String, String)>,
    /// The configs of its runs.
    configs: Vec<PathBuf>,
}

impl Before {
    /// The comparison in a folder, if there is one.
    fn in_folder(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(CONFIG);
        if path.exists() { Self::of(&allot_config::read(&path)?, &path, folder).map(Some) } else { Ok(None) }
    }

    /// Whether it has an arm of this name.
    fn has(&self, arm: &Arm) -> bool {
        self.arms.iter().any(|(name, _)| *name == arm.name)
    }

    /// From the text of its config, which is at this path.
    fn of(text: &str, path: &Path, folder: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let whole: Table = allot_config::parse(text, &name)?;
        let damaged = || Error::new(format!("`{name}` is no comparison's config any more"));
        let section = section_of(&whole, &name)?;
        let first = whole.get("run").and_then(|run| run.get("seed")).and_then(toml::Value::as_integer);
        let seeds = section.seeds(first.and_then(|seed| u64::try_from(seed).ok()).ok_or_else(damaged)?);
        let arms = section.arms(&whole, &name)?;
        let of = |seed: u64| arms.iter().map(move |arm| config_of(folder, &arm.name, seed));
        let configs = seeds.into_iter().flat_map(of).collect();
        let arms = arms.iter().map(|arm| (arm.name.clone(), arm.shown.clone())).collect();
        Ok(Self { section, arms, configs })
    }
}

/// The section for the comparison, of a config that had one.
fn section_of(whole: &Table, name: &str) -> Result<CompareConfig> {
    let section = whole.get("compare").and_then(|section| section.clone().try_into().ok());
    section.ok_or_else(|| Error::new(format!("`{name}` is no comparison's config any more")))
}

/// A run's config as this version of the program would write it: keys that came since are in it.
fn anew(kind: RunKind, text: &str, name: &str) -> Result<String> {
    match kind {
        RunKind::Train => run_dir::text(&TrainConfig::parse(text, name)?),
        RunKind::Simulate => run_dir::text(&SimulateConfig::parse(text, name)?),
    }
}

/// Where the config of a run is.
fn config_of(folder: &Path, arm: &str, seed: u64) -> PathBuf {
    folder.join("configs").join(arm).join(format!("seed-{seed:04}.toml"))
}

/// The model of a run's config, if the config has been written.
fn model_of(config: &Path) -> Option<ModelConfig> {
    let text = std::fs::read_to_string(config).ok()?;
    Some(TrainConfig::parse(&text, "").ok()?.model)
}

/// What a folder's comparison asks of a report, if it is one.
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
        planned: section.seeds(first),
        looks: Vec::new(),
    })
}

/// What is the same in all runs of a comparison, whenever and wherever they begin.
struct Decided<'a> {
    /// Where the run's config is, or will be.
    config: &'a Path,
    threads: usize,
    /// The day, for runs whose model may ask for it.
    date: Date,
}

/// A run's config as it is written down: paths whole, threads and date decided.
fn settled(kind: RunKind, table: &Table, name: &str, decided: &Decided<'_>) -> Result<String> {
    let text = toml::to_string(table).map_err(|e| Error::new(format!("could not write a config: {e}")))?;
    match kind {
        RunKind::Train => {
            let mut config = TrainConfig::parse(&text, name)?;
            config.model.threads.get_or_insert(decided.threads);
            config.settle()?;
            if config.model.date.is_none() {
                config.model.date = match model_of(decided.config) {
                    Some(kept) => kept.date,
                    None => allot_models::find(&config.model.source)
                        .is_ok_and(|model| may_ask_for_date(&model))
                        .then_some(decided.date),
                };
            }
            config.policy.pin();
            run_dir::text(&config)
        }
        RunKind::Simulate => {
            let mut config = SimulateConfig::parse(&text, name)?;
            config.settle()?;
            let bank = config.bank.as_ref().map(|bank| checkpoint::sha256(Path::new(&bank.file)));
            config.pin(bank.transpose()?);
            run_dir::text(&config)
        }
    }
}

/// A run's config without its name and without the settings that were written out.
fn bare(text: &str) -> Option<Table> {
    let mut config: Table = toml::from_str(text).ok()?;
    config.get_mut("run")?.as_table_mut()?.remove("name");
    config.get_mut("policy")?.as_table_mut()?.remove("settings");
    Some(config)
}

fn named(error: Error, name: &str) -> Error {
    Error { what: format!("{name}: {}", error.what), ..error }
}
