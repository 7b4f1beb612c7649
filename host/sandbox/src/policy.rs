//! A loaded policy and its three calls.

use allot_allocation::log::{Level, LogLine};
use allot_allocation::rules::Bounds;
use allot_allocation::{Need, Plan, Run, Terms, Value, View, shown};
use allot_component::{Description, Setting, sealed};
use wasmtime::component::{Component, Linker};
use wasmtime::{Store, Trap, WasmBacktrace};

use crate::contract::{Answer, Contract, Guest, Linked};
use crate::fault::{Fault, Misuse};
use crate::guest::GuestState;
use crate::inspection::Inspection;
use crate::restricted_wasi::{Other, RestrictedWasi};
use crate::{LoadError, Sandbox, sandbox};

/// Bytes that a description may hand over, far more than a usable one has.
const DESCRIPTION: usize = 4 << 20;
/// Bytes that any answer may hand over: a state as large as the record takes, and as much again for what breaks a
/// rule to be told by its rule.
const ANSWER: usize = 32 << 20;
/// What a prompt of a view may add to a plan, and a rollout: several times what they take in the lists that a plan
/// may name them in.
const PER_PROMPT: usize = 512;
const PER_ROLLOUT: usize = 32;

/// What one call cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cost {
    /// Wasm instructions. Good for a stop that repeats, never for a result: the count changes
    /// between versions of the Wasm engine.
    pub fuel: u64,
    /// The most memory that the guest had, in bytes.
    pub memory: usize,
    /// What it logged.
    pub log: Vec<LogLine>,
    /// What it printed, where it could.
    pub printed: String,
}

impl Cost {
    /// What it logged, and then what it printed.
    pub fn words(self) -> impl Iterator<Item = LogLine> {
        let printed: Vec<LogLine> =
            self.printed.lines().map(|text| LogLine { level: Level::Info, text: text.to_owned() }).collect();
        self.log.into_iter().chain(printed)
    }
}

/// A policy that is loaded and described.
pub struct Policy {
    sandbox: Sandbox,
    linked: Box<dyn Linked>,
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
        let mut linker: Linker<GuestState> = Linker::new(sandbox.engine());
        if inspection.wasi {
            wasmtime_wasi::p2::add_to_linker_sync(&mut linker)
                .and_then(|()| crate::restricted_wasi::never_wait(&mut linker))
                .map_err(|e| LoadError::Engine(sandbox::cause(&e)))?;
        }
        let contract = inspection.contract;
        let linked = contract.link(&mut linker, component);
        let linked = linked.map_err(|e| LoadError::Misfit(contract, sandbox::cause(&e)))?;

