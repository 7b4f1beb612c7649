//! Facts about the data set that a guest may request during `decide`, and the bound on their size.

use allot_allocation::{Columns, History, Past, PromptId, Run, TokenCosts, View, shown};

use crate::fault::Misuse;

/// Most numbers that the answers of one call may contain together. Fuel counts only the guest's own work,
/// not the host's.
const MOST: u64 = 1 << 28;

/// A fact and its name.
pub(crate) type Named<T> = (&'static str, fn(&Past) -> T);

/// Counts of past visits, by name, in the contract's order.
pub(crate) const COUNTS: [Named<u32>; 7] = [
    ("visits", |past| past.visits),
    ("step", |past| past.step),
    ("rollouts", |past| past.rollouts),
    ("correct", |past| past.correct),
    ("streak", |past| past.streak),
    ("total_rollouts", |past| past.total_rollouts),
    ("total_correct", |past| past.total_correct),
];
/// Means of the last visit, by name, in the contract's order.
pub(crate) const MEASURES: [Named<f32>; 3] =
    [("mean", |past| past.mean), ("std", |past| past.std()), ("mean_length", |past| past.tokens)];

/// The data that facts are computed from.
pub(crate) struct Facts {
    prompts: u32,
    history: History,
    columns: Columns,
    costs: TokenCosts,
    answered: u64,
}

/// The prompts of a question.
pub(crate) enum Prompts {
    All,
    Between(u32, u32),
    Listed(Vec<u32>),
}

/// The prompts of a question, checked to be in the data set.
enum Asked<'a> {
    Row(PromptId, PromptId),
    Listed(&'a [u32]),
}

impl Facts {
    /// Returns the facts for a policy that decides on a view.
    pub fn of(run: &Run, view: &View) -> Self {
        let costs = run.terms.as_ref().map_or_else(Default::default, |terms| terms.costs);
        Self::new(run.prompts, view.history.clone(), run.columns(), costs)
    }

    /// Returns facts about a data set of `prompts` prompts.
    pub fn new(prompts: u32, history: History, columns: Columns, costs: TokenCosts) -> Self {
        Self { prompts, history, columns, costs, answered: 0 }
    }

    /// Returns the costs of a token.
    pub fn costs(&self) -> TokenCosts {
        self.costs
    }

    /// Returns one number for each prompt asked about: from its last visit, or the default.
    pub fn numbers<T: Clone + Default>(
        &mut self,
        of: &Prompts,
        number: impl Fn(&Past) -> T,
    ) -> Result<Vec<T>, Misuse> {
        Ok(match self.asked(of, 1)? {
            Asked::Row(first, end) => self.history.between(first, end, number),
            Asked::Listed(listed) => listed
                .iter()
                .map(|prompt| self.history.of(PromptId(*prompt)).as_ref().map(&number).unwrap_or_default())
                .collect(),
        })
    }

    /// Returns a column's numbers for each prompt asked about.
    pub fn column(&mut self, name: &str, of: &Prompts) -> Result<Vec<f32>, Misuse> {
        let Some(column) = self.columns.named(name).cloned() else {
            let name = shown::name(name);
            let what = format!("asked for the column `{name}`, which is not in its description");
            let hint = format!(
                "name the column: in Python `columns = [\"{name}\"]`, in JavaScript `export const columns = [\"{name}\"]`, \
                 in Rust `const COLUMNS: &[&str] = &[\"{name}\"]`, in C `allot_column(self, \"{name}\")`, in Go `Columns: \
                 []string{{\"{name}\"}}`"
            );
            return Err(Misuse::new(what, hint));
        };
        Ok(match self.asked(of, column.width)? {
            Asked::Row(first, end) => column.between(first, end).to_vec(),
            Asked::Listed(listed) => {
                let mut numbers = Vec::with_capacity(listed.len() * column.width as usize);
                for prompt in listed {
                    numbers.extend_from_slice(column.between(PromptId(*prompt), PromptId(prompt + 1)));
                }
                numbers
            }
        })
    }

    /// Returns the prompts asked about, as a range or as a list, of which each gets `width` numbers. The
    /// numbers are counted before any are computed.
    fn asked<'a>(&mut self, of: &'a Prompts, width: u32) -> Result<Asked<'a>, Misuse> {
        let beyond = |prompt: u32| {
            let prompts = self.prompts;
            let what = format!("asked about prompt `{prompt}`, but the data set has {prompts} prompts");
            Misuse::new(what, "ask about prompts from 0 to `run.prompts` - 1")
        };
        let (asked, count) = match of {
            Prompts::All => (Asked::Row(PromptId(0), PromptId(self.prompts)), self.prompts as usize),
            Prompts::Between(first, end) if first > end => {
                let what = format!("asked about the prompts from `{first}` up to `{end}`");
                return Err(Misuse::new(what, "give the smaller prompt first"));
            }
            Prompts::Between(first, end) => {
                if first < end && *end > self.prompts {
                    return Err(beyond(end - 1));
                }
                (Asked::Row(PromptId(*first), PromptId(*end)), (end - first) as usize)
            }
            Prompts::Listed(prompts) => {
                if let Some(prompt) = prompts.iter().find(|prompt| **prompt >= self.prompts) {
                    return Err(beyond(*prompt));
                }
                (Asked::Listed(prompts), prompts.len())
            }
        };
        self.answered = self.answered.saturating_add(count as u64 * u64::from(width));
        if self.answered > MOST {
            let what = format!("asked for more than {MOST} numbers in one call");
            return Err(Misuse::new(what, "ask for each fact once, and about fewer prompts"));
        }
        Ok(asked)
    }
}

