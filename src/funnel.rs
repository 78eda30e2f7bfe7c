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

/// Compares the rule with the model, on the inputs that the fuzzer has found.
#[cfg(test)]
#[path = "../tests/fuzz/check.rs"]
pub mod check;
/// The model: a second statement of the rule.
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#[path = "../tests/support/model.rs"]
pub mod model;
#[cfg(test)]
pub mod properties;
#[cfg(test)]
mod tests;

/// A moment in nanoseconds since the Unix epoch: 0 to 2^63 - 1, which is in the year 2262.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

/// A span of time in nanoseconds: 0 to 2^64 - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(u64);

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

/// A quota at one moment. It decides a call, together with the stored TAT.
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

/// A decided call: the facts for its reply, and the change of the stored state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// There were fewer tokens than the call asked for. If it takes as many as there are: there were none.
    pub limited: bool,
    /// Tokens that the call took. Looks, refunds and limited calls that take all or none have taken 0.
    pub taken: u64,
    /// Tokens that the limiter holds when it is full.
    pub limit: u64,
    /// Tokens that a next call would be allowed now: 0 to `limit`.
    pub remaining: u64,
    /// The time to wait until the call is allowed, until its debt is paid, or until one more token is there. `None` if
    /// the call got all its tokens without a debt, or if no wait helps.
    pub retry_after: Option<Span>,
    /// The time until the limiter is full.
    pub reset_after: Span,
    /// The change of the stored state.
    pub change: Change,
}

/// A change of the stored state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Nothing,
    /// This is the new TAT.
    Store(Moment),
    /// The limiter is full again, which needs no state.
    Delete,
}

/// The reason why a call cannot be decided. The texts name the arguments of a command.
///
/// It has the size of a word: a smaller error would share a word with a part of the `Ok` value, and the compiler would
/// take that word apart and put it together in each call.
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
    pub const EPOCH: Self = Self(0);
    /// The last moment that a key can hold.
    pub const LAST: Self = Self(i64::MAX.cast_unsigned());

    /// Makes the moment this many nanoseconds after the epoch; `None` if it is beyond the last moment.
    #[inline(always)]
    pub fn new(nanos: u64) -> Option<Self> {
        (nanos <= Self::LAST.0).then_some(Self(nanos))
    }

    #[inline(always)]
    pub fn nanos(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub fn since_epoch(self) -> Span {
        Span(self.0)
    }
}

impl Span {
    #[inline(always)]
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    #[inline(always)]
    pub fn nanos(self) -> u64 {
        self.0
    }

