//! What a grader is.

use crate::Settings;
use crate::types::{Description, Error, Question, Value, Verdict};

/// A grader: how good an answer is.
pub trait Grader: Sized {
    /// Short and lower-case, as in a record.
    const NAME: &'static str;
    /// The grader's own version.
    const VERSION: &'static str;
    /// One line for people.
    const SUMMARY: &'static str;
    /// The parts of its rewards, where it gives them in parts.
    const PARTS: &'static [&'static str] = &[];
    /// What a run may set; `()` if nothing.
    type Settings: Settings;

    /// Checks the settings, and works out what [`Self::grade`] needs.
    fn begin(settings: Self::Settings) -> Result<Self, Error>;

    /// Judges an answer. It may rest on nothing else than the settings and the question.
    fn grade(&self, question: &Question) -> Verdict;
}

/// What a grader says of itself.
pub fn describe<G: Grader>() -> Description {
    Description {
        name: G::NAME.to_owned(),
        version: G::VERSION.to_owned(),
        summary: G::SUMMARY.to_owned(),
        settings: G::Settings::describe(),
        parts: G::PARTS.iter().map(|part| (*part).to_owned()).collect(),
    }
}

/// A grader with the settings that the host gives.
pub fn given<G: Grader>(settings: &[(String, Value)]) -> Result<G, Error> {
    G::begin(G::Settings::read(settings)?)
}

/// A grader with its default settings, but for these: for tests.
///
/// # Panics
///
/// If it has no such setting.
pub fn begun<G: Grader>(but: &[(&str, Value)]) -> Result<G, Error> {
    let mut settings: Vec<(String, Value)> =
        G::Settings::describe().into_iter().map(|setting| (setting.name, setting.default)).collect();
    for (name, value) in but {
        let known = settings.iter_mut().find(|(known, _)| known == name);
        known.unwrap_or_else(|| panic!("`{}` has no setting `{name}`", G::NAME)).1 = value.clone();
    }
    given(&settings)
}

impl Question {
    /// A question whose answer is judged by one gold answer: for tests.
    pub fn new(gold: &str, answer: &str) -> Self {
        Self {
            prompt: String::new(),
            source: String::new(),
            gold: vec![gold.to_owned()],
            answer: answer.to_owned(),
        }
    }
}
