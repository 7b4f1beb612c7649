//! One step, as it runs: ask the policy, keep the rules, spend, sample, judge, ask again, train.
//!
//! `train`, `simulate`, the tests and the benches run this very function with other parts.

use std::collections::{BTreeMap, HashMap, HashSet};

use allot_allocation::advantage::{self, Scale};
use allot_allocation::rules::{self, Bounds, Broken};
use allot_allocation::{
    Action, Batch, Books, Grant, Group, Outcome, Plan, Pool, Prompt, PromptId, Request, RolloutId, Run,
    Settled, Shelf, View, seed,
};
use allot_engine::{Cost, Engine, EngineError, Example, Sample};
use allot_sandbox::{Fault, Line as LogLine};
use thiserror::Error;

use crate::meter::{Left, Meter};
use allot_error::Trouble;
use allot_judges::protocol::Part;
use allot_judges::{Reward, UNSCORABLE};
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
    /// The policy answered with a plan, which may still break a rule, and said this.
    fn decided(&mut self, _view: &View, _plan: &Plan, _said: &[LogLine]) -> Result<(), Stop> {
        Ok(())
    }

    /// A round's rollouts came in; `first` is the first one's number, `parts` are those of each one's reward.
    fn sampled(
        &mut self,
        _view: &View,
        _first: RolloutId,
        _samples: &[Sample<A>],
        _outcomes: &[Outcome],
        _parts: &[Vec<Part>],
    ) -> Result<(), Stop> {
        Ok(())
    }

    /// Less was granted than the plan asked for. The budget's end by the plan's own will is not told of.
    fn clipped(&mut self, _view: &View, _asked: u64, _granted: u64) {}

    /// A step was settled.
    fn settled(&mut self, _settled: &Settled, _learned: &[Learned]) -> Result<(), Stop> {
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
    #[error("{0}")]
    Reward(Trouble),
    /// Numbers of the model that are none.
    #[error(
        "{what} not finite: {}",
        if *.updates == 0 { "the weights are broken as they were loaded" } else { "an earlier update has broken the model" }
    )]
    NotFinite {
        /// What is not, with its verb.
        what: String,
        /// Model updates made by then.
        updates: u32,
    },
    /// The record could not be written.
    #[error("{0}")]
    Record(Trouble),
    /// A table, a curve or a checkpoint could not be written.
    #[error("{0}")]
    Outputs(Trouble),
    /// A shadow's plans could not be written.
    #[error("{0}")]
    Shadow(Trouble),
}

