//! An engine that draws rollouts from a bank, where they were sampled before. It does not learn.
//!
//! - A prompt's rollouts at one version are drawn without replacement, in an order given by run seed,
//!   prompt and version. Another version can draw all of them again. A draw depends on no earlier one, so
//!   arms are paired and a resumed run draws the same. [`Tally::again`] counts repeated draws.
//! - After the last one, the prompt has a pass rate, drawn once per run from its posterior. A rollout is
//!   right with that rate. It takes reward and length from one of the prompt's right or wrong rollouts, or
//!   the bank's.
//! - An update increments the version and changes nothing else.
//! - A rollout of unknown length has one token.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use allot_allocation::{Compute, Geometry, Grant, PromptId, seed};
use allot_engine::{
    Capabilities, Engine, EngineError, Example, Interrupt, Purpose, Report, Sample, Sampled, Whole,
};

use crate::lessons::Taught;
use crate::{Bank, Fit, Lesson, Prompt, Rollout};

/// A drawn rollout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    /// Its reward.
    pub reward: f32,
    /// Whether it was right.
    pub correct: bool,
    /// Its origin.
    pub origin: Origin,
}

/// Origin of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The prompt's rollout with this index in the bank.
    Bank(u32),
    /// The fitted model, because the bank had no more rollouts of the prompt.
    Model,
}

/// Counts of a run's draws and updates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Draws of the bank's rollouts; a rollout drawn twice counts twice.
    pub bank: u64,
    /// Of those, draws of rollouts that the run had already drawn at an earlier version.
    pub again: u64,
    /// Draws from the fitted model.
    pub model: u64,
    /// Groups with a nonzero advantage, counted once in each update.
    pub groups: u64,
    /// Prompts with a nonzero advantage in at least one update.
    pub taught: BTreeSet<PromptId>,
    /// Prompts that were sampled at more than one version.
    pub revisited: BTreeSet<PromptId>,
    /// Whether any update came with its own geometry.
    pub steered: bool,
    /// Rollouts with a nonzero advantage that had one in an earlier update, too, counted once in each update.
    pub replayed: u64,
    /// Rollouts with a nonzero advantage whose group has one reward, as a group of one rollout has, counted once in each update.
    pub zero_variance: u64,
}

/// A run's draws of one prompt.
#[derive(Clone, Debug, Default)]
struct Visits {
    /// The version at which it was last sampled.
    version: Option<u32>,
    right: u32,
    /// Whether each of its rollouts was drawn.
    drawn: Vec<bool>,
    /// What was spent on it, and learned from it.
    lesson: Lesson,
}

/// What all runs on a bank have in common.
#[derive(Debug)]
struct Known {
    bank: Bank,
    fit: Fit,
    /// All wrong and all right rollouts of the bank, for prompts that have none.
    pools: [Vec<Rollout>; 2],
}

/// An engine that draws from a bank.
#[derive(Clone, Debug)]
pub struct Draws {
    known: Arc<Known>,
    run_seed: u64,
    version: u32,
    visits: Vec<Visits>,
    /// Rollouts that had an advantage in an update, by prompt, version and position.
    trained: HashSet<(PromptId, u32, u32)>,
    /// The first reward of each group, and whether it has others, by prompt and version.
    groups: HashMap<(PromptId, u32), (f32, bool)>,
    tally: Tally,
    /// Compute since the last call of `computed`.
    computed: Compute,
}

impl Draws {
    /// Returns an engine at the start of a run. The bank needs at least one prompt.
    pub fn new(bank: Bank, run_seed: u64) -> Self {
        let pool = |right: bool| bank.all().filter(|r| r.correct == right).copied().collect();
        let known = Known { fit: Fit::of(&bank), pools: [pool(false), pool(true)], bank };
        Self::on(Arc::new(known), run_seed)
    }

    fn on(known: Arc<Known>, run_seed: u64) -> Self {
        Self {
            run_seed,
            version: 0,
            visits: vec![Visits::default(); known.bank.prompts.len()],
            trained: HashSet::new(),
            groups: HashMap::new(),
            tally: Tally::default(),
            computed: Compute::default(),
            known,
        }
    }

    /// Returns an engine at the start of another run on the same bank.
    pub fn again(&self, run_seed: u64) -> Self {
        Self::on(Arc::clone(&self.known), run_seed)
    }

