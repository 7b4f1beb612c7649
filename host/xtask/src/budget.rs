//! What a first build may cost: CPU seconds of each crate, written down once and held against what a later build took.
//!
//! Machines differ in speed, so a build is held against the budget crate by crate: the median of their ratios, by seconds, is
//! how much slower the machine is, and what is left is growth. Crates that were compiled before cost nothing and are left out.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use allot_base::{Error, Result};

use crate::files::write;

/// Where the budget is: lines of a crate and its seconds.
const BUDGET: &str = ".ci/build-budget.tsv";

/// How much more than its budget a build may cost.
const MOST: f64 = 1.2;

/// Crates below it are too short to be measured.
const LEAST: f64 = 0.5;

/// Crates that are printed of a new budget.
const SHOWN: usize = 12;

/// Seconds of CPU by crate.
type Costs = BTreeMap<String, f64>;

/// Holds what a build cost against the budget.
///
/// # Errors
///
/// It cost too much; there is no budget, or nothing was compiled that could be held against it.
pub fn check(root: &Path, costs: &Path) -> Result<()> {
    let (budget, costs) = (read(&root.join(BUDGET))?, read(costs)?);
    let Some(held) = Held::of(&budget, &costs) else {
        println!("hardly anything was compiled: there is nothing to hold against the budget");
        return Ok(());
    };
    println!(
        "build: {:.0} s of CPU on a machine that takes {:.2} times as long as the budget's; the budget of what was compiled \
         is {:.0} s; {:.2} of it",
        held.took,
        held.slower,
        held.budget,
        held.share()
    );
    if held.share() <= MOST {
        return Ok(());
    }
    let mut grown: Vec<_> = costs
        .iter()
        .map(|(name, took)| (took / held.slower - budget.get(name).unwrap_or(&0.0), name))
        .collect();
    grown.sort_by(|a, b| b.0.total_cmp(&a.0));
    let grown: Vec<_> = grown.iter().take(8).map(|(more, name)| format!("{name} by {more:.0} s")).collect();
    let what =
        format!("a first build costs {:.2} times its budget; grown: {}", held.share(), grown.join(", "));
    Err(Error::new(what)
        .hint(format!("leave out what is not needed, or write the new budget to {BUDGET} and say why")))
}

/// Makes these costs the budget, and prints the most expensive crates.
///
/// # Errors
///
/// They cannot be read, or it cannot be written.
pub fn adopt(root: &Path, costs: &Path) -> Result<()> {
    let costs = read(costs)?;
    let mut sorted: Vec<_> = costs.iter().collect();
    sorted.sort_by(|a, b| b.1.total_cmp(a.1).then(a.0.cmp(b.0)));
    let mut lines = String::new();
    for (name, seconds) in &sorted {
        let _ = writeln!(lines, "{name}	{seconds:.1}");
    }
    write(&root.join(BUDGET), lines)?;
    println!("| Crate | CPU seconds |\n|---|---|");
    for (name, seconds) in sorted.iter().take(SHOWN) {
        println!("| {name} | {seconds:.0} |");
    }
    println!("| all | {:.0} |", costs.values().sum::<f64>());
    Ok(())
}

/// A build beside its budget.
#[derive(Debug)]
struct Held {
    /// Seconds that it took.
    took: f64,
    /// How much slower its machine is.
    slower: f64,
    /// The budget of the crates that were compiled.
    budget: f64,
}

impl Held {
    /// None where less than a third of the budget was compiled.
    fn of(budget: &Costs, costs: &Costs) -> Option<Self> {
        let known = |(name, took): (&String, &f64)| budget.get(name).map(|budget| (*took, *budget));
        let both: Vec<(f64, f64)> = costs.iter().filter_map(known).collect();
        let mut ratios: Vec<(f64, f64)> = both
            .iter()
            .filter(|(_, budget)| *budget >= LEAST)
            .map(|(took, budget)| (took / budget, *budget))
            .collect();
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        // The median by seconds: half of the budget is of crates that took less of theirs.
        let half = ratios.iter().map(|(_, budget)| budget).sum::<f64>() / 2.0;
        let mut below = 0.0;
        let middle = ratios.iter().find(|(_, budget)| {
            below += budget;
            below >= half
        });
        let slower = middle?.0;
        let of_both: f64 = both.iter().map(|(_, budget)| budget).sum();
        let enough = 3.0 * of_both >= budget.values().sum();
        enough.then(|| Self { took: costs.values().sum(), slower, budget: of_both })
    }

    /// What it cost, of its budget, on the budget's machine.
    fn share(&self) -> f64 {
        self.took / self.slower / self.budget
    }
}

/// Reads lines of a crate and seconds; of a crate with several lines, their sum.
fn read(path: &Path) -> Result<Costs> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::file("read", path, &e))?;
    let mut costs = Costs::new();
    for (number, line) in text.lines().enumerate() {
        let pair =
            line.split_once('\t').and_then(|(name, seconds)| Some((name, seconds.parse::<f64>().ok()?)));
        let (name, seconds) = pair.ok_or_else(|| {
            Error::new(format!("`{}` line {} is not a crate and its seconds", path.display(), number + 1))
        })?;
        *costs.entry(name.to_owned()).or_default() += seconds;
    }
    Ok(costs)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{Costs, Held, MOST};

    fn costs(all: &[(&str, f64)]) -> Costs {
        all.iter().map(|(name, seconds)| ((*name).to_owned(), *seconds)).collect()
    }

    #[test]
    fn a_slower_machine_is_no_growth_and_a_new_crate_is() {
        let budget = costs(&[("a", 10.0), ("b", 20.0), ("c", 30.0)]);
        let slow = Held::of(&budget, &costs(&[("a", 20.0), ("b", 40.0), ("c", 60.0)])).unwrap();
        assert!((slow.share() - 1.0).abs() < 1e-9 && (slow.slower - 2.0).abs() < 1e-9, "{slow:?}");
        let grown = costs(&[("a", 20.0), ("b", 40.0), ("c", 60.0), ("d", 26.0)]);
        assert!(Held::of(&budget, &grown).unwrap().share() > MOST);
        let one_grew = costs(&[("a", 10.0), ("b", 20.0), ("c", 43.0)]);
        assert!(Held::of(&budget, &one_grew).unwrap().share() > MOST);
    }

    #[test]
    fn what_was_compiled_before_is_left_out_of_its_budget() {
        let budget = costs(&[("a", 10.0), ("b", 20.0), ("c", 30.0)]);
        let part = Held::of(&budget, &costs(&[("c", 30.0)])).unwrap();
        assert!((part.share() - 1.0).abs() < 1e-9, "{part:?}");
        assert!(Held::of(&budget, &costs(&[("a", 99.0)])).is_none());
        assert!(Held::of(&budget, &Costs::new()).is_none());
    }
}
