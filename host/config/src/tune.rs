//! `[compare.tune]` of a config: the ranges and the method for tuning each arm before the comparison.
//!
//! Every arm has the same number of trials. The first is its declared setting. The others are drawn from
//! the run's seed, and are the same for arms with the same range. [`ranges`](crate::ranges) has the draws.

use allot_base::{Error, Result};
use serde::{Deserialize, Serialize};
use toml::Table;

use crate::arm::{Arm, Seeds};
use crate::ranges::{Range, alike, drawn, product, ranges};

/// The tuning of the arms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TuneConfig {
    /// Trials of each arm, including its declared setting.
    pub trials: Option<u32>,
    /// Instead of `trials`: whether to try all combinations of the ranges' values.
    #[serde(default)]
    pub grid: bool,
    /// The number of seeds of each trial, counted from a million above the run's own, or a list of seeds.
    #[serde(default = "one")]
    pub seeds: Seeds,
    /// Only one in this many trials continues to the next rung.
    #[serde(default = "three")]
    pub reduction: u32,
    /// Number of rungs. By default chosen so that the last rung has two trials to choose from.
    pub rungs: Option<u32>,
    /// The share of the budget of a trial in the last rung.
    #[serde(default = "whole")]
    pub share: f64,
    /// The objective of the tuning.
    pub objective: Option<Objective>,
    /// Ranges that are tuned for every arm: keys of the config with the values to try.
    #[serde(default)]
    pub ranges: Table,
    /// Ranges that are tuned for the baseline alone.
    #[serde(default)]
    pub baseline: Table,
}

/// The objective of a tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// The cost to the first target.
    Cost,
    /// The accuracy at the end.
    Accuracy,
}

/// The method of selecting trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Draws `trials` settings from the ranges.
    Drawn,
    /// Tries all combinations of the ranges.
    Grid,
}

/// A trial's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialConfig {
    /// The trial's number. 0 is the declared setting.
    pub number: u32,
    /// The values that the trial sets, by key. The declared setting sets none.
    pub settings: Vec<(String, toml::Value)>,
}

/// Distance of a tuning's seeds from the run's seed: large enough for a comparison to add seeds.
const PAST: u64 = 1_000_000;

/// Maximum number of trials. Each takes at least one run.
const MOST_TRIALS: u32 = 1000;

fn one() -> Seeds {
    Seeds::Count(1)
}

fn three() -> u32 {
    3
}

fn whole() -> f64 {
    1.0
}

impl TuneConfig {
    /// Checks the section and the comparison's targets, but no arms. `name` names the config in errors.
    pub fn check(&self, name: &str, targets: &[f64]) -> Result<()> {
        let wrong = |what: String| Err(Error::new(format!("`{name}`: {what}")));
        match self.trials {
            Some(n) if !(2..=MOST_TRIALS).contains(&n) => {
                return wrong(format!("`compare.tune.trials` is {n}; expected 2 to {MOST_TRIALS}"));
            }
            None if !self.grid => {
                let error = Error::new(format!("`{name}`: `compare.tune.trials` is missing"));
                return Err(error.hint("set the number of settings to try for each policy"));
            }
            _ => {}
        }
        self.seeds.check(name, "compare.tune.seeds")?;
        if self.reduction < 2 {
            return wrong(format!("`compare.tune.reduction` is {}; expected at least 2", self.reduction));
        }
        if self.rungs.is_some_and(|rungs| !(1..=20).contains(&rungs)) {
            return wrong("`compare.tune.rungs` must be from 1 to 20".to_owned());
        }
        if !(self.share > 0.0 && self.share <= 1.0) {
            return wrong(format!(
                "`compare.tune.share` is {}; expected more than 0 and at most 1, the whole budget",
                self.share
            ));
        }
        if self.objective == Some(Objective::Cost) && targets.is_empty() {
            let error =
                Error::new(format!("`{name}`: arms are tuned for cost to a target, but there is no target"));
            return Err(error.hint("set `compare.targets`, or `compare.tune.objective = \"accuracy\"`"));
        }
        ranges(name, "compare.tune.ranges", &self.ranges)?;
        ranges(name, "compare.tune.baseline", &self.baseline)?;
        Ok(())
    }

    /// Returns the objective. By default the cost to the first target, or the accuracy without targets.
    pub fn objective(&self, targets: &[f64]) -> Objective {
        self.objective.unwrap_or(if targets.is_empty() { Objective::Accuracy } else { Objective::Cost })
    }

    /// Returns the method of selecting trials.
    pub fn search(&self) -> Search {
        if self.grid { Search::Grid } else { Search::Drawn }
    }

