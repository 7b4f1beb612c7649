//! The tuning of a comparison's arms: its trials, a folder for each of their runs, their results, and the
//! winning settings. Everything is derived from the config and the trials' records, so a stopped tuning can
//! be resumed with the same result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use allot_base::{Error, Result, lasting, lasting_up_to, write_lasting};
use allot_config::compare::Arm;
use allot_config::ranges::Range;
use allot_config::tune::{Objective, Search, TrialConfig, TuneConfig, value};
use allot_models::chat::Date;
use allot_report::history::History;
use allot_report::tuning::{Goal, Measure, Seen, Trial, Tuned, TunedArm, Tuning, promoted};
use allot_report::{Axis, Costs, follow};
use toml::Table;

use super::builds;
use super::declared::Declared;
use super::run_config::{RunDefaults, anew, settled};
use crate::jobs::Field;
use crate::planned::{self, PlannedRun, RunKind};
use crate::until::{Means, Until};

/// A tuning.
pub struct Tuner {
    /// Its folder.
    pub folder: PathBuf,
    /// Its objective.
    pub goal: Goal,
    /// The seeds of its trials.
    pub seeds: Vec<u64>,
    /// Its rungs: the most trials in each, and the share of the budget spent by its end.
    pub rungs: Vec<(usize, f64)>,
    /// The budget of a run.
    pub means: Means,
    arms: Vec<ArmTuner>,
    kind: RunKind,
    search: Search,
    /// The settings that its runs share.
    pub defaults: RunDefaults,
    /// The config's name in errors.
    name: String,
}

/// An arm and its trials.
struct ArmTuner {
    arm: Arm,
    ranges: Vec<(String, Range)>,
    trials: Vec<TrialConfig>,
}

/// The trials of a rung, by arm.
pub type Alive = Vec<Vec<u32>>;

/// The file of the result. It is written at the end, and rebuilt from the trials' records if it is lost.
const RESULT: &str = "tuning.json";

/// Returns the result of a comparison's tuning, if it is finished.
pub fn result(comparison: &Path) -> Result<Option<Tuning>> {
    let path = planned::tuning(comparison).join(RESULT);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::file("read", &path, &e)),
    };
    let read = serde_json::from_str(&text).map_err(|e| {
        let error = Error::new(format!("`{}` is damaged: {e}", path.display()));
        error.hint("remove it: it is rebuilt from the records of the trials")
    });
    read.map(Some)
}

impl Tuner {
    /// Returns the tuning of these arms, which have their declared settings.
    pub fn new(tune: &TuneConfig, of: &Declared, comparison: &Path, arms: &[Arm]) -> Result<Self> {
        let Declared { name, section, means, kind, seed: first, .. } = of;
        let (first, means) = (*first, *means);
        let seeds = tune.seeds(name, first, &of.seeds)?;
        let arm = |(i, arm): (usize, &Arm)| {
            Ok(ArmTuner {
                ranges: tune.of(name, arm, i == 0)?,
                trials: tune.trials(name, (arm, i == 0), first)?,
                arm: arm.clone(),
            })
        };
        let arms: Vec<ArmTuner> = arms.iter().enumerate().map(arm).collect::<Result<_>>()?;
        let most = arms.iter().map(|arm| arm.trials.len()).max().unwrap_or(0);
        let axis = section.axis.unwrap_or_else(|| {
            let budget = means.budget;
            match (budget.rollouts, budget.tokens, budget.flops, budget.seconds) {
                (None, Some(_), ..) => Axis::Tokens,
                (None, None, Some(_), _) => Axis::Flops,
                (None, None, None, Some(_)) => Axis::Seconds,
                _ => Axis::Rollouts,
            }
        });
        let target = section.targets.first().copied();
        let target = target.filter(|_| tune.objective(&section.targets) == Objective::Cost);
        Ok(Self {
            folder: planned::tuning(comparison),
            goal: Goal { target, axis },
            seeds,
            rungs: tune.rungs(most),
            means,
            arms,
            kind: *kind,
            search: tune.search(),
            defaults: RunDefaults { threads: 1, date: Date::today() },
            name: name.clone(),
        })
    }

    /// Returns the path of its first run's config.
    pub fn first_config(&self) -> Option<PathBuf> {
        self.field(0, &self.all()).runs.first().map(|run| run.config.clone())
    }

    /// Returns all trials of all arms.
    pub fn all(&self) -> Alive {
        self.arms.iter().map(|arm| arm.trials.iter().map(|trial| trial.number).collect()).collect()
    }