#[cfg(test)]
mod tests {
    use allot_allocation::Column;

    use super::*;

    fn facts(prompts: u32) -> Facts {
        let mut columns = Columns::default();
        let numbers = (0..prompts * 2).map(|i| i as f32).collect();
        columns.add(Column { width: 2, ..Column::of("pair", numbers) });
        Facts::new(prompts, History::default(), columns, TokenCosts::default())
    }

    fn asked(of: &Prompts) -> Result<Vec<u32>, String> {
        facts(3).numbers(of, |past| past.visits).map_err(|told| told.what)
    }

    fn pairs(of: &Prompts) -> Result<Vec<f32>, String> {
        facts(3).column("pair", of).map_err(|told| told.what)
    }

    #[test]
    fn questions_beyond_the_data_set_have_no_answer() {
        assert_eq!(asked(&Prompts::All), Ok(vec![0; 3]));
        assert_eq!(asked(&Prompts::Between(1, 3)), Ok(vec![0; 2]));
        assert_eq!(asked(&Prompts::Between(9, 9)), Ok(vec![]));
        assert_eq!(asked(&Prompts::Listed(vec![2, 2, 0, 2])), Ok(vec![0; 4]));
        let beyond = "asked about prompt `3`, but the data set has 3 prompts".to_owned();
        assert_eq!(asked(&Prompts::Between(0, 4)), Err(beyond.clone()));
        assert_eq!(asked(&Prompts::Listed(vec![0, 3])), Err(beyond.clone()));
        assert_eq!(pairs(&Prompts::Between(0, 4)), Err(beyond.clone()));
        assert_eq!(pairs(&Prompts::Listed(vec![0, u32::MAX, 3])), Err(beyond.replacen('3', "4294967295", 1)));
        let backward = Err("asked about the prompts from `2` up to `1`".to_owned());
        assert_eq!(asked(&Prompts::Between(2, 1)), backward);
    }

    #[test]
    fn a_column_answers_with_all_its_numbers_of_each_prompt() {
        assert_eq!(pairs(&Prompts::All), Ok(vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
        assert_eq!(pairs(&Prompts::Between(1, 2)), Ok(vec![2.0, 3.0]));
        assert_eq!(pairs(&Prompts::Between(9, 9)), Ok(vec![]));
        assert_eq!(pairs(&Prompts::Listed(vec![2, 0, 2])), Ok(vec![4.0, 5.0, 0.0, 1.0, 4.0, 5.0]));
        let told = facts(3).column("level", &Prompts::All).map_err(|told| told.what);
        assert_eq!(told, Err("asked for the column `level`, which is not in its description".to_owned()));
    }

    #[test]
    fn answers_of_one_call_have_an_end() {
        let mut facts = facts(1 << 20);
        let mut ask = || facts.numbers(&Prompts::All, |past| past.visits).map(|numbers| numbers.len());
        assert!((0..256).all(|_| ask().is_ok_and(|n| n == 1 << 20)));
        assert!(ask().is_err_and(|told| told.what.contains("268435456 numbers")));
    }
}
