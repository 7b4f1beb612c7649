//! Graders: decide whether an answer's text is right. A grader is a function of two texts, without clock,
//! threads or model, and its work is bounded for any text. If the bound is too small for an answer, or the
//! gold answer is invalid, the answer is ungradable, which is not the same as wrong.

use serde::{Deserialize, Serialize};
use thiserror::Error;

mod boxed;
mod choice;
mod countdown;
mod dapo;
mod hendrycks;
mod latex;
mod latex_text;
mod macros;
mod number;
mod prm800k;
mod python;
mod symbols;
mod tinker;

pub use dapo::minerva;
pub use hendrycks::mathd;
pub use latex_text::{Untextable, latex_to_text};
pub use prm800k::{prm800k, split_tuple};

use countdown::Puzzle;
use number::NumberKind;

/// A rule for grading answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grader {
    /// The last box, by the string rules of Hendrycks' MATH.
    Hendrycks,
    /// The last box, by the string rules of MATH and of PRM800K.
    Tinker,
    /// The last `Answer:` line, by Minerva's string rules.
    DapoLine,
    /// The last box, compared literally.
    DapoBox,
    /// The number that the answer states, which must be an integer.
    Integer,
    /// The letter that the answer states.
    Choice,
    /// An expression that makes a target from numbers.
    Countdown,
    /// The whole text.
    Exact,
    /// The number that the answer states.
    Number,
}

/// A verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grade {
    /// Whether the answer is right.
    pub correct: bool,
    /// The answer found in the text, if any.
    pub found: Option<String>,
}

/// Reason why an answer cannot be graded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Ungradable {
    /// The gold answer is invalid for the grader.
    #[error("gold answer `{gold}` is not {expected}, which grader `{grader}` needs")]
    Gold {
        /// The grader's name.
        grader: &'static str,
        /// The gold answer, possibly cut.
        gold: String,
        /// The expected form.
        expected: &'static str,
    },
    /// An answer is too deep, too long or too large for the grader.
    #[error("answer `{answer}` nests deeper or grows larger than grader `{grader}` follows")]
    TooMuch {
        /// The grader's name.
        grader: &'static str,
        /// The answer, possibly cut.
        answer: String,
    },
    /// Upstream's grader would call sympy, which is not available here.
    #[error("whether `{given}` equals `{gold}` is algebra, which grader `tinker` leaves to sympy")]
    Algebra {
        /// The normalised gold answer, possibly cut.
        gold: String,
        /// The normalised answer, possibly cut.
        given: String,
    },
}

impl Ungradable {
    fn gold(grader: Grader, gold: &str, expected: &'static str) -> Self {
        Self::Gold { grader: grader.name(), gold: start(gold), expected }
    }

    fn too_much(grader: Grader, answer: &str) -> Self {
        Self::TooMuch { grader: grader.name(), answer: start(answer) }
    }

    fn algebra(gold: &str, given: &str) -> Self {
        Self::Algebra { gold: start(gold), given: start(given) }
    }
}

impl Grader {
    /// All graders.
    pub const ALL: [Self; 9] = [
        Self::Hendrycks,
        Self::Tinker,
        Self::DapoLine,
        Self::DapoBox,
        Self::Integer,
        Self::Choice,
        Self::Countdown,
        Self::Exact,
        Self::Number,
    ];

