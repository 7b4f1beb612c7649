//! The figures of a report as SVG, each drawn twice, for wide and for narrow screens.
//!
//! They show numbers of the report and compute none. A figure without numbers is replaced by a sentence
//! that says so.

use std::cell::RefCell;
use std::rc::Rc;

use crate::axis::Axis;
use crate::forecast::{Forecast, UNITS};
use crate::report::Report;
use crate::tuning::Tuning;
use sheet::{Shared, Sheet};

mod accuracy;
mod differences;
mod forecast;
mod forest;
mod frontier;
mod legend;
mod map;
mod panel;
mod parts;
mod pdf;
mod picture;
mod reached;
mod sensitivity;
mod sheet;
mod small;
mod trends;
mod uses;

pub use pdf::pdf;
pub use picture::png;
pub use sheet::escaped;

/// A figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its name in file names.
    pub name: String,
    /// A short description.
    pub title: String,
    /// Its content, and the method of its intervals.
    pub caption: String,
    /// The figure, or the reason why there is none.
    pub drawing: Result<Drawing, String>,
}

/// A figure as SVG, in both sizes.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// For a page, and for print.
    pub wide: String,
    /// For a phone.
    pub narrow: String,
}

/// Width of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// 860 pixels.
    Wide,
    /// 360 pixels.
    Narrow,
}

impl Size {
    fn width(self) -> f64 {
        match self {
            Self::Wide => 860.0,
            Self::Narrow => 360.0,
        }
    }
}

/// Returns the figure of accuracy against an axis.
pub fn accuracy(report: &Report, axis: Axis) -> Figure {
    let caption = format!(
        "Mean accuracy over each arm's runs, as far as all of them go. {} Thin dashed lines are targets; \
         dotted ones lead from a curve's end to its name.",
        bands(report)
    );
    figure(
        &format!("accuracy-{}", axis.key()),
        &format!("Accuracy against {}", axis.words()),
        &caption,
        "No arm has an accuracy on this axis.",
        |size| accuracy::draw(report, axis, size),
    )
}

/// Returns all other figures, in the page's order.
pub fn others(report: &Report) -> Vec<Figure> {
    let percent = confidence(report);
    let apart = report.differences.iter().filter(|row| row.unpaired).count();
    let (how, test) = match apart {
        0 => (", seed by seed", "paired t-test"),
        _ if apart < report.differences.len() => {
            (", seed by seed or of unpaired runs", "t-test, paired or Welch's")
        }
        _ => (" of unpaired runs", "t-test of Welch"),
    };
    let axis = report.axis.words();
    let crowd = if report.arms.len() < 4 {
        format!("Areas are {percent} intervals by Greenwood's formula (log-log), each cost by itself.")
    } else {
        format!("With this many arms, their {percent} intervals are left to the file reached.csv.")
    };
    let baseline = report.arms.get(report.baseline).map_or("the baseline", |a| a.name.as_str());
    let mut all = vec![
        figure(
            "frontier",
            "Costs to the target on two axes",
            &format!(
                "Geometric means over runs of what it cost to reach the first target, with {percent} intervals, for arms \
                 all of whose runs reached it. Whatever lies above or right of the dashed stairs is beaten on both axes."
            ),
            "There are no two arms that reached the target in all of their runs.",
            |size| frontier::draw(report, size),
        ),
        figure(
            "reached",
            "Runs that have reached a target",
            &format!(
                "Share of runs that have reached a target by a cost in {axis}: one minus the Kaplan-Meier \
                 estimate, so that runs which ended before it count as long as they were looked at. {crowd}"
            ),
            "No target was set, so there is none to reach.",
            |size| reached::draw(report, size),
        ),
        figure(
            "differences",
            "Differences of the last accuracy",
            &format!(
                "Mean difference of the last accuracy to {baseline}{how}, with Student's {percent} interval; p is of the \
                 {test}, after Holm's correction over all arms."
            ),
            "There is no second arm with a finished run to compare with the baseline.",
            |size| differences::draw(report, size),
        ),
        figure(
            "uses",
            "What became of the rollouts",
            "All rollouts that an arm's runs sampled, each counted once. “Learned from” are those trained on \
             with an advantage; “all right” and “all wrong” are of groups whose rollouts were all the same, \
             trained on or discarded.",
            "No rollouts were sampled.",
            |size| uses::draw(report, size),
        ),
        figure(
            "effect",
            "How much of the work had an effect",
            &format!(
                "Effective share: of the rollouts trained on, those with an advantage. Useful share: of the \
                 rollouts sampled, those trained on with an advantage. Means over runs by cost in {axis}. {}",
                bands(report)
            ),
            "No step trained on anything.",
            |size| trends::draw(report, size),
        ),
        figure(
            "ages",
            "How old the rollouts were that were trained on",
            "Shares of the rollouts trained on by age: model updates between sampling and training. \
             Age 0 is on-policy.",
            "No rollouts were trained on.",
            |size| small::ages(report, size),
        ),
        figure(
            "rewards",
            "Reward of what was sampled and of what was trained on",
            &format!(
                "Mean reward of all rollouts sampled (solid) and of those trained on (dashed), by cost in \
                 {axis}. Only the solid line tells how good the model is: what is trained on was chosen. {}",
                bands(report)
            ),
            "No step has a reward.",
            |size| small::rewards(report, size),
        ),
        figure(
            "parts",
            "Held-out accuracy by part",
            &format!(
                "Mean of the last accuracies over each arm's finished runs, with {percent} intervals by resampling runs."
            ),
            "The held-out set has no parts.",
            |size| parts::draw(report, size),
        ),
    ];
    all.extend(report.tuning.as_ref().map(sensitivity));
    all
}

