//! The loop under engines that fail, lie and are stopped anywhere, and under any plans: what it asks for and what goes to
//! the record is what an engine that never fails would have had.

#![allow(clippy::unwrap_used, missing_docs)]

use allot_allocation::advantage::Scale;
use allot_allocation::rules::Bounds;
use allot_allocation::seed::Stream;
use allot_allocation::{
    Action, Advantage, Batch, Ceilings, Compute, Cost, Enough, Fault, Flops, Grant, GrantLine, Hold, Ledger,
    Limits, Need, Order, Outcome, Pick, Plan, Pool, PromptId, Request, RolloutBuffer, Run, SamplerSettings,
    Stopped, Terms, View, seed, total,
};
use allot_loop::{At, Constants, Every, Loop, Next, Scores, State};
use allot_record::{CapsStamp, FORMAT, Head, Line, PolicyStamp, Views};
use proptest::prelude::*;

/// What a rollout costs.
fn costs(prompt: PromptId, tokens: u32) -> Cost {
    Cost { reading: f64::from(prompt.0 % 7), answering: f64::from(tokens), learning: 3.0 * f64::from(tokens) }
}

fn fresh(seed: u64, rollouts: u64, flops: Option<f64>, replay: bool, lag: u32) -> Loop {
    let terms = replay.then(|| Terms { needs: vec![Need::Replay], ..Terms::default() });
    let run = Run {
        settings: Vec::new(),
        prompts: 20,
        steps: 6,
        groups: 4,
        rollouts: 3,
        pool: 8,
        max_age: if replay { 4 } else { 2 },
        lag,
        terms,
    };
    let limits = Limits {
        rounds: 4,
        step_rollouts: Some(40),
        run_rollouts: Some(rollouts),
        run_tokens: None,
        longest: 9,
    };
    let (scale, bounds, every) = (Scale::default(), Bounds::default(), Some(Every::Steps(2)));
    let pool = Pool::new(seed, Order::Shuffled, run.pool, vec![5; run.prompts as usize]);
    let state = State::new(Vec::new(), pool, RolloutBuffer::new(0), Ledger::new(limits));
    Loop::new(
        Constants { run, seed, scale, bounds, every, retries: (seed % 4) as u32 },
        Ceilings { flops, seconds: None },
        state,
    )
}

/// A plan that keeps the rules, drawn by the view's own seed: the same for the same view.
fn plan(view: &View, replay: bool) -> Plan {
    let mut draws = Stream::new(u64::from(view.seed));
    let buffered: Vec<PromptId> = view.groups.iter().map(|g| g.prompt).collect();
    let open = view.budget.rounds > 0 && view.budget.step_rollouts > 0;
    let sampling = open && draws.below(4) > 0 && !(view.pool.is_empty() && buffered.is_empty());
    let action = if sampling {
        let all: Vec<PromptId> = view.pool.iter().map(|p| p.id).chain(buffered).collect();
        let mut order: Vec<Request> = Vec::new();
        for _ in 0..=draws.below(4) {
            let prompt = all[draws.below(all.len())];
            if order.iter().all(|request| request.prompt != prompt) {
                let mut some = || draws.below(3) as u32;
                let until = Enough { correct: some(), wrong: some(), portion: 1 + some() };
                let until = (draws.below(3) > 0).then_some(until);
                let own = SamplerSettings { temperature: 0.7, max_tokens: 4, max_turns: 1 };
                let sampling = (draws.below(3) == 0).then_some(own);
                order.push(Request { until, sampling, ..Request::new(prompt, 1 + draws.below(7) as u32) });
            }
        }
        Action::Sample(order)
    } else {
        let (picked, hold): (Vec<_>, Vec<_>) = buffered.into_iter().partition(|_| draws.below(3) > 0);
        let pick = |prompt| Pick { prompt, rollouts: None, advantage: Advantage::Picked, weight: 1.0 };
        // Of what is picked some is kept, if it may be.
        let kept: Vec<PromptId> = picked.iter().copied().filter(|_| replay && draws.below(3) > 0).collect();
        let kept = kept.into_iter().map(|prompt| Hold { prompt, rollouts: Some(vec![0]) });
        Action::Train(Batch {
            picks: picked.into_iter().map(pick).collect(),
            hold: hold.into_iter().map(Into::into).chain(kept).collect(),
            update: None,
        })
    };
    Plan { state: vec![view.round as u8; draws.below(3)], ..Plan::of(action) }
}