    /// Grades an answer against a gold answer.
    pub fn grade(self, gold: &str, answer: &str) -> Result<Grade, Ungradable> {
        let borrowed = |(correct, found): (bool, Option<&str>)| (correct, found.map(str::to_owned));
        let (correct, found) = match self {
            Self::Hendrycks => borrowed(hendrycks::grade(gold, answer)),
            Self::Tinker => borrowed(tinker::grade(gold, answer)?),
            Self::DapoLine => dapo::grade_line(gold, answer),
            Self::DapoBox => borrowed(dapo::grade_box(gold, answer)),
            Self::Integer => {
                let number = number::gold(gold, NumberKind::Integer);
                let number = number.ok_or_else(|| Ungradable::gold(self, gold, "an integer"))?;
                borrowed(number::grade(&number, answer))
            }
            Self::Number => {
                let number = number::gold(gold, NumberKind::Decimal);
                let number = number.ok_or_else(|| Ungradable::gold(self, gold, "a number"))?;
                borrowed(number::grade(&number, answer))
            }
            Self::Choice => {
                let letter = choice::gold(gold).ok_or_else(|| Ungradable::gold(self, gold, "a letter"))?;
                borrowed(choice::grade(letter, answer))
            }
            Self::Countdown => {
                let puzzle = Puzzle::read(gold).ok_or_else(|| {
                    Ungradable::gold(self, gold, r#"like {"target": 42, "numbers": [1, 2, 3]}"#)
                })?;
                let found = countdown::expression(answer);
                let solved = found.map_or(Ok(false), |found| puzzle.is_solved_by(found));
                borrowed((solved.map_err(|_| Ungradable::too_much(self, answer))?, found))
            }
            Self::Exact => borrowed((answer.trim() == gold.trim(), Some(answer.trim()))),
        };
        Ok(Grade { correct, found })
    }

    /// Whether the grader can use a gold answer.
    pub fn reads(self, gold: &str) -> bool {
        // Each grader reads the gold answer before it looks for an answer.
        !matches!(self.grade(gold, ""), Err(Ungradable::Gold { .. }))
    }

    /// Grades an answer against several gold answers: it is right if it matches any of them. Invalid gold
    /// answers are skipped, unless all are invalid.
    pub fn grade_any(self, golds: &[String], answer: &str) -> Result<bool, Ungradable> {
        let (mut read, mut senseless, mut unsure) = (false, None, None);
        for gold in golds {
            match self.grade(gold, answer) {
                Ok(grade) if grade.correct => return Ok(true),
                Ok(_) => read = true,
                Err(error @ Ungradable::Gold { .. }) => senseless = senseless.or(Some(error)),
                Err(error) => unsure = unsure.or(Some(error)),
            }
        }
        match (unsure, senseless) {
            (Some(error), _) => Err(error),
            (None, Some(error)) if !read => Err(error),
            _ => Ok(false),
        }
    }

    /// Its name in configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hendrycks => "hendrycks",
            Self::Tinker => "tinker",
            Self::DapoLine => "dapo-line",
            Self::DapoBox => "dapo-box",
            Self::Integer => "integer",
            Self::Choice => "choice",
            Self::Countdown => "countdown",
            Self::Exact => "exact",
            Self::Number => "number",
        }
    }

    /// The names of all graders.
    pub fn names() -> [&'static str; 9] {
        Self::ALL.map(Self::name)
    }

    /// Returns a one-line description of the grader and its source.
    pub fn about(self) -> &'static str {
        match self {
            Self::Hendrycks => {
                "the last \\boxed{} equals gold after MATH's string rules (verl, math_reward.py)"
            }
            Self::Tinker => {
                "the last \\boxed{} equals gold after the string rules of MATH or PRM800K \
                 (tinker-cookbook, math_grading.py; Pilot-Commit, tinker_utils.py)"
            }
            Self::DapoLine => {
                "the last `Answer:` line equals gold after Minerva's string rules (verl, math_dapo.py)"
            }
            Self::DapoBox => {
                "the last \\boxed{} of the last 100 characters is gold to the letter (verl, math_dapo.py)"
            }
            Self::Integer => {
                "the number in the box, after #### or `Answer:`, or else the text's last one is gold, an integer"
            }
            Self::Choice => "the letter in the box, after `Answer:`, in brackets or at the end is gold",
            Self::Countdown => {
                "an expression over + - * / with each number once makes the target (TinyZero, countdown.py)"
            }
            Self::Exact => "the text equals gold but for white space around either",
            Self::Number => {
                "the number in the box, after #### or `Answer:`, or else the text's last one is gold"
            }
        }
    }
}

