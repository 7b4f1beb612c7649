//! Answers of a language model, judged as text: by a grader of our own, or by judges that are processes.

use std::collections::HashMap;
use std::rc::Rc;

use allot_engine::{Answer, Sample};
use allot_tasks::Problem;
use allot_tasks::grader::Grader;

use super::pool::{Judge, Pool};
use super::process::{Opinion, Question};
use super::{Reward, UNSCORABLE, Verdict};
use crate::config::reward::{AnyGrader, Overlong, RewardConfig};
use crate::tokens::Tokens;
use crate::trouble::Result;

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
}

impl By {
    fn of(config: &RewardConfig, problems: &[Problem]) -> Self {
        let settings = config.judge.clone().unwrap_or_default();
        // A judge may know gold answers of one kind alone, so that it is greeted with one of the run's own.
        let gold = problems.first().and_then(|p| p.gold.first()).cloned().unwrap_or_default();
        let greeting = Question { gold: vec![gold.clone()], answer: gold };
        match config.grader {
            AnyGrader::Native(grader) => Self::Grader(grader),
            AnyGrader::MathVerify => Self::Judges(Pool::new(Judge::math_verify(&settings, greeting))),
            AnyGrader::Command => Self::Judges(Pool::new(Judge::command(&settings, greeting))),
        }
    }
}

/// Starts one of the judges that answers to these problems would have, if they are processes, and lets it
/// go again: what is missing is told before anything else is made.
pub fn check(config: &RewardConfig, problems: &[Problem]) -> Result<()> {
    match By::of(config, problems) {
        By::Grader(_) => Ok(()),
        By::Judges(pool) => pool.check(),
    }
}

impl Graded {
    /// A judge of answers to these problems.
    pub fn new(tokens: Rc<Tokens>, problems: Rc<Vec<Problem>>, config: RewardConfig, longest: u32) -> Self {
        let by = By::of(&config, &problems);
        Self {
            tokens,
            problems,
            config,
            longest,
            by,
            opinions: HashMap::new(),
            unjudged: 0,
            last_trouble: None,
        }
    }

    fn question(&self, sample: &Sample<Answer>) -> std::result::Result<Question, String> {
        let answer = self.tokens.decode(&sample.answer.tokens).map_err(|t| t.what)?;
        Ok(Question { gold: self.problems[sample.prompt.0 as usize].gold.clone(), answer })
    }

    fn verdict(&mut self, sample: &Sample<Answer>, opinion: Opinion) -> Verdict {
        match opinion {
            Ok(correct) => {
                let plain = if correct { self.config.right } else { self.config.wrong };
                let penalty = self.config.overlong.map_or(0.0, |o| o.of(sample.tokens, self.longest));
                Verdict { reward: Some(plain - penalty), correct }
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
                self.opinions.insert(place, Some(grade(*grader, &question)))
            }
            (Ok(question), By::Judges(pool)) => {
                pool.begin(place, question);
                self.opinions.insert(place, None)
            }
        };
    }

    async fn score(&mut self, samples: &[Sample<Answer>]) -> Result<Vec<Verdict>> {
        for (place, sample) in samples.iter().enumerate() {
            if !self.opinions.contains_key(&place) {
                self.begin(place, sample);
            }
        }
        let mut opinions = std::mem::take(&mut self.opinions);
        if let By::Judges(pool) = &mut self.by {
            opinions.extend(pool.finish().await?.into_iter().map(|(place, opinion)| (place, Some(opinion))));
        }
        let verdict = |(place, sample)| {
            let opinion = opinions.remove(&place).flatten();
            self.verdict(sample, opinion.unwrap_or_else(|| Err("it was not asked about".to_owned())))
        };
        Ok(samples.iter().enumerate().map(verdict).collect())
    }
}

/// Right if it is what any of the gold answers says.
fn grade(grader: Grader, question: &Question) -> Opinion {
    let mut correct = false;
    for gold in &question.gold {
        let grade = grader.grade(gold, &question.answer).map_err(|e| e.to_string())?;
        correct = correct || grade.correct;
    }
    Ok(correct)
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
