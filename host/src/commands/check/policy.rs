//! A policy's report card: rules, purity, limits, cost.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use allot_allocation::rules::{self, Bounds, Rule};
use allot_allocation::{Columns, LENGTH, Run, Terms, Value};
use allot_authoring::fixtures::{self, Fixture};
use allot_config::simulate::SimulateConfig;
use allot_engine::Coin;
use allot_error::Result;
use allot_loop::{Every, Scores};
use allot_record::StepEnd;
use allot_sandbox::{Fault, Other, Policy};

use crate::callbacks::{Callbacks, Go};
use crate::commands::policies;
use crate::run;
use crate::run::Rest;
use crate::screen::Screen;
use crate::simulation::Simulation;
use crate::stop::Stop;
use crate::world::World;

/// Fixture views of which each call is checked.
const RANDOM_VIEWS: u32 = 300;
/// Of so many views one is tried where something is otherwise.
const SAMPLED: usize = 8;
/// What means nothing in a run, and what to say to who uses it.
const OTHERS: [(Other, &str); 3] = [
    (
        Other::Random,
        "uses random bytes, which are the same in each call: take `view.seed`, another in each call",
    ),
    (Other::Time, "uses a clock, and all clocks stand still: take `view.step` and `view.round`"),
    (
        Other::Memory,
        "keeps something in memory, and each call has a fresh one: return what is to last as the state",
    ),
];
/// Prompts in the data set of a run on fixture views.
const PROMPTS: u32 = 100_000;
/// The run of the closing simulation.
const SIMULATION: &str = "
[run]
seed = 1
steps = 40
groups = 8
rollouts = 8
[budget]
rollouts = 20000
[policy]
use = \"the one at hand\"
[world]
prompts = 200
";

/// The report card.
#[derive(Default)]
pub struct Card {
    calls: u64,
    /// For each broken rule: how often, and the first sentence about it.
    broken: BTreeMap<&'static str, (u64, String)>,
    /// Calls without an answer: how many, and the first one in words.
    faults: Option<(u64, String)>,
    /// Whether a call used up its fuel, time or memory.
    exhausted: bool,
    /// Views on which two equal calls differed: how many, and the first one.
    impure: Option<(u64, String)>,
    begin: Option<String>,
    /// How the closing simulation ended, or why it did not.
    simulation: Option<std::result::Result<String, String>>,
    costs: Vec<CostRow>,
    instantiate: Duration,
    /// What the policy uses that means nothing in a run, and the first view on which it does.
    warnings: BTreeMap<&'static str, String>,
    /// Views that were tried when the time was over, and views there are.
    late: Option<(usize, usize)>,
}

struct CostRow {
    times: usize,
    fuel: u64,
    millis: f64,
    memory: usize,
}

impl Card {
    /// What comes of a policy with these settings by this time.
    pub fn of(
        policy: &Policy,
        typed: &BTreeMap<String, toml::Value>,
        until: Instant,
        screen: &mut Screen<'_>,
    ) -> Result<Self> {
        let description = policy.description();
        let settings = allot_config::settings(description, typed)?;
        let mut card = Self::default();
        let columns = fixtures::columns(&description.columns, PROMPTS);
        let run = policy.shown_too(a_run(settings, columns));
        let state = match policy.begin(&run) {
            Ok((state, _)) => state,
            Err(fault) => {
                card.begin = Some(fault.to_string());
                return Ok(card);
            }
        };
        let views = fixtures::views(description.signals.len(), RANDOM_VIEWS);
        for (i, made) in views.iter().enumerate() {
            if Instant::now() > until {
                card.late = Some((i, views.len()));
                break;
            }
            screen.draw(format_args!("view {}/{}", i + 1, views.len()));
            card.ask(policy, &run, &state, made);
            if card.exhausted {
                break;
            }
            if i % SAMPLED == 0 {
                card.look_for_others(policy, &run, &state, made);
            }
        }
        screen.draw("");
        // A policy that uses up its limits would use them up in every call to come.
        if !card.exhausted && card.late.is_none() {
            let coin = description.signals.is_empty();
            card.simulation = coin.then(|| simulate(policy, typed, until)).flatten();
            card.measure(policy, &run, &state, until);
        }
        Ok(card)
    }
}

fn a_run(settings: Vec<(String, Value)>, columns: Columns) -> Run {
    let terms = (!columns.is_empty()).then(|| Terms { columns, ..Terms::default() });
    Run {
        settings,
        prompts: PROMPTS,
        steps: 200,
        groups: 16,
        rollouts: 8,
        pool: 64,
        max_age: 5,
        lag: 0,
        terms,
    }
}

