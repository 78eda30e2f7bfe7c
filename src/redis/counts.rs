//! Counts of how calls ended since the module was loaded, for `INFO`. They decide nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How a call that got its reply ended.
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

/// The calls of one command.
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

    /// Adds 1. Only the server's one thread counts, so this needs no atomic addition, which would cost more.
    pub fn increment(&self) {
        self.0.store(self.get().wrapping_add(1), Relaxed);
    }
}
