//! The contract's three calls, in the host's own types.

use allot_allocation::{Plan, Run, View};
use allot_component::Description;
use wasmtime::Store;

use crate::cost::Cost;
use crate::fault::{Fault, Refusal};
use crate::guest::GuestState;
use crate::restricted_wasi::Other;

/// The result of a call and its cost.
pub(crate) type Called<T> = Result<(T, Cost), Fault>;

/// The contract's three calls, implemented by a component and by a draft.
pub(crate) trait Calls: Send + Sync {
    /// Returns the policy's description.
    fn describe(&self) -> Called<Description>;

    /// Checks a run's settings and returns the first state.
    fn begin(&self, run: &Run) -> Called<Vec<u8>>;

    /// Returns the plan for a view. `other` perturbs something that the policy must not depend on.
    fn decide(&self, other: Option<Other>, run: &Run, state: &[u8], view: &View) -> Called<Plan>;

    /// Creates an instance for one call and drops it.
    fn instantiate(&self) -> Result<(), Fault>;
}

/// Makes fresh instances of a component whose imports and exports fit the contract.
pub(crate) type Linked =
    Box<dyn Fn(&mut Store<GuestState>) -> wasmtime::Result<Box<dyn Guest>> + Send + Sync>;

/// A policy's answer, or the policy's own error.
pub(crate) type Answer<T> = wasmtime::Result<Result<T, Refusal>>;

/// A component instance, with the contract's three calls in the host's own types.
pub(crate) trait Guest {
    fn describe(&self, store: &mut Store<GuestState>) -> wasmtime::Result<Description>;

    fn begin(&self, store: &mut Store<GuestState>, run: &Run) -> Answer<Vec<u8>>;

    fn decide(&self, store: &mut Store<GuestState>, run: &Run, state: &[u8], view: &View) -> Answer<Plan>;
}