impl Stop {
    /// What to do about it, where that follows from what it is alone.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFinite { updates: 0, .. } => {
                Some("look at the files that `model.use` names: some of their numbers are NaN or infinite")
            }
            Self::Refused { .. } | Self::NotFinite { .. } => {
                Some("lower `optimizer.learning_rate`, and begin from the `model` folder of a checkpoint")
            }
            _ => None,
        }
    }

    /// Whether a run that is taken up again would not come to the same: what was in its way may be gone.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Broken { .. } | Self::Policy { .. } | Self::Refused { .. } | Self::NotFinite { .. } => {
                false
            }
            Self::Engine { .. }
            | Self::Books { .. }
            | Self::Reward(_)
            | Self::Record(_)
            | Self::Outputs(_)
            | Self::Shadow(_) => true,
        }
    }
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
    world.close();
    world.meter.start();
    let mut rewards = Mean::default();
    let mut parts: BTreeMap<String, Mean> = BTreeMap::new();
    let (mut round, mut dry) = (0, false);
    loop {
        let (view, offered) = world.view(round, dry);
        let plan = world.ask(run, &view, watch)?;
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
                let grant = world.grant(order, &view);
                dry = grant.is_empty() && !order.is_empty();
                world.note(&view, &plan, offered, grant.rollouts())?;
                world.show(&view, &plan)?;
                if spent {
                    return Ok(Ended::Spent);
                }
                let asked = order.iter().map(|request| u64::from(request.count)).sum();
                if grant.rollouts() < asked {
                    watch.clipped(&view, asked, grant.rollouts());
                }
                world.pool.take(grant.lines().iter().map(|line| line.prompt));
                let World { engine, reward, .. } = &mut *world;
                let sampled = engine.sample(grant, &mut |place, sample| reward.begin(place, sample)).await;
                let samples = sampled.map_err(|error| world.failed(error))?;
                let paid = samples.iter().map(|s| (s.prompt, s.position, s.tokens));
                world.books.charge(paid).map_err(|fault| Stop::Books { step: world.steps, fault })?;
                world.measure(Phase::Sampling);
                let (outcomes, of_rewards) = world.judge(&view, samples, watch).await?;
                outcomes.iter().filter_map(|o| o.reward).for_each(|r| rewards.add(f64::from(r)));
                for (name, x) in of_rewards.into_iter().flatten() {
                    parts.entry(name).or_default().add(f64::from(x));
                }
                world.meter.lap(Phase::Judging);
                world.meter.close(&mut world.books);
            }
            Action::Train(batch) => {
                world.note(&view, &plan, offered, 0)?;
                world.show(&view, &plan)?;
                let mut end = world.train(run, &view, batch, watch).await?;
                end.reward = rewards.mean();
                end.rewards = parts.into_iter().map(|(name, part)| (name, part.mean())).collect();
                world.steps += 1;
                world.meter.lap(Phase::Updating);
                world.close();
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

    /// The view of a round, and the prompts in it that the last one did not have. In a step that has run dry there
    /// is nothing left to be granted.
    fn view(&mut self, round: u32, dry: bool) -> (View, Vec<Prompt>) {
        self.pool.top_up(&self.shelf);
        let groups = self.shelf.groups();
        let spare = self.left(&groups).map(|left| {
            let offered = self.pool.offered().iter().map(|prompt| prompt.id);
            let prompts = offered.chain(groups.iter().map(|group| group.prompt));
            if dry { 0 } else { left.in_any_case(prompts.map(|prompt| self.most(prompt))) }
        });
        self.books.leave(spare);
        let view = View {
            step: self.steps,
            round,
            seed: seed::policy(self.seed, self.steps, round),
            budget: self.books.budget(),
            pool: self.pool.offered().to_vec(),
            groups,
        };
        (view, self.pool.newly_offered().to_vec())
    }

    /// Grants what is asked for, as far as the budget goes by all its measures.
    fn grant(&mut self, order: &[Request], view: &View) -> Grant {
        if let Some(left) = self.left(&view.groups).filter(|_| self.books.grantable() > 0) {
            let fits = left.of_order(order, |prompt| self.most(prompt));
            // With nothing on hand there is nothing reserved that could come free.
            if fits == 0 && !order.is_empty() && view.groups.is_empty() {
                self.books.close();
            }
            self.books.leave(Some(fits));
        }
        self.books.grant(order, |prompt| self.shelf.next_position(prompt))
    }

    /// What is left below the run's ceilings, if it has any, with these groups on hand. All of them may be learned
    /// from.
    fn left(&self, groups: &[Group]) -> Option<Left> {
        let learning = |group: &Group| {
            group.tokens.iter().map(|n| self.engine.cost(group.prompt, *n).learning).sum::<f64>()
        };
        let cheapest = || {
            let all = (0..self.pool.prompts()).map(|prompt| self.most(PromptId(prompt)));
            all.map(|cost| cost.reading + cost.rollout()).fold(f64::INFINITY, f64::min)
        };
        let sampled = self.books.spent().run_rollouts;
        self.meter.left(sampled, || groups.iter().map(learning).sum(), cheapest)
    }

    /// What a prompt's rollout costs with the longest answer.
    fn most(&self, prompt: PromptId) -> Cost {
        self.engine.cost(prompt, self.books.limits().longest)
    }

    /// Closes the books where a ceiling is reached, or is so near that no rollout will fit below it, whatever
    /// becomes of those on hand.
    fn close(&mut self) {
        self.meter.close(&mut self.books);
        // What was short in a view may be there again.
        self.books.leave(None);
        if self.left(&[]).is_some_and(|left| left.is_nothing()) {
            self.books.close();
        }
    }

    fn ask(&mut self, run: &Run, view: &View, watch: &mut impl Watch<E::Answer>) -> Result<Plan, Stop> {
        let (plan, log) = self.policy.decide(run, &self.state, view).map_err(|fault| Stop::Policy {
            policy: self.policy.name().to_owned(),
            fault: Box::new(fault),
            view: Box::new(view.clone()),
            state: self.state.clone(),
        })?;
        log.iter().for_each(self.log);
        watch.decided(view, &plan, &log)?;
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
        self.policy.show(view, plan).map_err(Stop::Shadow)?;
        self.meter.start();
        Ok(())
    }

    /// Scores rollouts, writes them down and puts them on the shelf. Also gives the parts of their rewards.
    async fn judge(
        &mut self,
        view: &View,
        samples: Vec<Sample<E::Answer>>,
        watch: &mut impl Watch<E::Answer>,
    ) -> Result<(Vec<Outcome>, Vec<Vec<Part>>), Stop> {
        let verdicts = self.reward.score(&samples).await.map_err(Stop::Reward)?;
        let (outcomes, parts): (Vec<Outcome>, Vec<Vec<Part>>) = samples
            .iter()
            // A rollout without a verdict is unscorable, never lost.
            .zip(verdicts.into_iter().chain(std::iter::repeat(UNSCORABLE)))
            .map(|(s, verdict)| {
                // Nothing that is not finite reaches a policy or the record.
                let finite = |r: &f32| r.is_finite() && s.signals.iter().all(|x| x.is_finite());
                let outcome = Outcome {
                    prompt: s.prompt,
                    position: s.position,
                    reward: verdict.reward.filter(finite),
                    correct: verdict.correct,
                    tokens: s.tokens,
                    truncated: s.truncated,
                    signals: s.signals.clone(),
                };
                (outcome, verdict.parts)
            })
            .unzip();
        if !outcomes.is_empty() {
            let sampled = Sampled::of(&outcomes, outcomes[0].signals.len());
            let line = Rollouts { step: view.step, round: view.round, sampled };
            self.record.write(&Line::Rollouts(Box::new(line)))?;
        }
        let first = self.shelf.add(outcomes.iter().cloned());
        watch.sampled(view, first, &samples, &outcomes, &parts)?;
        let scored =
            (first.0..).map(RolloutId).zip(samples).zip(&outcomes).filter(|(_, o)| o.reward.is_some());
        self.samples.extend(scored.map(|(sample, _)| sample));
        Ok((outcomes, parts))
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
        watch.settled(&settled, &learned)?;
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
