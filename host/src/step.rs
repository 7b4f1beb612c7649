//! One step, as it runs: ask the policy, keep the rules, spend, sample, judge, ask again, train.
//!
//! `train`, `simulate`, the tests and the benches run this very function with other parts.

use std::collections::{BTreeMap, HashMap, HashSet};

use allot_allocation::advantage::{self, Scale};
use allot_allocation::rules::{self, Bounds, Broken};
use allot_allocation::{
    Action, Batch, Books, Outcome, Plan, Pool, Prompt, PromptId, RolloutId, Run, Settled, Shelf, View, seed,
};
use allot_engine::{Engine, EngineError, Example, Sample};
use allot_sandbox::{Fault, Line as LogLine};
use thiserror::Error;

use crate::meter::Meter;
use crate::reward::{Reward, UNSCORABLE};
use crate::trouble::Trouble;
use allot_record::{Call, Line, Phase, Record, RecordError, Rollouts, Sampled, StepEnd};

/// Whoever decides: a component in its sandbox, or a function in a test.
pub trait Decide {
    /// The policy's name.
    fn name(&self) -> &str;
    /// The contract's `decide`, and what the policy logged.
    fn decide(&mut self, run: &Run, state: &[u8], view: &View) -> Result<(Plan, Vec<LogLine>), Fault>;
    /// Shows a plan that keeps the rules to others who would have decided. Neither their answers nor their
    /// time count.
    fn show(&mut self, _view: &View, _plan: &Plan) -> Result<(), Trouble> {
        Ok(())
    }
}

/// Someone who looks on, to keep tables and curves. It changes nothing of the run.
pub trait Watch<A> {
    /// A round's rollouts came in; `first` is the first one's number.
    fn sampled(
        &mut self,
        _view: &View,
        _first: RolloutId,
        _samples: &[Sample<A>],
        _outcomes: &[Outcome],
    ) -> Result<(), Trouble> {
        Ok(())
    }

    /// A step was settled.
    fn settled(&mut self, _settled: &Settled, _learned: &[Learned]) -> Result<(), Trouble> {
        Ok(())
    }
}

/// For runs that nobody looks at.
impl<A> Watch<A> for () {}

/// A rollout that was trained on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learned {
    /// Its number.
    pub id: RolloutId,
    /// Model updates made since it was sampled.
    pub age: u32,
    /// Its advantage.
    pub advantage: f32,
}

/// Everything that lives on from step to step.
pub struct World<E: Engine, R, P> {
    /// What samples and learns.
    pub engine: E,
    /// What judges.
    pub reward: R,
    /// Who decides.
    pub policy: P,
    /// The policy's memory.
    pub state: Vec<u8>,
    /// The prompts on offer.
    pub pool: Pool,
    /// The rollouts on hand, as the policy sees them.
    pub shelf: Shelf,
    /// The same rollouts, as the engine knows them.
    pub samples: HashMap<RolloutId, Sample<E::Answer>>,
    /// What may be spent, and what was.
    pub books: Books,
    /// What is computed, and how long it takes.
    pub meter: Meter,
    /// Where every call and step is written.
    pub record: Record,
    /// Where the policy's own words go.
    pub log: fn(&LogLine),
    /// How rewards become advantages.
    pub scale: Scale,
    /// Bounds on what a plan may put into the record.
    pub bounds: Bounds,
    /// The run's seed.
    pub seed: u64,
    /// Steps finished.
    pub steps: u32,
}

/// Why a run stops in the middle. Whatever was finished stays in the record.
#[derive(Debug, Error)]
pub enum Stop {
    /// The policy broke a rule.
    #[error("{broken}")]
    Broken {
        /// The rule, and where.
        broken: Broken,
        /// What the policy was shown.
        view: Box<View>,
        /// What it answered.
        plan: Box<Plan>,
        /// What it remembered.
        state: Vec<u8>,
    },
    /// The policy gave no answer.
    #[error("in step {}, round {} policy `{policy}` {fault}", .view.step, .view.round)]
    Policy {
        /// Its name.
        policy: String,
        /// What happened.
        fault: Box<Fault>,
        /// What it was shown.
        view: Box<View>,
        /// What it remembered.
        state: Vec<u8>,
    },
    /// The engine failed.
    #[error("the engine failed in step {step}: {error}")]
    Engine {
        /// The step.
        step: u32,
        /// Why.
        error: EngineError,
    },
    /// An update that would have broken the weights.
    #[error(
        "the update of step {step} was refused: {what} is not finite; its batch was {}",
        .batch.iter().map(|(prompt, n)| format!("{n} of prompt {prompt}")).collect::<Vec<_>>().join(", ")
    )]
    Refused {
        /// The step.
        step: u32,
        /// What is not finite.
        what: &'static str,
        /// Rollouts of each prompt.
        batch: Vec<(PromptId, usize)>,
    },
    /// The engine did something else than it was granted.
    #[error("{fault} (step {step})")]
    Books {
        /// The step.
        step: u32,
        /// What it did.
        fault: allot_allocation::Fault,
    },
    /// Nothing can be judged any more.
    #[error("{}", .0.what)]
    Reward(Trouble),
    /// The record could not be written.
    #[error("{}", .0.what)]
    Record(Trouble),
}

