//! An answer is right if it is a gold answer.
//!
//! Change `grade` to your own rule. A grader is a pure function: a verdict rests on the settings and the question alone.

use allot_grader::prelude::*;

/// The grader.
pub struct MyGrader {
    caseless: bool,
}

settings! {
    /// What a run may set.
    pub struct MySettings {
        /// Whether capital letters are the same as small ones.
        caseless: bool = false,
    }
}

impl Grader for MyGrader {
    const NAME: &'static str = "{{name}}";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "right is what is a gold answer";
    type Settings = MySettings;

    fn begin(settings: MySettings) -> Result<Self, Error> {
        Ok(Self { caseless: settings.caseless })
    }

    fn grade(&self, question: &Question) -> Verdict {
        let answer = self.plain(&question.answer);
        if question.gold.is_empty() {
            return Verdict::unscorable("there is no gold answer");
        }
        Verdict::correct(question.gold.iter().any(|gold| self.plain(gold) == answer))
    }
}

impl MyGrader {
    /// A text without what makes no difference.
    fn plain(&self, text: &str) -> String {
        let text = text.trim();
        if self.caseless { text.to_lowercase() } else { text.to_owned() }
    }
}

allot_grader::export!(MyGrader);

#[cfg(test)]
mod tests {
    use super::*;
    use allot_grader::begun;

    #[test]
    fn white_space_around_makes_no_difference() {
        let grader = begun::<MyGrader>(&[]).expect("it begins");
        assert_eq!(grader.grade(&Question::new("Paris", " Paris\n")), Verdict::correct(true));
        assert_eq!(grader.grade(&Question::new("Paris", "paris")), Verdict::correct(false));
    }

    #[test]
    fn capitals_make_none_where_a_run_says_so() {
        let grader = begun::<MyGrader>(&[("caseless", true.into())]).expect("it begins");
        assert_eq!(grader.grade(&Question::new("Paris", "PARIS")), Verdict::correct(true));
    }
}
