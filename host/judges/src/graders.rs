//! All graders of a config: a single one, or several that each give a part of the reward.

use std::collections::HashMap;
use std::path::Path;

use allot_base::{Error, Result};
use allot_settings::RewardConfig;
use allot_tasks::Problem;

use super::Verdict;
use super::identity::{GraderPreflight, Identity};
use super::protocol::{Judgement, Opinion, Part, Question};
use super::single::Single;

/// All graders of a config.
pub struct Graders {
    config: RewardConfig,
    /// The length limit of an answer, in tokens.
    longest: u32,
    /// One grader, or one for each part in the config.
    all: Vec<Single>,
}

/// The opinions of each grader on its answers, by place.
pub struct Said(Vec<HashMap<usize, Opinion>>);

/// One grader's result for an answer, before any weight: the reward, whether the answer is correct (if the
/// grader decides that), and the reward's parts.
type Judged = (f32, Option<bool>, Vec<Part>);

/// Checks the graders of these problems before anything else is created. Returns a preflight for each
/// grader in the config; `None` for a grader that is part of this program.
///
/// # Errors
///
/// Problems without a grader, a grader that does not start, or rewards that the config can't use.
pub fn check(config: &RewardConfig, problems: &[Problem]) -> Result<Vec<Option<GraderPreflight>>> {
    config.check_sources(problems.iter().map(|problem| problem.source.as_str()))?;
    let mut met = Vec::new();
    for one in config.each() {
        let preflight = Single::check(one, problems)?;
        // The grader may fail to grade the greeting; it works nevertheless.
        let said = preflight.as_ref().and_then(|preflight| preflight.opinion.clone().ok());
        let lacks = said.and_then(|judgement| match reward(one, judgement) {
            Ok((_, None, _)) if decides(config, one) => Some(UNDECIDED.to_owned()),
            Ok(_) => None,
            Err(why) => Some(why),
        });
        if let Some(why) = lacks {
            let rule = "set `correct_from` to the lowest reward of a correct answer, and `weights` to the \
                        weights of a reward's parts";
            return Err(Error::new(format!("the grader {why}")).hint(rule));
        }
        met.push(preflight);
    }
    Ok(met)
}

/// The error of a grader that must decide whether an answer is correct, but does not.
const UNDECIDED: &str = "gives a reward, but does not say whether the answer is correct";

/// Returns whether a grader may have to decide whether an answer is correct.
fn decides(config: &RewardConfig, one: &RewardConfig) -> bool {
    let marked = config.each().iter().any(|other| other.decides == Some(true));
    one.decides.unwrap_or(!marked)
}

impl Graders {
    /// Returns a config's graders for these problems, and for answers of at most `longest` tokens. `known`
    /// has each grader's identity from its check.
    ///
    /// # Errors
    ///
    /// The errors of [`check`].
    pub fn new(
        config: RewardConfig,
        problems: &[Problem],
        longest: u32,
        known: Vec<Option<Identity>>,
    ) -> Result<Self> {
        let known = known.into_iter().chain(std::iter::repeat(None));
        let all = config.each().iter().zip(known).map(|(one, known)| Single::new(one, problems, known));
        Ok(Self { all: all.collect::<Result<_>>()?, config, longest })
    }

    /// Returns the config.
    pub fn config(&self) -> &RewardConfig {
        &self.config
    }

    /// Returns whether a grader compares answers to the same prompt.
    pub fn compare(&self) -> bool {
        self.all.iter().any(Single::compares)
    }

    /// Stores the replies of servers in a run's folder, and reuses those that are already there. `notice`
    /// is called when a server becomes unavailable, and when it is available again.
    pub fn keep(&mut self, folder: &Path, notice: fn(&str)) {
        let alone = self.config.graders.is_empty();
        for grader in &mut self.all {
            let part = grader.config.part();
            let file = if alone { "replies.jsonl".to_owned() } else { format!("replies-{part}.jsonl") };
            grader.keep(&folder.join(file), notice);
        }
    }

    /// Starts grading an answer, under a place that the caller chooses.
    pub fn ask(&mut self, place: usize, question: &Question) {
        for grader in self.all.iter_mut().filter(|grader| grader.config.judges(&question.source)) {
            grader.begin(place, question.clone());
        }
    }

    /// Waits for the opinions on all answers.
    ///
    /// # Errors
    ///
    /// A grader that can't grade any more.
    pub async fn finish(&mut self) -> Result<Said> {
        let mut said = Vec::with_capacity(self.all.len());
        for grader in &mut self.all {
            said.push(grader.finish().await?);
        }
        Ok(Said(said))
    }

    /// Returns the verdict on the answer at `place`, which has `tokens` tokens and a problem from `source`.
    /// Returns the reason if there is no verdict.
    pub fn verdict(
        &self,
        said: &mut Said,
        place: usize,
        source: &str,
        tokens: u32,
    ) -> std::result::Result<Verdict, String> {
        let unasked = || Err("the grader was not asked about it".to_owned());
        let asked = self.all.iter().zip(&mut said.0).enumerate();
        let asked = asked.filter(|(_, (grader, _))| grader.config.judges(source));
        let mut opinions = asked.map(|(i, (_, said))| (i, said.remove(&place).unwrap_or_else(unasked)));
        if self.config.graders.is_empty() {
            let (_, opinion) = opinions.next().unwrap_or_else(|| (0, unasked()));
            self.alone(tokens, opinion)
        } else {
            self.together(tokens, opinions.collect())
        }
    }

