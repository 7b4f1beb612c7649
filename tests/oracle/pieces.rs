//! Cases of single functions: what a policy decides on one made view, or one of its functions alone.

use allot_policy::chance::Chance;
use allot_policy::types::{Action, Group, Plan, Run, Value, View};
use allot_policy::{Settings, State as _, begin, made, run_with};
use dapo::Dapo;
use greso::{Greso, GresoSettings, Rounds};
use pilot_commit::{PilotCommit, PilotCommitSettings, PilotCommitState, Sampling};
use pods::Pods;

use crate::advantage;
use crate::ask::{ask, ask_greso, first};
use crate::case::{Checked, Json, Verdict, close, ensure, same};

pub fn integer(n: usize) -> Value {
    Value::Integer(i32::try_from(n).unwrap())
}

pub fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// A group of correct and incorrect rollouts, rewarded 1 and -1.
pub fn marked(prompt: u32, correct: &[bool]) -> Group {
    let rewards: Vec<f32> = correct.iter().map(|c| if *c { 1.0 } else { -1.0 }).collect();
    Group { correct: correct.to_vec(), ..made::rewarded(prompt, &rewards) }
}

/// A view after a round, with these groups in the buffer.
fn after(pool: std::ops::Range<u32>, groups: Vec<Group>) -> View {
    View { round: 1, groups, ..made::view(pool) }
}

fn truths(values: &Json) -> Vec<bool> {
    values.list().iter().map(|v| v.number() == 1.0).collect()
}

fn finite(values: &[f64]) -> bool {
    values.iter().all(|v| v.is_finite())
}

fn only_binary<'a>(values: impl IntoIterator<Item = &'a Json>) -> bool {
    values.into_iter().all(|v| [0.0, 1.0].contains(&v.number()))
}

/// With one degree of freedom less, as upstream's.
fn variance(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
}

fn descending(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(|a, b| b.total_cmp(a));
    values
}

/// What PODS picks of a group, and whether it gives advantages of its own.
fn pods(rule: &str, rewards: &[f32], m: usize) -> (Vec<u32>, bool) {
    let run = run_with::<Pods>(&[("keep", integer(m)), ("rule", text(rule))]);
    let view = after(0..4, vec![made::rewarded(9, rewards)]);
    // It remembers nothing. Its `begin` refuses m = 1, by which a run can't learn.
    let plan = ask::<Pods>(&run, &[], &view);
    let Action::Train(mut batch) = plan.action else { panic!("PODS trains after a round") };
    let pick = batch.picks.remove(0);
    (pick.rollouts.unwrap(), matches!(pick.advantage, allot_policy::types::Advantage::Given(_)))
}

/// What can't be a case for us: nothing to keep, or rewards that the host refuses.
fn undefined(rewards: &[f64], m: usize) -> Option<Checked> {
    if m == 0 {
        let refused = begin::<Pods>(&run_with::<Pods>(&[("keep", integer(0))])).is_err();
        return Some(if refused {
            Ok(Verdict::Departs("m = 0 is an error of the setting"))
        } else {
            Err("m = 0 is taken".to_owned())
        });
    }
    if !finite(rewards) {
        let rewards: Vec<f32> = rewards.iter().map(|r| *r as f32).collect();
        let kept = pods::max_variance(&rewards, m).len();
        return Some(if kept == m.min(rewards.len()) {
            Ok(Verdict::Departs("the host lets no reward in that is not finite"))
        } else {
            Err(format!("{kept} of {m} kept"))
        });
    }
    None
}

