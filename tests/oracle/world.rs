//! Whole runs of upstream's `fit()` loops, played again around our policies: the loader's order and the
//! rollouts' outcomes come from the recording, every decision from the policy, and each of them must be
//! the recorded one.
//!
//! In upstream's DAPO and GRESO a prompt may be sampled twice in a step, once at the end of an epoch and
//! once at the beginning of the next. Here every occurrence is a prompt of its own (`id` below), whose
//! past is that of the data set's prompt. Pilot-Commit lets go of all at the end of an epoch, so that
//! its prompts are those of the data set.

use std::collections::BTreeMap;

use allot_policy::chance::Chance;
use allot_policy::types::{Action, Batch, Group, Past, Plan, Prompt, Run, Value, View};
use allot_policy::{made, run_with};
use dapo::Dapo;
use greso::{Greso, GresoState};
use pilot_commit::PilotCommit;

use crate::advantage;
use crate::ask::{ask, ask_greso, first};
use crate::case::{Checked, Json, Verdict, close, ensure, same};
use crate::pieces::{integer, sampled, text};

/// Seeds to try for one in which our draw is the recorded one.
const SEEDS: u32 = 20_000_000;

/// Recorded events, taken one by one.
struct Events<'a> {
    all: &'a [Json],
    next: usize,
}

impl<'a> Events<'a> {
    fn of(case: &'a Json) -> Self {
        Self { all: case.get("events").list(), next: 0 }
    }

    fn rest(&self) -> &'a [Json] {
        &self.all[self.next..]
    }

    fn peek(&self) -> Option<&'a Json> {
        self.all.get(self.next)
    }

    fn is(&self, kind: &str) -> bool {
        self.peek().is_some_and(|event| event.get("ev").text() == kind)
    }

    fn take(&mut self, kind: &str) -> Result<&'a Json, String> {
        let event = self.peek().ok_or_else(|| format!("upstream has ended, and no `{kind}`"))?;
        same!(kind, event.get("ev").text(), "event {}", self.next);
        self.next += 1;
        Ok(event)
    }

    fn skip(&mut self, kind: &str) {
        while self.is(kind) {
            self.next += 1;
        }
    }
}

/// The occurrences of prompts in a loader's orders, epoch after epoch; what does not fill a batch of the
/// loader is dropped.
struct Loader {
    prompts: Vec<u32>,
    epochs: Vec<u32>,
    next: usize,
}

impl Loader {
    fn of(orders: &Json, batch: usize) -> Self {
        let (mut prompts, mut epochs) = (Vec::new(), Vec::new());
        for (epoch, order) in (0..).zip(orders.list()) {
            let order = order.ids();
            let whole = order.len() - order.len() % batch;
            prompts.extend_from_slice(&order[..whole]);
            epochs.extend(std::iter::repeat_n(epoch, whole));
        }
        Self { prompts, epochs, next: 0 }
    }

    fn pool(&self, past: impl Fn(u32) -> Option<Past>) -> Vec<Prompt> {
        (self.next..self.prompts.len())
            .map(|id| Prompt {
                epoch: self.epochs[id],
                past: past(self.prompts[id]),
                ..made::prompt(id as u32)
            })
            .collect()
    }

    fn prompt(&self, id: u32) -> u32 {
        self.prompts[id as usize]
    }
}

fn trained(plan: &Plan) -> Option<&Batch> {
    match &plan.action {
        Action::Train(batch) => Some(batch),
        Action::Sample(_) => None,
    }
}

fn view(step: u32, round: u32, rounds_left: u32, pool: Vec<Prompt>, groups: &[Group]) -> View {
    let mut view =
        View { step, round, seed: step * 1000 + round, pool, groups: groups.to_vec(), ..made::view(0..0) };
    view.budget.rounds = rounds_left;
    view
}

/// A limit of rounds as upstream's `max_num_gen_batches`: none or 0 for no limit.
fn rounds_left(limit: &Json, done: u32) -> u32 {
    match limit {
        Json::Null => u32::MAX,
        limit if limit.number() <= 0.0 => u32::MAX,
        limit => limit.id().saturating_sub(done),
    }
}

fn group_of(id: u32, rewards: &[f32], correct: Option<Vec<bool>>) -> Group {
    let group = made::rewarded(id, rewards);
    Group { correct: correct.unwrap_or_else(|| group.correct.clone()), ..group }
}