impl From<RecordError> for Stop {
    fn from(error: RecordError) -> Self {
        Self::Record(error.into())
    }
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// With a plan that trains. What it came to is ready for the record.
    Trained(Box<StepEnd>),
    /// The run's budget was spent, and the policy would still sample. A normal end of the run.
    Spent,
}

/// Runs one step.
pub async fn step<E, R, P>(
    run: &Run,
    world: &mut World<E, R, P>,
    watch: &mut impl Watch<E::Answer>,
) -> Result<Ended, Stop>
where
    E: Engine,
    R: Reward<E::Answer>,
    P: Decide,
{
    world.books.open_step();
    world.shelf.open_step();
    world.meter.close(&mut world.books);
    world.meter.start();
    let mut rewards = Mean::default();
    let mut round = 0;
    loop {
        let (view, offered) = world.view(round);
        let plan = world.ask(run, &view)?;
        rules::check(world.policy.name(), &view, &plan, world.bounds).map_err(|broken| Stop::Broken {
            broken,
            view: Box::new(view.clone()),
            plan: Box::new(plan.clone()),
            state: world.state.clone(),
        })?;
        world.pool.evict(&plan.evict);
        world.pool.take(plan.skip.iter().copied());
        match &plan.action {
            Action::Sample(order) => {
                let spent = world.books.grantable() == 0;
                let grant = world.books.grant(order, |prompt| world.shelf.next_position(prompt));
                world.note(&view, &plan, offered, grant.rollouts())?;
                world.show(&view, &plan)?;
                if spent {
                    return Ok(Ended::Spent);
                }
                world.pool.take(grant.lines().iter().map(|line| line.prompt));
                let World { engine, reward, .. } = &mut *world;
                let sampled = engine.sample(grant, &mut |place, sample| reward.begin(place, sample)).await;
                let samples = sampled.map_err(|error| world.failed(error))?;
                let paid = samples.iter().map(|s| (s.prompt, s.position, s.tokens));
                world.books.charge(paid).map_err(|fault| Stop::Books { step: world.steps, fault })?;
                world.measure(Phase::Sampling);
                let outcomes = world.judge(&view, samples, watch).await?;
                outcomes.iter().filter_map(|o| o.reward).for_each(|r| rewards.add(f64::from(r)));
                world.meter.lap(Phase::Judging);
                world.meter.close(&mut world.books);
            }
            Action::Train(batch) => {
                world.note(&view, &plan, offered, 0)?;
                world.show(&view, &plan)?;
                let mut end = world.train(run, &view, batch, watch).await?;
                end.reward = rewards.mean();
                world.steps += 1;
                world.meter.lap(Phase::Updating);
                world.meter.close(&mut world.books);
                return Ok(Ended::Trained(Box::new(end)));
            }
        }
        round += 1;
    }
}

impl<E: Engine, R: Reward<E::Answer>, P: Decide> World<E, R, P> {
    /// The engine is done with something that was no evaluation.
    fn measure(&mut self, phase: Phase) {
        self.meter.compute += self.engine.computed();
        self.meter.lap(phase);
    }

    /// The view of a round, and the prompts in it that the last one did not have.
    fn view(&mut self, round: u32) -> (View, Vec<Prompt>) {
        self.pool.top_up(&self.shelf);
        let view = View {
            step: self.steps,
            round,
            seed: seed::policy(self.seed, self.steps, round),
            budget: self.books.budget(),
            pool: self.pool.offered().to_vec(),
            groups: self.shelf.groups(),
        };
        (view, self.pool.newly_offered().to_vec())
    }

    fn ask(&mut self, run: &Run, view: &View) -> Result<Plan, Stop> {
        let (plan, log) = self.policy.decide(run, &self.state, view).map_err(|fault| Stop::Policy {
            policy: self.policy.name().to_owned(),
            fault: Box::new(fault),
            view: Box::new(view.clone()),
            state: self.state.clone(),
        })?;
        log.iter().for_each(self.log);
        Ok(plan)
    }

    /// Writes a call down, and takes over the policy's new state.
    fn note(&mut self, view: &View, plan: &Plan, offered: Vec<Prompt>, granted: u64) -> Result<(), Stop> {
        let call = Call::of(view, plan, &self.state, offered, granted);
        self.state.clone_from(&plan.state);
        Ok(self.record.write(&Line::Call(Box::new(call)))?)
    }

    /// The decision is made; others may see it.
    fn show(&mut self, view: &View, plan: &Plan) -> Result<(), Stop> {
        self.meter.lap(Phase::Deciding);
        self.policy.show(view, plan).map_err(Stop::Record)?;
        self.meter.start();
        Ok(())
    }

