//! Chains: whole numbers with operators between them, products before sums.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An operator between two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operator {
    /// Add.
    #[serde(rename = "+")]
    Plus,
    /// Subtract.
    #[serde(rename = "-")]
    Minus,
    /// Multiply.
    #[serde(rename = "*")]
    Times,
    /// Divide.
    #[serde(rename = "/")]
    Over,
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plus => "+",
            Self::Minus => "-",
            Self::Times => "*",
            Self::Over => "/",
        })
    }
}

/// Numbers with operators between them; there is one operator fewer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The numbers.
    pub numbers: Vec<i128>,
    /// The operators between the numbers.
    pub operators: Vec<Operator>,
}

impl Chain {
    /// Parses a chain such as `812 + 880`, with white space between its parts.
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        let numbers: Option<Vec<i128>> = parts.iter().step_by(2).map(|n| n.parse().ok()).collect();
        let operators: Option<Vec<Operator>> = parts.iter().skip(1).step_by(2).map(|o| operator(o)).collect();
        let chain = Self { numbers: numbers?, operators: operators? };
        (chain.numbers.len() == chain.operators.len() + 1).then_some(chain)
    }

    /// Returns the value: products first, then from left to right. `None` if it divides, or does not fit
    /// 128 bits.
    pub fn value(&self) -> Option<i128> {
        let (mut sum, mut product) = (0_i128, *self.numbers.first()?);
        for (operator, number) in self.operators.iter().zip(&self.numbers[1..]) {
            match operator {
                Operator::Times => product = product.checked_mul(*number)?,
                Operator::Plus | Operator::Minus => {
                    sum = sum.checked_add(product)?;
                    product = if *operator == Operator::Plus { *number } else { number.checked_neg()? };
                }
                Operator::Over => return None,
            }
        }
        sum.checked_add(product)
    }

    /// Returns the question in a sentence of reasoning-gym 0.1.25: that of `products` if all operators
    /// multiply, of `chain_sum` if none does, and else of `basic_arithmetic`.
    pub fn words(&self) -> String {
        if self.is_all(&[Operator::Times]) {
            format!("Solve the following multiplication: {self}. Give only the result as your final answer.")
        } else if self.is_all(&[Operator::Plus, Operator::Minus]) {
            format!("State the final answer to the following arithmetic problem: {self} =")
        } else {
            format!("Calculate {self}.")
        }
    }

    /// Returns the question in the fewest characters: `12+34=`.
    pub fn terse(&self) -> String {
        format!("{self}=").replace(' ', "")
    }

    /// Returns a text that is equal for chains that differ only in the order of a sum or product.
    pub(super) fn essence(&self) -> String {
        let commutes = self.is_all(&[Operator::Plus]) || self.is_all(&[Operator::Times]);
        let mut chain = self.clone();
        if commutes {
            chain.numbers.sort_unstable();
        }
        chain.terse()
    }

    fn is_all(&self, operators: &[Operator]) -> bool {
        self.operators.iter().all(|o| operators.contains(o))
    }
}

fn operator(text: &str) -> Option<Operator> {
    use Operator::{Minus, Over, Plus, Times};
    [Plus, Minus, Times, Over].into_iter().find(|o| o.to_string() == text)
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut operators = self.operators.iter();
        for (at, number) in self.numbers.iter().enumerate() {
            match operators.next().filter(|_| at + 1 < self.numbers.len()) {
                Some(operator) => write!(f, "{number} {operator} ")?,
                None => write!(f, "{number}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, value: Option<i128>) {
        let chain = Chain::parse(text);
        assert_eq!(chain.as_ref().and_then(Chain::value), value, "{text}");
        assert!(chain.is_none_or(|chain| chain.to_string() == text), "{text}");
    }

    #[test]
    fn chains_have_values() {
        check("7", Some(7));
        check("4 + 3", Some(7));
        check("670 - 321 - 1", Some(348));
        check("2 + 3 * 4 - 5 * 6 * 2 + 1", Some(-45));
        check("2 - 3 * -4", Some(14));
        check("6 / 3", None);
        check("6 +", None);
        check("", None);
        check(&format!("{} * 2", i128::MAX), None);
    }

    #[test]
    fn the_order_of_a_sum_is_not_its_essence() {
        let essence = |text| Chain::parse(text).map(|c| c.essence());
        assert_eq!(essence("3 + 4"), essence("4 + 3"));
        assert_eq!(essence("3 * 4"), essence("4 * 3"));
        assert_ne!(essence("3 + 4"), essence("3 * 4"));
        assert_ne!(essence("3 - 4"), essence("4 - 3"));
    }
}