pub fn dapo(case: &Json) -> Checked {
    case.only(&[
        "id",
        "algo",
        "fn",
        "tag",
        "note",
        "params",
        "loader_orders",
        "events",
        "raised",
        "total_rollouts",
        "gen_steps",
        "global_steps",
    ])?;
    let params = case.get("params");
    params.only(&["train_bsz", "gen_bsz", "n", "max_gen", "steps", "epochs", "enable", "metric"])?;
    let metric = match params.get("metric") {
        Json::Null => "correct",
        metric => match metric.text() {
            "acc" => "correct",
            "score" | "seq_reward" | "seq_final_reward" => "reward",
            other => return Err(format!("the metric `{other}` is unknown")),
        },
    };
    let filter = !params.has("enable") || params.get("enable").flag();
    // Upstream's default in the harness is the scripts' limit of 10; none of its runs without the
    // parameter comes near.
    let limit = params.get("max_gen");
    let run = dapo_run(params.get("train_bsz"), params.get("gen_bsz"), params.get("n"), metric, filter);
    let mut loader = Loader::of(case.get("loader_orders"), params.get("gen_bsz").count());
    let mut events = Events::of(case);
    let play = play_dapo(&run, &mut loader, &mut events, limit, case.has("raised"))?;
    same!(play.rollouts, case.get("total_rollouts").count(), "rollouts in all");
    if case.has("raised") {
        return Ok(Verdict::Departs("where rounds run out the step trains on the groups it has"));
    }
    // Upstream's counters are one ahead where the data ended first.
    let ahead = |ours: u32, name: &str| [ours, ours + 1].contains(&case.get(name).id());
    ensure!(ahead(play.rounds, "gen_steps"), "{} rounds", play.rounds);
    ensure!(ahead(play.steps, "global_steps"), "{} steps", play.steps);
    Ok(Verdict::Agrees)
}

fn dapo_run(groups: &Json, generate: &Json, n: &Json, metric: &str, filter: bool) -> Run {
    let settings =
        [("generate", integer(generate.count())), ("metric", text(metric)), ("filter", Value::Flag(filter))];
    Run { groups: groups.id(), rollouts: n.id(), ..run_with::<Dapo>(&settings) }
}

/// What a run came to.
#[derive(Default)]
struct Played {
    rounds: u32,
    steps: u32,
    rollouts: usize,
}

fn play_dapo(
    run: &Run,
    loader: &mut Loader,
    events: &mut Events,
    limit: &Json,
    raised: bool,
) -> Result<Played, String> {
    let mut played = Played::default();
    let (mut state, mut round) = (first::<Dapo>(run), 0);
    let mut groups: Vec<Group> = Vec::new();
    // The first rollout's number of each group, in upstream's count over the run.
    let mut start: BTreeMap<u32, usize> = BTreeMap::new();
    loop {
        events.skip("epoch");
        if events.peek().is_none() && !raised {
            return Ok(played);
        }
        let left = if raised && events.peek().is_none() { 0 } else { rounds_left(limit, round) };
        let plan = ask::<Dapo>(run, &state, &view(played.steps, round, left, loader.pool(|_| None), &groups));
        state.clone_from(&plan.state);
        let Some(batch) = trained(&plan) else {
            let event = events.take("rollout")?;
            let ids: Vec<u32> = sampled(&plan).iter().map(|r| r.0).collect();
            let prompts: Vec<u32> = ids.iter().map(|id| loader.prompt(*id)).collect();
            same!(prompts, event.get("prompts").ids(), "prompts of round {round} of step {}", played.steps);
            ensure!(sampled(&plan).iter().all(|r| r.1 == event.get("n").id()), "rollouts of each");
            for (i, id) in ids.iter().enumerate() {
                let rewards =
                    row(event.get(if event.has("reward") { "reward" } else { "rewards" }), i).rewards();
                let correct = event.has("acc").then(|| row(event.get("acc"), i).numbers());
                start.insert(*id, played.rollouts);
                played.rollouts += rewards.len();
                groups.push(group_of(*id, &rewards, correct.map(|c| c.iter().map(|c| *c == 1.0).collect())));
            }
            loader.next += ids.len();
            (round, played.rounds) = (round + 1, played.rounds + 1);
            continue;
        };
        if events.peek().is_none() {
            ensure!((batch.picks.len() as u32) < run.groups, "upstream raises for want of groups");
            return Ok(played);
        }
        let event = events.take("train")?;
        let prompts: Vec<u32> = batch.picks.iter().map(|p| loader.prompt(p.prompt)).collect();
        same!(prompts, event.get("prompts").ids(), "trained on in step {}", played.steps);
        let find = |id: u32| groups.iter().find(|g| g.prompt == id).unwrap();
        if event.has("rollout_ids") {
            let ids = |id: u32| start[&id]..start[&id] + find(id).len();
            let ours: Vec<u32> = batch.picks.iter().flat_map(|p| ids(p.prompt)).map(|i| i as u32).collect();
            same!(ours, event.get("rollout_ids").ids(), "rollouts of step {}", played.steps);
        }
        if event.has("advantages") {
            let of = |id: u32| advantage::of(&find(id).rewards, 1e-6, true);
            let ours: Vec<f64> = batch.picks.iter().flat_map(|p| of(p.prompt)).collect();
            let theirs = event.get("advantages").numbers();
            // Equal rewards have f32's rounding error upstream, and 0 here.
            let flat: Vec<bool> =
                batch.picks.iter().flat_map(|p| vec![find(p.prompt).flat(); find(p.prompt).len()]).collect();
            same!(ours.len(), theirs.len(), "advantages");
            for ((ours, theirs), flat) in ours.iter().zip(&theirs).zip(flat) {
                ensure!(
                    close(*ours, *theirs, 2e-3) || (flat && *ours == 0.0),
                    "advantage {ours}, upstream's {theirs}"
                );
            }
        }
        groups.clear();
        (round, played.steps) = (0, played.steps + 1);
    }
}

