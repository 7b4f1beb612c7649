//! `allot replay`: a recorded run's questions, put to another policy or another build of the same.

use std::path::PathBuf;

use allot_allocation::{Run, rules};
use allot_sandbox::Policy;
use clap::Args;

use super::Verdict;
use crate::screen::Screen;
use crate::trouble::{Result, Trouble, listed};
use crate::{config, diff, shipped};
use allot_record::{Head, Line, Reader, Views};

/// Ask a policy again what a recorded run asked, and show where it differs
#[derive(Debug, Args)]
pub struct Replay {
    /// The record, or the run's folder
    record: PathBuf,
    /// The policy to ask: a name, or the path of a component
    policy: String,
    /// A setting of the policy, as NAME=VALUE; the others are as recorded
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Differing plans to show
    #[arg(long, default_value_t = 3)]
    show: usize,
    /// The result as JSON
    #[arg(long)]
    json: bool,
}

/// What a replay came to.
#[derive(Default)]
struct Tally {
    calls: u64,
    differ: u64,
    states: u64,
    first: Option<(u32, u32)>,
}

/// Replays it.
pub fn run(command: &Replay, screen: &mut Screen<'_>) -> Result<Verdict> {
    let (mut reader, head) = Reader::open(&command.record)?;
    let sandbox = shipped::sandbox(shipped::caps(head.caps))?;
    let policy = shipped::load(&sandbox, &command.policy, None)?;
    if policy.description().signals != head.signals {
        let list = |signals: &[String]| listed(signals.iter().map(String::as_str));
        return Err(Trouble::new(format!(
            "policy `{}` wants the signals {}; the record has {}",
            policy.description().name,
            list(&policy.description().signals),
            list(&head.signals)
        )));
    }
    let run = Run { settings: settings(command, &head, &policy, screen)?, ..head.run.clone() };
    let name = policy.description().name.clone();

    let told = |fault: allot_sandbox::Fault, place: String| {
        Trouble::told(format!("policy `{name}` {fault}{place}"), fault.hint())
    };
    let (mut state, _) = policy.begin(&run).map_err(|fault| told(fault, String::new()))?;
    let mut views = Views::new(&head)?;
    let mut tally = Tally::default();
    let mut ended = false;
    for line in &mut reader {
        let line = line?;
        ended |= matches!(line, Line::End(_));
        let Some(asked) = views.take(&line)? else { continue };
        let (step, round) = (asked.view.step, asked.view.round);
        let place = || format!(" (step {step}, round {round})");
        let (plan, _) = policy.decide(&run, &state, &asked.view).map_err(|fault| told(fault, place()))?;
        rules::check(&name, &asked.view, &plan, rules::Bounds::default())
            .map_err(|broken| Trouble::new(broken.to_string()).hint(broken.rule.hint()))?;
        tally.calls += 1;
        tally.states += u64::from(plan.state != asked.plan.state);
        let same = allot_allocation::Plan { state: asked.plan.state.clone(), ..plan.clone() } == asked.plan;
        if !same {
            tally.differ += 1;
            tally.first.get_or_insert((step, round));
            if tally.differ <= command.show as u64 && !command.json {
                screen.say(format_args!("step {step}, round {round}: recorded (-), {name} (+)"));
                for line in diff::plans(&asked.plan, &plan, 24) {
                    screen.say(format_args!("  {line}"));
                }
            }
        }
        state = plan.state;
    }
    if command.json {
        screen.say(serde_json::json!({
            "calls": tally.calls, "differ": tally.differ, "states_differ": tally.states,
            "first": tally.first, "cut": reader.cut(), "ended": ended,
            "recorded": head.policy.sha256, "asked": policy.sha256(),
        }));
    } else {
        show(&tally, &name, screen);
        if reader.cut() {
            screen.say(format_args!(
                "the record's last line is cut off; it was left out (line {})",
                reader.line()
            ));
        } else if !ended {
            screen.say("the record has no end: the run was cut off, or goes on still");
        }
    }
    Ok(if tally.differ == 0 { Verdict::Good } else { Verdict::Bad })
}

fn show(tally: &Tally, name: &str, screen: &mut Screen<'_>) {
    let calls = tally.calls;
    match tally.first {
        None if tally.states == 0 => screen.say(format_args!("{calls} calls, no difference")),
        None => screen.say(format_args!(
            "{calls} calls, no plan differs; the states of {} do, which is another build's right",
            tally.states
        )),
        Some((step, round)) => {
            screen.say(format_args!("{calls} calls, {} differ", tally.differ));
            screen.say(format_args!(
                "valid up to the first difference, at step {step}, round {round}: from there on {name} was shown a run that it did not steer"
            ));
        }
    }
}

/// The recorded settings, those typed on top, and defaults for what the record does not know.
fn settings(
    command: &Replay,
    head: &Head,
    policy: &Policy,
    screen: &mut Screen<'_>,
) -> Result<Vec<(String, allot_allocation::Value)>> {
    let description = policy.description();
    let typed = config::typed(&command.set)?;
    let mut settings = config::settings(description, &typed)?;
    let mut defaults = Vec::new();
    for (name, value) in &mut settings {
        if typed.contains_key(name) {
            continue;
        }
        match head.run.settings.iter().find(|(recorded, v)| recorded == name && v.kind() == value.kind()) {
            Some((_, recorded)) => value.clone_from(recorded),
            None => defaults.push(format!("{name} = {value}")),
        }
    }
    if !defaults.is_empty() {
        screen.tell(format_args!("not in the record, so by default: {}", defaults.join(", ")));
    }
    let ours = |name: &str| description.settings.iter().any(|s| s.name == name);
    let unknown: Vec<&str> = head.run.settings.iter().map(|(n, _)| n.as_str()).filter(|n| !ours(n)).collect();
    if !unknown.is_empty() {
        screen.tell(format_args!(
            "in the record, but no settings of `{}`: {}",
            description.name,
            unknown.join(", ")
        ));
    }
    Ok(settings)
}