/// What an engine and a judge give for a grant at these weights.
fn outcomes(grant: &Grant, run: u64, version: u32) -> Vec<Outcome> {
    let one = |line: &GrantLine, position| {
        let prompt = line.prompt;
        let mut draws = Stream::new(seed::rollout(run, prompt, version, position));
        let reward = f32::from(u8::from(draws.below(2) > 0));
        let tokens = 1 + draws.below(line.sampling.map_or(9, |own| own.max_tokens as usize)) as u32;
        let whole = Outcome { tokens, ..Outcome::of(prompt, position, reward, reward > 0.5) };
        match draws.below(8) {
            0 => Outcome { reward: None, stopped: Some(Stopped::EnvironmentError), ..whole },
            // Unscorable for another reason.
            1 => Outcome { reward: None, ..whole },
            _ => whole,
        }
    };
    let lines = grant.lines().iter();
    lines.flat_map(|l| (l.first..l.first + l.count).map(move |i| one(l, i))).collect()
}

/// A lie: something else than what was granted.
fn lie(mut told: Vec<Outcome>, kind: usize) -> Vec<Outcome> {
    let last = told.len() - 1;
    match kind {
        0 => told.truncate(last),
        1 => told.push(told[last].clone()),
        2 => told[last].position += 1,
        3 => told[0].tokens = 10,
        4 if told.len() > 1 => told.swap(0, last),
        _ => told[last].prompt = PromptId(told[last].prompt.0 + 1),
    }
    told
}

/// The loop as a checkpoint would keep it.
fn text(run: &Loop) -> String {
    serde_json::to_string(&run.state).unwrap()
}

