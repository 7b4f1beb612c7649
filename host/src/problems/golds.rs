//! Gold answers that the run's graders can't read, found before the run starts.

use allot_base::{Error, Result};
use allot_judges::grader::reads;
use allot_settings::AnyGrader;
use allot_settings::reward::{RewardConfig, Unreadable};
use allot_tasks::Problem;

use super::{counted, examples, named};

/// Checks the gold answers of all problems with each of their graders. Unreadable gold answers are reported
/// and ignored. If a problem has no other, the problem is rejected or dropped, as configured. Graders that
/// are processes read gold answers themselves.
pub fn readable(problems: &mut Vec<Problem>, reward: &RewardConfig, notes: &mut Vec<String>) -> Result<()> {
    for one in reward.each() {
        let Some(grader) = one.grader else { continue };
        // The setting of all graders applies unless this grader has its own.
        let unreadable =
            if one.unreadable == Unreadable::default() { reward.unreadable } else { one.unreadable };
        by_one(problems, (one, grader), unreadable, notes)?;
    }
    Ok(())
}

fn by_one(
    problems: &mut Vec<Problem>,
    (one, grader): (&RewardConfig, AnyGrader),
    unreadable: Unreadable,
    notes: &mut Vec<String>,
) -> Result<()> {
    let quoted = |p: &Problem| {
        let gold = p.gold.iter().find(|gold| !reads(grader, gold)).map(String::as_str).unwrap_or_default();
        let start: String = gold.chars().take(40).collect();
        format!("{} ({start:?})", named(p))
    };
    let has_gold = |p: &Problem| !one.judges(&p.source) || p.gold.iter().any(|gold| reads(grader, gold));
    let (name, all) = (grader.name(), std::mem::take(problems));
    let (kept, lost): (Vec<Problem>, Vec<Problem>) = all.into_iter().partition(has_gold);
    let own = kept.iter().filter(|p| one.judges(&p.source));
    let mixed = own.filter(|p| p.gold.len() > 1 && !p.gold.iter().all(|gold| reads(grader, gold)));
    let mixed: Vec<&Problem> = mixed.collect();
    if !mixed.is_empty() {
        let unread = |p: &&Problem| p.gold.iter().filter(|gold| !reads(grader, gold)).count();
        let n: usize = mixed.iter().map(unread).sum();
        notes.push(format!(
            "{} can't be read by grader `{name}`; other gold answers of the same problems still count: {}",
            counted(n, "gold answer"),
            examples(mixed.iter().map(|p| quoted(p)))
        ));
    }
    if !lost.is_empty() {
        let have = if lost.len() == 1 { "has" } else { "have" };
        let what =
            format!("{} {have} no gold answer that grader `{name}` can read", counted(lost.len(), "problem"));
        let which = examples(lost.iter().map(quoted));
        match unreadable {
            Unreadable::Refuse => {
                let hint = "fix these rows, use another grader, or set `reward.unreadable = \"leave-out\"` \
                            to leave them out";
                return Err(Error::new(format!("{what}: {which}")).hint(hint));
            }
            Unreadable::LeaveOut => notes.push(format!("{what}, left out: {which}")),
        }
    }
    *problems = kept;
    Ok(())
}
