//! Plans that nobody would write, against the rules and the ledger: a loop under a policy of dice, in this process. A second
//! set of books, kept here, says what was sampled, what it cost and what became of it; it never passes what a run may spend.

use std::collections::{BTreeMap, BTreeSet};

use allot_allocation::advantage::Scale;
use allot_allocation::rules::Bounds;
use allot_allocation::{
    Action, Advantage, Batch, Ceilings, Compute, Cost, Enough, Flops, Geometry, Grant, Hold, Ledger, Limits,
    Need, Order, Outcome, Pick, Plan, Pool, PromptId, Request, RolloutBuffer, RolloutId, Run, SamplerRange,
    SamplerSettings, Settled, Stopped, Terms, View,
};
use allot_base::Result;
use allot_loop::{At, Constants, Every, Learned, Loop, Next, Scores, State};

use crate::{Chance, Class, Outcome as Ended, Place};

/// In a row, after which a policy of dice gives the plainest plan there is.
const REFUSED: u32 = 4;

pub struct Plans;

impl Class for Plans {
    fn name(&self) -> &'static str {
        "plans"
    }

    fn prepare(&mut self, _: &Place<'_>) -> Result<()> {
        Ok(())
    }

    /// A run: its plans are the cases.
    fn case(&self, _: &Place<'_>, chance: &mut Chance) -> Result<Ended> {
        let run = std::panic::AssertUnwindSafe(|| whole_run(chance));
        let ended =
            std::panic::catch_unwind(run).unwrap_or_else(|_| Err("it panicked, see above".to_owned()));
        Ok(match ended {
            // A budget may be too small for any plan.
            Ok(counts) if counts.is_empty() => Ended::Kept("none".to_owned()),
            Ok(counts) => Ended::Many(counts),
            Err(broken) => Ended::Broken(broken),
        })
    }
}

/// What a rollout costs. Whole numbers, so that sums do not depend on their order.
fn costs(prompt: PromptId, tokens: u32) -> Cost {
    Cost { reading: f64::from(prompt.0 % 7), answering: f64::from(tokens), learning: 3.0 * f64::from(tokens) }
}

/// The second set of books.
#[derive(Default)]
struct Books {
    rollouts: u64,
    tokens: u64,
    flops: f64,
    step_rollouts: u64,
    rounds: u32,
    /// What may be trained on: each rollout's tokens.
    buffered: BTreeMap<RolloutId, u32>,
    /// Trained on already.
    trained: BTreeSet<RolloutId>,
}

/// A promise that was broken.
fn promise(kept: bool, what: impl FnOnce() -> String) -> std::result::Result<(), String> {
    if kept { Ok(()) } else { Err(what()) }
}

fn whole_run(chance: &mut Chance) -> std::result::Result<BTreeMap<String, u64>, String> {
    let (run, flops) = fresh(chance);
    let mut refused = 0;
    driven(run, flops, chance, &mut |run, view, told, chance| {
        refused = if told.is_some() { refused + 1 } else { 0 };
        match told {
            Some(broken) if refused > REFUSED => Err(format!("an empty plan was refused: {broken}")),
            _ if refused == REFUSED => Ok(Some(Plan::of(Action::Train(Batch::default())))),
            _ => Ok(Some(dice(view, &run.of.run, chance))),
        }
    })
}

/// Who decides: by the run, what it is shown, and what was said of its last plan if that broke a rule. None ends the run;
/// an error is a promise that was broken.
pub type Decides<'d> =
    dyn FnMut(&Loop, &View, Option<&str>, &mut Chance) -> std::result::Result<Option<Plan>, String> + 'd;

