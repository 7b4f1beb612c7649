//! Columns of the data set: numbers for each prompt, shown to policies that request them.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{PromptId, shown};

/// Name of the column that the host adds itself: the prompts' lengths, in tokens.
pub const LENGTH: &str = "length";

/// Name of a column that is filled with each prompt's source if the data set has no column of that name.
pub const SOURCE: &str = "source";

/// Maximum count of numbers in a column: as many as fit on a line of the record.
const NUMBERS: usize = 1 << 26;
/// Maximum count of categories in a column. They are sent with each call.
const CATEGORIES: usize = 4096;
/// Maximum length of a category, in bytes.
const WORD: usize = 256;

/// A column of the data set: `width` finite numbers for each prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// The name that policies use.
    pub name: String,
    /// Numbers per prompt.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub width: u32,
    /// Names of the categories, for a column of words. The numbers are then indices into this list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// The numbers, prompt by prompt.
    pub numbers: Vec<f32>,
}

/// A column's value for one prompt.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub enum Cell {
    /// A number.
    Number(f32),
    /// A list of numbers.
    Numbers(Vec<f32>),
    /// A word.
    Word(String),
}

/// Forms in which a cell may be written.
#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Flag(bool),
    Number(f64),
    Numbers(Vec<f64>),
    Word(String),
    Other(serde::de::IgnoredAny),
}

impl TryFrom<Value> for Cell {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        let finite = |x: f64| Some(x as f32).filter(|x| x.is_finite()).ok_or("a number that is not finite");
        match value {
            Value::Flag(flag) => Ok(Self::Number(f32::from(flag))),
            Value::Number(x) => finite(x).map(Self::Number),
            Value::Numbers(all) if all.is_empty() => Err("an empty list"),
            Value::Numbers(all) => Ok(Self::Numbers(all.into_iter().map(finite).collect::<Result<_, _>>()?)),
            Value::Word(word) if word.len() > WORD => Err("a text of more than 256 bytes"),
            Value::Word(word) => Ok(Self::Word(word)),
            Value::Other(_) => Err("neither a number, nor a word, nor a list of numbers"),
        }
    }
}

/// A prompt whose cell does not match the other cells of its column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The prompt's index.
    pub prompt: usize,
    /// The error, as the rest of a sentence after "has".
    pub reason: String,
}

impl Misfit {
    /// The hint shown with this error.
    pub const HINT: &str = "a column has numbers alone, words alone, or lists of as many numbers";
}

impl Column {
    /// Returns a column with these cells. Words become categories, sorted by name, so that their numbers do
    /// not depend on the order of the data set.
    pub fn new<'a>(name: &str, cells: impl Iterator<Item = &'a Cell> + Clone) -> Result<Self, Misfit> {
        let first = cells.clone().next();
        let width = if let Some(Cell::Numbers(all)) = first { all.len() } else { 1 };
        let words: BTreeSet<&str> = cells
            .clone()
            .filter_map(|cell| if let Cell::Word(word) = cell { Some(word.as_str()) } else { None })
            .collect();
        let categories: Vec<&str> = words.into_iter().collect();
        if categories.len() > CATEGORIES {
            let n = categories.len();
            let reason = format!("one of {n} different words; a column has {CATEGORIES} at most");
            return Err(Misfit { prompt: 0, reason });
        }
        let mut numbers = Vec::new();
        for (prompt, cell) in cells.enumerate() {
            let misfit = |reason: String| Err(Misfit { prompt, reason });
            match (cell, first) {
                (Cell::Number(x), Some(Cell::Number(_))) => numbers.push(*x),
                (Cell::Numbers(all), Some(Cell::Numbers(_))) if all.len() == width => numbers.extend(all),
                (Cell::Word(word), Some(Cell::Word(_))) => {
                    let place = categories.binary_search(&word.as_str());
                    numbers.push(place.unwrap_or_default() as f32);
                }
                (Cell::Numbers(all), Some(Cell::Numbers(_))) => {
                    return misfit(format!("{} numbers, where the first prompt has {width}", all.len()));
                }
                (cell, Some(first)) => {
                    return misfit(format!("{}, where the first prompt has {}", cell.kind(), first.kind()));
                }
                (_, None) => {}
            }
            if numbers.len() > NUMBERS {
                return misfit(format!("more numbers than the {NUMBERS} that a column may have"));
            }
        }
        let categories = categories.into_iter().map(str::to_owned).collect();
        Ok(Self { name: name.to_owned(), width: width as u32, categories, numbers })
    }

    /// Returns a column with one number per prompt.
    pub fn of(name: &str, numbers: Vec<f32>) -> Self {
        Self { name: name.to_owned(), width: 1, categories: Vec::new(), numbers }
    }

    /// Returns the host's own column: lengths, in tokens.
    pub fn lengths(lengths: impl Iterator<Item = u32>) -> Self {
        Self::of(LENGTH, lengths.map(|length| length as f32).collect())
    }

    /// Returns whether the column is valid for a data set of this size. A record may contain anything.
    pub fn fits(&self, prompts: u32) -> bool {
        let wanted = u64::from(self.width) * u64::from(prompts);
        let in_categories = |x: &f32| *x >= 0.0 && x.fract() == 0.0 && (*x as usize) < self.categories.len();
        self.numbers.len() as u64 == wanted
            && self.width > 0
            && self.numbers.iter().all(|x| x.is_finite())
            && (self.categories.is_empty() || self.numbers.iter().all(in_categories))
    }

    /// Returns the numbers of the prompts `first..end`, or an empty slice if any of them is missing.
    pub fn between(&self, first: PromptId, end: PromptId) -> &[f32] {
        let place = |prompt: PromptId| prompt.0 as usize * self.width as usize;
        self.numbers.get(place(first)..place(end)).unwrap_or_default()
    }
}

