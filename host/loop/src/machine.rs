//! The state machine: next actions and their results.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use allot_allocation::advantage::{self, Scale};
use allot_allocation::rules::{self, Bounds, Broken};
use allot_allocation::{
    Action, Batch, Budget, Ceilings, Cost, Fault, Geometry, Grant, Group, Outcome, Plan, Portions, Prompt,
    PromptId, RolloutId, Run, Settled, View, seed, total,
};
use allot_record::{Call, End, Rollouts, Sampled, StateChange, StepEnd};

use crate::{At, Every, Learned, Left, Meter, Pending, Reason, Scores, State, Step, Update};

/// The maximum cost of a rollout, by prompt and answer length. Called only if operations are limited.
pub type Costs<'a> = &'a dyn Fn(PromptId, u32) -> Cost;

/// The constants of a run.
#[derive(Clone, Debug)]
pub struct Constants {
    /// The run as the policy sees it.
    pub run: Run,
    /// The run's seed.
    pub seed: u64,
    /// How rewards become advantages.
    pub scale: Scale,
    /// Limits on a plan.
    pub bounds: Bounds,
    /// When to evaluate the model. `None` if the driver evaluates by itself.
    pub every: Option<Every>,
    /// How often a plan's request is served again the rollouts that it lost to their environment.
    pub retries: u32,
}

/// The loop of a run.
#[derive(Debug)]
pub struct Loop {
    /// The constants.
    pub of: Constants,
    /// The state.
    pub state: State,
    meter: Meter,
    /// Cost of the data set's most expensive rollout, once computed.
    dearest: OnceLock<Cost>,
    /// The view of the current call, with the prompts that are new in the pool.
    view: Option<(Arc<View>, Vec<Prompt>)>,
    /// Whether an action was returned whose result is still missing.
    pub(crate) out: bool,
}

/// The next action.
#[derive(Debug)]
pub enum Next {
    /// Call the policy.
    Decide(Arc<View>),
    /// Sample the grant, and grade the answers.
    Sample(Grant, Round),
    /// Update the model on these rollouts, with the batch's geometry if given, else with the run's.
    Update(Vec<Learned>, Option<Geometry>),
    /// With a lag: the batch of the next [`Finish`](Self::Finish), which the engine may start to work on.
    /// It has no result. Until `Finish`, rollouts are sampled at the weights before this update.
    Begin(Vec<Learned>, Option<Geometry>),
    /// With a lag: update the model on these rollouts. Their step is settled already.
    Finish(Vec<Learned>, Option<Geometry>),
    /// Evaluate the model.
    Evaluate,
    /// Record the end of a step.
    Step(Box<StepEnd>),
    /// Record the end of the run.
    Over(Box<End>),
    /// Wait for the result of the last action.
    Wait,
}

/// A round of sampling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The step.
    pub step: u32,
    /// The round in it.
    pub round: u32,
    /// Prompts with buffered, untrained rollouts. More rollouts of them are a commit; of others, a pilot.
    pub buffered: HashSet<PromptId>,
}

/// The result of a plan.
#[derive(Debug)]
pub struct Decided {
    /// The line of the record.
    pub call: Box<Call>,
    /// Set if fewer rollouts were granted than requested, although the budget was not exhausted.
    pub clipped: Option<Clipped>,
    /// With a lag, if the plan ended its step: the changes to the buffer, and the rollouts to train on.
    pub settled: Option<(Settled, Vec<Learned>)>,
}

/// Rollouts that were requested and not all granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clipped {
    /// In this step.
    pub step: u32,
    /// Number requested.
    pub asked: u64,
    /// Number granted.
    pub granted: u64,
    /// Whether the step's own limit allowed no more.
    pub of_step: bool,
}

/// The result of sampling a portion.
#[derive(Debug)]
pub struct Took {
    /// The line of the record. `None` if there were no rollouts.
    pub rollouts: Option<Box<Rollouts>>,
    /// The number of the first rollout.
    pub first: RolloutId,
    /// Rollouts requested in the plan's next portion. 0 if there is none.
    pub asked: u64,
    /// Set if fewer were granted than requested.
    pub clipped: Option<Clipped>,
}

