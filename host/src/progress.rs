//! How a training run is going, on the screen: one line that is drawn over itself, or plain lines where
//! the screen is no terminal.

use std::time::{Duration, Instant};

use crate::screen::Screen;
use crate::summary::percent;
use allot_allocation::Spent;
use allot_base::Result;
use allot_config::BudgetConfig;
use allot_engine::Sample;
use allot_judges::{Reward, Verdict};
use allot_loop::{Clipped, Measured};
use allot_record::StepEnd;

/// The screen of a run.
pub struct Progress<'a, 's> {
    /// The screen.
    pub screen: &'a mut Screen<'s>,
    steps: u32,
    budget: BudgetConfig,
    began: Instant,
    /// What was over when this began, after a resume.
    before: Done,
    accuracy: f64,
    effective: u64,
    /// Answers without a verdict that were told of.
    unjudged: u64,
}

/// Requests that were clipped. The first one is told, and then whenever they are ten times as many: near the end of a
/// budget they come step after step.
#[derive(Default)]
pub struct Clips {
    clipped: u64,
    told: u64,
}

impl Clips {
    /// Adds one. Gives what there is to be told.
    pub fn add(&mut self, clipped: &Clipped) -> Option<String> {
        let Clipped { step, asked, granted, of_step } = *clipped;
        self.clipped += 1;
        if self.clipped < self.told.saturating_mul(10) {
            return None;
        }
        self.told = self.clipped;
        let left = if of_step {
            "`budget.step_rollouts` allows no more in this step"
        } else {
            "the run's budget has no more"
        };
        let step = step + 1;
        Some(format!("note: step {step} asked for {asked} rollouts and was granted {granted}: {left}"))
    }
}

/// A reward that is passed through, while the screen shows how much of a score is sampled: that of a real model
/// takes minutes, and the first comes before anything else.
pub struct Scoring<'p, 'a, 's, R> {
    reward: &'p mut R,
    progress: &'p mut Progress<'a, 's>,
    whole: u64,
    all: u64,
    shown: Instant,
}

/// Between two lines on a screen that is no terminal.
const SELDOM: Duration = Duration::from_secs(30);
/// Between two pictures on one that is.
const OFTEN: Duration = Duration::from_millis(200);

impl<'p, 'a, 's, R> Scoring<'p, 'a, 's, R> {
    /// For a score of so many answers.
    pub fn new(reward: &'p mut R, progress: &'p mut Progress<'a, 's>, all: u64) -> Self {
        progress.screen.draw(format_args!("evaluating: 0 of {all} answers"));
        Self { reward, progress, whole: 0, all, shown: Instant::now() }
    }
}

impl<A, R: Reward<A>> Reward<A> for Scoring<'_, '_, '_, R> {
    fn begin(&mut self, place: usize, sample: &Sample<A>) {
        self.reward.begin(place, sample);
        self.whole += 1;
        let screen = &mut *self.progress.screen;
        if self.shown.elapsed() >= if screen.live { OFTEN } else { SELDOM } {
            self.shown = Instant::now();
            let line = format!("evaluating: {} of {} answers", self.whole, self.all);
            if screen.live { screen.draw(line) } else { screen.tell(line) }
        }
    }

    async fn score(&mut self, samples: &[(usize, &Sample<A>)]) -> Result<Vec<Verdict>> {
        self.reward.score(samples).await
    }
}

impl<R> Drop for Scoring<'_, '_, '_, R> {
    fn drop(&mut self) {
        self.progress.screen.draw("");
    }
}

/// What is behind a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Steps.
    pub steps: u32,
    /// What they spent.
    pub spent: Spent,
    /// What they computed, and how long they took.
    pub measured: Measured,
}

impl<'a, 's> Progress<'a, 's> {
    /// A screen for a run of so many steps and such a budget at most.
    pub fn new(
        screen: &'a mut Screen<'s>,
        steps: u32,
        budget: BudgetConfig,
        before: Done,
        accuracy: f64,
        effective: u64,
    ) -> Self {
        let began = Instant::now();
        Self { screen, steps, budget, began, before, accuracy, effective, unjudged: 0 }
    }

    /// Takes down the score at the start, from which on time counts.
    pub fn started(&mut self, accuracy: f64) {
        self.accuracy = accuracy;
        self.began = Instant::now();
    }