pub fn pods_max_variance(case: &Json) -> Checked {
    case.only(&[
        "id",
        "algo",
        "fn",
        "tag",
        "note",
        "rewards",
        "m",
        "selected_indices",
        "selected_rewards",
        "variance_f32_ddof1",
        "advantages",
        "optimal_splits_top_i",
        "optimal_variance_f64_ddof1",
        "acceptable_reward_multisets",
        "brute_force_max_variance",
        "upstream_undefined",
        "prompt_of",
    ])?;
    same!(case.get("fn").text(), "single_gpu_max_variance", "fn");
    let m = case.get("m").count();
    if let Some(checked) = undefined(&case.get("rewards").numbers(), m) {
        return checked;
    }
    let rewards = case.get("rewards").rewards();
    if case.has("prompt_of") {
        return pods_of_prompts(&rewards, &case.get("prompt_of").ids(), m);
    }
    let (kept, given) = pods("max-variance", &rewards, m);
    same!(kept.len(), m.min(rewards.len()), "rollouts kept");
    same!(given, kept.len() == 1, "advantages of its own");
    if rewards.len() < m {
        ensure!(case.get("upstream_undefined").flag(), "n < m and yet defined");
        return Ok(Verdict::Departs("n < m keeps all"));
    }
    ensure!(!case.get("upstream_undefined").flag(), "undefined, and it is not clear why");
    let ours: Vec<f64> = kept.iter().map(|i| f64::from(rewards[*i as usize])).collect();
    let set = descending(ours.clone());
    if m == 1 {
        same!(set, case.get("selected_rewards").numbers(), "the reward kept");
        ensure!(
            case.get("advantages").list().iter().all(|a| a.number().is_nan()),
            "a finite advantage of one"
        );
        return Ok(Verdict::Departs("the advantage of one rollout is 0, not NaN"));
    }
    let accepted = case.get("acceptable_reward_multisets").list();
    ensure!(
        accepted.iter().any(|a| descending(a.rewards().into_iter().map(f64::from).collect()) == set),
        "{set:?} is none of the acceptable ones"
    );
    for best in ["optimal_variance_f64_ddof1", "brute_force_max_variance"] {
        if case.has(best) {
            let (best, ours) = (case.get(best).number(), variance(&ours));
            ensure!(ours >= best * (1.0 - 1e-9) - 1e-15, "variance {ours} below {best}");
        }
    }
    let picked: Vec<f32> = ours.iter().map(|r| *r as f32).collect();
    if set == descending(case.get("selected_rewards").numbers()) {
        let advantages = descending(advantage::of(&picked, 1e-4, true));
        let theirs = descending(case.get("advantages").numbers());
        ensure!(advantage::agree(&advantages, &theirs), "advantages {advantages:?}, upstream's {theirs:?}");
    }
    Ok(Verdict::Agrees)
}

/// Upstream selects over the whole device batch, whatever prompts are in it.
fn pods_of_prompts(rewards: &[f32], prompts: &[u32], m: usize) -> Checked {
    let mut groups: Vec<(u32, Vec<f32>)> = Vec::new();
    for (prompt, reward) in prompts.iter().zip(rewards) {
        match groups.iter_mut().find(|(p, _)| p == prompt) {
            Some((_, own)) => own.push(*reward),
            None => groups.push((*prompt, vec![*reward])),
        }
    }
    for (_, own) in &groups {
        same!(pods("max-variance", own, m).0.len(), m.min(own.len()), "rollouts kept of a prompt");
    }
    Ok(Verdict::Departs("each prompt has a selection of its own"))
}

pub fn pods_max_reward(case: &Json) -> Checked {
    case.only(&[
        "id",
        "algo",
        "fn",
        "tag",
        "note",
        "rewards",
        "m",
        "selected_indices",
        "upstream_undefined",
    ])?;
    same!(case.get("fn").text(), "max_reward", "fn");
    let m = case.get("m").count();
    if let Some(checked) = undefined(&case.get("rewards").numbers(), m) {
        return checked;
    }
    let rewards = case.get("rewards").rewards();
    let at =
        |positions: &[u32]| descending(positions.iter().map(|i| f64::from(rewards[*i as usize])).collect());
    let (kept, _) = pods("max-reward", &rewards, m);
    same!(at(&kept), at(&case.get("selected_indices").ids()), "rewards kept");
    Ok(Verdict::Agrees)
}

pub fn pods_multi_gpu_aliasing(case: &Json) -> Checked {
    case.only(&[
        "id",
        "algo",
        "fn",
        "tag",
        "note",
        "rewards",
        "m",
        "selected_indices",
        "selected_rewards",
        "achieved_variance_f64",
        "optimal_variance_f64",
        "suboptimal",
        "duplicate_indices",
        "advantages",
    ])?;
    same!(case.get("fn").text(), "multi_gpu_max_variance_as_shipped", "fn");
    let m = case.get("m").count();
    if let Some(checked) = undefined(&case.get("rewards").numbers(), m) {
        return checked;
    }
    let rewards = case.get("rewards").rewards();
    let (kept, _) = pods("max-variance", &rewards, m);
    same!(kept.len(), m.min(rewards.len()), "rollouts kept");
    if kept.len() < 2 {
        return Ok(Verdict::Departs("the advantage of one rollout is 0, not NaN"));
    }
    let ours = variance(&kept.iter().map(|i| f64::from(rewards[*i as usize])).collect::<Vec<_>>());
    let (achieved, optimal) =
        (case.get("achieved_variance_f64").number(), case.get("optimal_variance_f64").number());
    ensure!(ours >= optimal * (1.0 - 1e-9) - 1e-15, "variance {ours} below {optimal}");
    if case.get("suboptimal").flag() || case.get("duplicate_indices").flag() {
        return Ok(Verdict::Departs("the multi-GPU trainer's aliasing is not copied"));
    }
    ensure!(close(ours, achieved, 1e-6), "variance {ours}, upstream's {achieved}");
    Ok(Verdict::Agrees)
}

