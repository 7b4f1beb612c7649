//! What policies would have cost on prompts whose pass rates are in a log: each runs in a bank's world, and is judged by the
//! information that it gets for what it pays.

mod arm;
mod geometry;

use allot_allocation::seed::Stream;
use allot_bank::{Bank, Draws, Unit, resample};
use allot_base::{Error, Result};
use allot_sandbox::Sandbox;

use crate::cores;

pub use arm::{Arm, Candidate, Ratio};
pub use geometry::{Geometry, advised_groups};

/// Resamples of prompts for an interval.
const RESAMPLES: usize = 200;
/// Rollouts of a simulated run, if none are given: those of the log, within bounds. More would take longer and mostly change rates little.
const ROLLOUTS: std::ops::RangeInclusive<u64> = 500..=20_000;
/// Group sizes that are tried for the baseline.
const SIZES: [u32; 6] = [2, 3, 4, 8, 16, 32];

/// A forecast.
pub struct Forecast {
    /// The geometry of a step.
    pub geometry: Geometry,
    /// Rollouts of each simulated run.
    pub rollouts: u64,
    /// The baseline at the log's geometry.
    pub baseline: Arm,
    /// The baseline with other group sizes and as many rollouts in a step, and its size.
    pub sizes: Vec<(Geometry, Arm)>,
    /// Index of the best of these.
    pub best: usize,
    /// The other policies, in the order of their information for a rollout.
    pub arms: Vec<Arm>,
    /// Policies that did on this bank what the baseline did.
    pub alike: Vec<String>,
    /// Policies from whose updates nothing could be learned.
    pub useless: Vec<String>,
    /// Policies that could not run on it, and why.
    pub left_out: Vec<(String, String)>,
    resamples: Vec<Vec<u32>>,
}

/// A run to make: its place in the results, its policy and geometry.
type Job<'c> = (usize, &'c Candidate, Geometry);

impl Forecast {
    /// Returns the best step of the baseline and its run with that, if it samples another number of each prompt than the forecast's step.
    pub fn best_step(&self) -> Option<(&Geometry, &Arm)> {
        let (size, arm) = &self.sizes[self.best];
        (size.rollouts != self.geometry.rollouts).then_some((size, arm))
    }

    /// Makes the forecast, for runs of so many rollouts (of those of the log, if none are given) in steps of this geometry. The first
    /// candidate is the baseline. `tell` hears of each run that is done: how many of how many.
    ///
    /// # Errors
    ///
    /// A log in which the baseline learns nothing.
    pub fn of(
        bank: Bank,
        (geometry, budget): (Geometry, Option<u64>),
        candidates: &[Candidate],
        sandbox: &Sandbox,
        tell: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        let prompts = bank.prompts.len();
        let several = bank.prompts.iter().filter(|prompt| prompt.rollouts.len() > 1).count();
        if 2 * several < prompts {
            let alone = prompts - several;
            let what = format!(
                "{alone} of {prompts} prompts have one rollout: hard ones can't be told from unlucky ones"
            );
            return Err(Error::new(what)
                .hint("give a log with several rollouts of each prompt; eight are better than two"));
        }
        let rollouts = budget.unwrap_or((bank.rollouts() as u64).clamp(*ROLLOUTS.start(), *ROLLOUTS.end()));
        let (first, geometry) = (&candidates[0], geometry.within(rollouts, prompts));
        let sizes: Vec<Geometry> = SIZES.into_iter().map(|size| geometry.resized(size, prompts)).collect();
        let jobs: Vec<Job<'_>> = candidates
            .iter()
            .map(|candidate| (candidate, geometry))
            .chain(sizes.iter().map(|geometry| (first, *geometry)))
            .enumerate()
            .map(|(i, (candidate, geometry))| (i, candidate, geometry))
            .collect();
        let mut made = runs(jobs, &Draws::new(bank, 1), rollouts, sandbox, tell).into_iter();
        let baseline = made.next().unwrap_or_else(|| Err("it was not run".to_owned()));
        let baseline =
            baseline.map_err(|why| Error::new(format!("`{}` could not be run: {why}", first.name)))?;
        if baseline.information() <= 0.0 {
            let what =
                "no prompt of the log is both right and wrong at times: there is nothing to learn from";
            return Err(
                Error::new(what).hint("give a log of more rollouts of each prompt, or of other prompts")
            );
        }
        let (mut arms, mut alike, mut useless, mut left_out) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (candidate, made) in candidates[1..].iter().zip(made.by_ref()) {
            match made {
                Ok(arm) if arm.is_like(&baseline) => alike.push(arm.name),
                Ok(arm) if arm.information() <= 0.0 => useless.push(arm.name),
                Ok(arm) => arms.push(arm.beside(&baseline)),
                Err(why) => left_out.push((candidate.name.clone(), why)),
            }
        }
        arms.sort_by(|a, b| b.rate(Unit::Rollouts).total_cmp(&a.rate(Unit::Rollouts)));
        let sizes: Vec<(Geometry, Arm)> =
            sizes.into_iter().zip(made).filter_map(|(geometry, arm)| Some((geometry, arm.ok()?))).collect();
        if sizes.is_empty() {
            return Err(Error::new("no group size could be run").hint("set fewer `--groups`"));
        }
        let rate = |i: &usize| sizes[*i].1.rate(Unit::Rollouts);
        let best = (0..sizes.len()).max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or(0);
        let stream = &mut Stream::new(1);
        let resamples = (0..RESAMPLES).map(|_| resample(stream, prompts)).collect();
        Ok(Self { geometry, rollouts, baseline, sizes, best, arms, alike, useless, left_out, resamples })
    }

    /// Returns how many times less an arm pays than another for as much information.
    pub fn ratio(&self, arm: &Arm, other: &Arm, unit: Unit) -> Ratio {
        Ratio::of(arm, other, unit, &self.resamples)
    }
}

/// Makes runs on all cores. Returns their results in the order of the jobs.
fn runs(
    jobs: Vec<Job<'_>>,
    draws: &Draws,
    rollouts: u64,
    sandbox: &Sandbox,
    tell: &mut dyn FnMut(usize, usize),
) -> Vec<std::result::Result<Arm, String>> {
    let all = jobs.len();
    let mut results: Vec<_> = std::iter::repeat_with(|| Err("it was not run".to_owned())).take(all).collect();
    let work = |(place, candidate, geometry): Job<'_>| {
        let made = Arm::run(candidate, geometry, draws.again(1), rollouts, sandbox);
        (place, made.map_err(|error| error.what))
    };
    let mut done = 0;
    cores::each(jobs.into_iter(), work, |(place, made)| {
        results[place] = made;
        done += 1;
        tell(done, all);
    });
    results
}
