//! `allot simulate`: a policy in the coin-flip world.

use std::path::{Path, PathBuf};

use allot_allocation::{Plan, View};
use clap::Args;

use super::{Screen, Verdict};
use crate::config::{self, Config};
use crate::record::{End, StepEnd};
use crate::simulation::Simulation;
use crate::step::Stop;
use crate::trouble::{Result, Trouble};
use crate::{run, shipped};

/// Run a policy in the coin-flip world, in seconds
#[derive(Debug, Args)]
pub struct Simulate {
    /// The run's config
    config: PathBuf,
    /// Another policy than the config's: a name, or the path of a component
    #[arg(long)]
    policy: Option<String>,
    /// A setting of the policy, as NAME=VALUE; may be given many times
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Another seed than the config's
    #[arg(long)]
    seed: Option<u64>,
    /// The folder for the record [default: a new one under runs/]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Keep no record
    #[arg(long, conflicts_with = "out")]
    no_record: bool,
    /// The summary as JSON
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(command: &Simulate, screen: &mut Screen<'_>) -> Result<Verdict> {
    let config = resolve(command)?;
    let sandbox = shipped::sandbox(config.policy.caps.caps())?;
    let policy = shipped::load(&sandbox, &config.policy.source, config.policy.sha256.as_deref())?;
    let (mut simulation, head) = Simulation::new(&config, &policy, tell)?;
    let folder = if command.no_record { None } else { Some(folder(command)?) };
    if let Some(folder) = &folder {
        simulation.keep(folder, head)?;
        resolved(&config, &folder.join("resolved.toml")).inspect_err(|_| {
            // A run that did not start leaves no record.
            let _ = std::fs::remove_file(folder.join("record.jsonl"));
        })?;
    }

    let description = policy.description();
    screen.tell(format_args!(
        "policy {} {}, sha256 {}, seed {}",
        description.name,
        description.version,
        &policy.sha256()[..12],
        config.run.seed
    ));
    let mut totals = Totals::new(simulation.world.engine.accuracy());
    let every = config.evaluation.every;
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|e| Trouble::new(format!("no async runtime: {e}")))?;
    let steps = config.run.steps;
    let budget = config.budget.rollouts;
    let ended = runtime.block_on(run::run(
        &simulation.run,
        &mut simulation.world,
        every,
        allot_engine::Coin::accuracy,
        |step| {
            totals.add(step);
            if let Some(accuracy) = step.accuracy {
                let line = format!(
                    "step {:>5}/{steps}  rollouts {:>8}/{budget}  accuracy {accuracy:.4}  effective {:>5.1} %",
                    step.step + 1,
                    step.spent.run_rollouts,
                    percent(step.effective, step.trained)
                );
                screen.tell(line);
            }
        },
    ));
    match ended {
        Ok(end) => {
            let summary = totals.summary(&end);
            if command.json {
                screen.say(summary.json(&description.name, policy.sha256(), config.run.seed));
            } else {
                summary.show(screen);
            }
            if let Some(folder) = &folder {
                screen.tell(format_args!("record in {}", folder.join("record.jsonl").display()));
            }
            Ok(Verdict::Good)
        }
        Err(stop) => Err(stopped(&stop, folder.as_deref())),
    }
}

/// Writes down the config that is in force, over nothing that is there already.
fn resolved(config: &Config, path: &Path) -> Result<()> {
    let text =
        toml::to_string(config).map_err(|e| Trouble::new(format!("could not write the config: {e}")))?;
    let mut file = std::fs::File::create_new(path).map_err(|e| Trouble::file("write", path, &e))?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(|e| Trouble::file("write", path, &e))
}

/// A policy's own words.
fn tell(line: &allot_sandbox::Line) {
    use std::io::Write as _;
    let _ =
        writeln!(std::io::stderr(), "policy {}: {}", format!("{:?}", line.level).to_lowercase(), line.text);
}

/// The config with what was typed on top of it.
fn resolve(command: &Simulate) -> Result<Config> {
    let mut config = Config::read(&command.config)?;
    if let Some(policy) = &command.policy {
        if *policy != config.policy.source {
            // Another policy has other settings and another hash.
            config.policy.settings.clear();
            config.policy.sha256 = None;
        }
        config.policy.source.clone_from(policy);
    }
    if let Some(seed) = command.seed {
        config.run.seed = seed;
    }
    config.policy.settings.extend(config::typed(&command.set)?);
    Ok(config)
}

/// The folder for the record: the one asked for, or the next free one under `runs/`.
fn folder(command: &Simulate) -> Result<PathBuf> {
    let make = |folder: &Path| std::fs::create_dir_all(folder).map_err(|e| Trouble::file("make", folder, &e));
    if let Some(out) = &command.out {
        make(out)?;
        return Ok(out.clone());
    }
    let stem = command.config.file_stem().and_then(|s| s.to_str()).unwrap_or("run");
    make(Path::new("runs"))?;
    for n in 1.. {
        let folder = PathBuf::from(format!("runs/{stem}-{n:03}"));
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Trouble::file("make", &folder, &e)),
        }
    }
    unreachable!("folder numbers do not end")
}

