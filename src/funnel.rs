//! The rule: a limiter that gives out tokens at a steady rate, decided by the generic cell rate algorithm (GCRA).
//!
//! A limiter holds up to `limit` tokens, and `count` of them come back every `period`. The picture is a funnel:
//! tokens that are taken fill it, and it drains steadily. Others call it a leaky bucket as a meter, or a token bucket.
//!
//! * **burst**: what a full limiter gives at once. `limit` is `max_burst + 1` tokens: the one that every caller expects
//!   to get, and `max_burst` more at the same moment.
//! * **rate**: `count` tokens per `period`, the pace at which they come back. 30 per 60 s is one token every 2 s, not
//!   30 at the end of each minute.
//! * **quantity**: the tokens that one call asks for. CL.THROTTLE takes all of them or none, and CL.TAKE as many as
//!   there are. CL.CHARGE always takes all of them: if the limiter lacks some, it is then in **debt**, and calls are
//!   limited until the debt is paid. A quantity of 0 takes nothing, and a negative one gives tokens back.
//! * **remaining**: the most tokens that a next call, right now, would be allowed.
//! * **retry_after**: how long a limited caller has to wait until the same call is allowed, if no other caller takes
//!   tokens.
//! * **reset_after**: how long until the limiter is full, so that the whole burst is there again.
//!
//! The whole state is one moment, the theoretical arrival time (TAT): when the limiter will be full again. A call of
//! `quantity` tokens moves it by the time in which that many come back, the `increment`. The call is allowed if that
//! leaves the TAT no further ahead than the time in which all tokens come back, the `tolerance`:
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
//! All times are whole nanoseconds. Products are computed in 64 bits if they fit, which they nearly always do, and in
//! 128 bits if not. The time in which tokens come back is rounded down, once per call, so that a call's rounding is
//! under one nanosecond and in the caller's favour.
//!
//! The GCRA is from ITU-T I.371 and the ATM Forum's traffic management specification. This form of it is called
//! "virtual scheduling" there.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "an operator that could overflow stands behind the check that it cannot; tests and the fuzzer check each"
)]

use std::num::NonZero;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
pub mod model;

/// A moment in nanoseconds since the Unix epoch: 0 to 2^63 - 1, which is in the year 2262.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

/// A span of time in nanoseconds: 0 to 2^64 - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub u64);

/// The unit of a quota's period, and of the spans of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    Milliseconds,
}

/// A quota: `limit` tokens at once, and `count` more every `period`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// `max_burst + 1`; at 0, every call that asks for a token is limited.
    pub limit: u64,
    pub count: NonZero<u64>,
    /// In `unit`s.
    pub period: NonZero<u64>,
    pub unit: Unit,
}

/// A quota at one moment. It tells where a call would move its TAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Funnel {
    now: Moment,
    /// Tokens that the limiter holds: 0 to 2^63 - 1.
    limit: u64,
    /// Tokens that come back every `period`, at most one a nanosecond.
    count: NonZero<u64>,
    /// The period in nanoseconds: a number of 64 bits times a unit of 30 bits.
    period: NonZero<u128>,
    /// The time in which all tokens come back; `now + tolerance` is not after `Moment::LAST`.
    tolerance: Span,
}

/// The way in which a call takes tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// CL.THROTTLE: all tokens that it asks for, or none.
    AllOrNone,
    /// CL.CHARGE: all tokens that it asks for, if necessary into debt.
    InAnyCase,
    /// CL.TAKE: as many tokens as there are, up to the number that it asks for.
    UpTo,
    /// CL.LOOK: no tokens. The call is told how CL.THROTTLE would decide.
    Nothing,
}

/// A quota's part of a call: where the call leaves the TAT, whether there were fewer tokens than it asks for, and the
/// time until they are there or their debt is paid. `None` if no wait is needed, or if none helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub tat: Moment,
    pub limited: bool,
    pub retry_after: Option<Span>,
}

/// The reason why a call cannot be decided. The texts name the arguments of a command.
///
/// It has the size of a word. A smaller error would share a word with a part of the `Ok` value, and the compiler would
/// take that word apart and put it together in each call: 1% of one with two quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u64)]
pub enum Error {
    #[error("count and period allow more than one token per nanosecond")]
    TooFast,
    #[error("max_burst, count and period: the tokens would be back only after the year 2262")]
    TooLarge,
    #[error("quantity: the tokens would be back only after the year 2262")]
    DebtTooLong,
}

impl Moment {
    /// The last moment that a key can hold.
    pub const LAST: Self = Self(i64::MAX.cast_unsigned());

    /// Makes the moment this many nanoseconds after the epoch; `None` if it is beyond the last moment.
    pub fn new(nanos: u64) -> Option<Self> {
        (nanos <= Self::LAST.0).then_some(Self(nanos))
    }

    pub fn nanos(self) -> u64 {
        self.0
    }

    /// Makes the moment this many nanoseconds after the epoch, or the last moment if that is earlier.
    pub fn new_saturating(nanos: u64) -> Self {
        Self(nanos.min(Self::LAST.0))
    }

    pub fn since_epoch(self) -> Span {
        Span(self.0)
    }
}

impl Span {
    /// Converts to whole units, rounding up. The span may be as long as from the epoch to the last moment.
    #[inline(always)]
    pub fn round_up(self, unit: Unit) -> u64 {
        (self.0 + (unit.nanos().get() - 1)) / unit.nanos()
    }
}

impl Taken {
    /// A call that is not limited leaves the TAT here.
    pub fn at(tat: Moment) -> Self {
        Self { tat, limited: false, retry_after: None }
    }
}

