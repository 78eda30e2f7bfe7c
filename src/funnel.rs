//! The rule: a funnel that lets tokens through at a steady rate, decided by the generic cell rate algorithm (GCRA).
//!
//! Think of a funnel that holds `limit` tokens and leaks `count` of them every `period`:
//!
//! * **burst**: what an empty funnel takes at once. `limit` is `max_burst + 1` tokens: the one that every caller
//!   expects to be let through, and `max_burst` more at the same moment.
//! * **rate**: `count` tokens per `period`, the pace at which room comes back. 30 per 60 s makes room for one token
//!   every 2 s, not for 30 at the end of each minute.
//! * **quantity**: the tokens that one call asks for, all or none; 0 asks how full the funnel is, and a negative
//!   quantity gives tokens back.
//! * **remaining**: the most tokens that a next call, right now, would be allowed.
//! * **retry_after**: how long a limited caller has to wait until the same call is allowed, if nobody else takes tokens.
//! * **reset_after**: how long until the funnel is empty, so that the full burst is there again.
//!
//! The whole state is one moment, the theoretical arrival time (TAT): when the funnel will be empty again. A call of
//! `quantity` tokens moves it by the time they take to leak, the `increment`, and is allowed if that leaves it no
//! further ahead than a full funnel takes to leak, the `tolerance`:
//!
//! ```text
//!         |<---------- tolerance --------->|
//!   ------+------------+-------------------+-------> time
//!      allow at       now               new TAT
//!                      |<-- reset_after -->|
//!
//!   a call is allowed if its "allow at" is not after now; if it is, the time between them is retry_after
//! ```
//!
//! Everything is whole nanoseconds, multiplied in 64 bits where the product fits, as it nearly always does, and in 128
//! where it does not. How long a number of tokens takes to leak is rounded down, once per call, so that a call's
//! rounding is under one nanosecond and in the caller's favour.
//!
//! The GCRA is from ITU-T I.371 (and the ATM Forum's traffic management specification), there "virtual scheduling".

use std::num::NonZero;

use crate::error::Error;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

/// The last moment that can be stored: 2^63 - 1 ns after the epoch, in the year 2262.
const LAST: u64 = i64::MAX.cast_unsigned();

/// A span of time, or a moment as the span since the Unix epoch, in whole nanoseconds: 0 to 2^63 - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl Nanos {
    pub const PER_MILLISECOND: NonZero<u64> = NonZero::new(1_000_000).unwrap();
    pub const PER_SECOND: NonZero<u64> = NonZero::new(1_000_000_000).unwrap();

    /// This span in a coarser unit, rounded up: who waits that long has waited long enough.
    pub fn round_up(self, per_unit: NonZero<u64>) -> u64 {
        // Two spans of 63 bits add up in 64.
        self.0.wrapping_add(per_unit.get().wrapping_sub(1)) / per_unit
    }
}

/// A funnel at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Funnel {
    /// The moment, since the epoch.
    now: Nanos,
    /// Tokens that it holds: 1 to 2^63 - 1.
    limit: u64,
    /// Tokens that it leaks every `period`, at most one a nanosecond.
    count: NonZero<u64>,
    /// In nanoseconds; any number of seconds in 63 bits fits.
    period: NonZero<u128>,
    /// How long it takes to leak when full; `now + tolerance` is not after `LAST`.
    tolerance: Nanos,
}

/// What a call is told, and what it leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The call may not go ahead and has taken nothing.
    pub limited: bool,
    /// Tokens that the funnel holds: `max_burst + 1`.
    pub limit: u64,
    /// Tokens that a next call would be allowed now: 0 to `limit`.
    pub remaining: u64,
    /// How long to wait until this call is allowed; none if it was, or if it asks for more than `limit` and never will be.
    pub retry_after: Option<Nanos>,
    /// How long until the funnel is empty.
    pub reset_after: Nanos,
    /// What becomes of the stored state.
    pub change: Change,
}

/// What a call does to the stored state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Nothing,
    /// This is the new TAT.
    Store(Nanos),
    /// The funnel is empty again, which needs no state.
    Delete,
}

impl Funnel {
    /// A funnel that holds `max_burst + 1` tokens and leaks `count` of them every `period` units of time, as it is
    /// at `now`.
    ///
    /// Errors: `TooFast` if that is more than one token per nanosecond; `TooLarge` if `max_burst + 1` does not fit in
    /// 63 bits, or if a funnel filled now would leak beyond the year 2262.
    pub fn new(
        now: Nanos,
        max_burst: u64,
        count: NonZero<u64>,
        period: NonZero<u64>,
        nanos_per_unit: NonZero<u64>,
    ) -> Result<Self, Error> {
        let period = NonZero::<u128>::from(period).checked_mul(nanos_per_unit.into()).ok_or(Error::TooLarge)?;
        if u128::from(count.get()) > period.get() {
            return Err(Error::TooFast);
        }
        let limit = max_burst.checked_add(1).ok_or(Error::TooLarge)?;
        // No less than `limit`, at a token per nanosecond or slower: so that fits in 63 bits where this does.
        let tolerance = time_to_leak(limit, count, period);
        if now.0.saturating_add(tolerance.0) > LAST {
            return Err(Error::TooLarge);
        }
        Ok(Self { now, limit, count, period, tolerance })
    }

