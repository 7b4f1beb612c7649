//! Shadows: policies that see what the live policy sees. Their plans are recorded but not carried out. They
//! do not affect the run: its record is identical with and without them.
//!
//! After its first differing plan, a shadow sees a run that its own plans did not steer.

mod lines;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use allot_allocation::rules::{self, Bounds};
use allot_allocation::{Action, Plan, Run, View};
use allot_record::{Appended, Kept, Mark, StateChange};
use allot_sandbox::{Fault, LogLine, Policy, Sandbox};

use crate::callbacks::Decide;
use crate::screen::Screen;
use crate::{components, diff, policy_loader, shipped};
use allot_base::{Error, Result, count, signals};
use lines::{Call, Entry, cut, files, line};

/// The policy of a run and its shadows.
pub struct Decider<'a> {
    /// The policy whose plans are carried out.
    pub live: &'a Policy,
    /// The policies whose plans are only recorded.
    pub shadows: Vec<Shadow>,
    /// The lengths of the files of earlier shadows that are not active now.
    idle: BTreeMap<String, Mark>,
}

/// A policy that observes.
pub struct Shadow {
    policy: Policy,
    /// Its component, until there is a folder to store it in.
    component: Vec<u8>,
    run: Run,
    state: Vec<u8>,
    tally: Tally,
    /// The file of its plans, once there is a folder.
    file: Option<Appended>,
}

/// Counts of its calls.
#[derive(Default)]
struct Tally {
    calls: u64,
    differ: u64,
    first: Option<(u32, u32)>,
    /// Rollouts that it requested, and that the live policy requested in the same calls.
    asked: [u64; 2],
    /// Why it is not called any more.
    failed: Option<String>,
}

impl<'a> Decider<'a> {
    /// Returns a policy without shadows.
    pub fn alone(live: &'a Policy) -> Self {
        Self { live, shadows: Vec::new(), idle: BTreeMap::new() }
    }

    /// Lets each shadow write to its own file below the run's folder from now on. For a run that resumes at
    /// this step and round, earlier calls are kept and restore the shadows' states. Later calls are cut off
    /// as in the record, also for shadows that are not active now.
    pub fn keep(&mut self, run: &Path, at: (u32, u32)) -> Result<()> {
        let folder = run.join("shadows");
        let mut there = BTreeMap::new();
        for path in files(&folder)? {
            if let Some((head, calls)) = cut(&path, at)? {
                there.insert(head, (path, calls));
            }
        }
        for shadow in &mut self.shadows {
            std::fs::create_dir_all(&folder).map_err(|e| Error::file("make", &folder, &e))?;
            components::keep(run, &std::mem::take(&mut shadow.component))?;
            let head = shadow.head()?;
            let (path, calls) = there.remove(&head).unwrap_or_else(|| (shadow.place(&folder), Vec::new()));
            let told = |e: std::io::Error| Error::file("write", &path, &e);
            let file = if path.exists() {
                Kept::open(&path, &Mark::of(&path)?)?.cut()?
            } else {
                let mut file = Appended::create(&path).map_err(told)?;
                file.write_all(head.as_bytes()).map_err(told)?;
                file
            };
            for call in &calls {
                shadow.remember(call);
            }
            shadow.file = Some(file);
        }
        self.idle.clear();
        for (path, _) in there.into_values() {
            self.idle.insert(name(&path), Mark::of(&path)?);
        }
        Ok(())
    }

    /// Returns the lengths of the files, by name. A checkpoint stores them for [`check`].
    pub fn marks(&self) -> BTreeMap<String, Mark> {
        let active = self.shadows.iter().filter_map(|shadow| shadow.file.as_ref());
        self.idle.clone().into_iter().chain(active.map(|file| (name(file.path()), file.mark()))).collect()
    }

