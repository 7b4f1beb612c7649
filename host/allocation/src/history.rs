//! The host's memory of each prompt's past visits, whether or not the prompt is on offer.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Past, PromptId, Visit};

/// The last visit of each prompt, with totals over all its visits. Each view carries a clone, so that a
/// policy can query prompts that the view does not show. Cloning is cheap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    past: Arc<BTreeMap<PromptId, Past>>,
}

impl History {
    /// Records the visits of a step.
    pub fn remember(&mut self, step: u32, visits: &[Visit]) {
        if visits.is_empty() {
            return;
        }
        let past = Arc::make_mut(&mut self.past);
        for visit in visits {
            let old = past.get(&visit.prompt).copied();
            past.insert(visit.prompt, visit.past(step, old));
        }
    }

    /// Returns a prompt's last visit.
    pub fn of(&self, prompt: PromptId) -> Option<Past> {
        self.past.get(&prompt).copied()
    }

    /// Returns `number` of each last visit of the prompts `first..end`, or the default if never visited.
    pub fn between<T: Clone + Default>(
        &self,
        first: PromptId,
        end: PromptId,
        number: impl Fn(&Past) -> T,
    ) -> Vec<T> {
        let mut numbers = vec![T::default(); end.0.saturating_sub(first.0) as usize];
        if !numbers.is_empty() {
            for (prompt, past) in self.past.range(first..end) {
                numbers[(prompt.0 - first.0) as usize] = number(past);
            }
        }
        numbers
    }
}

impl Serialize for History {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.past.as_ref().serialize(to)
    }
}

impl<'de> Deserialize<'de> for History {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(from).map(|past| Self { past: Arc::new(past) })
    }
}

impl FromIterator<(PromptId, Past)> for History {
    fn from_iter<I: IntoIterator<Item = (PromptId, Past)>>(visits: I) -> Self {
        Self { past: Arc::new(visits.into_iter().collect()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_prompts_come_in_order_and_0_for_those_never_visited() {
        let visit = |prompt, rollouts| Visit {
            prompt: PromptId(prompt),
            rollouts,
            correct: 1,
            mean: 0.5,
            deviation: 0.0,
            tokens: 1.0,
            flat: false,
        };
        let mut history = History::default();
        let before = history.clone();
        history.remember(3, &[visit(1, 8), visit(4, 2)]);
        history.remember(5, &[visit(1, 4)]);
        assert_eq!(before, History::default(), "a copy stays as it was");
        let all = history.between(PromptId(0), PromptId(6), |past| past.total_rollouts);
        assert_eq!(all, [0, 12, 0, 0, 2, 0]);
        assert_eq!(history.between(PromptId(4), PromptId(5), |past| past.step), [3]);
        assert!(history.between(PromptId(5), PromptId(4), |past| past.step).is_empty());
        assert_eq!(history.of(PromptId(1)).map(|past| past.visits), Some(2));
        assert_eq!(history.of(PromptId(0)), None);
    }
}