fn row(rows: &Json, i: usize) -> &Json {
    &rows.list()[i]
}

/// What the host would remember of a prompt's visits, and upstream's trace of it.
#[derive(Default)]
struct History {
    visits: Vec<Group>,
    trace: Vec<(u32, f64)>,
}

impl History {
    /// Visits in a row that taught nothing in the same way, as the contract counts them.
    fn streak(&self) -> u32 {
        let Some(last) = self.visits.last() else { return 0 };
        let same = |g: &&Group| g.flat() && g.solved() == last.solved() && [0, g.len()].contains(&g.solved());
        self.visits.iter().rev().take_while(same).count() as u32
    }

    /// Visits in a row that upstream's thresholds call easy, or hard.
    fn literal_run(&self) -> u32 {
        let class = |g: &Group| greso::literal_classes(g.mean());
        let Some(last) = self.visits.last().map(class).filter(|c| c.0 || c.1) else { return 0 };
        self.visits.iter().rev().take_while(|g| class(g) == last).count() as u32
    }

    /// Whether the two differ where it counts: a group of 0 and 0.1, say, is hard to upstream and ends a
    /// streak.
    fn departs(&self) -> bool {
        self.literal_run() > 0 && self.literal_run() != self.streak().max(1)
    }

    fn past(&self) -> Option<Past> {
        let last = self.visits.last()?;
        Some(Past {
            visits: self.visits.len() as u32,
            mean: last.mean() as f32,
            // To follow upstream's run further; where it departs, the verdict does.
            streak: if self.departs() { self.literal_run() } else { self.streak() },
            ..made::past(last.solved() as u32, last.len() as u32)
        })
    }
}

pub fn greso(case: &Json) -> Checked {
    let checked = play_greso(case);
    // Upstream's statistics are over rows of eight, whatever n is; ours are not, and the runs part ways.
    match checked {
        Err(wrong) if case.get("params").get("n").count() != 8 && !wrong.contains("unknown") => {
            ensure!(!wrong.contains("round 0 of step 0"), "{wrong}");
            Ok(Verdict::Departs("statistics are by prompt; upstream's are by rows of eight"))
        }
        checked => checked,
    }
}

