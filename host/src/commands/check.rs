//! `allot check`: tests a policy or a grader before a run.

mod cost;
mod grader;
mod policy;
mod rows;
mod time;

use std::collections::BTreeMap;
use std::time::Duration;

use allot_base::{Error, Exit, Result};
use allot_component::Kind;
use allot_config::CapsConfig;
use allot_sandbox::{Caps, Grader};
use allot_settings::ComponentConfig;
use clap::Args;

use self::time::Time;
use crate::loaded::Loaded;
use crate::policy_loader;
use crate::screen::Screen;

/// Test a policy or a grader: rules, purity, limits, cost
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0  Everything was tested, and passes
  1  Something fails
  2  An error: the component can't be loaded, or an option is wrong
  3  Incomplete: nothing fails, and something was not tested")]
pub struct Check {
    /// A policy's name, the path of a policy's or grader's component, or a draft: a path to `policy.py`, or to its folder
    policy: String,
    /// Set one of its settings, as NAME=VALUE; repeatable
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Wasm instructions that a call may use
    #[arg(long)]
    fuel: Option<u64>,
    /// Seconds that a call may take
    #[arg(long)]
    seconds: Option<f64>,
    /// Bytes of memory that a call may use
    #[arg(long)]
    memory: Option<usize>,
    /// Seconds for the whole check: what is not tested by then is reported as not tested
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0)]
    within: f64,
    /// The report card as JSON
    #[arg(long)]
    json: bool,
}

/// The longest time that a check may take, in seconds.
const LONGEST: f64 = 86_400.0;

/// Checks the policy or grader.
pub fn run(command: &Check, screen: &mut Screen<'_>) -> Result<Exit> {
    let caps =
        CapsConfig { fuel: command.fuel, seconds: command.seconds, memory: command.memory, states: None };
    caps.check("the command line")?;
    if !(command.within > 0.0 && command.within <= LONGEST) {
        let what = format!("`--within` is {}, which is out of range", command.within);
        return Err(Error::new(what).hint(format!("set it in seconds, above 0 and at most {LONGEST}")));
    }
    let within = Duration::from_secs_f64(command.within);
    let component = !policy_loader::is_draft(&command.policy);
    let bytes = component.then(|| policy_loader::bytes(&command.policy, screen)).transpose()?;
    let mut caps = match bytes.as_deref().and_then(allot_sandbox::kind_of) {
        Some(Kind::Grader) => command.of_grader(),
        Some(Kind::Policy) | None => caps.caps(),
    };
    if !component {
        caps = policy_loader::draft_caps(caps);
    }
    // One call can't take longer than the whole check.
    let limits_calls = command.seconds.is_none() && caps.time > within;
    if limits_calls {
        caps.time = within;
    }
    let sandbox = policy_loader::sandbox(caps)?;
    let loaded = match bytes {
        Some(bytes) => Loaded::open(&sandbox, &bytes, &command.policy, screen)?,
        None => Loaded::Policy(policy_loader::draft(&command.policy, caps)?),
    };
    let typed = allot_config::typed(&command.set, "--set ")?;
    // The time starts here, after an interpreter has been compiled.
    let time = Time::new(within, limits_calls);
    Ok(match &loaded {
        Loaded::Policy(policy) => {
            let card = policy::Card::of(policy, &typed, time, screen)?;
            if command.json {
                screen.say(card.json(policy));
            } else {
                card.show(policy, screen);
            }
            card.exit()
        }
        Loaded::Grader(grader) => {
            let made = allot_authoring::questions::all();
            let card = grader::Card::of(grader, &settings(grader, &typed)?, &made, time, screen);
            if command.json {
                screen.say(card.json(grader));
            } else {
                card.show(grader, screen);
            }
            card.exit()
        }
    })
}

impl Check {
    /// Returns the limits of a grader's call: a run's defaults, unless the options change them.
    fn of_grader(&self) -> Caps {
        let Caps { fuel, time, memory } = ComponentConfig::of(&self.policy).caps();
        Caps {
            fuel: self.fuel.unwrap_or(fuel),
            time: self.seconds.map_or(time, Duration::from_secs_f64),
            memory: self.memory.unwrap_or(memory),
        }
    }
}

fn settings(
    grader: &Grader,
    typed: &BTreeMap<String, toml::Value>,
) -> Result<Vec<(String, allot_allocation::Value)>> {
    let d = grader.description();
    allot_component::settings(&format!("grader `{}`", d.name), &d.settings, typed)
}
