//! Gold answers that the run's grader can't read, found before the run starts.

use allot_error::{Error, Result};
use allot_judges::config::{AnyGrader, RewardConfig, Unreadable};
use allot_tasks::Problem;

use super::{counted, examples, named};

/// Looks at all gold answers. One that can't be read is told of and passed over; a problem that has no other is
/// refused or left out, as the config says. Judges that are processes read for themselves.
pub fn readable(problems: &mut Vec<Problem>, reward: &RewardConfig, notes: &mut Vec<String>) -> Result<()> {
    let grader = reward.grader;
    let quoted = |p: &Problem| {
        let gold = p.gold.iter().find(|gold| !grader.reads(gold)).map(String::as_str).unwrap_or_default();
        let start: String = gold.chars().take(40).collect();
        format!("{} ({start:?})", named(p))
    };
    let reads = |p: &Problem| p.gold.iter().any(|gold| grader.reads(gold));
    let (name, all) = (grader.name(), std::mem::take(problems));
    let (kept, lost): (Vec<Problem>, Vec<Problem>) = all.into_iter().partition(reads);
    let mixed = kept.iter().filter(|p| p.gold.len() > 1 && !p.gold.iter().all(|gold| grader.reads(gold)));
    let mixed: Vec<&Problem> = mixed.collect();
    if !mixed.is_empty() {
        let n: usize = mixed.iter().map(|p| unreadable(grader, p)).sum();
        notes.push(format!(
            "{} can't be read by grader `{name}`, and others of the same problems count: {}",
            counted(n, "gold answer"),
            examples(mixed.iter().map(|p| quoted(p)))
        ));
    }
    if !lost.is_empty() {
        let have = if lost.len() == 1 { "has" } else { "have" };
        let what =
            format!("{} {have} no gold answer that grader `{name}` can read", counted(lost.len(), "problem"));
        let which = examples(lost.iter().map(quoted));
        match reward.unreadable {
            Unreadable::Refuse => {
                let hint = "mend these rows, take another grader, or leave them out by `reward.unreadable = \
                            \"leave-out\"`";
                return Err(Error::new(format!("{what}: {which}")).hint(hint));
            }
            Unreadable::LeaveOut => notes.push(format!("{what}, left out: {which}")),
        }
    }
    *problems = kept;
    Ok(())
}

fn unreadable(grader: AnyGrader, problem: &Problem) -> usize {
    problem.gold.iter().filter(|gold| !grader.reads(gold)).count()
}
