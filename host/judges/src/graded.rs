//! Answers of a language model, judged as text: by a grader of our own, or by judges that are processes.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use allot_engine::{Answer, Sample};
use allot_error::{Error, Result};
use allot_models::tokens::Tokens;
use allot_tasks::Problem;
use allot_tasks::grader::Grader;

use super::environment;
use super::http::Http;
use super::identity::Identity;
use super::pool::{Judge, Pool, Preflight};
use super::protocol::{Judgement, Opinion, Part, Question};
use super::sandboxed::Sandboxed;
use super::{Reward, UNSCORABLE, Verdict};
use crate::config::{AnyGrader, Overlong, RewardConfig, no_functions, no_server};

/// Answers of a language model, judged as text.
pub struct Graded {
    tokens: Rc<Tokens>,
    /// Every prompt's problem, held-out ones too, by the prompt's number.
    problems: Rc<Vec<Problem>>,
    config: RewardConfig,
    /// The length limit of an answer.
    longest: u32,
    by: By,
    /// Of what was begun, by its place: the opinion, or none yet where a judge has the question.
    opinions: HashMap<usize, Option<Opinion>>,
    /// Answers that could not be judged.
    pub unjudged: u64,
    /// Why an answer could not be judged, the last time that one could not.
    pub last_trouble: Option<String>,
}

/// Who judges.
enum By {
    Grader(Grader),
    Judges(Pool),
    Sandboxed(Sandboxed),
    Http(Http),
}

impl By {
    fn of(config: &RewardConfig, problems: &[Problem], known: Option<Identity>) -> Result<Self> {
        let settings = config.judge.clone().unwrap_or_default();
        // A judge may know gold answers of one kind alone, so that it is checked with one of the run's own.
        let greeting = problems.first().map_or_else(Question::default, |problem| {
            let gold: Vec<String> = problem.gold.first().cloned().into_iter().collect();
            asked(problem, gold.first().cloned().unwrap_or_default(), gold)
        });
        let judge = match config.grader {
            AnyGrader::Native(grader) => return Ok(Self::Grader(grader)),
            AnyGrader::Python => {
                let config = config.python.clone().unwrap_or_default();
                return Sandboxed::new(&config).map(Self::Sandboxed);
            }
            AnyGrader::Http => {
                let http = config.http.as_ref().ok_or_else(|| no_server("the config"))?;
                return Ok(Self::Http(Http::new(http, greeting, known)));
            }
            AnyGrader::Environment => {
                Judge::environment(environment::packages(problems), &settings, greeting)
            }
            AnyGrader::MathVerify => Judge::math_verify(&settings, greeting),
            AnyGrader::Command => Judge::command(&settings, greeting),
            AnyGrader::Functions => {
                let functions = config.functions.as_ref().ok_or_else(|| no_functions("the config"))?;
                Judge::functions(functions, &settings, greeting)
            }
        };
        Ok(Self::Judges(Pool::new(Judge { known, ..judge })))
    }
}

/// What is asked about an answer to a problem.
fn asked(problem: &Problem, answer: String, gold: Vec<String>) -> Question {
    Question { gold, answer, prompt: problem.question.clone(), source: problem.source.clone() }
}

/// Starts one of the judges that answers to these problems would have, if they are processes, and lets it
/// go again: what is missing is told before anything else is made. Gives who it is.
pub fn check(config: &RewardConfig, problems: &[Problem]) -> Result<Option<Preflight>> {
    if config.grader == AnyGrader::Python {
        return Sandboxed::check(&config.python.clone().unwrap_or_default()).map(Some);
    }
    let preflight = match By::of(config, problems, None)? {
        By::Judges(pool) => pool.check()?,
        By::Http(http) => http.check()?,
        By::Grader(_) | By::Sandboxed(_) => return Ok(None),
    };
    // It may be unsure of the greeting, or fail at it: it works.
    let reward = preflight.opinion.clone().map(|judgement| config.reward(judgement));
    if let Ok(Err(why)) = reward {
        let rule = "`reward.correct_from` says from which reward on an answer is correct, `reward.weights` what the \
                    parts of a reward weigh";
        return Err(Error::new(format!("the judge {why}")).hint(rule));
    }
    Ok(Some(preflight))
}

impl Graded {
    /// A judge of answers to these problems. Of one that is a process, who it was when it was looked at.
    pub fn new(
        tokens: Rc<Tokens>,
        problems: Rc<Vec<Problem>>,
        config: RewardConfig,
        longest: u32,
        known: Option<Identity>,
    ) -> Result<Self> {
        let by = By::of(&config, &problems, known)?;
        Ok(Self {
            tokens,
            problems,
            config,
            longest,
            by,
            opinions: HashMap::new(),
            unjudged: 0,
            last_trouble: None,
        })
    }

    /// Keeps in a run's folder what a server says that judges, and takes from there what it has said before; `notice`
    /// is called when the server is away, and when it is back.
    pub fn keep(&mut self, folder: &Path, notice: fn(&str)) {
        if let By::Http(http) = &mut self.by {
            http.keep(&folder.join("replies.jsonl"), notice);
        }
    }

