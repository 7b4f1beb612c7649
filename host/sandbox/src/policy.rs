//! A loaded policy and its three calls.

use allot_allocation::rules::Bounds;
use allot_allocation::{Need, Plan, Run, Terms, View};
use allot_component::Description;

use crate::call::Caller;
use crate::calls::{Called, Calls};
use crate::contract::Contract;
use crate::description::usable;
use crate::draft::Draft;
use crate::fault::Fault;
use crate::inspection::Inspection;
use crate::instances::Instances;
use crate::restricted_wasi::Other;
use crate::sandbox::{Compiled, cause};
use crate::{CONTRACT_VERSION, LoadError};

/// A policy that is loaded and described.
pub struct Policy {
    calls: Box<dyn Calls>,
    contract: Contract,
    inspection: Inspection,
    draft: bool,
    description: Description,
    sha256: String,
    size: u64,
}

impl Policy {
    pub(crate) fn new(compiled: Compiled) -> Result<Self, LoadError> {
        let Compiled { sandbox, component, inspection, sha256, size } = compiled;
        let caller = Caller::new(sandbox, inspection.wasi);
        let contract =
            Contract::of(&inspection.version).expect("an inspection finds a version that is known");
        let misfit = |e| LoadError::Misfit { contract: contract.full(), why: cause(&e) };
        let linked = contract.link(&mut caller.linker()?, &component).map_err(misfit)?;
        caller.fits(&contract.full(), &linked)?;
        let calls = Box::new(Instances::new(caller, linked));
        let description = Description::default();
        Self::described(Self { calls, contract, inspection, draft: false, description, sha256, size })
    }

    /// Loads a draft. `sha256` and `size` (in bytes) are those of its sources.
    pub fn draft(draft: Draft, sha256: String, size: u64) -> Result<Self, LoadError> {
        Self::described(Self {
            calls: Box::new(draft),
            contract: Contract::V0_3,
            inspection: Inspection { version: CONTRACT_VERSION.to_owned(), wasi: false },
            draft: true,
            description: Description::default(),
            sha256,
            size,
        })
    }

    fn described(mut self) -> Result<Self, LoadError> {
        let (description, _) = self.calls.describe().map_err(LoadError::Describe)?;
        usable(&description).map_err(LoadError::Description)?;
        self.description = description;
        Ok(self)
    }

    /// Returns whether this is a draft: Python runs its sources, without a fuel limit or a sandbox.
    pub fn is_draft(&self) -> bool {
        self.draft
    }

    /// Returns the policy's description.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Returns the sha256 of its component, in hexadecimal; for a draft, of its sources.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Returns the size of its component or its sources, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the run as this policy sees it. Contract 0.1 does not show the run's [`Terms`].
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

    /// Returns another policy's run as this policy would see it as an observer. Needs that concern only
    /// requests and updates are granted, because an observer's requests are not carried out, and so are turns: those
    /// of rollouts that are no episodes are empty.
    pub fn shown_too(&self, run: Run) -> Run {
        let mut terms = run.terms.clone().unwrap_or_default();
        let requests = [Need::AnyPrompt, Need::Sampling, Need::Starting, Need::Stopping];
        terms.needs.extend(requests.into_iter().chain([Need::Replay, Need::Turns, Need::Updating]));
        let needs = self.among_needs(&terms.needs);
        let columns = terms.columns.among(&self.description.columns);
        let terms = (run.terms.is_some() || !needs.is_empty()).then_some(Terms { needs, columns, ..terms });
        Run { terms, ..run }
    }

    /// Returns the policy's needs that are among `given`.
    fn among_needs(&self, given: &[Need]) -> Vec<Need> {
        self.description.needs.iter().copied().filter(|need| given.contains(need)).collect()
    }

    /// Returns the contract version that the component exports.
    pub fn contract(&self) -> &str {
        &self.inspection.version
    }

    /// Checks the run's settings and returns the first state.
    pub fn begin(&self, run: &Run) -> Called<Vec<u8>> {
        if let Some(need) = self.description.needs.iter().find(|need| !run.gives(**need)) {
            return Err(Fault::Lacking(*need));
        }
        let columns = run.columns();
        if let Some(missing) = self.description.columns.iter().find(|name| columns.named(name).is_none()) {
            return Err(Fault::WithoutColumn(missing.clone()));
        }
        let begun = self.calls.begin(run);
        // `begin` returns no plan, so the rules can't check the state.
        let most = Bounds::default().state;
        match begun {
            Ok((state, _)) if state.len() > most => Err(Fault::StateTooLarge { found: state.len(), most }),
            begun => begun,
        }
    }

    /// Returns the policy's plan for a view.
    pub fn decide(&self, run: &Run, state: &[u8], view: &View) -> Called<Plan> {
        self.calls.decide(None, run, state, view)
    }

    /// Returns the plan for the same view with something perturbed that a policy must not depend on. A
    /// policy that depends only on its arguments returns the same plan. With [`Other::Memory`], one
    /// instance decides twice and the second plan is returned.
    pub fn decide_otherwise(
        &self,
        other: Other,
        run: &Run,
        state: &[u8],
        view: &View,
    ) -> Result<Plan, Fault> {
        self.calls.decide(Some(other), run, state, view).map(|(plan, _)| plan)
    }

    /// Creates an instance and drops it, to measure the cost of a call before the guest does anything.
    pub fn instantiate(&self) -> Result<(), Fault> {
        self.calls.instantiate()
    }

    /// Returns whether the component imports WASI. Without WASI it can't read clocks or random bytes.
    pub fn has_wasi(&self) -> bool {
        self.inspection.wasi
    }
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Description { name, version, .. } = &self.description;
        write!(f, "Policy({name} {version}, sha256 {})", self.sha256)
    }
}