impl Loop {
    /// Returns a loop that starts or continues at this state, under these limits.
    pub fn new(of: Constants, ceilings: Ceilings, state: State) -> Self {
        Self { of, state, meter: Meter::new(ceilings), dearest: OnceLock::new(), view: None, out: false }
    }

    /// Returns the next action. A grant is returned once, and again after the loop is restored.
    pub fn next(&mut self, costs: Costs<'_>) -> Next {
        if self.out {
            return Next::Wait;
        }
        loop {
            match &self.state.at {
                At::Between => match self.next_of_pending(costs) {
                    Some(next) => return next,
                    None => self.open(costs),
                },
                At::Asking(step) => {
                    let (round, dry) = (step.round, step.dry);
                    let (view, offered) = match self.view.take() {
                        Some(shown) => shown,
                        None => self.look(round, dry, costs),
                    };
                    self.view = Some((Arc::clone(&view), offered));
                    return Next::Decide(view);
                }
                At::Sampling(step) => {
                    let round = step.round;
                    self.out = true;
                    let buffered = self.state.buffer.prompts_before(step.portions.so_far()).collect();
                    let grant = self.state.ledger.reissue();
                    return Next::Sample(grant, Round { step: self.state.steps, round, buffered });
                }
                At::Updating(_, update) => {
                    self.out = true;
                    return Next::Update(update.rollouts.clone(), update.batch.update);
                }
                At::Evaluating(_) => return Next::Evaluate,
                At::Ended(_) => {
                    if let At::Ended(end) = std::mem::replace(&mut self.state.at, At::Between) {
                        return Next::Step(end);
                    }
                }
                At::Closing if !self.state.pending.is_empty() => {
                    return self.finish().unwrap_or(Next::Wait);
                }
                At::Closing => match &self.state.scored {
                    Some((at, _)) if *at == self.state.steps => self.state.at = At::Over,
                    _ if self.of.every.is_none() => self.state.at = At::Over,
                    _ => return Next::Evaluate,
                },
                At::Over => {
                    return Next::Over(self.end(self.reason().to_string(), true));
                }
            }
        }
    }

    /// Records that the last action was interrupted, so that [`next`](Self::next) returns it again.
    pub fn interrupted(&mut self) {
        self.out = false;
    }

    /// Returns the reason why the run ends. If none is set yet, returns [`Reason::Steps`].
    pub fn reason(&self) -> Reason {
        self.state.ending.unwrap_or(Reason::Steps)
    }

    /// Returns whether no time-consuming work is left.
    pub fn is_done(&self) -> bool {
        let state = &self.state;
        let scored = state.scored.as_ref().is_some_and(|(at, _)| *at == state.steps);
        match state.at {
            At::Over => true,
            At::Between | At::Closing => self.is_at_end() && scored,
            _ => false,
        }
    }

    /// Returns whether no further step will open and no update is pending.
    pub fn is_at_end(&self) -> bool {
        self.has_no_more_steps() && self.state.pending.is_empty()
    }

    /// Returns whether no further step will open.
    pub(crate) fn has_no_more_steps(&self) -> bool {
        self.state.ending.is_some() || self.state.steps >= self.of.run.steps
    }

    /// Opens a step, or ends the run.
    fn open(&mut self, costs: Costs<'_>) {
        let buffered = self.state.buffer.rollouts();
        let over = self.is_at_end();
        if !over && self.state.ledger.exhausted() {
            // Held rollouts that are paid for may be trained on in one more step.
            self.state.ending = Some(Reason::Budget);
        }
        let evicted = self.state.pool.is_spent();
        if !over && buffered == 0 && evicted && self.state.ending.is_none() {
            self.state.ending = Some(Reason::Evicted);
        }
        if over || buffered == 0 && (evicted || self.state.ending.is_some()) {
            self.state.at = At::Closing;
            return;
        }
        self.state.ledger.open_step();
        self.state.buffer.open_step();
        self.close(costs);
        self.state.at = At::Asking(Step { before: self.state.ledger.spent(), ..Step::default() });
    }

