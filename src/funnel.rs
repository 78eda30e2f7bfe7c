//! The rule: a funnel that lets tokens through at a steady rate, decided by the generic cell rate algorithm (GCRA).
//!
//! Think of a funnel that holds `limit` tokens and leaks `count` of them every `period`:
//!
//! * **burst**: what an empty funnel takes at once. `limit` is `max_burst + 1` tokens: the one that every caller
//!   expects to be let through, and `max_burst` more at the same moment.
//! * **rate**: `count` tokens per `period`, the pace at which room comes back. 30 per 60 s makes room for one token
//!   every 2 s, not for 30 at the end of each minute.
//! * **quantity**: the tokens that one call asks for; 0 asks how full the funnel is, and a negative quantity gives
//!   tokens back. A call takes all of them or none, or as many as there are, or all in any case: the funnel is then in
//!   **debt**, and all others are limited until it has leaked.
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

#![allow(
    clippy::arithmetic_side_effects,
    reason = "an operator that could overflow stands behind the check that it cannot; tests and the fuzzer check each"
)]

use std::num::NonZero;

use crate::error::Error;

/// The rule against a second statement of it, on what the fuzzer has found.
#[cfg(test)]
#[path = "../tests/fuzz/check.rs"]
mod check;
/// The second statement.
#[cfg(test)]
#[path = "../tests/support/model.rs"]
mod model;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

/// A moment in nanoseconds since the Unix epoch: 0 to 2^63 - 1, which is in the year 2262.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

/// A span of time in nanoseconds: 0 to 2^64 - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub u64);

/// What a quota's period, and the spans of a reply, are counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    Milliseconds,
}

/// What may pass: `max_burst + 1` tokens at once, and `count` more every `period`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub max_burst: u64,
    pub count: NonZero<u64>,
    /// In `unit`s.
    pub period: NonZero<u64>,
    pub unit: Unit,
}

/// A quota's funnel at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Funnel {
    now: Moment,
    /// Tokens that it holds: 1 to 2^63 - 1.
    limit: u64,
    /// Tokens that it leaks every `period`, at most one a nanosecond.
    count: NonZero<u64>,
    /// In nanoseconds: 64 bits times 30.
    period: NonZero<u128>,
    /// How long it takes to leak when full; `now + tolerance` is not after `Moment::LAST`.
    tolerance: Span,
}

/// How a call takes tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// All that it asks for, or none.
    AllOrNone,
    /// All that it asks for, if need be into debt.
    InAnyCase,
    /// As many as there are, up to what it asks for.
    UpTo,
}

/// What a call is told, and what it leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// There was less than the call asked for; of a call that takes up to that many, nothing.
    pub limited: bool,
    /// Tokens that it took. None are taken by a look, by giving back, and by a call that asked for all or none and is
    /// limited.
    pub taken: u64,
    /// Tokens that the funnel holds: `max_burst + 1`.
    pub limit: u64,
    /// Tokens that a next call would be allowed now: 0 to `limit`.
    pub remaining: u64,
    /// None if the call got all that it asked for, or asks for all or none of more than `limit` and never will. Else how
    /// long to wait until it is allowed, until the debt is paid, or until one more token is there.
    pub retry_after: Option<Span>,
    /// How long until the funnel is empty.
    pub reset_after: Span,
    /// What becomes of the stored state.
    pub change: Change,
}

/// What a call does to the stored state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Nothing,
    /// This is the new TAT.
    Store(Moment),
    /// The funnel is empty again, which needs no state.
    Delete,
}

impl Moment {
    /// The last one that a key can hold.
    pub const LAST: Self = Self(i64::MAX.cast_unsigned());

    pub fn since_epoch(self) -> Span {
        Span(self.0)
    }
}

impl Span {
    /// In whole units, rounded up. For spans up to the last moment's, as all are that a call is told.
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
    /// The quota's funnel at `now`.
    ///
    /// Errors: `TooFast` if that is more than one token per nanosecond; `TooLarge` if `max_burst + 1` does not fit in
    /// 63 bits, or if a funnel filled now would leak beyond the year 2262.
    #[inline(always)]
    pub fn at(self, now: Moment) -> Result<Funnel, Error> {
        let Self { max_burst, count, .. } = self;
        let period = NonZero::<u128>::from(self.period).saturating_mul(self.unit.nanos().into());
        if NonZero::from(count) > period {
            return Err(Error::TooFast);
        }
        let limit = max_burst.checked_add(1).ok_or(Error::TooLarge)?;
        // No less than `limit`, at a token per nanosecond or slower: so that fits in 63 bits where this does.
        let tolerance = time_to_leak(limit, count, period);
        if tolerance.0 > Moment::LAST.0 - now.0 {
            return Err(Error::TooLarge);
        }
        Ok(Funnel { now, limit, count, period, tolerance })
    }
}

impl Funnel {
    /// Decides a call of `quantity` tokens on the stored `tat`; none stands for an empty funnel. A negative quantity gives
    /// tokens back, however the call takes.
    ///
    /// Errors: `DebtTooLong` if a debt could only be paid beyond the year 2262.
    #[inline(always)]
    pub fn decide(&self, tat: Option<Moment>, taking: Taking, quantity: i64) -> Result<Verdict, Error> {
        let backlog = self.backlog(tat);
        let Ok(quantity) = u64::try_from(quantity) else {
            return Ok(self.give_back(tat.is_some(), backlog, quantity.unsigned_abs()));
        };
        match taking {
            Taking::AllOrNone => Ok(self.take(backlog, quantity)),
            Taking::InAnyCase => self.charge(backlog, quantity),
            Taking::UpTo => Ok(self.take_up_to(backlog, quantity)),
        }
    }

