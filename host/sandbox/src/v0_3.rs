//! The adapter for contract version 0.3. It converts between the host's and the component's types.
//!
//! Lists are lent to the guest without a copy on the host, unless the host has them in another form.

use std::borrow::Cow;

use allot_allocation as ours;
use allot_allocation::{Need, PromptId};

use wasmtime::Store;

use self::rollout::allocation::{facts, log, types};
use crate::Description;
use crate::calls::Answer;
use crate::facts::{COUNTS, Facts, MEASURES, Prompts};
use crate::guest::GuestState;
use crate::shown::{Shown, uses_what_it_described};

wasmtime::component::bindgen!({
    world: "policy",
    path: "../../wit/0.3/allocation.wit",
    ownership: Borrowing { duplicate_if_necessary: true },
    imports: { "rollout:allocation/facts": trappable },
    additional_derives: [serde::Serialize],
});

// Serde is derived for all records. Only a description has flags, and no description is serialized.
impl serde::Serialize for types::Needs {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{self:?}"))
    }
}

crate::adapter::conversions!();
crate::adapter::policies!();
crate::adapter::since_0_2::since_0_2! {
    needs: [TURNS => Turns, STARTING => Starting],
    advantages: [ByTurn],
    group: [turns, stopped, origins],
    request: [starts]
}

fn settings_of(settings: ours::SamplerSettings) -> types::Sampling {
    let ours::SamplerSettings { temperature, max_tokens, max_turns } = settings;
    types::Sampling { temperature, max_tokens, max_turns }
}

fn sampler_settings(own: types::Sampling, _: &ours::Run) -> ours::SamplerSettings {
    let types::Sampling { temperature, max_tokens, max_turns } = own;
    ours::SamplerSettings { temperature, max_tokens, max_turns }
}

/// Returns the turns of the rollout at this position; none if it is no episode.
fn turns_of(group: &ours::Group, position: usize) -> Vec<types::Turn> {
    let turns = group.turns.lengths.get(position).into_iter().flatten();
    turns.map(|ours::TurnLength(read, tokens)| types::Turn { read: *read, tokens: *tokens }).collect()
}

fn stopped_of(group: &ours::Group, position: usize) -> types::Stopped {
    match group.turns.stopped.get(position) {
        Some(ours::Stopped::MaxTurns) => types::Stopped::MaxTurns,
        Some(ours::Stopped::MaxTokens) => types::Stopped::MaxTokens,
        Some(ours::Stopped::MaxReadTokens) => types::Stopped::MaxReadTokens,
        Some(ours::Stopped::MaxToolCalls) => types::Stopped::MaxToolCalls,
        Some(ours::Stopped::MaxSeconds) => types::Stopped::MaxSeconds,
        // An environment that failed gives no reward, so its episode is in no group.
        Some(ours::Stopped::Done | ours::Stopped::EnvironmentError) | None => types::Stopped::Done,
    }
}

fn origin_of(group: &ours::Group, position: usize) -> Option<types::Origin> {
    let ours::Origin { rollout, turn } = group.turns.origins.get(position).copied().flatten()?;
    Some(types::Origin { rollout, turn })
}

fn start_of(start: types::Start) -> ours::Start {
    ours::Start { rollout: start.rollout, turn: start.turn }
}