/// A run under whoever decides, with a second set of books. How many plans were taken and refused.
pub fn driven(
    mut run: Loop,
    flops: Option<f64>,
    chance: &mut Chance,
    decides: &mut Decides<'_>,
) -> std::result::Result<BTreeMap<String, u64>, String> {
    let (mut books, mut counts, mut refused) = (Books::default(), BTreeMap::new(), None::<String>);
    loop {
        match run.next(&costs) {
            Next::Decide(view) => {
                if view.round == 0 && refused.is_none() {
                    (books.step_rollouts, books.rounds) = (0, 0);
                }
                let Some(plan) = decides(&run, &view, refused.as_deref(), chance)? else {
                    return Ok(counts);
                };
                let before = (chance.below(8) == 0).then(|| text(&run));
                match run.decided("dice", &plan, &costs) {
                    Err(broken) => {
                        promise(before.is_none_or(|before| before == text(&run)), || {
                            format!("a plan that was refused ({broken}) changed the run")
                        })?;
                        promise(!broken.to_string().is_empty(), || "a rule has no words".to_owned())?;
                        refused = Some(broken.to_string());
                        *counts.entry("refused".to_owned()).or_default() += 1;
                    }
                    Ok(decided) => {
                        refused = None;
                        *counts.entry("taken".to_owned()).or_default() += 1;
                        promise(decided.call.granted <= decided.call.asked, || {
                            format!("{} of {} granted", decided.call.granted, decided.call.asked)
                        })?;
                        if let Some((settled, learned)) = decided.settled {
                            books.settle(&run.of.run, &settled, &learned)?;
                        }
                    }
                }
            }
            Next::Sample(grant, _) => books.sample(&mut run, &grant, chance)?,
            Next::Update(learned, _) => {
                let took = books.learn(&learned)?;
                run.state.measured.compute.flops.training += took;
                let settled = run.updated(!learned.is_empty(), Vec::new(), &costs);
                books.settle(&run.of.run, &settled, &learned)?;
            }
            Next::Finish(learned, _) => {
                let took: f64 = learned.iter().map(|learned| books.learning(learned.id)).sum();
                books.flops += took;
                let flops = Flops { training: took, ..Flops::default() };
                run.finished(Vec::new(), Compute { flops, ..Compute::default() }, &costs);
            }
            Next::Evaluate => run.evaluated(Scores::default()),
            Next::Begin(..) | Next::Step(_) => {}
            Next::Over(end) => {
                promise(end.normal, || "a run of plans ended otherwise than normally".to_owned())?;
                promise(run.state.pending.is_empty(), || "an update was decided on and not made".to_owned())?;
                return Ok(counts);
            }
            Next::Wait => return Err("the loop waits for nothing".to_owned()),
        }
        books.within(&run, flops)?;
    }
}

impl Books {
    /// What was granted is sampled and charged: answers of any length that may be.
    fn sample(
        &mut self,
        run: &mut Loop,
        grant: &Grant,
        chance: &mut Chance,
    ) -> std::result::Result<(), String> {
        let longest = run.of.run.terms.as_ref().map_or(1, |terms| terms.max_tokens);
        let mut told = Vec::new();
        for line in grant.lines() {
            promise(line.prompt.0 < run.of.run.prompts, || format!("prompt {} is granted", line.prompt.0))?;
            self.flops += costs(line.prompt, 0).reading;
            run.state.measured.compute.flops.prefill += costs(line.prompt, 0).reading;
            for position in line.first..line.first + line.count {
                let most = line.sampling.map_or(longest, |own| own.max_tokens.min(longest));
                // The longest are the ones that a budget has to make room for.
                let tokens = if chance.below(3) == 0 { most } else { 1 + chance.below(most as usize) as u32 };
                let right = chance.below(2) == 0;
                let reward = (chance.below(12) > 0).then_some(f32::from(u8::from(right)));
                // Half of what can't be scored was lost to its environment, and may be drawn again.
                let stopped = (reward.is_none() && chance.below(2) == 0).then_some(Stopped::EnvironmentError);
                told.push(Outcome {
                    tokens,
                    reward,
                    stopped,
                    ..Outcome::of(line.prompt, position, 0.0, right)
                });
                self.tokens += u64::from(tokens);
                self.flops += costs(line.prompt, tokens).answering;
                run.state.measured.compute.flops.decode += f64::from(tokens);
            }
        }
        self.rollouts += told.len() as u64;
        self.step_rollouts += told.len() as u64;
        let (took, next) = (run.sampled(&told, &[], &costs).map_err(|fault| fault.to_string())?, 0..);
        for (outcome, n) in told.iter().zip(next) {
            if outcome.reward.is_some() {
                self.buffered.insert(RolloutId(took.first.0 + n), outcome.tokens);
            }
        }
        self.rounds += u32::from(!matches!(run.state.at, At::Sampling(_)));
        Ok(())
    }

    /// Operations that learning from a rollout takes.
    fn learning(&self, id: RolloutId) -> f64 {
        self.buffered.get(&id).map_or(0.0, |tokens| 3.0 * f64::from(*tokens))
    }

    /// What an update that is made at once takes.
    fn learn(&mut self, learned: &[Learned]) -> std::result::Result<f64, String> {
        for one in learned {
            promise(self.buffered.contains_key(&one.id), || {
                format!("rollout {} is trained on, and not buffered", one.id.0)
            })?;
            promise(one.advantage.is_finite(), || {
                format!("rollout {} has the advantage {}", one.id.0, one.advantage)
            })?;
        }
        let took: f64 = learned.iter().map(|one| self.learning(one.id)).sum();
        self.flops += took;
        Ok(took)
    }

