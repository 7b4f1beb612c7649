//! A run: executes the requests of its loop with an engine, a reward and a policy.
//!
//! `train`, `simulate`, the tests and the benchmarks use this function with different parts. The order of
//! events is defined in [`allot_loop`], which the wheel uses, too.

use std::collections::HashMap;

use allot_allocation::{Geometry, Grant, GrantLine, Outcome, PromptId, RolloutBuffer, RolloutId, View};
use allot_engine::{Engine, EngineError, Example, Purpose, Sample};
use allot_judges::math::Certain;
use allot_judges::{Reward, UNSCORABLE, Verdict};
use allot_loop::{Learned, Next, Round, Scores};
use allot_record::{End, Line, Phase};
use allot_remote::patient;

use crate::callbacks::{Callbacks, CameIn, Decide, Go};
use crate::stop::Stop;
use crate::world::{Paid, World};

/// How a run stopped.
#[derive(Clone, Debug, PartialEq)]
pub enum Rest {
    /// It is finished.
    Over(Box<End>),
    /// It was paused.
    Paused,
}

/// Executes the rest of a run.
pub async fn run<E, R, P>(
    world: &mut World<E, R, P>,
    callbacks: &mut impl Callbacks<E, R, P>,
) -> Result<Rest, Stop>
where
    E: Engine,
    R: Reward<E::Answer>,
    P: Decide,
{
    world.clock.start();
    loop {
        let stop = world.interrupt.is_asked() && !world.run.is_done();
        match if stop { Err(Stop::Interrupted) } else { turn(world, callbacks).await } {
            Ok(None) => {}
            Ok(Some(rest)) => return Ok(rest),
            Err(Stop::Interrupted) => {
                world.run.interrupted();
                callbacks.pause(world)?;
                return Ok(Rest::Paused);
            }
            Err(stop) => {
                // The reason for the stop matters more than a second failure of the record.
                let _ = world.record.write(&Line::End(*world.run.end(stop.to_string(), false)));
                return Err(stop);
            }
        }
    }
}

/// Executes the next request of the loop.
async fn turn<E, R, P>(
    world: &mut World<E, R, P>,
    callbacks: &mut impl Callbacks<E, R, P>,
) -> Result<Option<Rest>, Stop>
where
    E: Engine,
    R: Reward<E::Answer>,
    P: Decide,
{
    let engine = &world.engine;
    match world.run.next(&|prompt, tokens| engine.cost(prompt, tokens)) {
        Next::Decide(view) => world.decide(&view, callbacks)?,
        Next::Sample(grant, round) => world.sample(grant, &round, callbacks).await?,
        Next::Update(rollouts, geometry) => world.update(&rollouts, geometry, callbacks).await?,
        Next::Begin(rollouts, geometry) => world.begin(&rollouts, geometry).await?,
        Next::Finish(rollouts, geometry) => world.finish(&rollouts, geometry).await?,
        Next::Evaluate => {
            let scores = evaluated(world, callbacks).await?;
            world.run.evaluated(scores);
            world.clock.start();
        }
        Next::Step(end) => {
            world.record.write(&Line::Step(end.clone()))?;
            // At the last step, a pause would be the end.
            if callbacks.after(world, &end)? == Go::Pause && !world.run.is_at_end() {
                return Ok(Some(Rest::Paused));
            }
            world.clock.start();
        }
        Next::Over(end) => {
            world.record.write(&Line::End(*end.clone()))?;
            return Ok(Some(Rest::Over(end)));
        }
        Next::Wait => return Err(Stop::Interrupted),
    }
    Ok(None)
}

/// Evaluates the model. Its operations and time do not count for the run's steps.
pub async fn evaluated<E: Engine, R, P>(
    world: &mut World<E, R, P>,
    callbacks: &mut impl Callbacks<E, R, P>,
) -> Result<Scores, Stop> {
    world.clock.start();
    let scores = callbacks.evaluate(world).await?;
    world.lap(Phase::Evaluating);
    world.run.state.measured.evaluated(scores.spent);
    Ok(scores)
}

