//! The rule by which a limiter gives out tokens: the generic cell rate algorithm (GCRA).
//!
//! A limiter holds up to `limit` tokens, and `count` of them come back every `period`. Picture a funnel that fills when
//! tokens are taken, and drains at a steady rate. The algorithm is also known as a token bucket, and as a leaky bucket
//! used as a meter.
//!
//! * **burst**: the tokens that a full limiter gives out at once. `limit` is `max_burst + 1` tokens: the one that every
//!   caller expects to get, and `max_burst` more at the same moment.
//! * **rate**: `count` tokens per `period`, the pace at which they come back. 30 per 60 s is one token every 2 s, not
//!   30 at the end of each minute.
//! * **quantity**: the tokens that one call asks for. CL.THROTTLE takes all of them or none, and CL.TAKE takes as many
//!   as the limiter has. CL.CHARGE always takes all of them: if the limiter has too few, it goes into **debt**, and
//!   calls are limited until the debt is paid. A quantity of 0 takes nothing, and a negative one gives tokens back.
//! * **remaining**: the number of tokens that the next call could take right now.
//! * **retry_after**: how long a limited caller has to wait until the same call is allowed, if no other caller takes
//!   tokens.
//! * **reset_after**: how long until the limiter is full, so that the whole burst is available again.
//!
//! The whole state is one timestamp, the theoretical arrival time (TAT): the time at which the limiter will be full
//! again. A call for `quantity` tokens moves the TAT by the `increment`, the time those tokens take to come back. The
//! call is allowed if the new TAT is ahead of now by at most the `tolerance`, the time all tokens take to come back:
//!
//! ```text
//!         |<---------- tolerance --------->|
//!   ------+------------+-------------------+-------> time
//!      allow at       now               new TAT
//!                      |<-- reset_after -->|
//!
//!   a call is allowed if its "allow at" is not after now; otherwise, retry_after is the time from now to "allow at"
//! ```
//!
//! All times are whole nanoseconds. Products are computed in 64 bits if they fit, which they nearly always do, and in
//! 128 bits if not. The time that tokens take to come back is rounded down, once per call. A call's rounding error is
//! therefore less than a nanosecond, in the caller's favour.
//!
//! The GCRA comes from ITU-T I.371 and the ATM Forum's traffic management specification, which call this form of it
//! "virtual scheduling".

use std::num::NonZero;
use std::ops::{Add, Sub};

use crate::error::Error;

/// A moment in nanoseconds since the Unix epoch: 0 to 2^63 - 1, which is in the year 2262.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

/// A span of time in nanoseconds: 0 to 2^64 - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub u64);

/// The unit of a quota's period, and of the times in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    Milliseconds,
}

/// A quota: `limit` tokens at once, and `count` more every `period`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// The burst, which is `max_burst + 1`. If the limit is 0, every call that asks for tokens is limited.
    pub limit: u64,
    pub count: NonZero<u64>,
    /// The period in nanoseconds.
    pub period: NonZero<u128>,
}

/// A quota at one moment, with methods that compute the TAT after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Funnel {
    /// The quota, which has been checked: at most one token comes back per nanosecond.
    quota: Quota,
    now: Moment,
    /// The time that all tokens take to come back. `now + tolerance` is never later than `Moment::LAST`.
    tolerance: Span,
}

/// One quota's decision: the TAT after the call, and the parts of the verdict that depend on how the call takes tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub tat: Moment,
    pub taken: u64,
    pub limited: bool,
    pub retry_after: Option<Span>,
}

impl Moment {
    /// The latest moment that a key can hold.
    pub const LAST: Self = Self(i64::MAX.cast_unsigned());

    /// Returns the moment `nanos` nanoseconds after the epoch, or `None` if that is later than `LAST`.
    pub fn new(nanos: u64) -> Option<Self> {
        (nanos <= Self::LAST.0).then_some(Self(nanos))
    }

    /// Returns the moment `nanos` nanoseconds after the epoch, or `LAST` if that is earlier.
    pub fn new_saturating(nanos: u64) -> Self {
        Self(nanos.min(Self::LAST.0))
    }

    pub fn since_epoch(self) -> Span {
        Span(self.0)
    }
}

impl Add<Span> for Moment {
    type Output = Self;

    #[allow(
        clippy::arithmetic_side_effects,
        reason = "no TAT goes past the last moment: a charge checks for that, and `now + tolerance` always fits"
    )]
    fn add(self, span: Span) -> Self {
        Self(self.0 + span.0)
    }
}

/// Subtracts a span from a moment. The result is never before the epoch.
impl Sub<Span> for Moment {
    type Output = Self;

    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

/// Returns the span since `earlier`, or 0 if that moment is actually later.
impl Sub for Moment {
    type Output = Span;

    fn sub(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// Converts the span to whole units, rounding up.
    #[inline(always)]
    pub fn round_up(self, unit: Unit) -> u64 {
        // The sum and the difference do not overflow: the unit fits in 30 bits, and a span between two moments in 63.
        self.0.wrapping_add(unit.nanos().get().wrapping_sub(1)) / unit.nanos()
    }
}

/// Returns the sum of both spans, or the longest possible span if the sum does not fit.
impl Add for Span {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// Returns the difference between two spans. `other` must not be longer than `self`.
impl Sub for Span {
    type Output = Self;