    /// What became of the buffered rollouts: each of them one thing.
    fn settle(
        &mut self,
        run: &Run,
        settled: &Settled,
        learned: &[Learned],
    ) -> std::result::Result<(), String> {
        promise(settled.trained.len() == learned.len(), || {
            "another number was trained on than picked".to_owned()
        })?;
        let replay = run.gives(Need::Replay);
        for id in &settled.trained {
            let first = self.trained.insert(*id);
            promise(first || replay, || format!("rollout {} is trained on twice", id.0))?;
        }
        let kept: BTreeSet<_> = settled.kept.iter().collect();
        for id in settled.finished.iter().chain(&settled.released).chain(&settled.stale) {
            promise(!kept.contains(id), || format!("rollout {} is kept and gone", id.0))?;
            // With a lag its update is still to be made, and takes what it takes.
            if run.lag == 0 {
                promise(self.buffered.remove(id).is_some(), || format!("rollout {} is gone twice", id.0))?;
            }
        }
        if run.lag == 0 {
            let there = self.buffered.len() as u64;
            promise(settled.held == there, || {
                format!("{} rollouts are held, and {there} are buffered", settled.held)
            })?;
        }
        Ok(())
    }

    /// Nothing is ever overrun.
    fn within(&self, run: &Loop, flops: Option<f64>) -> std::result::Result<(), String> {
        let (limits, spent) = (run.state.ledger.limits(), run.state.ledger.spent());
        let over = |what: &str, n: u64, most: Option<u64>| {
            promise(most.is_none_or(|most| n <= most), || format!("{n} {what} of {most:?}"))
        };
        over("rollouts", self.rollouts, limits.run_rollouts)?;
        over("tokens", self.tokens, limits.run_tokens)?;
        over("rollouts in a step", self.step_rollouts, limits.step_rollouts.map(u64::from))?;
        // The ledger counts rounds in which nothing was granted, too.
        let rounds = self.rounds.max(spent.rounds);
        over("rounds in a step", u64::from(rounds), Some(u64::from(limits.rounds)))?;
        promise(flops.is_none_or(|most| self.flops <= most), || {
            format!("{} operations of {flops:?}", self.flops)
        })?;
        let same = (spent.run_rollouts, spent.run_tokens) == (self.rollouts, self.tokens);
        promise(same, || {
            format!(
                "the ledger has {spent:?}; {} rollouts and {} tokens were sampled",
                self.rollouts, self.tokens
            )
        })
    }
}

/// The loop as a checkpoint would keep it.
fn text(run: &Loop) -> String {
    serde_json::to_string(&run.state).unwrap_or_default()
}

/// A run of any shape, and its ceiling of operations.
pub fn fresh(chance: &mut Chance) -> (Loop, Option<f64>) {
    let mut some = |most: usize| 1 + chance.below(most) as u32;
    let (prompts, longest) = (some(30), some(12));
    let sampler = |temperature, max_tokens| SamplerSettings { temperature, max_tokens, max_turns: 1 };
    let requests = SamplerRange { least: sampler(0.5, 1), most: sampler(1.5, longest) };
    let mut run = Run {
        settings: Vec::new(),
        prompts,
        steps: some(8),
        groups: some(5),
        rollouts: some(5),
        pool: some(12),
        max_age: some(5) - 1,
        lag: some(6).saturating_sub(4),
        terms: None,
    };
    let limits = Limits {
        rounds: some(5),
        step_rollouts: Some(some(60)),
        run_rollouts: None,
        run_tokens: None,
        longest,
    };
    let mut maybe = |most: usize| (chance.below(2) == 0).then(|| 1 + chance.below(most) as u64);
    let limits = Limits { run_rollouts: maybe(300), run_tokens: maybe(1_500), ..limits };
    let flops = maybe(4_000).map(|n| n as f64);
    let mut needs = Vec::new();
    for need in [Need::AnyPrompt, Need::Replay, Need::Sampling, Need::Stopping, Need::Updating] {
        if chance.below(2) == 0 {
            needs.push(need);
        }
    }
    run.terms = Some(Terms {
        max_tokens: longest,
        requests: Some(requests),
        update: Geometry { mini_batch: 4, passes: 2 },
        needs,
        ..Terms::default()
    });
    let pool = Pool::new(chance.next(), Order::Shuffled, run.pool, vec![5; prompts as usize]);
    let state = State::new(Vec::new(), pool, RolloutBuffer::new(0), Ledger::new(limits));
    let (scale, bounds, every) = (Scale::default(), Bounds::default(), Some(Every::Steps(2)));
    let of = Constants { run, seed: chance.next(), scale, bounds, every, retries: chance.below(4) as u32 };
    (Loop::new(of, Ceilings { flops, seconds: None }, state), flops)
}

/// Numbers that nobody would write, and some that somebody might.
const COUNTS: [u32; 8] = [0, 1, 2, 3, 7, 255, 65_536, u32::MAX];
const NUMBERS: [f32; 8] = [0.0, 1.0, 0.5, -1.0, 1e6, 3e38, f32::NAN, f32::INFINITY];

