//! The eval accuracy of a model on held-out problems: a few rollouts of each, with a separate ledger.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use allot_allocation::{Ledger, Limits, PromptId, Request, RolloutId, Spent};
use allot_engine::{Answer, Engine, Interrupt, Purpose as SampledFor, Sample};
use allot_loop::Scores;
use allot_remote::patient;
use allot_tasks::{Problem, mean_pass_at_k};

use crate::stop::Stop;
use allot_config::train::{Setting, Unjudged};
use allot_judges::Reward;
use allot_judges::protocol::Part;
use allot_outputs::rollouts::{Played, Purpose, RolloutRow};

/// A held-out set: a range of the engine's prompts.
#[derive(Clone, Debug, PartialEq)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// Its prompts.
    pub prompts: Range<u32>,
}

/// The held-out sets, and the cost of evaluating them.
pub struct Evaluation {
    sets: Vec<Set>,
    /// The problem of each prompt, by prompt id.
    problems: Arc<Vec<Problem>>,
    /// The evaluation settings. The first one gives the accuracy.
    settings: Vec<Setting>,
    unjudged: Unjudged,
    ledger: Ledger,
}

/// A held-out rollout, for the table of rollouts.
pub struct Answered<A> {
    /// The set's name, with the setting's name for any setting but the first.
    pub set: String,
    /// The rollout.
    pub sample: Sample<A>,
    /// Its reward; none if it could not be graded.
    pub reward: Option<f32>,
    /// Whether the answer was correct.
    pub correct: bool,
    /// The parts of its reward.
    pub parts: Vec<Part>,
}

/// Counts of the answers to a problem.
#[derive(Clone, Copy, Default)]
struct ProblemTally {
    answers: u32,
    /// Answers with a verdict.
    judged: u32,
    correct: u32,
}

impl ProblemTally {
    /// Returns the number of answers that accuracy is computed from, and the number of correct ones.
    fn counted(self, unjudged: Unjudged) -> (u32, u32) {
        match unjudged {
            Unjudged::Wrong => (self.answers, self.correct),
            Unjudged::LeaveOut => (self.judged, self.correct),
        }
    }
}

impl Evaluation {
    /// Returns the evaluation of these sets in these settings, with answers of at most `longest` tokens.
    pub fn new(
        sets: Vec<Set>,
        problems: Arc<Vec<Problem>>,
        settings: Vec<Setting>,
        unjudged: Unjudged,
        longest: u32,
    ) -> Self {
        let limits =
            Limits { rounds: u32::MAX, step_rollouts: None, run_rollouts: None, run_tokens: None, longest };
        Self { sets, problems, settings, unjudged, ledger: Ledger::new(limits) }
    }

    /// Returns the number of answers of an evaluation.
    pub fn answers(&self) -> u64 {
        let each: u64 = self.settings.iter().map(|(_, rollouts)| u64::from(*rollouts)).sum();
        self.sets.iter().map(|set| set.prompts.len() as u64 * each).sum()
    }

    /// Returns the rollouts and tokens spent on evaluation.
    pub fn spent(&self) -> Spent {
        self.ledger.spent()
    }

    /// Resumes with the amounts in a checkpoint.
    pub fn restore(&mut self, spent: Spent) {
        self.ledger = Ledger::after(self.ledger.limits(), spent);
    }

    /// Evaluates. The same weights give the same rollouts, so repeating an evaluation gives the same
    /// result. An interrupted evaluation spends nothing.
    pub async fn score<E: Engine, R: Reward<E::Answer>>(
        &mut self,
        engine: &mut E,
        reward: &mut R,
        steps: u32,
        interrupt: &Interrupt,
    ) -> Result<(Scores, Vec<Answered<E::Answer>>), Stop> {
        let before = self.ledger.spent();
        let scored = self.answer(engine, reward, steps, interrupt).await;
        if let Err(Stop::Interrupted) = scored {
            self.ledger = Ledger::after(self.ledger.limits(), before);
        }
        scored
    }

    async fn answer<E: Engine, R: Reward<E::Answer>>(
        &mut self,
        engine: &mut E,
        reward: &mut R,
        steps: u32,
        interrupt: &Interrupt,
    ) -> Result<(Scores, Vec<Answered<E::Answer>>), Stop> {
        let (mut parts, mut all_answered, mut main) = (Vec::new(), Vec::new(), None);
        for (set, number) in
            (0..self.sets.len()).flat_map(|set| (0..self.settings.len()).map(move |n| (set, n)))
        {
            let (name, prompts) = (self.sets[set].name.clone(), self.sets[set].prompts.clone());
            let (setting, k) = self.settings[number].clone();
            let order: Vec<Request> = prompts.map(|prompt| Request::new(PromptId(prompt), k)).collect();
            let grant = self.ledger.grant(&order, |_| (0, 0));
            let failed = |error| Stop::Engine { step: steps, error };
            let begin = &mut |place, sample: &_| reward.begin(place, sample);
            let purpose = SampledFor::Evaluation(number);
            let sampled = engine.sample(grant, purpose, begin, interrupt).await.map_err(failed)?;
            if interrupt.is_asked() && sampled.iter().any(Option::is_none) {
                return Err(Stop::Interrupted);
            }
            let samples: Vec<Sample<E::Answer>> = sampled.into_iter().flatten().collect();
            let paid = samples.iter().map(|s| (s.prompt, s.position, s.tokens));
            self.ledger.charge(paid).map_err(|fault| Stop::Ledger { step: steps, fault })?;
            let places: Vec<_> = samples.iter().enumerate().collect();
            let verdicts = patient(reward.score(&places), interrupt).await.ok_or(Stop::Interrupted)?;
            let verdicts = verdicts.map_err(Stop::Reward)?;

            // Other prefix for further settings, so that a search for a set's metrics does not find them.
            let (shown, called) = match setting {
                None => (format!("eval/{name}"), name),
                Some(setting) => (format!("also/{setting}/{name}"), format!("{name}/{setting}")),
            };
            let answered = samples.into_iter().zip(verdicts).map(|(sample, verdict)| Answered {
                set: called.clone(),
                sample,
                reward: verdict.reward,
                correct: verdict.correct,
                parts: verdict.parts,
            });
            let answered: Vec<_> = answered.collect();
            let (accuracy, numbers) = self.numbers(&shown, k, &answered);
            // The run's accuracy is that of the first set in the first setting.
            main.get_or_insert(accuracy);
            parts.extend(numbers);
            all_answered.extend(answered);
        }
        let spent = Some(self.ledger.spent());
        Ok((Scores { accuracy: main.unwrap_or(0.0), parts, spent }, all_answered))
    }