    /// Returns the seeds of trials. None may be a seed of the comparison. `first` is the run's seed.
    pub fn seeds(&self, name: &str, first: u64, own: &[u64]) -> Result<Vec<u64>> {
        let seeds = match &self.seeds {
            Seeds::Count(n) => {
                (0..u64::from(*n)).map(|i| first.saturating_add(PAST).saturating_add(i)).collect()
            }
            Seeds::List(list) => list.clone(),
        };
        match seeds.iter().find(|seed| own.contains(seed)) {
            None => Ok(seeds),
            Some(seed) => {
                let error = Error::new(format!(
                    "`{name}`: seed {seed} is used by both the comparison and its tuning; a winner would be evaluated on \
                     the seed that selected it"
                ));
                Err(error.hint("leave `compare.tune.seeds` out, or set it to seeds outside `compare.seeds`"))
            }
        }
    }

    /// Returns the ranges of an arm by key: the shared ranges, replaced or extended by the arm's own.
    pub fn of(&self, name: &str, arm: &Arm, baseline: bool) -> Result<Vec<(String, Range)>> {
        let mut all = ranges(name, "compare.tune.ranges", &self.ranges)?;
        let own = if baseline { &self.baseline } else { &arm.ranges };
        for (key, range) in ranges(name, &format!("ranges of {}", arm.shown), own)? {
            match all.iter_mut().find(|(known, _)| *known == key) {
                Some((_, shared)) => *shared = range,
                None => all.push((key, range)),
            }
        }
        if all.is_empty() {
            let error = Error::new(format!("`{name}`: nothing is tuned for `{}`", arm.shown));
            return Err(error.hint("add ranges to [compare.tune.ranges] or to the policy's own `ranges`"));
        }
        Ok(all)
    }

    /// Returns an arm's trials. `seed` is the run's seed.
    pub fn trials(&self, name: &str, (arm, baseline): (&Arm, bool), seed: u64) -> Result<Vec<TrialConfig>> {
        let ranges = self.of(name, arm, baseline)?;
        let declared: Vec<_> = ranges.iter().map(|(key, _)| value(&arm.config, key)).collect();
        let others = self.trials.unwrap_or(MOST_TRIALS) - 1;
        let tried = match self.search() {
            Search::Grid => product(name, &ranges, MOST_TRIALS)?,
            Search::Drawn => drawn(&ranges, seed, others, &declared),
        };
        let first = TrialConfig { number: 0, settings: Vec::new() };
        let same = |values: &Vec<toml::Value>| {
            declared.iter().zip(values).all(|(a, b)| a.as_ref().is_some_and(|a| alike(a, b)))
        };
        let keys = || ranges.iter().map(|(key, _)| key.clone());
        let others = tried.into_iter().filter(|values| !same(values)).zip(1..);
        let others =
            others.map(|(values, number)| TrialConfig { number, settings: keys().zip(values).collect() });
        Ok(std::iter::once(first).chain(others).collect())
    }

    /// Returns for each rung the number of trials, not counting a declared setting that was dropped, and
    /// the share of the budget that a trial may have spent by the end of the rung.
    pub fn rungs(&self, trials: usize) -> Vec<(usize, f64)> {
        let reduction = self.reduction as usize;
        let mut sizes = vec![trials];
        let more = |sizes: &[usize]| match (self.search(), self.rungs) {
            (Search::Grid, _) => false,
            (_, Some(rungs)) => sizes.len() < rungs as usize,
            (_, None) => sizes[sizes.len() - 1].div_ceil(reduction) >= 2,
        };
        while more(&sizes) {
            sizes.push(sizes[sizes.len() - 1].div_ceil(reduction));
        }
        let last = sizes.len() as i32 - 1;
        let share = |rung: i32| self.share * f64::from(self.reduction).powi(rung - last);
        sizes.into_iter().zip(0..).map(|(size, rung)| (size, share(rung))).collect()
    }
}

