//! The quotas of a limiter in one decision: 10 a second and 1,000 a day.
//!
//! The rule in `funnel.rs` moves each quota, on a TAT of its own: the first TAT is for the call's first quota, and so
//! on. A call that takes all or none takes from each quota, or from none. A charge takes from each quota, into debt if
//! necessary. A call that takes as many tokens as there are takes the same number from each quota: as many as the
//! emptiest one has. A call that gives back gives to each.
//!
//! The reply is the verdict of one quota, the one that **decides**. If several quotas fit, the first of them decides:
//!
//! * if the call is limited, or leaves a debt: the quota whose wait is the longest; a wait without end is longest;
//! * if a call for as many tokens as there are got fewer than its quantity: the quota with the fewest tokens remaining,
//!   and among these the one that takes longest to have one more token;
//! * otherwise: the quota with the fewest tokens remaining.

#![allow(clippy::arithmetic_side_effects, reason = "counts of at most MOST_QUOTAS")]

use crate::funnel::{Error, Funnel, Moment, Span, Taken, Taking, Wait};

#[cfg(test)]
mod check;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod one_quota;
#[cfg(test)]
mod several_quotas;
// The fuzzer, too, has the model beside the limiter: `check` finds it in both places.
#[cfg(test)]
use crate::funnel::model;

/// The most quotas that a limiter may have.
pub const MOST_QUOTAS: usize = 8;

/// A limiter's quotas at one moment: one, and up to `FURTHER` more.
#[derive(Debug, Clone, Copy)]
pub struct Limiter<const FURTHER: usize> {
    first: Funnel,
    further: [Option<Funnel>; FURTHER],
    quotas: usize,
}

/// The TATs in a limiter's state, in the order of its quotas: none for a full limiter, or one and up to `FURTHER` more.
/// The places beyond `count` hold moments that have passed: a quota without a TAT is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tats<const FURTHER: usize> {
    first: Moment,
    further: [Moment; FURTHER],
    count: usize,
}

/// A decided call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision<const FURTHER: usize> {
    pub verdict: Verdict,
    pub change: Change<FURTHER>,
}

/// The facts for a call's reply, by the quota that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// There were fewer tokens than the call asked for. If it takes as many as there are: there were none.
    pub limited: bool,
    /// Tokens that the call took. Looks, refunds and limited calls that take all or none have taken 0.
    pub taken: u64,
    /// Tokens that the quota holds when it is full.
    pub limit: u64,
    /// Tokens that a next call would be allowed now: 0 to `limit`.
    pub remaining: u64,
    /// The time to wait until the call is allowed, until its debt is paid, or until one more token is there. `None` if
    /// the call got all its tokens without a debt, or if no wait helps.
    pub retry_after: Option<Span>,
    /// The time until the quota is full.
    pub reset_after: Span,
    /// The number of the quota: 1, 2, … `None` if the limiter has only one.
    pub quota: Option<u64>,
}

/// A change of the stored state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<const FURTHER: usize> {
    Nothing,
    Store(Tats<FURTHER>),
    /// The limiter is full again, which needs no state.
    Delete,
}

/// The error of a quota, and its number: 1, 2, …
pub type QuotaError = (Error, u64);

/// The limiter has all its quotas already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a limiter has at most {MOST_QUOTAS} quotas")]
pub struct TooMany;

impl<const FURTHER: usize> Limiter<FURTHER> {
    pub fn new(first: Funnel) -> Self {
        Self { first, further: [None; FURTHER], quotas: 1 }
    }

    /// Adds a quota, after those that it has.
    #[inline(always)]
    pub fn add(&mut self, quota: Funnel) -> Result<(), TooMany> {
        *self.further.get_mut(self.quotas - 1).ok_or(TooMany)? = Some(quota);
        self.quotas += 1;
        Ok(())
    }

    /// Returns the same limiter with room for the most quotas, for a key with more TATs than the call has quotas.
    pub fn wide(&self) -> Limiter<{ MOST_QUOTAS - 1 }> {
        let mut further = [None; MOST_QUOTAS - 1];
        further.iter_mut().zip(self.further).for_each(|(place, quota)| *place = quota);
        Limiter { first: self.first, further, quotas: self.quotas }
    }