fn pilot_commit(pilot: usize, changes: &[(&str, Value)]) -> Run {
    let mut all = vec![("pilot", integer(pilot)), ("sampling", text("max-variance"))];
    all.extend_from_slice(changes);
    Run { pool: 10_000, ..run_with::<PilotCommit>(&all) }
}

pub fn pc_filter(case: &Json) -> Checked {
    case.only(&[
        "id",
        "algo",
        "fn",
        "tag",
        "note",
        "metric_by_prompt",
        "diversity_threshold_upper",
        "diversity_threshold_lower",
        "exclude_threshold_upper",
        "means",
        "passed",
        "stats",
        "excluded",
        "select_prompts",
    ])?;
    same!(case.get("fn").text(), "filter_batch+exclude_batch", "fn");
    let metrics = case.get("metric_by_prompt").map();
    let exclude = case.get("exclude_threshold_upper");
    let thresholds = [
        ("solved-at-least", Value::Number(case.get("diversity_threshold_lower").number())),
        ("failed-at-least", Value::Number(case.get("diversity_threshold_upper").number())),
        ("evict-at", Value::Number(if *exclude == Json::Null { 2.0 } else { exclude.number() })),
    ];
    let id = |name: &str| name.parse::<u32>().unwrap();
    let sorted = |mut ids: Vec<u32>| {
        ids.sort_unstable();
        ids
    };
    let passed = case.get("passed").ids();
    let excluded = sorted(if case.has("excluded") { case.get("excluded").ids() } else { Vec::new() });

    let n = metrics[0].1.list().len();
    if !metrics.iter().all(|(_, values)| only_binary(values.list()) && values.list().len() == n) {
        // Answers are right or wrong in the contract, and pilots of one number: the thresholds alone.
        let settings = PilotCommitSettings::read(&pilot_commit(1, &thresholds)).unwrap();
        let means: Vec<(u32, f64)> =
            case.get("means").map().iter().map(|(p, mean)| (id(p), mean.number())).collect();
        let ours: Vec<u32> =
            means.iter().filter(|(_, mean)| settings.passes(*mean)).map(|(p, _)| *p).collect();
        same!(ours, passed, "passed");
        return Ok(if means.iter().all(|(_, mean)| mean.is_finite()) {
            Verdict::Agrees
        } else {
            Verdict::Departs("the host lets no reward in that is not finite; such a mean passes nowhere")
        });
    }

    let mut run = pilot_commit(n, &thresholds);
    run.groups = metrics.len() as u32;
    // A round that tries all these prompts in this order, and then the view with what came of it.
    let order: Vec<u32> = metrics.iter().map(|(p, _)| id(p)).collect();
    // Not from `begin`: it refuses a single pilot, of which upstream's filter passes none.
    let state = PilotCommitState::default().save();
    let plan = ask::<PilotCommit>(&run, &state, &made::view(order.clone()));
    same!(sampled(&plan), order.iter().map(|p| (*p, n as u32)).collect::<Vec<_>>(), "pilots");
    let groups = metrics.iter().map(|(p, values)| marked(id(p), &truths(values))).collect();
    let plan = ask::<PilotCommit>(&run, &plan.state, &after(0..0, groups));
    let commits: Vec<u32> = match &plan.action {
        Action::Sample(requests) => requests.iter().map(|r| r.prompt).collect(),
        Action::Train(batch) => batch.picks.iter().map(|p| p.prompt).collect(),
    };
    same!(commits, passed, "passed");
    same!(sorted(plan.evict), excluded, "excluded");
    Ok(Verdict::Agrees)
}

pub fn sampled(plan: &Plan) -> Vec<(u32, u32)> {
    match &plan.action {
        Action::Sample(requests) => requests.iter().map(|r| (r.prompt, r.count)).collect(),
        Action::Train(_) => Vec::new(),
    }
}

/// Whether `hits` of `trials` is no surprise for this probability.
fn likely(hits: usize, trials: usize, p: f64) -> bool {
    let sigma = (p * (1.0 - p) / trials as f64).sqrt();
    (hits as f64 / trials as f64 - p).abs() <= 5.0 * sigma + 1e-9
}