/// Returns the value of a key in a config.
pub fn value(config: &Table, key: &str) -> Option<toml::Value> {
    let (last, path) = key.rsplit_once('.').map_or((key, ""), |(path, last)| (last, path));
    let mut table = config;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        table = table.get(part)?.as_table()?;
    }
    table.get(last).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::CompareConfig;

    fn config(text: &str) -> (Table, CompareConfig) {
        let whole: Table = toml::from_str(text).expect("the test's own config");
        let compare = whole["compare"].clone().try_into().expect("the test's own section");
        (whole, compare)
    }

    const CONFIG: &str = r#"
        [run]
        seed = 7
        groups = 16
        [policy]
        use = "first"
        [optimizer]
        learning_rate = 2e-4
        [compare]
        seeds = 2
        targets = [0.5]
        [compare.tune]
        trials = 9
        [compare.tune.ranges]
        optimizer.learning_rate = { from = 1e-5, to = 1e-3, log = true }
        run.groups = [2, 4, 16]
        [[compare.policies]]
        use = "other"
        ranges = { policy.settings.pilot = { from = 2, to = 8 }, run.groups = [1] }
    "#;

    fn trials(text: &str, arm: usize) -> Vec<TrialConfig> {
        let (whole, compare) = config(text);
        compare.check("test").expect("it is in order");
        let (tune, arms) =
            (compare.tune.clone().expect("it is tuned"), compare.arms(&whole, "test").expect("arms"));
        tune.trials("test", (&arms[arm], arm == 0), 7).expect("trials")
    }

    #[test]
    fn the_first_trial_is_the_declared_setting_and_shared_ranges_are_tried_alike() {
        let (one, other) = (trials(CONFIG, 0), trials(CONFIG, 1));
        assert_eq!((one.len(), other.len()), (9, 9));
        assert!(one[0].settings.is_empty() && other[0].settings.is_empty());
        let rate = |trial: &TrialConfig| trial.settings[0].clone();
        assert_eq!(rate(&one[1]).0, "optimizer.learning_rate");
        assert!(one.iter().zip(&other).skip(1).all(|(a, b)| rate(a) == rate(b)), "{one:?} {other:?}");
        assert!(
            other.iter().skip(1).all(|t| t.settings[1].1.as_integer() == Some(1)),
            "its own range goes first"
        );
        let pilots: Vec<i64> = other.iter().skip(1).filter_map(|t| t.settings[2].1.as_integer()).collect();
        assert!(pilots.len() == 8 && pilots.iter().all(|n| (2..=8).contains(n)), "{pilots:?}");
        assert_eq!(trials(CONFIG, 0), one, "trials come from the seed alone");
    }

    #[test]
    fn a_small_space_is_tried_as_a_whole_and_nothing_twice() {
        let text = CONFIG.replace("{ from = 1e-5, to = 1e-3, log = true }", "[1e-4, 2e-4]");
        let all = trials(&text, 0);
        assert_eq!(all.len(), 6, "the declared one is among the two times three: {all:?}");
        let mut seen: Vec<String> = all.iter().map(|t| format!("{:?}", t.settings)).collect();
        seen.dedup();
        assert_eq!(seen.len(), 6);
    }

    #[test]
    fn rungs_are_cut_until_one_would_be_left() {
        let (_, compare) = config(CONFIG);
        let tune = compare.tune.expect("it is tuned");
        let shares = |trials| tune.rungs(trials);
        assert_eq!(shares(2), [(2, 1.0)]);
        assert_eq!(shares(9).iter().map(|r| r.0).collect::<Vec<_>>(), [9, 3]);
        let sixteen = shares(16);
        assert_eq!(sixteen.iter().map(|r| r.0).collect::<Vec<_>>(), [16, 6, 2]);
        assert!((sixteen[0].1 - 1.0 / 9.0).abs() < 1e-12 && sixteen[2].1 == 1.0, "{sixteen:?}");
        let grid = TuneConfig { grid: true, ..tune.clone() };
        assert_eq!(grid.rungs(16), [(16, 1.0)]);
        let alone = TuneConfig { rungs: Some(1), share: 0.5, ..tune };
        assert_eq!(alone.rungs(16), [(16, 0.5)]);
    }

    #[test]
    fn seeds_of_tuning_are_never_those_of_the_comparison() {
        let (_, compare) = config(CONFIG);
        let tune = compare.tune.expect("it is tuned");
        assert_eq!(tune.seeds("test", 7, &[7, 8]).expect("others"), [1_000_007]);
        let same = TuneConfig { seeds: Seeds::List(vec![3, 8]), ..tune };
        let error = same.seeds("test", 7, &[7, 8]).expect_err("8 is in both");
        assert!(error.what.starts_with("`test`: seed 8 is used by both the comparison and its tuning"));
    }

    #[test]
    fn an_arm_takes_over_a_trials_settings() {
        let (whole, compare) = config(CONFIG);
        let arms = compare.arms(&whole, "test").expect("arms");
        let settings = [
            ("policy.settings.pilot".to_owned(), toml::Value::Integer(4)),
            ("optimizer.learning_rate".to_owned(), toml::Value::Float(1e-3)),
        ];
        let arm = arms[1].with(&settings);
        assert_eq!(value(&arm.config, "policy.settings.pilot"), Some(toml::Value::Integer(4)));
        assert_eq!(value(&arm.config, "optimizer.learning_rate"), Some(toml::Value::Float(1e-3)));
        assert_eq!(value(&arm.config, "run.groups"), Some(toml::Value::Integer(16)));
    }
}