    /// Scores rollouts, writes them down and puts them on the shelf.
    async fn judge(
        &mut self,
        view: &View,
        samples: Vec<Sample<E::Answer>>,
        watch: &mut impl Watch<E::Answer>,
    ) -> Result<Vec<Outcome>, Stop> {
        let verdicts = self.reward.score(&samples).await.map_err(Stop::Reward)?;
        let outcomes: Vec<Outcome> = samples
            .iter()
            // A rollout without a verdict is unscorable, never lost.
            .zip(verdicts.into_iter().chain(std::iter::repeat(UNSCORABLE)))
            .map(|(s, verdict)| Outcome {
                prompt: s.prompt,
                position: s.position,
                // Nothing that is not finite reaches a policy or the record.
                reward: verdict.reward.filter(|r| r.is_finite() && s.signals.iter().all(|x| x.is_finite())),
                correct: verdict.correct,
                tokens: s.tokens,
                truncated: s.truncated,
                signals: s.signals.clone(),
            })
            .collect();
        if !outcomes.is_empty() {
            let sampled = Sampled::of(&outcomes, outcomes[0].signals.len());
            let line = Rollouts { step: view.step, round: view.round, sampled };
            self.record.write(&Line::Rollouts(Box::new(line)))?;
        }
        let first = self.shelf.add(outcomes.iter().cloned());
        watch.sampled(view, first, &samples, &outcomes).map_err(Stop::Record)?;
        let scored =
            (first.0..).map(RolloutId).zip(samples).zip(&outcomes).filter(|(_, o)| o.reward.is_some());
        self.samples.extend(scored.map(|(sample, _)| sample));
        Ok(outcomes)
    }

    /// Turns picks into advantages, updates the model, and settles the shelf.
    async fn train(
        &mut self,
        run: &Run,
        view: &View,
        batch: &Batch,
        watch: &mut impl Watch<E::Answer>,
    ) -> Result<StepEnd, Stop> {
        let mut end = StepEnd { step: view.step, ..StepEnd::default() };
        let groups: BTreeMap<_, _> = view.groups.iter().map(|g| (g.prompt, g)).collect();
        let (mut examples, mut learned) = (Vec::new(), Vec::new());
        let mut ages = Mean::default();
        for pick in &batch.picks {
            let group = groups[&pick.prompt];
            let advantages = advantage::of_pick(pick, group, self.scale);
            for (position, advantage) in pick.positions(group.len()).into_iter().zip(advantages) {
                ages.add(f64::from(group.ages[position]));
                end.effective += u64::from(advantage != 0.0);
                let id = self.shelf.rollout(pick.prompt, position);
                if let Some((id, sample)) = id.and_then(|id| Some((id, self.samples.get(&id)?))) {
                    examples.push(Example { sample, advantage });
                    learned.push(Learned { id, age: group.ages[position], advantage });
                }
            }
        }
        end.groups = batch.picks.len() as u64;
        end.updated = !examples.is_empty();
        if end.updated {
            let step = view.step;
            let refused = |what| {
                let batch = batch.picks.iter().map(|p| (p.prompt, p.count(groups[&p.prompt].len())));
                Stop::Refused { step, what, batch: batch.collect() }
            };
            let report = self.engine.update(&examples).await.map_err(|error| match error {
                EngineError::NotFinite(what) => refused(what),
                error => Stop::Engine { step, error },
            })?;
            if let Some((name, _)) = report.metrics.iter().find(|(_, value)| !value.is_finite()) {
                return Err(refused(name));
            }
            self.measure(Phase::Updating);
            end.metrics.extend(report.metrics.into_iter().map(|(name, value)| (name.to_owned(), value)));
        }

        let flat: HashSet<RolloutId> = view
            .groups
            .iter()
            .filter(|g| g.flat())
            .flat_map(|g| (0..g.len()).filter_map(|i| self.shelf.rollout(g.prompt, i)))
            .collect();
        let settled = self.shelf.settle(batch, end.updated, run.max_age);
        watch.settled(&settled, &learned).map_err(Stop::Record)?;
        for id in settled.trained.iter().chain(&settled.released).chain(&settled.stale) {
            self.samples.remove(id);
        }
        self.pool.remember(view.step, &settled.visits);
        end.trained = settled.trained.len() as u64;
        end.released = settled.released.len() as u64;
        end.flat = settled.released.iter().filter(|id| flat.contains(id)).count() as u64;
        end.stale = settled.stale.len() as u64;
        end.held = settled.held;
        end.mean_age = ages.mean();
        end.spent = self.books.spent();
        end.compute = self.meter.compute;
        Ok(end)
    }

    fn failed(&self, error: EngineError) -> Stop {
        Stop::Engine { step: self.steps, error }
    }
}

/// A mean that is filled one by one; 0 of nothing.
#[derive(Default)]
struct Mean {
    sum: f64,
    n: u64,
}

impl Mean {
    fn add(&mut self, x: f64) {
        self.sum += x;
        self.n += 1;
    }

    fn mean(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.sum / self.n as f64 }
    }
}
