//! The adapter for contract version 0.2. It converts between the host's and the component's types.
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
    path: "../../wit/0.2/allocation.wit",
    ownership: Borrowing { duplicate_if_necessary: true },
    imports: { "rollout:allocation/facts": trappable },
});

crate::adapter::conversions!();
crate::adapter::policies!();
crate::adapter::since_0_2::since_0_2! { needs: [], advantages: [], group: [], request: [] }

fn settings_of(settings: ours::SamplerSettings) -> types::Sampling {
    types::Sampling { temperature: settings.temperature, max_tokens: settings.max_tokens }
}

/// Converts a request's settings. This version has no limit of turns, so that the run's own holds.
fn sampler_settings(own: types::Sampling, run: &ours::Run) -> ours::SamplerSettings {
    let types::Sampling { temperature, max_tokens } = own;
    let max_turns = run.terms.as_ref().map_or(1, |terms| terms.max_turns);
    ours::SamplerSettings { temperature, max_tokens, max_turns }
}