    fn question(&self, sample: &Sample<Answer>) -> std::result::Result<Question, String> {
        let answer = self.tokens.decode(&sample.answer.tokens).map_err(|t| t.what)?;
        let problem = &self.problems[sample.prompt.0 as usize];
        Ok(asked(problem, answer, problem.gold.clone()))
    }

    fn verdict(&mut self, sample: &Sample<Answer>, opinion: Opinion) -> Verdict {
        let config = &self.config;
        match opinion.and_then(|judgement| config.reward(judgement).map_err(|why| format!("the judge {why}")))
        {
            Ok((plain, correct, parts)) => {
                let penalty = config.overlong.map_or(0.0, |o| o.of(sample.tokens, self.longest));
                Verdict { reward: Some(plain - penalty), correct, parts }
            }
            Err(why) => {
                self.unjudged += 1;
                self.last_trouble = Some(why);
                UNSCORABLE
            }
        }
    }
}

impl Reward<Answer> for Graded {
    fn begin(&mut self, place: usize, sample: &Sample<Answer>) {
        match (self.question(sample), &mut self.by) {
            (Err(why), _) => self.opinions.insert(place, Some(Err(why))),
            (Ok(question), By::Grader(grader)) => {
                let correct = grader.grade_any(&question.gold, &question.answer);
                self.opinions.insert(place, Some(correct.map(Into::into).map_err(|e| e.to_string())))
            }
            (Ok(question), By::Judges(pool)) => {
                pool.begin(place, question);
                self.opinions.insert(place, None)
            }
            (Ok(question), By::Sandboxed(sandboxed)) => {
                sandboxed.begin(place, question);
                self.opinions.insert(place, None)
            }
            (Ok(question), By::Http(http)) => {
                http.begin(place, question);
                self.opinions.insert(place, None)
            }
        };
    }

    async fn score(&mut self, samples: &[(usize, &Sample<Answer>)]) -> Result<Vec<Verdict>> {
        for (place, sample) in samples {
            if !self.opinions.contains_key(place) {
                self.begin(*place, sample);
            }
        }
        let mut opinions = std::mem::take(&mut self.opinions);
        let judged = match &mut self.by {
            By::Grader(_) => Vec::new(),
            By::Judges(pool) => pool.finish().await?,
            By::Sandboxed(sandboxed) => sandboxed.finish().await,
            By::Http(http) => http.finish().await?,
        };
        opinions.extend(judged.into_iter().map(|(place, opinion)| (place, Some(opinion))));
        let verdict = |(place, sample): &(usize, &Sample<Answer>)| {
            let opinion = opinions.remove(place).flatten();
            self.verdict(sample, opinion.unwrap_or_else(|| Err("it was not asked about".to_owned())))
        };
        Ok(samples.iter().map(verdict).collect())
    }
}

impl RewardConfig {
    /// What a judgement comes to before any penalty: the reward, whether the answer is correct, and the reward's
    /// parts. Or what the judgement lacks.
    pub fn reward(&self, judgement: Judgement) -> std::result::Result<(f32, bool, Vec<Part>), String> {
        let Judgement { correct, reward, parts, share } = judgement;
        let partial = share.filter(|_| self.python.as_ref().is_some_and(|python| python.partial));
        let reward = reward.or_else(|| partial.map(|share| self.wrong + share * (self.right - self.wrong)));
        let told = if parts.is_empty() { reward } else { Some(self.weighed(&parts)?) };
        let correct = match (correct, told, self.correct_from()) {
            (Some(correct), ..) => correct,
            (None, Some(reward), Some(from)) => reward >= from,
            _ => return Err("gives a reward, and does not say whether the answer is correct".to_owned()),
        };
        let reward = told.unwrap_or(if correct { self.right } else { self.wrong });
        if !reward.is_finite() {
            return Err("gives parts of a reward that add up to more than a number holds".to_owned());
        }
        Ok((reward, correct, parts))
    }

    /// The sum of a reward's parts, each by its weight.
    fn weighed(&self, parts: &[Part]) -> std::result::Result<f32, String> {
        if self.weights.is_empty() {
            return Ok(parts.iter().map(|(_, x)| x).sum());
        }
        if let Some(missing) = self.weights.keys().find(|name| parts.iter().all(|(part, _)| part != *name)) {
            return Err(format!("gives no part `{missing}`, which `reward.weights` has"));
        }
        let one = |(name, x): &Part| match self.weights.get(name) {
            Some(weight) => Ok(weight * x),
            None => Err(format!("gives a part `{name}`, which `reward.weights` has not")),
        };
        parts.iter().map(one).sum()
    }
}

impl Overlong {
    /// The penalty on an answer of this length.
    pub fn of(self, tokens: u32, longest: u32) -> f32 {
        let over = tokens.saturating_sub(longest.saturating_sub(self.buffer));
        self.penalty * (over as f32 / self.buffer as f32).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_penalty_on_long_answers_grows_from_the_buffer_to_the_limit() {
        let overlong = Overlong { buffer: 4, penalty: 1.0 };
        let all: Vec<f32> = (4..=11).map(|n| overlong.of(n, 10)).collect();
        assert_eq!(all, [0.0, 0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0]);
    }
}
