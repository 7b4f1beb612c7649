//! The built-in configs: all files in `configs`. They need no checkout and have names such as `quickstart`.

use std::path::Path;

use allot_base::{Error, Result, looks_like_a_path, nearest};
use allot_packed::Packed;

static CONFIGS: Packed = Packed::new(include_bytes!(concat!(env!("OUT_DIR"), "/configs")));

/// The folder of configs that produced published results.
const EVIDENCE: &str = "evidence";

/// A built-in config.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// The config's name: its file's name without extension.
    pub name: &'static str,
    /// The config's text.
    pub text: &'static str,
    /// Whether the config produced a published result. Such configs are not meant as starting points.
    pub evidence: bool,
}

impl Shipped {
    /// Returns all built-in configs, sorted by name.
    pub fn all() -> Vec<Self> {
        let mut all: Vec<Self> = CONFIGS.names().filter_map(Self::of_file).collect();
        all.sort_unstable_by_key(|config| config.name);
        all
    }

    fn of_file(file: &'static str) -> Option<Self> {
        let name = Path::new(file).file_stem()?.to_str()?;
        Some(Self { name, text: CONFIGS.text(file)?, evidence: Path::new(file).starts_with(EVIDENCE) })
    }

    /// Returns the config with this name.
    ///
    /// # Errors
    ///
    /// There is no built-in config with this name.
    pub fn named(name: &str) -> Result<Self> {
        let all = Self::all();
        all.iter().find(|config| config.name == name).copied().ok_or_else(|| {
            let known = all.iter().map(|config| config.name);
            let what = format!("there is no file `{name}`, and no config ships under that name");
            match nearest(name, known) {
                Some(near) => Error::new(what).hint(format!("did you mean `{near}`?")),
                None => Error::new(what).hint("run `allot configs` to list the shipped configs"),
            }
        })
    }

    /// Returns the built-in config that a command line names, or `None` if it names a file.
    ///
    /// # Errors
    ///
    /// As for [`Shipped::named`].
    pub(super) fn meant(path: &Path) -> Result<Option<Self>> {
        match path.to_str() {
            Some(name) if !looks_like_a_path(name) && !path.exists() => Self::named(name).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns a summary: the first sentence of the config's first comment.
    pub fn summary(self) -> String {
        let comment = self.text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim);
        let words: Vec<&str> = comment.take_while(|line| !line.is_empty()).collect();
        let whole = words.join(" ");
        whole.split_inclusive(". ").next().unwrap_or_default().trim_end_matches([' ', '.', ':']).to_owned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashSet;

    use super::Shipped;

    #[test]
    fn every_config_has_a_name_of_its_own_and_says_what_it_shows() {
        let all = Shipped::all();
        assert!(all.len() > 20 && all.iter().any(|config| config.name == "w1-half-unsolvable"), "{all:?}");
        assert_eq!(all.iter().map(|config| config.name).collect::<HashSet<_>>().len(), all.len());
        for config in all {
            assert!(config.summary().len() > 30, "{}: {}", config.name, config.summary());
        }
    }

    #[test]
    fn a_name_that_nothing_has_is_told_with_the_nearest() {
        let error = Shipped::named("quickstrat").unwrap_err().report();
        assert!(error.contains("`quickstrat`") && error.contains("did you mean `quickstart`?"), "{error}");
    }
}