fn play_greso(case: &Json) -> Checked {
    case.only(&[
        "id",
        "algo",
        "fn",
        "tag",
        "note",
        "params",
        "loader_orders",
        "events",
        "raised",
        "adaptive_batch_sizes_after_short_rounds",
        "total_rollouts",
        "traces_at_end",
    ])?;
    let params = case.get("params");
    params.only(&[
        "n_prompts",
        "n",
        "loader_bs",
        "sampling_bs",
        "real_bs",
        "steps",
        "epochs",
        "gpus",
        "full",
        "dynamic",
        "p_easy",
        "p_hard",
        "target",
    ])?;
    let mut loader = Loader::of(case.get("loader_orders"), params.get("loader_bs").count());
    let mut events = Events::of(case);
    if params.has("dynamic") && !params.get("dynamic").flag() {
        // GRESO's baseline is dynamic sampling, judged by rewards.
        let run = dapo_run(params.get("real_bs"), params.get("loader_bs"), params.get("n"), "reward", true);
        let played = play_dapo(&run, &mut loader, &mut events, &Json::Null, false)?;
        same!(played.rollouts, case.get("total_rollouts").count(), "rollouts in all");
        return Ok(if case.has("raised") {
            Verdict::Departs("a round of flat groups alone is followed by another")
        } else {
            Verdict::Agrees
        });
    }

    let mut settings = vec![
        ("sampling", integer(params.get("sampling_bs").count())),
        ("floor", integer(64)),
        ("chunk", integer(params.get("loader_bs").count())),
        // Where a recording says nothing of GPUs it was made with four.
        ("ranks", integer(if params.has("gpus") { params.get("gpus").count() } else { 4 })),
        ("full-sampling", Value::Flag(params.get("full").flag())),
        ("literal", Value::Flag(true)),
    ];
    for (ours, theirs) in [("p-easy", "p_easy"), ("p-hard", "p_hard"), ("target", "target")] {
        if params.has(theirs) {
            settings.push((ours, Value::Number(params.get(theirs).number())));
        }
    }
    let run = Run {
        groups: params.get("real_bs").id(),
        rollouts: params.get("n").id(),
        ..run_with::<Greso>(&settings)
    };
    let mut state = first::<Greso>(&run);
    let mut histories: BTreeMap<u32, History> = BTreeMap::new();
    let mut groups: Vec<Group> = Vec::new();
    let (mut step, mut round, mut rollouts) = (0, 0, 0);
    let mut sizes: Vec<u32> = Vec::new();
    let mut departs = false;
    loop {
        events.skip("epoch");
        if events.peek().is_none() && !case.has("raised") {
            break;
        }
        // The draws of the next filtering: all until the next rollout.
        let filters: Vec<&Json> = events
            .rest()
            .iter()
            .take_while(|e| ["presample_filter", "epoch"].contains(&e.get("ev").text()))
            .filter(|e| e.get("ev").text() == "presample_filter")
            .collect();
        let uniforms: Vec<f64> = filters.iter().flat_map(|e| e.get("uniforms_consumed").numbers()).collect();
        let memory = |state: &[u8]| <GresoState as allot_policy::State>::load(state).unwrap();
        if let Some(filter) = filters.first() {
            let p = ["p_easy", "p_hard"].map(|name| filter.get(name).number());
            same!([memory(&state).p_easy, memory(&state).p_hard], p, "probabilities in step {step}");
        }
        let pool = loader.pool(|prompt| histories.get(&prompt).and_then(History::past));
        let seen = view(step, round, u32::MAX, pool, &groups);
        if events.peek().is_none() {
            // Upstream has divided by zero.
            let plan = ask::<Greso>(&run, &state, &seen);
            ensure!(trained(&plan).is_none(), "no mixed group, and yet it trains");
            same!(memory(&plan.state).size, params.get("sampling_bs").id(), "size of the next round");
            return Ok(Verdict::Departs("a round of flat groups alone is followed by a full one"));
        }
        let mut drawn = uniforms.iter();
        let plan = ask_greso(&run, &state, &seen, &mut || *drawn.next().unwrap_or(&f64::NAN));
        state.clone_from(&plan.state);
        let Some(batch) = trained(&plan) else {
            if round > 0 {
                sizes.push(memory(&state).size);
            }
            same!(drawn.len(), 0, "uniforms left over in round {round} of step {step}");
            let (mut kept, mut looked) = (Vec::new(), 0);
            for filter in &filters {
                for (prompt, decision) in
                    filter.get("candidates").ids().iter().zip(filter.get("decision").texts())
                {
                    let id = (loader.next + looked) as u32;
                    same!(loader.prompt(id), *prompt, "the loader's order");
                    looked += 1;
                    match decision {
                        "keep" => kept.push(id),
                        "easy_skip" | "hard_skip" => {
                            ensure!(plan.skip.contains(&id), "prompt {prompt} is not skipped in step {step}");
                        }
                        other => return Err(format!("the decision `{other}` is unknown")),
                    }
                }
            }
            for _ in &filters {
                events.skip("epoch");
                events.next += 1;
            }
            events.skip("epoch");
            let ids: Vec<u32> = sampled(&plan).iter().map(|r| r.0).collect();
            same!(ids.len() + plan.skip.len(), looked, "prompts looked at");
            loader.next += looked;
            if events.peek().is_none() && !case.has("raised") {
                // The data has ended before enough were kept: what we would sample, upstream does not.
                ensure!(
                    kept.starts_with(&ids),
                    "kept at the end of the data: ours {ids:?}, upstream's {kept:?}"
                );
                break;
            }
            let event = events.take("rollout")?;
            let prompts: Vec<u32> = ids.iter().map(|id| loader.prompt(*id)).collect();
            same!(prompts, event.get("prompts").ids(), "prompts of round {round} of step {step}");
            ensure!(sampled(&plan).iter().all(|r| r.1 == event.get("n").id()), "rollouts of each");
            for (i, id) in ids.iter().enumerate() {
                let group = group_of(*id, &row(event.get("rewards"), i).rewards(), None);
                let history = histories.entry(loader.prompt(*id)).or_default();
                history.trace.push((loader.epochs[loader.next - 1], group.mean()));
                history.visits.push(group.clone());
                departs |= history.departs();
                rollouts += group.len();
                groups.push(group);
            }
            round += 1;
            continue;
        };
        let event = events.take("train")?;
        let prompts: Vec<u32> = batch.picks.iter().map(|p| loader.prompt(p.prompt)).collect();
        same!(prompts, event.get("prompts").ids(), "trained on in step {step}");
        same!(prompts.len(), event.get("n_prompts").count(), "groups");
        let after = ["p_easy_after", "p_hard_after"].map(|name| event.get(name).number());
        same!([memory(&state).p_easy, memory(&state).p_hard], after, "probabilities after step {step}");
        groups.clear();
        (step, round) = (step + 1, 0);
    }
    same!(rollouts, case.get("total_rollouts").count(), "rollouts in all");
    let theirs = case.get("adaptive_batch_sizes_after_short_rounds").ids();
    // The last round's size is known to upstream even if no data is left for another.
    ensure!(
        theirs.starts_with(&sizes) && theirs.len() - sizes.len() <= 1,
        "sizes {sizes:?}, upstream's {theirs:?}"
    );
    for (name, trace) in case.get("traces_at_end").map() {
        let prompt: u32 = name.trim_start_matches("d_").parse().map_err(|_| format!("prompt `{name}`"))?;
        let ours = histories.get(&prompt).map_or(&[][..], |h| &h.trace);
        same!(ours.len(), trace.list().len(), "visits of {prompt}");
        for ((epoch, mean), theirs) in ours.iter().zip(trace.list()) {
            same!(*epoch, theirs.list()[0].id(), "epoch of a visit of {prompt}");
            ensure!(close(*mean, theirs.list()[1].number(), 1e-5), "mean of {prompt}");
        }
    }
    if departs {
        return Ok(Verdict::Departs("only flat visits make a streak; a hard group of 0 and 0.1 ends it"));
    }
    Ok(Verdict::Agrees)
}

