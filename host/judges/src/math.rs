//! Verdicts of math-verify that are certain without computer algebra.
//!
//! [`verdict`] returns what math-verify 0.8.0 (latex2sympy2_extended 1.10.2, sympy 1.14.0) as this program
//! calls it would return, or nothing where that is not certain: then math-verify itself is asked. It runs
//! nothing and knows no limits; `tests/math.rs` compares it with the real package.
//!
//! What math-verify does, and which part of it is decided here:
//!
//! 1. **It looks for the answer** in the text: a final answer with its hope, then a final answer or a box,
//!    then what follows `answer:`, then what follows `answer`, then any number or LaTeX. Of one priority it
//!    takes what ends last. `answer` returns that text where no other match can end later.
//! 2. **It reads this text**, as a number or as LaTeX. `value` has the grammar that is read here: numbers,
//!    fractions, percentages, tuples of them, and letters of a choice.
//! 3. **It compares** two readings, and two texts. Equal texts are correct whatever they mean: math-verify
//!    keeps each text beside its reading and compares these, too. Readings are compared by `value`.

mod answer;
mod value;

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::Verdict;
use answer::Answer;
use value::Value;

/// The most bytes of an answer: longer ones may use up the instructions of the sandbox.
const LONGEST: usize = 1 << 13;

/// Returns whether an answer equals one of these gold answers, where that is certain.
pub fn verdict(gold: &[String], answer: &str) -> Option<bool> {
    if gold.is_empty() || answer.len() > LONGEST {
        return None;
    }
    let answer = answer::of(answer)?;
    let each: Vec<Option<bool>> = gold.iter().map(|gold| equals(gold, &answer)).collect();
    if each.contains(&Some(true)) {
        // One equal gold answer decides, if the others can be read.
        let is_read = |(gold, equals): (&String, &Option<bool>)| equals.is_some() || value::is_harmless(gold);
        return gold.iter().zip(&each).all(is_read).then_some(true);
    }
    each.into_iter().collect::<Option<Vec<_>>>().map(|_| false)
}

/// Returns the content of a box, where it is certain that math-verify reads this in an answer and nothing else. Whatever
/// else is in them, its verdict on two such answers with the same content is the same.
pub fn content(answer: &str) -> Option<&str> {
    if answer.len() > LONGEST {
        return None;
    }
    match answer::of(answer)? {
        // Where nothing is left of a box, math-verify looks for an answer elsewhere.
        Answer::Box(text) => Some(text).filter(|text| value::is_harmless(text)),
        Answer::Number(_) | Answer::Percent(_) | Answer::Nothing => None,
    }
}

/// Rewards with a verdict of math-verify in the sandbox, and those of them that were certain without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certain {
    /// Number of rewards.
    pub judged: u64,
    /// Number of rewards for which no interpreter was needed.
    pub certain: u64,
}

impl Certain {
    /// Counts verdicts. One without math-verify, or without a reward, is not counted.
    pub fn of<'v>(verdicts: impl IntoIterator<Item = &'v Verdict>) -> Self {
        let mut all = Self::default();
        for certain in verdicts.into_iter().filter_map(|verdict| verdict.certain) {
            all += Self { judged: 1, certain: u64::from(certain) };
        }
        all
    }

    /// Returns whether there are none.
    pub fn is_none(&self) -> bool {
        self.judged == 0
    }
}

impl AddAssign for Certain {
    fn add_assign(&mut self, other: Self) {
        self.judged += other.judged;
        self.certain += other.certain;
    }
}

/// Returns whether an answer equals a gold answer, which math-verify reads in a box.
fn equals(gold: &str, answer: &Answer) -> Option<bool> {
    let gold = gold.trim_ascii();
    // A second box would be read in its place.
    if gold.contains("boxed") || gold.contains("fbox") || !answer::is_balanced(gold) {
        return None;
    }
    let read = match answer {
        // Without an answer nothing is compared. The gold answer must still be readable.
        Answer::Nothing => return value::latex(gold).map(|_| false),
        Answer::Box(text) if *text == gold && value::is_harmless(gold) => return Some(true),
        Answer::Box(text) => value::latex(text)?,
        Answer::Number(number) => Value::Scalar(*number),
        Answer::Percent(number) => {
            // Its text has no percent sign, and may be that of the gold answer.
            let gold = value::latex(gold)?;
            let is_other = gold.equals(&Value::Scalar(*number)) == Some(false);
            return gold.equals(&Value::Scalar(number.percent())).filter(|equal| *equal || is_other);
        }
    };
    value::latex(gold)?.equals(&read)
}

#[cfg(test)]
mod tests {
    use super::verdict;

    #[test]
    fn what_is_certain_is_decided_and_nothing_else() {
        for (gold, answer, wanted) in [
            ("72", "48 + 24 = 72 clips\n#### 72", Some(true)),
            ("72", "The answer is $72.00.", Some(true)),
            ("1/2", r"So it is $\boxed{\dfrac12}$.", Some(true)),
            ("1/3", r"\boxed{0.333333}", None),
            ("1/3", r"\boxed{0.33}", Some(false)),
            ("(1,2)", r"\boxed{\left(1, 2\right)}", Some(true)),
            ("1{,}000", r"\boxed{1000}", Some(true)),
            ("5", r"\boxed{5 \text{ cm}^2}", Some(true)),
            ("x^2+1", r"\boxed{x^2+1}", Some(true)),
            // Computer algebra may find these equal.
            ("x^2+1", r"\boxed{1+x^2}", None),
            // Texts are compared without their percent signs.
            ("20", "It is the answer: 20%", None),
            ("0.2", "It is the answer: 20%", Some(true)),
            ("0.3", "It is the answer: 20%", Some(false)),
            // It could be two boxes, or a percentage.
            ("5", r"$\boxed{4}$ and $\boxed{5}$", None),
            ("5", r"$\boxed{5}$ %", None),
            ("5", "$\\boxed{5}$ percent\nand $\\boxed{5}$", None),
            (
                "5",
                "\\[\\boxed{3} \\text{ is what remains of the apples that were in the basket at first, of twelve}\\]\nor \\[\\boxed{5}\\]",
                None,
            ),
            // Python reads no number that begins with 0, nor a fraction over a carriage return.
            ("1/2", "The answer is 01/02", None),
            ("10", "#### 010/2", None),
            ("1/2", "1\r/2", None),
            ("1/2", "1/2\r\n", Some(true)),
            // With a degree, commas make a tuple.
            ("1,234", r"\boxed{1234}", Some(true)),
            ("1,234^\\circ", r"\boxed{1234}", None),
            // It is the same text, and takes long to read.
            ("(((((x+1)))))", r"\boxed{(((((x+1)))))}", None),
            ("5", "I do not know.", Some(false)),
            ("5", "the answer is 5 = 3", Some(false)),
            ("5", "the answer is 5 = x", None),
        ] {
            assert_eq!(verdict(&[gold.to_owned()], answer), wanted, "{answer} for {gold}");
        }
        assert_eq!(verdict(&["x".to_owned(), "5".to_owned()], "5"), Some(true));
        assert_eq!(verdict(&[], "5"), None);
    }
}
