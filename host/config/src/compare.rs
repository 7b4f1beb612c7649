//! `[compare]` of a config: the seeds, and the policies compared with the config's own.
//!
//! The rest of the config applies to every run. `[policy]` is the baseline and `run.seed` the first seed,
//! so a comparison's config is also a valid config of a run.

use std::collections::BTreeMap;

use allot_allocation::shown;
use allot_base::{Error, Result, is_registry_address, looks_like_a_path};
use allot_settings::Axis;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::arm::merge;
pub use crate::arm::{Arm, Seeds};
use crate::tune::TuneConfig;

/// A comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompareConfig {
    /// The number of seeds, counted from the run's own, or a list of seeds.
    pub seeds: Seeds,
    /// Accuracies whose cost is reported. Set them before looking at any run.
    #[serde(default)]
    pub targets: Vec<f64>,
    /// The axis of costs. By default that of the budget.
    pub axis: Option<Axis>,
    /// A difference in accuracy that does not matter.
    #[serde(default = "point")]
    pub margin: f64,
    /// The policies compared with the config's own.
    #[serde(default)]
    pub policies: Vec<ArmConfig>,
    /// How each arm is tuned before the comparison. Without this section, arms are not tuned.
    pub tune: Option<TuneConfig>,
}

/// An arm of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmConfig {
    /// The arm's name. By default the policy's.
    pub name: Option<String>,
    /// A built-in policy's name, or the path of a component.
    #[serde(rename = "use")]
    pub source: String,
    /// The hash that the component must have.
    pub sha256: Option<String>,
    /// The policy's settings.
    #[serde(default)]
    pub settings: BTreeMap<String, Value>,
    /// Other settings that differ for this arm, as sections of a config. The report warns about them.
    #[serde(default)]
    pub with: Table,
    /// Ranges that are tuned for this arm alone. They extend or replace the shared ranges.
    #[serde(default)]
    pub ranges: Table,
}

/// Maximum length of a name, in bytes. It is also the name of a folder.
const LONGEST_NAME: usize = 100;

fn point() -> f64 {
    allot_settings::axis::MARGIN
}

impl CompareConfig {
    /// Checks the section by itself. `name` names the config in errors.
    pub fn check(&self, name: &str) -> Result<()> {
        let wrong = |what: String| Err(Error::new(format!("`{name}`: {what}")));
        self.seeds.check(name, "compare.seeds")?;
        if let Some(target) = self.targets.iter().find(|t| !(**t > 0.0 && **t <= 1.0)) {
            return wrong(format!(
                "`compare.targets` has {target}; expected accuracies above 0 and at most 1"
            ));
        }
        for arm in &self.policies {
            let own = |section: &str, key: &str| arm.with.get(section).is_some_and(|s| s.get(key).is_some());
            let name = arm.name.as_deref().unwrap_or(&arm.source);
            let taken = [
                (arm.with.contains_key("policy"), "`policy`: set `use` and `settings` instead"),
                (arm.with.contains_key("compare"), "`compare`: comparisons can't be nested"),
                (own("run", "seed"), "`run.seed`: all policies use the same seeds"),
                (own("run", "name"), "`run.name`: set `name` instead"),
            ];
            let name_of = arm
                .name
                .as_deref()
                .filter(|n| n.trim().is_empty() || n.len() > LONGEST_NAME || n.chars().any(shown::steers));
            if let Some(bad) = name_of {
                return wrong(format!(
                    "{bad:?} is not a valid name; expected 1 to {LONGEST_NAME} bytes in one line"
                ));
            }
            if let Some((_, what)) = taken.iter().find(|(is, _)| *is) {
                return wrong(format!("`with` of `{name}` has {what}"));
            }
        }
        if !(self.margin >= 0.0 && self.margin < 1.0) {
            return wrong(format!("`compare.margin` is {}; expected at least 0 and below 1", self.margin));
        }
        if let Some(arm) = self.policies.iter().find(|arm| self.tune.is_none() && !arm.ranges.is_empty()) {
            let name = arm.name.as_deref().unwrap_or(&arm.source);
            return wrong(format!("`{name}` has `ranges`, but there is no section [compare.tune]"));
        }
        self.tune.as_ref().map_or(Ok(()), |tune| tune.check(name, &self.targets))
    }

    /// Returns the seeds. `first` is the run's seed.
    pub fn seeds(&self, first: u64) -> Vec<u64> {
        match &self.seeds {
            Seeds::Count(n) => (0..u64::from(*n)).map(|i| first.saturating_add(i)).collect(),
            Seeds::List(list) => list.clone(),
        }
    }

    /// Returns the arms, starting with the config's own policy. `whole` is the config that contains this
    /// section; `name` names it in errors.
    pub fn arms(&self, whole: &Table, name: &str) -> Result<Vec<Arm>> {
        let mut base = whole.clone();
        base.remove("compare");
        name_of_a_path(&mut base);
        let own = base.get("run").and_then(|run| run.get("name")).and_then(Value::as_str);
        let source = base.get("policy").and_then(|p| p.get("use")).and_then(Value::as_str);
        let shown = own.or(source).unwrap_or_default();
        let mut arms = vec![Arm {
            shown: shown.to_owned(),
            name: called(shown),
            config: base.clone(),
            ranges: Table::new(),
        }];
        for arm in &self.policies {
            arms.push(arm.over(&base));
        }
        for (i, arm) in arms.iter().enumerate() {
            // Some file systems ignore case.
            let same = |other: &&Arm| other.name.to_lowercase() == arm.name.to_lowercase();
            if let Some(other) = arms[..i].iter().find(same) {
                let (a, b) = (&other.shown, &arm.shown);
                let what = if a == b {
                    format!("`{name}`: two policies of the comparison are called `{a}`")
                } else {
                    format!("`{name}`: `{a}` and `{b}` would need the same folder")
                };
                return Err(Error::new(what).hint("give one of them a `name`"));
            }
        }
        Ok(arms)
    }
}

