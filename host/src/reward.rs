//! Rewards: from what a rollout says to how good it was.

use std::rc::Rc;

use allot_engine::{Answer, Sample};
use allot_tasks::Problem;

use crate::config::train::{Overlong, RewardConfig};
use crate::tokens::Tokens;

/// A rollout's verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The reward, or none where it could not be scored.
    pub reward: Option<f32>,
    /// Whether the answer was right, whatever else the reward counts.
    pub correct: bool,
}

/// No verdict at all.
pub const UNSCORABLE: Verdict = Verdict { reward: None, correct: false };

/// Something that judges rollouts.
pub trait Reward<A> {
    /// One verdict for each rollout, in their order. One that is missing at the end is none.
    fn score(&mut self, samples: &[Sample<A>]) -> impl Future<Output = Vec<Verdict>>;
}

/// For answers that know by themselves whether they are right: 1 or 0.
#[derive(Clone, Copy, Debug)]
pub struct RightOrWrong;

impl Reward<bool> for RightOrWrong {
    async fn score(&mut self, samples: &[Sample<bool>]) -> Vec<Verdict> {
        let verdict = |s: &Sample<bool>| Verdict { reward: Some(f32::from(s.answer)), correct: s.answer };
        samples.iter().map(verdict).collect()
    }
}

/// Answers of a language model, judged as text by a grader.
pub struct Graded {
    tokens: Rc<Tokens>,
    /// Every prompt's problem, held-out ones too, by the prompt's number.
    problems: Rc<Vec<Problem>>,
    config: RewardConfig,
    /// The length limit of an answer.
    longest: u32,
    /// Why an answer could not be judged, the last time that one could not.
    pub last_trouble: Option<String>,
}

impl Graded {
    /// A judge of answers to these problems.
    pub fn new(tokens: Rc<Tokens>, problems: Rc<Vec<Problem>>, config: RewardConfig, longest: u32) -> Self {
        Self { tokens, problems, config, longest, last_trouble: None }
    }

    /// Right if it is what any of the problem's gold answers says.
    fn judge(&self, sample: &Sample<Answer>) -> Result<Verdict, String> {
        let problem = &self.problems[sample.prompt.0 as usize];
        let text = self.tokens.decode(&sample.answer.tokens).map_err(|t| t.what)?;
        let mut correct = false;
        for gold in &problem.gold {
            let grade = self.config.grader.grade(gold, &text).map_err(|e| e.to_string())?;
            correct = correct || grade.correct;
        }
        let plain = if correct { self.config.right } else { self.config.wrong };
        let penalty = self.config.overlong.map_or(0.0, |o| o.of(sample.tokens, self.longest));
        Ok(Verdict { reward: Some(plain - penalty), correct })
    }
}

impl Overlong {
    /// The penalty on an answer of this length.
    pub fn of(self, tokens: u32, longest: u32) -> f32 {
        let over = tokens.saturating_sub(longest.saturating_sub(self.buffer));
        self.penalty * (over as f32 / self.buffer as f32).min(1.0)
    }
}

impl Reward<Answer> for Graded {
    async fn score(&mut self, samples: &[Sample<Answer>]) -> Vec<Verdict> {
        let mut verdicts = Vec::with_capacity(samples.len());
        for sample in samples {
            verdicts.push(self.judge(sample).unwrap_or_else(|why| {
                self.last_trouble = Some(why);
                UNSCORABLE
            }));
        }
        verdicts
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
