//! Cases of methods whose authors' code decides in plain functions: `record.py` has recorded them.

use adarft::{AdaRft, AdaRftSettings};
use allot_policy::chance::Chance;
use allot_policy::types::{Action, Advantage, Past, PromptId, Run, Value, View};
use allot_policy::{Settings, State, made, run_with};
use c_grpo::{CGrpo, CGrpoSettings};
use coba_rl::CobaRl;
use mopps::{Mopps, MoppsSettings, MoppsState};
use repo::Replay;
use spo::{Spo, SpoSettings, SpoState};
use vip::{Vip, VipSettings};

use std::collections::BTreeMap;

use crate::ask::{ask, first};
use crate::case::{Checked, Json, Verdict, close, ensure, same};
use crate::pieces::{integer, text};

/// Ends the check where two numbers differ by more than rounding can do.
macro_rules! near {
    ($ours:expr, $theirs:expr, $tolerance:expr, $($what:tt)+) => {
        let (ours, theirs): (f64, f64) = ($ours, $theirs);
        ensure!(close(ours, theirs, $tolerance), "{}: ours {ours}, upstream's {theirs}", format!($($what)+));
    };
}

/// Past visits as the host would show them.
#[derive(Default)]
struct History(BTreeMap<PromptId, Past>);

impl History {
    fn view(&self, step: u32, prompts: &[PromptId]) -> View {
        let mut view = View { step, ..made::view(prompts.iter().copied()) };
        view.pool.iter_mut().for_each(|p| p.past = self.0.get(&p.id).copied());
        view
    }

    fn visit(&mut self, step: u32, prompt: PromptId, correct: u32, rollouts: u32) {
        let before = self.0.get(&prompt).copied();
        let sum = |of: fn(&Past) -> u32| before.as_ref().map_or(0, of);
        let past = Past {
            step,
            visits: sum(|p| p.visits) + 1,
            total_rollouts: sum(|p| p.total_rollouts) + rollouts,
            total_correct: sum(|p| p.total_correct) + correct,
            ..made::past(correct, rollouts)
        };
        self.0.insert(prompt, past);
    }
}

/// A view after a round in which so many rollouts of each prompt came and so many were correct.
fn after(step: u32, outcomes: &[(PromptId, u32, u32)]) -> View {
    let marks =
        |correct: u32, rollouts: u32| (0..rollouts).map(|i| u8::from(i < correct)).collect::<Vec<_>>();
    let groups = outcomes.iter().map(|(p, k, n)| made::group(*p, &marks(*k, *n))).collect();
    View { step, round: 1, groups, ..made::view([]) }
}

fn requests(action: &Action) -> Vec<(PromptId, u32)> {
    let Action::Sample(requests) = action else { panic!("trains") };
    requests.iter().map(|r| (r.prompt, r.count)).collect()
}

pub fn coba_rl(case: &Json) -> Checked {
    case.only(&["id", "algo", "tag", "fn", "rollouts", "n_low", "n_up", "steps"])?;
    let limits = [("least", integer(case.get("n_low").count())), ("most", integer(case.get("n_up").count()))];
    let steps = case.get("steps").list();
    let groups = steps[0].get("prompts").list().len() as u32;
    let run = Run { groups, rollouts: case.get("rollouts").id(), ..run_with::<CobaRl>(&limits) };
    let (mut state, mut history) = (first::<CobaRl>(&run), History::default());
    for (at, step) in (0..).zip(steps) {
        step.only(&["prompts", "alpha", "counts", "correct"])?;
        let (prompts, counts) = (step.get("prompts").ids(), step.get("counts").ids());
        let plan = ask::<CobaRl>(&run, &state, &history.view(at, &prompts));
        let alpha = plan.metrics.iter().find(|(name, _)| name == "alpha").unwrap().1;
        near!(alpha, step.get("alpha").number(), 1e-12, "alpha in step {at}");
        let expected: Vec<(u32, u32)> = prompts.iter().copied().zip(counts.iter().copied()).collect();
        same!(requests(&plan.action), expected, "rollouts in step {at}");
        let correct = step.get("correct").ids();
        let outcomes: Vec<_> =
            prompts.iter().zip(&correct).zip(&counts).map(|((p, k), n)| (*p, *k, *n)).collect();
        for (p, k, n) in &outcomes {
            history.visit(at, *p, *k, *n);
        }
        state = ask::<CobaRl>(&run, &plan.state, &after(at, &outcomes)).state;
    }
    Ok(Verdict::Agrees)
}