    /// Returns the accuracy of `k` answers to each problem, and the metrics with this name.
    fn numbers<A>(&self, name: &str, k: u32, answered: &[Answered<A>]) -> (f64, Vec<(String, f64)>) {
        let mut tallies: BTreeMap<PromptId, ProblemTally> = BTreeMap::new();
        for one in answered {
            let tally = tallies.entry(one.sample.prompt).or_default();
            tally.answers += 1;
            tally.judged += u32::from(one.reward.is_some());
            tally.correct += u32::from(one.reward.is_some() && one.correct);
        }
        let counted: Vec<(u32, u32)> = tallies.values().map(|t| t.counted(self.unjudged)).collect();
        let mut sources: BTreeMap<&str, Vec<(u32, u32)>> = BTreeMap::new();
        for (prompt, counted) in tallies.keys().zip(&counted) {
            sources.entry(&self.problems[prompt.0 as usize].source).or_default().push(*counted);
        }
        let accuracy = average(&counted);
        let mut numbers = vec![(format!("{name}/avg@{k}"), accuracy)];
        numbers.extend(passes(k).filter_map(|k| Some((format!("{name}/pass@{k}"), passed(&counted, k)?))));
        numbers.push((format!("{name}/unjudged"), unjudged(tallies.values())));
        if sources.len() > 1 {
            numbers.extend(
                sources.iter().map(|(source, counted)| (format!("{name}/{source}"), average(counted))),
            );
        }
        (accuracy, numbers)
    }

    /// Returns a held-out rollout's row of the table.
    pub fn row(&self, number: u64, steps: u32, text: Option<String>, of: &Answered<Answer>) -> RolloutRow {
        let problem = &self.problems[of.sample.prompt.0 as usize];
        RolloutRow {
            step: steps,
            round: None,
            rollout: RolloutId(number),
            prompt: of.sample.prompt,
            problem: problem.id(),
            source: problem.source.clone(),
            purpose: Purpose::Evaluation(of.set.clone()),
            position: of.sample.position,
            version: of.sample.version,
            tokens: of.sample.tokens,
            truncated: of.sample.truncated,
            log_prob: Some(of.sample.log_prob),
            reward: of.reward,
            rewards: of.parts.clone(),
            correct: of.correct,
            played: played(&of.sample.answer),
            text,
            learned: None,
        }
    }
}

/// Returns the turns of an episode, for the table of rollouts.
pub fn played(answer: &Answer) -> Option<Played> {
    let episode = answer.episode.as_deref()?;
    let (turns, read) = (episode.turns.len() as u32, episode.read() as u32);
    Some(Played { turns, read, rows: episode.rows(), stopped: episode.stopped.name().to_owned() })
}

/// Returns the values of k for pass@k: powers of two, and the number of rollouts of a problem.
fn passes(rollouts: u32) -> impl Iterator<Item = u32> {
    let powers = (1..31).map(|i| 1 << i).take_while(move |k| *k < rollouts);
    powers.chain((rollouts > 1).then_some(rollouts))
}

/// Returns unbiased pass@k over the problems with at least k answers; none if there is no such problem.
/// Each pair has the number of answers and of correct ones.
fn passed(counted: &[(u32, u32)], k: u32) -> Option<f64> {
    let enough = counted.iter().copied().filter(|(answers, _)| *answers >= k);
    mean_pass_at_k(&enough.collect::<Vec<_>>(), k)
}

/// Returns avg@k: the mean share of correct answers over the problems that have answers.
fn average(counted: &[(u32, u32)]) -> f64 {
    let shares: Vec<f64> = counted
        .iter()
        .filter(|(answers, _)| *answers > 0)
        .map(|(answers, correct)| f64::from(*correct) / f64::from(*answers))
        .collect();
    if shares.is_empty() { 0.0 } else { shares.iter().sum::<f64>() / shares.len() as f64 }
}

/// Returns the share of answers without a verdict.
fn unjudged<'a>(tallies: impl Iterator<Item = &'a ProblemTally>) -> f64 {
    let (answers, judged) = tallies.fold((0, 0), |(a, j), t| (a + t.answers, j + t.judged));
    if answers == 0 { 0.0 } else { f64::from(answers - judged) / f64::from(answers) }
}
