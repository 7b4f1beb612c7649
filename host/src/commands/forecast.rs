//! `allot forecast`: what each policy would have cost on the prompts of a log.

mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;

use allot_allocation::shown;
use allot_bank::{Bank, Fit, Profile, Told, Unit};
use allot_base::{Error, Exit, Result, listed, replace};
use allot_config::setting;
use allot_report::forecast::finding;
use allot_report::number;
use allot_report::page::forecast_html;
use allot_report::report::Estimate;
use allot_sandbox::Caps;
use clap::Args;
use serde_json::{Value, json};

use super::bank::notes;
use super::logs::{self, Logs};
use crate::forecast::{Arm, Candidate, Forecast, Geometry, Ratio, advised_groups};
use crate::policy_loader;
use crate::screen::Screen;
use crate::shipped;

/// Forecast from logs of rollouts what each policy would save
#[derive(Debug, Args)]
pub struct ForecastLogs {
    #[command(flatten)]
    logs: Logs,
    /// Forecast this policy, too: a component's path or its address in a registry; repeatable
    #[arg(long = "policy", value_name = "POLICY")]
    policies: Vec<String>,
    /// Give a policy this setting, as in pilot-commit.pilot=4; repeatable
    #[arg(long = "set", value_name = "POLICY.NAME=VALUE")]
    set: Vec<String>,
    /// Prompts in a step [default: as in the log, or 16]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=4096))]
    groups: Option<u32>,
    /// Rollouts of each prompt [default: as in the log]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(2..=1024))]
    rollouts: Option<u32>,
    /// Rollouts that each run spends [default: as many as the log has, from 500 to 20,000]
    #[arg(long, value_name = "ROLLOUTS", value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    budget: Option<u64>,
    /// Write the forecast as a page, one HTML file, too
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// The forecast as JSON
    #[arg(long)]
    json: bool,
}

/// Group sizes within this share of the best are as good, by what a log can tell.
const AS_GOOD: f64 = 0.95;

/// Makes and shows the forecast.
pub fn run(command: &ForecastLogs, screen: &mut Screen<'_>) -> Result<Exit> {
    let files = command.logs.files()?;
    if let Some(file) = &command.page {
        logs::spared(&files, file, "--page")?;
    }
    if let [one, other, ..] = Logs::runs(&files)[..] {
        let [one, other] = [one, other].map(shown::path);
        let what = format!("`{one}` and `{other}` are two runs, whose models differ");
        return Err(
            Error::new(what).hint("forecast from one run; forecasts from others tell how much that matters")
        );
    }
    let (bank, told) = command.logs.read(&files, screen)?;
    one_run(&told)?;
    let profile = Profile::of(&bank);
    let reading = notes(&profile, &told);
    for words in &reading {
        screen.tell(words);
    }
    let pass_rates = page::pass_rates(&bank);
    let candidates = candidates(command, screen)?;
    let sandbox = policy_loader::sandbox(Caps::default())?;
    let about = About::of(&bank);
    let geometry = Geometry::of(&bank);
    let geometry = Geometry {
        groups: command.groups.unwrap_or(geometry.groups),
        rollouts: command.rollouts.unwrap_or(geometry.rollouts),
        from: if command.groups.or(command.rollouts).is_some() { ", as given" } else { geometry.from },
    };
    let tell = &mut |done, all| screen.draw(format_args!("{done} of {all} runs"));
    let forecast = Forecast::of(bank, (geometry, command.budget), &candidates, &sandbox, tell)?;
    screen.draw("");
    if let Some(file) = &command.page {
        let page = page::of(command, &forecast, &profile, &about, (reading, pass_rates));
        replace(file, |out| out.write_all(forecast_html(&page).as_bytes()))?;
        screen.tell(format_args!("the page is in {}", file.display()));
    }
    if command.json {
        screen.say(json(&forecast, &profile, &told));
    } else {
        show(&forecast, &profile, screen);
        for words in unknown(&forecast, &about) {
            screen.say(words);
        }
    }
    let failed = forecast.left_out.iter().any(|(name, _)| command.policies.contains(name));
    Ok(if failed { Exit::Bad } else { Exit::Good })
}

