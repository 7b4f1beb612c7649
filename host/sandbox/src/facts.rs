//! What a guest may ask while it decides, and how much of it.

use allot_allocation::{History, Past, PromptId, TokenCosts};

use crate::fault::Misuse;

/// Numbers that the answers of one call may have, all together. Fuel counts what a guest does, and not what is done
/// for it.
const MOST: u64 = 1 << 28;

/// What there is to be asked.
pub(crate) struct Facts {
    prompts: u32,
    history: History,
    costs: TokenCosts,
    answered: u64,
}

/// Which prompts are asked about.
pub(crate) enum Prompts {
    All,
    Between(u32, u32),
    Listed(Vec<u32>),
}

impl Facts {
    /// About a data set of so many prompts.
    pub fn new(prompts: u32, history: History, costs: TokenCosts) -> Self {
        Self { prompts, history, costs, answered: 0 }
    }

    /// What a token takes.
    pub fn costs(&self) -> TokenCosts {
        self.costs
    }

    /// A number for each prompt asked about, of its last visit or the default.
    pub fn numbers<T: Clone + Default>(
        &mut self,
        of: &Prompts,
        number: impl Fn(&Past) -> T,
    ) -> Result<Vec<T>, Misuse> {
        let known = |prompt: u32| {
            let words = || {
                let prompts = self.prompts;
                format!("asked about prompt `{prompt}`, where the data set has {prompts} prompts")
            };
            if prompt < self.prompts { Ok(PromptId(prompt)) } else { Err(Misuse(words())) }
        };
        let numbers = match of {
            Prompts::All => self.history.between(PromptId(0), PromptId(self.prompts), number),
            Prompts::Between(first, end) if first > end => {
                let words = format!("asked about the prompts from `{first}` up to `{end}`");
                return Err(Misuse(words));
            }
            Prompts::Between(first, end) => {
                if first < end {
                    known(end - 1)?;
                }
                self.history.between(PromptId(*first), PromptId(*end), number)
            }
            Prompts::Listed(prompts) => {
                let one = |prompt: &u32| Ok(self.history.of(known(*prompt)?).as_ref().map(&number));
                let found: Result<Vec<Option<T>>, Misuse> = prompts.iter().map(one).collect();
                found?.into_iter().map(Option::unwrap_or_default).collect()
            }
        };
        self.answered += numbers.len() as u64;
        if self.answered > MOST {
            return Err(Misuse(format!("asked for more than {MOST} numbers in one call")));
        }
        Ok(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(of: &Prompts) -> Result<Vec<u32>, String> {
        Facts::new(3, History::default(), TokenCosts::default())
            .numbers(of, |past| past.visits)
            .map_err(|told| told.0)
    }

    #[test]
    fn questions_beyond_the_data_set_have_no_answer() {
        assert_eq!(asked(&Prompts::All), Ok(vec![0; 3]));
        assert_eq!(asked(&Prompts::Between(1, 3)), Ok(vec![0; 2]));
        assert_eq!(asked(&Prompts::Between(9, 9)), Ok(vec![]));
        assert_eq!(asked(&Prompts::Listed(vec![2, 2, 0, 2])), Ok(vec![0; 4]));
        let beyond = Err("asked about prompt `3`, where the data set has 3 prompts".to_owned());
        assert_eq!(asked(&Prompts::Between(0, 4)), beyond);
        assert_eq!(asked(&Prompts::Listed(vec![0, 3])), beyond);
        let backward = Err("asked about the prompts from `2` up to `1`".to_owned());
        assert_eq!(asked(&Prompts::Between(2, 1)), backward);
    }

    #[test]
    fn answers_of_one_call_have_an_end() {
        let mut facts = Facts::new(1 << 20, History::default(), TokenCosts::default());
        let mut ask = || facts.numbers(&Prompts::All, |past| past.visits).map(|numbers| numbers.len());
        assert!((0..256).all(|_| ask().is_ok_and(|n| n == 1 << 20)));
        assert!(ask().is_err_and(|told| told.0.contains("268435456 numbers")));
    }
}
