//! Applies a call to all quotas of a limiter, such as 10 tokens a second and 1,000 a day.
//!
//! Each quota applies the rule in `funnel.rs` to the whole call, using its own TAT: the first TAT belongs to the first
//! quota of the call, and so on. A call with one quota allocates no memory. CL.THROTTLE takes its tokens from each
//! quota, or from none. CL.CHARGE takes its tokens from each quota, going into debt if necessary. CL.TAKE takes the
//! same number from each quota: as many tokens as the emptiest quota has. A refund gives tokens back to each quota.
//!
//! The reply is the verdict of a single quota, the one that **decides** (the first, if several qualify):
//!
//! * if the call is limited or leaves a debt, the quota with the longest wait decides (a wait that never ends counts as
//!   the longest);
//! * if CL.TAKE got fewer tokens than its quantity, the quota with the fewest tokens remaining decides and, among
//!   equals, the one that takes longest to get one more token;
//! * otherwise, the quota with the fewest tokens remaining decides.

use std::iter;

use crate::error::{CommandError, Error, Place};
use crate::funnel::{Funnel, Moment, Part, Span};

#[cfg(test)]
mod tests;

/// The maximum number of quotas per limiter.
pub const MAX_QUOTAS: usize = 8;

/// How a call takes tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// CL.THROTTLE takes all the tokens that it asks for, or none.
    AllOrNone,
    /// CL.CHARGE takes all the tokens that it asks for, going into debt if necessary.
    Always,
    /// CL.TAKE takes as many tokens as the limiter has, up to the number that it asks for.
    UpTo,
    /// CL.LOOK takes no tokens. Its reply says how CL.THROTTLE would decide.
    Nothing,
}

/// A limiter's quotas at one moment: the first, and at most `MAX_QUOTAS - 1` more.
#[derive(Debug, Clone)]
pub struct Limiter {
    pub first: Funnel,
    pub rest: Vec<Funnel>,
}

/// The TATs in a limiter's state, in the order of its quotas. A limiter that has no state is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tats {
    pub first: Moment,
    pub rest: Vec<Moment>,
}

/// The decision on a call: its verdict, and the change to the stored state.
#[derive(Debug, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    pub change: Change,
}

/// The contents of a call's reply, taken from the quota that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the quota had fewer tokens than the call asked for. For CL.TAKE, whether the call got none of the tokens
    /// that it asked for.
    pub limited: bool,
    /// The tokens that the call took: 0 for CL.LOOK, a refund or a limited CL.THROTTLE.
    pub taken: u64,
    /// The tokens that the quota holds when it is full.
    pub limit: u64,
    /// The tokens that the next call could take now: 0 to `limit`.
    pub remaining: u64,
    /// If the call was limited, the time until it would be allowed. If it went into debt, the time until the debt is
    /// paid. If it got only some of its tokens, the time until one more is available. `None` if it got all its tokens
    /// without a debt, or if waiting would not help.
    pub retry_after: Option<Span>,
    /// The time until the quota is full.
    pub reset_after: Span,
    /// The number of the quota that decides: 1, 2, … This is `None` if the limiter has only one quota.
    pub quota: Option<u64>,
}

/// A change to the stored state.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    Nothing,
    Store(Tats),
    /// Deletes the state, because a full limiter needs none.
    Delete,
}

impl Limiter {
    /// Decides a call for `quantity` tokens, given the stored TATs. A negative quantity gives tokens back, whatever
    /// `taking` is.
    ///
    /// Errors: `DebtTooLong` for the first quota whose debt would not be paid off by the year 2262.
    #[inline(always)]
    pub fn decide(&self, before: Option<Tats>, taking: Taking, quantity: i64) -> Result<Decision, CommandError> {
        let Ok(asked) = u64::try_from(quantity) else {
            return self.clone().refund(before, quantity.unsigned_abs());
        };
        let mut tats = self.tats(before);
        let tokens = if taking == Taking::UpTo { asked.min(self.fewest(&tats)) } else { asked };
        let verdict = self.decide_each(&mut tats, Call { taking: Some(taking), asked, tokens })?;
        Ok(Decision { change: if verdict.taken > 0 { Change::Store(tats) } else { Change::Nothing }, verdict })
    }

    /// Decides a call that gives tokens back.
    ///
    /// Takes a copy of the limiter. A reference would keep the limiter out of registers in all other calls, and cost
    /// each of them 40 to 65 instructions.
    #[cold]
    fn refund(self, before: Option<Tats>, tokens: u64) -> Result<Decision, CommandError> {
        let mut after = self.tats(before.clone());
        let verdict = self.decide_each(&mut after, Call { taking: None, asked: tokens, tokens })?;
        let change = match before {
            None => Change::Nothing,
            Some(_) if after.last() <= self.first.now() => Change::Delete,
            Some(before) if after.begin_with(&before) => Change::Nothing,
            Some(_) => Change::Store(after),
        };
        Ok(Decision { verdict, change })
    }