    /// Returns the view of a round, and the prompts in it that are new. In a step with `dry` set, the view
    /// has no rollouts left if the run limits operations or seconds.
    fn look(&mut self, round: u32, dry: bool, costs: Costs<'_>) -> (Arc<View>, Vec<Prompt>) {
        self.state.pool.top_up(&self.state.buffer);
        let groups = self.state.buffer.groups();
        let left = self.left(groups.iter(), costs);
        // The record omits operations if the policy's contract does not include them.
        let flops = left.and_then(|left| left.flops()).filter(|_| self.of.run.terms.is_some());
        let spare = left.map(|left| match (dry, self.of.run.any_prompt()) {
            (true, _) => 0,
            (false, Some(_)) => left.in_any_case(std::iter::once(self.dearest(costs))),
            (false, None) => {
                let offered = self.state.pool.offered().iter().map(|prompt| prompt.id);
                let prompts = offered.chain(groups.iter().map(|group| group.prompt));
                left.in_any_case(prompts.map(|prompt| self.most(prompt, costs)))
            }
        });
        self.state.ledger.leave(spare);
        let view = View {
            step: self.state.steps,
            round,
            seed: seed::policy(self.of.seed, self.state.steps, round),
            budget: Budget { run_flops: flops, ..self.state.ledger.budget() },
            pool: self.state.pool.offered().to_vec(),
            groups,
            unscored: self.state.buffer.unscored(),
            history: self.state.pool.history().clone(),
        };
        (Arc::new(view), self.state.pool.newly_offered().to_vec())
    }

    /// Takes the plan of the policy with this name. A plan that breaks a rule changes nothing.
    pub fn decided(&mut self, policy: &str, plan: &Plan, costs: Costs<'_>) -> Result<Decided, Broken> {
        let (Some((view, offered)), At::Asking(_)) = (self.view.take(), &self.state.at) else {
            unreachable_turn("a plan")
        };
        let bounds = self.of.bounds.within(&self.of.run);
        // An unchanged state takes no space in the record.
        let checked = rules::check(policy, &view, plan, bounds).and_then(|()| {
            let changed = StateChange::of(&self.state.policy, &plan.state);
            let bytes = changed.as_ref().map_or(0, StateChange::bytes);
            let left = bounds.states.saturating_sub(self.state.written);
            rules::check_record(policy, &view, bytes, left).map(|()| (changed, bytes))
        });
        let (changed, bytes) = match checked {
            Ok(changed) => changed,
            Err(broken) => {
                self.view = Some((view, offered));
                return Err(broken);
            }
        };
        let At::Asking(mut step) = std::mem::replace(&mut self.state.at, At::Between) else {
            unreachable_turn("a plan")
        };
        self.state.policy.clone_from(&plan.state);
        self.state.written += bytes;
        self.state.pool.evict(&plan.evict);
        self.state.pool.take(plan.skip.iter().copied());
        self.state.pool.defer(&plan.defer);
        let mut settled = None;
        let (granted, clipped) = match &plan.action {
            Action::Sample(order) => {
                let spent = self.state.ledger.grantable() == 0;
                step.portions = Portions::of(order, self.of.retries);
                let (grant, clipped) = self.grant(&mut step.portions, costs);
                step.dry = grant.is_empty() && !order.is_empty();
                self.take_off_offer(&grant, &view);
                if spent {
                    self.state.ending = Some(self.state.ending.unwrap_or(Reason::Budget));
                    self.state.at = At::Closing;
                } else if grant.is_empty() {
                    // Nothing was granted: ask again in another round.
                    step.round += 1;
                    self.state.at = At::Asking(step);
                } else {
                    self.state.at = At::Sampling(step);
                }
                (grant.rollouts(), clipped.filter(|_| !spent))
            }
            Action::Train(batch) => {
                let rollouts = self.picked(&view, batch);
                let update = Update { batch: batch.clone(), rollouts };
                if self.of.run.lag == 0 {
                    self.state.at = At::Updating(step, update);
                } else {
                    let rollouts = update.rollouts.clone();
                    settled = Some((self.put_off(step, update, costs), rollouts));
                }
                (0, None)
            }
        };
        let mut call = Box::new(Call::of(&view, plan, changed, offered, granted));
        call.unaffordable =
            self.state.pending.back().filter(|_| settled.is_some()).map_or(0, Pending::unaffordable);
        Ok(Decided { call, clipped, settled })
    }

