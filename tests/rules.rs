//! For *any* plan: granted = sampled = charged ≤ budget, and no plan makes the host panic.
//!
//! The real step loop runs under policies that draw their plans from dice: mostly legal ones, so
//! that runs get somewhere, and every kind of illegal one.

#![allow(clippy::unwrap_used, missing_docs)]

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use allot::callbacks::{Callbacks, Decide};
use allot::run::{self, Rest};
use allot::simulation::Simulation;
use allot::stop::Stop;
use allot::world::World;
use allot_allocation::rules::{Bounds, Rule};
use allot_allocation::seed::Stream;
use allot_allocation::{
    Action, Advantage, Batch, Ceilings, Column, Columns, Compute, Enough, Geometry, Grant, GrantLine, Hold,
    Need, Pick, Plan, PromptId, Request, Run, SamplerRange, SamplerSettings, Spent, Start, Terms, View,
};
use allot_config::simulate::SimulateConfig;
use allot_engine::{
    Capabilities, Coin, Cost, Engine, EngineError, Example, Flip, Interrupt, Purpose, Report, Sample,
    Sampled, Whole,
};
use allot_loop::{Every, Loop, Scores};
use allot_record::{Line, Reader, Record, Views};
use allot_report::fold::Fold;
use allot_sandbox::{Fault, LogLine};
use proptest::prelude::*;

/// Draws its plans from dice.
struct Dice {
    draws: Stream,
    /// One plan in so many is made to break some rule.
    wrong: usize,
    seen: Rc<RefCell<Vec<(View, Plan)>>>,
}

impl Dice {
    fn some(&mut self, ids: &[PromptId], most: usize) -> Vec<PromptId> {
        let n = self.draws.below(most + 1).min(ids.len());
        let start = if ids.is_empty() { 0 } else { self.draws.below(ids.len()) };
        (0..n).map(|i| ids[(start + i) % ids.len()]).collect()
    }

    fn plan(&mut self, run: &Run, view: &View) -> Plan {
        let pool: Vec<PromptId> = view.pool.iter().map(|p| p.id).collect();
        let buffered: Vec<PromptId> = view.groups.iter().map(|g| g.prompt).collect();
        let both: Vec<PromptId> = pool.iter().chain(&buffered).copied().collect();
        let open = view.budget.rounds > 0 && view.budget.step_rollouts > 0;
        let action = if open && self.draws.below(3) > 0 {
            // Any prompt of the data set where that is allowed, evicted or not.
            let all = run.any_prompt().map(|prompts| (0..prompts).map(PromptId).collect());
            let requests = self.some(&all.unwrap_or_else(|| both.clone()), 6);
            let count = |dice: &mut Stream| [1, 3, 9, u32::MAX][dice.below(4)];
            let (stopping, requests_of) = (run.gives(Need::Stopping), run.requests());
            let request = |prompt| {
                let count = count(&mut self.draws);
                let until = (stopping && self.draws.below(2) > 0).then(|| self.enough(count));
                let own = requests_of.filter(|_| self.draws.below(2) > 0);
                let sampling = own.map(|SamplerRange { least, most }| SamplerSettings {
                    temperature: [least, most][self.draws.below(2)].temperature,
                    max_tokens: least.max_tokens
                        + self.draws.below((most.max_tokens - least.max_tokens + 1) as usize) as u32,
                    max_turns: 1,
                });
                Request { until, sampling, ..Request::new(prompt, count) }
            };
            Action::Sample(requests.into_iter().map(request).collect())
        } else {
            let picks: Vec<Pick> =
                self.some(&buffered, 5).into_iter().map(|prompt| self.pick(prompt, view)).collect();
            let replay = run.gives(Need::Replay);
            let hold = self.some(&buffered, 9).into_iter();
            let hold = hold.map(|prompt| self.hold(prompt, &picks, view, replay)).collect();
            let update = run.gives(Need::Updating) && self.draws.below(2) == 0;
            let geometry = |dice: &mut Stream| Geometry {
                mini_batch: [1, 7, u32::MAX][dice.below(3)],
                passes: 1 + dice.below(run.most_passes() as usize) as u32,
            };
            Action::Train(Batch { picks, hold, update: update.then(|| geometry(&mut self.draws)) })
        };
        let mut plan = Plan::of(action);
        let requested: HashSet<PromptId> = match &plan.action {
            Action::Sample(requests) => requests.iter().map(|r| r.prompt).collect(),
            Action::Train(_) => HashSet::new(),
        };
        plan.skip = self.some(&pool, 3).into_iter().filter(|p| !requested.contains(p)).collect();
        let skipped: HashSet<PromptId> = plan.skip.iter().copied().collect();
        let free = |p: &PromptId| !requested.contains(p) && !skipped.contains(p);
        plan.defer = self.some(&pool, 4).into_iter().filter(free).collect();
        if self.draws.below(4) == 0 {
            plan.evict = self.some(&both, 1);
        }
        plan.state = vec![7; self.draws.below(20)];
        plan.metrics = vec![("dice".to_owned(), self.draws.unit())];
        plan
    }

