//! Grades a language model's answers as text, while others are still sampled.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use allot_base::{Error, Result};
use allot_engine::episode::Ended;
use allot_engine::{Answer, Episode, Sample, Stops};
use allot_models::tokens::Tokens;
use allot_settings::reward::PATIENCE;
use allot_tasks::Problem;

use super::graders::Graders;
use super::protocol::{Judgement, Opinion, Question};
use super::{Reward, UNSCORABLE, Verdict};

/// Grades a language model's answers as text.
pub struct Graded {
    tokens: Arc<Tokens>,
    /// The stop sequences. An answer's text is graded up to the first one.
    stops: Stops,
    /// The problem of each prompt, including held-out ones, by prompt id.
    problems: Arc<Vec<Problem>>,
    graders: Graders,
    /// Places whose answers were taken.
    begun: HashSet<usize>,
    /// Answers that could not be decoded, by place, with the reason.
    unread: HashMap<usize, String>,
    /// Questions that wait until one of the first `patience` answers has been graded, by place.
    held: BTreeMap<usize, Question>,
    /// Whether any answer has been graded.
    judged_any: bool,
    /// Number of answers that could not be graded.
    pub unjudged: u64,
    /// Why the most recent ungraded answer could not be graded.
    pub last_trouble: Option<String>,
}

impl Graded {
    /// Returns a reward that grades answers to these problems with these graders.
    pub fn new(tokens: Arc<Tokens>, problems: Arc<Vec<Problem>>, graders: Graders) -> Self {
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

    /// Sets the stop sequences; an answer's text is graded up to the first one.
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
        match self.tokens.answer(sample.answer.last_turn(), &self.stops) {
            Ok(answer) => {
                let mut question = Question::of(problem, answer, problem.gold.clone());
                question.episode = sample.answer.episode.as_deref().map(said);
                question.group = sample.prompt.0;
                let asked = self.unjudged + (self.begun.len() - self.unread.len()) as u64;
                // Answers that are compared are asked about once all are there, and none is kept back from its group.
                if !self.judged_any && asked > self.patience() && !self.compares() {
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

    fn compares(&self) -> bool {
        self.graders.compare()
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

/// Returns what an episode's environment said of it.
fn said(episode: &Episode) -> Opinion {
    let Ended { reward, correct, parts, trouble, .. } = &episode.end;
    if reward.is_none() && parts.is_empty() {
        return Err(trouble.clone().unwrap_or_else(|| "the environment gave no reward".to_owned()));
    }
    let reward = reward.filter(|_| parts.is_empty());
    Ok(Judgement { correct: *correct, reward, parts: parts.clone(), ..Judgement::default() })
}

impl Graded {
    /// Returns the verdicts on these answers, by place.
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

    /// Returns after how many unscorable answers of this process a run ends; `u64::MAX` for never.
    fn patience(&self) -> u64 {
        match self.graders.config().patience.unwrap_or(PATIENCE) {
            0 => u64::MAX,
            answers => u64::from(answers),
        }
    }

    /// Returns an error if none of the first answers could be graded: further rollouts would be wasted.
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