    /// Removes granted prompts from the pool and announces their rollouts to the buffer.
    fn take_off_offer(&mut self, grant: &Grant, view: &View) {
        let offered: HashMap<PromptId, u32> =
            view.pool.iter().map(|prompt| (prompt.id, prompt.epoch)).collect();
        let newest = self.state.pool.newest();
        for line in grant.lines() {
            let epoch = offered.get(&line.prompt).copied().unwrap_or(newest);
            self.state.buffer.expect(line.prompt, epoch);
        }
        self.state.pool.take(grant.lines().iter().map(|line| line.prompt));
    }

    /// Grants the due portion, as far as all limits allow.
    fn grant(&mut self, portions: &mut Portions, costs: Costs<'_>) -> (Grant, Option<Clipped>) {
        let order = portions.due();
        let open = self.state.ledger.grantable() > 0;
        if let Some(left) = self.left(self.state.buffer.shown(), costs).filter(|_| open) {
            let longest = self.state.ledger.limits().longest;
            let fits = left.of_order(&order, |request| costs(request.prompt, request.longest(longest)));
            // With nothing buffered or pending, no reserved operations can become free.
            let free = self.state.buffer.rollouts() == 0 && self.state.pending.is_empty();
            if fits == 0 && !order.is_empty() && free {
                self.state.ledger.close();
            }
            self.state.ledger.leave(Some(fits));
        }
        let (buffer, ledger) = (&self.state.buffer, &mut self.state.ledger);
        let left = u64::from(ledger.budget().step_rollouts);
        let next = |prompt| (buffer.next_position(prompt), buffer.begun(prompt));
        let first = portions.so_far() == 0;
        let grant = if first { ledger.grant(&order, next) } else { ledger.grant_more(&order, next) };
        let (asked, granted) = (total(&order), grant.rollouts());
        portions.granted(granted);
        let clipped = Clipped { step: self.state.steps, asked, granted, of_step: granted == left };
        (grant, (granted < asked).then_some(clipped))
    }

    /// Returns the rollouts picked by a batch, with their advantages.
    fn picked(&self, view: &View, batch: &Batch) -> Vec<Learned> {
        let groups: BTreeMap<PromptId, &Group> = view.groups.iter().map(|g| (g.prompt, g)).collect();
        let mut learned = Vec::new();
        for pick in &batch.picks {
            let Some(group) = groups.get(&pick.prompt) else { continue };
            let advantages = advantage::of_pick(pick, group, self.of.scale);
            let by_turn = advantage::by_turn(pick).into_iter().chain(std::iter::repeat_with(Vec::new));
            let picked = pick.positions(group.len()).into_iter().zip(advantages.into_iter().zip(by_turn));
            for (position, (advantage, by_turn)) in picked {
                if let Some(id) = self.state.buffer.rollout(pick.prompt, position) {
                    let age = group.ages[position];
                    learned.push(Learned { id, prompt: pick.prompt, age, advantage, by_turn });
                }
            }
        }
        learned
    }