    /// Returns the number of trials of each arm.
    pub fn trials(&self) -> Vec<(&str, usize)> {
        self.arms.iter().map(|arm| (arm.arm.shown.as_str(), arm.trials.len())).collect()
    }

    /// Returns how many full budgets an arm with `trials` trials spends at most per seed.
    pub fn most(&self, trials: usize) -> f64 {
        let mut before = 0.0;
        let rung = |(rung, (size, share)): (usize, &(usize, f64))| {
            // The declared setting is never dropped.
            let declared = usize::from(rung > 0);
            let spent = (size + declared).min(trials) as f64 * (share - before);
            before = *share;
            spent
        };
        self.rungs.iter().enumerate().map(rung).sum()
    }

    /// Returns where the trials of a rung pause.
    fn until(&self, rung: usize) -> Until {
        Until { share: Some(self.rungs[rung].1), accuracy: self.goal.target }
    }

    /// Returns a rung's folder, for the executor's files.
    pub fn rung(&self, rung: usize) -> PathBuf {
        self.folder.join(format!("rung-{}", rung + 1))
    }

    /// Returns the runs of a rung, arm by arm.
    pub fn field(&self, rung: usize, alive: &Alive) -> Field {
        let mut columns: Vec<(u32, u64)> = Vec::new();
        for trial in alive.iter().flatten() {
            columns.extend(self.seeds.iter().map(|seed| (*trial, *seed)));
        }
        columns.sort_unstable();
        columns.dedup();
        let mut runs = Vec::new();
        for (arm, trials) in alive.iter().enumerate() {
            for trial in trials {
                for seed in &self.seeds {
                    let column = columns.binary_search(&(*trial, *seed)).unwrap_or(0);
                    runs.push(self.planned(rung, (arm, *trial), (*seed, column)));
                }
            }
        }
        let head = |(trial, _): &(u32, u64)| format!("#{trial}");
        Field {
            kind: self.kind,
            means: self.means,
            rows: self.arms.iter().map(|arm| arm.arm.shown.clone()).collect(),
            columns: columns.iter().map(head).collect(),
            runs,
        }
    }

    fn planned(&self, rung: usize, (arm, trial): (usize, u32), (seed, column): (u64, usize)) -> PlannedRun {
        let of = &self.arms[arm].arm;
        let group = Path::new(&of.name).join(format!("trial-{trial:02}"));
        PlannedRun {
            arm,
            column,
            trial: Some(trial),
            until: self.until(rung),
            component: self.folder.parent().and_then(|folder| builds::copy(folder, &of.config)),
            ..PlannedRun::new(&self.folder, &group, seed)
        }
    }

    /// Returns a trial's config.
    fn text(&self, arm: usize, trial: u32, seed: u64) -> Result<String> {
        let of = &self.arms[arm];
        let settings = of.trials.iter().find(|t| t.number == trial).map_or(&[][..], |t| &t.settings);
        let mut config = of.arm.with(settings).with_seed(seed);
        if let Some(toml::Value::Table(run)) = config.get_mut("run") {
            run.insert("name".to_owned(), toml::Value::String(format!("{} #{trial}", of.arm.shown)));
        }
        let shown: Vec<String> = settings.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        let name = format!("{}, trial {trial} of {} ({})", self.name, of.arm.name, shown.join(", "));
        settled(&self.planned(0, (arm, trial), (seed, 0)), self.kind, &config, &name, self.defaults)
            .map_err(|e| e.hint("give narrower ranges: every setting in them must make a valid config"))
    }

    /// Checks that every trial's config is valid, and that the shortest rung has an evaluation.
    pub fn check(&self) -> Result<()> {
        self.check_rungs()?;
        for (arm, of) in self.arms.iter().enumerate() {
            for trial in &of.trials {
                self.text(arm, trial.number, self.seeds[0])?;
            }
        }
        Ok(())
    }

    /// Fails if a rung ends before the first evaluation: trials would be ranked by the untrained model.
    fn check_rungs(&self) -> Result<()> {
        let (Some(budget), Some((_, share))) = (self.means.budget.rollouts, self.rungs.first()) else {
            return Ok(());
        };
        let ends = (share * budget as f64) as u64;
        for of in &self.arms {
            let every = of.arm.config.get("evaluation").and_then(|section| section.get("every_rollouts"));
            let every = every.and_then(toml::Value::as_integer).and_then(|every| u64::try_from(every).ok());
            if let Some(every) = every.filter(|every| *every > ends) {
                let what = format!(
                    "`{}`: the first rung of the tuning of `{}` ends after {ends} rollouts, before its first \
                     evaluation at {every}",
                    self.name, of.arm.shown
                );
                return Err(Error::new(what)
                    .hint("evaluate more often, with `evaluation.every_rollouts`, or set fewer `compare.tune.rungs`"));
            }
        }
        Ok(())
    }

