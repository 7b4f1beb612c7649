//! A comparison's folder: a config for each policy and seed, and a folder for each of their runs. The same
//! folder again is the same comparison, which goes on.

use std::fs::File;
use std::path::{Path, PathBuf};

use toml::Table;

use crate::config::compare::CompareConfig;
use crate::config::simulate::SimulateConfig;
use crate::config::train::TrainConfig;
use crate::config::{self, BudgetConfig};
use crate::trouble::{Result, Trouble};
use crate::{folder, shipped};

/// What kind of runs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A model is trained. A run that is stopped goes on from its last checkpoint.
    Train,
    /// In the coin-flip world. A run that is stopped is run anew, which takes seconds.
    Simulate,
}

/// A run that is to be made.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The arm that it belongs to, by its place.
    pub arm: usize,
    /// Its seed.
    pub seed: u64,
    /// Its config.
    pub config: PathBuf,
    /// Its folder.
    pub folder: PathBuf,
    /// What it says while it runs.
    pub log: PathBuf,
}

/// A comparison.
pub struct Comparison {
    /// Its folder.
    pub folder: PathBuf,
    /// What kind of runs it has.
    pub kind: Kind,
    /// Its section of the config.
    pub section: CompareConfig,
    /// What its arms are called.
    pub arms: Vec<String>,
    /// Its seeds.
    pub seeds: Vec<u64>,
    /// Its runs, seed by seed: a comparison that is stopped has as many runs of each arm.
    pub runs: Vec<Planned>,
    /// Steps that a run has at most.
    pub steps: u32,
    /// What each run may spend.
    pub budget: BudgetConfig,
    /// Threads that each run takes.
    pub threads: usize,
    /// The configs of its runs, as text, in the order of the runs.
    texts: Vec<String>,
    /// The config that it was made from.
    text: String,
}

/// The config of a comparison in its folder. It is written last, and says that the rest is whole.
const CONFIG: &str = "compare.toml";

impl Comparison {
    /// Checks a config, every policy and every setting in it. `jobs` runs are to share this machine.
    pub fn new(path: &Path, folder: &Path, jobs: Option<usize>) -> Result<Self> {
        let text = config::read(path)?;
        let name = path.display().to_string();
        let whole: Table = config::parse(&text, &name)?;
        let kind = if whole.contains_key("world") { Kind::Simulate } else { Kind::Train };
        // For its line numbers: what is wrong is told of the file as it is.
        let (section, first, steps, budget) = match kind {
            Kind::Train => {
                let config = TrainConfig::parse(&text, &name)?;
                (config.compare, config.run.seed, config.run.steps, config.budget)
            }
            Kind::Simulate => {
                let config = SimulateConfig::parse(&text, &name)?;
                (config.compare, config.run.seed, config.run.steps, config.budget)
            }
        };
        let Some(section) = section else {
            let trouble = Trouble::new(format!("`{name}` has no section [compare]"));
            return Err(trouble.hint("say what is compared, as in configs/compare-tiny.toml"));
        };
        let (arms, seeds) = (section.arms(&whole, &name)?, section.seeds(first));
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let given = whole.get("model").and_then(|m| m.get("threads")).and_then(toml::Value::as_integer);
        let threads = given.map_or_else(|| (cores / jobs.unwrap_or(1)).max(1), |n| n.max(1) as usize);
        let threads = if kind == Kind::Train { threads } else { 1 };
        let (mut runs, mut texts) = (Vec::new(), Vec::new());
        for seed in &seeds {
            for (i, arm) in arms.iter().enumerate() {
                let called = format!("seed-{seed:04}");
                let place = folder.join("runs").join(&arm.name);
                runs.push(Planned {
                    arm: i,
                    seed: *seed,
                    config: folder.join("configs").join(&arm.name).join(format!("{called}.toml")),
                    folder: place.join(&called),
                    log: place.join(format!("{called}.log")),
                });
                texts.push(settled(kind, &arm.with_seed(*seed), &format!("{name}, {}", arm.name), threads)?);
            }
        }
        let arms = arms.into_iter().map(|arm| arm.name).collect();
        let folder = folder.to_owned();
        Ok(Self { folder, kind, section, arms, seeds, runs, steps, budget, threads, texts, text })
    }

    /// The comparison of a folder that has one.
    pub fn open(folder: &Path, jobs: Option<usize>) -> Result<Self> {
        let path = folder.join(CONFIG);
        if !path.exists() {
            let trouble = Trouble::new(format!("there is no comparison in `{}`", folder.display()));
            return Err(trouble.hint("--resume takes the folder of a comparison"));
        }
        Self::new(&path, folder, jobs)
    }

