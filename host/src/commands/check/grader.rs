//! A grader's report card: verdicts that can be used, purity alone and in batches, limits, cost.

use std::collections::BTreeMap;
use std::time::Instant;

use allot_allocation::{Value, shown};
use allot_authoring::questions::{self, Made};
use allot_component::Kind;
use allot_judges::component::BATCH;
use allot_sandbox::{Asked, Fault, Grader, Judged, NoVerdict, Other};
use serde_json::json;

use crate::commands::policies;
use crate::screen::Screen;

/// Of so many batches one is judged where something is otherwise.
const SAMPLED: usize = 3;
/// What means nothing in a run, and what to say to who uses it.
const OTHERS: [(Other, &str); 3] = [
    (Other::Random, "uses random bytes, which are the same in each call: chance has no place in a verdict"),
    (Other::Time, "uses a clock, and all clocks stand still: time has no place in a verdict"),
    (Other::Memory, "keeps something in memory from one batch to the next, and each batch has a fresh one"),
];

type Settings = Vec<(String, Value)>;

/// The report card.
#[derive(Default)]
pub struct Card {
    calls: u64,
    /// Questions there are.
    questions: usize,
    begin: Option<String>,
    /// Calls without an answer: how many, and the first one in words.
    faults: Option<(u64, String)>,
    /// Whether a call used up its fuel, time or memory.
    exhausted: bool,
    /// Verdicts that are none.
    unusable: Option<(u64, String)>,
    /// Answers that it says it can't judge.
    unscorable: Option<(u64, String)>,
    /// Answers that it calls correct, that it does not, and whose correctness it leaves to the run.
    correct: [u64; 3],
    /// Questions on which two equal calls differed.
    impure: Option<(u64, String)>,
    /// Answers of which it says something else in a batch.
    apart: Option<(u64, String)>,
    /// What it uses that means nothing in a run, and where it does.
    warnings: BTreeMap<&'static str, String>,
    costs: Vec<Cost>,
    /// Questions that were tried when the time was over.
    late: Option<usize>,
}

struct Cost {
    what: &'static str,
    answers: usize,
    bytes: usize,
    fuel: u64,
    millis: f64,
    memory: usize,
}

impl Card {
    /// What comes of a grader with these settings by this time.
    pub fn of(grader: &Grader, settings: Settings, until: Instant, screen: &mut Screen<'_>) -> Self {
        let made = questions::all();
        let mut card = Self { questions: made.len(), ..Self::default() };
        if let Err(fault) = grader.begin(&settings) {
            card.begin = Some(fault.to_string());
            return card;
        }
        let trial = Trial { grader, settings };
        for (i, batch) in made.chunks(BATCH).enumerate() {
            screen.draw(format_args!("question {}/{}", i * BATCH + 1, made.len()));
            let tried = |n: usize| i * BATCH + n;
            let mut alone = Vec::with_capacity(batch.len());
            for one in batch {
                if Instant::now() > until {
                    card.late = Some(tried(alone.len()));
                    break;
                }
                let Some(judged) = card.alone(&trial, one) else { break };
                alone.push(judged);
            }
            if card.exhausted || card.late.is_some() {
                break;
            }
            if alone.len() == batch.len() {
                card.together(&trial, batch, &alone);
                if i % SAMPLED == 0 {
                    card.look_for_others(&trial, batch, &alone);
                }
            }
        }
        screen.draw("");
        if !card.exhausted && card.late.is_none() {
            card.measure(&trial, &made, until);
        }
        card
    }

    /// Two equal calls on a question; what it says, if it does.
    fn alone(&mut self, trial: &Trial<'_>, made: &Made) -> Option<Judged> {
        self.calls += 1;
        let judged = match trial.grade(&[made]) {
            Ok(mut one) => one.remove(0),
            Err(fault) => {
                count(&mut self.faults, || format!("on {}: {fault}", made.title));
                self.exhausted |=
                    matches!(fault, Fault::OutOfFuel(_) | Fault::OutOfTime(_) | Fault::OutOfMemory { .. });
                return None;
            }
        };
        match &judged {
            Ok(score) => match score.correct {
                Some(true) => self.correct[0] += 1,
                Some(false) => self.correct[1] += 1,
                None => self.correct[2] += 1,
            },
            Err(NoVerdict::Unscorable(why)) => {
                count(&mut self.unscorable, || format!("{}: {why}", made.title));
            }
            Err(NoVerdict::Unusable(why)) => {
                count(&mut self.unusable, || format!("on {} it {why}", made.title));
            }
        }
        self.calls += 1;
        let again = trial.grade(&[made]);
        if again.as_deref() != Ok(std::slice::from_ref(&judged)) {
            count(&mut self.impure, || made.title.clone());
        }
        Some(judged)
    }

