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
//! * **remaining**: the most tokens that the next call could take right now.
//! * **retry_after**: how long a limited caller has to wait until the same call is allowed, if no other caller takes
//!   tokens.
//! * **reset_after**: how long until the limiter is full, so that the whole burst is available again.
//!
//! The whole state is one timestamp, the theoretical arrival time (TAT): when the limiter will be full again. A call of
//! `quantity` tokens moves it by the time in which that many come back, the `increment`. The call is allowed if the TAT
//! is then no further ahead of now than the time in which all tokens come back, the `tolerance`:
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
//! 128 bits if not. The time in which tokens come back is rounded down, once per call, so that a call's rounding error
//! is below a nanosecond and in the caller's favour.
//!
//! The GCRA is from ITU-T I.371 and the ATM Forum's traffic management specification. This form of it is called
//! "virtual scheduling" there.

use std::num::NonZero;
use std::ops::{Add, Sub};

use crate::error::Error;

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
    /// In nanoseconds.
    pub period: NonZero<u128>,
}

/// A quota at one moment, which computes where a call moves its TAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Funnel {
    /// At most one token comes back per nanosecond.
    quota: Quota,
    now: Moment,
    /// The time in which all tokens come back; `now + tolerance` is not after `Moment::LAST`.
    tolerance: Span,
}

/// The way a call takes tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// CL.THROTTLE: all tokens that it asks for, or none.
    AllOrNone,
    /// CL.CHARGE: all tokens that it asks for, if necessary into debt.
    InAnyCase,
    /// CL.TAKE: as many tokens as there are, up to the number that it asks for.
    UpTo,
    /// CL.LOOK: no tokens. The reply says how CL.THROTTLE would decide.
    Nothing,
}

/// The decision of one quota: where the call leaves the TAT, and what depends on the way it takes tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub tat: Moment,
    pub taken: u64,
    pub limited: bool,
    pub retry_after: Option<Span>,
}

impl Moment {
    /// The last moment that a key can hold.
    pub const LAST: Self = Self(i64::MAX.cast_unsigned());

    /// Makes the moment this many nanoseconds after the epoch; `None` if it is beyond the last moment.
    pub fn new(nanos: u64) -> Option<Self> {
        (nanos <= Self::LAST.0).then_some(Self(nanos))
    }

    /// Makes the moment this many nanoseconds after the epoch, or the last moment if that is earlier.
    pub fn new_saturating(nanos: u64) -> Self {
        Self(nanos.min(Self::LAST.0))
    }

    pub fn since_epoch(self) -> Span {
        Span(self.0)
    }
}

/// Returns the moment after the span.
impl Add<Span> for Moment {
    type Output = Self;

    #[allow(
        clippy::arithmetic_side_effects,
        reason = "no call leaves a TAT after the last moment: a charge checks it, and tokens that are there fit"
    )]
    fn add(self, span: Span) -> Self {
        Self(self.0 + span.0)
    }
}

/// Returns the moment before the span, or the epoch if that is later.
impl Sub<Span> for Moment {
    type Output = Self;

    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

/// Returns the span since an earlier moment, or 0 if that is later.
impl Sub for Moment {
    type Output = Span;

    fn sub(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// Converts to whole units, rounding up.
    #[inline(always)]
    pub fn round_up(self, unit: Unit) -> u64 {
        // Both operations fit: the unit has 30 bits, and a span between two moments has 63.
        self.0.wrapping_add(unit.nanos().get().wrapping_sub(1)) / unit.nanos()
    }
}

/// Returns the sum of both spans, or the longest span if the sum does not fit.
impl Add for Span {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// Returns the difference from a span that is not longer.
impl Sub for Span {
    type Output = Self;