    /// Some stop rule for a request of so many.
    fn enough(&mut self, count: u32) -> Enough {
        let least = Enough::least(count);
        let portion = least + [0, 1, 3, u32::MAX - least][self.draws.below(4)];
        Enough { correct: self.draws.below(4) as u32, wrong: self.draws.below(4) as u32, portion }
    }

    fn pick(&mut self, prompt: PromptId, view: &View) -> Pick {
        let n = view.groups.iter().find(|g| g.prompt == prompt).unwrap().len();
        let rollouts = (self.draws.below(2) == 0).then(|| {
            let first = self.draws.below(n) as u32;
            (first..n as u32).collect::<Vec<_>>()
        });
        let count = rollouts.as_ref().map_or(n, Vec::len);
        let advantage = match self.draws.below(4) {
            0 => Advantage::Picked,
            1 => Advantage::Group,
            2 => Advantage::Among((0..=self.draws.below(n) as u32).collect()),
            _ => Advantage::Given((0..count).map(|_| self.draws.unit() as f32).collect()),
        };
        Pick { prompt, rollouts, advantage, weight: self.draws.unit() as f32 }
    }

    /// Of a prompt all that is not picked, or some of that by position; where that may be, of those picked, too.
    fn hold(&mut self, prompt: PromptId, picks: &[Pick], view: &View, replay: bool) -> Hold {
        let n = view.groups.iter().find(|g| g.prompt == prompt).unwrap().len();
        let pick = picks.iter().find(|pick| pick.prompt == prompt);
        let picked = pick.map_or_else(Vec::new, |pick| pick.positions(n));
        let free = (0..n).filter(|i| replay || !picked.contains(i));
        let free: Vec<u32> = free.map(|i| i as u32).collect();
        let some = self.draws.below(2) == 0 && !free.is_empty();
        Hold { prompt, rollouts: some.then(|| free[..=self.draws.below(free.len())].to_vec()) }
    }

    /// Breaks some rule, if the plan lends itself to it.
    fn spoil(&mut self, plan: &mut Plan) {
        let nobody = PromptId(u32::MAX);
        match (self.draws.below(15), &mut plan.action) {
            (0, _) => plan.skip.push(nobody),
            (1, _) => plan.evict.push(nobody),
            (2, _) => plan.state = vec![0; 17 << 20],
            (3, _) => plan.metrics.push(("bad".to_owned(), f64::NAN)),
            (4, _) => plan.metrics.push(("dice".to_owned(), 1.0)),
            (5, _) => plan.metrics.push((String::new(), 1.0)),
            (6, _) => plan.metrics = (0..100).map(|i| (i.to_string(), 0.0)).collect(),
            (7, Action::Sample(requests)) => requests.push(Request::new(nobody, 1)),
            (8, Action::Sample(requests)) => requests.iter_mut().for_each(|r| r.count = 0),
            (_, Action::Sample(requests)) => requests.extend(requests.clone()),
            (7, Action::Train(batch)) => batch.hold.push(nobody.into()),
            (8, Action::Train(batch)) => batch.picks.extend(batch.picks.clone()),
            (9, Action::Train(batch)) => batch.picks.iter_mut().for_each(|p| p.weight = -1.0),
            // Of what was never sampled, and one twice.
            (11, Action::Train(batch)) => {
                batch.hold.iter_mut().for_each(|h| h.rollouts = Some(vec![9_999_999]));
            }
            (12, Action::Train(batch)) => batch.hold.iter_mut().for_each(|h| h.rollouts = Some(vec![0, 0])),
            (10, Action::Train(batch)) => batch.picks.iter_mut().for_each(|p| p.rollouts = Some(vec![])),
            (13, Action::Train(batch)) => batch.update = Some(Geometry { mini_batch: 1, passes: u32::MAX }),
            (_, Action::Train(batch)) => {
                batch.picks.iter_mut().for_each(|p| p.rollouts = Some(vec![9_999_999]));
            }
        }
    }
}

