//! `allot bank`: collects rollouts of any trainer by prompt, for `allot simulate --bank`.

use std::path::PathBuf;

use allot_bank::{Left, Profile, Told};
use allot_base::{Exit, Result, count};
use allot_outputs::banked::{self, BankedRow};
use clap::Args;
use serde_json::{Value, json};

use super::logs::{self, Logs};
use crate::screen::Screen;

/// Make a bank for `allot simulate --bank` from rollouts of runs, other trainers or evaluations
#[derive(Debug, Args)]
pub struct BankFiles {
    #[command(flatten)]
    logs: Logs,
    /// Write the bank to this file, replacing what is there
    #[arg(long, value_name = "FILE", default_value = "bank.parquet")]
    out: PathBuf,
    /// Print the bank's contents as JSON
    #[arg(long)]
    json: bool,
}

/// Makes the bank.
pub fn run(command: &BankFiles, screen: &mut Screen<'_>) -> Result<Exit> {
    let files = command.logs.files()?;
    logs::spared(&files, &command.out, "--out")?;
    let (bank, told) = command.logs.read(&files, screen)?;
    let rows: Vec<BankedRow<'_>> =
        (0..).zip(&bank.prompts).flat_map(|(i, prompt)| rows_of(i, prompt)).collect();
    banked::write(&command.out, &rows)?;
    let profile = Profile::of(&bank);
    if command.json {
        screen.say(json(&profile, &told));
    } else {
        show(&profile, screen);
    }
    for words in notes(&profile, &told) {
        screen.tell(words);
    }
    screen.tell(format_args!("the bank is in {}", command.out.display()));
    Ok(Exit::Good)
}

fn rows_of(i: u32, prompt: &allot_bank::Prompt) -> impl Iterator<Item = BankedRow<'_>> {
    prompt.rollouts.iter().map(move |rollout| BankedRow {
        prompt: i,
        problem: &prompt.name,
        prompt_tokens: prompt.tokens,
        version: rollout.version,
        tokens: rollout.tokens,
        truncated: rollout.truncated,
        reward: rollout.reward,
        correct: rollout.correct,
    })
}

fn show(profile: &Profile, screen: &mut Screen<'_>) {
    let [fewest, median, most] = profile.each;
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let length = |length: Option<u32>| length.map_or("unknown".to_owned(), |tokens| tokens.to_string());
    let [right, wrong] = profile.lengths;
    let (first, last) = (profile.versions.start(), profile.versions.end());
    for (name, text) in [
        ("prompts", profile.prompts.to_string()),
        ("rollouts", profile.rollouts.to_string()),
        ("  of a prompt", format!("{median} in the middle, from {fewest} to {most}")),
        ("mean pass rate", format!("{:.3}", profile.pass_rate)),
        ("  prompts never right", percent(profile.never)),
        ("  prompts always right", percent(profile.always)),
        ("  fitted", format!("Beta({:.2}, {:.2})", profile.fit.right, profile.fit.wrong)),
        ("median length, right", length(right)),
        ("  wrong", length(wrong)),
        ("versions", if first == last { first.to_string() } else { format!("{first} to {last}") }),
    ] {
        screen.say(format_args!("  {name:<24}{text}"));
    }
}

/// Returns notes for the user: what was left out, what was inferred, and what the bank can't know.
pub fn notes(profile: &Profile, told: &Told) -> Vec<String> {
    let mut layouts = told.layouts.clone();
    layouts.dedup();
    let mut notes = vec![format!("read as: {}", layouts.join(", "))];
    let left = |(left, rows): (&Left, &u64)| format!("{} left out: {}", count(*rows, "row"), left.words());
    notes.extend(told.left.iter().map(left));
    if told.pass_rates > 0 {
        let n = count(told.pass_rates, "row");
        notes.push(format!("a prompt's pass rate in place of rollouts: {n}; rollouts are made to fit"));
    }
    if told.no_count > 0 {
        let n = count(told.no_count, "row");
        notes.push(format!(
            "unknown: of how many rollouts {n} are; 8 are assumed (--column rollouts=NAME says)"
        ));
    }
    for (rows, what) in [
        (told.by_reward, "an answer counts as right if its reward is at least --right"),
        (told.by_characters, "lengths are estimated from characters"),
        (
            told.prompts_by_characters,
            "lengths of prompts are estimated from characters, without a chat template",
        ),
    ] {
        if rows > 0 {
            notes.push(format!("{what}: {}", count(rows, "rollout")));
        }
    }
    if profile.no_length > 0 {
        let n = count(profile.no_length as u64, "rollout");
        notes.push(format!("unknown: the length of {n}; each counts as one token"));
    }
    if profile.no_prompt_length > 0 {
        let n = count(profile.no_prompt_length as u64, "prompt");
        notes.push(format!("unknown: the length of {n}; each counts as one token"));
    }
    if told.assumed_prompt_lengths > 0 {
        let n = count(told.assumed_prompt_lengths, "prompt");
        notes.push(format!("lengths of prompts are assumed, as --prompt-tokens says: {n}"));
    }
    if let Some(why) = &told.unread_record {
        notes.push(format!("lengths of prompts are not taken from a run's record: {why}"));
    }
    if told.no_version > 0 {
        let n = count(told.no_version, "rollout");
        notes.push(format!("unknown: the model's version at {n}; assumed to be 0"));
    } else if profile.versions.start() < profile.versions.end() {
        notes.push(
            "the rollouts are from several versions of the model; set --versions FIRST..LAST to keep some"
                .to_owned(),
        );
    }
    if profile.graded {
        notes.push(
            "rewards are not only right and wrong; the fitted model draws from the prompt's own rewards"
                .to_owned(),
        );
    }
    notes
}

fn json(profile: &Profile, told: &Told) -> Value {
    let left: serde_json::Map<String, Value> =
        told.left.iter().map(|(left, rows)| (left.words().to_owned(), (*rows).into())).collect();
    json!({
        "prompts": profile.prompts, "rollouts": profile.rollouts, "rollouts_of_a_prompt": profile.each,
        "pass_rate": profile.pass_rate, "never_right": profile.never, "always_right": profile.always,
        "fit": [profile.fit.right, profile.fit.wrong], "median_tokens_right": profile.lengths[0],
        "median_tokens_wrong": profile.lengths[1], "versions": [profile.versions.start(), profile.versions.end()],
        "unknown_lengths": profile.no_length, "unknown_prompt_lengths": profile.no_prompt_length,
        "assumed_prompt_lengths": told.assumed_prompt_lengths, "unread_record": told.unread_record,
        "unknown_versions": told.no_version, "right_by_reward": told.by_reward,
        "lengths_by_characters": told.by_characters, "layouts": told.layouts, "left_out": left,
    })
}