    #[allow(clippy::arithmetic_side_effects, reason = "every caller compares the spans first")]
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Unit {
    /// Converts units to nanoseconds. A 64-bit number times a 30-bit number fits in 128 bits.
    pub fn in_nanos(self, units: NonZero<u64>) -> NonZero<u128> {
        NonZero::<u128>::from(units).saturating_mul(self.nanos().into())
    }

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
    /// Checks that the quota is valid at `now`, and ties it to that moment.
    ///
    /// Errors: `TooFast` if more than one token would come back per nanosecond, or `TooLarge` if a limiter that is
    /// emptied at `now` would not be full again by the year 2262.
    #[inline(always)]
    pub fn at(self, now: Moment) -> Result<Funnel, Error> {
        if NonZero::<u128>::from(self.count) > self.period {
            return Err(Error::TooFast);
        }
        // The check of the tolerance also ensures that the limit fits in 63 bits: at most one token comes back per
        // nanosecond, so the tolerance is at least `limit` nanoseconds.
        let tolerance = self.refill_time(self.limit);
        if tolerance > Moment::LAST - now {
            return Err(Error::TooLarge);
        }
        Ok(Funnel { quota: self, now, tolerance })
    }

    /// Returns the time that `tokens` take to come back: `floor(tokens * period / count)`, at most 2^64 - 1.
    #[inline(always)]
    fn refill_time(&self, tokens: u64) -> Span {
        if let Ok(period) = u64::try_from(self.period.get())
            && let Some(product) = tokens.checked_mul(period)
        {
            return Span(product / self.count);
        }
        // Saturate in both steps: a product above 128 bits gives a span above 64 bits, because `count` has at most 63.
        let product = u128::from(tokens).saturating_mul(self.period.get());
        Span(u64::try_from(product / NonZero::<u128>::from(self.count)).unwrap_or(u64::MAX))
    }
}

impl Funnel {
    pub fn now(&self) -> Moment {
        self.now
    }

    pub fn limit(&self) -> u64 {
        self.quota.limit
    }

    /// Returns the time until the quota is full, if no more tokens are taken.
    pub fn until_full(&self, tat: Moment) -> Span {
        tat - self.now
    }

    /// Takes `tokens` if the quota has that many. Otherwise, the TAT stays the same.
    #[inline(always)]
    pub fn try_take(&self, tat: Moment, tokens: u64) -> Part {
        let refused = |retry_after| Part { tat, taken: 0, limited: true, retry_after };
        // A call for more than the limit never passes, however long the caller waits.
        if tokens > self.quota.limit {
            return refused(None);
        }
        // The tokens are within the limit, so the increment is within the tolerance.
        let increment = self.quota.refill_time(tokens);
        let (until_full, latest) = (self.until_full(tat), self.tolerance - increment);
        if until_full > latest {
            return refused(Some(until_full - latest));
        }
        Part { tat: tat.max(self.now) + increment, taken: tokens, limited: false, retry_after: None }
    }

    /// Takes `tokens`, which the quota must have. The call asked for `asked`, which may be more.
    #[inline(always)]
    pub fn take_up_to(&self, tat: Moment, tokens: u64, asked: u64) -> Part {
        let tat = tat.max(self.now) + self.quota.refill_time(tokens);
        let retry_after = if tokens < asked { self.wait_for_one_more(tat) } else { None };
        Part { tat, taken: tokens, limited: tokens == 0 && asked > 0, retry_after }
    }

    /// Takes `tokens`, going into debt if necessary.
    ///
    /// Errors: `DebtTooLong` if the debt would not be paid off by the year 2262.
    #[inline(always)]
    pub fn charge(&self, tat: Moment, tokens: u64) -> Result<Part, Error> {
        let (base, increment) = (tat.max(self.now), self.quota.refill_time(tokens));
        if increment > Moment::LAST - base {
            return Err(Error::DebtTooLong);
        }
        let tat = base + increment;
        let until_full = self.until_full(tat);
        let limited = until_full > self.tolerance;
        Ok(Part { tat, taken: tokens, limited, retry_after: limited.then(|| until_full - self.tolerance) })
    }

    /// Returns the time until one more token is available: 0 if, because of rounding, it already is. Returns `None` if
    /// the limit is 0.
    fn wait_for_one_more(&self, tat: Moment) -> Option<Span> {
        let one_more = self.until_full(tat) + self.quota.refill_time(1);
        (self.quota.limit > 0).then(|| one_more.max(self.tolerance) - self.tolerance)
    }

    /// Gives `tokens` back. The quota never gets more than its limit, and a TAT in the past stays the same. A call and
    /// its refund cancel out exactly, because both round the same way.
    pub fn give_back(&self, tat: Moment, tokens: u64) -> Part {
        let tat = (tat - self.quota.refill_time(tokens)).max(self.now.min(tat));
        Part { tat, taken: 0, limited: false, retry_after: None }
    }

    /// Returns the number of tokens that the next call could take when the quota is `until_full` away from full. That
    /// is the largest number, `r`, that comes back within `span`, which is the tolerance minus `until_full`.
    ///
    /// In whole numbers, `floor(r * period / count) <= span` means `r * period < (span + 1) * count`, so the largest
    /// `r` is `((span + 1) * count - 1) / period`, rounded down. This never exceeds the limit: a token takes at least a
    /// nanosecond to come back, so `limit + 1` tokens take longer than the tolerance.
    #[inline(always)]
    pub fn remaining(&self, until_full: Span) -> u64 {
        let Quota { count, period, .. } = self.quota;
        // A quota in debt has no tokens.
        if until_full > self.tolerance {
            return 0;
        }
        let (beyond, count) = ((self.tolerance - until_full).0.wrapping_add(1), count.get());
        match (NonZero::<u64>::try_from(period), beyond.checked_mul(count)) {
            (Ok(period), Some(product)) => product.wrapping_sub(1) / period,
            _ => {
                let product = u128::from(beyond).saturating_mul(count.into());
                u64::try_from(product.wrapping_sub(1) / period).unwrap_or(u64::MAX)
            }
        }
    }
}