impl Decide for Dice {
    fn name(&self) -> &'static str {
        "dice"
    }

    fn decide(&mut self, run: &Run, _state: &[u8], view: &View) -> Result<(Plan, Vec<LogLine>), Fault> {
        let mut plan = self.plan(run, view);
        if self.draws.below(self.wrong) == 0 {
            self.spoil(&mut plan);
        }
        self.seen.borrow_mut().push((view.clone(), plan.clone()));
        Ok((plan, Vec::new()))
    }
}

const CONFIG: &str = r#"
[run]
seed = 1
steps = 40
groups = 3
rollouts = 4
pool = 7
max_age = 2
[budget]
rollouts = 300
tokens = 20_000
step_rollouts = 60
rounds = 4
[policy]
use = "dice"
[world]
prompts = 25
tokens = 30.0
longest = 100
"#;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn granted_is_sampled_is_charged_and_within_the_budget(seed: u64, any_prompt: bool, stopping: bool, sampling: bool, replay: bool, columns in 0_u32..3, wrong in 5_usize..400, rollouts in 1_u64..600, tokens in 1_u64..60_000, lag in 0_u32..3) {
        let mut config = SimulateConfig::parse(CONFIG, "test").unwrap();
        config.run.seed = seed;
        config.budget.rollouts = Some(rollouts);
        config.budget.tokens = Some(tokens);
        let folder = tempfile::tempdir().unwrap();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let dice = Dice { draws: Stream::new(seed), wrong, seen: Rc::clone(&seen) };
        config.run.max_age = if replay { 6 } else { 2 };
        config.run.lag = lag;
        let known = made(columns, config.world.prompts, &mut Stream::new(seed));
        let terms = terms((any_prompt, stopping, sampling, replay));
        let terms = terms.or_else(|| (columns > 0).then(Terms::default));
        let terms = terms.map(|terms| Terms { columns: known.clone(), ..terms });
        let run = Run { terms, ..config.run.run(config.world.prompts, Vec::new()) };
        let mut simulation = Simulation::with(&config, run, dice, Vec::new()).unwrap();
        simulation.world.record = Record::create(&folder.path().join("record.jsonl")).unwrap();
        let head = head(&config, &simulation.world.run.of.run);
        simulation.world.record.begin(Box::new(head)).unwrap();

        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        simulation.world.run.of.every = Some(Every::Steps(10));
        let end = runtime.block_on(run::run(&mut simulation.world, &mut ()));
        let broke = match &end {
            Ok(Rest::Over(end)) => { prop_assert!(end.normal); false }
            Ok(Rest::Paused) => return Err(TestCaseError::fail("it was paused")),
            Err(Stop::Broken { broken, .. }) => {
                let sentence = broken.to_string();
                prop_assert!(sentence.starts_with("policy `dice` "), "{sentence}");
                let place = format!("(step {}, round {})", broken.step, broken.round);
                prop_assert!(sentence.contains(&place), "{sentence}");
                prop_assert!(Rule::ALL.iter().any(|(name, _)| *name == broken.rule.name()));
                prop_assert!(!broken.rule.hint().is_empty());
                true
            }
            Err(other) => return Err(TestCaseError::fail(format!("{other}"))),
        };

        // The ledger, the engine's work as the buffer counts it, and the record agree.
        let spent = simulation.world.run.state.ledger.spent();
        prop_assert!(spent.run_rollouts <= rollouts && spent.run_tokens <= tokens);
        let (mut reader, head) = Reader::open(folder.path()).unwrap();
        prop_assert_eq!(&head.run, &simulation.world.run.of.run);
        let mut views = Views::new(&head).unwrap();
        let mut fold = Fold::new("run".to_owned(), head.clone(), &[]);
        let (mut told, mut learned) = (0, [0; 2]);
        let (mut granted, mut sampled, mut generated, mut calls, mut portions) = (0, 0, 0, 0, 0);
        let seen = seen.borrow();
        for line in &mut reader {
            let line = line.unwrap();
            match &line {
                Line::Call(call) => {
                    granted += call.granted;
                    prop_assert!(call.granted <= call.asked);
                }
                Line::Rollouts(round) => {
                    granted += round.more;
                    portions += u64::from(round.more > 0);
                    sampled += round.sampled.iter().map(|s| s.rewards.len() as u64).sum::<u64>();
                    generated += round.sampled.iter().flat_map(|s| &s.tokens).map(|t| u64::from(*t)).sum::<u64>();
                }
                Line::Step(step) => learned = [learned[0] + step.trained, learned[1] + step.again],
                _ => {}
            }
            fold.take(line.clone(), &mut |rollout| {
                told += 1;
                assert_eq!(rollout.fate == "trained", rollout.updates > 0, "{rollout:?}");
            }).unwrap();
            if let Some(asked) = views.take(&line).unwrap() {
                // What the record tells is what the policy saw and said, to the byte.
                prop_assert_eq!(&asked.view, &seen[calls].0);
                prop_assert_eq!(&asked.plan, &seen[calls].1);
                // All that it could ask for, too: past visits are compared with the view.
                prop_assert_eq!(views.columns(), &known);
                calls += 1;
            }
        }
        // A plan that broke a rule is told in the record's last line, and has no call.
        prop_assert_eq!(calls + usize::from(broke), seen.len());
        prop_assert_eq!((granted, sampled), (spent.run_rollouts, spent.run_rollouts));
        prop_assert_eq!(generated, spent.run_tokens);
        prop_assert!(stopping || portions == 0);
        // Each rollout has one fate, however often it was learned from.
        let history = fold.finish();
        prop_assert_eq!((told, history.fates.total()), (spent.run_rollouts, spent.run_rollouts));
        // Of a run that broke off, steps that waited for their updates have no line.
        if lag == 0 || !broke {
            prop_assert_eq!(history.fates.trained(), learned[0] - learned[1]);
        }
        prop_assert!(replay || learned[1] == 0);
    }
}

