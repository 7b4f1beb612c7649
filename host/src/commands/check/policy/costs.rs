//! The cost of a policy's calls at the scale of a published run, and of an instance.

use std::time::{Duration, Instant};

use allot_allocation::{Run, View};
use allot_authoring::fixtures;
use allot_sandbox::{Fault, Policy};
use serde_json::json;

use super::trial::Begun;
use crate::commands::check::cost::Cost;
use crate::commands::check::time::{Time, is_limit};
use crate::screen::Screen;

/// Multiples of the published run's scale.
const SCALES: [usize; 3] = [1, 4, 16];
/// Rollouts at the published run's scale.
const ROLLOUTS: usize = 18_432;
/// Number of calls at each scale.
const CALLS: usize = 3;
/// Number of instances, of which the fastest counts.
const INSTANCES: usize = 20;
/// The longest time to spend on instances.
const STARTS: Duration = Duration::from_millis(500);

/// The costs of a policy.
pub struct Costs {
    rows: [(usize, Cost); SCALES.len()],
    instance: Option<Duration>,
}

impl Costs {
    /// Returns costs that are not measured yet.
    pub fn new() -> Self {
        Self { rows: SCALES.map(|times| (times, Cost::default())), instance: None }
    }

    /// Measures each cost once: always an instance and the smallest scale, others in a fifth of the time.
    pub fn once(&mut self, policy: &Policy, begun: &Begun, time: Time) {
        self.instance = instance(policy);
        let started = Instant::now();
        for (times, cost) in &mut self.rows {
            if *times == SCALES[0] || started.elapsed() < time.within / 5 {
                let (run, view) = at_scale(policy, begun, *times);
                cost.measure(time, || Ok(policy.decide(&run, &begun.state, &view)?.1));
            }
        }
    }

    /// Measures again until the time is over.
    pub fn again(&mut self, policy: &Policy, begun: &Begun, time: Time) {
        for (times, cost) in &mut self.rows {
            let (run, view) = at_scale(policy, begun, *times);
            for _ in 1..CALLS {
                if !time.is_over() && cost.fault().is_none() {
                    cost.measure(time, || Ok(policy.decide(&run, &begun.state, &view)?.1));
                }
            }
        }
    }

    /// Returns faults at a scale, each with its view's title. Reaching a limit of fuel, time or memory does
    /// not count: not every policy is made for every scale.
    pub fn faults(&self) -> impl Iterator<Item = (String, &Fault)> {
        let failed = self.rows.iter().filter_map(|(times, cost)| Some((times, cost.fault()?)));
        failed
            .filter(|(_, fault)| !is_limit(fault))
            .map(|(times, fault)| (format!("the view at {times}x"), fault))
    }

    /// Returns the costs that were not measured, in words.
    pub fn missing(&self) -> impl Iterator<Item = String> {
        let scales = self.rows.iter().filter(|(_, cost)| cost.is_missing());
        let scales = scales.map(|(times, _)| format!("the cost at {times}x was not measured"));
        scales.chain(self.instance.is_none().then(|| "the cost of an instance was not measured".to_owned()))
    }

    /// Shows the table as text.
    pub fn show(&self, screen: &mut Screen<'_>) {
        screen.say(format_args!("      {:>9}  {}", "rollouts", Cost::head()));
        for (times, cost) in &self.rows {
            screen.say(format_args!("{times:>4}x {:>9}  {}", ROLLOUTS * times, cost.columns()));
        }
        match self.instance_us() {
            Some(time) => screen.say(format_args!("instance in {time:.0} µs")),
            None => screen.say("instance not measured"),
        }
    }

    /// Returns the rows of the table as JSON.
    pub fn json(&self) -> Vec<serde_json::Value> {
        self.rows.iter().map(|(times, cost)| cost.json(json!({ "times": times }))).collect()
    }

    /// Returns the time of an instance in microseconds.
    pub fn instance_us(&self) -> Option<f64> {
        self.instance.map(|time| time.as_secs_f64() * 1e6)
    }
}

fn at_scale(policy: &Policy, begun: &Begun, times: usize) -> (Run, View) {
    let run = Run { groups: 128, rollouts: 64, pool: 384, ..begun.run.clone() };
    let description = policy.description();
    let mut view = fixtures::scale(times, description.signals.len());
    if description.plays() {
        fixtures::add_turns(&mut view);
    }
    (run, view)
}

/// Returns the shortest time to create and drop an instance.
fn instance(policy: &Policy) -> Option<Duration> {
    let started = Instant::now();
    let mut best = None;
    for _ in 0..INSTANCES {
        let start = Instant::now();
        policy.instantiate().ok()?;
        best = best.into_iter().chain([start.elapsed()]).min();
        if started.elapsed() > STARTS {
            break;
        }
    }
    best
}
