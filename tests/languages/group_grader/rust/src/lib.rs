//! What each language's grader of groups does here: it compares answers, and a fault.

use allot_grader::GroupGrader;
use allot_grader::prelude::*;

/// The grader.
pub struct Podium {
    best: f32,
}

settings! {
    /// What a run may set.
    pub struct Settings {
        /// What the shortest right answer is worth.
        best: f64 = 1.0,
    }
}

impl GroupGrader for Podium {
    const NAME: &'static str = "podium";
    const VERSION: &'static str = "0.1.0";
    const SUMMARY: &'static str = "the shortest right answers of a group";
    type Settings = Settings;

    fn begin(settings: Settings) -> Result<Self, Error> {
        Ok(Self { best: settings.best as f32 })
    }

    fn grade_group(&self, questions: &[Question]) -> Vec<Verdict> {
        if questions.iter().any(|question| question.answer == "!") {
            panic!("no answer begins so");
        }
        if questions.len() == 1 {
            return vec![Verdict::unscorable("it is alone")];
        }
        let is_right = |question: &Question| question.gold.contains(&question.answer);
        let least = questions.iter().filter(|q| is_right(q)).map(|q| q.answer.len()).min();
        let is_best = |q: &Question| is_right(q) && Some(q.answer.len()) == least;
        questions.iter().map(|q| Verdict::reward(if is_best(q) { self.best } else { 0.0 }, is_right(q))).collect()
    }
}

allot_grader::export!(Podium);
