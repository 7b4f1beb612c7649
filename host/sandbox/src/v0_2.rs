//! The adapter for contract version 0.2. It converts between the host's and the component's types.
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
    path: "../../wit/0.2/allocation.wit",
    ownership: Borrowing { duplicate_if_necessary: true },
    imports: { "rollout:allocation/facts": trappable },
});

crate::adapter::conversions!();
crate::adapter::policies!();
crate::adapter::since_0_2::since_0_2!();

fn settings_of(settings: ours::SamplerSettings) -> types::Sampling {
    types::Sampling { temperature: settings.temperature, max_tokens: settings.max_tokens }
}

/// Lists of lists: this version has none that are made.
type Rows<'g> = ();

/// A group's lists that are made for the guest.
struct Lists<'g> {
    signals: Vec<&'g [f32]>,
    parts: Vec<&'g [f32]>,
    trained: Cow<'g, [u32]>,
    sampling: Vec<types::Sampling>,
}

impl<'g> Lists<'g> {
    fn of(group: &'g ours::Group, shown: Shown) -> Self {
        let (signals, parts) = shown.signals(group);
        Self { signals, parts, trained: shown.trained(group), sampling: shown.sampling(group, settings_of) }
    }

    #[expect(clippy::unused_self, reason = "as later versions have it")]
    fn rows(&self) {}

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as later versions have it")]
    fn lend(&'g self, g: &'g ours::Group, (): &Rows<'g>) -> types::Group<'g> {
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
        }
    }
}

fn needs(needs: types::Needs) -> Vec<Need> {
    let named = [
        (types::Needs::ANY_PROMPT, Need::AnyPrompt),
        (types::Needs::REPLAY, Need::Replay),
        (types::Needs::SAMPLING, Need::Sampling),
        (types::Needs::STOPPING, Need::Stopping),
        (types::Needs::UPDATING, Need::Updating),
        (types::Needs::PARTS, Need::Parts),
    ];
    named.into_iter().filter(|(flag, _)| needs.contains(*flag)).map(|(_, need)| need).collect()
}

fn request(r: types::Request, run: &ours::Run) -> ours::Request {
    let until = r.until.map(|enough| ours::Enough {
        correct: enough.correct,
        wrong: enough.wrong,
        portion: enough.portion,
    });
    // This version has no limit of turns: the run's own holds.
    let max_turns = run.terms.as_ref().map_or(1, |terms| terms.max_turns);
    let sampling = r.sampling.map(|own| ours::SamplerSettings {
        temperature: own.temperature,
        max_tokens: own.max_tokens,
        max_turns,
    });
    ours::Request { until, sampling, ..ours::Request::new(PromptId(r.prompt), r.count) }
}

fn advantage(advantage: types::Advantage) -> ours::Advantage {
    match advantage {
        types::Advantage::Picked => ours::Advantage::Picked,
        types::Advantage::Group => ours::Advantage::Group,
        types::Advantage::Among(positions) => ours::Advantage::Among(positions),
        types::Advantage::Given(own) => ours::Advantage::Given(own),
    }
}
