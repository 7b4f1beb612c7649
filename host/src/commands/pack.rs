//! `allot pack`: a policy as others would use it: what it is, its hash, and where it can be had.

use allot_error::{Exit, Result};
use allot_sandbox::{CONTRACT, Caps};
use clap::Args;

use super::policies;
use crate::policy_loader;
use crate::screen::Screen;

/// Describe a policy's component, and print the lines that pin it in a config
#[derive(Debug, Args)]
pub struct Pack {
    /// The policy: a name, a component's path, or oci://…
    policy: String,
    /// Put it into a registry, at an address like oci://ghcr.io/me/my-policy:1.0
    #[arg(long, value_name = "ADDRESS")]
    push: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Shows it.
pub fn run(command: &Pack, screen: &mut Screen<'_>) -> Result<Exit> {
    let sandbox = policy_loader::sandbox(Caps::default())?;
    let bytes = policy_loader::bytes(&command.policy, screen)?;
    let policy = policy_loader::of_bytes(&sandbox, &bytes, None, &command.policy, screen)?;
    let pushed = match &command.push {
        None => None,
        Some(address) => {
            screen.draw(format_args!("pushing to {address}"));
            let pushed = allot_registry::push(&bytes, address);
            screen.draw("");
            Some(pushed?.to_string())
        }
    };
    if command.json {
        let mut all = policies::json(&policy);
        if let Some(address) = &pushed {
            all["pushed"] = address.as_str().into();
        }
        screen.say(all);
        return Ok(Exit::Good);
    }
    policies::show(&policy, screen);
    screen.say("");
    let mut row = |what: &str, value: &dyn std::fmt::Display| screen.say(format_args!("{what:<10}{value}"));
    row("contract", &format_args!("{CONTRACT}@{}", policy.contract()));
    row("size", &format_args!("{} bytes", policy.size()));
    row("sha256", &policy.sha256());
    screen.say("\nin a config, this very one:\n\n[policy]");
    let quoted = |text: &str| toml::Value::from(text);
    screen.say(format_args!("use = {}", quoted(pushed.as_deref().unwrap_or(&command.policy))));
    screen.say(format_args!("sha256 = {}", quoted(policy.sha256())));
    Ok(Exit::Good)
}
