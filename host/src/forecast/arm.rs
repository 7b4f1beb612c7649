//! A policy's run on a bank, and what it paid for its information.

use std::collections::BTreeMap;

use allot_allocation::PromptId;
use allot_bank::{Draws, Lesson, Unit, information, paid};
use allot_base::{Error, Result};
use allot_config::simulate::SimulateConfig;
use allot_report::statistics::percentile;
use allot_sandbox::{LoadError, Sandbox};

use super::geometry::Geometry;
use crate::run;
use crate::simulation::SimulatedRun;

/// The share of modelled rollouts from which a forecast is marked.
const MODELLED: f64 = 0.2;

/// The share of rollouts trained on again from which a forecast is marked.
const REPLAYED: f64 = 0.01;

/// The share of rollouts of zero-variance groups from which a forecast is marked.
const ZERO_VARIANCE: f64 = 0.01;

/// How many times as many rollouts of each prompt, and updates on it, as the baseline has mark a forecast.
const OFTEN: f64 = 4.0;

/// The fewest prompts of an interval.
const FEWEST: usize = 20;

/// A policy to forecast: its name, and its component.
pub struct Candidate {
    /// Its name in the table.
    pub name: String,
    /// The component's bytes.
    pub component: Vec<u8>,
    /// Settings that differ from its defaults, by name.
    pub settings: BTreeMap<String, toml::Value>,
}

/// A policy's run.
pub struct Arm {
    /// The policy's name.
    pub name: String,
    lessons: Vec<(PromptId, Lesson)>,
    /// The share of its rollouts that the log does not have.
    pub modelled: f64,
    /// Prompts that it sampled at several versions.
    pub revisited: usize,
    /// Whether it chose the optimizer steps of an update.
    pub steered: bool,
    /// The share of what it trained on that it had trained on before.
    pub replayed: f64,
    /// The share of what it trained on that is from zero-variance groups, those of one rollout among them.
    pub zero_variance: f64,
    /// Mean number of updates that learned from a prompt, of prompts with an advantage in at least one.
    pub updates: f64,
    /// The same, if it stays with few prompts: if both it and the rollouts of each are many beside the baseline's.
    pub often: Option<f64>,
}

impl Arm {
    /// Runs a candidate in a bank's world.
    ///
    /// # Errors
    ///
    /// A component that can't be loaded, or a policy that this world can't serve or that failed.
    pub fn run(
        candidate: &Candidate,
        geometry: Geometry,
        draws: Draws,
        rollouts: u64,
        sandbox: &Sandbox,
    ) -> Result<Self> {
        let unloaded = |e: LoadError| Error::told(format!("it can't be loaded: {e}"), e.hint());
        let policy = sandbox.load(&candidate.component, None).map_err(unloaded)?;
        let Geometry { groups, rollouts: each, .. } = geometry;
        // Those of the baseline, and more for a policy with smaller ones: also one that never samples comes to an end.
        let steps = 8 * rollouts.div_ceil(u64::from(groups) * u64::from(each));
        let config = format!(
            "[run]\nseed = 1\nsteps = {steps}\ngroups = {groups}\nrollouts = {each}\n[budget]\nrollouts = {rollouts}\n\
             [policy]\nuse = \"given\"\n[evaluation]\nevery = 4294967295\n"
        );
        let mut config = SimulateConfig::parse(&config, "the forecast")?;
        config.policy.settings.clone_from(&candidate.settings);
        let (mut run, _) = SimulatedRun::on(draws, &config, &policy, |_| ())?;
        let runtime = allot_remote::runtime()?;
        runtime.block_on(run::run(&mut run.world, &mut ())).map_err(|stop| Error::new(stop.to_string()))?;
        let (engine, name) = (&run.world.engine, candidate.name.clone());
        let tally = engine.tally();
        let modelled = tally.model as f64 / (tally.model + tally.bank).max(1) as f64;
        let lessons = engine.lessons();
        Ok(Self {
            name,
            replayed: tally.replayed as f64 / effective(&lessons).max(1) as f64,
            zero_variance: tally.zero_variance as f64 / effective(&lessons).max(1) as f64,
            lessons,
            modelled,
            revisited: tally.revisited.len(),
            steered: tally.steered,
            updates: tally.groups as f64 / tally.taught.len().max(1) as f64,
            often: None,
        })
    }