/// Compiles a constant regular expression.
fn pattern(text: &str) -> regex::Regex {
    regex::Regex::new(text).expect("patterns are constants, and the tests of their files compile each")
}

/// Returns the first 80 characters of a text, for a message.
fn start(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_configs_say() {
        for grader in Grader::ALL {
            assert_eq!(serde_json::to_value(grader).ok(), Some(grader.name().into()));
            assert!(!grader.about().contains('\n'));
        }
    }

    #[test]
    fn gold_that_makes_no_sense_is_no_wrong_answer() {
        for grader in [Grader::Integer, Grader::Number, Grader::Choice, Grader::Countdown] {
            assert!(matches!(grader.grade("what?", "what?"), Err(Ungradable::Gold { .. })), "{grader:?}");
        }
        let error = Grader::Integer.grade(&"x".repeat(1000), "5").map_err(|e| e.to_string());
        assert!(error.is_err_and(|text| text.len() < 200));
    }

    #[test]
    fn of_several_golds_those_that_make_no_sense_are_passed_over() {
        let any = |golds: &[&str], answer| {
            let golds: Vec<String> = golds.iter().map(|g| (*g).to_owned()).collect();
            Grader::Integer.grade_any(&golds, answer)
        };
        assert_eq!(any(&["7", "as many as you like"], "It is 7."), Ok(true));
        assert_eq!(any(&["as many as you like", "7"], "It is 8."), Ok(false));
        assert!(matches!(any(&["many", "more"], "7"), Err(Ungradable::Gold { gold, .. }) if gold == "many"));
        // With an ungradable gold answer, another may match; without a match the answer is not wrong.
        let tinker = |golds: &[&str], answer| {
            let golds: Vec<String> = golds.iter().map(|g| (*g).to_owned()).collect();
            Grader::Tinker.grade_any(&golds, answer)
        };
        let (algebra, answer) = ("x^2^3+y^10", r"\boxed{y^10+x^2^3}");
        assert!(matches!(Grader::Tinker.grade(algebra, answer), Err(Ungradable::Algebra { .. })));
        assert_eq!(tinker(&[algebra, "y^10+x^2^3"], answer), Ok(true));
        assert!(tinker(&["5", algebra], answer).is_err());
        for grader in Grader::ALL {
            assert!(grader.reads("5") || matches!(grader, Grader::Choice | Grader::Countdown), "{grader:?}");
        }
        assert!(!Grader::Integer.reads("as many as you like") && !Grader::Choice.reads("5"));
    }

    #[test]
    fn each_grader_tells_right_from_wrong_and_what_it_read() {
        for (grader, gold, right, wrong, found) in [
            (Grader::Hendrycks, "1/2", r"\boxed{\frac12}", r"\boxed{\frac13}", r"\frac12"),
            (Grader::Tinker, "1/2", r"\boxed{\frac12}", r"\boxed{\frac13}", r"\frac12"),
            (Grader::DapoLine, "5", "Answer: $5$", "Answer: 6", "5"),
            (Grader::DapoBox, "5", r"\boxed{5}", r"\boxed{5.0}", "5"),
            (Grader::Integer, "#### 1,000", "So 1000 apples.", "1001", "1000"),
            (Grader::Number, "2.50", "costs $2.5", "costs $2.6", "2.5"),
            (Grader::Choice, "B", "(B)", "(C)", "B"),
            (Grader::Countdown, r#"{"target": 6, "numbers": [2, 3]}"#, "<answer>2*3</answer>", "2+3", "2*3"),
            (Grader::Exact, "yes", " yes\n", "no", "yes"),
        ] {
            let correct = Grade { correct: true, found: Some(found.to_owned()) };
            assert_eq!(grader.grade(gold, right), Ok(correct), "{grader:?}");
            assert_eq!(grader.grade(gold, wrong).map(|g| g.correct), Ok(false), "{grader:?}");
        }
    }
}
