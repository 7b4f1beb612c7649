//! The progress of a training run on the screen: one line that is redrawn in place or, without a terminal,
//! plain lines.

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

/// The progress display of a run.
pub struct Progress<'a, 's> {
    /// The screen.
    pub screen: &'a mut Screen<'s>,
    steps: u32,
    budget: BudgetConfig,
    began: Instant,
    /// The finished part of the run at the start of this process.
    before: Done,
    accuracy: f64,
    effective: u64,
    /// Number of unscorable answers that were reported.
    unjudged: u64,
}

/// Clipped requests. The first one is reported, then each time their number has grown tenfold: near the end
/// of a budget they occur in every step.
#[derive(Default)]
pub struct Clips {
    clipped: u64,
    told: u64,
}

impl Clips {
    /// Adds a clipped request. Returns the message, if it is to be reported.
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

/// A wrapper of a reward that shows the progress of an evaluation. The evaluation of a real model takes
/// minutes, and the first one precedes everything else.
pub struct Scoring<'p, 'a, 's, R> {
    reward: &'p mut R,
    progress: &'p mut Progress<'a, 's>,
    whole: u64,
    all: u64,
    shown: Instant,
}

/// Interval between two lines without a terminal.
const SELDOM: Duration = Duration::from_secs(30);
/// Interval between two redraws on a terminal.
const OFTEN: Duration = Duration::from_millis(200);

impl<'p, 'a, 's, R> Scoring<'p, 'a, 's, R> {
    /// Returns a wrapper for an evaluation of `all` answers.
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

/// The finished part of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Number of steps.
    pub steps: u32,
    /// The amounts that the steps spent.
    pub spent: Spent,
    /// The operations and the time of the steps.
    pub measured: Measured,
}

impl<'a, 's> Progress<'a, 's> {
    /// Returns the display of a run with these limits on steps and budget.
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

    /// Stores the first accuracy, and starts the clock.
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
        // The run ends with its steps or its budget, whichever is used up first.
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
        // A narrow terminal truncates the end of the line.
        let speed = format!("{rate:.0} tokens/s  {} left", minutes(left));
        self.screen.draw(format_args!("{at}  {numbers}  {speed}  {budget}"));
    }

    /// Reports answers that could not be graded, first and then each time their number grows tenfold.
    pub fn unjudged(&mut self, count: u64, why: Option<&str>) {
        if count >= self.unjudged.saturating_mul(10).max(1) {
            self.unjudged_in_all(count, why);
        }
    }

    /// Reports answers that could not be graded, unless the last report has the same number.
    pub fn unjudged_in_all(&mut self, count: u64, why: Option<&str>) {
        if count > self.unjudged {
            self.unjudged = count;
            let answers = if count == 1 { "1 answer".to_owned() } else { format!("{count} answers") };
            let why = why.unwrap_or("unknown");
            self.tell(format_args!("note: {answers} could not be graded; reason for the last: {why}"));
        }
    }

    /// Prints a line above the one that is redrawn.
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

    /// Returns the screen's content in an evaluation of which one answer is finished.
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
            answer: true.into(),
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
    fn the_line_of_an_evaluation_stays_on_a_terminal() {
        let (mut out, mut progress) = (Vec::new(), Vec::new());
        let mut screen = Screen { out: &mut out, progress: &mut progress, live: true, failed: None };
        let budget: BudgetConfig = toml::from_str("rollouts = 10").expect("the test's own budget");
        let mut of_run = Progress::new(&mut screen, 2, budget, Done::default(), 0.0, 0);
        of_run.step(&StepEnd { accuracy: Some(0.25), ..StepEnd::default() }, Measured::default());
        of_run.step(&StepEnd { step: 1, ..StepEnd::default() }, Measured::default());
        let shown = String::from_utf8(progress).expect("text");
        let lines: Vec<&str> = shown.split('\n').collect();
        assert_eq!(lines.len(), 2, "{shown}");
        assert!(
            lines[0].contains("step    1/2  rollouts 0/10") && lines[0].contains("accuracy 0.250"),
            "{shown}"
        );
        assert!(lines[1].contains("step    2/2"), "{shown}");
    }

    #[test]
    fn a_score_that_takes_long_is_seen_to_go_on() {
        assert!(scored(true, OFTEN).contains("evaluating: 1 of 40 answers"));
        assert_eq!(scored(false, SELDOM), "evaluating: 1 of 40 answers\n");
        assert_eq!(scored(false, OFTEN), "", "a log is no place for twenty lines a second");
    }
}
