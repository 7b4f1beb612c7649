//! What a run spends on prompts, and how much it learns from them.
//!
//! An update moves a prompt's pass rate along the sum, over the prompt's rollouts, of the advantage times the surprise: the
//! verdict less what was expected of the prompt without that rollout. Some of such sums are positive by skill of the policy, and
//! all scatter by luck. [`information`] is the square of their total over the total of their squares: the number of equally
//! strong, independent lessons that would have the same signal and the same scatter. A group without an advantage adds
//! nothing; a further rollout of a known group, or an advantage that follows from no merit of the prompt, adds little.

use allot_allocation::PromptId;
use allot_allocation::seed::Stream;

/// What was spent on a prompt, and what was learned from it, over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lesson {
    /// Sampled rollouts.
    pub rollouts: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Operations of sampling and training, for each parameter of a model: 2 for a token read or generated, 6 for one
    /// trained on (Kaplan et al. 2020, section 2.1). What has an unknown length has one token.
    pub operations: f64,
    /// Rollouts with an advantage, counted in each update on them.
    pub effective: u64,
    /// The sum over updates of advantage times surprise.
    pub signal: f64,
    /// The sum over updates of its square.
    pub square: f64,
}

impl Lesson {
    /// Adds an update on some of the prompt's rollouts.
    pub(crate) fn learn(&mut self, batch: &[Taught]) {
        let surprise = |one: &Taught| f64::from(u8::from(one.right)) - one.expected;
        let signal: f64 = batch.iter().map(|one| f64::from(one.advantage) * surprise(one)).sum();
        self.effective += batch.iter().filter(|one| one.advantage != 0.0).count() as u64;
        self.signal += signal;
        self.square += signal * signal;
    }
}

/// A rollout in an update.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taught {
    pub(crate) advantage: f32,
    /// Whether it was right.
    pub(crate) right: bool,
    /// The pass rate that was expected of its prompt without it.
    pub(crate) expected: f64,
}

/// In what a run pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Sampled rollouts.
    Rollouts,
    /// Generated tokens.
    Tokens,
    /// [`Lesson::operations`].
    Operations,
}

impl Unit {
    fn of(self, lesson: &Lesson) -> f64 {
        match self {
            Self::Rollouts => lesson.rollouts as f64,
            Self::Tokens => lesson.tokens as f64,
            Self::Operations => lesson.operations,
        }
    }
}

/// Returns a run's information, with prompts counted as often as `times` says.
pub fn information(lessons: &[(PromptId, Lesson)], times: impl Fn(PromptId) -> u32) -> f64 {
    let (mut signal, mut square) = (0.0, 0.0);
    for (prompt, lesson) in lessons {
        let times = f64::from(times(*prompt));
        signal += times * lesson.signal;
        square += times * lesson.square;
    }
    // A run that moves pass rates down has learned nothing.
    if square > 0.0 { signal.max(0.0).powi(2) / square } else { 0.0 }
}

/// Returns what a run paid, with prompts counted as often as `times` says.
pub fn paid(lessons: &[(PromptId, Lesson)], unit: Unit, times: impl Fn(PromptId) -> u32) -> f64 {
    lessons.iter().map(|(prompt, lesson)| f64::from(times(*prompt)) * unit.of(lesson)).sum()
}

/// Returns how often each of so many prompts is in a resample of a data set that was itself drawn: Poisson counts of mean 1.
pub fn resample(stream: &mut Stream, prompts: usize) -> Vec<u32> {
    let one = |_| {
        let (mut left, mut count, mut chance) = (stream.unit(), 0, libm::exp(-1.0));
        while left >= chance && count < 20 {
            left -= chance;
            count += 1;
            chance /= f64::from(count);
        }
        count
    };
    (0..prompts).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn once(_: PromptId) -> u32 {
        1
    }

    /// Lessons of prompts that were each learned from once, with these signals.
    fn of(signals: &[f64]) -> Vec<(PromptId, Lesson)> {
        let one = |(i, signal): (u32, &f64)| {
            (
                PromptId(i),
                Lesson { signal: *signal, square: signal * signal, rollouts: 8, ..Lesson::default() },
            )
        };
        (0..).zip(signals).map(one).collect()
    }

    #[test]
    fn equal_lessons_count_each_and_others_less() {
        assert_eq!(information(&of(&[2.0; 5]), once), 5.0);
        assert_eq!(information(&of(&[2.0, 2.0, 0.0, 0.0]), once), 2.0, "a flat group adds nothing");
        let uneven = information(&of(&[4.0, 1.0, 1.0]), once);
        assert!(uneven > 1.0 && uneven < 3.0, "{uneven}");
        assert_eq!(information(&of(&[1.0, -1.0]), once), 0.0, "luck alone teaches nothing");
        assert_eq!(information(&[], once), 0.0);
        assert_eq!(information(&of(&[-2.0; 5]), once), 0.0, "nor does what makes it worse");
        assert_eq!(paid(&of(&[1.0, 0.0]), Unit::Rollouts, |prompt| prompt.0), 8.0);
    }

    #[test]
    fn a_baseline_that_knows_no_prompt_teaches_less_than_one_that_does() {
        // A prompt that is never right, beside a baseline of a half: the advantage follows from no merit of the prompt.
        let taught = |expected: f64, group: &[(f32, bool)]| {
            let mut lesson = Lesson::default();
            let one = |&(advantage, right): &(f32, bool)| Taught { advantage, right, expected };
            lesson.learn(&group.iter().map(one).collect::<Vec<_>>());
            lesson
        };
        let never = taught(0.01, &[(-0.5, false); 4]);
        let mixed = taught(0.5, &[(0.5, true), (0.5, true), (-0.5, false), (-0.5, false)]);
        assert!(never.signal < 0.03 && (mixed.signal - 1.0).abs() < 1e-12, "{never:?} {mixed:?}");
        assert_eq!((mixed.effective, mixed.square), (4, mixed.signal * mixed.signal));
    }

    #[test]
    fn a_resample_has_as_many_prompts_on_average_and_the_scatter_of_counts() {
        let counts = resample(&mut Stream::new(3), 100_000);
        let mean = counts.iter().map(|n| f64::from(*n)).sum::<f64>() / 1e5;
        let square = counts.iter().map(|n| (f64::from(*n) - 1.0).powi(2)).sum::<f64>() / 1e5;
        assert!((mean - 1.0).abs() < 0.02 && (square - 1.0).abs() < 0.03, "{mean} {square}");
    }
}