/// Seeds to count draws over.
const TRIALS: u32 = 4000;

pub fn pc_response_downsample(case: &Json) -> Checked {
    case.only(&[
        "id",
        "algo",
        "fn",
        "tag",
        "note",
        "rewards",
        "m",
        "n_ones_chosen",
        "n_zeros_chosen",
        "ones_indices",
        "zeros_indices",
        "probability_each_one",
        "probability_each_zero",
        "output_order",
        "index_dtype",
        "select_idxs",
        "raises",
    ])?;
    same!(case.get("fn").text(), "_maxvar_downsample_binary", "fn");
    let (correct, m) = (truths(case.get("rewards")), case.get("m").count());
    let draw = |seed: u32| pilot_commit::downsample(&correct, m, &mut Chance::new(seed));
    let mut hits = vec![0; correct.len()];
    let mut ones = 0;
    for seed in 0..TRIALS {
        let kept = draw(seed);
        same!(kept.len(), m.min(correct.len()), "pilots kept");
        ones = kept.iter().filter(|i| correct[**i as usize]).count();
        ensure!(kept[..ones].iter().all(|i| correct[*i as usize]), "correct ones come first");
        for i in kept {
            hits[i as usize] += 1;
        }
    }
    if case.has("raises") {
        ensure!(
            m > correct.len() || !only_binary(case.get("rewards").list()),
            "raises, and it is not clear why"
        );
        return Ok(Verdict::Departs("more than there are keeps all; answers are right or wrong"));
    }
    same!(ones, case.get("n_ones_chosen").count(), "correct ones kept");
    if !only_binary(case.get("rewards").list()) {
        return Ok(Verdict::Departs("answers are right or wrong"));
    }
    same!(m - ones, case.get("n_zeros_chosen").count(), "incorrect ones kept");
    for (kind, p) in [("ones_indices", "probability_each_one"), ("zeros_indices", "probability_each_zero")] {
        for i in case.get(kind).ids() {
            let p = case.get(p).number();
            ensure!(
                likely(hits[i as usize], TRIALS as usize, p),
                "pilot {i} kept {} times",
                hits[i as usize]
            );
        }
    }
    Ok(match case.get("select_idxs").text() {
        "ok" => Verdict::Agrees,
        _ => Verdict::Departs("one kind alone is kept all the same; upstream can't index with it"),
    })
}

/// The place that a test's buffer has for pilots: prompt, whether correct, step.
type Pilots = (u32, Vec<bool>, usize);

pub fn pc_replay_buffer(case: &Json) -> Checked {
    case.only(&["id", "algo", "fn", "tag", "note", "max_off_steps", "ops"])?;
    same!(case.get("fn").text(), "ReplayBuffer", "fn");
    let mut buffer: Vec<Pilots> = Vec::new();
    let mut verdict = Verdict::Agrees;
    let mut now = 0;
    for op in case.get("ops").list() {
        match op.get("op").text() {
            "add" => {
                op.only(&["op", "step", "prompts"])?;
                now = op.get("step").count();
                for added in op.get("prompts").list() {
                    let pilots = (added.get("prompt").id(), truths(added.get("pilot")), now);
                    ensure!(only_binary(added.get("pilot").list()), "answers are right or wrong");
                    // Upstream's dictionary keeps a key's first place. With us a buffered prompt is never
                    // tried again, so this is the test's to do.
                    match buffer.iter_mut().find(|b| b.0 == pilots.0) {
                        Some(place) => *place = pilots,
                        None => buffer.push(pilots),
                    }
                }
            }
            "flush" => {
                op.only(&["op", "step", "enforce", "evicted", "left"])?;
                now = op.get("step").count();
                let before = buffer.len();
                let left = if op.get("enforce").flag() {
                    Vec::new()
                } else {
                    held(&buffer, now, case.get("max_off_steps").count())
                };
                buffer.retain(|b| left.contains(&b.0));
                same!(left, op.get("left").ids(), "left after the flush of step {now}");
                same!(before - left.len(), op.get("evicted").count(), "discarded");
            }
            "sample" => {
                op.only(&[
                    "op",
                    "size",
                    "strategy",
                    "before",
                    "selected_in_order",
                    "when_added",
                    "n_rows",
                    "left",
                    "random",
                    "each_prompt_probability",
                    "ordered_draw_probability",
                    "a_draw",
                    "raises",
                ])?;
                same!(buffer.iter().map(|b| b.0).collect::<Vec<_>>(), op.get("before").ids(), "buffer");
                if let Some(departure) = commits(&mut buffer, now, op)? {
                    verdict = Verdict::Departs(departure);
                }
                same!(buffer.iter().map(|b| b.0).collect::<Vec<_>>(), op.get("left").ids(), "left");
            }
            other => return Err(format!("the operation `{other}` is unknown")),
        }
    }
    Ok(verdict)
}

