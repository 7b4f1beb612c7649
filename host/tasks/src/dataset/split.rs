//! The two sides of a data set: training and held-out problems.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::question::folded;

/// A side. It depends only on a problem's question and on the share held out: not on a seed, the template,
/// the answer, the row, or other rows. A larger share holds out all problems that a smaller share holds
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// To train on.
    Train,
    /// Never to train on.
    HeldOut,
}

impl Split {
    /// Whether a share can be held out: from 0 to less than 1.
    pub fn possible(held_out: f64) -> bool {
        (0.0..1.0).contains(&held_out)
    }

    /// Returns the side of a question, ignoring its white space and case.
    pub fn of_question(question: &str, held_out: f64) -> Self {
        Self::of(&[&folded(question)], held_out)
    }

    /// Returns the side of this key.
    pub(crate) fn of(key: &[&str], held_out: f64) -> Self {
        // A separate prefix, so that a side does not depend on a problem's id.
        let mut hash = Sha256::new_with_prefix("side");
        for part in key {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let bits = hash.finalize().iter().take(8).fold(0, |bits: u64, byte| (bits << 8) | u64::from(*byte));
        let unit = (bits >> 11) as f64 / (1u64 << 53) as f64;
        if unit < held_out { Self::HeldOut } else { Self::Train }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If these change, problems that were held out in an old run are trained on in a new one.
    #[test]
    fn sides_never_change() {
        let sides: String = (0..20)
            .map(|i| match Split::of(&[&i.to_string()], 0.3) {
                Split::Train => 't',
                Split::HeldOut => 'h',
            })
            .collect();
        assert_eq!(sides, "ththththtttthhhttttt");
    }

    #[test]
    fn a_share_is_held_out() {
        let side = |i: u32, share| Split::of_question(&i.to_string(), share);
        let held = |share| (0..10_000).filter(|i| side(*i, share) == Split::HeldOut).count();
        // The standard deviation of 1,000 is 30.
        assert!((880..1120).contains(&held(0.1)), "{}", held(0.1));
        assert_eq!(held(0.0), 0);
        let nested = (0..1000).all(|i| side(i, 0.1) == Split::Train || side(i, 0.2) == Split::HeldOut);
        assert!(nested);
    }
}