    /// Whether its folder is one already.
    pub fn exists(folder: &Path) -> bool {
        folder.join(CONFIG).exists()
    }

    /// Checks all that a run checks before its model is loaded, for the first seed of each arm.
    pub fn check(&self) -> Result<()> {
        for (run, text) in self.runs.iter().zip(&self.texts).take(self.arms.len()) {
            let name = format!("the config of `{}`", self.arms[run.arm]);
            match self.kind {
                Kind::Train => {
                    let config = TrainConfig::parse(text, &name)?;
                    let sandbox = shipped::sandbox(config.policy.caps.caps())?;
                    let policy =
                        shipped::load(&sandbox, &config.policy.source, config.policy.sha256.as_deref())?;
                    crate::training::Prepared::new(config, &policy).map_err(|t| named(t, &name))?;
                }
                Kind::Simulate => {
                    let config = SimulateConfig::parse(text, &name)?;
                    let sandbox = shipped::sandbox(config.policy.caps.caps())?;
                    let policy =
                        shipped::load(&sandbox, &config.policy.source, config.policy.sha256.as_deref())?;
                    crate::simulation::Simulation::new(&config, &policy, |_| {})
                        .map_err(|t| named(t, &name))?;
                }
            }
        }
        Ok(())
    }

    /// Writes the configs of its runs, or finds that they are there, and the same.
    pub fn keep(&self) -> Result<()> {
        let path = self.folder.join(CONFIG);
        if path.exists() {
            return if config::read(&path)? == self.text {
                Ok(())
            } else {
                let what = format!("there is another comparison in `{}` already", self.folder.display());
                Err(Trouble::new(what).hint("give another folder with --out, or go on with it: --resume"))
            };
        }
        for (run, text) in self.runs.iter().zip(&self.texts) {
            for folder in [run.config.parent(), run.folder.parent()].into_iter().flatten() {
                std::fs::create_dir_all(folder).map_err(|e| Trouble::file("make", folder, &e))?;
            }
            std::fs::write(&run.config, text).map_err(|e| Trouble::file("write", &run.config, &e))?;
        }
        let aside = self.folder.join(".compare.toml");
        std::fs::write(&aside, &self.text).map_err(|e| Trouble::file("write", &aside, &e))?;
        std::fs::rename(&aside, &path).map_err(|e| Trouble::file("write", &path, &e))
    }
}

/// What a folder's comparison asks of a report, if it is one.
pub fn question(folder: &Path) -> Option<allot_report::compare::Question> {
    let text = std::fs::read_to_string(folder.join(CONFIG)).ok()?;
    let whole: Table = toml::from_str(&text).ok()?;
    let section: CompareConfig = whole.get("compare")?.clone().try_into().ok()?;
    let order = section.arms(&whole, CONFIG).ok()?.into_iter().map(|arm| {
        let named = arm.config.get("run").and_then(|r| r.get("name")).and_then(toml::Value::as_str);
        named.map_or(arm.name, str::to_owned)
    });
    Some(allot_report::compare::Question {
        baseline: None,
        targets: section.targets.clone(),
        axis: section.axis,
        margin: Some(section.margin),
        order: order.collect(),
    })
}

/// A run's config as it is written down: paths whole, threads decided.
fn settled(kind: Kind, table: &Table, name: &str, threads: usize) -> Result<String> {
    let text = toml::to_string(table).map_err(|e| Trouble::new(format!("could not write a config: {e}")))?;
    match kind {
        Kind::Train => {
            let mut config = TrainConfig::parse(&text, name)?;
            config.model.threads.get_or_insert(threads);
            config.settle()?;
            folder::text(&config)
        }
        Kind::Simulate => folder::text(&SimulateConfig::parse(&text, name)?),
    }
}

fn named(trouble: Trouble, name: &str) -> Trouble {
    Trouble { what: format!("{name}: {}", trouble.what), ..trouble }
}

/// Whether no process is at work on a run: it would hold the lock of its config.
pub fn free(run: &Path) -> bool {
    File::open(run.join("resolved.toml")).map_or(true, |file| file.try_lock().is_ok())
}

/// Keeps others from a run as long as the file is held. Fails where another process is at work on it.
pub fn lock(run: &Path) -> Result<File> {
    let path = run.join("resolved.toml");
    let file = File::open(&path).map_err(|e| Trouble::file("read", &path, &e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            let what = format!("another process is at work on the run in `{}`", run.display());
            Err(Trouble::new(what).hint("wait for it, or stop it first"))
        }
        Err(std::fs::TryLockError::Error(e)) => Err(Trouble::file("lock", &path, &e)),
    }
}
