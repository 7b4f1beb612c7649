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
//!    takes what ends last. [`answer`] returns that text where no other match can end later.
//! 2. **It reads this text**, as a number or as LaTeX. [`value`] has the grammar that is read here: numbers,
//!    fractions, percentages, tuples of them, and letters of a choice.
//! 3. **It compares** two readings, and two texts. Equal texts are correct whatever they mean: math-verify
//!    keeps each text beside its reading and compares these, too. Readings are compared by [`value`].

mod answer;
mod value;

use answer::Answer;
use value::Value;

/// The most bytes of an answer: longer ones may use up the instructions of the sandbox.
const LONGEST: usize = 1 << 16;

/// Returns whether an answer equals one of these gold answers, where that is certain.
pub fn verdict(gold: &[String], answer: &str) -> Option<bool> {
    if gold.is_empty() || answer.len() > LONGEST {
        return None;
    }
    let answer = answer::of(answer)?;
    // One equal gold answer decides; the others can only agree or differ.
    let each: Vec<Option<bool>> = gold.iter().map(|gold| equals(gold, &answer)).collect();
    if each.contains(&Some(true)) {
        return Some(true);
    }
    each.into_iter().collect::<Option<Vec<_>>>().map(|_| false)
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
        Answer::Number(value) => Value::Scalar(*value),
    };
    value::latex(gold)?.equals(&read)
}

#[cfg(test)]
mod tests {
    use super::verdict;

    fn all(gold: &str, answers: &[&str], wanted: Option<bool>) {
        for answer in answers {
            assert_eq!(verdict(&[gold.to_owned()], answer), wanted, "{answer} for {gold}");
        }
    }
}