/// A short run in the coin-flip world: the real loop, to a normal end. Nothing where the time is over before.
fn simulate(
    policy: &Policy,
    typed: &BTreeMap<String, toml::Value>,
    until: Instant,
) -> Option<std::result::Result<String, String>> {
    let run = || {
        let mut config = SimulateConfig::parse(SIMULATION, "the check's run").map_err(|t| t.what)?;
        config.policy.settings.clone_from(typed);
        // Whatever its columns mean elsewhere.
        let named = policy.description().columns.iter().filter(|name| *name != LENGTH);
        config.world.columns = named.map(|name| (name.clone(), "level".to_owned())).collect();
        let (mut simulation, _) = Simulation::new(&config, policy, |_| {}).map_err(|t| t.what)?;
        let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|e| e.to_string())?;
        let mut clock = Clock { until };
        simulation.world.run.of.every = Some(Every::Steps(u32::MAX));
        let run = run::run(&mut simulation.world, &mut clock);
        let rest = runtime.block_on(run).map_err(|stop| stop.to_string())?;
        let Rest::Over(end) = rest else { return Ok(None) };
        Ok(Some(format!("{} steps, {} rollouts, {}", end.steps, end.spent.run_rollouts, end.reason)))
    };
    run().transpose()
}

/// Ends the closing simulation where the time is over.
struct Clock {
    until: Instant,
}

impl<R, P> Callbacks<Coin, R, P> for Clock {
    async fn evaluate(&mut self, world: &mut World<Coin, R, P>) -> std::result::Result<Scores, Stop> {
        ().evaluate(world).await
    }

    fn after(&mut self, _: &mut World<Coin, R, P>, _: &StepEnd) -> std::result::Result<Go, Stop> {
        Ok(if Instant::now() > self.until { Go::Pause } else { Go::On })
    }
}

impl Card {
    /// Two equal calls on a view, and one more with the state that they gave.
    fn ask(&mut self, policy: &Policy, run: &Run, state: &[u8], made: &Fixture) {
        let name = &policy.description().name;
        let mut state = state.to_vec();
        let bounds = Bounds::default().within(run);
        for turn in 0..2 {
            self.calls += 1;
            let plan = match policy.decide(run, &state, &made.view) {
                Ok((plan, _)) => plan,
                Err(fault) => {
                    let first = || format!("on {}: {fault}", made.title);
                    self.faults.get_or_insert_with(|| (0, first())).0 += 1;
                    self.exhausted |= matches!(
                        fault,
                        Fault::OutOfFuel(_) | Fault::OutOfTime(_) | Fault::OutOfMemory { .. }
                    );
                    return;
                }
            };
            if let Err(broken) = rules::check(name, &made.view, &plan, bounds) {
                let first = || format!("on {}: {broken}", made.title);
                self.broken.entry(broken.rule.name()).or_insert_with(|| (0, first())).0 += 1;
            } else if turn == 0 {
                // Only legal plans are compared: a number that is none does not equal itself.
                let again = policy.decide(run, &state, &made.view);
                if again.map(|(again, _)| again) != Ok(plan.clone()) {
                    self.impure.get_or_insert_with(|| (0, made.title.clone())).0 += 1;
                }
            }
            state = plan.state;
        }
    }

    /// Asks again where something is otherwise that means nothing in a run. That is no fault, for the answers to a
    /// run's calls are the same each time; it is most likely not what the author thinks.
    fn look_for_others(&mut self, policy: &Policy, run: &Run, state: &[u8], made: &Fixture) {
        let Ok((plan, _)) = policy.decide(run, state, &made.view) else { return };
        for (other, warning) in OTHERS {
            // Random bytes go on in one instance, too: what comes of them is told as that.
            let seen = match other {
                Other::Memory => !self.warnings.is_empty(),
                Other::Time | Other::Random => !policy.has_wasi() || self.warnings.contains_key(warning),
            };
            if seen {
                continue;
            }
            // A second call in one instance may fail for want of memory: no run makes one.
            let again = policy.decide_otherwise(other, run, state, &made.view);
            if again.is_ok_and(|again| again != plan) {
                self.warnings.insert(warning, made.title.clone());
            }
        }
    }

    fn measure(&mut self, policy: &Policy, run: &Run, state: &[u8], until: Instant) {
        let run = Run { groups: 128, rollouts: 64, pool: 384, ..run.clone() };
        for times in [1, 4, 16] {
            let view = fixtures::scale(times, policy.description().signals.len());
            let mut best: Option<CostRow> = None;
            let started = Instant::now();
            // The best of a few: the machine may be busy with something else.
            for _ in 0..5 {
                let start = Instant::now();
                let Ok((_, cost)) = policy.decide(&run, state, &view) else { break };
                let millis = start.elapsed().as_secs_f64() * 1e3;
                if best.as_ref().is_none_or(|b| millis < b.millis) {
                    best = Some(CostRow { times, fuel: cost.fuel, millis, memory: cost.memory });
                }
                if started.elapsed() > Duration::from_secs(5) || Instant::now() > until {
                    break;
                }
            }
            self.costs.extend(best);
        }
        let starts = (0..20).map(|_| {
            let start = Instant::now();
            let _ = policy.instantiate();
            start.elapsed()
        });
        self.instantiate = starts.min().unwrap_or_default();
    }

