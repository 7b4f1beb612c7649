//! An arm of a comparison, and the seeds of its runs.

use allot_base::{Error, Result};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// An arm of a comparison: a run's config without its seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// The arm's name.
    pub shown: String,
    /// The arm's name as the name of a folder.
    pub name: String,
    /// The config.
    pub config: Table,
    /// Ranges that are tuned for this arm alone.
    pub ranges: Table,
}

impl Arm {
    /// Returns the config of the run with this seed.
    pub fn with_seed(&self, seed: u64) -> Table {
        let mut config = self.config.clone();
        if let Some(Value::Table(run)) = config.get_mut("run") {
            // TOML integers are signed, so a larger seed cannot come from a config.
            run.insert("seed".to_owned(), Value::Integer(i64::try_from(seed).unwrap_or(i64::MAX)));
        }
        config
    }

    /// Returns the arm with a trial's settings.
    pub fn with(&self, settings: &[(String, Value)]) -> Self {
        let mut arm = self.clone();
        for (key, value) in settings {
            let mut nested = Value::clone(value);
            for part in key.rsplit('.') {
                nested = Value::Table(Table::from_iter([(part.to_owned(), nested)]));
            }
            if let Value::Table(nested) = nested {
                merge(&mut arm.config, &nested);
            }
        }
        arm
    }
}

/// Merges `over` into `under`, section by section.
pub(crate) fn merge(under: &mut Table, over: &Table) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(Value::Table(under)), Value::Table(over)) => merge(under, over),
            _ => _ = under.insert(key.clone(), value.clone()),
        }
    }
}

/// A number of seeds, or a list of seeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number of seeds, or a list of them")]
pub enum Seeds {
    /// This number of seeds, counted from the run's own.
    Count(u32),
    /// These seeds.
    List(Vec<u64>),
}

impl Seeds {
    /// Returns the TOML value of the seeds.
    pub fn value(&self) -> Value {
        // TOML integers are signed; `check` refuses larger seeds.
        let whole = |seed: &u64| Value::Integer(i64::try_from(*seed).unwrap_or(i64::MAX));
        match self {
            Self::Count(n) => Value::Integer(i64::from(*n)),
            Self::List(list) => Value::Array(list.iter().map(whole).collect()),
        }
    }

    /// Checks that there is at least one seed and not too many. `key` is the seeds' key in the config.
    pub(crate) fn check(&self, name: &str, key: &str) -> Result<()> {
        let wrong = |what: String| Err(Error::new(format!("`{name}`: `{key}` {what}")));
        match self {
            Self::Count(0) => return wrong("is 0; expected at least 1".to_owned()),
            Self::Count(n) if *n > MOST_SEEDS => {
                return wrong(format!("is {n}; expected at most {MOST_SEEDS}"));
            }
            Self::Count(_) => {}
            Self::List(list) if list.is_empty() => {
                return wrong("is empty; expected at least one seed".to_owned());
            }
            Self::List(list) if list.len() > MOST_SEEDS as usize => {
                return wrong(format!("has {} seeds; expected at most {MOST_SEEDS}", list.len()));
            }
            Self::List(list) => {
                let twice = list.iter().enumerate().find(|(i, seed)| list[..*i].contains(seed));
                if let Some(seed) = list.iter().find(|seed| i64::try_from(**seed).is_err()) {
                    return wrong(format!("has {seed}; expected seeds below 2^63"));
                }
                if let Some((_, seed)) = twice {
                    return wrong(format!("has {seed} twice"));
                }
            }
        }
        Ok(())
    }
}

impl std::str::FromStr for Seeds {
    type Err = String;

    /// Parses `20`, a number of seeds, or `3,5,8`, a list.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = |_| "expected a number of seeds, as in 20, or a list, as in 3,5,8".to_owned();
        if !text.contains(',') {
            return text.trim().parse().map(Self::Count).map_err(wrong);
        }
        let list = text.split(',').map(str::trim).filter(|seed| !seed.is_empty());
        list.map(|seed| seed.parse().map_err(wrong)).collect::<std::result::Result<_, _>>().map(Self::List)
    }
}

/// Maximum number of seeds. More are probably a typing error.
const MOST_SEEDS: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_typed_as_how_many_or_which() {
        assert_eq!("20".parse(), Ok(Seeds::Count(20)));
        assert_eq!("3, 5,8".parse(), Ok(Seeds::List(vec![3, 5, 8])));
        assert_eq!("7,".parse(), Ok(Seeds::List(vec![7])), "one seed, and not seven of them");
        for wrong in ["", "-1", "1,x", "1.5"] {
            assert!(wrong.parse::<Seeds>().is_err(), "{wrong}");
        }
    }
}