pub fn vip(case: &Json) -> Checked {
    case.only(&[
        "id", "algo", "tag", "fn", "rule", "rollouts", "upper", "rates", "success", "exact", "counts",
    ])?;
    let changes = [("rule", text(case.get("rule").text())), ("most", integer(case.get("upper").count()))];
    let run = Run { rollouts: case.get("rollouts").id(), ..run_with::<Vip>(&changes) };
    let settings = VipSettings::read(&run).unwrap();
    let (rates, exact) = (case.get("rates").numbers(), case.get("exact").numbers());
    let (budget, most) = (u64::from(run.rollouts) * rates.len() as u64, case.get("upper").id());

    // Upstream minimizes by steps: ours must be as good, and about the same.
    let ours = settings.minimum(&rates, budget as f64, f64::from(most));
    near!(ours.iter().sum::<f64>(), budget as f64, 1e-6, "the budget");
    let rloo = case.get("rule").text() == "rloo";
    let cost = |counts: &[f64]| -> f64 {
        let term = |(p, n): (&f64, &f64)| {
            let (a, gamma) = (p * (1.0 - p), if rloo { 0.0007 } else { 0.0004 });
            (if rloo { a / (n - 1.0) } else { a * (n - 1.0) / (n * n) }) + gamma * p.ln() * n
        };
        rates.iter().zip(counts).map(term).sum()
    };
    ensure!(cost(&ours) <= cost(&exact) + 1e-9, "{} is above {}", cost(&ours), cost(&exact));
    let apart = ours.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);

    // The same rounding of the same numbers, but for those that lie on a whole number.
    let whole = |n: &f64| (n - n.round()).abs() < 1e-6 && *n < n.round();
    let snapped: Vec<f64> = exact.iter().map(|n| if whole(n) { n - 1e-6 } else { *n }).collect();
    let rounded = vip::round(&snapped, &rates, budget, 4, most);
    same!(rounded, case.get("counts").ids(), "rounded");

    let plan = settings.allocate(&run, &rates);
    if plan == case.get("counts").ids() {
        return Ok(Verdict::Agrees);
    }
    ensure!(apart > 1e-9, "the same minimum, another plan");
    Ok(Verdict::Departs("SLSQP ends beside the minimum, and rounding down makes it a rollout or a prompt"))
}

pub fn c_grpo(case: &Json) -> Checked {
    case.only(&[
        "id",
        "algo",
        "tag",
        "fn",
        "grid",
        "score",
        "delta",
        "margin",
        "outcomes",
        "used_delta",
        "thresholds",
        "asked",
        "resolved",
    ])?;
    let grid = case.get("grid").ids();
    let names: Vec<String> = grid.iter().map(ToString::to_string).collect();
    let score = case.get("score").text().replace('_', "-");
    let number = |name: &str| Value::Number(case.get(name).number());
    let changes = [
        ("grid", text(&names.join(","))),
        ("score", text(&score)),
        ("delta", number("delta")),
        ("margin", number("margin")),
    ];
    let settings = CGrpoSettings::read(&run_with::<CGrpo>(&changes)).unwrap();
    let truths = |rows: &Json| -> Vec<Vec<bool>> {
        rows.list().iter().map(|row| row.list().iter().map(Json::flag).collect()).collect()
    };
    let outcomes = truths(case.get("outcomes"));
    let rows: Vec<&[bool]> = outcomes.iter().map(|row| &row[..]).collect();
    let thresholds = settings.thresholds(&grid, &rows);
    same!(thresholds, case.get("thresholds").numbers(), "thresholds");
    for (asked, resolved) in truths(case.get("asked")).iter().zip(truths(case.get("resolved"))) {
        let ours: Vec<bool> =
            grid.iter().zip(&thresholds).map(|(k, q)| settings.solved(asked, *k, *q)).collect();
        same!(ours, resolved, "resolved");
    }
    Ok(Verdict::Agrees)
}

pub fn spo(case: &Json) -> Checked {
    case.only(&["id", "algo", "tag", "fn", "rho", "steps"])?;
    let run = run_with::<Spo>(&[("fade", Value::Number(case.get("rho").number()))]);
    let settings = SpoSettings::read(&run).unwrap();
    let mut state = first::<Spo>(&run);
    for (at, step) in (0..).zip(case.get("steps").list()) {
        step.only(&["prompts", "weights", "rewards", "advantages", "alpha", "beta"])?;
        let prompts = step.get("prompts").ids();
        let known = SpoState::load(&state).unwrap();
        for (prompt, weight) in prompts.iter().zip(step.get("weights").numbers()) {
            near!(settings.weight(settings.value(&known, *prompt)), weight, 1e-6, "weight in step {at}");
        }
        let rewards = step.get("rewards").numbers();
        let outcomes: Vec<_> = prompts.iter().zip(&rewards).map(|(p, r)| (*p, *r as u32, 1)).collect();
        let plan = ask::<Spo>(&run, &state, &after(at, &outcomes));
        let Action::Train(batch) = &plan.action else { panic!("trains") };
        for (pick, expected) in batch.picks.iter().zip(step.get("advantages").numbers()) {
            let Advantage::Given(given) = &pick.advantage else { panic!("gives its own") };
            near!(f64::from(given[0]), expected, 1e-4, "advantage in step {at}");
        }
        state = plan.state;
        let known = SpoState::load(&state).unwrap();
        let values = step.get("alpha").numbers().into_iter().zip(step.get("beta").numbers());
        for (prompt, (alpha, beta)) in prompts.iter().zip(values) {
            near!(settings.value(&known, *prompt), alpha / (alpha + beta), 1e-6, "value in step {at}");
        }
    }
    Ok(Verdict::Agrees)
}

