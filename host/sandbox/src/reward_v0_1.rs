//! The adapter for graders' contract 0.1. It converts between the host's and the component's types.
//!
//! Texts are lent to the guest without a copy on the host.

use allot_allocation::{Value, shown};
use wasmtime::Store;
use wasmtime::component::{Component, HasSelf, Linker};

use self::bindings::Reward as Grader;
use self::bindings::rollout::reward::{log, types};
use crate::calls::Answer;
use crate::fault::Refusal;
use crate::guest::GuestState;
use crate::judged::{Asked, GraderDescription, Judged, NoVerdict, Score};

/// The most characters kept of a reason.
const REASON: usize = 200;

#[allow(missing_docs)]
mod bindings {
    wasmtime::component::bindgen!({
        world: "reward",
        path: "../../wit/reward/0.1/reward.wit",
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

crate::adapter::conversions!();

/// A component whose imports and exports fit the contract.
pub(crate) struct GraderPre(bindings::RewardPre<GuestState>);

/// Links a component to the contract.
pub(crate) fn link(linker: &mut Linker<GuestState>, component: &Component) -> wasmtime::Result<GraderPre> {
    Grader::add_to_linker::<_, HasSelf<_>>(linker, |guest| guest)?;
    linker.instantiate_pre(component).and_then(bindings::RewardPre::new).map(GraderPre)
}

impl GraderPre {
    /// Returns a fresh instance.
    pub fn instantiate(&self, store: &mut Store<GuestState>) -> wasmtime::Result<Grader> {
        self.0.instantiate(store)
    }
}

pub(crate) fn describe(
    grader: &Grader,
    store: &mut Store<GuestState>,
) -> wasmtime::Result<GraderDescription> {
    let d = grader.rollout_reward_grader().call_describe(store)?;
    Ok(GraderDescription {
        name: d.name,
        version: d.version,
        summary: d.summary,
        settings: settings(d.settings),
        parts: d.parts,
    })
}

pub(crate) fn begin(
    grader: &Grader,
    store: &mut Store<GuestState>,
    settings: &[(String, Value)],
) -> Answer<()> {
    let begun = grader.rollout_reward_grader().call_begin(store, &lend_settings(settings))?;
    Ok(begun.map_err(|error| match error {
        types::Error::Setting(bad) => bad_setting(bad),
        types::Error::Other(reason) => Refusal::other(&reason),
    }))
}

pub(crate) fn grade(
    grader: &Grader,
    store: &mut Store<GuestState>,
    batch: &[Asked<'_>],
) -> wasmtime::Result<Vec<Judged>> {
    let golds: Vec<Vec<&str>> =
        batch.iter().map(|asked| asked.gold.iter().map(String::as_str).collect()).collect();
    let questions: Vec<types::Question<'_>> = batch
        .iter()
        .zip(&golds)
        .map(|(Asked { prompt, source, answer, .. }, gold)| types::Question { prompt, source, gold, answer })
        .collect();
    let verdicts = grader.rollout_reward_grader().call_grade(store, &questions)?;
    Ok(verdicts.into_iter().map(judged).collect())
}

fn judged(verdict: types::Verdict) -> Judged {
    let unusable = |why: &str| Err(NoVerdict::Unusable(why.to_owned()));
    match verdict {
        types::Verdict::Unscorable(why) => Err(NoVerdict::Unscorable(shown::word(why.trim(), REASON))),
        types::Verdict::Judged(types::Judgement { correct, reward }) => {
            let score = Score { correct, ..Score::default() };
            match reward {
                types::Reward::ByCorrectness if correct.is_none() => {
                    unusable("said neither whether the answer is correct nor a reward")
                }
                types::Reward::ByCorrectness => Ok(score),
                types::Reward::Number(reward) => Ok(Score { reward: Some(reward), ..score }),
                types::Reward::Parts(parts) if parts.is_empty() => {
                    unusable("gave a reward in parts, but no part")
                }
                types::Reward::Parts(parts) => {
                    let parts = parts.into_iter().map(|part| (part.name, part.value)).collect();
                    Ok(Score { parts, ..score })
                }
            }
        }
    }
}