    /// Decides a call of `quantity` tokens on the stored TATs. A negative quantity gives tokens back, whatever `taking`
    /// is.
    ///
    /// Errors: `DebtTooLong`, of the first quota whose debt could only be paid beyond the year 2262.
    #[inline(always)]
    pub fn decide(
        &self,
        before: Tats<FURTHER>,
        taking: Taking,
        quantity: i64,
    ) -> Result<Decision<FURTHER>, QuotaError> {
        let Ok(asked) = u64::try_from(quantity) else {
            let (after, change) = self.give_back(before, quantity.unsigned_abs());
            return Ok(Decision { verdict: self.verdict(&self.emptiest(&after, false)), change });
        };
        let tokens = if taking == Taking::UpTo { asked.min(self.emptiest(&before, false).remaining()) } else { asked };

        // Find where each quota would go, and how long the call would wait for it.
        let mut after = before;
        let slowest = self.take(&mut after, taking, tokens)?;
        let waits = slowest.wait > Wait::NONE;
        let taken = match taking {
            Taking::Nothing => 0,
            Taking::AllOrNone if waits => 0,
            _ => tokens,
        };

        // Find the quota that decides.
        let decides = if waits { slowest } else { self.emptiest(&after, tokens < asked) };

        // Make its verdict.
        let verdict = Verdict {
            limited: waits || tokens == 0 && asked > 0,
            taken,
            // If even one token is refused, none remain: no division is needed.
            remaining: if waits && tokens == 1 { 0 } else { decides.remaining() },
            ..self.verdict(&decides)
        };
        Ok(Decision { verdict, change: if taken > 0 { Change::Store(after) } else { Change::Nothing } })
    }

    /// Takes tokens from each quota. Returns the first quota whose wait is the longest: for the tokens, or until they
    /// are paid.
    #[inline(always)]
    fn take(&self, tats: &mut Tats<FURTHER>, taking: Taking, tokens: u64) -> Result<Standing<'_>, QuotaError> {
        let mut slowest = Standing::take(&self.first, 1, &mut tats.first, taking, tokens)?;
        for ((funnel, tat), number) in self.further().zip(&mut tats.further).zip(2..) {
            let other = Standing::take(funnel, number, tat, taking, tokens)?;
            if other.wait > slowest.wait {
                slowest = other;
            }
        }
        tats.count = tats.count.max(self.quotas);
        Ok(slowest)
    }

    /// Returns the first quota with the fewest tokens remaining. If the call wants more tokens than it got, the wait
    /// for one more decides among equals.
    #[inline(always)]
    fn emptiest(&self, tats: &Tats<FURTHER>, wants_more: bool) -> Standing<'_> {
        let mut emptiest = Standing::at(&self.first, 1, tats.first, wants_more);
        let mut fewest = emptiest.remaining();
        for ((funnel, tat), number) in self.further().zip(&tats.further).zip(2..) {
            let other = Standing::at(funnel, number, *tat, wants_more);
            let remaining = other.remaining();
            if remaining < fewest || remaining == fewest && other.wait > emptiest.wait {
                (fewest, emptiest) = (remaining, other);
            }
        }
        emptiest
    }

    /// Gives tokens back to each quota. The call is never limited.
    ///
    /// The limiter is copied: a reference to it would keep it out of the registers in every other call.
    #[cold]
    fn give_back(self, before: Tats<FURTHER>, tokens: u64) -> (Tats<FURTHER>, Change<FURTHER>) {
        let now = self.first.now();
        let mut after = before.with_each(self.quotas, now);
        after.first = self.first.give_back(after.first, tokens);
        for (funnel, tat) in self.further().zip(&mut after.further) {
            *tat = funnel.give_back(*tat, tokens);
        }
        let change = if before.is_empty() {
            Change::Nothing
        } else if after.last() <= now {
            Change::Delete
        } else if after.begin_with(&before) {
            Change::Nothing
        } else {
            Change::Store(after)
        };
        (after, change)
    }

    /// Returns the verdict of a call that takes nothing.
    #[inline(always)]
    fn verdict(&self, decides: &Standing) -> Verdict {
        Verdict {
            limited: false,
            taken: 0,
            limit: decides.funnel.limit(),
            remaining: decides.remaining(),
            retry_after: decides.wait.span(),
            reset_after: decides.until_full,
            quota: (FURTHER > 0 && self.quotas > 1).then_some(decides.number),
        }
    }

    #[inline(always)]
    fn further(&self) -> impl Iterator<Item = &Funnel> {
        self.further.iter().map_while(Option::as_ref)
    }
}

