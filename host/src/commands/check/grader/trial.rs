//! The trial of a grader: its calls on synthetic questions, and the findings.

use std::collections::BTreeMap;

use allot_allocation::Value;
use allot_authoring::questions::Made;
use allot_judges::component::BATCH;
use allot_sandbox::{Asked, Fault, Grader, Judged, NoVerdict, Other};

use crate::commands::check::rows::{Counted, add};
use crate::commands::check::time::{Time, is_limit};
use crate::screen::Screen;

/// One of this many batches is graded under changed conditions.
const SAMPLED: usize = 3;
/// Conditions that a verdict should not depend on.
const OTHERS: [(Other, &str); 3] = [
    (
        Other::Random,
        "uses random bytes, which are the same in each call: a verdict must not depend on randomness",
    ),
    (Other::Time, "uses a clock, but all clocks are frozen: a verdict must not depend on time"),
    (Other::Memory, "keeps something in memory between batches, but each batch starts with fresh memory"),
];

/// The trial of a grader.
pub struct Trial<'t> {
    grader: &'t Grader,
    settings: &'t [(String, Value)],
    /// The findings.
    pub found: Findings,
}

/// The findings of a trial.
#[derive(Default)]
pub struct Findings {
    /// Number of calls.
    pub calls: u64,
    /// Number of questions that were tried alone.
    pub tried: usize,
    /// Calls without an answer.
    pub faults: Counted,
    /// Whether a call reached its limit of fuel, time or memory.
    pub exhausted: bool,
    /// Verdicts that can't be used.
    pub unusable: Counted,
    /// Answers that the grader says it can't grade.
    pub unscorable: Counted,
    /// Answers that are correct, wrong, and undecided by the grader.
    pub correct: [u64; 3],
    /// Number of questions that were asked twice.
    pub compared: u64,
    /// Questions on which two equal calls differed.
    pub impure: Counted,
    /// Number of batches that were compared with single answers, or of groups that were asked about twice.
    pub batches: u64,
    /// Answers whose verdict differs in a batch, or in two equal calls with a group.
    pub apart: Counted,
    /// Meaningless conditions that the grader's verdicts depend on, with the first question that shows it.
    pub warnings: BTreeMap<&'static str, String>,
}

impl Findings {
    fn fault(&mut self, title: &str, fault: &Fault) {
        add(&mut self.faults, || format!("on {title}: {fault}"));
        self.exhausted |= is_limit(fault);
    }

    fn judged(&mut self, made: &Made, judged: &Judged) {
        match judged {
            Ok(score) => match score.correct {
                Some(true) => self.correct[0] += 1,
                Some(false) => self.correct[1] += 1,
                None => self.correct[2] += 1,
            },
            Err(NoVerdict::Unscorable(why)) => {
                add(&mut self.unscorable, || format!("{}: {why}", made.title));
            }
            Err(NoVerdict::Unusable(why)) => {
                add(&mut self.unusable, || format!("on {} it {why}", made.title));
            }
        }
    }

    /// Returns the number of verdicts that were checked.
    pub fn verdicts(&self) -> u64 {
        self.correct.iter().sum::<u64>() + self.unusable.as_ref().map_or(0, |(n, _)| *n)
    }
}

impl<'t> Trial<'t> {
    /// Begins the trial of a grader with these settings.
    pub fn new(grader: &'t Grader, settings: &'t [(String, Value)]) -> Result<Self, Fault> {
        grader.begin(settings)?;
        Ok(Self { grader, settings, found: Findings::default() })
    }

    /// Tries batches of questions, until the time is over or a call reaches a limit.
    pub fn questions(&mut self, made: &[Made], time: Time, screen: &mut Screen<'_>) {
        for (i, batch) in made.chunks(BATCH).enumerate() {
            screen.draw(format_args!("question {}/{}", i * BATCH + 1, made.len()));
            let mut alone = Vec::with_capacity(batch.len());
            for one in batch {
                if self.found.exhausted || time.is_over() {
                    screen.draw("");
                    return;
                }
                match self.alone(one, time) {
                    Ok(judged) => alone.push(judged),
                    Err(fault) if time.ended(&fault) => {
                        screen.draw("");
                        return;
                    }
                    Err(fault) => self.found.fault(&one.title, &fault),
                }
                self.found.tried += 1;
            }
            let sampled = i.is_multiple_of(SAMPLED);
            if self.grader.description().compares {
                if self.found.exhausted || time.is_over() {
                    screen.draw("");
                    return;
                }
                self.group(batch, sampled, time);
            } else if alone.len() == batch.len() {
                self.together(batch, &alone);
                if sampled {
                    let asked: Vec<Asked<'_>> = batch.iter().map(asked).collect();
                    self.look_for_others(batch, &asked, &alone);
                }
            }
        }
        screen.draw("");
    }