fn groups(buffer: &[Pilots], now: usize) -> Vec<Group> {
    let aged = |(prompt, correct, step): &Pilots| Group {
        ages: vec![now.saturating_sub(*step) as u32; correct.len()],
        ..marked(*prompt, correct)
    };
    buffer.iter().map(aged).collect()
}

/// What the policy holds at the end of a step that trains on nothing.
fn held(buffer: &[Pilots], now: usize, max_off: usize) -> Vec<u32> {
    let Some(pilot) = buffer.first().map(|b| b.1.len()) else { return Vec::new() };
    let all = [("solved-at-least", Value::Number(0.0)), ("failed-at-least", Value::Number(0.0))];
    let mut run = pilot_commit(pilot, &[&all[..], &[("max-off", integer(max_off))]].concat());
    run.groups = 0;
    let plan = ask::<PilotCommit>(&run, &first::<PilotCommit>(&run), &after(0..0, groups(buffer, now)));
    let Action::Train(batch) = plan.action else { panic!("a full batch is trained on") };
    batch.hold.iter().map(|hold| hold.prompt).collect()
}

/// Plays a `sample` of the buffer; says where it departs.
fn commits(buffer: &mut Vec<Pilots>, now: usize, op: &Json) -> Result<Option<&'static str>, String> {
    let size = op.get("size").count();
    let all = groups(buffer, now);
    let survivors: Vec<&Group> = all.iter().collect();
    let named = |name: &str| allot_policy::Choice::from_name(name);
    let upstream = op.get("strategy").text();
    let (sampling, departs): (Option<Sampling>, _) = match upstream {
        "least_recent" => {
            (named("most-recent"), Some("`least_recent` is upstream's `most_recent` by mistake"))
        }
        _ => (named(&upstream.replace('_', "-")), None),
    };
    let Some(sampling) = sampling else {
        ensure!(op.has("raises"), "the strategy `{upstream}` is unknown here");
        return Ok(Some("an unknown strategy is an error of the setting"));
    };
    let chosen = |seed: u32| -> Vec<u32> {
        let chosen = pilot_commit::choose(sampling, &survivors, size, &mut Chance::new(seed));
        chosen.iter().map(|g| g.prompt).collect()
    };
    if op.has("raises") {
        ensure!(size == 0, "raises, and it is not clear why");
        same!(chosen(1), Vec::<u32>::new(), "committed to");
        return Ok(Some("nothing to commit to is no crash"));
    }
    let selected = if op.get("random").flag() {
        let draw = op.get("a_draw").ids();
        let (mut hits, mut exact) = (vec![0; buffer.len()], 0);
        for seed in 0..TRIALS {
            let ours = chosen(seed);
            exact += usize::from(ours == draw);
            for p in ours {
                hits[buffer.iter().position(|b| b.0 == p).unwrap()] += 1;
            }
        }
        let each = op.get("each_prompt_probability").number();
        ensure!(hits.iter().all(|h| likely(*h, TRIALS as usize, each)), "chosen {hits:?} times");
        let ordered = op.get("ordered_draw_probability").number();
        ensure!(likely(exact, TRIALS as usize, ordered), "this draw came {exact} times");
        draw
    } else {
        same!(chosen(1), op.get("selected_in_order").ids(), "committed to");
        op.get("selected_in_order").ids()
    };
    let steps: Vec<usize> = selected.iter().map(|p| buffer.iter().find(|b| b.0 == *p).unwrap().2).collect();
    same!(steps, op.get("when_added").list().iter().map(Json::count).collect::<Vec<_>>(), "steps");
    // Fewer rows than pilots: upstream has thinned them out.
    let pilots: usize = buffer.iter().filter(|b| selected.contains(&b.0)).map(|b| b.1.len()).sum();
    let rows = op.get("n_rows").count();
    if rows != pilots {
        let kept = rows / selected.len();
        let draw = |b: &Pilots| pilot_commit::downsample(&b.1, kept, &mut Chance::new(1)).len();
        let ours: usize = buffer.iter().filter(|b| selected.contains(&b.0)).map(draw).sum();
        same!(ours, rows, "pilots kept");
    }
    buffer.retain(|b| !selected.contains(&b.0));
    Ok(departs)
}

