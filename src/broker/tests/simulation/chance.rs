//! The driver's random numbers, separate from those of the nodes: `SplitMix64`.

pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        // Drawn once, since the states of a generator's sequence are multiples of one constant: seeds that
        // were multiples too would share most of their numbers.
        Self(Self(seed).next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let drawn = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        drawn ^ (drawn >> 31)
    }

    /// A random number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        *all.get(self.below(all.len() as u64) as usize).unwrap()
    }

    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }
}