    #[allow(clippy::arithmetic_side_effects, reason = "every caller compares the spans first")]
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Unit {
    /// Converts this many units to nanoseconds: a number of 64 bits times one of 30 bits.
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
    /// Fixes the quota at `now`.
    ///
    /// Errors: `TooFast` if more than one token would come back per nanosecond; `TooLarge` if a limiter that is emptied
    /// now would not be full again by the year 2262.
    #[inline(always)]
    pub fn at(self, now: Moment) -> Result<Funnel, Error> {
        if NonZero::<u128>::from(self.count) > self.period {
            return Err(Error::TooFast);
        }
        // The rate is at most a token per nanosecond, so the tolerance is at least `limit`: if it fits, the limit does,
        // too.
        let tolerance = self.refill_time(self.limit);
        if tolerance > Moment::LAST - now {
            return Err(Error::TooLarge);
        }
        Ok(Funnel { quota: self, now, tolerance })
    }

    /// Returns the time in which this many tokens come back: `floor(tokens * period / count)`, at most 2^64 - 1.
    #[inline(always)]
    fn refill_time(&self, tokens: u64) -> Span {
        if let Ok(period) = u64::try_from(self.period.get())
            && let Some(product) = tokens.checked_mul(period)
        {
            return Span(product / self.count);
        }
        // Both operations saturate: if the product exceeds 128 bits, the span exceeds 64, because count has only 63.
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

    /// Returns the time until the quota is full, if nothing more is taken.
    pub fn until_full(&self, tat: Moment) -> Span {
        tat - self.now
    }

    /// Takes these tokens if the quota has them. Otherwise the TAT stays.
    #[inline(always)]
    pub fn try_take(&self, tat: Moment, tokens: u64) -> Part {
        let refused = |retry_after| Part { tat, taken: 0, limited: true, retry_after };
        // A call for more than the limit never passes, however long the caller waits.
        if tokens > self.quota.limit {
            return refused(None);
        }
        // The tokens are within the limit, so their time is within the tolerance.
        let increment = self.quota.refill_time(tokens);
        let (until_full, latest) = (self.until_full(tat), self.tolerance - increment);
        if until_full > latest {
            return refused(Some(until_full - latest));
        }
        Part { tat: tat.max(self.now) + increment, taken: tokens, limited: false, retry_after: None }
    }

    /// Takes these tokens, which the quota has, for a call that asks for at least as many.
    #[inline(always)]
    pub fn take_up_to(&self, tat: Moment, tokens: u64, asked: u64) -> Part {
        let tat = tat.max(self.now) + self.quota.refill_time(tokens);
        let retry_after = if tokens < asked { self.wait_for_one_more(tat) } else { None };
        Part { tat, taken: tokens, limited: tokens == 0 && asked > 0, retry_after }
    }

    /// Takes these tokens, going into debt if necessary.
    ///
    /// Errors: `DebtTooLong` if the debt could only be paid beyond the year 2262.
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

    /// Returns the time until one more token is there: 0 if rounding has left one, and `None` if the limit is 0.
    fn wait_for_one_more(&self, tat: Moment) -> Option<Span> {
        let one_more = self.until_full(tat) + self.quota.refill_time(1);
        (self.quota.limit > 0).then(|| one_more.max(self.tolerance) - self.tolerance)
    }

    /// Gives these tokens back. The quota never holds more than its limit: a TAT that has passed stays as it is. A call
    /// and its refund leave the TAT as it was, because both round alike.
    pub fn give_back(&self, tat: Moment, tokens: u64) -> Part {
        let tat = (tat - self.quota.refill_time(tokens)).max(self.now.min(tat));
        Part { tat, taken: 0, limited: false, retry_after: None }
    }

    /// Returns the most tokens that the next call could take, if the quota is full after `until_full`: the `r` tokens
    /// that come back in the rest of the tolerance, the `span`.
    ///
    /// `floor(r * period / count) <= span` is `r * period < (span + 1) * count` in whole numbers, so the largest such
    /// `r` is `((span + 1) * count - 1) / period`, rounded down. It never exceeds the limit: a token takes at least a
    /// nanosecond, so `limit + 1` tokens take longer than the tolerance.
    #[inline(always)]
    pub fn remaining(&self, until_full: Span) -> u64 {
        let Quota { count, period, .. } = self.quota;
        // A limiter in debt has none.
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