impl<E: Engine, R: Reward<E::Answer>, P: Decide> World<E, R, P> {
    /// Queries the policy.
    fn decide(&mut self, view: &View, callbacks: &mut impl Callbacks<E, R, P>) -> Result<(), Stop> {
        let Self { run, engine, policy, .. } = self;
        let (plan, log) =
            policy.decide(&run.of.run, &run.state.policy, view).map_err(|fault| Stop::Policy {
                policy: policy.name().to_owned(),
                fault: Box::new(fault),
                view: Box::new(view.clone()),
                state: run.state.policy.clone(),
            })?;
        log.iter().for_each(self.log);
        callbacks.decided(view, &plan, &log)?;
        let costs = |prompt, tokens| engine.cost(prompt, tokens);
        let decided = run.decided(policy.name(), &plan, &costs).map_err(|broken| Stop::Broken {
            broken,
            view: Box::new(view.clone()),
            plan: Box::new(plan.clone()),
            state: run.state.policy.clone(),
        })?;
        self.record.write(&Line::Call(decided.call))?;
        // The decision is made, so observers may see it.
        self.lap(Phase::Deciding);
        self.policy.show(view, &plan).map_err(Stop::Shadow)?;
        decided.clipped.iter().for_each(|clipped| callbacks.clipped(clipped));
        if let Some((settled, learned)) = decided.settled {
            callbacks.settled(&settled, &learned)?;
            self.forget();
        }
        self.clock.start();
        Ok(())
    }

    /// Samples a grant and grades the rollouts. Rollouts and verdicts from an interrupted round are reused.
    async fn sample(
        &mut self,
        grant: Grant,
        round: &Round,
        callbacks: &mut impl Callbacks<E, R, P>,
    ) -> Result<(), Stop> {
        let (lines, all) = (grant.lines().to_vec(), grant.rollouts() as usize);
        let mut came: Vec<Option<Sample<E::Answer>>> = std::iter::repeat_with(|| None).take(all).collect();
        let mut verdicts: Vec<Option<Verdict>> = vec![None; all];
        for Paid { place, sample, verdict } in self.paid.drain(..) {
            if verdict.is_none() {
                self.reward.begin(place, &sample);
            }
            (came[place], verdicts[place]) = (Some(sample), verdict);
        }
        let missing: Vec<usize> = (0..all).filter(|place| came[*place].is_none()).collect();
        let rest = grant.without(|place| came[place].is_some());
        let Self { run, samples, engine, reward, interrupt, .. } = &mut *self;
        let held = held(&run.state.buffer, samples, &lines);
        if !held.is_empty() {
            engine.hold(held);
        }
        let begin = &mut |i: usize, sample: &Sample<E::Answer>| reward.begin(missing[i], sample);
        let sampled = engine.sample(rest, Purpose::Training, begin, interrupt).await;
        let step = round.step;
        let sampled = sampled.map_err(|error| Stop::Engine { step, error })?;
        for (place, sample) in missing.into_iter().zip(sampled) {
            came[place] = sample;
        }
        self.lap(Phase::Sampling);
        let whole = came.iter().all(Option::is_some);
        if whole || !self.interrupt.is_asked() {
            let paid = came.iter().flatten().map(|s| (s.prompt, s.position, s.tokens));
            self.run.state.ledger.check(paid).map_err(|fault| Stop::Ledger { step, fault })?;
        }
        // Part of a round has no rewards if they compare rollouts: others would have been compared without it.
        let judged = (whole || !self.reward.compares()) && self.judge(&came, &mut verdicts).await?;
        self.lap(Phase::Judging);
        let paid = came.into_iter().zip(verdicts).enumerate();
        let paid = paid.filter_map(|(place, (s, verdict))| Some(Paid { place, sample: s?, verdict }));
        if !(whole && judged) {
            self.paid = paid.collect();
            return Err(Stop::Interrupted);
        }
        // A rollout without a verdict is unscorable, but it still counts.
        let scored = paid.map(|paid| (paid.sample, paid.verdict.unwrap_or(UNSCORABLE)));
        let (samples, verdicts): (Vec<_>, Vec<_>) = scored.unzip();
        self.run.state.measured.compute += self.engine.sampled(&lines, &samples);
        self.take(round, samples, verdicts, callbacks)
    }