/// A run of Pilot-Commit: its prompts tried so far, their rollouts, and what the recording expects next.
struct Pilots<'a> {
    run: Run,
    pilot: usize,
    kept: usize,
    table: &'a [Json],
    /// Rollouts made of each prompt in the run.
    made: BTreeMap<u32, usize>,
    /// The numbers of each group's rollouts, as upstream counts them.
    numbers: BTreeMap<u32, Vec<u32>>,
    /// The update before which each buffered rollout was sampled.
    born: BTreeMap<u32, Vec<u32>>,
    groups: Vec<Group>,
    rollouts: u32,
    updates: u32,
}

impl Pilots<'_> {
    fn aged(&self) -> Vec<Group> {
        let ages = |g: &Group| self.born[&g.prompt].iter().map(|born| self.updates - born).collect();
        self.groups.iter().map(|g| Group { ages: ages(g), ..g.clone() }).collect()
    }

    fn sample(&mut self, prompt: u32, count: u32) {
        let outcomes = self.table[prompt as usize].list();
        let (numbers, born) = (self.numbers.entry(prompt).or_default(), self.born.entry(prompt).or_default());
        let made = self.made.entry(prompt).or_default();
        let known = self.groups.iter().position(|g| g.prompt == prompt);
        let place = known.unwrap_or_else(|| {
            self.groups.push(group_of(prompt, &[], None));
            numbers.clear();
            born.clear();
            self.groups.len() - 1
        });
        let mut correct = self.groups[place].correct.clone();
        for _ in 0..count {
            correct.push(outcomes[*made % outcomes.len()].number() == 1.0);
            *made += 1;
            numbers.push(self.rollouts);
            born.push(self.updates);
            self.rollouts += 1;
        }
        self.groups[place] = crate::pieces::marked(prompt, &correct);
    }
}