    /// Takes a portion's graded rollouts, in the order of the grant. `parts` has each reward's components.
    /// Grants the next portion, or ends the round. Changes nothing if rollouts and grant differ.
    pub fn sampled(
        &mut self,
        outcomes: &[Outcome],
        parts: &[Vec<(String, f32)>],
        costs: Costs<'_>,
    ) -> Result<Took, Fault> {
        let At::Sampling(_) = self.state.at else { unreachable_turn("rollouts") };
        let lines = self.state.ledger.open().to_vec();
        self.state.ledger.charge(outcomes.iter().map(|o| (o.prompt, o.position, o.tokens)))?;
        self.out = false;
        let At::Sampling(mut step) = std::mem::replace(&mut self.state.at, At::Between) else {
            unreachable_turn("rollouts")
        };
        outcomes.iter().filter_map(|o| o.reward).for_each(|r| step.rewards.add(f64::from(r)));
        for (name, x) in parts.iter().flatten() {
            match step.parts.get_mut(name) {
                Some(mean) => mean.add(f64::from(*x)),
                None => step.parts.entry(name.clone()).or_default().add(f64::from(*x)),
            }
        }
        let each = lines.iter().flat_map(|line| line.rollouts().map(|(_, start)| (line.sampling, start)));
        let came = outcomes.iter().zip(each);
        let came: Vec<Outcome> =
            came.map(|(o, (sampling, start))| Outcome { sampling, start, ..o.clone() }).collect();
        let lost: Vec<_> = came.iter().filter(|o| o.is_lost()).map(|o| (o.prompt, o.start)).collect();
        let sampled = came.first().map(|one| Sampled::of(&came, one.signals.len()));
        let first = self.state.buffer.add(came);
        if self.meter.reached(&self.state.measured) {
            self.state.ledger.close();
        }
        let scored = outcomes.iter().filter(|o| o.reward.is_some()).map(|o| (o.prompt, o.correct));
        step.portions.came(outcomes.len() as u64, scored, lost);
        let asked = total(&step.portions.due());
        // Skip this for plans served in one portion, as most are: computing what is left takes time.
        let more = (asked > 0).then(|| self.grant(&mut step.portions, costs));
        let (more, clipped) = more.map_or((0, None), |(grant, clipped)| (grant.rollouts(), clipped));
        let (at, round) = (self.state.steps, step.round);
        let rollouts = sampled.map(|sampled| Box::new(Rollouts { step: at, round, sampled, more }));
        self.state.at = if more == 0 {
            At::Asking(Step { round: step.round + 1, portions: Portions::default(), ..step })
        } else {
            At::Sampling(step)
        };
        Ok(Took { rollouts, first, asked, clipped })
    }

    /// Takes the result of an update: whether the model changed, and the engine's metrics.
    pub fn updated(&mut self, updated: bool, metrics: Vec<(String, f64)>, costs: Costs<'_>) -> Settled {
        let At::Updating(step, update) = std::mem::replace(&mut self.state.at, At::Between) else {
            unreachable_turn("an update")
        };
        self.out = false;
        let (settled, mut end, due) = self.settle(step, &update, updated, costs);
        end.metrics = metrics;
        self.state.buffer.made(updated);
        self.state.version += u32::from(updated);
        self.close(costs);
        self.state.at = if due { At::Evaluating(Box::new(end)) } else { At::Ended(Box::new(end)) };
        settled
    }

    /// Ends a step: settles the buffer and makes the step's line, without the update's metrics. Also
    /// returns whether the model is evaluated after the step.
    pub(crate) fn settle(
        &mut self,
        step: Step,
        update: &Update,
        updated: bool,
        costs: Costs<'_>,
    ) -> (Settled, StepEnd, bool) {
        let flat: HashSet<RolloutId> = self.state.buffer.flat().collect();
        let mut settled = self.state.buffer.settle(&update.batch, updated, self.of.run.max_age);
        let unaffordable = self.unaffordable(&settled, costs);
        self.state.buffer.give_up(&mut settled, unaffordable);
        self.state.pool.remember(self.state.steps, &settled.visits);
        let mut ages = crate::Mean::default();
        update.rollouts.iter().for_each(|rollout| ages.add(f64::from(rollout.age)));
        let end = StepEnd {
            step: self.state.steps,
            updated,
            groups: update.batch.picks.len() as u64,
            trained: settled.trained.len() as u64,
            again: settled.again,
            unaffordable,
            effective: update.rollouts.iter().filter(|rollout| rollout.is_effective()).count() as u64,
            released: settled.released.len() as u64,
            flat: settled.released.iter().filter(|id| flat.contains(id)).count() as u64,
            stale: settled.stale.len() as u64,
            held: settled.held,
            mean_age: ages.mean(),
            reward: step.rewards.mean(),
            rewards: step.parts.into_iter().map(|(name, part)| (name, part.mean())).collect(),
            spent: self.state.ledger.spent(),
            compute: self.state.measured.compute,
            ..StepEnd::default()
        };
        self.state.steps += 1;
        // The limit set for the last view no longer applies, and checkpoints do not store it.
        self.state.ledger.leave(None);
        let due = self.of.every.is_some_and(|every| every.due(self.state.steps, step.before, end.spent));
        (settled, end, due)
    }

    /// Takes the result of an evaluation.
    pub fn evaluated(&mut self, scores: Scores) {
        self.state.at = match std::mem::replace(&mut self.state.at, At::Between) {
            At::Evaluating(mut end) => {
                end.accuracy = Some(scores.accuracy);
                end.scores.clone_from(&scores.parts);
                end.evaluated = scores.spent;
                At::Ended(end)
            }
            other => other,
        };
        self.state.scored = Some((self.state.finished(), scores));
    }