    /// Whether nothing is wrong.
    pub fn passed(&self) -> bool {
        self.begin.is_none()
            && self.faults.is_none()
            && self.impure.is_none()
            && self.broken.is_empty()
            && self.simulation.as_ref().is_none_or(std::result::Result::is_ok)
    }

    /// The card for people.
    pub fn show(&self, policy: &Policy, screen: &mut Screen<'_>) {
        policies::show(policy, screen);
        screen.say("");
        let mut row = |failed: Option<&str>, what: &str| match failed {
            None => screen.say(format_args!("pass  {what}")),
            Some(why) => screen.say(format_args!("FAIL  {what}\n      {why}")),
        };
        row(None, &format!("links: contract {}@{}", allot_sandbox::CONTRACT, policy.contract()));
        row(self.begin.as_deref(), "begins with these settings");
        if self.begin.is_none() {
            let many = |n: u64, first: &str| {
                if n > 1 { format!("{first} (and {} more)", n - 1) } else { first.to_owned() }
            };
            let faults = self.faults.as_ref().map(|(n, first)| many(*n, first));
            row(faults.as_deref(), &format!("answers every call ({} calls on synthetic views)", self.calls));
            let impure = self
                .impure
                .as_ref()
                .map(|(n, first)| many(*n, &format!("two equal calls differ on {first}")));
            row(impure.as_deref(), "is pure: equal calls, equal plans");
            for (name, rule) in Rule::ALL {
                let broken = self.broken.get(name).map(|(n, first)| many(*n, first));
                row(broken.as_deref(), rule);
            }
            match &self.simulation {
                Some(Ok(end)) => row(None, &format!("runs to a normal end: {end}")),
                Some(Err(why)) => row(Some(why), "runs to a normal end"),
                None => screen.say("skip  runs to a normal end: not run"),
            }
            for (warning, first) in &self.warnings {
                screen.say(format_args!("warn  {warning}\n      its plan differs on {first}"));
            }
            if let Some((tried, all)) = self.late {
                screen.say(format_args!(
                    "note  the time is over: {tried} of {all} views were tried; --within gives more"
                ));
            }
        }
        screen.say("");
        screen.say(format_args!("      {:>9}  {:>12}  {:>9}  {:>10}", "rollouts", "fuel", "ms", "memory"));
        for c in &self.costs {
            screen.say(format_args!(
                "{:>4}x {:>9}  {:>12}  {:>9.2}  {:>6} KiB",
                c.times,
                18_432 * c.times,
                c.fuel,
                c.millis,
                c.memory >> 10
            ));
        }
        screen.say(format_args!("instance in {:.0} µs", self.instantiate.as_secs_f64() * 1e6));
        screen.say(format_args!("{} bytes, sha256 {}", policy.size(), policy.sha256()));
    }

    /// The card for programs.
    pub fn json(&self, policy: &Policy) -> serde_json::Value {
        let rules: Vec<_> = Rule::ALL
            .iter()
            .map(|(name, rule)| {
                let broken = self.broken.get(name);
                serde_json::json!({
                    "name": name, "rule": rule, "pass": broken.is_none(),
                    "times": broken.map_or(0, |b| b.0), "first": broken.map(|b| &b.1),
                })
            })
            .collect();
        let costs: Vec<_> = self
            .costs
            .iter()
            .map(|c| serde_json::json!({ "times": c.times, "fuel": c.fuel, "ms": c.millis, "memory": c.memory }))
            .collect();
        serde_json::json!({
            "policy": policy.description().name, "version": policy.description().version,
            "contract": policy.contract(), "sha256": policy.sha256(), "bytes": policy.size(),
            "pass": self.passed(), "calls": self.calls,
            "begin": self.begin, "faults": self.faults, "impure": self.impure, "rules": rules,
            "simulation": self.simulation.as_ref().and_then(|s| s.as_ref().ok()),
            "simulation_error": self.simulation.as_ref().and_then(|s| s.as_ref().err()),
            "warnings": self.warnings, "views": self.late.map(|(tried, all)| [tried, all]),
            "costs": costs, "instantiate_us": self.instantiate.as_secs_f64() * 1e6,
        })
    }
}
