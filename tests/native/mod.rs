//! The policies that ship, as plain native functions on the host's types.

#![allow(dead_code, reason = "each test uses a part of it")]

use allot_allocation as ours;
use allot_policy::{Policy, types as theirs};
use ours::PromptId;

/// A policy's three calls, natively.
pub struct Native {
    pub name: &'static str,
    pub begin: fn(&ours::Run) -> Result<Vec<u8>, String>,
    pub decide: fn(&ours::Run, &[u8], &ours::View) -> Result<ours::Plan, String>,
    /// The same, without turning the host's types into the policy's first.
    pub bare: fn(&theirs::Run, &[u8], &theirs::View) -> Result<theirs::Plan, theirs::Error>,
}

/// All policies that ship.
pub fn all() -> Vec<Native> {
    vec![
        of::<uniform::Uniform>(),
        of::<dapo::Dapo>(),
        of::<greso::Greso>(),
        of::<pods::Pods>(),
        of::<pilot_commit::PilotCommit>(),
        of::<reinforce_ada::ReinforceAda>(),
        of::<knapsack::Knapsack>(),
    ]
}

fn of<P: Policy>() -> Native {
    Native {
        name: P::NAME,
        begin: |run| allot_policy::begin::<P>(&run_of(run)).map_err(|e| format!("{e:?}")),
        decide: |run, state, view| {
            let plan = allot_policy::decide::<P>(&run_of(run), state, &view_of(view));
            plan.map(plan_of).map_err(|e| format!("{e:?}"))
        },
        bare: allot_policy::decide::<P>,
    }
}

pub fn run_of(run: &ours::Run) -> theirs::Run {
    let value = |v: &ours::Value| match v {
        ours::Value::Flag(v) => theirs::Value::Flag(*v),
        ours::Value::Integer(v) => theirs::Value::Integer(*v),
        ours::Value::Number(v) => theirs::Value::Number(*v),
        ours::Value::Text(v) => theirs::Value::Text(v.clone()),
    };
    theirs::Run {
        settings: run.settings.iter().map(|(name, v)| (name.clone(), value(v))).collect(),
        prompts: run.prompts,
        steps: run.steps,
        groups: run.groups,
        rollouts: run.rollouts,
        pool: run.pool,
        max_age: run.max_age,
    }
}

/// The settings of a native policy, with their defaults, on the host's types.
pub fn defaults(native: &str) -> Vec<(String, ours::Value)> {
    fn settings<P: Policy>() -> Vec<(String, ours::Value)> {
        let value = |v| match v {
            theirs::Value::Flag(v) => ours::Value::Flag(v),
            theirs::Value::Integer(v) => ours::Value::Integer(v),
            theirs::Value::Number(v) => ours::Value::Number(v),
            theirs::Value::Text(v) => ours::Value::Text(v),
        };
        allot_policy::describe::<P>().settings.into_iter().map(|s| (s.name, value(s.default))).collect()
    }
    match native {
        "uniform" => settings::<uniform::Uniform>(),
        "dapo" => settings::<dapo::Dapo>(),
        "greso" => settings::<greso::Greso>(),
        "pods" => settings::<pods::Pods>(),
        "pilot-commit" => settings::<pilot_commit::PilotCommit>(),
        "reinforce-ada" => settings::<reinforce_ada::ReinforceAda>(),
        "knapsack" => settings::<knapsack::Knapsack>(),
        other => panic!("`{other}` is none of the policies that ship"),
    }
}

pub fn view_of(view: &ours::View) -> theirs::View {
    let past = |p: ours::Past| theirs::Past {
        step: p.step,
        visits: p.visits,
        rollouts: p.rollouts,
        correct: p.correct,
        mean: p.mean,
        deviation: p.deviation,
        tokens: p.tokens,
        streak: p.streak,
        total_rollouts: p.total_rollouts,
        total_correct: p.total_correct,
    };
    let prompt = |p: &ours::Prompt| theirs::Prompt {
        id: p.id.0,
        epoch: p.epoch,
        tokens: p.tokens,
        past: p.past.map(past),
    };
    let group = |g: &ours::Group| theirs::Group {
        prompt: g.prompt.0,
        rewards: g.rewards.clone(),
        correct: g.correct.clone(),
        tokens: g.tokens.clone(),
        ages: g.ages.clone(),
        truncated: g.truncated.clone(),
        signals: g.signals.clone(),
    };
    theirs::View {
        step: view.step,
        round: view.round,
        seed: view.seed,
        budget: theirs::Budget {
            rounds: view.budget.rounds,
            step_rollouts: view.budget.step_rollouts,
            run_rollouts: view.budget.run_rollouts,
            run_tokens: view.budget.run_tokens,
        },
        pool: view.pool.iter().map(prompt).collect(),
        groups: view.groups.iter().map(group).collect(),
    }
}

