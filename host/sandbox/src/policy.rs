//! A loaded policy and its three calls.

use allot_allocation::rules::Bounds;
use allot_allocation::{Need, Plan, Run, Terms, View};
use allot_component::Description;
use wasmtime::Store;
use wasmtime::component::Component;

use crate::call::{Caller, Cost, DESCRIPTION};
use crate::contract::{Answer, Contract, Guest, Linked};
use crate::description::usable;
use crate::fault::Fault;
use crate::guest::GuestState;
use crate::inspection::Inspection;
use crate::restricted_wasi::Other;
use crate::{LoadError, Sandbox, sandbox};

/// Bytes that any answer may hand over: a state as large as the record takes, and as much again for what breaks a
/// rule to be told by its rule.
const ANSWER: usize = 32 << 20;
/// What a prompt of a view may add to a plan, and a rollout: several times what they take in the lists that a plan
/// may name them in.
const PER_PROMPT: usize = 512;
const PER_ROLLOUT: usize = 32;

/// A policy that is loaded and described.
pub struct Policy {
    caller: Caller,
    linked: Box<dyn Linked>,
    contract: Contract,
    inspection: Inspection,
    description: Description,
    sha256: String,
    size: u64,
}

impl Policy {
    pub(crate) fn new(
        sandbox: Sandbox,
        component: &Component,
        inspection: Inspection,
        sha256: String,
        size: u64,
    ) -> Result<Self, LoadError> {
        let caller = Caller::new(sandbox, inspection.wasi);
        let contract =
            Contract::of(&inspection.version).expect("an inspection finds a version that is known");
        let misfit = |e| LoadError::Misfit { contract: contract.full(), why: sandbox::cause(&e) };
        let linked = contract.link(&mut caller.linker()?, component).map_err(misfit)?;
        caller.fits(&contract.full(), |store| linked.instantiate(store))?;

        let blank = Description {
            name: String::new(),
            version: String::new(),
            summary: String::new(),
            settings: Vec::new(),
            signals: Vec::new(),
            columns: Vec::new(),
            needs: Vec::new(),
        };
        let mut policy = Self { caller, linked, contract, inspection, description: blank, sha256, size };
        let (description, _) = policy
            .call(DESCRIPTION, None, |guest, store| Ok(Ok(guest.describe(store)?)))
            .map_err(LoadError::Describe)?;
        usable(&description).map_err(LoadError::Description)?;
        policy.description = description;
        Ok(policy)
    }

    /// What it says of itself.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Its component's sha256, in hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Its component's size, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// A run as this policy is shown it: how it samples, rewards and learns is not every contract's to tell.
    pub fn shown(&self, run: Run, terms: Terms) -> Run {
        let tells = self.contract >= Contract::V0_2;
        let tells = tells.then(|| {
            let needs = self.among_needs(&terms.needs);
            let parts = if needs.contains(&Need::Parts) { terms.parts } else { Vec::new() };
            let requests = terms.requests.filter(|_| needs.contains(&Need::Sampling));
            let columns = terms.columns.among(&self.description.columns);
            Terms { needs, parts, requests, columns, ..terms }
        });
        Run { terms: tells, ..run }
    }

    /// The run of another policy as this one would be shown it. It sees what that one sees; what it would request is
    /// its own matter.
    pub fn shown_too(&self, run: Run) -> Run {
        let mut terms = run.terms.clone().unwrap_or_default();
        terms.needs.extend([Need::AnyPrompt, Need::Replay, Need::Sampling, Need::Stopping, Need::Updating]);
        let needs = self.among_needs(&terms.needs);
        let columns = terms.columns.among(&self.description.columns);
        let terms = (run.terms.is_some() || !needs.is_empty()).then_some(Terms { needs, columns, ..terms });
        Run { terms, ..run }
    }

    /// What it needs of what there is.
    fn among_needs(&self, given: &[Need]) -> Vec<Need> {
        self.description.needs.iter().copied().filter(|need| given.contains(need)).collect()
    }

    /// The contract version that it speaks.
    pub fn contract(&self) -> &str {
        &self.inspection.version
    }

    /// Checks the run's settings and gives the first state.
    pub fn begin(&self, run: &Run) -> Result<(Vec<u8>, Cost), Fault> {
        if let Some(need) = self.description.needs.iter().find(|need| !run.gives(**need)) {
            return Err(Fault::Lacking(*need));
        }
        let columns = run.columns();
        if let Some(missing) = self.description.columns.iter().find(|name| columns.named(name).is_none()) {
            return Err(Fault::WithoutColumn(missing.clone()));
        }
        let begun = self.call(ANSWER, None, |guest, store| guest.begin(store, run));
        // No plan comes with it that a rule could look at.
        let most = Bounds::default().state;
        match begun {
            Ok((state, _)) if state.len() > most => Err(Fault::StateTooLarge { found: state.len(), most }),
            begun => begun,
        }
    }

    /// Asks what to do next.
    pub fn decide(&self, run: &Run, state: &[u8], view: &View) -> Result<(Plan, Cost), Fault> {
        self.decide_under(None, run, state, view)
    }

    /// Asks the same where something is otherwise that means nothing in a run: a policy that depends on nothing but
    /// its arguments gives the same plan. With [`Other::Memory`] it is asked twice in one instance, and the second
    /// answer counts.
    pub fn decide_otherwise(
        &self,
        other: Other,
        run: &Run,
        state: &[u8],
        view: &View,
    ) -> Result<Plan, Fault> {
        self.decide_under(Some(other), run, state, view).map(|(plan, _)| plan)
    }

    fn decide_under(
        &self,
        other: Option<Other>,
        run: &Run,
        state: &[u8],
        view: &View,
    ) -> Result<(Plan, Cost), Fault> {
        let rollouts: usize = view.groups.iter().map(|group| group.rewards.len()).sum();
        let prompts = view.pool.len() + view.groups.len();
        let most = ANSWER + PER_PROMPT * prompts + PER_ROLLOUT * rollouts;
        self.call(most, other, |guest, store| {
            let plan = guest.decide(store, run, state, view)?;
            if other == Some(Other::Memory) { guest.decide(store, run, state, view) } else { Ok(plan) }
        })
    }

    /// Makes an instance and drops it: what a call costs before the guest does anything.
    pub fn instantiate(&self) -> Result<(), Fault> {
        self.call(ANSWER, None, |_, _| Ok(Ok(()))).map(|((), _)| ())
    }

    /// Whether it imports WASI: only then clocks and random bytes are within its reach.
    pub fn has_wasi(&self) -> bool {
        self.inspection.wasi
    }

    /// Asks a fresh instance, which hands over `most` bytes at a time at most.
    fn call<T: Send>(
        &self,
        most: usize,
        other: Option<Other>,
        ask: impl FnOnce(&dyn Guest, &mut Store<GuestState>) -> Answer<T> + Send,
    ) -> Result<(T, Cost), Fault> {
        self.caller.call(most, other, |store| {
            let guest = self.linked.instantiate(store)?;
            ask(&*guest, store)
        })
    }
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Description { name, version, .. } = &self.description;
        write!(f, "Policy({name} {version}, sha256 {})", self.sha256)
    }
}