/// A plan: of what is there mostly, of anything now and then. Fields that a policy does not describe never come out of its
/// sandbox, and are left out here.
fn dice(view: &View, run: &Run, chance: &mut Chance) -> Plan {
    let wild = chance.below(3) == 0;
    let mut there: Vec<PromptId> = view.pool.iter().map(|prompt| prompt.id).collect();
    there.extend(view.groups.iter().map(|group| group.prompt));
    there.extend(
        (run.gives(Need::AnyPrompt) || wild).then(|| PromptId(chance.below(run.prompts as usize + 2) as u32)),
    );
    let prompt = |chance: &mut Chance| {
        if wild && chance.below(6) == 0 {
            Some(PromptId(*chance.of_these(&COUNTS)))
        } else {
            (!there.is_empty()).then(|| *chance.of_these(&there))
        }
    };
    let count = |chance: &mut Chance| {
        if wild && chance.below(4) == 0 { *chance.of_these(&COUNTS) } else { 1 + chance.below(6) as u32 }
    };
    let some = |chance: &mut Chance| -> Vec<PromptId> {
        if chance.below(4) > 0 {
            return Vec::new();
        }
        (0..chance.below(3)).filter_map(|_| prompt(chance)).collect()
    };
    let action = if chance.below(3) > 0 {
        let mut order: Vec<Request> = Vec::new();
        for _ in 0..=chance.below(5) {
            let Some(prompt) = prompt(chance) else { break };
            if !wild && order.iter().any(|request| request.prompt == prompt) {
                continue;
            }
            let until = (chance.below(3) == 0 && run.gives(Need::Stopping)).then(|| Enough {
                correct: chance.below(4) as u32,
                wrong: chance.below(4) as u32,
                portion: count(chance),
            });
            let sampling = (chance.below(3) == 0 && run.gives(Need::Sampling)).then(|| SamplerSettings {
                temperature: if wild { *chance.of_these(&NUMBERS) } else { 1.0 },
                max_tokens: if wild { count(chance) } else { 1 },
                max_turns: 1,
            });
            order.push(Request { until, sampling, ..Request::new(prompt, count(chance)) });
        }
        Action::Sample(order)
    } else {
        Action::Train(batch(view, run, wild, chance))
    };
    let names = ["entropy", "", "a b", "\u{202e}", "x/y"];
    let metrics = (0..chance.below(2) * usize::from(wild))
        .map(|_| (*chance.of_these(&names), *chance.of_these(&NUMBERS)));
    let metrics = metrics.map(|(name, x)| (name.to_owned(), f64::from(x))).collect();
    let (skip, defer, evict) = (some(chance), some(chance), some(chance));
    Plan { action, skip, defer, evict, state: vec![chance.next() as u8; chance.below(4)], metrics }
}

/// A batch of what is buffered.
fn batch(view: &View, run: &Run, wild: bool, chance: &mut Chance) -> Batch {
    let mut batch = Batch::default();
    for group in &view.groups {
        let positions = |chance: &mut Chance| -> Vec<u32> {
            let mut all: Vec<u32> = (0..group.len() as u32).filter(|_| chance.below(2) == 0).collect();
            if wild && chance.below(3) == 0 {
                all.push(*chance.of_these(&COUNTS));
            }
            all
        };
        let rollouts =
            (chance.below(2) == 0).then(|| positions(chance)).filter(|all| wild || !all.is_empty());
        let number = |chance: &mut Chance| if wild { *chance.of_these(&NUMBERS) } else { 0.5 };
        if chance.below(3) > 0 {
            let advantage = match chance.below(4) {
                0 => Advantage::Picked,
                1 => Advantage::Group,
                2 => Advantage::Among(positions(chance)),
                _ => {
                    let n = rollouts.as_ref().map_or(group.len(), Vec::len)
                        + usize::from(wild && chance.below(4) == 0);
                    Advantage::Given((0..n).map(|_| number(chance)).collect())
                }
            };
            batch.picks.push(Pick {
                prompt: group.prompt,
                rollouts,
                advantage,
                weight: number(chance).max(if wild { -1.0 } else { 0.0 }),
            });
        } else if chance.below(2) == 0 {
            batch.hold.push(Hold { prompt: group.prompt, rollouts });
        }
        if (wild || run.gives(Need::Replay))
            && chance.below(4) == 0
            && batch.hold.iter().all(|hold| hold.prompt != group.prompt)
        {
            batch.hold.push(Hold { prompt: group.prompt, rollouts: Some(positions(chance)) });
        }
    }
    let number = |chance: &mut Chance| if wild { *chance.of_these(&COUNTS) } else { 1 };
    let geometry = chance.below(3) == 0 && run.gives(Need::Updating);
    batch.update = geometry.then(|| Geometry { mini_batch: number(chance), passes: number(chance) });
    batch
}