    /// Returns the verdict of the only grader.
    fn alone(&self, tokens: u32, opinion: Opinion) -> std::result::Result<Verdict, String> {
        let judgement = opinion?;
        let certain = judgement.certain;
        let (reward, correct, parts) = self.judged(&self.config, tokens, judgement)?;
        let correct = correct.ok_or_else(|| format!("the grader {UNDECIDED}"))?;
        Ok(Verdict { reward: Some(reward), correct, parts, certain })
    }

    /// Returns the verdict of several graders, given with their indices: the weighted sum of their parts.
    /// If one gives no verdict, there is none, because a sum without its part is another reward.
    fn together(&self, tokens: u32, opinions: Vec<(usize, Opinion)>) -> std::result::Result<Verdict, String> {
        let marked = opinions.iter().any(|(i, _)| self.config.graders[*i].decides == Some(true));
        let first = opinions.iter().position(|(i, _)| self.config.graders[*i].decides != Some(false));
        let (mut sum, mut correct, mut parts, mut certain) = (0.0, None, Vec::new(), None);
        for (at, (i, opinion)) in opinions.into_iter().enumerate() {
            let one = &self.config.graders[i];
            let name = one.part();
            // Each of its math-verify graders has to be certain.
            let is_certain = opinion.as_ref().ok().and_then(|judgement| judgement.certain);
            certain = is_certain.map(|is| is && certain.unwrap_or(true)).or(certain);
            let judged = opinion.and_then(|judgement| self.judged(one, tokens, judgement));
            let (reward, right, within) = judged.map_err(|why| format!("`{name}`: {why}"))?;
            if if marked { one.decides == Some(true) } else { first == Some(at) } {
                let right = right.ok_or_else(|| format!("`{name}`: the grader {UNDECIDED}"))?;
                correct = Some(correct.unwrap_or(true) && right);
            }
            sum += one.weight.unwrap_or(1.0) * reward;
            parts.push((name.to_owned(), reward));
            parts.extend(within.into_iter().map(|(part, x)| (format!("{name}.{part}"), x)));
        }
        let reward = sum - self.penalty(&self.config, tokens);
        if !reward.is_finite() {
            return Err("the parts of a reward add up to a number that is too large".to_owned());
        }
        let correct = correct.ok_or_else(|| "no grader says whether the answer is correct".to_owned())?;
        Ok(Verdict { reward: Some(reward), correct, parts, certain })
    }

    /// Returns the result of one grader's judgement, with its length penalty.
    fn judged(
        &self,
        one: &RewardConfig,
        tokens: u32,
        judgement: Judgement,
    ) -> std::result::Result<Judged, String> {
        let (reward, correct, parts) = reward(one, judgement).map_err(|why| format!("the grader {why}"))?;
        Ok((reward - self.penalty(one, tokens), correct, parts))
    }

    fn penalty(&self, config: &RewardConfig, tokens: u32) -> f32 {
        config.overlong.map_or(0.0, |overlong| overlong.of(tokens, self.longest))
    }
}

/// Returns the result of a judgement before any penalty: the reward, whether the answer is correct (if the
/// grader decides that), and the reward's parts. An error says what the judgement lacks.
pub fn reward(config: &RewardConfig, judgement: Judgement) -> std::result::Result<Judged, String> {
    let Judgement { correct, reward, parts, share, .. } = judgement;
    let partial = share.filter(|_| config.python.as_ref().is_some_and(|python| python.partial));
    let reward = reward.or_else(|| partial.map(|share| config.wrong + share * (config.right - config.wrong)));
    let told = if parts.is_empty() { reward } else { Some(weighed(config, &parts)?) };
    let correct = correct.or_else(|| Some(told? >= config.correct_from()?));
    let reward = match (told, correct) {
        (Some(told), _) => told,
        (None, Some(true)) => config.right,
        (None, _) => config.wrong,
    };
    if !reward.is_finite() {
        return Err("gives parts of a reward that add up to a number that is too large".to_owned());
    }
    Ok((reward, correct, parts))
}

/// Returns the weighted sum of a reward's parts.
fn weighed(config: &RewardConfig, parts: &[Part]) -> std::result::Result<f32, String> {
    if config.weights.is_empty() {
        return Ok(parts.iter().map(|(_, x)| x).sum());
    }
    if let Some(missing) = config.weights.keys().find(|name| parts.iter().all(|(part, _)| part != *name)) {
        return Err(format!("gives no part `{missing}`, which `weights` has"));
    }
    let one = |(name, x): &Part| match config.weights.get(name) {
        Some(weight) => Ok(weight * x),
        None => Err(format!("gives a part `{name}`, which `weights` does not have")),
    };
    parts.iter().map(one).sum()
}
