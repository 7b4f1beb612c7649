//! The summary of graded answers.

use std::collections::BTreeMap;

use allot_allocation::shown;
use allot_base::count;
use allot_judges::math::Certain;
use allot_outputs::graded::GradedRow;

use super::answers::Answers;
use crate::screen::Screen;
use crate::summary::percent;

/// The most bad rows that are named.
const NAMED: usize = 5;

/// The summary of graded answers.
pub struct Summary {
    /// Number of answers.
    all: usize,
    correct: usize,
    /// Rewards by math-verify.
    certain: Certain,
    /// Number of answers that could not be graded.
    pub ungraded: usize,
    /// The first ungraded row, and the reason.
    why: Option<(u64, String)>,
    /// Sum of the rewards.
    sum: f64,
    /// For each part of the reward: the number of answers that have it, and the sum.
    parts: BTreeMap<String, (usize, f64)>,
    /// For each source: the number of answers and of correct ones.
    sources: BTreeMap<String, (usize, usize)>,
    /// Earlier rewards: their number, the number of equal ones, and the first that differs.
    before: (usize, usize, Option<(u64, f64, f64)>),
    /// Errors of rows that could not be read.
    bad: Vec<String>,
}

/// Smaller differences of rewards are ignored, because files have decimal numbers.
const SAME: f64 = 1e-6;

impl Summary {
    /// Returns the summary of verdicts on answers, which have the same order.
    pub fn of(answers: &Answers, graded: &[GradedRow], certain: Certain) -> Self {
        let mut summary = Self {
            all: graded.len(),
            correct: 0,
            certain,
            ungraded: 0,
            why: None,
            sum: 0.0,
            parts: BTreeMap::new(),
            sources: BTreeMap::new(),
            before: (0, 0, None),
            bad: answers.bad.iter().map(|error| error.what.clone()).collect(),
        };
        for (row, verdict) in answers.rows.iter().zip(graded) {
            summary.add(row.answered.reward, verdict);
        }
        summary
    }

    fn add(&mut self, before: Option<f64>, verdict: &GradedRow) {
        let Some(reward) = verdict.reward.map(f64::from) else {
            self.ungraded += 1;
            let why = || (verdict.row, verdict.error.clone().unwrap_or_default());
            self.why.get_or_insert_with(why);
            return;
        };
        let correct = verdict.correct == Some(true);
        self.correct += usize::from(correct);
        self.sum += reward;
        for (part, x) in &verdict.rewards {
            let (n, sum) = self.parts.entry(part.clone()).or_default();
            (*n, *sum) = (*n + 1, *sum + f64::from(*x));
        }
        let (n, right) = self.sources.entry(verdict.source.clone()).or_default();
        (*n, *right) = (*n + 1, *right + usize::from(correct));
        if let Some(before) = before {
            self.before.0 += 1;
            if (before - reward).abs() <= SAME {
                self.before.1 += 1;
            } else {
                self.before.2.get_or_insert((verdict.row, before, reward));
            }
        }
    }

    /// Returns the summary as lines.
    pub fn lines(&self) -> Vec<String> {
        let graded = self.all - self.ungraded;
        let share = |n: usize, of: usize| format!("{n:>8}  {:>5.1} %", percent(n as u64, of as u64));
        let mut lines = vec![count(self.all as u64, "answer")];
        lines.push(format!("  correct       {}", share(self.correct, self.all)));
        let Certain { judged, certain } = self.certain;
        if judged > 0 {
            let share = share(certain as usize, judged as usize);
            lines.push(format!("  certain       {share} of math-verify's verdicts, without Python"));
        }
        if let Some((row, why)) = &self.why {
            lines.push(format!("  not graded    {}", share(self.ungraded, self.all)));
            lines.push(format!("    the first is row {row}: {}", shown::line(why, shown::LINE)));
        }
        if graded > 0 {
            lines.push(format!("  mean reward   {:>8.4}", self.sum / graded as f64));
        }
        for (part, (n, sum)) in &self.parts {
            lines.push(format!("    part `{part}` {:.4} in {}", sum / *n as f64, count(*n as u64, "answer")));
        }
        if self.sources.len() > 1 {
            for (source, (n, right)) in &self.sources {
                lines.push(format!("  source `{}`: {} of {n} correct", shown::name(source), right));
            }
        }
        let (n, same, other) = self.before;
        if n > 0 {
            lines.push(format!("  as before     {}", share(same, n)));
        }
        if let Some((row, before, now)) = other {
            lines
                .push(format!("    the first other reward is that of row {row}: {before} before, {now} now"));
        }
        if !self.bad.is_empty() {
            lines.push(format!("{} could not be read:", count(self.bad.len() as u64, "row")));
            lines.extend(self.bad.iter().take(NAMED).map(|what| format!("  {what}")));
            if self.bad.len() > NAMED {
                lines.push(format!("  and {} more", self.bad.len() - NAMED));
            }
        }
        lines
    }
}

/// Shows the first verdicts, with the ends of their answers.
pub fn show(answers: &Answers, graded: &[GradedRow], most: usize, screen: &mut Screen<'_>) {
    /// The most characters shown of an answer. Most graders read its end.
    const END: usize = 50;
    for (row, verdict) in answers.rows.iter().zip(graded).take(most) {
        let text = row.answered.answer.split_whitespace().collect::<Vec<_>>().join(" ");
        let start = text.char_indices().rev().nth(END - 1).map_or(0, |(at, _)| at);
        let end = if start > 0 { format!("…{}", &text[start..]) } else { text };
        let said = match (verdict.reward, verdict.correct) {
            (Some(reward), Some(true)) => format!("right, reward {reward}"),
            (Some(reward), _) => format!("wrong, reward {reward}"),
            (None, _) => "not graded".to_owned(),
        };
        let parts =
            verdict.rewards.iter().map(|(part, x)| format!(", {part} {x}")).collect::<Vec<_>>().concat();
        screen.say(format_args!("row {:<6} {said}{parts}: {end}", row.number));
    }
    let left = graded.len().saturating_sub(most);
    if left > 0 && most > 0 {
        screen.say(format_args!("… and {left} more; all with --json or --out, or --show N"));
    }
}