/// Columns of all kinds, so many of them.
fn made(n: u32, prompts: u32, draws: &mut Stream) -> Columns {
    let mut columns = Columns::default();
    for i in 0..n {
        let width = 1 + draws.below(3) as u32;
        let categories: Vec<String> = (0..draws.below(3)).map(|i| format!("kind {i}")).collect();
        let mut number = || {
            if categories.is_empty() {
                (1e3 * draws.unit()) as f32
            } else {
                draws.below(categories.len()) as f32
            }
        };
        let numbers = (0..prompts * width).map(|_| number()).collect();
        columns.add(Column { name: format!("column-{i}"), width, categories, numbers });
    }
    columns
}

/// The coin-flip world with operations: a token read or generated is one, and learned from it is four.
struct Metered {
    coin: Coin,
    lengths: Vec<u32>,
    computed: Compute,
}

impl Metered {
    fn learning(&self, prompt: PromptId, tokens: u32) -> f64 {
        4.0 * f64::from(self.lengths[prompt.0 as usize] + tokens)
    }
}

impl Engine for Metered {
    type Answer = Flip;

    fn capabilities(&self) -> Capabilities {
        self.coin.capabilities()
    }

    fn version(&self) -> u32 {
        self.coin.version()
    }

    async fn sample(
        &mut self,
        grant: Grant,
        purpose: Purpose,
        whole: Whole<'_, Flip>,
        interrupt: &Interrupt,
    ) -> Result<Sampled<Flip>, EngineError> {
        self.coin.sample(grant, purpose, whole, interrupt).await
    }

    fn sampled(&self, lines: &[GrantLine], samples: &[Sample<Flip>]) -> Compute {
        let mut compute = Compute::default();
        compute.flops.prefill =
            lines.iter().map(|line| f64::from(self.lengths[line.prompt.0 as usize])).sum();
        compute.flops.decode = samples.iter().map(|s| f64::from(s.tokens)).sum();
        compute
    }