    /// Converts to whole units, rounding up. The span may be as long as from the epoch to the last moment.
    #[inline(always)]
    pub fn round_up(self, unit: Unit) -> u64 {
        (self.0 + (unit.nanos().get() - 1)) / unit.nanos()
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

    /// Decides a call of `quantity` tokens on the stored `tat`, which is `None` for a full limiter. A negative quantity
    /// gives tokens back, whatever `taking` is.
    ///
    /// Errors: `DebtTooLong` if a debt could only be paid beyond the year 2262.
    #[inline(always)]
    pub fn decide(&self, tat: Option<Moment>, taking: Taking, quantity: i64) -> Result<Verdict, Error> {
        let until_full = self.until_full(tat);
        let Ok(quantity) = u64::try_from(quantity) else {
            return Ok(self.give_back(tat.is_some(), until_full, quantity.unsigned_abs()));
        };
        match taking {
            Taking::AllOrNone => Ok(self.throttle(until_full, quantity)),
            Taking::InAnyCase => self.charge(until_full, quantity),
            Taking::UpTo => Ok(self.take(until_full, quantity)),
            Taking::Nothing => Ok(self.look(until_full, quantity)),
        }
    }

    /// Returns the verdict for a call that would be allowed, but takes nothing because another limiter refuses.
    pub fn untouched(&self, tat: Option<Moment>) -> Verdict {
        let until_full = self.until_full(tat);
        Verdict { limited: false, ..self.refuse(until_full, self.remaining(until_full), None) }
    }

    /// Returns the time until the limiter is full, if nothing more is taken.
    #[inline(always)]
    pub fn until_full(&self, tat: Option<Moment>) -> Span {
        Span(tat.map_or(0, |tat| tat.0.saturating_sub(self.now.0)))
    }

    /// Decides a call for all tokens or none. Returns the time until the limiter is full once they are taken. The error
    /// is the time that the call has to wait; `None` if no wait helps.
    #[inline(always)]
    pub fn admit(&self, until_full: Span, quantity: u64) -> Result<Span, Option<Span>> {
        // A call for more than the limit never passes, however long the caller waits.
        if quantity > self.limit {
            return Err(None);
        }
        // The quantity is within the limit, so its time is within the tolerance.
        let increment = self.refill_time(quantity);
        let latest = self.tolerance.0 - increment.0;
        if until_full.0 > latest {
            return Err(Some(Span(until_full.0 - latest)));
        }
        Ok(Span(until_full.0 + increment.0))
    }

    /// Takes all tokens or none.
    #[inline(always)]
    fn throttle(&self, until_full: Span, quantity: u64) -> Verdict {
        match self.admit(until_full, quantity) {
            Ok(reset_after) => self.grant(quantity, reset_after),
            Err(wait) => self.limit_call(until_full, quantity, wait),
        }
    }

    /// Takes all tokens, if necessary into debt.
    #[inline(always)]
    fn charge(&self, until_full: Span, quantity: u64) -> Result<Verdict, Error> {
        let increment = self.refill_time(quantity);
        let time_left = Moment::LAST.0 - self.now.0;
        if until_full.0.checked_add(increment.0).is_none_or(|reset_after| reset_after > time_left) {
            return Err(Error::DebtTooLong);
        }
        let verdict = self.grant(quantity, Span(until_full.0 + increment.0));
        let debt = verdict.reset_after.0.saturating_sub(self.tolerance.0);
        Ok(Verdict { limited: debt > 0, retry_after: (debt > 0).then_some(Span(debt)), ..verdict })
    }

    /// Takes as many tokens as there are.
    #[inline(always)]
    fn take(&self, until_full: Span, quantity: u64) -> Verdict {
        self.grant_part(until_full, quantity, quantity.min(self.remaining(until_full)))
    }

    /// Decides a call for up to `quantity` tokens that gets only `part` of them, because another quota has no more.
    pub fn take_part(&self, tat: Option<Moment>, quantity: u64, part: u64) -> Verdict {
        self.grant_part(self.until_full(tat), quantity, part)
    }

    #[inline(always)]
    fn grant_part(&self, until_full: Span, quantity: u64, part: u64) -> Verdict {
        let verdict = self.grant(part, Span(until_full.0 + self.refill_time(part).0));
        if part == quantity {
            return verdict;
        }
        // A limit of 0 never has one more token. Under any other limit, one comes back within the tolerance.
        let wait = (self.limit > 0).then(|| {
            let one_more = verdict.reset_after.0 + self.refill_time(1).0;
            Span(one_more.saturating_sub(self.tolerance.0))
        });
        Verdict { limited: part == 0, retry_after: wait, ..verdict }
    }

    /// Takes no token. Tells how a call for all or none would be decided, and what the limiter holds now.
    #[inline(always)]
    fn look(&self, until_full: Span, quantity: u64) -> Verdict {
        let Verdict { limited, retry_after, .. } = self.throttle(until_full, quantity);
        Verdict { limited, ..self.refuse(until_full, self.remaining(until_full), retry_after) }
    }

    /// Takes this many tokens, and leaves a limiter that is full after `reset_after`.
    #[inline(always)]
    pub fn grant(&self, tokens: u64, reset_after: Span) -> Verdict {
        self.grant_leaving(self.remaining(reset_after), tokens, reset_after)
    }

    /// Takes this many tokens, as `grant` does. The caller has computed how many remain.
    #[inline(always)]
    pub fn grant_leaving(&self, remaining: u64, tokens: u64, reset_after: Span) -> Verdict {
        Verdict {
            limited: false,
            taken: tokens,
            limit: self.limit,
            remaining,
            retry_after: None,
            reset_after,
            // Every token takes at least a nanosecond to come back, so that it moves the TAT.
            change: if tokens > 0 { self.store(reset_after) } else { Change::Nothing },
        }
    }

    /// Refuses a call for all tokens or none.
    #[inline(always)]
    pub fn limit_call(&self, until_full: Span, quantity: u64, wait: Option<Span>) -> Verdict {
        // If even one token is refused, none remain.
        let remaining = if quantity == 1 { 0 } else { self.remaining(until_full) };
        self.refuse(until_full, remaining, wait)
    }

    /// Takes no token.
    #[inline(always)]
    fn refuse(&self, until_full: Span, remaining: u64, retry_after: Option<Span>) -> Verdict {
        Verdict {
            limited: true,
            taken: 0,
            limit: self.limit,
            remaining,
            retry_after,
            reset_after: until_full,
            change: Change::Nothing,
        }
    }

    /// Gives tokens back. The call is never limited, and the limiter never holds more than its limit. A call and its
    /// refund leave the TAT as it was, because both are rounded alike.
    #[cold]
    fn give_back(self, stored: bool, until_full: Span, quantity: u64) -> Verdict {
        let decrement = self.refill_time(quantity);
        let reset_after = Span(until_full.0.saturating_sub(decrement.0));
        Verdict {
            limited: false,
            taken: 0,
            limit: self.limit,
            remaining: self.remaining(reset_after),
            retry_after: None,
            reset_after,
            change: match (stored, reset_after) {
                (false, _) => Change::Nothing,
                (true, Span(0)) => Change::Delete,
                (true, _) => self.store(reset_after),
            },
        }
    }

    /// Returns the change that stores a limiter which is full after this time.
    #[inline(always)]
    fn store(&self, reset_after: Span) -> Change {
        Change::Store(self.tat(reset_after))
    }

    /// Returns the TAT of a limiter that is full after this time. The caller makes sure that the TAT is not after
    /// `Moment::LAST`.
    #[inline(always)]
    pub fn tat(&self, reset_after: Span) -> Moment {
        Moment(self.now.0 + reset_after.0)
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