pub fn mopps(case: &Json) -> Checked {
    case.only(&["id", "algo", "tag", "fn", "rollouts", "decay", "steps"])?;
    let rollouts = case.get("rollouts").id();
    let run = run_with::<Mopps>(&[("decay", Value::Number(case.get("decay").number()))]);
    let settings = MoppsSettings::read(&run).unwrap();
    let (mut state, mut history) = (MoppsState::default(), History::default());
    for (at, step) in (0..).zip(case.get("steps").list()) {
        step.only(&["candidates", "draws", "chosen", "correct", "alpha", "beta"])?;
        let candidates = step.get("candidates").ids();
        let chosen = step.get("chosen").ids();
        let closest = mopps::closest(&step.get("draws").numbers(), 0.5, chosen.len());
        let ours: Vec<u32> = closest.into_iter().map(|i| candidates[i]).collect();
        same!(ours, chosen, "prompts in step {at}");
        for (prompt, correct) in chosen.iter().zip(step.get("correct").ids()) {
            history.visit(at, *prompt, correct, rollouts);
            after(at, &[(*prompt, correct, rollouts)])
                .groups
                .iter()
                .for_each(|g| settings.learn(&mut state, g));
        }
        made::Facts { past: history.0.clone(), ..made::Facts::of(100) }.tell();
        let theirs = step.get("alpha").numbers().into_iter().zip(step.get("beta").numbers());
        for (ours, theirs) in settings.posteriors(&state, &chosen).into_iter().zip(theirs) {
            near!(ours.0, theirs.0, 1e-12, "alpha in step {at}");
            near!(ours.1, theirs.1, 1e-12, "beta in step {at}");
        }
    }
    Ok(Verdict::Agrees)
}

pub fn repo(case: &Json) -> Checked {
    case.only(&["id", "algo", "tag", "fn", "strategy", "k", "rewards", "chosen"])?;
    let replay = match case.get("strategy").text() {
        "highest_k" => Replay::Highest,
        "recent_k" => Replay::Recent,
        "max_variance_k" => Replay::MaxVariance,
        "all" => Replay::All,
        other => return Err(format!("the strategy `{other}` is unknown")),
    };
    let rewards = case.get("rewards").rewards();
    let ours = repo::choose(replay, &rewards, case.get("k").count(), &mut Chance::new(0));
    if ours == case.get("chosen").ids() {
        return Ok(Verdict::Agrees);
    }
    let of = |positions: &[u32]| {
        let mut of: Vec<f32> = positions.iter().map(|i| rewards[*i as usize]).collect();
        of.sort_by(f32::total_cmp);
        of
    };
    same!(of(&ours), of(&case.get("chosen").ids()), "rewards chosen");
    Ok(Verdict::Departs("of equal rewards another"))
}

pub fn adarft(case: &Json) -> Checked {
    case.only(&["id", "algo", "tag", "fn", "sensitivity", "step", "difficulties", "steps"])?;
    let number = |name: &'static str| (name, Value::Number(case.get(name).number()));
    let settings =
        AdaRftSettings::read(&run_with::<AdaRft>(&[number("sensitivity"), number("step")])).unwrap();
    let difficulties: Vec<f32> = case.get("difficulties").rewards();
    let mut target = 0.0;
    for (at, step) in (0..).zip(case.get("steps").list()) {
        step.only(&["target", "chosen", "reward"])?;
        near!(target, step.get("target").number(), 1e-12, "target in step {at}");
        let chosen = step.get("chosen").ids();
        let ours = adarft::closest(&difficulties, &vec![at; difficulties.len()], target, chosen.len());
        same!(ours, chosen, "prompts in step {at}");
        target = settings.next(target, step.get("reward").number());
    }
    Ok(Verdict::Agrees)
}
