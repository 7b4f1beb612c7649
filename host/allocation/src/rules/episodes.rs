//! Rules about episodes: what a request continues, and advantages by turn.

use super::{LARGEST, Rule};
use crate::{Group, Pick, Request};

/// Checks what a request's rollouts continue. `group` is the prompt's, if it has one.
pub(super) fn check_starts(request: &Request, group: Option<&Group>) -> Result<(), Rule> {
    let Request { prompt, count, starts, .. } = request;
    if starts.is_empty() {
        return Ok(());
    }
    if starts.len() != *count as usize {
        return Err(Rule::StartsCount(*prompt, starts.len(), *count));
    }
    for start in starts.iter().flatten() {
        let len = group.map_or(0, Group::len);
        let group = group.filter(|_| (start.rollout as usize) < len);
        let group = group.ok_or(Rule::NoSuchStart(*prompt, start.rollout, len))?;
        let turns = group.turns.of(start.rollout as usize);
        if start.turn.saturating_add(1) >= turns {
            return Err(Rule::NoTurnAfter(*prompt, start.rollout, start.turn, turns));
        }
    }
    Ok(())
}

/// Checks the advantages by turn of a pick from this group.
pub(super) fn check_by_turn(pick: &Pick, own: &[Vec<f32>], group: &Group) -> Result<(), Rule> {
    let (p, picked) = (pick.prompt, pick.positions(group.len()));
    if own.len() != picked.len() {
        return Err(Rule::GivenCount(p, own.len(), picked.len()));
    }
    for (own, position) in own.iter().zip(picked) {
        let turns = group.turns.of(position);
        if own.len() != turns as usize {
            return Err(Rule::ByTurnCount(p, position, own.len(), turns));
        }
        if let Some(index) = own.iter().position(|a| !(-LARGEST..=LARGEST).contains(a)) {
            return Err(Rule::BadByTurn(p, position, index, own[index]));
        }
    }
    Ok(())
}