    /// Returns it beside a baseline, which tells whether it stays with few prompts.
    pub(super) fn beside(self, baseline: &Self) -> Self {
        let stays = self.updates >= OFTEN * baseline.updates && self.of_each() >= OFTEN * baseline.of_each();
        Self { often: stays.then_some(self.updates), ..self }
    }

    /// Returns the mean number of rollouts of prompts with an advantage in at least one update.
    fn of_each(&self) -> f64 {
        let taught = self.lessons.iter().filter(|(_, lesson)| lesson.effective > 0);
        let rollouts: Vec<f64> = taught.map(|(_, lesson)| lesson.rollouts as f64).collect();
        rollouts.iter().sum::<f64>() / rollouts.len().max(1) as f64
    }

    /// Returns whether it sampled the same prompts as often as another run, and learned the same from them.
    pub fn is_like(&self, other: &Self) -> bool {
        self.lessons == other.lessons
    }

    /// Returns the run's information.
    pub fn information(&self) -> f64 {
        information(&self.lessons, |_| 1)
    }

    /// Returns its information for each unit that it paid.
    pub fn rate(&self, unit: Unit) -> f64 {
        self.information() / paid(&self.lessons, unit, |_| 1).max(1.0)
    }

    /// Returns what it pays for as much information.
    pub fn pays(&self, unit: Unit, information: f64) -> f64 {
        information / self.rate(unit)
    }

    /// Returns the rollouts after which so many had an advantage, counted in each update on them.
    pub fn rollouts_for(&self, wanted: f64) -> f64 {
        wanted * paid(&self.lessons, Unit::Rollouts, |_| 1) / effective(&self.lessons).max(1) as f64
    }

    /// Returns the share of its rollouts that the log does not have, if that is large.
    pub fn much_modelled(&self) -> Option<f64> {
        Some(self.modelled).filter(|share| *share > MODELLED)
    }

    /// Returns the share of what it trained on that it had trained on before, if it is a percent or more.
    pub fn any_replayed(&self) -> Option<f64> {
        Some(self.replayed).filter(|share| *share >= REPLAYED)
    }

    /// Returns the share of what it trained on that is from zero-variance groups, if it is a percent or more.
    pub fn any_zero_variance(&self) -> Option<f64> {
        Some(self.zero_variance).filter(|share| *share >= ZERO_VARIANCE)
    }

    /// Returns the signs behind its name, for what its numbers rest on.
    pub fn marks(&self) -> String {
        let marks = [
            (self.much_modelled(), "*"),
            (self.any_replayed(), "†"),
            (self.often, "‡"),
            (self.any_zero_variance(), "§"),
        ];
        marks.into_iter().filter_map(|(number, mark)| number.map(|_| mark)).collect()
    }
}

/// Returns the rollouts with an advantage, counted in each update on them.
fn effective(lessons: &[(PromptId, Lesson)]) -> u64 {
    lessons.iter().map(|(_, lesson)| lesson.effective).sum()
}

/// How many times less one run pays than another for as much information, with an interval over prompts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The ratio.
    pub value: f64,
    /// The ends of its 95 % interval; none if it is of too few prompts.
    pub ends: Option<[f64; 2]>,
}

impl Ratio {
    /// Returns the ratio of two runs. Each resample of prompts is the same for both.
    pub(super) fn of(arm: &Arm, other: &Arm, unit: Unit, resamples: &[Vec<u32>]) -> Self {
        let of = |times: &dyn Fn(PromptId) -> u32| {
            let rate =
                |arm: &Arm| information(&arm.lessons, times) / paid(&arm.lessons, unit, times).max(1.0);
            let (one, other) = (rate(arm), rate(other));
            (one > 0.0 && other > 0.0).then(|| one / other)
        };
        let all: Vec<f64> =
            resamples.iter().filter_map(|times| of(&|prompt| times[prompt.0 as usize])).collect();
        let ends = percentile(&all, 0.025).zip(percentile(&all, 0.975));
        let enough = other.lessons.len() >= FEWEST && 2 * all.len() > resamples.len();
        Self { value: of(&|_| 1).unwrap_or(f64::NAN), ends: ends.filter(|_| enough).map(<[f64; 2]>::from) }
    }
}