    /// The same questions in a batch, forwards and backwards.
    fn together(&mut self, trial: &Trial<'_>, batch: &[Made], alone: &[Judged]) {
        for backwards in [false, true] {
            self.calls += 1;
            let order: Vec<usize> =
                if backwards { (0..batch.len()).rev().collect() } else { (0..batch.len()).collect() };
            let asked: Vec<&Made> = order.iter().map(|i| &batch[*i]).collect();
            // A batch that fails is asked about one by one in a run: that costs time alone.
            let Ok(verdicts) = trial.grade(&asked) else { continue };
            for (i, verdict) in order.iter().zip(verdicts) {
                if verdict != alone[*i] {
                    count(&mut self.apart, || batch[*i].title.clone());
                }
            }
        }
    }

    /// Asks again where something is otherwise that means nothing in a run.
    fn look_for_others(&mut self, trial: &Trial<'_>, batch: &[Made], alone: &[Judged]) {
        for (other, warning) in OTHERS {
            // Random bytes go on in one instance, too: what comes of them is told as that.
            let seen = match other {
                Other::Memory => !self.warnings.is_empty(),
                Other::Time | Other::Random => {
                    !trial.grader.has_wasi() || self.warnings.contains_key(warning)
                }
            };
            if seen {
                continue;
            }
            let asked: Vec<Asked<'_>> = batch.iter().map(asked).collect();
            let Ok(otherwise) = trial.grader.grade_otherwise(other, &trial.settings, &asked) else {
                continue;
            };
            let first = otherwise.iter().zip(alone).position(|(one, known)| one != known);
            if let Some(first) = first {
                self.warnings.insert(warning, batch[first].title.clone());
            }
        }
    }

    fn measure(&mut self, trial: &Trial<'_>, made: &[Made], until: Instant) {
        let Some(short) = made.first() else { return };
        let long = made.iter().max_by_key(|one| one.answer.len()).unwrap_or(short);
        let all: Vec<&Made> = made.iter().collect();
        let rows = [
            ("a short answer", vec![short]),
            ("a batch of them", vec![short; BATCH]),
            ("a long answer", vec![long]),
            ("all that were made", all),
        ];
        for (what, asked_of) in rows {
            let batch: Vec<Asked<'_>> = asked_of.iter().map(|one| asked(one)).collect();
            let bytes = batch.iter().map(|one| one.answer.len()).sum();
            let mut best: Option<Cost> = None;
            // The best of a few: the machine may be busy with something else.
            for _ in 0..3 {
                let start = Instant::now();
                let Ok((_, cost)) = trial.grader.grade(&trial.settings, &batch) else { break };
                let millis = start.elapsed().as_secs_f64() * 1e3;
                if best.as_ref().is_none_or(|best| millis < best.millis) {
                    let (fuel, memory) = (cost.fuel, cost.memory);
                    best = Some(Cost { what, answers: batch.len(), bytes, fuel, millis, memory });
                }
                if Instant::now() > until {
                    break;
                }
            }
            self.costs.extend(best);
        }
    }

    /// Whether nothing is wrong.
    pub fn passed(&self) -> bool {
        let wrong = [&self.faults, &self.unusable, &self.impure, &self.apart];
        self.begin.is_none() && wrong.iter().all(|wrong| wrong.is_none())
    }