    /// Puts a round's rollouts into the buffer.
    fn take(
        &mut self,
        round: &Round,
        samples: Vec<Sample<E::Answer>>,
        verdicts: Vec<Verdict>,
        callbacks: &mut impl Callbacks<E, R, P>,
    ) -> Result<(), Stop> {
        let certain = Certain::of(&verdicts);
        let (outcomes, parts): (Vec<Outcome>, Vec<_>) = samples
            .iter()
            .zip(verdicts)
            .map(|(sample, verdict)| {
                let outcome = outcome(sample, &verdict, self.run.of.run.parts());
                let (turns, stopped) = E::turns(&sample.answer).unzip();
                (Outcome { turns: turns.unwrap_or_default(), stopped, ..outcome }, verdict.parts)
            })
            .unzip();
        let engine = &self.engine;
        let costs = |prompt, tokens| engine.cost(prompt, tokens);
        let took = self.run.sampled(&outcomes, &parts, &costs);
        let took = took.map_err(|fault| Stop::Ledger { step: round.step, fault })?;
        took.clipped.iter().for_each(|clipped| callbacks.clipped(clipped));
        if let Some(rollouts) = took.rollouts {
            self.record.write(&Line::Rollouts(rollouts))?;
        }
        let first = took.first;
        let came = CameIn { round, first, samples: &samples, outcomes: &outcomes, parts: &parts, certain };
        callbacks.sampled(came)?;
        let scored =
            (first.0..).map(RolloutId).zip(samples).zip(&outcomes).filter(|(_, o)| o.reward.is_some());
        self.samples.extend(scored.map(|(sample, _)| sample));
        Ok(())
    }

    /// Waits for missing verdicts. Returns whether all arrived: after a request to stop, slow graders are
    /// not waited for.
    async fn judge(
        &mut self,
        came: &[Option<Sample<E::Answer>>],
        verdicts: &mut [Option<Verdict>],
    ) -> Result<bool, Stop> {
        let open = |place: &usize| came[*place].is_some() && verdicts[*place].is_none();
        let places: Vec<usize> = (0..came.len()).filter(open).collect();
        let samples: Vec<_> = places.iter().filter_map(|i| came[*i].as_ref().map(|s| (*i, s))).collect();
        let judged = patient(self.reward.score(&samples), &self.interrupt).await;
        let Some(judged) = judged else { return Ok(false) };
        for (place, verdict) in places.into_iter().zip(judged.map_err(Stop::Reward)?) {
            verdicts[place] = Some(verdict);
        }
        Ok(true)
    }

    /// Updates the model and settles the step.
    async fn update(
        &mut self,
        rollouts: &[Learned],
        geometry: Option<Geometry>,
        callbacks: &mut impl Callbacks<E, R, P>,
    ) -> Result<(), Stop> {
        let metrics = self.learn(rollouts, geometry).await?;
        self.run.state.measured.compute += self.engine.computed();
        self.lap(Phase::Updating);
        let (engine, updated) = (&self.engine, metrics.is_some());
        let costs = |prompt, tokens| engine.cost(prompt, tokens);
        let settled = self.run.updated(updated, metrics.unwrap_or_default(), &costs);
        callbacks.settled(&settled, rollouts)?;
        for id in settled.finished.iter().chain(&settled.released).chain(&settled.stale) {
            self.samples.remove(id);
        }
        Ok(())
    }

    /// Gives the engine the batch of the next update. It may start while rollouts are sampled.
    async fn begin(&mut self, rollouts: &[Learned], geometry: Option<Geometry>) -> Result<(), Stop> {
        let step = self.run.state.finished();
        let Self { engine, samples, interrupt, .. } = self;
        let examples = examples(samples, rollouts);
        if examples.is_empty() {
            return Ok(());
        }
        engine.begin(&examples, geometry, interrupt).await.map_err(|error| Stop::Engine { step, error })
    }

