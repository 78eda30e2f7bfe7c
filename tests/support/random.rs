//! Generates random numbers. The same seed gives the same numbers on every machine.

pub struct Random(fastrand::Rng);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Returns a number whose length is random: 1 bit is as likely as 63 bits.
    pub fn of_any_length(&mut self) -> i64 {
        self.0.i64(0..) >> self.below(63)
    }
}