/// A run that stopped in the middle, in words; what the policy was shown is kept where it failed.
fn stopped(stop: &Stop, folder: Option<&Path>) -> Trouble {
    let trouble = Trouble::new(stop.to_string());
    let mut hints: Vec<String> = Vec::new();
    match stop {
        Stop::Broken { broken, view, plan, state } => {
            hints.push(broken.rule.hint().to_owned());
            hints.extend(kept(folder, view, state, Some(plan)));
        }
        Stop::Policy { fault, view, state, .. } => {
            hints.extend(fault.hint().map(str::to_owned));
            if let allot_sandbox::Fault::Trapped { stack, .. } = &**fault
                && !stack.is_empty()
            {
                hints.push(format!("it was in {}", stack.join(" < ")));
            }
            hints.extend(kept(folder, view, state, None));
        }
        Stop::Record(trouble) => hints.extend(trouble.hint.clone()),
        Stop::Engine { .. } | Stop::Books { .. } => {}
    }
    if let Some(folder) = folder {
        hints.push(format!("all that was finished is in {}", folder.join("record.jsonl").display()));
    }
    if hints.is_empty() { trouble } else { trouble.hint(hints.join("\nhint: ")) }
}

/// Keeps what a policy was shown where it failed, and what it answered if it did; says where.
fn kept(folder: Option<&Path>, view: &View, state: &[u8], plan: Option<&Plan>) -> Option<String> {
    let path = folder?.join(format!("view-{}.{}.json", view.step, view.round));
    let kept = serde_json::json!({ "state": crate::record::hex(state), "view": view, "plan": plan });
    std::fs::write(&path, kept.to_string()).ok()?;
    Some(format!("what it was shown is in {}", path.display()))
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// What the steps add up to.
struct Totals {
    start: f64,
    last: f64,
    steps: u64,
    updates: u64,
    trained: u64,
    effective: u64,
    released: u64,
    flat: u64,
    stale: u64,
}

impl Totals {
    fn new(start: f64) -> Self {
        Self {
            start,
            last: start,
            steps: 0,
            updates: 0,
            trained: 0,
            effective: 0,
            released: 0,
            flat: 0,
            stale: 0,
        }
    }

    fn add(&mut self, step: &StepEnd) {
        self.last = step.accuracy.unwrap_or(self.last);
        self.steps += 1;
        self.updates += u64::from(step.updated);
        self.trained += step.trained;
        self.effective += step.effective;
        self.released += step.released;
        self.flat += step.flat;
        self.stale += step.stale;
    }

    fn summary(mut self, end: &End) -> Summary {
        self.last = end.accuracy.unwrap_or(self.last);
        Summary { totals: self, end: end.clone() }
    }
}

struct Summary {
    totals: Totals,
    end: End,
}

impl Summary {
    fn show(&self, screen: &mut Screen<'_>) {
        let (t, sampled) = (&self.totals, self.end.spent.run_rollouts);
        let unused = sampled - t.trained - t.released - t.stale;
        screen.say(format_args!("{}", self.end.reason));
        let mut row = |name: &str, n: u64| {
            screen.say(format_args!("  {name:<34}{n:>10}  {:>5.1} %", percent(n, sampled)));
        };
        row("rollouts sampled", sampled);
        row("  trained on", t.trained);
        row("    with an advantage", t.effective);
        row("  let go", t.released);
        row("    of groups with one reward", t.flat);
        row("  grown too old", t.stale);
        row("  on hand at the end, or unscorable", unused);
        screen.say(format_args!("  {:<34}{:>10}", "generated tokens", self.end.spent.run_tokens));
        screen.say(format_args!("  {:<34}{:>10}", "model updates", t.updates));
        screen.say(format_args!("  {:<34}{:>10}", "held-out accuracy", format!("{:.4}", t.last)));
        screen.say(format_args!("  {:<34}{:>10}", "  at the start", format!("{:.4}", t.start)));
    }

    fn json(&self, policy: &str, sha256: &str, seed: u64) -> serde_json::Value {
        let t = &self.totals;
        serde_json::json!({
            "policy": policy, "sha256": sha256, "seed": seed, "reason": self.end.reason,
            "steps": t.steps, "updates": t.updates, "rollouts": self.end.spent.run_rollouts,
            "tokens": self.end.spent.run_tokens, "trained": t.trained, "effective": t.effective,
            "released": t.released, "flat": t.flat, "stale": t.stale,
            "accuracy_start": t.start, "accuracy": t.last,
        })
    }
}
