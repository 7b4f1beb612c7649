//! Which data of a rollout a policy sees: what it named as a need, and no more.

use std::borrow::Cow;

use allot_allocation::{Action, Advantage, Group, Need, Plan, Run, SamplerSettings, Terms};

use crate::fault::Misuse;

/// Which data of a rollout a policy sees.
#[derive(Clone, Copy)]
pub(crate) struct Shown {
    /// How many of a rollout's last signals are parts of its reward.
    parts: usize,
    /// Whether the policy sees these parts.
    with_parts: bool,
    /// Whether the policy sees how often a rollout was trained on.
    trained: bool,
    /// Whether the policy sees the turns of a rollout.
    pub(crate) turns: bool,
    /// Whether the policy sees what a rollout continues.
    pub(crate) origins: bool,
    /// The run's own sampling settings, if the policy sees how rollouts were sampled.
    sampling: Option<SamplerSettings>,
}

impl Shown {
    /// Returns which data the policy of this run sees.
    pub(crate) fn of(run: &Run) -> Self {
        let sampling = run.terms.as_ref().filter(|_| run.gives(Need::Sampling));
        Self {
            parts: run.parts().len(),
            with_parts: run.gives(Need::Parts),
            trained: run.gives(Need::Replay),
            turns: run.gives(Need::Turns),
            origins: run.gives(Need::Starting),
            sampling: sampling.map(Terms::sampling),
        }
    }

    /// Returns a rollout's signals and the parts of its reward, as lists over the group's rollouts.
    pub(crate) fn signals(self, group: &Group) -> (Vec<&[f32]>, Vec<&[f32]>) {
        let mut signals: Vec<&[f32]> = group.signals.iter().map(Vec::as_slice).collect();
        let parts = signals.split_off(signals.len().saturating_sub(self.parts));
        (signals, if self.with_parts { parts } else { Vec::new() })
    }

    /// Returns the number of updates on each rollout. Groups keep no such list while all are 0.
    pub(crate) fn trained(self, group: &Group) -> Cow<'_, [u32]> {
        match self.trained {
            true if group.trained.len() == group.len() => Cow::Borrowed(&group.trained),
            true => Cow::Owned(vec![0; group.len()]),
            false => Cow::Borrowed(&[]),
        }
    }

    /// Returns the settings of each rollout, by default the run's; empty if the policy does not see them.
    pub(crate) fn sampling<T>(self, group: &Group, settings: impl Fn(SamplerSettings) -> T) -> Vec<T> {
        let Some(run) = self.sampling else { return Vec::new() };
        let own = group.sampling.iter().copied().chain(std::iter::repeat(None));
        own.take(group.len()).map(|own| settings(own.unwrap_or(run))).collect()
    }
}

/// Rejects a plan that uses a feature that its policy did not describe as a need.
pub(crate) fn uses_what_it_described(plan: &Plan, run: &Run) -> Result<(), Misuse> {
    let uses: &[(bool, Need, &str)] = match &plan.action {
        Action::Sample(requests) => &[
            (requests.iter().any(|r| r.until.is_some()), Need::Stopping, "`until` in a request"),
            (requests.iter().any(|r| r.sampling.is_some()), Need::Sampling, "`sampling` in a request"),
            (requests.iter().any(|r| !r.starts.is_empty()), Need::Starting, "`starts` in a request"),
        ],
        Action::Train(batch) => {
            let by_turn = batch.picks.iter().any(|pick| matches!(pick.advantage, Advantage::ByTurn(_)));
            &[
                (batch.update.is_some(), Need::Updating, "`update` in its batch"),
                (by_turn, Need::Turns, "advantages by turn"),
            ]
        }
    };
    match uses.iter().find(|(used, need, _)| *used && !run.gives(*need)) {
        Some((_, need, what)) => {
            let what = format!("used {what}, but its description does not have `{need}` among its needs");
            Err(Misuse::new(what, need.hint()))
        }
        None => Ok(()),
    }
}
