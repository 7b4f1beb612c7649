//! The loop itself: what is done next, and what came of it.

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

/// What a rollout of a prompt costs at most with an answer of so many tokens. Only asked where operations are limited.
pub type Costs<'a> = &'a dyn Fn(PromptId, u32) -> Cost;

/// What never changes in a run.
#[derive(Clone, Debug)]
pub struct Constants {
    /// The run as the policy sees it.
    pub run: Run,
    /// Its seed.
    pub seed: u64,
    /// How rewards become advantages.
    pub scale: Scale,
    /// Bounds on what a plan may put into the record.
    pub bounds: Bounds,
    /// When the model is evaluated; never, if the driver of the loop evaluates it.
    pub every: Option<Every>,
}

/// A run's loop.
#[derive(Debug)]
pub struct Loop {
    /// What never changes.
    pub of: Constants,
    /// What does.
    pub state: State,
    meter: Meter,
    /// What the dearest rollout of the data set costs, once it was asked for.
    dearest: OnceLock<Cost>,
    /// What the policy is shown, and what is new on offer, while it is asked.
    view: Option<(Arc<View>, Vec<Prompt>)>,
    /// Whether something was handed out and did not come back yet.
    pub(crate) out: bool,
}

/// What is done next.
#[derive(Debug)]
pub enum Next {
    /// Ask the policy.
    Decide(Arc<View>),
    /// Sample, and judge.
    Sample(Grant, Round),
    /// Update the model by these rollouts: in the run's own way, or in the one that the batch says.
    Update(Vec<Learned>, Option<Geometry>),
    /// With a lag: this is the batch of the next [`Finish`](Self::Finish), and may be worked on from now on. Nothing
    /// comes back; rollouts are sampled at the weights before it until then.
    Begin(Vec<Learned>, Option<Geometry>),
    /// With a lag: update the model by these rollouts, whose step is settled already.
    Finish(Vec<Learned>, Option<Geometry>),
    /// Evaluate the model.
    Evaluate,
    /// A step is over. It goes to the record.
    Step(Box<StepEnd>),
    /// The run is over. This goes to the record.
    Over(Box<End>),
    /// Nothing, until what was handed out comes back.
    Wait,
}

/// A round of sampling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The step.
    pub step: u32,
    /// The round in it.
    pub round: u32,
    /// Prompts that have buffered rollouts never trained on: more of theirs are a commit, others' a pilot.
    pub buffered: HashSet<PromptId>,
}

/// What a plan came to.
#[derive(Debug)]
pub struct Decided {
    /// It goes to the record.
    pub call: Box<Call>,
    /// Where less was granted than asked for, though something could be.
    pub clipped: Option<Clipped>,
    /// With a lag: what became of the buffered rollouts, and what will be trained on, where the plan ended its step.
    pub settled: Option<(Settled, Vec<Learned>)>,
}

/// Rollouts that were asked for and not all granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clipped {
    /// In this step.
    pub step: u32,
    /// So many were asked for.
    pub asked: u64,
    /// And so many granted.
    pub granted: u64,
    /// Whether that is all that the step's own limit left.
    pub of_step: bool,
}

/// What became of a portion's rollouts.
#[derive(Debug)]
pub struct Took {
    /// They go to the record, if there are any.
    pub rollouts: Option<Box<Rollouts>>,
    /// The first one's number.
    pub first: RolloutId,
    /// Rollouts that the plan's next portion asks for; 0 where no portion is due.
    pub asked: u64,
    /// Where less of it was granted.
    pub clipped: Option<Clipped>,
}

impl Loop {
    /// A loop that begins or goes on at this state, below these ceilings.
    pub fn new(of: Constants, ceilings: Ceilings, state: State) -> Self {
        Self { of, state, meter: Meter::new(ceilings), dearest: OnceLock::new(), view: None, out: false }
    }

    /// What is done next. A grant is handed out once; after a loop was made anew from its state, once more.
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

    /// The work at hand was not finished, and [`next`](Self::next) asks for it again.
    pub fn interrupted(&mut self) {
        self.out = false;
    }

    /// Why the run ends, if it does.
    pub fn reason(&self) -> Reason {
        self.state.ending.unwrap_or(Reason::Steps)
    }