/// A quota in a call.
#[derive(Clone, Copy)]
struct Standing<'a> {
    funnel: &'a Funnel,
    /// 1, 2, …
    number: u64,
    until_full: Span,
    wait: Wait,
}

impl<'a> Standing<'a> {
    /// Takes tokens, if the quota has them or if the call takes them in any case.
    #[inline(always)]
    fn take(
        funnel: &'a Funnel,
        number: u64,
        tat: &mut Moment,
        taking: Taking,
        tokens: u64,
    ) -> Result<Self, QuotaError> {
        let taken = match taking {
            Taking::AllOrNone => funnel.take(*tat, tokens),
            Taking::Nothing => Taken { tat: *tat, ..funnel.take(*tat, tokens) },
            // Every quota has these tokens. A call for none of them does not wait for a debt.
            Taking::UpTo => Taken { wait: Wait::NONE, ..funnel.take(*tat, tokens) },
            Taking::InAnyCase => funnel.charge(*tat, tokens).map_err(|error| (error, number))?,
        };
        *tat = taken.tat;
        Ok(Self { funnel, number, until_full: funnel.until_full(*tat), wait: taken.wait })
    }

    /// Returns the quota's standing on this TAT. The wait is that for one more token if the call wants more than it
    /// got. If not, it is `WITHOUT_END`: the caller is told the same, that no wait is needed or that none helps.
    #[inline(always)]
    fn at(funnel: &'a Funnel, number: u64, tat: Moment, wants_more: bool) -> Self {
        let until_full = funnel.until_full(tat);
        let wait = if wants_more { funnel.wait_for_one_more(until_full) } else { Wait::WITHOUT_END };
        Self { funnel, number, until_full, wait }
    }

    #[inline(always)]
    fn remaining(&self) -> u64 {
        self.funnel.remaining(self.until_full)
    }
}

impl<const FURTHER: usize> Tats<FURTHER> {
    /// The TATs of a full limiter.
    pub const NONE: Self = Self { first: Moment::EPOCH, further: [Moment::EPOCH; FURTHER], count: 0 };

    /// Adds a TAT, after those that are there.
    ///
    /// Errors: `TooMany` if all places are taken.
    #[inline(always)]
    pub fn add(&mut self, tat: Moment) -> Result<(), TooMany> {
        let place = match self.count {
            0 => &mut self.first,
            count => self.further.get_mut(count - 1).ok_or(TooMany)?,
        };
        *place = tat;
        self.count += 1;
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn first(&self) -> Moment {
        self.first
    }

    /// Returns the second and later TATs.
    #[inline(always)]
    pub fn further(&self) -> impl ExactSizeIterator<Item = Moment> {
        self.further.iter().take(self.count.saturating_sub(1)).copied()
    }

    /// Returns the latest TAT, at which the whole limiter is full.
    pub fn last(&self) -> Moment {
        self.further().fold(self.first, Moment::max)
    }

    /// Tells whether the first of these TATs are the others.
    fn begin_with(&self, others: &Self) -> bool {
        self.first == others.first && others.further().zip(self.further()).all(|(other, tat)| other == tat)
    }

    /// Adds the TATs that the first `quotas` of a limiter lack: those quotas are full at `now`.
    fn with_each(mut self, quotas: usize, now: Moment) -> Self {
        if self.count == 0 {
            self.first = now;
        }
        self.further.iter_mut().skip(self.count.saturating_sub(1)).for_each(|tat| *tat = now);
        Self { count: self.count.max(quotas), ..self }
    }
}
