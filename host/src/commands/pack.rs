//! `allot pack`: describes a policy or a grader for its users: its kind, its hash, and where to get it.

use allot_base::{Exit, Result};
use allot_sandbox::Caps;
use clap::Args;

use super::policies;
use crate::loaded::Loaded;
use crate::policy_loader;
use crate::screen::Screen;

/// Describe a component, and print the lines that pin it in a config
#[derive(Debug, Args)]
pub struct Pack {
    /// A policy's name, the path of a policy's or grader's component, or oci://…
    policy: String,
    /// Put it into a registry, at an address like oci://ghcr.io/me/my-policy:1.0
    #[arg(long, value_name = "ADDRESS")]
    push: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Describes the component.
pub fn run(command: &Pack, screen: &mut Screen<'_>) -> Result<Exit> {
    let sandbox = policy_loader::sandbox(Caps::default())?;
    let bytes = policy_loader::bytes(&command.policy, screen)?;
    let name = &command.policy;
    let loaded = Loaded::open(&sandbox, &bytes, name, screen)?;
    let pushed = match &command.push {
        None => None,
        Some(address) => {
            screen.draw(format_args!("pushing to {address}"));
            let pushed = allot_remote::registry::push(&bytes, address);
            screen.draw("");
            Some(pushed?.to_string())
        }
    };
    if command.json {
        let mut all = match &loaded {
            Loaded::Policy(policy) => policies::json(policy),
            Loaded::Grader(grader) => policies::json_of_grader(grader),
        };
        if let Some(address) = &pushed {
            all["pushed"] = address.as_str().into();
        }
        screen.say(all);
        return Ok(Exit::Good);
    }
    let section = match &loaded {
        Loaded::Policy(policy) => {
            policies::show(policy, screen);
            "[policy]"
        }
        Loaded::Grader(grader) => {
            policies::show_grader(grader, screen);
            "[reward]\ngrader = \"component\"\n\n[reward.component]"
        }
    };
    let d = loaded.about();
    screen.say("");
    let mut row = |what: &str, value: &dyn std::fmt::Display| screen.say(format_args!("{what:<10}{value}"));
    row("contract", &d.contract);
    row("size", &format_args!("{} bytes", d.size));
    row("sha256", &d.sha256);
    screen.say(format_args!("\nin a config, this very one:\n\n{section}"));
    let quoted = |text: &str| toml::Value::from(text);
    screen.say(format_args!("use = {}", quoted(pushed.as_deref().unwrap_or(name))));
    screen.say(format_args!("sha256 = {}", quoted(d.sha256)));
    Ok(Exit::Good)
}