pub fn pc_gpu_divisibility(case: &Json) -> Checked {
    case.only(&[
        "id",
        "algo",
        "fn",
        "tag",
        "note",
        "commit_batch_size",
        "n_gpus",
        "n_explore",
        "gen_batch_size",
        "n_commit",
        "adjusted",
    ])?;
    same!(case.get("fn").text(), "_adjust_commit_batch_size_for_gpu_divisibility", "fn");
    let [size, ranks, pilot, prompts, commit] =
        ["commit_batch_size", "n_gpus", "n_explore", "gen_batch_size", "n_commit"]
            .map(|name| case.get(name).count());
    let ours = pilot_commit::gpu_cut(size, pilot * prompts, commit, ranks);
    same!(ours, case.get("adjusted").count(), "commits");
    Ok(Verdict::Agrees)
}

pub fn grpo_advantages(case: &Json) -> Checked {
    case.only(&[
        "id",
        "algo",
        "fn",
        "tag",
        "note",
        "rewards_by_group",
        "norm_by_std",
        "epsilon",
        "std",
        "advantages",
    ])?;
    same!(case.get("fn").text(), "compute_grpo_outcome_advantage", "fn");
    let mut verdict = Verdict::Agrees;
    for (group, rewards) in case.get("rewards_by_group").map() {
        let rewards = rewards.rewards();
        let ours = advantage::of(&rewards, case.get("epsilon").number(), case.get("norm_by_std").flag());
        let theirs = case.get("advantages").get(group).numbers();
        if rewards.iter().all(|r| *r == rewards[0]) {
            ensure!(ours.iter().all(|a| *a == 0.0), "equal rewards have advantages {ours:?}");
            if rewards.len() == 1 {
                verdict = Verdict::Departs("a rollout alone in its group has advantage 0, not its reward");
            } else if !advantage::agree(&ours, &theirs) {
                verdict = Verdict::Departs("equal rewards have advantage 0, not f32's rounding error");
            }
        } else {
            ensure!(advantage::agree(&ours, &theirs), "{group}: ours {ours:?}, upstream's {theirs:?}");
        }
    }
    Ok(verdict)
}

/// Length of the run at the end of a trace that a test holds for.
fn trailing(means: &[f64], test: impl Fn(f64) -> bool) -> u32 {
    means.iter().rev().take_while(|mean| test(**mean)).count() as u32
}

pub fn greso_skip_probability(case: &Json) -> Checked {
    case.only(&[
        "id",
        "algo",
        "fn",
        "tag",
        "note",
        "trace_epoch_meanreward",
        "p_easy",
        "p_hard",
        "skip_easy_probability",
        "skip_hard_probability",
        "keep_probability",
        "uniforms_drawn",
    ])?;
    same!(case.get("fn").text(), "easy/hard_probabilistic_skip", "fn");
    let means: Vec<f64> = match case.get("trace_epoch_meanreward") {
        Json::Null => Vec::new(),
        trace => trace.list().iter().map(|entry| entry.list()[1].number()).collect(),
    };
    let [p_easy, p_hard] = ["p_easy", "p_hard"].map(|name| case.get(name).number());
    let easy = trailing(&means, |mean| greso::literal_classes(mean).0);
    let hard = trailing(&means, |mean| greso::literal_classes(mean).1);
    let skip_easy = 1.0 - greso::keep_probability(p_easy, easy, 0.01);
    let skip_hard = if hard > 0 { 1.0 - greso::keep_probability(p_hard, hard, 0.01) } else { 0.0 };
    let keep = (1.0 - skip_easy) * (1.0 - skip_hard);
    for (name, ours) in [
        ("skip_easy_probability", skip_easy),
        ("skip_hard_probability", skip_hard),
        ("keep_probability", keep),
    ] {
        let theirs = case.get(name).number();
        ensure!(close(ours, theirs, 1e-9), "{name}: ours {ours}, upstream's {theirs}");
    }

    // And by a view, where the streak tells what the trace does.
    if means
        .last()
        .is_some_and(|mean| greso::literal_classes(*mean) != greso::literal_classes(f64::from(*mean as f32)))
    {
        return Ok(Verdict::Departs("means are f32 in the contract"));
    }
    let run = run_with::<Greso>(&[
        ("p-easy", Value::Number(p_easy)),
        ("p-hard", Value::Number(p_hard)),
        ("literal", Value::Flag(true)),
    ]);
    let mut view = made::view(0..1);
    view.pool[0].past = means.last().map(|mean| allot_policy::types::Past {
        mean: *mean as f32,
        streak: easy.max(hard),
        ..made::past(4, 8)
    });
    let state = first::<Greso>(&run);
    let skips = |uniforms: [f64; 2]| {
        let mut drawn = 0;
        let plan = ask_greso(&run, &state, &view, &mut || {
            drawn += 1;
            uniforms[drawn - 1]
        });
        (!plan.skip.is_empty(), drawn)
    };
    let top = 1.0 - f64::EPSILON;
    let drawn = case.get("uniforms_drawn");
    let draws = drawn.get("easy_check").count() + drawn.get("hard_check_if_reached").count();
    same!(skips([top, top]), (false, draws), "skipped, and uniforms drawn");
    if skip_easy > 0.0 {
        same!(skips([skip_easy - 1e-9, top]), (true, 1), "just below the skip of easy ones");
        same!(skips([skip_easy + 1e-9, top]).0, false, "just above the skip of easy ones");
    }
    if skip_hard > 0.0 {
        same!(skips([top, skip_hard - 1e-9]), (true, 2), "just below the skip of hard ones");
        same!(skips([top, skip_hard + 1e-9]).0, false, "just above the skip of hard ones");
    }
    Ok(Verdict::Agrees)
}

