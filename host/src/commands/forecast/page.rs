//! A forecast as the page of it shows it.

use allot_bank::{Bank, Profile, Unit};
use allot_base::count;
use allot_report::forecast::{Forecast as Page, Policy, bar};

use super::{About, ForecastLogs, advice, estimate, left_out, log, ranked, simulated, unknown};
use crate::forecast::{Arm, Forecast};

/// The units of a page, in its order.
const UNITS: [Unit; 3] = [Unit::Rollouts, Unit::Tokens, Unit::Operations];

/// Returns the prompts of a log by their pass rates.
pub(super) fn pass_rates(bank: &Bank) -> [u64; 12] {
    let mut bars = [0; 12];
    for prompt in &bank.prompts {
        bars[bar(prompt.right(), prompt.rollouts.len())] += 1;
    }
    bars
}

/// Returns what the page shows. The last argument is how the log was read, and its pass rates.
pub(super) fn of(
    command: &ForecastLogs,
    forecast: &Forecast,
    profile: &Profile,
    about: &About,
    (reading, pass_rates): (Vec<String>, [u64; 12]),
) -> Page {
    let unknown_units = units(profile);
    let is_known = |unit: usize| unknown_units[unit].is_none();
    let information = forecast.baseline.information();
    let ranked = ranked(forecast);
    let is_baseline = |arm: &Arm| std::ptr::eq(arm, &raw const forecast.baseline);
    let baseline = ranked.iter().position(|(_, arm)| is_baseline(arm)).unwrap_or(0);
    let (best_size, best_arm) = (&forecast.sizes[forecast.best].0, &forecast.sizes[forecast.best].1);
    let differs = best_size.rollouts != forecast.geometry.rollouts;
    let policy = |(name, arm): &(String, &Arm)| {
        let fewer = |unit: usize| {
            let ratio = || estimate(forecast.ratio(arm, &forecast.baseline, UNITS[unit]));
            (!is_baseline(arm) && is_known(unit)).then(ratio)
        };
        Policy {
            name: name.clone(),
            pays: [0, 1, 2].map(|unit| is_known(unit).then(|| arm.pays(UNITS[unit], information))),
            fewer: [0, 1, 2].map(fewer),
            than_best: (differs && !std::ptr::eq(*arm, best_arm))
                .then(|| estimate(forecast.ratio(arm, best_arm, Unit::Rollouts))),
            effective: arm.rollouts_for(1000.0),
            modelled: arm.modelled,
        }
    };
    let policies = ranked.iter().map(policy).collect();
    let names: Vec<String> = command.logs.names();
    Page {
        title: format!("Forecast from {}", names.join(", ")),
        log: log(profile) + ".",
        about: format!("The page shows {}.", simulated(forecast)),
        policies,
        baseline,
        best: differs.then(|| format!("{} of each of {}", best_size.rollouts, best_size.groups)),
        pass_rates,
        advice: vec![advice(forecast, profile.fit)],
        left_out: left_out(forecast),
        limits: unknown(forecast, about),
        reading,
        settings: settings(command, forecast),
        unknown: unknown_units,
    }
}

/// Says which units the log does not tell, and what would.
fn units(profile: &Profile) -> [Option<String>; 3] {
    let Profile { no_length, no_prompt_length, .. } = profile;
    let tokens = (*no_length > 0).then(|| {
        let rollouts = count(*no_length as u64, "rollout");
        format!("The log does not have the length of {rollouts}. If it has answers, --characters-per-token estimates lengths.")
    });
    let operations = tokens.clone().or_else(|| {
        (*no_prompt_length > 0).then(|| {
            let prompts = count(*no_prompt_length as u64, "prompt");
            format!("The log does not have the length of {prompts}. With --prompt-tokens they get one.")
        })
    });
    [None, tokens, operations]
}

/// Returns the settings of the forecast.
fn settings(command: &ForecastLogs, forecast: &Forecast) -> Vec<(String, String)> {
    let geometry = forecast.geometry;
    let mut all = vec![
        ("rollouts of each simulated run".to_owned(), forecast.rollouts.to_string()),
        ("prompts in a step".to_owned(), geometry.groups.to_string()),
        ("rollouts of each prompt".to_owned(), geometry.rollouts.to_string()),
        ("version of allot".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ];
    all.extend(command.logs.options());
    all.extend(command.policies.iter().map(|policy| ("--policy".to_owned(), policy.clone())));
    let set = command.set.iter().map(|typed| ("--set".to_owned(), typed.clone()));
    all.extend(set);
    if command.set.is_empty() {
        all.push(("settings of policies".to_owned(), "their defaults".to_owned()));
    }
    all
}