    async fn update(
        &mut self,
        batch: &[Example<'_, Flip>],
        geometry: Option<Geometry>,
        interrupt: &Interrupt,
    ) -> Result<Report, EngineError> {
        self.computed.flops.training +=
            batch.iter().map(|e| self.learning(e.sample.prompt, e.sample.tokens)).sum::<f64>();
        self.coin.update(batch, geometry, interrupt).await
    }

    fn computed(&mut self) -> Compute {
        std::mem::take(&mut self.computed)
    }

    fn cost(&self, prompt: PromptId, tokens: u32) -> Cost {
        Cost {
            reading: f64::from(self.lengths[prompt.0 as usize]),
            answering: f64::from(tokens),
            learning: self.learning(prompt, tokens),
        }
    }
}

/// Somebody who goes along and does nothing.
struct Nobody;

impl<R, P> Callbacks<Metered, R, P> for Nobody {
    async fn evaluate(&mut self, _: &mut World<Metered, R, P>) -> Result<Scores, Stop> {
        Ok(Scores::default())
    }
}

/// What a request may choose, where it may.
const RANGE: SamplerRange = SamplerRange {
    least: SamplerSettings { temperature: 0.5, max_tokens: 7, max_turns: 1 },
    most: SamplerSettings { temperature: 1.5, max_tokens: 100, max_turns: 1 },
};

/// Where the policy may do more than every policy may.
fn terms((any_prompt, stopping, sampling, replay): (bool, bool, bool, bool)) -> Option<Terms> {
    let needs = [
        (any_prompt, Need::AnyPrompt),
        (stopping, Need::Stopping),
        (stopping, Need::Updating),
        (sampling, Need::Sampling),
        (replay, Need::Replay),
    ];
    let needs: Vec<Need> = needs.into_iter().filter(|(has, _)| *has).map(|(_, need)| need).collect();
    let update = Geometry { mini_batch: 8, passes: 3 };
    let requests = sampling.then_some(RANGE);
    (!needs.is_empty()).then(|| Terms { needs, update, requests, max_tokens: 100, ..Terms::default() })
}

/// A run with a budget of operations alone: how it ended, and what it spent.
fn metered(
    flops: f64,
    steps: u32,
    lag: u32,
    may: (bool, bool, bool, bool),
    policy: impl Decide,
) -> (Result<Rest, Stop>, f64, Spent) {
    let mut config = SimulateConfig::parse(CONFIG, "test").unwrap();
    (config.budget.rollouts, config.budget.tokens) = (None, None);
    (config.run.steps, config.budget.flops) = (steps, Some(flops));
    config.run.max_age = if may.3 { 50 } else { 2 };
    config.run.lag = lag;
    let run = Run { terms: terms(may), ..config.run.run(config.world.prompts, Vec::new()) };
    let world = Simulation::with(&config, run, policy, Vec::new()).unwrap().world;
    let engine =
        Metered { lengths: world.engine.prompt_lengths(), coin: world.engine, computed: Compute::default() };
    let constants = allot_loop::Constants { every: Some(Every::Steps(10)), ..world.run.of };
    let ceilings = Ceilings { flops: Some(flops), seconds: None };
    let run = Loop::new(constants, ceilings, world.run.state);
    let mut world = World::new(run, engine, world.reward, world.policy);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let rest = runtime.block_on(run::run(&mut world, &mut Nobody));
    let state = &world.run.state;
    (rest, state.measured.compute.flops.total(), state.ledger.spent())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_budget_of_operations_is_never_passed(seed: u64, any_prompt: bool, stopping: bool, sampling: bool, replay: bool, flops in 1.0_f64..300_000.0, lag in 0_u32..3) {
        let dice = Dice { draws: Stream::new(seed), wrong: usize::MAX, seen: Rc::default() };
        let (rest, computed, _) = metered(flops, 40, lag, (any_prompt, stopping, sampling, replay), dice);
        prop_assert!(matches!(rest, Ok(Rest::Over(_)) | Err(Stop::Broken { .. })), "{rest:?}");
        prop_assert!(computed <= flops, "{computed} of {flops}");
    }
}

/// Asks for all that there can be of the first prompt on offer, and learns from all of it.
struct Greedy;

impl Decide for Greedy {
    fn name(&self) -> &'static str {
        "greedy"
    }

    fn decide(&mut self, _: &Run, _: &[u8], view: &View) -> Result<(Plan, Vec<LogLine>), Fault> {
        let open = view.budget.rounds > 0 && view.budget.step_rollouts > 0 && view.budget.run_rollouts > 0;
        let buffered: Vec<PromptId> = view.groups.iter().map(|g| g.prompt).collect();
        Ok((
            Plan::of(match view.pool.first() {
                Some(prompt) if open => Action::Sample(vec![Request::new(prompt.id, u32::MAX)]),
                _ => Action::Train(Batch {
                    picks: buffered.into_iter().map(pick).collect(),
                    ..Batch::default()
                }),
            }),
            Vec::new(),
        ))
    }
}

fn pick(prompt: PromptId) -> Pick {
    Pick { prompt, rollouts: None, advantage: Advantage::Picked, weight: 1.0 }
}

/// What is left at the end is less than a rollout with the longest answer may cost.
#[test]
fn a_budget_of_operations_is_spent_to_the_last_rollout() {
    // The longest prompt has 119 tokens, the longest answer 100.
    let dearest = f64::from(119 + 100 + 4 * (119 + 100));
    for flops in [2_000.0, 50_000.0, 777_777.0] {
        let (rest, computed, spent) = metered(flops, 10_000, 0, (false, false, false, false), Greedy);
        let Ok(Rest::Over(end)) = rest else { panic!("{rest:?}") };
        assert_eq!((end.reason.as_str(), end.normal), ("the budget is spent", true));
        assert!(computed <= flops && computed > flops - dearest, "{computed} of {flops}");
        assert!(spent.run_rollouts > 0);
    }
}

/// Samples once, and then learns from all of that for as long as it stays buffered.
struct Miser;

