//! `allot replay`: calls a policy, or another build of it, with the views of a recorded run.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;

use allot_allocation::{Columns, Plan, Run, Terms, Value, View, rules, shown};
use allot_base::{Error, Exit, Result, signals};
use allot_record::{Asked, Head, Line, Reader, Swap, Views, unhex};
use allot_sandbox::{Cost, Policy, Sandbox};
use clap::Args;
use serde::Deserialize;

use crate::screen::Screen;
use crate::{components, diff, policy_loader, shipped};

/// Replay a recorded run's decisions with a policy, and show the differences
#[derive(Debug, Args)]
pub struct Replay {
    /// The record, or the run's folder
    record: PathBuf,
    /// The policy to call: a name, a component's path, oci://…, or a draft (a path to `policy.py`, or to
    /// its folder) [default: the run's own; of several, each on its part]
    policy: Option<String>,
    /// A setting of the policy, as NAME=VALUE; the others are as recorded
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Show only this call, whole; also one that failed and was kept as view-STEP.ROUND.json
    #[arg(long, value_name = "STEP.ROUND")]
    at: Option<At>,
    /// Differing plans to show
    #[arg(long, default_value_t = 3)]
    show: usize,
    /// The result as JSON
    #[arg(long)]
    json: bool,
}

/// A call of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    step: u32,
    round: u32,
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let both = text.split_once('.').and_then(|(s, r)| Some((s.parse().ok()?, r.parse().ok()?)));
        let (step, round) = both.ok_or("expected a step and a round, as in 12.0")?;
        Ok(Self { step, round })
    }
}

/// The result of a replay.
#[derive(Default)]
struct Replayed {
    calls: u64,
    differ: u64,
    states: u64,
    /// The first call whose plan differs, and the policy that was called.
    first: Option<((u32, u32), String)>,
    /// The steps at which the record changes its policy, and the policy that is called from there on.
    swaps: Vec<(u32, String)>,
}

/// A policy that is called again, with its state.
struct Witness {
    policy: Rc<Policy>,
    name: String,
    run: Run,
    state: Vec<u8>,
}

/// The policies to call: the one in the command, or the record's own ones, each on its part.
struct Witnesses<'a> {
    command: &'a Replay,
    head: &'a Head,
    sandbox: Sandbox,
    named: Option<Rc<Policy>>,
}

/// Replays the record.
pub fn run(command: &Replay, screen: &mut Screen<'_>) -> Result<Exit> {
    let (mut reader, head) = Reader::open(&command.record)?;
    let witnesses = Witnesses::new(command, &head, screen)?;
    let mut witness = witnesses.first(screen)?;
    if let Some(at) = command.at {
        return OneCall::find(&witnesses, at, &mut reader, witness, screen)?.ask(command.json, screen);
    }
    let mut views = Views::new(&head)?;
    let mut tally = Replayed::default();
    let mut ended = false;
    for line in &mut reader {
        let line = line?;
        ended |= matches!(line, Line::End(_));
        if let Line::Swap(swap) = &line {
            // The recorded policy began again here, so the called one does, too.
            witness = witnesses.after(swap, screen)?;
            // Of several swaps at one step, only the last policy decided anything.
            tally.swaps.retain(|(step, _)| *step != swap.step);
            tally.swaps.push((swap.step, witness.name.clone()));
        }
        let Some(asked) = views.take(&line)? else { continue };
        let (step, round) = (asked.view.step, asked.view.round);
        let (plan, _) = witness.ask(&asked.view)?;
        tally.calls += 1;
        tally.states += u64::from(plan.state != asked.plan.state);
        if !same(&plan, &asked.plan) {
            tally.differ += 1;
            tally.first.get_or_insert_with(|| ((step, round), witness.name.clone()));
            if tally.differ <= command.show as u64 && !command.json {
                screen.say(format_args!("step {step}, round {round}: recorded (-), {} (+)", witness.name));
                for line in diff::plans(&asked.plan, &plan, 24) {
                    screen.say(format_args!("  {line}"));
                }
            }
        }
        witness.state = plan.state;
    }
    if command.json {
        screen.say(serde_json::json!({
            "calls": tally.calls, "differ": tally.differ, "states_differ": tally.states,
            "first": tally.first.map(|(at, _)| at), "cut": reader.cut(), "ended": ended,
            "swaps": tally.swaps.iter().map(|(step, _)| step).collect::<Vec<_>>(),
            "recorded": head.policy.sha256, "asked": witness.policy.sha256(),
            "draft": witness.policy.is_draft(),
        }));
    } else {
        show(&tally, screen);
        if reader.cut() {
            screen.say(format_args!(
                "the record's last line is cut off and was left out (line {})",
                reader.line()
            ));
        } else if !ended {
            screen.say("the record has no end: the run was interrupted or is still going");
        }
    }
    Ok(if tally.differ == 0 { Exit::Good } else { Exit::Bad })
}