    /// Shows a step.
    pub fn step(&mut self, step: &StepEnd, measured: Measured) {
        self.effective += step.effective;
        self.accuracy = step.accuracy.unwrap_or(self.accuracy);
        let spent = step.spent.run_rollouts;
        let seconds = self.began.elapsed().as_secs_f64().max(1e-3);
        let rate = (step.spent.run_tokens - self.before.spent.run_tokens) as f64 / seconds;
        // What ends first, the steps or the budget.
        let share = |done: &Done| {
            let steps = f64::from(done.steps) / f64::from(self.steps);
            let Measured { compute, seconds, .. } = &done.measured;
            steps.max(self.budget.share(done.spent, compute.flops.total(), seconds.of_steps()))
        };
        let before = share(&self.before);
        let now = share(&Done { steps: step.step + 1, spent: step.spent, measured });
        let over = (now - before) / (1.0 - before).max(1e-9);
        let left = Duration::from_secs_f64((seconds / over.max(1e-6) - seconds).clamp(0.0, 1e7));
        let waste = 100.0 - percent(self.effective, spent);
        let at = format!("step {:>4}/{}", step.step + 1, self.steps);
        let budget = match self.budget.rollouts {
            Some(most) => format!("rollouts {spent}/{most}"),
            None => format!("rollouts {spent}"),
        };
        let (reward, accuracy) = (step.reward, self.accuracy);
        let numbers = format!("reward {reward:.3}  accuracy {accuracy:.3}  waste {waste:.0} %");
        if step.accuracy.is_some() {
            self.tell(format_args!("{at}  {budget}  {numbers}"));
        }
        // A narrow terminal cuts off the end of it.
        let speed = format!("{rate:.0} tokens/s  {} left", minutes(left));
        self.screen.draw(format_args!("{at}  {numbers}  {speed}  {budget}"));
    }

    /// Tells of answers that could not be judged, the first time and whenever they are ten times as many.
    pub fn unjudged(&mut self, count: u64, why: Option<&str>) {
        if count >= self.unjudged.saturating_mul(10).max(1) {
            self.unjudged_in_all(count, why);
        }
    }

    /// Tells of answers that could not be judged, unless just that was told.
    pub fn unjudged_in_all(&mut self, count: u64, why: Option<&str>) {
        if count > self.unjudged {
            self.unjudged = count;
            let answers = if count == 1 { "1 answer".to_owned() } else { format!("{count} answers") };
            let why = why.unwrap_or("unknown");
            self.tell(format_args!("note: {answers} could not be graded; reason for the last: {why}"));
        }
    }

    /// A line above the one that is drawn over itself.
    pub fn tell(&mut self, line: impl std::fmt::Display) {
        self.screen.draw("");
        self.screen.tell(line);
    }
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 { format!("{seconds} s") } else { format!("{} min {:02} s", seconds / 60, seconds % 60) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allot_allocation::PromptId;
    use allot_judges::RightOrWrong;

    /// What stands on the screen after a score of which one answer is whole.
    fn scored(live: bool, waited: Duration) -> String {
        let (mut out, mut progress) = (Vec::new(), Vec::new());
        let mut screen = Screen { out: &mut out, progress: &mut progress, live, failed: None };
        let budget: BudgetConfig = toml::from_str("rollouts = 10").expect("the test's own budget");
        let mut of_run = Progress::new(&mut screen, 1, budget, Done::default(), 0.0, 0);
        let mut reward = RightOrWrong;
        let mut scoring = Scoring::new(&mut reward, &mut of_run, 40);
        scoring.shown -= waited;
        let answer = Sample {
            prompt: PromptId(1),
            position: 0,
            version: 0,
            answer: true,
            tokens: 1,
            truncated: false,
            log_prob: 0.0,
            signals: Vec::new(),
            sampling: None,
        };
        scoring.begin(0, &answer);
        drop(scoring);
        String::from_utf8(progress).expect("text")
    }

    #[test]
    fn a_score_that_takes_long_is_seen_to_go_on() {
        assert!(scored(true, OFTEN).contains("evaluating: 1 of 40 answers"));
        assert_eq!(scored(false, SELDOM), "evaluating: 1 of 40 answers\n");
        assert_eq!(scored(false, OFTEN), "", "a log is no place for twenty lines a second");
    }
}
