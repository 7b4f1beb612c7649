//! What each language's grader does here: all that a verdict can be, and a fault.

use allot_grader::prelude::*;

/// The grader.
pub struct Yardstick {
    word: String,
    per_letter: f64,
}

settings! {
    /// What a run may set.
    pub struct Settings {
        /// The answer that can't be judged.
        word: String = "pass",
        /// What each letter is worth.
        per_letter: f64 = 0.125,
        /// Whether anything is.
        open: bool = true,
        /// The longest answer.
        longest: i32 = 100,
    }
}

impl Grader for Yardstick {
    const NAME: &'static str = "yardstick";
    const VERSION: &'static str = "0.1.0";
    const SUMMARY: &'static str = "all that a verdict can be";
    const PARTS: &'static [&'static str] = &["answer", "length"];
    type Settings = Settings;

    fn begin(settings: Settings) -> Result<Self, Error> {
        if settings.per_letter < 0.0 {
            return Err(bad_setting("per-letter", "a letter costs nothing"));
        }
        if !settings.open {
            return Err(Error::Other("it is closed".to_owned()));
        }
        Ok(Self { word: settings.word, per_letter: settings.per_letter })
    }

    fn grade(&self, question: &Question) -> Verdict {
        let right = question.gold.contains(&question.answer);
        match question.answer.as_str() {
            "!" => panic!("no answer begins so"),
            "=" => Verdict::correct(right),
            "+" => Verdict::reward(0.75, right),
            "?" => Verdict::reward(0.25, false).undecided(),
            word if word == self.word => Verdict::unscorable(format!("{} to {}", question.source, question.prompt)),
            answer => {
                let length = answer.len() as f64 * self.per_letter;
                Verdict::parts([("length", length as f32), ("answer", f32::from(u8::from(right)))], right)
            }
        }
    }
}

allot_grader::export!(Yardstick);