/// A seed from which our policy draws what upstream drew.
fn seed(fits: impl Fn(&mut Chance) -> bool) -> Result<u32, String> {
    let found = (0..SEEDS).find(|seed| fits(&mut Chance::new(*seed)));
    found.ok_or_else(|| format!("none of {SEEDS} seeds draws what upstream drew"))
}

pub fn pilot_commit(case: &Json) -> Checked {
    case.only(&[
        "id",
        "algo",
        "fn",
        "tag",
        "note",
        "params",
        "rollout_table",
        "events",
        "raised",
        "random_draws",
        "rollout_ids",
        "total_rollouts",
        "excluded_at_end",
    ])?;
    let params = case.get("params");
    params.only(&[
        "gen_bsz",
        "train_bsz",
        "n_explore",
        "n_commit",
        "lower",
        "upper",
        "exclude",
        "max_off",
        "max_gen",
        "strategy",
        "steps",
        "epochs",
        "n_gpus",
        "n_effective",
    ])?;
    let size = |name: &str, default: usize| if params.has(name) { params.get(name).count() } else { default };
    let (pilot, prompts) = (size("n_explore", 8), size("gen_bsz", 1));
    let kept = match size("n_effective", pilot) {
        n if n == pilot => 0,
        n => n,
    };
    let strategy = match params.get("strategy").text() {
        "least_recent" => "most_recent",
        strategy => strategy,
    };
    let settings = [
        ("pilot", integer(pilot)),
        ("commit", integer(size("n_commit", 8))),
        ("prompts", integer(prompts)),
        ("solved-at-least", Value::Number(params.get("lower").number())),
        ("failed-at-least", Value::Number(params.get("upper").number())),
        ("evict-at", Value::Number(if params.has("exclude") { params.get("exclude").number() } else { 2.0 })),
        ("sampling", text(&strategy.replace('_', "-"))),
        ("max-off", integer(size("max_off", 4))),
        ("pilot-kept", integer(kept)),
        ("epoch-end", text("discard")),
        ("ranks", integer(size("n_gpus", 1))),
    ];
    let run = Run {
        groups: size("train_bsz", 1) as u32,
        pool: 10_000,
        max_age: 1000,
        ..run_with::<PilotCommit>(&settings)
    };
    let mut events = Events::of(case);
    // The loader's order is what was tried, call by call. Excluded prompts never come up in it.
    let mut loader: Vec<(u32, u32)> = Vec::new();
    for event in case.get("events").list().iter().filter(|e| e.get("ev").text() == "pilot") {
        let call = event.get("generated_in_call_order").list();
        let tried = call.iter().take(prompts).map(|r| r.list()[0].id());
        loader.extend(tried.map(|p| (p, event.get("epoch").id())));
    }
    let (mut next, mut step, mut round) = (0, 0, 0);
    let mut state = first::<PilotCommit>(&run);
    let mut evicted: Vec<u32> = Vec::new();
    let mut expected_evictions: Vec<u32> = Vec::new();
    let mut committed: Vec<u32> = Vec::new();
    let mut world = Pilots {
        run,
        pilot,
        kept,
        table: case.get("rollout_table").list(),
        made: BTreeMap::new(),
        numbers: BTreeMap::new(),
        born: BTreeMap::new(),
        groups: Vec::new(),
        rollouts: 0,
        updates: 0,
    };
    loop {
        events.skip("apply_exclusions");
        let enforced = |e: &Json| e.get("ev").text() == "flush" && e.get("enforce").flag();
        while world.groups.is_empty() && events.peek().is_some_and(enforced) {
            // An epoch with too few prompts for a call: nobody is asked anything.
            events.take("flush")?;
            events.skip("apply_exclusions");
        }
        let raised = case.has("raised") && events.peek().is_none();
        if events.peek().is_none() && !raised {
            break;
        }
        let buffered = |p: u32| world.groups.iter().any(|g| g.prompt == p);
        let mut offered = std::collections::BTreeSet::new();
        let mut pool: Vec<Prompt> = loader[next..]
            .iter()
            .filter(|(p, _)| !buffered(*p) && offered.insert(*p))
            .map(|(p, epoch)| Prompt { epoch: *epoch, ..made::prompt(*p) })
            .collect();
        if next >= loader.len() {
            // Beyond the recording: strangers, of the next epoch where this one ends before the run does.
            let epoch = loader.last().map_or(0, |l| l.1) + u32::from(events.rest().iter().any(enforced));
            let table = world.table.len() as u32;
            pool.extend((0..prompts as u32).map(|i| Prompt { epoch, ..made::prompt(table + i) }));
        }
        let exhausted = raised && case.get("raised").text().starts_with("ValueError");
        let left = if exhausted { 0 } else { rounds_left(params.get("max_gen"), round) };
        let mut view = view(step, round, left, pool, &world.aged());
        let selection = if events.is("commit_select") { Some(events.take("commit_select")?) } else { None };
        view.seed = match (selection, events.is("flush")) {
            (Some(selection), _) => seed_of_choice(strategy, selection)?,
            (None, true) => seed_of_pilots(&world, &committed, events.rest())?,
            _ => view.seed,
        };
        let plan = ask::<PilotCommit>(&world.run, &state, &view);
        state.clone_from(&plan.state);
        let sorted = |mut ids: Vec<u32>| {
            ids.sort_unstable();
            ids
        };
        same!(sorted(plan.evict.clone()), sorted(expected_evictions.clone()), "evicted in step {step}");
        evicted.append(&mut expected_evictions);

        let Some(batch) = trained(&plan) else {
            let requests = sampled(&plan);
            let commits: Vec<u32> = requests.iter().skip(prompts.min(requests.len())).map(|r| r.0).collect();
            if let Some(selection) = selection.filter(|s| s.has("selected")) {
                let buffer: Vec<u32> = selection
                    .get("buffer_before_in_insertion_order")
                    .map()
                    .iter()
                    .map(|(p, _)| p.parse().unwrap())
                    .collect();
                same!(survivors(&plan), buffer.len(), "survivors in step {step}");
                let chosen: Vec<u32> = requests.iter().map(|r| r.0).filter(|p| buffer.contains(p)).collect();
                same!(chosen, selection.get("selected").ids(), "committed to in step {step}");
                same!(chosen.len(), selection.get("size").count(), "commits in step {step}");
            }
            if raised || (case.has("raised") && events.peek().is_none()) {
                let size = world.run.groups as usize;
                ensure!(requests.len() <= prompts + size, "{} requests", requests.len());
                return Ok(Verdict::Departs(match selection.filter(|s| s.has("selected")) {
                    Some(_) => "pilots are thinned out for any buffer; upstream's assertion fails",
                    None => "nothing to commit to is no crash",
                }));
            }
            let event = events.take("pilot")?;
            let call: Vec<(u32, u32)> = event
                .get("generated_in_call_order")
                .list()
                .iter()
                .map(|r| (r.list()[0].id(), r.list()[1].id()))
                .collect();
            same!(requests, call, "the call of round {round} of step {step}");
            for (prompt, count) in &requests {
                world.sample(*prompt, *count);
            }
            committed.extend(commits);
            next += prompts;
            let settings =
                <pilot_commit::PilotCommitSettings as allot_policy::Settings>::read(&world.run).unwrap();
            let fresh = &world.groups[world.groups.len() - prompts..];
            let passed: Vec<u32> =
                fresh.iter().filter(|g| settings.passes(g.pass_rate())).map(|g| g.prompt).collect();
            same!(passed, event.get("passed").ids(), "passed in step {step}");
            if events.is("mark_excluded") {
                expected_evictions = events.take("mark_excluded")?.get("prompts").ids();
            }
            round += 1;
            continue;
        };

        if raised {
            let picks: Vec<u32> = batch.picks.iter().map(|p| p.prompt).collect();
            if committed.is_empty() {
                ensure!(picks.len() <= world.run.groups as usize, "trained on pilots: {picks:?}");
            } else {
                same!(picks, committed, "trained on short");
            }
            ensure!(exhausted, "raises, and it is not clear why");
            return Ok(Verdict::Departs("where rounds run out the step trains on the groups it has"));
        }
        let flush = events.take("flush")?;
        if flush.get("enforce").flag() {
            // The end of an epoch: all is discarded, and no update made.
            ensure!(batch.picks.is_empty() && batch.hold.is_empty(), "an epoch has ended: {batch:?}");
        } else {
            let event = events.take("train")?;
            events.skip("apply_exclusions");
            // Where the epoch ends with this step, what upstream flushes next is not held at all.
            let ends = events.is("flush") && events.peek().is_some_and(|e| e.get("enforce").flag());
            let held = if ends { Vec::new() } else { flush.get("left").ids() };
            same!(batch.hold, held, "held after step {step}");
            check_batch(&world, batch, event)?;
            if ends {
                events.take("flush")?;
            }
            world.updates += 1;
        }
        world.groups.retain(|g| batch.hold.iter().any(|hold| *hold == g.prompt));
        committed.clear();
        (step, round) = (step + 1, 0);
    }
    same!(world.rollouts as usize, case.get("total_rollouts").count(), "rollouts in all");
    evicted.append(&mut expected_evictions);
    evicted.sort_unstable();
    evicted.dedup();
    let mut theirs = case.get("excluded_at_end").ids();
    theirs.sort_unstable();
    // Marks of the last epoch may not have been applied to the data set yet.
    ensure!(theirs.iter().all(|p| evicted.contains(p)), "evicted {evicted:?}, upstream {theirs:?}");
    for (number, made) in case.get("rollout_ids").map() {
        let (number, made): (u32, Vec<u32>) = (number.parse().unwrap(), made.ids());
        ensure!(number < world.rollouts, "rollout {number} of {made:?} was never made");
    }
    Ok(Verdict::Agrees)
}

