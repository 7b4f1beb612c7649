//! A policy that is a component. Each call runs in a fresh instance.

use allot_allocation::{Plan, Run, View};
use allot_component::Description;
use wasmtime::Store;

use crate::call::{Caller, DESCRIPTION};
use crate::calls::{Answer, Called, Calls, Guest, Linked};
use crate::fault::Fault;
use crate::guest::GuestState;
use crate::restricted_wasi::Other;

/// Most bytes that any answer may return: twice the largest state of a record, so that a plan that breaks a
/// rule is still read and the error can name the rule.
const ANSWER: usize = 32 << 20;
/// Additional bytes of a plan for each prompt of the view, and for each rollout: several times their size
/// in all lists of a plan.
const PER_PROMPT: usize = 512;
const PER_ROLLOUT: usize = 32;

/// A component that is instantiated for each call.
pub(crate) struct Instances {
    caller: Caller,
    linked: Linked,
}

impl Instances {
    pub fn new(caller: Caller, linked: Linked) -> Self {
        Self { caller, linked }
    }

    /// Calls a fresh instance, which may return at most `most` bytes at a time.
    fn call<T: Send>(
        &self,
        most: usize,
        other: Option<Other>,
        ask: impl FnOnce(&dyn Guest, &mut Store<GuestState>) -> Answer<T> + Send,
    ) -> Called<T> {
        self.caller.call(most, other, |store| {
            let guest = (self.linked)(store)?;
            ask(&*guest, store)
        })
    }
}

impl Calls for Instances {
    fn describe(&self) -> Called<Description> {
        self.call(DESCRIPTION, None, |guest, store| Ok(Ok(guest.describe(store)?)))
    }

    fn begin(&self, run: &Run) -> Called<Vec<u8>> {
        self.call(ANSWER, None, |guest, store| guest.begin(store, run))
    }

    fn decide(&self, other: Option<Other>, run: &Run, state: &[u8], view: &View) -> Called<Plan> {
        let rollouts: usize = view.groups.iter().map(|group| group.rewards.len()).sum();
        let prompts = view.pool.len() + view.groups.len();
        let most = ANSWER + PER_PROMPT * prompts + PER_ROLLOUT * rollouts;
        self.call(most, other, |guest, store| {
            let plan = guest.decide(store, run, state, view)?;
            if other == Some(Other::Memory) { guest.decide(store, run, state, view) } else { Ok(plan) }
        })
    }

    fn instantiate(&self) -> Result<(), Fault> {
        self.call(ANSWER, None, |_, _| Ok(Ok(()))).map(|((), _)| ())
    }
}
