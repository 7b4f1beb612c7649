//! Spaces: all combinations of choices from which a problem is drawn.
//!
//! A small space is enumerated in random order, so that no combination repeats and its end is known. From a
//! large space, combinations are drawn at random; the caller detects repetitions.

use allot_allocation::seed::Stream;

/// Largest space that is enumerated.
const SMALL: usize = 100_000;

/// All combinations of choices with these radices.
pub(super) struct Space {
    radices: Vec<usize>,
    /// Combinations left in a small space, as numbers in mixed radix.
    left: Option<Vec<u32>>,
}

impl Space {
    pub(super) fn new(radices: Vec<usize>, stream: &mut Stream) -> Self {
        let size = radices.iter().try_fold(1, |size: usize, radix| size.checked_mul(*radix));
        let left = size.filter(|size| *size <= SMALL).map(|size| {
            let mut order: Vec<u32> = (0..size as u32).collect();
            // Fisher–Yates shuffle, from the back.
            for at in (1..size).rev() {
                order.swap(at, stream.below(at + 1));
            }
            order
        });
        Self { radices, left }
    }

    /// Whether the space is too large to enumerate.
    pub(super) fn is_endless(&self) -> bool {
        self.left.is_none()
    }

    /// Returns the next choices, each below its radix; `None` once all were returned.
    pub(super) fn next(&mut self, stream: &mut Stream) -> Option<Vec<usize>> {
        let Some(left) = &mut self.left else {
            return Some(self.radices.iter().map(|radix| stream.below(*radix)).collect());
        };
        let mut number = left.pop()? as usize;
        let choose = |radix: &usize| {
            let choice = number % radix;
            number /= radix;
            choice
        };
        Some(self.radices.iter().map(choose).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_space_is_walked_through_once() {
        let mut stream = Stream::new(1);
        let mut space = Space::new(vec![3, 1, 4, 2], &mut stream);
        let mut all = Vec::new();
        while let Some(choices) = space.next(&mut stream) {
            all.push(choices);
        }
        assert_ne!(all[0], [0, 0, 0, 0], "in a random order");
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 24);
        assert!(all.iter().all(|c| c[0] < 3 && c[1] < 1 && c[2] < 4 && c[3] < 2));
    }

    #[test]
    fn a_large_space_has_no_end() {
        let mut stream = Stream::new(1);
        let mut space = Space::new(vec![1_000_000_000; 100], &mut stream);
        assert!(space.is_endless());
        assert_ne!(space.next(&mut stream), space.next(&mut stream));
    }
}