impl Decide for Miser {
    fn name(&self) -> &'static str {
        "miser"
    }

    fn decide(&mut self, _: &Run, _: &[u8], view: &View) -> Result<(Plan, Vec<LogLine>), Fault> {
        let all = |n: usize| Some((0..n as u32).collect());
        let action = if view.groups.is_empty() && view.budget.run_rollouts > 0 {
            Action::Sample(vec![Request::new(view.pool[0].id, 20)])
        } else {
            let picks = view.groups.iter().map(|g| pick(g.prompt)).collect();
            let hold = view.groups.iter().map(|g| Hold { prompt: g.prompt, rollouts: all(g.len()) });
            Action::Train(Batch { picks, hold: hold.collect(), update: None })
        };
        Ok((Plan::of(action), Vec::new()))
    }
}

/// What no further update fits on is let go, one by one, until nothing is left that could be learned from.
#[test]
fn a_budget_of_operations_is_spent_on_what_was_sampled_before() {
    let longest = f64::from(119 + 100);
    for flops in [20_000.0, 777_777.0] {
        let (rest, computed, spent) = metered(flops, 10_000, 0, (false, false, false, true), Miser);
        let Ok(Rest::Over(end)) = rest else { panic!("{rest:?}") };
        assert!(end.normal && computed <= flops && computed > flops - 5.0 * longest, "{computed} of {flops}");
        // Learning from the 20 takes some 20 * 4 * 90 operations each time: far more than their number in updates.
        assert!(f64::from(end.steps) > flops / (20.0 * 4.0 * longest), "{} steps", end.steps);
        assert!(spent.run_rollouts >= 20);
    }
}

fn head(config: &SimulateConfig, run: &Run) -> allot_record::Head {
    let stamp = allot_record::PolicyStamp {
        name: "dice".to_owned(),
        version: String::new(),
        contract: String::new(),
        sha256: String::new(),
        draft: false,
    };
    allot_record::Head {
        format: allot_record::FORMAT,
        name: None,
        allot: String::new(),
        policy: stamp,
        engine: String::new(),
        signals: Vec::new(),
        seed: config.run.seed,
        order: config.run.order,
        run: run.clone(),
        retries: 0,
        limits: config.budget.limits(config.world.longest),
        ceilings: config.budget.ceilings(),
        caps: allot::shipped::stamp(config.policy.limits.caps()),
        state: String::new(),
        accuracy: None,
        scores: Vec::new(),
        advantage: None,
        lengths: None,
        world: None,
        training: None,
    }
}