    /// Returns what was spent on each sampled prompt so far, and learned from it.
    pub fn lessons(&self) -> Vec<(PromptId, Lesson)> {
        let sampled = (0..).zip(&self.visits).filter(|(_, visits)| visits.lesson.rollouts > 0);
        sampled.map(|(prompt, visits)| (PromptId(prompt), visits.lesson)).collect()
    }

    /// The bank.
    pub fn bank(&self) -> &Bank {
        &self.known.bank
    }

    /// The fitted distribution of pass rates.
    pub fn fit(&self) -> Fit {
        self.known.fit
    }

    /// Counts of draws and updates so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns the posterior mean of a prompt's pass rate, given its rollouts and the fit.
    pub fn pass_rate(&self, prompt: PromptId) -> f64 {
        self.posterior(self.of(prompt)).mean()
    }

    /// Returns the mean of `pass_rate` over all prompts, in place of an accuracy: the run learns nothing.
    pub fn accuracy(&self) -> f64 {
        let rates = self.known.bank.prompts.iter().map(|prompt| self.posterior(prompt).mean());
        rates.sum::<f64>() / self.known.bank.prompts.len() as f64
    }

    /// Returns the root mean square difference between the observed shares of right answers and those pass
    /// rates, over the sampled prompts; `None` if no prompt was sampled.
    pub fn error(&self) -> Option<f64> {
        let seen = (0..).zip(&self.visits).filter(|(_, visits)| visits.lesson.rollouts > 0);
        let off = |(i, visits): (u32, &Visits)| {
            let share = f64::from(visits.right) / visits.lesson.rollouts as f64;
            (share - self.pass_rate(PromptId(i))).powi(2)
        };
        let (sum, n) = seen.map(off).fold((0.0, 0_u64), |(sum, n), square| (sum + square, n + 1));
        (n > 0).then(|| (sum / n as f64).sqrt())
    }

    /// Number of prompts sampled so far.
    pub fn sampled_prompts(&self) -> usize {
        self.visits.iter().filter(|visits| visits.lesson.rollouts > 0).count()
    }

    fn of(&self, prompt: PromptId) -> &Prompt {
        &self.known.bank.prompts[prompt.0 as usize]
    }

    fn posterior(&self, prompt: &Prompt) -> Fit {
        self.known.fit.seen(prompt.rollouts.len(), prompt.right())
    }

    /// Returns the rollout of a prompt at the current version and this position.
    pub fn draw(&self, prompt: PromptId, position: u32) -> Sample<Drawn> {
        self.drawn(prompt, position, &self.order(prompt))
    }

    /// Returns the order of the prompt's rollouts at the current version.
    fn order(&self, prompt: PromptId) -> Vec<u32> {
        let stream = seed::bank(self.run_seed, prompt, self.version);
        seed::Stream::new(stream).order(self.of(prompt).rollouts.len() as u32)
    }

    fn drawn(&self, prompt: PromptId, position: u32, order: &[u32]) -> Sample<Drawn> {
        let (rollout, origin) = match order.get(position as usize) {
            Some(place) => (self.of(prompt).rollouts[*place as usize], Origin::Bank(*place)),
            None => (self.modelled(prompt, position), Origin::Model),
        };
        Sample {
            prompt,
            position,
            version: self.version,
            answer: Drawn { reward: rollout.reward, correct: rollout.correct, origin },
            tokens: rollout.tokens.unwrap_or(1),
            truncated: rollout.truncated,
            // The log-probability under these weights is unknown, and this engine does not train with it.
            log_prob: 0.0,
            signals: Vec::new(),
            sampling: None,
        }
    }

    /// Returns a rollout from the fitted model.
    fn modelled(&self, prompt: PromptId, position: u32) -> Rollout {
        let of = self.of(prompt);
        // A run draws one pass rate per prompt, so that the prompt's rollouts correlate like real ones.
        let rate = self.posterior(of).draw(&mut seed::Stream::new(seed::bank_rate(self.run_seed, prompt)));
        let mut stream = seed::Stream::new(seed::rollout(self.run_seed, prompt, self.version, position));
        let right = stream.unit() < rate;
        let own: Vec<&Rollout> = of.rollouts.iter().filter(|rollout| rollout.correct == right).collect();
        let pool = &self.known.pools[usize::from(right)];
        let like = match (own.len(), pool.len()) {
            (0, 0) => None,
            (0, all) => Some(&pool[stream.below(all)]),
            (n, _) => Some(own[stream.below(n)]),
        };
        // If the bank has no right (or no wrong) rollout, the reward is 1 or 0, as in the coin-flip world.
        let plain = Rollout {
            version: 0,
            reward: f32::from(right),
            correct: right,
            tokens: of.rollouts[0].tokens,
            truncated: false,
        };
        like.copied().unwrap_or(plain)
    }