    /// Makes two equal calls with a question. Returns the verdict.
    fn alone(&mut self, made: &Made, time: Time) -> Result<Judged, Fault> {
        self.found.calls += 1;
        let judged = self.grade(&[made])?.remove(0);
        // A grader that compares may have no verdict on an answer alone: its groups tell. One that can't be used is one.
        if !self.grader.description().compares || matches!(judged, Err(NoVerdict::Unusable(_))) {
            self.found.judged(made, &judged);
        }
        self.found.calls += 1;
        let again = self.grade(&[made]);
        if let Err(fault) = &again
            && time.ended(fault)
        {
            return Ok(judged);
        }
        self.found.compared += 1;
        if again.as_deref() != Ok(std::slice::from_ref(&judged)) {
            add(&mut self.found.impure, || made.title.clone());
        }
        Ok(judged)
    }

    /// Grades the same questions in a batch, in both orders.
    fn together(&mut self, batch: &[Made], alone: &[Judged]) {
        for backwards in [false, true] {
            self.found.calls += 1;
            let order: Vec<usize> =
                if backwards { (0..batch.len()).rev().collect() } else { (0..batch.len()).collect() };
            let asked: Vec<&Made> = order.iter().map(|i| &batch[*i]).collect();
            // A run grades the answers of a failed batch one by one, which only costs time.
            let Ok(verdicts) = self.grade(&asked) else { continue };
            self.found.batches += 1;
            for (i, verdict) in order.iter().zip(verdicts) {
                if verdict != alone[*i] {
                    add(&mut self.found.apart, || batch[*i].title.clone());
                }
            }
        }
    }

    /// Grades answers to the first of these questions as a group, in two equal calls.
    fn group(&mut self, batch: &[Made], sampled: bool, time: Time) {
        let (first, last) = (&batch[0], &batch[batch.len() - 1]);
        let group = as_group(batch);
        let mut graded = || {
            self.found.calls += 1;
            self.grader.grade(self.settings, &group).map(|(verdicts, _)| verdicts)
        };
        let both = graded().and_then(|once| Ok((once, graded()?)));
        match both {
            Ok((once, again)) => {
                self.found.batches += 1;
                for ((made, once), again) in batch.iter().zip(&once).zip(&again) {
                    self.found.judged(made, once);
                    if once != again {
                        add(&mut self.found.apart, || made.title.clone());
                    }
                }
                if sampled {
                    self.look_for_others(batch, &group, &once);
                }
            }
            Err(fault) if time.ended(&fault) => {}
            Err(fault) => {
                let title = format!("a group of {}, {} to {}", batch.len(), first.title, last.title);
                self.found.fault(&title, &fault);
            }
        }
    }

    /// Calls again under changed conditions, with what gave these verdicts.
    fn look_for_others(&mut self, batch: &[Made], asked: &[Asked<'_>], verdicts: &[Judged]) {
        for (other, warning) in OTHERS {
            // Random bytes also change within an instance. That difference is reported as random bytes.
            let known = match other {
                Other::Memory => !self.found.warnings.is_empty(),
                Other::Time | Other::Random => {
                    !self.grader.has_wasi() || self.found.warnings.contains_key(warning)
                }
            };
            if known {
                continue;
            }
            let Ok(otherwise) = self.grader.grade_otherwise(other, self.settings, asked) else {
                continue;
            };
            let first = otherwise.iter().zip(verdicts).position(|(new, old)| new != old);
            if let Some(first) = first {
                self.found.warnings.insert(warning, batch[first].title.clone());
            }
        }
    }

    fn grade(&self, batch: &[&Made]) -> Result<Vec<Judged>, Fault> {
        let batch: Vec<Asked<'_>> = batch.iter().map(|made| asked(made)).collect();
        self.grader.grade(self.settings, &batch).map(|(verdicts, _)| verdicts)
    }
}

/// Returns these answers as a group: answers to the first question.
pub fn as_group(batch: &[Made]) -> Vec<Asked<'_>> {
    let first = batch.first().map(asked);
    batch.iter().filter_map(|made| Some(Asked { answer: &made.answer, ..first? })).collect()
}

/// Returns a question in the form that a grader gets.
pub fn asked(made: &Made) -> Asked<'_> {
    let Made { prompt, gold, answer, .. } = made;
    Asked { prompt, source: "made", gold, answer }
}
