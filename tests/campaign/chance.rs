//! Where chance comes from, in cases and in the modules that are made for them.

/// Where chance comes from: a counter, hashed (SplitMix64).
pub struct Chance(pub u64);

impl Chance {
    /// That of a case.
    pub fn of(seed: u64, class: &str, number: u64) -> Self {
        let mut chance = Self(seed);
        for word in class.bytes().map(u64::from).chain([number]) {
            chance.0 = chance.next() ^ word;
        }
        chance
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is at least 1.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// One of these.
    pub fn of_these<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A number from 0 to 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