/// Refuses rollouts of several runs of a comparison: their models differ, and a step of one is none of another.
fn one_run(told: &Told) -> Result<()> {
    if told.runs.len() < 2 {
        return Ok(());
    }
    let names: BTreeSet<&str> = told.runs.iter().map(|[arm, _]| arm.as_str()).collect();
    let baseline = told.runs.iter().find(|[arm, _]| arm == shipped::baseline());
    let [arm, seed] = baseline.or(told.runs.first()).expect("there are two");
    let what = format!(
        "the log has rollouts of {} runs of a comparison, with arms {}",
        told.runs.len(),
        listed(names.into_iter())
    );
    let named = [("arm", arm), ("seed", seed)].into_iter().filter(|(_, value)| !value.is_empty());
    let options: Vec<String> = named.map(|(key, value)| format!("--where {key}={value}")).collect();
    Err(Error::new(what).hint(format!("forecast from one run, as with {}", options.join(" "))))
}

/// Returns the baseline, the other shipped policies, and those that were given.
fn candidates(command: &ForecastLogs, screen: &mut Screen<'_>) -> Result<Vec<Candidate>> {
    let others = shipped::names().into_iter().filter(|name| *name != shipped::baseline()).map(str::to_owned);
    let names = std::iter::once(shipped::baseline().to_owned())
        .chain(others)
        .chain(command.policies.iter().filter(|name| shipped::component(name).is_none()).cloned());
    let mut candidates = names
        .map(|name| {
            let component = policy_loader::bytes(&name, screen)?;
            Ok(Candidate { name, component, settings: BTreeMap::new() })
        })
        .collect::<Result<Vec<Candidate>>>()?;
    for typed in &command.set {
        let wrong = || {
            let what = format!("--set {}: expected POLICY.NAME=VALUE", shown::line(typed, 80));
            Error::new(what).hint("write it like --set pilot-commit.pilot=4")
        };
        let (name, value) = setting(typed).ok_or_else(wrong)?;
        let (policy, name) = name.rsplit_once('.').ok_or_else(wrong)?;
        let candidate =
            candidates.iter_mut().find(|candidate| candidate.name == policy).ok_or_else(|| {
                Error::new(format!(
                    "--set {}: no policy `{}` is forecast",
                    shown::line(typed, 80),
                    shown::name(policy)
                ))
                .hint("name one that ships, or one that --policy names")
            })?;
        candidate.settings.insert(name.to_owned(), value);
    }
    Ok(candidates)
}

/// What a log has that a forecast does not take into account.
struct About {
    versions: usize,
    /// Whether some rewards are neither 0 nor 1.
    other_rewards: bool,
}

impl About {
    fn of(bank: &Bank) -> Self {
        let versions = bank.all().map(|rollout| rollout.version).collect::<BTreeSet<_>>().len();
        let other_rewards = bank.all().any(|rollout| rollout.reward != 0.0 && rollout.reward != 1.0);
        Self { versions, other_rewards }
    }
}

/// Shows the table.
fn show(forecast: &Forecast, profile: &Profile, screen: &mut Screen<'_>) {
    screen.say(log(profile));
    screen.say(format_args!("{}:", simulated(forecast)));
    for line in super::report::aligned(&table(forecast, profile)) {
        screen.say(format_args!("  {}", line.trim_end()));
    }
    notes_on(forecast, profile.fit, screen);
}

/// Describes the log.
fn log(profile: &Profile) -> String {
    let [rollouts, prompts] = [profile.rollouts, profile.prompts].map(|n| number::count(n as u64));
    let share = |part: f64| format!("{:.0} %", 100.0 * part);
    format!(
        "{rollouts} rollouts of {prompts} prompts; mean pass rate {:.3}, never right {}, always right {}",
        profile.pass_rate,
        share(profile.never),
        share(profile.always)
    )
}

/// Says what the table shows.
fn simulated(forecast: &Forecast) -> String {
    let Forecast { geometry, baseline, .. } = forecast;
    format!(
        "what each policy pays to learn as much as `{}` does from {} rollouts, {} of each of {} prompts in a step{}",
        baseline.name,
        number::count(forecast.rollouts),
        geometry.rollouts,
        geometry.groups,
        geometry.from
    )
}

/// Returns the table, with a row for each policy.
fn table(forecast: &Forecast, profile: &Profile) -> Vec<Vec<String>> {
    let (baseline, best) = (&forecast.baseline, forecast.best_step());
    let against = format!("rollouts, than {}", baseline.name);
    let mut heads = ["policy", "rollouts", "tokens", "operations", &against].map(str::to_owned).to_vec();
    heads
        .extend(best.map(|(size, _)| format!("rollouts, than {} of each of {}", size.rollouts, size.groups)));
    let row = |(name, arm): (String, &Arm)| {
        let information = baseline.information();
        let unknown = || number::NONE.to_owned();
        let pays = |unit, of: &str| {
            let known = profile.tells(unit).then(|| number::cost(arm.pays(unit, information)) + of);
            known.unwrap_or_else(unknown)
        };
        let ratio = |other: &Arm| {
            if std::ptr::eq(arm, other) {
                unknown()
            } else {
                compared(forecast.ratio(arm, other, Unit::Rollouts))
            }
        };
        let units = [pays(Unit::Rollouts, ""), pays(Unit::Tokens, ""), pays(Unit::Operations, " × P")];
        let mut row = vec![name];
        row.extend(units);
        row.push(ratio(baseline));
        row.extend(best.map(|(_, arm)| ratio(arm)));
        row
    };
    std::iter::once(heads).chain(ranked(forecast).into_iter().map(row)).collect()
}