    /// Finishes the update of a step that was settled earlier.
    async fn finish(&mut self, rollouts: &[Learned], geometry: Option<Geometry>) -> Result<(), Stop> {
        let metrics = self.learn(rollouts, geometry).await?;
        let computed = self.engine.computed();
        // The time of sampling is counted separately; this is the time spent waiting after it.
        self.lap(Phase::Updating);
        let engine = &self.engine;
        let costs = |prompt, tokens| engine.cost(prompt, tokens);
        self.run.finished(metrics.unwrap_or_default(), computed, &costs);
        self.forget();
        Ok(())
    }

    /// Drops rollouts that no update will use.
    pub(crate) fn forget(&mut self) {
        let used = self.run.state.in_use();
        self.samples.retain(|id, _| used.contains(id));
    }

    /// Makes an update, unless the batch is empty. Returns the engine's metrics.
    async fn learn(
        &mut self,
        rollouts: &[Learned],
        geometry: Option<Geometry>,
    ) -> Result<Option<Vec<(String, f64)>>, Stop> {
        let step = self.run.state.finished();
        let examples = examples(&self.samples, rollouts);
        if examples.is_empty() {
            return Ok(None);
        }
        let mut batch: Vec<(_, usize)> = Vec::new();
        for example in &examples {
            match batch.last_mut().filter(|(prompt, _)| *prompt == example.sample.prompt) {
                Some((_, n)) => *n += 1,
                None => batch.push((example.sample.prompt, 1)),
            }
        }
        let refused = |what| Stop::Refused { step, what, batch };
        let report = match self.engine.update(&examples, geometry, &self.interrupt).await {
            Ok(report) => report,
            Err(EngineError::NotFinite(what)) => return Err(refused(what)),
            Err(EngineError::Interrupted) => return Err(Stop::Interrupted),
            Err(error) => return Err(Stop::Engine { step, error }),
        };
        if let Some((name, _)) = report.metrics.iter().find(|(_, value)| !value.is_finite()) {
            return Err(refused(name));
        }
        Ok(Some(report.metrics.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
    }
}

/// Returns the rollouts that these lines continue, by prompt and by position in the prompt's group.
fn held<A: Clone>(
    buffer: &RolloutBuffer,
    samples: &HashMap<RolloutId, Sample<A>>,
    lines: &[GrantLine],
) -> HashMap<(PromptId, u32), A> {
    let starts =
        lines.iter().flat_map(|line| line.starts.iter().flatten().map(|start| (line.prompt, start.rollout)));
    let found = starts.filter_map(|(prompt, rollout)| {
        let id = buffer.rollout(prompt, rollout as usize)?;
        Some(((prompt, rollout), samples.get(&id)?.answer.clone()))
    });
    found.collect()
}

/// Returns the training examples in the engine's form.
fn examples<'a, A>(
    samples: &'a HashMap<RolloutId, Sample<A>>,
    rollouts: &'a [Learned],
) -> Vec<Example<'a, A>> {
    let picked = rollouts.iter().filter_map(|r| Some((samples.get(&r.id)?, r)));
    let example = |(sample, learned): (_, &'a Learned)| {
        let Learned { advantage, by_turn, .. } = learned;
        Example { sample, advantage: *advantage, by_turn }
    };
    picked.map(example).collect()
}

/// Returns a rollout as the policy sees it.
fn outcome<A>(sample: &Sample<A>, verdict: &Verdict, parts: &[String]) -> Outcome {
    let part =
        |name: &String| verdict.parts.iter().find(|(part, _)| part == name).map_or(f32::NAN, |(_, x)| *x);
    let signals: Vec<f32> = sample.signals.iter().copied().chain(parts.iter().map(part)).collect();
    // Rewards and signals that are not finite never reach a policy or the record.
    let finite = |r: &f32| r.is_finite() && signals.iter().all(|x| x.is_finite());
    Outcome {
        prompt: sample.prompt,
        position: sample.position,
        reward: verdict.reward.filter(finite),
        correct: verdict.correct,
        tokens: sample.tokens,
        truncated: sample.truncated,
        signals,
        sampling: None,
        turns: Vec::new(),
        stopped: None,
        start: None,
    }
}
