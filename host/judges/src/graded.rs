//! Answers of a language model, judged as text while others are still sampled.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

use allot_base::{Error, Result};
use allot_engine::{Answer, Sample, Stops};
use allot_models::tokens::Tokens;
use allot_settings::reward::PATIENCE;
use allot_tasks::Problem;

use super::graders::Graders;
use super::protocol::Question;
use super::{Reward, UNSCORABLE, Verdict};

/// Answers of a language model, judged as text.
pub struct Graded {
    tokens: Rc<Tokens>,
    /// What ends an answer: its text is judged up to there.
    stops: Stops,
    /// Every prompt's problem, held-out ones too, by the prompt's number.
    problems: Rc<Vec<Problem>>,
    graders: Graders,
    /// Places that graders were asked about.
    begun: HashSet<usize>,
    /// Answers that are no text, by their place, and why.
    unread: HashMap<usize, String>,
    /// Questions that graders get only once one of the first `patience` answers was judged, by place.
    held: BTreeMap<usize, Question>,
    /// Whether any answer was judged.
    judged_any: bool,
    /// Answers that could not be judged.
    pub unjudged: u64,
    /// Why an answer could not be judged, the last time that one could not.
    pub last_trouble: Option<String>,
}

impl Graded {
    /// Judges answers to these problems with these graders.
    pub fn new(tokens: Rc<Tokens>, problems: Rc<Vec<Problem>>, graders: Graders) -> Self {
        Self {
            tokens,
            stops: Stops::default(),
            problems,
            graders,
            begun: HashSet::new(),
            unread: HashMap::new(),
            held: BTreeMap::new(),
            judged_any: false,
            unjudged: 0,
            last_trouble: None,
        }
    }

    /// The same, for answers that these end: the text that is judged ends before theirs.
    pub fn ending_at(self, stops: Stops) -> Self {
        Self { stops, ..self }
    }

    /// See [`Graders::keep`].
    pub fn keep(&mut self, folder: &Path, notice: fn(&str)) {
        self.graders.keep(folder, notice);
    }

    fn unscorable(&mut self, why: String) -> Verdict {
        self.unjudged += 1;
        self.last_trouble = Some(why);
        UNSCORABLE
    }
}

impl Reward<Answer> for Graded {
    fn begin(&mut self, place: usize, sample: &Sample<Answer>) {
        self.begun.insert(place);
        let problem = &self.problems[sample.prompt.0 as usize];
        match self.tokens.answer(&sample.answer.tokens, &self.stops) {
            Ok(answer) => {
                let question = Question::of(problem, answer, problem.gold.clone());
                let asked = self.unjudged + (self.begun.len() - self.unread.len()) as u64;
                if !self.judged_any && asked > self.patience() {
                    self.held.insert(place, question);
                } else {
                    self.graders.ask(place, &question);
                }
            }
            Err(trouble) => {
                self.unread.insert(place, trouble.what);
            }
        }
    }

    async fn score(&mut self, samples: &[(usize, &Sample<Answer>)]) -> Result<Vec<Verdict>> {
        for (place, sample) in samples {
            if !self.begun.contains(place) {
                self.begin(*place, sample);
            }
        }
        let held = |place: &usize| self.held.contains_key(place);
        let (later, first): (Vec<_>, Vec<_>) = samples.iter().copied().partition(|(place, _)| held(place));
        let mut verdicts = self.judge(&first).await?;
        self.check_patience()?;
        for (place, question) in std::mem::take(&mut self.held) {
            self.graders.ask(place, &question);
        }
        verdicts.extend(self.judge(&later).await?);
        self.begun.clear();
        Ok(samples.iter().map(|(place, _)| verdicts.remove(place).unwrap_or(UNSCORABLE)).collect())
    }
}

impl Graded {
    /// The verdicts on answers that graders were asked about, by place.
    async fn judge(&mut self, samples: &[(usize, &Sample<Answer>)]) -> Result<HashMap<usize, Verdict>> {
        let mut said = self.graders.finish().await?;
        let mut verdicts = HashMap::with_capacity(samples.len());
        for (place, sample) in samples {
            let source = &self.problems[sample.prompt.0 as usize].source;
            let verdict = match self.unread.remove(place) {
                None => self.graders.verdict(&mut said, *place, source, sample.tokens),
                Some(why) => Err(why),
            };
            self.judged_any |= verdict.is_ok();
            verdicts.insert(*place, verdict.unwrap_or_else(|why| self.unscorable(why)));
        }
        Ok(verdicts)
    }

    /// Answers that may be unscorable from the start of this process on, before a run ends. `u64::MAX` for no limit.
    fn patience(&self) -> u64 {
        match self.graders.config().patience.unwrap_or(PATIENCE) {
            0 => u64::MAX,
            answers => u64::from(answers),
        }
    }

    /// Errs where none of the first answers could be judged: the rest of the budget would buy nothing.
    fn check_patience(&self) -> Result<()> {
        if self.judged_any || self.unjudged < self.patience() {
            return Ok(());
        }
        let why = self.last_trouble.as_deref().unwrap_or_default();
        let what =
            format!("none of the first {} answers could be graded; the last one: {why}", self.unjudged);
        Err(Error::new(what)
            .hint("Fix the grader of [reward] and continue with `allot train --resume`.")
            .hint("Set `patience` under [reward] to allow more unscorable answers at the start, or to 0 for any number."))
    }
}
