//! What a prompt's next rollout is worth, for policies that give rollouts one by one to whoever gains most.

use std::cmp::Ordering;

/// What the next rollout of a prompt would add. The largest gain comes first out of a
/// [`BinaryHeap`](std::collections::BinaryHeap), of equal ones that of the first prompt.
#[derive(Clone, Copy, Debug)]
pub struct Bid {
    /// What it adds.
    pub gain: f64,
    /// The prompt's place in a list of the policy's.
    pub prompt: usize,
}

impl Ord for Bid {
    fn cmp(&self, other: &Self) -> Ordering {
        self.gain.total_cmp(&other.gain).then(other.prompt.cmp(&self.prompt))
    }
}

impl PartialOrd for Bid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Bid {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Bid {}