    /// Decides a call of `quantity` tokens on the stored `tat`; none stands for an empty funnel.
    #[inline(always)]
    pub fn decide(&self, tat: Option<Nanos>, quantity: i64) -> Verdict {
        let backlog = Nanos(tat.map_or(0, |tat| tat.0.saturating_sub(self.now.0)));
        match u64::try_from(quantity) {
            Ok(quantity) => self.take(backlog, quantity),
            Err(_) => self.give_back(tat.is_some(), backlog, quantity.unsigned_abs()),
        }
    }

    #[inline(always)]
    fn take(&self, backlog: Nanos, quantity: u64) -> Verdict {
        // More than the funnel holds can never pass, however long the caller waits.
        if quantity > self.limit {
            return self.limited(backlog, self.remaining(backlog), None);
        }
        let increment = time_to_leak(quantity, self.count, self.period);
        let room = self.tolerance.0.saturating_sub(increment.0);
        let wait = backlog.0.saturating_sub(room);
        if wait > 0 {
            // Where there is no room for one, none remain.
            let remaining = if quantity == 1 { 0 } else { self.remaining(backlog) };
            return self.limited(backlog, remaining, Some(Nanos(wait)));
        }

        let reset_after = Nanos(backlog.0.saturating_add(increment.0));
        Verdict {
            limited: false,
            limit: self.limit,
            remaining: self.remaining(reset_after),
            retry_after: None,
            reset_after,
            change: if increment.0 > 0 { self.store(reset_after) } else { Change::Nothing },
        }
    }

    /// Never limited, and never more than an empty funnel. What was taken by one call and given back by another leaves
    /// the TAT as it was, as both are rounded alike.
    #[cold]
    fn give_back(&self, stored: bool, backlog: Nanos, quantity: u64) -> Verdict {
        let decrement = time_to_leak(quantity, self.count, self.period);
        let reset_after = Nanos(backlog.0.saturating_sub(decrement.0));
        Verdict {
            limited: false,
            limit: self.limit,
            remaining: self.remaining(reset_after),
            retry_after: None,
            reset_after,
            change: match (stored, reset_after) {
                (false, _) => Change::Nothing,
                (true, Nanos(0)) => Change::Delete,
                (true, _) => self.store(reset_after),
            },
        }
    }

    /// The state of a funnel that will be empty in this time.
    #[inline(always)]
    fn store(&self, reset_after: Nanos) -> Change {
        Change::Store(Nanos(self.now.0.saturating_add(reset_after.0)))
    }

    #[inline(always)]
    fn limited(&self, backlog: Nanos, remaining: u64, retry_after: Option<Nanos>) -> Verdict {
        Verdict {
            limited: true,
            limit: self.limit,
            remaining,
            retry_after,
            reset_after: backlog,
            change: Change::Nothing,
        }
    }

    /// The most tokens whose increment fits between a backlog and the tolerance.
    ///
    /// `floor(r * period / count) <= room` is `r * period < (room + 1) * count` in whole numbers, so the largest such
    /// `r` is `((room + 1) * count - 1) / period`, rounded down.
    #[inline(always)]
    fn remaining(&self, backlog: Nanos) -> u64 {
        let Some(room) = self.tolerance.0.checked_sub(backlog.0) else {
            return 0;
        };
        let (room, count) = (room.saturating_add(1), self.count.get());
        let short = NonZero::<u64>::try_from(self.period).ok();
        let tokens = match short.zip(room.checked_mul(count)) {
            Some((period, product)) => product.saturating_sub(1) / period,
            None => {
                let product = u128::from(room).saturating_mul(count.into());
                u64::try_from(product.saturating_sub(1) / self.period).unwrap_or(u64::MAX)
            }
        };
        tokens.min(self.limit)
    }
}

/// `floor(tokens * period / count)`, or 2^64 - 1 if it is more.
#[inline(always)]
fn time_to_leak(tokens: u64, count: NonZero<u64>, period: NonZero<u128>) -> Nanos {
    let short = u64::try_from(period.get()).ok();
    match short.and_then(|period| tokens.checked_mul(period)) {
        Some(product) => Nanos(product / count),
        None => {
            // A product beyond 128 bits is, divided by a count of 63 bits, a span beyond 64 bits.
            let product = u128::from(tokens).saturating_mul(period.get());
            let span = product / NonZero::<u128>::from(count);
            Nanos(u64::try_from(span).unwrap_or(u64::MAX))
        }
    }
}