    /// What a call gets that takes nothing.
    pub fn look(&self, tat: Option<Moment>) -> Verdict {
        self.take(self.backlog(tat), 0)
    }

    /// How long until the funnel is empty, if nothing more is taken.
    #[inline(always)]
    fn backlog(&self, tat: Option<Moment>) -> Span {
        Span(tat.map_or(0, |tat| tat.0.saturating_sub(self.now.0)))
    }

    #[inline(always)]
    fn take(&self, backlog: Span, quantity: u64) -> Verdict {
        // More than the funnel holds can never pass, however long the caller waits.
        if quantity > self.limit {
            return self.limited(backlog, self.remaining(backlog), None);
        }
        // As the quantity is within the limit, its time is within the tolerance.
        let increment = self.time_to_leak(quantity);
        let room = self.tolerance.0 - increment.0;
        if backlog.0 > room {
            // Where there is no room for one, none remain.
            let remaining = if quantity == 1 { 0 } else { self.remaining(backlog) };
            return self.limited(backlog, remaining, Some(Span(backlog.0 - room)));
        }
        self.taken(backlog, quantity, increment)
    }

    #[inline(always)]
    fn charge(&self, backlog: Span, quantity: u64) -> Result<Verdict, Error> {
        let increment = self.time_to_leak(quantity);
        let time_left = Moment::LAST.0 - self.now.0;
        if backlog.0.checked_add(increment.0).is_none_or(|reset_after| reset_after > time_left) {
            return Err(Error::DebtTooLong);
        }
        let verdict = self.taken(backlog, quantity, increment);
        let debt = verdict.reset_after.0.saturating_sub(self.tolerance.0);
        Ok(Verdict { limited: debt > 0, retry_after: (debt > 0).then_some(Span(debt)), ..verdict })
    }

    #[inline(always)]
    fn take_up_to(&self, backlog: Span, quantity: u64) -> Verdict {
        let taken = quantity.min(self.remaining(backlog));
        let verdict = self.taken(backlog, taken, self.time_to_leak(taken));
        if taken == quantity {
            return verdict;
        }
        let one_more = verdict.reset_after.0 + self.time_to_leak(1).0;
        let wait = Span(one_more.saturating_sub(self.tolerance.0));
        Verdict { limited: taken == 0, retry_after: Some(wait), ..verdict }
    }

    /// The tokens are poured in.
    #[inline(always)]
    fn taken(&self, backlog: Span, tokens: u64, increment: Span) -> Verdict {
        let reset_after = Span(backlog.0 + increment.0);
        Verdict {
            limited: false,
            taken: tokens,
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
    fn give_back(self, stored: bool, backlog: Span, quantity: u64) -> Verdict {
        let decrement = self.time_to_leak(quantity);
        let reset_after = Span(backlog.0.saturating_sub(decrement.0));
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

    /// The state of a funnel that will be empty in this time, which is known to end by `Moment::LAST`.
    #[inline(always)]
    fn store(&self, reset_after: Span) -> Change {
        Change::Store(Moment(self.now.0 + reset_after.0))
    }

    #[inline(always)]
    fn limited(&self, backlog: Span, remaining: u64, retry_after: Option<Span>) -> Verdict {
        Verdict {
            limited: true,
            taken: 0,
            limit: self.limit,
            remaining,
            retry_after,
            reset_after: backlog,
            change: Change::Nothing,
        }
    }

    /// The most tokens whose time to leak fits between a backlog and the tolerance.
    ///
    /// `floor(r * period / count) <= room` is `r * period < (room + 1) * count` in whole numbers, so the largest such
    /// `r` is `((room + 1) * count - 1) / period`, rounded down.
    #[inline(always)]
    fn remaining(&self, backlog: Span) -> u64 {
        let Some(room) = self.tolerance.0.checked_sub(backlog.0) else { return 0 };
        let (room, count) = (room + 1, self.count.get());
        let tokens = match (NonZero::<u64>::try_from(self.period), room.checked_mul(count)) {
            (Ok(period), Some(product)) => (product - 1) / period,
            _ => {
                let product = u128::from(room) * u128::from(count);
                u64::try_from((product - 1) / self.period).unwrap_or(u64::MAX)
            }
        };
        tokens.min(self.limit)
    }

    fn time_to_leak(&self, tokens: u64) -> Span {
        time_to_leak(tokens, self.count, self.period)
    }
}

/// `floor(tokens * period / count)`, or 2^64 - 1 if it is more.
#[inline(always)]
fn time_to_leak(tokens: u64, count: NonZero<u64>, period: NonZero<u128>) -> Span {
    if let Ok(period) = u64::try_from(period.get())
        && let Some(product) = tokens.checked_mul(period)
    {
        return Span(product / count);
    }
    // A product beyond 128 bits is, divided by a count of 63 bits, a span beyond 64 bits.
    let product = u128::from(tokens).saturating_mul(period.get());
    Span(u64::try_from(product / NonZero::<u128>::from(count)).unwrap_or(u64::MAX))
}
