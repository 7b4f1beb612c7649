//! How long it takes to reach a target, where some runs end before they do: Kaplan and Meier (1958).
//!
//! A run that ends early still says something, that it takes longer than it ran. To leave it out, or to
//! count its end as its target, makes the arm look better than it is. As lifelines 0.30 computes it
//! (`lifelines/fitters/kaplan_meier_fitter.py`).

use serde::Serialize;

use super::{Unfit, level_within, student, within};

/// How long one run took, in whatever is counted (rollouts, tokens, seconds), from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// The target was reached then.
    Reached(f64),
    /// The run ended then without: it takes longer than that.
    Longer(f64),
}

impl Wait {
    /// When the target was reached, or the run ended.
    pub fn time(self) -> f64 {
        match self {
            Self::Reached(time) | Self::Longer(time) => time,
        }
    }
}

/// The survival function: which share of runs has not yet reached the target at a time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Survival {
    /// At 0, and at each time at which a run reached the target or ended, ascending. The function holds
    /// each value until the next.
    pub steps: Vec<Step>,
}

/// A step of the survival function.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    /// From when on.
    pub time: f64,
    /// How many runs were still under way just before.
    pub at_risk: usize,
    /// How many of them reach the target at this time.
    pub reached: usize,
    /// The share that has not reached it, this time included, from 0 to 1.
    pub survival: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// The interval of a median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MedianInterval {
    /// The lower end; `None` where the data don't bound it.
    pub low: Option<f64>,
    /// The upper end; `None` where the data don't bound it, as is common with few seeds.
    pub high: Option<f64>,
}

impl Survival {
    /// Estimates it, with pointwise intervals at a level of confidence by the exponential Greenwood
    /// formula ("log-log").
    ///
    /// Where all runs have reached the target, and where none has, the interval has no width: the formula
    /// has nothing to say there.
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

    /// The share that has not reached the target at a time, this time included; 1 before 0.
    pub fn at(&self, time: f64) -> f64 {
        self.steps.iter().take_while(|step| step.time <= time).last().map_or(1.0, |step| step.survival)
    }

    /// The time by which half have reached the target; `None` if so many never did.
    ///
    /// Half is half: lifelines, which adds logarithms, misses an exact half of 6, 8, 14, 18 or 20 runs by
    /// rounding, and then gives the step after.
    pub fn median(&self) -> Option<f64> {
        self.first(|step| step.survival <= 0.5 + 1e-12)
    }

    /// The interval of the median at the level of [`Survival::fit`]: where the ends of the function's
    /// intervals fall to a half (lifelines, `median_survival_times(confidence_interval_)`).
    pub fn median_interval(&self) -> MedianInterval {
        MedianInterval { low: self.first(|step| step.low <= 0.5), high: self.first(|step| step.high <= 0.5) }
    }

    /// The time of the first step of a kind.
    fn first(&self, kind: impl Fn(&Step) -> bool) -> Option<f64> {
        self.steps.iter().find(|step| kind(step)).map(|step| step.time)
    }
}

/// Passes runs that are not none, with times that are finite and from 0 on.
pub(super) fn checked(waits: &[Wait]) -> Result<&[Wait], Unfit> {
    if waits.is_empty() {
        return Err(Unfit::Empty);
    }
    for time in waits.iter().map(|wait| wait.time()) {
        within("a time", time, time.is_finite() && time >= 0.0)?;
    }
    Ok(waits)
}

/// A time at which something happens.
struct Moment {
    time: f64,
    at_risk: usize,
    reached: usize,
}

impl Moment {
    /// How many at risk don't reach the target.
    fn left(&self) -> usize {
        self.at_risk - self.reached
    }
}

/// 0, and all times at which something happens, ascending. A run that ends at a time is at risk at it.
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

/// The interval of a survival, from its Greenwood sum and the normal quantile.
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