impl Unit {
    fn nanos(self) -> NonZero<u64> {
        const SECOND: NonZero<u64> = NonZero::new(1_000_000_000).unwrap();
        const MILLISECOND: NonZero<u64> = NonZero::new(1_000_000).unwrap();
        match self {
            Self::Seconds => SECOND,
            Self::Milliseconds => MILLISECOND,
        }
    }
}

impl Quota {
    /// Fixes the quota at `now`.
    ///
    /// Errors: `TooFast` if more than one token would come back per nanosecond; `TooLarge` if a limiter that is emptied
    /// now would not be full again by the year 2262.
    #[inline(always)]
    pub fn at(self, now: Moment) -> Result<Funnel, Error> {
        let Self { limit, count, .. } = self;
        let period = NonZero::<u128>::from(self.period).saturating_mul(self.unit.nanos().into());
        // A period of more than 64 bits is longer than any count.
        if u64::try_from(period.get()).is_ok_and(|period| count.get() > period) {
            return Err(Error::TooFast);
        }
        // The rate is at most a token per nanosecond, so the tolerance is at least `limit`: if it fits, the limit does.
        let tolerance = refill_time(limit, count, period);
        if tolerance.0 > Moment::LAST.0 - now.0 {
            return Err(Error::TooLarge);
        }
        Ok(Funnel { now, limit, count, period, tolerance })
    }
}

impl Funnel {
    pub fn now(&self) -> Moment {
        self.now
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the time until the quota is full, if nothing more is taken.
    pub fn until_full(&self, tat: Moment) -> Span {
        Span(tat.0.saturating_sub(self.now.0))
    }

    /// Takes these tokens if they are there. If they are not, the TAT stays.
    #[inline(always)]
    pub fn take(&self, tat: Moment, tokens: u64) -> Taken {
        // A call for more than the limit never passes, however long the caller waits.
        if tokens > self.limit {
            return Taken { tat, limited: true, retry_after: None };
        }
        // The tokens are within the limit, so their time is within the tolerance.
        let (until_full, increment) = (self.until_full(tat).0, self.refill_time(tokens).0);
        let latest = self.tolerance.0 - increment;
        if until_full > latest {
            return Taken { tat, limited: true, retry_after: Some(Span(until_full - latest)) };
        }
        Taken::at(Moment(tat.0.max(self.now.0) + increment))
    }

    /// Takes these tokens, if necessary into debt.
    ///
    /// Errors: `DebtTooLong` if the debt could only be paid beyond the year 2262.
    #[inline(always)]
    pub fn charge(&self, tat: Moment, tokens: u64) -> Result<Taken, Error> {
        let tat = tat.max(self.now).0.checked_add(self.refill_time(tokens).0).and_then(Moment::new);
        let tat = tat.ok_or(Error::DebtTooLong)?;
        let debt = self.until_full(tat).0.saturating_sub(self.tolerance.0);
        Ok(Taken { tat, limited: debt > 0, retry_after: (debt > 0).then_some(Span(debt)) })
    }

    /// Returns the time until one more token is there: 0 if rounding has left one, and `None` if the limit is 0.
    pub fn wait_for_one_more(&self, until_full: Span) -> Option<Span> {
        if self.limit == 0 {
            return None;
        }
        // The limit is 1 or more, so one token comes back within the tolerance.
        let one_more = until_full.0 + self.refill_time(1).0;
        Some(Span(one_more.saturating_sub(self.tolerance.0)))
    }

    /// Returns the TAT once these tokens are given back. The quota never holds more than its limit: a TAT that has
    /// passed stays as it is. A call and its refund leave the TAT as it was, because both are rounded alike.
    pub fn give_back(&self, tat: Moment, tokens: u64) -> Moment {
        let earlier = Moment(tat.0.saturating_sub(self.refill_time(tokens).0));
        earlier.max(self.now.min(tat))
    }

    /// Returns the most tokens that a next call would be allowed, if the limiter is full after `until_full`: the `r`
    /// tokens that come back in the rest of the tolerance, the `span`.
    ///
    /// `floor(r * period / count) <= span` is `r * period < (span + 1) * count` in whole numbers, so the largest such
    /// `r` is `((span + 1) * count - 1) / period`, rounded down.
    #[inline(always)]
    pub fn remaining(&self, until_full: Span) -> u64 {
        let Some(span) = self.tolerance.0.checked_sub(until_full.0) else { return 0 };
        let (span, count) = (span + 1, self.count.get());
        let tokens = match (NonZero::<u64>::try_from(self.period), span.checked_mul(count)) {
            (Ok(period), Some(product)) => (product - 1) / period,
            _ => {
                let product = u128::from(span) * u128::from(count);
                u64::try_from((product - 1) / self.period).unwrap_or(u64::MAX)
            }
        };
        tokens.min(self.limit)
    }

    fn refill_time(&self, tokens: u64) -> Span {
        refill_time(tokens, self.count, self.period)
    }
}

/// Returns the time in which this many tokens come back: `floor(tokens * period / count)`, at most 2^64 - 1.
#[inline(always)]
fn refill_time(tokens: u64, count: NonZero<u64>, period: NonZero<u128>) -> Span {
    if let Ok(period) = u64::try_from(period.get())
        && let Some(product) = tokens.checked_mul(period)
    {
        return Span(product / count);
    }
    // Both operations saturate: if the product exceeds 128 bits, the span exceeds 64 bits, because count has only 63.
    let product = u128::from(tokens).saturating_mul(period.get());
    Span(u64::try_from(product / NonZero::<u128>::from(count)).unwrap_or(u64::MAX))
}