    /// Counts what an update learns from each prompt, in so many passes. In training, a prompt counts once per answer.
    fn learn(&mut self, batch: &[Example<'_, Drawn>], passes: u32) {
        let mut groups: BTreeMap<PromptId, Vec<Taught>> = BTreeMap::new();
        for example in batch {
            let Sample { prompt, version, position, tokens, answer, .. } = example.sample;
            let expected = self.expected(*prompt, *answer);
            groups.entry(*prompt).or_default().push(Taught {
                advantage: example.advantage,
                right: answer.correct,
                expected,
            });
            if example.advantage != 0.0 {
                self.tally.replayed += u64::from(!self.trained.insert((*prompt, *version, *position)));
                let varies = self.groups.get(&(*prompt, *version)).is_some_and(|(_, varies)| *varies);
                self.tally.zero_variance += u64::from(!varies);
                let read = self.of(*prompt).tokens.unwrap_or(1);
                let trained = 6.0 * f64::from(passes) * (f64::from(read) + f64::from(*tokens));
                self.visits[prompt.0 as usize].lesson.operations += trained;
            }
        }
        for (prompt, group) in groups {
            if group.iter().any(|one| one.advantage != 0.0) {
                self.tally.groups += 1;
                self.tally.taught.insert(prompt);
            }
            self.visits[prompt.0 as usize].lesson.learn(&group);
        }
    }

    /// Returns the pass rate that is expected of a prompt without this rollout.
    fn expected(&self, prompt: PromptId, drawn: Drawn) -> f64 {
        let (of, fit) = (self.of(prompt), self.known.fit);
        let (all, right) = (of.rollouts.len(), of.right());
        match drawn.origin {
            Origin::Bank(_) => fit.seen(all - 1, right - usize::from(drawn.correct)).mean(),
            Origin::Model => fit.seen(all, right).mean(),
        }
    }

    /// Counts a rollout returned to the run.
    fn count(&mut self, sample: &Sample<Drawn>) {
        let visits = &mut self.visits[sample.prompt.0 as usize];
        if visits.version.is_some_and(|before| before != self.version) {
            self.tally.revisited.insert(sample.prompt);
        }
        visits.version = Some(self.version);
        let reward = sample.answer.reward;
        let (first, varies) = self.groups.entry((sample.prompt, self.version)).or_insert((reward, false));
        *varies |= *first != reward;
        visits.right += u32::from(sample.answer.correct);
        visits.lesson.rollouts += 1;
        visits.lesson.tokens += u64::from(sample.tokens);
        visits.lesson.operations += 2.0 * f64::from(sample.tokens);
        match sample.answer.origin {
            Origin::Model => self.tally.model += 1,
            Origin::Bank(place) => {
                self.tally.bank += 1;
                visits.drawn.resize(visits.drawn.len().max(place as usize + 1), false);
                self.tally.again += u64::from(std::mem::replace(&mut visits.drawn[place as usize], true));
            }
        }
    }
}

impl Engine for Draws {
    type Answer = Drawn;

    fn capabilities(&self) -> Capabilities {
        Capabilities { name: "bank".to_owned(), signals: Vec::new() }
    }

    fn version(&self) -> u32 {
        self.version
    }

    async fn sample(
        &mut self,
        grant: Grant,
        _: Purpose,
        whole: Whole<'_, Drawn>,
        interrupt: &Interrupt,
    ) -> Result<Sampled<Drawn>, EngineError> {
        let mut sampled = Vec::with_capacity(grant.rollouts() as usize);
        for line in grant.lines() {
            let order = self.order(line.prompt);
            // A prompt is read once for all of the line's rollouts.
            let read = self.of(line.prompt).tokens.unwrap_or(1);
            self.visits[line.prompt.0 as usize].lesson.operations += 2.0 * f64::from(read);
            for position in line.first..line.first + line.count {
                if interrupt.is_asked() {
                    sampled.push(None);
                    continue;
                }
                let sample = self.drawn(line.prompt, position, &order);
                self.count(&sample);
                whole(sampled.len(), &sample);
                sampled.push(Some(sample));
            }
        }
        Ok(sampled)
    }