impl<'a> Witnesses<'a> {
    fn new(command: &'a Replay, head: &'a Head, screen: &mut Screen<'_>) -> Result<Self> {
        let sandbox = policy_loader::sandbox(shipped::caps(head.caps))?;
        let named = command.policy.as_ref();
        let named = named.map(|named| policy_loader::load_or_draft(&sandbox, named, screen)).transpose()?;
        Ok(Self { command, head, sandbox, named: named.map(Rc::new) })
    }

    /// Returns the policy that is called from the record's first call on.
    fn first(&self, screen: &mut Screen<'_>) -> Result<Witness> {
        let policy = self.policy(&self.head.policy.sha256, screen)?;
        let settings = settings(self.command, &self.head.run.settings, &policy, Some(screen))?;
        self.begun(policy, Run { settings, ..self.head.run.clone() })
    }

    /// Returns the policy that is called after a swap.
    fn after(&self, swap: &Swap, screen: &mut Screen<'_>) -> Result<Witness> {
        let policy = self.policy(&swap.policy.sha256, screen)?;
        let settings = settings(self.command, &swap.settings, &policy, None)?;
        self.begun(policy, Run { settings, terms: swap.terms.clone(), ..self.head.run.clone() })
    }

    /// Returns the command's policy, or the one with this hash.
    fn policy(&self, sha256: &str, screen: &mut Screen<'_>) -> Result<Rc<Policy>> {
        let policy = match &self.named {
            Some(named) => Rc::clone(named),
            None => Rc::new(self.own(sha256, screen)?),
        };
        let description = policy.description();
        if description.signals != self.head.signals {
            let (name, wants) = (&description.name, signals(&description.signals));
            let has = signals(&self.head.signals);
            return Err(Error::new(format!("policy `{name}` wants {wants}; the record has {has}")));
        }
        Ok(policy)
    }

    /// Returns the component that decided in the run.
    fn own(&self, sha256: &str, screen: &mut Screen<'_>) -> Result<Policy> {
        if self.head.policy.draft {
            let name = &self.head.policy.name;
            let what = format!("this run used a draft of `{name}`, and runs do not keep copies of drafts");
            let hint = "give the policy to replay: `allot replay RUN FOLDER/policy.py`, or a component";
            return Err(Error::new(what).hint(hint));
        }
        let record = &self.command.record;
        let named = of_config(record)?;
        let bytes = components::decided(folder(record), sha256, &named, screen)?;
        policy_loader::of_bytes(&self.sandbox, &bytes, None, &named, screen)
    }

    fn begun(&self, policy: Rc<Policy>, run: Run) -> Result<Witness> {
        // Includes the columns of a policy that took over: the record has all columns from its start.
        let asks = !policy.description().columns.is_empty();
        let columns = if asks { allot_record::columns(&self.command.record)? } else { Columns::default() };
        Witness::new(policy, run, &columns)
    }
}

impl Witness {
    fn new(policy: Rc<Policy>, run: Run, columns: &Columns) -> Result<Self> {
        let draft = if policy.is_draft() { " (draft)" } else { "" };
        let name = format!("{}{draft}", policy.description().name);
        let told = run.terms.clone().or_else(|| (!columns.is_empty()).then(Terms::default));
        let terms = told.map(|terms| Terms { columns: columns.clone(), ..terms });
        let run = policy.shown_too(Run { terms, ..run });
        let begun = policy.begin(&run);
        let (state, _) =
            begun.map_err(|fault| Error::told(format!("policy `{name}` {fault}"), fault.hint()))?;
        Ok(Self { policy, name, run, state })
    }

