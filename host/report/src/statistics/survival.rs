//! Cost to reach a target if some runs end before they do: Kaplan and Meier (1958).
//!
//! A run that ends early still shows that reaching the target costs more than it spent. Leaving it out, or
//! counting its end as its cost, would make the arm look better than it is. Computed as in lifelines 0.30
//! (`lifelines/fitters/kaplan_meier_fitter.py`).

use serde::Serialize;

use super::{Unfit, level_within, student, within};

/// Time of one run, in any unit (rollouts, tokens, seconds), from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// The target was reached at this time.
    Reached(f64),
    /// The run ended at this time without reaching the target.
    Longer(f64),
}

impl Wait {
    /// Returns the time at which the target was reached or the run ended.
    pub fn time(self) -> f64 {
        match self {
            Self::Reached(time) | Self::Longer(time) => time,
        }
    }
}

/// The survival function: the share of runs that have not reached the target, by time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Survival {
    /// Steps at 0 and at each time at which a run reached the target or ended, ascending. A value is
    /// constant until the next step.
    pub steps: Vec<Step>,
}

/// A step of the survival function.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Time at which it begins.
    pub time: f64,
    /// Number of runs still observed just before.
    pub at_risk: usize,
    /// Number of those that reach the target at this time.
    pub reached: usize,
    /// Share of runs that have not reached it at this time, from 0 to 1.
    pub survival: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
}

/// The interval of a median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MedianInterval {
    /// Lower end; `None` if the data do not bound it.
    pub low: Option<f64>,
    /// Upper end; `None` if the data do not bound it, as is common with few seeds.
    pub high: Option<f64>,
}

impl Survival {
    /// Estimates the function, with pointwise intervals at a level of confidence by the exponential
    /// Greenwood formula ("log-log").
    ///
    /// Where all runs have reached the target, or none has, the formula is not defined, and the interval
    /// has no width.
    pub fn fit(level: f64, waits: &[Wait]) -> Result<Self, Unfit> {
        let z = student::normal_critical(1.0 - level_within("a level of confidence", level)?);
        let mut sorted = checked(waits)?.to_vec();
        let mut variance = 0.0;
        let mut survival = 1.0;
        let step = |moment: Moment| {
            let (at_risk, left) = (moment.at_risk as f64, moment.left() as f64);
            survival *= left / at_risk;
            if left > 0.0 {
                variance += moment.reached as f64 / (at_risk * left);
            }
            let (low, high) = greenwood(survival, variance, z);
            let Moment { time, at_risk, reached } = moment;
            Step { time, at_risk, reached, survival, low, high }
        };
        Ok(Self { steps: moments(&mut sorted).into_iter().map(step).collect() })
    }

    /// Returns the share that has not reached the target at a time; 1 before 0.
    pub fn at(&self, time: f64) -> f64 {
        self.steps.iter().take_while(|step| step.time <= time).last().map_or(1.0, |step| step.survival)
    }

    /// Returns the time by which half of the runs have reached the target; `None` if fewer ever did.
    ///
    /// lifelines, which adds logarithms, misses an exact half of 6, 8, 14, 18 or 20 runs by rounding, and
    /// then returns the next step.
    pub fn median(&self) -> Option<f64> {
        self.first(|step| step.survival <= 0.5 + 1e-12)
    }

    /// Returns the interval of the median at the level of [`Survival::fit`]: the times at which the ends of
    /// the intervals fall to a half (lifelines, `median_survival_times(confidence_interval_)`).
    pub fn median_interval(&self) -> MedianInterval {
        MedianInterval { low: self.first(|step| step.low <= 0.5), high: self.first(|step| step.high <= 0.5) }
    }

    /// Returns the time of the first step of a kind.
    fn first(&self, kind: impl Fn(&Step) -> bool) -> Option<f64> {
        self.steps.iter().find(|step| kind(step)).map(|step| step.time)
    }
}