fn survivors(plan: &Plan) -> usize {
    plan.metrics.iter().find(|(name, _)| name == "survivors").map_or(0, |(_, n)| *n as usize)
}

/// A seed by which our choice of survivors is upstream's, where it is drawn at all.
fn seed_of_choice(strategy: &str, selection: &Json) -> Result<u32, String> {
    let buffer = selection.get("buffer_before_in_insertion_order").map();
    if !selection.has("selected") {
        return Ok(1);
    }
    let chosen = selection.get("selected").ids();
    if strategy != "random" || buffer.len() <= chosen.len() {
        return Ok(1);
    }
    let places: Vec<usize> =
        chosen.iter().map(|p| buffer.iter().position(|(b, _)| b.parse() == Ok(*p)).unwrap()).collect();
    seed(|chance| chance.draw(buffer.len(), places.len()) == places)
}

/// A seed by which we keep the pilots that upstream kept.
fn seed_of_pilots(world: &Pilots, committed: &[u32], rest: &[Json]) -> Result<u32, String> {
    let Some(event) = rest.iter().take(2).find(|e| e.get("ev").text() == "train") else { return Ok(1) };
    if world.kept == 0 {
        return Ok(1);
    }
    let wanted: Vec<(&[bool], Vec<u32>)> = committed
        .iter()
        .map(|p| {
            let group = world.groups.iter().find(|g| g.prompt == *p).unwrap();
            let ids = event.get("groups").get(&p.to_string()).get("rollout_ids").ids();
            let place = |id: &u32| world.numbers[p].iter().position(|n| n == id).unwrap() as u32;
            (&group.correct[..world.pilot], ids[..world.kept].iter().map(place).collect())
        })
        .collect();
    seed(|chance| {
        wanted.iter().all(|(correct, kept)| pilot_commit::downsample(correct, world.kept, chance) == *kept)
    })
}