pub fn plan_of(plan: theirs::Plan) -> ours::Plan {
    let ids = |ids: Vec<u32>| ids.into_iter().map(PromptId).collect::<Vec<_>>();
    let pick = |p: theirs::Pick| ours::Pick {
        prompt: PromptId(p.prompt),
        rollouts: p.rollouts,
        advantage: match p.advantage {
            theirs::Advantage::Picked => ours::Advantage::Picked,
            theirs::Advantage::Group => ours::Advantage::Group,
            theirs::Advantage::Given(own) => ours::Advantage::Given(own),
        },
        weight: p.weight,
    };
    let action = match plan.action {
        theirs::Action::Sample(requests) => ours::Action::Sample(
            requests.into_iter().map(|r| ours::Request::new(PromptId(r.prompt), r.count)).collect(),
        ),
        theirs::Action::Train(batch) => ours::Action::Train(ours::Batch {
            picks: batch.picks.into_iter().map(pick).collect(),
            hold: ids(batch.hold).into_iter().map(Into::into).collect(),
            update: None,
        }),
    };
    ours::Plan {
        action,
        skip: ids(plan.skip),
        defer: Vec::new(),
        evict: ids(plan.evict),
        state: plan.state,
        metrics: plan.metrics,
    }
}

// === And back ===

pub fn our_run(run: &theirs::Run) -> ours::Run {
    let value = |v: &theirs::Value| match v {
        theirs::Value::Flag(v) => ours::Value::Flag(*v),
        theirs::Value::Integer(v) => ours::Value::Integer(*v),
        theirs::Value::Number(v) => ours::Value::Number(*v),
        theirs::Value::Text(v) => ours::Value::Text(v.clone()),
    };
    ours::Run {
        settings: run.settings.iter().map(|(name, v)| (name.clone(), value(v))).collect(),
        prompts: run.prompts,
        steps: run.steps,
        groups: run.groups,
        rollouts: run.rollouts,
        pool: run.pool,
        max_age: run.max_age,
        terms: None,
    }
}

pub fn our_view(view: &theirs::View) -> ours::View {
    let past = |p: theirs::Past| ours::Past {
        step: p.step,
        visits: p.visits,
        rollouts: p.rollouts,
        correct: p.correct,
        mean: p.mean,
        deviation: p.deviation,
        tokens: p.tokens,
        streak: p.streak,
        total_rollouts: p.total_rollouts,
        total_correct: p.total_correct,
    };
    let prompt = |p: &theirs::Prompt| ours::Prompt {
        id: PromptId(p.id),
        epoch: p.epoch,
        tokens: p.tokens,
        past: p.past.map(past),
    };
    let group = |g: &theirs::Group| ours::Group {
        prompt: PromptId(g.prompt),
        epoch: 0,
        rewards: g.rewards.clone(),
        correct: g.correct.clone(),
        tokens: g.tokens.clone(),
        ages: g.ages.clone(),
        truncated: g.truncated.clone(),
        signals: g.signals.clone(),
    };
    ours::View {
        step: view.step,
        round: view.round,
        seed: view.seed,
        budget: ours::Budget {
            rounds: view.budget.rounds,
            step_rollouts: view.budget.step_rollouts,
            run_rollouts: view.budget.run_rollouts,
            run_tokens: view.budget.run_tokens,
            run_flops: None,
        },
        pool: view.pool.iter().map(prompt).collect(),
        groups: view.groups.iter().map(group).collect(),
        unscored: Vec::new(),
        history: ours::History::default(),
    }
}