    /// Returns the record's last line. `reason` says why the run ended; `normal` is false if it failed.
    pub fn end(&self, reason: String, normal: bool) -> Box<End> {
        let scores = self.state.scored.as_ref().filter(|(at, _)| normal && *at == self.state.steps);
        let scores = scores.map(|(_, scores)| scores.clone());
        Box::new(End {
            reason,
            normal,
            steps: self.state.finished(),
            spent: self.state.ledger.spent(),
            compute: self.state.measured.compute,
            accuracy: scores.as_ref().map(|s| s.accuracy),
            scores: scores.as_ref().map(|s| s.parts.clone()).unwrap_or_default(),
            evaluated: scores.and_then(|s| s.spent),
        })
    }

    /// Returns whether operations are limited.
    pub(crate) fn counts_operations(&self) -> bool {
        self.meter.counts_operations()
    }

    /// Returns the amounts left under the run's limits, if there are any. Reserves the cost of training on
    /// all of these groups and of all pending updates.
    pub(crate) fn left<'a>(&self, groups: impl Iterator<Item = &'a Group>, costs: Costs<'_>) -> Option<Left> {
        let learning =
            |group: &Group| group.tokens.iter().map(|n| costs(group.prompt, *n).learning).sum::<f64>();
        let cheapest = || {
            let all = (0..self.state.pool.prompts()).map(|prompt| self.most(PromptId(prompt), costs));
            all.map(|cost| cost.reading + cost.rollout()).fold(f64::INFINITY, f64::min)
        };
        let sampled = self.state.ledger.spent().run_rollouts;
        let reserved = || groups.map(learning).sum::<f64>() + self.reserved();
        self.meter.left(&self.state.measured, sampled, reserved, cheapest)
    }

    /// Returns how many rollouts that stay after training must be discarded, from the end of the batch. The
    /// limit on operations reserves the cost of training on all buffered rollouts. That cost was reserved
    /// for new rollouts by their grant; for these it is reserved from now on, as far as possible.
    fn unaffordable(&self, settled: &Settled, costs: Costs<'_>) -> u64 {
        if settled.kept.is_empty() {
            return 0;
        }
        let left = self.left(self.state.buffer.shown(), costs);
        let mut short = left.map_or(0.0, |left| left.short());
        let kept = self.state.buffer.find(&settled.kept);
        let mut gone = 0;
        for (prompt, tokens) in settled.kept.iter().rev().filter_map(|id| kept.get(id)) {
            if short <= 0.0 {
                break;
            }
            short -= costs(*prompt, *tokens).learning;
            gone += 1;
        }
        gone
    }

    /// Returns the cost of a prompt's rollout with the longest answer.
    fn most(&self, prompt: PromptId, costs: Costs<'_>) -> Cost {
        costs(prompt, self.state.ledger.limits().longest)
    }

    /// Returns the cost of the data set's most expensive rollout, with the longest answer.
    fn dearest(&self, costs: Costs<'_>) -> Cost {
        *self.dearest.get_or_init(|| {
            let all = (0..self.state.pool.prompts()).map(|prompt| self.most(PromptId(prompt), costs));
            let total = |cost: &Cost| cost.reading + cost.rollout();
            all.max_by(|a, b| total(a).total_cmp(&total(b))).unwrap_or_default()
        })
    }

    /// Closes the ledger if a limit is reached, or if no further rollout fits even if no buffered rollout
    /// is trained on.
    pub(crate) fn close(&mut self, costs: Costs<'_>) {
        if self.meter.reached(&self.state.measured) {
            self.state.ledger.close();
        }
        // For pending updates only the maximum cost is known.
        let known = self.state.pending.is_empty();
        if known && self.left([].iter(), costs).is_some_and(|left| left.is_nothing()) {
            self.state.ledger.close();
        }
    }
}

/// Panics: the driver passed a result that the loop did not request, which is a bug of the driver.
pub(crate) fn unreachable_turn(what: &str) -> ! {
    unreachable!("{what} came out of turn")
}
