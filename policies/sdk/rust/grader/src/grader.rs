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

/// A grader that compares answers: how good each answer of a group is beside the others. A [`Grader`] is one that looks at
/// each answer alone.
///
/// ```
/// use allot_grader::GroupGrader;
/// use allot_grader::prelude::*;
///
/// /// Among right answers the shortest is best.
/// pub struct Shortest;
///
/// impl GroupGrader for Shortest {
///     const NAME: &'static str = "shortest";
///     const VERSION: &'static str = "0.1.0";
///     const SUMMARY: &'static str = "the shortest right answers";
///     type Settings = ();
///
///     fn begin((): ()) -> Result<Self, Error> {
///         Ok(Self)
///     }
///
///     fn grade_group(&self, questions: &[Question]) -> Vec<Verdict> {
///         let is_right = |q: &Question| q.gold.contains(&q.answer.trim().to_owned());
///         let least = questions.iter().filter(|q| is_right(q)).map(|q| q.answer.len()).min();
///         let is_best = |q: &Question| is_right(q) && Some(q.answer.len()) == least;
///         questions.iter().map(|q| Verdict::reward(f32::from(is_best(q)), is_right(q))).collect()
///     }
/// }
///
/// allot_grader::export!(Shortest);
/// # fn main() {
/// let group = [Question::new("4", "4"), Question::new("4", " 4 "), Question::new("4", "5")];
/// let expected = [Verdict::reward(1.0, true), Verdict::reward(0.0, true), Verdict::reward(0.0, false)];
/// assert_eq!(Shortest.grade_group(&group), expected);
/// # }
/// ```
pub trait GroupGrader: Sized {
    /// Short and lower-case, as in a record.
    const NAME: &'static str;
    /// The grader's own version.
    const VERSION: &'static str;
    /// One line for people.
    const SUMMARY: &'static str;
    /// The parts of its rewards, where it gives them in parts.
    const PARTS: &'static [&'static str] = &[];
    /// Whether verdicts compare answers; only a [`Grader`]'s do not.
    #[doc(hidden)]
    const COMPARES: bool = true;
    /// What a run may set; `()` if nothing.
    type Settings: Settings;

    /// Checks the settings, and works out what [`Self::grade_group`] needs.
    fn begin(settings: Self::Settings) -> Result<Self, Error>;

    /// Judges the answers of a group, one at least: a verdict for each, in their order. The questions differ in their
    /// answers alone. A verdict may rest on nothing else than the settings and the group.
    fn grade_group(&self, questions: &[Question]) -> Vec<Verdict>;
}

impl<G: Grader> GroupGrader for G {
    const NAME: &'static str = <G as Grader>::NAME;
    const VERSION: &'static str = <G as Grader>::VERSION;
    const SUMMARY: &'static str = <G as Grader>::SUMMARY;
    const PARTS: &'static [&'static str] = <G as Grader>::PARTS;
    const COMPARES: bool = false;
    type Settings = <G as Grader>::Settings;

    fn begin(settings: Self::Settings) -> Result<Self, Error> {
        <G as Grader>::begin(settings)
    }

    fn grade_group(&self, questions: &[Question]) -> Vec<Verdict> {
        questions.iter().map(|question| self.grade(question)).collect()
    }
}

/// What a grader says of itself.
pub fn describe<G: GroupGrader>() -> Description {
    Description {
        name: G::NAME.to_owned(),
        version: G::VERSION.to_owned(),
        summary: G::SUMMARY.to_owned(),
        settings: G::Settings::describe(),
        parts: G::PARTS.iter().map(|part| (*part).to_owned()).collect(),
        compares: G::COMPARES,
    }
}

/// A grader with the settings that the host gives.
pub fn given<G: GroupGrader>(settings: &[(String, Value)]) -> Result<G, Error> {
    G::begin(G::Settings::read(settings)?)
}

/// A grader with its default settings, but for these: for tests.
///
/// # Panics
///
/// If it has no such setting.
pub fn begun<G: GroupGrader>(but: &[(&str, Value)]) -> Result<G, Error> {
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
