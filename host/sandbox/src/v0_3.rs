//! The adapter for contract version 0.3. It converts between the host's and the component's types.
//!
//! Lists are lent to the guest without a copy on the host.

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
crate::adapter::since_0_2::since_0_2!();

fn settings_of(settings: ours::SamplerSettings) -> types::Sampling {
    let ours::SamplerSettings { temperature, max_tokens, max_turns } = settings;
    types::Sampling { temperature, max_tokens, max_turns }
}

/// The turns of a group's rollouts.
type Rows<'g> = Vec<&'g [types::Turn]>;

/// A group's lists that are made for the guest.
struct Lists<'g> {
    signals: Vec<&'g [f32]>,
    parts: Vec<&'g [f32]>,
    trained: Cow<'g, [u32]>,
    sampling: Vec<types::Sampling>,
    turns: Vec<Vec<types::Turn>>,
    stopped: Vec<types::Stopped>,
    origins: Vec<Option<types::Origin>>,
}

impl<'g> Lists<'g> {
    fn of(group: &'g ours::Group, shown: Shown) -> Self {
        let (signals, parts) = shown.signals(group);
        let of = |shown: bool| if shown { group.len() } else { 0 };
        Self {
            signals,
            parts,
            trained: shown.trained(group),
            sampling: shown.sampling(group, settings_of),
            turns: (0..of(shown.turns)).map(|i| turns_of(group, i)).collect(),
            stopped: (0..of(shown.turns)).map(|i| stopped_of(group, i)).collect(),
            origins: (0..of(shown.origins)).map(|i| origin_of(group, i)).collect(),
        }
    }

    fn rows(&self) -> Rows<'_> {
        self.turns.iter().map(Vec::as_slice).collect()
    }

    fn lend(&'g self, g: &'g ours::Group, turns: &'g Rows<'g>) -> types::Group<'g> {
        types::Group {
            prompt: g.prompt.0,
            epoch: g.epoch,
            rewards: &g.rewards,
            correct: &g.correct,
            lengths: &g.tokens,
            ages: &g.ages,
            truncated: &g.truncated,
            signals: &self.signals,
            parts: &self.parts,
            trained: &self.trained,
            sampling: &self.sampling,
            turns,
            stopped: &self.stopped,
            origins: &self.origins,
        }
    }
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

fn needs(needs: types::Needs) -> Vec<Need> {
    let named = [
        (types::Needs::ANY_PROMPT, Need::AnyPrompt),
        (types::Needs::REPLAY, Need::Replay),
        (types::Needs::SAMPLING, Need::Sampling),
        (types::Needs::STOPPING, Need::Stopping),
        (types::Needs::UPDATING, Need::Updating),
        (types::Needs::PARTS, Need::Parts),
        (types::Needs::TURNS, Need::Turns),
        (types::Needs::STARTING, Need::Starting),
    ];
    named.into_iter().filter(|(flag, _)| needs.contains(*flag)).map(|(_, need)| need).collect()
}

fn request(r: types::Request, _run: &ours::Run) -> ours::Request {
    let until = r.until.map(|enough| ours::Enough {
        correct: enough.correct,
        wrong: enough.wrong,
        portion: enough.portion,
    });
    let sampling = r.sampling.map(|own| ours::SamplerSettings {
        temperature: own.temperature,
        max_tokens: own.max_tokens,
        max_turns: own.max_turns,
    });
    let start = |types::Start { rollout, turn }| ours::Start { rollout, turn };
    let starts = r.starts.into_iter().map(|one| one.map(start)).collect();
    ours::Request { until, sampling, starts, ..ours::Request::new(PromptId(r.prompt), r.count) }
}

fn advantage(advantage: types::Advantage) -> ours::Advantage {
    match advantage {
        types::Advantage::Picked => ours::Advantage::Picked,
        types::Advantage::Group => ours::Advantage::Group,
        types::Advantage::Among(positions) => ours::Advantage::Among(positions),
        types::Advantage::Given(own) => ours::Advantage::Given(own),
        types::Advantage::ByTurn(own) => ours::Advantage::ByTurn(own),
    }
}
