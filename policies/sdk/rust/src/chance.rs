//! Chance: a small generator grown from `view.seed`, a policy's only source of it.

/// SplitMix64 (Steele, Lea, Flood 2014). The same seed gives the same draws on every machine.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// A generator grown from the seed of a view.
    pub fn new(seed: u32) -> Self {
        Self(u64::from(seed))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1), with 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in 0..n. `n` must not be 0.
    pub fn below(&mut self, n: usize) -> usize {
        debug_assert!(n > 0, "there is nothing to draw from");
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// `k` of `0..n` without replacement, in the order drawn; all of them, shuffled, if `k >= n`.
    pub fn draw(&mut self, n: usize, k: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..n).collect();
        let k = k.min(n);
        for i in 0..k {
            let j = i + self.below(n - i);
            all.swap(i, j);
        }
        all.truncate(k);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::Chance;

    #[test]
    fn known_values() {
        // The first two outputs of SplitMix64 from seed 0.
        let mut chance = Chance::new(0);
        assert_eq!((chance.bits(), chance.bits()), (0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4));
    }

    #[test]
    fn draws_are_distinct_and_even() {
        let mut counts = [0u32; 5];
        for seed in 0..5000 {
            let drawn = Chance::new(seed).draw(5, 2);
            assert_ne!(drawn[0], drawn[1]);
            drawn.iter().for_each(|&i| counts[i] += 1);
        }
        // 2000 each in expectation, with a standard deviation of 35.
        assert!(counts.iter().all(|c| c.abs_diff(2000) < 175), "{counts:?}");
    }
}
