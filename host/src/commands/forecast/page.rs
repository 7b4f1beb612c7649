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
    let information = forecast.baseline.information();
    let ranked = ranked(forecast);
    let is_baseline = |arm: &Arm| std::ptr::eq(arm, &raw const forecast.baseline);
    let baseline = ranked.iter().position(|(_, arm)| is_baseline(arm)).unwrap_or(0);
    let best = forecast.best_step();
    let ratio = |arm: &Arm, other: &Arm, unit| estimate(forecast.ratio(arm, other, unit));
    let policy = |(name, arm): &(String, &Arm)| {
        let fewer = |unit| {
            let is_known = !is_baseline(arm) && profile.tells(unit);
            is_known.then(|| ratio(arm, &forecast.baseline, unit))
        };
        let than_best = best.filter(|(_, best)| !std::ptr::eq(*arm, *best));
        Policy {
            name: name.clone(),
            pays: UNITS.map(|unit| profile.tells(unit).then(|| arm.pays(unit, information))),
            fewer: UNITS.map(fewer),
            than_best: than_best.map(|(_, best)| ratio(arm, best, Unit::Rollouts)),
            effective: arm.rollouts_for(1000.0),
            modelled: arm.much_modelled(),
            replayed: arm.any_replayed(),
            often: arm.often,
            zero_variance: arm.any_zero_variance(),
        }
    };
    let policies = ranked.iter().map(policy).collect();
    Page {
        title: format!("Forecast from {}", command.logs.names().join(", ")),
        log: log(profile) + ".",
        about: format!("The page shows {}.", simulated(forecast)),
        policies,
        baseline,
        best: best.map(|(size, _)| format!("{} of each of {}", size.rollouts, size.groups)),
        pass_rates,
        advice: advice(forecast, profile.fit),
        left_out: left_out(forecast),
        limits: unknown(forecast, about),
        reading,
        settings: settings(command, forecast),
        unknown: units(profile),
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
