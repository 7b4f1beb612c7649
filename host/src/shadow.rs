//! Shadows: policies that are shown what the live one is shown, and whose plans are written down and not
//! carried out. They change nothing: the record is the same to the byte with them and without.
//!
//! From its first plan that differs on, a shadow is shown a run that it did not steer.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use allot_allocation::rules::{self, Bounds};
use allot_allocation::{Action, Plan, Run, Value, View};
use allot_record::{PolicyStamp, hex, unhex};
use allot_sandbox::{Fault, Line as LogLine, Policy};
use serde::{Deserialize, Serialize};

use crate::step::Decide;
use crate::trouble::{Result, Trouble, count, listed};
use crate::{config, diff, shipped};

/// Who decides, and who only looks on.
pub struct Decider<'a> {
    /// The policy whose plans are carried out.
    pub live: &'a Policy,
    /// Those whose plans are not.
    pub shadows: Vec<Shadow>,
}

/// A policy that looks on.
pub struct Shadow {
    policy: Policy,
    run: Run,
    state: Vec<u8>,
    tally: Tally,
    /// Where its plans are written, once there is a folder.
    file: Option<(File, PathBuf)>,
}

/// What its calls came to.
#[derive(Default)]
struct Tally {
    calls: u64,
    differ: u64,
    first: Option<(u32, u32)>,
    /// Rollouts that it asked for, and that the live policy did in the same calls.
    asked: [u64; 2],
    /// Why it is asked no more.
    failed: Option<String>,
}

/// A line of its file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Entry {
    /// Which policy it is. The first line.
    Head {
        /// The policy.
        policy: PolicyStamp,
        /// Its settings in force.
        settings: Vec<(String, Value)>,
    },
    /// What it would have done.
    Call(Call),
}

/// A call of a shadow.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Call {
    step: u32,
    round: u32,
    /// Whether it decides as the live policy did, metrics left out.
    same: bool,
    /// Rollouts that its plan asks for.
    asked: u64,
    /// Rollouts that the live plan asks for.
    live: u64,
    /// Its plan, where it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan: Option<Plan>,
    /// What it remembers, in hexadecimal, where that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    /// Why there is no plan, or none that keeps the rules. It is asked no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
    /// What it logged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    log: Vec<String>,
}

impl<'a> Decider<'a> {
    /// A policy that nobody looks over the shoulder.
    pub fn alone(live: &'a Policy) -> Self {
        Self { live, shadows: Vec::new() }
    }
}

impl Decide for Decider<'_> {
    fn name(&self) -> &str {
        &self.live.description().name
    }

    fn decide(
        &mut self,
        run: &Run,
        state: &[u8],
        view: &View,
    ) -> std::result::Result<(Plan, Vec<LogLine>), Fault> {
        self.live.decide(run, state, view).map(|(plan, cost)| (plan, cost.words().collect()))
    }

    fn show(&mut self, view: &View, plan: &Plan) -> Result<()> {
        self.shadows.iter_mut().try_for_each(|shadow| shadow.see(view, plan))
    }
}

impl Shadow {
    /// A shadow of this source, given as `POLICY` or `POLICY,NAME=VALUE,…`. It sees the signals that the live
    /// policy wants.
    pub fn new(source: &str, policy: Policy, live: &Policy, run: &Run) -> Result<Self> {
        let typed: Vec<String> = source.split(',').skip(1).map(str::to_owned).collect();
        let description = policy.description();
        let name = &description.name;
        let (theirs, ours) = (&description.signals, &live.description().signals);
        if theirs != ours {
            let list = |signals: &[String]| listed(signals.iter().map(String::as_str));
            let what =
                format!("shadow `{name}` wants the signals {}; the run shows {}", list(theirs), list(ours));
            return Err(Trouble::new(what).hint("a shadow sees what the live policy sees, and nothing else"));
        }
        let settings = config::settings(description, &config::typed(&typed)?)?;
        let run = Run { settings, ..run.clone() };
        let begun = policy.begin(&run);
        let (state, _) = begun.map_err(|f| Trouble::told(format!("shadow `{name}` {f}"), f.hint()))?;
        Ok(Self { policy, run, state, tally: Tally::default(), file: None })
    }