/// Checks that there are runs, with finite times from 0 on.
pub(super) fn checked(waits: &[Wait]) -> Result<&[Wait], Unfit> {
    if waits.is_empty() {
        return Err(Unfit::Empty);
    }
    for time in waits.iter().map(|wait| wait.time()) {
        within("a time", time, time.is_finite() && time >= 0.0)?;
    }
    Ok(waits)
}

/// A time at which runs reach the target or end.
struct Moment {
    time: f64,
    at_risk: usize,
    reached: usize,
}

impl Moment {
    /// Number of runs at risk that do not reach the target.
    fn left(&self) -> usize {
        self.at_risk - self.reached
    }
}

/// Returns 0 and all times of events, ascending. A run that ends at a time is at risk at that time.
fn moments(waits: &mut [Wait]) -> Vec<Moment> {
    waits.sort_unstable_by(|a, b| a.time().total_cmp(&b.time()));
    let mut moments = vec![Moment { time: 0.0, at_risk: waits.len(), reached: 0 }];
    let mut at_risk = waits.len();
    for together in waits.chunk_by(|a, b| a.time() == b.time()) {
        let time = together[0].time();
        let reached = together.iter().filter(|wait| matches!(wait, Wait::Reached(_))).count();
        match moments.last_mut() {
            Some(start) if time == 0.0 => start.reached = reached,
            _ => moments.push(Moment { time, at_risk, reached }),
        }
        at_risk -= together.len();
    }
    moments
}

/// Returns the interval of a survival, from its Greenwood sum and the normal quantile.
fn greenwood(survival: f64, variance: f64, z: f64) -> (f64, f64) {
    if survival <= 0.0 || survival >= 1.0 {
        return (survival, survival);
    }
    let log = survival.ln();
    let half = z * variance.sqrt() / log;
    let end = |exponent: f64| (-exponent.exp()).exp();
    (end((-log).ln() - half), end((-log).ln() + half))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_end_early_hold_the_curve_up() {
        let waits = [Wait::Reached(3.0), Wait::Longer(3.0), Wait::Reached(5.0), Wait::Longer(7.0)];
        let survival = Survival::fit(0.95, &waits).expect("four runs");
        let steps: Vec<_> =
            survival.steps.iter().map(|s| (s.time, s.at_risk, s.reached, s.survival)).collect();
        assert_eq!(steps, [(0.0, 4, 0, 1.0), (3.0, 4, 1, 0.75), (5.0, 2, 1, 0.375), (7.0, 1, 0, 0.375)]);
        assert_eq!(survival.median(), Some(5.0));
        assert_eq!(survival.median_interval(), MedianInterval { low: Some(3.0), high: None });
        assert_eq!([-1.0, 2.9, 3.0, 99.0].map(|time| survival.at(time)), [1.0, 1.0, 0.75, 0.375]);
    }

    #[test]
    fn a_median_that_is_not_reached_is_none() {
        let survival = Survival::fit(0.95, &[Wait::Longer(4.0); 3]).expect("three runs");
        assert_eq!(survival.median(), None);
        assert_eq!(survival.median_interval(), MedianInterval { low: None, high: None });
    }

    #[test]
    fn half_of_the_runs_are_half() {
        for n in 1..200_u32 {
            let waits: Vec<_> = (1..=n).map(|time| Wait::Reached(f64::from(time))).collect();
            let median = Survival::fit(0.95, &waits).map(|survival| survival.median());
            assert_eq!(median, Ok(Some(f64::from(n.div_ceil(2)))), "{n}");
        }
    }

    #[test]
    fn times_that_are_none_are_unfit() {
        assert_eq!(Survival::fit(0.95, &[]), Err(Unfit::Empty));
        for time in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(Survival::fit(0.95, &[Wait::Reached(time)]).is_err(), "{time}");
        }
        assert!(Survival::fit(95.0, &[Wait::Reached(1.0)]).is_err());
    }
}