/// Returns the policies with their names in a table, those that learn most for a rollout first.
fn ranked(forecast: &Forecast) -> Vec<(String, &Arm)> {
    let Forecast { baseline, arms, .. } = forecast;
    let mut all: Vec<(String, &Arm)> =
        arms.iter().chain([baseline]).map(|arm| (format!("{}{}", arm.name, arm.marks()), arm)).collect();
    if let Some((size, arm)) = forecast.best_step() {
        all.push((format!("{}, {} of each{}", baseline.name, size.rollouts, arm.marks()), arm));
    }
    all.sort_by(|a, b| b.1.rate(Unit::Rollouts).total_cmp(&a.1.rate(Unit::Rollouts)));
    all
}

/// Says what the table leaves out, and what follows from it.
fn notes_on(forecast: &Forecast, fit: Fit, screen: &mut Screen<'_>) {
    let Forecast { baseline, arms, sizes, best, .. } = forecast;
    for words in left_out(forecast) {
        screen.say(words);
    }
    let shown: Vec<&Arm> = arms.iter().chain([baseline, &sizes[*best].1]).collect();
    let most =
        |marked: fn(&Arm) -> Option<f64>| shown.iter().filter_map(|arm| marked(arm)).max_by(f64::total_cmp);
    if let Some(most) = most(Arm::much_modelled) {
        screen.say(format_args!(
            "* up to {:.0} % of the rollouts of such a policy are from a fitted model, as the log has too few of each prompt",
            100.0 * most
        ));
    }
    if let Some(most) = most(Arm::any_replayed) {
        screen.say(format_args!(
            "† up to {:.0} % of what such a policy trains on it has trained on before, and it counts as much again: \
             it may save less than the table says",
            100.0 * most
        ));
    }
    if let Some(most) = most(|arm| arm.often) {
        screen.say(format_args!(
            "‡ such a policy stays with few prompts, and learns up to {most:.0} times from each, `{}` {:.0}: a late lesson counts as \
             much as the first, so it may save less than the table says",
            baseline.name, baseline.updates
        ));
    }
    if let Some(most) = most(Arm::any_zero_variance) {
        screen.say(format_args!(
            "§ up to {:.0} % of what such a policy trains on is from groups with one reward, or of one rollout: a log does not \
             show what such lessons are worth, so it may save less than the table says, or more",
            100.0 * most
        ));
    }
    screen.say(format_args!("advice: {}", advice(forecast, fit)));
}

/// Says which policies are not in the table, and why.
fn left_out(forecast: &Forecast) -> Vec<String> {
    let Forecast { baseline, alike, useless, left_out, .. } = forecast;
    let mut all = Vec::new();
    if !alike.is_empty() {
        all.push(format!("as `{}` here: {}", baseline.name, alike.join(", ")));
    }
    if !useless.is_empty() {
        all.push(format!("no lesson in any update: {}", useless.join(", ")));
    }
    all.extend(left_out.iter().map(|(name, why)| {
        let why = if why.contains(name.as_str()) { why.clone() } else { format!("{name}: {why}") };
        format!("not forecast: {why}")
    }));
    all
}

/// Says which group sizes are best, and how many prompts a step needs.
fn advice(forecast: &Forecast, fit: Fit) -> String {
    let Forecast { baseline, sizes, best, .. } = forecast;
    let top = sizes[*best].1.rate(Unit::Rollouts);
    let good = sizes.iter().filter(|(_, arm)| arm.rate(Unit::Rollouts) >= AS_GOOD * top);
    let good: Vec<u32> = good.map(|(geometry, _)| geometry.rollouts).collect();
    let words: Vec<String> = good.iter().map(u32::to_string).collect();
    let step = advised_groups(fit, good[0]).map_or_else(String::new, |groups| {
        let groups = number::count(groups.into());
        format!("; with {groups} prompts in a step, fewer than one step in twenty has nothing to learn from")
    });
    format!(
        "`{}` learns most for a rollout with {} rollouts of each prompt{step}",
        baseline.name,
        words.join(" or ")
    )
}