pub fn greso_adaptive_batch(case: &Json) -> Checked {
    case.only(&[
        "id",
        "algo",
        "fn",
        "tag",
        "note",
        "effective_prompts_so_far",
        "real_train_batch_size",
        "zero_variance_ratio_of_last_rollout",
        "sampling_batch_size",
        "n",
        "full_sampling_bs",
        "last_sampling_before",
        "estimated",
        "next_sampling_batch_size",
        "last_sampling",
        "raises",
    ])?;
    same!(case.get("fn").text(), "fit:adaptive sampling batch size", "fn");
    let id = |name: &str| case.get(name).id();
    let rounds = Rounds {
        groups: id("real_train_batch_size"),
        rollouts: id("n"),
        sampling: id("sampling_batch_size"),
        floor: 64,
        oversample: 1.25,
        full: case.get("full_sampling_bs").flag(),
    };
    let mixed = id("effective_prompts_so_far");
    let next = rounds.next(mixed, case.get("zero_variance_ratio_of_last_rollout").number());
    if case.has("raises") {
        same!((next.size, next.last), (rounds.sampling, false), "after a round of flat groups alone");
        return Ok(Verdict::Departs("a round of flat groups alone is followed by a full one"));
    }
    if mixed >= rounds.groups || case.get("last_sampling_before").flag() {
        // Upstream trains here, whatever it has estimated before it looked.
        return Ok(Verdict::Agrees);
    }
    same!(next.estimated, Some(case.get("estimated").count() as u64), "estimated");
    same!(next.size, id("next_sampling_batch_size"), "size");
    same!(next.last, case.get("last_sampling").flag(), "last");
    Ok(Verdict::Agrees)
}

pub fn greso_p_update(case: &Json) -> Checked {
    case.only(&[
        "id",
        "algo",
        "fn",
        "tag",
        "note",
        "p_easy",
        "p_hard",
        "easy_rollouts",
        "hard_rollouts",
        "total_rollouts",
        "epoch",
        "target_zero_variance",
        "config",
        "p_easy_after",
        "p_hard_after",
        "raises",
    ])?;
    same!(case.get("fn").text(), "fit:p update", "fn");
    case.get("config").only(&["min_p", "max_p"])?;
    let mut changes = vec![("target", Value::Number(case.get("target_zero_variance").number()))];
    for (ours, theirs) in [("min-p", "min_p"), ("max-p", "max_p")] {
        if case.get("config").has(theirs) {
            changes.push((ours, Value::Number(case.get("config").get(theirs).number())));
        }
    }
    let settings = GresoSettings::read(&run_with::<Greso>(&changes)).unwrap();
    let before = ["p_easy", "p_hard"].map(|name| case.get(name).number());
    let counted = ["easy_rollouts", "hard_rollouts", "total_rollouts"].map(|name| case.get(name).number());
    let ours = settings.steer(before, case.get("epoch").id(), counted);
    if case.has("raises") {
        ensure!(counted[2] == 0.0, "raises, and it is not clear why");
        same!(ours, before, "without data");
        return Ok(Verdict::Departs("without data nothing moves"));
    }
    same!(ours, ["p_easy_after", "p_hard_after"].map(|name| case.get(name).number()), "after");
    Ok(Verdict::Agrees)
}