    /// Returns the stored TATs, with `now` as the TAT of each quota that has none, because such a quota is full.
    #[inline(always)]
    fn tats(&self, stored: Option<Tats>) -> Tats {
        let now = self.first.now();
        let mut tats = stored.unwrap_or(Tats { first: now, rest: Vec::new() });
        while tats.rest.len() < self.rest.len() {
            tats.rest.push(now);
        }
        tats
    }

    /// Returns the number of tokens that the emptiest quota holds.
    fn fewest(&self, tats: &Tats) -> u64 {
        let funnels = iter::once(&self.first).chain(&self.rest);
        let remaining = funnels.zip(tats.iter()).map(|(funnel, tat)| funnel.remaining(funnel.until_full(tat)));
        remaining.fold(u64::MAX, u64::min)
    }

    /// Applies the call to each quota. Returns the verdict of the quota that decides.
    #[inline(always)]
    fn decide_each(&self, tats: &mut Tats, call: Call) -> Result<Verdict, CommandError> {
        let mut decides = call.decide(&self.first, &mut tats.first)?;
        decides.quota = (!self.rest.is_empty()).then_some(1);
        for ((funnel, tat), number) in self.rest.iter().zip(&mut tats.rest).zip(2..) {
            let other = call.decide(funnel, tat);
            let other = other.map_err(|reason| CommandError { reason, place: Place::Quota(number) })?;
            if other.decides_over(&decides) {
                decides = Verdict { quota: Some(number), ..other };
            }
        }
        Ok(decides)
    }
}

/// What a call asks of each quota.
#[derive(Clone, Copy)]
struct Call {
    /// How the call takes tokens, or `None` if it gives tokens back.
    taking: Option<Taking>,
    asked: u64,
    /// The tokens to take from each quota or give back to it. For CL.TAKE, at most as many as the emptiest quota has.
    tokens: u64,
}

impl Call {
    /// Applies the call to one quota, and updates the quota's TAT.
    #[inline(always)]
    fn decide(self, funnel: &Funnel, tat: &mut Moment) -> Result<Verdict, Error> {
        let Self { taking, asked, tokens } = self;
        let part = match taking {
            None => funnel.give_back(*tat, tokens),
            Some(Taking::AllOrNone) => funnel.try_take(*tat, tokens),
            Some(Taking::Always) => funnel.charge(*tat, tokens)?,
            Some(Taking::UpTo) => funnel.take_up_to(*tat, tokens, asked),
            Some(Taking::Nothing) => Part { tat: *tat, taken: 0, ..funnel.try_take(*tat, tokens) },
        };
        *tat = part.tat;
        let Part { limited, taken, retry_after, .. } = part;
        let reset_after = funnel.until_full(part.tat);
        // If a call for a single token is limited, no tokens remain. Skip the division in `Funnel::remaining`.
        let remaining = if limited && tokens == 1 { 0 } else { funnel.remaining(reset_after) };
        Ok(Verdict { limited, taken, limit: funnel.limit(), remaining, retry_after, reset_after, quota: None })
    }
}

impl Verdict {
    /// Returns whether this verdict takes precedence over `other`, the verdict of an earlier quota.
    fn decides_over(&self, other: &Self) -> bool {
        match (self.limited, other.limited) {
            // A limited call without a `retry_after` can never pass, so its wait is the longest.
            (true, true) => other.retry_after.is_some_and(|wait| self.retry_after.is_none_or(|longer| longer > wait)),
            // If neither quota limits the call, both have a `retry_after` or neither does, so the two are comparable.
            (false, false) if self.remaining == other.remaining => self.retry_after > other.retry_after,
            (false, false) => self.remaining < other.remaining,
            (limited, _) => limited,
        }
    }
}

impl Tats {
    /// Returns whether `others` is a prefix of these TATs.
    fn begin_with(&self, others: &Self) -> bool {
        self.first == others.first && self.rest.starts_with(&others.rest)
    }

    pub fn iter(&self) -> impl Iterator<Item = Moment> {
        iter::once(self.first).chain(self.rest.iter().copied())
    }

    /// Returns the latest TAT, which is the time at which the whole limiter is full.
    pub fn last(&self) -> Moment {
        self.iter().fold(self.first, Moment::max)
    }
}