    fn ask(&self, view: &View) -> Result<(Plan, Cost)> {
        let (plan, cost) = self.policy.decide(&self.run, &self.state, view).map_err(|fault| {
            let what = format!("in step {}, round {} policy `{}` {fault}", view.step, view.round, self.name);
            Error::told(what, fault.hint()).note(fault.stack())
        })?;
        let bounds = rules::Bounds::default().within(&self.run);
        rules::check(&self.name, view, &plan, bounds)
            .map_err(|broken| Error::new(broken.to_string()).hint(broken.rule.hint()))?;
        Ok((plan, cost))
    }
}

/// The stored input of a failed call.
#[derive(Deserialize)]
struct Kept {
    state: String,
    view: View,
}

/// A call of a run, and the policy to call with it.
struct OneCall {
    witness: Witness,
    view: View,
    /// The recorded plan; none for a failed call.
    recorded: Option<Plan>,
}

impl OneCall {
    /// Finds a call. If the policy has the recorded policy's name, it gets the recorded state. Another
    /// policy is called with all earlier views first.
    fn find(
        witnesses: &Witnesses<'_>,
        at: At,
        reader: &mut Reader,
        mut witness: Witness,
        screen: &mut Screen<'_>,
    ) -> Result<Self> {
        let Witnesses { command, head, .. } = witnesses;
        let mut views = Views::new(head)?;
        let mut name = head.policy.name.clone();
        let mut state = unhex(&head.state).unwrap_or_default();
        let mut found: Option<Asked> = None;
        for line in reader {
            let line = line?;
            if let Line::Swap(swap) = &line {
                witness = witnesses.after(swap, screen)?;
                name.clone_from(&swap.policy.name);
                state = unhex(&swap.state).unwrap_or_default();
            }
            let Some(asked) = views.take(&line)? else { continue };
            if (asked.view.step, asked.view.round) == (at.step, at.round) {
                found = Some(asked);
                break;
            }
            if name != witness.policy.description().name {
                witness.state = witness.ask(&asked.view)?.0.state;
            }
            state = asked.plan.state;
        }
        let (view, recorded) = if let Some(Asked { view, plan }) = found {
            (view, Some(plan))
        } else {
            let kept = kept(&command.record, at)?;
            state = unhex(&kept.state).unwrap_or_default();
            // The record has the history of the run.
            (View { history: views.history().clone(), ..kept.view }, None)
        };
        if name == witness.policy.description().name {
            witness.state = state;
        }
        Ok(Self { witness, view, recorded })
    }

    /// Calls the policy, and shows the plan.
    fn ask(&self, json: bool, screen: &mut Screen<'_>) -> Result<Exit> {
        let Self { witness, view, recorded } = self;
        let (plan, cost) = witness.ask(view)?;
        let equal = recorded.as_ref().map(|recorded| same(&plan, recorded));
        if json {
            screen.say(serde_json::json!({
                "step": view.step, "round": view.round, "view": view, "plan": plan, "recorded": recorded,
                "same": equal, "log": cost.log.iter().map(|l| &l.text).collect::<Vec<_>>(),
                "printed": cost.printed, "fuel": cost.fuel, "memory": cost.memory,
            }));
        } else {
            screen.say(diff::text(&plan).trim_end());
            let told = match equal {
                Some(true) => "as recorded",
                Some(false) => "the record has another plan; replay without --at to see how they differ",
                None => "the run stopped at this call; now it has a plan",
            };
            let (fuel, memory) = (cost.fuel, cost.memory);
            cost.words().for_each(|line| crate::run_dir::tell(&line));
            screen.tell(format_args!("{told}; {fuel} Wasm instructions, {memory} bytes"));
        }
        Ok(if equal == Some(false) { Exit::Bad } else { Exit::Good })
    }
}

