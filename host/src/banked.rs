//! A simulated run on a bank of rollouts, and what such a run can't show.

use std::path::Path;

use allot_allocation::{Column, LENGTH};
use allot_bank::{Bank, Drawn, Draws, Tally};
use allot_base::{Error, Result, count};
use allot_config::simulate::SimulateConfig;
use allot_engine::Sample;
use allot_judges::{Reward, Verdict};
use allot_record::End;
use serde_json::{Value, json};

use crate::simulation::Simulated;
use crate::summary::{Row, Totals, percent};

/// A reward with the verdicts from when the bank's rollouts were sampled.
#[derive(Clone, Copy, Debug)]
pub struct AsBefore;

impl Reward<Drawn> for AsBefore {
    async fn score(&mut self, samples: &[(usize, &Sample<Drawn>)]) -> Result<Vec<Verdict>> {
        let verdict = |(_, sample): &(usize, &Sample<Drawn>)| {
            Verdict::plain(sample.answer.reward, sample.answer.correct)
        };
        Ok(samples.iter().map(verdict).collect())
    }
}

/// The percentage of modelled rollouts above which a note recommends a larger bank.
const MODELLED: f64 = 20.0;

impl Simulated for Draws {
    type Judge = AsBefore;

    fn open(config: &SimulateConfig) -> Result<Self> {
        let Some(wanted) = &config.bank else { return Err(Error::new("the config has no [bank]")) };
        let bank = Bank::open(Path::new(&wanted.file))?;
        if let (Some(pinned), Some(sha256)) = (&wanted.sha256, &bank.sha256)
            && pinned != sha256
        {
            let what = format!("the sha256 of `{}` is {sha256}; the config expects {pinned}", wanted.file);
            return Err(Error::new(what).hint("set `bank.sha256` to the new value if you rebuilt the bank"));
        }
        if config.budget.tokens.is_some() && !bank.knows_lengths() {
            let what = format!("`budget.tokens` has no effect: `{}` has no rollout lengths", wanted.file);
            let hint = "set `rollouts`, or make the bank with --characters-per-token";
            return Err(Error::new(what).hint(hint));
        }
        Ok(Self::new(bank, config.run.seed))
    }

    fn judge() -> AsBefore {
        AsBefore
    }

    fn prompt_lengths(&self) -> Vec<u32> {
        self.bank().prompts.iter().map(|prompt| prompt.tokens.unwrap_or(1)).collect()
    }

    fn longest(&self) -> u32 {
        self.bank().longest()
    }

    fn accuracy(&self) -> f64 {
        self.accuracy()
    }

    fn column(&self, name: &str) -> Result<Column> {
        let lengths: Option<Vec<f32>> =
            self.bank().prompts.iter().map(|prompt| prompt.tokens.map(|tokens| tokens as f32)).collect();
        lengths.filter(|_| name == LENGTH).map(|lengths| Column::of(name, lengths)).ok_or_else(|| {
            Error::new(format!("the column `{name}`, which a bank does not have"))
                .hint(format!("use `{LENGTH}`, which a bank has if it knows the lengths of its prompts"))
        })
    }

    fn stamp(&self) -> Option<Value> {
        let (bank, fit) = (self.bank(), self.fit());
        Some(json!({
            "bank": bank.sha256,
            "prompts": bank.prompts.len(),
            "rollouts": bank.rollouts(),
            "fit": [fit.right, fit.wrong],
        }))
    }

    fn rows(&self, _: &Totals, end: &End) -> Vec<Row> {
        let (tally, sampled) = (self.tally(), end.spent.run_rollouts);
        let of_sampled = |name, n| Row::share(name, n, sampled);
        let each =
            |n: u64| if n == 0 { "–".to_owned() } else { format!("{:.1}", sampled as f64 / n as f64) };
        let error = self.error().map_or_else(|| "–".to_owned(), |error| format!("{error:.3}"));
        vec![
            of_sampled("drawn from the bank", tally.bank),
            of_sampled("  again, by a later visit", tally.again),
            of_sampled("drawn from the fitted model", tally.model),
            Row::number("prompts sampled", self.sampled_prompts() as u64),
            Row::number("  with an advantage at some time", tally.taught.len() as u64),
            Row::number("groups with an advantage", tally.groups),
            Row::text("  rollouts sampled for each", each(tally.groups)),
            Row::text("error of pass rates as sampled", error),
        ]
    }

    fn json(&self, totals: &Totals, _: &End) -> Value {
        let tally = self.tally();
        json!({
            "bank": {
                "drawn": tally.bank, "again": tally.again, "modelled": tally.model, "groups": tally.groups,
                "prompts_sampled": self.sampled_prompts(), "prompts_taught": tally.taught.len(),
                "pass_rate": self.accuracy(), "error": self.error(),
            },
            "not_shown": not_shown(tally, totals),
        })
    }

    /// The accuracy is constant, so it is not shown.
    fn progress(&self, _: f64) -> String {
        String::new()
    }

    fn before(&self) -> Option<String> {
        let (bank, fit) = (self.bank(), self.fit());
        let lengths =
            if bank.knows_lengths() { "" } else { "; a rollout of unknown length counts as one token" };
        Some(format!(
            "a bank of {} with {}, mean pass rate {:.3}; beyond those, pass rates from Beta({:.2}, {:.2}) \
             and the prompt's own rollouts{lengths}",
            count(bank.prompts.len() as u64, "prompt"),
            count(bank.rollouts() as u64, "rollout"),
            self.accuracy(),
            fit.right,
            fit.wrong
        ))
    }

    fn after(&self, totals: &Totals) -> Vec<String> {
        let tally = self.tally();
        let modelled = percent(tally.model, tally.bank + tally.model);
        let more = (modelled > MODELLED).then(|| {
            format!("{modelled:.0} % of the rollouts came from the fitted model; a larger bank needs it less")
        });
        let first = "a bank does not learn: it ranks policies by where rollouts go, not by what a model \
                     learns from them";
        std::iter::once(first.to_owned()).chain(not_shown(tally, totals)).chain(more).collect()
    }
}

/// Returns notes about what this run did whose effect a bank can't show.
fn not_shown(tally: &Tally, totals: &Totals) -> Vec<String> {
    let revisited = tally.revisited.len() as u64;
    let all = [
        (totals.again > 0).then(|| {
            format!("trained on again: {}; replay's effect is not simulated", count(totals.again, "rollout"))
        }),
        tally
            .steered
            .then(|| "the policy chose the optimizer steps; their effect is not simulated".to_owned()),
        (revisited > 0).then(|| {
            format!(
                "sampled at several versions: {}, with the same difficulty each time; model progress is \
                 not simulated",
                count(revisited, "prompt")
            )
        }),
    ];
    all.into_iter().flatten().collect()
}