/// Says what a log can't tell.
fn unknown(forecast: &Forecast, told: &About) -> Vec<String> {
    let mut all = vec![
        "the log can't tell what changes as the model learns. Of 65 ratios that training had measured, such forecasts were off by a \
         factor of 1.6 (root mean square), 2.9 at worst; of 54 ratios of operations by 1.6, too, and 18 were wrong about which policy needs fewer"
            .to_owned(),
    ];
    let named = |which: fn(&Arm) -> bool| {
        let names: Vec<&str> =
            forecast.arms.iter().filter(|arm| which(arm)).map(|arm| arm.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    if let Some(names) = named(|arm| arm.revisited > 0) {
        all.push(format!("the log can't tell what a later visit to a prompt brings, as these had: {names}"));
    }
    if let Some(names) = named(|arm| arm.steered) {
        all.push(format!("the log can't tell what optimizer steps of a policy's own choice bring: {names}"));
    }
    if told.other_rewards {
        all.push(
            "some rewards are not 0 or 1; of the 65 ratios, seven were measured with such rewards: 0, 0.5 and 1".to_owned(),
        );
    }
    if told.versions > 1 {
        let versions = told.versions;
        all.push(format!(
            "the log is of {versions} versions of the model, as if they were one; --versions FIRST..LAST keeps some"
        ));
    }
    all
}

/// Formats a ratio with its interval.
fn compared(ratio: Ratio) -> String {
    let ratio = estimate(ratio);
    finding(ratio).unwrap_or_else(|| super::report::compared(ratio))
}

/// Returns a ratio as a report has it.
fn estimate(ratio: Ratio) -> Estimate {
    let [low, high] = [0, 1].map(|end| ratio.ends.map(|ends| ends[end]));
    Estimate { value: ratio.value, low, high }
}

/// Returns the forecast as JSON.
fn json(forecast: &Forecast, profile: &Profile, told: &Told) -> Value {
    let information = forecast.baseline.information();
    let arm = |arm: &Arm| {
        let units =
            [("rollouts", Unit::Rollouts), ("tokens", Unit::Tokens), ("operations", Unit::Operations)];
        let pays: serde_json::Map<String, Value> = units
            .iter()
            .map(|(name, unit)| {
                let pays = profile.tells(*unit).then(|| arm.pays(*unit, information));
                ((*name).to_owned(), pays.into())
            })
            .collect();
        let ratio = |unit| {
            let Ratio { value, ends } = forecast.ratio(arm, &forecast.baseline, unit);
            profile.tells(unit).then(|| json!({ "times_fewer": value, "interval": ends }))
        };
        let ratios: serde_json::Map<String, Value> =
            units.iter().map(|(name, unit)| ((*name).to_owned(), ratio(*unit).into())).collect();
        json!({
            "policy": arm.name, "information_per_1000_rollouts": 1000.0 * arm.rate(Unit::Rollouts), "pays": pays, "than_baseline": ratios, "modelled": arm.modelled, "replayed": arm.replayed, "updates_of_a_prompt": arm.updates, "zero_variance": arm.zero_variance,
            "rollouts_for_1000_with_an_advantage": arm.rollouts_for(1000.0), "prompts_revisited": arm.revisited,
        })
    };
    let sized = |(geometry, sized): &(Geometry, Arm)| json!({ "groups": geometry.groups, "rollouts": geometry.rollouts, "baseline": arm(sized) });
    json!({
        "log": { "rollouts": profile.rollouts, "prompts": profile.prompts, "pass_rate": profile.pass_rate,
            "unknown_lengths": profile.no_length, "unknown_prompt_lengths": profile.no_prompt_length,
            "assumed_prompt_lengths": told.assumed_prompt_lengths, "unread_record": told.unread_record },
        "geometry": { "groups": forecast.geometry.groups, "rollouts": forecast.geometry.rollouts },
        "rollouts": forecast.rollouts, "baseline": arm(&forecast.baseline),
        "policies": forecast.arms.iter().map(arm).collect::<Vec<_>>(), "as_baseline": forecast.alike, "no_lesson": forecast.useless,
        "sizes": forecast.sizes.iter().map(sized).collect::<Vec<_>>(), "best_size": forecast.best,
        "not_forecast": forecast.left_out.iter().map(|(name, why)| json!({ "policy": name, "why": why })).collect::<Vec<_>>(),
    })
}