/// Returns the stored input of a failed call.
fn kept(record: &Path, at: At) -> Result<Kept> {
    let folder = folder(record);
    let path = folder.join(format!("view-{}.{}.json", at.step, at.round));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let what = format!("the record has no step {}, round {}", at.step, at.round);
            return Err(Error::new(what).hint("count steps and rounds from 0"));
        }
        Err(e) => return Err(Error::file("read", &path, &e)),
    };
    serde_json::from_str(&text)
        .map_err(|e| Error::new(format!("`{}` is not a valid saved view: {e}", path.display())))
}

/// Returns a run's folder, from the folder or the record.
fn folder(record: &Path) -> &Path {
    if record.is_dir() { record } else { record.parent().unwrap_or(Path::new(".")) }
}

/// Returns the policy in a run's config.
fn of_config(record: &Path) -> Result<String> {
    let table = std::fs::read_to_string(folder(record).join("resolved.toml")).ok();
    let table: Option<toml::Table> = table.and_then(|text| toml::from_str(&text).ok());
    let named = table.and_then(|table| Some(table.get("policy")?.get("use")?.as_str()?.to_owned()));
    named.ok_or_else(|| {
        let what = format!("there is no config beside `{}` to name the policy", record.display());
        Error::new(what).hint("name the policy: allot replay RECORD POLICY")
    })
}

/// Returns whether two plans are equal, without the policies' states.
fn same(plan: &Plan, recorded: &Plan) -> bool {
    Plan { state: recorded.state.clone(), ..plan.clone() } == *recorded
}

fn show(tally: &Replayed, screen: &mut Screen<'_>) {
    let calls = tally.calls;
    match &tally.first {
        None if tally.states == 0 => screen.say(format_args!("{calls} calls, no difference")),
        None => screen.say(format_args!(
            "{calls} calls, no plan differs; the states of {} differ, as those of another build may",
            tally.states
        )),
        Some(((step, round), name)) => {
            screen.say(format_args!("{calls} calls, {} differ", tally.differ));
            screen.say(format_args!(
                "valid up to the first difference, at step {step}, round {round}: from there on {name} saw \
                 a run that it did not control"
            ));
        }
    }
    for (step, name) in &tally.swaps {
        screen.say(format_args!(
            "the record has another policy from step {step} on; {name} started afresh there"
        ));
    }
}

/// Returns the recorded settings, overridden by options, with defaults for settings that the record lacks.
fn settings(
    command: &Replay,
    recorded: &[(String, Value)],
    policy: &Policy,
    screen: Option<&mut Screen<'_>>,
) -> Result<Vec<(String, Value)>> {
    let description = policy.description();
    let typed = allot_config::typed(&command.set, "--set ")?;
    let mut settings = allot_config::settings(description, &typed)?;
    let (mut defaults, mut kept) = (Vec::new(), Vec::new());
    for (name, value) in &mut settings {
        if typed.contains_key(name) {
            continue;
        }
        match recorded.iter().find(|(recorded, v)| recorded == name && v.kind() == value.kind()) {
            Some((_, recorded)) => {
                if value != recorded {
                    kept.push(format!("{name} = {recorded} (default {value})"));
                }
                value.clone_from(recorded);
            }
            None => defaults.push(format!("{name} = {value}")),
        }
    }
    let Some(screen) = screen else { return Ok(settings) };
    if command.policy.is_some() && !kept.is_empty() {
        screen.tell(format_args!("as recorded, unless --set says otherwise: {}", kept.join(", ")));
    }
    if !defaults.is_empty() {
        screen.tell(format_args!("not in the record, set to the defaults: {}", defaults.join(", ")));
    }
    let ours = |name: &str| description.settings.iter().any(|s| s.name == name);
    let unknown: Vec<String> =
        recorded.iter().filter(|(n, _)| !ours(n)).map(|(n, _)| shown::name(n)).collect();
    if !unknown.is_empty() {
        screen.tell(format_args!(
            "in the record, but not settings of `{}`: {}",
            description.name,
            unknown.join(", ")
        ));
    }
    Ok(settings)
}