impl ArmConfig {
    /// Returns the config of this arm.
    fn over(&self, base: &Table) -> Arm {
        let mut config = base.clone();
        let mut policy = Table::new();
        // Limits on a call belong to the run, not to the policy.
        if let Some(caps) = base.get("policy").and_then(|p| p.get("limits")) {
            policy.insert("limits".to_owned(), caps.clone());
        }
        policy.insert("use".to_owned(), Value::String(self.source.clone()));
        if let Some(sha256) = &self.sha256 {
            policy.insert("sha256".to_owned(), Value::String(sha256.clone()));
        }
        let settings = self.settings.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        policy.insert("settings".to_owned(), Value::Table(settings));
        config.insert("policy".to_owned(), Value::Table(policy));
        merge(&mut config, &self.with);
        if let Some(Value::Table(run)) = config.get_mut("run") {
            run.remove("name");
            if let Some(name) = &self.name {
                run.insert("name".to_owned(), Value::String(name.clone()));
            }
        }
        name_of_a_path(&mut config);
        let named = config.get("run").and_then(|r| r.get("name")).and_then(Value::as_str);
        let shown = named.unwrap_or(&self.source).to_owned();
        Arm { name: called(&shown), shown, config, ranges: self.ranges.clone() }
    }
}

/// Names a user's component by its file name, or by its name in a registry.
fn name_of_a_path(config: &mut Table) {
    let source = config.get("policy").and_then(|p| p.get("use")).and_then(Value::as_str);
    let Some(name) = source.filter(|s| looks_like_a_path(s) || is_registry_address(s)).map(called) else {
        return;
    };
    if let Some(Value::Table(run)) = config.get_mut("run") {
        run.entry("name").or_insert(Value::String(name));
    }
}

/// Returns a folder name: the stem of a path or the last part of an address, without special characters.
fn called(name: &str) -> String {
    let address = is_registry_address(name).then(|| name.split('@').next().unwrap_or(name));
    let name = address.and_then(|address| address.rsplit('/').next()).unwrap_or(name);
    let path = std::path::Path::new(name);
    let component = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("wasm"));
    let stem = path.file_stem().filter(|_| component).map_or(name.into(), |stem| stem.to_string_lossy());
    let plain = |c: char| if c.is_alphanumeric() || "-_.+".contains(c) { c } else { '-' };
    let name: String = stem.chars().map(plain).collect();
    if name.trim_matches('.').is_empty() { "policy".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arms(text: &str) -> Result<Vec<Arm>> {
        let whole: Table = toml::from_str(text).expect("the test's own config");
        let compare: CompareConfig = whole["compare"].clone().try_into().expect("the test's own section");
        compare.arms(&whole, "test")
    }

    const CONFIG: &str = r#"
        [run]
        seed = 7
        name = "even"
        [policy]
        use = "first"
        [policy.limits]
        fuel = 5
        [policy.settings]
        rollouts = 3
        [compare]
        seeds = 2
        [[compare.policies]]
        use = "./my.policy.wasm"
        [[compare.policies]]
        name = "4 + 12"
        use = "other"
        settings = { pilot = 4 }
        with = { run = { groups = 3 }, update = { mini_batch = 8 } }
    "#;

    #[test]
    fn components_are_called_by_their_files_and_names() {
        for (source, name) in [
            ("../a b/mine.wasm", "mine"),
            ("oci://127.0.0.1:5000/me/rookie@sha256:00", "rookie"),
            ("a name", "a-name"),
            ("..", "policy"),
        ] {
            assert_eq!(called(source), name);
        }
    }

    #[test]
    fn an_arm_has_the_config_with_its_own_policy() {
        let arms = arms(CONFIG).expect("the names are apart");
        let names: Vec<&str> = arms.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names, ["even", "my.policy", "4-+-12"]);
        assert_eq!(arms[2].shown, "4 + 12");
        let third = arms[2].with_seed(9);
        assert_eq!(third["run"]["seed"].as_integer(), Some(9));
        assert_eq!(third["run"]["groups"].as_integer(), Some(3));
        assert_eq!(third["run"]["name"].as_str(), Some("4 + 12"));
        assert_eq!(third["update"]["mini_batch"].as_integer(), Some(8));
        assert_eq!(third["policy"]["settings"].as_table().map(Table::len), Some(1));
        assert_eq!(third["policy"]["limits"]["fuel"].as_integer(), Some(5));
        assert!(!third.contains_key("compare"));
        assert_eq!(arms[1].config["run"]["name"].as_str(), Some("my.policy"));
    }

    #[test]
    fn two_arms_of_one_name_are_refused() {
        let text = format!("{CONFIG}[[compare.policies]]\nuse = \"other\"\nname = \"even\"\n");
        let error = arms(&text).expect_err("the name is taken");
        assert_eq!(error.what, "`test`: two policies of the comparison are called `even`");
    }

    #[test]
    fn seeds_are_counted_from_the_runs_own() {
        let config = |seeds| CompareConfig {
            seeds,
            targets: Vec::new(),
            axis: None,
            margin: 0.01,
            policies: Vec::new(),
            tune: None,
        };
        assert_eq!(config(Seeds::Count(3)).seeds(5), [5, 6, 7]);
        assert_eq!(config(Seeds::List(vec![9, 2])).seeds(5), [9, 2]);
        assert!(config(Seeds::Count(0)).check("x").is_err());
        assert!(config(Seeds::List(vec![1, 2, 1])).check("x").is_err());
    }
}