impl Cell {
    fn kind(&self) -> String {
        match self {
            Self::Number(_) => "a number".to_owned(),
            Self::Numbers(all) => format!("a list of {}", all.len()),
            Self::Word(word) => format!("the word `{}`", shown::name(word)),
        }
    }
}

/// The columns that a policy is shown, in the order of its description. Cloning is cheap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns(Arc<Vec<Arc<Column>>>);

impl Columns {
    /// Returns the column with this name.
    pub fn named(&self, name: &str) -> Option<&Arc<Column>> {
        self.0.iter().find(|column| column.name == name)
    }

    /// Returns the columns with these names, in that order. Skips names that do not exist.
    pub fn among(&self, names: &[String]) -> Self {
        names.iter().filter_map(|name| self.named(name)).cloned().collect()
    }

    /// Appends a column. Removes an existing column with the same name first.
    pub fn add(&mut self, column: Column) {
        let all = Arc::make_mut(&mut self.0);
        all.retain(|known| known.name != column.name);
        all.push(Arc::new(column));
    }
}

impl Deref for Columns {
    type Target = [Arc<Column>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl FromIterator<Arc<Column>> for Columns {
    fn from_iter<I: IntoIterator<Item = Arc<Column>>>(columns: I) -> Self {
        Self(Arc::new(columns.into_iter().collect()))
    }
}

fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_one(n: &u32) -> bool {
    *n == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<Cell> {
        words.iter().map(|word| Cell::Word((*word).to_owned())).collect()
    }

    #[test]
    fn words_become_categories_in_the_order_of_their_letters() {
        let column = Column::new("level", words(&["Level 2", "Level 5", "Level 1", "Level 2"]).iter())
            .expect("it is one");
        assert_eq!(column.categories, ["Level 1", "Level 2", "Level 5"]);
        assert_eq!(column.numbers, [1.0, 2.0, 0.0, 1.0]);
        assert!(column.fits(4) && !column.fits(5));
        assert!(!Column { categories: Vec::new(), width: 0, ..column.clone() }.fits(4));
        assert!(!Column { categories: vec!["Level 1".to_owned()], ..column }.fits(4));
    }

    #[test]
    fn a_list_has_as_many_numbers_for_each_prompt() {
        let cells =
            [Cell::Numbers(vec![1.0, 2.0]), Cell::Numbers(vec![3.0, 4.0]), Cell::Numbers(vec![5.0, 6.0])];
        let column = Column::new("embedding", cells.iter()).expect("it is one");
        assert_eq!(column.width, 2);
        assert_eq!(column.between(PromptId(1), PromptId(3)), [3.0, 4.0, 5.0, 6.0]);
        assert_eq!(column.between(PromptId(2), PromptId(4)), [] as [f32; 0], "beyond the last one");
    }

    #[test]
    fn what_does_not_fit_the_first_is_told_by_its_prompt() {
        let told = |cells: &[Cell]| Column::new("x", cells.iter()).map_err(|m| (m.prompt, m.reason));
        let mixed = [Cell::Number(1.0), Cell::Word("a".to_owned())];
        assert_eq!(told(&mixed), Err((1, "the word `a`, where the first prompt has a number".to_owned())));
        let widths = [Cell::Numbers(vec![1.0]), Cell::Numbers(vec![1.0, 2.0])];
        assert_eq!(told(&widths), Err((1, "2 numbers, where the first prompt has 1".to_owned())));
        let many: Vec<Cell> = (0..5000).map(|i| Cell::Word(i.to_string())).collect();
        assert!(told(&many).is_err_and(|(_, reason)| reason.contains("5000 different words")));
        assert_eq!(told(&[]).map(|column| column.numbers), Ok(Vec::new()));
    }
}
