//! Plans as text, and differences between plans.

use allot_allocation::{Action, Advantage, Enough, Hold, Pick, Plan, PromptId, Request, Start, shown};
use similar::algorithms::{Capture, Compact, Replace, myers};
use similar::{ChangeTag, group_diff_ops};

/// Returns a plan as text, one line per statement.
pub fn text(plan: &Plan) -> String {
    let mut lines = Vec::new();
    match &plan.action {
        Action::Sample(requests) => {
            lines.push(format!("sample {} prompts", requests.len()));
            lines.extend(requests.iter().map(request));
        }
        Action::Train(batch) => {
            lines.push(format!("train on {} groups", batch.picks.len()));
            lines.extend(batch.picks.iter().map(pick));
            lines.extend(batch.hold.iter().map(hold));
        }
    }
    lines.extend(ids("skip", &plan.skip));
    lines.extend(ids("defer", &plan.defer));
    lines.extend(ids("evict", &plan.evict));
    lines.extend(plan.metrics.iter().map(|(name, value)| format!("metric {} = {value}", shown::name(name))));
    lines.push(String::new());
    lines.join("\n")
}

fn request(request: &Request) -> String {
    let until = request.until.map_or_else(String::new, |until| {
        let Enough { correct, wrong, portion } = until;
        format!(", until {correct} are correct and {wrong} wrong, in portions of {portion}")
    });
    let sampling = request.sampling.map_or_else(String::new, |own| {
        let turns = if own.max_turns == 1 { String::new() } else { format!(" in {} turns", own.max_turns) };
        format!(", at temperature {}, at most {} tokens{turns}", own.temperature, own.max_tokens)
    });
    let starts = request.starts.iter().map(|start| match start {
        None => "its beginning".to_owned(),
        Some(Start { rollout, turn }) => format!("turn {turn} of rollout {rollout}"),
    });
    let starts: Vec<String> = starts.collect();
    let from = if starts.is_empty() { String::new() } else { format!(", from {}", starts.join(", ")) };
    format!("  {} rollouts of prompt {}{from}{until}{sampling}", request.count, request.prompt)
}

fn pick(pick: &Pick) -> String {
    let rollouts = match &pick.rollouts {
        None => "all rollouts".to_owned(),
        Some(positions) => format!("rollouts {}", joined(positions)),
    };
    let advantage = match &pick.advantage {
        Advantage::Picked => "baseline: the picked rollouts".to_owned(),
        Advantage::Group => "baseline: the group".to_owned(),
        Advantage::Among(positions) => format!("baseline: {}", joined(positions)),
        Advantage::Given(own) => format!("advantages {}", joined(own)),
        Advantage::ByTurn(own) => {
            let each = own.iter().map(|own| format!("[{}]", joined(own)));
            format!("advantages by turn {}", each.collect::<Vec<_>>().join(" "))
        }
    };
    let weight = if pick.weight == 1.0 { String::new() } else { format!(", weight {}", pick.weight) };
    format!("  {rollouts} of prompt {}, {advantage}{weight}", pick.prompt)
}

fn hold(hold: &Hold) -> String {
    match &hold.rollouts {
        None => format!("hold prompt {}", hold.prompt),
        Some(positions) => format!("hold rollouts {} of prompt {}", joined(positions), hold.prompt),
    }
}

fn ids(verb: &str, ids: &[PromptId]) -> Vec<String> {
    ids.iter().map(|id| format!("{verb} prompt {id}")).collect()
}

fn joined<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Returns whether two plans decide the same. Metrics and states are not part of a decision.
pub fn same_decision(one: &Plan, other: &Plan) -> bool {
    one.action == other.action
        && [&one.skip, &one.defer, &one.evict] == [&other.skip, &other.defer, &other.evict]
}

/// Returns how `new` differs from `old`: changed lines with one line around them, at most `most` lines.
pub fn plans(old: &Plan, new: &Plan, most: usize) -> Vec<String> {
    let (old, new) = (text(old), text(new));
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    // One algorithm, by name: with `TextDiff` all of them are in the program, each several times.
    let mut changes = Compact::new(Replace::new(Capture::new()), &old, &new);
    let Ok(()) = myers::diff(&mut changes, &old, 0..old.len(), &new, 0..new.len());
    let mut lines: Vec<String> = group_diff_ops(changes.into_inner().into_inner().into_ops(), 1)
        .iter()
        .flatten()
        .flat_map(|op| op.iter_changes(&old, &new))
        .map(|change| {
            let sign = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            format!("{sign} {}", change.value().trim_end())
        })
        .collect();
    if lines.len() > most {
        let more = lines.len() - most;
        lines.truncate(most);
        lines.push(format!("… and {more} more lines"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_shows_what_changed_and_what_stands_around_it() {
        let ask = |counts: &[u32]| {
            let request = |(i, count): (usize, &u32)| Request::new(PromptId(i as u32), *count);
            Plan::of(Action::Sample(counts.iter().enumerate().map(request).collect()))
        };
        let lines = plans(&ask(&[8, 8, 8]), &ask(&[8, 8, 4]), 10);
        assert_eq!(
            lines,
            [
                "  ".to_owned() + "  8 rollouts of prompt 1",
                "-   8 rollouts of prompt 2".to_owned(),
                "+   4 rollouts of prompt 2".to_owned()
            ]
        );
        assert_eq!(plans(&ask(&[8]), &ask(&[8]), 10), Vec::<String>::new());
    }
}