pub fn greso_group_stats(case: &Json) -> Checked {
    case.only(&[
        "id",
        "algo",
        "fn",
        "tag",
        "note",
        "n",
        "rewards",
        "stats",
        "kept_prompts_in_order",
        "profiler_mean",
    ])?;
    same!(case.get("fn").text(), "compute_reward_metrics + filter_zero_advantage", "fn");
    let groups: Vec<Group> =
        (0u32..).zip(case.get("rewards").list()).map(|(i, r)| made::rewarded(i, &r.rewards())).collect();
    let share = |test: &dyn Fn(&Group) -> bool| {
        groups.iter().filter(|g| test(g)).count() as f64 / groups.len() as f64
    };
    for (group, mean) in groups.iter().zip(case.get("profiler_mean").numbers()) {
        ensure!(close(group.mean(), mean, 1e-5), "mean {}, upstream's {mean}", group.mean());
    }
    // What is trained on: the policy's own answer, at the end of a budget.
    let run = Run { groups: groups.len() as u32, ..run_with::<Greso>(&[("literal", Value::Flag(true))]) };
    let mut view = after(100..101, groups.clone());
    view.budget.rounds = 0;
    let Action::Train(batch) = ask::<Greso>(&run, &first::<Greso>(&run), &view).action else {
        return Err("it samples without a budget".to_owned());
    };
    let kept: Vec<u32> = batch.picks.iter().map(|p| p.prompt).collect();
    same!(kept, case.get("kept_prompts_in_order").ids(), "kept");
    if case.get("n").count() != 8 {
        return Ok(Verdict::Departs("statistics are by prompt; upstream's are by rows of eight"));
    }
    let stats = case.get("stats");
    let ours = [
        ("non_diverse_examples_ratio", share(&Group::flat)),
        ("all_correct_example_ratio", share(&|g| greso::literal_kind(g).0)),
        ("format_example_ratio", share(&|g| greso::literal_kind(g).1)),
    ];
    for (name, ours) in ours {
        let theirs = stats.get(name).number();
        ensure!(close(ours, theirs, 1e-6), "{name}: ours {ours}, upstream's {theirs}");
    }
    Ok(Verdict::Agrees)
}

pub fn dapo_filter(case: &Json) -> Checked {
    case.only(&[
        "id",
        "algo",
        "fn",
        "tag",
        "note",
        "metric_by_uid",
        "pilot_commit_variant",
        "kept_in_order",
        "kept_uids",
        "num_prompt_in_batch",
        "std",
        "kept_rollouts",
    ])?;
    same!(case.get("fn").text(), "filter_groups", "fn");
    let metrics = case.get("metric_by_uid").map();
    let theirs = case.get("kept_in_order").texts();
    if metrics.iter().any(|(_, values)| !finite(&values.numbers())) {
        return Ok(Verdict::Departs("the host lets no reward in that is not finite"));
    }
    let truth = metrics.iter().all(|(_, values)| values.list().iter().all(|v| matches!(v, Json::Flag(_))));
    let groups: Vec<Group> = (0u32..)
        .zip(metrics)
        .map(
            |(i, (_, values))| {
                if truth { marked(i, &truths(values)) } else { made::rewarded(i, &values.rewards()) }
            },
        )
        .collect();
    let metric = text(if truth { "correct" } else { "reward" });
    let rollouts = groups.iter().map(Group::len).max().unwrap_or(1) as u32;
    let run = Run { groups: groups.len() as u32, rollouts, ..run_with::<Dapo>(&[("metric", metric)]) };
    let mut view = after(100..101, groups.clone());
    view.budget.rounds = 0;
    let Action::Train(batch) = ask::<Dapo>(&run, &[], &view).action else {
        return Err("it samples without a budget".to_owned());
    };
    let ours: Vec<&str> = batch.picks.iter().map(|p| metrics[p.prompt as usize].0.as_str()).collect();
    if ours == theirs {
        return Ok(Verdict::Agrees);
    }
    // Only groups of one reward may make the difference, kept upstream by a rounding error.
    for (group, (uid, _)) in groups.iter().zip(metrics) {
        let std = case.get("std").get(uid).number();
        if ours.contains(&uid.as_str()) != theirs.contains(&uid.as_str()) {
            ensure!(group.flat() && theirs.contains(&uid.as_str()) && std < 1e-6, "{uid}: ours {ours:?}");
        }
    }
    Ok(Verdict::Departs("max == min in f32 is flat; upstream's std has a rounding error"))
}