/// Holds a batch against what upstream trained on: groups, rollouts in order, advantages.
fn check_batch(world: &Pilots, batch: &Batch, event: &Json) -> Result<(), String> {
    let prompts: Vec<u32> = batch.picks.iter().map(|p| p.prompt).collect();
    same!(prompts, event.get("prompt_order").ids(), "trained on in step {}", event.get("step").id());
    for pick in &batch.picks {
        let theirs = event.get("groups").get(&pick.prompt.to_string());
        let numbers = &world.numbers[&pick.prompt];
        let positions = pick.rollouts.clone().unwrap_or_else(|| (0..numbers.len() as u32).collect());
        let ours: Vec<u32> = positions.iter().map(|i| numbers[*i as usize]).collect();
        same!(ours, theirs.get("rollout_ids").ids(), "rollouts of prompt {}", pick.prompt);
        // The outcomes are the world's; a length penalty on top would be the recording's alone.
        let group = world.groups.iter().find(|g| g.prompt == pick.prompt).unwrap();
        let rewards = theirs.get("rewards").rewards();
        for (i, reward) in positions.iter().zip(&rewards) {
            same!(group.correct[*i as usize], *reward > 0.0, "outcome {i} of prompt {}", pick.prompt);
        }
        let advantages = advantage::of(&rewards, 1e-6, true);
        let recorded = theirs.get("advantages").numbers();
        ensure!(
            advantage::agree(&advantages, &recorded),
            "advantages {advantages:?}, upstream's {recorded:?}"
        );
    }
    Ok(())
}
