//! The adapter for contract version 0.1. It converts between the host's and the component's types.
//!
//! Lists are lent to the guest without a copy on the host.

use allot_allocation as ours;
use allot_allocation::PromptId;

use wasmtime::Store;

use self::rollout::allocation::{log, types};
use crate::Description;
use crate::calls::Answer;
use crate::guest::GuestState;

wasmtime::component::bindgen!({
    world: "policy",
    path: "../../wit/0.1/allocation.wit",
    ownership: Borrowing { duplicate_if_necessary: true },
});

crate::adapter::conversions!();
crate::adapter::policies!();

fn decide(
    policy: &Policy,
    store: &mut Store<GuestState>,
    run: &ours::Run,
    state: &[u8],
    view: &ours::View,
) -> Answer<ours::Plan> {
    let (allocator, parts) = (policy.rollout_allocation_allocator(), run.parts().len());
    let answer =
        with_run(run, |run| with_view(view, parts, |view| allocator.call_decide(store, run, state, view)))?;
    Ok(answer.map(plan).map_err(refusal))
}

// === To the guest ===

/// Lends a run's constants to `call`.
fn with_run<T>(run: &ours::Run, call: impl FnOnce(types::Run<'_>) -> T) -> T {
    let settings = lend_settings(&run.settings);
    call(types::Run {
        settings: &settings,
        prompts: run.prompts,
        steps: run.steps,
        groups: run.groups,
        rollouts: run.rollouts,
        pool: run.pool,
        max_age: run.max_age,
    })
}

/// Lends a view to `call`. The last `parts` signals of a rollout are its reward's parts, which this
/// contract does not show.
fn with_view<T>(view: &ours::View, parts: usize, call: impl FnOnce(types::View<'_>) -> T) -> T {
    let pool: Vec<types::Prompt> = view.pool.iter().map(prompt).collect();
    let signals: Vec<Vec<&[f32]>> = view
        .groups
        .iter()
        .map(|g| g.signals.iter().rev().skip(parts).rev().map(Vec::as_slice).collect())
        .collect();
    let groups: Vec<types::Group<'_>> = view
        .groups
        .iter()
        .zip(&signals)
        .map(|(g, signals)| types::Group {
            prompt: g.prompt.0,
            rewards: &g.rewards,
            correct: &g.correct,
            tokens: &g.tokens,
            ages: &g.ages,
            truncated: &g.truncated,
            signals,
        })
        .collect();
    call(types::View {
        step: view.step,
        round: view.round,
        seed: view.seed,
        budget: types::Budget {
            rounds: view.budget.rounds,
            step_rollouts: view.budget.step_rollouts,
            run_rollouts: view.budget.run_rollouts,
            run_tokens: view.budget.run_tokens,
        },
        pool: &pool,
        groups: &groups,
    })
}

fn prompt(p: &ours::Prompt) -> types::Prompt {
    let past = p.past.map(|past| types::Past {
        step: past.step,
        visits: past.visits,
        rollouts: past.rollouts,
        correct: past.correct,
        mean: past.mean,
        deviation: past.deviation,
        tokens: past.tokens,
        streak: past.streak,
        total_rollouts: past.total_rollouts,
        total_correct: past.total_correct,
    });
    types::Prompt { id: p.id.0, epoch: p.epoch, tokens: p.tokens, past }
}

// === From the guest ===

/// Converts a guest's description.
fn description(d: types::Description) -> Description {
    Description {
        name: d.name,
        version: d.version,
        summary: d.summary,
        settings: settings(d.settings),
        signals: d.signals,
        columns: Vec::new(),
        needs: Vec::new(),
    }
}

/// Converts a guest's plan.
fn plan(p: types::Plan) -> ours::Plan {
    let action = match p.action {
        types::Action::Sample(requests) => ours::Action::Sample(
            requests.into_iter().map(|r| ours::Request::new(PromptId(r.prompt), r.count)).collect(),
        ),
        types::Action::Train(batch) => ours::Action::Train(ours::Batch {
            picks: batch.picks.into_iter().map(pick).collect(),
            hold: batch.hold.into_iter().map(|id| PromptId(id).into()).collect(),
            update: None,
        }),
    };
    ours::Plan {
        action,
        skip: ids(p.skip),
        defer: Vec::new(),
        evict: ids(p.evict),
        state: p.state,
        metrics: p.metrics,
    }
}

fn pick(p: types::Pick) -> ours::Pick {
    ours::Pick {
        prompt: PromptId(p.prompt),
        rollouts: p.rollouts,
        advantage: match p.advantage {
            types::Advantage::Picked => ours::Advantage::Picked,
            types::Advantage::Group => ours::Advantage::Group,
            types::Advantage::Given(own) => ours::Advantage::Given(own),
        },
        weight: p.weight,
    }
}