    /// Writes into a file of its own below the run's folder from now on. Of a run that goes on after `steps`
    /// steps what was written by then stays, and it remembers what it did then.
    pub fn keep(&mut self, folder: &Path, steps: u32) -> Result<()> {
        let folder = folder.join("shadows");
        std::fs::create_dir_all(&folder).map_err(|e| Trouble::file("make", &folder, &e))?;
        let head =
            Entry::Head { policy: shipped::policy_stamp(&self.policy), settings: self.run.settings.clone() };
        let head = line(&head)?;
        let name = self.policy.description().name.clone();
        let mut path = folder.join(format!("{name}.jsonl"));
        // Another policy of this name, or this one with other settings, keeps its file.
        let mut n = 1;
        let calls = loop {
            match std::fs::read_to_string(&path) {
                Ok(text) => match text.strip_prefix(&head) {
                    Some(calls) => break calls.to_owned(),
                    None => n += 1,
                },
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => break String::new(),
                Err(e) => return Err(Trouble::file("read", &path, &e)),
            }
            path = folder.join(format!("{name}-{n}.jsonl"));
        };
        let mut kept = head;
        for text in calls.split_inclusive('\n').filter(|text| text.ends_with('\n')) {
            let Ok(Entry::Call(call)) = serde_json::from_str(text) else {
                return Err(Trouble::new(format!(
                    "`{}` has a line that is none of a shadow",
                    path.display()
                )));
            };
            if call.step < steps {
                kept += text;
                self.remember(&call);
            }
        }
        let written = File::create(&path).and_then(|mut file| {
            file.write_all(kept.as_bytes())?;
            Ok(file)
        });
        self.file = Some((written.map_err(|e| Trouble::file("write", &path, &e))?, path));
        Ok(())
    }

    /// Asks it, and compares.
    fn see(&mut self, view: &View, live: &Plan) -> Result<()> {
        if self.tally.failed.is_some() {
            return Ok(());
        }
        let mut call = Call { step: view.step, round: view.round, live: asked(live), ..Call::default() };
        let name = &self.policy.description().name;
        match self.policy.decide(&self.run, &self.state, view) {
            Err(fault) => call.failed = Some(fault.to_string()),
            Ok((plan, cost)) => {
                call.log = cost.words().map(|line| line.text).collect();
                if let Err(broken) = rules::check(name, view, &plan, Bounds::default()) {
                    call.failed = Some(broken.to_string());
                } else {
                    call.same = diff::same_decision(&plan, live);
                    call.asked = asked(&plan);
                    call.state = (plan.state != self.state).then(|| hex(&plan.state));
                    call.plan = (!call.same).then_some(plan);
                }
            }
        }
        self.remember(&call);
        let text = line(&Entry::Call(call))?;
        if let Some((file, path)) = &mut self.file {
            file.write_all(text.as_bytes()).map_err(|e| Trouble::file("write", path, &e))?;
        }
        Ok(())
    }

    fn remember(&mut self, call: &Call) {
        let tally = &mut self.tally;
        tally.calls += 1;
        if let Some(failed) = &call.failed {
            tally.failed = Some(format!("{failed} (step {}, round {})", call.step, call.round));
            return;
        }
        if !call.same {
            tally.differ += 1;
            tally.first.get_or_insert((call.step, call.round));
        }
        tally.asked[0] += call.asked;
        tally.asked[1] += call.live;
        if let Some(state) = call.state.as_deref().and_then(unhex) {
            self.state = state;
        }
    }

    /// What became of it, in a sentence.
    pub fn summary(&self) -> String {
        let Tally { calls, differ, first, asked: [theirs, live], failed } = &self.tally;
        let name = &self.policy.description().name;
        let (calls, plans) = (count(*calls, "call"), count(*differ, "plan"));
        let differs = first.map_or("no plan differs".to_owned(), |(step, round)| {
            let verb = if *differ == 1 { "differs" } else { "differ" };
            let asked = format!("it asks for {theirs} rollouts where {live} were asked for");
            format!("{plans} {verb}, from step {step}, round {round} on; {asked}")
        });
        let failed = failed.iter().map(|failed| format!("; it is asked no more: {failed}"));
        let place = self.file.iter().map(|(_, path)| format!("; all in {}", path.display()));
        let parts = std::iter::once(format!("shadow `{name}`: {calls}, {differs}")).chain(failed);
        parts.chain(place).collect()
    }
}

/// Rollouts that a plan asks for.
fn asked(plan: &Plan) -> u64 {
    match &plan.action {
        Action::Sample(requests) => requests.iter().map(|r| u64::from(r.count)).sum(),
        Action::Train(_) => 0,
    }
}

fn line(entry: &Entry) -> Result<String> {
    let text = serde_json::to_string(entry).map_err(|e| Trouble::new(format!("no line of a shadow: {e}")))?;
    Ok(text + "\n")
}