    /// Whether there is nothing left that takes time.
    pub fn is_done(&self) -> bool {
        let state = &self.state;
        let scored = state.scored.as_ref().is_some_and(|(at, _)| *at == state.steps);
        match state.at {
            At::Over => true,
            At::Between | At::Closing => self.is_at_end() && scored,
            _ => false,
        }
    }

    /// Whether no step will come any more, and none waits for its update.
    pub fn is_at_end(&self) -> bool {
        self.has_no_more_steps() && self.state.pending.is_empty()
    }

    /// Whether no step will be opened any more.
    pub(crate) fn has_no_more_steps(&self) -> bool {
        self.state.ending.is_some() || self.state.steps >= self.of.run.steps
    }

    /// Opens a step, or ends the run.
    fn open(&mut self, costs: Costs<'_>) {
        let buffered = self.state.buffer.rollouts();
        let over = self.is_at_end();
        if !over && self.state.ledger.exhausted() {
            // What was paid for and is held may be trained on in one more step.
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

    /// The view of a round, and the prompts in it that the last one did not have. In a step that has run dry there
    /// is nothing left to be granted.
    fn look(&mut self, round: u32, dry: bool, costs: Costs<'_>) -> (Arc<View>, Vec<Prompt>) {
        self.state.pool.top_up(&self.state.buffer);
        let groups = self.state.buffer.groups();
        let left = self.left(groups.iter(), costs);
        // A policy whose contract does not tell of operations leaves no word of them in the record.
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

    /// Takes the answer of the policy of this name. A plan that breaks a rule changes nothing.
    pub fn decided(&mut self, policy: &str, plan: &Plan, costs: Costs<'_>) -> Result<Decided, Broken> {
        let (Some((view, offered)), At::Asking(_)) = (self.view.take(), &self.state.at) else {
            unreachable_turn("a plan")
        };
        let bounds = self.of.bounds.within(&self.of.run);
        // A state that stays as it is takes nothing of the record.
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
                step.portions = Portions::of(order);
                let (grant, clipped) = self.grant(&mut step.portions, costs);
                step.dry = grant.is_empty() && !order.is_empty();
                self.take_off_offer(&grant, &view);
                if spent {
                    self.state.ending = Some(self.state.ending.unwrap_or(Reason::Budget));
                    self.state.at = At::Closing;
                } else if grant.is_empty() {
                    // Passed over or evicted, and nothing else: another round.
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

    /// Prompts that were granted a rollout leave the pool that was shown.
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

    /// Grants the portion that is due, as far as the budget goes by all its measures.
    fn grant(&mut self, portions: &mut Portions, costs: Costs<'_>) -> (Grant, Option<Clipped>) {
        let order = portions.due();
        let open = self.state.ledger.grantable() > 0;
        if let Some(left) = self.left(self.state.buffer.shown(), costs).filter(|_| open) {
            let longest = self.state.ledger.limits().longest;
            let fits = left.of_order(&order, |request| costs(request.prompt, request.longest(longest)));
            // With nothing buffered there is nothing reserved that could come free.
            let free = self.state.buffer.rollouts() == 0 && self.state.pending.is_empty();
            if fits == 0 && !order.is_empty() && free {
                self.state.ledger.close();
            }
            self.state.ledger.leave(Some(fits));
        }
        let (buffer, ledger) = (&self.state.buffer, &mut self.state.ledger);
        let left = u64::from(ledger.budget().step_rollouts);
        let next = |prompt| buffer.next_position(prompt);
        let first = portions.so_far() == 0;
        let grant = if first { ledger.grant(&order, next) } else { ledger.grant_more(&order, next) };
        let (asked, granted) = (total(&order), grant.rollouts());
        portions.granted(granted);
        let clipped = Clipped { step: self.state.steps, asked, granted, of_step: granted == left };
        (grant, (granted < asked).then_some(clipped))
    }

    /// The rollouts that a batch picks, with their advantages.
    fn picked(&self, view: &View, batch: &Batch) -> Vec<Learned> {
        let groups: BTreeMap<PromptId, &Group> = view.groups.iter().map(|g| (g.prompt, g)).collect();
        let mut learned = Vec::new();
        for pick in &batch.picks {
            let Some(group) = groups.get(&pick.prompt) else { continue };
            let advantages = advantage::of_pick(pick, group, self.of.scale);
            for (position, advantage) in pick.positions(group.len()).into_iter().zip(advantages) {
                if let Some(id) = self.state.buffer.rollout(pick.prompt, position) {
                    let age = group.ages[position];
                    learned.push(Learned { id, prompt: pick.prompt, age, advantage });
                }
            }
        }
        learned
    }

    /// Takes the rollouts of a portion, judged, in the order of their grant; `parts` are those of each one's reward.
    /// Then the next portion is granted, or the round is over. What was not granted so changes nothing.
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
        let each = lines.iter().flat_map(|line| std::iter::repeat_n(line.sampling, line.count as usize));
        let came = outcomes.iter().zip(each).map(|(o, sampling)| Outcome { sampling, ..o.clone() });
        let first = self.state.buffer.add(came);
        if self.meter.reached(&self.state.measured) {
            self.state.ledger.close();
        }
        let scored = outcomes.iter().filter(|o| o.reward.is_some()).map(|o| (o.prompt, o.correct));
        step.portions.came(outcomes.len() as u64, scored);
        let asked = total(&step.portions.due());
        // Most plans are served in one portion: what is left is not added up for nothing.
        let more = (asked > 0).then(|| self.grant(&mut step.portions, costs));
        let (more, clipped) = more.map_or((0, None), |(grant, clipped)| (grant.rollouts(), clipped));
        let rollouts = outcomes.first().map(|one| {
            let sampled = Sampled::of(outcomes, one.signals.len());
            Box::new(Rollouts { step: self.state.steps, round: step.round, sampled, more })
        });
        self.state.at = if more == 0 {
            At::Asking(Step { round: step.round + 1, portions: Portions::default(), ..step })
        } else {
            At::Sampling(step)
        };
        Ok(Took { rollouts, first, asked, clipped })
    }

    /// The model was updated, unless there was nothing to update it by, and this is what is told of it.
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

    /// Ends a step: the buffer is settled, and what goes to the record is put together but for what is told of the
    /// update. Also gives whether the model is evaluated after it.
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
            effective: update.rollouts.iter().filter(|rollout| rollout.advantage != 0.0).count() as u64,
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
        // What was short in a view may be there again; and no checkpoint keeps it.
        self.state.ledger.leave(None);
        let due = self.of.every.is_some_and(|every| every.due(self.state.steps, step.before, end.spent));
        (settled, end, due)
    }

    /// The model was evaluated.
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

    /// What stands at the end of the record of a run that is over; an end is normal, or told by its reason.
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

    /// Whether operations are limited.
    pub(crate) fn counts_operations(&self) -> bool {
        self.meter.counts_operations()
    }

    /// What is left below the run's ceilings, if it has any, with these groups in the buffer. All of them may be learned
    /// from, and so are those of updates that are still to be made.
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

    /// Of the rollouts that stayed after they were trained on in this step, how many of the last have to go. What is
    /// buffered may be learned from, and a budget of operations has that set aside: for what was sampled since it was
    /// granted, and for these from now on, as far as it goes.
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

    /// What a prompt's rollout costs with the longest answer.
    fn most(&self, prompt: PromptId, costs: Costs<'_>) -> Cost {
        costs(prompt, self.state.ledger.limits().longest)
    }

    /// What the dearest rollout of the data set costs with the longest answer.
    fn dearest(&self, costs: Costs<'_>) -> Cost {
        *self.dearest.get_or_init(|| {
            let all = (0..self.state.pool.prompts()).map(|prompt| self.most(PromptId(prompt), costs));
            let total = |cost: &Cost| cost.reading + cost.rollout();
            all.max_by(|a, b| total(a).total_cmp(&total(b))).unwrap_or_default()
        })
    }

    /// Closes the ledger where a ceiling is reached, or is so near that no rollout will fit below it, whatever
    /// becomes of the buffered ones.
    pub(crate) fn close(&mut self, costs: Costs<'_>) {
        if self.meter.reached(&self.state.measured) {
            self.state.ledger.close();
        }
        // What updates take that are still to be made is only known at most.
        let known = self.state.pending.is_empty();
        if known && self.left([].iter(), costs).is_some_and(|left| left.is_nothing()) {
            self.state.ledger.close();
        }
    }
}

/// The loop got an outcome that it did not ask for: a bug of its driver.
pub(crate) fn unreachable_turn(what: &str) -> ! {
    unreachable!("{what} came out of turn")
}