/// Each rule, by a plan that breaks it and nothing else.
#[test]
fn every_rule_has_its_own_sentence() {
    let mut view = allot_authoring::fixtures::views(0, 0).swap_remove(5).view;
    allot_authoring::fixtures::add_turns(&mut view);
    let (first, second, buffered) = (view.pool[0].id, view.pool[1].id, view.groups[0].prompt);
    let n = view.groups[0].len();
    let nobody = PromptId(4_000_000_000);
    let first_of = |prompt| Hold { prompt, rollouts: Some(vec![0]) };
    // Where any prompt of a data set of 20 may be asked for.
    let beyond = PromptId(20);
    let sample = |requests: &[(PromptId, u32)]| {
        Plan::of(Action::Sample(
            requests.iter().map(|(prompt, count)| Request::new(*prompt, *count)).collect(),
        ))
    };
    let portions = |prompt, count, portion| {
        let until = Some(Enough { correct: 1, wrong: 0, portion });
        Plan::of(Action::Sample(vec![Request { until, ..Request::new(prompt, count) }]))
    };
    let own = |prompt, temperature, max_tokens, max_turns| {
        let sampling = Some(SamplerSettings { temperature, max_tokens, max_turns });
        Plan::of(Action::Sample(vec![Request { sampling, ..Request::new(prompt, 1) }]))
    };
    let train = |picks: Vec<Pick>| Plan::of(Action::Train(Batch { picks, ..Batch::default() }));
    let positions = |list: Vec<u32>| train(vec![Pick { rollouts: Some(list), ..pick(buffered) }]);
    let given = |list: Vec<f32>| train(vec![Pick { advantage: Advantage::Given(list), ..pick(buffered) }]);
    let starts = |count, start| {
        let starts = vec![Some(start)];
        Plan::of(Action::Sample(vec![Request { starts, ..Request::new(buffered, count) }]))
    };
    // For each turn and `more` the same advantage.
    let by_turn = |more, advantage| {
        let of = |i| vec![advantage; view.groups[0].turns.of(i) as usize + more];
        train(vec![Pick { advantage: Advantage::ByTurn((0..n).map(of).collect()), ..pick(buffered) }])
    };
    let update = |mini_batch, passes| {
        let update = Some(Geometry { mini_batch, passes });
        Plan::of(Action::Train(Batch { update, ..Batch::default() }))
    };
    let metric = |name: &str| Plan { metrics: vec![(name.to_owned(), 0.0)], ..train(vec![]) };
    let mut closed = view.clone();
    closed.budget.rounds = 0;
    let mut empty = view.clone();
    empty.budget.step_rollouts = 0;

    let cases: Vec<(&View, Plan)> = vec![
        (&closed, sample(&[(first, 1)])),
        (&empty, sample(&[(first, 1)])),
        (&view, sample(&[])),
        (&view, sample(&[(nobody, 1)])),
        (&view, sample(&[(beyond, 1)])),
        (&view, sample(&[(first, 1), (first, 1)])),
        (&view, sample(&[(first, 0)])),
        (&view, portions(first, 1000, 3)),
        (&view, own(first, 2.0, 50, 1)),
        (&view, own(first, 1.0, 101, 1)),
        (&view, own(first, 1.0, 50, 2)),
        (&view, starts(2, Start { rollout: 0, turn: 0 })),
        (&view, starts(1, Start { rollout: n as u32, turn: 0 })),
        (&view, starts(1, Start { rollout: 0, turn: 99 })),
        (&view, Plan { skip: vec![first], ..sample(&[(first, 1)]) }),
        (&view, Plan { skip: vec![buffered], ..sample(&[(first, 1)]) }),
        (&view, Plan { skip: vec![second, second], ..sample(&[(first, 1)]) }),
        (&view, Plan { defer: vec![buffered], ..sample(&[(first, 1)]) }),
        (&view, Plan { defer: vec![second, second], ..sample(&[(first, 1)]) }),
        (&view, Plan { defer: vec![first], ..sample(&[(first, 1)]) }),
        (&view, Plan { evict: vec![nobody], ..sample(&[(first, 1)]) }),
        (&view, Plan { evict: vec![first, first], ..sample(&[(first, 1)]) }),
        (&view, train(vec![pick(first)])),
        (&view, train(vec![pick(buffered), pick(buffered)])),
        (&view, positions(vec![])),
        (&view, positions(vec![n as u32])),
        (&view, positions(vec![0, 0])),
        (&view, train(vec![Pick { weight: f32::NAN, ..pick(buffered) }])),
        (&view, given(vec![1.0])),
        (&view, given(vec![f32::INFINITY; n])),
        (&view, by_turn(1, 0.0)),
        (&view, by_turn(0, f32::NAN)),
        (&view, Plan::of(Action::Train(Batch { hold: vec![first.into()], ..Batch::default() }))),
        (
            &view,
            Plan::of(Action::Train(Batch {
                hold: vec![buffered.into(), buffered.into()],
                ..Batch::default()
            })),
        ),
        (
            &view,
            Plan::of(Action::Train(Batch {
                picks: vec![pick(buffered)],
                hold: vec![first_of(buffered)],
                update: None,
            })),
        ),
        (&view, update(0, 1)),
        (&view, update(8, 2)),
        (&view, Plan { state: vec![0; (16 << 20) + 1], ..train(vec![]) }),
        (&view, Plan { state: vec![0; 16], ..train(vec![]) }),
        (&view, Plan { metrics: (0..65).map(|i| (i.to_string(), 0.0)).collect(), ..train(vec![]) }),
        (&view, metric("p\u{1b}[2J\nerror: \u{202e}no")),
        (&view, Plan { metrics: vec![("a".to_owned(), 0.0), ("a".to_owned(), 0.0)], ..train(vec![]) }),
        (&view, Plan { metrics: vec![("a".to_owned(), f64::INFINITY)], ..train(vec![]) }),
    ];
    for name in [String::new(), "x".repeat(65), "-x".to_owned(), "a b".to_owned(), "é".to_owned()] {
        let broken = allot_allocation::rules::check("p", &view, &metric(&name), Bounds::default());
        assert_eq!(broken.map_err(|broken| broken.rule.name()), Err("metric-name"), "{name}");
    }
    let mut broken = Vec::new();
    let mut sentences = Vec::new();
    for (view, plan) in cases {
        let any = matches!(&plan.action, Action::Sample(requests) if requests.first().is_some_and(|r| r.prompt == beyond));
        let bounds = Bounds { any_prompt: any.then_some(20), sampling: Some(RANGE), ..Bounds::default() };
        let left = if plan.state.len() == 16 { 9 } else { u64::MAX };
        let rule = allot_allocation::rules::check("p", view, &plan, bounds)
            .and_then(|()| allot_allocation::rules::check_record("p", view, plan.state.len() as u64, left));
        let rule = rule.expect_err("the plan breaks a rule");
        sentences.push(rule.to_string());
        broken.push(rule.rule.name());
    }
    assert_eq!(broken, Rule::ALL.map(|(name, _)| name), "each rule once, in order");
    insta::assert_snapshot!(sentences.join("\n"), @r"
    policy `p` asked to sample, but the step has no round of sampling left (step 5, round 1)
    policy `p` asked to sample, but the step has no rollout left (step 5, round 1)
    policy `p` asked for no rollouts, skipped nothing and evicted nothing (step 5, round 1)
    policy `p` asked for rollouts of prompt `4000000000`, which is neither in the pool nor buffered (step 5, round 1)
    policy `p` asked for rollouts of prompt `20`; the data set has 20 prompts (0 to 19) (step 5, round 1)
    policy `p` asked for prompt `8` twice in one plan (step 5, round 1)
    policy `p` asked for 0 rollouts of prompt `8`; a request is for at least 1 (step 5, round 1)
    policy `p` asked for rollouts of prompt `8` in portions of 3; the smallest is 4 (step 5, round 1)
    policy `p` asked for rollouts of prompt `8` at temperature 2; the run takes 0.5 to 1.5 (step 5, round 1)
    policy `p` asked for rollouts of prompt `8` of at most 101 tokens; the run takes 7 to 100 (step 5, round 1)
    policy `p` asked for rollouts of prompt `8` of at most 2 turns; the run takes 1 to 1 (step 5, round 1)
    policy `p` asked for 2 rollouts of prompt `0` with 1 `starts` (step 5, round 1)
    policy `p` continued rollout 8 of prompt `0`, which has 8 buffered (step 5, round 1)
    policy `p` continued rollout 0 of prompt `0` after turn 99, counted from 0; its turns number 1 (step 5, round 1)
    policy `p` both asked for rollouts of prompt `8` and skipped it (step 5, round 1)
    policy `p` skipped prompt `0`, which is not in the pool (step 5, round 1)
    policy `p` skipped prompt `9` twice in one plan (step 5, round 1)
    policy `p` deferred prompt `0`, which is not in the pool (step 5, round 1)
    policy `p` deferred prompt `9` twice in one plan (step 5, round 1)
    policy `p` deferred prompt `8`, which the same plan samples or skips (step 5, round 1)
    policy `p` evicted prompt `4000000000`, which is neither in the pool nor buffered (step 5, round 1)
    policy `p` evicted prompt `8` twice in one plan (step 5, round 1)
    policy `p` picked prompt `8`, which has no buffered rollouts (step 5, round 1)
    policy `p` picked prompt `0` twice in one batch (step 5, round 1)
    policy `p` picked none of the rollouts of prompt `0` (step 5, round 1)
    policy `p` picked rollout 8 of prompt `0`, which has 8 buffered (0 to 7) (step 5, round 1)
    policy `p` picked rollout 0 of prompt `0` twice (step 5, round 1)
    policy `p` gave prompt `0` the weight NaN; a weight is from 0 to 1000000 (step 5, round 1)
    policy `p` gave 1 advantages for the 8 rollouts picked of prompt `0` (step 5, round 1)
    policy `p` gave prompt `0` the advantage inf at index 0; one is from -1000000 to 1000000 (step 5, round 1)
    policy `p` gave 2 advantages for rollout 0 of prompt `0`, whose turns number 1 (step 5, round 1)
    policy `p` gave turn 0 of rollout 0 of prompt `0` the advantage NaN; one is from -1000000 to 1000000 (step 5, round 1)
    policy `p` held prompt `8`, which has no buffered rollouts (step 5, round 1)
    policy `p` held prompt `0` twice in one batch (step 5, round 1)
    policy `p` held rollout 0 of prompt `0`, which it also picked, and has no `replay` among its needs (step 5, round 1)
    policy `p` asked for mini-batches of 0 rollouts; one has at least 1 (step 5, round 1)
    policy `p` asked for 2 passes over its batch; there are 1 to 1 in this run (step 5, round 1)
    policy `p` returned a state of 16777217 bytes; the limit of the record is 16777216 (step 5, round 1)
    policy `p` changed its state by 16 bytes; for such changes the run's record takes 9 bytes more (step 5, round 1)
    policy `p` returned 65 metrics; the record takes 64 at most (step 5, round 1)
    policy `p` named a metric `p\u001b[2J\nerror: \u202eno`, of 18 bytes; a name has 1 to 64, ASCII letters, digits and `-`, `_`, `.`, `/`, a letter or digit first (step 5, round 1)
    policy `p` returned the metric `a` twice (step 5, round 1)
    policy `p` returned the metric `a` with a value that is not finite (step 5, round 1)
    ");
}
