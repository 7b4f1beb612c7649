//! How a training run is going, on the screen: one line that is drawn over itself, or plain lines where
//! the screen is no terminal.

use std::time::{Duration, Instant};

use crate::config::BudgetConfig;
use crate::meter::Measured;
use crate::screen::Screen;
use crate::summary::percent;
use allot_allocation::Spent;
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
            steps.max(self.budget.share(done.spent, done.measured))
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
        if self.screen.live {
            // A narrow terminal cuts off the end of it.
            let speed = format!("{rate:.0} tokens/s  {} left", minutes(left));
            self.screen.draw(format_args!("{at}  {numbers}  {speed}  {budget}"));
        } else if step.accuracy.is_some() {
            self.screen.tell(format_args!("{at}  {budget}  {numbers}"));
        }
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
            let why = why.unwrap_or("of nothing that is known");
            self.tell(format_args!("note: {answers} could not be judged, the last because {why}"));
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
