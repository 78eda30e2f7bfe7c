//! Counts calls by outcome since the module was loaded, for `INFO`. No decision depends on these counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The outcome of a call that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Allowed,
    Limited,
}

impl Outcome {
    pub fn of(limited: bool) -> Self {
        if limited { Self::Limited } else { Self::Allowed }
    }
}

/// The counts of one command's calls, by outcome.
#[derive(Debug)]
pub struct Counts {
    pub allowed: Counter,
    pub limited: Counter,
    pub errors: Counter,
}

impl Counts {
    pub const fn new() -> Self {
        Self { allowed: Counter::new(), limited: Counter::new(), errors: Counter::new() }
    }
}

#[derive(Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds 1. An atomic addition would cost more, and is not needed because only the server's one thread increments
    /// counters.
    pub fn increment(&self) {
        self.0.store(self.get().wrapping_add(1), Relaxed);
    }
}