    /// Writes the configs of these runs that are missing.
    pub fn keep(&self, field: &Field) -> Result<()> {
        let mut folders: Vec<&Path> = Vec::new();
        for run in field.runs.iter().filter(|run| !run.config.exists()) {
            folders.extend(run.keep(&self.text(run.arm, run.trial.unwrap_or(0), run.seed)?)?);
        }
        if folders.is_empty() { Ok(()) } else { lasting_up_to(folders, &self.folder) }
    }

    /// Returns the measures of an arm's trials in a rung, which have these runs.
    pub fn measured<'r>(
        &self,
        rung: usize,
        runs: impl Iterator<Item = &'r PlannedRun>,
    ) -> BTreeMap<u32, Measure> {
        let mut seen: BTreeMap<u32, Vec<Option<Seen>>> = BTreeMap::new();
        for run in runs {
            let one = self.history(rung, run).and_then(|(history, _)| {
                let share = self.rungs[rung].1;
                // A trial is not measured beyond the rung, however long its last step was.
                let within = |steps, costs: &Costs| self.means.share(steps, costs) <= share + 1e-9;
                Seen::of(&history, self.goal, within)
            });
            seen.entry(run.trial.unwrap_or(0)).or_default().push(one);
        }
        seen.into_iter().map(|(trial, seen)| (trial, Measure::of(&seen))).collect()
    }

    /// Returns the arm's trials that continue in the next rung; none after the last rung.
    pub fn going_on(&self, rung: usize, measured: &BTreeMap<u32, Measure>) -> Vec<u32> {
        let Some((size, _)) = self.rungs.get(rung + 1) else { return Vec::new() };
        let trials: Vec<(u32, Measure)> =
            measured.iter().map(|(number, measure)| (*number, *measure)).collect();
        promoted(&trials, *size)
    }

    /// Returns a run's history up to its pause in a rung, and its costs by then; none if the run failed.
    fn history(&self, rung: usize, run: &PlannedRun) -> Option<(History, Costs)> {
        let mut history = follow::read(&run.folder, &mut |_| {}).ok()?;
        if let Some(steps) = self.until(rung).in_history(&self.means, &history) {
            history.steps.truncate(steps as usize);
            history.scores.retain(|score| score.steps <= steps);
        } else if history.end.as_ref().is_none_or(|end| !end.normal) {
            return None;
        }
        let costs = history.steps.last().map_or_else(Costs::default, |step| step.costs);
        Some((history, costs))
    }

    /// Removes the checkpoints of an arm's runs that do not continue, because their trials do not or because
    /// they have reached the target. Their records are kept.
    pub fn drop<'r>(&self, runs: impl Iterator<Item = &'r PlannedRun>, alive: &[u32]) {
        let there = Until { share: None, accuracy: self.goal.target };
        let is_there = |run: &PlannedRun| {
            let history = follow::read(&run.folder, &mut |_| {});
            history.is_ok_and(|history| there.in_history(&self.means, &history).is_some())
        };
        for run in runs {
            let checkpoints = run.folder.join("checkpoints");
            let is_out = run.trial.is_some_and(|trial| !alive.contains(&trial));
            if checkpoints.exists() && (is_out || is_there(run)) {
                // A failure only costs disk space.
                let _ = std::fs::remove_dir_all(checkpoints);
            }
        }
    }

    /// Returns the result. `rungs` has each rung's measures, by arm, and `failed` the reasons of failures.
    pub fn result(
        &self,
        rungs: &[Vec<BTreeMap<u32, Measure>>],
        failed: &BTreeMap<(usize, u32), String>,
    ) -> Tuning {
        let arms = self.arms.iter().enumerate().map(|(i, of)| {
            let trial = |trial: &TrialConfig| {
                let measures: Vec<Measure> =
                    rungs.iter().map_while(|rung| rung[i].get(&trial.number).copied()).collect();
                let last = measures.len().saturating_sub(1);
                let none = Costs { seconds: Some(0.0), ..Costs::default() };
                let costs = self.seeds.iter().fold(none, |sum, seed| {
                    let run = self.planned(last, (i, trial.number), (*seed, 0));
                    self.history(last, &run).map_or(sum, |(_, costs)| sum.plus(&costs))
                });
                // Seconds depend on the machine and the day.
                let costs = Costs { seconds: None, ..costs };
                let failed = failed.get(&(i, trial.number)).cloned();
                Trial { number: trial.number, values: self.values(i, trial), rungs: measures, costs, failed }
            };
            let last: Vec<(u32, Measure)> =
                rungs.last().map(|rung| rung[i].iter().map(|(n, m)| (*n, *m)).collect()).unwrap_or_default();
            TunedArm {
                name: of.arm.shown.clone(),
                ranges: of.ranges.iter().map(|(key, range)| tuned(key, range)).collect(),
                trials: of.trials.iter().map(trial).collect(),
                best: allot_report::tuning::ranked(&last).first().copied().unwrap_or(0),
            }
        });
        Tuning {
            grid: self.is_grid(),
            goal: self.goal,
            seeds: self.seeds.clone(),
            shares: self.rungs.iter().map(|(_, share)| *share).collect(),
            arms: arms.collect(),
        }
    }

    /// Returns a trial's values of the tuned settings.
    fn values(&self, arm: usize, trial: &TrialConfig) -> Vec<serde_json::Value> {
        let of = &self.arms[arm];
        // With the defaults of missing keys.
        let whole = self.text(arm, trial.number, self.seeds[0]).ok();
        let whole: Option<Table> = whole.and_then(|text| toml::from_str(&text).ok());
        let one = |(key, _): &(String, Range)| {
            let set = trial.settings.iter().find(|(k, _)| k == key).map(|(_, value)| value.clone());
            let set = set.or_else(|| value(whole.as_ref()?, key));
            set.and_then(|value| serde_json::to_value(value).ok()).unwrap_or_default()
        };
        of.ranges.iter().map(one).collect()
    }

    /// Writes the result of the tuning.
    pub fn write(&self, tuning: &Tuning) -> Result<()> {
        let path = self.folder.join(RESULT);
        let mut text =
            serde_json::to_string_pretty(tuning).map_err(|e| Error::new(format!("no JSON: {e}")))?;
        text.push('\n');
        write_lasting(&path, text.as_bytes())?;
        lasting(&self.folder)
    }

    /// Returns the arms with their winning or else declared settings, and whether all have a winner.
    pub fn won(&self, tuning: &Tuning) -> (Vec<Arm>, bool) {
        let won = |of: &ArmTuner| {
            let best = tuning.arms.iter().find(|arm| arm.name == of.arm.shown)?.best;
            Some(of.arm.with(&of.trials.iter().find(|trial| trial.number == best)?.settings))
        };
        let all: Vec<Option<Arm>> = self.arms.iter().map(won).collect();
        let whole = !self.is_grid() && all.iter().all(Option::is_some);
        let arms = self.arms.iter().zip(all).map(|(of, won)| won.unwrap_or_else(|| of.arm.clone()));
        (arms.collect(), whole)
    }

    /// Returns whether this is a grid search, which has no winner.
    pub fn is_grid(&self) -> bool {
        self.search == Search::Grid
    }

    /// Returns a trial's existing config that differs from what this tuning would write: its path, the
    /// differing line, and the line that this tuning would write.
    pub fn differs(&self) -> Result<Option<(PathBuf, String, String)>> {
        for run in self.field(0, &self.all()).runs.iter().filter(|run| run.config.exists()) {
            let then = anew(self.kind, &allot_config::read(&run.config)?, &run.config.display().to_string())?;
            let now = self.text(run.arm, run.trial.unwrap_or(0), run.seed)?;
            if let Some((then, now)) = then.lines().zip(now.lines()).find(|(then, now)| then != now) {
                return Ok(Some((run.config.clone(), then.to_owned(), now.to_owned())));
            }
        }
        Ok(None)
    }
}

/// Returns a tuned setting in a report's form.
fn tuned(key: &str, range: &Range) -> Tuned {
    let ends = range.numbers();
    let (low, high) = (ends.map(|e| e.0), ends.map(|e| e.1));
    // Lists such as 1, 2, 4, 8 are spaced logarithmically.
    let spread = low.zip(high).is_some_and(|(low, high)| low > 0.0 && high / low >= 4.0);
    let log = match range {
        Range::List(_) => spread,
        Range::Span { log, .. } => *log,
    };
    Tuned { key: key.to_owned(), low, high, log }
}
