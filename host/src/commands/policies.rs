//! `allot policies`: lists shipped policies and their settings.

use allot_allocation::shown;
use allot_base::{Exit, Result};
use allot_sandbox::{Caps, Grader, Policy, Setting};
use clap::Args;

use crate::loaded::About;
use crate::screen::Screen;
use crate::{policy_loader, shipped};

/// List the shipped policies, with their settings
#[derive(Debug, Args)]
pub struct Policies {
    /// Show only this one: a name, or the path of a component
    policy: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Lists the policies.
pub fn run(command: &Policies, screen: &mut Screen<'_>) -> Result<Exit> {
    let sandbox = policy_loader::sandbox(Caps::default())?;
    let sources = match &command.policy {
        Some(one) => vec![one.clone()],
        None => shipped::names().into_iter().map(str::to_owned).collect(),
    };
    let loaded = sources.iter().map(|one| policy_loader::load(&sandbox, one, None, screen));
    let policies = loaded.collect::<Result<Vec<_>>>()?;
    if command.json {
        let all: Vec<_> = policies.iter().map(json).collect();
        screen.say(serde_json::Value::from(all));
        return Ok(Exit::Good);
    }
    for (i, policy) in policies.iter().enumerate() {
        if i > 0 {
            screen.say("");
        }
        show(policy, screen);
    }
    Ok(Exit::Good)
}

/// Shows a policy and its settings as text.
pub fn show(policy: &Policy, screen: &mut Screen<'_>) {
    about(&About::of_policy(policy), screen);
    let signals = &policy.description().signals;
    if !signals.is_empty() {
        screen.say(format_args!("    wants the signals {}", signals.join(", ")));
    }
}

/// Shows a grader and its settings as text.
pub fn show_grader(grader: &Grader, screen: &mut Screen<'_>) {
    about(&About::of_grader(grader), screen);
    let parts = &grader.description().parts;
    if !parts.is_empty() {
        screen.say(format_args!("    gives the parts {}", parts.join(", ")));
    }
    if grader.description().compares {
        screen.say("    compares the answers of a group");
    }
}

fn about(d: &About<'_>, screen: &mut Screen<'_>) {
    screen.say(format_args!("{} {}  {}", d.name, d.version, d.summary));
    let set = |s: &Setting| format!("{} = {}", s.name, shown::word(&s.default.to_string(), shown::NAME));
    let sets: Vec<String> = d.settings.iter().map(set).collect();
    let width = sets.iter().map(|set| set.chars().count()).max().unwrap_or(0);
    for (set, setting) in sets.iter().zip(d.settings) {
        screen.say(format_args!("    {set:<width$}  {}", setting.summary));
    }
}

/// Returns a policy's description as JSON.
pub fn json(policy: &Policy) -> serde_json::Value {
    let mut all = json_of(&About::of_policy(policy), policy.contract());
    all["signals"] = policy.description().signals.clone().into();
    all
}

/// Returns a grader's description as JSON.
pub fn json_of_grader(grader: &Grader) -> serde_json::Value {
    let mut all = json_of(&About::of_grader(grader), grader.contract());
    all["kind"] = "grader".into();
    all["parts"] = grader.description().parts.clone().into();
    all["compares"] = grader.description().compares.into();
    all
}

fn json_of(d: &About<'_>, contract: &str) -> serde_json::Value {
    let settings: Vec<_> = d
        .settings
        .iter()
        .map(|s| serde_json::json!({ "name": s.name, "default": s.default, "summary": s.summary }))
        .collect();
    serde_json::json!({
        "name": d.name, "version": d.version, "summary": d.summary, "settings": settings,
        "contract": contract, "sha256": d.sha256, "bytes": d.size,
    })
}