/// Runs to the end; all that goes to the record. `error` draws what goes wrong, if anything may.
fn record(
    mut run: Loop,
    flops: Option<f64>,
    mut error: Option<Stream>,
) -> Result<Vec<String>, TestCaseError> {
    let mut lines = Vec::new();
    let replay = run.of.run.gives(Need::Replay);
    let mut write = |line: &dyn Fn() -> String| lines.push(line());
    loop {
        let mut chance = |n| error.as_mut().is_some_and(|draws| draws.below(n) == 0);
        if chance(5) {
            // A stop: what a checkpoint keeps is all that there is of it.
            let mut state: State = serde_json::from_str(&text(&run)).unwrap();
            state.buffer.index();
            run = Loop::new(run.of.clone(), Ceilings { flops, seconds: None }, state);
        }
        match run.next(&costs) {
            Next::Decide(view) => {
                if chance(4) {
                    let bad = Plan::of(Action::Sample(vec![Request::new(PromptId(1000), 1)]));
                    let before = text(&run);
                    prop_assert!(run.decided("liar", &bad, &costs).is_err());
                    prop_assert_eq!(text(&run), before, "a plan that breaks a rule changes nothing");
                }
                let decided = run.decided("dice", &plan(&view, replay), &costs).unwrap();
                prop_assert!(decided.call.granted <= decided.call.asked);
                write(&|| serde_json::to_string(&decided.call).unwrap());
            }
            Next::Sample(grant, _) => {
                prop_assert!(matches!(run.next(&costs), Next::Wait), "a grant is handed out once");
                if chance(4) {
                    // The engine fails, and is asked again.
                    let lines = grant.lines().to_vec();
                    run.interrupted();
                    let Next::Sample(again, _) = run.next(&costs) else { panic!("it is asked again") };
                    prop_assert_eq!(again.lines(), &lines[..]);
                }
                let told = outcomes(&grant, run.of.seed, run.state.version);
                if chance(3) {
                    let before = text(&run);
                    let kind = error.as_mut().map_or(0, |draws| draws.below(6));
                    let fault: Result<_, Fault> = run.sampled(&lie(told.clone(), kind), &[], &costs);
                    prop_assert!(fault.is_err());
                    prop_assert_eq!(text(&run), before, "what was not granted is not charged");
                }
                let took = run.sampled(&told, &[], &costs).unwrap();
                write(&|| serde_json::to_string(&took.rollouts).unwrap());
            }
            Next::Update(rollouts, _) => {
                if chance(4) {
                    run.interrupted();
                    continue;
                }
                run.state.measured.compute.flops.training += 27.0 * rollouts.len() as f64;
                let settled = run.updated(!rollouts.is_empty(), Vec::new(), &costs);
                prop_assert_eq!(settled.trained.len(), rollouts.len());
            }
            Next::Begin(rollouts, _) => prop_assert!(run.state.pending[0].update.rollouts == rollouts),
            Next::Finish(rollouts, _) => {
                if chance(4) {
                    run.interrupted();
                    continue;
                }
                let flops = Flops { training: 27.0 * rollouts.len() as f64, ..Flops::default() };
                run.finished(Vec::new(), Compute { flops, ..Compute::default() }, &costs);
            }
            Next::Evaluate => {
                let accuracy = f64::from(run.state.version) / 10.0;
                run.evaluated(Scores { accuracy, ..Scores::default() });
            }
            Next::Step(end) => write(&|| serde_json::to_string(&end).unwrap()),
            Next::Over(end) => {
                write(&|| serde_json::to_string(&end).unwrap());
                prop_assert!(end.normal && matches!(run.state.at, At::Over));
                prop_assert!(run.state.pending.is_empty(), "every update that was decided on is made");
                let (spent, limits) = (run.state.ledger.spent(), run.state.ledger.limits());
                prop_assert!(Some(spent.run_rollouts) <= limits.run_rollouts);
                return Ok(lines);
            }
            Next::Wait => panic!("nothing is out"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn engines_that_fail_lie_and_are_stopped_leave_the_record_of_one_that_does_not(
        seed: u64, error: u64, rollouts in 1_u64..200, flops in proptest::option::of(10.0_f64..5000.0), replay: bool,
        lag in 0_u32..3,
    ) {
        same(seed, error, rollouts, flops, replay, lag)?;
    }
}

fn same(
    seed: u64,
    error: u64,
    rollouts: u64,
    flops: Option<f64>,
    replay: bool,
    lag: u32,
) -> Result<(), TestCaseError> {
    let smooth = record(fresh(seed, rollouts, flops, replay, lag), flops, None)?;
    let rough = record(fresh(seed, rollouts, flops, replay, lag), flops, Some(Stream::new(error)))?;
    prop_assert_eq!(smooth, rough);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each lost rollout is drawn again so many times and no more, is paid for each time, and replays.
    #[test]
    fn what_is_lost_is_drawn_again_within_the_budget_and_replays(
        seed: u64, rollouts in 1_u64..300, flops in proptest::option::of(10.0_f64..5000.0), replay: bool, lag in 0_u32..3,
    ) {
        again(fresh(seed, rollouts, flops, replay, lag))?;
    }
}

fn again(mut run: Loop) -> Result<(), TestCaseError> {
    let (head, replay) = (head(&run), run.of.run.gives(Need::Replay));
    let (mut views, mut seen, mut told) = (Views::new(&head).unwrap(), Vec::new(), Vec::new());
    let mut take = |line: Line| -> Result<(), TestCaseError> {
        told.extend(
            views.take(&line).map_err(|e| TestCaseError::fail(e.to_string()))?.map(|asked| asked.view),
        );
        Ok(())
    };
    // Of the plan that is being served: rollouts asked for, and sampled so far.
    let (mut asked, mut sampled, mut lost, mut all) = (0, 0, 0, 0);
    loop {
        match run.next(&costs) {
            Next::Decide(view) => {
                let decided = run.decided("dice", &plan(&view, replay), &costs).unwrap();
                let wanted = match &decided.call.plan.action {
                    Action::Sample(requests) => total(requests),
                    Action::Train(_) => 0,
                };
                (asked, sampled) = (wanted, 0);
                seen.push((*view).clone());
                take(Line::Call(decided.call))?;
            }
            Next::Sample(grant, _) => {
                let told = outcomes(&grant, run.of.seed, run.state.version);
                (sampled, all) = (sampled + told.len() as u64, all + told.len() as u64);
                lost += told.iter().filter(|outcome| outcome.is_lost()).count() as u64;
                let most = asked * u64::from(1 + run.of.retries);
                prop_assert!(
                    sampled <= most,
                    "{sampled} rollouts of {asked} with {} retries",
                    run.of.retries
                );
                let took = run.sampled(&told, &[], &costs).unwrap();
                took.rollouts.map_or(Ok(()), |rollouts| take(Line::Rollouts(rollouts)))?;
            }
            Next::Update(rollouts, _) => _ = run.updated(!rollouts.is_empty(), Vec::new(), &costs),
            Next::Finish(..) => run.finished(Vec::new(), Compute::default(), &costs),
            Next::Begin(..) => {}
            Next::Evaluate => run.evaluated(Scores::default()),
            Next::Step(end) => take(Line::Step(end))?,
            Next::Over(end) => {
                take(Line::End(*end))?;
                break;
            }
            Next::Wait => panic!("nothing is out"),
        }
    }
    prop_assert_eq!(seen, told);
    prop_assert_eq!(all, run.state.ledger.spent().run_rollouts);
    prop_assert!(lost > 0 || all < 100);
    Ok(())
}

/// Drawn again are exactly those that were lost: with one of each four lost, and enough of everything else.
#[test]
fn a_request_gets_what_it_asked_for_though_environments_fail() {
    let mut run = fresh(3, 10_000, None, false, 0);
    run.of.retries = 2;
    let Next::Decide(view) = run.next(&costs) else { panic!() };
    let prompt = view.pool[0].id;
    let ask = Plan::of(Action::Sample(vec![Request::new(prompt, 8)]));
    run.decided("p", &ask, &costs).unwrap();
    let mut portions = Vec::new();
    while let Next::Sample(grant, _) = run.next(&costs) {
        let lines = grant.lines();
        let positions = lines.iter().flat_map(|line| line.first..line.first + line.count);
        let told: Vec<Outcome> = positions
            .map(|position| match position % 4 {
                0 => Outcome {
                    reward: None,
                    stopped: Some(Stopped::EnvironmentError),
                    ..Outcome::of(prompt, position, 0.0, false)
                },
                _ => Outcome::of(prompt, position, 1.0, true),
            })
            .collect();
        portions.push(told.iter().map(|outcome| outcome.position).collect::<Vec<_>>());
        run.sampled(&told, &[], &costs).unwrap();
    }
    // Positions 0 and 4 are lost, then 8, which is drawn again as 10.
    assert_eq!(portions, [vec![0, 1, 2, 3, 4, 5, 6, 7], vec![8, 9], vec![10]]);
    let Next::Decide(view) = run.next(&costs) else { panic!() };
    assert_eq!((view.groups[0].len(), view.unscored[0].rollouts), (8, 3));
    assert_eq!(run.state.ledger.spent().run_rollouts, 11, "each of them is paid for");
}

fn head(run: &Loop) -> Head {
    let text = |text: &str| text.to_owned();
    let policy = PolicyStamp {
        name: text("dice"),
        version: text(""),
        contract: text(""),
        sha256: text(""),
        draft: false,
    };
    Head {
        format: FORMAT,
        allot: text(""),
        name: None,
        policy,
        engine: text(""),
        signals: Vec::new(),
        seed: run.of.seed,
        order: Order::Shuffled,
        run: run.of.run.clone(),
        retries: run.of.retries,
        limits: run.state.ledger.limits(),
        ceilings: Ceilings::default(),
        caps: CapsStamp { fuel: 1, seconds: 1.0, memory: 1 },
        state: text(""),
        accuracy: None,
        scores: Vec::new(),
        advantage: None,
        training: None,
        lengths: None,
        world: None,
    }
}

/// What a view has no room for was once taken for the end of a run with a lag, unless it was stopped there.
#[test]
fn a_stop_between_a_short_view_and_the_update_that_waits_changes_nothing() {
    same(1_127_086_632_786_524_888, 4_365_688_703_145_553_297, 13, Some(181.021_353_793_296_87), false, 1)
        .unwrap();
}

#[test]
fn states_that_change_fill_the_record_to_its_bound_and_those_that_do_not_take_nothing() {
    let mut run = fresh(3, 200, None, false, 0);
    run.of.bounds.states = 25;
    let train = |state: u8| Plan { state: vec![state; 10], ..Plan::of(Action::Train(Batch::default())) };
    let mut broken = None;
    for step in [1, 1, 1, 2, 3] {
        loop {
            match run.next(&costs) {
                Next::Decide(_) => match run.decided("p", &train(step), &costs) {
                    Ok(_) => {}
                    Err(rule) => {
                        broken = Some(rule.to_string());
                        break;
                    }
                },
                Next::Update(..) => _ = run.updated(false, Vec::new(), &costs),
                Next::Evaluate => run.evaluated(Scores::default()),
                Next::Step(_) => break,
                other => panic!("{other:?}"),
            }
        }
    }
    let said = "policy `p` changed its state by 10 bytes; for such changes the run's record takes 5 bytes more \
                (step 4, round 0)";
    assert_eq!(broken.as_deref(), Some(said));
}