/// Returns the figures of a grid.
pub fn of_grid(tuning: &Tuning) -> Vec<Figure> {
    let what = match tuning.goal.target {
        Some(target) => format!(
            "what it cost to reach {}, in {}, or where a trial did not get there, its accuracy at the end",
            crate::number::percent_tick(target),
            tuning.goal.axis.words()
        ),
        None => "accuracy at the end".to_owned(),
    };
    let map = figure(
        "map",
        "All that was tried",
        &format!(
            "Each cell is a setting: {what}. The better, the darker, within each arm; * is the declared setting."
        ),
        "Nothing was tried.",
        |size| map::draw(tuning, size),
    );
    vec![map, sensitivity(tuning)]
}

/// Returns the figures of a forecast: what is paid in each unit, and the log's pass rates.
pub fn of_forecast(forecast: &Forecast) -> Vec<Figure> {
    let baseline =
        forecast.policies.get(forecast.baseline).map_or("the baseline", |policy| policy.name.as_str());
    let mut all: Vec<Figure> = (0..UNITS.len())
        .map(|unit| {
            let (key, name) = UNITS[unit];
            figure(
                &format!("forecast-{key}"),
                &format!("{name}, against {baseline}"),
                &format!(
                    "How many times fewer {key} each policy pays than {baseline} to learn as much, on a logarithmic axis; left of \
                     the line it pays more. Intervals hold 95\u{a0}% by resampling prompts."
                ),
                forecast.unknown[unit].as_deref().unwrap_or("No other policy has a forecast."),
                |size| forecast::ratios(forecast, unit, size),
            )
        })
        .collect();
    all.push(figure(
        "pass-rates",
        "Pass rates in the log",
        "Prompts by the share of their rollouts that were right. The first and the last bar are those that were never right and \
         always right. With few rollouts of each prompt, some of these are bad and good luck.",
        "The log has no prompts.",
        |size| forecast::pass_rates(forecast, size),
    ));
    all
}

/// Returns the figure of the effect of each setting.
fn sensitivity(tuning: &Tuning) -> Figure {
    let share = tuning.shares.first().map(|share| crate::number::percent_tick(*share)).unwrap_or_default();
    figure(
        "sensitivity",
        "How much each setting matters",
        &format!(
            "Dots are trials, by their accuracy at the end of the first rung ({share} of the budget), or where they reached \
             the target, which is dashed; the large dot won, the ring is the declared setting. “Goes with” is the share of the \
             differences between the trials' places that follows from the setting alone; of few trials it is an estimate, \
             and a small one does not show that a setting has no effect."
        ),
        "No trial came to anything.",
        |size| sensitivity::draw(tuning, size),
    )
}

fn figure(
    name: &str,
    title: &str,
    caption: &str,
    nothing: &str,
    draw: impl Fn(Size) -> Option<String>,
) -> Figure {
    let drawing = draw(Size::Wide)
        .zip(draw(Size::Narrow))
        .map(|(wide, narrow)| Drawing { wide, narrow })
        .ok_or_else(|| nothing.to_owned());
    Figure { name: name.to_owned(), title: title.to_owned(), caption: caption.to_owned(), drawing }
}

/// Formats the confidence level of intervals: 95 %.
fn confidence(report: &Report) -> String {
    crate::number::percent_tick(report.confidence)
}

fn bands(report: &Report) -> String {
    format!(
        "Areas are {} intervals of the mean by resampling runs, each point by itself; one run has none.",
        confidence(report)
    )
}

/// Describes the arms: their number and names.
fn arms(report: &Report) -> String {
    let names: Vec<&str> = report.arms.iter().map(|a| a.name.as_str()).collect();
    format!("{} {} ({})", names.len(), if names.len() == 1 { "arm" } else { "arms" }, names.join(", "))
}

fn shared(sheet: Sheet) -> Shared {
    Rc::new(RefCell::new(sheet))
}