    async fn update(
        &mut self,
        batch: &[Example<'_, Drawn>],
        geometry: Option<Geometry>,
        interrupt: &Interrupt,
    ) -> Result<Report, EngineError> {
        if interrupt.is_asked() {
            return Err(EngineError::Interrupted);
        }
        self.tally.steered |= geometry.is_some();
        let Geometry { mini_batch, passes } =
            geometry.unwrap_or(Geometry { mini_batch: u32::MAX, passes: 1 });
        let steps = batch.len().div_ceil(mini_batch.max(1) as usize) as u64;
        let effective = || batch.iter().filter(|example| example.advantage != 0.0);
        self.computed.optimizer_steps += u64::from(passes) * steps;
        self.computed.trained_tokens +=
            u64::from(passes) * effective().map(|e| u64::from(e.sample.tokens)).sum::<u64>();
        self.learn(batch, passes);
        self.version += 1;
        let Tally { bank, again, model, .. } = self.tally;
        let metrics = [("bank/drawn", bank), ("bank/again", again), ("bank/modelled", model)];
        Ok(Report { metrics: metrics.map(|(name, n)| (name, n as f64)).to_vec() })
    }

    fn computed(&mut self) -> Compute {
        std::mem::take(&mut self.computed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Row;

    /// A prompt with these rewards, another that was always right, and one that never was.
    fn draws(seed: u64) -> Draws {
        let row = |key: &str, reward: f32, tokens| Row {
            key: key.to_owned(),
            reward,
            correct: reward > 0.5,
            tokens: Some(tokens),
            ..Row::default()
        };
        let first = (0..8).map(|i| row("some", if i < 3 { 1.0 } else { 0.0 }, 10 + i));
        let others = (0..4).flat_map(|i| [row("all", 1.0, 30 + i), row("none", 0.0, 50 + i)]);
        Draws::new(Bank::of(first.chain(others).collect()), seed)
    }

    #[test]
    fn a_version_draws_each_rollout_once_and_then_from_the_model() {
        for seed in 0..20 {
            let mut draws = draws(seed);
            let mut orders = BTreeSet::new();
            for version in 0..5 {
                draws.version = version;
                let all: Vec<_> = (0..8).map(|i| draws.draw(PromptId(0), i)).collect();
                let mut lengths: Vec<u32> = all.iter().map(|sample| sample.tokens).collect();
                orders.insert(lengths.clone());
                lengths.sort_unstable();
                assert_eq!(lengths, (10..18).collect::<Vec<_>>());
                assert_eq!(draws.draw(PromptId(0), 8).answer.origin, Origin::Model);
            }
            assert!(orders.len() > 3, "orders differ by version");
        }
    }

    #[test]
    fn the_model_is_right_as_often_as_the_posterior_says_and_has_the_lengths_of_its_kind() {
        let (mut right, mut all) = (0_u32, 0_u32);
        for seed in 0..400 {
            let draws = draws(seed);
            for position in 8..28 {
                let sample = draws.draw(PromptId(0), position);
                let own = if sample.answer.correct { 10..13 } else { 13..18 };
                assert!(own.contains(&sample.tokens));
                (right, all) = (right + u32::from(sample.answer.correct), all + 1);
            }
        }
        let (share, expected) = (f64::from(right) / f64::from(all), draws(0).pass_rate(PromptId(0)));
        assert!((share - expected).abs() < 0.03, "{share} {expected}");
        // A prompt that was always right is sometimes wrong, if the bank has wrong answers.
        let wrong =
            (0..400).map(|seed| draws(seed).draw(PromptId(1), 9)).find(|sample| !sample.answer.correct);
        assert!(wrong.is_none_or(|sample| (13..18).contains(&sample.tokens) || sample.tokens >= 50));
    }

    #[test]
    fn a_bank_of_right_answers_alone_can_be_drawn_from_for_ever() {
        let row = Row { key: "1".to_owned(), reward: 1.0, correct: true, ..Row::default() };
        let draws = Draws::new(Bank::of(vec![row]), 3);
        for position in 0..1000 {
            let sample = draws.draw(PromptId(0), position);
            assert!(sample.answer.reward.is_finite() && sample.tokens == 1);
        }
    }
}