    /// Syncs the shadows' files to disk, before a checkpoint refers to them.
    pub fn sync(&self) -> Result<()> {
        let files = self.shadows.iter().filter_map(|shadow| shadow.file.as_ref());
        files.into_iter().try_for_each(|file| file.sync().map_err(|e| Error::file("write", file.path(), &e)))
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

/// Fails if a shadow's file does not match its mark in a checkpoint. A removed file is ignored.
pub fn check(run: &Path, marks: &BTreeMap<String, Mark>) -> Result<()> {
    for path in files(&run.join("shadows"))? {
        if let Some(mark) = marks.get(&name(&path)) {
            Kept::open(&path, mark)
                .map_err(|e| Error::from(e).hint("restore what was changed, or remove the file"))?;
        }
    }
    Ok(())
}

/// Returns the shadows of these sources, each given as `POLICY` or `POLICY,NAME=VALUE,…`.
pub fn all(
    sources: &[String],
    sandbox: &Sandbox,
    live: &Policy,
    run: &Run,
    screen: &mut Screen<'_>,
) -> Result<Vec<Shadow>> {
    let mut shadows: Vec<Shadow> = Vec::new();
    for source in sources {
        let name = source.split(',').next().unwrap_or_default();
        let component = policy_loader::bytes(name, screen)?;
        let policy = policy_loader::of_bytes(sandbox, &component, None, name, screen)?;
        let shadow = Shadow::new(source, (policy, component), live, run)?;
        let head = shadow.head()?;
        for other in &shadows {
            if other.head()? == head {
                let what = format!("`--shadow {source}` has the same policy and settings as another shadow");
                return Err(Error::new(what).hint("name each shadow once"));
            }
        }
        shadows.push(shadow);
    }
    Ok(shadows)
}

impl Shadow {
    /// Returns the shadow of this source. It sees the signals that the live policy requests.
    fn new(source: &str, (policy, component): (Policy, Vec<u8>), live: &Policy, run: &Run) -> Result<Self> {
        let mut words = source.split(',');
        let before = format!("--shadow {},", words.next().unwrap_or_default());
        let typed: Vec<String> = words.map(str::to_owned).collect();
        let description = policy.description();
        let name = &description.name;
        let (theirs, ours) = (&description.signals, &live.description().signals);
        if theirs != ours {
            let what = format!("shadow `{name}` wants {}; the run shows {}", signals(theirs), signals(ours));
            return Err(Error::new(what)
                .hint("use a shadow with the same signals: it sees only what the live policy sees"));
        }
        let settings = allot_config::settings(description, &allot_config::typed(&typed, &before)?)?;
        let run = policy.shown_too(Run { settings, ..run.clone() });
        let (state, _) = policy_loader::begun(&policy, &run, "shadow")?;
        Ok(Self { policy, component, run, state, tally: Tally::default(), file: None })
    }

    /// Returns the first line of its file.
    fn head(&self) -> Result<String> {
        line(&Entry::Head {
            policy: shipped::policy_stamp(&self.policy),
            settings: self.run.settings.clone(),
        })
    }

    /// Returns a new file's path. Another policy of this name, or this policy with other settings, has a
    /// different file.
    fn place(&self, folder: &Path) -> PathBuf {
        let name = &self.policy.description().name;
        let mut path = folder.join(format!("{name}.jsonl"));
        for n in 2.. {
            if !path.exists() {
                break;
            }
            path = folder.join(format!("{name}-{n}.jsonl"));
        }
        path
    }

    /// Calls the shadow, and compares its plan.
    fn see(&mut self, view: &View, live: &Plan) -> Result<()> {
        if self.tally.failed.is_some() {
            return Ok(());
        }
        let mut call = Call { step: view.step, round: view.round, live: asked(live), ..Call::default() };
        let name = &self.policy.description().name;
        match self.policy.decide(&self.run, &self.state, view) {
            Err(fault) => call.failed = Some(fault.to_string()),
            Ok((plan, cost)) => {
                let bounds = Bounds::default().within(&self.run);
                call.log = cost.words().map(|line| line.text).collect();
                if let Err(broken) = rules::check(name, view, &plan, bounds) {
                    call.failed = Some(broken.to_string());
                } else {
                    call.same = diff::same_decision(&plan, live);
                    call.asked = asked(&plan);
                    call.state = StateChange::of(&self.state, &plan.state);
                    call.plan = (!call.same).then_some(plan);
                }
            }
        }
        self.remember(&call);
        let text = line(&Entry::Call(call))?;
        if let Some(file) = &mut self.file {
            file.write_all(text.as_bytes()).map_err(|e| Error::file("write", file.path(), &e))?;
        }
        Ok(())
    }

    fn remember(&mut self, call: &Call) {
        let tally = &mut self.tally;
        tally.calls += 1;
        if let Some(failed) = &call.failed {
            let place = format!(" (step {}, round {})", call.step, call.round);
            tally.failed = Some(failed.trim_end_matches(&place).to_owned() + &place);
            return;
        }
        if !call.same {
            tally.differ += 1;
            tally.first.get_or_insert((call.step, call.round));
        }
        tally.asked[0] += call.asked;
        tally.asked[1] += call.live;
        if let Some(state) = call.state.as_ref().and_then(|changed| changed.apply(&self.state)) {
            self.state = state;
        }
    }

    /// Returns its result as a sentence.
    pub fn summary(&self) -> String {
        let Tally { calls, differ, first, asked: [theirs, live], failed } = &self.tally;
        let name = &self.policy.description().name;
        let (calls, plans) = (count(*calls, "call"), count(*differ, "plan"));
        let differs = first.map_or("no plan differs".to_owned(), |(step, round)| {
            let verb = if *differ == 1 { "differs" } else { "differ" };
            let asked = format!("it asks for {theirs} rollouts where {live} were asked for");
            format!("{plans} {verb}, from step {step}, round {round} on; {asked}")
        });
        let failed = failed.iter().map(|failed| format!("; it was stopped: {failed}"));
        let place = self.file.iter().map(|file| format!("; all in {}", file.path().display()));
        let parts = std::iter::once(format!("shadow `{name}`: {calls}, {differs}")).chain(failed);
        parts.chain(place).collect()
    }
}

/// Returns a file's name in its folder.
fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the number of rollouts that a plan requests.
fn asked(plan: &Plan) -> u64 {
    match &plan.action {
        Action::Sample(requests) => requests.iter().map(|r| u64::from(r.count)).sum(),
        Action::Train(_) => 0,
    }
}