        let blank = Description {
            name: String::new(),
            version: String::new(),
            summary: String::new(),
            settings: Vec::new(),
            signals: Vec::new(),
            columns: Vec::new(),
            needs: Vec::new(),
        };
        let mut policy = Self { sandbox, linked, inspection, description: blank, sha256, size };
        policy.fits()?;
        let (description, _) = policy
            .call(DESCRIPTION, None, |guest, store| Ok(Ok(guest.describe(store)?)))
            .map_err(LoadError::Describe)?;
        usable(&description).map_err(LoadError::Description)?;
        policy.description = description;
        Ok(policy)
    }

    /// The types of its exports are compared with the contract's when an instance is made. The first instance also
    /// makes the image of the component's memory, which Linux may refuse while it moves these very pages: then again.
    fn fits(&self) -> Result<(), LoadError> {
        let misfit = |error: &LoadError| match error {
            LoadError::Misfit(_, why) => why.clone(),
            _ => String::new(),
        };
        sealed(misfit, || self.fits_now())
    }

    fn fits_now(&self) -> Result<(), LoadError> {
        let mut store =
            GuestState::store(self.sandbox.engine(), self.sandbox.caps(), self.quiet(None), ANSWER)
                .map_err(|e| LoadError::Engine(sandbox::cause(&e)))?;
        let made = self.linked.instantiate(&mut store);
        match made {
            Ok(_) => Ok(()),
            Err(e) if e.downcast_ref::<Trap>().is_some() || store.data().limiter.refused.is_some() => {
                Err(LoadError::Describe(self.fault(&e, &store)))
            }
            Err(e) => Err(LoadError::Misfit(self.inspection.contract, sandbox::cause(&e))),
        }
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
        let tells = self.inspection.contract >= Contract::V0_2;
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

    fn quiet(&self, other: Option<Other>) -> Option<RestrictedWasi> {
        self.inspection.wasi.then(|| RestrictedWasi::new(other))
    }

    /// Asks a fresh instance, and tells whatever happens in words. The instance hands over `most` bytes
    /// at a time at most.
    fn call<T: Send>(
        &self,
        most: usize,
        other: Option<Other>,
        ask: impl FnOnce(&dyn Guest, &mut Store<GuestState>) -> Answer<T> + Send,
    ) -> Result<(T, Cost), Fault> {
        let here = || {
            let mut store =
                GuestState::store(self.sandbox.engine(), self.sandbox.caps(), self.quiet(other), most)
                    .map_err(|e| Fault::Engine(sandbox::cause(&e)))?;
            let answer = self.linked.instantiate(&mut store).and_then(|guest| ask(&*guest, &mut store));
            let answer = answer.map_err(|error| self.fault(&error, &store))?;
            let fuel = store.get_fuel().map_or(0, |left| self.sandbox.caps().fuel.saturating_sub(left));
            let room = store.data_mut();
            let printed = room.printed();
            let cost = Cost { fuel, memory: room.limiter.peak, log: room.take_log(), printed };
            Ok((answer.map_err(Fault::Refused)?, cost))
        };
        if !self.inspection.wasi {
            return here();
        }
        // WASI's blocking calls can't run on a thread that drives an async runtime.
        std::thread::scope(|scope| match scope.spawn(here).join() {
            Ok(answer) => answer,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    fn fault(&self, error: &wasmtime::Error, store: &Store<GuestState>) -> Fault {
        let caps = self.sandbox.caps();
        let room = store.data();
        if let Some(wanted) = room.limiter.refused {
            return Fault::OutOfMemory { wanted, limit: caps.memory };
        }
        // The engine keeps this error's type to itself.
        let words = error.root_cause().to_string();
        if words.contains("fuel allocated for hostcalls has been exhausted") {
            return Fault::TooMuch(store.hostcall_fuel());
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => return Fault::OutOfFuel(caps.fuel),
            Some(Trap::Interrupt) => return Fault::OutOfTime(caps.time),
            _ => {}
        }
        if let Some(Misuse(words)) = error.downcast_ref::<Misuse>() {
            return Fault::Misused(words.clone());
        }
        let stack = error.downcast_ref::<WasmBacktrace>().map(frames).unwrap_or_default();
        let reason = error.downcast_ref::<Trap>().map_or(words, ToString::to_string);
        let reason = shown::line(&reason, shown::LINE);
        Fault::Trapped { reason, said: room.last_words(), stack }
    }
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Description { name, version, .. } = &self.description;
        write!(f, "Policy({name} {version}, sha256 {})", self.sha256)
    }
}

fn frames(backtrace: &WasmBacktrace) -> Vec<String> {
    let shown = |name: &str| shown::word(name, 200);
    let mut frames: Vec<String> = Vec::new();
    for frame in backtrace.frames() {
        // Where there are lines, functions that were inlined have a symbol of their own.
        let symbols = frame.symbols();
        for symbol in symbols {
            let Some(name) = symbol.name().or(frame.func_name()) else { continue };
            let place =
                symbol.file().zip(symbol.line()).map(|(file, line)| format!(" ({}:{line})", shown(file)));
            frames.push(shown(name) + &place.unwrap_or_default());
        }
        if symbols.is_empty() {
            frames.extend(frame.func_name().map(shown));
        }
    }
    // A recursion that ran into the end of the stack is the same frame over and over.
    frames.dedup();
    frames.truncate(12);
    frames
}

/// Whether a config could use a description, and a screen show it.
fn usable(d: &Description) -> Result<(), String> {
    const RULE: &str = "1 to 64 lower-case letters, digits and dashes, a letter first";
    let short = |name: &str| {
        name.len() <= 64
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    let plain = |text: &str| text.len() <= 1024 && !text.chars().any(shown::steers);
    let (count, most) = (d.settings.len().max(d.signals.len()).max(d.columns.len()), 256);
    if count > most {
        return Err(format!("it has {count} settings, signals or columns; {most} at most can be shown"));
    }
    let names = d.settings.iter().map(|s| &s.name).chain(&d.signals).chain(&d.columns).chain([&d.name]);
    if let Some(name) = names.clone().find(|name| !short(name)) {
        return Err(format!("it has the name `{}`; a name is {RULE}", shown::name(name)));
    }
    let summaries = d.settings.iter().map(|s| &s.summary).chain([&d.summary, &d.version]);
    if let Some(text) = summaries.clone().find(|text| !plain(text)) {
        return Err(format!(
            "it has the text `{}`; a text is one line of 1024 bytes at most",
            shown::name(text)
        ));
    }
    let mut seen = std::collections::HashSet::new();
    if let Some(twice) = d.settings.iter().map(|s| &s.name).find(|name| !seen.insert(*name)) {
        return Err(format!("it has the setting `{twice}` twice"));
    }
    let mut seen = std::collections::HashSet::new();
    if let Some(twice) = d.columns.iter().find(|name| !seen.insert(*name)) {
        return Err(format!("it has the column `{twice}` twice"));
    }
    let text = |s: &&Setting| matches!(&s.default, Value::Text(text) if !plain(text));
    if let Some(setting) = d.settings.iter().find(text) {
        let name = &setting.name;
        return Err(format!("the default of its setting `{name}` is no line of 1024 bytes at most"));
    }
    match d.settings.iter().find(|s| matches!(s.default, Value::Number(n) if !n.is_finite())) {
        Some(setting) => Err(format!("the default of its setting `{}` is not finite", setting.name)),
        None => Ok(()),
    }
}