    /// The card for people.
    pub fn show(&self, grader: &Grader, screen: &mut Screen<'_>) {
        policies::show_grader(grader, screen);
        screen.say("");
        let mut row = |failed: Option<String>, what: &str| match failed {
            None => screen.say(format_args!("pass  {what}")),
            Some(why) => screen.say(format_args!("FAIL  {what}\n      {why}")),
        };
        row(None, &format!("links: contract {}@{}", Kind::Grader.package(), grader.contract()));
        row(self.begin.clone(), "begins with these settings");
        if self.begin.is_none() {
            let Self { calls, questions, .. } = self;
            let made = format!("judges every answer ({calls} calls on {questions} made questions)");
            row(self.faults.as_ref().map(many), &made);
            let usable = "gives verdicts that can be used: finite rewards, and the parts that it describes";
            row(self.unusable.as_ref().map(many), usable);
            let differ = |first| format!("two equal calls differ on {}", many(first));
            row(self.impure.as_ref().map(differ), "is pure: equal calls, equal verdicts");
            let differ = |first| format!("it says something else of {}", many(first));
            row(self.apart.as_ref().map(differ), "says of an answer in a batch what it says of it alone");
            for (warning, first) in &self.warnings {
                screen.say(format_args!("warn  {warning}\n      its verdict differs on {first}"));
            }
            let [correct, wrong, open] = self.correct;
            let open = if open > 0 { format!(", {open} for the run to say") } else { String::new() };
            let none = self.unscorable.as_ref().map_or(0, |(n, _)| *n);
            screen.say(format_args!("note  {correct} correct, {wrong} wrong{open}, {none} unscorable"));
            if let Some((_, first)) = &self.unscorable {
                screen.say(format_args!(
                    "      the first unscorable one is {}",
                    shown::word(first, shown::LINE)
                ));
            }
            if let Some(tried) = self.late {
                screen.say(format_args!(
                    "note  the time is over: {tried} of {questions} questions were tried; --within gives more"
                ));
            }
        }
        screen.say("");
        if !self.costs.is_empty() {
            let head = ["", "answers", "bytes", "fuel", "ms", "memory"];
            let [what, answers, bytes, fuel, millis, memory] = head;
            screen.say(format_args!(
                "{what:<18}  {answers:>7}  {bytes:>8}  {fuel:>12}  {millis:>9}  {memory:>10}"
            ));
        }
        for Cost { what, answers, bytes, fuel, millis, memory } in &self.costs {
            let memory = memory >> 10;
            screen.say(format_args!(
                "{what:<18}  {answers:>7}  {bytes:>8}  {fuel:>12}  {millis:>9.2}  {memory:>6} KiB"
            ));
        }
        screen.say(format_args!("{} bytes, sha256 {}", grader.size(), grader.sha256()));
    }

    /// The card for programs.
    pub fn json(&self, grader: &Grader) -> serde_json::Value {
        let costs: Vec<_> = self
            .costs
            .iter()
            .map(|c| {
                json!({
                    "what": c.what, "answers": c.answers, "bytes": c.bytes, "fuel": c.fuel, "ms": c.millis,
                    "memory": c.memory,
                })
            })
            .collect();
        let [correct, wrong, undecided] = self.correct;
        json!({
            "kind": "grader", "grader": grader.description().name, "version": grader.description().version,
            "contract": grader.contract(), "sha256": grader.sha256(), "bytes": grader.size(),
            "pass": self.passed(), "calls": self.calls, "questions": self.questions, "begin": self.begin,
            "faults": self.faults, "unusable": self.unusable, "impure": self.impure, "apart": self.apart,
            "correct": correct, "wrong": wrong, "undecided": undecided, "unscorable": self.unscorable,
            "warnings": self.warnings, "late": self.late, "costs": costs,
        })
    }
}

/// A grader on trial.
struct Trial<'t> {
    grader: &'t Grader,
    settings: Settings,
}

impl Trial<'_> {
    fn grade(&self, batch: &[&Made]) -> Result<Vec<Judged>, Fault> {
        let batch: Vec<Asked<'_>> = batch.iter().map(|made| asked(made)).collect();
        self.grader.grade(&self.settings, &batch).map(|(verdicts, _)| verdicts)
    }
}

fn asked(made: &Made) -> Asked<'_> {
    let Made { prompt, gold, answer, .. } = made;
    Asked { prompt, source: "made", gold, answer }
}

/// One more of what is counted; the first one is kept in words.
fn count(counted: &mut Option<(u64, String)>, first: impl FnOnce() -> String) {
    counted.get_or_insert_with(|| (0, first())).0 += 1;
}

fn many((n, first): &(u64, String)) -> String {
    if *n > 1 { format!("{first} (and {} more)", n - 1) } else { first.clone() }
}
